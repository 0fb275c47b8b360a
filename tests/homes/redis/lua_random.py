#!/usr/bin/env python3
"""Random requests through module, Lua (lean where it will do) and both in turn: the same answers and bytes.

    lua_random.py [--seed N] [--steps N]

Keys collect states of many limits, numbers change under way, time jumps, runs back and stands still, charges are
settled late and leases renewed: what the vectors, one key a case, do not come to. A second, shorter trace is of keys
whose rings are long, beside other limits: there scripts read and write parts of a value.
"""
import argparse
import random
import sys

from lib import checks, lua_cases, redis_server
from lib.build import REDIS_MODULE
from lib.lua_cases import evaluate, general, parse, unnamed

PERIODS = ["7us", "100ms", "1s", "30s", "1m", "1h", "1d", "366d"]
SPANS = ["month", "month from 31", "year from 02-29", "w from mon", "month zone +14", "year zone -12"]
LONG_STEPS, LONG_RINGS = 1500, 600
LONG = ["sliding-log 900/1d", "sliding-window 900/1h precision 1s", "concurrent 900 lease 1h", "token-bucket 1000/1d burst 900",
        "fixed-window 900/1d", "sliding-counter 900/1h"]
JUMPS = [0, 0, 1, 7, 1000, 99_999, 100_000, 1_000_000, 31_000_000, 60_000_001, 3_600_000_000, 86_400_000_000, 31 * 86_400_000_000]


def limit_text(rng):
    count, period = rng.choice((1, 2, 5, 20, 1000)), rng.choice(PERIODS)
    return rng.choice((
        f"token-bucket {count}/{period} burst {rng.choice((1, 3, 50))}",
        f"token-bucket {count}/{period} burst {rng.choice((1, 3, 50))} stepped",
        f"leaky-bucket {count}/{period} burst 5", f"leaky-bucket {count}/{period} burst 5 delay 2",
        f"leaky-bucket {count}/{period} burst 5 nodelay", f"fixed-window {count}/{period}",
        f"fixed-window {count}/{period} from-first", f"sliding-log {count}/{period}",
        f"fixed-window {count}/{rng.choice(SPANS)}", f"fixed-window {count}/{period} zone {rng.choice(('+14', '-03:30'))}",
        f"sliding-window {count}/{period}", f"sliding-counter {count}/{period}",
        f"smooth {count}/{period} burst-for {rng.choice(PERIODS[1:])}",
        f"warmup {count}/{period} over {rng.choice(PERIODS[1:])} cold {rng.choice(('1.5', '3'))}",
        f"concurrent {count} lease {rng.choice(PERIODS[1:])}"))


def limits_text(rng):
    """One to four limits that share no state."""
    while True:
        text = ", ".join(limit_text(rng) for _ in range(rng.choice((1, 1, 1, 2, 4))))
        try:
            return text, parse(text)
        except ValueError:
            continue


def long_text(rng):
    """Long rings, one or two, and other limits beside them in any order."""
    text = ", ".join(rng.sample(LONG, rng.choice((1, 2, 2, 3, 4))))
    return text, parse(text)


