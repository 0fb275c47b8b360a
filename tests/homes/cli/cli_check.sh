#!/bin/bash
# check: what a policy file says, in words and as JSON, what is wrong with one, and what a request takes.
# shellcheck source-path=SCRIPTDIR disable=SC2016,SC2015,SC2317
source "$(dirname "$0")/cli_helpers.bash"

example=$(dirname "$0")/../../../examples/policies.yaml
file=$tmp/policies.yaml

write() { # stdin becomes the file
    cat >"$file"
}

# ---- a good file, in words ----
run check "$example"
is "check: exit 0" 0 "$code"
is "check: nothing on stderr" "" "$err"
has "check: how many" "5 policies, 7 limits" "$out"
has "check: when" "path is /login or /password/* and method is POST" "$out"
has "check: by name" "asked for by name" "$out"
has "check: the limit" "token-bucket 100/s burst 200" "$out"
has "check: its meaning" "A bucket with room for 200, refilled by 100 every 1s" "$out"
has "check: the key" "lower(header.x-login)" "$out"
has "check: the cost" "header.x-cost, at least 1, at most 100" "$out"
has "check: an override" "token-bucket 1000/s burst 2000 when user is gold-*" "$out"
has "check: shadow" "shadow: counted, not enforced" "$out"
has "check: deny" "ip is 203.0.113.0/24 or 2001:db8:bad::/48" "$out"
has "check: fail" "closed" "$out"
lacks "check: no colour in a pipe" $'\033' "$out"
report "check: fits 80 columns" \
    "$(python3 -c 'import sys; print(int(all(len(l) <= 80 for l in sys.argv[1].split("\n"))))' "$out")"
words=$out
out=$("$WEIR" check - <"$example")
is "check: stdin says the same" "${words#*:}" "${out#*:}"

# ---- as JSON ----
run check "$example" --json
is "check --json: exit 0" 0 "$code"
valid_json "check --json: is JSON" "$out"
is "check --json: without fail: the address says it" "None" "$(field policies.0.fail)"
is "check --json: what it holds" "True policies api user login closed 4" \
    "$(field ok kind policies.1.name policies.1.limits.0.key policies.3.name policies.3.fail) $(
        python3 -c 'import json, sys; print(len(json.loads(sys.argv[1])["policies"][3]["limits"]))' "$out")"
is "check --json: cost and override" "header.x-cost 100 user is gold-*" \
    "$(field policies.1.limits.0.cost.of policies.1.limits.0.cost.max policies.1.limits.0.overrides.0.when)"

# ---- shares ----
write <<'END'
version: 1
tiers: {gold: leaky-bucket 5/s burst 9 delay 8}
policies:
  - name: api
    key: user
    limit: token-bucket 100/s burst 200
    share: {by: header.x-class, critical: 100%, "batch*": 12.5%, default: 50%}
    overrides: [{when: {user: ann}, tier: gold}]
END
run check "$file"
has "shares: of a class" "12.5% when header.x-class is batch*: token-bucket 100/s burst 25" "$out"
has "shares: of all others" "50% for all others: token-bucket 100/s" "$out"
has "shares: of an override" "50% for all others: leaky-bucket 5/s burst 4 delay 4" "$out"
run check "$file" --json
is "shares: as JSON" "header.x-class critical 100% token-bucket 100/s burst 200 default leaky-bucket 5/s burst 4 delay 4" \
    "$(field policies.0.limits.0.share.by policies.0.limits.0.share.classes.0.class policies.0.limits.0.share.classes.0.share \
        policies.0.limits.0.share.classes.0.limit policies.0.limits.0.overrides.0.share.classes.2.class \
        policies.0.limits.0.overrides.0.share.classes.2.limit)"
run check "$file" --request "user=bob&header.x-class=batch7"
has "shares: what a request takes" "1 of token-bucket 100/s burst 25" "$out"

