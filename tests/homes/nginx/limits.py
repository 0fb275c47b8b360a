#!/usr/bin/env python3
"""weir_limit in a real nginx: keys, limits, costs, statuses, dry runs, phases, merging, all or nothing, variables.

Numbers that depend on the time are asked under weir_test_clock; all other limits have periods of a hundred days, in which
nothing comes back while a test runs.
"""
import re
import subprocess
import sys

from lib import checks
from lib.nginx_server import T0, get, serve


def remaining(nginx, path):
    """What is left there; asked with cost 0 by locations that take $arg_c for a cost."""
    return nginx.get(f"{path}{'&' if '?' in path else '?'}c=0").weir["remaining"]


# ---- keys and limits ----

def test_keys(check):
    locations = """
        location /one { weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }
        location /text { weir_limit "key=user $arg_k of $arg_g" zone=z "fixed-window 2/100d"; }
        location /fixed { weir_limit key=everybody zone=z "fixed-window 2/100d"; }
        location /header { weir_limit key=$http_x_k zone=z "fixed-window 2/100d"; }
        """
    with serve(locations, "large_client_header_buffers 4 128k;\n") as nginx:
        check.equal(nginx.statuses(["/one?k=a"] * 4), [200, 200, 429, 429], "two of a key")
        check.equal(nginx.statuses(["/one?k=b"] * 3), [200, 200, 429], "another key")
        check.equal(nginx.statuses(["/one?k=%61"] * 1), [200], "a key is compared as it is written")
        check.equal(nginx.statuses(["/one"] * 5 + ["/one?k="] * 5), [200] * 10, "no key, no limit")
        answer = nginx.get("/one")
        check.equal(set(answer.weir.values()), {""}, "no key, nothing to show")
        check("ratelimit" not in answer.fields, f"no key, no fields: {answer.fields}")
        check.equal(nginx.statuses(["/text?k=1&g=2"] * 3 + ["/text?k=1&g=3"]), [200, 200, 429, 200], "a key of several")
        check.equal(nginx.statuses(["/text"]), [200], "text round empty variables is a key")
        check.equal(nginx.statuses(["/fixed"] * 3), [200, 200, 429], "one key for everybody")
        check.equal(nginx.statuses(["/header"] * 3, {"x-k": "ä \t\x01|\"{}$"}), [200, 200, 429], "odd bytes")
        long = "x" * 65536
        check.equal(nginx.statuses(["/header"] * 2, {"x-k": long + "a"}), [200, 200], "a key of over 64 KiB")
        check.equal(nginx.statuses(["/header"], {"x-k": long + "b"}), [429], "is cut there")
        check.equal(nginx.statuses(["/header"], {"x-k": long[1:]}), [200], "one byte less is another one")


NETWORKS = [  # an address, and what its client is known by: the same as in policies and in all packages
    ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("::ffff:c000:207", "192.0.2.7"),
    ("2001:db8:1::5", "2001:db8:1::/64"), ("2001:db8:1:0:1:2:3:4", "2001:db8:1::/64"), ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
    ("2a00::1:2:3:4:5", "2a00:0:0:1::/64"), ("2a00::2:2:3:4:5", "2a00:0:0:2::/64"), ("2001:0:0:2:ffff::", "2001:0:0:2::/64"),
    ("::1", "::/64"), ("fe80::1", "fe80::/64"), ("64:ff9b::192.0.2.7", "64:ff9b::/64"), ("[2001:db8:7::1]:443", "2001:db8:7::/64")]


def test_network(check):
    """$weir_network: one text for each client, whatever its address looks like."""
    http = "set_real_ip_from 127.0.0.1; set_real_ip_from unix:; real_ip_header X-Forwarded-For;\n"
    locations = """
        listen [::1]:{port2}; listen unix:{folder}/socket;
        location /own { weir_limit key=net:$weir_network zone=z "fixed-window 1/100d"; add_header X-Network $weir_network always; }
        location /late { set $before $weir_network; set_real_ip_from 127.0.0.1; real_ip_header X-Late; empty_gif;
                         add_header X-Network $weir_network always; }
        """
    with serve(locations, http) as nginx:
        for address, network in NETWORKS:
            found = nginx.get("/own", {"x-forwarded-for": address}).fields["x-network"]
            check.equal(found, network, f"the network of {address}")
        check.equal(nginx.get("/own", {"x-forwarded-for": "2001:db8:1:0:7::"}).status, 429, "it is a key")
        check.equal(nginx.get("/own").fields["x-network"], "127.0.0.1", "of the connection")
        check.equal(nginx.get("/late", {"x-late": "192.0.2.9"}).fields["x-network"], "192.0.2.9", "realip of the location")
        words = ["curl", "-s", "-D-", "-o/dev/null", "--noproxy", "*", "--max-time", "20"]
        for more, network in ((["-g", f"http://[::1]:{nginx.port_of('port2')}/own"], "::/64"),
                              (["--unix-socket", f"{nginx.folder}/socket", "http://x/own"], "unix:")):
            said = subprocess.run([*words, *more], capture_output=True, text=True, check=True).stdout
            check.equal(re.findall("X-Network: (.*)", said), [network], f"of a client at {more}")


