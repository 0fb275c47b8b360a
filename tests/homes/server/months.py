#!/usr/bin/env python3
"""Windows of the calendar as users meet them: months over HTTP and RESP, in policies, shown, explained, kept over restarts, in
zones that change their size and in Redis, and what every door says about a text that is wrong."""
import datetime
import pathlib
import subprocess
import sys
import tempfile

from lib import checks, http_client, redis_server, weir_server
from lib.build import REDIS_MODULE, WEIR

MONTH = "fixed-window 5/month from 31 zone +08:00"
DAY = 86400
POLICIES = """version: 1
policies:
  - name: plan
    match: {path: /v1/*}
    key: user
    limits:
      - {name: month, limit: fixed-window 3/month from 15 zone +08:00}
      - {name: burst, limit: token-bucket 100/s}
"""


def at(text):
    """Seconds of a time like 2026-02-01T00:00+08:00."""
    return int(datetime.datetime.fromisoformat(text).timestamp())


def clock(client, seconds):
    client.post("/v1/clock", {"now": seconds})


def window(answer):
    """w of RateLimit-Policy."""
    return int(answer.fields["ratelimit-policy"].rpartition("w=")[2])


def test_http(check):
    with weir_server.Server("--test-clock") as server, http_client.Client(server.port) as client:
        for start, days in (("2026-01-31", 28), ("2026-02-28", 31), ("2026-03-31", 30), ("2028-01-31", 29)):
            clock(client, at(f"{start}T00:00+08:00"))
            for left in range(4, -1, -1):
                answer = client.get("/v1/take", key="a", limit=MONTH)
                check.equal((answer.status, answer.json["remaining"]), (200, left), f"a take in the month from {start}")
            check.equal(window(answer), days * DAY, f"w is the length of the month from {start}")
            denied = client.get("/v1/take", key="a", limit=MONTH)
            check.equal((denied.status, denied.fields["retry-after"]), (429, str(days * DAY)), "denied until the next month")
            clock(client, at(f"{start}T00:00+08:00") + days * DAY - 1)
            check.equal(client.get("/v1/peek", key="a", limit=MONTH).fields["retry-after"], "1", "its last second")
        clock(client, at("2026-11-16T04:00+00:00"))
        told = client.post("/v1/explain", {"key": "a", "limit": MONTH + ", fixed-window 9/h"}).json["limits"]
        check.equal(told[0]["next_edges"], ["2026-11-30T00:00:00+08:00", "2026-12-31T00:00:00+08:00", "2027-01-31T00:00:00+08:00"],
                    "/v1/explain shows the next edges")
        check.equal(told[0].get("began"), "2026-10-31T00:00:00+08:00", "and when this one began")
        check("next_edges" not in told[1] and "began" not in told[1], "of windows of the calendar alone")
        check.contains(told[0]["meaning"], "calendar months from day 31 (UTC+08:00)", "and says what it means")


def test_clock(check):
    """The server says that its clock can be set, and what the clock does once it is set."""
    with weir_server.Server("--test-clock") as server, http_client.Client(server.port) as client:
        check(server.wait_for(lambda: "warning: --test-clock: clients can set the time" in server.stderr()), "it warns when it starts")
        said = client.post("/v1/clock", {"now": at("2026-11-15T00:00+00:00")})
        check.equal((said.status, said.body), (200, b"The clock stands still at 2026-11-15T00:00:00+00:00 until it is set again.\n"), "set")
        check.contains(client.post("/v1/clock", {"now": "soon"}).json["detail"], "seconds since 1970", "set to nonsense")
    with weir_server.Server("") as server:
        check("--test-clock" not in server.stderr(), "no warning without it")


def test_show_of_a_policy(check):
    """show is about one state; the error names the endpoint that takes a policy, and that endpoint names the state."""
    with weir_server.Server("", POLICIES) as server, http_client.Client(server.port) as client:
        asked = {"policy": "plan", "key": "bob"}
        client.post("/v1/take", asked)
        for query in (asked, {"key": "bob", "limit": MONTH}):
            answer = client.get("/v1/show", **query)
            check.equal(answer.status, 400, f"show of {query}")
            check.contains(answer.json["detail"], "/v1/explain takes a policy, a limit or attributes", f"show of {query}")
        key = client.post("/v1/explain", asked).json["limits"][0]["key"]
        check.equal(client.get("/v1/show", key=key).json["states"][0]["spent"], 1, "by the name that explain gives")


