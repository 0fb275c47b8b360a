#!/usr/bin/env python3
"""What a server says and counts where some decisions are the local fallback's: a cluster of which a node is away, answers
that come too late now and then.

    redis_outages.py [WORD …]
"""
import sys

from lib import abuse_tools, checks, http_client, redis_server, store_proxy, weir_server
from lib.build import REDIS_MODULE
from lib.redis_cluster import Cluster

POLICIES = """version: 1
policies:
  - name: fleet
    cross_slot: give-back
    limits:
      - {name: customer, key: customer, limit: fixed-window 1000000/366d from-first}
      - {name: user, key: user, limit: fixed-window 1000000/366d from-first}
"""


def lines(server, words):
    return [line for line in server.errors if words in line]


def said(server, words):
    """Waits for a line on stderr; all such lines."""
    server.wait_for(lambda: lines(server, words))
    return lines(server, words)


def named(cluster, attribute, node):
    """A value whose key lies on that node."""
    return next(str(i) for i in range(1000) if cluster.owner(cluster.slot(f"{{{attribute}={i}}}")) == node)


def of_policy(server):
    report = abuse_tools.metrics(server)
    return tuple(int(abuse_tools.total(report, name)) for name in ("weir_degraded_decisions_total", "weir_policy_degraded_decisions_total"))


def servers(server):
    """How many servers the metric calls reached, and away."""
    report = abuse_tools.metrics(server)
    return tuple(int(report[f'weir_store_servers{{state="{state}"}}']) for state in ("reached", "away"))


def test_node_away(check):
    """One node of three is away: the others decide, and the line says whose keys are decided here. Requests of several keys
    are counted once, in total and for their policy, whichever of their keys it is. A node that comes back says CLUSTERDOWN
    for a while: it counts as away until it decides, even if nobody asks another one. The same with a node that has no memory."""
    with Cluster("--cluster-require-full-coverage no", node_timeout_ms=600000) as cluster, \
            weir_server.Server(["--store", cluster.url("deadline=1m&fail=closed")], POLICIES) as server, \
            http_client.Client(server.port) as client:
        take = lambda customer, user: client.post("/v1/take", {"attributes": {
            "customer": named(cluster, "customer", customer), "user": named(cluster, "user", user)}}).json
        check.equal(take(0, 1)["degraded"], False, "decided by the cluster")
        check(server.wait_for(lambda: servers(server) == (3, 0)), f"three servers: {servers(server)}")
        cluster.nodes[1].kill()
        away = said(server, "of 3 servers of the store cannot be reached")
        check(len(away) == 1 and "1 of 3 servers" in away[0] and f"127.0.0.1:{cluster.nodes[1].port}" in away[0]
              and "; meanwhile, for their keys, everything is denied" in away[0], f"which node, and what about its keys: {away}")
        check.equal(servers(server), (2, 1), "the metric counts it")
        check.equal([take(0, 2)["degraded"] for _ in range(3)], [False] * 3, "the others decide")
        check.equal([take(1, 0)["allowed"] for _ in range(4)] + [take(0, 1)["allowed"] for _ in range(5)] + [take(1, 1)["allowed"]],
                    [False] * 10, "its keys are decided here")
        check.equal(of_policy(server), (10, 10), "each request once, in total and for the policy")
        cluster.nodes[1].start()
        check(server.wait_for(lambda: returns(server, check, lambda: take(1, 1)["degraded"])), "it decides")
        back = said(server, "the store decides again")
        check(len(back) == 1 and back[0].endswith(f"(everything is denied): {of_policy(server)[0]}"),
              f"one line, with the requests, not the keys: {server.stderr()}, {of_policy(server)}")
        check.equal(len(lines(server, "the store")), 2, f"and no more: {server.stderr()}")
        refuse(check, cluster, server, client)


def returns(server, check, is_degraded):
    """Whether the node that is back decides; until then it is away, whenever it is asked."""
    before, degraded = servers(server), is_degraded()
    check(not degraded or (before[1], servers(server)[1]) != (0, 0), "what is not decided is away")
    return not degraded