ALGORITHMS = """token-bucket 3/100d|token-bucket 1/100d burst 3|token-bucket 3/100d stepped|leaky-bucket 1/100d burst 2 nodelay|
    fixed-window 3/100d|fixed-window 3/100d from-first|sliding-log 3/100d|sliding-window 3/100d|
    sliding-window 3/100d precision 10d|sliding-counter 3/100d|gcra 3/100d|LEAKY-BUCKET 1r/100d burst 2 nodelay"""


def test_exempt(check):
    """unless= exempts, also where the key has text of its own; without it such requests share a state, and the log warns."""
    locations = """
        weir_limit key=server:$arg_k zone=z "fixed-window 2/100d";
        location /who { weir_limit key=user:$arg_k zone=z "fixed-window 2/100d"; }
        location /free { weir_limit key=free:$arg_k zone=z "fixed-window 2/100d" unless=$arg_free; }
        location /both { weir_limit key=a:$arg_k zone=z "fixed-window 2/100d" unless=$arg_free name=first;
                         weir_limit key=b:$arg_k zone=z "fixed-window 4/100d" name=second; }
        location /own { }
        location /off { weir_limit off; }
        location /off/inner { weir_limit key=inner:$arg_k zone=z "fixed-window 1/100d"; }
        """
    with serve(locations) as nginx:
        check.equal(nginx.statuses(["/who"] * 3), [200, 200, 429], "a key without a value is one state for all")
        warned = re.findall(r'\[error\].*the variables of key "user:\$arg_k" are empty.*unless=.*server.conf:\d+', nginx.errors())
        check.equal(len(warned), 1, "the log warns, once")
        check.equal(nginx.statuses(["/free?k=a&free=1"] * 9), [200] * 9, "exempt")
        check.equal(nginx.statuses(["/free?k=a&free=no"] * 9), [200] * 9, "any value exempts")
        check.equal(nginx.statuses(["/free?k=a&free=0", "/free?k=a&free=", "/free?k=a"]), [200, 200, 429], "0 and nothing do not")
        check.equal(nginx.statuses(["/free?k=a&free=00", "/free?k=a&free=000"]), [429] * 2, "nor do the zeros of two variables")
        check.equal(nginx.statuses(["/free?k=a&free=01", "/free?k=a&free=10"]), [200] * 2, "one of two variables exempts")
        check.equal(nginx.get("/free?k=a&free=1").weir["status"], "", "nothing is shown")
        check.equal(nginx.statuses(["/both?k=a&free=1"] * 5), [200] * 4 + [429], "the other limit still applies")
        check.equal(nginx.get("/both?k=a&free=1").weir["binding"], "second", "and binds")
        check.equal(nginx.statuses(["/own?k=a"] * 3), [200, 200, 429], "the server's own")
        check.equal(nginx.statuses(["/off?k=a"] * 5), [200] * 5, "weir_limit off")
        check.equal(nginx.statuses(["/off/inner?k=a"] * 2), [200, 429], "a location has its own again")


def test_algorithms(check):
    """Every algorithm lets three pass."""
    texts = [text.strip() for text in ALGORITHMS.split("|")]
    locations = "".join(f'location = /{i} {{ weir_limit key=$arg_k zone=z "{text}"; }}\n' for i, text in enumerate(texts))
    with serve(locations) as nginx:
        for i, text in enumerate(texts):
            check.equal(nginx.statuses([f"/{i}?k={i}"] * 5), [200] * 3 + [429] * 2, text)
            check.equal(nginx.get(f"/{i}?k=new{i}").weir["limit"], "3", f"{text}: limit")


def test_words(check):
    """Quotes may be left out; several limits in one text."""
    locations = """
        location /bare { weir_limit key=$arg_k zone=z fixed-window 2/100d; }
        location /order { weir_limit token-bucket 1/100d zone=z burst 2 key=$arg_k name=odd; }
        location /two { weir_limit key=$arg_k zone=z "fixed-window 2/100d, sliding-log 3/100d"; }
        location /bare2 { weir_limit key=$arg_k zone=z fixed-window 3/100d, sliding-log 2/100d; }
        """
    with serve(locations) as nginx:
        check.equal(nginx.statuses(["/bare?k=a"] * 3), [200, 200, 429], "bare words")
        check.equal(nginx.statuses(["/order?k=b"] * 3), [200, 200, 429], "words in another order")
        answer = nginx.get("/order?k=b")
        check.equal(answer.weir["binding"], "odd", "its name")
        check.equal(nginx.statuses(["/two?k=c"] * 3), [200, 200, 429], "two limits")
        check.equal(nginx.get("/two?k=c").weir["binding"], "fixed-window 2/14w2d", "canonical text of what bound")
        check.equal(nginx.statuses(["/bare2?k=d"] * 3), [200, 200, 429], "two limits, bare")
        check.equal(nginx.get("/bare2?k=d").weir["binding"], "sliding-log 2/14w2d", "the other bound")


