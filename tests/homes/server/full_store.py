#!/usr/bin/env python3
"""A store with full=deny that has no room for another key. Every protocol answers with a denial of its own reason, not
with a failure: clients and proxies often take a failure of their limiter for a yes. Keys that are there go on as before.

    tests/homes/server/full_store.py [NAME …]
"""
import re
import sys

from lib import checks, http_client, resp, weir_server

LIMIT = "fixed-window 2/d from-first"
KEYS = 20_000
POLICIES = """version: 1
policies:
  - {name: open, match: {path: /open}, key: user, fail: open, limit: fixed-window 2/d from-first}
  - {name: two, match: {path: /two}, key: user, limits: [{name: day, limit: fixed-window 2/d from-first},
                                                         {name: hour, limit: token-bucket 9/h}]}
"""
RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {name: users, unit: day, requests_per_unit: 2}
"""
STORE = "--threads 1 --store memory:64k?full=deny"


def fill(server, limit=LIMIT):
    """Keys until the store is full; those that it refused."""
    with resp.Client(server.port) as client:
        answers = client.pipeline([("WEIR.TAKE", f"key {i}", limit) for i in range(KEYS)])
    assert all(isinstance(it, list) for it in answers), "no errors"
    return [i for i, it in enumerate(answers) if it[0] == 0]


def metric(server, name):
    with http_client.Client(server.port) as client:
        text = client.get("/metrics").body.decode()
    return sum(float(it) for it in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))


def test_http(check):
    with weir_server.Server(STORE, policies=POLICIES) as server:
        refused = fill(server)
        check(1000 < len(refused) < KEYS - 1000, f"some are refused: {len(refused)}")
        with http_client.Client(server.port) as client:
            for path, body in (("/v1/take", {"key": f"key {refused[0]}", "limit": LIMIT}),
                               ("/v1/take", {"key": f"key {refused[0]}", "limit": LIMIT + ", token-bucket 5/h"}),
                               ("/v1/takeall", {"requests": [{"key": "key 0", "limit": LIMIT},
                                                             {"key": f"key {refused[0]}", "limit": LIMIT}]})):
                answer = client.post(path, body)
                check.equal(answer.status, 429, f"{path}: {answer}")
                check.equal(answer.fields.get("weir-reason"), "full", f"{path}: the reason")
                check.equal((answer.json["allowed"], answer.json["reason"], answer.json["receipt"]), (False, "full", None), path)
                check(int(answer.fields["retry-after"]) > 80_000, f"{path}: when there is room: {answer.fields}")
            peek = client.get("/v1/peek", key="key 0", limit=LIMIT)
            check.equal(peek.json["remaining"], 1, "what was there was charged once, not by the group")
            check.equal(client.post("/v1/take", {"key": "key 0", "limit": LIMIT}).status, 200, "a key that is there")
            denied = client.post("/v1/take", {"key": "key 0", "limit": LIMIT})
            check.equal((denied.status, denied.json["reason"]), (429, "limit"), "and its limit")
            settled = client.post("/v1/settle", {"key": f"key {refused[0]}", "limit": LIMIT, "receipt": "w3-1-1-1", "actual": 2})
            check(settled.status >= 400, f"settle is not a decision: {settled}")


def test_policies(check):
    """fail: open is for a store that cannot be reached. A store that is full is reached."""
    with weir_server.Server(STORE, policies=POLICIES) as server:
        refused = fill(server)
        with http_client.Client(server.port) as client:
            answers = [client.post("/v1/take", {"attributes": {"path": path, "user": f"new {i}"}})
                       for i in range(300) for path in ("/open", "/two")]
            full = [it for it in answers if it.status == 429]
            check(len(full) > 200, f"most are refused: {len(full)} of 600, and {len(refused)} before")
            check(all(it.fields["weir-reason"] == "full" and not it.json["degraded"] for it in full), "each with that reason")
            check(metric(server, "weir_zone_refused_total") > 0, "they are counted")
            zone = client.get("/v1/stats").json["zone"]
            check(zone["refused"] > len(refused), f"/v1/stats: {zone}")
            check.equal(zone["evicted_unused"] + zone["evicted_soonest"], 0, "nobody was forgotten")


def test_large(check):
    """Logs have an area of their own. Who finds no room in it is told when the first log ends, and is counted."""
    for limit in ("sliding-log 5/m", "sliding-window 5/m"):
        with weir_server.Server(STORE) as server, resp.Client(server.port) as client:
            answers = client.pipeline([("WEIR.TAKE", f"key {i}", limit) for i in range(KEYS // 10)])
            full = [it for it in answers if it[0] == 0]
            check(len(full) > KEYS // 20, f"{limit}: most are refused: {len(full)}")
            check(all(1_000_000 <= it[3] <= 60_000_000 for it in full), f"{limit}: until the first ends: {max(it[3] for it in full)} us")
            check.equal(metric(server, "weir_zone_refused_total"), len(full), f"{limit}: all are counted")


def test_resp(check):
    with weir_server.Server(STORE) as server:
        key = f"key {fill(server)[0]}"
        with resp.Client(server.port) as client:
            taken = client.call("WEIR.TAKE", key, LIMIT)
            check.equal(taken[:3] + taken[4:6], [0, 2, 0, 0, 0], "WEIR.TAKE: denied, nothing is left, there is no state")
            check(taken[3] > 80_000_000_000, f"WEIR.TAKE: when there is room: {taken}")
            check.equal(client.call("WEIR.ACQUIRE", key, "concurrent 2, " + LIMIT)[0], 0, "WEIR.ACQUIRE")
            check.equal(client.call("WEIR.TAKEALL", 2, "key 0", LIMIT, 1, key, LIMIT, 1)[0], 0, "WEIR.TAKEALL")
            check.equal(client.call("CL.THROTTLE", key, 15, 30, 60)[0], 1, "CL.THROTTLE: limited")
            check.equal(client.call("WEIR.PEEK", "key 0", LIMIT)[2], 1, "what was there is untouched")


def test_envoy(check):
    files = {"rules.yaml": RULES}
    with weir_server.Server(STORE + " --envoy rules.yaml", files=files) as server:
        fill(server)
        with http_client.Client(server.port) as client:
            answers = [client.post("/json", {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": f"u{i}"}]}]})
                       for i in range(200)]
        over = [it for it in answers if it.json["overallCode"] == "OVER_LIMIT"]
        check(len(over) > 100, f"most are over: {len(over)}")
        check(all(it.status == 429 for it in over), "POST /json: 429")
        check(all({"key": "weir-reason", "value": "full"} in it.json["responseHeadersToAdd"] for it in over),
              f"with the reason: {over[0].json if over else None}")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