def refuse(check, cluster, server, client):
    """The nodes have no memory, first one and then all: an outage of its keys, and then of the store."""
    ask = lambda *nodes: [client.post("/v1/take", {"key": f"{{customer={named(cluster, 'customer', node)}}}", "limit": "fixed-window 9/366d"}).json["degraded"]
                          for node in nodes]
    bound = lambda size, *nodes: [cluster.clients[node].call("CONFIG", "SET", "maxmemory", size) for node in nodes]
    cluster.clients[1] = cluster.stack.enter_context(cluster.nodes[1].client())  # it was started again
    bound("1", 0)
    check(server.wait_for(lambda: ask(0) and lines(server, "1 of 3 servers of the store did not decide")), f"one refuses: {server.stderr()}")
    line = lines(server, "1 of 3 servers of the store did not decide")[0]
    check(f": 127.0.0.1:{cluster.nodes[0].port}: OOM" in line and "; meanwhile, for their keys, " in line, f"which, and why: {line}")
    check.equal((ask(1, 2), servers(server)), ([False, False], (3, 0)), "the others decide; it can be reached")
    bound("1", 1, 2)
    check(server.wait_for(lambda: ask(0, 1, 2) and lines(server, "the store does not decide: OOM")), f"none of them decides: {server.stderr()}")
    bound("0", 0, 1, 2)
    check(server.wait_for(lambda: not any(ask(0, 1, 2)) and len(lines(server, "the store decides again")) == 2), f"all decide: {server.stderr()}")
    check.equal(len(lines(server, "the store")), 5, f"and no more lines: {server.stderr()}")


def test_late(check):
    """Answers that come too late now and then are told, with how many."""
    for fail, advice in (("local", "raise deadline=, and use fail=closed"), ("closed", "(everything is denied)")):
        with redis_server.Server() as redis, store_proxy.Proxy(redis.port) as proxy, \
                weir_server.Server(f"--store redis://127.0.0.1:{proxy.port}?fail={fail}&deadline=100ms") as server, \
                http_client.Client(server.port) as web:
            def late():
                """One answer too late, many in time before and after it."""
                take = lambda: web.get("/v1/take", key="k", limit="fixed-window 1000000/366d").json["degraded"]
                for _ in range(20):
                    take()
                proxy.mode, proxy.delay = "slow", 0.15
                take()
                proxy.mode = "pass"
                for _ in range(20):
                    take()
                return lines(server, "were made without the store")
            check(server.wait_for(late), f"fail={fail}: it is told: {server.stderr()}")
            line = lines(server, "were made without the store")[0]
            check("no answer within 100ms" in line and advice in line, f"fail={fail}: with the cause and what to do: {line}")


def test_late_slots(check):
    """Slots whose answer came too late are free again at once, not when their leases expire."""
    slots = {"key": "a", "limit": "concurrent 4 lease 1h"}
    with redis_server.Server(f"--loadmodule {REDIS_MODULE}") as redis, store_proxy.Proxy(redis.port) as proxy, \
            weir_server.Server(f"--store redis://127.0.0.1:{proxy.port}?deadline=100ms") as server, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as other, \
            http_client.Client(server.port) as client, http_client.Client(other.port) as neighbour:
        for _ in range(4):
            proxy.mode, proxy.delay = "slow", 0.15
            got = client.post("/v1/acquire", slots).json
            check.equal(got["degraded"], True, "late slots: decided by the local fallback")
            check.equal(client.post("/v1/release", {**slots, "lease": got["lease"]}).json, {"released": True}, "late slots: released")
            proxy.mode = "pass"
            server.wait_for(lambda: not client.get("/v1/take", key="k", limit="fixed-window 1g/h").json["degraded"])
        check(server.wait_for(lambda: neighbour.post("/v1/acquire", {**slots, "cost": 4}).json["allowed"]), "late slots: all are free")


DRY = """version: 1
policies:
  - {name: dry, match: by-name, key: user, limit: concurrent 4 lease 1h, shadow: true}
  - {name: slots, match: by-name, key: user, limits: [{name: a, limit: concurrent 4 lease 1h}, {name: b, limit: concurrent 2 lease 1h, shadow: true}]}
"""