def test_tiers(check):
    """Limits from variables."""
    http = """map $arg_tier $tier { default "fixed-window 1/100d"; gold "fixed-window 3/100d"; free ""; bad "fixed-window 3/x";
        conc "concurrent 3"; half "/100d"; }\n"""
    locations = """
        location /tier { weir_limit key=$arg_k zone=z $tier name=tier; }
        location /part { weir_limit key=$arg_k zone=z "fixed-window $arg_n/100d"; }
        """
    with serve(locations, http) as nginx:
        check.equal(nginx.statuses(["/tier?k=a"] * 3), [200, 429, 429], "the default tier")
        check.equal(nginx.statuses(["/tier?k=b&tier=gold"] * 4), [200, 200, 200, 429], "gold")
        check.equal(nginx.statuses(["/tier?k=a&tier=gold"] * 3), [200, 200, 429], "what was spent stays spent")
        check.equal(nginx.statuses(["/tier?k=a&tier=free"] * 5), [200] * 5, "no limits at all")
        check.equal(nginx.get("/tier?k=a&tier=free").weir["status"], "", "nothing applied")
        check.equal(nginx.get("/tier?k=a").weir["binding"], "tier", "its name")
        for tier in ("bad", "conc", "half"):
            check.equal(nginx.get(f"/tier?k=a&tier={tier}").status, 500, f"limits that cannot be read: {tier}")
        nginx.wait_for(lambda: len(re.findall(r"\[error\].*column", nginx.errors())) >= 2)
        line = next((line for line in nginx.errors().splitlines() if "fixed-window 3/x" in line), "")
        check(re.search(r"\[error\].*column 16\b", line), f"the log shows the text and the column: {line!r}")
        check.equal(nginx.statuses(["/part?k=p&n=2"] * 3), [200, 200, 429], "a part of a text")
        check.equal(nginx.get("/part?k=p&n=many").status, 500, "a part that spoils it")


def test_cost(check):
    locations = """
        location /cost { weir_limit key=$arg_k zone=z "fixed-window 10/100d" cost=$arg_c; }
        location /five { weir_limit key=$arg_k zone=z "fixed-window 10/100d" cost=5; }
        location /digits { weir_limit key=$arg_k zone=z "fixed-window 1000/100d" cost=${arg_c}0; }
        """
    with serve(locations) as nginx:
        check.equal(nginx.get("/cost?k=a").weir["remaining"], "9", "without a cost: 1")
        check.equal(nginx.get("/cost?k=a&c=").weir["remaining"], "8", "an empty cost: 1")
        check.equal(nginx.get("/cost?k=a&c=0").weir["remaining"], "8", "cost 0")
        check.equal(nginx.get("/cost?k=a&c=5").weir["remaining"], "3", "cost 5")
        answer = nginx.get("/cost?k=a&c=4")
        check.equal((answer.status, answer.weir["remaining"]), (429, "3"), "cost 4 of 3")
        check.equal(nginx.get("/cost?k=a&c=3").status, 200, "cost 3 of 3")
        check.equal(nginx.get("/cost?k=a&c=0").status, 200, "cost 0 of nothing left")
        check.equal(nginx.statuses(["/five?k=b"] * 3), [200, 200, 429], "a fixed cost")
        check.equal(nginx.get("/digits?k=c&c=7").weir["remaining"], "930", "a cost with text")
        answer = nginx.get("/cost?k=n&c=1000000000000")
        check.equal((answer.status, answer.weir["retry_after"], answer.weir["retry_after_us"]), (429, "", ""), "never")
        check("retry-after" not in answer.fields, f"never has no Retry-After: {answer.fields}")
        for bad in ("x", "-1", "1.5", "1000000000001", "1e3", "%31", "99999999999999999999", "0x1"):
            check.equal(nginx.get(f"/cost?k=a&c={bad}").status, 400, f"cost {bad}")
        nginx.wait_for(lambda: "1000000000001" in nginx.errors())
        check(re.search(r'\[\w+\].*cost.*1000000000001', nginx.errors()), "a bad cost is logged")
        check.equal(remaining(nginx, "/cost?k=fresh"), "10", "cost 0 of a fresh key")


