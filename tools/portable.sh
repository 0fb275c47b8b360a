#!/bin/sh
# Builds the library and its C tests with other compilers, C libraries and processors, and runs them; qemu runs those of
# other processors. Ends in one line "N passed, N failed".
#
#     tools/portable.sh [TARGET …]     clang, musl, no-swap, aarch64, riscv64, i686, s390x; all of them if none is named
#
# no-swap is x86-64 without the 16-byte swap. i686 and s390x (32 bits, big-endian) must be refused when they are compiled.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
out=$root/build/portable
passed=0
failed=0
FLAGS="-std=gnu11 -O2 -g -D_GNU_SOURCE -DWEIR__WITH_REMOTE -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Werror
    -Wno-unknown-warning-option -I$root/include -I$root/src -I$out"
# What needs no server, no other library and no robust mutexes, which qemu does not know.
TESTS="base_buffer base_duration base_error base_hash base_random core_buckets core_definitions core_fold core_guava
    core_leases core_load core_never_more core_ring core_rows core_show core_sound core_windows limit_errors
    limit_explain limit_language limit_receipt limit_sound wire_decision wire_fields wire_json wire_resp wire_state
    wire_url header_promises store_bounds store_settled store_verbs zone_change zone_evict zone_file zone_large zone_repair zone_space"
SHARED="threads threads_counts threads_groups waits waits_cancel waits_served"

result() { # result CODE WORDS
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "ok   $2"
    else
        failed=$((failed + 1))
        echo "FAIL $2"
    fi
}

