#!/bin/bash
# explain: its numbers, and an attack on its promises; demo: the counts of the classic trap.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

# promises LIMIT MOST IN_ANY WORST_BURST BYTES: of one limit, as JSON gives them
promises() {
    run explain "$1" --json
    is "$1: most, span, burst, bytes" "$2 $3 $4 $5" \
        "$(field limits.0.most limits.0.in_any limits.0.worst_burst limits.0.bytes_a_key)"
}
promises "token-bucket 10/s burst 20" 30 1.0 20 40
promises "token-bucket 10/s" 20 1.0 10 40
promises "token-bucket 10/s burst 20 stepped" 30 1.0 20 40
promises "leaky-bucket 10/s burst 5" 11 1.0 1 40
promises "leaky-bucket 10/s burst 5 delay 2" 13 1.0 3 40
promises "leaky-bucket 10/s burst 5 nodelay" 16 1.0 6 40
promises "fixed-window 100/m" 200 60.0 100 40
promises "fixed-window 100/m from-first" 199 60.0 100 40
promises "fixed-window 100/d zone +08:00" 200 86400.0 100 40
promises "fixed-window 100/w from mon" 200 604800.0 100 40
promises "fixed-window 100/month from 31" 300 2678400.0 100 40
promises "fixed-window 100/year" 300 31622400.0 100 40
promises "sliding-log 5/m" 5 60.0 5 168
promises "sliding-window 240/h precision 1m" 240 3600.0 240 1064
promises "sliding-counter 1000/h" 2000 3600.0 1000 40
promises "smooth 5/s burst-for 2s" 16 1.0 11 40
promises "smooth 3m/s" None 1.0 None 40
promises "warmup 5/s over 3s" 6 1.0 1 40
promises "concurrent 20 lease 30s" 20 0.0 20 552

# ---- in words ----
run explain "token-bucket 10/s burst 20, fixed-window 100/m"
is "explain: exit 0" 0 "$code"
has "explain: the canonical text" "token-bucket 10/s burst 20" "$out"
has "explain: the promise" "never more than 30 in any 1s" "$out"
has "explain: the trap" "up to 200 in any 1m" "$out"
has "explain: the memory" "about 40 bytes per key" "$out"
has "explain: a plot" "░" "$out"
has "explain: several limits" "charged to all 2 limits or to none" "$out"
lacks "explain: no colour in a pipe" $'\033' "$out"
report "explain: fits 80 columns" \
    "$(python3 -c 'import sys; print(int(all(len(l) <= 80 for l in sys.argv[1].split("\n"))))' "$out")"
run explain "  GCRA 60R/60s   BURST 7 , fixed-window 1k/90m " --json
valid_json "explain --json: is JSON" "$out"
is "explain --json: canonical" "token-bucket 60/m burst 7, fixed-window 1000/1h30m" "$(field text)"

# ---- slices: what a Redis store's address means for a limit ----
# slices LIMIT SLICED WITHHELD HELD UNDER OVER
slices() {
    run explain "$1" --json --store "redis://127.0.0.1?slices=5%&peers=10"
    is "$1: sliced, withheld, held by one, gains" "$2 $3 $4 $5 $6" \
        "$(field limits.0.slices.sliced limits.0.slices.withheld limits.0.slices.held_by_one \
            limits.0.slices.decisions_per_call limits.0.slices.decisions_per_call_over)"
}
slices "token-bucket 100000/s" True 5000 500 250 100
slices "token-bucket 100000/s stepped" True 5000 500 250 100
slices "leaky-bucket 100/s burst 399 nodelay" True 20 2 1 1
slices "leaky-bucket 100/s burst 398 nodelay" False 0 0 1 1
slices "leaky-bucket 100/s burst 399" False 0 0 1 1
slices "fixed-window 100000/h" True 0 500 250 100
slices "fixed-window 100000/month" True 0 500 250 100
slices "sliding-log 1000/m" True 50 5 2 1
slices "sliding-counter 1000/m" True 50 5 2 1
slices "sliding-window 1200/m precision 1s" True 60 6 3 1
slices "concurrent 1000 lease 5s" False 0 0 1 1
slices "smooth 1000/s" False 0 0 1 1
slices "token-bucket 1000/s, fixed-window 9000/h" False 50 0 1 1
slices "token-bucket 1000/s cost 6" False 50 0 1 1
slices "fixed-window 1000000000000/s" True 0 5000000000 2500000000 1000000000
run explain "token-bucket 1000/s" --json --store "redis://h?slices=5%25&peers=10"
is "slices: what Redis is asked with" "token-bucket 1000/s burst 950" "$(field limits.0.slices.asked)"
run explain "token-bucket 1000/s cost 951" --store "redis://h?slices=5%&peers=10"
has "slices: more than is left" "costs 951, and is always denied" "$out"
run explain "token-bucket 3999/s" --store "redis://h?slices=5%&peers=10"
has "slices: too small to gain much" "hardly worth it" "$(echo $out)"
run explain "token-bucket 4000/s" --store "redis://h?slices=5%&peers=10"
lacks "slices: large enough" "hardly worth it" "$(echo $out)"
run explain "token-bucket 1000/s" --json
lacks "no slices: no word of them" "slices" "$out"
run explain "token-bucket 1000/s" --store memory:1m
is "slices: of another store" 2 "$code"
has "slices: of another store" 'invalid --store "memory:1m"' "$err"
run explain "token-bucket 1000/s" --store redis://h
has "slices: none in the address" "add slices=5% and peers=10" "$err"
run explain "token-bucket 1000/s" --store "redis://h?slices=5%" --server h:1
is "slices: of a server" 2 "$code"

