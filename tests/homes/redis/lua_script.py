#!/usr/bin/env python3
"""What the Lua scripts do to a real server's keys: errors that change nothing, writes only for charges, expiry,
several keys in one call, rings of any size, exact totals under load."""
import random
import struct
import sys
import threading

from lib import checks, lua_cases, redis_server
from lib.lua_cases import evaluate, general, parse
from lib.resp import RedisError

DAY_US = 86_400_000_000
LIMITS = ["token-bucket 2/h burst 3", "token-bucket 2/h burst 3 stepped", "leaky-bucket 2/h burst 3",
          "fixed-window 3/d", "fixed-window 3/h from-first", "sliding-log 3/h",
          "sliding-window 3/h precision 10m", "sliding-counter 3/h", "smooth 2/h burst-for 2h",
          "warmup 2/h over 2h", "concurrent 3 lease 1h", "fixed-window 3/year from 07-01 zone -03:00"]


class Bench:
    """A server, a connection, the scripts' SHA1s and the tally."""

    def __init__(self, server, client, tally):
        self.server, self.client, self.tally = server, client, tally
        self.shas = lua_cases.load(client)

    def run(self, verb, key, text, **options):
        """The general script's reply, errors included."""
        arguments = general(verb, parse(text), **options)
        return self.client.pipeline([evaluate(self.shas["weir"], [key], arguments)])[0]

    def lean(self, key, text, cost=1, wait=-1):
        limit = parse(text)[0]
        arguments = limit.lean_arguments(cost, wait)
        return self.client.pipeline([evaluate(self.shas[limit.lean()], [key], arguments)])[0]

    def changes(self):
        info = self.client.call("INFO", "persistence").decode()
        return int(info.split("rdb_changes_since_last_save:")[1].split()[0])


def noscript(bench):
    client, tally = bench.client, bench.tally
    arguments = general("take", parse("fixed-window 9/d"))
    client.call("SCRIPT", "FLUSH")
    reply = client.pipeline([evaluate(bench.shas["weir"], ["flushed"], arguments)])[0]
    tally(str(reply).startswith("NOSCRIPT"), f"after SCRIPT FLUSH: {reply!r}")
    reply = client.call("EVAL", lua_cases.SCRIPTS["weir"], 1, "flushed", *arguments)
    tally.equal(reply[:4], [1, 9, 8, 0], "EVAL after NOSCRIPT")
    reply = client.call(*evaluate(bench.shas["weir"], ["flushed"], arguments))
    tally.equal(reply[:4], [1, 9, 7, 0], "EVALSHA after EVAL")
    lua_cases.load(client)


def only_charges_write(bench):
    """One write a charge; none for what is denied, asked or void."""
    tally = bench.tally
    for number, text in enumerate(LIMITS):
        shapes = text.split()[0] in ("leaky-bucket", "smooth", "warmup")
        for home in ("general", "lean"):
            key = f"write:{number}:{home}"
            take = bench.lean if home == "lean" else lambda key, text, **more: bench.run(
                "take", key, text, **more)
            before = bench.changes()
            first = take(key, text, cost=3)
            tally(first[0] == 1, f"{text} ({home}): {first!r}")
            tally.equal(bench.changes() - before, 1, f"{text} ({home}): writes of a charge")
            quiet(bench, key, text, take, 0 if shapes else -1, home)


def quiet(bench, key, text, take, wait, home):
    tally, before = bench.tally, bench.changes()
    value = bench.client.call("GET", key)
    denied = take(key, text, cost=2, wait=wait)
    tally(denied[0] == 0 and denied[3] > 0, f"{text} ({home}): not denied: {denied!r}")
    take(key, text, cost=0)
    bench.run("peek", key, text, cost=1)
    bench.run("peek", key + ":nobody", text, cost=1)
    if "concurrent" in text:
        tally.equal(bench.run("renew", key, text, lease=12345), 0, "renew of no lease")
        tally.equal(bench.run("release", key, text, lease=12345), 0, "release of no lease")
    else:
        bench.run("settle", key, text, wait="w1-1700000000000000-3", cost=3)
        bench.run("settle", key + ":nobody", text, wait="w1-1700000000000000-3", cost=1)
    tally.equal(bench.changes() - before, 0, f"{text} ({home}): writes of denial, peek, cost 0, void settle")
    tally.equal(bench.client.call("GET", key), value, f"{text} ({home}): value after no charge")
    tally.equal(bench.client.call("EXISTS", key + ":nobody"), 0, f"{text} ({home}): a key of a peek")


