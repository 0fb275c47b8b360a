#!/bin/sh
# Builds every fuzz target with clang and runs each that long, growing a copy of its corpus.
#
#     fuzz/run.sh [SECONDS [TARGET …]]
#
# A crash is kept in fuzz/crashes-TARGET and makes the exit status 1. With FUZZ_KEEP=1 what was new is
# merged into fuzz/corpus, as few and small files as reach the same code; files with names of their own
# (what once went wrong) stay.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=${*:-$(ls fuzz/fuzz_*.c | sed 's|fuzz/fuzz_\(.*\)\.c|\1|') connections}
clang=${CLANG:-$(command -v clang || command -v clang-14 || true)}
if [ -z "$clang" ]; then
    echo "fuzz: clang is missing; install it with its libFuzzer (Debian: apt-get install clang)" >&2
    exit 2
fi

work=build/fuzz
mkdir -p "$work"
flags="-std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -ffp-contract=off -fno-strict-aliasing
    -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
    -fno-omit-frame-pointer -Iinclude -Isrc -Ifuzz"
libraries="-lyaml -lpthread -lm"
if pkg-config --exists zlib libzstd; then # packed logs, too
    flags="$flags -DWEIR__WITH_ZLIB -DWEIR__WITH_ZSTD"
    libraries="$libraries -lz -lzstd"
fi

# Everything a target may need in an archive; the system's randomness is replaced by a fixed one.
objects=
for source in src/base/*.c src/core/*.c src/limit/*.c src/store/*.c src/store/zone/*.c src/sim/*.c src/wire/*.c \
    src/desk/*.c src/policy/*.c src/policy/read/*.c src/policy/envoy/*.c fuzz/fixed_random.c; do
    object=$work/$(echo "$source" | tr / _).o
    # shellcheck disable=SC2086
    "$clang" $flags -fsanitize=fuzzer-no-link -c "$source" -o "$object"
    objects="$objects $object"
done
rm -f "$work/all.a"
# shellcheck disable=SC2086
ar rcs "$work/all.a" $objects

failed=0
for target in $targets; do
    if [ "$target" = connections ]; then # whole connections against the server: no fuzzer of clang's
        tools/configure.sh build/asan -Dbuildtype=debugoptimized -Doptimization=1 -Dc_args=-g1 -Db_lundef=false -Db_sanitize=address,undefined
        ninja -C build/asan weir >/dev/null
        WEIR=$PWD/build/asan/weir WEIR_BUILD=$PWD/build/asan fuzz/connections/run.py --seconds "$seconds" || failed=1
        continue
    fi
    fuzzer=$work/fuzz_$target
    log=$work/$target.log
    crashes=fuzz/crashes-$target
    # shellcheck disable=SC2086
    "$clang" $flags -fsanitize=fuzzer "fuzz/fuzz_$target.c" "$work/all.a" $libraries -o "$fuzzer"
    mkdir -p "$work/corpus-$target" "fuzz/corpus/$target" "$crashes"
    if "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
        -print_final_stats=1 -artifact_prefix="$crashes/" "$work/corpus-$target" \
        "fuzz/corpus/$target" >"$log" 2>&1; then
        echo "fuzz_$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, no crash"
    else
        failed=1
        tail -n 60 "$log"
        echo "fuzz_$target: FAILED, the input is in $crashes, all that was said in $log"
    fi
    rmdir "$crashes" 2>/dev/null || true
    if [ "${FUZZ_KEEP:-0}" = 1 ]; then
        rm -rf "$work/merged-$target"
        mkdir "$work/merged-$target"
        "$fuzzer" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$work/merged-$target" "fuzz/corpus/$target" \
            "$work/corpus-$target" >>"$log" 2>&1
        find "fuzz/corpus/$target" -type f -regex '.*/[0-9a-f]*' -delete
        cp "$work/merged-$target"/* "fuzz/corpus/$target"
    fi
done
exit $failed
