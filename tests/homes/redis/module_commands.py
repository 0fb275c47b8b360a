#!/usr/bin/env python3
"""The module's commands on a real server: arguments and their errors, what the server knows of them, replies.

    module_commands.py [--long]

ACL, RESP3, transactions, scripts, CL.THROTTLE as redis-cell documents it, another module that owns it, running
out of memory, foreign values, the cache of limits, expiry, and how many bytes a key takes.
"""
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from lib import checks, lua_cases, module_cases, redis_server, resp

T0 = 1700000000000000
LOG = "sliding-log 5/m"
COMMANDS = {
    "weir.take": (-3, {"write", "denyoom", "fast"}), "weir.peek": (-3, {"readonly", "fast"}),
    "weir.takeall": (-5, {"write", "denyoom", "movablekeys"}), "weir.settle": (5, {"write", "denyoom", "fast"}),
    "weir.reset": (2, {"write", "fast"}), "weir.acquire": (-3, {"write", "denyoom", "fast"}),
    "weir.renew": (4, {"write", "denyoom", "fast"}), "weir.release": (4, {"write", "fast"}),
    "cl.throttle": (-5, {"write", "denyoom", "fast"}), "weir.show": (2, {"readonly", "fast"}),
}


def expect_errors(tally, client, cases):
    for words, *parts in cases:
        said = module_cases.error_of(client, *words)
        shown = " ".join(str(word)[:60] for word in words)
        for part in parts:
            tally(part in said, f"{shown}: said {said!r}, expected {part!r} in it")
        tally("\n" not in said and "\r" not in said, f"{shown}: more than one line")


# ---- arguments ----

def arity_errors():
    for name, (arity, _) in COMMANDS.items():
        for count in range(abs(arity) - 1):
            yield (name, *["1"] * count), "wrong number of arguments"
        if arity > 0:
            yield (name, *["1"] * arity), "wrong number of arguments"
    yield ("CL.THROTTLE", "k", 1, 1, 1, 1, 1), "wrong number of arguments"
    yield ("WEIR.CLOCK",), "wrong number of arguments"
    yield ("WEIR.CLOCK", 1, 2, 3), "wrong number of arguments"


def number_errors():
    bad = ["", "x", "-1", "1.5", "1e3", " 1", "1 ", "+1", "0x10", "1000000000001", "9" * 30, "18446744073709551616",
           b"1\x00", "NaN", "10s"]
    for verb in ("TAKE", "PEEK", "ACQUIRE"):
        for number in bad:
            named = number.decode().rstrip("\0") if isinstance(number, bytes) else number
            limits = "concurrent 5" if verb == "ACQUIRE" else LOG
            yield ("WEIR." + verb, "k", limits, "COST", number), "COST must be", f'"{named}', "1000000000000"
    for number in bad + ["Any time", "31622400000001"]:
        named = number.decode().rstrip("\0") if isinstance(number, bytes) else number
        if number != "1000000000001":
            yield ("WEIR.TAKE", "k", LOG, "WAIT", number), "WAIT must be", f'"{named}'
    for number in bad:
        named = number.decode().rstrip("\0") if isinstance(number, bytes) else number
        yield ("WEIR.SETTLE", "k", LOG, "w1-1-1", number), "the actual cost must be", f'"{named}'
        yield ("WEIR.TAKEALL", 1, "k", LOG, number), "a cost must be", f'"{named}'
        yield ("WEIR.TAKEALL", number, "k", LOG, 1), "the number of keys must be", f'"{named}'
        yield ("CL.THROTTLE", "k", number, 1, 60), "max_burst must be", f'"{named}'
        yield ("CL.THROTTLE", "k", 1, number, 60), "count must be", f'"{named}'
        yield ("CL.THROTTLE", "k", 1, 1, number), "period must be", f'"{named}'
        yield ("CL.THROTTLE", "k", 1, 1, 60, number), "quantity must be", f'"{named}'
    for lease in ("0", "-1", "x", str(1 << 47)):
        for verb in ("RENEW", "RELEASE"):
            yield ("WEIR." + verb, "k", "concurrent 5", lease), "a lease id must be", f'"{lease}"'
    for keys in (0, 17, 100):
        yield ("WEIR.TAKEALL", keys, "k", LOG, 1), "the number of keys must be", f'"{keys}"'
    yield ("CL.THROTTLE", "k", 1, 0, 60), "count must be", '"0"'
    yield ("CL.THROTTLE", "k", 1, 1, 0), "period must be", '"0"'
    yield ("CL.THROTTLE", "k", 999999999999, 1, 31622400), "ERR"
    yield ("WEIR.CLOCK", "x"), "the time must be", '"x"'
    yield ("WEIR.CLOCK", 1 << 53), "the time must be"
    yield ("WEIR.CLOCK", 1, 0), "a lease id must be"