# Windows of the calendar: when the next ones begin, as an independent calendar says.
run explain "fixed-window 5000/month from 31 zone +08:00" --json
edges=$(python3 - <<'PYTHON'
import datetime
zone = datetime.timezone(datetime.timedelta(hours=8))
day, found = datetime.datetime.now(zone).date(), []
while len(found) < 3:
    day += datetime.timedelta(days=1)
    if (day + datetime.timedelta(days=1)).day == 1:
        found.append(f"{day}T00:00:00+08:00")
print(*found)
PYTHON
)
is "explain --json: the next edges" "$edges" \
    "$(field limits.0.next_edges.0 limits.0.next_edges.1 limits.0.next_edges.2)"
run explain "fixed-window 5000/month from 31 zone +08:00"
has "explain: the next edges" "next edges   ${edges%% *}, " "$out"
report "explain: edges fit 80 columns" \
    "$(python3 -c 'import sys; print(int(all(len(l) <= 80 for l in sys.argv[1].split("\n"))))' "$out")"
run explain "fixed-window 5000/d"
lacks "explain: no edges of other limits" "next edges" "$out"

# What a flood of three times the rate gets: by hand. 3 a bin of 100 ms come, 1 is refilled.
run explain "token-bucket 10/s" --json
is "flood: requests" 90 "$(field limits.0.flood.requests)"
is "flood: the first bin goes through" "[3, 0]" "$(field limits.0.flood.bins.0)"
is "flood: the last bin is at the rate" "[1, 2]" "$(field limits.0.flood.bins.29)"
run explain "fixed-window 1000g/s" --json
is "flood: of the largest limit, in larger requests" 6000 "$(field limits.0.flood.requests)"

