#!/bin/sh
# weir.h compiles as C++ (several standards) and as strict C, and cxx.cc works against the shared library.
. "$(dirname "$0")/lib.sh"

compile() { # compile STANDARD
    g++ "-std=$1" -Wall -Wextra -Werror -pedantic -Iinclude -c tests/api/cxx.cc -o "$scratch/cxx-$1.o"
}
header() { # header STANDARD
    echo '#include <weir.h>' | cc "-std=$1" -Wall -Wextra -Werror -pedantic -Iinclude -x c -fsyntax-only -
}
program() {
    g++ -std=c++17 -Wall -Wextra -Werror -Iinclude tests/api/cxx.cc -o "$scratch/cxx" \
        -L"$build" -lweir -Wl,-rpath,"$build"
}

for standard in c++11 c++17 c++20; do
    check "cxx.cc compiles as $standard" compile "$standard"
done
for standard in c11 gnu17; do
    check "weir.h compiles as $standard" header "$standard"
done
check "cxx.cc links against libweir.so" program
if [ -x "$scratch/cxx" ]; then
    "$scratch/cxx" >"$scratch/out" 2>&1 || true
    sed '$d' "$scratch/out"
    set -- $(tail -n 1 "$scratch/out")
    passed=$((passed + ${1:-0}))
    if [ "${2:-}" = passed, ]; then failed=$((failed + $3)); else bad "cxx ran to its end"; fi
fi
finish
