#!/usr/bin/env python3
"""Configurations: what is wrong is refused by `nginx -t` with file, line, the value and what to write; what is right passes
without a word.
"""
import concurrent.futures
import re
import sys

from lib import checks
from lib.nginx_server import Nginx

GOOD = '"fixed-window 5/100d"'

# A directive within a location, and what the message must have in it beside server.conf:3.
LOCATION = {
    # limits
    'weir_limit key=$arg_k zone=z "leaky-buckt 1/s";': ["leaky-buckt", "column 1", "leaky-bucket"],
    'weir_limit key=$arg_k zone=z "token-bucket 10";': ["column 14", "10/s"],
    'weir_limit key=$arg_k zone=z "token-bucket 10/s burst";': ["column", "burst"],
    'weir_limit key=$arg_k zone=z "token-bucket 10/x";': ["column 17", "us, ms, s, m, h, d or w"],
    'weir_limit key=$arg_k zone=z "token-bucket 10/s, token-bucket 5/s";': ["token-bucket", "column"],
    'weir_limit key=$arg_k zone=z token-bucket 10/s brst 5;': ["brst", "column 19"],
    'weir_limit key=$arg_k zone=z "sliding-log 200000/m";': ["200000", "column"],
    'weir_limit key=$arg_k zone=z "";': ["weir_limit", "missing", "token-bucket 10/s burst 20"],
    'weir_limit key=$arg_k zone=z;': ["weir_limit", "missing", "token-bucket 10/s burst 20"],
    'weir_limit key=$arg_k zone=z "concurrent 5";': ["concurrent 5", "weir_conn"],
    'weir_limit key=$arg_k zone=z "fixed-window 5/d, concurrent 5";': ["concurrent 5", "weir_conn"],
    # options
    f'weir_limit zone=z {GOOD};': ["key=", "missing", "key=$binary_remote_addr"],
    f'weir_limit key=$arg_k {GOOD};': ["zone=", "missing", "weir_zone"],
    f'weir_limit key= zone=z {GOOD};': ["key=", "missing value"],
    f'weir_limit key=$arg_k zone= {GOOD};': ["zone=", "missing value"],
    f'weir_limit key=$arg_k zone=nowhere {GOOD};': ["nowhere", "weir_zone nowhere 10m;"],
    f'weir_limit key=$arg_k zone=z {GOOD} nme=x;': ["nme=x", "name="],
    f'weir_limit key=$arg_k zone=z {GOOD} burst=5;': ["burst=5", "expected one of"],
    f'weir_limit key=$arg_k key=$arg_j zone=z {GOOD};': ["key=$arg_j", "once"],
    f'weir_limit key=$arg_k zone=z zone=z {GOOD};': ["zone=z", "once"],
    f'weir_limit key=$arg_k zone=z {GOOD} dry_run dry_run;': ["dry_run", "once"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=x;': ["cost", '"x"', "whole number"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=-1;': ["-1", "whole number"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=1000000000001;': ["1000000000001", "10^12"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=1.5;': ["1.5", "whole number"],
    f'weir_limit key=$arg_k zone=z {GOOD} least=0;': ["least", '"0"', "from 1 to 10^12"],
    f'weir_limit key=$arg_k zone=z {GOOD} least=x;': ["least", '"x"', "whole number"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=5 least=6;': ["least=6", "at most 5, the cost"],
    f'weir_limit key=$arg_k zone=z {GOOD} least=2;': ["least=2", "at most 1, the cost"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=5 least=2 wait=1s;': ["least=", "wait=", "leave one out"],
    f'weir_limit key=$arg_k zone=z {GOOD} cost=5 least=2 on=401;': ["least=", "on=", "leave one out"],
    'weir_limit key=$arg_k zone=z "leaky-bucket 5/s burst 9" cost=5 least=2;': ["leaky-bucket", "which shapes", "cost of its own"],
    'weir_conn key=$arg_k zone=z 5 least=2;': ["least=2", "expected one of"],
    f'weir_limit key=$arg_k zone=z {GOOD} wait=soon;': ["soon", "500ms"],
    f'weir_limit key=$arg_k zone=z {GOOD} wait=5;': ['"5"', "500ms"],
    f'weir_limit key=$arg_k zone=z {GOOD} wait=-1s;': ["-1s", "500ms"],
    f'weir_limit key=$arg_k zone=z {GOOD} wait=400d;': ["400d", "500ms"],
    f'weir_limit key=$arg_k zone=z {GOOD} status=200;': ["200", "400 to 599"],
    f'weir_limit key=$arg_k zone=z {GOOD} status=600;': ["600", "400 to 599"],
    f'weir_limit key=$arg_k zone=z {GOOD} status=no;': ["no", "400 to 599"],
    f'weir_limit key=$arg_k zone=z {GOOD} phase=access;': ["access", "preaccess or precontent"],
    f'weir_limit key=$arg_k zone=z {GOOD} phase=;': ["phase="],
    'weir_limit;': ["weir_limit", "number of arguments"],
    f'weir_limit key=$arg_k zone=z {GOOD} unless=yes;': ["yes", "unless=$exempt"],
    f'weir_limit key=$arg_k zone=z {GOOD} unless=;': ["unless=", "missing value"],
    f'weir_limit off; weir_limit key=$arg_k zone=z {GOOD};': ["off", "leave one out"],
    f'weir_limit key=$arg_k zone=z {GOOD}; weir_limit off;': ["off", "leave one out"],
    'weir_limit off; weir_limit off;': ["off", "leave one out"],
    'weir_limit off dry_run;': ["missing"],
    **{f'weir_limit key=$arg_k zone=z {GOOD} on={text};': [f'"{text}"', "on=401,403,404"]
       for text in ("40", "4040", "099", "600", "6xx", "0xx", "4x", "401,", ",401", "401,,403", "!", "401,!", "401-403", "$status")},
    f'weir_limit key=$arg_k zone=z {GOOD} on=;': ["on=", "missing value"],
    f'weir_limit key=$arg_k zone=z {GOOD} on=401 on=403;': ["on=403", "once"],
    f'weir_limit key=$arg_k zone=z {GOOD} charge_if=1;': ['"1"', "charge_if=$missed"],
    'weir_conn key=$arg_k zone=z 5 on=401;': ["on=401", "expected one of"],
    'weir_rate key=$arg_k zone=z "token-bucket 1m/s" charge_if=$arg_a;': ["charge_if=", "expected one of"],
    'weir_subrequests maybe;': ["maybe", "weir_subrequests"],
    'weir_conn off; weir_conn key=$arg_k zone=z 5;': ["off", "leave one out"],
    # slots
    'weir_conn key=$arg_k zone=z;': ["weir_conn", "missing"],
    'weir_conn key=$arg_k zone=z 0;': ["concurrent 0", "column"],
    'weir_conn key=$arg_k zone=z many;': ["many", "column 1"],
    'weir_conn key=$arg_k zone=z "token-bucket 5/s";': ["token-bucket 5/s", "concurrent 20 lease 30s"],
    'weir_conn key=$arg_k zone=z "concurrent 5, fixed-window 1/s";': ["concurrent 5, fixed-window 1/s", "concurrent 20"],
    'weir_conn key=$arg_k zone=z 5 cost=2;': ["cost=2", "expected one of"],
    'weir_conn key=$arg_k zone=z 5 wait=1s;': ["wait=1s", "expected one of"],
    'weir_conn key=$arg_k zone=z 5 phase=precontent;': ["phase=precontent", "expected one of"],
    'weir_conn zone=z 5;': ["key=", "missing"],
    'weir_conn key=$arg_k 5;': ["zone=", "missing"],
    'weir_conn key=$arg_k zone=z 5 status=302;': ["302", "400 to 599"],
    'weir_conn key=$arg_k zone=z 200000;': ["200000", "column"],
    # bandwidth
    'weir_rate key=$arg_k zone=z "fixed-window 5/s";': ["fixed-window 5/s", "token-bucket"],
    'weir_rate key=$arg_k zone=z "leaky-bucket 5/s";': ["leaky-bucket 5/s", "token-bucket"],
    'weir_rate key=$arg_k zone=z "token-bucket 1m/s, token-bucket 5m/m";': ["token-bucket"],
    'weir_rate key=$arg_k zone=z;': ["weir_rate", "missing"],
    'weir_limit key=$arg_k zone=z "token-bucket 1/s" name=Ärger;': ["invalid name", "ASCII"],
    'weir_rate key=$arg_k zone=z "token-bucket 1m/s" status=503;': ["status=503", "expected one of"],
    'weir_rate zone=z "token-bucket 1m/s";': ["key=", "missing"],
    'weir_rate key=$arg_k zone=z "token-bucket 100KB/s";': ["column", "100k/s"],
    'weir_rate key=$arg_k zone=z "token-bucket 2.5MiB/s burst 5m";': ["column", "2.5m/s"],
    'weir_rate key=$arg_k zone=z "token-bucket 500B/s";': ["column", "500/s"],
    'weir_rate key=$arg_k zone=z "token-bucket 1m/s"; weir_rate off;': ["weir_rate", "twice"],
    # overload
    'weir_overload;': ["weir_overload", "number of arguments"],
    'weir_overload status=503;': ["weir_overload", "connections= or load="],
    'weir_overload connections=0;': ["connections=0", "connections=10000"],
    'weir_overload connections=many;': ["connections=many", "connections=10000"],
    'weir_overload load=high;': ["load=high", "load=8.5"],
    'weir_overload load=5 status=100;': ["status=100", "400 to 599"],
    'weir_overload cpu=5;': ["cpu=5", "connections="],
    'weir_overload load=5; weir_overload load=6;': ["weir_overload", "twice"],
    # small ones
    'weir_status 200;': ["200", "400 to 599", "429"],
    'weir_status no;': ['"no"', "400 to 599"],
    'weir_status 429; weir_status 503;': ["weir_status", "duplicate"],
    'weir_log_level loud;': ["loud", "info, notice, warn, error"],
    'weir_headers rfc;': ["rfc", "ietf, ietf-06, x-ratelimit, openai, retry-after, off"],
    'weir_headers ietf; weir_headers off;': ["weir_headers", "duplicate"],
    'weir_headers ietf add;': ["add", "replace"],
    'weir_headers off replace;': ["replace", "style"],
    'weir_headers ietf replace now;': ["weir_headers", "number of arguments"],
    'weir_dry_run maybe;': ["maybe", "weir_dry_run"],
    'weir_zone inner 1m;': ["weir_zone", "not allowed here"],
    'weir_info now;': ["now", "json or prometheus"],
    'weir_info json now;': ["weir_info", "number of arguments"],
    'weir_limits key=$arg_k;': ["weir_limits", "unknown directive"],
    # Redis
    'weir_store http://localhost;': ["column 1", "redis://"],
    'weir_store redis://;': ["redis://"],
    'weir_store redis://localhost:99999;': ["99999"],
    'weir_store redis://localhost?nonsense=1;': ["nonsense"],
    'weir_store redis://localhost deadline=soon;': ["deadline=soon", "50ms"],
    'weir_store redis://localhost deadline=1m;': ["deadline=1m", "10s"],
    'weir_store redis://localhost fail=maybe;': ["fail=maybe", "local", "open", "closed"],
    'weir_store redis://localhost peers=0;': ["peers=0", "1"],
    'weir_store redis://localhost denial_cache=5m;': ["denial_cache=5m", "1s"],
    'weir_store redis://localhost cache=1s;': ["cache=1s", "denial_cache="],
    'weir_store redis://localhost peers=1 peers=2;': ["peers=2", "twice"],
    'weir_store redis://localhost?fail=closed fail=open;': ["fail=open", "the address has this option, too; leave one out"],
    'weir_store redis://localhost?prefix=a&peers=8 deadline=9ms peers=4;': ["peers=4", "the address has this option, too"],
    'weir_store redis://localhost?deadline=9ms&prefix=a denial_cache=9ms deadline=9ms;': ["deadline=9ms", "the address has this option, too"],
    'weir_store redis://localhost?password-file=/nonexistent/file;': ["password-file=/nonexistent/file", "cannot be read", "No such file"],
    'weir_store redis://localhost?password-file=/;': ["password-file=/ ", "cannot be read", "directory"],
    'weir_store rediss://localhost?ca=/nonexistent/ca.pem;': ["ca=/nonexistent/ca.pem", "cannot be read"],
    'weir_store rediss://localhost?cert=/nonexistent/c&key=/nonexistent/k;': ["cert=/nonexistent/c", "cannot be read"],
    'weir_store off now;': ["now", "off"],
    'weir_store redis://localhost; weir_store off;': ["weir_store", "duplicate"],
    'weir_store;': ["weir_store", "number of arguments"],
}

# A whole location of several lines; the number is that of the line at fault.
SEVERAL = [
    ("seventeen limits", "\n".join(f'weir_limit key=$arg_k zone=z "fixed-window 5/{i + 1}h";' for i in range(17)), 19, ["16"]),
    ("seventeen in texts", 'weir_limit key=$arg_k zone=z "' + ", ".join(f"fixed-window 5/{i + 1}h" for i in range(16)) + '";\n'
     f"weir_limit key=$arg_j zone=z {GOOD};", 4, ["16"]),
    ("the same state twice", 'weir_limit key=$arg_k zone=z "fixed-window 5/m";\nweir_limit key=$arg_k zone=z "fixed-window 9/60s";',
     4, ["share a state", "key="]),
    ("the same state in Redis, two zones", 'weir_store redis://localhost;\nweir_limit key=$arg_k zone=z "fixed-window 5/m";\n'
     'weir_limit key=$arg_k zone=y "fixed-window 9/m";', 5, ["share a state"]),
    ("waits that differ in Redis", 'weir_store redis://localhost;\nweir_limit key=$arg_k zone=z "fixed-window 5/m" wait=1s;\n'
     'weir_limit key=$arg_j zone=z "fixed-window 9/h";', 5, ["wait="]),
    ("slots of a cluster", 'weir_store redis+cluster://localhost;\nweir_limit key=$arg_k zone=z "fixed-window 5/m";\n'
     'weir_limit key=$arg_j zone=z "fixed-window 9/h";', 5, ["hash tag", '"key={']),
    ("a limit too large for its zone", '\nweir_limit key=$arg_k zone=small "sliding-log 100000/m";', 4,
     ["sliding-log 100000/m", '"small"', "large="]),
    ("slots too many for their zone", '\n\nweir_conn key=$arg_k zone=small 100000;', 5, ["concurrent 100000", '"small"', "large="]),
]

# In http{}; the number is that of the line at fault in http.conf.
HTTP = [
    ("weir_zone;", 1, ["weir_zone", "number of arguments"]),
    ("weir_zone z;", 1, ["weir_zone", "number of arguments"]),
    ("weir_zone z 1m large=5% more;", 1, ["weir_zone", "invalid option \"more\""]),
    ("weir_zone z big;", 1, ["big", "10m"]),
    ("weir_zone z -1m;", 1, ["-1m", "10m"]),
    ("weir_zone z 79k;", 1, ["79k", "80k"]),
    ("weir_zone z 0;", 1, ["80k"]),
    ("weir_zone z 1m;\nweir_zone z 1m;", 2, ['"z"', "http.conf:1", "once"]),
    ("weir_zone z 1m;\n\nweir_zone z 2m;", 3, ['"z"', "http.conf:1", "once"]),
    ("weir_zone z 1m large=200%;", 1, ["large=200%", "large=25%"]),
    ("weir_zone z 1m large=some;", 1, ["large=some", "large=25%"]),
    ("weir_zone z 1m small=5%;", 1, ["small=5%", "large=25%"]),
    ("limit_req_zone $arg_k zone=z:1m rate=1r/s;\nweir_zone z 1m;", 2, ['"z"']),
    ("weir_zone z 1m;\nlimit_req_zone $arg_k zone=z:1m rate=1r/s;", 2, ['"z"']),
    ('weir_limit key=$arg_k zone=gone "fixed-window 5/s";', 1, ['"gone"', "weir_zone gone 10m;"]),
    ('\n\nweir_conn key=$arg_k zone=gone 5;', 3, ['"gone"', "weir_zone gone 10m;"]),
    ('\nweir_rate key=$arg_k zone=gone "token-bucket 1m/s";', 2, ['"gone"', "weir_zone gone 10m;"]),
    ("weir_info;", 1, ["weir_info", "not allowed here"]),
]

GOODS = {  # in a location
    "a limit": 'weir_limit key=$binary_remote_addr zone=z "token-bucket 10/s burst 20";',
    "no quotes": "weir_limit key=$binary_remote_addr zone=z token-bucket 10/s burst 20;",
    "all options": 'weir_limit key=$arg_k zone=z "leaky-bucket 1/s burst 5" name=n cost=$arg_c wait=1m30s dry_run status=503 phase=precontent;',
    "waits": "".join(f'weir_limit key={word}:$arg_k zone=z "token-bucket 1/s" wait={word};' for word in ("0", "any", "1us", "366d", "1.5s")),
    "sixteen": "".join(f'weir_limit key=$arg_k zone=z "fixed-window 5/{i + 1}h";' for i in range(16)),
    "sixteen a phase": "".join(f'weir_limit key=$arg_k zone=z "fixed-window 5/{i + 1}h" phase={phase};' for i in range(16)
                               for phase in ("preaccess", "precontent")),
    "every algorithm": 'weir_limit key=$arg_k zone=z "token-bucket 1/s, leaky-bucket 1/s, fixed-window 1/s, sliding-log 1/s, '
                       'sliding-window 1/s, sliding-counter 1/s, smooth 1/s, warmup 1/s over 1s";',
    "keys of their own": 'weir_limit key=a:$arg_k zone=z "fixed-window 5/m"; weir_limit key=b:$arg_k zone=z "fixed-window 9/m";',
    "the same in two zones": 'weir_limit key=$arg_k zone=z "fixed-window 5/m"; weir_limit key=$arg_k zone=y "fixed-window 9/m";',
    "the same in two phases": 'weir_limit key=$arg_k zone=z "fixed-window 5/m"; weir_limit key=$arg_k zone=z "fixed-window 9/m" phase=precontent;',
    "from variables": 'weir_limit key=$arg_k zone=z $arg_limit; weir_limit key=$arg_k zone=z "fixed-window $arg_n/m";',
    "a later zone": 'weir_limit key=$arg_k zone=later "fixed-window 5/m";',
    "slots": 'weir_conn key=$arg_k zone=z 5; weir_conn key=all zone=z "concurrent 50 lease 30s" name=n dry_run status=503; weir_conn key=other:$arg_k zone=z $arg_n;',
    "bandwidth": 'weir_rate key=$arg_k zone=z "token-bucket 1m/s burst 4m";',
    "no bandwidth": "weir_rate off;",
    "no limits": "weir_limit off; weir_conn off;",
    "by the answer": 'weir_limit key=a:$arg_k zone=z "fixed-window 5/m" on=401,4xx,!404,5XX charge_if=$upstream_cache_status; weir_limit key=b:$arg_k zone=z "fixed-window 5/m" on=!2xx; weir_limit key=c:$arg_k zone=z "fixed-window 5/m" charge_if=$arg_a$arg_b;',
    "subrequests": "weir_subrequests on;",
    "exemptions": 'weir_limit key=user:$arg_k zone=z "fixed-window 5/m" unless=$arg_free; weir_conn key=$arg_k zone=z 5 unless=$arg_a$arg_b; weir_rate key=$arg_k zone=z "token-bucket 1m/s" unless=$arg_free;',
    "fields that replace": "weir_headers ietf-06 replace;",
    "overload": "weir_overload connections=100 load=8.5 status=503;",
    "no overload": "weir_overload off;",
    "small ones": "weir_status 503; weir_log_level warn; weir_dry_run on; weir_headers x-ratelimit;",
    "information": "weir_info;",
    "information as JSON": "weir_info json;",
    "keys of a zone": "weir_keys zone=z;",
    "information for Prometheus": "weir_info prometheus;",
    "Redis": 'weir_store redis://user:secret@127.0.0.1:6379/2?prefix=x: deadline=20ms fail=open peers=3 denial_cache=100ms;',
    "the same options, in part": 'weir_store redis://127.0.0.1?fail=open&peers=3 deadline=20ms denial_cache=100ms;',
    "a password file": "weir_store redis://127.0.0.1?password-file=/dev/null;",
    "one in the folder of the workers": "weir_store redis://127.0.0.1?password-file=nowhere;",
    "no Redis": "weir_store off;",
    "a cluster": 'weir_store redis+cluster://127.0.0.1:7000; weir_limit "key={$arg_k}:a" zone=z "fixed-window 5/m"; weir_limit "key={$arg_k}:b" zone=z "fixed-window 9/h";',
    "other kinds of Redis": "weir_store redis+unix:///tmp/redis.sock;",
    "a clock for tests": "weir_test_clock $arg_t;",
}
GOOD_HTTP = {
    "sizes": "weir_zone a 80k; weir_zone b 1m; weir_zone c 4M; weir_zone d 200000; weir_zone e 1m large=0%; weir_zone f 1m large=90%;",
    "a zone that nobody uses": "weir_zone unused 1m;",
    "used before it is declared": 'weir_limit key=$arg_k zone=late "fixed-window 5/m";\nweir_zone late 1m;',
    "all in http": 'weir_zone a 1m; weir_limit key=$arg_k zone=a "fixed-window 5/m"; weir_conn key=$arg_k zone=a 5; weir_status 503;\n'
                   'weir_rate key=$arg_k zone=a "token-bucket 1m/s"; weir_overload load=100; weir_headers off; weir_dry_run on;',
    "nothing": "",
}
ZONES = "weir_zone z 1m; weir_zone y 1m; weir_zone small 80k;"


def location(text):
    """The text begins on the third line of server.conf."""
    return f"location / {{\nempty_gif;\n{text}\n}}"


def refused(check, what, result, place, words):
    code, said = result
    lines = [line for line in said.splitlines() if "[emerg]" in line]
    if not check(code == 1 and len(lines) == 1, f"{what}: exit code {code}, {said}"):
        return
    check(re.search(rf"\b{re.escape(place)}(?!\d)", lines[0]), f"{what}: {place} is not in {lines[0]!r}")
    for word in words:
        check.contains(lines[0], word, what)
    check("[alert]" not in said and "[crit]" not in said, f"{what}: {said}")


def passes(check, what, result):
    code, said = result
    check(code == 0 and not re.search(r"\[(?:warn|error|emerg|alert|crit)\]", said), f"{what}: exit code {code}: {said}")


def together(items, ask):
    """Asks nginx about all of them, some at a time."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return zip(items, pool.map(ask, items))


def test_locations(check):
    for text, result in together(LOCATION, lambda text: Nginx.check(ZONES, location(text))):
        refused(check, text, result, "server.conf:3", LOCATION[text])


def test_several(check):
    for (what, text, line, words), result in together(SEVERAL, lambda it: Nginx.check(ZONES, location(it[1]))):
        refused(check, what, result, f"server.conf:{line}", words)


def test_http(check):
    for (text, line, words), result in together(HTTP, lambda it: Nginx.check(it[0], "location / { empty_gif; }")):
        refused(check, text, result, f"http.conf:{line}", words)


def test_good(check):
    after = "\nserver { listen 127.0.0.1:{port2}; }\nweir_zone later 1m;"
    for what, result in together(GOODS, lambda what: Nginx.check(ZONES + after, location(GOODS[what]))):
        passes(check, what, result)
    for what, result in together(GOOD_HTTP, lambda what: Nginx.check(GOOD_HTTP[what], "location / { empty_gif; }")):
        passes(check, what, result)


def test_secrets(check):
    """No password in a message."""
    for text in ("redis://user:hunter2@localhost:99999", "redis://:hunter2@localhost?nonsense=1", "redis://u:hunter2@localhost/x",
                 "redis://u:hunter2@localhost deadline=never", "rediss://u:hunter2@"):
        code, said = Nginx.check(ZONES, location(f"weir_store {text};"))
        check(code == 1 and "hunter2" not in said, f"{text}: {code} {said}")


def test_variables(check):
    """Unknown ones; nginx itself finds them, at the end, and tells no line."""
    for text in (f"weir_limit key=$nothing_like_this zone=z {GOOD};", 'weir_limit key=$arg_k zone=z "fixed-window $nothing_like_this/s";'):
        code, said = Nginx.check(ZONES, location(text))
        check(code == 1 and "nothing_like_this" in said, f"{text}: {code} {said}")


def test_equal_keys(check):
    """Keys that may turn out to be equal, and would share a state then, are warned of."""
    code, said = Nginx.check(ZONES, location('weir_limit key=$arg_a zone=z "fixed-window 5/m";\nweir_limit key=$arg_b zone=z "fixed-window 9/m";'))
    check(code == 0 and "[warn]" in said and "server.conf:4" in said and "$arg_a" in said, f"a warning: {code} {said}")


def test_two_locations(check):
    """Limits of two locations that share a state though they differ are warned of, once; what may be meant is not."""
    here = 'weir_limit key=$binary_remote_addr zone=z "token-bucket 20/m burst 5"'
    def said(other, first=here):
        code, text = Nginx.check(ZONES, f"listen {{port}};\n{first};\nlocation / {{ empty_gif; }}\nlocation /login {{\n{other};\nempty_gif; }}\n"
                                        "location /more { empty_gif; }")
        check.equal(code, 0, f"{other}: {text}")
        return [line for line in text.splitlines() if "[warn]" in line]
    warned = said('weir_limit key=$binary_remote_addr zone=z "token-bucket 1/m"')
    check(len(warned) == 1 and "server.conf:2 and" in warned[0] and "server.conf:5 have one key" in warned[0] and "like key=login:$binary_remote_addr" in warned[0],
          f"one warning that names both lines and the fix: {warned}")
    check.equal(len(said('weir_limit key=$binary_remote_addr zone=z "fixed-window 9/h, sliding-log 5/m"', 'weir_limit key=$binary_remote_addr zone=z "sliding-log 60/m"')), 1,
                "a window in a list")
    check.equal(len(said('weir_limit key=$binary_remote_addr zone=z "token-bucket 1/m" dry_run')), 1, "a dry run charges the same state")
    for other, what in {
            'weir_limit key=login:$binary_remote_addr zone=z "token-bucket 1/m"': "another key",
            'weir_limit key=$binary_remote_addr zone=y "token-bucket 1/m"': "another zone",
            'weir_limit key=$binary_remote_addr zone=z "token-bucket 1/h"': "another period",
            'weir_limit key=$binary_remote_addr zone=z "sliding-log 1/m"': "another algorithm",
            'weir_limit key=$binary_remote_addr zone=z "token-bucket 20/m burst 2"': "a share",
            here: "the same limit"}.items():
        check.equal(said(other), [], f"no warning: {what}")
    check.equal(said('weir_limit key=$binary_remote_addr zone=z "sliding-log 5/m" name=a', 'weir_limit key=$binary_remote_addr zone=z "sliding-log 60/m" name=a'), [],
                "no warning: one name says that it is meant")


def test_constant_keys(check):
    """A key that is the name of a variable without its $ is warned of, once, wherever the variable is declared; other constant keys are not."""
    def said(key, what="weir_limit", limit="fixed-window 9/h"):
        code, text = Nginx.check(f"""weir_zone z 1m; server {{ listen 127.0.0.1:{{port}};
            {what} key={key} zone=z "{limit}";
            location /a {{ weir_headers off; weir_conn key=$uri zone=z 9; }}
            location /b {{ weir_limit key=b:$uri zone=z "sliding-log 5/m"; }} }}
            map $uri $account {{ default 1; }} server {{ set $later 1; }}""")
        check.equal(code, 0, f"{key}: {text}")
        return [line for line in text.splitlines() if "[warn]" in line]
    for key, name in (("account:account", "account"), ("account", "account"), ("a:b:later", "later"), ("ip:binary_remote_addr", "binary_remote_addr"),
                      ("k:arg_user", "arg_user"), ("http_x_api_key", "http_x_api_key"), ("weir_network", "weir_network")):
        warned = said(key)
        check(len(warned) == 1 and f"key={key} has no variable" in warned[0] and f"write ${name}," in warned[0] and "http.conf:2" in warned[0], f"{key}: {warned}")
    check.equal([len(said("account", *it)) for it in (("weir_conn", "5"), ("weir_rate", "token-bucket 1m/s"))], [1, 1], "slots and bandwidth")
    for key in ("all", "everybody", "account:all", "accounts", "account:", ":", "arg_", "login:1", "account:$account", "${account}:account", "uri/"):
        check.equal(said(key), [], f"no warning: {key}")


TESTS = [test_locations, test_several, test_http, test_good, test_secrets, test_variables, test_equal_keys, test_two_locations, test_constant_keys]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
