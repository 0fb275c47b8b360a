#!/usr/bin/env python3
"""weir_info: what is told of zones, of stores and of the worker."""
import json
import re
import subprocess
import sys
import time

from lib import checks, ports
from lib.build import ROOT
from lib.nginx_server import Nginx, get

ZONE_NAMES = """name size keys capacity bytes_per_key limits large_bytes large_used evicted_fresh evicted_unused
    evicted_soonest refused repairs passed delayed rejected closed dry_run conn_passed conn_rejected conn_closed
    conn_dry_run given_back""".split()
STORE_NAMES = "url state why servers away asked answered unreachable cached_denials queue owed".split()
INFO = "location /info { weir_info; }\n"
FILES = {"html/a": "a\n"}


def zones(nginx):
    return {zone["name"]: zone for zone in nginx.get("/info").json["zones"]}


def test_answer(check):
    with Nginx("weir_zone z 1m;", INFO, files=FILES) as nginx, nginx.client() as client:
        answer = client.get("/info")
        check.equal((answer.status, answer.fields["content-type"]), (200, "application/json"), "an answer")
        check.equal(answer.fields["cache-control"], "no-store", "not to be kept")
        check.equal(answer.json["worker"] in nginx.workers(), True, "the worker that answers")
        check.equal(list(answer.json), ["zones", "stores", "worker"], "names")
        check.equal(answer.json["stores"], [], "no stores")
        check(answer.body.endswith(b"}\n"), "a line")
        head = client.get("/info", method="HEAD")
        check.equal((head.status, head.body, head.fields["content-type"]), (200, b"", "application/json"), "HEAD")
        check.equal(head.fields["content-length"], answer.fields["content-length"], "HEAD: the length")
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            check.equal(client.get("/info", method=method, body=b"x" * 100).status, 405, method)
        check.equal(client.get("/info", body=b"x" * 100).status, 200, "a body is ignored")
        answers = client.pipeline([get("/info"), get("/a"), get("/info")])
        check.equal([it.status for it in answers], [200] * 3, "pipelined")


def test_zones(check):
    server = INFO + """
        location /a { weir_limit key=$arg_k zone=z "token-bucket 1/h burst 9"; weir_conn key=$arg_c zone=other 5; }
        location /b { weir_limit key=$arg_k zone=z "sliding-log 5/h, fixed-window 1/h"; alias {folder}/html/a; }
        """
    with Nginx("weir_zone z 1m; weir_zone other 512k large=50%;", server, files=FILES) as nginx:
        before = zones(nginx)
        check.equal(sorted(before), ["other", "z"], "two zones")
        for name, zone in before.items():
            check.equal(list(zone), ZONE_NAMES, f"{name}: names")
            counts = [zone[what] for what in ZONE_NAMES if what.startswith("evicted") or what in ("keys", "repairs")]
            check.equal(counts, [0] * 5, f"{name}: nothing yet")
            least = 900000 if name == "z" else 400000
            check(least < zone["size"] <= (1 << 20), f"{name}: size {zone['size']}")
            spread = (zone["size"] - zone["large_bytes"]) / zone["capacity"]
            check(abs(zone["bytes_per_key"] - spread) < 0.001, f"{name}: {zone['bytes_per_key']} bytes, not {spread}")
        check(before["other"]["large_bytes"] > before["other"]["size"] * 0.45, "large=50%")
        check(before["z"]["large_bytes"] < before["z"]["size"] * 0.13, "large=12% by default")
        nginx.statuses([f"/a?k={i}" for i in range(100)] + ["/a?k=1"] * 5)
        check.equal(zones(nginx)["z"]["keys"], 100, "a hundred keys")
        nginx.get("/b?k=x")
        check.equal(zones(nginx)["z"]["limits"], 3, "three limits")
        check(zones(nginx)["z"]["large_used"] > 0, "a log is large")
        before = zones(nginx)
        check(nginx.reload(), "a reload")
        check.equal(zones(nginx), before, "all is kept over a reload")


COUNTS = "passed delayed rejected dry_run conn_passed conn_rejected conn_dry_run".split()