# ---- the promises, attacked ----
# Dense and ragged traces are replayed; what went ahead is summed over every span. (Waiting callers of
# a stepped bucket whose refill exceeds its burst go ahead a refill at a time: see its text.)
attack=$(WEIR=$WEIR python3 - <<'PYTHON'
import csv, io, json, os, random, subprocess

WEIR = os.environ["WEIR"]
LIMITS = [
    ("token-bucket 7/100us burst 5", None, 1), ("token-bucket 7/100us burst 20", "any", 1),
    ("token-bucket 300/100us burst 20", None, 1), ("token-bucket 50/90s burst 5", None, 100000),
    ("token-bucket 7/100us burst 20 stepped", None, 1),
    ("token-bucket 20/100us burst 7 stepped", None, 1),
    ("leaky-bucket 7/100us burst 5", None, 1), ("leaky-bucket 7/100us burst 5 delay 2", None, 1),
    ("leaky-bucket 7/100us burst 5 nodelay", None, 1),
    ("leaky-bucket 300/100us burst 50 delay 7", None, 1),
    ("leaky-bucket 50/90s burst 5", None, 100000),
    ("fixed-window 7/100us", None, 1), ("fixed-window 7/100us zone +05:45", None, 1), ("fixed-window 7/100us from-first", None, 1),
    ("sliding-log 7/100us", None, 1), ("sliding-window 7/100us precision 9us", None, 1),
    ("sliding-counter 7/100us", None, 1), ("sliding-counter 70/3s", None, 20000),
    ("smooth 10/100us burst-for 50us", "0", 1), ("smooth 30/100us burst-for 50us", None, 1),
    ("warmup 10/100us over 300us", "0", 1), ("warmup 7/100us over 50us cold 1.5", "0", 1),
]


def trace(seed, step, costs):
    """About 3000 instants, some of them crowded, with gaps and changes of pace."""
    rng = random.Random(seed)
    t = 1700000000000000 + rng.randrange(1000 * step)
    chance, lines = 1, []
    for _ in range(3000):
        mood = rng.random()
        if mood < 0.01:
            chance = rng.choice([1, 1, 0.5, 0.2, 0.05, 0.01])
        if mood > 0.995:
            t += rng.randrange(400) * step
        if rng.random() < chance:
            for _ in range(rng.choice([1, 1, 2, 3, 12])):
                lines.append("%d.%06d,k,%d" % (t // 1000000, t % 1000000, rng.choice(costs)))
        t += step * rng.choice([1, 1, 1, 1, 2])
    return "\n".join(lines)


def went_ahead(limit, wait, text):
    command = [WEIR, "replay", limit, "--decisions"] + (["--wait", wait] if wait else [])
    out = subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout
    us = lambda seconds: int(seconds.replace(".", ""))
    return sorted((us(row["time"]) + us(row["delay"]), int(row["cost"]))
                  for row in csv.DictReader(io.StringIO(out)) if row["allowed"] == "1")


def most_in(times, span):
    best = total = first = 0
    for when, cost in times:
        total += cost
        while times[first][0] <= when - span:
            total -= times[first][1]
            first += 1
        best = max(best, total)
    return best


for limit, wait, step in LIMITS:
    out = subprocess.run([WEIR, "explain", limit, "--json"], capture_output=True, check=True).stdout
    facts = json.loads(out)["limits"][0]
    span = round(facts["in_any"] * 1e6)
    costs = [1] if facts["if_each_costs_1"] else [1, 1, 1, 2, 3]
    seen = [went_ahead(limit, wait, trace(seed, step, costs)) for seed in range(2)]
    most = max(most_in(times, span) for times in seen)
    burst = max(most_in(times, 1) for times in seen)
    good = most <= facts["most"] and burst <= facts["worst_burst"]
    print("%d attacked: %s: %d of %d, %d of %d at once"
          % (good, limit, most, facts["most"], burst, facts["worst_burst"]))
PYTHON
)
while read -r good name; do
    report "$name" "$good"
done <<<"$attack"

# The bounds that a hand-made trace reaches.
reaches() { # LIMIT TRACE ADMITTED
    run replay "$1" --json <<<"$2"
    is "reached: $1" "$3" "$(field cost_allowed)"
}
reaches "fixed-window 100/m" $'59.999999,a,100\n60,a,100\n119.999998,a' 200
reaches "fixed-window 100/m from-first" $'0,a\n59.999999,a,99\n60,a,100\n119.999998,a' 200
reaches "sliding-counter 1000/h" $'3599.999999,a,1000\n7199.999998,a,1000' 2000
reaches "token-bucket 10/s burst 20" $'0,a,20\n1,a,10\n1,a' 30
reaches "token-bucket 10/s burst 20 stepped" $'0,a,20\n1,a,10\n1,a' 30

# ---- demo ----
run demo --json
valid_json "demo --json: is JSON" "$out"
is "demo: a fixed window admits all 440" 440 "$(field limits.0.admitted)"
is "demo: a sliding window 240" 240 "$(field limits.1.admitted)"
is "demo: a sliding log 240" 240 "$(field limits.2.admitted)"
is "demo: a token bucket what it earned besides" 247 "$(field limits.3.admitted)"
run demo
has "demo: shows it" "admits 440 of 440" "$out"
lacks "demo: no colour in a pipe" $'\033' "$out"
report "demo: fits 80 columns" \
    "$(python3 -c 'import sys; print(int(all(len(l) <= 80 for l in sys.argv[1].split("\n"))))' "$out")"
script -qec "stty cols 200; $WEIR demo" /dev/null >"$tmp/tty" </dev/null
has "demo: colour on a terminal" $'\033[' "$(<"$tmp/tty")"
NO_COLOR=1 script -qec "$WEIR demo" /dev/null >"$tmp/tty" </dev/null
lacks "demo: NO_COLOR is honoured" $'\033[' "$(<"$tmp/tty")"

finish