def option_errors():
    for options in (["BURST"], ["COST"], ["WAIT"], ["COST", 1, "COST", 1], ["WAIT", 0, "WAIT", 0], ["DETAIL", "DETAIL"],
                    ["DETAIL", "NOW"], ["", ""], ["COST", 1, "WAIT"], [b"\x00\xff\r\n"]):
        for verb in ("TAKE", "PEEK"):
            yield ("WEIR." + verb, "k", LOG, *options), "ERR expected [COST n] [LEAST n] [WAIT us|any] [DETAIL], each once, found"
    yield ("WEIR.TAKE", "k", LOG, "FASTER"), '"FASTER"'
    yield ("WEIR.TAKEALL", 1, "k", LOG, 1, "COST", 1), "ERR expected [LEAST n …] [ACQUIRE] [WAIT us|any] [DETAIL]", '"COST"'
    yield ("WEIR.TAKEALL", 2, "k", LOG, 1), "ERR expected 2 times: key limits cost"
    for receipt in ("", "x", "w1", "w1-1", "w1--1-1", "w2-1-1", "w1-1-1-1", "w3-1-1", "w3-1-1-0", "w3-1-1-x", "w3-1-1-1099511627776", "w1-1-9999999999999", "w1-1-1 ", "w" * 300,
                    b"w1-1-1\x00", f"w1-{1 << 53}-1"):
        yield ("WEIR.SETTLE", "k", LOG, receipt, 1), "invalid receipt"


def limit_errors():
    many = ", ".join(f"fixed-window 5/{i}s" for i in range(1, 18))
    for text, part in (("", "column"), ("bucket 5/s", "bucket"), ("sliding-log", "column"), ("sliding-log 5", "column"),
                       ("sliding-log 0/s", "0"), ("sliding-log 5/x", "x"), ("sliding-log 5/s,", "column"),
                       ("sliding-log 100001/s", "100"), ("token-bucket 1000g/d burst 1000g", ""), (many, "16"),
                       ("sliding-log 5/s, sliding-log 6/s", "share"), ("concurrent 1, concurrent 2", "share"),
                       ("x" * 5000, "1024"), (b"sliding-log 5/s\x00", "zero byte"), (b"\xff\xfe", "")):
        for words in (("WEIR.TAKE", "k", text), ("WEIR.PEEK", "k", text), ("WEIR.SETTLE", "k", text, "w1-1-1", 1),
                      ("WEIR.ACQUIRE", "k", text), ("WEIR.RENEW", "k", text, 1), ("WEIR.RELEASE", "k", text, 1),
                      ("WEIR.TAKEALL", 1, "k", text, 1)):
            yield words, "ERR limit", part
    nine = ", ".join(f"fixed-window 5/{i}s" for i in range(1, 10))
    yield ("WEIR.TAKEALL", 2, "a", nine, 1, "b", nine, 1), "at most 16 limits", "18"
    for second in (LOG, "sliding-log 9/m", "fixed-window 1/s, sliding-log 5/m"):
        yield ("WEIR.TAKEALL", 2, "a", LOG, 1, "a", second, 1), "WEIRSHARED "
    yield ("WEIR.ACQUIRE", "k", LOG), "none of the limits is concurrent"
    yield ("WEIR.RENEW", "k", LOG, 1), "none of the limits is concurrent"
    yield ("WEIR.RELEASE", "k", LOG, 1), "none of the limits is concurrent"
    yield ("WEIR.SETTLE", "k", "concurrent 5", "w1-1-1", 2), "cannot be settled"


def key_errors():
    for key in (b"", b"k" * 65537):
        size = str(len(key))
        for words in (("WEIR.TAKE", key, LOG), ("WEIR.PEEK", key, LOG),
                      ("WEIR.TAKEALL", 2, "a", LOG, 1, key, LOG, 1), ("WEIR.RESET", key),
                      ("WEIR.SETTLE", key, LOG, "w1-1-1", 2), ("WEIR.ACQUIRE", key, "concurrent 5"),
                      ("WEIR.RENEW", key, "concurrent 5", 1), ("WEIR.RELEASE", key, "concurrent 5", 1),
                      ("CL.THROTTLE", key, 5, 1, 60)):
            yield words, "a key has 1 to 65536 bytes", size


