#!/usr/bin/env python3
"""A receipt settles once, whoever settles it: module, scripts and both in turn, one after the other and eight at the
same time; in what company, for how long, how many are remembered.

    settle_once.py
"""
import multiprocessing
import sys

from lib import checks, lua_cases, redis_server, resp
from lib.build import REDIS_MODULE
from lib.lua_cases import evaluate, general, parse

T0 = 1_700_000_000_000_000
HOUR = 3_600_000_000
LIMITS = ["token-bucket 1000/h", "token-bucket 1000/h stepped", "leaky-bucket 1000/h burst 999", "fixed-window 1000/h",
          "fixed-window 1000/h from-first", "sliding-log 1000/h", "sliding-window 1000/h", "sliding-counter 1000/h",
          "smooth 1000/h burst-for 1h", "warmup 1000/h over 1h", "fixed-window 1000/month from 31",
          "fixed-window 1000/d zone +14:00", "token-bucket 1000/h, fixed-window 1000/d"]
REMEMBERED = 64


class Home:
    """Takes, settles and peeks by one engine or by both in turn, under the test clock."""

    def __init__(self, client, name):
        self.client, self.name, self.calls = client, name, 0
        self.sha = lua_cases.load(client)["weir_test"]

    def at(self, time):
        self.now = time
        self.client.call("WEIR.CLOCK", time)

    def call(self, verb, key, text, cost, receipt=None):
        self.calls += 1
        if self.name == "module" or (self.name == "in turn" and self.calls % 2):
            words = [receipt, cost] if receipt else ["COST", cost]
            return self.client.call("WEIR." + verb, key, text, *words)
        arguments = general(verb, parse(text), cost, receipt or -1)
        return self.client.call(*evaluate(self.sha, [key], [*arguments, self.now]))

    def take(self, key, text, cost):
        return self.call("take", key, text, cost)[6].decode()

    def settle(self, key, text, receipt, actual):
        return self.call("settle", key, text, actual, receipt)

    def left(self, key, text):
        return self.call("peek", key, text, 0)[2]


def check_once(tally, home, text):
    key, where = f"{home.name}:{text}", f"{home.name}: {text}"
    home.at(T0)
    first = home.take(key, text, 400)
    second = home.take(key, text, 400)
    tally(first != second, f"{where}: two receipts of one instant: {first} {second}")
    tally.equal(home.settle(key, text, first, 300), "OK", f"{where}: settled")
    once = home.left(key, text)
    again = [home.settle(key, text, first, actual) for actual in (300, 300, 0, 400)]
    tally.equal((again, home.left(key, text)), (["SETTLED"] * 4, once), f"{where}: once")
    tally.equal([home.settle(key, text, second, actual) for actual in (400, 0)], ["OK", "SETTLED"],
                f"{where}: what changes nothing is settled, too")
    tally.equal(home.left(key, text), once, f"{where}: and nothing changed")


def check_gone(tally, home):
    """Refunded to nothing, and remembered all the same; the older form is not."""
    key, text = f"{home.name}:gone", "token-bucket 1000/h"
    home.at(T0)
    first = home.take(key, text, 400)
    tally.equal(home.settle(key, text, first, 0), "OK", f"{home.name}: refunded")
    home.take(key, text, 400)
    tally.equal((home.settle(key, text, first, 0), home.left(key, text)), ("SETTLED", 600), f"{home.name}: gone, and known")
    tally.equal(home.client.call("WEIR.RESET", key), 1, f"{home.name}: a reset forgets it")
    tally.equal(home.client.call("EXISTS", key), 0, f"{home.name}: the key is gone")
    first = home.take(key, text, 400)
    home.settle(key, text, first, 0)
    tally.equal((home.client.call("WEIR.RESET", key), home.client.call("EXISTS", key)), (0, 0),
                f"{home.name}: settled receipts alone are nothing to reset, and go")
    home.take(key, text, 400)
    for _ in range(2):
        tally.equal(home.settle(key, text, f"w1-{T0}-100", 0), "OK", f"{home.name}: the older form")
    tally.equal(home.left(key, text), 800, f"{home.name}: corrects each time")