def test_least(check):
    """Less than the cost is granted, one amount for all limits with a least."""
    locations = """
        location /one { weir_limit key=$arg_k zone=z "fixed-window 10/100d" cost=$arg_c least=$arg_l; }
        location /two { weir_limit key=u:$arg_k zone=z "fixed-window 9/100d cost 1, fixed-window 100/99d" cost=$arg_c least=5;
                        weir_limit key=o:$arg_o zone=z "fixed-window 30/100d" cost=$arg_c least=$arg_l;
                        weir_limit key=r:$arg_k zone=other "fixed-window 5/100d"; }
        location /late { weir_limit key=e:$arg_k zone=z "fixed-window 10/100d";
                         weir_limit key=l:$arg_k zone=z "fixed-window 10/100d" cost=$arg_c least=1 phase=precontent; }
        location /text { weir_limit key=$arg_k zone=z "$http_x_t" cost=5 least=$arg_l; }
        location /same { weir_limit key=$arg_k zone=z "fixed-window 10/100d" cost=8 least=2;
                         weir_limit key=$arg_j zone=z "fixed-window 12/100d" cost=4; }
        location /waits { weir_limit key=$arg_k zone=z "token-bucket 5/100d" wait=1s;
                          weir_limit key=$arg_j zone=z "token-bucket 5/100d" cost=4 least=1; }
        location /shapes { weir_limit key=$arg_k zone=z "fixed-window 5/100d, smooth 1000/s" cost=2;
                           weir_limit key=$arg_j zone=z "fixed-window 5/100d" cost=4 least=1; }
        """
    with serve(locations, "weir_zone other 1m;\n") as nginx:
        def asked(path):
            answer = nginx.get(path)
            return answer.status, answer.weir["granted"], answer.weir["remaining"]
        check.equal(asked("/one?k=a&c=4"), (200, "4", "6"), "no least: all of it")
        check.equal(asked("/one?k=a&c=9&l=2"), (200, "6", "0"), "what there is")
        check.equal(asked("/one?k=a&c=9&l=2"), (429, "0", "0"), "less than enough")
        check.equal(asked("/one?k=b&c=3&l=50"), (200, "3", "7"), "a least above the cost is the cost")
        check.equal(asked("/one?k=b&c=0&l=5"), (200, "0", "7"), "cost 0")
        check.equal(asked("/one"), (200, "", ""), "no key, nothing to show")
        for bad in ("0", "x", "-1", "1000000000001"):
            check.equal(nginx.get(f"/one?k=a&c=9&l={bad}").status, 400, f"least {bad}")
        check.equal(asked("/two?k=a&o=o&c=40&l=9")[:2], (200, "30"), "the smaller of both")
        check.equal(asked("/two?k=a&o=p&c=90&l=20")[:2], (200, "30"), "again, of another")
        check.equal(asked("/two?k=a&o=q&c=90&l=20")[:2], (200, "30"), "again")
        check.equal(asked("/two?k=a&o=r&c=90&l=20")[:2], (429, "0"), "the key has 10 left, and 20 are needed")
        check.equal(asked("/two?k=a&o=r&c=90&l=1")[:2], (200, "10"), "or 10")
        check.equal(asked("/two?k=b&o=s&c=8&l=9")[:2], (200, "8"), "each least is within each cost")
        check.equal(asked("/late?k=a&c=40")[:2], (200, "10"), "in the later phase")
        check.equal(asked("/same?k=x&j=x")[:2], (200, "8"), "equal keys: the larger of both")
        check.equal(asked("/same?k=x&j=x")[0], 429, "and the larger of what they need")
        for path in ("/waits", "/shapes"):
            check.equal([asked(f"{path}?k={path}&j={path}")[:2] for _ in range(2)], [(200, "4"), (429, "0")],
                        f"{path}: equal keys, and one of them cannot take less: all of it")
        shapes = {"x-t": "smooth 5/s"}
        check.equal([nginx.get(path, shapes).status for path in ("/text?k=t", "/text?k=t&l=1")], [200, 500], "not of what shapes")
        check(nginx.wait_for(lambda: "not for smooth, which shapes" in nginx.errors()), "and the log says why")
        check.equal(nginx.get("/text?k=t&l=1", {"x-t": "smooth 5/s cost 1, fixed-window 3/100d"}).weir["granted"], "3",
                    "unless it has a cost of its own")


# ---- outcome ----

def test_status(check):
    locations = """
        weir_status 503;
        location /inherited { weir_limit key=$arg_k zone=z "fixed-window 1/100d"; }
        location /own { weir_status 444; weir_limit key=$arg_k zone=z "fixed-window 1/100d"; }
        location /teapot { weir_limit key=$arg_k zone=z "fixed-window 1/100d" status=418; }
        location /two {
            weir_limit key=$arg_a zone=z "fixed-window 1/100d" status=430;
            weir_limit key=$arg_b zone=z "fixed-window 1/100d";
        }
        """
    with serve(locations) as nginx:
        check.equal(nginx.statuses(["/inherited?k=a"] * 2), [200, 503], "weir_status of the server")
        check.equal(nginx.statuses(["/teapot?k=b"] * 2), [200, 418], "status=")
        check.equal(nginx.statuses(["/two?a=1&b=2", "/two?a=1&b=3", "/two?a=4&b=2"]), [200, 430, 503],
                    "that of the limit that bound")
        nginx.get("/own?k=o")
        with nginx.client() as client:
            client.send(get("/own?k=o"))
            check(client.at_end(), "444: nginx closes without an answer")


def test_memory(check):
    """What nginx allocates is not zero: nothing is read that was not written."""
    with serve('location / { weir_limit key=$arg_k zone=z "fixed-window 1/100d"; }', env={"MALLOC_PERTURB_": "1"}) as nginx:
        answers = [nginx.get("/?k=a") for _ in range(3)]
        check.equal([(it.status, it.weir["status"]) for it in answers], [(200, "PASSED")] + [(429, "REJECTED")] * 2, "statuses")


