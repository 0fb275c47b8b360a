#!/bin/bash
# Makes ngx_auto_config.h as Debian's nginx was configured: configure.sh SOURCE FOLDER
# SOURCE is a tree of nginx's sources or headers (nginx-dev: /usr/share/nginx/src). Without conf_flags
# there, the module is made for any nginx of that version that was built --with-compat.
set -euo pipefail
source=$1 folder=$(realpath "$2")

NGX_CONF_FLAGS=(--with-compat --with-threads --with-http_ssl_module --with-http_v2_module)
[ ! -e "$source/conf_flags" ] || . "$source/conf_flags"

# configure writes a Makefile where it runs, so it runs in a folder of links.
rm -rf "$folder/nginx"
mkdir -p "$folder/nginx"
cd "$folder/nginx"
ln -s "$source/auto" "$source/src" .
[ ! -e "$source/conf" ] || ln -s "$source/conf" .
if ! sh "$source/configure" "${NGX_CONF_FLAGS[@]}" --builddir="$PWD/objs" >configure.log 2>&1; then
    tail -20 configure.log >&2
    exit 1
fi
cp objs/ngx_auto_config.h objs/ngx_auto_headers.h "$folder/"
