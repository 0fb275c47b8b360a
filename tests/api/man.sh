#!/bin/sh
# Every function has its man page, made from the comments of include/weir.h; man-db and groff accept them all.
. "$(dirname "$0")/lib.sh"
LC_ALL=C.UTF-8
export LC_ALL

stage=$scratch/stage
check "meson install into an empty folder" meson install -C "$build" --destdir "$stage" --no-rebuild --quiet
man3=$(find "$stage" -type d -name man3)
check "man pages are installed" [ -d "$man3" ]
{
    cat tests/api/symbols.txt
    grep -o '^static inline [a-z_]* weir_[a-z_]*' include/weir.h | sed 's/.* //'
} | sort >"$scratch/functions"
none "every function has a page" "$(while read -r name; do [ -s "$man3/$name.3" ] || echo "$name"; done <"$scratch/functions")"
none "and no other name has one" "$(for page in "$man3"/weir_*.3; do basename "$page" .3; done | sort | comm -23 - "$scratch/functions")"
none "each says what it does, and how it is called" "$(while read -r name; do
    man --local-file "$man3/$name.3" 2>/dev/null | col -b >"$scratch/text"
    grep -q "^ *$name - [A-Za-z]" "$scratch/text" && grep -q "[ *]$name(.*[,;]\$" "$scratch/text" || echo "$name"
done <"$scratch/functions")"
none "groff has no complaint" "$(for page in "$man3"/*.3; do groff -man -Tutf8 -ww -z "$page" 2>&1; done)"
finish