def test_released_meanwhile(check):
    """A release during an outage answers 503 for an enforced limit and 200 for shadows; either slot is free when Redis is back."""
    for options in ("", f"--loadmodule {REDIS_MODULE}"):
        with redis_server.Server(options) as redis, store_proxy.Proxy(redis.port) as proxy, \
                weir_server.Server(f"--store redis://127.0.0.1:{proxy.port}?deadline=250ms", DRY) as server, \
                weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", DRY) as other, \
                http_client.Client(server.port) as client, http_client.Client(other.port) as neighbour:
            ask = lambda verb, policy, by=client, **more: by.post("/v1/" + verb, {"policy": policy, "key": "ann", **more})
            free = lambda policy: [row["remaining"] for row in ask("peek", policy, neighbour, detail=True).json["limits"]]
            check(server.wait_for(lambda: not ask("peek", "dry").json["degraded"]), "released meanwhile: Redis decides")
            leases = {policy: [ask("acquire", policy).json["lease"] for _ in range(2)] for policy in ("dry", "slots")}
            check.equal((free("dry"), free("slots")), ([2], [2, 0]), "released meanwhile: held")
            proxy.mode = "hold"
            said(server, "the store cannot be reached")
            for policy, wanted in (("dry", 200), ("slots", 503)):
                got = [ask("release", policy, lease=lease).status for lease in leases[policy]]
                check.equal(got, [wanted] * 2, f"released meanwhile: {policy}")
            check.equal((free("dry"), free("slots")), ([2], [2, 0]), "released meanwhile: still held")
            proxy.mode = "pass"
            check(server.wait_for(lambda: (free("dry"), free("slots")) == ([4], [4, 2])), f"released meanwhile: free: {free('dry')} {free('slots')}")


def test_denials_end_it(check):
    """A server that refused to write and from then on only denies, which needs no write, decides again after a while."""
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as server, \
            http_client.Client(server.port) as client, redis.client() as own:
        take = lambda key: client.get("/v1/take", key=key, limit="fixed-window 1/366d").json
        check.equal([take("spent")["allowed"] for _ in range(2)], [True, False], "denials: a limit is used up")
        own.call("CONFIG", "SET", "maxmemory", "1")
        check(server.wait_for(lambda: take("new")["degraded"] and lines(server, "the store does not decide: OOM")), f"denials: refused: {server.stderr()}")
        check.equal(take("spent")["degraded"], False, "denials: it denies meanwhile")
        own.call("CONFIG", "SET", "maxmemory", "0")
        check(server.wait_for(lambda: not take("spent")["degraded"] and lines(server, "the store decides again")), f"denials: over: {server.stderr()}")


def test_closed(check):
    """fail=closed in the store's address: the reason is not a limit."""
    with redis_server.Server() as redis, \
            weir_server.Server(["--store", f"redis://127.0.0.1:{redis.port}?deadline=1m&fail=closed"]) as server, \
            http_client.Client(server.port) as client:
        take = lambda: client.get("/v1/take?key=k&limit=fixed-window+1/366d")
        take()
        answer = take()
        check.equal((answer.status, answer.json["reason"], answer.fields["weir-reason"], "type" in answer.json), (429, "limit", "limit", True), "a limit")
        redis.kill()
        check(server.wait_for(lambda: take().json["degraded"]), "it is away")
        answer = take()
        check.equal((answer.status, answer.json["reason"], answer.fields["weir-reason"], "type" in answer.json), (429, "closed", "closed", False), "the store")


def test_reason_changes(check):
    """A server that was away comes back and refuses: the log says so, and names its reason once."""
    with redis_server.Server() as redis, \
            weir_server.Server(["--store", f"redis://127.0.0.1:{redis.port}?deadline=1m"]) as server, \
            http_client.Client(server.port) as client:
        take = lambda: client.get("/v1/take", key="k", limit="fixed-window 1000000/366d").json["degraded"]
        redis.kill()
        said(server, "the store cannot be reached")
        redis.options = "--min-replicas-to-write 1"
        redis.start()
        check(server.wait_for(lambda: take() and lines(server, "the store does not decide: NOREPLICAS")), f"it refuses: {server.stderr()}")
        check.equal(len(lines(server, "the store")), 2, f"one line for each reason: {server.stderr()}")
        with redis.client() as own:
            own.call("CONFIG", "SET", "min-replicas-to-write", "0")
        check(server.wait_for(lambda: not take() and lines(server, "the store decides again")), f"it decides: {server.stderr()}")


SHADOWS = """version: 1
policies:
  - {name: dry, key: user, shadow: true, limits: [{name: a, limit: fixed-window 1000000/366d}, {name: b, limit: fixed-window 9/366d}]}
  - {name: mixed, key: user, match: {mixed: "yes"}, limits: [{name: c, limit: fixed-window 9/366d}, {name: d, limit: fixed-window 9/366d, shadow: true}]}
"""


