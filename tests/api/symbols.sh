#!/bin/sh
# The shared library exports what is promised, no more and no less: symbols.txt is frozen. A name may be
# added to it with a minor version and removed only with a new soname.
. "$(dirname "$0")/lib.sh"
LC_ALL=C
export LC_ALL

frozen=tests/api/symbols.txt
sort -u "$frozen" >"$scratch/frozen"
nm -D --defined-only "$build/libweir.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$scratch/exported"
nm -D --defined-only "$build/libweir.so" |
    awk '$2 != "T" && $2 != "A" && $3 !~ /^(__[atu]san|__ubsan|__sanitizer)/ { print }' >"$scratch/data"
sed -n '/global:/,/local:/s/^ *\([a-z_0-9]*\);$/\1/p' src/weir.map | sort -u >"$scratch/map"
grep -v '^#' include/weir.h | tr '\n' ' ' | grep -o 'WEIR_API [^;{]*(' |
    sed 's/(.*//; s/.*[ *]//' | sort -u >"$scratch/declared"

check "symbols.txt is sorted and names each once" cmp "$frozen" "$scratch/frozen"
check "libweir.so exports exactly symbols.txt" diff "$scratch/frozen" "$scratch/exported"
check "src/weir.map says the same" diff "$scratch/frozen" "$scratch/map"
check "weir.h declares the same as WEIR_API" diff "$scratch/frozen" "$scratch/declared"
none "no data is exported" "$(cat "$scratch/data")"
none "all names begin with weir_, none with weir__" "$(grep -v '^weir_[a-z]' "$scratch/exported")"
none "all of them have the version WEIR_0" \
    "$(nm -D --defined-only --with-symbol-versions "$build/libweir.so" | awk '$2 == "T" && $3 !~ /@@?WEIR_0$/')"
soname=$(readelf -d "$build/libweir.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
check "the soname is libweir.so.0, not \"$soname\"" [ "$soname" = libweir.so.0 ]
needed=$(readelf -d "$build/libweir.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libpthread|ld-linux.*|libasan|libubsan|libtsan)\.so\.[0-9]+$')
none "it needs nothing but libc" "$needed"
finish
