#!/usr/bin/env python3
"""Token budgets: requests, tokens and slots of a user within an organisation within everybody, in one decision.

Many clients ask at the same time for more than there is and take what is granted. What they are granted never comes to
more than any limit has, and after settling each limit was charged exactly what was used. Over HTTP and RESP, with limits
in the request and with policies.
"""
import random
import sys
import threading
import time

from lib import checks, http_client, redis_server, weir_server

CLIENTS, ROUNDS = 50, 6
TOKENS = 100_000
POLICIES = """version: 1
policies:
  - name: named
    match: {path: /named}
    headers: openai
    limits:
      - {name: requests, key: user, limit: fixed-window 60/366d}
      - {name: tokens, key: user, limit: fixed-window 500/366d, cost: {of: tokens}, least: 1}
      - {name: tokens-org, key: org, limit: token-bucket 100/s, cost: {of: tokens}, least: 1}
  - name: llm
    match: {path: /v1/chat}
    limits:
      - {name: requests, key: user, limit: fixed-window 1000/366d}
      - {name: user, key: user, limit: fixed-window 60k/366d, cost: {of: tokens, default: 500}, least: {of: enough, default: 100}}
      - {name: org, key: org, limit: fixed-window 100k/366d, cost: {of: tokens, default: 500}, least: {of: enough, default: 100}}
  - name: slots
    match: {path: /slots}
    limits:
      - {name: user, key: user, limit: concurrent 2 lease 1h}
      - {name: org, key: org, limit: concurrent 10 lease 1h}
  - name: different
    match: {path: /different}
    limits:
      - {name: user, key: user, limit: fixed-window 1000/366d, cost: {of: tokens}}
      - {name: org, key: org, limit: fixed-window 100k/366d, cost: {of: bytes}}
  - name: whole
    match: {path: /whole}
    limits:
      - {name: user, key: user, limit: fixed-window 1000/366d, cost: {of: tokens}, least: 10}
      - {name: org, key: org, limit: fixed-window 100k/366d, cost: {of: tokens}}
  - name: other
    key: ip
    match: {path: /other}
    limit: fixed-window 3/366d cost 2
"""
BAD = {  # the end of a policy, where it is wrong, why
    "limit: smooth 5/s, cost: {of: tokens}, least: 5": (5, "not for smooth, which shapes"),
    "limit: fixed-window 5/s, cost: {of: t}, least: 1, overrides: [{when: {user: x}, limit: smooth 5/s}]": (88, "not for smooth, which shapes"),
    "limit: fixed-window 9/s, cost: 5, least: 6": (67, "invalid least 6: expected at most 5, the cost"),
    "limit: fixed-window 9/s, least: {of: enough, default: 0}": (80, 'default is a whole number from 1 to 1000000000000, found "0"'),
    "limit: fixed-window 9/s, least: {of: enough, min: 0}": (76, 'min is a whole number from 1 to 1000000000000, found "0"'),
}


def budget_of_limits(server, check):
    """One key with three limits: 50 clients, exact to the token."""
    limit = f"fixed-window 1000/366d cost 1, fixed-window {TOKENS}/365d, concurrent 1000 lease 1h cost 1"
    totals = {"granted": 0, "used": 0, "denied": 0}
    lock = threading.Lock()

    def client(number):
        rng = random.Random(number)
        with http_client.Client(server.port) as http:
            for _ in range(ROUNDS):
                got = http.post("/v1/acquire", {"key": "k", "limit": limit, "cost": 4000, "least": 50}).json
                if not got["allowed"]:
                    with lock:
                        totals["denied"] += 1
                    continue
                used = rng.randint(0, got["granted"])
                http.post("/v1/settle", {"key": "k", "limit": limit, "receipt": got["receipt"],
                                                          "actual": used})
                http.post("/v1/release", {"key": "k", "limit": limit, "lease": got["lease"]})
                with lock:
                    totals["granted"] += got["granted"]
                    totals["used"] += used

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with http_client.Client(server.port) as http:
        rows = http.post("/v1/peek", {"key": "k", "limit": limit, "cost": 0, "detail": True}).json["limits"]
    allowed = CLIENTS * ROUNDS - totals["denied"]
    check.equal(rows[1]["remaining"], TOKENS - totals["used"], "what was settled is what was used")
    check.equal((rows[0]["remaining"], rows[2]["remaining"]), (1000 - allowed, 1000), "one request each, all slots released")
    check(totals["used"] <= TOKENS and allowed >= 25, f"{totals}")  # no grant is over 4000


