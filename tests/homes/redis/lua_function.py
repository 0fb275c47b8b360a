#!/usr/bin/env python3
"""The scripts as a Redis Function library: FUNCTION LOAD, FCALL, side by side with EVALSHA on the same keys."""
import sys

from lib import checks, lua_cases, redis_server
from lib.lua_cases import assemble, evaluate, general, parse

# A library that differs from this one must have another version: stores replace older ones by it.
LIBRARY = (7, "4d75052f81c2f5df9ddd3dc08e8cc4bf8bef68b6")
LIMITS = ["token-bucket 2/h burst 9", "token-bucket 2/h burst 9 stepped", "leaky-bucket 2/h burst 9",
          "fixed-window 9/d", "fixed-window 9/h from-first", "sliding-log 9/h",
          "sliding-window 9/h precision 10m", "sliding-counter 9/h", "smooth 2/h burst-for 2h",
          "warmup 2/h over 2h", "concurrent 9 lease 1h", "fixed-window 9/year from 07-01 zone -03:00"]


def functions(client):
    listing = client.call("FUNCTION", "LIST")[0]
    fields = dict(zip(listing[0::2], listing[1::2]))
    return {dict(zip(row[0::2], row[1::2]))[b"name"].decode() for row in fields[b"functions"]}


def version(client, tally):
    """It says which it is, and a change of it cannot go without a new version."""
    tally.equal(client.call("FCALL_RO", "weir_version", 0), [assemble.LIBRARY_VERSION, assemble.LIBRARY_SERVES], "version")
    tally.equal((assemble.LIBRARY_VERSION, lua_cases.sha1("weir_library")), LIBRARY,
                "the library changed: raise LIBRARY_VERSION in lua/assemble.py, and write both down here")


def flags(client, tally):
    """A peek writes nothing by its flag, so replicas and FCALL_RO run it; what gives back runs out of memory, too."""
    window, leases = parse("fixed-window 9/d"), parse("concurrent 3 lease 1h")
    for lease in (5, 6):
        client.call("FCALL", "weir", 1, "f", *general("acquire", leases, lease=lease))
    client.call("FCALL", "weir", 1, "g", *general("take", window))
    client.call("CONFIG", "SET", "maxmemory", 1)
    refused = client.pipeline([("FCALL", "weir", 1, "g", *general("take", window)),
                               ("FCALL", "weir_free", 1, "g", *general("take", window)),
                               ("FCALL", "weir_peek", 1, "g", *general("take", window))])
    tally.equal([str(each).split()[0] for each in refused], ["OOM", "ERR", "ERR"], "charges out of memory")
    tally.equal(client.call("FCALL_RO", "weir_peek", 1, "g", *general("peek", window))[:3], [1, 9, 8], "a peek, likewise")
    tally.equal(client.call("FCALL", "weir_free", 1, "f", *general("release", leases, lease=5)), 1, "a release, likewise")
    tally.equal(client.call("FCALL", "weir_free", 1, "g", 3), 1, "a reset, likewise")
    client.call("CONFIG", "SET", "maxmemory", 0)
    tally.equal(client.call("FCALL", "weir", 1, "f", *general("peek", leases))[2], 2, "after the release")


def on_a_replica(server, tally):
    with server.client() as client, server.replica() as replica, replica.client() as other:
        window = parse("fixed-window 9/d")
        client.call("FCALL", "weir", 1, "r", *general("take", window))
        client.call("WAIT", 1, 30_000)
        tally.equal(other.call("FCALL", "weir_peek", 1, "r", *general("peek", window))[:3], [1, 9, 8], "a peek of a replica")
        reply = other.pipeline([("FCALL", "weir", 1, "r", *general("peek", window))])[0]
        tally(str(reply).startswith("READONLY"), f"what may write, on a replica: {reply!r}")


def both_ways(client, shas, tally):
    """A function takes, a script takes, a function again: each sees what the other charged."""
    for text in LIMITS:
        limit = parse(text)[0]
        lean = limit.lean_arguments(1, -1)
        wide = general("take", [limit])
        replies = client.pipeline([
            ("FCALL", "weir_" + limit.lean(), 1, text, *lean), evaluate(shas[limit.lean()], [text], lean),
            ("FCALL", "weir", 1, text, *wide), evaluate(shas["weir"], [text], general("peek", [limit]))])
        errors = [str(reply) for reply in replies if isinstance(reply, Exception)]
        tally(not errors, f"{text}: {errors}")
        if not errors and limit.kind not in (8, 9):
            left = [reply[1] - reply[2] for reply in replies]
            tally.equal(left, [1, 2, 3, 3], f"{text}: spent after function, script, function, peek")


def verbs(client, tally):
    """Every verb by FCALL."""
    limits, leases = parse("token-bucket 1/h burst 9"), parse("concurrent 2 lease 1h")
    receipt = client.call("FCALL", "weir", 1, "v", *general("take", limits, 5))[6].decode()
    tally.equal(client.call("FCALL", "weir", 1, "v", *general("settle", limits, 2, wait=receipt)), "OK", "settle")
    tally.equal(client.call("FCALL", "weir", 1, "v", *general("peek", limits))[2], 7, "left after the settle")
    held = client.call("FCALL", "weir", 1, "v", *general("acquire", leases, lease=99))
    tally.equal(held[:3] + held[7:], [1, 2, 1, 99], "acquire")
    tally.equal(client.call("FCALL", "weir", 1, "v", *general("renew", leases, lease=99)), 1, "renew")
    tally.equal(client.call("FCALL", "weir", 1, "v", *general("release", leases, lease=99)), 1, "release")
    tally.equal(client.call("FCALL", "weir", 1, "v", *general("release", leases, lease=99)), 0, "release again")
    tally.equal(client.call("FCALL", "weir", 1, "v", 3), 1, "reset")
    tally.equal(client.call("EXISTS", "v"), 0, "after the reset")


def main():
    tally = checks.Checks()
    with redis_server.Server("--appendonly yes") as server:
        with server.client() as client:
            shas = lua_cases.load(client)
            library = lua_cases.SCRIPTS["weir_library"]
            tally.equal(client.call("FUNCTION", "LOAD", library), b"weir", "FUNCTION LOAD")
            tally.equal(client.call("FUNCTION", "LOAD", "REPLACE", library), b"weir", "FUNCTION LOAD REPLACE")
            tally.equal(functions(client), {"weir", "weir_version", "weir_peek", "weir_free"}
                        | {"weir_" + name for name in lua_cases.LEAN}, "functions")
            both_ways(client, shas, tally)
            verbs(client, tally)
            version(client, tally)
            flags(client, tally)
            on_a_replica(server, tally)
            server.stop()
        server.start()
        with server.client(protocol=3) as client:
            reply = client.call("FCALL", "weir", 1, "k", *general("take", parse("fixed-window 9/d")))
            tally.equal(reply[:3], [1, 9, 8], "after a restart, RESP3")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
