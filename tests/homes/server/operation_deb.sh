#!/bin/bash
# The Debian packages: built, looked at, unpacked into a throw-away root and run from there; and, as root, installed
# for good on a copy of this system (an overlay, gone afterwards) with a systemd of its own, started, restarted, upgraded,
# killed and removed. Packages that are older than a source are built anew.
#
#     tests/homes/server/operation_deb.sh        $WEIR_DEB: where the packages are, or go (build/deb)
set -u
cd "$(dirname "$0")/../../.." || exit 1
root=$PWD
packages=${WEIR_DEB:-$root/build/deb}
passed=0
failed=0
folder=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
names="weir libweir0 libweir-dev weir-redis-module libnginx-mod-http-weir"

check() { # check WHAT COMMAND…: the command must succeed
    local what=$1
    shift
    if "$@" >"$folder/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $what: $*"
        sed 's/^/     /' "$folder/out" | tail -n 20
    fi
}

is_fresh() {
    [ -n "$(find "$packages" -name 'weir_*.deb' 2>/dev/null)" ] &&
        [ -z "$(find include src modules lua docs web tools packaging meson.build -type f -newer "$(ls "$packages"/weir_*.deb)" \
            -not -name '*.pyc' | head -n 1)" ]
}

# ---- building ----

if ! is_fresh; then
    check "the packages are built" packaging/deb.sh "$packages"
fi
for name in $names; do
    check "$name is there" test -f "$(ls "$packages/${name}_"*.deb)"
done
[ "$failed" = 0 ] || {
    echo "$passed passed, $failed failed"
    exit 1
}
deb() { ls "$packages/${1}_"*.deb; }

# ---- what is in them ----

lintian_says() { # errors and warnings, but that nobody asked Debian for this package
    lintian --allow-root --fail-on error --suppress-tags initial-upload-closes-no-bugs,bad-distribution-in-changes-file \
        "$packages"/weir_*.changes
}
if command -v lintian >/dev/null; then
    check "lintian" lintian_says
    check "lintian has nothing to say" test ! -s "$folder/out"
fi
for name in $names; do
    check "$name unpacks" dpkg-deb -x "$(deb "$name")" "$folder/root"
done
check "the command does not need the shared library" sh -c "! dpkg-deb -f '$(deb weir)' Depends | grep -q libweir0"
check "files of /etc are configuration" sh -c \
    "dpkg-deb --ctrl-tarfile '$(deb weir)' | tar -xO ./conffiles | sort | tr '\n' ' ' | \
     grep -qx '/etc/default/weir /etc/weir/policies.yaml '"
for path in usr/bin/weir usr/share/weir/lua/weir_library.lua usr/share/weir/lua/take_token_bucket.lua usr/share/man/man1/weir.1.gz usr/share/man/man7/weir-limits.7.gz usr/share/man/man3/weir.3.gz \
    usr/share/bash-completion/completions/weir usr/share/zsh/vendor-completions/_weir \
    usr/share/fish/vendor_completions.d/weir.fish usr/include/weir.h etc/weir/policies.yaml etc/default/weir \
    usr/lib/nginx/modules/ngx_http_weir_module.so usr/share/man/man7/weir-nginx.7.gz; do
    check "a file: $path" test -s "$folder/root/$path"
done
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
check "the module is there" test -s "$folder/root/usr/lib/$triplet/weir/weir_redis.so"
check "a hardened program" sh -c "readelf -hdlW '$folder/root/usr/bin/weir' | grep -q 'Flags:.*NOW.*PIE' &&
    readelf -lW '$folder/root/usr/bin/weir' | grep -q GNU_RELRO"

abi=$(dpkg-query -W -f '${Provides}' nginx | grep -o 'nginx-abi-[^, ]*')
check "the nginx module goes with the nginx that is here, and with no other" sh -c \
    "dpkg-deb -f '$(deb libnginx-mod-http-weir)' Depends | grep -qwF '${abi:-none}'"
check "a line loads it" grep -qx 'load_module modules/ngx_http_weir_module.so;' \
    "$folder/root/usr/share/nginx/modules-available/mod-http-weir.conf"

# ---- run from the throw-away root ----

weir=$folder/root/usr/bin/weir
check "it runs" "$weir" --version
check "its version is the package's" sh -c \
    "'$weir' --version | grep -qF \"\$(dpkg-deb -f '$(deb weir)' Version | sed 's/-[0-9]*\$//')\""
check "the policies are good" "$weir" check "$folder/root/etc/weir/policies.yaml"
options=$(sed -n 's/^#WEIR_OPTIONS="\(.*\)"/\1/p' "$folder/root/etc/default/weir")
check "the unit has the options that /etc/default/weir tells" grep -qF "\"WEIR_OPTIONS=$options\"" \
    packaging/systemd/weir.service
