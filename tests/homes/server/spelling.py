#!/usr/bin/env python3
"""One limit that two hosts write in two ways is two states in Redis, and twice as much passes: the server notices it by a
key that both charge, tells it once, and does not tell what was only changed."""
import subprocess
import sys
import time

from lib import checks, http_client, redis_server, weir_server
from lib.build import WEIR

POLICIES = """version: 1
policies:
  - {name: api, match: by-name, key: customer, limit: LIMIT}
  - {name: edge, match: {domain: edge}, key: customer, limit: LIMIT}
  - name: plans
    match: by-name
    key: customer
    limits: [{name: rate, limit: token-bucket 5/s}]
    overrides: [{when: {customer: bob}, entry: rate, limit: token-bucket 900/h}]
"""
SECRET = {"WEIR_RECEIPT_SECRET": "shared by all servers of this Redis"}
NOTE = 'warning: policy api, limit api: the key "api/{customer=acme}" is also charged under'


def server_of(redis, limit, more=""):
    store = f"--store redis://127.0.0.1:{redis.port}?deadline=1m {more}"
    return weir_server.Server(store, POLICIES.replace("LIMIT", limit), env=SECRET)


def test_two_spellings(check):
    with redis_server.Server() as redis, server_of(redis, "token-bucket 60/h burst 10k") as one, server_of(redis, "token-bucket 1/m burst 10k") as two, \
            http_client.Client(one.port) as first, http_client.Client(two.port) as second:
        def ask():
            for client in (first, second):
                client.post("/v1/take", {"policy": "api", "key": "acme"})
            return all("is also charged under" in server.stderr() for server in (one, two))
        check(one.wait_for(ask), f"told: {one.stderr()} {two.stderr()}")
        check.contains(one.stderr(), f"{NOTE} token-bucket 1/m, which is not a limit of this policy", "by the one")
        check.contains(two.stderr(), f"{NOTE} token-bucket 60/h, which is not a limit of this policy", "by the other")
        check.contains(one.stderr(), "write it the same way everywhere", "with what to do")


def test_envoy(check):
    """The same of keys that only Envoy asks for."""
    acme = {"domain": "edge", "descriptors": [{"entries": [{"key": "customer", "value": "acme"}]}]}
    with redis_server.Server() as redis, server_of(redis, "token-bucket 60/h burst 10k") as server, http_client.Client(server.port) as client:
        charge = [WEIR, "take", "edge/{customer=acme}", "token-bucket 1/m burst 10k", "--store", f"redis://127.0.0.1:{redis.port}"]

        def ask():
            client.post("/json", acme)
            subprocess.run(charge, check=True, stdout=subprocess.DEVNULL)
            return "is also charged under" in server.stderr()
        check(server.wait_for(ask), f"told: {server.stderr()}")


def test_well(check):
    """What an earlier limit left behind, and an override of this file, are not told; what somebody charges beside them is."""
    with redis_server.Server() as redis:
        url, key = f"redis://127.0.0.1:{redis.port}", "plans/rate/{customer=bob}"
        charge = lambda limit: subprocess.run([WEIR, "take", key, limit, "--store", url], check=True, stdout=subprocess.DEVNULL)
        charge("token-bucket 30000/366d")
        with server_of(redis, "token-bucket 500/s") as server, http_client.Client(server.port) as client:
            def ask():
                client.post("/v1/take", {"policy": "plans", "key": "bob"})
                charge("token-bucket 60/m burst 10k")
                return "is also charged under" in server.stderr()
            check(server.wait_for(ask), f"told: {server.stderr()}")
            check.contains(server.stderr(), f'warning: policy plans, limit rate: the key "{key}" is also charged under token-bucket 60/m, which', "by whom")


def test_reserved(check):
    """What a limit left behind whose next request is free only later; somebody else's charge is still told."""
    with redis_server.Server() as redis:
        url, key = f"redis://127.0.0.1:{redis.port}", "api/{customer=acme}"
        charge = lambda limit, cost: subprocess.run([WEIR, "take", key, limit, "--cost", str(cost), "--store", url], check=True, stdout=subprocess.DEVNULL)
        charge("smooth 1/s", 3600)
        charge("warmup 1/s over 3s cold 3", 3600)
        with server_of(redis, "token-bucket 500/s") as server, http_client.Client(server.port) as client:
            def ask():
                client.post("/v1/take", {"policy": "api", "key": "acme"})
                if time.monotonic() > later:
                    charge("token-bucket 60/m burst 10k", 1)
                return "is also charged under" in server.stderr()
            later = time.monotonic() + 5  # after several looks
            check(server.wait_for(ask), f"told: {server.stderr()}")
            check.contains(server.stderr(), f"{NOTE} token-bucket 60/m, which", "by whom")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
