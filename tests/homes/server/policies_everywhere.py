#!/usr/bin/env python3
"""One policy file, asked over HTTP, RESP and gRPC: the same decisions, field for field, counted and logged in the same way.

Each protocol has a server of its own with the same file and the same time, which stands still between requests. HTTP is
asked by JSON, RESP by redis-cli and by a client of ours, gRPC by grpc-js."""
import json
import os
import random
import re
import subprocess
import sys

import grpc_service
from lib import checks, http_client, ports, weir_server

POLICIES = """version: 1
policies:
  - name: bots
    match: {header.user-agent: "*bot*"}
    deny: [{ip: [10.9.0.0/16, "2001:db8::/32"]}]
    allow: [{ip: 10.8.0.1}]
    key: ip
    limit: fixed-window 3/m
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-key, key: header.x-api-key, missing: deny, limit: fixed-window 6/m}
      - {name: per-tenant, key: [tenant, method], limit: "sliding-log 7/m", cost: {of: units, default: 1, max: 3}}
      - {name: watched, key: tenant, limit: fixed-window 2/m, shadow: true}
    overrides:
      - {when: {tenant: big}, entry: per-key, limit: fixed-window 8/m}
  - name: upload
    match: {path: /upload/*, method: POST}
    key: lower(user)
    missing: empty
    limit: leaky-bucket 1/s burst 2
  - name: slots
    match: {slots: "*"}
    key: slots
    limit: concurrent 2 lease 30s
  - name: shared
    match: {class: "*"}
    key: tenant
    limit: sliding-window 9/m
    share: {by: lower(class), critical: 100%, batch: 30%, default: 60%}
    overrides: [{when: {tenant: big}, limit: sliding-window 12/m}]
  - name: by-name
    match: by-name
    key: user
    limit: token-bucket 1/m burst 3
  - name: usage
    match: by-name
    limits:
      - {name: bytes, key: user, limit: fixed-window 100/h, cost: {of: bytes, default: 0, max: 50}}
      - {name: tokens, key: user, limit: fixed-window 10/h, cost: {of: tokens, default: 1, max: 50}}
"""
NOW = 1700000000000000
START = 1700000000


def word(rng, *words):
    return rng.choice(words)


def attributes_of(rng):
    """Attributes of a random request: few values, so that limits are met; names in any case."""
    every = {
        word(rng, "path", "Path"): word(rng, "/api/x", "/api/y", "/upload/a", "/upload/%61", "/elsewhere", "//api//x"),
        word(rng, "method", "METHOD"): word(rng, "GET", "POST"),
        "ip": word(rng, "10.1.1.1", "10.9.3.4", "10.8.0.1", "2001:db8::1", "::ffff:10.1.1.1"),
        word(rng, "header.X-Api-Key", "Header.x-api-key"): word(rng, "k1", "k2", "x" * 300, "a b,=%"),
        "header.user-agent": word(rng, "mybot/1", "curl"),
        "tenant": word(rng, "big", "small", ""),
        "user": word(rng, "Ann", "ann", "b\u00e4r", ""),
        "class": word(rng, "critical", "Batch", "batch", "none"),
        "units": word(rng, "1", "2", "9", "0"),
    }
    return {name: value for name, value in every.items() if rng.random() < 0.75} or {"tenant": "small"}


class Asker:
    """One protocol's way to a server of its own."""

    def __init__(self, options=""):
        self.server = weir_server.Server("--test-clock --access-log log.json " + options, POLICIES)

    def __enter__(self):
        self.server.__enter__()
        self.http = http_client.Client(self.server.port)
        self.begin()
        return self

    def __exit__(self, *reason):
        self.end()
        self.http.close()
        self.server.__exit__(*reason)

    def begin(self):
        pass

    def end(self):
        pass

    def clock(self, us):
        answer = self.http.post("/v1/clock", {"now": http_client.Number(http_client.seconds(us))})
        assert answer.status == 200, answer