def test_dry_run(check):
    locations = """
        location /shadow { weir_limit key=$arg_k zone=z "fixed-window 2/100d" dry_run; }
        location /all { weir_dry_run on; weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }
        location /all/but { weir_dry_run off; weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }
        location /delays { weir_limit key=$arg_k zone=z "leaky-bucket 1/100d burst 5" dry_run; }
        location /both {
            weir_limit key=$arg_k zone=z "fixed-window 3/100d" name=hard;
            weir_limit key=$arg_k zone=z "sliding-log 2/100d" dry_run name=soft;
        }
        location /read { weir_limit key=$arg_k zone=z "sliding-log 9/100d" cost=$arg_c; }
        location /bad { weir_limit key=$arg_k zone=z "$arg_limit" dry_run; }
        location /bad-cost { weir_limit key=$arg_k zone=z "fixed-window 2/100d" cost=$arg_c dry_run; }
        """
    with serve(locations) as nginx:
        answers = [nginx.get("/shadow?k=a") for _ in range(4)]
        check.equal([it.status for it in answers], [200] * 4, "dry_run rejects nobody")
        check.equal([it.weir["status"] for it in answers], ["PASSED", "PASSED", "DRY_RUN", "DRY_RUN"], "and says so")
        check.equal([it.weir["remaining"] for it in answers], ["1", "0", "0", "0"], "and counts")
        check(not any("ratelimit" in it.fields or "retry-after" in it.fields for it in answers), "no fields of dry runs")
        check.equal(nginx.statuses(["/all?k=b"] * 4), [200] * 4, "weir_dry_run on")
        check.equal(nginx.get("/all?k=b").weir["status"], "DRY_RUN", "weir_dry_run on, status")
        check.equal(nginx.statuses(["/all/but?k=c"] * 3), [200, 200, 429], "weir_dry_run off")
        answers = [nginx.get("/delays?k=d") for _ in range(7)]  # all at once: nothing is delayed
        check.equal([(it.status, it.weir["status"]) for it in answers], [(200, "PASSED")] + [(200, "DRY_RUN")] * 6, "delays")
        answers = [nginx.get("/both?k=e") for _ in range(5)]
        check.equal([it.status for it in answers], [200, 200, 200, 429, 429], "the enforced one beside it")
        check.equal([it.weir["status"] for it in answers], ["PASSED", "PASSED", "DRY_RUN", "REJECTED", "REJECTED"], "both")
        check.equal([it.weir["binding"] for it in answers], ["hard", "hard", "soft", "hard", "hard"], "the one that DRY_RUN is about")
        check.equal([it.weir["remaining"] for it in answers], ["2", "1", "0", "0", "0"], "the other variables are of the enforced one")
        check(all('"hard"' in it.fields["ratelimit"] and "soft" not in it.fields["ratelimit"] for it in answers), "fields")
        check.equal(remaining(nginx, "/read?k=e"), "7", "the one in dry run was charged twice, as a limit would be")
        check.equal(nginx.get("/bad?k=f&limit=nonsense").status, 200, "a limit in dry run that cannot be read harms nobody")
        check.equal(nginx.get("/bad-cost?k=f&c=nonsense").status, 200, "nor does a cost")


def test_dry_run_of_rejected(check):
    """What the enforced limits reject is not counted by those in dry run."""
    locations = """
        location /both {
            weir_limit key=$arg_k zone=z "sliding-log 100/100d" dry_run;
            weir_limit key=$arg_k zone=z "fixed-window 3/100d";
        }
        location /read { weir_limit key=$arg_k zone=z "sliding-log 100/100d" cost=$arg_c; }
        """
    with serve(locations) as nginx:
        check.equal(nginx.statuses(["/both?k=a"] * 10), [200] * 3 + [429] * 7, "three")
        check.equal(remaining(nginx, "/read?k=a"), "97", "three of dry run")


def test_dry_run_of_phases(check):
    """Two phases in dry run: the variables name the limit that would have refused. What the first one would have
    rejected, the second one does not see."""
    locations = """
        location /dry {
            weir_limit key=a:$arg_a zone=z "fixed-window 4/100d" name=address dry_run;
            weir_limit key=b:$arg_b zone=z "fixed-window 2/100d" name=account dry_run phase=precontent;
        }
        location /slow {
            weir_limit key=s:$arg_a zone=z "leaky-bucket 1/100d burst 9" name=slow dry_run;
            weir_limit key=t:$arg_a zone=z "fixed-window 2/100d" name=fast dry_run phase=precontent;
        }
        location /read { weir_limit key=b:$arg_b zone=z "fixed-window 9/100d" cost=$arg_c; }
        """
    with serve(locations) as nginx:
        def said(path, times):
            return [(it.weir["status"], it.weir["binding"]) for it in (nginx.get(path) for _ in range(times))]
        check.equal(said("/dry?a=1&b=1", 5), [("PASSED", "account")] * 2 + [("DRY_RUN", "account")] * 2 + [("DRY_RUN", "address")],
                    "the one that would have refused")
        check.equal(said("/dry?a=1&b=2", 3), [("DRY_RUN", "address")] * 3, "the first one")
        check.equal(remaining(nginx, "/read?b=2"), "9", "the second one did not see these")
        check.equal(said("/slow?a=1", 3), [("PASSED", "fast"), ("DRY_RUN", "slow"), ("DRY_RUN", "fast")], "delays are seen by the second one")