def test_counts(check):
    """What passed, was delayed, was rejected: by zone, of all workers, over reloads and changes of size; JSON and Prometheus."""
    server = INFO + """
        location /text { weir_info prometheus; }
        location /limit { empty_gif; weir_limit key=$arg_k zone=z "fixed-window 2/100d"; }
        location /two { empty_gif; weir_limit key=b:$arg_k zone=z "fixed-window 9/100d"; weir_limit key=c:$arg_k zone=other "fixed-window 2/100d"; }
        location /slow { empty_gif; weir_limit key=d:$arg_k zone=z "leaky-bucket 1/s burst 9"; weir_limit key=d:$arg_k zone=other "fixed-window 9/100d"; }
        location /conn { empty_gif; weir_conn key=$arg_k zone=other 9; }
        location /full { empty_gif; weir_limit key=e:$arg_k zone=z "fixed-window 1/100d" cost=5 dry_run; weir_conn key=f 'zone=wei"rd' 1; }
        """
    http = 'weir_zone z %s; weir_zone other 512k; weir_zone \'wei"rd\' 80k;'
    with Nginx(http % "1m", server, workers=2) as nginx:
        def counts(name):
            return [zones(nginx)[name][what] for what in COUNTS]
        check.equal([nginx.get("/limit?k=a").status for _ in range(5)], [200] * 2 + [429] * 3, "a limit")
        check.equal(counts("z"), [2, 0, 3, 0, 0, 0, 0], "two passed, three did not")
        check.equal([nginx.get("/limit").status for _ in range(3)], [200] * 3, "no key")
        check.equal(counts("z"), [2, 0, 3, 0, 0, 0, 0], "nothing was decided")
        check.equal([nginx.get("/two?k=a").status for _ in range(3)], [200, 200, 429], "two zones")
        check.equal((counts("z"), counts("other")), ([4, 0, 3, 0, 0, 0, 0], [2, 0, 1, 0, 0, 0, 0]), "the one that rejected counts it")
        nginx.statuses(["/slow?k=a"] * 3)
        check.equal(sum(counts("z")[:2]) - 4, 3, "delayed or passed")
        check(counts("z")[1] >= 1, f"delayed: {counts('z')}")
        check.equal(counts("other")[:3], [5, 0, 1], "the zone beside it did not delay")
        nginx.statuses(["/conn?k=a"] * 4 + ["/full?k=a"] * 2)
        check.equal((counts("other")[4:], counts("z")[3], counts('wei"rd')[4:]), ([4, 0, 0], 2, [2, 0, 0]), "slots, dry run")
        before = {name: counts(name) for name in ("z", "other", 'wei"rd')}
        check(nginx.reload(), "a reload")
        check(nginx.reload(http=http % "2m"), "another size")
        check.equal({name: counts(name) for name in before}, before, "counts are kept")
        answer = nginx.get("/text")
        check.equal((answer.status, answer.fields["content-type"]), (200, "text/plain; version=0.0.4; charset=utf-8"), "Prometheus")
        for zone, text in (("z", "z"), ("other", "other"), ('wei"rd', 'wei\\"rd')):
            for by, outcome, number in (("limit", "passed", 0), ("limit", "delayed", 1), ("limit", "rejected", 2), ("limit", "dry_run", 3),
                                        ("conn", "passed", 4), ("conn", "rejected", 5), ("conn", "dry_run", 6)):
                line = f'nginx_weir_requests_total{{zone="{text}",by="{by}",outcome="{outcome}"}} {before[zone][number]}\n'
                check.contains(answer.text, line, f"{zone}: {by} {outcome}")
        check.contains(answer.text, f'nginx_weir_zone_capacity{{zone="z"}} {zones(nginx)["z"]["capacity"]}\n', "of the zone")