def test_shadows(check):
    """A dry run on a store that does not decide counts as degraded: in total and for its policy, once per request. The answer is
    that of the limits that are enforced."""
    with redis_server.Server() as redis, \
            weir_server.Server(["--store", f"redis://127.0.0.1:{redis.port}?deadline=1m"], SHADOWS) as server, \
            http_client.Client(server.port) as client:
        take = lambda **more: client.post("/v1/take", {"attributes": {"user": "ann", **more}}).json["degraded"]
        check.equal((take(), of_policy(server)), (False, (0, 0)), "decided by Redis")
        redis.kill()
        said(server, "the store cannot be reached")
        check.equal(([take() for _ in range(4)], of_policy(server)), ([False] * 4, (4, 4)), "of the shadows, once each")
        check.equal((take(mixed="yes"), of_policy(server)), (True, (5, 6)), "once for each policy")
        check.equal(int(abuse_tools.total(abuse_tools.metrics(server), "weir_store_degraded")), 1, "so the store is degraded")
        redis.start()
        back = said(server, "the store decides again")
        check(back[0].endswith(": 5"), f"the line counts them: {back}")


FAIL = """version: 1
policies:
  - {name: silent, match: {a: "*"}, key: user, limit: fixed-window 10/366d}
  - {name: local, match: {b: "*"}, key: user, limit: fixed-window 10/366d, fail: local}
  - {name: open, match: {c: "*"}, key: user, limit: fixed-window 10/366d, fail: open}
  - {name: closed, match: {d: "*"}, key: user, limit: fixed-window 10/366d, fail: closed}
  - {name: slots, match: by-name, key: user, limit: concurrent 10 lease 1h, fail: local}
"""
# How many of 4 requests that meet these policies are allowed, by the fail= of the address: five peers share each limit.
ALLOWED = {
    "a": {"local": 2, "open": 4, "closed": 0}, "b": {"local": 2, "open": 2, "closed": 2},
    "c": {"local": 4, "open": 4, "closed": 4}, "d": {"local": 0, "open": 0, "closed": 0},
    "ab": {"local": 2, "open": 2, "closed": 0}, "bc": {"local": 2, "open": 2, "closed": 2}, "bd": {"local": 0, "open": 0, "closed": 0},
}


def test_policies_fail(check):
    """What a policy says about an outage is obeyed, local as well; a policy that says nothing follows the address."""
    for fail in ("local", "open", "closed"):
        with weir_server.Server(f"--store redis://127.0.0.1:1?fail={fail}&peers=5", FAIL) as server, \
                http_client.Client(server.port) as web, server.client() as own:
            of = lambda met, user: {"user": user} | {name: "x" for name in met}
            decide = lambda met: own.call("WEIR.DECIDE", *(word for pair in of(met, "resp-" + met).items() for word in pair))[0]
            for met, allowed in ALLOWED.items():
                got = [web.post("/v1/take", {"attributes": of(met, met)}).json for _ in range(4)]
                check.equal([it["allowed"] for it in got], [i < allowed[fail] for i in range(4)], f"fail={fail}: HTTP, {met}")
                check.equal([it["degraded"] for it in got], [True] * 4, f"fail={fail}: {met} is marked")
                check.equal([decide(met) for _ in range(4)], [int(i < allowed[fail]) for i in range(4)], f"fail={fail}: RESP, {met}")
            told = {it["name"]: it["fail"] for it in web.get("/v1/policies").json["policies"]}
            check.equal((told["silent"], told["local"], told["closed"]), (fail, "local", "closed"), f"fail={fail}: /v1/policies")
            corrected(check, web, fail)


def corrected(check, web, fail):
    """Charges and slots of policies that say local are given back here."""
    asks = {"policy": "local", "key": "settled"}
    take = lambda: web.post("/v1/take", asks).json
    first = take()
    check.equal([first["allowed"], take()["allowed"], take()["allowed"]], [True, True, False], f"fail={fail}: used up")
    check.equal(web.post("/v1/settle", {**asks, "receipt": first["receipt"], "actual": 0}).status, 200, f"fail={fail}: settled")
    check.equal([take()["allowed"], take()["allowed"]], [True, False], f"fail={fail}: given back")
    slots = {"policy": "slots", "key": "held"}
    held = [web.post("/v1/acquire", slots).json for _ in range(3)]
    check.equal([it["allowed"] for it in held], [True, True, False], f"fail={fail}: slots")
    released = web.post("/v1/release", {**slots, "lease": held[0]["lease"]})
    check.equal((released.status, web.post("/v1/acquire", slots).json["allowed"]), (200, True), f"fail={fail}: a slot is free again")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
