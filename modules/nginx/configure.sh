#!/bin/bash
# Makes ngx_auto_config.h as an nginx was configured: configure.sh SOURCE FOLDER
# SOURCE is a tree of nginx's sources or headers. Where it was configured already, that counts. Else where
# it has conf_flags (nginx-dev's: /usr/share/nginx/src), these. Else the module is made for any nginx of
# that version that was built --with-compat.
set -euo pipefail
source=$(realpath "$1") folder=$(realpath "$2")

if [ -e "$source/objs/ngx_auto_config.h" ]; then
    cp "$source/objs/ngx_auto_config.h" "$source/objs/ngx_auto_headers.h" "$folder/"
    exit
fi

NGX_CONF_FLAGS=(--with-compat --with-threads --with-http_ssl_module --with-http_v2_module)
[ ! -e "$source/conf_flags" ] || . "$source/conf_flags"
configure=$source/configure # of a release; a checkout of the repository has it in auto/
[ -e "$configure" ] || configure=$source/auto/configure

# configure writes a Makefile where it runs, so it runs in a folder of links.
rm -rf "$folder/nginx"
mkdir -p "$folder/nginx"
cd "$folder/nginx"
ln -s "$source/auto" "$source/src" .
[ ! -e "$source/conf" ] || ln -s "$source/conf" .
if ! sh "$configure" "${NGX_CONF_FLAGS[@]}" --builddir="$PWD/objs" >configure.log 2>&1; then
    tail -20 configure.log >&2
    exit 1
fi
cp objs/ngx_auto_config.h objs/ngx_auto_headers.h "$folder/"