def test_phases(check):
    """precontent charges what will be served, preaccess all that comes."""
    locations = """
        location /pre { deny all; weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }
        location /post { deny all; weir_limit key=$arg_k zone=z "fixed-window 2/100d" phase=precontent; }
        location /allowed { weir_limit key=$arg_k zone=z "fixed-window 2/100d" phase=precontent; }
        location /read { weir_limit key=$arg_k zone=z "fixed-window 9/100d" cost=$arg_c phase=preaccess; }
        location /two {
            weir_limit key=$arg_a zone=z "fixed-window 3/100d" name=first cost=$arg_c;
            weir_limit key=$arg_b zone=z "fixed-window 2/100d" name=second cost=$arg_c phase=precontent;
        }
        """
    with serve(locations) as nginx:
        check.equal(nginx.statuses(["/pre?k=a"] * 4), [403, 403, 429, 429], "preaccess")
        check.equal(nginx.statuses(["/post?k=b"] * 4), [403] * 4, "precontent, forbidden")
        check.equal(remaining(nginx, "/read?k=b"), "9", "nothing was charged")
        check.equal(nginx.statuses(["/allowed?k=c"] * 3), [200, 200, 429], "precontent, allowed")
        answers = [nginx.get("/two?a=1&b=2") for _ in range(4)]
        check.equal([(it.status, it.weir["binding"]) for it in answers],
                    [(200, "second"), (200, "second"), (429, "second"), (429, "first")], "both phases")
        check.equal([it.weir["remaining"] for it in answers], ["1", "0", "0", "0"], "folded over the phases")
        check('"first"' in answers[0].fields["ratelimit"] and '"second"' in answers[0].fields["ratelimit"],
              f"fields of both: {answers[0].fields}")


def test_all_or_nothing(check):
    """Over keys and zones."""
    http = "weir_zone y 1m;\n"
    locations = """
        location /take {
            weir_limit key=$arg_a zone=z "fixed-window 2/100d" name=a;
            weir_limit key=$arg_b zone=y "fixed-window 50/100d, sliding-log 60/100d" name=b cost=$arg_c;
            weir_limit key=$arg_d zone=z "token-bucket 1/100d burst 40" name=d;
        }
        location /a { weir_limit key=$arg_k zone=z "fixed-window 99/100d" cost=0; }
        location /b { weir_limit key=$arg_k zone=y "fixed-window 99/100d, sliding-log 99/100d" cost=0; }
        location /d { weir_limit key=$arg_k zone=z "token-bucket 1/100d burst 99" cost=0; }
        """
    with serve(locations, http) as nginx:
        check.equal(nginx.statuses(["/take?a=1&b=2&d=3"] * 12), [200, 200] + [429] * 10, "the tightest decides")
        check.equal([remaining(nginx, f"/{k}?k={n}") for k, n in zip("abd", "123")], ["97", "97", "97"],
                    "the others were charged twice only")
        answer = nginx.get("/take?a=1&b=2&d=3")
        check.equal((answer.weir["binding"], answer.weir["limit"], answer.weir["remaining"]), ("a", "2", "0"), "denied")
        check.equal(re.findall(r'"(\w+)(?:-2)?";r=(\d+)', answer.fields["ratelimit"]),
                    [("a", "0"), ("b", "48"), ("b", "58"), ("d", "38")], "each limit's own remaining")
        check.equal(nginx.statuses(["/take?a=x&b=2&d=3&c=49", "/take?a=x&b=2&d=3&c=48"]), [429, 200], "cost of one")
        check.equal([remaining(nginx, f"/{k}?k={n}") for k, n in (("a", "x"), ("b", "2"), ("d", "3"))], ["98", "49", "96"],
                    "after costs")
        answer = nginx.get("/take?b=new")
        check.equal((answer.status, answer.weir["binding"], answer.weir["limit"]), (200, "b", "50"), "those with a key only")


def test_same_state(check):
    """The same key, zone, algorithm and period is the same state wherever it is written."""
    http = """server { listen 127.0.0.1:{port2}; location / { empty_gif; weir_limit key=$arg_k zone=z "fixed-window 5/100d"; } }\n"""
    locations = """location /a { weir_limit key=$arg_k zone=z "fixed-window 5/100d"; }
        location /b { weir_limit key=$arg_k zone=z "fixed-window 3/100d"; }
        location /c { weir_limit key=$arg_k zone=z "fixed-window 3/50d"; }"""
    with serve(locations, http) as nginx:
        check.equal(nginx.statuses(["/a?k=s", "/a?k=s", "/b?k=s", "/b?k=s", "/a?k=s"]), [200, 200, 200, 429, 200], "shared")
        check.equal([nginx.get("/?k=s", port="port2").status for _ in range(2)], [200, 429], "another server")
        check.equal(nginx.statuses(["/c?k=s"]), [200], "another period")