class Http(Asker):
    def ask(self, attributes, cost):
        body = {"attributes": attributes, **({} if cost is None else {"cost": cost})}
        answer = self.http.post("/v1/take", body)
        if answer.status == 400:
            return "refused"
        it = answer.json
        never = -1 if it["retry_after"] is None else it["retry_after"]
        return [int(it["allowed"]), it["limit"], it["remaining"], never, it["reset_after"], it["delay"]]


class Resp(Asker):
    def begin(self):
        self.client = self.server.client()

    def end(self):
        self.client.close()

    def words(self, attributes, cost):
        pairs = [text for pair in attributes.items() for text in pair]
        return ["WEIR.DECIDE", *pairs, *([] if cost is None else ["COST", cost])]

    def ask(self, attributes, cost):
        reply = self.client.pipeline([self.words(attributes, cost)])[0]
        return "refused" if isinstance(reply, weir_server.resp.RedisError) else reply[:6]


class RedisCli(Resp):
    def ask(self, attributes, cost):
        done = subprocess.run(["redis-cli", "-p", str(self.server.port), *map(str, self.words(attributes, cost))],
                              stdout=subprocess.PIPE, text=True, check=True)
        lines = done.stdout.splitlines()
        return "refused" if lines[0].startswith("ERR") else [int(line) for line in lines[:6]]


