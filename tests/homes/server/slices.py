#!/usr/bin/env python3
"""A server whose Redis store takes slices: what it answers by itself, in which order, how it counts that, and what becomes of
its units when it ends.

    slices.py [WORD …]

The limits refill next to nothing within a test (366 days), so that sums are exact: what Redis has charged is what was admitted
and what is held.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading

import grpc_service
from lib import checks, http_client, redis_server, weir_server
from lib.build import WEIR
from lib.checks import until
from lib.redis_cluster import Cluster

SLICED = "slices=10%&peers=2&slice-life=5s&deadline=1m"
SIZE, HELD, PROCESS = 20_000, 2_000, 1_000  # of LIMIT; H and h
LIMIT = f"token-bucket 1/366d burst {SIZE}"
POLICIES = f"""version: 1
policies:
  - name: one
    match: {{path: /one}}
    key: user
    limit: {LIMIT}
  - name: two
    match: {{path: /two}}
    limits:
      - {{name: mine, key: user, limit: {LIMIT}}}
      - {{name: all, key: "'all'", limit: {LIMIT}}}
"""


def sliced(redis, options="", **files):
    return weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?{SLICED} {options}", **files)


def slices_of(server):
    with http_client.Client(server.port) as web:
        return web.get("/v1/stats").json["store"]["slices"]


def warm(server, key, limit=LIMIT):
    """Takes until the server answers by itself; how many were admitted."""
    request, answers = http_client.post("/v1/take", {"key": key, "limit": limit}), []
    with http_client.Client(server.port) as web:
        def is_local():
            answers.extend(answer.json for answer in web.pipeline([request] * 10))
            return answers[-1]["local"]
        until("an answer from a slice", is_local)
    return sum(answer["allowed"] for answer in answers)


def left(redis, key, limit=LIMIT):
    """What is left by Redis' own word: a server without slices asks for the limit as it is."""
    with weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as plain, plain.client() as client:
        return client.call("WEIR.PEEK", key, limit)[2]


def commands(redis):
    """Commands that decide, as Redis counts them."""
    with redis.client() as admin:
        lines = admin.call("INFO", "commandstats").decode().split()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines
               if line.startswith(("cmdstat_eval", "cmdstat_fcall", "cmdstat_weir")))


# ---- floods ----

def flood_resp(server, key, limit, results, batch=50):
    """Takes until nothing is left for a while; how many were admitted."""
    admitted = asked = 0
    with server.client() as client:
        while asked < 2 * SIZE:
            replies = client.pipeline([("WEIR.TAKE", key, limit)] * batch, batch)
            asked += batch
            admitted += sum(reply[0] for reply in replies)
            if not any(reply[0] for reply in replies):
                break
    results.append((admitted, asked))


def flood_http(server, key, limit, results, batch=50):
    request = http_client.post("/v1/take", {"key": key, "limit": limit})
    admitted = asked = 0
    with http_client.Client(server.port) as web:
        while asked < 2 * SIZE:
            statuses = [answer.status for answer in web.pipeline([request] * batch, batch)]
            asked += batch
            assert set(statuses) <= {200, 429}, statuses
            admitted += statuses.count(200)
            if statuses.count(200) == 0:
                break
    results.append((admitted, asked))


