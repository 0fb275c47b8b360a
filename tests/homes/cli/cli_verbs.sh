#!/bin/bash
# take, peek, wait, settle, reset, acquire, renew, release: what they answer and remember.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

store=(--store "file:$tmp/zone?size=1m")

# ---- take and peek ----
limit="fixed-window 3/366d"
run take ann "$limit" "${store[@]}"
is "take: allowed is exit 0" 0 "$code"
has "take: says so" "allowed: 2 of 3 left" "$out"
has "take: gives a receipt" "receipt w3-" "$out"
is "take: says nothing on stderr" "" "$err"
run peek ann "$limit" "${store[@]}"
has "peek: charges nothing" "allowed: 2 of 3 left" "$out"
lacks "peek: no receipt" "receipt" "$out"
run take ann "$limit" --cost 2 "${store[@]}"
has "take: remembers the last call" "allowed: 0 of 3 left" "$out"
run take ann "$limit" "${store[@]}"
is "take: denied is exit 1" 1 "$code"
has "take: denied says when to retry" "denied: retry in" "$out"
run take bob "$limit" "${store[@]}"
has "take: another key is another state" "allowed: 2 of 3 left" "$out"
run take ann "$limit" --cost 0 "${store[@]}"
is "take: cost 0 asks and is judged" 0 "$code"
run take ann "$limit" --cost 4 "${store[@]}"
is "take: more than the limit is denied" 1 "$code"
has "take: and never allowed" "a cost of 4 is never allowed, the limit is 3" "$out"

# ---- options anywhere ----
run take --cost=2 --store "file:$tmp/zone" eve "$limit"
has "options: before the operands, with =" "allowed: 1 of 3 left" "$out"
run take "${store[@]}" -- --eve "$limit"
has "options: -- ends them" "allowed: 2 of 3 left" "$out"
run peek --store "file:$tmp/zone" "$limit-" x
is "options: operands keep their order" 2 "$code"

# ---- JSON ----
run take json "$limit" --json "${store[@]}"
valid_json "take --json: is JSON" "$out"
is "take --json: one line" 1 "$(wc -l <<<"$out")"
is "take --json: key" json "$(field key)"
is "take --json: allowed" True "$(field allowed)"
is "take --json: limit" 3 "$(field limit)"
is "take --json: remaining" 2 "$(field remaining)"
is "take --json: retry_after" 0.0 "$(field retry_after)"
is "take --json: delay" 0.0 "$(field delay)"
is "take --json: binding" 0 "$(field binding)"
is "take --json: degraded" False "$(field degraded)"
is "take --json: local" False "$(field local)"
has "take --json: receipt" w3- "$(field receipt)"
has "take --json: times have six decimals" '"retry_after":0.000000' "$out"
run take json "$limit" --cost 4 --json "${store[@]}"
is "take --json: denied is exit 1" 1 "$code"
is "take --json: never is null" None "$(field retry_after)"
is "take --json: denied has no receipt" None "$(field receipt)"
run take $'\xff\x00\xfeq' "$limit" --json "${store[@]}"
is "take --json: bytes go as base64" /w== "$(field key_base64)"
run take $'q"\\\n\x01é' "$limit" --json "${store[@]}"
valid_json "take --json: quotes, controls and UTF-8 are JSON" "$out"
is "take --json: and come back" $'q"\\\n\x01é' "$(field key)"
run peek json "$limit" --json "${store[@]}"
is "peek --json: as things stand" 2 "$(field remaining)"
is "peek --json: no receipt" None "$(field receipt)"

