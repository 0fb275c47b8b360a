#!/usr/bin/env python3
"""The server's threads at work on everything at once: made for the build that watches threads (tsan).

Connections over RESP and HTTP ask, policies are reloaded, statistics, top keys and metrics read, the playground
plays, with a local store and with Redis, also from slices. Every answer must be one, and the server must end without a report.

    threads.py [--long] [NAME …]
"""
import json
import sys
import threading
import urllib.error
import urllib.request

from lib import checks, redis_server, weir_server


POLICIES = """version: 1
policies:
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-user, key: user, limit: "token-bucket 50/s burst 100"}
      - {name: everybody, key: "'all'", limit: "sliding-window 100k/m"}
      - {name: watched, key: user, limit: "sliding-log 10/s", shadow: true}
  - name: slots
    match: by-name
    limits:
      - {name: all, key: "'all'", limit: concurrent 1000}
      - {name: stricter, key: user, limit: concurrent 1, shadow: true}
"""
ROUNDS = 150 if "--long" in sys.argv else 60


def ask_resp(server, check, number):
    with server.client() as client:
        for i in range(ROUNDS):
            calls = [("WEIR.TAKE", f"k{(number + i * k) % 37}", f"token-bucket {100 + i % 3}/s") for k in range(20)]
            answers = client.pipeline([*calls, ("WEIR.TAKE", f"log{i % 5}", "sliding-log 1000/s", "DETAIL")])
            check(all(isinstance(answer, list) for answer in answers), f"RESP: {answers}")


def fetch(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url(path), data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(request, timeout=weir_server.PATIENCE_SECONDS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def ask_http(server, check, number):
    for i in range(ROUNDS * 3):
        status, body = fetch(server, f"/v1/take?attr.path=/api/x&attr.user=u{(number * i) % 11}&detail=true")
        check(status in (200, 429), f"HTTP: {status} {body}")


def hold(server, check, number):
    for i in range(ROUNDS):
        slot = {"policy": "slots", "attributes": {"user": f"u{i % 2}"}}
        status, body = fetch(server, "/v1/acquire", slot)
        check(status == 200, f"acquire: {status} {body}")
        slot["lease"] = json.loads(body)["lease"]
        for verb in ("renew", "release")[number % 2:]:
            status, body = fetch(server, "/v1/" + verb, slot)
            check(status == 200, f"{verb}: {status} {body}")


def watch(server, check, _number):
    play = {"limits": ["token-bucket 10/s"], "load": {"kind": "steady", "rate": 50, "seconds": 10}}
    for i in range(ROUNDS // 2):
        for path in ("/v1/stats", "/v1/history", "/v1/top", "/metrics", "/v1/policies"):
            status, body = fetch(server, path)
            check(status == 200, f"{path}: {status} {body[:200]}")
        status, body = fetch(server, "/v1/reload", {})
        check(status == 200, f"reload: {status} {body}")
        if i % 5 == 0:
            status, body = fetch(server, "/v1/simulate", play)
            check(status == 200, f"simulate: {status} {body[:200]}")


def hammer(check, options):
    with weir_server.Server(f"--threads 2 --access-log access.log {options}", policies=POLICIES) as server:
        jobs = [threading.Thread(target=work, args=(server, check, i))
                for i, work in enumerate([ask_resp] * 3 + [ask_http] * 3 + [hold] * 2 + [watch])]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        server.stop()
    check(not weir_server.REPORTS.search(server.stderr()), server.stderr())


def test_local_store(check):
    hammer(check, "")


def test_redis(check):
    with redis_server.Server() as redis:
        hammer(check, f"--store redis://127.0.0.1:{redis.port}?deadline=1m&slices=10%&peers=2")


if __name__ == "__main__":
    sys.exit(checks.run([test_local_store, test_redis], sys.argv[1:]))
