#!/usr/bin/env python3
"""A receipt settles once over HTTP and RESP, on a zone and on Redis: repeated, at the same time, of policies and of
several keys, at another server that has the same secret; one without it names it. Settles and refunds are counted."""
import json
import re
import subprocess
import sys
import threading

from lib import checks, http_client, redis_server, weir_server
from lib.build import WEIR
from http_api import asked
from http_wire import problem

LIMIT = "token-bucket 1000/366d burst 1000"
POLICIES = """version: 1
policies:
  - name: api
    key: user
    limit: "token-bucket 1000/366d burst 1000, fixed-window 1000/d"
  - name: all
    key: "'all'"
    limit: sliding-log 1000/d
"""
SECRET = {"WEIR_RECEIPT_SECRET": "shared by all servers of this Redis"}


def left(client, key, limit=LIMIT):
    return client.post("/v1/peek", {"key": key, "limit": limit, "cost": 0}).json["remaining"]


def settle_three_times(check, server, client, where):
    body = {"key": "k", "limit": LIMIT}
    receipt = client.post("/v1/take", {**body, "cost": 400}).json["receipt"]
    said = [client.post("/v1/settle", {**body, "receipt": receipt, "actual": 300}) for _ in range(3)]
    check.equal([answer.status for answer in said], [200] * 3, f"{where}: no failure")
    check.equal([answer.json for answer in said], [{"settled": True}] + [{"settled": True, "before": True}] * 2,
                f"{where}: once, then told so")
    check.equal(left(client, "k"), 700, f"{where}: 100 came back")
    with server.client() as resp:
        receipt = resp.call("WEIR.TAKE", "k", LIMIT, "COST", 100)[6]
        said = [resp.call("WEIR.SETTLE", "k", LIMIT, receipt, 50) for _ in range(3)]
        check.equal(said, ["OK", "SETTLED", "SETTLED"], f"{where}: over RESP")
        check.equal(left(client, "k"), 650, f"{where}: 50 came back")