# ---- several limits ----
both="fixed-window 5/366d, sliding-log 2/366d"
run take both "$both" --detail --json "${store[@]}"
valid_json "detail --json: is JSON" "$out"
is "detail: the smallest limit" 2 "$(field limit)"
is "detail: the smallest remaining" 1 "$(field remaining)"
is "detail: which bound" 1 "$(field binding)"
is "detail: the first limit's text" "fixed-window 5/52w2d" "$(field limits.0.text)"
is "detail: the first limit's own answer" 4 "$(field limits.0.remaining)"
run take both "$both" --cost 2 --detail "${store[@]}"
is "detail: all or nothing" 1 "$code"
has "detail: names the limit that denied" "denied by sliding-log 2/52w2d" "$out"
has "detail: the other was not charged" "yes  fixed-window 5/52w2d: 4 of 5 left" "$out"
run take both "$both" "${store[@]}"
has "detail: what was not charged is still there" "allowed: 0 of 2 left" "$out"

# ---- waits and delays ----
run take w "token-bucket 1/h" --wait any --json "${store[@]}"
run take w "token-bucket 1/h" --json "${store[@]}"
is "wait: without it the second is denied" 1 "$code"
for none in 0 0s 0us 0ms; do
    run take w "token-bucket 1/hour" --wait $none "${store[@]}"
    is "wait: $none is no wait" 1 "$code"
done
run take w "token-bucket 1/h" --wait 1M "${store[@]}"
is "wait: minutes or months" 2 "$code"
run take w "token-bucket 1/h" --wait １m "${store[@]}"
is "wait: full-width digits" 2 "$code"
run take w "token-bucket 1/h" --wait 1min "${store[@]}"
is "wait: too short" 1 "$code"
run take w "token-bucket 1/h" --wait 2h --json "${store[@]}"
is "wait: long enough is allowed" 0 "$code"
has "wait: with a delay" 359 "$(field delay)"
run take w "token-bucket 1/h" --wait any "${store[@]}"
has "wait: any; the answer says when to go ahead" "allowed: go ahead in " "$out"
run take l "leaky-bucket 1/h burst 2" "${store[@]}"
run take l "leaky-bucket 1/h burst 2" "${store[@]}"
has "wait: a leaky bucket waits by itself" "allowed: go ahead in" "$out"
run take l "leaky-bucket 1/h burst 2" --wait 0 "${store[@]}"
is "wait: 0 accepts no delay" 1 "$code"

# ---- wait ----
run wait fast "token-bucket 20/s burst 1" "${store[@]}"
is "wait: nothing to wait for" 0 "$code"
run wait fast "token-bucket 20/s burst 1" "${store[@]}"
is "wait: sleeps, then goes" 0 "$code"
lacks "wait: what was slept is not asked again" "go ahead in" "$out"
run wait slow "token-bucket 1/h" "${store[@]}"
before=$(date +%s%N)
run wait slow "token-bucket 1/h" --max 30m "${store[@]}"
spent=$((($(date +%s%N) - before) / 1000000))
is "wait: not in time is denied" 1 "$code"
report "wait: and without waiting for it" "$((spent < 60000))" "$spent ms"
run wait slow "token-bucket 1/h" --max 0 --json "${store[@]}"
is "wait --json: denied" False "$(field allowed)"

# ---- settle ----
run take s "fixed-window 10/366d" --cost 8 --json "${store[@]}"
receipt=$(field receipt)
run settle s "fixed-window 10/366d" "$receipt" 3 "${store[@]}"
is "settle: exit 0" 0 "$code"
is "settle: says so" "settled: the charge is now 3" "$out"
run peek s "fixed-window 10/366d" --json "${store[@]}"
is "settle: the difference is back" 7 "$(field remaining)"
run take s "fixed-window 10/366d" --json "${store[@]}"
run settle s "fixed-window 10/366d" "$(field receipt)" 5 --json "${store[@]}"
valid_json "settle --json: is JSON" "$out"
is "settle --json: settled" True "$(field settled)"
run peek s "fixed-window 10/366d" --json "${store[@]}"
is "settle: a surcharge is charged" 2 "$(field remaining)"
old="w3-1700000000000000-1-68719476736"
run settle late "fixed-window 10/366d" "$old" 3 "${store[@]}"
is "settle: later than an hour" "settled: the charge is now 3; more than an hour after the take, so do not settle it again: it may count twice" "$out"
run settle later "fixed-window 10/366d" "$old" 3 --json "${store[@]}"
is "settle --json: later than an hour" "True True" "$(field settled late)"

