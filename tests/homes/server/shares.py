#!/usr/bin/env python3
"""Shares of a policy's limits: a real server, asked over HTTP, RESP and Envoy's JSON, decides as the model does, all classes
in one state; what the fields say; receipts; a changed file; never more than the limit, whoever asks at the same time."""
import json
import random
import subprocess
import sys
import tempfile
import threading

from lib import checks, http_client, lua_cases, weir_server
from lib.build import WEIR
from model import Model  # tests/model, by lua_cases

language = lua_cases.language
NOW = 1_700_000_000_000_000
SHARES = {"critical": "100", "normal": "80", "batch": "12.5", "bulk-*": "33.3333", "default": "50"}
CLASSES = ["critical", "normal", "batch", "bulk-1", "bulk-", "Batch", "other", "", None]
LIMITS = ["token-bucket 10/s burst 40", "token-bucket 7/m burst 33 stepped", "leaky-bucket 5/s burst 19 nodelay",
          "fixed-window 30/m", "fixed-window 17/m from-first", "sliding-log 23/m", "sliding-window 31/m precision 7s",
          "sliding-counter 29/m", "fixed-window 11/s, sliding-log 90/h"]


def share_of(name):
    """The share of a request of this class."""
    if name is not None and name.startswith("bulk-"):
        return SHARES["bulk-*"]
    return SHARES.get(name if name != "default" else None, SHARES["default"])


def share_text(shares):
    return "{by: class, " + ", ".join(f"{name}: {part}%" for name, part in shares.items()) + "}"


def policies(limits=LIMITS, shares=None):
    lines = ["version: 1", "policies:"]
    for i, text in enumerate(limits):
        lines.append(f'  - {{name: p{i}, match: {{limit: "{i}"}}, key: user, limit: "{text}", '
                     f"share: {share_text(shares or SHARES)}}}")
    return "\n".join(lines) + "\n"


def attributes(i, name, user="ann"):
    return {"limit": str(i), "user": user, **({} if name is None else {"class": name})}


def set_clock(client, us):
    answer = client.post("/v1/clock", {"now": http_client.Number(http_client.seconds(us))})
    assert answer.status == 200, answer


# ---- as the model ----

def over_http(client, said, cost):
    it = client.post("/v1/take", {"attributes": said, "cost": cost}).json
    retry = -1 if it["retry_after"] is None else it["retry_after"]
    return [int(it["allowed"]), it["limit"], it["remaining"], retry, it["reset_after"], it["delay"]]


def over_resp(client, said, cost):
    return client.call("WEIR.DECIDE", *(text for pair in said.items() for text in pair), "COST", cost)[:6]


def over_envoy(client, said, cost):
    entries = [{"key": name, "value": value} for name, value in said.items()]
    answer = client.post("/json", {"domain": "edge", "descriptors": [{"entries": entries, "hitsAddend": str(cost)}]})
    status = json.loads(answer.body)["statuses"][0]
    return [int(answer.status == 200), status.get("limitRemaining", 0)]


def test_model(check):
    """Three protocols take turns on the same states."""
    rng = random.Random(checks.seed())
    with weir_server.Server("--test-clock", policies()) as server, http_client.Client(server.port) as http, \
            server.client() as resp:
        model, now, denied = Model(), NOW, 0
        for step in range(1500):
            now += rng.choice((0, 0, 1, 1000, 90_000, 700_000, 5_000_000))
            set_clock(http, now)
            i, name, cost = rng.randrange(len(LIMITS)), rng.choice(CLASSES), rng.choice((1, 1, 1, 2, 5, 0))
            limits = [language.reduced(limit, share_of(name)) for limit in language.parse(LIMITS[i])]
            way = rng.choice((over_http, over_resp, over_envoy)) if cost > 0 else over_http
            answer = model.take(now, f"{i}", limits, cost, 0 if way is over_envoy else "default")[0]
            wanted = [int(answer.allowed), answer.limit, answer.remaining, answer.retry_after, answer.reset_after, answer.delay]
            denied += not answer.allowed
            got = way(resp if way is over_resp else http, attributes(i, name), cost)
            wanted = wanted[0::2][:2] if way is over_envoy else wanted
            if not check.equal(got, wanted, f"{step}: {LIMITS[i]}, {name}, cost {cost}, {way.__name__}"):
                return
        check.within(denied, 200, 1300, "some were denied")


def test_reduced(check):
    """Every limit that a file makes is what the model makes."""
    rng = random.Random(checks.seed())
    texts = [*LIMITS, "leaky-bucket 5/s burst 9 delay 8", "leaky-bucket 5/s", "fixed-window 1/m", "fixed-window 1000000000000/d",
             "sliding-log 100000/m", "sliding-counter 999999999/m", "concurrent 7 lease 3s", "leaky-bucket 1g/us burst 1000000000000"]
    parts = [f"{rng.randint(1, 10 ** 6) / 10 ** 4:.4f}" for _ in range(14)] + ["0.0001", "99.9999"]
    shares = {**{f"c{i}": part for i, part in enumerate(parts)}, "default": "100.0"}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(policies(texts, shares))
        file.flush()
        done = subprocess.run([WEIR, "check", "--json", file.name], stdout=subprocess.PIPE, check=True)
    for text, policy in zip(texts, json.loads(done.stdout)["policies"]):
        share = policy["limits"][0]["share"]
        check.equal(share["by"], "class", text)
        for part, found in zip(shares.values(), share["classes"]):
            wanted = language.text([language.reduced(limit, part) for limit in language.parse(text)])
            check.equal(found["limit"], wanted, f"{part}% of {text}")
    check.equal(len(share["classes"]), 17, "all classes")


