#!/usr/bin/env python3
"""Holds the native module to the golden vectors, and module and Lua to each other.

    module_vectors.py [FILE.vec …]

Every line through the module, every field; then through the Lua scripts, then by both in turn: the same answers
and, after every line, the same bytes.
"""
import sys

from lib import build, checks, lua_cases, redis_server
from lib.build import REDIS_MODULE

WAITS = {-1: [], -2: ["WAIT", "any"]}


def module_call(step):
    verb = "take" if step.verb == "grant" else step.verb
    if verb == "reset":
        return ("WEIR.RESET", step.key)
    if verb == "settle":
        return ("WEIR.SETTLE", step.key, step.text, step.wait, step.cost)
    if verb in ("renew", "release"):
        return ("WEIR." + verb, step.key, step.text, step.lease)
    wait = WAITS.get(step.wait, ["WAIT", step.wait])
    least = ["LEAST", step.least] if step.least else []
    return ("WEIR." + verb, step.key, step.text, "COST", step.cost, *least, "DETAIL", *wait)


def run(client, steps, sha, by_module):
    """(reply, value) after each step; by_module says who takes the i-th."""
    client.call("FLUSHALL")
    commands = []
    for i, step in enumerate(steps):
        clock = ("WEIR.CLOCK", step.time, *([step.lease] if step.verb == "acquire" else []))
        commands += [clock, module_call(step) if by_module(i) else step.general(sha), ("GET", step.key)]
    replies = client.pipeline(commands)
    return list(zip(replies[1::3], replies[2::3]))


def main(paths):
    reader = lua_cases.Reader()
    for path in paths or build.vectors():
        reader.read(path)
    steps, tally = reader.steps, checks.Checks()
    with redis_server.Server(f"--loadmodule {REDIS_MODULE} test-clock") as server, server.client() as client:
        sha = lua_cases.load(client)["weir_test"]
        module = run(client, steps, sha, lambda i: True)
        lua = run(client, steps, sha, lambda i: False)
        mixed = run(client, steps, sha, lambda i: i % 2 == 0)
        mixed_again = run(client, steps, sha, lambda i: i % 3 == 0)
    for step, (reply, value), *others in zip(steps, module, lua, mixed, mixed_again):
        step.compare(reply, tally, "module")
        for name, (same_reply, same_value) in zip(("lua", "in turn", "in turn, other"), others):
            tally(str(lua_cases.unnamed(same_reply)) == str(lua_cases.unnamed(reply)) or isinstance(reply, Exception),
                        f"{step.place} {name}: answered {same_reply!r}, the module {reply!r}")
            tally(same_value == value,
                        f"{step.place} {name}: bytes {same_value and same_value.hex()}, "
                        f"the module's {value and value.hex()}")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
