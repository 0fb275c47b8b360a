#!/usr/bin/env python3
"""A server whose store is Redis: what it says when Redis goes and comes back, and starting without it; what a key holds.

    redis_store.py [WORD …]
"""
import re
import shutil
import signal
import socket
import sys
import threading
import time

from lib import abuse_tools, checks, h2_frames as h2, http_client, redis_server, resp, store_proxy, weir_server
from lib.build import REDIS_MODULE

WINDOW = "fixed-window 9/366d"


def said(server, words, count=1):
    """Waits for a line on stderr; how many there are then."""
    end = time.monotonic() + weir_server.PATIENCE_SECONDS
    while server.stderr().count(words) < count and time.monotonic() < end:
        time.sleep(0.02)
    return server.stderr().count(words)


def outage(check, fail, meanwhile):
    with redis_server.Server() as redis, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail={fail}&deadline=1m") as server, \
            server.client() as client:
        client.call("WEIR.TAKE", "k", WINDOW)
        check.equal(server.stderr().count("the store"), 0, f"fail={fail}: nothing is said while all is well")
        redis.kill()
        check.equal(said(server, "the store cannot be reached: "), 1, f"fail={fail}: one line when it goes")
        check(f"127.0.0.1:{redis.port}" in server.stderr() and f"; meanwhile {meanwhile}" in server.stderr(),
              f"fail={fail}: with where, and who decides: {server.stderr()}")
        for _ in range(20):
            client.call("WEIR.TAKE", "k", WINDOW)
        redis.start()
        check.equal(said(server, "the store decides again, after "), 1, f"fail={fail}: one line when it is back")
        check("meanwhile (%s): 20" % meanwhile in server.stderr(), f"fail={fail}: with how many: {server.stderr()}")
        check(re.search(r"decides again, after [0-9.]+m?s; ", server.stderr()), f"fail={fail}: how long, in one unit: {server.stderr()}")
        check.equal(server.stderr().count("the store"), 2, f"fail={fail}: and no more")


def test_goes_and_comes_back(check):
    for fail, meanwhile in (("local", "this process decides alone"), ("open", "everything is allowed"),
                          ("closed", "everything is denied")):
        outage(check, fail, meanwhile)


def test_away_at_start(check):
    redis = redis_server.Server()
    with weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail=open") as server, server.client() as client:
        check.equal(said(server, "the store cannot be reached: "), 1, "one line at the start")
        check.equal(client.call("WEIR.TAKE", "k", WINDOW)[0], 1, "fail=open decides")
        with redis:
            check.equal(said(server, "the store decides again, after "), 1, "one line when it comes")


def test_does_not_decide(check):
    """Reached, but out of memory, or unable to save: the line has the server's own words."""
    with redis_server.Server() as redis, redis.client() as admin, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail=open&deadline=1m") as server, \
            server.client() as client:
        client.call("WEIR.TAKE", "k", WINDOW)
        admin.call("CONFIG", "SET", "maxmemory", "1")
        client.call("WEIR.TAKE", "k", WINDOW)
        check.equal(said(server, "the store does not decide: OOM "), 1, "out of memory")
        admin.call("CONFIG", "SET", "maxmemory", "0")
        client.call("WEIR.TAKE", "k", WINDOW)
        check.equal(said(server, "the store decides again"), 1, "memory again")


def test_starts_without_help(check):
    """A server that cannot save, and one without room for more clients, are outages."""
    with redis_server.Server() as redis, redis.client() as admin:
        admin.call("CONFIG", "SET", "save", "3600 100000")
        shutil.rmtree(redis.folder)
        admin.call("BGSAVE")
        while b"rdb_last_bgsave_status:err" not in admin.call("INFO", "persistence"):
            time.sleep(0.01)
        with weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail=open&deadline=1m") as server, \
                server.client() as client:
            check.equal(client.call("WEIR.TAKE", "k", WINDOW)[0], 1, "MISCONF: it starts, and fail=open decides")
            check(said(server, "MISCONF") == 1, f"MISCONF: {server.stderr()}")
    with redis_server.Server("--maxclients 2") as redis, redis.client() as admin, redis.client() as other:
        other.call("PING")
        with weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?fail=open") as server, server.client() as client:
            check.equal(client.call("WEIR.TAKE", "k", WINDOW)[0], 1, "too many clients: it starts, and fail=open decides")
            admin.call("CONFIG", "SET", "maxclients", "100")
            check.equal(said(server, "the store decides again"), 1, "room again")


