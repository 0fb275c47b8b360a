#!/usr/bin/env python3
"""A charge is settled after its limits' numbers have changed: by an override, in the policies, in the limit that a caller
sends; over HTTP and RESP, on a zone and on Redis. Other keys and other states (algorithm, period, precision, zone, anchor)
are refused, and the error says so."""
import sys

from lib import checks, http_client, redis_server, weir_server
from http_wire import problem

POLICIES = """version: 1
policies:
  - name: plan
    key: user
    limits:
      - {name: calls, cost: CALLS, limit: fixed-window 100/d}
      - {name: minute, cost: tokens, limit: token-bucket MINUTE}
      - {name: month, cost: tokens, limit: "MONTH"}
    overrides: OVERRIDES
"""
NUMBERS = {"OVERRIDES": "[]", "CALLS": "1", "MINUTE": "1000/366d burst 1000"}
OVERRIDE = "[{{when: {{user: ann}}, entry: minute, limit: token-bucket {}}}, {{when: {{user: ann}}, entry: month, limit: {}}}]"
ANCHORED = "fixed-window {}/month from 15"
FROM_FIRST = "fixed-window {}/30d from-first"  # has no edge that the real clock could pass
ASK = {"attributes": {"user": "ann", "tokens": "300"}}
SECRET = {"WEIR_RECEIPT_SECRET": "before the upgrade"}


def policies(month, **changes):
    text = POLICIES
    for name, value in {**NUMBERS, "MONTH": month.format(5000), **changes}.items():
        text = text.replace(name, value)
    return text


class Plan:
    """A server whose policies change."""

    def __init__(self, check, server, client, month):
        self.check, self.server, self.client, self.month = check, server, client, month

    def load(self, **changes):
        self.server.write("policies.yaml", policies(self.month, **changes))
        answer = self.client.post("/v1/reload")
        self.check.equal(answer.status, 200, f"loaded: {answer.body}")

    def take(self):
        return self.client.post("/v1/take", ASK).json["receipt"]

    def settle(self, receipt, actual, **changes):
        return self.client.post("/v1/settle", {**ASK, "receipt": receipt, "actual": actual, **changes})

    def used(self):
        """Of the two limits by tokens."""
        rows = self.client.post("/v1/explain", ASK).json["limits"]
        return [row["limit"] - row["remaining"] for row in rows[1:]]


def change_policies(check, plan):
    receipts = [plan.take(), plan.take(), plan.take()]
    check.equal(plan.used(), [900, 900], "charged")
    plan.load(OVERRIDES=OVERRIDE.format("9000/366d burst 9000", plan.month.format(7000)), CALLS="2")
    check.equal(plan.settle(receipts[0], 100).json, {"settled": True}, "raised by an override, and calls cost 2")
    check.equal(plan.used(), [700, 700], "corrected on both limits")
    plan.load(MINUTE="5000/366d burst 5000", MONTH=plan.month.format(9000))
    check.equal(plan.settle(receipts[1], 100).json, {"settled": True}, "raised in the policies")
    check.equal(plan.used(), [500, 500], "and corrected")
    plan.load(OVERRIDES=OVERRIDE.format("900/366d burst 200", plan.month.format(90)))
    check.equal([plan.settle(receipts[2], 0).json for _ in range(2)], [{"settled": True}, {"settled": True, "before": True}],
                "lowered below what was charged")
    plan.load()
    check.equal(plan.used(), [200, 200], "corrected once")


def change_states(check, plan):
    receipt, used = plan.take(), plan.used()
    for month in ("fixed-window 5000/month from 16", "fixed-window 5000/month", "fixed-window 5000/week from thu",
                  "fixed-window 5000/month from 15 zone +08:00", "sliding-counter 5000/30d", "fixed-window 5000/month from 15, fixed-window 9/52w"):
        plan.load(MONTH=month)
        answer = plan.settle(receipt, 0)
        problem(check, answer, 400, "not the algorithm, period, precision, zone or anchor", f"of another state: {month}")
    plan.load(CALLS="tokens")
    problem(check, plan.settle(receipt, 0), 400, "invalid receipt", "calls were charged 1, not the tokens")
    plan.load()
    problem(check, plan.settle(receipt, 0, cost=300), 400, "invalid receipt", "all by the cost of the request: likewise")
    for changes in ({"attributes": {**ASK["attributes"], "user": "bob"}}, {"attributes": {**ASK["attributes"], "tokens": "301"}}):
        problem(check, plan.settle(receipt, 0, **changes), 400, "invalid receipt", f"another request: {changes}")
    check.equal(plan.used(), used, "nothing changed")
    check.equal(plan.settle(receipt, 300).json, {"settled": True}, "the receipt is still good")


