#!/usr/bin/env python3
"""Policies over HTTP: what a request says of itself, whom to believe, lists, costs, shadows, names."""
import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from lib import checks, http_client, redis_server, weir_server
from lib.http_client import get
from http_api import asked
from http_wire import problem


POLICIES = """version: 1
headers: ietf
trusted_proxies: [127.0.0.1, 10.0.0.0/8]
tiers: {gold: fixed-window 1000/h}
policies:
  - name: blocked
    deny: [{ip: [203.0.113.0/24, "2001:db8:bad::/48"]}, {header.x-bad: "yes"}]
  - name: api
    match: {path: /api/*}
    key: user
    limit: fixed-window 5/h
    cost: {of: header.x-cost, max: 4}
    overrides: [{when: {user: "gold-*"}, tier: gold}]
    allow: [{header.x-internal: "yes", ip: 10.0.0.0/8}]
  - name: shared
    match: {path: /api/*}
    limits:
      - {name: everybody, key: "'all'", limit: fixed-window 50/h}
      - {name: stricter, key: user, limit: fixed-window 2/h, shadow: true}
  - name: by-address
    match: {path: /ip}
    key: ip
    limit: fixed-window 3/h
  - name: by-method
    match: {path: /m, method: [POST, PUT]}
    key: [host, method]
    limit: fixed-window 3/h
    headers: x-ratelimit
  - name: named
    match: by-name
    key: user
    limit: fixed-window 2/h
    headers: "off"
  - name: pool
    match: by-name
    key: user
    limit: concurrent 2 lease 10s
  - name: listed
    match: by-name
    key: user
    missing: deny
    deny: [{tokens: {absent: true}}]
    limit: concurrent 1 lease 10s
  - name: weighed
    match: {path: /w}
    limits:
      - {name: one, key: user, limit: fixed-window 100/h}
      - {name: ten, key: user, limit: fixed-window 100/m, cost: 10}
  - name: strict
    match: {path: /strict}
    key: user
    missing: deny
    limit: fixed-window 2/h
"""


def keys(answer):
    return [row["key"] for row in answer.json["limits"]]


# ---- who is meant ----

