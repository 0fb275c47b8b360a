"""What the module's tests share: servers with the module, a limit of every kind, calls by module and Lua.

A call is (verb, key, limits' text, …) in one form; `by_module` and `by_lua` make the command of it.
"""
import random
import time

from . import lua_cases, redis_server
from .build import REDIS_MODULE

LOAD = f"--loadmodule {REDIS_MODULE}"
# Periods so long that no key is fresh again, and gone, while a test runs: that would be written, too.
LIMITS = [
    "token-bucket 50/h burst 40", "token-bucket 20/h burst 60 stepped", "leaky-bucket 40/h burst 30",
    "fixed-window 60/h", "fixed-window 60/2h from-first", "sliding-log 90/h",
    "sliding-window 90/h precision 1s", "sliding-counter 70/h", "smooth 100/s burst-for 2s",
    "warmup 1/s over 1h", "concurrent 60 lease 10m",
]
MANY = "token-bucket 30/h, fixed-window 90/d, sliding-log 50/m, concurrent 40 lease 5m"
WAITS = {-1: [], -2: ["WAIT", "any"]}


def server(options="", config="", argument=""):
    """A server with the module loaded; argument: `test-clock` or none."""
    return redis_server.Server(f"{LOAD} {argument} {options}", config)


class Call:
    """One request, to be made by either writer."""

    def __init__(self, verb, key, limits="", cost=1, wait=-1, lease=0, receipt="", detail=False):
        self.verb, self.key, self.limits, self.cost, self.wait = verb, key, limits, cost, wait
        self.lease, self.receipt, self.detail = lease, receipt, detail

    def by_module(self):
        if self.verb in ("reset", "show"):
            return ("WEIR." + self.verb, self.key)
        if self.verb == "settle":
            return ("WEIR.SETTLE", self.key, self.limits, self.receipt, self.cost)
        if self.verb in ("renew", "release"):
            return ("WEIR." + self.verb, self.key, self.limits, self.lease)
        wait = WAITS.get(self.wait, ["WAIT", self.wait])
        detail = ["DETAIL"] if self.detail else []
        return ("WEIR." + self.verb, self.key, self.limits, "COST", self.cost, *wait, *detail)

    def by_lua(self, sha, *clock):
        if self.verb in ("reset", "show"):
            return lua_cases.evaluate(sha, [self.key], [lua_cases.VERBS[self.verb], *clock])
        wait = self.receipt if self.verb == "settle" else self.wait
        arguments = lua_cases.general(self.verb, parsed(self.limits), self.cost, wait, self.lease,
                                      int(self.detail))
        return lua_cases.evaluate(sha, [self.key], [*arguments, *clock])


PARSED = {}


def parsed(text):
    if text not in PARSED:
        PARSED[text] = lua_cases.parse(text)
    return PARSED[text]


class Load:
    """Random requests over all verbs and kinds, by module and Lua in turn."""

    def __init__(self, client, seed, keys=40, prefix=""):
        self.client, self.random, self.keys, self.prefix = client, random.Random(seed), keys, prefix
        self.sha = lua_cases.load(client, "weir")["weir"]
        self.leases, self.receipts, self.calls = [], [], 0

    def call(self):
        pick = self.random
        index = pick.randrange(self.keys)
        limits = (LIMITS + [MANY])[index % (len(LIMITS) + 1)]
        key = f"{self.prefix}k{index}"
        kind = pick.random()
        if kind < 0.05 and self.receipts:
            key, limits, receipt = pick.choice(self.receipts)
            return Call("settle", key, limits, pick.randrange(5), receipt=receipt)
        if kind < 0.10 and self.leases:
            key, limits, lease = pick.choice(self.leases)
            return Call(pick.choice(["renew", "release"]), key, limits, lease=lease)
        if kind < 0.11:
            return Call("reset", key)
        if kind < 0.20:
            return Call("peek", key, limits)
        verb = "acquire" if "concurrent" in limits and pick.random() < 0.6 else "take"
        cost = pick.choice([0, 1, 1, 1, 1, 2, 3])
        return Call(verb, key, limits, cost, lease=pick.randrange(1, 1 << 47))

    def run(self, count):
        calls = [self.call() for _ in range(count)]
        commands = [call.by_module() if self.random.random() < 0.5 else call.by_lua(self.sha)
                    for call in calls]
        replies = self.client.pipeline(commands)
        for call, reply in zip(calls, replies):
            self.keep(call, reply)
        self.calls += count
        return replies

    def keep(self, call, reply):
        if isinstance(reply, Exception):
            raise AssertionError(f"{call.verb} {call.key} {call.limits}: {reply}")
        if call.verb == "acquire" and reply[0] and call.cost:
            self.leases.append((call.key, call.limits, reply[7]))
        elif call.verb == "take" and reply[0] and "concurrent" not in call.limits:
            self.receipts.append((call.key, call.limits, reply[6].decode()))
        del self.leases[:-50], self.receipts[:-50]


def until(condition, seconds=60.0):
    """Waits for a condition; whether it came."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def info(client, section):
    text = client.call("INFO", section).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def error_of(client, *words):
    """The text of the error that a command must give, or what it gave instead."""
    reply = client.pipeline([words])[0]
    return str(reply) if isinstance(reply, Exception) else f"no error but {reply!r}"