def expiry(bench):
    """The key may go when its last state is fresh, rounded up; smooth a day later."""
    for text in LIMITS + [", ".join(LIMITS[:8])]:
        key = "expiry:" + text
        for cost in (1, 2):
            lean = cost == 1 and "," not in text
            reply = bench.lean(key, text, cost) if lean else bench.run("take", key, text, cost=cost)
            t = int(reply[6].split(b"-")[1])
            grace = DAY_US if text.split()[0] == "smooth" else 0
            bench.tally.equal(bench.client.call("PEXPIRETIME", key), -(-(t + reply[4] + grace) // 1000),
                              f"{text}: expiry")
    reply = bench.run("take", "expiry:settled", "token-bucket 1/h burst 9", cost=9)
    bench.run("settle", "expiry:settled", "token-bucket 1/h burst 9", wait=reply[6].decode(), cost=0)
    bench.tally.equal(bench.client.call("EXISTS", "expiry:settled"), 1, "a settled bucket is a receipt that is remembered")
    left = bench.client.call("PTTL", "expiry:settled")
    bench.tally(0 < left <= 3_600_001, f"for an hour at most: {left}")
    reply = bench.run("take", "expiry:older", "token-bucket 1/h burst 9", cost=9)
    older = b"-".join(reply[6].split(b"-")[:3]).replace(b"w3", b"w1").decode()
    bench.run("settle", "expiry:older", "token-bucket 1/h burst 9", wait=older, cost=0)
    bench.tally.equal(bench.client.call("EXISTS", "expiry:older"), 0, "without an id there is nothing to remember")


def section(kind, body):
    return struct.pack("<B", kind) + (3_600_000_000).to_bytes(6, "little") + body


def ring(capacity, head, length, total, cells=None, zero=0):
    body = bytes(6) + struct.pack("<III", capacity, head, length) + (1_700_000_000_000_000).to_bytes(7, "little")
    body += total.to_bytes(7, "little") + bytes([zero])
    return section(5, body + (bytes(16) * capacity if cells is None else cells))


def bucket(count=2, at=1_700_000_000_000, debt=5):
    return section(0, count.to_bytes(5, "little") + at.to_bytes(7, "little") + debt.to_bytes(7, "little"))


def bad_values():
    head = b"\xf7\x01"
    good = bucket()
    yield from (b"", b"12", b"\xf7", head, b"\xf7\x02" + good, b"\xf8\x01" + good, good)
    yield from (head + good[:-1], head + good + b"\0", head + good + good[:7], head + b"\x0b" + good[1:])
    yield from (head + bucket(count=0), head + bucket(debt=0), head + bucket(debt=2 ** 53 + 2))
    yield from (head + bucket(at=2 ** 53), head + good[:1] + bytes(6) + good[7:], head + good * 17)
    yield from (head + good[:1] + b"\xff" * 6 + good[7:], head + section(3, bytes(14)), head + section(7, bytes(15)))
    yield head + section(7, bytes(7) + struct.pack("<II", 2_000_000_001, 0))
    for stored in (-1.0, float("nan"), float("inf")):
        yield head + section(8, bytes(14) + struct.pack("<d", stored))
    yield from (head + ring(*numbers) for numbers in
                ((3, 0, 1, 1), (2, 2, 1, 1), (2, 0, 0, 1), (2, 0, 3, 1), (2, 0, 1, 0), (0, 0, 1, 1)))
    yield from (head + ring(2, 0, 1, 1, b""), head + ring(2, 0, 1, 1, None, 1), head + ring(262142 * 2 + 2, 0, 1, 1, b""))


def refused(bench, key, kept, reply, what):
    bench.tally(isinstance(reply, RedisError) and str(reply).startswith("WEIRSTATE ") and key in str(reply),
                      f"{what}: got {reply!r}")
    bench.tally.equal(bench.client.call("DUMP", key), kept, f"{what}: the value")


def foreign_values(bench):
    """Every verb and script refuses what is not weir's, names the key, and leaves it."""
    client = bench.client
    client.call("RPUSH", "foreign:list", "a")
    keys = ["foreign:list"]
    for number, value in enumerate(bad_values()):
        keys.append(f"foreign:{number}")
        client.call("SET", keys[-1], value)
    for key in keys:
        kept = client.call("DUMP", key)
        for text in LIMITS:
            refused(bench, key, kept, bench.lean(key, text), f"{key}, lean {text}")
        for verb in lua_cases.VERBS:
            text = "concurrent 3" if verb in ("acquire", "renew", "release") else "sliding-log 3/h"
            receipt = "w1-1700000000000000-1" if verb == "settle" else -1
            reply = bench.run(verb, key, text, cost=2, wait=receipt, lease=7)
            refused(bench, key, kept, reply, f"{key}, {verb}")
    reply = client.pipeline([evaluate(bench.shas["weir"], ["good{a}", keys[3]],
                                      [0, 0, -1, 0] + [1, 1, 3, 9, DAY_US, 0, 0, 0, 0] * 2)])[0]
    refused(bench, keys[3], client.call("DUMP", keys[3]), reply, "one key of two")
    bench.tally.equal(client.call("EXISTS", "good{a}"), 0, "the other of two keys")


def damaged_values(bench):
    """Random damage to good values: an answer or an error, never a crash, a hang or an overwrite."""
    rng, client = random.Random(7), bench.client
    for text in LIMITS:
        bench.run("take", "seed", text, cost=1)
        bench.run("take", "seed", text, cost=1)
        good = client.call("GET", "seed")
        client.call("DEL", "seed")
        for _ in range(120):
            value = bytearray(good)
            for _ in range(rng.choice((1, 1, 2, 5))):
                value[rng.randrange(len(value))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            client.call("SET", "damaged", bytes(value))
            for reply in (bench.lean("damaged", text), bench.run("peek", "damaged", text)):
                fine = isinstance(reply, list) or str(reply).startswith("WEIRSTATE")
                bench.tally(fine, f"{bytes(value).hex()} under {text}: {reply!r}")
                if not fine or isinstance(reply, RedisError):
                    bench.tally.equal(client.call("GET", "damaged"), bytes(value), f"{text}: overwritten")


def several_keys(bench):
    """All or nothing over keys; one key named twice; two limits that would share a state."""
    tally, client, sha = bench.tally, bench.client, bench.shas["weir"]

    def take(keys, texts, options=0, verb="take"):
        arguments = [lua_cases.VERBS[verb], options, -1, 0]
        for text, cost in texts:
            limits = parse(text)
            arguments += [cost, len(limits), *(n for limit in limits for n in limit.general())]
        return client.pipeline([evaluate(sha, keys, arguments)])[0]

    keys = ["{team}:a", "{team}:b"]
    texts = [("fixed-window 5/d, sliding-log 9/h", 2), ("token-bucket 1/h burst 3", 1)]
    replies = [take(keys, texts, 1) for _ in range(3)]
    tally.equal([reply[:3] for reply in replies], [[1, 3, 2], [1, 5, 1], [0, 5, 1]], "folded over two keys")
    tally.equal([reply[6].split(b"-")[2] for reply in replies], [b"2", b"2", b"0"], "receipts over two keys")
    tally.equal([reply[7] for reply in replies], [2, 0, 0], "bound over two keys")
    tally.equal([row[0] for row in replies[2][8:]], [0, 1, 1], "rows of a denial")
    before = bench.changes()
    tally.equal(take(keys, texts)[:3], [0, 5, 1], "denied again")
    tally.equal(take(keys, texts, verb="peek")[0], 0, "peek over two keys")
    tally.equal(bench.changes(), before, "a denial over two keys writes nothing")
    twice = take(["{t}", "{t}"], [("fixed-window 5/d", 2), ("sliding-log 9/h", 1)], 1)
    tally.equal([row[2] for row in twice[8:]], [3, 8], "one key named twice")
    tally.equal(bench.run("peek", "{t}", "fixed-window 5/d, sliding-log 9/h", options=1)[9][2], 8, "and kept")
    shared = take(["{t}", "{t}"], [("fixed-window 5/d", 2), ("fixed-window 9/d", 1)])
    tally(str(shared).startswith("WEIRSHARED "), f"shared: {shared!r}")
    tally.equal(client.call(*evaluate(sha, keys + ["{team}:none"], [3])), 2, "reset of keys")


def sections(bench):
    """Sixteen states a key; the seventeenth only in the place of one that is fresh again."""
    tally = bench.tally
    for hours in range(1, 17):
        bench.run("take", "sixteen", f"fixed-window 9/{hours + 24}h from-first")
    value = bench.client.call("GET", "sixteen")
    for reply in (bench.run("take", "sixteen", "fixed-window 9/w"), bench.lean("sixteen", "fixed-window 9/w")):
        tally(str(reply).startswith("WEIRFULL "), f"a seventeenth state: {reply!r}")
    tally.equal(bench.client.call("GET", "sixteen"), value, "value after a seventeenth")
    tally.equal(bench.lean("sixteen", "fixed-window 9/30h from-first")[2], 7, "one of the sixteen")
    stale = value[:2 + 15 * 21] + section(4, (1_600_000_000_000_000).to_bytes(7, "little") + bytes([1] + [0] * 6))
    for home in ("run", "lean"):
        bench.client.call("SET", "stale", stale)
        reply = (bench.lean("stale", "fixed-window 9/w") if home == "lean" else
                 bench.run("take", "stale", "fixed-window 9/w"))
        tally.equal(reply[:3], [1, 9, 8], "in the place of a fresh one")
        tally.equal(len(bench.client.call("GET", "stale")), len(stale), "sections after that")


def bad_arguments(bench):
    good = general("take", parse("token-bucket 10/s burst 20"))
    wrong = [[], [0], good[:-1], good + [1], [8] + good[1:], ["x"] + good[1:], good[:2] + [-3] + good[3:]]
    for place in (4, 5, 6, 7, 8, 9):
        wrong += [good[:place] + [number] + good[place + 1:] for number in (-1, "1.5", "nan", "1e300", "x", "")]
    wrong += [general("settle", parse("fixed-window 1/s"), wait=text) for text in ("w1-1", "x", "w1-1-x", "w1--1-1", "w3-1-1", "w3-1-1-0", "w3-1-1-1099511627776", "w1-1-1-1")]
    wrong += [general("acquire", parse("fixed-window 1/s"), lease=5), general("acquire", parse("concurrent 1")),
              general("settle", parse("concurrent 1"), wait="w1-1-1")]
    lean = parse("token-bucket 10/s burst 20")[0].lean_arguments(1, -1)
    commands = [evaluate(bench.shas["weir"], ["bad"], arguments) for arguments in wrong]
    commands += [evaluate(bench.shas["take_token_bucket"], ["bad"], arguments) for arguments in
                 [[], lean[:-1], lean + [1], *(lean[:i] + [n] + lean[i + 1:] for i in range(5)
                                               for n in (-3, "0.5", "nan", "inf", "x", "", "1e300"))]]
    before = bench.changes()
    for command, reply in zip(commands, bench.client.pipeline(commands)):
        bench.tally(isinstance(reply, RedisError) and "user_script" not in str(reply)
                          and str(reply).startswith("ERR "), f"{command[3:]}: {reply!r}")
    bench.tally.equal(bench.changes(), before, "writes of bad arguments")


def long_rings(bench):
    """Lean and general scripts on rings far longer than are written whole: the same replies and bytes."""
    rng, client, tally = random.Random(11), bench.client, bench.tally
    for text in ("sliding-log 400/m", "sliding-window 100k/m precision 100ms", "concurrent 400 lease 1m"):
        limit, commands, t = parse(text)[0], [], 1_700_000_000_000_000
        for _ in range(3000):
            t += rng.choice((0, 1, 1000, 100_000, 100_000, 400_000))
            if rng.random() < 0.002:
                t += 59_000_000
            cost = rng.choice((0, 1, 1, 1, 2, 5))
            if limit.kind == 10 and rng.random() < 0.05:
                limit.period = rng.choice((60_000_000, 58_000_000, 70_000_000))
            name = limit.lean() + "_test"
            commands.append(evaluate(bench.shas[name], ["long:l"], [*limit.lean_arguments(cost, -1), t]))
            commands.append(evaluate(bench.shas["weir_test"], ["long:g"], [*general("take", [limit], cost), t]))
            commands += [("GET", "long:l"), ("GET", "long:g")]
        replies = client.pipeline(commands)
        for i in range(0, len(replies), 4):
            same = replies[i] == replies[i + 1] and replies[i + 2] == replies[i + 3]
            tally(same and not isinstance(replies[i], Exception),
                        f"{text}, take {i // 4}: {replies[i]!r} {replies[i + 1]!r}")
        tally(max(len(value or b"") for value in replies[2::4]) > 4000, f"{text}: no long ring came up")
        client.call("DEL", "long:l", "long:g")
    stats = client.call("INFO", "commandstats").decode()
    tally("cmdstat_setrange" in stats, "long rings are written in part")


def long_beside_others(bench):
    """A log of 90,000 entries beside a bucket: neither is the value read whole, nor written."""
    client, tally, entries, hour = bench.client, bench.tally, 90_000, 3_600_000_000
    seconds, micro = map(int, client.call("TIME"))
    newest, capacity = seconds * 1_000_000 + micro - 1_000_000, 131_070
    cells = b"".join((newest - entries + 1 + i).to_bytes(8, "little") + (1).to_bytes(8, "little") for i in range(entries))
    numbers = ((hour, 6), (0, 6), (capacity, 4), (0, 4), (entries, 4), (newest, 7), (entries, 7), (0, 1))
    head = bytes([5]) + b"".join(number.to_bytes(size, "little") for number, size in numbers)
    client.call("SET", "vast", b"\xf7\x01" + head + cells.ljust(capacity * 16, b"\0"))
    text = "sliding-log 100k/h, token-bucket 1/h burst 900"
    tally.equal(bench.run("take", "vast", text)[:3], [1, 900, 899], "a bucket joins a vast log")
    client.call("CONFIG", "RESETSTAT")
    replies = [bench.run(verb, "vast", text) for verb in ("take", "peek", "take")]
    replies += [bench.lean("vast", each) for each in text.split(", ")]
    tally.equal([reply[:3] for reply in replies],
                [[1, 900, 898], [1, 900, 898], [1, 900, 897], [1, 100_000, 9_996], [1, 900, 896]], "takes beside a vast log")
    stats = client.call("INFO", "commandstats").decode()
    called = {line.split(":")[0].removeprefix("cmdstat_") for line in stats.splitlines() if line.startswith("cmdstat_")}
    tally.equal(called & {"get", "set"}, {"get"}, "what read and wrote it")  # the lean bucket script reads by GET
    client.call("CONFIG", "RESETSTAT")
    bench.run("take", "vast", "sliding-log 1/h, token-bucket 1/h burst 900")
    tally("cmdstat_get:" not in client.call("INFO", "commandstats").decode(), "a denial read the value whole")


def totals(bench):
    """Eight connections at once admit exactly what there is."""
    admitted, lock = [0], threading.Lock()
    texts = ["token-bucket 1/366d burst 500", "fixed-window 500/366d", "sliding-log 500/d", "concurrent 500 lease 1d"]

    def hammer(key, text):
        limit = parse(text)[0]
        with bench.server.client() as client:
            command = evaluate(bench.shas[limit.lean()], [key], limit.lean_arguments(1, -1))
            replies = client.pipeline([command] * 100, batch=10)
        with lock:
            admitted[0] += sum(reply[0] for reply in replies)

    for text in texts:
        admitted[0] = 0
        threads = [threading.Thread(target=hammer, args=("total:" + text, text)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bench.tally.equal(admitted[0], 500, f"{text}: admitted to eight connections")


def main():
    tally = checks.Checks()
    with redis_server.Server() as server, server.client() as client:
        bench = Bench(server, client, tally)
        for test in (noscript, only_charges_write, expiry, foreign_values, damaged_values, several_keys, sections,
                     bad_arguments, long_rings, long_beside_others, totals):
            client.call("FLUSHALL")
            test(bench)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
