#!/bin/sh
# Line and branch coverage of src/core and src/limit by the unit tests of base, core and limit and
# by the golden vectors. Fails if a line or a branch is missed. Two branches are not counted: a
# failing assertion, and a switch over an enum that matches no case (its cases are lines).
#
#     tools/coverage.sh [--html]      details in build/coverage/index.html
set -eu
cd "$(dirname "$0")/.."
cc=${CC:-gcc}
work=build/coverage
if ! command -v gcovr >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y gcovr >/dev/null
    else
        echo "coverage: gcovr is missing; install it (Debian: apt-get install gcovr)" >&2
        exit 2
    fi
fi

# The library without Redis, not optimised, so that every branch exists. All of it is counted, since headers of core and limit
# have functions that other files call.
sources=$(ls src/base/*.c src/core/*.c src/limit/*.c src/store/*.c src/store/zone/*.c)
tests=$(ls tests/unit/core_*.c tests/unit/limit_*.c tests/unit/base_*.c tests/vectors/vectors.c)
flags="-std=gnu11 -D_GNU_SOURCE -O0 --coverage -ffp-contract=off -fno-strict-aliasing -Iinclude -Isrc"
rm -rf "$work"
mkdir -p "$work"
python3 -B tests/model/vectors.py --part tails --made build/tests/tails.vec --out "$work" >/dev/null
for source in $sources $tests; do
    echo "$source $work/$(echo "${source%.c}" | tr / _).o"
done | xargs -P "$(nproc)" -n 2 sh -c "$cc $(echo $flags) -c \"\$0\" -o \"\$1\""
for source in $sources; do
    echo "$work/$(echo "${source%.c}" | tr / _).o"
done | xargs ar rcs "$work/libweir.a"

for test in $tests; do
    program=$work/$(basename "$test" .c)
    wrap=
    arguments=
    [ "$(basename "$test")" != limit_memory.c ] || wrap=-Wl,--wrap=malloc
    [ "$(basename "$test")" != vectors.c ] || arguments="$(ls tests/vectors/*.vec) $work/tails.vec"
    # shellcheck disable=SC2086
    $cc --coverage $wrap "$work/$(echo "${test%.c}" | tr / _).o" "$work/libweir.a" -lpthread -lm \
        -o "$program"
    # shellcheck disable=SC2086
    if ! "$program" $arguments >"$program.log" 2>&1; then
        cat "$program.log"
        echo "coverage: $test failed" >&2
        exit 1
    fi
done

uncounted='.*\b(assert|WEIR__CHECK|switch) ?\(.*'
gcovr --root . --filter src/core/ --filter src/limit/ --exclude-branches-by-pattern "$uncounted" --json "$work/counts.json" "$work"

report() { # report FOLDER OPTION…: what was counted in one folder
    folder=$1
    shift
    gcovr --root . --filter "src/$folder/" --add-tracefile "$work/counts.json" "$@"
}

status=0
passed=0
for folder in core limit; do
    report "$folder" --txt "$work/$folder.lines" --fail-under-line 100 && passed=$((passed + 1)) || status=1
    report "$folder" --branches --txt "$work/$folder.branches" --fail-under-branch 100 && passed=$((passed + 1)) || status=1
    sed 1,3d "$work/$folder.lines"
    sed 1,3d "$work/$folder.branches"
done
if [ "${1:-}" = --html ]; then
    gcovr --root . --add-tracefile "$work/counts.json" --html-details "$work/index.html"
fi
echo "$passed passed, $((4 - passed)) failed"
exit $status