class Trace:
    """Steps: (time, lease, the module's command, the Lua command), the keys without their homes."""

    def __init__(self, seed, long=False):
        self.long, self.done = long, 0
        self.rng, self.now, self.receipts, self.leases = random.Random(seed), 1_700_000_000_000_000, [], [1]

    def step(self):
        rng = self.rng
        self.done += 1
        growing = self.long and self.done < LONG_RINGS
        if growing or (self.long and rng.random() < 0.99):
            self.now += rng.choice((0, 1, 1000, 1_000_000))
        else:
            self.now += rng.choice(JUMPS) if rng.random() < 0.9 else -rng.choice(JUMPS)
        key, (text, limits) = f"k{rng.randrange(2 if self.long else 6)}", (long_text if self.long else limits_text)(rng)
        verb = rng.choice(("take",) * 10 + ("peek", "settle", "settle", "reset", "acquire", "acquire", "renew", "release"))
        verb = "take" if growing else verb
        cost = 1 if growing else rng.choice((0, 1, 1, 1, 2, 5, 40, 10 ** 12))
        wait = rng.choice((-1, -1, -2, 0, 500_000, 3_600_000_000))
        leased = any(limit.kind == 10 for limit in limits)
        if verb in ("acquire", "renew", "release") and not leased:
            text, limits = "concurrent 20 lease 1m", parse("concurrent 20 lease 1m")
        if verb == "settle":
            return self.settle(key, text, limits, cost, leased)
        if verb == "reset":
            return self.now, 0, ("WEIR.RESET", key), (key, None, [3]), None
        lease = rng.choice(self.leases) if verb in ("renew", "release") else rng.randrange(1, 1 << 47)
        if verb in ("renew", "release"):
            return self.now, 0, ("WEIR." + verb, key, text, lease), (key, None, general(verb, limits, 1, 0, lease)), None
        self.leases = (self.leases + [lease])[-20:] if verb == "acquire" else self.leases
        self.receipts = (self.receipts + [(key, text, limits, self.receipt(cost))])[-20:]
        words = {-1: [], -2: ["WAIT", "any"]}.get(wait, ["WAIT", wait])
        lean = limits[0] if verb == "take" and len(limits) == 1 and rng.random() < 0.7 else None
        return (self.now, lease if verb == "acquire" else 0,
                ("WEIR." + verb, key, text, "COST", cost, *words),
                (key, None, general(verb, limits, cost, wait, lease)),
                lean and (key, lean.lean() + "_test", lean.lean_arguments(cost, wait)))

    def receipt(self, cost):
        """With an id or without: one that is settled again is found out."""
        name = self.rng.randrange(1, 1 << 40)
        return self.rng.choice((f"w1-{self.now}-{cost}", f"w3-{self.now}-{cost}-{name}"))

    def settle(self, key, text, limits, cost, leased):
        receipt = self.receipt(1)
        if self.receipts and (leased or self.rng.random() < 0.8):
            key, text, limits, receipt = self.rng.choice(self.receipts)
        return (self.now, 0, ("WEIR.SETTLE", key, text, receipt, cost),
                (key, None, general("settle", limits, cost, wait=receipt)), None)


def run(client, shas, steps, home):
    commands = []
    for number, (now, lease, module, wide, lean) in enumerate(steps):
        commands.append(("WEIR.CLOCK", now, *([lease] if lease else [])))
        if home == "module" or (home == "in turn" and number % 2):
            commands.append((module[0], f"{home}:{module[1]}", *module[2:]))
        else:
            key, script, arguments = lean or wide
            commands.append(evaluate(shas[script or "weir_test"], [f"{home}:{key}"], [*arguments, now]))
        commands.append(("GET", f"{home}:{wide[0]}"))
    replies = client.pipeline(commands)
    return list(zip(replies[1::3], replies[2::3]))


def agree(lua, module):
    """Equal; of errors the code."""
    if isinstance(module, Exception):
        return str(lua).split()[0] == str(module).split()[0]
    return unnamed(lua) == unnamed(module)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=checks.seed())
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    tally = checks.Checks()
    with redis_server.Server(f"--loadmodule {REDIS_MODULE} test-clock") as server, server.client() as client:
        for steps, long in ((options.steps, False), (LONG_STEPS, True)):
            client.call("FLUSHALL")
            longest = compare(client, Trace(options.seed, long), steps, tally)
            tally(not long or longest > 4000, f"no long ring came up: {longest} bytes")
    if tally.failed:
        print(f"again: lua_random.py --seed {options.seed} --steps {options.steps}")
    return tally.end()


def compare(client, trace, count, tally):
    """One trace in all homes; the length of the longest value."""
    steps = [trace.step() for _ in range(count)]
    shas = lua_cases.load(client)
    homes = [run(client, shas, steps, home) for home in ("module", "lua", "in turn")]
    for number, (step, *answers) in enumerate(zip(steps, *homes)):
        (reply, value), *others = answers
        for (other, bytes_), name in zip(others, ("lua", "in turn")):
            tally(agree(other, reply), f"step {number} {name}: {step[:3]}: {other!r}, the module {reply!r}")
            tally(bytes_ == value, f"step {number} {name}: {step[:3]}: {bytes_ and bytes_.hex()}, "
                        f"the module {value and value.hex()}")
    return max(len(value or b"") for _, value in homes[0])


if __name__ == "__main__":
    sys.exit(main())