def change_texts(check, server, client):
    """Key and limit."""
    def left(limit):
        return client.post("/v1/peek", {"key": "k", "limit": limit, "cost": 0}).json["remaining"]

    window = "sliding-window {}/h precision 1m, fixed-window {}/d"
    receipt = client.post("/v1/take", {"key": "k", "limit": window.format(100, 100), "cost": 40}).json["receipt"]
    settle = lambda limit, key="k": client.post("/v1/settle", {"key": key, "limit": limit, "receipt": receipt, "actual": 10})
    for limit in ("sliding-window 100/h precision 2m, fixed-window 100/d", "sliding-window 100/h precision 1m",
                  "sliding-window 100/h precision 1m, fixed-window 100/w", "sliding-log 100/h, fixed-window 100/d",
                  "sliding-window 100/h precision 1m cost 1, fixed-window 100/d", "fixed-window 100/d, sliding-window 100/h precision 1m"):
        problem(check, settle(limit), 400, "not the algorithm, period, precision", f"another state: {limit}")
    problem(check, settle(window.format(100, 100), "k2"), 400, "invalid receipt", "another key")
    check.equal(settle(window.format(300, 200)).json, {"settled": True}, "other counts")
    check.equal((left("sliding-window 300/h precision 1m"), left("fixed-window 200/d")), (290, 190), "corrected")
    with server.client() as resp:
        bucket = "token-bucket {}/366d burst {}"
        receipt = resp.call("WEIR.TAKE", "resp", bucket.format(100, 100), "COST", 40)[6]
        check.equal(resp.call("WEIR.SETTLE", "resp", bucket.format(200, 50), receipt, 10), "OK", "over RESP")
        check.equal(resp.call("WEIR.PEEK", "resp", bucket.format(100, 100))[2], 90, "corrected")
        said = str(resp.pipeline([("WEIR.SETTLE", "resp", "token-bucket 100/365d burst 100", receipt, 10)]))
        check("not the algorithm, period, precision, zone or anchor" in said, f"another period: {said}")
    requests = [{"key": "{g}1", "limit": "fixed-window 100/d", "cost": 10}, {"key": "{g}2", "limit": "fixed-window 100/d", "cost": 20}]
    receipts = client.post("/v1/takeall", {"requests": requests}).json["receipts"]
    for request, receipt in zip(requests, receipts):
        body = {"key": request["key"], "limit": "fixed-window 50/d", "receipt": receipt, "actual": 1}
        check.equal(client.post("/v1/settle", body).json, {"settled": True}, "one of several")
    body = {"key": "{g}1", "limit": "fixed-window 100/d", "receipt": receipts[1], "actual": 0}
    problem(check, client.post("/v1/settle", body), 400, "invalid receipt", "the charge of another key")


def test_zone(check):
    with weir_server.Server("--test-clock", policies(ANCHORED)) as server, http_client.Client(server.port) as client:
        plan = Plan(check, server, client, ANCHORED)
        change_policies(check, plan)
        change_states(check, plan)
        change_texts(check, server, client)


def test_redis(check):
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", policies(FROM_FIRST), env=SECRET) as server, \
            http_client.Client(server.port) as client:
        plan = Plan(check, server, client, FROM_FIRST)
        change_policies(check, plan)
        change_states(check, plan)


def test_older(check):
    """Receipts of servers that signed the limits' texts, as one of them wrote them: good under these texts alone."""
    before = """version: 1
policies:
  - name: plan
    key: user
    limits:
      - {name: minute, limit: token-bucket 100/m}
      - {name: month, limit: fixed-window 1000/month}
"""
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", before, env=SECRET) as server, \
            http_client.Client(server.port) as client:
        plain = {"key": "k", "limit": "fixed-window 100/d", "receipt": "w4-1794837452300581-40-QhqDE7O-M_yns67lVzN", "actual": 40}
        planned = {"attributes": {"user": "ann"}, "cost": 40, "receipt": "w4-1794837452315977-40-diJmbiE-r48Mg1GeNdL", "actual": 40}
        for body, wrong in ((plain, {"limit": "fixed-window 101/d"}), (planned, {"attributes": {"user": "bob"}}), (planned, {"cost": 41})):
            check.equal(client.post("/v1/settle", body).json["settled"], True, "signed before the upgrade")
            problem(check, client.post("/v1/settle", {**body, **wrong}), 400, "invalid receipt", f"and no other: {wrong}")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
