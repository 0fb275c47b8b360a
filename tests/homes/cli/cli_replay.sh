#!/bin/bash
# replay: decisions worked out by hand from docs/SPEC.md, the trace format, what is refused.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

header="time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay"

# decides NAME LIMITS TRACE EXPECTED [OPTIONS]: the lines behind the header
decides() {
    local name=$1 limits=$2 trace=$3 expected=$4
    shift 4
    run replay "$limits" --decisions "$@" <<<"$trace"
    is "$name" "$header
$expected" "$out"
}

# ---- every kind of limit ----
decides "token bucket" "token-bucket 2/s burst 3" "0,a
0,a,2
0.25,a
0.5,a
0.5,a,4
0.5,b,0" "0.000000,a,1,1,3,2,0.000000,0.500000,0.000000
0.000000,a,2,1,3,0,0.000000,1.500000,0.000000
0.250000,a,1,0,3,0,0.250000,1.250000,0.000000
0.500000,a,1,1,3,0,0.000000,1.500000,0.000000
0.500000,a,4,0,3,0,never,1.500000,0.000000
0.500000,b,0,1,3,3,0.000000,0.000000,0.000000"

decides "token bucket, waiting" "token-bucket 2/s burst 3" "0,a,3
0,a,2
0,a" "0.000000,a,3,1,3,0,0.000000,1.500000,0.000000
0.000000,a,2,1,3,0,0.000000,2.500000,1.000000
0.000000,a,1,0,3,0,0.500000,2.500000,0.000000" --wait 1s

decides "token bucket, coarse ticks" "token-bucket 1/h" "0.000999,a
0.001,a
3600,a" "0.000999,a,1,1,1,0,0.000000,3599.999001,0.000000
0.001000,a,1,0,1,0,3599.999000,3599.999000,0.000000
3600.000000,a,1,1,1,0,0.000000,3600.000000,0.000000"

decides "stepped" "token-bucket 2/10s stepped" "5,a,2
14.999999,a
15,a,2
35,a" "5.000000,a,2,1,2,0,0.000000,10.000000,0.000000
14.999999,a,1,0,2,0,0.000001,0.000001,0.000000
15.000000,a,2,1,2,0,0.000000,10.000000,0.000000
35.000000,a,1,1,2,1,0.000000,10.000000,0.000000"

decides "leaky bucket" "leaky-bucket 1/s burst 1" "10,a
10,a
10.5,a" "10.000000,a,1,1,2,1,0.000000,1.000000,0.000000
10.000000,a,1,1,2,0,0.000000,2.000000,1.000000
10.500000,a,1,0,2,0,0.500000,1.500000,0.000000"

decides "leaky bucket, nodelay" "leaky-bucket 1/s burst 1 nodelay" "10,a
10,a" "10.000000,a,1,1,2,1,0.000000,1.000000,0.000000
10.000000,a,1,1,2,0,0.000000,2.000000,0.000000"

decides "fixed window" "fixed-window 2/m" "59,a
59.5,a,2
60,a,2" "59.000000,a,1,1,2,1,0.000000,1.000000,0.000000
59.500000,a,2,0,2,1,0.500000,0.500000,0.000000
60.000000,a,2,1,2,0,0.000000,60.000000,0.000000"

decides "fixed window, from first" "fixed-window 2/m from-first" "59,a
60,a,2
119,a,2" "59.000000,a,1,1,2,1,0.000000,60.000000,0.000000
60.000000,a,2,0,2,1,59.000000,59.000000,0.000000
119.000000,a,2,1,2,0,0.000000,60.000000,0.000000"

decides "sliding log" "sliding-log 2/10s" "100,a
104,a
105,a
110,a" "100.000000,a,1,1,2,1,0.000000,10.000000,0.000000
104.000000,a,1,1,2,0,0.000000,10.000000,0.000000
105.000000,a,1,0,2,0,5.000000,9.000000,0.000000
110.000000,a,1,1,2,0,0.000000,10.000000,0.000000"

