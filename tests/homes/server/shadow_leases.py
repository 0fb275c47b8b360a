#!/usr/bin/env python3
"""Concurrent limits in shadow are a dry run: acquire, renew and release go on as without them, and what they would have
denied is counted and logged. Nothing holds a slot that nobody can release. In a zone, and in Redis by scripts and module."""
import json
import subprocess
import sys
import threading

from lib import checks, http_client, redis_server, store_proxy, weir_server
from lib.build import REDIS_MODULE, WEIR

START = 1_700_000_000
TRIAL = """version: 1
policies:
  - {name: trial, match: by-name, key: user, limit: concurrent 2 lease 30s, shadow: %s}
"""
POLICIES = TRIAL % "true" + """
  - name: both
    match: by-name
    limits:
      - {name: user, key: user, limit: concurrent 2 lease 30s}
      - {name: org, key: org, limit: concurrent 5 lease 30s}
      - {name: stricter, key: user, limit: concurrent 1 lease 30s, shadow: true}
      - {name: whole, key: org, limit: concurrent 3 lease 30s, shadow: true}
  - name: rate
    match: by-name
    limits:
      - {name: rate, key: user, limit: fixed-window 2/d}
      - {name: slots, key: user, limit: concurrent 3 lease 30s, shadow: true}
      - {name: calls, key: user, limit: fixed-window 2/d, shadow: true}
  - {name: web, match: {path: /web}, key: user, limit: concurrent 1 lease 30s, shadow: true}
"""


class Home:
    """A server, a client, and what its policies count."""

    def __init__(self, check, server, client, where):
        self.check, self.server, self.client, self.where = check, server, client, where
        self.at(0)

    def at(self, seconds):
        assert self.client.post("/v1/clock", {"now": START + seconds}).status == 200

    def ask(self, verb, policy, user="ann", **more):
        body = {"policy": policy, "attributes": {"user": user, "org": "acme"}, **more}
        return self.client.post("/v1/" + verb, body)

    def acquire(self, policy, user="ann"):
        """Acquires: the status, the lease, and which shadows would have denied it."""
        answer = self.ask("acquire", policy, user, detail=True)
        rows = answer.json["limits"]
        return answer.status, answer.json["lease"], [row["name"] for row in rows if row["shadow"] and not row["allowed"]]

    def held(self, policy, user="ann"):
        """How many slots each limit has given, but for windows."""
        rows = self.ask("peek", policy, user, detail=True).json["limits"]
        return {row["name"]: row["limit"] - row["remaining"] for row in rows if "concurrent" in row["text"]}

    def equal(self, got, wanted, what):
        self.check.equal(got, wanted, f"{self.where}: {what}")


def only_in_shadow(home):
    """The only limit is in shadow: every acquire goes ahead with a lease, whether it holds a slot or not."""
    got = [home.acquire("trial") for _ in range(4)]
    home.equal([(status, denied) for status, _, denied in got], [(200, [])] * 2 + [(200, ["trial"])] * 2, "two of four")
    leases = [lease for _, lease, _ in got]
    home.equal((min(leases) > 0, len(set(leases))), (True, 4), "each has a lease")
    home.equal(home.held("trial"), {"trial": 2}, "slots")
    for verb in ("renew", "release", "release", "renew"):
        home.equal([home.ask(verb, "trial", lease=lease).status for lease in (leases[3], leases[0])], [200, 200], f"{verb}: no error")
    home.equal(home.held("trial"), {"trial": 1}, "one is released, once")
    home.equal(home.acquire("trial")[2], [], "so there is room")
    home.equal(home.acquire("trial", "bob")[2], [], "others have their own")


