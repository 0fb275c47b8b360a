#!/bin/sh
# Installs the Redis clients for Node that tests use beside Debian's, once, outside the tree; prints where. Loud where
# it cannot.    WEIR_NPM names another folder than ~/.cache/weir-npm
set -eu

folder=${WEIR_NPM:-${XDG_CACHE_HOME:-$HOME/.cache}/weir-npm}/clients
packages='ioredis@5.4.1 redis@5.8.2'

command -v npm >/dev/null 2>&1 || {
    echo "npm is missing; install the packages nodejs and npm" >&2
    exit 3
}
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9 # tests run side by side
for package in $packages; do
    name=${package%@*} version=${package##*@}
    if ! grep -q "\"version\": \"$version\"" "$folder/node_modules/$name/package.json" 2>/dev/null; then
        # shellcheck disable=SC2086
        npm install --silent --no-audit --no-fund --prefix "$folder" $packages >&2 || {
            echo "npm cannot install $packages into $folder" >&2
            exit 3
        }
        break
    fi
done
echo "$folder/node_modules"