def test_nobody_limits(check):
    """A take without a policy for it is allowed, and counted apart: perhaps its caller forgot the policy's name."""
    with asked(policies=POLICIES) as (_, client):
        for body in ({"attributes": {"user": "ann"}}, {"attributes": {"path": "/api/x"}}, {"policy": "named", "attributes": {"user": "ann"}}):
            client.post("/v1/take", body)
        client.post("/v1/peek", {"attributes": {"user": "ann"}})
        client.post("/v1/take", {"key": "k", "limit": "fixed-window 5/h"})
        client.post("/json", {"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]})
        totals = client.get("/v1/stats").json["totals"]
        check.equal((totals["allowed"], totals["unmatched"]), (5, 2), "what no policy limits, also of Envoy's requests")
        check("\nweir_unmatched_decisions_total 2\n" in client.get("/metrics").body.decode(), "also in the metrics")


def test_verdicts(check):
    with asked(policies=POLICIES) as (_, client):
        none = client.get("/v1/take", attr_path="/nowhere")
        check.equal((none.status, none.json["verdict"], none.json["receipt"]), (200, "none", None), "no policy")
        check("ratelimit" not in none.fields, "and no fields")
        api = client.get("/v1/take", attr_path="/api/x", attr_user="ann", detail=1)
        check.equal((api.json["verdict"], keys(api)),
                    ("limits", ["api/{user=ann}", "shared/everybody/{all}", "shared/stricter/{user=ann}"]), "api")
        check.equal(api.fields["ratelimit"].replace(", ", ","), '"api";r=4;t=2800,"everybody";r=49;t=2800',
                    "shadows are not told of")
        for i in range(4):
            body = client.get("/v1/take", attr_path="/api/x", attr_user="ann", detail=1).json
            check.equal((body["allowed"], body["limits"][2]["allowed"], body["limits"][2]["shadow"]), (True, i < 1, True),
                        "a shadow denies nothing")
        denied = client.get("/v1/take", attr_path="/api/x", attr_user="ann")
        check.equal((denied.status, denied.json["violated-policies"]), (429, ["api"]), "whose limit it was")
        check.equal(denied.json["limit"], 5, "of five")
        gold = client.get("/v1/take", attr_path="/api/x", attr_user="gold-1").json
        check.equal((gold["allowed"], gold["limit"]), (True, 50), "another tier, under everybody's limit")
        blocked = client.get("/v1/take", attr_path="/api/x", attr_user="bob", attr_ip="203.0.113.9")
        check.equal((blocked.status, blocked.json["verdict"], blocked.json["violated-policies"],
                     blocked.json["retry_after"], blocked.fields.get("retry-after")),
                    (403, "deny", ["blocked"], None, None), "a deny list")
        check.equal(client.get("/v1/take", attr_ip="2001:db8:bad::7", deny_status=418).status, 418, "deny_status")
        check.equal(client.get("/v1/take", attr_ip="203.0.114.1").json["verdict"], "none", "not its neighbour")
        check.equal(client.get("/v1/take", {"x-bad": "yes"}).json["verdict"], "deny", "by a header")
        allowed = client.post("/v1/take", {"attributes": {"path": "/api/x", "user": "ann", "ip": "10.1.2.3",
                                                          "header.x-internal": "yes"}, "detail": True})
        check.equal((allowed.status, keys(allowed)), (200, ["shared/everybody/{all}", "shared/stricter/{user=ann}"]),
                    "an allow list lets go of its own policy")
        check.equal(client.get("/v1/take", attr_path="/strict").json["verdict"], "deny", "missing: deny")
        check.equal(client.get("/v1/take", attr_path="/strict", attr_user="x").json["verdict"], "limits", "not missing")


def test_reasons(check):
    """A limit is 429, whatever else refuses is 403; a field and a member say which."""
    policies = POLICIES + """  - name: teapot
    match: {path: /teapot}
    key: user
    missing: deny
    deny: [{user: eve}]
    deny_status: 418
    limit: fixed-window 1/h
"""
    def told(answer):
        return answer.status, answer.fields.get("weir-reason"), answer.json.get("reason"), "type" in answer.json
    with asked(policies=policies) as (_, client):
        allowed = client.get("/v1/take", attr_path="/teapot", attr_user="ann")
        check.equal(told(allowed), (200, None, None, False), "allowed")
        check.equal(told(client.get("/v1/take", attr_path="/teapot", attr_user="ann")), (429, "limit", "limit", True), "a limit")
        check.equal(told(client.get("/v1/take", attr_path="/teapot", attr_user="eve")), (418, "deny", "deny", False),
                    "a deny list, as the policy says")
        check.equal(told(client.get("/v1/take", attr_path="/teapot")), (418, "missing", "missing", False),
                    "a missing attribute, as the policy says")
        check.equal(told(client.get("/v1/take", attr_path="/strict")), (403, "missing", "missing", False), "by default")
        check.equal(told(client.get("/v1/peek", attr_ip="203.0.113.9")), (403, "deny", "deny", False), "peek")
        check.equal(told(client.get("/v1/take", attr_path="/teapot", deny_status=403)), (403, "missing", "missing", False),
                    "the request's own status goes first")
        check.equal(told(client.get("/v1/take", attr_path="/teapot", attr_user="ann", deny_status=403)),
                    (403, "limit", "limit", True), "and the reason still tells")
        for _ in range(2):
            adhoc = client.get("/v1/take", key="k", limit="fixed-window 1/h")
        check.equal(told(adhoc), (429, "limit", "limit", True), "a limit without a policy")
        explained = client.post("/v1/explain", {"attributes": {"path": "/teapot"}})
        check.equal(told(explained), (200, None, "missing", False), "explain")


def test_costs(check):
    def left(client, **more):
        return client.post("/v1/take", {"attributes": {"path": "/api/x", "user": "c", **more.pop("attributes", {})},
                                        **more})
    with asked(policies=POLICIES) as (_, client):
        check.equal(left(client, attributes={"header.x-cost": "2"}).json["remaining"], 3, "the header's cost")
        check.equal(left(client, cost=2).json["remaining"], 1, "the request's own")
        check.equal(left(client, attributes={"header.x-cost": 4}).status, 429, "a number is as good")
        over = left(client, attributes={"header.x-cost": "400"}).json
        check.equal((over["allowed"], over["retry_after"]), (False, 2800000000), "at most 4, which can be had later")
        taken = client.get("/v1/take", {"x-cost": "3"}, attr_path="/api/x", attr_user="d").json
        check.equal(taken["remaining"], 2, "the header of a GET")
        settle = {"attributes": {"path": "/api/x", "user": "d", "header.x-cost": "3"}, "receipt": taken["receipt"]}
        check.equal(client.post("/v1/settle", {**settle, "actual": 1}).json, {"settled": True}, "settled by policy")
        body = client.get("/v1/peek", attr_path="/api/x", attr_user="d", detail=1).json
        check.equal([row["remaining"] for row in body["limits"][:2]], [4, 46], "in every limit, by what each was charged")
        forged = {**settle, "receipt": taken["receipt"][:-4] + "AAAA"}
        problem(check, client.post("/v1/settle", {**forged, "actual": 0}), 400, "receipt", "a forged receipt")
        problem(check, client.post("/v1/settle", {**settle, "attributes": {"path": "/api/x", "user": "e"}, "actual": 0}),
                400, "receipt", "another user's receipt")
        check.equal(client.post("/v1/reset", {"attributes": {"path": "/api/x", "user": "d"}}).status, 200, "reset")
        body = client.get("/v1/peek", attr_path="/api/x", attr_user="d", detail=1).json
        check.equal([row["remaining"] for row in body["limits"][:2]], [5, 50], "of all its keys")


def test_own_costs(check):
    """Entries that cost differently are each corrected by what they were charged."""
    with asked(policies=POLICIES) as (_, client):
        def left():
            return [row["remaining"] for row in client.get("/v1/peek", attr_path="/w", attr_user="u", detail=1).json["limits"]]
        for cost, after in (({}, [95, 95]), ({"cost": 7}, [90, 90])):
            body = {"attributes": {"path": "/w", "user": "u"}, **cost}
            before, taken = left(), client.post("/v1/take", body).json
            charged = cost.get("cost")
            check.equal(left(), [before[0] - (charged or 1), before[1] - (charged or 10)], f"charged, {cost}")
            settled = client.post("/v1/settle", {**body, "receipt": taken["receipt"], "actual": 5})
            check.equal((settled.status, left()), (200, after), f"settled, {cost}")


def test_leases_by_policy(check):
    ann = {"policy": "pool", "key": "ann"}
    with asked(policies=POLICIES) as (_, client):
        leases = [client.post("/v1/acquire", ann) for _ in range(3)]
        check.equal([answer.status for answer in leases], [200, 200, 429], "two of two")
        lease = {"lease": leases[0].json["lease"]}
        check.equal(client.post("/v1/renew", {**ann, **lease}).json, {"renewed": True}, "renewed")
        check.equal(client.post("/v1/release", {**ann, "key": "bob", **lease}).status, 404, "another's")
        check.equal(client.post("/v1/release", {**ann, **lease}).json, {"released": True}, "released")
        check.equal(client.post("/v1/release", {**ann, **lease}).status, 404, "once")
        check.equal(client.post("/v1/acquire", ann).status, 200, "room again")
        problem(check, client.post("/v1/acquire", {"policy": "named", "key": "x"}), 400, "concurrent", "no leases there")
        problem(check, client.post("/v1/take", ann), 400, "acquire", "a take, by policy")
        problem(check, client.get("/v1/take", **ann, wait="1s"), 400, "acquire", "a take that waits, by policy")
        check.equal(client.post("/v1/peek", ann).json["remaining"], 0, "a peek is answered, and nothing was taken")


def test_exempt_leases(check):
    """An acquire that an allow list exempts holds no slot, and has a lease like all others, so that callers need no second way."""
    policies = """version: 1
policies:
  - {name: pool, key: user, limit: concurrent 1 lease 1m, allow: [{team: ops}]}
  - {name: strict, key: org, limit: concurrent 1 lease 1m}
"""
    ann = {"policy": "pool", "attributes": {"user": "ann", "team": "ops"}}
    both = {"attributes": {"user": "bob", "team": "ops", "org": "acme"}}
    with asked(policies=policies) as (_, client):
        got = [client.post("/v1/acquire", ann) for _ in range(3)]
        check.equal([(it.status, it.json["lease"] > 0) for it in got], [(200, True)] * 3, "exempt")
        for verb in ("renew", "release", "release"):
            check.equal(client.post(f"/v1/{verb}", {**ann, "lease": got[0].json["lease"]}).status, 200, f"{verb} of it")
        enforced = {"policy": "pool", "attributes": {"user": "ann"}}
        held = client.post("/v1/acquire", enforced)
        check.equal((held.status, client.post("/v1/acquire", enforced).status), (200, 429), "the exempt ones held nothing")
        check.equal(client.post("/v1/renew", {**enforced, "lease": got[1].json["lease"]}).status, 404, "exempt no longer")
        check.equal(client.post("/v1/release", {**ann, "lease": held.json["lease"]}).json, {"released": True}, "exempt by now")
        check.equal(client.post("/v1/acquire", enforced).status, 200, "room again")
        held = client.post("/v1/acquire", both)
        check.equal((held.status, client.post("/v1/acquire", both).status), (200, 429), "another policy still limits it")
        lease = {**both, "lease": held.json["lease"]}
        check.equal([client.post(f"/v1/{verb}", lease).status for verb in ("renew", "release", "renew")], [200, 200, 404], "its slot")


def test_exempt_with_less(check):
    """What an allow list exempts from a policy needs nothing of it, to hold a slot of another one and to give it back."""
    policies = """version: 1
policies:
  - {name: tenant, key: tenant, missing: deny, limit: concurrent 1 lease 1m, allow: [{team: ops}]}
  - {name: paid, key: user, cost: tokens, limit: token-bucket 10/s, allow: [{team: ops}]}
  - {name: net, key: ip(net), limit: token-bucket 10/s, allow: [{team: ops}]}
  - {name: pool, match: {path: /pool}, key: user, limit: concurrent 1 lease 1m}
"""
    with asked(policies=policies) as (_, client):
        for more in ({}, {"tokens": "many"}, {"net": "no address"}):
            for path in ("/pool", "/free"):
                ann = {"attributes": {"path": path, "user": "ann", "team": "ops", **more}}
                held = client.post("/v1/acquire", ann)
                lease = {**ann, "lease": held.json.get("lease")}
                done = [client.post(f"/v1/{verb}", lease).status for verb in ("renew", "release")]
                check.equal((held.status, done), (200, [200, 200]), f"{path}, {more}")
        problem(check, client.post("/v1/release", {"attributes": {"path": "/pool", "user": "ann"}, "lease": 1}), 400,
                "send all attributes", "not exempt")


def test_refused_leases(check):
    """What a deny list or missing: deny refuses is refused with 403 as in take; who holds a lease can always release it."""
    whole = {"policy": "listed", "attributes": {"user": "ann", "tokens": "5"}}
    with asked(policies=POLICIES) as (_, client):
        for name, attributes, reason in (("no tokens", {"user": "ann"}, "deny"), ("no key", {"tokens": "5"}, "missing")):
            answer = client.post("/v1/acquire", {"policy": "listed", "attributes": attributes})
            check.equal((answer.status, answer.fields.get("weir-reason")), (403, reason), f"acquire: {name}")
        held = client.post("/v1/acquire", whole)
        check.equal((held.status, client.post("/v1/acquire", whole).status), (200, 429), "the refused ones held nothing")
        lease = {"policy": "listed", "lease": held.json["lease"]}
        check.equal(client.post("/v1/renew", {**lease, "attributes": {"user": "ann"}}).json, {"renewed": True}, "renewed past the list")
        problem(check, client.post("/v1/release", {**lease, "attributes": {"tokens": "5"}}), 400, "send all attributes", "whose?")
        check.equal(client.post("/v1/release", {**lease, "attributes": {"user": "ann"}}).json, {"released": True}, "released past the list")
        check.equal(client.post("/v1/acquire", whole).status, 200, "room again")
        problem(check, client.post("/v1/take", {"attributs": {"user": "ann"}}), 400, 'unknown member "attributs": did you mean attributes?', "mistyped")
        problem(check, client.post("/v1/take", {"user": None}), 400, 'unknown member "user"', "mistyped, null")
        problem(check, client.post("/v1/take", {"key": {}}), 400, "cannot be an object", "a key that is an object")


def test_by_name(check):
    with asked(policies=POLICIES) as (_, client):
        first = client.post("/v1/take", {"policy": "named", "key": "ann", "detail": True})
        check.equal((first.json["remaining"], keys(first)), (1, ["named/{user=ann}"]), "by name and key")
        check("ratelimit" not in first.fields and "x-ratelimit-limit" not in first.fields, "its headers are off")
        check.equal(client.get("/v1/take", policy="named", key="ann").json["remaining"], 0, "by GET")
        check.equal(client.get("/v1/take", policy="named", attr_user="ann").status, 429,
                    "a key that a caller gives is the attribute's")
        check.equal(client.get("/v1/take", policy="named", key="ann", headers="ietf").fields.get("retry-after"), "2800",
                    "the request's own style")
        check.equal(client.post("/v1/reset", {"policy": "named", "key": "ann"}).json, {"reset": True}, "reset by name")
        check.equal(client.post("/v1/reset", {"policy": "named", "key": "ann"}).json, {"reset": False}, "once")
        check.equal(client.get("/v1/peek", policy="named", key="ann").json["remaining"], 2, "is a fresh start")
        explained = client.post("/v1/explain", {"policy": "named", "key": "ann"}).json
        check(explained["verdict"] == "limits" and explained["limits"][0]["meaning"], "explained")
        check.equal(client.get("/v1/peek", policy="named", key="ann").json["remaining"], 2, "without a charge")
        problem(check, client.get("/v1/take", policy="nobody", key="k"), 400, "nobody", "no such policy")
        problem(check, client.post("/v1/take", {"key": "k"}), 400, "limit or a policy", "a key alone")
        check.equal(client.get("/v1/take", policy="blocked", attr_ip="203.0.113.1").json["verdict"], "deny",
                    "a deny list by its name")
        problem(check, client.post("/v1/reset", {}), 400, "", "a reset of nothing")
        problem(check, client.post("/v1/settle", {"receipt": "w2-1-1-xxxxxxxxxxx", "actual": 1}), 400, "",
                "a receipt of nothing")


def test_given_keys(check):
    """policy and key name the state that the policy's own requests are charged to, or are refused."""
    with asked(policies=POLICIES) as (_, client):
        client.get("/v1/take", attr_path="/ip", attr_ip="192.0.2.9")
        key = {"policy": "by-address", "key": "192.0.2.9"}
        for verb in ("peek", "explain"):
            body = client.post("/v1/" + verb, {**key, "detail": True}).json
            check.equal((body["remaining"], body["limits"][0]["key"]), (2, "by-address/{ip=192.0.2.9}"), verb)
        check.equal(client.post("/v1/reset", key).json, {"reset": True}, "reset: it was there")
        check.equal(client.get("/v1/peek", attr_path="/ip", attr_ip="192.0.2.9").json["remaining"], 3, "and is not any more")
        check.equal(client.post("/v1/reset", key).json, {"reset": False}, "reset: nothing is there")
        for verb in ("take", "peek", "explain", "reset"):
            problem(check, client.post("/v1/" + verb, {"policy": "by-method", "key": "ann"}), 400, "host, method",
                    f"{verb}: what the key is made of")
            problem(check, client.post("/v1/" + verb, {**key, "key": "ann"}), 400, "not an address", f"{verb}: no address")


def test_resets(check):
    """Whether there was anything to forget: over HTTP, RESP and by the command."""
    with asked("--test-clock --store file:zone?size=1m") as (server, client), server.client() as resp:
        limit = {"key": "k", "limit": "token-bucket 1/s burst 5"}
        client.post("/v1/take", limit)
        check.equal([client.post("/v1/reset", {"key": "k"}).json["reset"] for _ in range(2)], [True, False], "HTTP")
        client.post("/v1/take", limit)
        check.equal([resp.call("WEIR.RESET", "k") for _ in range(2)], [1, 0], "RESP")
        client.post("/v1/take", limit)
        client.post("/v1/clock", {"now": 1700000002})
        check.equal(resp.call("WEIR.RESET", "k"), 0, "a state that is as new is nothing")
        client.post("/v1/take", limit)
        words = [weir_server.WEIR, "reset", "k", "--store", f"file:{server.folder}/zone", "--json"]
        said = [json.loads(subprocess.run(words, capture_output=True, text=True).stdout)["reset"] for _ in range(2)]
        check.equal(said, [False, False], "the command: by the real clock it is as new")
        client.post("/v1/take", {"key": "k", "limit": "fixed-window 5/d from-first"})
        client.post("/v1/clock", {"now": int(time.time())})
        client.post("/v1/take", {"key": "k", "limit": "fixed-window 5/d from-first"})
        done = [subprocess.run(words[:-1], capture_output=True, text=True) for _ in range(2)]
        said = [it.stdout for it in done]
        check(said[0].startswith("reset: k") and said[1].startswith("nothing to reset: k"), f"the command: {said}")
        check.equal([it.returncode for it in done], [0, 1], "its exit codes: scripts see that there was nothing")


def test_resets_in_redis(check):
    """The same with the states in Redis, by scripts."""
    with redis_server.Server() as redis, asked(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as (server, client), \
            server.client() as resp:
        for ask in (lambda: client.post("/v1/reset", {"key": "k"}).json["reset"], lambda: resp.call("WEIR.RESET", "k") == 1):
            client.post("/v1/take", {"key": "k", "limit": "fixed-window 5/366d"})
            check.equal([ask() for _ in range(2)], [True, False], "whether it was there")


def test_rows(check):
    """Limits that clients make up do not take the policies' places in a small store."""
    with asked("--test-clock --store memory:256k", policies=POLICIES) as (_, client):
        asks = [get("/v1/take", key=f"k{i}", limit=f"fixed-window {i + 10}/d") for i in range(200)]
        statuses = [answer.status for answer in client.pipeline(asks)]
        check(statuses.count(429) > 100, f"no rows are left: {statuses.count(429)} of {len(statuses)}")
        for path, more in (("/ip", {"attr_ip": "192.0.2.1"}), ("/api/x", {"attr_user": "ann"}), ("/api/x", {"attr_user": "gold-1"}),
                           ("/w", {"attr_user": "ann"}), ("/strict", {"attr_user": "ann"})):
            check.equal(client.get("/v1/take", attr_path=path, **more).status, 200, f"{path} {more}: the policy's own limit")
        check.equal(client.post("/v1/acquire", {"policy": "pool", "key": "ann"}).status, 200, "leases")
    many = "version: 1\npolicies:\n" + "".join(
        f"  - {{name: p{i}, key: ip, limit: fixed-window {i + 1}/h}}\n" for i in range(65))
    code, said = weir_server.refused(f"--listen 127.0.0.1:0 --store memory:256k --policies {write_policies(many)}")
    check(code not in (0, None) and "65 different limits" in said and "rows for 64" in said, f"too many: {code} {said}")
    with asked("--store memory:256k --no-watch", policies=POLICIES) as (server, client):
        server.write("policies.yaml", many)
        problem(check, client.post("/v1/reload"), 409, "rows for 64", "too many, by a reload")
        check.equal(client.get("/v1/take", attr_path="/ip", attr_ip="192.0.2.1").status, 200, "nothing changed")


def test_hashed_keys(check):
    """hash(NAME): logs, rankings and answers have a hash in place of the value, and an operator can find it."""
    policies = "version: 1\npolicies:\n  - {name: partners, key: hash(header.x-api-key), limit: fixed-window 3/366d}\n"
    secret = "k-8f2a-very-secret"
    found = []
    with weir_server.Server("--store file:zone --access-log log", policies=policies) as server:
        for _ in range(2):  # a restart changes nothing
            with http_client.Client(server.port) as client:
                taken = client.ask(get("/v1/take", {"x-api-key": secret}, detail=1))
                explained = client.post("/v1/explain", {"policy": "partners", "key": secret})
                top = client.get("/v1/top")
                found += [taken.json["limits"][0]["key"], explained.json["limits"][0]["key"],
                          top.json["policies"][0]["hottest"][0]["key"]]
                left = explained.json["remaining"]
                check(secret.encode() not in taken.body + explained.body + top.body, "the value is nowhere told")
            words = [weir_server.WEIR, "explain", "--server", server.url(), "--policy", "partners", "--key", secret]
            done = subprocess.run(words, capture_output=True, text=True)
            check.contains(done.stdout, found[0], f"weir explain --server: {done.stderr}")
            server.stop()
            server.start()
        check.equal(left, 1, "both were charged to one key")
        check(len(set(found)) == 1 and re.fullmatch(r"partners/\{hash\(header\.x-api-key\)=[0-9a-f]{16}\}", found[0]),
              f"one key, by its hash: {set(found)}")
        log = (server.folder / "log").read_text()
        check(found[0] in log and secret not in log, f"the log: {log}")
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/reset", {"policy": "partners", "key": secret}).json, {"reset": True}, "reset")
    with weir_server.Server("--store memory:1m", policies=policies) as server, http_client.Client(server.port) as client:
        other = client.post("/v1/explain", {"policy": "partners", "key": secret}).json["limits"][0]["key"]
        check(other != found[0], "another zone, another secret")
    words = f"--listen 127.0.0.1:0 --store redis://127.0.0.1:1 --policies {write_policies(policies)}"
    code, said = weir_server.refused(words)
    check(code not in (0, None) and "WEIR_RECEIPT_SECRET" in said, f"Redis without a secret: {code} {said}")
    given = []
    for _ in range(2):
        with weir_server.Server("--store redis://127.0.0.1:1", policies=policies, env={"WEIR_RECEIPT_SECRET": "s3"}) as server, \
                http_client.Client(server.port) as client:
            given.append(client.post("/v1/explain", {"policy": "partners", "key": secret}).json["limits"][0]["key"])
    check(given[0] == given[1] != found[0], f"with one, all servers have the same keys: {given}")
    done = subprocess.run([weir_server.WEIR, "check", "-", "--request", f"header.x-api-key={secret}"], input=policies,
                          capture_output=True, text=True)
    check.contains(done.stdout, "partners/{hash(header.x-api-key)=?}", "weir check has no secret")


def write_policies(text):
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
    with file:
        file.write(text)
    atexit.register(os.unlink, file.name)
    return file.name


def test_attributes(check):
    """Several attributes, long ones, escaped ones: each is what was sent."""
    policies = """version: 1
policies:
  - {name: a, key: user, limit: fixed-window 5/h}
  - {name: b, key: tenant, limit: fixed-window 5/h}
  - {name: c, key: [user, tenant, plan], limit: fixed-window 5/h}
  - {name: d, key: user, limit: fixed-window 5/m}
  - {name: e, key: lower(header.x-Tenant), limit: fixed-window 5/m}
"""
    with asked(policies=policies) as (_, client):
        ann, tenant = "user=ann%20smith", "tenant=t/9&%3D"  # what means something in keys is escaped
        wanted = [f"a/{{{ann}}}", f"b/{{{tenant}}}", f"c/{{{ann},{tenant},plan=p}}", f"d/{{{ann}}}"]
        query = {"attr_user": "ann smith", "attr_tenant": "t/9&=", "attr_plan": "p", "detail": 1}
        check.equal(keys(client.get("/v1/take", **query))[:4], wanted, "in a query")
        backwards = dict(reversed(query.items()))
        check.equal(keys(client.get("/v1/take", **backwards))[:4], wanted, "in another order")
        padded = {"attr_pad": "x" * 3000, **query, "attr_more": "y" * 1000}
        check.equal(keys(client.get("/v1/take", **padded))[:4], wanted, "among long ones")
        body = {"attributes": {name[5:]: value for name, value in query.items() if name.startswith("attr_")}}
        check.equal(keys(client.post("/v1/take", {**body, "detail": True}))[:4], wanted, "in JSON")
        pipeline = [get("/v1/take", attr_user=f"u{i}", attr_tenant=f"t{i}" * 50, attr_plan=i, detail=1)
                    for i in range(200)]
        check.equal([keys(answer)[3] for answer in client.pipeline(pipeline, 200)],
                    [f"d/{{user=u{i}}}" for i in range(200)], "in a pipeline")
        long = [keys(client.get("/v1/take", attr_user="u" * 3000 + end, detail=1))[0] for end in "ab"]
        check(long[0] != long[1] and all(len(key) < 300 for key in long), f"long values have short keys: {long}")
        header = client.get("/v1/take", {"X-TENANT": "AcMe"}, attr_user="h", detail=1)
        check.equal(keys(header)[-1], "e/{lower(header.x-tenant)=acme}", "a header, whatever its case")
        unsaid = client.post("/v1/take", {"detail": True, "attributes": {}}, {"x-tenant": "acme"})
        check.equal(unsaid.json["verdict"], "none", "JSON brings its own attributes, not the connection's")
        empty = client.get("/v1/take", attr_user="", detail=1)
        check(empty.status in (200, 400), f"an empty value: {empty.body}")


# ---- whom to believe ----

def forwarded(client, fields, path="/ip", **query):
    return client.ask(get("/v1/take", fields, detail=1, **({"attr_path": path} if path else {}), **query))


def test_trusted(check):
    """A trusted peer speaks for others; the client's address is the last that no trusted proxy has."""
    with asked(policies=POLICIES) as (_, client):
        cases = [
            ({}, "127.0.0.1", "nothing said: the peer itself"),
            ({"x-forwarded-for": "198.51.100.7"}, "198.51.100.7", "one hop"),
            ({"x-forwarded-for": "6.6.6.6, 198.51.100.7"}, "198.51.100.7", "what the client put there is not believed"),
            ({"x-forwarded-for": "6.6.6.6, 198.51.100.7, 10.1.2.3"}, "198.51.100.7", "trusted hops are passed over"),
            ({"x-forwarded-for": "6.6.6.6,198.51.100.7 ,10.1.2.3,10.9.9.9"}, "198.51.100.7", "odd blanks"),
            ([("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.7")], "198.51.100.7", "two lines"),
            ([("x-forwarded-for", "6.6.6.6, 198.51.100.7"), ("x-forwarded-for", "10.1.1.1")], "198.51.100.7",
             "two lines, the last all trusted"),
            ({"x-forwarded-for": "2001:db8::1"}, "2001:db8::/64", "IPv6, by its network"),
            ({"x-real-ip": "198.51.100.8"}, "198.51.100.8", "X-Real-IP"),
            ({"x-forwarded-for": "198.51.100.7", "x-real-ip": "198.51.100.8"}, "198.51.100.7", "both"),
            ({"x-forwarded-for": "10.0.0.1, 10.0.0.2"}, "10.0.0.1", "all trusted: the first of them"),
        ]
        for fields, wanted, what in cases:
            answer = forwarded(client, fields)
            check.equal(keys(answer), [f"by-address/{{ip={wanted}}}"], what)
        strange = forwarded(client, {"x-forwarded-for": "unknown, , "})
        check(strange.status in (200, 400), f"nonsense: {strange.body}")
        fields = {"x-forwarded-uri": "/m?q=1", "x-forwarded-method": "PUT", "x-forwarded-host": "shop.example"}
        answer = forwarded(client, fields, path=None)
        check.equal(keys(answer), ["by-method/{host=shop.example,method=PUT}"], "the proxy's request, not ours")
        check("x-ratelimit-limit" in answer.fields, "in the policy's style")
        fields = {"x-original-uri": "/api/z", "x-forwarded-user": "ann"}
        check.equal(keys(forwarded(client, fields, path=None))[0], "api/{user=ann}", "X-Original-URI and a user")
        for name in ("remote-user", "x-remote-user"):
            check.equal(keys(forwarded(client, {"x-original-uri": "/api/z", name: "bob"}, path=None))[0],
                        "api/{user=bob}", name)
        blocked = forwarded(client, {"x-forwarded-for": "203.0.113.77"})
        check.equal(blocked.json["verdict"], "deny", "a deny list knows the client behind the proxy")
        for source, wanted in (("ip", "198.51.100.7"), ("header.x-api-key", "secret"), ("host", "shop.example"),
                               ("method", "PUT"), ("path", "/m"), ("user", "ann")):
            fields = {"x-forwarded-for": "198.51.100.7", "x-api-key": "secret", "x-forwarded-host": "shop.example",
                      "x-forwarded-method": "PUT", "x-forwarded-uri": "/m?x", "x-forwarded-user": "ann"}
            client.ask(get("/v1/take", fields, key_from=source, limit="fixed-window 9/h"))
            left = client.get("/v1/peek", key=wanted, limit="fixed-window 9/h").json["remaining"]
            check.equal(left, 8, f"key_from={source}")


def test_untrusted(check):
    """Nobody else does."""
    policies = POLICIES.replace("trusted_proxies: [127.0.0.1, 10.0.0.0/8]", "trusted_proxies: [10.0.0.0/8]")
    fields = {"x-forwarded-for": "198.51.100.7", "x-real-ip": "198.51.100.8", "x-forwarded-uri": "/api/x",
              "x-forwarded-user": "ann", "x-forwarded-host": "shop.example", "x-forwarded-method": "PUT"}
    for text in (policies, "\n".join(line for line in POLICIES.split("\n") if "trusted" not in line)):
        with asked(policies=text) as (_, client):
            check.equal(keys(forwarded(client, fields)), ["by-address/{ip=127.0.0.1}"], "the peer's address")
            check.equal(client.ask(get("/v1/take", fields)).json["verdict"], "none", "the request's own path")
            missing = client.ask(get("/v1/take", fields, key_from="user", limit="fixed-window 9/h"))
            problem(check, missing, 400, "key_from", "no user by hearsay")
            client.ask(get("/v1/take", fields, key_from="host", limit="fixed-window 9/h"))
            left = client.get("/v1/peek", key="localhost", limit="fixed-window 9/h").json["remaining"]
            check.equal(left, 8, "key_from=host is the request's own")


def test_told_exceptions(check):
    """Overrides and lists are told in the words of weir check, of each the first ten, and how many there are."""
    shown = 10
    text = POLICIES.replace('overrides: [{when: {user: "gold-*"}, tier: gold}]',
                            'overrides: [{when: {user: "gold-*"}, tier: gold}, {when: {ip: 10.0.0.0/8, host: [a, b]}, limit: fixed-window 7/h}]')
    odd = json.dumps('say "hi" \\\\ ü\u3042\t' * 100)
    many = [(f"{{user: {odd}, header.x-n: n{i}}}", f"fixed-window {i + 1}/h") for i in range(shown + 2)]
    text += "".join(f"""  - name: many{i}
    match: {{header.x-odd: {odd}}}
    deny: [{", ".join(when for when, _ in many)}]
    allow: [{", ".join(when for when, _ in many[:shown])}]
    key: user
    limit: fixed-window 5/h
    overrides: [{", ".join(f"{{when: {when}, limit: {limit}}}" for when, limit in many)}]
""" for i in range(20))
    done = subprocess.run([weir_server.WEIR, "check", "--json", "-"], input=text, capture_output=True, text=True)
    wanted = json.loads(done.stdout)["policies"]
    with asked(policies=text) as (_, client):
        told = client.get("/v1/policies").json["policies"]
    check.equal([it["name"] for it in told], [it["name"] for it in wanted], "all policies")
    for policy, known in zip(told, wanted):
        for name in ("deny", "allow"):
            check.equal((policy[name], policy[f"{name}_count"]), (known[name][:shown], len(known[name])), f"{name} of {policy['name']}")
        for limit, its in zip(policy["limits"], known["limits"]):
            overrides = [{"when": it["when"], "limit": it["limit"]} for it in its["overrides"]]
            check.equal((limit["overrides"], limit["override_count"]), (overrides[:shown], len(overrides)), f"of {policy['name']}")
    blocked, api, last = told[0], told[1], told[-1]
    check.equal(blocked["deny"], ["ip is 203.0.113.0/24 or 2001:db8:bad::/48", "header.x-bad is yes"], "a deny list")
    check.equal(api["allow"], ["header.x-internal is yes and ip is 10.0.0.0/8"], "an allow list")
    check.equal(api["limits"][0]["overrides"], [{"when": "user is gold-*", "limit": "fixed-window 1000/h"},
                                                {"when": "ip is 10.0.0.0/8 and host is a or b", "limit": "fixed-window 7/h"}],
                "overrides, also of a tier")
    check.equal((len(last["deny"]), last["deny_count"], len(last["allow"]), last["allow_count"]), (shown, shown + 2, shown, shown), "long lists")
    check(last["deny"][0].endswith("…"), "long words are cut")


def test_exemptions_are_counted(check):
    """A match of an allow list counts, also where other policies have limits for the request."""
    text = """version: 1
policies:
  - {name: free, match: {path: /api}, allow: [{user: root}], key: user, limit: token-bucket 1000/s}
  - {name: also, match: {path: /api}, allow: [{user: root}], key: user, limit: token-bucket 1000/s}
  - {name: limited, match: {path: /api}, key: user, limit: token-bucket 1000/s}
  - {name: shut, match: {path: /api}, deny: [{user: evil}], key: user, limit: token-bucket 1000/s}
"""
    with weir_server.Server("--threads 1", policies=text) as server, http_client.Client(server.port) as client:
        for user, times in (("root", 3), ("ann", 2), ("evil", 1)):
            for _ in range(times):
                client.post("/v1/take", {"attributes": {"path": "/api", "user": user}})
        lines = client.get("/metrics").body.decode().splitlines()
        found = {policy: [line for line in lines if f'policy="{policy}"' in line and "list" in line]
                 for policy in ("free", "also", "limited", "shut")}
        counts = {policy: sum(float(line.rsplit(" ", 1)[1]) for line in its) for policy, its in found.items()}
        check.equal(counts, {"free": 3, "also": 3, "limited": 0, "shut": 1}, f"{found}")
        client.post("/v1/take", {"policy": "free", "attributes": {"user": "root"}})
        lines = client.get("/metrics").body.decode().splitlines()
        count = sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'policy="free"' in line and "list" in line)
        check.equal(count, 4, "and alone")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