def abandoned(home):
    """Nobody releases: leases end. Renewals keep them, and are no error afterwards."""
    leases = [home.acquire("trial", "eve")[1] for _ in range(2)]
    home.at(20)
    home.equal(home.ask("renew", "trial", "eve", lease=leases[0]).json, {"renewed": True}, "renewed")
    home.at(31)
    home.equal(home.held("trial", "eve"), {"trial": 1}, "one has ended, the other was renewed")
    home.equal(home.ask("renew", "trial", "eve", lease=leases[1]).status, 200, "a renewal after the end")
    home.equal(home.held("trial", "eve"), {"trial": 1}, "gives no slot back to it")
    home.at(50)
    home.equal(home.held("trial", "eve"), {"trial": 0}, "all have ended")
    home.equal(home.ask("release", "trial", "eve", lease=leases[0]).status, 200, "a release after the end")


def beside_enforced(home):
    """One lease for enforced limits and shadows; enforced ones decide whether it is allowed and still there."""
    first, second, third = [home.acquire("both") for _ in range(3)]
    home.equal([(it[0], it[2]) for it in (first, second, third)],
               [(200, []), (200, ["stricter"]), (429, ["stricter"])], "acquired")
    home.equal((third[1], home.held("both")), (0, {"user": 2, "org": 2, "stricter": 1, "whole": 2}), "a denial holds nothing")
    home.equal(home.ask("renew", "both", lease=second[1]).status, 200, "renewed without the slot of a shadow")
    home.equal(home.ask("release", "both", lease=second[1]).status, 200, "released likewise")
    home.equal(home.held("both"), {"user": 1, "org": 1, "stricter": 1, "whole": 1}, "its slots")
    home.equal(home.ask("release", "both", lease=second[1]).status, 404, "enforced slots are released once")
    home.at(75)
    home.equal(home.ask("renew", "both", lease=first[1]).json, {"renewed": True}, "all are renewed")
    home.at(85)
    home.equal(home.held("both"), {"user": 1, "org": 1, "stricter": 1, "whole": 1}, "by one call")
    home.at(106)
    home.equal(home.ask("renew", "both", lease=first[1]).status, 404, "an enforced slot that is lost is told")


def beside_rates(home):
    """Denied by a rate: other shadows are charged in any case, slots are only looked at."""
    got = [home.acquire("rate") for _ in range(3)]
    home.equal([(status, lease > 0, denied) for status, lease, denied in got],
               [(200, True, []), (200, True, []), (429, False, ["calls"])], "the rate denies")
    home.equal(home.held("rate"), {"slots": 2}, "slots of those that went ahead")
    home.equal([home.ask("release", "rate", lease=lease).status for _, lease, _ in got[:2]], [200, 200], "released")
    home.equal(home.held("rate"), {"slots": 0}, "all")


def takes(home):
    """A take looks, and holds nothing: over HTTP, RESP, and of a proxy."""
    web = {"path": "/web", "user": "ann"}
    for _ in range(3):
        answer = home.client.get("/v1/take", attr_path="/web", attr_user="ann", detail=1)
        home.equal((answer.status, answer.json["limits"][0]["allowed"]), (200, True), "a take")
    with home.server.client() as resp:
        home.equal([resp.call("WEIR.DECIDE", "path", "/web", "user", "ann")[0] for _ in range(2)], [1, 1], "WEIR.DECIDE")
    entries = [{"key": name, "value": value} for name, value in web.items()]
    for _ in range(2):
        answer = home.client.post("/json", {"domain": "edge", "descriptors": [{"entries": entries}]})
        home.equal(answer.status, 200, "Envoy")
    held = home.client.post("/v1/acquire", {"attributes": web, "detail": True}).json
    home.equal((held["lease"] > 0, held["limits"][0]["allowed"]), (True, True), "the slot was free")
    home.equal(home.client.get("/v1/take", attr_path="/web", attr_user="ann", detail=1).json["limits"][0]["allowed"], False,
               "a take sees that it is held")
    released = home.client.post("/v1/release", {"attributes": web, "lease": held["lease"]})
    home.equal(released.json, {"released": True}, "released")


