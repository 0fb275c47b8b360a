#!/usr/bin/env python3
"""Decisions over HTTP: taken, peeked, denied, explained, of several limits and keys, leased, settled, held."""
import base64
import sys
import time

from lib import checks, http_client
from lib.http_client import post
from http_api import asked
from http_wire import problem


def test_decisions(check):
    with asked() as (server, client):
        first = client.get("/v1/take", key="a", limit="fixed-window 2/h").json
        second = client.post("/v1/take", {"key": "a", "limit": "fixed-window 2/h"}).json
        check.equal((first["allowed"], first["limit"], first["remaining"], first["reset_after"]),
                    (True, 2, 1, 2800000000), "taken by GET")
        check.equal((second["allowed"], second["remaining"]), (True, 0), "taken by POST, of the same state")
        denied = client.get("/v1/take", key="a", limit="fixed-window 2/h")
        check.equal((denied.status, denied.reason, denied.fields["retry-after"]), (429, "Too Many Requests", "2800"),
                    "denied")
        body = denied.json
        check.equal((body["type"].split("#")[1], body["status"], body["allowed"], body["retry_after"], body["receipt"]),
                    ("quota-exceeded", 429, False, 2800000000, None), "problem+json of a denial")
        check.equal(denied.fields["content-type"], "application/problem+json", "its type")
        for verb in ("take", "peek"):
            for status in (403, 503, 400, 599):
                answer = client.get("/v1/" + verb, key="a", limit="fixed-window 2/h", deny_status=status)
                check.equal((answer.status, answer.json["status"]), (status, status), f"{verb}, deny_status {status}")
                check(answer.reason, f"a reason for {status}")
            check.equal(client.post("/v1/" + verb, {"key": "a", "limit": "fixed-window 2/h", "deny_status": 403}).status,
                        403, "deny_status in JSON")
        never = client.get("/v1/take", key="a", limit="fixed-window 2/h", cost=3)
        check.equal((never.status, never.json["retry_after"], never.fields.get("retry-after")), (429, None, None),
                    "never: null, and no Retry-After")
        for _ in range(3):
            peeked = client.get("/v1/peek", key="b", limit="fixed-window 2/h").json
            check.equal((peeked["allowed"], peeked["remaining"], peeked["receipt"]), (True, 2, None),
                        "peeking charges nothing")
        zero = client.get("/v1/take", key="b", limit="fixed-window 2/h", cost=0).json
        check.equal((zero["allowed"], zero["remaining"]), (True, 2), "nor does cost 0")
        check.equal(client.post("/v1/reset", {"key": "a"}).json, {"reset": True}, "reset")
        check.equal(client.get("/v1/peek", key="a", limit="fixed-window 2/h").json["remaining"], 2, "is a fresh start")
        check.equal(client.post("/v1/reset", {"key": "never-seen"}).json, {"reset": False}, "reset of nothing")


def members(field):
    """Of a structured field's list, without strings that have commas in them."""
    return [member.strip() for member in field.split(",")]


def test_several_limits(check):
    two = "fixed-window 5/h, token-bucket 1/s burst 2"
    with asked() as (_, client):
        answer = client.get("/v1/take", key="a", limit=two, detail="true")
        body = answer.json
        check.equal((body["limit"], body["remaining"], body["binding"]), (2, 1, 1), "folded")
        check.equal([(row["text"], row["limit"], row["remaining"]) for row in body["limits"]],
                    [("fixed-window 5/h", 5, 4), ("token-bucket 1/s burst 2", 2, 1)], "each limit's own")
        check.equal(members(answer.fields["ratelimit-policy"]), ['"fixed-window";q=5;w=3600', '"token-bucket";q=2;w=2'],
                    "RateLimit-Policy")
        check.equal(members(answer.fields["ratelimit"]), ['"fixed-window";r=4;t=2800', '"token-bucket";r=1;t=1'],
                    "RateLimit")
        check("limits" not in client.get("/v1/take", key="a", limit=two).json, "rows only when asked for")
        denied = client.get("/v1/take", key="a", limit=two, detail=1)
        check.equal((denied.status, denied.json["binding"], denied.fields["retry-after"]), (429, 1, "1"), "denied by one")
        check.equal(denied.json["limits"][0]["remaining"], 3, "the other is not charged")


