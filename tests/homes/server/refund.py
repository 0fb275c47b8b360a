#!/usr/bin/env python3
"""Giving back without a receipt: at the shell and over HTTP, by key and limit and by policy, on a zone and on Redis; who may;
bounds; beside takes. What a policy charges must be a number. What deny lists keep out is explained all the same."""
import json
import subprocess
import sys
import tempfile
import threading

from lib import checks, http_client, redis_server, weir_server
from lib.build import WEIR
from http_wire import problem

POLICIES = """version: 1
policies:
  - name: tokens
    match: by-name
    key: customer
    deny: [{customer: mallory}, {tokens: {absent: true}}]
    limits:
      - {name: requests, limit: fixed-window 100/d from-first}
      - {name: minute, limit: token-bucket 20k/366d, cost: {of: tokens, default: 4000}}
      - {name: month, limit: fixed-window 1m/30d from-first, cost: {of: tokens, default: 4000}}
      - {name: watched, shadow: true, limit: fixed-window 9/d, cost: {of: strange, default: 1}}
  - name: headers
    match: {path: /api/**}
    key: "'all'"
    limits: [{name: all, limit: fixed-window 1000/d from-first, cost: {of: header.x-tokens, default: 7}}]
  - name: plans
    match: by-name
    key: customer
    limits: [{name: month, limit: fixed-window 1000/month, cost: {of: tokens, default: 400}}]
    overrides: [{when: {plan: pro}, entry: month, limit: fixed-window 9000/month}]
  - name: slots
    match: by-name
    key: customer
    limits: [{name: running, limit: concurrent 5}]
"""
BOB = {"policy": "tokens", "key": "bob"}
LIMIT = "fixed-window 1000/4w from-first"
DATA, ADMIN = "data-token_1234567890", "admin-token_0987654321"