def told(home):
    """Metrics, ranking and log tell of what would have been denied."""
    metrics = home.client.get("/metrics").body.decode()
    for limit, policy, outcome, count in (("trial", "trial", "denied", 2), ("stricter", "both", "denied", 2),
                                          ("slots", "rate", "allowed", 3), ("web", "web", "denied", 1)):
        line = f'weir_shadow_decisions_total{{policy="{policy}",limit="{limit}",outcome="{outcome}"}} {count}\n'
        home.check.contains(metrics, line, f"{home.where}: metrics")
    explain = subprocess.run([WEIR, "explain", "--server", f"http://127.0.0.1:{home.server.port}", "--policy", "trial", "--key", "ann"],
                             stdout=subprocess.PIPE, text=True, timeout=weir_server.PATIENCE_SECONDS, env=weir_server.environment())
    home.check.contains(explain.stdout, "allowed: all limits that apply are in shadow", f"{home.where}: weir explain")
    top = {it["name"]: [row["key"] for row in it["shadow_denied"]] for it in home.client.get("/v1/top").json["policies"]}
    home.equal(top["trial"], ["trial/{user=ann}"], "ranking")
    log = home.server.folder / "log"
    home.server.wait_for(lambda: log.read_text().count('"entry":"trial"') >= 2)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if any(it["entry"] == "trial" for it in line.get("shadows", []))]
    home.equal([(line["allowed"], line["shadow_denied"]) for line in lines], [(True, 1)] * 2, "log")


def reloaded(home):
    """shadow is taken away and put back between acquire and release: the slots are the same."""
    def change(shadow):
        home.server.write("policies.yaml", POLICIES.replace(TRIAL % "true", TRIAL % shadow))
        home.equal(home.client.post("/v1/reload").status, 200, "reloaded")

    held, other, beside = [home.acquire("trial", "joe")[1] for _ in range(3)]
    change("false")
    home.equal(home.acquire("trial", "joe")[0], 429, "enforced: what was acquired in shadow counts")
    home.equal([home.ask("renew", "trial", "joe", lease=lease).status for lease in (held, beside)], [200, 404],
               "enforced: who holds no slot is told")
    home.equal([home.ask("release", "trial", "joe", lease=held).status for _ in range(2)], [200, 404], "enforced: released")
    new = home.acquire("trial", "joe")[1]
    change("true")
    home.equal([home.ask("release", "trial", "joe", lease=lease).status for lease in (new, other)], [200, 200], "in shadow again")
    home.equal(home.held("trial", "joe"), {"trial": 0}, "nothing is left")


def crowd(home):
    """Sixteen at the same time: never more slots than there are, and all of them come back."""
    lock, now, most, wrong, denials = threading.Lock(), set(), [0], [], [0]

    def work():
        with http_client.Client(home.server.port) as client:
            body = {"policy": "trial", "key": "crowd"}
            for _ in range(25):
                answer = client.post("/v1/acquire", {**body, "detail": True})
                lease, holds = answer.json["lease"], answer.json["limits"][0]["allowed"]
                with lock:
                    if holds:
                        now.add(lease)
                    most[0], denials[0] = max(most[0], len(now)), denials[0] + (not holds)
                    wrong.extend([answer.status] if answer.status != 200 or not lease else [])
                wrong.extend(code for code in [client.post("/v1/renew", {**body, "lease": lease}).status] if code != 200)
                with lock:
                    now.discard(lease)
                wrong.extend(code for code in [client.post("/v1/release", {**body, "lease": lease}).status] if code != 200)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    home.equal(wrong, [], "nobody is refused")
    home.check(most[0] <= 2 and denials[0] > 0, f"{home.where}: {most[0]} held two slots, {denials[0]} would be denied")
    left = home.client.post("/v1/peek", {"policy": "trial", "key": "crowd", "detail": True}).json["limits"][0]
    home.equal(left["remaining"], 2, "all slots are back")


def whole(check, store, where):
    with weir_server.Server(["--test-clock", "--no-watch", "--access-log", "log", *store], policies=POLICIES) as server, \
            http_client.Client(server.port) as client:
        home = Home(check, server, client, where)
        for part in (only_in_shadow, abandoned, beside_enforced, beside_rates, takes, told, reloaded, crowd):
            part(home)


def test_zone(check):
    whole(check, [], "zone")


