#!/bin/bash
# Bad input, bad stores, bad files: exit codes, and messages that name the value and the fix.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

limit="token-bucket 10/s burst 20"
long_key=$(head -c 65537 /dev/zero | tr '\0' k)
good_key=${long_key:1}

# ---- usage ----
refuses "no key" 2 "KEY is missing" take
refuses "no limits" 2 "LIMITS is missing" take k
refuses "no receipt" 2 "RECEIPT is missing" settle k "$limit"
refuses "no lease id" 2 "ID is missing" release k "concurrent 2"
refuses "too many arguments" 2 'unexpected argument "10/s"' take k token-bucket 10/s
refuses "a limit without quotes" 2 "write a limit in quotes" take json token-bucket 10/s
refuses "an option without dashes, first" 2 'unexpected argument "dump"; did you mean --dump?' zone dump file:zone
refuses "an option without dashes, last" 2 'unexpected argument "json"; did you mean --json?' take k "$limit" json
refuses "too many arguments of another kind" 2 'unexpected argument "b"; see `weir zone --help`' zone a b
refuses "unknown option" 2 'unknown option "--csot"; did you mean --cost?' take k "$limit" --csot 3
refuses "unknown short option" 2 'unknown option "-c"' take k "$limit" -c 3
refuses "option of another command" 2 'unknown option "--max"' take k "$limit" --max 3s
refuses "option without its value" 2 "--cost needs a value" take k "$limit" --cost
refuses "flag with a value" 2 'invalid value "yes": --json takes no value' take k "$limit" --json=yes
refuses "option twice" 2 "--cost is given twice" take k "$limit" --cost 1 --cost 2
refuses "unknown command" 2 'unknown command "tkae"; did you mean take?' tkae
refuses "unknown command, nothing near" 2 'unknown command "frobnicate"; see `weir --help`' frobnicate
refuses "help of an unknown command" 2 'unknown command "explian"; did you mean explain?' help explian
run </dev/null
is "no command is exit 2" 2 "$code"
has "no command shows the usage" "Usage: weir COMMAND" "$err"

# ---- limits ----
refuses "a rate of zero" 2 'limit "token-bucket 0/s": column 14' take k "token-bucket 0/s"
refuses "a bare rate" 2 'limit "10/s": column 1: expected the name of a limit' take k "10/s"
refuses "an empty limit" 2 'limit ""' take k ""
refuses "an unknown limit" 2 '"tokn-bucket"' take k "tokn-bucket 10/s"
refuses "a trailing comma" 2 "column 19" take k "token-bucket 10/s,"
refuses "a period without a unit" 2 "a duration needs a unit" take k "token-bucket 10/5"
refuses "two limits that share a state" 2 "would share its state" take k "sliding-log 5/m, sliding-log 6/m"
refuses "too many slots" 2 "precision is too fine" take k "sliding-window 5/h precision 1ms"
has "the place is shown" "^" "$err"
refuses "explain checks too" 2 'limit "fixed-window 0/m"' explain "fixed-window 0/m"
refuses "replay checks too" 2 'limit "fixed-window x/m"' replay "fixed-window x/m"
refuses "bench checks too" 2 'limit "smooth"' bench --limit smooth

# ---- numbers ----
for cost in -1 -0 +1 abc 1.5 '' ' 1' 1e3 0x10 1000000000001 99999999999999999999 18446744073709551617; do
    refuses "cost <$cost>" 2 "--cost \"$cost\": expected a whole number from 0 to 1000000000000" \
        take k "$limit" --cost "$cost"
done
exits "cost 10^12 is the largest" 1 take k "$limit" --cost 1000000000000
refuses "actual cost below zero" 2 'actual cost "-5"' settle k "$limit" w1-1-1 -5
refuses "actual cost in words" 2 'actual cost "five"' settle k "$limit" w1-1-1 five
for wait in soon -1s 5 1.5.2s 367d 0.1us 1m1h; do
    refuses "wait <$wait>" 2 "--wait \"$wait\": " take k "$limit" --wait "$wait"