# Every file of the library, as many at once as there are cores.
library() { # library FOLDER COMPILER FLAG …
    folder=$1
    shift
    mkdir -p "$folder"
    sed 's|^|src/|' src/library.txt >"$folder/sources"
    # shellcheck disable=SC2016
    xargs -P "$(nproc)" -I{} sh -c 'source=$1 folder=$2; shift 2
        exec "$@" -c "$source" -o "$folder/$(echo "$source" | tr / _).o"' sh {} "$folder" "$@" <"$folder/sources" &&
        ar rcs "$folder/libweir.a" "$folder"/*.o
}

# One test: compiled, linked, run. Its own line says how it went.
try() { # try TARGET RUN FOLDER TEST ARGUMENTS COMPILER FLAG …
    target=$1 run=$2 folder=$3 test=$4 arguments=$5
    shift 5
    source=tests/unit/$test.c
    [ -e "$source" ] || source=tests/concurrent/$test.c
    code=0
    "$@" "$source" "$folder/libweir.a" -lm -ldl -lpthread -o "$folder/$test" || code=$?
    # shellcheck disable=SC2086
    [ $code != 0 ] || timeout 900 $run "$folder/$test" $arguments >"$folder/$test.log" 2>&1 || code=$?
    [ $code = 0 ] || [ ! -e "$folder/$test.log" ] || tail -n 20 "$folder/$test.log"
    result $code "$target: $test"
}

# Killed processes leave locks that the others inherit. Where the kernel does not tell of their deaths, say so.
robust() { # robust NAME RUN FOLDER COMPILER FLAG …
    if [ -n "$2" ]; then
        echo "LEFT OUT $1: kill and stop: qemu does not know robust mutexes"
        return 0
    fi
    name=$1 folder=$3
    shift 3
    # shellcheck disable=SC2086
    try "$name" "" "$folder" kill "200 random shm" "$@" $FLAGS
    if [ "$name" = no-swap ]; then
        echo "LEFT OUT $name: stop: without the swap a take waits for a lock"
    else
        # shellcheck disable=SC2086
        try "$name" "" "$folder" stop 50 "$@" $FLAGS
    fi
}

target() { # target NAME RUN COMPILER FLAG …
    name=$1 run=$2
    shift 2
    folder=$out/$name
    # shellcheck disable=SC2086
    library "$folder" "$@" $FLAGS || {
        result 1 "$name: the library"
        return 0
    }
    result 0 "$name: the library"
    for test in $TESTS $SHARED; do
        # shellcheck disable=SC2086
        try "$name" "$run" "$folder" "$test" "" "$@" $FLAGS
    done
    # shellcheck disable=SC2086
    try "$name" "$run" "$folder" history "20000 1" "$@" $FLAGS
    robust "$name" "$run" "$folder" "$@"
}

# It does not compile, and the error says why.
refused() { # refused NAME COMPILER WORDS
    code=0
    # shellcheck disable=SC2086
    "$2" $FLAGS -fsyntax-only src/core/bucket.c 2>"$out/$1.log" && code=1
    grep -q "#error \"$3" "$out/$1.log" || code=1
    result $code "$1: refused: $3"
}

# The kernel's headers, which musl's compiler does not look for where Debian has them.
kernel_headers() {
    mkdir -p "$out/kernel"
    ln -sfn /usr/include/linux "$out/kernel/linux"
    ln -sfn /usr/include/asm-generic "$out/kernel/asm-generic"
    ln -sfn "/usr/include/$(uname -m)-linux-gnu/asm" "$out/kernel/asm"
}

# The program without the server, linked statically: what Alpine needs nothing for.
static_weir() {
    code=0
    [ -e "$out/weir/build.ninja" ] ||
        CC=musl-gcc meson setup "$out/weir" -Dserver=false -Dgzip=disabled -Dzstd=disabled -Dwerror=true -Dc_link_args=-static -Dc_args="-isystem $out/kernel" \
            >"$out/weir.log" 2>&1 || code=$?
    [ $code != 0 ] || ninja -C "$out/weir" weir >>"$out/weir.log" 2>&1 || code=$?
    [ $code = 0 ] || tail -n 20 "$out/weir.log"
    result $code "musl: weir, without the server"
    for test in verbs desk replay explain; do
        code=0
        WEIR=$out/weir/weir "tests/homes/cli/cli_$test.sh" >"$out/cli_$test.log" 2>&1 || code=$?
        [ $code = 0 ] || grep FAIL "$out/cli_$test.log"
        result $code "musl: command line: $test"
    done
}

# A zone of a program with glibc is refused by one with musl, by name.
strangers() {
    zone=$out/strangers.zone
    rm -f "$zone"
    # shellcheck disable=SC2086
    [ -e "$out/clang/libweir.a" ] || library "$out/clang" clang -mcx16 $FLAGS
    # shellcheck disable=SC2086
    clang -mcx16 $FLAGS tools/portable_open.c "$out/clang/libweir.a" -lm -ldl -lpthread -o "$out/open-glibc"
    # shellcheck disable=SC2086
    musl-gcc -static -mcx16 -isystem "$out/kernel" $FLAGS tools/portable_open.c "$out/musl/libweir.a" -o "$out/open-musl"
    "$out/open-glibc" "file:$zone?size=64k"
    code=0
    "$out/open-musl" "file:$zone" >"$out/strangers.log" && code=1
    grep -q "another kind of program (glibc, 64 bits.*) than this one (musl, 64 bits" "$out/strangers.log" || code=1
    result $code "musl: $(cat "$out/strangers.log")"
}

mkdir -p "$out/remote"
python3 lua/assemble.py --header "$out/remote/lua_scripts.h"
[ $# -gt 0 ] || set -- clang musl no-swap aarch64 riscv64 i686 s390x
for wanted in "$@"; do
    case $wanted in
    clang) target clang "" clang -mcx16 ;;
    musl)
        kernel_headers
        target musl "" musl-gcc -static -mcx16 -isystem "$out/kernel"
        strangers
        static_weir
        ;;
    no-swap) target no-swap "" cc -mno-cx16 ;;
    aarch64) target aarch64 "qemu-aarch64 -L /usr/aarch64-linux-gnu" aarch64-linux-gnu-gcc ;;
    riscv64) target riscv64 "qemu-riscv64 -L /usr/riscv64-linux-gnu" riscv64-linux-gnu-gcc ;;
    i686) refused i686 i686-linux-gnu-gcc "weir needs a 64-bit machine" ;;
    s390x) refused s390x s390x-linux-gnu-gcc "weir needs a little-endian machine" ;;
    *)
        echo "portable: unknown target $wanted; there are clang, musl, no-swap, aarch64, riscv64, i686 and s390x" >&2
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