# ---- reset ----
run reset ann "${store[@]}"
is "reset: exit 0" 0 "$code"
has "reset: it was there" "reset: ann" "$out"
run peek ann "$limit" --json "${store[@]}"
is "reset: everything is left again" 3 "$(field remaining)"
run peek bob "$limit" --json "${store[@]}"
is "reset: others stay" 2 "$(field remaining)"
run reset nobody --json "${store[@]}"
valid_json "reset --json: is JSON, and forgets what is not there" "$out"
has "reset --json: nothing was there" '"reset":false' "$out"

# ---- leases ----
lease="concurrent 2 lease 1h"
run acquire job "$lease" "${store[@]}"
first=$out
is "acquire: exit 0" 0 "$code"
report "acquire: prints only the lease" "$([[ $first =~ ^[0-9]+$ ]] && echo 1)" "$first"
run acquire job "$lease" --json "${store[@]}"
valid_json "acquire --json: is JSON" "$out"
second=$(field lease)
report "acquire: leases differ" "$((first != second))" "$first $second"
run acquire job "$lease" "${store[@]}"
is "acquire: full is denied" 1 "$code"
has "acquire: denied says when" "denied: retry in" "$out"
run renew job "$lease" "$first" "${store[@]}"
is "renew: exit 0" 0 "$code"
run release job "$lease" "$first" "${store[@]}"
is "release: exit 0" 0 "$code"
is "release: says so" "released: lease $first" "$out"
run release job "$lease" "$first" "${store[@]}"
is "release: twice is exit 1" 1 "$code"
has "release: twice says why" "\"job\" does not hold the lease $first" "$err"
run renew job "$lease" "$first" --json "${store[@]}"
is "renew --json: gone is exit 1" 1 "$code"
is "renew --json: says so" False "$(field renewed)"
run acquire job "$lease" "${store[@]}"
is "acquire: there is room again" 0 "$code"

# Waiting for a slot: until the deadline, or until somebody releases one.
one="concurrent 1 lease 1h"
run acquire queue "$one" "${store[@]}"
held=$out
run acquire queue "$one" --wait 10ms "${store[@]}"
is "acquire --wait: denied at its deadline" 1 "$code"
"$WEIR" acquire queue "$one" --wait any "${store[@]}" >"$tmp/waited" &
waiter=$!
run release queue "$one" "$held" "${store[@]}"
wait "$waiter"
is "acquire --wait: a release ends it" 0 "$?"
run release queue "$one" "$(cat "$tmp/waited")" "${store[@]}"
is "acquire --wait: it prints the lease" 0 "$code"
run release job "$lease" "$second" --json "${store[@]}"
is "release --json: released" True "$(field released)"

# ---- stores ----
run take shared "$limit" --store "shm:/weir-cli-test-$$?size=128k"
run take shared "$limit" --store "shm:/weir-cli-test-$$"
has "shm: remembers" "allowed: 1 of 3 left" "$out"
rm -f "/dev/shm/weir-cli-test-$$"
run take mine "$limit"
run take mine "$limit"
has "default store: remembers" "allowed: 1 of 3 left" "$out"
is "default store: in the state directory" "$tmp/state/weir/zone" "$(echo "$tmp"/state/weir/*)"
is "default store: for its owner only" 700 "$(stat -c %a "$tmp/state/weir")"
(unset XDG_STATE_HOME && exec "$WEIR" take mine "$limit" >"$tmp/home.out")
is "default store: else under HOME" "$tmp/home/.local/state/weir/zone" \
    "$(echo "$tmp"/home/.local/state/weir/*)"
(export XDG_STATE_HOME=relative && cd "$tmp" && exec "$WEIR" take mine "$limit" >"$tmp/home.out")
has "default store: a relative XDG_STATE_HOME is ignored" "1 of 3 left" "$(<"$tmp/home.out")"

finish