def test_takeall(check):
    def ask(client, *requests, **more):
        return client.post("/v1/takeall", {"requests": [dict(zip(("key", "limit", "cost"), it)) for it in requests],
                                           **more})
    with asked() as (_, client):
        answer = ask(client, ("a", "fixed-window 3/h"), ("b", "fixed-window 1/h"), ("a", "token-bucket 9/s", 4))
        check.equal((answer.status, answer.json["limit"], answer.json["remaining"]), (200, 1, 0), "taken, folded")
        check.equal([row["remaining"] for row in answer.json["limits"]], [2, 0, 5], "rows in order")
        answer = ask(client, ("a", "fixed-window 3/h"), ("b", "fixed-window 1/h"))
        check.equal((answer.status, answer.json["binding"]), (429, 1), "all or nothing")
        check.equal(client.get("/v1/peek", key="a", limit="fixed-window 3/h").json["remaining"], 2, "nothing charged")
        answer = ask(client, ("p", "fixed-window 9/h", 2), ("q", "fixed-window 9/h", 3)).json
        for key, receipt, left in zip("pq", answer["receipts"], (9, 9)):
            one = {"key": key, "limit": "fixed-window 9/h"}
            check.equal(client.post("/v1/settle", {**one, "receipt": receipt, "actual": 0}).status, 200, f"{key} settled")
            check.equal(client.post("/v1/peek", one).json["remaining"], left, f"{key} given back")
        problem(check, client.post("/v1/settle", {**one, "receipt": answer["receipts"][0], "actual": 0}), 400, "receipt",
                "the other key's receipt")
        twice = ask(client, ("c", "fixed-window 9/h"), ("c", "fixed-window 9/h"))
        check(twice.status == 400 or twice.json["remaining"] == 7, f"one state twice: {twice.status} {twice.body}")
        encoded = base64.b64encode(b"a").decode()
        answer = client.post("/v1/takeall", {"requests": [{"key_base64": encoded, "limit": "fixed-window 3/h"}]})
        check.equal(answer.json["remaining"], 1, "key_base64")
        for body, words in (({}, "1 to 16"), ({"requests": []}, "1 to 16"), ({"requests": {}}, "cannot be an object"),
                            ({"requests": [1]}, "object"), ({"requests": [{}]}, "key"),
                            ({"requests": [{"key": "a"}]}, "limit"),
                            ({"requests": [{"key": "a", "limit": "x"}]}, "limit"),
                            ({"requests": [{"key": "a", "limit": "fixed-window 1/h", "cost": -1}]}, "cost"),
                            ({"requests": [{"key": "a", "limit": "fixed-window 1/h", "cots": 2}]}, "nothing else"),
                            ({"requests": [{"key": "a", "limit": "fixed-window 1/h"}] * 17}, "1 to 16"),
                            ({"requests": [{"key": "a", "limit": "fixed-window 1/h"}], "hold": True}, "hold")):
            problem(check, client.post("/v1/takeall", body), 400, words, f"takeall {body}"[:80])
        limits = ", ".join(f"fixed-window 1/{n}h" for n in range(1, 10))
        problem(check, ask(client, ("x", limits), ("y", limits)), 400, "16", "18 limits")


def test_leases(check):
    two = {"key": "pool", "limit": "concurrent 2 lease 10s"}
    with asked() as (_, client):
        def at(seconds):
            client.post("/v1/clock", {"now": 1700000000 + seconds})
        first, second, third = [client.post("/v1/acquire", two) for _ in range(3)]
        check.equal([it.status for it in (first, second, third)], [200, 200, 429], "two of two")
        check.equal([it.json["remaining"] for it in (first, second)], [1, 0], "what is left")
        check(first.json["lease"] > 0 and first.json["lease"] != second.json["lease"], "leases have numbers")
        check.equal((third.json["retry_after"], third.json["lease"]), (10000000, 0), "none for the third")
        lease = {"lease": first.json["lease"]}
        at(5)
        check.equal(client.post("/v1/renew", {**two, **lease}).json, {"renewed": True}, "renew")
        at(12)
        check.equal(client.post("/v1/acquire", two).status, 200, "the second has lapsed")
        check.equal(client.post("/v1/acquire", two).status, 429, "the first has not")
        check.equal(client.post("/v1/release", {**two, **lease}).json, {"released": True}, "release")
        problem(check, client.post("/v1/release", {**two, **lease}), 404, "lease", "released twice")
        problem(check, client.post("/v1/renew", {**two, **lease}), 404, "lease", "renewed behind that")
        problem(check, client.post("/v1/renew", {**two, "lease": 12345}), 404, "lease", "nobody's lease")
        for verb in ("renew", "release"):
            problem(check, client.post("/v1/" + verb, two), 400, "lease", f"{verb} of nothing")
            for wrong in (0, -1, 1.5, "x", 1 << 50):
                check.equal(client.post("/v1/" + verb, {**two, "lease": wrong}).status, 400, f"{verb} of {wrong}")
        for verb in ("acquire", "renew", "release"):
            body = {"key": "k", "limit": "fixed-window 1/h", "lease": 5}
            problem(check, client.post("/v1/" + verb, body), 400, "concurrent", f"{verb} of a window")
        for limit in ("concurrent 1", "token-bucket 5/s, concurrent 1 lease 10s"):
            one = {"key": "taken", "limit": limit}
            problem(check, client.post("/v1/take", one), 400, "acquire", f"take of {limit}")
            problem(check, client.get("/v1/take", **one), 400, "acquire", f"GET, {limit}")
            problem(check, client.post("/v1/take", {**one, "wait": "1s", "hold": True}), 400, "acquire", f"hold, {limit}")
            problem(check, client.post("/v1/takeall", {"requests": [one]}), 400, "acquire", f"takeall, {limit}")
            check.equal(client.post("/v1/peek", one).json["remaining"], 1, f"nothing was taken of {limit}")


