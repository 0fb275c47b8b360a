#!/usr/bin/env python3
"""What a server says and counts where some decisions are the local fallback's: a cluster of which a node is away, answers
that come too late now and then.

    redis_outages.py [WORD …]
"""
import sys

from lib import abuse_tools, checks, http_client, redis_server, store_proxy, weir_server
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
                return lines(server, "were made by the local fallback")
            check(server.wait_for(late), f"fail={fail}: it is told: {server.stderr()}")
            line = lines(server, "were made by the local fallback")[0]
            check("no answer within 100ms" in line and advice in line, f"fail={fail}: with the cause and what to do: {line}")


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


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