def shown(check, server, what, whole):
    """What a key holds over RESP2, RESP3 and HTTP."""
    with server.client() as client, server.client(protocol=3) as modern, http_client.Client(server.port) as web:
        check.equal(client.call("WEIR.SHOW", "k"), [], f"{what}: nothing")
        check.equal(web.get("/v1/show", key="k").json["states"], [], f"{what}: nothing over HTTP")
        client.call("WEIR.TAKE", "k", WINDOW + ", token-bucket 3/366d burst 7", "COST", 2)
        client.call("WEIR.ACQUIRE", "k", "concurrent 3 lease 1h")
        rows = [dict(zip(row[0::2], row[1::2])) for row in client.call("WEIR.SHOW", "k")]
        check.equal({row[b"algorithm"].decode(): (row[b"spent"], row[b"entries"]) for row in rows},
                    {"fixed-window": (2, 0), "token-bucket": (2, 0), "concurrent": (1, 1)}, f"{what}: RESP2")
        check.equal(len(modern.call("WEIR.SHOW", "k")), 3, f"{what}: RESP3")
        states = {row["algorithm"]: row for row in web.get("/v1/show", key="k").json["states"]}
        check.equal({name: row["spent"] for name, row in states.items()},
                    {"fixed-window": 2, "token-bucket": 2, "concurrent": 1}, f"{what}: HTTP")
        check.equal((states["token-bucket"]["count"], states["token-bucket"].get("remaining"), "limit" in states["concurrent"]),
                    (3, 5 if whole else None, whole), f"{what}: numbers of limits")
        check.equal(web.post("/v1/show", {"key": "k"}).json["states"][0]["spent"], 2, f"{what}: by POST")
        for query, words in (({}, "key"), ({"key": "k", "limit": WINDOW}, "only the key"), ({"key": "k", "policy": "x"}, "only the key")):
            answer = web.get("/v1/show", **query)
            check(answer.status == 400 and words in answer.body.decode(), f"{what}: {query}: {answer.status} {answer.body}")
        check.equal(client.pipeline([("WEIR.SHOW",), ("WEIR.SHOW", "a", "b")])[1].args[0].split()[0], "ERR", f"{what}: arguments")
        pipelined = client.pipeline([("WEIR.SHOW", "k"), ("WEIR.TAKE", "q", WINDOW), ("WEIR.SHOW", "q"), ("WEIR.SHOW", "none")])
        check.equal([len(pipelined[0]), pipelined[1][2], len(pipelined[2]), pipelined[3]], [3, 8, 1, []], f"{what}: pipelined")


def test_show(check):
    with weir_server.Server() as server:
        shown(check, server, "zone", True)
    for engine, options in (("module", f"--loadmodule {REDIS_MODULE}"), ("lua", "")):
        with redis_server.Server(options) as redis, \
                weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m") as server:
            shown(check, server, engine, False)
            with redis.client() as admin, server.client() as client:
                admin.call("SET", "weir:page", "x")
                reply = client.pipeline([("WEIR.SHOW", "page"), ("WEIR.TAKE", "page", WINDOW)])
                check.equal([str(each).split()[0] for each in reply], ["WEIRSTATE"] * 2, f"{engine}: a foreign value")
                two = client.pipeline([("WEIR.TAKEALL", 2, "a", WINDOW, 1, "a", "fixed-window 5/366d", 1)])[0]
                check(str(two).startswith("WEIRSHARED"), f"{engine}: {two}")