def test_explain(check):
    with asked() as (_, client):
        body = {"key": "e", "limit": "token-bucket 1/s burst 2, fixed-window 1/h"}
        for _ in range(3):
            answer = client.post("/v1/explain", body)
            check.equal((answer.status, answer.json["allowed"], answer.json["remaining"]), (200, True, 1),
                        "explaining charges nothing")
            check(all(row["meaning"] for row in answer.json["limits"]), "each limit in words")
        client.post("/v1/take", body)
        answer = client.post("/v1/explain", body)
        check.equal((answer.status, answer.json["allowed"], answer.json["receipt"]), (200, False, None),
                    "a denial is explained with 200")


def test_receipts(check):
    one = {"key": "r", "limit": "fixed-window 10/h"}
    with asked() as (server, client):
        receipt = client.post("/v1/take", {**one, "cost": 5}).json["receipt"]
        left = lambda: client.post("/v1/peek", one).json["remaining"]  # noqa: E731
        settle = lambda **changes: client.post(  # noqa: E731
            "/v1/settle", {**one, "receipt": receipt, "actual": 2, **changes})
        wrong = {
            "another key's": {"key": "r2"}, "another limit's": {"limit": "fixed-window 10/h from-first"},
            "another period's": {"limit": "fixed-window 10/m"},
            "a changed time": {"receipt": receipt.replace("w4-17", "w4-18")},
            "a changed charge": {"receipt": receipt.replace("-5-", "-9-")},
            "a changed signature": {"receipt": receipt[:-1] + ("A" if receipt[-1] != "A" else "B")},
            "without signature": {"receipt": receipt[:-12]}, "unsigned": {"receipt": "w1-1700000000000000-5"},
            "empty": {"receipt": ""}, "nonsense": {"receipt": "x" * 300}, "a piece behind": {"receipt": receipt + "A"},
        }
        for what, changes in wrong.items():
            answer = settle(**changes)
            problem(check, answer, 400, "receipt", f"a receipt {what}")
            check.equal(left(), 5, f"a receipt {what} changes nothing")
        check.equal(settle().json, {"settled": True}, "settled")
        check.equal(left(), 8, "three given back")
        again = settle(actual=0)
        check.equal((again.status, again.json, left()), (200, {"settled": True, "before": True}, 8),
                    "the same receipt again: told so, and nothing changes")
        check.equal(settle(limit=" FIXED-WINDOW   10/h ").json, {"settled": True, "before": True},
                    "the same limit in other words")
        for body in ({"receipt": receipt}, {"actual": 1}):
            problem(check, client.post("/v1/settle", {**one, **body}), 400, "receipt and actual", f"only {list(body)}")
        problem(check, settle(actual=-1), 400, "actual", "a negative cost")
        problem(check, client.post("/v1/settle", {"key": "c", "limit": "concurrent 5", "receipt": receipt, "actual": 1}),
                400, "release", "leases are not settled")
        with server.client() as resp:
            other = resp.call("WEIR.TAKE", "r", "fixed-window 10/h", "COST", 1)[6]
            before = left()
            check.equal(settle(receipt=other.decode(), actual=0).status, 200, "a receipt of RESP")
            check.equal(left(), before + 1, "is settled")
    with asked() as (_, client):
        problem(check, client.post("/v1/settle", {**one, "receipt": receipt, "actual": 0}), 400,
                "WEIR_RECEIPT_SECRET", "another server's receipt: the secret is named")