def check_arguments(tally, client):
    for cases in (arity_errors(), number_errors(), option_errors(), limit_errors(), key_errors()):
        expect_errors(tally, client, cases)
    tally.equal(client.call("DBSIZE"), 0, "keys after nothing but errors")
    client.call("WEIR.CLOCK", T0)  # or windows of seconds end under way
    for key in (b"k" * 65536, b"\x00", b"\r\n", b"\xff\xfe{}"):
        tally.equal(client.call("WEIR.TAKE", key, LOG)[:3], [1, 5, 4], f"a key of {len(key)} bytes")
    tally.equal(client.call("weir.take", "k", "SLIDING-LOG 5/MIN", "detail", "wait", "ANY", "cost", "2")[:3], [1, 5, 3],
                "words in any case and order")
    tally.equal(client.call("WEIR.TAKE", "k2", "token-bucket 5/s", "WAIT", 31622400000000)[0], 1, "the longest wait")
    tally.equal(client.call("WEIR.TAKE", "k3", "smooth 5/s", "COST", 10 ** 12)[0], 1, "the largest cost")
    sixteen = ", ".join(f"fixed-window 5/{i}s" for i in range(1, 17))
    reply = client.call("WEIR.TAKE", "k4", sixteen, "DETAIL")
    tally.equal((len(reply), reply[:3]), (24, [1, 5, 4]), "16 limits")
    expect_errors(tally, client, [(("WEIR.TAKE", "k4", "fixed-window 5/h"), "16 live limits")])
    tally.equal(client.call("WEIR.TAKE", "k4", "fixed-window 5/h", "COST", 0)[:3], [1, 5, 5], "cost 0 on a full key")
    tally.equal(client.call("WEIR.PEEK", "k4", "fixed-window 5/h")[:3], [1, 5, 5], "peek on a full key")
    tally.equal(client.call("WEIR.SETTLE", "k4", "fixed-window 5/h", "w1-1-5", 1), "OK", "a refund on a full key")
    expect_errors(tally, client, [(("WEIR.SETTLE", "k4", "fixed-window 5/h", "w1-1-1", 2), "16 live limits")])
    client.call("FLUSHALL")


# ---- what the server knows ----

def check_command_info(tally, client):
    for name, (arity, flags) in COMMANDS.items():
        info = client.call("COMMAND", "INFO", name)[0]
        tally.equal((info[0].decode(), info[1]), (name, arity), f"COMMAND INFO {name}")
        tally(flags <= set(info[2]), f"{name}: flags {info[2]}, expected {flags}")
        tally("module" in info[2], f"{name}: flags {info[2]}")
        if name != "weir.takeall":
            tally.equal(info[3:6], [1, 1, 1], f"{name}: first key, last key, step")
        tally.equal(len(info[8]), 1, f"{name}: key specs")
        docs = client.call("COMMAND", "DOCS", name)[1]
        docs = dict(zip(docs[0::2], docs[1::2]))
        tally(len(docs[b"summary"]) > 10 and docs[b"since"] and docs[b"complexity"], f"{name}: docs {docs}")
    for words, keys in ((("WEIR.TAKE", "k", LOG), [b"k"]), (("WEIR.RELEASE", "k", "concurrent 1", 1), [b"k"]),
                        (("CL.THROTTLE", "k", 1, 1, 1), [b"k"]), (("WEIR.RESET", "k"), [b"k"]),
                        (("WEIR.TAKEALL", 1, "a", LOG, 1), [b"a"]),
                        (("WEIR.TAKEALL", 3, "a", LOG, 1, "b", LOG, 1, "c", LOG, 1, "DETAIL"), [b"a", b"b", b"c"]),
                        (("WEIR.TAKEALL", 16, *[word for i in range(16) for word in (f"k{i}", LOG, 1)]),
                         [b"k%d" % i for i in range(16)])):
        tally.equal(client.call("COMMAND", "GETKEYS", *words), keys, f"COMMAND GETKEYS {words[0]}")
    for count in ("0", "-1", "x", "", "99999999999999999999"):
        tally("rror" in repr(client.pipeline([("COMMAND", "GETKEYS", "WEIR.TAKEALL", count, "a", LOG, 1)])[0])
                    or count.startswith("99"), f"COMMAND GETKEYS of {count} keys")


def check_acl(tally, server, client):
    def user(name, *rules):
        client.call("ACL", "SETUSER", name, "on", ">secret", *rules)
        return server.client(user=name, password="secret")
    all_of_a = ("WEIR.TAKEALL", 2, "a:1", LOG, 1, "a:2", LOG, 1)
    with user("taker", "+weir.take", "~a:*") as taker:
        tally.equal(taker.call("WEIR.TAKE", "a:1", LOG)[0], 1, "a take that the user may")
        for words in (("WEIR.TAKE", "b:1", LOG), ("WEIR.PEEK", "a:1", LOG), ("WEIR.RESET", "a:1"), all_of_a,
                      ("CL.THROTTLE", "a:1", 1, 1, 1), ("GET", "a:1")):
            expect_errors(tally, taker, [(words, "NOPERM")])
    with user("several", "+weir.takeall", "~a:*") as several:
        tally.equal(several.call(*all_of_a)[0], 1, "a take of several keys that the user may")
        for i in range(2):
            words = list(all_of_a)
            words[2 + 3 * i] = "b:1"
            expect_errors(tally, several, [(words, "NOPERM")])
    with user("reader", "+weir.peek", "+weir.take", "%R~a:*") as reader:
        tally.equal(reader.call("WEIR.PEEK", "a:1", LOG)[0], 1, "a peek by one who may read")
        expect_errors(tally, reader, [(("WEIR.TAKE", "a:1", LOG), "NOPERM")])
    with user("none", "+@all", "-@dangerous", "allkeys", "-weir.take") as none:
        expect_errors(tally, none, [(("WEIR.TAKE", "a:1", LOG), "NOPERM")])
        tally.equal(none.call("WEIR.PEEK", "a:1", LOG)[0], 1, "what is left to a user without take")
    tally.equal(client.call("EXISTS", "b:1"), 0, "a key that nobody might take")
    client.call("FLUSHALL")