class Grpc(Asker):
    def begin(self):
        self.node = subprocess.Popen(["node", str(grpc_service.HERE / "grpc_client.js"), "pipe", str(self.server.port)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env=dict(os.environ, NODE_PATH=MODULES))

    def end(self):
        self.node.communicate(timeout=60)

    def send(self, message):
        self.node.stdin.write(json.dumps(message) + "\n")
        self.node.stdin.flush()
        return json.loads(self.node.stdout.readline())

    def ask(self, attributes, cost):
        return self.send(message_of("edge", [attributes], cost))


def message_of(domain, descriptors, cost=None):
    return {"domain": domain, "hits_addend": cost or 0,
            "descriptors": [{"entries": [{"key": name, "value": value} for name, value in it.items()]}
                            for it in descriptors]}


def as_grpc(check, answer, wanted, what):
    """Whether Envoy is answered what HTTP said."""
    if wanted == "refused":
        return check.equal(answer.get("overall_code"), "OVER_LIMIT", f"{what}: what is refused elsewhere is not let pass")
    allowed, _, remaining, retry, reset, _ = wanted
    status = answer["statuses"][0]
    code = "OK" if allowed else "OVER_LIMIT"
    check.equal([answer["overall_code"], status["code"]], [code, code], what)
    if not status["current_limit"]:
        return check.equal(wanted[1:3], [0, 0], f"{what}: without a limit")
    check.equal(status["limit_remaining"], remaining, f"{what}: remaining")
    until = retry if not allowed and retry >= 0 else reset
    if retry >= 0:
        check.equal(status["duration_until_reset"]["seconds"], -(-until // 1000000), f"{what}: until reset")
    return True


# ---- the same decisions ----

COUNTED = re.compile(r"weir_\w+\{.*policy=.*")


def counted(asker):
    """What /metrics says of decisions, by policy and limit."""
    return sorted(line for line in asker.http.get("/metrics").body.decode().splitlines()
                  if COUNTED.match(line))


def ranked(asker):
    top = asker.http.get("/v1/top").json
    text = json.dumps(top, sort_keys=True)
    return sorted(re.findall(r'"key": "([^"]*)"', text))


def same_counts(check, asker, http):
    ours, theirs = counted(asker), counted(http)
    check(len(theirs) > 10, f"there are counters: {theirs}")
    check.equal([it for it in ours if it not in theirs], [it for it in theirs if it not in ours], "counted as over HTTP")
    check.equal(ranked(asker), ranked(http), "ranked as over HTTP")


def logged(asker):
    """The access log's lines, without what differs by protocol: who asked and how."""
    lines = (asker.server.folder / "log.json").read_text().splitlines()
    dropped = ("protocol", "client", "time")
    return [{name: value for name, value in json.loads(line).items() if name not in dropped} for line in lines]


def test_same(check):
    rng = random.Random(os.environ.get("SEED", "policies"))
    with Http() as http, Resp() as resp:
        now, answers = NOW, []
        for i in range(1000):
            if rng.random() < 0.3:
                now += rng.choice((1, 400000, 7000000, 61000000))
            for asker in (http, resp):
                asker.clock(now)
            attributes, cost = attributes_of(rng), rng.choice((None, None, None, 0, 1, 2, 5))
            answers.append(http.ask(attributes, cost))
            if not check.equal(resp.ask(attributes, cost), answers[-1], f"{i}: {attributes} at {now} cost {cost}"):
                break
        check(sum(it != "refused" and it[0] == 0 for it in answers) > 50, "many are denied")
        check(sum(it != "refused" and it[0] == 1 and it[1] > 0 for it in answers) > 50, "many are allowed")
        check.equal(any(it != "refused" and it[5] > 0 for it in answers), True, "some are to wait")
        same_counts(check, resp, http)
        for asker in (http, resp):
            asker.server.stop()
        check.equal(logged(resp), logged(http), "logged over RESP as over HTTP")


def test_same_over_grpc(check):
    """Without limits that wait, which Envoy cannot: counters and logs, too, are as HTTP's."""
    rng = random.Random(os.environ.get("SEED", "grpc"))
    with Http() as http, Grpc() as grpc:
        refused = 0
        for asker in (http, grpc):
            asker.clock(NOW)
        for i in range(300):
            attributes = attributes_of(rng)
            attributes = {name: value.replace("/upload/", "/api/") for name, value in attributes.items()}
            wanted = http.ask(attributes, None)
            refused += wanted == "refused"
            as_grpc(check, grpc.ask(attributes, None), wanted, f"request {i}, {attributes}")
        same_counts(check, grpc, http)
        for asker in (http, grpc):
            asker.server.stop()
        lines = logged(grpc)
        check.equal(sum(it["verdict"] == "unreadable" for it in lines), refused, "what cannot be planned is logged")
        check.equal([it for it in lines if it["verdict"] != "unreadable"], logged(http), "logged over gRPC as over HTTP")


def test_redis_cli(check):
    rng = random.Random("redis-cli")
    with Http() as http, RedisCli() as cli:
        for asker in (http, cli):
            asker.clock(NOW)
        for i in range(40):
            attributes = attributes_of(rng)
            check.equal(cli.ask(attributes, None), http.ask(attributes, None), f"redis-cli, request {i}, {attributes}")


# ---- RESP ----

def test_syntax(check):
    with Resp() as resp:
        resp.clock(NOW)
        ask = lambda *words: resp.client.pipeline([("WEIR.DECIDE", *words)])[0]
        api = ("path", "/api/x", "header.x-api-key", "k")
        check.equal(ask(*api)[:3], [1, 6, 5], "a decision")
        check.equal(ask(*api, "DETAIL")[7:], [0, [1, 6, 4, 0, 40000000, 0]], "and its rows")
        check.equal(ask(*api, "cost", 2, "wait", "any", "detail")[2], 2, "options in any case")
        check.equal(ask("path", "COST", "header.x-api-key", "DETAIL")[:3], [1, 0, 0], "a value is never an option")
        check.equal(ask(*api, "tenant", "SETTLE", "method", "POST")[2], 1, "nor here")
        check.equal(ask("attr.path", "/api/x", "attr.header.X-API-Key", "z")[:3], [1, 6, 5], "attr. before names")
        check.equal(ask("attr.cost", "5", "attr.policy", "x", "attr.detail", "y")[:4], [1, 0, 0, 0], "names of options")
        check.equal(ask("POLICY", "by-name", "user", "ann", "COST", 2)[:3], [1, 3, 1], "a policy by its name")
        check.equal(ask("policy", "by-name", "user", "ann")[2], 0, "in any case")
        check.equal(ask("path", "/api/x")[:7], [0, 0, 0, -1, 0, 0, b""], "an attribute is missing")
        bot = ("header.user-agent", "bot", "ip")
        check.equal(ask(*bot, "10.9.1.1")[:7], [0, 0, 0, -1, 0, 0, b""], "a deny list")
        check.equal(ask(*bot, "10.8.0.1")[:7], [1, 0, 0, 0, 0, 0, b""], "an allow list")
        check.equal(ask("tenant", "x", "DETAIL"), [1, 0, 0, 0, 0, 0, b""], "nothing applies")
        wrong = [((), "WEIR.DECIDE [POLICY name]"), (("path",), "has no value"), (("path", "/", "user"), "has no value"),
                 (("", "x"), "1 to 64 bytes"), (("attr.", "x"), "1 to 64 bytes"), (("n" * 65, "x"), "1 to 64 bytes"),
                 (("path", "/a", "Path", "/b"), "given twice"), (("user", "a", "attr.user", "a"), "given twice"),
                 (("header.X-A", "a", "HEADER.x-a", "b"), "given twice"),
                 (("user", "a", "COST"), "found \"COST\""), (("user", "a", "COST", 1, "COST", 1), "found \"COST\""),
                 (("user", "a", "COST", 1, "ip", "::1"), "found \"ip\""), (("user", "a", "COST", -1), "COST must be"),
                 (("user", "a", "COST", 10 ** 13), "COST must be"), (("user", "a", "WAIT", "x"), "WAIT must be"),
                 (("user", "a", "SETTLE", "w"), "found \"SETTLE\""), (("COST", 1), "WEIR.DECIDE [POLICY name]"),
                 (("POLICY", ""), "is empty"), (("POLICY", "nothing", "user", "a"), "no policy is named"),
                 ((*bot, "10.1.1.1.1"), "ip"), (("path", "/\0"), "control character"),
                 (tuple(text for i in range(33) for text in (f"a{i}", "x")), "at most 32 attributes"),
                 (("user", "a", "SETTLE", "w", 1, "DETAIL"), "with SETTLE")]
        for words, why in wrong:
            reply = ask(*words)
            check(isinstance(reply, weir_server.resp.RedisError) and why in str(reply), f"{words}: {reply!r}, not {why}")
        check.equal(ask(*[text for i in range(32) for text in (f"a{i}", "v" * 60)])[:2], [1, 0], "32 attributes")
        check.equal(len(ask("path", "/api/x", "header.x-api-key", "v" * 65536)), 7, "a value of 65,536 bytes")
        check.equal(resp.client.pipeline([("WEIR.DECIDE", *api), ("PING",), ("WEIR.DECIDE", "x"),
                                          ("WEIR.TAKE", "k", "fixed-window 1/h")])[1], "PONG", "in a pipeline")


def test_settle(check):
    """A decision's receipt settles it, over RESP and over HTTP."""
    with Resp() as resp:
        resp.clock(NOW)
        ask = lambda *words: resp.client.pipeline([("WEIR.DECIDE", *words)])[0]
        policy = ("POLICY", "by-name", "user", "ann")
        left = lambda: ask(*policy, "COST", 0)[2]
        receipt = ask(*policy, "COST", 3)[6]
        check.equal(left(), 0, "used up")
        check.equal(ask(*policy, "COST", 3, "SETTLE", receipt, 1), "OK", "settled")
        check.equal(left(), 2, "what it did not cost is back")
        check.equal(ask(*policy, "COST", 3, "SETTLE", receipt, 1), "SETTLED", "once")
        check.equal(left(), 2, "and only once")
        reply = ask("POLICY", "by-name", "user", "bob", "COST", 3, "SETTLE", receipt, 0)
        check("invalid receipt" in str(reply), f"of another request: {reply!r}")
        check("nothing to settle" in str(ask("tenant", "x", "SETTLE", receipt, 0)), "where nothing applies")
        receipt = ask(*policy, "COST", 2)[6].decode()
        body = {"policy": "by-name", "attributes": {"user": "ann"}, "cost": 2, "receipt": receipt, "actual": 0}
        check.equal(resp.http.post("/v1/settle", body).json, {"settled": True}, "over HTTP")
        check.equal(left(), 2, "given back")
        receipt = resp.http.post("/v1/take", {"policy": "by-name", "attributes": {"user": "ann"}, "cost": 2}).json["receipt"]
        check.equal(ask(*policy, "COST", 2, "SETTLE", receipt, 0), "OK", "and the other way round")


def test_settle_costs(check):
    """Limits with costs of their own, the first of them nothing: what was charged is given back, once, and nothing else."""
    with Resp() as resp:
        resp.clock(NOW)
        ask = lambda *words: resp.client.pipeline([("WEIR.DECIDE", "POLICY", "usage", "user", "ann", *words)])[0]
        left = lambda: ask("COST", 0, "DETAIL")[9][2]
        use = ("tokens", 4)
        receipt, _ = ask(*use)[6], ask(*use)
        check.equal(left(), 2, "two of four")
        check("invalid receipt" in str(ask("bytes", 4, *use, "SETTLE", receipt, 0)), "the costs are those of the decision")
        check("invalid receipt" in str(ask("tokens", 5, "SETTLE", receipt, 0)), "all of them")
        check.equal([ask(*use, "SETTLE", receipt, 0), ask(*use, "SETTLE", receipt, 0)], ["OK", "SETTLED"], "settled once")
        check.equal(left(), 6, "and given back once")
        denied = ask("tokens", 7)
        check.equal(denied[0], 0, "denied")
        check.equal(ask("tokens", 7, "SETTLE", denied[6], 0), "OK", "its receipt")
        check.equal(left(), 6, "was charged nothing, so nothing is given back")
        body = {"policy": "usage", "attributes": {"user": "ann", "bytes": 3, "tokens": 5}}
        receipt = resp.http.post("/v1/take", body).json["receipt"]
        settle = lambda **more: resp.http.post("/v1/settle", {**body, "receipt": receipt, "actual": 0, **more}).status
        other = {"attributes": {"user": "ann", "bytes": 0, "tokens": 5}}
        check.equal([settle(**other), left(), settle(), settle(), left()], [400, 1, 200, 200, 6], "over HTTP")


def test_redis_store(check):
    """Decisions that leave the loop: what they need travels with them, and pipelines keep their order."""
    with grpc_service.redis_server.Server() as redis:
        store = f"--store redis://127.0.0.1:{redis.port}?deadline=1m"
        policy = POLICIES.replace("fixed-window 6/m", "fixed-window 600/366d").replace("sliding-log 7/m", "fixed-window 900/366d")
        asker, other = Resp(store), Grpc(store)
        for it in (asker, other):
            it.server.write("policies.yaml", policy)
            it.server.options = [word for word in it.server.options if word != "--test-clock"]
        with asker, other:
            words = ["WEIR.DECIDE", "path", "/api/x", "header.x-api-key", "k", "tenant", "small", "method", "GET", "COST", 1,
                     "DETAIL"]
            replies = asker.client.pipeline([words] * 300 + [["WEIR.DECIDE", "path", "/api/x"], ["PING"]])
            check.equal([reply[8][2] for reply in replies[:300]], list(range(599, 299, -1)), "300 in a pipeline, in order")
            check.equal([reply[9][2] for reply in replies[:300]], list(range(899, 599, -1)), "their second rows")
            check.equal(replies[300:], [[0, 0, 0, -1, 0, 0, b""], "PONG"], "what needs no store, in its place")
            answer = other.ask({"path": "/api/x", "header.x-api-key": "k", "tenant": "small", "method": "GET"}, 10)
            check.equal([codes(answer), answer["statuses"][0]["limit_remaining"]], [["OK", "OK"], 290], "another server, by gRPC")
            receipt = replies[299][6]
            check.equal(asker.client.call(*words[:-1], "SETTLE", receipt, 0), "OK", "settled there")
            answer = other.ask({"path": "/api/x", "header.x-api-key": "k", "tenant": "small", "method": "GET"}, 1)
            check.equal(answer["statuses"][0]["limit_remaining"], 290, "and given back")
            for it in (asker, other):
                it.server.stop()
            check.equal(len(logged(asker)), 301, "each is logged")


# ---- gRPC ----

ENVOY = """domain: shop
descriptors:
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 1}}
"""


def codes(answer):
    return [answer["overall_code"], *(it["code"] for it in answer["statuses"])]


def test_descriptors(check):
    """All descriptors are charged, or none; each has its own status."""
    key = lambda it: {"path": "/api/x", "header.x-api-key": it}
    with Grpc() as grpc:
        grpc.clock(NOW)
        answer = grpc.send(message_of("edge", [key("a"), key("b")], 4))
        check.equal(codes(answer), ["OK"] * 3, "two descriptors")
        check.equal([it["limit_remaining"] for it in answer["statuses"]], [2, 2], "both are charged")
        check.equal(answer["statuses"][0]["current_limit"], {"requests_per_unit": 6, "unit": "MINUTE", "name": "per-key"},
                    "the limit that bound")
        grpc.send(message_of("edge", [key("a")], 2))
        answer = grpc.send(message_of("edge", [key("a"), key("b")]))
        check.equal(codes(answer), ["OVER_LIMIT", "OVER_LIMIT", "OK"], "one of them is over")
        check.equal(answer["statuses"][1]["limit_remaining"], 2, "the other is not charged")
        answer = grpc.send(message_of("edge", [key("c"), key("c")], 2))
        check.equal([it["limit_remaining"] for it in answer["statuses"]], [2, 2], "the same twice counts twice")
        check.equal(codes(grpc.send(message_of("edge", [key("c"), key("c")], 2))), ["OVER_LIMIT"] * 3, "together")
        answer = grpc.send(message_of("edge", [key("d"), {"path": "/api/x"}]))
        check.equal(codes(answer), ["OVER_LIMIT", "OK", "OVER_LIMIT"], "a missing attribute")
        check.equal(grpc.send(message_of("edge", [key("d")]))["statuses"][0]["limit_remaining"], 5, "charges nothing")
        bot = {"header.user-agent": "bot", "remote_address": "10.9.0.1"}
        check.equal(codes(grpc.send(message_of("edge", [bot]))), ["OVER_LIMIT"] * 2, "remote_address is ip")
        both = key("e") | {"tenant": "big"}, key("e")
        check.equal(codes(grpc.send(message_of("edge", both)))[0], "OVER_LIMIT", "one place, two limits: not let pass")
        check.equal(grpc.send(message_of("edge", [key("e")]))["statuses"][0]["limit_remaining"], 5, "and not charged")
        refund = message_of("edge", [key("a")], 5)
        refund["descriptors"][0]["is_negative_hits"] = True
        check.equal(codes(grpc.send(refund)), ["OK", "OK"], "a refund")
        check.equal(grpc.send(message_of("edge", [key("a")]))["statuses"][0]["limit_remaining"], 4, "is given back")
        twice = message_of("edge", [key("f")])
        twice["descriptors"][0]["entries"] += [{"key": "Header.X-Api-Key", "value": "g"}]
        check.equal(grpc.send(twice)["overall_code"], "OVER_LIMIT", "an attribute twice")
        many = message_of("edge", [key(f"m{i}") for i in range(16)])
        check.equal(codes(grpc.send(many)), ["OK"] * 17, "16 limits")
        many = message_of("edge", [key(f"m{i}") | {"tenant": "t", "method": "GET"} for i in range(16)])
        check.equal(grpc.send(many)["overall_code"], "OVER_LIMIT", "more than 16 limits")
        slots = message_of("edge", [{"slots": "s"}])
        check.equal(grpc.send(slots)["overall_code"], "OVER_LIMIT", "a concurrent limit")
        slots["descriptors"][0]["is_negative_hits"] = True
        check.equal(grpc.send(slots)["overall_code"], "OVER_LIMIT", "a refund of it")
        long = message_of("edge", [key("x" * 20000)])
        check(grpc.send(long)["overall_code"] in ("OK", "OVER_LIMIT"), "a long value is answered")


def test_out_of_reach(check):
    """While no store decides, `fail` of the policies holds for limits. A deny list needs no store: it denies as ever."""
    bot = {"header.user-agent": "bot", "ip": "10.9.0.1"}
    limited = {"path": "/api/x", "header.x-api-key": "a"}
    nowhere = f"--store redis://127.0.0.1:{ports.take()}"
    for fail in ("open", "closed", "local"):
        asker = Grpc(nowhere)
        asker.server.write("policies.yaml", POLICIES.replace("    key: ip\n", f"    fail: {fail}\n    key: ip\n")
                           .replace("    limits:\n", f"    fail: {fail}\n    limits:\n"))
        asker.server.options = [word for word in asker.server.options if word != "--test-clock"]
        with asker:
            say = lambda *descriptors: codes(asker.send(message_of("edge", descriptors)))
            code = "OVER_LIMIT" if fail == "closed" else "OK"
            check.equal(say(limited), [code, code], f"fail: {fail}")
            check.equal(say(bot), ["OVER_LIMIT"] * 2, f"fail: {fail}: a deny list")
            check.equal(say(bot, limited), ["OVER_LIMIT", "OVER_LIMIT", code], f"fail: {fail}: beside a limit")
            check.equal(say(limited, bot), ["OVER_LIMIT", code, "OVER_LIMIT"], f"fail: {fail}: behind a limit")
            check.equal(say(limited, {"path": "/api/x"}), ["OVER_LIMIT", code, "OVER_LIMIT"], f"fail: {fail}: a missing attribute")


def test_domains(check):
    """A domain of Envoy's file is decided by that file; the others by the policies, with the domain as an attribute."""
    policies = """version: 1
policies:
  - {name: edge, match: {domain: edge}, key: [domain, tenant], limit: fixed-window 2/m}
"""
    server = weir_server.Server("--test-clock --envoy envoy.yaml", policies, files={"envoy.yaml": ENVOY})
    grpc = Grpc.__new__(Grpc)
    grpc.server = server
    with grpc:
        grpc.clock(NOW)
        say = lambda domain: codes(grpc.send(message_of(domain, [{"tenant": "t"}])))[0]
        check.equal([say("shop"), say("shop")], ["OK", "OVER_LIMIT"], "Envoy's file")
        check.equal([say("edge") for _ in range(3)], ["OK", "OK", "OVER_LIMIT"], "the policies")
        check.equal([say("other") for _ in range(3)], ["OK"] * 3, "neither")
        answer = grpc.http.post("/json", {"domain": "edge", "descriptors": [{"entries": [{"key": "tenant", "value": "t"}]}]})
        check.equal([answer.status, answer.json["overallCode"]], [429, "OVER_LIMIT"], "POST /json")
        metrics = grpc.http.get("/metrics").body.decode()
        check.contains(metrics, "weir_envoy_unknown_domain_total 3", "domains that nobody knows are counted")


if __name__ == "__main__":
    MODULES = grpc_service.modules()
    sys.exit(checks.run([test_same, test_same_over_grpc, test_redis_cli, test_syntax, test_settle, test_settle_costs,
                         test_redis_store, test_descriptors, test_out_of_reach, test_domains], sys.argv[1:]))