decides "sliding window" "sliding-window 2/10s precision 5s" "100,a
104,a
110,a
114,a" "100.000000,a,1,1,2,1,0.000000,10.000000,0.000000
104.000000,a,1,1,2,0,0.000000,10.000000,0.000000
110.000000,a,1,0,2,0,4.000000,4.000000,0.000000
114.000000,a,1,1,2,1,0.000000,10.000000,0.000000"

decides "sliding counter" "sliding-counter 10/10s" "5,a,10
15,a
15,a,6" "5.000000,a,10,1,10,0,0.000000,14.999991,0.000000
15.000000,a,1,1,10,4,0.000000,14.999991,0.000000
15.000000,a,6,0,10,4,1.999991,14.999991,0.000000"

decides "smooth" "smooth 5/s" "0,a,2
0.1,a" "0.000000,a,2,1,5,0,0.000000,1.400000,0.000000
0.100000,a,1,1,5,0,0.000000,1.500000,0.300000"

decides "smooth, not waiting" "smooth 5/s" "0,a,2
0.1,a" "0.000000,a,2,1,5,0,0.000000,1.400000,0.000000
0.100000,a,1,0,5,0,0.300000,1.300000,0.000000" --wait 0

decides "concurrent, nothing released" "concurrent 1 lease 30s" "0,a
10,a
30,a" "0.000000,a,1,1,1,0,0.000000,30.000000,0.000000
10.000000,a,1,0,1,0,20.000000,20.000000,0.000000
30.000000,a,1,1,1,0,0.000000,30.000000,0.000000"

decides "several limits, all or nothing" "token-bucket 1/s burst 5, fixed-window 2/m" "60,a
60,a
60,a
60.5,a,9" "60.000000,a,1,1,2,1,0.000000,60.000000,0.000000
60.000000,a,1,1,2,0,0.000000,60.000000,0.000000
60.000000,a,1,0,2,0,60.000000,60.000000,0.000000
60.500000,a,9,0,5,3,never,59.500000,0.000000"

decides "time runs back for a key" "token-bucket 1/s" "10,a
9,a
8,b" "10.000000,a,1,1,1,0,0.000000,1.000000,0.000000
9.000000,a,1,0,1,0,2.000000,2.000000,0.000000
8.000000,b,1,1,1,0,0.000000,1.000000,0.000000"

# ---- the format ----
one="fixed-window 9/m"
line() { echo "$1,$2,${3:-1},1,9,$4,0.000000,$5,0.000000"; }
decides "header, empty lines, no cost column" "$one" "time,key

60,a

61,a" "$(line 60.000000 a 1 8 60.000000)
$(line 61.000000 a 1 7 59.000000)"
decides "header with cost" "$one" $'TIME,Key,cost\n60,a,2' "$(line 60.000000 a 2 7 60.000000)"
decides "CRLF and a byte order mark" "$one" $'\xef\xbb\xbftime,key\r\n60,a\r\n\r\n61,b\r' \
    "$(line 60.000000 a 1 8 60.000000)
$(line 61.000000 b 1 8 59.000000)"
decides "quoted keys" "$one" $'60,"a,b"\n60,"say ""hi"""\n60,"two\nlines"\n60,"plain"\n60," a "' \
    "$(line 60.000000 '"a,b"' 1 8 60.000000)
$(line 60.000000 '"say ""hi"""' 1 8 60.000000)
$(line 60.000000 $'"two\nlines"' 1 8 60.000000)
$(line 60.000000 plain 1 8 60.000000)
$(line 60.000000 ' a ' 1 8 60.000000)"
decides "every field quoted" "$one" '"60","a","2"' "$(line 60.000000 a 2 7 60.000000)"
decides "decimals" "$one" $'60.000001,a\n60.1,a' "$(line 60.000001 a 1 8 59.999999)
$(line 60.100000 a 1 7 59.900000)"
decides "the largest time" "$one" "9007199254.740991,a" "$(line 9007199254.740991 a 1 8 25.259009)"
run replay "$one" --decisions </dev/null
is "nothing: only the header" "$header" "$out"
printf '60,\xff\x00\xfe\n' | "$WEIR" replay "$one" --decisions >"$tmp/bytes"
is "a key is any bytes" "$(printf '60.000000,\xff\x00\xfe,1,1,9' | od -c)" \
    "$(tail -n 1 "$tmp/bytes" | head -c 19 | od -c)"