def test_prometheus(check):
    """The text format: every sample has a type, names are unlike, labels are escaped; stores are told of; many zones fit."""
    names = ['a"b', "back\\\\slash", "new\\nline"] + ["x" * 200 + str(i) for i in range(40)]
    declared = "".join("weir_zone '%s' 80k;\n" % name for name in names)
    server = f"location /text {{ weir_info prometheus; }} location /a {{ weir_store redis://:secret@127.0.0.1:{ports.take()}?slices=10%; empty_gif; }}"
    with Nginx(declared, server) as nginx:
        text = nginx.get("/text").text
        types = dict(re.findall(r"^# TYPE (\S+) (counter|gauge)$", text, re.M))
        check.equal(len(re.findall("^# TYPE", text, re.M)), len(types), "one type for each name")
        sample = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\} \d+$')
        found = [sample.match(line) for line in text.splitlines() if not line.startswith("#")]
        check(all(found), f"samples: {[line for line, it in zip(text.splitlines(), found) if not it][:3]}")
        check.equal({it[1] for it in found if it}, set(types), "every sample has a type, every type a sample")
        check.equal(len({it[0].rpartition(" ")[0] for it in found if it}), len(found), "no sample is there twice")
        check("secret" not in text and text.endswith("\n"), "no password")
        check.contains(text, 'nginx_weir_store_up{store="redis://:***@127.0.0.1', "the store")
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check.equal((done.returncode, done.stdout), (0, ""), "promtool")
        labels = {name: {label: set(re.findall(f'{label}="([^"]*)"', "".join(it[2] for it in found if it[1] == name)))
                         for it in found if it[1] == name for label in re.findall('([a-z]+)="', it[2])} for name in types}
        for file in ("rules.yaml", "dashboard.json"):
            asked = re.findall(r"(?<![:\w])(nginx_weir_[a-z_]+)(?:\{([^}]*))?", (ROOT / "packaging/monitoring" / file).read_text(encoding="utf-8"))
            names = {name for name, _ in asked}
            check(len(names) >= 6 and names <= set(types), f"{file} names what there is: {names - set(types)}")
            for name, label, values in ((name, *it) for name, them in asked for it in re.findall(r'([a-z]+)[!=~]+\\?"([^"\\]*)', them)):
                known = labels[name].get(label, set()) | {"instance": {"$nginx"}, "zone": {"logins", "addresses", "accounts"}}.get(label, set())
                check(set(values.split("|")) <= known, f"{file}: {label} of {name} is never {values}, but {known}")


def test_evictions(check):
    server = INFO + 'location /a { weir_limit key=$arg_k zone=z "token-bucket 1/h burst 9"; }\n'
    with Nginx("weir_zone z 80k;", server, files=FILES) as nginx:
        capacity = zones(nginx)["z"]["capacity"]
        for start in range(0, 2 * capacity, 500):
            nginx.statuses([f"/a?k={i}" for i in range(start, start + 500)])
        zone = zones(nginx)["z"]
        check(zone["evicted_unused"] + zone["evicted_soonest"] > capacity / 2, f"evicted: {zone}")
        check(zone["keys"] <= capacity, f"keys: {zone}")


def test_names(check):
    """Names are texts like any other; many zones are told of, too."""
    names = ['a"b', "back\\\\slash", "zwölf €", "tab\\tnew\\nline", "{}[],:", "'"] + [f"zone{i}" for i in range(40)]
    declared = "".join("weir_zone '%s' 80k;\n" % name.replace("'", "\\'") for name in names)
    with Nginx(declared, INFO) as nginx:
        wanted = [name.replace("\\\\", "\\").replace("\\t", "\t").replace("\\n", "\n") for name in names]
        check.equal([zone["name"] for zone in json.loads(nginx.get("/info").body)["zones"]], wanted, "names")


def test_stores(check):
    """One that nobody listens at."""
    port = ports.take()
    server = INFO + f"""
        location /a {{ weir_limit key=$arg_k zone=z "fixed-window 1/d";
            weir_store redis://:secret@127.0.0.1:{port} deadline=200ms; }}
        """
    with Nginx("weir_zone z 1m;", server, files=FILES) as nginx:
        check.equal(nginx.statuses(["/a?k=a"] * 2), [200, 429], "the zone decides")

        def stores():
            return nginx.get("/info").json["stores"]
        check(nginx.wait_for(lambda: stores()[0]["why"] != ""), "why it is down is told")
        store = stores()[0]
        check.equal(list(store), STORE_NAMES, "names")
        check.equal((store["state"], store["servers"], store["away"]), ("down", 1, 1), "state")
        check.contains(store["url"], f"127.0.0.1:{port}", "its address")
        check("secret" not in json.dumps(store), f"its password is not told: {store}")
        check.equal((store["answered"], store["cached_denials"], store["queue"]), (0, 0, 0), "counts")


KEYS = "location /keys { weir_keys zone=accounts; }\n"