# ---- replies ----

def check_replies(tally, client, protocol):
    where = f"RESP{protocol}"
    client.call("WEIR.CLOCK", T0, 4711)
    tally.equal(lua_cases.unnamed(client.call("WEIR.TAKE", "r", "token-bucket 2/s burst 4", "COST", 3)),
                [1, 4, 1, 0, 1500000, 0, b"w1-%d-3" % T0], f"{where}: take")
    tally.equal(lua_cases.unnamed(client.call("WEIR.TAKE", "r", "token-bucket 2/s burst 4", "COST", 3)),
                [0, 4, 1, 1000000, 1500000, 0, b"w1-%d-0" % T0], f"{where}: denied")
    tally.equal(lua_cases.unnamed(client.call("WEIR.TAKE", "r", "token-bucket 2/s burst 4", "COST", 3, "WAIT", "any")),
                [1, 4, 0, 0, 3000000, 1000000, b"w1-%d-3" % T0], f"{where}: delayed")
    tally.equal(client.call("WEIR.TAKE", "r", "token-bucket 2/s burst 4", "COST", 5)[3], -1, f"{where}: never")
    tally.equal(client.call("WEIR.SETTLE", "r", "token-bucket 2/s burst 4", f"w1-{T0}-3", 0), "OK", f"{where}: settle")
    tally.equal(lua_cases.unnamed(client.call("WEIR.PEEK", "r", "token-bucket 2/s burst 4, fixed-window 9/d", "DETAIL")),
                [1, 4, 1, 0, 1500000, 0, b"w1-%d-0" % T0, 0, [1, 4, 1, 0, 1500000, 0], [1, 9, 9, 0, 0, 0]],
                f"{where}: detail")
    both = ("r", "token-bucket 2/s burst 4", 2, "s", "fixed-window 9/d", 1)
    tally.equal(lua_cases.unnamed(client.call("WEIR.TAKEALL", 2, *both, "DETAIL")),
                [0, 4, 1, 500000, 1500000, 0, b"w1-%d-0" % T0, 0, [0, 4, 1, 500000, 1500000, 0], [1, 9, 9, 0, 0, 0]],
                f"{where}: one of two denies")
    tally.equal(client.call("EXISTS", "s"), 0, f"{where}: the other is not charged")
    tally.equal(lua_cases.unnamed(client.call("WEIR.ACQUIRE", "c", "concurrent 2 lease 1m")),
                [1, 2, 1, 0, 60000000, 0, b"w1-%d-1" % T0, 4711], f"{where}: acquire")
    tally.equal(client.call("WEIR.ACQUIRE", "c", "concurrent 2 lease 1m", "COST", 2)[7], 0, f"{where}: denied acquire")
    tally.equal(client.call("WEIR.RENEW", "c", "concurrent 2 lease 1m", 4711), 1, f"{where}: renew")
    tally.equal(client.call("WEIR.RENEW", "c", "concurrent 2 lease 1m", 4712), 0, f"{where}: renew of another")
    tally.equal(client.call("WEIR.RELEASE", "c", "concurrent 2 lease 1m", 4711), 1, f"{where}: release")
    tally.equal(client.call("WEIR.RELEASE", "c", "concurrent 2 lease 1m", 4711), 0, f"{where}: release again")
    tally.equal(client.call("EXISTS", "c"), 0, f"{where}: a key without leases")
    tally.equal([client.call("WEIR.RESET", "r"), client.call("WEIR.RESET", "r")], [1, 0], f"{where}: reset")
    client.call("FLUSHALL")