def test_show_by_the_server(check):
    """When a state expires is told by the server's clock, wherever the one who asks is."""
    with weir_server.Server("--test-clock", POLICIES) as server, http_client.Client(server.port) as client:
        clock(client, at("2027-01-10T00:00+08:00"))
        client.post("/v1/take", {"policy": "plan", "key": "bob"})
        key = "plan/month/{user=bob}"
        check.equal(client.get("/v1/show", key=key).json["now"], at("2027-01-10T00:00+08:00") * 10**6, "what the server's clock says")
        where = ("--server", f"http://127.0.0.1:{server.port}")
        shown = subprocess.run([WEIR, "show", key, *where], capture_output=True, text=True, timeout=60, check=False)
        check.equal(shown.stdout, "fixed-window 3/month from 15 zone +08:00: 1 used, 2 left, expires in 5d, on 2027-01-15T00:00:00+08:00\n", shown.stderr)


def test_list_of_keys(check):
    """What customers have used, in one connection: a peek each, pipelined."""
    with weir_server.Server("--test-clock") as server, http_client.Client(server.port) as client, server.client() as resp:
        clock(client, at("2026-11-16T00:00+00:00"))
        anchors = {"ann": 1, "bob": 15, "eve": 31}
        for i, (name, day) in enumerate(anchors.items()):
            client.get("/v1/take", key=name, limit=f"fixed-window 1000/month from {day}", cost=100 * (i + 1))
        replies = resp.pipeline([("WEIR.PEEK", name, f"fixed-window 1000/month from {day}") for name, day in anchors.items()])
        check.equal([reply[2] for reply in replies], [900, 800, 700], "peeked over RESP")
        lines = "".join(f"{name} {day}\n" for name, day in anchors.items())
        script = 'while read key day; do "$0" peek "$key" "fixed-window 1000/month from $day" --server "$1" --json; done'
        done = subprocess.run(["sh", "-c", script, WEIR, f"127.0.0.1:{server.port}"], input=lines, capture_output=True, text=True,
                              timeout=60, check=False)
        check.equal([line.partition('"remaining":')[2].partition(",")[0] for line in done.stdout.splitlines()],
                    ["900", "800", "700"], f"peeked by the command {done.stderr}")
        shown = client.post("/v1/show", {"key": "bob"})
        check.equal([state["limit"] for state in shown.json["states"]], ["fixed-window 1000/month from 15"], "shown")


def test_policies(check):
    with weir_server.Server("--test-clock", POLICIES) as server, http_client.Client(server.port) as client:
        clock(client, at("2026-11-14T23:59:59+08:00"))
        asks = [client.post("/v1/take", {"attributes": {"path": "/v1/x", "user": "ann"}}).status for _ in range(4)]
        check.equal(asks, [200, 200, 200, 429], "a policy's month")
        clock(client, at("2026-11-15T00:00+08:00"))
        answer = client.post("/v1/take", {"attributes": {"path": "/v1/x", "user": "ann"}})
        check.equal((answer.status, answer.fields["ratelimit-policy"].partition(",")[0]),
                    (200, f'"month";q=3;w={30 * DAY}'), "the next month")