def test_keys(check):
    """A key that is locked out: it is shown, forgotten, and may try again. Others stay as they are. Over all workers."""
    server = INFO + KEYS + """
        location /a { empty_gif; weir_limit key=account:$arg_k zone=accounts "sliding-log 2/10w, fixed-window 9/10w"; }
        location /ip { empty_gif; weir_limit key=ip:$binary_remote_addr zone=accounts "fixed-window 1/100d"; }
        location /conn { empty_gif; weir_conn key=conn:$arg_k zone=accounts 1; }
        """
    with Nginx("weir_zone accounts 1m; weir_zone other 1m;", server, workers=2) as nginx, nginx.client() as client:
        def forget(key):
            return client.get(f"/keys?key={key}", method="DELETE")
        check.equal(nginx.statuses(["/a?k=ann"] * 3 + ["/a?k=eve"] * 3), [200, 200, 429] * 2, "two are locked out")
        shown = client.get("/keys?key=account:ann")
        check.equal((shown.status, shown.fields["content-type"], shown.fields["cache-control"]), (200, "application/json", "no-store"), "shown")
        states = {it["limit"]: (it["spent"], it["remaining"]) for it in shown.json["states"]}
        check(abs(shown.json["now"] / 1e6 - time.time()) < 600, f"with the clock that their times are of, in microseconds: {shown.json}")
        check.equal(states, {"sliding-log 2/10w": (2, 0), "fixed-window 9/10w": (2, 7)}, "both limits")
        waits = {it["limit"]: it["retry_after"] for it in shown.json["states"]}
        check(0 < waits["sliding-log 2/10w"] <= 70 * 86400 and waits["fixed-window 9/10w"] == 0, f"when it may try again, in seconds: {waits}")
        check.equal(client.get("/keys?key=account:ann", method="HEAD").status, 200, "HEAD")
        check.equal(nginx.get("/a?k=ann").status, 429, "looking changes nothing")
        answer = forget("account%3Aann")
        check.equal((answer.status, answer.json), (200, {"reset": True}), "forgotten, by another spelling of its bytes")
        check.equal(nginx.statuses(["/a?k=ann"] * 3 + ["/a?k=eve"]), [200, 200, 429, 429], "it begins again, the other one does not")
        check("note" not in shown.json, "nothing of it is in Redis")
        check.equal((forget("account:bob").json, client.get("/keys?key=account:bob").json["states"]), ({"reset": False}, []), "one that is not there")
        check.equal(nginx.statuses(["/ip"] * 2), [200, 429], "an address")
        check.equal(forget("ip:%7F%00%00%01").json, {"reset": True}, "a binary address")
        check.equal(nginx.get("/ip").status, 200, "the address may ask again")
        nginx.statuses(["/conn?k=a"] * 2)
        check.equal(client.get("/keys?key=conn:a").status, 200, "a key of slots")
        log = nginx.errors()
        for line in ('zone "accounts": key "account:ann" is forgotten', 'key "account:bob" was not there'):
            check.contains(log, line, "the log says who was forgotten")
        check.equal(forget("a%0Ab%00").json, {"reset": False}, "control characters")
        check.contains(nginx.errors(), 'key "a\\nb\\u0000" was not there', "they are escaped in the log")
        for query, why in (("", "a key is needed"), ("?", "a key is needed"), ("?key", "must not be empty"), ("?key=", "must not be empty"),
                           ("?kex=a", "unknown argument"), ("?key=a&zone=b", "unknown argument"), ("?key=a&key=b", "given twice"),
                           ("?key=%", "%25"), ("?key=%2", "%25"), ("?key=%zz", "%25")):
            for method in ("GET", "DELETE"):
                answer = client.get("/keys" + query, method=method)
                check.equal((answer.status, answer.json["status"]), (400, 400), f"{method} {query}")
                check.contains(answer.json["detail"], why, f"{method} {query}")
        for method in ("POST", "PUT", "OPTIONS", "PATCH"):
            check.equal(client.get("/keys?key=account:eve", method=method, body=b"x" * 100).status, 405, method)
        check.equal(client.get("/keys?key=" + "x" * 7000).json["states"], [], "a long key")
        answers = client.pipeline([get("/keys?key=account:eve"), get("/keys"), get("/keys?key=account:eve")])
        check.equal([it.status for it in answers], [200, 400, 200], "pipelined")
        check.equal(nginx.get("/a?k=eve").status, 429, "eve is still locked out")


def test_configuration(check):
    for text, message in (("weir_info;", "not allowed here"), ("location / { weir_info on; }", "expected json or prometheus"),
                          ("weir_keys zone=a;", "not allowed here"), ("location / { weir_keys a; }", "expected zone="),
                          ("location / { weir_keys zone=; }", "expected zone="), ("location / { weir_keys zone=nowhere; }", 'zone "nowhere"'),
                          ("location / { weir_keys zone=a; weir_keys zone=a; }", "is duplicate")):
        code, said = Nginx.check("", text)
        check.equal(code, 1, f"{text} is refused")
        check.contains(said, message, text)


if __name__ == "__main__":
    sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