printf '60,a' | "$WEIR" replay "$one" --decisions >"$tmp/last"
is "no newline at the end" "$(line 60.000000 a 1 8 60.000000)" "$(tail -n 1 "$tmp/last")"

printf '60,"a\nb"' | "$WEIR" replay "$one" --decisions >"$tmp/last"
is "no newline at the end, one within the last key" "$(line 60.000000 $'"a\nb"' 1 8 60.000000)" "$(tail -n 2 "$tmp/last")"

# ---- where it comes from ----
printf '60,a\n61,a\n' >"$tmp/trace.csv"
run replay "$one" --decisions "$tmp/trace.csv" </dev/null
file=$out
run replay --decisions "$one" <"$tmp/trace.csv"
is "standard input and a file agree" "$file" "$out"
out=$("$WEIR" replay "$one" --decisions - < <(cat "$tmp/trace.csv"))
is "a pipe and a file agree" "$file" "$out"
(
    read -r _
    "$WEIR" replay "$one" --decisions
) <"$tmp/trace.csv" >"$tmp/rest"
is "standard input from where it stands" 2 "$(wc -l <"$tmp/rest")"

# ---- what is refused: nothing is decided, nothing stored ----
bad() { # NAME NEEDLE TRACE
    printf '%b' "$3" >"$tmp/bad.csv"
    run replay "$one" --decisions --store "file:$tmp/never" "$tmp/bad.csv" </dev/null
    if [[ $code == 2 && -z $out && $err == "weir replay: "*"$2"* && ! -e $tmp/never ]]; then
        report "refused: $1" 1
    else
        report "refused: $1" 0 "exit $code, stdout <$out>, stderr <$err>"
    fi
}
bad "a time in words" 'line 2, column 1: invalid time "soon"' '60,a\nsoon,a\n'
bad "a negative time" 'line 1, column 1: invalid time "-1"' '-1,a\n'
bad "seven decimals" 'line 1, column 1: invalid time "1.1234567"' '1.1234567,a\n'
bad "a point without decimals" 'time "1."' '1.,a\n'
bad "a point without seconds" 'time ".5"' '.5,a\n'
bad "an exponent" 'time "1e3"' '1e3,a\n'
bad "a time too late" 'time "9007199254.740992"' '9007199254.740992,a\n'
bad "a time far too late" 'time "99999999999999999999"' '99999999999999999999,a\n'
bad "spaces around a time" 'time " 1"' ' 1,a\n'
bad "no time" 'line 1, column 1: invalid time ""' ',a\n'
bad "no key" 'line 3, column 1: invalid line "62"' '60,a\n61,a\n62\n'
bad "an empty key" 'line 1, column 4: invalid key ""' '60,\n'
bad "an empty quoted key" 'line 1, column 4: invalid key ""' '60,""\n'
bad "a cost in words" 'line 1, column 6: invalid cost "x"' '60,a,x\n'
bad "a negative cost" 'cost "-1"' '60,a,-1\n'
bad "a broken cost" 'cost "1.5"' '60,a,1.5\n'
bad "an empty cost" 'cost ""' '60,a,\n'
bad "a cost too large" 'cost "1000000000001"' '60,a,1000000000001\n'
bad "a cost far too large" 'cost "99999999999999999999"' '60,a,99999999999999999999\n'
bad "a fourth column" 'line 1, column 6: invalid cost "1"' '60,a,1,2\n'
bad "a quote that does not close" 'line 2, column 4: invalid field "b' '60,a\n61,"b\n62,c\n'
bad "text behind a quote" 'line 1, column 4: invalid quoted field "a"' '60,"a"b\n'
bad "a quote inside a bare key" 'line 1, column 4: invalid field "a"' '60,a"b\n'
bad "a carriage return inside a bare key" 'line 1, column 4: invalid field "a"' '60,a\rb\n'
bad "lines are counted through quoted keys" 'line 4, column 1: invalid time "x"' '60,"a\nb\nc"\nx,a\n'
bad "a header without a key" 'have no field ip; they have user; name one of them with --key' 'time,user\n60,a\n'
bad "a header in the middle" 'line 2, column 1: invalid time "time"' '60,a\ntime,key\n'
bad "the last line of many" 'line 100001, column 1: invalid time "oops"' "$(seq -f '%g,k' 100000)\noops,k\n"
python3 -c 'print("60," + "k" * 65537)' >"$tmp/long.csv"
run replay "$one" "$tmp/long.csv"
is "refused: a key too long" 2 "$code"
has "refused: a key too long, named" "line 1, column 4: invalid key" "$err"
python3 -c 'print("60,\"" + "\"\"" * 65536 + "\"")' >"$tmp/quotes.csv"
run replay "$one" --decisions "$tmp/quotes.csv"
is "a key of 65536 quotes is long enough" 0 "$code"
is "and comes back quoted" "$(head -c 131080 "$tmp/quotes.csv" | tail -c +4 | head -c 131074 | cksum)" \
    "$(tail -n 1 <<<"$out" | tail -c +11 | head -c 131074 | cksum)"