def budget_of_policies(server, check):
    """User and organisation get one amount; settle corrects both by what was granted."""
    ask = {"attributes": {"path": "/v1/chat", "user": "ann", "org": "acme", "tokens": 40_000}}
    with http_client.Client(server.port) as http, server.client() as resp:
        def take(verb="take", **more):
            return http.post("/v1/" + verb, {**ask, "detail": True, **more}).json

        def left():
            return [row["remaining"] for row in take("peek", cost=0)["limits"]]

        first = take()
        check.equal((first["allowed"], first["granted"]), (True, 40_000), "there is enough")
        second = take()
        check.equal(second["granted"], 20_000, "the user has less than the organisation")
        check.equal([row["granted"] for row in second["limits"]], [1, 20_000, 20_000], "rows")
        check.equal(left(), [998, 0, 40_000], "charged the same")
        third = take()
        check.equal((third["allowed"], third["granted"]), (False, 0), "less than enough")
        http.post("/v1/settle", {**ask, "receipt": second["receipt"], "actual": 5_000})
        check.equal(left(), [998, 15_000, 55_000], "settled by what was granted, requests left alone")
        again = http.post("/v1/settle", {**ask, "receipt": second["receipt"], "actual": 5_000}).json
        check.equal(again.get("before"), True, "settled once")
        words = ("WEIR.DECIDE", "path", "/v1/chat", "user", "ann", "org", "acme", "tokens", 40_000)
        reply = resp.call(*words)
        check.equal((len(reply), reply[0], reply[7]), (8, 1, 15_000), "RESP tells what is granted")
        check.equal(resp.call(*words, "SETTLE", reply[6], 1_000), "OK", "settle over RESP")
        check.equal(left(), [997, 14_000, 54_000], "after it")
        # the request's own cost is for every limit of the policy, and so is its least
        check.equal(take(cost=50_000, least=20)["granted"], 997, "least with the request")
        other = {"attributes": {"path": "/other", "ip": "192.0.2.1"}}
        replies = [http.post("/v1/take", other).json for _ in range(2)]
        check.equal([(it["allowed"], it["granted"], it["remaining"]) for it in replies], [(True, 1, 1), (False, 0, 1)],
                    "a limit's own cost in a policy")
        nothing = http.post("/v1/take", {"attributes": {"path": "/none"}, "cost": 7}).json
        check.equal((nothing["verdict"], nothing["granted"]), ("none", 7), "no policy applies: all of it")


def refunds(server, check):
    """A settle gives back no more than was charged, whatever it says of least."""
    with http_client.Client(server.port) as http, server.client() as resp:
        def left(ask):
            return [row["remaining"] for row in http.post("/v1/peek", {**ask, "cost": 0, "detail": True}).json["limits"]]

        def settle(ask, receipt, actual):
            answer = http.post("/v1/settle", {**ask, "receipt": receipt, "actual": actual})
            return answer.status, answer.json.get("detail", "")

        words = {"path": "/different", "user": "ann", "org": "acme", "tokens": 4000, "bytes": 40_000}
        ask = {"attributes": words}
        http.post("/v1/take", {"attributes": {**words, "user": "bob", "tokens": 1, "bytes": 50_000}})
        receipt = http.post("/v1/take", {**ask, "least": 1}).json["receipt"]
        check.equal(left(ask), [0, 49_000], "both were charged 1000")
        status, why = settle(ask, receipt, 0)
        check(status == 400 and "cost, least and attributes" in why and left(ask) == [0, 49_000],
              f"without its least, a settle would give back the cost: {status} {why} {left(ask)}")
        flat = [word for pair in words.items() for word in pair]
        check("invalid receipt" in str(resp.pipeline([("WEIR.DECIDE", *flat, "SETTLE", receipt, 0)])), "over RESP, too")
        check.equal((resp.call("WEIR.DECIDE", *flat, "LEAST", 7, "SETTLE", receipt, 0), left(ask)), ("OK", [1000, 50_000]), "with a least")
        ask = {"attributes": {**words, "path": "/whole"}}
        receipt = http.post("/v1/take", ask).json["receipt"]
        check.equal(left(ask), [0, 96_000], "only one of them has a least")
        check.equal((settle(ask, receipt, 50)[0], left(ask)), (200, [950, 99_950]), "each by what it was charged")