done
refuses "max in words" 2 '--max "later"' wait k "$limit" --max later
refuses "a lease in words" 2 'lease id "abc"' release k "concurrent 2" abc
refuses "a lease of zero" 2 'lease id "0"' renew k "concurrent 2" 0
refuses "no threads" 2 '--threads "0": expected a whole number from 1 to 64' bench --threads 0
refuses "too many keys" 2 '--keys "100000001"' bench --keys 100000001
refuses "a bench without end" 2 "at most 10m" bench --seconds 601

# ---- keys ----
refuses "an empty key" 2 'invalid key ""' take "" "$limit"
refuses "a key too long" 2 "of 65537 bytes: expected" take "$long_key" "$limit"
refuses "reset of an empty key" 2 'invalid key ""' reset ""
exits "the longest key" 0 take "$good_key" "$limit"
refuses "controls in a message are masked" 2 'invalid key' take "$(printf '\033[31m%070000d' 0)" "$limit"
lacks "controls in a message are masked indeed" $'\033' "$err"

# ---- verbs that do not fit ----
refuses "not a receipt" 2 '"zzz"' settle k "$limit" zzz 5
refuses "settle of concurrent" 2 "release" settle k "concurrent 2" w1-1-1 5
refuses "acquire of nothing" 2 '--cost "0": expected a whole number from 1' acquire k "concurrent 2" --cost 0
refuses "acquire without concurrent" 2 'is not a `concurrent` limit' acquire k "$limit"
refuses "take of concurrent" 2 'use `weir acquire`' take k "concurrent 2"
refuses "take of concurrent among others" 2 'use `weir acquire`' take k "$limit, concurrent 2 lease 5s" --json
refuses "wait for concurrent" 2 'use `weir acquire`' wait k "concurrent 2" --max 1s
exits "peek at concurrent" 0 peek k "concurrent 2"
exits "nothing of it was taken" 0 acquire k "concurrent 2" --cost 2
exits "and it can be released" 0 reset k
refuses "renew without concurrent" 2 'is not a `concurrent` limit' renew k "$limit" 7

# ---- store addresses ----
rm -rf "$tmp/state"
refuses "no scheme" 2 '"nonsense"' take k "$limit" --store nonsense
refuses "another scheme" 2 '"http://x"' take k "$limit" --store http://x
refuses "a size too small" 2 "1k" take k "$limit" --store memory:1k
refuses "a file too small" 2 "4k" take k "$limit" --store "file:$tmp/small?size=4k"
refuses "a size in words" 2 '"big"' take k "$limit" --store memory:big
refuses "an unknown option" 2 '"sise=1m"' take k "$limit" --store "file:$tmp/x?sise=1m"
refuses "an empty path" 2 "file:" take k "$limit" --store file:
refuses "a shared name with slashes" 2 "shm:" take k "$limit" --store shm:/a/b
is "nothing was made by all that" "$tmp/stderr" "$(echo "$tmp"/*)"

# ---- files that fail ----
exits "a store is made" 0 take k "$limit" --store "file:$tmp/zone?size=1m"
exits "another size than it has: the states are carried over" 0 take k "$limit" --store "file:$tmp/zone?size=2m"
refuses "a mode that lets everybody write" 2 "expected 0600, or 0660" take k "$limit" --store "file:$tmp/zone?mode=0666&group=0"
refuses "a dump that is not there" 3 "$tmp/no.dump" zone "$tmp/zone2" --load "$tmp/no.dump"
refuses "a dump that is another file" 2 "line 1" zone "$tmp/zone2" --load /etc/passwd
refuses "--dump and --load at once" 2 "choose one" zone "$tmp/zone" --dump --load x
refuses "a dump of no zone" 3 "$tmp/zone2" zone "$tmp/zone2" --dump

# ---- a full zone: what there is too little of ----

