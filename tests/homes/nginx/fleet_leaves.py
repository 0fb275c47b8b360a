#!/usr/bin/env python3
"""weir_store, and those who leave while Redis is asked: clients that go, workers that end or are reloaded. What they held comes back.

    fleet_leaves.py [WORD …]    only the tests with such a word in their name
"""
import socket
import sys
import threading

from fleet import ENGINES, INFO, PATIENT, Load, address, limited, store, wait_for_state
from lib import checks, h2_frames, nginx_server, redis_server
from lib.nginx_server import get, serve
from lib.store_client import machine
from lib.store_proxy import Proxy


def leave(nginx, path, number):
    """Clients that ask and go."""
    for _ in range(number):
        with socket.create_connection(("127.0.0.1", nginx.port)) as client:
            client.sendall(get(path))


def test_clients_leave(check):
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, "deadline=1s") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "leaving: Redis decides")
        before = store(nginx)["asked"]
        proxy.mode, proxy.delay = "slow", 0.2
        leave(nginx, "/?k=gone", 50)
        check(nginx.wait_for(lambda: store(nginx)["asked"] == before + 50), "leaving: all were asked")
        check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), "leaving: all were answered")
        proxy.mode = "pass"
        check(nginx.wait_for(lambda: nginx.get("/?k=gone").weir["degraded"] == "0"), "leaving: it goes on")


SLOT = 'weir_conn key=$arg_k zone=z "concurrent 1 lease 1h";'


def settle_in(nginx, check):
    """Redis decides, and nothing is under way."""
    check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["status"] == "PASSED"), "Redis decides")
    check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), "nothing is under way")


def test_slots_come_back(check):
    """A slot that Redis gave to a request that is gone is given back, as is that of one that ends: in order, so that
    the next request of the same key has it. Nobody waits here."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, Proxy(redis.port) as proxy:
            with serve(f"location / {{ {SLOT} }} {INFO}", address(proxy.port, PATIENT)) as nginx:
                settle_in(nginx, check)
                check.equal([nginx.get("/?k=a").status for _ in range(3)], [200] * 3, f"{name}: one after the other")
                proxy.mode, proxy.delay = "slow", 2.0
                leave(nginx, "/?k=a", 3)
                check(nginx.wait_for(lambda: store(nginx)["queue"] >= 1), f"{name}: asked")
                proxy.mode = "pass"
                answer = nginx.get("/?k=a")
                check.equal((answer.status, answer.weir["status"]), (200, "PASSED"), f"{name}: the slot is free")
                check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), f"{name}: nothing is left under way")


def test_slots_granted_late(check):
    """A slot that Redis gave later than deadline= says is given back: the zone has decided about the request."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, Proxy(redis.port) as proxy:
            with serve(f"location / {{ {SLOT} }} {INFO}", address(proxy.port, "deadline=250ms"), workers=1) as nginx:
                settle_in(nginx, check)
                proxy.mode, proxy.delay = "slow", 0.4
                check.equal((nginx.get("/?k=a").status, store(nginx)["unreachable"] > 0), (200, True), f"{name}: the zone decides")
                proxy.mode = "pass"
                check(nginx.wait_for(lambda: store(nginx)["queue"] + store(nginx)["owed"] == 0), f"{name}: nothing is owed")
                with serve(f"location / {{ {SLOT} }} {INFO}", address(redis.port, PATIENT)) as other:
                    settle_in(other, check)
                    check.equal(other.get("/?k=a").status, 200, f"{name}: another nginx has the slot")


