#!/bin/sh
# Every example runs and prints what it should. "…" stands for anything within a line.
. "$(dirname "$0")/lib.sh"

# expect NAME, the expected output on stdin
expect() {
    cat >"$scratch/expected"
    if ! timeout 600 "$build/examples/$1" >"$scratch/out" 2>&1; then
        bad "$1 ends well" "$(cat "$scratch/out")"
        return
    fi
    good "$1 ends well"
    if awk '
        function pattern(text) { gsub(/[][\\.^$*+?(){}|]/, "\\\\&", text); gsub(/…/, ".*", text); return "^" text "$" }
        NR == FNR { want[FNR] = pattern($0); wanted = FNR; next }
        $0 !~ want[FNR] { exit 1 }
        { seen = FNR }
        END { exit seen != wanted }' "$scratch/expected" "$scratch/out"; then
        good "$1 prints what it should"
    else
        bad "$1 prints what it should" "$(diff "$scratch/expected" "$scratch/out")"
    fi
}

expect embed <<END
request 1: allowed, 2 left
request 2: allowed, 1 left
request 3: allowed, 0 left
request 4: denied, retry in 20 s
request 5: denied, retry in 20 s
END
expect prefork <<END
4 processes tried 2000 times: 1000 allowed, limit 1000
END
expect pool <<END
40 jobs done by 8 threads, at most … at once
3 of 3 slots free
END
expect sender <<END
message 1 sent
message 2 sent
message 3 sent
message 4 sent
message 5 sent
message 6 sent
message 7 sent
message 8 sent
message 9 sent
message 10 sent
10 messages took … ms, at least 180: yes
a mailing of 50: booked
an urgent one: refused at once
END
expect settle <<END
estimated 4000: allowed, 96000 left; settled to 1234: 98766 left
estimated 4000: allowed, 94766 left; settled to 9000: 89766 left
estimated 90000: denied, 89766 left
estimated 80000: allowed, 9766 left; settled to 0: 89766 left
89766 of 100000 left
END
none "every example is run here" "$(for source in examples/*.c; do
    name=$(basename "$source" .c)
    grep -q "^expect $name " "$0" || echo "$name"
done)"
pid=$(sh -c 'echo $$; exec "$0" >/dev/null' "$build/examples/prefork")
none "prefork leaves no shared memory behind" "$(ls "/dev/shm/weir-prefork-$pid" 2>/dev/null)"
finish
