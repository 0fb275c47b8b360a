#!/usr/bin/env python3
"""Eight processes hammer the same keys while nothing is refilled: what is admitted is exactly the limit.

    module_hammer.py [--long]

For every kind of limit, by the module, by Lua and by both at once; also several limits and several keys in one
call, which charge all or nothing.
"""
import multiprocessing
import random
import sys

from lib import checks, lua_cases, module_cases, resp

PROCESSES = 8
HOMES = ("module", "lua", "mixed")
DENIALS = 40  # in a row, then a process believes that a limit is used up
LIMITS = {
    "token-bucket 1/366d burst 280": 280,
    "token-bucket 700/366d stepped": 700,
    "leaky-bucket 1/366d burst 249 nodelay": 250,
    "fixed-window 900/366d": 900,
    "fixed-window 900/30d from-first": 900,
    "sliding-log 900/d": 900,
    "sliding-window 900/30d precision 1h": 900,
    "sliding-counter 900/30d": 900,
    "concurrent 600 lease 30d": 600,
    "fixed-window 500/366d, sliding-log 400/d, token-bucket 1/366d burst 280": 280,
}


def takes(home, sha, key, limits, pick):
    """A batch of takes as this home makes them."""
    verb = "acquire" if limits.startswith("concurrent") else "take"
    commands = []
    for _ in range(5):
        lua = home == "lua" or (home == "mixed" and pick.random() < 0.5)
        call = module_cases.Call(verb, key, limits, lease=pick.randrange(1, 1 << 47))
        commands.append(call.by_lua(sha) if lua else call.by_module())
    return commands


def pairs(key, pick):
    """Takes of two keys at once; every process names them in an order of its own."""
    both = [(key + ":a", "fixed-window 300/366d", 1), (key + ":b", "sliding-log 900/d", 2)]
    pick.shuffle(both)
    return [("WEIR.TAKEALL", 2, *both[0], *both[1])] * 5


def hammer(client, sha, make):
    admitted = denied = 0
    while denied < DENIALS:
        for reply in client.pipeline(make()):
            if isinstance(reply, Exception):
                raise reply
            admitted += reply[0]
            denied = 0 if reply[0] else denied + 1
    return admitted


def worker(port, seed, rounds, barrier, results):
    pick = random.Random(seed)
    counts = {}
    with resp.Client(port) as client:
        sha = lua_cases.load(client, "weir")["weir"]
        for i in range(rounds):
            for limits in LIMITS:
                for home in HOMES:
                    barrier.wait()
                    key = f"{i}:{home}:{limits}"
                    counts[key] = hammer(client, sha, lambda: takes(home, sha, key, limits, pick))
            barrier.wait()
            counts[f"{i}:pair"] = hammer(client, sha, lambda: pairs(f"{i}:pair", pick))
    results.put(counts)


def check(tally, client, rounds, counts):
    for i in range(rounds):
        for limits, most in LIMITS.items():
            for home in HOMES:
                key = f"{i}:{home}:{limits}"
                tally.equal(sum(count[key] for count in counts), most, f"{key}: admitted")
                tally.equal(client.call("WEIR.PEEK", key, limits)[2], 0, f"{key}: remaining")
        tally.equal(sum(count[f"{i}:pair"] for count in counts), 300, "admitted under two keys")
        tally.equal(client.call("WEIR.PEEK", f"{i}:pair:a", "fixed-window 300/366d")[2], 0, "one of two keys")
        tally.equal(client.call("WEIR.PEEK", f"{i}:pair:b", "sliding-log 900/d")[2], 300, "the other key")


def main(arguments):
    rounds, tally = 15 if "--long" in arguments else 1, checks.Checks()
    context = multiprocessing.get_context("fork")
    with module_cases.server() as server, server.client() as client:
        barrier, results = context.Barrier(PROCESSES), context.Queue()
        processes = [context.Process(target=worker, args=(server.port, seed, rounds, barrier, results))
                     for seed in range(PROCESSES)]
        for process in processes:
            process.start()
        try:
            counts = [results.get(timeout=300) for _ in processes]
            check(tally, client, rounds, counts)
        finally:
            for process in processes:
                process.kill()
                process.join()
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