def test_slots_in_order(check):
    """A release and the next acquire of its key never overtake each other, scripts that must be loaded included; keys
    do not wait for others."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, redis.client() as client, \
                serve(f"location / {{ {SLOT} }} {INFO}", address(redis.port, PATIENT)) as nginx:
            settle_in(nginx, check)
            loads = [Load(nginx, f"/?k=load{i}", 1) for i in range(3)]
            refused = 0
            for i in range(30):
                client.call("SCRIPT", "FLUSH")
                refused += nginx.statuses(["/?k=a"] * 20).count(429)
            for load in loads:
                load.stop()
                check.equal((load.count(200), load.broken), (len(load.answers), []), f"{name}: beside it")
            check.equal(refused, 0, f"{name}: of 600 requests one after the other were refused")


def test_slots_are_owed(check):
    """What ends while Redis is away is given back when it is there again, before the key's next question."""
    with redis_server.Server() as redis, redis.client() as client, \
            nginx_server.Backend(lambda head: gate.wait(60) and nginx_server.Backend.answer()) as backend:
        gate = threading.Event()
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{backend.port}; {SLOT} }}
            location / {{ {SLOT} }} {INFO}"""
        with serve(locations, address(redis.port, "deadline=2s"), workers=1) as nginx:
            settle_in(nginx, check)
            with nginx.client() as held:
                held.send(get("/slow?k=a"))
                check(nginx.wait_for(lambda: backend.heads), "owed: it is under way")
                check.equal(nginx.get("/?k=a").status, 429, "owed: its slot is held")
                client.call("CONFIG", "SET", "requirepass", "away")
                client.call("AUTH", "away")
                client.call("CLIENT", "KILL", "TYPE", "normal")
                wait_for_state(nginx, check, "down")
                gate.set()
                check.equal(held.read().status, 200, "owed: it ends")
                check(nginx.wait_for(lambda: store(nginx)["owed"] == 1), f"owed: one release: {store(nginx)}")
            client.call("CONFIG", "SET", "requirepass", "")
            wait_for_state(nginx, check, "up")
            answer = nginx.get("/?k=a")
            check.equal((answer.status, answer.weir["status"]), (200, "PASSED"), "owed: the slot is free at once")
            check.equal(store(nginx)["owed"], 0, "owed: nothing any more")


def test_slots_at_the_end(check):
    """SIGTERM while slots are held, and while one is asked for: the next nginx has them."""
    nginx_server.until_at_once(lambda: slots_at_the_end(check))


def slots_at_the_end(check):
    """False: nginx did not wait for its worker, or the machine was so slow that nothing was asked for any more."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, \
            nginx_server.Backend(lambda head: gate.wait(60) and nginx_server.Backend.answer()) as backend:
        gate = threading.Event()
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{backend.port}; {SLOT} }}
            location / {{ {SLOT} }} {INFO}"""
        with serve(locations, address(proxy.port, PATIENT)) as nginx:
            settle_in(nginx, check)
            clients = [nginx.client() for _ in range(2)]
            clients[0].send(get("/slow?k=held"))
            check(nginx.wait_for(lambda: backend.heads), "the end: one is held")
            proxy.mode, proxy.delay = "slow", 0.6
            clients[1].send(get("/?k=asked"))
            is_asked = nginx.wait_for(lambda: store(nginx)["queue"] >= 1, 5)
            by_itself = nginx.stop_at_once()
            for it in clients:
                it.close()
        gate.set()
        if not is_asked or not by_itself:
            return False
        with serve(locations, address(redis.port, PATIENT)) as nginx:
            settle_in(nginx, check)
            check.equal([nginx.get(f"/?k={key}").status for key in ("held", "asked")], [200, 200], "the end: both are free")
    return True


def test_reload(check):
    """Under load: nothing is lost, nothing is decided without Redis, and workers leave nothing behind."""
    with redis_server.Server(ENGINES[0][1]) as redis, \
            limited(redis.port, limit="fixed-window 1g/366d", workers=2) as nginx:
        load = Load(nginx, "/?k=ann")
        for _ in range(4):
            check(load.wait(100), "reload: requests are answered")
            check(nginx.reload(), "reload: it is taken over")
        check(load.wait(100), "reload: they still are")
        load.stop()
        check.equal(load.count(200), len(load.answers), "reload: all let through")
        check.equal(load.degraded(), 0, "reload: none without Redis")
        check.equal(load.broken, [], "reload: no connection was broken")


def test_worker_ends_while_asking(check):
    """A worker that shuts down answers what is under way first, and no longer than that."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, "deadline=10s") as nginx:
        nginx.get("/?k=settle-in")
        proxy.mode, proxy.delay = "slow", 0.5
        with nginx.client() as client:
            client.send(get("/?k=ann", {"connection": "close"}))
            nginx.wait_for(lambda: store(nginx)["queue"] >= 1)
            nginx.reload(wait=False)
            answer = client.read()
            check.equal((answer.status, answer.weir["degraded"]), (200, "0"), "ending: answered by Redis")
        proxy.mode = "pass"
        nginx.reload()


def test_stop_at_once(check):
    """SIGTERM while answers are awaited that never come: over by the deadline."""
    nginx_server.until_at_once(lambda: stop_while_awaited(check))


def stop_while_awaited(check):
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, "deadline=500ms") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "SIGTERM: Redis decides")
        proxy.mode = "hold"
        clients = [nginx.client() for _ in range(20)]
        for client in clients:
            client.send(get("/?k=ann"))
        by_itself = nginx.stop_at_once()
        check.equal(nginx.process.returncode, 0, "SIGTERM: it ends")
        for client in clients:
            client.close()
    return by_itself


def test_too_many(check):
    """More queries than may be in progress: the others are decided at once, by the zone. They come in a few connections of
    HTTP/2, so that all are there long before the first deadline is over."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, \
            limited(proxy.port, "deadline=10s", "fixed-window 1g/366d", connections=10000,
                    http2="listen 127.0.0.1:{port2} http2;") as nginx:
        nginx.get("/?k=settle-in")
        proxy.mode = "hold"
        each, streams = 100, b"".join(h2_frames.headers(2 * i + 1, h2_frames.request("/?k=ann")) for i in range(100))
        peers = [h2_frames.Peer(nginx.port_of("port2")) for _ in range(42)]
        for peer in peers:
            peer.send(streams)
        check(nginx.wait_for(lambda: store(nginx)["unreachable"] == 42 * each - 4096), "too many: decided at once")
        check.equal(store(nginx)["queue"], 4096, "too many: in progress")
        for peer in peers:
            peer.socket.close()
        redis.kill()
        check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), "too many: a connection that is lost ends them all")


if __name__ == "__main__":
    with machine:
        sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
