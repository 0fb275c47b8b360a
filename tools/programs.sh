#!/bin/sh
# Builds in build/ what a user runs, which is what is installed and the examples, and says what could not be built.
set -eu
cd "$(dirname "$0")/.."
tools/configure.sh build
# shellcheck disable=SC2046
ninja -C build examples $(tools/installed-targets build)
[ -e build/ngx_http_weir_module.so ] || echo 'not built: the module for nginx, which needs nginx-dev (make nginx-module)'
[ -e build/docs/weir.1 ] || echo 'not built: man pages, which need scdoc'