def test_scripts(check):
    with redis_server.Server() as redis:
        whole(check, ["--store", f"redis://127.0.0.1:{redis.port}?deadline=1m"], "scripts")


def test_module(check):
    """A user that may call the commands of the module, and nothing else: no scripts."""
    with redis_server.Server(f"--loadmodule {REDIS_MODULE} test-clock") as redis, redis.client() as admin:
        verbs = "take peek takeall settle reset acquire renew release show clock".split()
        admin.call("ACL", "SETUSER", "default", "-@all", "+ping", "+role", "+acl", *(f"+weir.{verb}" for verb in verbs))
        whole(check, ["--store", f"redis://127.0.0.1:{redis.port}?deadline=1m&engine=module"], "module")


def test_named(check):
    """WEIR.ACQUIRE with an id of the caller's, in the server and in the module."""
    with weir_server.Server() as server, redis_server.Server(f"--loadmodule {REDIS_MODULE}") as redis:
        for where, home in (("server", server), ("module", redis)):
            with home.client() as client:
                ask = ("WEIR.ACQUIRE", "k", "concurrent 2 lease 1m")
                check.equal([client.call(*ask, "LEASE", 4711)[7], client.call(*ask, "DETAIL", "LEASE", 4712)[7]], [4711, 4712], where)
                check.equal(client.call(*ask, "LEASE", 4713)[7], 0, f"{where}: denied")
                check.equal([client.call("WEIR.RELEASE", *ask[1:], lease) for lease in (4711, 4711, 4713)], [1, 0, 0], where)
                for words, said in ((("LEASE", 0), "a lease id"), (("LEASE", 1 << 47), "a lease id"), (("LEASE",), "[LEASE id]"),
                                    (("LEASE", 1, "LEASE", 1), "each once")):
                    check.contains(str(client.pipeline([(*ask, *words)])[0]), said, f"{where}: {words}")
                both = ("WEIR.TAKEALL", 2, "{t}1", "fixed-window 9/d", 1, "{t}2", "concurrent 2 lease 1m", 1)
                check.equal(client.call(*both, "ACQUIRE", "LEASE", 4714)[7], 4714, f"{where}: of several keys")
                check.equal(client.call("WEIR.RELEASE", "{t}2", "concurrent 2 lease 1m", 4714), 1, f"{where}: and released")
                for words in (("WEIR.TAKE", "k", "fixed-window 9/d", "LEASE", 1), ("WEIR.PEEK", "k", "concurrent 2", "LEASE", 1),
                              (*both, "LEASE", 1), (*both, "LEASE", 1, "ACQUIRE")):
                    check.contains(str(client.pipeline([words])[0]), 'found "LEASE"', f"{where}: {words[0]}")


class Older(store_proxy.Proxy):
    """Before a module that does not know LEASE: it hears another word, of the same length."""

    def change(self, data):
        return data.replace(b"\r\nLEASE\r\n", b"\r\nLEASH\r\n")


def test_older_module(check):
    """What cannot be decided in shadow denies nobody, and the log says why."""
    with redis_server.Server(f"--loadmodule {REDIS_MODULE}") as redis, Older(redis.port) as older, \
            weir_server.Server(f"--store redis://127.0.0.1:{older.port}?deadline=1m&engine=module", policies=POLICIES) as server, \
            http_client.Client(server.port) as client:
        ask = {"policy": "both", "attributes": {"user": "ann", "org": "acme"}}
        got = client.post("/v1/acquire", {**ask, "detail": True})
        check.equal((got.status, [(row["allowed"], row["limit"]) for row in got.json["limits"]]),
                    (200, [(True, 2), (True, 5), (True, 0), (True, 0)]), "an older module: acquired")
        check.equal(client.post("/v1/release", {**ask, "lease": got.json["lease"]}).json, {"released": True}, "an older module: released")
        for words in ('limit "stricter" is in shadow and the store did not decide it', "weir_redis.so does not know this option"):
            check(server.wait_for(lambda words=words: words in server.stderr()), f"{words}: {server.stderr()}")


TESTS = [test_zone, test_scripts, test_module, test_named, test_older_module]
if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