def weir(*words):
    done = subprocess.run([WEIR, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def used(client, policy="tokens", key="bob", **attributes):
    rows = client.post("/v1/explain", {"policy": policy, "key": key, "attributes": {"tokens": "1", **attributes}}).json["limits"]
    return {row["name"]: row["limit"] - row["remaining"] for row in rows if not row["shadow"]}


def charge(client, tokens, key="bob"):
    return client.post("/v1/take", {"policy": "tokens", "key": key, "attributes": {"tokens": tokens}})


def give_back(check, server, client):
    for tokens in (5000, 3000):
        check.equal(charge(client, tokens).status, 200, "charged")
    answer = client.post("/v1/refund", {**BOB, "limit": "month", "amount": 5000})
    check.equal((answer.status, answer.json.get("refunded"), answer.json.get("amount")), (200, True, 5000), f"{answer.body}")
    check.equal([(row["name"], row["remaining"]) for row in answer.json["limits"]], [("month", 997_000)], "what is left is told")
    check.equal(answer.json["limits"][0]["given"], 5000, "and what was given back")
    check.equal(used(client), {"requests": 2, "minute": 8000, "month": 3000}, "the limit that was named, and nobody else")
    check(server.wait_for(lambda: 'refund by 127.0.0.1: 5000 of 5000 to the key "tokens/month/{customer=bob}"' in server.stderr()), f"the log: {server.stderr()}")
    answer = client.post("/v1/refund", {"policy": "tokens", "attributes": {"customer": "bob"}, "amount": 1000})
    check.equal([row["name"] for row in answer.json["limits"]], ["minute", "month"], "without a name: those that tokens are charged to")
    check.equal(used(client), {"requests": 2, "minute": 7000, "month": 2000}, "both")
    for refunded, given in ((True, [7000, 2000]), (False, [0, 0])):
        answer = client.post("/v1/refund", {**BOB, "amount": 10**12})
        check.equal((answer.status, answer.json["refunded"], [row["given"] for row in answer.json["limits"]]), (200, refunded, given), "more than was charged")
        check.equal(used(client), {"requests": 2, "minute": 0, "month": 0}, "never below 0")
    check.equal(client.post("/v1/refund", {**BOB, "limit": "requests", "amount": 1}).json["limits"][0]["remaining"], 99, "one that counts requests, by its name")
    answer = client.post("/v1/refund", {"policy": "tokens", "key": "nobody", "amount": 5})
    check.equal((answer.json["refunded"], answer.json["limits"][1]["remaining"]), (False, 10**6), "who was never charged")
    check(server.wait_for(lambda: 'refund by 127.0.0.1: 0 of 5 to the key "tokens/month/{customer=nobody}"' in server.stderr()), f"the log: {server.stderr()}")
    give_back_once(check, server, client)
    # The refund is not a settle of a receipt: that one is still good, once.
    receipt = charge(client, 700).json["receipt"]
    client.post("/v1/refund", {**BOB, "limit": "month", "amount": 100})
    settle = {**BOB, "attributes": {"tokens": 700}, "receipt": receipt, "actual": 650}
    check.equal([client.post("/v1/settle", settle).json for _ in range(2)], [{"settled": True}, {"settled": True, "before": True}], "settled besides")
    check.equal(used(client), {"requests": 3, "minute": 650, "month": 550}, "both count")


def give_back_once(check, server, client):
    """With an id: an answer that got lost is no reason to peek."""
    client.post("/v1/reset", {**BOB, "attributes": {"tokens": "1"}})
    charge(client, 900)
    charge(client, 100)
    body = {**BOB, "limit": "month", "amount": 300, "id": "refund-2041"}
    answers = [client.post("/v1/refund", body).json for _ in range(2)]
    check.equal([(it["refunded"], it.get("before"), it["limits"][0]["given"], it["limits"][0]["remaining"]) for it in answers],
                [(True, None, 300, 999_300), (True, True, 0, 999_300)], "the second one changes nothing, and says so")
    check(server.wait_for(lambda: "was given back before, with the same id" in server.stderr()), f"the log: {server.stderr()}")
    for said in ('refund by 127.0.0.1: 300 of 300 to the key "tokens/month/{customer=bob}", id "refund-2041", fixed-window 1000000/4w2d from-first\n',
                 'refund by 127.0.0.1: 300 to the key "tokens/month/{customer=bob}", id "refund-2041", fixed-window 1000000/4w2d from-first: was given back before, with the same id'):
        check(server.wait_for(lambda said=said: said in server.stderr()), f"the log names the id: {server.stderr()}")
    strange = "a b\"\n\x1b[31m" + "é" * 50 + "z" * 18
    client.post("/v1/refund", {"policy": "tokens", "key": "eve", "limit": "month", "amount": 1, "id": strange})
    shown = '{customer=eve}", id "a b???[31m' + "?" * 100 + "z" * 18 + '", fixed-window'
    check(server.wait_for(lambda: shown in server.stderr()), f"whatever it is: {server.stderr()}")
    answer = client.post("/v1/refund", {**BOB, "amount": 300, "id": "refund-2041"}).json
    check.equal(([row["given"] for row in answer["limits"]], "before" in answer), ([300, 0], False), "of several limits those that were left out")
    check.equal(client.post("/v1/refund", {**body, "id": "refund-2042"}).json["limits"][0]["given"], 300, "another id")
    where = ("--server", f"http://127.0.0.1:{server.port}", "--policy", "tokens", "--key", "bob", "--limit", "month", "--id")
    check.equal(weir("refund", "100", *where, "refund-2041")[1][:45], "gave back 100 of 100: 999700 of 1000000 left,", "another amount, at the shell")
    out = weir("refund", "100", *where, "refund-2041")[1]
    check.equal(out[:73], "already given back with this id: nothing changed, 999700 of 1000000 left,", out)
    check.equal(json.loads(weir("refund", "100", *where, "refund-2041", "--json")[1])["before"], True, "as JSON")
    client.post("/v1/refund", {**BOB, "limit": "month", "amount": 10**12})
    client.post("/v1/refund", {**BOB, "limit": "minute", "amount": 10**12})


def test_policies(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        give_back(check, server, client)


def test_policies_redis(check):
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", POLICIES) as server, \
            http_client.Client(server.port) as client:
        give_back(check, server, client)


def test_mistakes(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        charge(client, 100)
        for body, words in (({**BOB}, "refund needs an amount"), ({**BOB, "amount": 0}, "amount"), ({**BOB, "amount": -5}, "amount"), ({**BOB, "amount": "lots"}, "amount"),
                            ({**BOB, "amount": 10**12 + 1}, "amount"), ({**BOB, "amount": 1.5}, "amount"), ({"amount": 5, "key": "k"}, "key and limit, or policy"),
                            ({"amount": 5, "limit": LIMIT}, "a key is needed"), ({"amount": 5, "key": "k", "limit": "nonsense"}, "limit: "),
                            ({**BOB, "limit": "year", "amount": 5}, 'is named "year"'), ({**BOB, "limit": "", "amount": 5}, "limit is empty"),
                            ({**BOB, "amount": 5, "cost": 5}, "nothing else"), ({**BOB, "amount": 5, "receipt": "w4-1-1"}, "nothing else"),
                            ({"policy": "nobody", "key": "k", "amount": 5}, "no policy is named"), ({"policy": "tokens", "amount": 5}, "nothing to give back"),
                            ({"policy": "slots", "key": "k", "amount": 1}, "release the lease"), ({"key": "k", "limit": "concurrent 5", "amount": 1}, "release the lease"),
                            ({"key": "k", "limit": LIMIT + " cost 2", "amount": 1}, "limits with a cost of their own")):
            problem(check, client.post("/v1/refund", body), 400, words, str(body))
        for more in ({"amount": 5}, {"id": "x"}):
            problem(check, client.post("/v1/settle", {**BOB, "receipt": "x", "actual": 1, **more}), 400, "amount and id are for refund", f"settle with {more}")
        for value, words in (("", "1 to 128 bytes"), ("x" * 129, "1 to 128 bytes"), (5, "must be a string")):
            problem(check, client.post("/v1/refund", {**BOB, "amount": 5, "id": value}), 400, words, f"the id {value!r}")
        check.equal(client.get("/v1/refund?policy=tokens&key=bob&amount=5").status, 405, "GET gives nothing back")
        check.equal(used(client), {"requests": 1, "minute": 100, "month": 100}, "nothing was given back")
        code, out, err = weir("refund", "k", LIMIT, "0", "--server", f"http://127.0.0.1:{server.port}")
        check(code == 2 and "invalid amount" in err, f"{out}{err}")


def test_access(check):
    files = {"data": DATA, "admin": ADMIN}
    with weir_server.Server("--token-file data --admin-token-file admin", POLICIES, files=files) as server, http_client.Client(server.port) as client:
        body = {"key": "k", "limit": LIMIT, "amount": 10}
        authorized = lambda token: client.post("/v1/refund", body, {"Authorization": f"Bearer {token}"} if token else {})
        check.equal([authorized(token).status for token in ("", DATA, "wrong", ADMIN)], [401, 403, 401, 200], "only with the admin token")
        where = ("--server", f"http://127.0.0.1:{server.port}")
        check.equal(weir("take", "k", LIMIT, "--cost", "40", *where, "--token", DATA)[0], 0, "charged")
        code, out, err = weir("refund", "k", LIMIT, "30", *where, "--token", DATA)
        check(code != 0 and "WEIR_ADMIN_TOKEN" in err, f"the data token: {out}{err}")
        check.equal(weir("refund", "k", LIMIT, "30", *where, "--token", ADMIN)[:2], (0, f"gave back 30 of 30: 990 of 1000 left, {LIMIT}\n"), "at the shell")
        check.equal(weir("refund", "k", LIMIT, "30", *where, "--token", ADMIN)[:2], (0, f"gave back 10 of 30: 1000 of 1000 left, {LIMIT}\n"), "no more than was used")
        check.equal(weir("refund", "typo", LIMIT, "30", *where, "--token", ADMIN)[:2], (1, f"nothing to give back: typo has used nothing under {LIMIT}\n"), "another key")
        out = json.loads(weir("refund", "typo", LIMIT, "30", *where, "--token", ADMIN, "--json")[1])
        check.equal((out["refunded"], out["amount"], out["limits"][0]["given"]), (False, 30, 0), "the same as JSON")


def test_shell_policy(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        where = ("--server", f"http://127.0.0.1:{server.port}", "--policy", "tokens", "--key", "bob")
        charge(client, 300)
        named = "fixed-window 1000000/4w2d from-first (limit month of policy tokens)\n"
        check.equal(weir("refund", *where, "--limit", "month", "99"), (0, f"gave back 99 of 99: 999799 of 1000000 left, {named}", ""), "one limit")
        code, out, err = weir("refund", "500", *where, "--json")
        check.equal((code, err), (0, ""), "all that a settle corrects")
        check.equal(json.loads(out), {"key": "bob", "refunded": True, "amount": 500, "limits": [
            {"name": "minute", "text": "token-bucket 20000/52w2d", "given": 300, "limit": 20000, "remaining": 20000, "used": 0},
            {"name": "month", "text": "fixed-window 1000000/4w2d from-first", "given": 201, "limit": 10**6, "remaining": 10**6, "used": 0}]}, "as JSON")
        check.equal(used(client), {"requests": 1, "minute": 0, "month": 0}, "given back")
        for words, part in ((where, "AMOUNT"), ((*where, "k", LIMIT, "5"), "unexpected"), ((*where, "--limit", "year", "5"), 'is named "year"'), ((*where[2:], "5"), "add --server URL"),
                            ((*where[:4], "5"), "add --key KEY"), (("k", LIMIT, "5", "--key", "bob"), "need --policy"), (("--store", "--policy", "5"), "KEY is missing"),
                            ((*where[:2], "--limit", "--policy", "5"), "need --policy"), ((*where, "--store", "memory:", "5"), "exclude each other")):
            code, out, err = weir("refund", *words)
            check(code == 2 and part in err and not out, f"{words}: {code} {out}{err}")
        code, out, err = weir("refund", *where[:2], "--", "--policy", LIMIT, "5")
        check.equal((code, out), (1, f"nothing to give back: --policy has used nothing under {LIMIT}\n"), f"a key of that name: {err}")


def test_shell_settle(check):
    """settle names a policy as refund does."""
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        where = ("--server", f"http://127.0.0.1:{server.port}", "--policy", "tokens")
        bob = ("--request", "customer=bob&tokens=500")
        receipt = charge(client, 500).json["receipt"]
        check.equal(weir("settle", *where, *bob, receipt, "120"), (0, "settled: the charge is now 120\n", ""), "by attributes")
        check.equal(weir("settle", receipt, "120", *where, *bob), (0, "already settled: nothing changed\n", ""), "again")
        check.equal(used(client), {"requests": 1, "minute": 120, "month": 120}, "those that a settle corrects")
        receipt = client.post("/v1/take", {**BOB, "attributes": {"tokens": 1}, "cost": 40}).json["receipt"]
        code, out, err = weir("settle", *where, "--key", "bob", "--request", "tokens=1", "--cost", "40", receipt, "0", "--json")
        check.equal((code, err, json.loads(out or "{}")), (0, "", {"key": "bob", "settled": True, "actual": 0}), "by the key, with the cost of the take")
        receipt = client.post("/v1/take", {**BOB, "attributes": {"tokens": 1}, "cost": 40, "least": 5}).json["receipt"]
        code, out, err = weir("settle", *where, "--key", "bob", "--request", "tokens=1", "--cost", "40", receipt, "0")
        check(code == 2 and "invalid receipt" in err and not out, f"without its least: {code} {out}{err}")
        check.equal(weir("settle", *where, "--key", "bob", "--request", "tokens=1", "--cost", "40", "--least", "5", receipt, "0")[0], 0, "with it")
        for words, part in (((*where, "--key", "bob", receipt), "ACTUAL"), ((*where, *bob, "k", LIMIT, receipt, "1"), "unexpected"), ((*where[2:], *bob, receipt, "5"), "add --server URL"),
                            ((*where, receipt, "5"), "add --key KEY"), (("k", LIMIT, receipt, "5", "--request", "a=b"), "need --policy"), (("k", LIMIT, receipt, "5", "--cost", "4"), "need --policy"),
                            ((*where, "--request", "a=%", receipt, "5"), "invalid --request"), ((*where, *bob, "--limit", "month", receipt, "5"), "--limit")):
            code, out, err = weir("settle", *words)
            check(code == 2 and part in err and not out, f"{words}: {code} {out}{err}")


def test_shell(check):
    with tempfile.TemporaryDirectory(prefix="weir-refund-") as path:
        where = ("--store", f"file:{path}/zone?size=1m")
        both = LIMIT + ", sliding-log 900/52w, fixed-window 60/d from-first cost 1"
        weir("take", "k", both, "--cost", "300", *where)
        weir("take", "k", both, "--cost", "200", *where)
        code, out, err = weir("refund", "k", both, "400", *where, "--json")
        check.equal((code, err), (0, ""), "refund")
        check.equal(json.loads(out), {"key": "k", "refunded": True, "amount": 400, "limits": [
            {"text": LIMIT, "given": 400, "limit": 1000, "remaining": 900, "used": 100}, {"text": "sliding-log 900/52w", "given": 300, "limit": 900, "remaining": 700, "used": 200}]},
            "a log gives back its oldest entry, and no more; limits with a cost of their own are left alone")
        check.equal(weir("refund", "k", "fixed-window 9/month zone +08:00", "5", *where), (1, "nothing to give back: k has used nothing under fixed-window 9/month zone +08:00\n", ""), "another limit")
        for words, part in ((("k", LIMIT), "AMOUNT"), (("k", LIMIT, "-5"), "-5"), (("k", LIMIT, "5x"), 'invalid amount "5x"'), (("k", "concurrent 5", "1"), "release the lease"),
                            (("k", LIMIT, "1000000000001"), "invalid amount"), (("", LIMIT, "1"), "key")):
            code, out, err = weir("refund", *words, *where)
            check(code == 2 and part in err and not out, f"{words}: {code} {out}{err}")
        check.equal([weir("refund", "k", LIMIT, "5", "--id", "a", *where)[1] for _ in range(2)],
                    [f"gave back 5 of 5: 905 of 1000 left, {LIMIT}\n", f"already given back with this id: nothing changed, 905 of 1000 left, {LIMIT}\n"], "with an id")
        for name in ("", "x" * 129):
            code, out, err = weir("refund", "k", LIMIT, "5", "--id", name, *where)
            check(code == 2 and "expected 1 to 128 bytes" in err and not out, f"--id {name!r}: {code} {out}{err}")
        check(weir("refund", "k", LIMIT, "5", "--store", "redis://127.0.0.1:1?deadline=100ms")[0] == 3, "a store that is out of reach")
    with redis_server.Server() as redis:
        url = f"redis://127.0.0.1:{redis.port}?deadline=1m"
        weir("take", "k", LIMIT, "--cost", "300", "--store", url)
        check.equal(weir("refund", "k", LIMIT, "400", "--store", url)[:2], (0, f"gave back 300 of 400: 1000 of 1000 left, {LIMIT}\n"), "on Redis")
        for text, given in (("token-bucket 90/366d", (40, 10, 0)), ("fixed-window 90/366d from-first", (40, 10, 0)),
                            ("sliding-counter 90/366d", (40, 10, 0)), ("sliding-log 90/52w", (30, 20, 0)), ("smooth 1/h", (40, 10, 0))):
            for cost in ("30", "20"):
                weir("take", "k2", text, "--cost", cost, "--store", url)
            for now in given:
                out = json.loads(weir("refund", "k2", text, "40", "--json", "--store", url)[1])
                check.equal((out["refunded"], out["limits"][0]["given"]), (now > 0, now), f"on Redis: {text}")
            weir("take", "k2", text, "--cost", "30", "--store", url)
            outs = [json.loads(weir("refund", "k2", text, "20", "--id", "a", "--json", "--store", url)[1]) for _ in range(2)]
            check.equal([(out.get("before"), out["limits"][0]["given"]) for out in outs], [(None, 20), (True, 0)], f"on Redis with an id: {text}")


def over_the_limit(check, server, client):
    """A settle may charge more than the limit has: what is used is told by the state, not by what is left."""
    asked = {"policy": "plans", "key": "fred"}
    where = ("--server", f"http://127.0.0.1:{server.port}", "--policy", "plans", "--key", "fred")
    receipt = client.post("/v1/take", asked).json["receipt"]
    check.equal(client.post("/v1/settle", {**asked, "receipt": receipt, "actual": 1300}).json, {"settled": True}, "settled above the limit")
    row = client.post("/v1/explain", asked).json["limits"][0]
    check.equal((row["limit"], row["remaining"], row.get("used")), (1000, 0, 1300), "explained")
    out = weir("explain", *where)[1]
    check(": 0 of 1000 left, 1300 used, 300 over the limit" in out, f"at the shell: {out}")
    row = client.post("/v1/refund", {**asked, "amount": 50}).json["limits"][0]
    check.equal((row["given"], row["remaining"], row.get("used")), (50, 0, 1250), "a refund that leaves it over the limit")
    out = weir("refund", *where, "50")
    check.equal(out[:2], (0, "gave back 50 of 50: 0 of 1000 left, 1200 used, 200 over the limit, fixed-window 1000/month (limit month of policy plans)\n"), "at the shell")
    check.equal(json.loads(weir("refund", *where, "50", "--json")[1])["limits"][0].get("used"), 1150, "as JSON")
    check("used" not in client.post("/v1/peek", {**asked, "detail": True}).json["limits"][0], "decisions stay as they are")
    check.equal(client.post("/v1/explain", {"key": "nobody", "limit": "fixed-window 9/h, smooth 5/s"}).json["limits"][0].get("used"), 0, "a key without a state")
    check("used" not in client.post("/v1/explain", {"key": "nobody", "limit": "smooth 5/s"}).json["limits"][0], "nobody knows it of saved permits")


def test_over_the_limit(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        over_the_limit(check, server, client)


def test_over_the_limit_redis(check):
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", POLICIES) as server, \
            http_client.Client(server.port) as client:
        over_the_limit(check, server, client)


def test_plans(check):
    """The plan is an attribute: without it the policy says the limit of another plan, and the answer the one that was last charged."""
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        where = ("--server", f"http://127.0.0.1:{server.port}", "--policy", "plans")
        pro = ("--request", "customer=pat&plan=pro")
        client.post("/v1/take", {"policy": "plans", "attributes": {"customer": "pat", "plan": "pro", "tokens": 5000}})
        named = "(limit month of policy plans)\n"
        check.equal(weir("refund", *where, *pro, "100"), (0, f"gave back 100 of 100: 4100 of 9000 left, fixed-window 9000/month {named}", ""), "with the plan")
        check.equal(weir("refund", *where, "--key", "pat", "100"), (0, f"gave back 100 of 100: 4200 of 9000 left, fixed-window 9000/month, as last charged {named}", ""), "without")
        row = client.post("/v1/refund", {"policy": "plans", "key": "pat", "amount": 100}).json["limits"][0]
        check.equal((row["limit"], row["used"], row.get("last_charged")), (1000, 4700, {"text": "fixed-window 9000/month", "limit": 9000, "remaining": 4300}), "over HTTP")
        out = weir("explain", *where, "--key", "pat")[1]
        lines = out.splitlines()
        check.equal(lines[0], "  last charged under fixed-window 9000/month: 4300 of 9000 left, 4700 used", "explained: what it was charged under is first")
        check(": 0 of 1000 left, 4700 used, 3700 over the limit" in lines[1] and lines[-1] == "without attributes: denied: 0 of 1000 left", f"explained: {out}")
        out = weir("explain", *where, *pro)[1]
        check(": 4300 of 9000 left, 4700 used, resets" in out and "last charged" not in out, f"explained with the plan: {out}")
        out = json.loads(weir("refund", *where, *pro, "100", "--json")[1])
        check.equal((out["request"], "key" in out, out["limits"][0]["remaining"]), (pro[1], False, 4400), "as JSON")
        out = json.loads(weir("refund", *where, "--key", "pat", "100", "--json")[1])
        check.equal(out["limits"][0]["last_charged"]["remaining"], 4500, "as JSON, by the key")
        check.equal(weir("refund", *where, "--request", "customer=patt", "5")[:2], (1, f"nothing to give back: customer=patt has used nothing under fixed-window 1000/month {named}"), "unknown")
        for words, part in ((("k", LIMIT, "5", "--request", "a=b"), "need --policy"), ((*where, "--request", "a=%", "5"), "invalid --request")):
            code, out, err = weir("refund", *words)
            check(code == 2 and part in err and not out, f"{words}: {code} {out}{err}")


def test_beside_takes(check):
    """Takes and refunds at the same time: nothing is lost, and never more is given back than was charged."""
    with weir_server.Server(policies=POLICIES) as server:
        failed = []

        def work(path, body):
            with http_client.Client(server.port) as client:
                for _ in range(300):
                    if client.post(path, body).status != 200:
                        failed.append(path)
        key = {"key": "k", "limit": "fixed-window 1g/30d from-first"}
        with http_client.Client(server.port) as client:
            client.post("/v1/take", {**key, "cost": 10_000})
            workers = [threading.Thread(target=work, args=arguments) for arguments in
                       [("/v1/take", {**key, "cost": 7})] * 3 + [("/v1/refund", {**key, "amount": 5})] * 3]
            [worker.start() for worker in workers]
            [worker.join() for worker in workers]
            check.equal(failed, [], "all are answered")
            left = client.post("/v1/peek", {**key, "cost": 0}).json
            check.equal(left["limit"] - left["remaining"], 10_000 + 900 * 7 - 900 * 5, "the sum")


# ---- what a policy charges, and whom it keeps out ----

def test_costs(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client, server.client() as resp:
        for value in (-5000, "lots", "5.5", 5.5, "1e3", " 5", "+5", True):
            answer = charge(client, value)
            problem(check, answer, 400, "invalid tokens", f"tokens {value!r}")
        check.equal(client.get("/v1/take?policy=tokens&key=bob&attr.tokens=lots").status, 400, "in a query")
        said = str(resp.pipeline([("WEIR.DECIDE", "POLICY", "tokens", "customer", "bob", "tokens", "lots")]))
        check('invalid tokens "lots": expected a whole number' in said, f"over RESP: {said}")
        check.equal(used(client), {"requests": 0, "minute": 0, "month": 0}, "nothing was charged")
        check.equal(charge(client, "99999999999999").status, 429, "too large is not malformed: it is the most")
        answer = client.post("/v1/take", {**BOB, "attributes": {"tokens": 100, "strange": "nonsense"}})
        check.equal((answer.status, used(client)["month"]), (200, 100), "what is only watched fails nobody")
        for value in ("lots", "-5", ""):
            answer = client.get("/v1/take?attr.path=/api/x", {"X-Tokens": value})
            check.equal((answer.status, answer.json["granted"]), (200, 7), f"the default for a stranger's field: {value!r}")


def test_deny_lists(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client, server.client() as resp:
        receipt = charge(client, 300).json["receipt"]
        denied = 'the deny list of policy "tokens" matches, entry 2: tokens is absent'
        answer = client.post("/v1/explain", BOB).json
        check.equal((answer["allowed"], answer["verdict"], answer["reason"], answer["detail"]), (False, "deny", "deny", denied), "explained")
        check.equal({row["name"]: row["limit"] - row["remaining"] for row in answer["limits"] if not row["shadow"]}, {"requests": 1, "minute": 300, "month": 300}, "the states")
        code, out, err = weir("explain", "--server", f"http://127.0.0.1:{server.port}", "--policy", "tokens", "--key", "bob")
        check(code == 0 and out.endswith(f"without attributes: denied: {denied}\n") and "999700 of 1000000 left" in out, f"at the shell: {out}{err}")
        check("entry 1: customer is mallory" in client.post("/v1/explain", {**BOB, "key": "mallory"}).json["detail"], "another entry")
        for path in ("/v1/peek", "/v1/take"):
            check.equal(client.post(path, {**BOB, "cost": 4000}).status, 403, f"{path} is denied as ever")
        check.equal(used(client), {"requests": 1, "minute": 300, "month": 300}, "nothing is charged")
        problem(check, client.post("/v1/settle", {**BOB, "receipt": receipt, "actual": 5}), 400, denied, "a settle without the tokens")
        said = str(resp.pipeline([("WEIR.DECIDE", "POLICY", "tokens", "customer", "bob", "SETTLE", receipt, "5")]))
        check(denied in said, f"over RESP: {said}")
        check.equal(client.post("/v1/settle", {**BOB, "attributes": {"tokens": 300}, "receipt": receipt, "actual": 5}).json, {"settled": True}, "with them")
        check.equal(client.post("/v1/refund", {"policy": "tokens", "key": "mallory", "amount": 5}).status, 200, "who gives back is not held up by lists")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