def headers(server, check):
    """Fields as clients of OpenAI's API read them, by the names of a policy's limits."""
    ask = {"attributes": {"path": "/named", "user": "ann", "org": "acme", "tokens": 80}}
    with http_client.Client(server.port) as http:
        answer = http.post("/v1/take", ask).fields
    fields = [answer.get(f"x-ratelimit-{part}-{name}") for name in ("requests", "tokens", "tokens-org") for part in ("limit", "remaining")]
    check.equal(fields, ["60", "59", "500", "420", "100", "20"], "limit and remaining by name")
    check.equal(answer["x-ratelimit-reset-tokens-org"], "800ms", "reset is a duration")
    longest = [f"{i:02}" + "n" * 62 for i in range(16)]
    limits = "".join(f"\n      - {{name: {name}, key: \"'{name}'\", limit: fixed-window 1000000000000/366d}}" for name in longest)
    with weir_server.Server(policies=f"version: 1\npolicies:\n  - name: long\n    headers: openai\n    limits:{limits}\n") as other, \
            http_client.Client(other.port) as http:
        for _ in range(2):
            long = http.post("/v1/take", {"attributes": {"path": "/"}, "detail": True})
            fields = {name for name in long.fields if name.startswith("x-ratelimit-")}
            check.equal((long.status, len(fields), len(long.json["limits"])), (200, 48, 16), "sixteen limits with long names")
    check('"requests";r=59' in answer["ratelimit"] and '"tokens";q=500' in answer["ratelimit-policy"], "beside the IETF fields")


def slots_of_several_keys(server, check, where):
    """One lease holds the slots of a user, a team and everybody: with limits in the request, and with policies."""
    user, team = "fixed-window 9/366d cost 1, concurrent 2 lease 1h cost 1", "concurrent 3 lease 1h cost 2"
    both = {"acquire": True, "requests": [{"key": "{s}u", "limit": user, "cost": 40}, {"key": "{s}t", "limit": team, "cost": 5},
                                          {"key": "{s}e", "limit": "fixed-window 50/366d", "cost": 40, "least": 9}]}
    words = ("WEIR.TAKEALL", 2, "{s}u", user, 40, "{s}t", team, 5)
    with http_client.Client(server.port) as http, server.client() as resp:
        first = http.post("/v1/takeall", both).json
        check.equal((first["allowed"], first["granted"], [row["remaining"] for row in first["limits"]]), (True, 40, [8, 1, 1, 10]),
                    f"{where}: acquired")
        second = http.post("/v1/takeall", both)
        check.equal((second.status, second.json["lease"], second.json["granted"], second.json["binding"]), (429, 0, 0, 2),
                    f"{where}: the team's slots are taken")
        for key, limit in (("{s}u", user), ("{s}t", team)):
            body = {"key": key, "limit": limit, "lease": first["lease"]}
            check.equal([http.post("/v1/" + verb, body).status for verb in ("renew", "release", "release")], [200, 200, 404],
                        f"{where}: renewed, released once")
        reply = resp.call(*words, "ACQUIRE", "DETAIL")
        check.equal((len(reply), reply[0], reply[8], len(reply[9])), (12, 1, 1, 6), f"{where}: RESP")
        check.equal(reply[7] > 0 and [resp.call("WEIR.RELEASE", key, limit, reply[7]) for key, limit in (("{s}u", user), ("{s}t", team))],
                    [1, 1], f"{where}: released over RESP")
        reply = resp.call(*words, "LEAST", 1, 1, "ACQUIRE")
        check.equal((len(reply), reply[0], reply[7]), (9, 1, 5), f"{where}: what is granted comes before the lease")
        for key, limit in (("{s}u", user), ("{s}t", team)):
            resp.call("WEIR.RELEASE", key, limit, reply[8])

        ask = {"attributes": {"path": "/slots", "user": "ann", "org": "acme"}}
        got = [http.post("/v1/acquire", ask).json for _ in range(3)]
        check.equal([it["allowed"] for it in got], [True, True, False], f"{where}: policies: the user has two slots")
        lease = {**ask, "lease": got[0]["lease"]}
        check.equal([http.post("/v1/" + verb, lease).status for verb in ("renew", "release", "release", "renew")],
                    [200, 200, 404, 404], f"{where}: policies: of user and organisation")
        rows = http.post("/v1/peek", {**ask, "detail": True}).json["limits"]
        check.equal([row["remaining"] for row in rows], [1, 9], f"{where}: policies: both slots are back")