def flood(servers, key, limit, rounds=1):
    results = []
    threads = [threading.Thread(target=kind, args=(server, key, limit, results))
               for server in servers for kind in (flood_resp, flood_http) for _ in range(rounds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(admitted for admitted, _ in results), sum(asked for _, asked in results)


def adds_up(server, cost):
    """Waits until nothing is under way: every unit is counted once then. The counts."""
    def is_so():
        nonlocal counts
        counts = slices_of(server)
        return counts["units_taken"] == \
            cost * counts["by_slice"] + counts["units_held"] + counts["units_returned"] + counts["units_lost"]
    counts = None
    until("all units are counted", is_so)
    return counts


def calls(servers):
    """For decisions and for slices, as the servers count them."""
    return sum(slices_of(server)["by_redis"] + slices_of(server)["calls"] for server in servers)


def test_flood(check):
    """Two servers, HTTP and RESP: never over the limit, and Redis sees few of the requests. Both have their slot before."""
    for limit in (LIMIT, f"fixed-window {SIZE}/366d"):
        with redis_server.Server() as redis, sliced(redis) as one, sliced(redis) as two:
            warm(one, "warm"), warm(two, "warm")
            seen, counted = commands(redis), calls((one, two))
            admitted, asked = flood((one, two), "k", limit)
            check.at_most(admitted, SIZE, f"{limit}: admitted")
            check(admitted >= SIZE * 3 // 4, f"{limit}: {admitted} of {SIZE} admitted")
            seen, counted = commands(redis) - seen, calls((one, two)) - counted
            check(asked >= 10 * seen, f"{limit}: {seen} commands for {asked} requests")
            check(asked >= 10 * counted, f"{limit}: {counted} calls for {asked} requests")


# ---- answers in their order ----

def test_order(check):
    """A pipeline of what is known here, what Redis is asked, and what asks nothing: the answers come in order."""
    with redis_server.Server() as redis, sliced(redis) as server, server.client() as client, \
            http_client.Client(server.port) as web:
        warm(server, "hot")
        limits = [LIMIT if i % 3 else f"token-bucket 1/366d burst {10 + i % 10}" for i in range(120)]
        calls = [("WEIR.TAKE", "hot" if limit == LIMIT else f"cold{i}", limit) for i, limit in enumerate(limits)]
        for i in range(10, 120, 10):
            calls[i] = ("PING", str(i))
        replies = client.pipeline(calls)
        check.equal([reply if isinstance(reply, bytes) else reply[1] for reply in replies],
                    [call[1].encode() if call[0] == "PING" else int(call[2].rsplit(" ", 1)[1]) for call in calls], "RESP: order")
        rounds = []

        def has_local():
            rounds.append(None)  # cold keys are new ones each time
            requests = [http_client.get("/v1/nothing") if call[0] == "PING" else http_client.post(
                "/v1/take", {"key": call[1] if call[1] == "hot" else f"{call[1]} {len(rounds)}", "limit": call[2]}) for call in calls]
            answers = [answer.json for answer in web.pipeline(requests)]
            check.equal([answer.get("limit") for answer in answers],
                        [None if call[0] == "PING" else int(call[2].rsplit(" ", 1)[1]) for call in calls], "HTTP: order")
            local = [answer.get("local") for answer in answers]
            check(not any(local[i] for i in range(0, 120, 3)), "HTTP: slices answer for the hot key alone")
            return any(local)
        until("a pipeline with answers from a slice", has_local)
        # A reset in the middle: what was taken before it is forgotten, what comes after it is not.
        replies = client.pipeline([("WEIR.TAKE", "hot", LIMIT)] * 20 + [("WEIR.RESET", "hot")] + [("WEIR.TAKE", "hot", LIMIT)] * 20)
        check.equal([reply[0] for reply in replies[:20] + replies[21:]], [1] * 40, "a reset in a pipeline")
        check.equal(replies[20], 1, "there was something to forget")


def test_cold(check):
    """A request counts once towards what is hot, although the loop tries before an asker asks: three are not enough."""
    with redis_server.Server() as redis, sliced(redis) as server, http_client.Client(server.port) as web:
        warm(server, "hot")
        for i in range(20):
            asked = [web.post("/v1/take", {"key": f"cold {i}", "limit": LIMIT}).json["local"] for _ in range(3)]
            check.equal(asked, [False] * 3, "no slice for a cold key")


# ---- other ways to ask ----

def test_policies(check):
    """Policies, batches of Envoy, settle and detail: decided from slices where one limit decides, and right elsewhere."""
    with redis_server.Server() as redis, sliced(redis, policies=POLICIES) as server, http_client.Client(server.port) as web:
        ask = {"attributes": {"path": "/one", "user": "ann"}, "detail": True}
        until("a policy's answer from a slice", lambda: web.post("/v1/take", ask).json["local"])
        answer = web.post("/v1/take", ask).json
        check.equal((answer["verdict"], answer["limit"], [row["policy"] for row in answer["limits"]], answer["limits"][0]["limit"]),
                    ("limits", SIZE, ["one"], SIZE), "a policy with one limit")
        for _ in range(50):
            check.equal(web.post("/v1/take", {"attributes": {"path": "/two", "user": "ann"}}).json["local"], False, "two limits")
        warm(server, "settled")
        receipt = web.post("/v1/take", {"key": "settled", "limit": LIMIT, "cost": 10}).json["receipt"]
        check(web.post("/v1/settle", {"key": "settled", "limit": LIMIT, "receipt": receipt, "cost": 10, "actual": 3}).status == 200,
              "a receipt of a slice is settled")
        before = slices_of(server)["by_slice"]
        call = {"domain": "one", "descriptors": [{"entries": [{"key": "path", "value": "/one"}, {"key": "user", "value": "bob"}]}]}
        until("a call of Envoy's from a slice", lambda: (web.post("/json", call), slices_of(server)["by_slice"] > before)[1])
        check.equal(web.post("/json", call).json["overallCode"], "OK", "as Envoy asks")


def test_command_line(check):
    """weir take --server tells, as text and as JSON."""
    with redis_server.Server() as redis, sliced(redis) as server:
        def says(words, *options):
            warm(server, "k")
            return words in subprocess.run([WEIR, "take", "k", LIMIT, "--server", f"127.0.0.1:{server.port}", *options],
                                           stdout=subprocess.PIPE, text=True, check=True).stdout
        until("words about a slice", lambda: says("local: decided from a slice"))
        until("JSON about a slice", lambda: says('"degraded":false,"local":true', "--json"))
        check(not says("degraded:"), "and nothing else")


def test_one_peer(check):
    """slices= without peers=: only one process would take slices, which the start and weir check say."""
    for options, warned in (("slices=20%", True), ("slices=20%&peers=2", False), ("peers=1", False)):
        url = f"redis://127.0.0.1:1?{options}"
        with weir_server.Server(f"--store {url}") as server:
            check.equal("one process takes slices" in server.stderr(), warned, f"at the start, {options}: {server.stderr()}")
        told = subprocess.run([WEIR, "check", "/dev/stdin", "--store", url], input=f"version: 1\npolicies: [{{name: api, key: user, limit: {LIMIT}}}]\n",
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        check.equal("one process takes slices" in " ".join(told.split()), warned, f"weir check, {options}: {told}")


def test_grpc(check):
    """Calls of Envoy over gRPC, several under way on one connection."""
    message = {"domain": "edge", "hits_addend": 1,
               "descriptors": [{"entries": [{"key": "path", "value": "/one"}, {"key": "user", "value": "carl"}]}]}
    with redis_server.Server() as redis, sliced(redis, policies=POLICIES) as server, \
            subprocess.Popen(["node", str(grpc_service.HERE / "grpc_client.js"), "pipe", str(server.port)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env=dict(os.environ, NODE_PATH=grpc_service.modules())) as node:
        def ask(n):
            node.stdin.write((json.dumps(message) + "\n") * n)
            node.stdin.flush()
            return [json.loads(node.stdout.readline()) for _ in range(n)]
        until("calls from a slice", lambda: (ask(20), slices_of(server)["by_slice"] > 0)[1])
        before = slices_of(server)
        answers = ask(200)
        after = slices_of(server)
        check.equal({answer["overall_code"] for answer in answers}, {"OK"}, "all are let pass")
        check.equal(sum(after[name] - before[name] for name in ("by_slice", "by_denial", "by_redis")), 200, f"decided once each: {after}")
        left_after = [answer["statuses"][0]["limit_remaining"] for answer in answers]
        check(max(left_after) < SIZE and len(set(left_after)) > 100, f"what is left goes down: {left_after[:5]}")


# ---- counting ----

def test_counts(check):
    """Local decisions count like the others: metrics, stats, access log, ranks."""
    with redis_server.Server() as redis, sliced(redis, "--access-log access.log --access-log-sample 1") as server, \
            http_client.Client(server.port) as web:
        request = http_client.post("/v1/take", {"key": "k", "limit": f"fixed-window {SIZE}/366d", "cost": 8})
        answers = [answer.json for answer in web.pipeline([request] * 6000, 100)]
        allowed, local = (sum(answer[word] for answer in answers) for word in ("allowed", "local"))
        check(0 < allowed <= SIZE // 8 and 2000 < local < 6000, f"{allowed} allowed, {local} of 6000 local")
        counts = adds_up(server, 8)
        check.equal(counts["by_slice"] + counts["by_denial"], local, f"the local ones: {counts}")
        check.equal(counts["by_redis"], 6000 - local, f"the others: {counts}")
        totals = web.get("/v1/stats").json["totals"]
        check.equal((totals["allowed"], totals["denied"]), (allowed, 6000 - allowed), "all are counted")
        metrics = web.get("/metrics").body.decode()
        for by in ("slice", "denial", "redis"):
            check(f'weir_slice_decisions_total{{by="{by}"}} {counts["by_" + by]}\n' in metrics, f"metrics: by {by}")
        top = web.get("/v1/top", by="requests").json
        check("k" in json.dumps(top), f"ranked: {top}")
        log = server.folder / "access.log"
        until("the access log", lambda: log.read_text().count("\n") == 6000)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        check.equal(sum(line["local"] for line in lines), local, "the access log tells which")
        times = {line["time"] for line in lines if line["local"] and line["allowed"]}
        check(len(times) > 2 * counts["taken"], f"each has its own time, not that of its slice: {len(times)} times, {counts}")


# ---- the end of a server ----

def test_stop(check):
    """SIGTERM gives back what is held: Redis has charged exactly what was admitted."""
    with redis_server.Server() as redis, sliced(redis) as server:
        admitted = warm(server, "k")
        with server.client() as client:
            admitted += sum(reply[0] for reply in client.pipeline([("WEIR.TAKE", "k", LIMIT)] * 500))

            def holds():  # it may have spent its last unit just now
                nonlocal admitted
                admitted += client.call("WEIR.TAKE", "k", LIMIT)[0]
                return slices_of(server)["units_held"] > 0
            until("it holds more than it needed", holds)
        server.stop()
        check.equal(left(redis, "k"), SIZE - admitted, "what it held is back")
        with sliced(redis) as one, sliced(redis) as two:  # its slot is free again
            warm(one, "k")
            warm(two, "k")


def test_killed(check):
    """kill -9: what was held is lost, and the limit holds all the same."""
    with redis_server.Server() as redis, sliced(redis) as server, server.client() as client:
        admitted, held = warm(server, "k"), 0

        def holds():
            nonlocal admitted, held
            server.process.send_signal(signal.SIGCONT)
            admitted += sum(reply[0] for reply in client.pipeline([("WEIR.TAKE", "k", LIMIT)] * 100))
            server.process.send_signal(signal.SIGSTOP)  # so that it cannot give anything back
            held = SIZE - admitted - left(redis, "k")
            return held > 0
        until("units in its hands", holds)
        server.process.kill()
        server.process.wait()
        check.at_most(held, PROCESS, "units lost")
        with sliced(redis) as other:
            more, _ = flood((other,), "k", LIMIT)
            check.at_most(admitted + more, SIZE - HELD - held, "admitted in all")
        server.start()


SLOTS = b"\0weir:slices"  # docs/REDIS-STORE.md: the store's own key, a concurrent limit of as many slots as there are peers


def test_no_slot(check):
    """All slots are taken: it asks for each request and says so once. It takes slices once a slot is free."""
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as plain, \
            sliced(redis) as server, plain.client() as other, server.client() as client:
        leases = [other.call("WEIR.ACQUIRE", SLOTS, "concurrent 2 lease 1h")[-1] for _ in range(2)]
        until("a word about the slot", lambda: (client.call("WEIR.TAKE", "k", LIMIT), "no slices are taken" in server.stderr())[1])
        for _ in range(100):
            client.call("WEIR.TAKE", "k", LIMIT)
        counts = slices_of(server)
        check.equal((counts["slot"], counts["by_slice"], counts["units_taken"]), (False, 0, 0), f"it takes none: {counts}")
        check("peers=" in counts["trouble"], f"and says why: {counts}")
        with redis.client() as admin:
            calls = lambda: int(re.search(rb"cmdstat_evalsha:calls=(\d+)", admin.call("INFO", "commandstats"))[1])
            before = calls()
            until("it tries again: for the takes, and then without any", lambda: calls() >= before + 2)
        check.equal(other.call("WEIR.RELEASE", SLOTS, "concurrent 2 lease 1h", leases[0]), 1, "a slot is free")
        until("it finds out by itself", lambda: "slices can be taken again" in server.stderr())
        counts = slices_of(server)
        check.equal((counts["slot"], counts["trouble"], troubles(server)), (False, None, set()), f"and leaves the slot to others: {counts}")
        warm(server, "k")
        check.equal((server.stderr().count("no slices are taken"), slices_of(server)["trouble"]), (1, None), "said once, and over")


def test_redis_away(check):
    """What Redis did not answer is neither a call for a slice nor a decision by Redis."""
    with redis_server.Server() as redis, sliced(redis) as server, http_client.Client(server.port) as web:
        warm(server, "k")
        redis.kill()
        degraded = lambda: [web.post("/v1/take", {"key": "k", "limit": LIMIT}).json["degraded"] for _ in range(20)]
        until("decisions without Redis", lambda: all(degraded()))
        before = slices_of(server)
        check(all(all(degraded()) for _ in range(5)), "all of them")
        after = slices_of(server)
        check.equal((after["calls"], after["by_redis"]), (before["calls"], before["by_redis"]), "counted by what answers")
        redis.start()


def troubles(server):
    """Which reasons the metric names."""
    with http_client.Client(server.port) as web:
        return set(re.findall(r'^weir_slice_trouble\{reason="(\w+)"\} 1$', web.get("/metrics").body.decode(), re.M))


def test_slots_unreachable(check):
    """In a cluster the node of the slots is away: statistics, metric and log say so, once, and that it is over."""
    with Cluster("--cluster-require-full-coverage no") as cluster:
        owner = cluster.owner(cluster.slot(b"weir:" + SLOTS))
        key = next(f"k{i}" for i in range(100) if cluster.owner(cluster.slot(f"weir:k{i}")) != owner)
        url = cluster.url("deadline=2s&slices=20%&peers=2", first=(owner + 1) % 3)
        with weir_server.Server(f"--store {url}") as server, server.client() as client:
            client.call("WEIR.TAKE", key, LIMIT)  # it knows the nodes
            check.equal((slices_of(server)["trouble"], troubles(server)), (None, set()), "nobody wants slices yet")
            for i in (owner, owner + 3):  # and its replica, so that nothing takes its place
                cluster.nodes[i].signal(signal.SIGSTOP)
            until("a word about the slots", lambda: (client.call("WEIR.TAKE", key, LIMIT), "no slices are taken" in server.stderr())[1])
            counts = slices_of(server)
            check.contains(counts["trouble"] or "", "does not answer", f"statistics: {counts}")
            check.equal((counts["slot"], counts["units_taken"], troubles(server)), (False, 0, {"unreachable"}), f"none are taken: {counts}")
            for i in (owner, owner + 3):
                cluster.nodes[i].signal(signal.SIGCONT)
            until("it is over, and nobody has asked for anything", lambda: "slices can be taken again" in server.stderr())
            check.equal((slices_of(server)["trouble"], troubles(server)), (None, set()), "nothing to say")
            warm(server, key)
            check.equal(server.stderr().count("no slices are taken"), 1, "said once")


if __name__ == "__main__":
    sys.exit(checks.run([test for name, test in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