refuses "refused: a file that is not there" 3 "$tmp/no.csv" replay "$one" "$tmp/no.csv"
refuses "refused: a directory" 3 "$tmp" replay "$one" "$tmp"

# ---- the summary ----
printf '0,a\n1,a\n2,a\n3,b\n9,"c,d"\n' >"$tmp/trace.csv"
run replay "sliding-log 1/5s" "$tmp/trace.csv"
has "summary: requests and keys" "5  of 3 keys over 9s" "$out"
has "summary: allowed" "3  60.00%" "$out"
has "summary: denied" "2  40.00%" "$out"
has "summary: most denied" "2 of 3          a" "$out"
has "summary: a plot" "█" "$out"
lacks "summary: no colour in a pipe" $'\033' "$out"
run replay "sliding-log 1/5s" --json "$tmp/trace.csv"
valid_json "summary --json: is JSON" "$out"
is "summary --json: requests" 5 "$(field requests)"
is "summary --json: allowed" 3 "$(field allowed)"
is "summary --json: denied" 2 "$(field denied)"
is "summary --json: keys" 3 "$(field keys)"
is "summary --json: first" 0.0 "$(field first)"
is "summary --json: last" 9.0 "$(field last)"
is "summary --json: most denied" a "$(field most_denied.0.key)"
is "summary --json: the timeline begins" 1 "$(field timeline.allowed.0)"
run replay "leaky-bucket 1/s burst 3" --json <<<$'0,a\n0,a\n0,a'
is "summary --json: longest delay" 2.0 "$(field longest_delay)"
run replay "$one" --json </dev/null
valid_json "summary --json: of nothing" "$out"
is "summary --json: of nothing, exit 0" 0 "$code"
run replay "$one" </dev/null
is "summary: of nothing, exit 0" 0 "$code"
run replay "sliding-log 1/5s" --decisions --json "$tmp/trace.csv"
is "decisions --json: one object per line" 5 "$(wc -l <<<"$out")"
out=$(tail -n 1 <<<"$out")
is "decisions --json: keys" "c,d" "$(field key)"