# ---- what is told ----

def test_fields(check):
    with weir_server.Server("--test-clock", policies()) as server, http_client.Client(server.port) as client:
        set_clock(client, NOW)
        answer = client.post("/v1/take", {"attributes": attributes(3, "normal")})
        check.equal(answer.fields["ratelimit-policy"], '"p3";q=24;w=60', "the quota is the share's")
        check.equal(answer.fields["ratelimit"], '"p3";r=23;t=40', "what is left of it")
        told = client.get("/v1/policies").json["policies"][3]["limits"][0]
        check.equal(told["limit"], "fixed-window 30/m", "the whole limit")
        check.equal([(it["class"], it["share"], it["limit"]) for it in told["share"]["classes"]][1:3],
                    [("normal", "80%", "fixed-window 24/m"), ("batch", "12.5%", "fixed-window 3/m")], "its shares")
        answer = client.post("/v1/take", {"attributes": attributes(3, "batch"), "cost": 4})
        check.equal([answer.status, answer.json["retry_after"], "retry-after" in answer.fields], [429, None, False],
                    "more than its share is never allowed")
        answer = client.get("/v1/take?attr.limit=3&attr.user=ann&attr.class=batch&attr.class=critical")
        check.equal([answer.status, "twice" in answer.json["detail"]], [400, True], f"a class that is sent twice: {answer.body}")


def test_receipts(check):
    """A receipt of one class corrects the state of all."""
    with weir_server.Server("--test-clock", policies()) as server, http_client.Client(server.port) as http, \
            server.client() as resp:
        set_clock(http, NOW)
        for i in range(len(LIMITS) - 1):
            said = attributes(i, "critical")
            taken = http.post("/v1/take", {"attributes": said, "cost": 12}).json
            check.equal(taken["allowed"], True, LIMITS[i])
            over_batch = over_http(http, attributes(i, "batch"), 1)
            check.equal(over_batch[0], 0, f"{LIMITS[i]}: used up for batch")
            settle = {"attributes": said, "cost": 12, "receipt": taken["receipt"], "actual": 0}
            other = http.post("/v1/settle", {**settle, "attributes": attributes(i, "batch")})
            check.equal(other.json, {"settled": True}, f"{LIMITS[i]}: settled, by whatever class: it is one state")
            check.equal(http.post("/v1/settle", settle).json, {"settled": True, "before": True}, f"{LIMITS[i]}: once")
            taken = resp.call("WEIR.DECIDE", "limit", i, "user", "ann", "class", "batch", "COST", 2)
            check.equal(taken[0], 1, f"{LIMITS[i]}: there is room for batch again")
            check.equal(resp.call("WEIR.DECIDE", "limit", i, "user", "ann", "class", "batch", "COST", 2, "SETTLE", taken[6], 0),
                        "OK", f"{LIMITS[i]}: over RESP")
            size = over_http(http, said, 0)
            check.equal(size[1], size[2], f"{LIMITS[i]}: all of it is there again")


def test_changed_file(check):
    """Another share of the same limit applies to the same state at once."""
    with weir_server.Server("--test-clock", policies()) as server, http_client.Client(server.port) as client:
        set_clock(client, NOW)
        check.equal(over_http(client, attributes(3, "normal"), 20)[:3], [1, 24, 4], "80 percent")
        (server.folder / "new.yaml").write_text(policies(shares={**SHARES, "normal": "90"}))
        (server.folder / "new.yaml").rename(server.folder / "policies.yaml")
        check.equal(client.post("/v1/reload", {}).status, 200, "reloaded")
        check.equal(over_http(client, attributes(3, "normal"), 1)[:3], [1, 27, 6], "90 percent")
        (server.folder / "new.yaml").write_text(policies(shares={**SHARES, "normal": "0"}))
        (server.folder / "new.yaml").rename(server.folder / "policies.yaml")
        answer = client.post("/v1/reload", {})
        check.equal(answer.status, 409, "a share of nothing is refused")
        check.contains(answer.body.decode(), "more than 0% and at most 100%", "with its reason")
        check.equal(over_http(client, attributes(3, "normal"), 1)[:3], [1, 27, 5], "and what was in force is")


# ---- together ----

def test_never_more(check):
    """All classes at once, from several connections: batch gets its share at most, all together the limit exactly."""
    for i, size in ((0, 40), (3, 30), (5, 23)):
        with weir_server.Server("--test-clock --threads 2", policies()) as server:
            with http_client.Client(server.port) as client:
                set_clock(client, NOW)
            got = {"critical": 0, "normal": 0, "batch": 0}

            def ask(name, i=i, got=got, server=server):
                with server.client() as client:
                    words = ("WEIR.DECIDE", "limit", i, "user", "ann", "class", name)
                    got[name] = sum(reply[0] for reply in client.pipeline([words] * 100))

            threads = [threading.Thread(target=ask, args=(name,)) for name in got]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            check.equal(sum(got.values()), size, f"{LIMITS[i]}: {got} together")
            check.at_most(got["batch"], size // 8, f"{LIMITS[i]}: batch")
            check.at_most(got["batch"] + got["normal"], size * 8 // 10, f"{LIMITS[i]}: batch and normal")


TESTS = [test_model, test_reduced, test_fields, test_receipts, test_changed_file, test_never_more]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
