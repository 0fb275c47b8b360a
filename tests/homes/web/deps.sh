#!/bin/sh
# Puts playwright-core where the browser tests look for it, outside the tree, and prints that folder and
# the browser, which is the system's. Says plainly what is missing otherwise.
set -eu

version=1.65.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/weir-npm/playwright-core-$version

need() { # need PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || {
        echo "tests/homes/web: $1 is missing; on Debian and Ubuntu: apt-get install $2" >&2
        exit 1
    }
}
need node nodejs
need npm npm
browser=${WEIR_CHROMIUM:-chromium}
need "$browser" chromium

if ! [ -f "$folder/node_modules/playwright-core/package.json" ]; then
    mkdir -p "$folder"
    if ! PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund --no-save --ignore-scripts \
        --prefix "$folder" "playwright-core@$version" >&2; then
        rm -rf "$folder"
        echo "tests/homes/web: npm could not install playwright-core $version" >&2
        exit 1
    fi
fi
echo "$folder"
command -v "$browser"
