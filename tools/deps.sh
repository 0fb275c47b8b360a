#!/bin/sh
# Makes sure that the Debian packages for a task are installed:
#
#     tools/deps.sh run|nginx|build|test|bindings|wheel|lint|fuzz|soak|bench|deb|portable
#
# As root on Debian or Ubuntu it installs what is missing. Otherwise it says what to install.
set -eu

missing=
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

program() { # what the program itself is made with
    need cc gcc
    need meson meson
    need ninja ninja-build
    need pkg-config pkg-config
    need python3 python3
    [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
    [ -e /usr/include/yaml.h ] || missing="$missing libyaml-dev"
    [ -e /usr/include/nghttp2/nghttp2.h ] || missing="$missing libnghttp2-dev"
    [ -e /usr/include/openssl/ssl.h ] || missing="$missing libssl-dev"
    # For logs that are packed; without these, weir reads plain ones.
    [ -e /usr/include/zlib.h ] || missing="$missing zlib1g-dev"
    [ -e /usr/include/zstd.h ] || missing="$missing libzstd-dev"
}

nginx_headers() {
    [ -e /usr/share/nginx/src/src/core/nginx.h ] || missing="$missing nginx-dev"
}

python_headers() { # of Debian's Python, which has the frameworks
    /usr/bin/python3 -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null ||
        missing="$missing python3-dev"
}

for purpose in "$@"; do
    case $purpose in
    run) program ;;
    nginx)
        program
        nginx_headers
        ;;
    build)
        program
        need scdoc scdoc
        nginx_headers
        ;;
    test)
        need g++ g++
        need gcovr gcovr
        need man man-db
        need script bsdutils
        need redis-server redis-server
        need redis-cli redis-tools
        # The clients of docs/REDIS.md and examples/redis, as Debian installs them.
        /usr/bin/python3 -c 'import redis' 2>/dev/null || missing="$missing python3-redis"
        need node nodejs
        need npm npm
        # Frameworks for the examples of the server.
        /usr/bin/python3 -c 'import flask' 2>/dev/null || missing="$missing python3-flask"
        /usr/bin/python3 -c 'import starlette' 2>/dev/null || missing="$missing python3-starlette"
        /usr/bin/python3 -c 'import uvicorn' 2>/dev/null || missing="$missing python3-uvicorn"
        # promtool reads the rules for Prometheus.
        need promtool prometheus
        /usr/bin/python3 -c 'import yaml' 2>/dev/null || missing="$missing python3-yaml"
        # Other implementations of HTTP/2 and TLS, to test the server with.
        need curl curl
        need h2load nghttp2-client
        need openssl openssl
        # Months of a place.
        [ -e /usr/share/zoneinfo/Europe/Berlin ] || missing="$missing tzdata"
        # A browser for the dashboard, a proxy for its recipes.
        need chromium chromium
        PATH=$PATH:/usr/sbin
        need nginx nginx
        # For bindings/lua. It brings its own LuaJIT, which replaces the package luajit.
        [ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] || missing="$missing libnginx-mod-http-lua"
        need caddy caddy
        # Their logs are read.
        need apache2 apache2-bin
        need haproxy haproxy
        need zstd zstd
        need wrk wrk
        need ab apache2-utils
        [ -d /usr/share/nodejs/redis ] || missing="$missing node-redis"
        need go golang-go
        [ -d /usr/share/gocode/src/github.com/gomodule/redigo ] ||
            missing="$missing golang-github-gomodule-redigo-dev"
        ;;
    bindings)
        python_headers
        # Frameworks and packages that the bindings are used with, as Debian installs them.
        for module in limits flask_limiter fastapi django redis; do
            /usr/bin/python3 -c "import $module" 2>/dev/null || missing="$missing python3-$(echo $module | tr _ -)"
        done
        need gunicorn gunicorn
        need uvicorn uvicorn
        need mypy mypy
        need node nodejs
        need npm npm
        [ -e /usr/include/node/node_api.h ] || missing="$missing libnode-dev"
        /usr/bin/python3 -c 'import pip' 2>/dev/null || missing="$missing python3-pip"
        need wrk wrk
        need redis-server redis-server
        ;;
    wheel)
        need cc gcc
        python_headers
        ;;
    lint)
        need clang-format clang-format
        need clang-tidy clang-tidy
        ;;
    fuzz) need clang clang ;;
    soak)
        need valgrind valgrind
        # Wheels for other processors.
        need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        need riscv64-linux-gnu-gcc "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
        ;;
    bench)
        PATH=$PATH:/usr/sbin
        need nginx nginx
        need wrk wrk
        need h2load nghttp2-client
        need redis-server redis-server
        ;;
    deb)
        need dpkg-buildpackage dpkg-dev
        need dh debhelper
        need lintian lintian
        ;;
    portable)
        need clang clang
        need musl-gcc musl-tools
        need qemu-aarch64 qemu-user
        need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        need riscv64-linux-gnu-gcc "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross"
        need i686-linux-gnu-gcc "gcc-i686-linux-gnu libc6-dev-i386-cross"
        need s390x-linux-gnu-gcc "gcc-s390x-linux-gnu libc6-dev-s390x-cross"
        ;;
    *)
        echo "deps: unknown purpose $purpose; there are run, build, test, bindings, wheel, lint, fuzz, soak, bench, deb and portable" >&2
        exit 2
        ;;
    esac
done

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing:$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 || {
        apt-get update >&2
        apt-get install -y --no-install-recommends $missing >&2
    }
else
    echo "missing packages:$missing" >&2
    echo "install them with: sudo apt-get install$missing" >&2
    exit 3
fi