def settle_at_once(check, server, client, where):
    """Eight connections, one receipt: exactly one counts."""
    body = {"key": "race", "limit": LIMIT}
    for _ in range(10):
        receipt = client.post("/v1/take", {**body, "cost": 10}).json["receipt"]
        barrier, said = threading.Barrier(8), []

        def settle():
            with http_client.Client(server.port) as mine:
                barrier.wait()
                said.append(mine.post("/v1/settle", {**body, "receipt": receipt, "actual": 0}).json)

        threads = [threading.Thread(target=settle) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check.equal(sorted(said, key=len), [{"settled": True}] + [{"settled": True, "before": True}] * 7,
                    f"{where}: one of eight")
    check.equal(left(client, "race"), 1000, f"{where}: everything came back once")


def settle_several(check, client, where):
    requests = [{"key": "{g}1", "limit": LIMIT, "cost": 10}, {"key": "{g}2", "limit": LIMIT, "cost": 20},
                {"key": "{g}1", "limit": "fixed-window 1000/d", "cost": 30}]
    answer = client.post("/v1/takeall", {"requests": requests}).json
    for _ in range(2):
        for request, receipt in zip(requests, answer["receipts"]):
            body = {"key": request["key"], "limit": request["limit"], "receipt": receipt, "actual": 1}
            check.equal(client.post("/v1/settle", body).status, 200, f"{where}: one of several")
    check.equal([left(client, it["key"], it["limit"]) for it in requests], [999] * 3, f"{where}: each key and limit once")
    body = {"key": "{g}1", "limit": LIMIT, "receipt": answer["receipt"], "actual": 0}
    check.equal(client.post("/v1/settle", body).json, {"settled": True, "before": True},
                f"{where}: the other receipt of the same charge")


def settle_policies(check, client, where):
    ask = {"attributes": {"user": "ann"}, "cost": 400}
    receipt = client.post("/v1/take", ask).json["receipt"]
    said = [client.post("/v1/settle", {**ask, "receipt": receipt, "actual": 100}).json for _ in range(3)]
    check.equal(said, [{"settled": True}] + [{"settled": True, "before": True}] * 2, f"{where}: all entries of a policy once")
    rows = client.post("/v1/peek", {**ask, "cost": 0, "detail": True}).json["limits"]
    check.equal([row["remaining"] for row in rows], [900] * 3, f"{where}: each of them once")


def counted(client, what):
    """{(policy, result): count} of weir_settles_total or weir_refunds_total, where it is not 0."""
    text = client.get("/metrics").body.decode()
    found = re.findall(rf'^weir_{what}_total{{policy="(.*)",result="(.*)"}} ([0-9]+)$', text, re.M)
    return {(policy, result): int(n) for policy, result, n in found if n != "0"}


def settles_are_counted(check, client, where):
    """One for each policy that the settle is about, by what became of it."""
    one = {"key": "counted", "limit": LIMIT}
    receipts = [client.post("/v1/take", {**one, "cost": 10}).json["receipt"] for _ in range(2)]
    for receipt in (*receipts, receipts[0], "w4-1-1-AAAAAAA-AAAAAAAAAAA", receipts[1] + "x"):
        client.post("/v1/settle", {**one, "receipt": receipt, "actual": 5})
    ask = {"attributes": {"user": "ann"}, "cost": 4}
    receipt = client.post("/v1/take", ask).json["receipt"]
    for _ in range(3):
        client.post("/v1/settle", {**ask, "receipt": receipt, "actual": 3})
    check.equal(client.post("/v1/settle", {"attributes": {"user": "ann"}, "policy": "api", "cost": 9, "receipt": receipt, "actual": 1}).status, 400, f"{where}: refused")
    check.equal(counted(client, "settles"), {("", "settled"): 2, ("", "before"): 1, ("", "refused"): 2, ("api", "settled"): 1, ("api", "before"): 2,
                                             ("api", "refused"): 1, ("all", "settled"): 1, ("all", "before"): 2}, f"{where}: settles")
    check.equal([client.post("/v1/refund", {"policy": "api", "attributes": {"user": user}, "amount": 1, "id": "a"}).status for user in ("ann", "ann", "bob")], [200] * 3, f"{where}: refunds")
    client.post("/v1/refund", {**one, "amount": 1})
    check.equal(counted(client, "refunds"), {("", "given"): 1, ("api", "given"): 1, ("api", "before"): 1, ("api", "nothing"): 1}, f"{where}: refunds")
    page = client.get("/metrics").body.decode()
    check('weir_settles_total{policy="api",result="late"} 0\n' in page and 'weir_refunds_total{policy="all"' not in page, f"{where}: a policy has all results, or none")


def test_counted(check):
    with asked(policies=POLICIES) as (_, client):
        settles_are_counted(check, client, "zone")


def test_counted_redis(check):
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", POLICIES, env=SECRET) as server, \
            http_client.Client(server.port) as client:
        settles_are_counted(check, client, "Redis")
        redis.stop()
        one = {"key": "counted", "limit": LIMIT}
        check.equal(client.post("/v1/refund", {**one, "amount": 1}).status, 503, "Redis is gone")
        check.equal(counted(client, "refunds")["", "failed"], 1, "a refund that failed")


def test_late(check):
    """More than an hour after its take a settle counts, but nobody would notice if it came twice."""
    with asked("--test-clock") as (_, client):
        now, body = 1_900_000_000, {"key": "k", "limit": "fixed-window 1000/month"}
        client.post("/v1/clock", {"now": now})
        receipts = [client.post("/v1/take", {**body, "cost": 10}).json["receipt"] for _ in range(2)]
        for after, receipt in zip((3600, 3601), receipts):
            client.post("/v1/clock", {"now": now + after})
            check.equal(client.post("/v1/settle", {**body, "receipt": receipt, "actual": 0}).json, {"settled": True}, f"after {after} s")
        check.equal(counted(client, "settles"), {("", "settled"): 1, ("", "late"): 1}, "the second was late")


def test_zone(check):
    with asked(policies=POLICIES) as (server, client):
        settle_three_times(check, server, client, "zone")
        settle_at_once(check, server, client, "zone")
        settle_several(check, client, "zone")
        settle_policies(check, client, "zone")
        check("WEIR_RECEIPT_SECRET" not in server.stderr(), "a zone has a secret of its own")


def test_crowded(check):
    """A zone without room for all receipts of an hour says how many it has forgotten."""
    limit = "fixed-window 1000000/32d from-first"
    with weir_server.Server("--store file:zone?size=64k&full=deny") as server, server.client() as resp, http_client.Client(server.port) as client:
        zone = lambda: client.get("/v1/stats").json["zone"]
        settled = lambda: check.equal(resp.call("WEIR.SETTLE", "k", limit, resp.call("WEIR.TAKE", "k", limit, "COST", 9)[6], 8), "OK", "settled")
        look = lambda *words: subprocess.run([WEIR, "zone", f"{server.folder}/zone", *words], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
        for _ in range(9):
            settled()
        check.equal(zone()["evicted_receipts"], 0, "there is room")
        check("9 settled, remembered for an hour\n" in look() and "forgotten" not in look(), f"weir zone: {look()}")
        for _ in range(2000):
            settled()
        lost = zone()["evicted_receipts"]
        check(lost >= 2009 - zone()["capacity"] and zone()["evicted_fresh"] == 0, f"stats: {zone()}")
        check(f"\nweir_zone_receipts_forgotten_total {lost}\n" in client.get("/metrics").body.decode(), "a metric")
        said = json.loads(look("--json"))
        check.equal((said["evicted_receipts"], said["receipts"]), (lost, 2009 - lost), "as JSON")
        for line in (f" {lost} forgotten before\n", " 0 expired states", "so a repeated settle counts twice: make the zone larger.\n"):
            check(line in look(), f"weir zone: {look()}")


def settle_what_was_free(check, client, where):
    """By a policy, what was taken at cost 0 and is charged later is charged once."""
    ask = {"attributes": {"user": "zoe"}, "cost": 0}
    receipts = [client.post("/v1/take", ask).json["receipt"] for _ in range(2)]
    said = [client.post("/v1/settle", {**ask, "receipt": receipt, "actual": 70}).json for receipt in (*receipts, *receipts)]
    check.equal(said, [{"settled": True}] * 2 + [{"settled": True, "before": True}] * 2, f"{where}: each once")
    rows = client.post("/v1/peek", {**ask, "detail": True}).json["limits"]
    check.equal([row["remaining"] for row in rows], [860] * 3, f"{where}: charged once each")
    receipt = client.post("/v1/take", ask).json["receipt"]
    said = [client.post("/v1/settle", {**ask, "receipt": receipt, "actual": actual}).json.get("before") for actual in (0, 70)]
    check.equal(said, [None, True], f"{where}: also if it was settled to 0")


def test_free(check):
    with asked(policies=POLICIES) as (_, client):
        settle_what_was_free(check, client, "zone")
    with redis_server.Server() as redis, weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", POLICIES, env=SECRET) as server, \
            http_client.Client(server.port) as client:
        settle_what_was_free(check, client, "Redis")


def test_redis(check):
    with redis_server.Server() as redis:
        store = f"--store redis://127.0.0.1:{redis.port}?deadline=1m"
        with weir_server.Server(store, POLICIES, env=SECRET) as server, http_client.Client(server.port) as client:
            settle_three_times(check, server, client, "Redis")
            settle_at_once(check, server, client, "Redis")
            settle_several(check, client, "Redis")
            settle_policies(check, client, "Redis")
            check("WEIR_RECEIPT_SECRET" not in server.stderr(), "no warning with a secret")
            with weir_server.Server(store, env=SECRET) as other, http_client.Client(other.port) as there:
                body = {"key": "two", "limit": LIMIT}
                receipt = client.post("/v1/take", {**body, "cost": 400}).json["receipt"]
                said = [it.post("/v1/settle", {**body, "receipt": receipt, "actual": 0}).json for it in (there, client)]
                check.equal(said, [{"settled": True}, {"settled": True, "before": True}], "once for all servers")
            with weir_server.Server(store) as other, http_client.Client(other.port) as there:
                check(other.wait_for(lambda: any("warning" in line and "WEIR_RECEIPT_SECRET" in line for line in other.errors)),
                      f"a server without the secret says so: {other.stderr()}")
                receipt = client.post("/v1/take", {**body, "cost": 400}).json["receipt"]
                problem(check, there.post("/v1/settle", {**body, "receipt": receipt, "actual": 0}), 400,
                        "WEIR_RECEIPT_SECRET", "a receipt of another secret")
                with other.client() as resp:
                    try:
                        said = resp.call("WEIR.SETTLE", "two", LIMIT, receipt, 0)
                    except Exception as error:  # pylint: disable=broad-except
                        said = str(error)
                    check("WEIR_RECEIPT_SECRET" in said, f"over RESP, too: {said}")
                check.equal(left(client, "two"), 600, "and nothing changed")


def test_stand_in(check):
    """What was allowed while Redis could not decide was charged nothing there: a settle charges its real cost, once, and
    refunds nothing, under no key."""
    with redis_server.Server() as redis, redis.client() as there, \
            weir_server.Server(f"--store redis://127.0.0.1:{redis.port}?deadline=1m", POLICIES, env=SECRET) as server, \
            http_client.Client(server.port) as client:
        ask = {"attributes": {"user": "ann"}}
        pair = [{"key": "{g}1", "limit": LIMIT, "cost": 10}, {"key": "{g}2", "limit": LIMIT, "cost": 20}]
        rows = lambda: [row["remaining"] for row in client.post("/v1/peek", {**ask, "cost": 0, "detail": True}).json["limits"]]
        client.post("/v1/take", {**ask, "cost": 400})
        client.post("/v1/takeall", {"requests": pair})
        check.equal(rows(), [600] * 3, "charged")
        there.call("CONFIG", "SET", "maxmemory", "1")
        first, second = (client.post("/v1/take", {**ask, "cost": 300}).json for _ in range(2))
        several = client.post("/v1/takeall", {"requests": pair}).json
        check.equal([it["degraded"] for it in (first, second, several)], [True] * 3, "the local fallback decides")
        there.call("CONFIG", "SET", "maxmemory", "0")
        check.equal(client.post("/v1/settle", {**ask, "cost": 300, "receipt": first["receipt"], "actual": 0}).status, 200, "settled")
        check.equal(rows(), [600] * 3, "what was not charged is not refunded")
        body = {**ask, "cost": 300, "receipt": second["receipt"], "actual": 50}
        said = [client.post("/v1/settle", body).json for _ in range(3)]
        check.equal(said, [{"settled": True}] + [{"settled": True, "before": True}] * 2, "charged by its settle, once")
        check.equal(rows(), [550] * 3, "everywhere")
        for request, receipt in zip(pair, several["receipts"]):
            body = {"key": request["key"], "limit": LIMIT, "receipt": receipt, "actual": 0}
            check.equal(client.post("/v1/settle", body).status, 200, "one of several settled")
        check.equal([left(client, it["key"]) for it in pair], [990, 980], "and not refunded")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