full() { # NAME LIMIT OPTIONS
    (echo time,key,cost; for i in $(seq 3000); do echo "1700000000,user $i,1"; done) |
        "$WEIR" replay "$2" --store "file:$tmp/full-$1?size=64k${3-}" >/dev/null 2>&1
    run zone "$tmp/full-$1"
}
raise="raise large=, there is no room for more logs, windows or leases."
full table "fixed-window 5/h" "&full=deny"
has "a full table: what was refused" "requests, because there was no room" "$out"
has "a full table: the fix" "limits were too strict: make the zone larger." "$out"
full logs "sliding-log 5/h" "&full=deny"
has "a full area for logs: what was refused" "requests, because there was no room" "$out"
has "a full area for logs: the fix" "limits were too strict: $raise" "$out"
full windows "sliding-window 5/h"
has "evicted windows: the fix" "limits were too lenient: $raise" "$out"
lacks "evicted windows: nobody was refused" "refused" "$out"
full evicted "fixed-window 5/h"
has "evicted states: the fix" "limits were too lenient: make the zone larger." "$out"

# ---- the zone of shm:/name without the scheme ----

shared=weir-shared-$$
exits "a zone in shared memory" 0 take k "$limit" --store "shm:/$shared?size=64k"
refuses "named like a file" 3 "/$shared: there is no such file; did you mean shm:/$shared?" zone "/$shared"
refuses "named without a slash" 3 "did you mean shm:/$shared?" zone "$shared" --check
exits "with its scheme" 0 zone "shm:/$shared" --check
exits "by its path" 0 zone "/dev/shm/$shared" --check
rm -f "/dev/shm/$shared"
refuses "when it is gone" 3 "/$shared: there is no zone; check its name" zone "/$shared"

# ---- a name that is mistyped: what only looks makes no zone ----
: >"$tmp/nothing"
chmod 600 "$tmp/nothing"
looks() { # COMMAND ARGUMENTS
    refuses "$1: a zone that is not there" 3 "$tmp/mistyped: there is no zone; check its name" "$@" --store "file:$tmp/mistyped?size=1m"
    refuses "$1: shared memory that is not there" 3 "there is no zone" "$@" --store "shm:/weir-mistyped-$$"
    refuses "$1: an empty file" 3 "$tmp/nothing: it is not a weir zone: it is empty" "$@" --store "file:$tmp/nothing"
    HOME=$tmp/new XDG_STATE_HOME='' refuses "$1: the default zone, before the first take" 3 "there is no zone" "$@"
    is "$1: makes nothing" "0 0" "$(find "$tmp/mistyped" "$tmp/new" "/dev/shm/weir-mistyped-$$" 2>/dev/null | wc -l) $(stat -c %s "$tmp/nothing")"
}
looks show k
looks peek k "$limit"
looks reset k
looks settle k "$limit" "$("$WEIR" take k "$limit" --store "file:$tmp/zone" | sed -n 's/^receipt //p')" 0
looks renew k "concurrent 2" 7
looks release k "concurrent 2" 7
is "the size of a zone that is looked at stays" "0 2097152" \
    "$("$WEIR" show k --store "file:$tmp/zone?size=4m" >"$tmp/stderr"; echo "$? $(stat -c %s "$tmp/zone")")"
run show customer:bob --store "file:$tmp/zone"
for like in ip:192.0.2.7 "POLICY/LIMIT/{customer=bob}" shadow.NAME:ip:192.0.2.7 user:customer:bob; do
    has "show: a key without a state, and keys like $like" " $like" "$out"