class Asked:
    """Requests that the server has read, without those for the metrics themselves."""

    def __init__(self, server):
        self.server, self.looks = server, 0

    def __call__(self):
        seen = abuse_tools.total(abuse_tools.metrics(self.server), "weir_requests_total") - self.looks
        self.looks += 1
        return seen


class Order(store_proxy.Proxy):
    """Keeps what Redis is asked, in its order."""

    def __init__(self, port):
        self.lock, self.asked = threading.Lock(), b""
        super().__init__(port)

    def ask(self, data):
        with self.lock:
            self.asked += data


def test_turns_at_the_store(check):
    """More questions than there are askers, of pipelines and of HTTP/2 streams, to a distant store that answers them one by
    one: whoever has one question does not wait for all of them."""
    held = "/v1/take?key=k&limit=fixed-window+9000/366d&hold=true"  # each is a batch by itself
    streams = b"".join(h2.headers(2 * i + 1, h2.request(held)) for i in range(128))
    for name, count, each, flood in (("RESP", 96, 64, resp.encode(("WEIR.PEEK", "k", WINDOW)) * 64),
                                     ("HTTP/2", 8, 128, h2.PREFACE + h2.settings() + streams)):
        with redis_server.Server() as redis, Order(redis.port) as proxy, \
                weir_server.Server(f"--threads 1 --store redis://127.0.0.1:{proxy.port}?deadline=1h") as server, \
                server.client() as honest:
            honest.call("WEIR.TAKE", "honest", WINDOW)
            asked, proxy.asked = Asked(server), b""
            proxy.mode, proxy.delay = "slow", 0.005
            redis.signal(signal.SIGSTOP)  # until all have asked
            others = [socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS) for _ in range(count)]
            for other in others:
                other.sendall(flood)
            check(server.wait_for(lambda: asked() >= count * each + 1), f"{name}: they have asked")
            honest.socket.sendall(resp.encode(("WEIR.TAKE", "honest", WINDOW)))
            check(server.wait_for(lambda: asked() >= count * each + 2), f"{name}: the honest one has asked behind them")
            redis.signal(signal.SIGCONT)
            check.equal(honest.read()[2], 7, f"{name}: it is answered")
            before = proxy.asked.partition(b"weir:honest\r\n")[0].count(b"weir:k\r\n")
            check(0 < before < count * each / 4, f"{name}: Redis was asked {before} of {count * each} before")
            for other in others:
                other.close()


def other_status(server):
    with http_client.Client(server.port) as client:
        return client.get("/readyz").status


def test_stop_waits_for_no_store(check):
    """A store that hangs, and a deadline of an hour: SIGTERM ends the server all the same, whoever asked."""
    hold = http_client.get("/v1/take", key="slow", limit=f"token-bucket 1/m, {WINDOW}", hold="true")
    for name, options in (("a question", ""), ("health", "--health-store")):
        with redis_server.Server() as redis, store_proxy.Proxy(redis.port) as proxy:
            server = weir_server.Server(f"--threads 1 --drain-timeout 1s {options} --store redis://127.0.0.1:{proxy.port}?deadline=1h").start()
            try:
                with server.client() as client, http_client.Client(server.port) as web:
                    web.send(hold + hold)
                    check.equal(web.read().status, 200, f"{name}: the first is not held")
                    check(server.wait_for_charges("slow", WINDOW, 2), f"{name}: the second is")
                    proxy.mode = "hold"
                    if not options:
                        client.socket.sendall(resp.encode(("WEIR.PEEK", "k", WINDOW)) * 70)
                    check(server.wait_for(lambda: proxy.held > 0), f"{name}: it waits for the store")
                    if options:
                        check(server.wait_for(lambda: other_status(server) == 503), f"{name}: who waits for its store is not ready")
                    server.stop()
                    check.equal(server.process.returncode, 0, f"{name}: it ends")
                    check.equal(web.read().status, 200, f"{name}: what was held is told")
            finally:
                server.kill()


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
