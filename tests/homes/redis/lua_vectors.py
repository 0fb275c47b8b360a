#!/usr/bin/env python3
"""Holds the Lua scripts to the golden vectors, every field, under the test clock.

    lua_vectors.py [--dump FILE] [FILE.vec …]

First every line through the general script; then again, takes under one limit through the lean scripts and the
rest through the general one: the same answers, and after every line the same bytes. --dump writes a line
`<file>:<line> <key> <value in hexadecimal, or ->` a step, to compare with other writers of the same bytes.
"""
import sys

from lib import build, checks, lua_cases, redis_server


def run(client, steps, call):
    """(reply, value) after each step."""
    commands = [command for step in steps for command in (call(step), ("GET", step.key))]
    replies = client.pipeline(commands)
    return list(zip(replies[0::2], replies[1::2]))


def main(arguments):
    dump = None
    if arguments[:1] == ["--dump"]:
        dump, arguments = arguments[1], arguments[2:]
    paths = arguments or build.vectors()
    reader = lua_cases.Reader()
    for path in paths:
        reader.read(path)
    steps, tally = reader.steps, checks.Checks()
    with redis_server.Server() as server, server.client() as client:
        shas = lua_cases.load(client)
        first = run(client, steps, lambda step: step.general(shas["weir_test"]))
        client.call("FLUSHALL")
        second = run(client, steps, lambda step: step.lean(shas) if step.is_lean()
                     else step.general(shas["weir_test"]))
    for step, (reply, value), (again, same) in zip(steps, first, second):
        step.compare(reply, tally, "general")
        if step.is_lean():
            step.compare(again, tally, step.limits[0].lean())
        tally(value == same, f"{step.place}: the lean script wrote {same!r}, the general {value!r}")
    if dump:
        with open(dump, "w", encoding="ascii") as out:
            for step, (_, value) in zip(steps, first):
                out.write(f"{step.place} {step.key} {value.hex() if value else '-'}\n")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