done
refuses "an answer to create= that is not one" 2 'invalid create "maybe": expected no or yes' take k "$limit" --store "file:$tmp/zone?create=maybe"
refuses "a take that must not make its zone" 3 "there is no zone" take k "$limit" --store "file:$tmp/mistyped?create=no"
refuses "private memory is always made" 2 "no other process can open" take k "$limit" --store "memory:1m?create=no"
exits "a path with create= in it" 3 show k --store "file:$tmp/create=yes"
report "makes nothing either" "$([[ ! -e $tmp/create=yes ]] && echo 1)"
chmod 400 "$tmp/zone"
refuses "a read-only file" 3 "$tmp/zone" take k "$limit" --store "file:$tmp/zone"
chmod 644 "$tmp/zone"
refuses "a file that others can read" 3 "0600" take k "$limit" --store "file:$tmp/zone"
chmod 600 "$tmp/zone"
exits "back in order" 0 take k "$limit" --store "file:$tmp/zone"
seq 100000 >"$tmp/foreign"
chmod 600 "$tmp/foreign"
refuses "a foreign file" 3 "not a weir zone" take k "$limit" --store "file:$tmp/foreign"
is "a foreign file is left alone" "$(seq 100000 | cksum)" "$(cksum <"$tmp/foreign")"
head -c 300000 "$tmp/zone" >"$tmp/short"
chmod 600 "$tmp/short"
refuses "a truncated file" 3 "$tmp/short" take k "$limit" --store "file:$tmp/short"
cp -p "$tmp/zone" "$tmp/damaged"
printf '\377\377\377\377\377\377\377\377' | dd of="$tmp/damaged" bs=1 seek=40 conv=notrunc 2>"$tmp/dd"
refuses "a damaged file" 3 "$tmp/damaged" take k "$limit" --store "file:$tmp/damaged"
refuses "a damaged file, by zone" 3 "$tmp/damaged" zone "$tmp/damaged"
ln -s zone "$tmp/link"
refuses "a symbolic link" 3 "$tmp/link" take k "$limit" --store "file:$tmp/link"
refuses "a directory" 3 "$tmp" take k "$limit" --store "file:$tmp"
refuses "a path that is not there" 3 "$tmp/no/zone" take k "$limit" --store "file:$tmp/no/zone"
XDG_STATE_HOME=/dev/null/state refuses "a state directory that cannot be" 3 "--store" take k "$limit"
(
    unset XDG_STATE_HOME HOME
    "$WEIR" take k "$limit" 2>"$tmp/homeless"
)
is "nowhere to keep state is exit 3" 3 "$?"
has "nowhere to keep state says what to do" "--store" "$(<"$tmp/homeless")"
"$WEIR" take k "$limit" >/dev/full 2>"$tmp/stderr"
is "an answer that cannot be written is exit 3" 3 "$?"
has "an answer that cannot be written says so" "cannot write" "$(<"$tmp/stderr")"

# ---- numbers from 0 to 1, and stores of another kind ----
for ratio in 1.5 1.000001 -0.1 .5 0. 0.1234567 x 00.5 ""; do
    refuses "a ratio \"$ratio\"" 2 "expected a number from 0 to 1" serve "--envoy-near-limit=$ratio" --envoy /nowhere
done
for ratio in 0 1 0.8 1.0 0.999999 1.000000; do
    refuses "a ratio $ratio is good" 3 "/nowhere" serve --listen 127.0.0.1:0 "--envoy-near-limit=$ratio" --envoy /nowhere
done

# What the help names as a default may be given.
defaults=$("$WEIR" serve --help | tr '\n' ' ' | grep -oE -- '--[a-z-]+ [A-Z]+ [^-]*; default [0-9][0-9a-z.]*|--[a-z-]+ N +default [0-9]+' |
    sed -E 's/^(--[a-z-]+) .* default ([0-9a-z.]+)$/\1=\2/')
is "the help names defaults" 11 "$(wc -l <<<"$defaults")"
# shellcheck disable=SC2086
refuses "defaults may be given" 3 "/nowhere" serve --listen 127.0.0.1:0 $defaults --max-memory=256m --headers=ietf --policies /nowhere
refuses "a delay of 0 is allowed" 3 "/nowhere" serve --listen 127.0.0.1:0 --shutdown-delay 0 --policies /nowhere
refuses "a timeout of 0" 2 '--drain-timeout "0s": a duration must be more than zero' serve --drain-timeout 0s
refuses "zone: Redis has none" 2 "Redis has no zone" zone redis://localhost

finish