# ---- what a request takes ----
takes() { # NAME REQUEST EXPECTED: verdict, and the keys with their costs
    run check "$example" --json --request "$2"
    is "request: $1" "$3" "$(python3 -c 'import json, sys
plan = json.loads(sys.argv[1])
print(plan["verdict"], *["%d:%s" % (t["cost"], t["key"]) for t in plan["takes"]])' "$out")"
}
takes "no policy" "path=/&ip=192.0.2.1" "none"
takes "a user" "path=/api/x&user=ann&ip=192.0.2.1" "limits 1:api/{user=ann}"
takes "a cost" "path=/api/x&user=ann&header.x-cost=7" "limits 7:api/{user=ann}"
takes "a cost over its bound" "path=/api/x&user=ann&header.x-cost=700" "limits 100:api/{user=ann}"
takes "nobody" "path=/api/x&ip=192.0.2.1" "limits 1:anonymous/{ip=192.0.2.0/24}"
takes "an exempt one" "path=/api/x&user=ann&ip=10.0.0.1&header.x-internal=yes" "allow"
takes "a blocked one" "path=/api/x&user=ann&ip=203.0.113.9" "deny"
takes "a login, spelt oddly" "path=//%6cogin?next=%2F&method=POST&ip=::ffff:192.0.2.7&header.x-login=ANN" \
    "limits 1:login/per-ip/{ip=192.0.2.7} 1:login/per-user/{lower(header.x-login)=ann} 1:login/everybody/{all}"
run check "$example" --request "path=/login&method=POST&ip=192.0.2.7"
has "request: in words" "key login/per-ip/{ip=192.0.2.7}" "$out"
has "request: shadow" "shadow limits, counted but not enforced" "$out"
run check "$example" --request "user=a%C2%9Bb&path=/api/x"
lacks "request: nothing that a terminal obeys" $'\xc2\x9b' "$out"
run check "$example" --request "user=a%E2%80%AEb&path=/api/x"
lacks "request: nothing that turns the direction" $'\u202e' "$out"
run check "$example" --request "path=/api/x,User=ann, header.x-cost=7"
has "request: a comma for &" "did you mean path=/api/x&User=ann&header.x-cost=7?" "$out"
run check "$example" --request "path=/login user=ann"
has "request: a blank for &" "did you mean path=/login&user=ann?" "$out"
run check "$example" --request "path=/a,b, c&user=x=1,nobody=2&ip=192.0.2.7"
lacks "request: a comma in a value" "did you mean" "$out"
refuses "request: a broken escape" 2 "encoded like a query" check "$example" --request "user=%zz"