def test_equal_keys(check):
    """Keys of one location that happen to be equal, under limits that would share a state: the strictest counts, once."""
    locations = """
        location / {
            weir_limit key=$arg_a zone=z "fixed-window 5/100d" name=a;
            weir_limit key=$arg_b zone=z "fixed-window 3/100d" name=b;
            weir_limit key=$arg_c zone=z "sliding-log 90/50d, fixed-window 7/100d" name=c; }
        """
    with serve(locations) as nginx:
        answers = [nginx.get("/?a=same&b=same&c=same") for _ in range(5)]
        check.equal([it.status for it in answers], [200] * 3 + [429] * 2, "three of the smallest")
        check.equal({it.weir["binding"] for it in answers}, {"b"}, "which bound")
        check.equal(re.findall(r'"(\w)";r=(\d+)', answers[-1].fields["ratelimit"]), [("b", "0"), ("c", "87")],
                    "the state was charged three times, not nine")
        check.equal(nginx.statuses(["/?a=same", "/?a=same", "/?a=same"]), [200, 200, 429], "it is the key's own state")
        check.equal(nginx.statuses(["/?a=spent"] * 6 + ["/?a=spent&b=spent"]), [200] * 5 + [429] * 2, "nothing is gained by it")


def test_unreadable(check):
    """What cannot be read is answered once, and the error page is shown."""
    locations = """
        weir_limit key=$arg_k zone=z "$arg_limit" cost=$arg_c;
        error_page 500 /page.html; error_page 400 /page.html;
        location / { root {folder}/html; }
        """
    with serve(locations, files={"html/page.html": "page\n", "html/a": "a\n"}) as nginx:
        for path, status in (("/a?k=1&limit=nonsense", 500), ("/a?k=1&limit=smooth%201/s", 500)):
            answer = nginx.get(path)
            check.equal((answer.status, answer.text), (status, "page\n"), path)


# ---- levels ----

def test_inheritance(check):
    http = 'weir_limit key=$arg_k zone=z "fixed-window 4/100d" name=outer;\nweir_headers x-ratelimit;\nweir_status 420;\n'
    locations = """
        location /inherits { }
        location /own { weir_limit key=$arg_k zone=z "sliding-log 2/100d" name=inner; location /own/nested { }
            location /own/other { weir_limit key=$arg_k zone=z "sliding-log 1/100d" name=nested; weir_status 421; } }
        location /conn { weir_conn key=$arg_k zone=z 5; }
        location /headers { weir_headers ietf; }
        """
    with serve(locations, http) as nginx:
        check.equal(nginx.statuses(["/inherits?k=a"] * 5), [200] * 4 + [420], "from http")
        check.equal(nginx.get("/inherits?k=a").weir["binding"], "outer", "its name")
        check.equal(nginx.statuses(["/own?k=b"] * 3), [200, 200, 420], "its own in place of it")
        check.equal(nginx.get("/inherits?k=b").fields["x-ratelimit-remaining"], "3", "the outer one was not charged")
        check.equal(nginx.statuses(["/own/nested?k=c"] * 3), [200, 200, 420], "nested, inherited")
        check.equal(nginx.statuses(["/own/other?k=d"] * 2), [200, 421], "nested, its own")
        check.equal(nginx.statuses(["/conn?k=e"] * 5), [200] * 4 + [420], "weir_conn does not undo weir_limit")
        answer = nginx.get("/headers?k=f")
        check("ratelimit" in answer.fields and "x-ratelimit-limit" not in answer.fields, f"weir_headers: {answer.fields}")


# ---- variables and logs ----

def test_variables(check):
    """Exact numbers, by a clock that stands where it is told."""
    http = """log_format w "$status $weir_status l=$weir_limit r=$weir_remaining $weir_retry_after/$weir_retry_after_us"
            " $weir_reset/$weir_reset_us $weir_delay/$weir_delay_us b=$weir_binding d=$weir_degraded";
        access_log {folder}/access.log w;\n"""
    locations = """
        weir_test_clock $arg_t;
        location /bucket { weir_limit key=$arg_k zone=z "token-bucket 2/s burst 3"; }
        location /leaky { weir_limit key=$arg_k zone=z "leaky-bucket 2/s burst 3" name=drip; }
        location /window { weir_limit key=$arg_k zone=z "fixed-window 2/m"; }
        location /none { }
        """
    asked = [
        ("/bucket?k=a&t={t}", "200 PASSED l=3 r=2 0/0 1/500000 0/0 b=token-bucket 2/s burst 3 d=0"),
        ("/bucket?k=a&t={t}", "200 PASSED l=3 r=1 0/0 1/1000000 0/0 b=token-bucket 2/s burst 3 d=0"),
        ("/bucket?k=a&t={t}", "200 PASSED l=3 r=0 0/0 2/1500000 0/0 b=token-bucket 2/s burst 3 d=0"),
        ("/bucket?k=a&t={t}", "429 REJECTED l=3 r=0 1/500000 2/1500000 0/0 b=token-bucket 2/s burst 3 d=0"),
        ("/bucket?k=a&t={t}1", "429 REJECTED l=3 r=0 1/499999 2/1499999 0/0 b=token-bucket 2/s burst 3 d=0"),
        ("/leaky?k=a&t={t}", "200 PASSED l=4 r=3 0/0 1/500000 0/0 b=drip d=0"),
        ("/leaky?k=a&t={t}", "200 DELAYED l=4 r=2 0/0 1/1000000 1/500000 b=drip d=0"),
        ("/leaky?k=a&t={t}", "200 DELAYED l=4 r=1 0/0 2/1500000 1/1000000 b=drip d=0"),
        ("/leaky?k=a&t={t}", "200 DELAYED l=4 r=0 0/0 2/2000000 2/1500000 b=drip d=0"),
        ("/leaky?k=a&t={t}", "429 REJECTED l=4 r=0 1/500000 2/2000000 0/0 b=drip d=0"),
        ("/window?k=a&t={t}", "200 PASSED l=2 r=1 0/0 60/60000000 0/0 b=fixed-window 2/m d=0"),
        ("/none?k=a&t={t}", "200  l= r= / / / b= d=")]
    with serve(locations, http) as nginx:
        for path, _ in asked:
            nginx.get(path.replace("{t}1", str(T0 + 1)).replace("{t}", str(T0)))
        nginx.wait_for(lambda: len(nginx.access()) >= len(asked))
        for (path, wanted), got in zip(asked, nginx.access()):
            check.equal(got.replace("-", "") if "none" in path else got, wanted, path)  # nginx logs - for nothing


