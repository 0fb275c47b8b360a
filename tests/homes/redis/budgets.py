#!/usr/bin/env python3
"""Requests with a least over several keys, limits with a cost of their own, and leases: module and scripts against the model.

    budgets.py [--seed N] [--calls N]

Every call names one to three keys with their limits. All with a least are granted one amount. Some calls acquire: one
lease holds the slots of all their keys; later it is renewed and released key by key. Every field of the reply and of its
rows is compared; then the bytes that both homes have written.
"""
import argparse
import random
import sys

from lib import checks, lua_cases, redis_server
from lib.build import REDIS_MODULE
from edges_budgets import SHAPING, random_texts
from model import Model
from scripts import BASE

KEYS = ("a", "b", "c", "d")


class Ask:
    def __init__(self, rng, key, text):
        self.key, self.text, self.limits = key, text, lua_cases.language.parse(text)
        self.grants = all(limit.cost or limit.kind not in SHAPING for limit in self.limits)
        self.cost = rng.choice((0, 1, 2, 5, 40, 300, 2000))
        self.least = 0


def random_call(rng, texts):
    """The asks of a call: leasts that fit each other."""
    asks = [Ask(rng, key, texts[key]) for key in rng.sample(KEYS, rng.choice((1, 2, 2, 3)))]
    some = [ask for ask in asks if ask.grants and ask.cost and rng.random() < 0.8]
    most = min((ask.cost for ask in some), default=0)
    for ask in some:
        ask.least = rng.randint(1, max(1, min(most, 6)))
    return asks


def leased(ask):
    return any(limit.kind == "concurrent" for limit in ask.limits)


def by_module(asks, lease):
    words = ["WEIR.TAKEALL", len(asks)]
    for ask in asks:
        words += [ask.key, ask.text, ask.cost]
    return (*words, "LEAST", *(ask.least for ask in asks), *(["ACQUIRE"] if lease else []), "DETAIL")


def by_lua(sha, asks, now, lease):
    owns = any(limit.cost for ask in asks for limit in ask.limits)
    words = [lua_cases.VERBS["acquire" if lease else "take"], 3 + 4 * owns, -1, lease]
    for ask in asks:
        words += [ask.cost, ask.least, len(ask.limits)]
        words += [number for limit in ask.limits for number in lua_cases.Numbers(limit).general(owns)]
    return lua_cases.evaluate(sha, [ask.key for ask in asks], [*words, now])


def wanted(model, now, asks, lease):
    every = [(ask.key, ask.limits, ask.cost, ask.least) for ask in asks]
    answer, rows, bound = model.decide(now, every, "default", True, lease or None)
    charged = 0
    if answer.allowed:
        charged = answer.granted if asks[0].least else asks[0].cost
    receipt = b"w1-%d-%d" % (now, charged)
    holds = lease if answer.allowed and any(leased(ask) and ask.cost for ask in asks) else 0
    return [*map(int, answer[:6]), receipt, answer.granted, *([holds] if lease else []), bound, *([*map(int, row)] for row in rows)]


def values(client):
    return {key: client.call("GET", key) for key in KEYS}


def changed(rng, model, now, held, client, script, sha, check):
    """Renews or releases one key of an earlier lease, which it may have lost meanwhile."""
    lease, ask = rng.choice(held)
    verb = rng.choice(("renew", "release"))
    expected = int(getattr(model, verb)(now, ask.key, ask.limits, lease))
    client.call("WEIR.CLOCK", now)
    replies = (client.call(f"WEIR.{verb}", ask.key, ask.text, lease),
               script.call(*lua_cases.evaluate(sha, [ask.key], [*lua_cases.general(verb, [lua_cases.Numbers(limit) for limit in ask.limits],
                                                                                   wait=0, lease=lease), now])))
    check.equal(replies, (expected, expected), f"{verb} {ask.key} {ask.text} {lease}")


def refused(client, sha, check):
    """What does not fit together is refused by both, and nothing is charged."""
    one, two = Ask(random.Random(1), "a", "fixed-window 9/m"), Ask(random.Random(1), "b", "fixed-window 9/m")
    one.cost, one.least, two.cost, two.least = 8, 5, 4, 1
    for reply in client.pipeline([by_module([one, two], 0), by_lua(sha, [one, two], BASE, 0)]):
        check("all get the same" in str(reply), f"a least above another's cost: {reply!r}")
    two.text, two.cost = "leaky-bucket 9/m burst 9", 9
    two.limits = lua_cases.language.parse(two.text)
    for reply in client.pipeline([by_module([one, two], 0), by_lua(sha, [one, two], BASE, 0)]):
        check("shape" in str(reply), f"a least of what shapes: {reply!r}")
    two.text, two.least = "fixed-window 9/m", 0
    two.limits = lua_cases.language.parse(two.text)
    for reply in client.pipeline([by_module([one, two], 7), by_lua(sha, [one, two], BASE, 7)]):
        check("none of the limits is concurrent" in str(reply), f"an acquire without leases: {reply!r}")
    for words in (("LEAST", 0), ("LEAST", 6), ("LEAST",), ("LEAST", "x"), ("LEAST", 1, "LEAST", 1), ("LEAST", 1, "WAIT", 5)):
        reply = client.pipeline([("WEIR.TAKE", "a", "fixed-window 9/m", "COST", 5, *words)])[0]
        check(str(reply).startswith("ERR"), f"{words}: {reply!r}")
    check.equal(client.call("WEIR.PEEK", "a", "fixed-window 9/m")[2], 9, "nothing was charged")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=checks.seed())
    parser.add_argument("--calls", type=int, default=1500)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng, check, model, now, held = random.Random(options.seed), checks.Checks(), Model(), BASE, []
    texts = {key: random_texts(rng) for key in KEYS}
    argument = f"--loadmodule {REDIS_MODULE} test-clock"
    with redis_server.Server(argument) as server, redis_server.Server() as other, \
            server.client() as client, other.client() as script:
        sha = lua_cases.load(script, "weir_test")["weir_test"]
        refused_sha = lua_cases.load(client, "weir_test")["weir_test"]
        refused(client, refused_sha, check)
        client.call("FLUSHALL")
        for i in range(options.calls):
            now += rng.choice((0, 0, 1, 1000, 10 ** 5, 10 ** 6, 6 * 10 ** 7))
            if rng.random() < 0.02:
                key = rng.choice(KEYS)
                texts[key] = random_texts(rng)
                model.reset(key)
                client.call("DEL", key)
                script.call("DEL", key)
            asks = random_call(rng, texts)
            lease = rng.randint(1, 2 ** 47 - 1) if rng.random() < 0.5 and any(map(leased, asks)) else 0
            expected = wanted(model, now, asks, lease)
            client.call("WEIR.CLOCK", now, *([lease] if lease else []))
            where = f"call {i}: {[(ask.key, ask.text, ask.least, ask.cost) for ask in asks]}"
            for home, reply in (("module", client.call(*by_module(asks, lease))), ("scripts", script.call(*by_lua(sha, asks, now, lease)))):
                check.equal(lua_cases.unnamed(reply), expected, f"{where} {home}")
            if lease and expected[8]:
                held += [(lease, ask) for ask in asks if leased(ask) and ask.cost]
            if held and rng.random() < 0.2:
                changed(rng, model, now, held, client, script, sha, check)
            if i % 50 == 0:
                check.equal(values(client), values(script), f"{where}: the bytes")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