def check_throttle(tally, client):
    """redis-cell: limited, limit, remaining, retry after or -1, reset after; the example of its README first."""
    def throttle(at, *words):
        client.call("WEIR.CLOCK", T0 + at)
        return client.call("CL.THROTTLE", *words)
    tally.equal(throttle(0, "user123", 15, 30, 60, 1), [0, 16, 15, -1, 2], "the README's example")
    for i in range(1, 16):
        tally.equal(throttle(0, "user123", 15, 30, 60), [0, 16, 15 - i, -1, 2 * i + 2], f"call {i + 1} of a burst")
    tally.equal(throttle(0, "user123", 15, 30, 60), [1, 16, 0, 2, 32], "limited")
    tally.equal(throttle(1, "user123", 15, 30, 60), [1, 16, 0, 2, 32], "a microsecond later: seconds are rounded up")
    tally.equal(throttle(1000000, "user123", 15, 30, 60), [1, 16, 0, 1, 31], "a second later")
    tally.equal(throttle(1999999, "user123", 15, 30, 60), [1, 16, 0, 1, 31], "a microsecond before")
    tally.equal(throttle(2000000, "user123", 15, 30, 60), [0, 16, 0, -1, 32], "when it said")
    tally.equal(throttle(2000000, "user123", 15, 30, 60, 0), [0, 16, 0, -1, 32], "quantity 0 asks")
    tally.equal(throttle(2000000, "user123", 15, 30, 60, 17), [1, 16, 0, -1, 32], "more than there can ever be")
    tally.equal(throttle(2000000, "fresh", 15, 30, 60, 0), [0, 16, 16, -1, 0], "quantity 0 of a fresh key")
    tally.equal(throttle(2000000, "fresh", 15, 30, 60, 17), [1, 16, 16, -1, 0], "too many of a fresh key")
    tally.equal(client.call("EXISTS", "fresh"), 0, "neither is charged")
    tally.equal(throttle(2000000, "fresh", 15, 30, 60, 16), [0, 16, 0, -1, 32], "all at once")
    tally.equal(throttle(2000000, "none", 0, 1, 1), [0, 1, 0, -1, 1], "no burst")
    tally.equal(throttle(2000000, "none", 0, 1, 1), [1, 1, 0, 1, 1], "no burst, again")
    tally.equal(client.call("WEIR.PEEK", "fresh", "token-bucket 30/m burst 16")[2], 0, "the same state as WEIR.TAKE's")
    client.call("FLUSHALL")


# ---- around it ----

def check_transactions(tally, server, client):
    client.call("WEIR.CLOCK", T0)
    client.call("MULTI")
    for _ in range(3):
        tally.equal(client.call("WEIR.TAKE", "t", "fixed-window 2/h"), "QUEUED", "queued")
    tally.equal([reply[0] for reply in client.call("EXEC")], [1, 1, 0], "takes in a transaction")
    client.call("MULTI")
    expect_errors(tally, client, [(("WEIR.TAKE", "t"), "wrong number of arguments")])
    tally("EXECABORT" in module_cases.error_of(client, "EXEC"), "a transaction with a wrong command")
    with server.client() as other:
        for limits, dirty in (("fixed-window 2/h", False), ("fixed-window 9/d", True)):
            client.call("WATCH", "t")
            other.call("WEIR.TAKE", "t", limits)
            client.call("MULTI")
            client.call("PING")
            tally.equal(client.call("EXEC") is None, dirty, f"a watched key after a take of {limits}")
    script = "return redis.call('WEIR.TAKE', KEYS[1], ARGV[1], 'COST', ARGV[2])"
    tally.equal(client.call("EVAL", script, 1, "e", "fixed-window 5/d", 3)[:3], [1, 5, 2], "a take by a script")
    tally.equal(client.call("EVAL", script, 1, "e", "fixed-window 5/d", 3)[:3], [0, 5, 2], "a denied one")
    tally("COST must be" in module_cases.error_of(client, "EVAL", script, 1, "e", "fixed-window 5/d", "x"),
                "an error in a script")
    client.call("FLUSHALL")


def check_memory_limit(tally, client):
    limits = "sliding-log 9/d, concurrent 9 lease 1h"
    client.call("WEIR.CLOCK", T0, 5)
    client.call("WEIR.ACQUIRE", "o", limits)
    before = client.call("GET", "o")
    client.call("CONFIG", "SET", "maxmemory", 1)
    expect_errors(tally, client, [
        (words, "OOM") for words in (("WEIR.TAKE", "o", limits), ("WEIR.ACQUIRE", "o", limits),
                                     ("CL.THROTTLE", "p", 1, 1, 1), ("WEIR.RENEW", "o", limits, 5),
                                     ("WEIR.TAKEALL", 1, "o", limits, 1),
                                     ("WEIR.SETTLE", "o", "sliding-log 9/d", f"w1-{T0}-1", 2))])
    tally.equal(client.call("GET", "o"), before, "the value after running out of memory")
    tally.equal(client.call("WEIR.PEEK", "o", limits)[:3], [1, 9, 8], "a peek without memory")
    tally.equal(client.call("WEIR.RELEASE", "o", limits, 5), 1, "a release without memory")
    tally.equal(client.call("WEIR.RESET", "o"), 1, "a reset without memory")
    client.call("CONFIG", "SET", "maxmemory", 0)
    tally.equal(client.call("DBSIZE"), 0, "keys after running out of memory")