def test_hold(check):
    """A shaped delay is really waited for, never less. The decisions' clock stands still, so that delays are the same
    however long it takes to ask."""
    early = 0.002  # clocks differ by less

    def timed(client, body):
        start = time.monotonic()
        answer = client.post("/v1/take", {**body, "hold": True})
        return time.monotonic() - start, answer

    with asked("--test-clock --max-delay 400ms") as (server, client):
        leaky = {"key": "h", "limit": "leaky-bucket 10/s burst 20"}
        for i in range(5):
            took, answer = timed(client, leaky)
            check.equal((answer.status, answer.json["delay"]), (200, 0), f"held {i}: no delay is left")
            check(answer.json.get("held", 0) >= 100000 * i, f"held {i}: {answer.json}")
            check(("held" in answer.json) == (i > 0), f"held {i}: {answer.json}")
            check(took >= 0.1 * i - early, f"held {i}: answered after {took:.3f} s")
        check.equal(timed(client, leaky)[1].status, 429, "the sixth would wait longer than --max-delay")
        start = time.monotonic()
        others = [http_client.Client(server.port) for _ in range(7)]
        for other in others:
            other.send(post("/v1/take", {**leaky, "key": "o", "hold": True}))
        answers = [other.read() for other in others]
        refused = [answer.json["retry_after"] for answer in answers if answer.status == 429]
        check.equal((len(answers) - len(refused), refused), (5, [100000] * 2), "of seven at once five may wait, the others "
                    "are told when")
        check(time.monotonic() - start >= 0.4 - early, f"the last was held: {time.monotonic() - start:.3f} s")
        for other in others:
            other.close()
        bucket = {"key": "hb", "limit": "token-bucket 5/s burst 1"}
        check("held" not in timed(client, bucket)[1].json, "a token at once")
        took, answer = timed(client, bucket)
        check(answer.status == 200 and took >= 0.2 - early, f"a token bucket's reservation is held: {took:.3f} s")
        answer = timed(client, {**bucket, "wait": 0.001})[1]
        check.equal((answer.status, answer.json["retry_after"]), (429, 399000), "wait bounds it")
        slow = {"key": "hc", "limit": "token-bucket 1/s burst 1"}
        check.equal([timed(client, {**slow, "wait": "any"})[1].status for _ in range(2)], [200, 429],
                    "--max-delay bounds even any")
        unheld = [client.post("/v1/take", {"key": "u", "limit": "leaky-bucket 1/s burst 20"}) for _ in range(2)]
        check.equal([answer.json["delay"] for answer in unheld], [0, 1000000], "without hold the delay is told")


def test_hold_in_pipeline(check):
    """What is before a held request is answered first, what is behind it in its turn, each with its own receipt."""
    checks.in_time(lambda scale: hold_in_pipeline(check, scale))


def hold_in_pipeline(check, scale):
    """False: the machine held us up for as long as the answer was held."""
    with asked("--test-clock --max-delay 1h --threads 1") as (server, client), http_client.Client(server.port) as other:
        keys = ["before", "held", "held", "behind"]
        limits = {"held": f"leaky-bucket 1/{3 * scale}s burst 9"}
        bodies = [{"key": key, "limit": limits.get(key, "fixed-window 9/h"), "hold": key == "held"} for key in keys]
        start = time.monotonic()
        client.send(b"".join(post("/v1/take", body) for body in bodies))
        before = client.read()
        if time.monotonic() - start >= 3 * scale and scale < 12:
            return False
        check(time.monotonic() - start < 3 * scale, "the one before does not wait for the held one")
        for i in range(50):
            other.post("/v1/take", {"key": "x" * 500, "limit": "fixed-window 9/h"})
        answers = [before, *(client.read() for _ in range(3))]
        check(time.monotonic() - start >= 3 * scale - 0.01, "held")
        check.equal([answer.status for answer in answers], [200] * 4, "all answered")
        for body, answer in zip(bodies, answers):
            body = {name: body[name] for name in ("key", "limit")}
            settled = other.post("/v1/settle", {**body, "receipt": answer.json["receipt"], "actual": 0})
            check.equal(settled.status, 200, f"{body['key']}: its receipt is its own")
    return True


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