mkdir -p "$folder/root/var/lib/weir"
options=$(echo "$options" | sed "s|/etc/weir|$folder/root/etc/weir|; s|/var/lib|$folder/root/var/lib|")
# shellcheck disable=SC2086
"$weir" serve --listen "unix:$folder/socket" $options >"$folder/serve" 2>&1 &
server=$!
for _ in $(seq 100); do
    grep -q '^store: file' "$folder/serve" && break
    sleep 0.05
done
check "it serves with the unit's options" curl -sf --max-time 5 --unix-socket "$folder/socket" \
    'http://localhost/v1/take?key=k&limit=token-bucket+10/s'
kill "$server"
check "and stops" wait "$server"
server=
check "a program is built with the library" cc -o "$folder/program" -I"$folder/root/usr/include" -x c - \
    -L"$folder/root/usr/lib/$triplet" -lweir <<'C'
#include <weir.h>
#include <stdio.h>
int main(void)
{
    weir_store *store;
    weir_limit *limit;
    weir_decision d;
    weir_error err;
    if (weir_store_open("memory:1m", &store, &err) || weir_limit_parse("token-bucket 1/s", &limit, &err))
        return 1;
    weir_request request = weir_request_make(weir_key_text("k"), limit);
    int code = weir_take_all(store, &request, 1, &d);
    weir_limit_free(limit);
    weir_store_close(store);
    return code || !d.allowed;
}
C
check "and runs" env LD_LIBRARY_PATH="$folder/root/usr/lib/$triplet" "$folder/program"

mkdir "$folder/nginx" "$folder/nginx/modules" "$folder/nginx/html"
echo limited >"$folder/nginx/html/index.html"
cp "$folder/root/usr/lib/nginx/modules/"*.so "$folder/nginx/modules"
{
    sed "s| modules/| $folder/nginx/modules/|" "$folder/root/usr/share/nginx/modules-available/mod-http-weir.conf"
    cat <<NGINX
daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
    access_log off;
    client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    weir_zone clients 1m;
    server {
        listen unix:$folder/nginx/socket;
        weir_limit key=\$host zone=clients "fixed-window 1/d from-first";
        root html;
    }
}
NGINX
} >"$folder/nginx/nginx.conf"
PATH=$PATH:/usr/sbin
nginx="nginx -p $folder/nginx/ -c nginx.conf -e error.log"
# shellcheck disable=SC2086
check "nginx accepts the module and a limit" $nginx -t
# shellcheck disable=SC2086
$nginx >"$folder/nginx/out" 2>&1 &
server=$!
for _ in $(seq 200); do
    [ -S "$folder/nginx/socket" ] && break
    sleep 0.05
done
asked() { curl -s --max-time 10 -o /dev/null -w '%{http_code}\n' --unix-socket "$folder/nginx/socket" http://localhost/; }
check "a request passes" sh -c "[ '$(asked)' = 200 ]"
check "the next is limited" sh -c "[ '$(asked)' = 429 ]"
kill -QUIT "$server"
check "nginx ends well" wait "$server"
server=

# ---- installed on a copy of this system ----

can_copy() { # privileges for an overlay of / in namespaces of its own
    [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && [ -x /lib/systemd/systemd ] &&
        unshare --mount --pid --fork --net --cgroup sh -c "mkdir -p '$folder/try' && mount -t tmpfs tmpfs '$folder/try' &&
            mkdir '$folder/try/u' '$folder/try/w' '$folder/try/m' &&
            mount -t overlay overlay -o 'lowerdir=/,upperdir=$folder/try/u,workdir=$folder/try/w' '$folder/try/m'" \
            >/dev/null 2>&1
}
if can_copy; then
    mkdir "$folder/host"
    timeout 600 tests/homes/server/operation_deb_boot.sh "$folder/copy" "$folder/host" "$root" "$packages" >"$folder/boot" 2>&1
    if [ -f "$folder/host/counts" ]; then
        cat "$folder/host/out"
        read -r more wrong <"$folder/host/counts"
        passed=$((passed + more))
        failed=$((failed + wrong))
    else
        failed=$((failed + 1))
        echo "FAIL systemd on a copy of this system did not come to its end"
        tail -n 30 "$folder/boot" "$folder/host/out" 2>/dev/null
    fi
elif command -v systemd-analyze >/dev/null; then
    echo "without the privilege to run systemd on a copy of this system: the units are verified only"
    for unit in service socket; do
        sed "s|/usr/bin/weir|$weir|" "$folder/root/lib/systemd/system/weir.$unit" >"$folder/weir.$unit"
    done
    check "the units are understood" systemd-analyze verify --man=no "$folder/weir.service" "$folder/weir.socket"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
