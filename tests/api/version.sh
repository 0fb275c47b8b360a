#!/bin/sh
# The version stands in include/weir.h alone. All others read it there.
. "$(dirname "$0")/lib.sh"

version=$(tools/version.sh)
check "tools/version.sh finds three numbers, not \"$version\"" sh -c "echo '$version' | grep -qxE '[0-9]+\.[0-9]+\.[0-9]+'"
cat >"$scratch/version.c" <<'C'
#include <stdio.h>
#include <weir.h>
int main(void)
{
    printf("%s %s %d %d\n", WEIR_VERSION, weir_version(), WEIR_VERSION_NUMBER,
           WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH);
}
C
check "a program against libweir.so" cc -Wall -Wextra -Werror -Iinclude "$scratch/version.c" -o "$scratch/version" \
    -L"$build" -lweir -Wl,-rpath,"$build"
number=$(echo "$version" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
told=$("$scratch/version")
check "header and library say $version, $number: \"$told\"" [ "$told" = "$version $version $number $number" ]
check "the command says it" [ "$("$build/weir" --version)" = "weir $version" ]
check "so does the build" sh -c "grep -qF '\"version\": \"$version\"' '$build/meson-info/intro-projectinfo.json'"
check "so does the name of the library" [ -e "$build/libweir.so.$version" ]
quoted=$(printf '%s' "$version" | sed 's/\./\\./g')
# npm wants it in package.json; tests/homes/bindings/node_package.py compares it.
none "nobody else repeats it" "$(git grep -nE "(^|[^0-9.])$quoted([^0-9.]|\$)" -- . ':!fuzz' ':!tests/unit' ':!*.svg' ':!bindings/node/package.json' 2>/dev/null |
    grep -vE '[0-9]\.[0-9]+\.[0-9]+\.[0-9]')"
finish