def test_restarts(check):
    """A file keeps what is used, over a restart and a change of its size; so does a dump."""
    with weir_server.Server("--test-clock --store file:zone?size=1m") as server:
        def left():
            with http_client.Client(server.port) as client:
                clock(client, at("2026-12-01T00:00+00:00"))
                return [client.get("/v1/peek", key="a", limit=limit).json["remaining"]
                        for limit in (MONTH, "fixed-window 5/month", "fixed-window 7/year from 12-01", "fixed-window 5/d zone -12:00")]
        with http_client.Client(server.port) as client:
            clock(client, at("2026-12-01T00:00+00:00"))
            for limit, cost in ((MONTH, 2), ("fixed-window 7/year from 12-01", 3), ("fixed-window 5/d zone -12:00", 4)):
                client.get("/v1/take", key="a", limit=limit, cost=cost)
        wanted = [3, 5, 4, 1]
        check.equal(left(), wanted, "before")
        for options in ("--test-clock --store file:zone?size=1m", "--test-clock --store file:zone?size=4m&large=20%"):
            server.stop()
            server.options = options.split()
            server.start()
            check.equal(left(), wanted, f"after a restart with {options}")
        server.stop()
        dump = subprocess.run([WEIR, "zone", "file:zone", "--dump"], cwd=server.folder, capture_output=True, timeout=60, check=True)
        check.contains(dump.stdout.decode(), f'"limit":"{MONTH}"', "the dump names the limit")
        (server.folder / "dump").write_bytes(dump.stdout)
        subprocess.run([WEIR, "zone", "file:other?size=2m", "--load", "dump"], cwd=server.folder, timeout=60, check=True,
                       stdout=subprocess.DEVNULL)
        server.options = "--test-clock --store file:other".split()
        server.start()
        check.equal(left(), wanted, "after dump and load")


def test_redis(check):
    """Module and scripts write the same key in turn, and a restart of Redis keeps it."""
    options = f"--loadmodule {REDIS_MODULE} --appendonly yes --appendfsync always"
    for engine in ("module", "lua"):
        with redis_server.Server(options) as redis:
            store = f"redis://127.0.0.1:{redis.port}?engine={engine}&deadline=30s"
            for used in range(1, 4):
                other = store if used != 2 else store.replace(engine, "lua" if engine == "module" else "module")
                done = subprocess.run([WEIR, "take", "a", "fixed-window 9/year zone +14:00", "--store", other], capture_output=True,
                                      text=True, timeout=60, check=False)
                check.contains(done.stdout, f"allowed: {9 - used} of 9 left", f"take {used} by {other} {done.stderr}")
            shown = subprocess.run([WEIR, "show", "a", "--store", store], capture_output=True, text=True, timeout=60, check=False)
            check.contains(shown.stdout, "fixed-window …/year zone +14:00: 3 used", "weir show")
            redis.kill()
            redis.start()
            done = subprocess.run([WEIR, "peek", "a", "fixed-window 9/year zone +14:00", "--store", store], capture_output=True,
                                  text=True, timeout=60, check=False)
            check.contains(done.stdout, "6 of 9 left", f"{engine}: after Redis was started again {done.stderr}")


WRONG = (("fixed-window 5/month from 32", "column 27: expected a day of the month, 1 to 31, found \"32\""),
         ("fixed-window 5/d zone +15:00", "column 23: expected an offset like +08:00"),
         ("fixed-window 5/year from 31", "column 26: expected a day of the year, month-day like 04-06"),
         ("token-bucket 5/month", "column 16: only fixed-window counts by months: write 30d here"))


def test_wrong(check):
    with weir_server.Server("") as server, http_client.Client(server.port) as client, server.client() as resp:
        for text, said in WRONG:
            answer = client.get("/v1/take", key="a", limit=text)
            check.equal(answer.status, 400, text)
            check.contains(answer.json["detail"], said, f"HTTP, {text}")
            check.contains(str(resp.pipeline([("WEIR.TAKE", "a", text)])[0]), said, f"RESP, {text}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "policies.yaml"
        for text, said in WRONG:
            path.write_text(POLICIES.replace("fixed-window 3/month from 15 zone +08:00", text))
            code, stderr = weir_server.refused(["--listen", "127.0.0.1:0", "--policies", path])
            check(code not in (None, 0), f"policies, {text}: {code}")
            where, _, rest = said.partition(": ")
            column = 29 + int(where.split()[1])  # the line and column of the file
            check.contains(stderr, f"policies.yaml:7:{column}: {rest}", f"policies, {text}")


TESTS = [test_http, test_clock, test_show_of_a_policy, test_show_by_the_server, test_list_of_keys, test_policies, test_restarts, test_redis, test_wrong]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