def check_foreign(tally, client):
    values = {"list": ("RPUSH", "list", 1), "hash": ("HSET", "hash", "a", 1), "set": ("SADD", "set", 1),
              "zset": ("ZADD", "zset", 1, 1), "stream": ("XADD", "stream", "1-1", "a", "b"),
              "empty": ("SET", "empty", ""), "number": ("SET", "number", 12345), "text": ("SET", "text", "hello"), "long": ("SET", "long", "x" * 500),
              "head": ("SET", "head", b"\xf7\x01"), "bits": ("SETBIT", "bits", 77, 1)}
    client.call("WEIR.CLOCK", T0)
    for name, words in values.items():
        client.call(*words)
        before = client.call("DUMP", name)
        for command in (("WEIR.TAKE", name, LOG), ("WEIR.PEEK", name, LOG), ("WEIR.RESET", name),
                        ("WEIR.SETTLE", name, LOG, "w1-1-1", 2), ("WEIR.ACQUIRE", name, "concurrent 5"),
                        ("WEIR.RENEW", name, "concurrent 5", 1), ("WEIR.RELEASE", name, "concurrent 5", 1),
                        ("WEIR.TAKEALL", 2, "fine", LOG, 1, name, LOG, 1), ("CL.THROTTLE", name, 5, 1, 60)):
            expect_errors(tally, client, [(command, "WEIRSTATE", f'"{name}"')])
        tally.equal(client.call("DUMP", name), before, f"a foreign value of type {name}")
    tally.equal(client.call("EXISTS", "fine"), 0, "the key beside a foreign one")
    tally.equal(client.call("INCR", "number"), 12346, "a number still counts")
    expect_errors(tally, client, [(("SET", b"bad\r\nkey", "x"), "no error"),
                                  (("WEIR.TAKE", b"bad\r\nkey", LOG), "WEIRSTATE", '"bad  key"')])
    client.call("FLUSHALL")


