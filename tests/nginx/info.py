#!/usr/bin/env python3
"""weir_info: what is told of zones, of stores and of the worker."""
import json
import sys

import nginx_server
from nginx_server import Nginx, get
from weir_server import free_port

ZONE_NAMES = """name size keys capacity bytes_per_key limits large_bytes large_used evicted_fresh evicted_unused
    evicted_soonest repairs""".split()
STORE_NAMES = "url state why asked answered unreachable cached_denials queue owed".split()
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
    port = free_port()
    server = INFO + f"""
        location /a {{ weir_limit key=$arg_k zone=z "fixed-window 1/d";
            weir_store redis://:secret@127.0.0.1:{port} deadline=200ms; }}
        """
    with Nginx("weir_zone z 1m;", server, files=FILES) as nginx:
        check.equal(nginx.statuses(["/a?k=a"] * 2), [200, 429], "the zone stands in")

        def stores():
            return nginx.get("/info").json["stores"]
        check(nginx.wait_for(lambda: stores()[0]["why"] != ""), "why it is down is told")
        store = stores()[0]
        check.equal(list(store), STORE_NAMES, "names")
        check.equal(store["state"], "down", "state")
        check.contains(store["url"], f"127.0.0.1:{port}", "its address")
        check("secret" not in json.dumps(store), f"its password is not told: {store}")
        check.equal((store["answered"], store["cached_denials"], store["queue"]), (0, 0, 0), "counts")


def test_configuration(check):
    for text, message in (("weir_info;", "not allowed here"), ("location / { weir_info on; }", "invalid number of")):
        code, said = Nginx.check("", text)
        check.equal(code, 1, f"{text} is refused")
        check.contains(said, message, text)


if __name__ == "__main__":
    sys.exit(nginx_server.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
