#!/bin/sh
# Installs the Node packages that tests need, once, outside the tree; prints where. Loud where it cannot.
#   tests/homes/server/npm_deps.sh      WEIR_NPM names another folder than ~/.cache/weir-npm
set -eu

folder=${WEIR_NPM:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-npm}
packages='@grpc/grpc-js@1.14.0 @grpc/proto-loader@0.8.0 express@5.1.0'

mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9 # tests run side by side
installed=yes
for package in $packages; do
    name=${package%@*} version=${package##*@}
    grep -q "\"version\": \"$version\"" "$folder/node_modules/$name/package.json" 2>/dev/null || installed=no
done
if [ "$installed" = no ]; then
    command -v npm >/dev/null 2>&1 || {
        echo "npm is missing; install the packages nodejs and npm" >&2
        exit 3
    }
    # shellcheck disable=SC2086
    npm install --silent --no-audit --no-fund --prefix "$folder" $packages >&2 || {
        echo "npm cannot install $packages into $folder" >&2
        exit 3
    }
fi
echo "$folder/node_modules"