# ---- classes that share a limit ----
half="critical=100%,batch=50%,default=20%"
header+=,class
decides "classes" "fixed-window 4/m" "time,key,cost,class
60,a,1,batch
60,a,1,batch
60,a,1,batch
60,a,1,critical
60,a,1
61,a,1,other
61,b,1,
62,a,1,\"critical\"" "60.000000,a,1,1,2,1,0.000000,60.000000,0.000000,batch
60.000000,a,1,1,2,0,0.000000,60.000000,0.000000,batch
60.000000,a,1,0,2,0,60.000000,60.000000,0.000000,batch
60.000000,a,1,1,4,1,0.000000,60.000000,0.000000,critical
60.000000,a,1,0,1,0,60.000000,60.000000,0.000000,
61.000000,a,1,0,1,0,59.000000,59.000000,0.000000,other
61.000000,b,1,1,1,0,0.000000,59.000000,0.000000,
62.000000,a,1,1,4,0,0.000000,58.000000,0.000000,critical" --share "$half"
printf '60,a,3,critical\n60,a,1,batch\n60,a,1,new\n' >"$tmp/classes.csv"
run replay "fixed-window 4/m" --share "$half" "$tmp/classes.csv"
has "classes: in the summary" "0 of 1          allowed  batch, 50%: fixed-window 2/m" "$out"
has "classes: all others" "0 of 1          allowed  default, 20%: fixed-window 1/m" "$out"
run replay "fixed-window 4/m" --share "default=20%,critical=12.5%" --json "$tmp/classes.csv"
valid_json "classes --json: is JSON" "$out"
is "classes --json" "critical 12.5% 1 0 1 default fixed-window 1/m 2 1" \
    "$(field classes.0.class classes.0.share classes.0.requests classes.0.allowed classes.0.denied \
        classes.1.class classes.1.limit classes.1.requests classes.1.allowed)"
run replay "fixed-window 4/m" --share "$half" --decisions --json "$tmp/classes.csv"
out=$(tail -n 1 <<<"$out")
is "classes: decisions --json" "new" "$(field class)"
shares() { # NAME NEEDLE SHARES [LIMITS]
    refuses "refused: $1" 2 "$2" replay "${4:-fixed-window 4/m}" --share "$3" "$tmp/classes.csv"
}
shares "no default" 'expected default=PERCENT' "batch=50%"
shares "a share of nothing" 'invalid share "batch=0%" at column 1: a share is more than 0% and at most 100%' "batch=0%,default=1%"
shares "a share of more than all" 'invalid share "b=101%" at column 6' "a=1%,b=101%,default=1%"
shares "no percent sign" 'needs its percent sign' "batch=50,default=1%"
shares "a class twice" 'given twice' "a=1%,a=2%,default=1%"
shares "no name" 'expected CLASS=PERCENT' "=1%,default=1%"
shares "no share" 'expected CLASS=PERCENT' "batch,default=1%"
shares "a comma at the end" 'invalid share "" at column 12' "default=1%,"
shares "17 classes" 'at most 16 classes' "$(seq -s, -f 'c%g=1%%' 17),default=1%"
shares "a limit without a size" '"smooth 5/s" cannot be shared' "a=1%,default=1%" "smooth 5/s"
refuses "refused: a class without --share" 2 'a class needs --share' replay "$one" "$tmp/classes.csv"
badly() { # NAME NEEDLE TRACE [SHARES]
    printf '%s\n' "$3" >"$tmp/badly.csv"
    refuses "refused: $1" 2 "$2" replay "$one" ${4:+--share "$4"} "$tmp/badly.csv"
}
badly "its header without --share" 'a class needs --share' 'time,key,cost,class'
badly "another header" 'expected time,key,cost,class' 'time,key,cost,klass' "$half"
badly "a fifth field" 'invalid class "b"' '60,a,1,b,c' "$half"
badly "quotes in a class" 'a name without quotes' '60,a,1,"b""c"' "$half"

# ---- stores ----
run replay "fixed-window 2/m" --decisions --store "file:$tmp/kept?size=1m" <<<"60,a"
run replay "fixed-window 2/m" --decisions --store "file:$tmp/kept" <<<"61,a,2"
has "a store is remembered" "61.000000,a,2,0,2,1" "$out"
awk 'BEGIN { for (i = 0; i < 20000; i++) print "60,k" i }' >"$tmp/many.csv"
run replay "fixed-window 2/d" --store memory:64k "$tmp/many.csv"
is "a store too small is exit 3" 3 "$code"
has "a store too small: says so" "states in use were evicted" "$err"
run replay "fixed-window 2/d, sliding-log 3/d, concurrent 2" "$tmp/many.csv" --json
is "the private store never is" 0 "$code"
is "and everything is allowed once" 20000 "$(field allowed)"

finish
