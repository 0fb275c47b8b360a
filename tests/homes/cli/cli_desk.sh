#!/bin/bash
# zone, bench and the help texts.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

commands="take peek wait settle reset show acquire renew release explain replay demo bench zone"

# ---- zone ----
run take a "token-bucket 1/h, sliding-log 5/h" --store "file:$tmp/zone?size=1m&large=25%"
run take b "token-bucket 1/h" --store "file:$tmp/zone"
run zone "$tmp/zone"
is "zone: exit 0" 0 "$code"
has "zone: checked" "sound" "$out"
has "zone: its size" "1048576 bytes" "$out"
run zone "$tmp/zone" --json
valid_json "zone --json: is JSON" "$out"
is "zone --json: sound" True "$(field sound)"
is "zone --json: size" 1048576 "$(field size)"
is "zone --json: states" 3 "$(field keys)"
is "zone --json: limits" 2 "$(field limits)"
is "zone --json: large room in use" 64 "$(field large_used)"
is "zone --json: nothing evicted" "0 0 0" \
    "$(field evicted_fresh evicted_unused evicted_soonest)"
is "zone --json: no receipts" "0 0" "$(field receipts evicted_receipts)"
is "zone --json: no repairs" 0 "$(field repairs)"
run zone --check "file:$tmp/zone"
is "zone --check: one line" "file:$tmp/zone is sound" "$out"
run take a "token-bucket 1/h" --store "shm:/weir-desk-test-$$?size=128k"
run zone "shm:/weir-desk-test-$$" --json
is "zone: shared memory" 131072 "$(field size)"
rm -f "/dev/shm/weir-desk-test-$$"
refuses "zone: missing is exit 3" 3 "$tmp/none" zone "$tmp/none"
report "zone: and is not made" "$([[ ! -e $tmp/none ]] && echo 1)"
refuses "zone: missing shared memory is exit 3" 3 "/weir-none-$$" zone "shm:/weir-none-$$"
report "zone: and is not made either" "$([[ ! -e /dev/shm/weir-none-$$ ]] && echo 1)"
: >"$tmp/empty"
chmod 600 "$tmp/empty"
refuses "zone: an empty file is not a zone" 3 "is not a weir zone: it is empty" zone "$tmp/empty"
is "zone: and stays empty" 0 "$(stat -c %s "$tmp/empty")"
refuses "zone: private memory is nowhere to look" 2 "memory:" zone memory:1m
refuses "zone: a name that is needed" 2 "PATH or URL is missing" zone

# ---- bench ----
run bench --seconds 50ms --keys 1000 --json
is "bench: exit 0" 0 "$code"
valid_json "bench --json: is JSON" "$out"
is "bench --json: rows" 5 "$(python3 -c 'import json, sys; print(len(json.loads(sys.argv[1])["rows"]))' "$out")"
is "bench --json: a hot key is allowed" "$(field rows.0.takes)" "$(field rows.0.allowed)"
is "bench --json: and denied" 1 "$(field rows.2.allowed)"
run bench --seconds 50ms --keys 100 --threads 2 --batch 7 --limit "sliding-window 5/h, fixed-window 9/d"
is "bench: threads, batches, limits of one's own" 0 "$code"
has "bench: a table" "random keys, in batches" "$out"

# ---- help ----
run --version
is "version" "weir $(tools/version.sh)" "$out"
run --help
is "help: exit 0" 0 "$code"
general=$out
for command in $commands; do
    has "help: lists $command" "  $command " "$general"
    run help "$command"
    by_help=$out
    run "$command" --help
    is "help: $command, both ways" "$by_help" "$out"
    has "help: $command has examples" "Examples:" "$out"
    has "help: $command has exit codes" "Exit codes:" "$out"
    has "help: $command speaks of --json" "--json" "$out"
    report "help: $command fits 80 columns" \
        "$(awk 'length > 80 { bad = 1 } END { print !bad }' <<<"$out")"
done
run show --help
has "help: show --json has one unit of time" "all times are in microseconds" "$out"
lacks "help: and only one" "times are in seconds" "$out"

finish