def check_cache(tally, client, pick, texts):
    """Far more limits than the cache remembers: every answer is that of its own text."""
    client.call("WEIR.CLOCK", T0)
    counts = list(range(1, texts + 1)) * 2
    pick.shuffle(counts)
    replies = client.pipeline([("WEIR.PEEK", "cache", f"fixed-window {n}/h") for n in counts])
    for n, reply in zip(counts, replies):
        tally.equal(reply[:3], [1, n, n], f"fixed-window {n}/h")
    for _ in range(texts // 10):
        some = pick.sample(range(1, texts + 1), 16)
        words = [word for n in some for word in (f"c{n}", f"sliding-counter {n}/h", 0)]
        reply = client.call("WEIR.TAKEALL", 16, *words, "DETAIL")
        tally.equal([row[1] for row in reply[8:]], some, "16 limits in a call")
    client.call("FLUSHALL")


# ---- with the server's own clock ----

def check_expiry(tally, client):
    for i, limits in enumerate(module_cases.LIMITS):
        for cost in (1, 3):
            reply = client.call("WEIR.TAKE", f"x{i}", limits, "COST", cost)
            now = int(reply[6].split(b"-")[1])
            fresh = now + reply[4] + (86400000000 if limits.startswith(("smooth",)) else 0)
            tally.equal(client.call("PEXPIRETIME", f"x{i}"), -(-fresh // 1000), f"{limits}: expiry")
    reply = client.call("WEIR.TAKE", "two", "fixed-window 5/366d, token-bucket 100/s")
    fresh = int(reply[6].split(b"-")[1]) + reply[4]
    tally.equal(client.call("PEXPIRETIME", "two"), -(-fresh // 1000), "the latest of two")
    client.call("WEIR.TAKE", "gone", "token-bucket 100/s")
    tally(module_cases.until(lambda: client.call("EXISTS", "gone") == 0), "a key that is fresh again goes")
    expect_errors(tally, client, [(("WEIR.CLOCK", 1), "unknown command")])
    client.call("FLUSHALL")


def check_bytes(tally, client):
    """Bytes of a token bucket's key with its expiry: what 100,000 of them add to the server's memory."""
    count = 100000
    sha = lua_cases.load(client, "take_token_bucket")["take_token_bucket"]
    lean = module_cases.parsed("token-bucket 10/h burst 20")[0].lean_arguments(1, -1)
    used = lambda: int(module_cases.info(client, "memory")["used_memory"])
    for home in ("module", "Lua"):
        client.call("FLUSHALL")
        module_cases.until(lambda: client.call("DBSIZE") == 0)
        before = used()
        names = [f"{i:016d}" for i in range(count)]
        client.pipeline([("WEIR.TAKE", name, "token-bucket 10/h burst 20") if home == "module"
                         else lua_cases.evaluate(sha, [name], lean) for name in names], batch=1000)
        time.sleep(0.2)  # tables grow by the way
        each = (used() - before) / count
        tally(each <= 200, f"{home}: {each:.0f} bytes a key")
        print(f"{home}: {each:.0f} bytes a token bucket, MEMORY USAGE {client.call('MEMORY', 'USAGE', names[5])}")
    client.call("FLUSHALL")


# ---- loading ----

OTHER = r"""
typedef struct RedisModuleCtx RedisModuleCtx;
typedef int command(RedisModuleCtx *, void **, int);
static int (*reply)(RedisModuleCtx *, long long);
static int run(RedisModuleCtx *ctx, void **argv, int argc)
{
    (void)argv, (void)argc;
    return reply(ctx, 42);
}
int RedisModule_OnLoad(RedisModuleCtx *ctx, void **argv, int argc)
{
    int (*get)(const char *, void *) = *(int (**)(const char *, void *))ctx;
    void (*attributes)(RedisModuleCtx *, const char *, int, int);
    int (*create)(RedisModuleCtx *, const char *, command *, const char *, int, int, int);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &attributes);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_ReplyWithLongLong", &reply);
    attributes(ctx, "cell", 1, 1);
    return create(ctx, "cl.throttle", run, "write", 1, 1, 1);
}
"""


def check_other_owner(tally):
    """Another module has CL.THROTTLE: weir loads without it, and says so."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        print("no C compiler: the test with another module is left out")
        return
    with tempfile.TemporaryDirectory(prefix="weir-module-") as folder:
        source, module = pathlib.Path(folder, "other.c"), pathlib.Path(folder, "other.so")
        source.write_text(OTHER)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", module, source], check=True)
        with module_cases.server(config=f"loadmodule {module}") as server, server.client() as client:
            tally.equal(client.call("CL.THROTTLE", "k", 1, 1, 1), 42, "the other module's command")
            tally.equal(client.call("WEIR.TAKE", "k", LOG)[:3], [1, 5, 4], "weir beside it")
            tally("CL.THROTTLE belongs to another module" in server.log(), "the log says so")


def check_cluster(tally):
    """The keys of one call are of one slot."""
    with module_cases.server("--cluster-enabled yes") as server, server.client() as client:
        client.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        up = lambda: b"cluster_state:ok" in client.call("CLUSTER", "INFO")
        tally(module_cases.until(up), "the cluster of one does not come up")
        tally.equal(client.call("WEIR.TAKE", "a", LOG)[0], 1, "a take in a cluster")
        tally.equal(client.call("WEIR.TAKEALL", 2, "{x}a", LOG, 1, "{x}b", LOG, 1)[0], 1, "two keys of one slot")
        expect_errors(tally, client, [(("WEIR.TAKEALL", 2, "a", LOG, 1, "b", LOG, 1), "CROSSSLOT"),
                                      (("WEIR.TAKEALL", 3, "{x}a", LOG, 1, "{x}b", LOG, 1, "c", LOG, 1), "CROSSSLOT")])
        tally.equal(client.call("WEIR.PEEK", "a", LOG)[2], 4, "a key that a refused call named")


def named(client, command):
    """The words of a command that COMMAND DOCS lists."""
    docs = client.call("COMMAND", "DOCS", command)[1]
    arguments = dict(zip(docs[0::2], docs[1::2])).get(b"arguments", [])
    return [dict(zip(each[0::2], each[1::2]))[b"name"].decode() for each in arguments]


def check_docs(tally, client):
    """COMMAND DOCS lists the arguments of every command."""
    take = ["key", "limits", "cost", "least", "wait", "detail"]
    wanted = {"weir.take": take, "weir.peek": take, "weir.acquire": [*take[:-1], "lease", "detail"], "weir.takeall": ["numkeys", "ask", "least", "wait", "acquire", "lease", "detail"],
              "weir.settle": ["key", "limits", "receipt", "actual"], "weir.reset": ["key"], "weir.show": ["key"],
              "weir.renew": ["key", "limits", "lease"], "weir.release": ["key", "limits", "lease"],
              "cl.throttle": ["key", "max_burst", "count", "period", "quantity"]}
    for command in COMMANDS:
        tally.equal(named(client, command), wanted[command], f"COMMAND DOCS {command}")


def check_notifications(tally, server, client):
    """What is written is told to those who watch the keys, as SET, SETRANGE and DEL of the scripts tell it."""
    sha = lua_cases.load(client, "weir")["weir"]
    client.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
    seen = {}
    for home in ("module", "lua"):
        calls = [module_cases.Call("take", home, "fixed-window 9/d"), module_cases.Call("take", home, "fixed-window 9/d", 99),
                 module_cases.Call("peek", home, "fixed-window 9/d"), module_cases.Call("reset", home)]
        calls += [module_cases.Call("acquire", home, "concurrent 200 lease 1h", lease=i) for i in range(1, 65)]
        calls += [module_cases.Call("renew", home, "concurrent 200 lease 1h", lease=3),
                  module_cases.Call("release", home, "concurrent 200 lease 1h", lease=3), module_cases.Call("reset", home)]
        client.call("DEL", home)
        with server.client() as listener:
            listener.call("SUBSCRIBE", f"__keyspace@0__:{home}")
            for call in calls:
                client.call(*(call.by_module() if home == "module" else call.by_lua(sha)))
            client.call("PUBLISH", f"__keyspace@0__:{home}", "end")
            seen[home] = list(iter(lambda: listener.read()[2].decode(), "end"))
    client.call("CONFIG", "SET", "notify-keyspace-events", "")
    tally.equal(seen["module"][:3], ["set", "expire", "del"], "a take, a denial, a peek, a reset")
    tally.equal(seen["module"][-1], "del", "the last reset")
    tally.equal({*seen["module"]} - {"setrange"}, {*seen["lua"]} - {"setrange"}, "events of module and scripts")


def check_counts(tally, client):
    """INFO tells how many were allowed and denied; peeks do not count."""
    def counts():
        info = module_cases.info(client, "weir_decisions")
        return int(info["weir_allowed"]), int(info["weir_denied"])
    allowed, denied = counts()
    for _ in range(5):
        client.call("WEIR.TAKE", "counted", "fixed-window 3/366d")
        client.call("WEIR.PEEK", "counted", "fixed-window 3/366d")
    client.call("CL.THROTTLE", "counted2", 0, 1, 3600)
    client.call("WEIR.TAKEALL", 2, "counted3", "fixed-window 3/366d", 1, "counted", "fixed-window 3/366d", 1)
    tally.equal(counts(), (allowed + 4, denied + 3), "allowed and denied in INFO")


def check_show(tally, client):
    """Every state of a key, in names and numbers; the scripts say the same."""
    sha = lua_cases.load(client, "weir_test")["weir_test"]
    client.call("DEL", "shown")
    tally.equal(client.call("WEIR.SHOW", "shown"), [], "no state")
    client.call("WEIR.CLOCK", T0, 77)
    client.call("WEIR.TAKE", "shown", "token-bucket 10/s burst 20, fixed-window 50/m, sliding-log 9/h, smooth 5/s", "COST", 3)
    client.call("WEIR.ACQUIRE", "shown", "concurrent 5 lease 1m", "COST", 2)
    client.call("WEIR.CLOCK", T0 + 200_000, 78)
    rows = [dict(zip(row[0::2], row[1::2])) for row in client.call("WEIR.SHOW", "shown")]
    tally.equal([row[b"algorithm"] for row in rows],
                [b"token-bucket", b"fixed-window", b"sliding-log", b"smooth", b"concurrent"], "which they are")
    tally.equal([row[b"spent"] for row in rows], [1, 3, 3, 0, 2], "what was spent")
    tally.equal([row[b"entries"] for row in rows], [0, 0, 1, 0, 1], "entries and leases")
    tally.equal([rows[0][b"count"], rows[0][b"period"], rows[0][b"at"], rows[0][b"fresh"]],
                [10, 1_000_000, T0, T0 + 300_000], "a bucket's numbers")
    tally.equal(rows[4][b"fresh"], T0 + 60_000_000, "when the lease lapses")
    tally.equal(client.call(*lua_cases.evaluate(sha, ["shown"], [7, T0 + 200_000])), client.call("WEIR.SHOW", "shown"),
                "the script shows the same")
    client.call("SET", "shown", "x")
    tally(module_cases.error_of(client, "WEIR.SHOW", "shown").startswith("WEIRSTATE"), "a foreign value")


def check_loading(tally):
    with redis_server.Server(config="enable-module-command yes") as server, server.client() as client:
        expect_errors(tally, client, [(("MODULE", "LOAD", module_cases.REDIS_MODULE, "tset-clock"), "Error loading")])
        tally('unknown argument "tset-clock"' in server.log(), "the log names a wrong argument")
        tally.equal(client.call("MODULE", "LOAD", module_cases.REDIS_MODULE), "OK", "loading at run time")
        client.call("WEIR.TAKE", "k", "sliding-log 9/d")
        tally.equal(client.call("MODULE", "LIST")[0][1], b"weir", "its name")
        tally.equal(client.call("MODULE", "UNLOAD", "weir"), "OK", "unloading")
        tally.equal(client.call("STRLEN", "k"), 74, "values outlive the module")
        tally.equal(client.call("MODULE", "LOAD", module_cases.REDIS_MODULE), "OK", "loading again")
        tally.equal(client.call("WEIR.PEEK", "k", "sliding-log 9/d")[:3], [1, 9, 8], "and go on")


def main(arguments):
    tally, pick = checks.Checks(), random.Random(1)
    with module_cases.server(argument="test-clock") as server, server.client() as client:
        check_arguments(tally, client)
        check_command_info(tally, client)
        check_acl(tally, server, client)
        check_replies(tally, client, 2)
        with resp.Client(server.port, protocol=3) as modern:
            check_replies(tally, modern, 3)
        check_throttle(tally, client)
        check_docs(tally, client)
        check_show(tally, client)
        check_transactions(tally, server, client)
        check_memory_limit(tally, client)
        check_foreign(tally, client)
        check_cache(tally, client, pick, 30000 if "--long" in arguments else 3000)
        tally("Guru Meditation" not in server.log(), "the server reported a crash")
    with module_cases.server() as server, server.client() as client:
        check_expiry(tally, client)
        check_notifications(tally, server, client)
        check_counts(tally, client)
        if "asan" not in str(redis_server.binary()):  # whose allocator adds its own
            check_bytes(tally, client)
    check_other_owner(tally)
    check_cluster(tally)
    check_loading(tally)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
