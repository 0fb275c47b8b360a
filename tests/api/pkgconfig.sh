#!/bin/sh
# What `meson install` puts somewhere is enough to build and run a program with nothing but pkg-config.
. "$(dirname "$0")/lib.sh"

stage=$scratch/stage
check "meson install into an empty folder" meson install -C "$build" --destdir "$stage" --no-rebuild --quiet
pc=$(find "$stage" -name weir.pc)
if [ -z "$pc" ]; then
    bad "weir.pc is installed"
    finish
fi
good "weir.pc is installed"
prefix=$(sed -n 's/^prefix=//p' "$pc")
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_LIBDIR="$(dirname "$pc")" PKG_CONFIG_SYSROOT_DIR="$stage"
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1

for file in "$stage$prefix/include/weir.h" "$libdir/libweir.a" "$libdir/libweir.so" "$libdir/libweir.so.0"; do
    check "installed: ${file##*/}" [ -e "$file" ]
done
version=$(tools/version.sh)
check "pkg-config knows version $version" pkg-config "--exact-version=$version" weir
none "no path of the checkout in weir.pc" "$(grep -nF "$root" "$pc")"

build_shared() {
    # shellcheck disable=SC2046
    cc -Wall -Wextra -Werror examples/embed.c -o "$scratch/shared" $(pkg-config --cflags --libs weir)
}
build_static() {
    # shellcheck disable=SC2046
    cc -Wall -Wextra -Werror -static examples/embed.c -o "$scratch/static" $(pkg-config --static --cflags --libs weir)
}
runs() { # runs COMMAND …: five lines, of which the first is known
    "$@" >"$scratch/out" && [ "$(wc -l <"$scratch/out")" = 5 ] &&
        [ "$(head -n 1 "$scratch/out")" = "request 1: allowed, 2 left" ]
}
uses_shared() {
    LD_LIBRARY_PATH=$libdir ldd "$scratch/shared" | grep -qF "$libdir/libweir.so.0"
}

check "embed.c builds with pkg-config --cflags --libs weir" build_shared
check "it uses the installed libweir.so.0" uses_shared
check "it runs" runs env "LD_LIBRARY_PATH=$libdir" "$scratch/shared"
check "embed.c builds with pkg-config --static" build_static
check "it runs, without any library" runs "$scratch/static"
if [ -x "$stage$prefix/bin/weir" ]; then
    check "the installed command runs" [ "$("$stage$prefix/bin/weir" --version)" = "weir $version" ]
fi
if grep -q 'man/man1' "$build/meson-info/intro-installed.json" 2>/dev/null; then
    for page in man1/weir.1 man3/weir.3 man7/weir-limits.7; do
        check "installed: $page" sh -c "ls '$stage$prefix/share/man/$page'*"
    done
fi
finish