# The key that is shown is the one in the store.
write <<END
version: 1
policies:
  - {name: api, match: {path: /api/*}, key: user, limit: fixed-window 200/366d}
END
run check "$file" --json --request "path=/api/x&user=ann"
key=$(field takes.0.key) limit=$(field takes.0.limit)
"$WEIR" take "$key" "$limit" --cost 150 >/dev/null
run peek "$key" "$limit" --json
is "request: its key is asked for" "50 api/{user=ann}" "$(field remaining) $key"

# ---- bad files: the place, the line, a mark ----
wrong() { # NAME PLACE NEEDLE: of the file
    refuses "$1" 2 "$file:$2: $3" check "$file"
}
write <<'END'
version: 1
policies:
  - name: api
    key: ip
    limit: token-bucket 10/x
END
wrong "a limit" 5:28 "a duration needs a unit"
has "a limit: the line and a mark" $'        limit: token-bucket 10/x\n                               ^' "$err"
run check "$file" --json
is "a limit: as JSON" "2 False 5 28" "$code $(field ok line column)"
has "a limit: as JSON, the message" "a duration needs a unit" "$(field message)"
is "a limit: as JSON, nothing on stderr" "" "$err"
printf 'version: 1\npolicies:\n  - {name: p, keey: ip}\n' | write
wrong "a key misspelt" 3:15 'unknown key "keey"; did you mean key?'
printf 'a: &x 1\nb: *x\n' | write
wrong "an anchor" 1:4 "anchors (&x) are not supported"
printf 'a: 1\na: 2\n' | write
wrong "a key twice" 2:1 '"a" is given twice'
printf '' | write
wrong "an empty file" 1:1 "the file is empty"
printf 'version: 1\npolicies:\n  - {name: "\xff"}\n' | write
wrong "not UTF-8" 3:13 "not UTF-8 text"
python3 -c 'print("[" * 100000)' | write
wrong "a deep one" 1:33 "lists and maps nested more than 32 deep"
printf 'version: 1\npolicies: []\n' >"$tmp/a: 3:4: b.yaml"
exits "a name with colons" 0 check "$tmp/a: 3:4: b.yaml"
printf 'version: 2\npolicies: []\n' >"$tmp/a: 3:4: b.yaml"
run check "$tmp/a: 3:4: b.yaml" --json
is "a name with colons: the place" "1 10" "$(field line column)"
printf 'version: 1\npolicies:\n  - {name: p, key: usr, limit: smooth 5/s}\n' | write
run check "$file"
has "a note about what callers must send" 'callers must send "usr"' "$out"
has "a note: what may be meant" "did you mean user?" "$out"
printf 'version: 1\npolicies:\n  - {name: p, limits: [{name: a, key: lower(team), limit: smooth 5/s}, {name: b, key: team, limit: smooth 5/s}]}\n' | write
run check "$file"
has "a name is noted once" 'callers must send "team"; the' "$(tr '\n' ' ' <<<"$out")"
cat >"$file" <<'EOF'
version: 1
policies:
  - name: tokens
    match: by-name
    cross_slot: give-back
    limits:
      - {name: minute, key: project, cost: tokens, limit: token-bucket 100/m}
      - {name: month, key: customer, cost: tokens, limit: "fixed-window 5000/month from 15"}
    overrides:
      - {when: {customer: bob}, entry: month, limit: "fixed-window 9000/month from 1"}
      - {when: {customer: eve}, entry: month, limit: "fixed-window 9000/month from 15"}
EOF
run check "$file"
has "one note for all attributes" 'callers must send "project", "tokens", "customer"; the' "$(tr '\n' ' ' <<<"$out")"
sed 's/cost: tokens/cost: {of: tokens, default: 400}, least: {of: enough, default: 1}/' "$file" >"$tmp/defaults.yaml"
run check "$tmp/defaults.yaml"
has "what has a default need not be sent" 'callers must send "project", "customer" and may send "tokens", "enough", which have defaults; the' "$(tr '\n' ' ' <<<"$out")"
run check "$file"
has "an override of another state" "1 override of tokens, limit month, has another algorithm, period, precision, zone or anchor than the limit itself, so whom it applies to starts from a fresh state: line 10 (customer is bob)" "$(tr '\n' ' ' <<<"$out")"
lacks "each override is reached" "never applies" "$out"
exits "notes are no failure" 0 check "$file"
exits "but with --strict" 1 check "$file" --strict
exits "also as JSON" 1 check "$file" --strict --json
has "as JSON, the notes" '"notes":["note: 1 override of tokens' "$out"
run check "$file" --json
has "as JSON" '"same_state":false},{"when":"customer is eve","limit":"fixed-window 9000/month from 15","same_state":true}' "$out"
ask="customer=bob&project=x&tokens=3"
run check "$file" --request "$ask"
has "by name: not met" "no policy applies" "$out"
has "by name: named" "asked for by name only (--policy NAME): tokens" "$out"
run check "$file" --request "$ask" --policy tokens
has "by name: what it takes" "3 of fixed-window 9000/month" "$out"
has "all or nothing" "takes all of these, or nothing:" "$out"
run check "$file" --request "$ask" --policy tokens --store redis+cluster://127.0.0.1:1
has "not in a cluster" "takes these one after the other, and gives back what it took if one denies:" "$out"
exits "by name: another" 2 check "$file" --request "$ask" --policy toke
has "by name: another is named" 'no policy is named "toke"' "$err"
exits "by name: no request" 2 check "$file" --policy tokens
has "by name: what is missing" "--policy needs --request" "$err"

# ---- overrides that are never reached, and such as are ----
overrides() { # FIRST SECOND: the conditions of two overrides
    printf 'version: 1\npolicies:\n  - name: p\n    key: user\n    limit: fixed-window 1/d\n    overrides:\n      - {when: {%s}, limit: fixed-window 2/d}\n      - {when: {%s}, limit: fixed-window 3/d}\n' "$1" "$2" | write
    run check "$file"
}
hides() { # NAME FIRST SECOND: the second is never reached
    overrides "$2" "$3"
    has "$1: never reached" "the override of p, limit p, in line 8 (" "$(tr '\n' ' ' <<<"$out")"
    has "$1: which hides it" "never applies: that in line 7 (" "$(tr '\n' ' ' <<<"$out")"
    exits "$1: strict" 1 check "$file" --strict
}
reaches() { # NAME FIRST SECOND: it may be
    overrides "$2" "$3"
    lacks "$1: reached" "never applies" "$out"
    exits "$1: strict" 0 check "$file" --strict
}
hides "the same" "user: ann" "user: ann"
hides "one of a list" "user: [ann, bob]" "user: bob"
hides "a star" 'user: "gold-*"' "user: gold-1"
hides "stars" 'user: "g*"' 'user: "gold-*-x"'
hides "the same stars" 'user: "a*b*c"' 'user: "a*b*c"'
hides "present" 'user: "*"' 'user: "a*b*"'
hides "one condition fewer" "user: ann" "user: ann, method: GET"
hides "a network" "ip: 10.0.0.0/8" "ip: [10.1.0.0/16, 10.2.3.4]"
hides "not, of fewer" "user: {not: ann}" "user: {not: [ann, bob]}"
hides "not, beside others" "user: {not: ann}" "user: [bob, eve]"
reaches "another" "user: ann" "user: bob"
reaches "the narrower first" "user: ann" 'user: "a*"'
reaches "one of a list is new" "user: [ann, bob]" "user: [ann, eve]"
reaches "another attribute" "user: ann" "method: GET"
reaches "one condition more" "user: ann, method: GET" "user: ann"
reaches "stars in between" 'user: "a*b*c"' 'user: "a*c"'
reaches "a network around" "ip: 10.1.0.0/16" "ip: 10.0.0.0/8"
reaches "not, of more" "user: {not: [ann, bob]}" "user: {not: ann}"
reaches "not, of the same" "user: {not: ann}" "user: [ann, bob]"
reaches "absent" "user: {absent: true}" "user: {not: ann}"
printf 'version: 1\npolicies:\n  - {name: p, key: usr, match: {path: /x}, limit: smooth 5/s}\n' | write
exits "strict: an attribute that looks misspelt" 1 check "$file" --strict
printf 'version: 1\npolicies:\n  - {name: p, key: customer, match: {path: /x}, limit: smooth 5/s}\n' | write
exits "strict: an attribute that callers send" 0 check "$file" --strict
sed -i 's/customer/period/' "$file"
exits "strict: one that looks a little like method" 0 check "$file" --strict

# ---- missing: deny in shadow ----
printf 'version: 1\npolicies:\n  - {name: p, key: user, missing: deny, shadow: true, limit: smooth 5/s}\n' | write
run check "$file"
has "missing in shadow: in words" "key        user; counted as denied if it is missing" "$out"
run check "$file" --request "path=/x"
has "missing in shadow: of a request" "would be denied, were it not in shadow: an attribute in the key of p, limit p, is missing" "$out"
run check "$file" --request "path=/x" --json
has "missing in shadow: as JSON" '"shadow_missing":[{"policy":"p","name":"p"}]' "$out"
run check "$file" --request "user=ann"
lacks "missing in shadow: who has a key" "would be denied" "$out"

# ---- an attribute that is nearly another one of the file ----
alike() { # NAME, WORD and MEANT or - and -, what the policy has beside its name and limit
    printf 'version: 1\npolicies:\n  - {name: p, limit: smooth 5/s, %s}\n' "$4" | write
    run check "$file"
    if [ "$2" = - ]; then
        lacks "alike: $1" "did you mean" "$out"
        exits "alike: $1, strict" 0 check "$file" --strict
    else
        has "alike: $1" "the attribute \"$2\" looks misspelt (did you mean $3?)" "$(tr '\n' ' ' <<<"$out")"
        is "alike: $1, once" 1 "$(grep -c "did you mean" <<<"$out")"
        exits "alike: $1, strict" 1 check "$file" --strict
    fi
}
alike "an override" custmer customer 'key: customer, overrides: [{when: {custmer: zoe}, limit: smooth 9/s}]'
alike "a deny list" custmer customer 'key: customer, deny: [{custmer: zoe}]'
alike "an allow list" custmer customer 'key: [plan, customer], allow: [{custmer: zoe}]'
alike "a match" custmer customer 'key: lower(customer), match: {custmer: "*"}'
alike "a match, within lower" custmer customer 'key: customer, match: {lower(custmer): "*"}'
alike "a key" custmer customer 'key: custmer, deny: [{customer: eve}, {customer: ann, plan: x}]'
alike "the second of two conditions" plna plan 'key: user, deny: [{plan: free}, {plna: x}]'
alike "a cost" tokns tokens 'key: user, cost: {of: tokens}, deny: [{tokns: {absent: true}}]'
alike "both are used often" - - 'key: user, deny: [{order: a}, {orders: b}, {order: c}, {orders: d}]'
alike "the same in two expressions" - - 'key: lower(customer), deny: [{customer: zoe}]'
alike "numbered names" - - 'key: tokens1, deny: [{tokens2: zoe}]'
alike "short names" - - 'key: id, deny: [{it: zoe}]'
alike "other names" - - 'key: [customer, period], deny: [{plan: zoe}]'
run check "$file" --json
has "alike: as JSON, nothing" '"notes":[]' "$out"
printf 'version: 1\npolicies:\n  - {name: p, key: customer, deny: [{custmer: zoe}], limit: smooth 5/s}\n' | write
run check "$file" --json
has "alike: as JSON" 'the attribute \"custmer\" looks misspelt (did you mean customer?)' "$out"
printf 'version: 1\npolicies:\n  - {name: p, key: customer, cost: 0, limit: smooth 5/s}\n' | write
exits "strict: a warning" 1 check "$file" --strict
python3 - <<'END' | write
print("version: 1\npolicies:\n  - name: p\n    key: user\n    limit: fixed-window 1/d\n    overrides:")
for i in range(1000):
    print(f"      - {{when: {{user: [{', '.join(f'u{i}-{j}*' for j in range(3))}]}}, limit: fixed-window 2/h}}")
END
run check "$file"
has "many overrides: the first ones are named" "line 7 (user is u0-0*, u0-1* or u0-2*), line 8 (user is u1-0*, u1-1* or u1-2*), line 9 (user is u2-0*, u2-1* or u2-2*) and 997 others" "$(tr '\n' ' ' <<<"$out")"

printf 'version: 1\npolicies:\n  - {name: p, key: user, missing: deny, limit: smooth 5/s, deny: [{ip: 192.0.2.7}]}\n' | write
run check "$file" --request "ip=192.0.2.8"
has "denied: an attribute is missing" "denied: an attribute in the key of p is missing in ip=192.0.2.8" "$out"
run check "$file" --request "ip=192.0.2.7&user=ann"
has "denied: by the list" "denied: the deny list of p matches ip=192.0.2.7" "$out"

printf 'version: 1\npolicies:\n  - {name: p, key: ip, limit: smooth 5/s}\n' | write
run check "$file"
has "a note: nobody is trusted" "no trusted_proxies" "$out"
for cost in 0 '{of: n, min: 0}' '{of: n, default: 0}'; do
    printf 'version: 1\npolicies:\n  - {name: p, key: ip, cost: %s, limit: smooth 5/s}\n' "$cost" | write
    run check "$file"
    has "a cost of 0: $cost" "warning:"$'\n'"$file:3:30: a " "$out"
    run check "$file" --json
    has "a cost of 0, as JSON: $cost" '"warnings":["' "$out"
done
printf 'version: 1\npolicies:\n  - {name: p, key: ip, cost: 5, limit: token-bucket 9/s cost 2}\n' | write
run check "$file"
has "a cost that nothing is charged" "every limit here has a cost of its own" "$(tr '\n' ' ' <<<"$out")"
printf 'version: 1\npolicies:\n  - {name: p, key: ip, cost: 5, limit: "token-bucket 9/s cost 2, fixed-window 9/h"}\n' | write
run check "$file"
lacks "a cost that one of two limits is charged" "warning" "$out"
printf 'version: 1\npolicies:\n  - {name: p, key: ip, limit: concurrent 5}\n' | write
run check "$file"
has "a concurrent limit" "needs acquire and release" "$(tr '\n' ' ' <<<"$out")"
printf 'version: 1\npolicies:\n  - {name: p, match: {plan: team, path: /x}, key: ip, limit: concurrent 5}\n' | write
run check --strict "$file"
lacks "a concurrent limit that no proxy asks for" "warning" "$out"
printf 'version: 1\npolicies:\n  - {name: p, key: ip, limit: concurrent 5, shadow: true}\n' | write
run check "$file"
has "a concurrent limit in shadow" "refused once it is not in shadow" "$(tr '\n' ' ' <<<"$out")"
printf 'version: 1\npolicies:\n  - {name: p, match: by-name, key: ip, limit: concurrent 5}\n' | write
run check "$file"
lacks "a concurrent limit that is asked for by name" "warning" "$out"
printf 'version: 1\npolicies:\n  - {name: p, key: ip, cost: 3, limit: smooth 5/s}\n' | write
run check "$file" --json
has "nothing to warn of" '"warnings":[]' "$out"

# ---- files that cannot be read; stores ----
refuses "no such file" 3 "cannot open $tmp/none" check "$tmp/none"
refuses "a folder" 3 "cannot read $tmp" check "$tmp"
refuses "no file" 2 "FILE is missing" check
refuses "an option misspelt" 2 "did you mean --store" check "$example" --stor x
exits "a cluster" 0 check "$example" --store redis+cluster://127.0.0.1:1
exits "any store" 0 check "$example" --store memory:1m
refuses "a bad store" 2 "unknown scheme" check "$example" --store redis+clutser://x
refuses "a bad zone" 2 "size" check "$example" --store "memory:x"
write <<'END'
version: 1
policies:
  - name: p
    limits:
      - {name: a, key: ip, limit: smooth 5/s}
      - {name: b, key: user, limit: smooth 5/s}
END
exits "several keys" 0 check "$file"
refuses "several keys in a cluster" 2 "add cross_slot: give-back" check "$file" \
    --store redis+cluster://127.0.0.1:1

# ---- slices of the store: which limits are sliced, and which only lose what is withheld ----
write <<'END'
version: 1
policies:
  - name: one
    match: {path: /one}
    key: user
    limit: token-bucket 1000/s
    overrides: [{when: {user: ann}, limit: token-bucket 10/s}]
  - name: two
    match: {path: /two}
    limits:
      - {name: mine, key: user, limit: token-bucket 1000/s}
      - {name: all, key: "'all'", limit: fixed-window 1000/h}
      - {name: shadow, key: "'all'", limit: fixed-window 1000/d, shadow: true}
  - name: three
    match: by-name
    key: user
    limit: fixed-window 1000/h
    cost: {of: header.tokens, default: 1}
    least: 1
  - name: four
    match: by-name
    key: user
    limit: fixed-window 1000/m
    cost: 26
END
sliced="redis://127.0.0.1:1?slices=5%&peers=2"
run check "$file" --store redis://127.0.0.1:1
lacks "no slices: no word of them" "slices" "$out"
run check "$file" --store "$sliced"
is "slices: exit 0" 0 "$code"
has "slices: of one limit" "each process may hold 25 of 1000. 50 are withheld" "$out"
has "slices: of an override" "of 10 each of 2 peers could hold 0" "$out"
has "slices: of several limits" "none: a request under several limits is always asked. 50 are" "$out"
has "slices: of several policies" "a request that several policies apply to takes several limits" "$out"
run check "$file" --store "$sliced" --json
is "slices: as JSON" "True 50 False False 50 False 0 True False False" "$(
    field policies.0.limits.0.slices.0.sliced policies.0.limits.0.slices.0.withheld \
        policies.0.limits.0.overrides.0.slices.0.sliced policies.1.limits.0.slices.0.sliced \
        policies.1.limits.0.slices.0.withheld policies.1.limits.1.slices.0.sliced policies.1.limits.1.slices.0.withheld \
        policies.1.limits.2.slices.0.sliced policies.2.limits.0.slices.0.sliced policies.3.limits.0.slices.0.sliced)"
is "slices: why not" "with a least; costs 26," "$(
    field policies.2.limits.0.slices.0.why | grep -o "with a least"); $(
    field policies.3.limits.0.slices.0.why | grep -o "costs 26,")"
run check "$file" --store "$sliced" --request "path=/two&user=bob"
has "slices: what one request takes" "none: a request under several limits is always asked" "$out"
run check "$file" --store "$sliced" --request "path=/one&user=bob" --json
is "slices: what one request takes, as JSON" "True" "$(field takes.0.slices.0.sliced)"

# ---- Envoy's configuration ----
write <<'END'
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: {unit: second, requests_per_unit: 500}
END
run check "$file"
is "envoy: exit 0" 0 "$code"
has "envoy: its domain" "mongo_cps" "$out"
has "envoy: its limit" "fixed-window 500/s" "$out"
run check "$file" --json
is "envoy: as JSON" "envoy mongo_cps fixed-window 500/s" "$(field kind limits.0.domain limits.0.limit)"
run check "$file" --store "$sliced" --json
is "envoy: slices" "True 0 12" "$(field limits.0.slices.0.sliced limits.0.slices.0.withheld limits.0.slices.0.held_by_one)"
refuses "envoy: no request" 2 "--request needs a policy file" check "$file" --request "a=b"
printf 'domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: secnd, requests_per_unit: 5}\n' | write
wrong "envoy: a bad file" 4:24 ""

finish
