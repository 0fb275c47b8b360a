#!/bin/sh
# Sets up a build folder. Sets it up again if something was missing the last time and is there
# now (the headers of nginx, scdoc), or if the dashboard has other files than then.
#
#     tools/configure.sh FOLDER [OPTION …]     options are Meson's
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
found=
[ ! -e /usr/share/nginx/src/src/core/nginx.h ] || found="$found nginx"
! command -v scdoc >/dev/null 2>&1 || found="$found scdoc"
found="$found $(ls web | cksum)"
if [ ! -e "$folder/build.ninja" ]; then
    meson setup "$folder" "$@" >/dev/null
elif [ "$(cat "$folder/found" 2>/dev/null)" != "$found" ]; then
    meson setup --reconfigure "$folder" >/dev/null
else
    exit 0
fi
echo "$found" >"$folder/found"