def refusals(server, check):
    def refused(path, body, words):
        with http_client.Client(server.port) as http:
            answer = http.post(path, body)
            check(answer.status == 400 and words in answer.json["detail"], f"{body}: {answer.status} {answer.json}")
    bucket = {"key": "r", "limit": "token-bucket 9/s", "cost": 5}
    refused("/v1/take", {**bucket, "least": 6}, "invalid least 6: expected 1 to 5, the cost")
    refused("/v1/take", {**bucket, "least": 0}, "least must be a whole number from 1")
    refused("/v1/take", {**bucket, "least": 1, "wait": 1}, "cannot wait")
    refused("/v1/take", {**bucket, "least": 1, "hold": True}, "cannot wait")
    refused("/v1/take", {"key": "r", "limit": "smooth 9/s", "cost": 5, "least": 1}, "not for smooth, which shapes")
    refused("/v1/reset", {"key": "r", "least": 1}, "least is for take, peek and acquire")
    refused("/v1/takeall", {"requests": [{**bucket, "least": 5}, {**bucket, "key": "s", "cost": 4, "least": 1}]}, "")
    slots = {"key": "r", "limit": "concurrent 3"}
    refused("/v1/takeall", {"requests": [slots]}, "a concurrent limit needs acquire")
    refused("/v1/takeall", {"requests": [bucket], "acquire": True}, "there is nothing to acquire")
    refused("/v1/acquire", {**slots, "acquire": True}, "acquire is for takeall")
    refused("/v1/acquire", {"attributes": {"path": "/other", "ip": "192.0.2.1"}}, "no concurrent limit applies")
    refused("/v1/settle", {"key": "r", "limit": "fixed-window 9/m cost 1", "receipt": "w4-1-1-x", "actual": 1},
            "limits with a cost of their own cannot be settled")
    refused("/v1/take", {"key": "r", "limit": "fixed-window 9/m cost 10"}, "column 23: expected a cost of at most 9")
    with http_client.Client(server.port) as http:
        answer = http.post("/v1/takeall", {"requests": [
            {"key": "x", "limit": "fixed-window 10/366d", "cost": 30, "least": 1},
            {"key": "y", "limit": "fixed-window 100/366d", "cost": 40, "least": 2}]}).json
        check.equal((answer["granted"], [row["granted"] for row in answer["limits"]]), (10, [10, 10]), "takeall: one amount")
        check.equal([receipt.split("-")[2] for receipt in answer["receipts"]], ["10", "10"], "each receipt names it")


def without_redis(check, fail, granted):
    """A local fallback grants, and charges nobody: settling later charges the store what was used, once."""
    limit, other = "fixed-window 9/366d cost 1, fixed-window 1000/365d", "fixed-window 500/366d"
    both = {"requests": [{"key": "{f}k", "limit": limit, "cost": 4000, "least": 50},
                         {"key": "{f}o", "limit": other, "cost": 4000, "least": 50}]}
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail={fail}&deadline=30s") as server, \
            http_client.Client(server.port) as http:
        http.post("/v1/take", {"key": "{f}k", "limit": limit})
        redis.kill()
        got = http.post("/v1/takeall", both).json
        check.equal((got["degraded"], got["allowed"], got["granted"]), (True, granted > 0, granted), f"fail={fail}: granted")
        redis.start()
        while http.post("/v1/peek", {"key": "{f}x", "limit": limit}).json["degraded"]:
            time.sleep(0.05)
        if not granted:
            return
        check.equal([receipt.split("-")[2] for receipt in got["receipts"]], ["0", "0"], f"fail={fail}: nothing was charged")
        swapped = {"key": "{f}k", "limit": limit, "receipt": got["receipts"][1], "actual": 1}
        check.equal(http.post("/v1/settle", swapped).status, 400, f"fail={fail}: the receipt of another key")
        body = {"key": "{f}o", "limit": other, "receipt": got["receipts"][1], "actual": 123}
        check.equal([http.post("/v1/settle", body).json for _ in range(2)], [{"settled": True}, {"settled": True, "before": True}],
                    f"fail={fail}: settled once")
        check.equal(http.post("/v1/peek", {"key": "{f}o", "limit": other}).json["remaining"], 500 - 123, f"fail={fail}: charged then")


def closed_slots(check):
    """What a policy denies while Redis is gone has no lease, although the local fallback has slots."""
    closed = "version: 1\npolicies:\n  - {name: slots, key: user, limit: concurrent 2 lease 1h, match: by-name, fail: closed}\n"
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail=local&deadline=30s", policies=closed) as server, \
            http_client.Client(server.port) as http:
        redis.kill()
        got = http.post("/v1/acquire", {"policy": "slots", "attributes": {"user": "ann"}}).json
        check.equal((got["allowed"], got["degraded"], got["lease"], got["retry_after"]), (False, True, 0, 1_000_000),
                    "closed: no lease, and a time to try again")


def bad_policies(check):
    for text, (column, words) in BAD.items():
        try:
            with weir_server.Server(policies=f"version: 1\npolicies:\n  - {{name: bad, key: ip, {text}}}\n"):
                check(False, f"refused when the file is read: {text}")
        except weir_server.WrongEnd as error:
            check(f"policies.yaml:3:{column}:" in str(error) and words in str(error), str(error))


def main():
    check = checks.Checks()
    bad_policies(check)
    for fail, granted in (("local", 500), ("open", 4000), ("closed", 0)):
        without_redis(check, fail, granted)
    closed_slots(check)
    with weir_server.Server(policies=POLICIES) as server:
        budget_of_limits(server, check)
        budget_of_policies(server, check)
        refunds(server, check)
        refusals(server, check)
        headers(server, check)
        slots_of_several_keys(server, check, "zone")
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=30s&fail=closed", policies=POLICIES) as server:
        slots_of_several_keys(server, check, "redis")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