def test_log_levels(check):
    levels = ["info", "notice", "warn", "error"]
    lower = {"error": "warn", "warn": "notice", "notice": "info", "info": "debug"}
    locations = "".join(f"""
        location /{level} {{ weir_log_level {level}; weir_limit key=$arg_k zone=z "fixed-window 1/100d" name=n-{level}; }}
        location /dry-{level} {{ weir_log_level {level}; weir_limit key=$arg_k zone=z "fixed-window 1/100d" dry_run name=d-{level}; }}
        location /delay-{level} {{ weir_log_level {level}; weir_limit key=$arg_k zone=z "leaky-bucket 1/100d burst 9" name=y-{level}; }}
        """ for level in levels) + 'location /default { weir_limit key=$arg_k zone=z "fixed-window 1/100d" name=n-default; }'
    with serve(locations, log="debug") as nginx:
        for level in levels:
            nginx.statuses([f"/{level}?k=n-{level}"] * 2 + [f"/dry-{level}?k=d-{level}"] * 2)
            with nginx.client() as client:  # leaves while the second one waits
                client.send(get(f"/delay-{level}?k=y-{level}") * 2)
                check.equal(client.read().status, 200, f"not delayed, {level}")
                check(level == "info" or nginx.wait_for(lambda: f"y-{level}" in nginx.errors()), f"a delay is told, {level}")
        nginx.statuses(["/default?k=x"] * 2)
        lines = [line for line in nginx.errors().splitlines() if re.match(r"[\d/]+ [\d:]+ \[.*weir", line)]

        def found(name):
            return {re.search(r"\[(\w+)\]", line)[1] for line in lines if name in line.partition(", client:")[0]} - {"debug"}
        for level in levels:
            less = {lower[level]} - {"debug"}
            check.equal(found(f"n-{level}"), {level}, f"rejections, {level}")
            check.equal(found(f"d-{level}"), less, f"dry runs, {level}")
            check.equal(found(f"y-{level}"), less, f"delays, {level}")
        check.equal(found("n-default"), {"error"}, "rejections, by default")
        line = next((it for it in lines if "n-default" in it), "")
        check(all(word in line for word in ('client: 127.0.0.1', 'request: "GET /default?k=x', 'zone')), f"the line: {line}")


def test_many(check):
    """Sixteen limits in a location."""
    lines = "".join(f'weir_limit key=$arg_k zone=z "fixed-window {20 - i}/{100 + i}d" name=n{i};\n' for i in range(16))
    with serve(f"location / {{ {lines} }}") as nginx:
        check.equal(nginx.statuses(["/?k=a"] * 7), [200] * 5 + [429] * 2, "the smallest of sixteen")
        answer = nginx.get("/?k=a")
        check.equal(answer.weir["binding"], "n15", "which bound")
        check.equal(re.findall(r'"n(\d+)";r=(\d+)', answer.fields["ratelimit"]), [(str(i), str(15 - i)) for i in range(16)],
                    "all sixteen in the fields")


def test_bodies(check):
    """Rejected requests with a body, on a connection that goes on."""
    with serve('location / { weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }') as nginx, nginx.client() as client:
        got = [client.get("/?k=a", {"content-type": "text/plain"}, "POST", b"x" * size).status for size in (1, 10, 100, 100000)]
        check.equal(got, [405, 405, 429, 429], "POSTs")
        check.equal(client.get("/?k=a", method="HEAD").status, 429, "a HEAD")
        check.equal(client.get("/?k=b", method="HEAD").status, 200, "a HEAD that passes")
        check.equal(client.get("/?k=c").status, 200, "and on")


TESTS = [test_keys, test_network, test_exempt, test_algorithms, test_words, test_tiers, test_cost, test_least, test_status, test_memory,
         test_dry_run, test_dry_run_of_rejected, test_dry_run_of_phases,
         test_phases, test_all_or_nothing, test_same_state, test_equal_keys,
         test_unreadable, test_inheritance, test_variables, test_log_levels, test_many, test_bodies]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