def check_several(tally, home):
    key, pair = f"{home.name}:several", "token-bucket 1000/h, fixed-window 1000/d"
    bucket, window = pair.split(", ")
    home.at(T0)
    receipt = home.take(key, pair, 400)
    said = [home.settle(key, text, receipt, 100) for text in (bucket, pair, window, pair)]
    tally.equal(said, ["OK", "OK", "SETTLED", "SETTLED"], f"{home.name}: each state once")
    tally.equal((home.left(key, bucket), home.left(key, window)), (900, 900), f"{home.name}: no state twice")


def check_forgotten(tally, home):
    key, text = f"{home.name}:forgotten", "fixed-window 1000/d from-first"
    home.at(T0)
    receipt = home.take(key, text, 400)
    home.settle(key, text, receipt, 300)
    home.at(T0 + HOUR - 1)
    tally.equal(home.settle(key, text, receipt, 300), "SETTLED", f"{home.name}: known for an hour")
    home.at(T0 + HOUR)
    tally.equal(home.settle(key, text, receipt, 300), "OK", f"{home.name}: and no longer")
    quick = "fixed-window 1000/s from-first"
    home.at(T0)
    receipt = home.take(key, quick, 400)
    home.settle(key, quick, receipt, 300)
    home.at(T0 + 999_999)
    tally.equal(home.settle(key, quick, receipt, 300), "SETTLED", f"{home.name}: as long as its state")
    home.at(T0 + 1_000_000)
    tally.equal((home.settle(key, quick, receipt, 300), home.left(key, quick)), ("OK", 1000), f"{home.name}: then void")


def check_bound(tally, home):
    """So many of a key are remembered, the newest."""
    key, text = f"{home.name}:many", "token-bucket 100000/h"
    home.at(T0)
    receipts = [home.take(key, text, 2) for _ in range(REMEMBERED + 3)]
    said = {home.settle(key, text, receipt, 1) for receipt in receipts}
    tally.equal(said, {"OK"}, f"{home.name}: all settled")
    said = [home.settle(key, text, receipt, 1) for receipt in reversed(receipts[3:])]
    tally.equal(set(said), {"SETTLED"}, f"{home.name}: the newest are known")
    tally(home.client.call("STRLEN", key) < 1000, f"{home.name}: and take little room")


def settle_all(port, home, receipts, start, results):
    client = resp.Client(port)
    sha = lua_cases.load(client, "weir")["weir"]
    start.wait()
    said = []
    for i, receipt in enumerate(receipts):
        if home == "module" or (home == "in turn" and i % 2):
            said.append(client.call("WEIR.SETTLE", "race", "token-bucket 100000/366d", receipt, 0))
        else:
            arguments = general("settle", parse("token-bucket 100000/366d"), 0, receipt)
            said.append(client.call(*evaluate(sha, ["race"], arguments)))
    results.put(said)
    client.close()


def check_race(tally, server, client, home):
    """Eight clients settle the same receipts at the same time: each counts once."""
    client.call("DEL", "race")
    receipts = [client.call("WEIR.TAKE", "race", "token-bucket 100000/366d", "COST", 9)[6].decode() for _ in range(50)]
    start, results = multiprocessing.Barrier(8), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=settle_all, args=(server.port, home, receipts, start, results))
               for _ in range(8)]
    for worker in workers:
        worker.start()
    said = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    counted = [sum(answers[i] == "OK" for answers in said) for i in range(len(receipts))]
    tally.equal(set(counted), {1}, f"{home}: eight at the same time: each once")
    tally.equal(client.call("WEIR.PEEK", "race", "token-bucket 100000/366d", "COST", 0)[2], 100000, f"{home}: and no more")


def main():
    tally = checks.Checks()
    with redis_server.Server(f"--loadmodule {REDIS_MODULE} test-clock") as server, server.client() as client:
        for name in ("module", "lua", "in turn"):
            home = Home(client, name)
            for text in LIMITS:
                check_once(tally, home, text)
            check_gone(tally, home)
            check_several(tally, home)
            check_forgotten(tally, home)
            check_bound(tally, home)
    with redis_server.Server(f"--loadmodule {REDIS_MODULE}") as server, server.client() as client:
        for home in ("module", "lua", "in turn"):
            check_race(tally, server, client, home)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
