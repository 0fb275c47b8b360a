#!/usr/bin/env python3
"""Primary, replica and AOF: after a mixed load by module and Lua their values are equal byte for byte.

    module_replica.py [--long]

Also: what charges nothing writes nothing, a long ring's take sends its changed part alone, a replica decides
nothing, and refuses to.
"""
import pathlib
import re
import sys
import time

from lib import checks, lua_cases, module_cases, redis_server


def dump(client):
    """Every key's value and the absolute time it expires at."""
    keys = sorted(client.call("KEYS", "*"))
    values = client.pipeline([("GET", key) for key in keys])
    times = client.pipeline([("PEXPIRETIME", key) for key in keys])
    return {key: (value, expiry) for key, value, expiry in zip(keys, values, times)}


def offset(client):
    return int(module_cases.info(client, "replication")["master_repl_offset"])


def caught_up(primary, replica):
    return module_cases.until(lambda: offset(primary) == offset(replica))


def compare(tally, primary, replica, what):
    tally(caught_up(primary, replica), f"{what}: the replica does not catch up")
    ours, theirs = dump(primary), dump(replica)
    tally.equal(sorted(theirs), sorted(ours), f"{what}: keys")
    for key, (value, expiry) in ours.items():
        tally.equal(theirs.get(key, (None, None))[0], value, f"{what}: value of {key}")
        tally.equal(theirs.get(key, (None, None))[1], expiry, f"{what}: expiry of {key}")


def aof_size(server):
    """Bytes of its AOF, and what the incremental parts say."""
    files = sorted(pathlib.Path(server.folder, "appendonlydir").glob("*.incr.aof"))
    data = b"".join(path.read_bytes() for path in files)
    return len(data), data


def check_load(tally, server, primary, replica, rounds):
    load = module_cases.Load(primary, seed=rounds)
    for i in range(rounds):
        load.run(1500)
        compare(tally, primary, replica, f"after {load.calls} calls")
    tally(primary.call("DBSIZE") >= 35, "the load left few keys")
    with redis_server.Server("--appendonly yes") as other:  # a plain server: values need no module
        other.stop()
        folder = pathlib.Path(other.folder, "appendonlydir")
        for path in folder.iterdir():
            path.unlink()
        for path in pathlib.Path(server.folder, "appendonlydir").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        before = dump(primary)
        other.start()
        with other.client() as client:
            tally.equal(dump(client), before, "values from the AOF, without the module")


def charges_nothing(sha):
    """Calls that must write nothing, on keys that hold a state and on keys that do not."""
    calls = []
    for i, limits in enumerate(module_cases.LIMITS + [module_cases.MANY]):
        for key in (f"idle{i}", f"full{i}"):
            calls += [module_cases.Call("peek", key, limits), module_cases.Call("take", key, limits, 0),
                      module_cases.Call("peek", key, limits, 10 ** 12)]
            if "smooth" not in limits and "warmup" not in limits:
                calls.append(module_cases.Call("take", key, limits, 10 ** 12))
            if "concurrent" in limits:
                calls += [module_cases.Call("renew", key, limits, lease=77),
                          module_cases.Call("release", key, limits, lease=77),
                          module_cases.Call("acquire", key, limits, 0, lease=5),
                          module_cases.Call("acquire", key, limits, 100001, lease=5)]
            else:
                calls.append(module_cases.Call("settle", key, limits, 3, receipt="w1-1700000000000000-3"))
                calls.append(module_cases.Call("settle", f"idle{i}", limits, 0, receipt="w1-1-3"))
        calls += [module_cases.Call("take", f"spent{i}", f"fixed-window 5/{i + 1}d"),
                  module_cases.Call("reset", f"idle{i}")]
    return ([call.by_module() for call in calls] + [call.by_lua(sha) for call in calls]
            + [("WEIR.TAKEALL", 2, "idle0", "fixed-window 5/h", 1, "spent0", "fixed-window 5/1d", 1),
               ("CL.THROTTLE", "idle0", 5, 1, 3600, 0), ("CL.THROTTLE", "idle0", 5, 1, 3600, 7)])


def check_nothing_written(tally, server, primary, replica):
    sha = lua_cases.load(primary, "weir")["weir"]
    for i, limits in enumerate(module_cases.LIMITS + [module_cases.MANY]):
        verb = "WEIR.ACQUIRE" if "concurrent" in limits else "WEIR.TAKE"
        # Without this cost a warmup is as new after four seconds: its key expires, and a DEL is sent.
        cost = 1000 if "warmup" in limits else 1
        primary.call(verb, f"full{i}", limits, "COST", cost)
        primary.pipeline([("WEIR.TAKE", f"spent{i}", f"fixed-window 5/{i + 1}d")] * 5)
    tally(caught_up(primary, replica), "the replica does not catch up")

    # Heartbeats move the offset, too: they are few and small, and told apart by the replica's own stream.
    def marks():
        changes = int(module_cases.info(primary, "persistence")["rdb_changes_since_last_save"])
        return changes, aof_size(server)[0], dump(primary)
    primary.call("CONFIG", "SET", "repl-ping-replica-period", "3600")
    time.sleep(0.1)
    before, start = marks(), offset(primary)
    replies = primary.pipeline(charges_nothing(sha))
    after = marks()
    tally.equal(offset(primary), start, "replication offset after what charges nothing")
    tally.equal(after[0], before[0], "changes after what charges nothing")
    tally.equal(after[1], before[1], "AOF bytes after what charges nothing")
    tally.equal(after[2], before[2], "values after what charges nothing")
    errors = [reply for reply in replies if isinstance(reply, Exception)]
    tally.equal(errors, [], "errors among what charges nothing")


def stream_of(server, start):
    """The commands appended to the AOF from a size on, as lists of words."""
    data = aof_size(server)[1][start:]
    commands = []
    while data:
        head, _, data = data.partition(b"\r\n")
        words = []
        for _ in range(int(head[1:])):
            size, _, data = data.partition(b"\r\n")
            words.append(data[:int(size[1:])])
            data = data[int(size[1:]) + 2:]
        commands.append(words)
    return commands


def check_stream(tally, server, primary, sha):
    """What each kind of change sends."""
    def sent(*words):
        return sent_by([words])

    def sent_by(calls):
        start = aof_size(server)[0]
        for words, reply in zip(calls, primary.pipeline(calls)):
            tally(not isinstance(reply, Exception), f"{words}: {reply}")
        return [c for c in stream_of(server, start) if c[0].upper() != b"SELECT"]
    names = lambda commands: [c[0].upper() for c in commands]
    for i, limits in enumerate(module_cases.LIMITS):
        commands = sent("WEIR.TAKE", f"new{i}", limits)
        tally.equal(names(commands), [b"SET"], f"a new state of {limits} sends")
        tally.equal(commands[0][3].upper(), b"PXAT", f"{limits} expiry")
    tally.equal(names(sent("WEIR.RESET", "new0")), [b"DEL"], "a reset sends")
    tally.equal(names(sent("WEIR.RESET", "new0")), [], "a reset of nothing sends")
    partial = [b"MULTI", b"SETRANGE", b"SETRANGE", b"PEXPIREAT", b"EXEC"]
    for limits in ("sliding-log 3000/h", "sliding-window 3000/h precision 400ms", "concurrent 3000 lease 1h"):
        key = "long " + limits
        for _ in range(5):
            primary.pipeline([("WEIR.TAKE", key, limits)] * 100)
        if "window" in limits:
            window_of(primary, key, limits, 120)
        size = primary.call("STRLEN", key)
        tally(size > 1500, f"{key} is short: {size}")
        for home, words in (("module", ("WEIR.TAKE", key, limits)),
                            ("Lua", module_cases.Call("take", key, limits).by_lua(sha))):
            before = primary.call("GET", key)
            commands = sent(*words)
            tally.equal(names(commands), partial, f"a take of {limits} by {home} sends")
            sizes = [len(c[3]) for c in commands if c[0].upper() == b"SETRANGE"]
            tally.equal(sizes, [40, 16], f"bytes of its parts by {home}")
            tally(before != primary.call("GET", key), f"{key} did not change")
    # Leases that lapse before others stand before them: more than one cell changes.
    leases = "long concurrent 3000 lease 1h"
    for verb, lease in (("WEIR.ACQUIRE", "2m"), ("WEIR.TAKE", "1m"), ("WEIR.TAKE", "50m")):
        commands = sent(verb, leases, f"concurrent 3000 lease {lease}")
        tally.equal(names(commands), [b"SET"], f"a lease of {lease} sends")
    limit = "fixed-window 5/h"
    commands = sent_by([("MULTI",), ("WEIR.TAKE", "a", limit), ("WEIR.TAKE", "a", limit, "COST", 9),
                        ("WEIR.TAKE", "b", limit), ("EXEC",)])
    tally.equal(names(commands), [b"MULTI", b"SET", b"SET", b"EXEC"], "a transaction sends")
    commands = sent("WEIR.TAKEALL", 3, "a", limit, 1, "b", limit, 1, "c", limit, 0)
    tally.equal(names(commands), [b"MULTI", b"SET", b"SET", b"EXEC"], "a take of several keys sends")


def window_of(client, key, limits, cells):
    """A sliding window of many slots, made as a value: real ones take as long as their period."""
    now = int(time.time() * 1e6)
    period, precision = 3600 * 10 ** 6, int(re.search(r"precision (\d+)ms", limits)[1]) * 1000
    capacity = 2
    while capacity < cells:
        capacity = capacity * 2 + 2
    stamps = [now - (cells - i) * precision for i in range(cells)]
    body = b"".join(stamp.to_bytes(8, "little") + (1).to_bytes(8, "little") for stamp in stamps)
    head = b"".join(number.to_bytes(size, "little") for number, size in (
        (6, 1), (period, 6), (precision, 6), (capacity, 4), (0, 4), (cells, 4), (stamps[-1], 7), (cells, 7), (0, 1)))
    client.call("SET", key, b"\xf7\x01" + head + body + bytes(16 * (capacity - cells)),
                "PXAT", (stamps[-1] + period) // 1000 + 1)


def check_replica(tally, primary, replica):
    """It computes nothing and refuses what writes."""
    stats = module_cases.info(replica, "commandstats")
    decided = [name for name in stats if "weir" in name or "eval" in name or "cl.throttle" in name]
    tally.equal(decided, [], "commands of weir that the replica ran")
    for words in (("WEIR.TAKE", "k0", "fixed-window 5/h"), ("WEIR.TAKEALL", 1, "k0", "fixed-window 5/h", 1),
                  ("WEIR.SETTLE", "k0", "fixed-window 5/h", "w1-1-1", 1), ("WEIR.RESET", "k0"),
                  ("WEIR.ACQUIRE", "k0", "concurrent 5"), ("WEIR.RENEW", "k0", "concurrent 5", 1),
                  ("WEIR.RELEASE", "k0", "concurrent 5", 1), ("CL.THROTTLE", "k0", 5, 1, 60)):
        tally(module_cases.error_of(replica, *words).startswith("READONLY"), f"{words[0]} on a replica")
    primary.call("WEIR.TAKE", "peeked", "fixed-window 5/366d", "COST", 2)
    tally(caught_up(primary, replica), "the replica does not catch up")
    tally.equal(replica.call("WEIR.PEEK", "peeked", "fixed-window 5/366d")[:3], [1, 5, 3], "a peek on the replica")
    sha = lua_cases.load(replica, "weir")["weir"]
    peek = module_cases.Call("peek", "peeked", "fixed-window 5/366d").by_lua(sha)
    tally.equal(replica.call(*peek)[:3], [1, 5, 3], "a peek by Lua on the replica")


def main(arguments):
    rounds, tally = 40 if "--long" in arguments else 3, checks.Checks()
    options = "--appendonly yes --appendfsync no --repl-diskless-sync-delay 0"
    with module_cases.server(options) as server, server.client() as primary:
        with server.replica(module_cases.LOAD) as copy, copy.client() as replica:
            linked = lambda: module_cases.info(replica, "replication")["master_link_status"] == "up"
            tally(module_cases.until(linked), "the replica does not connect")
            check_load(tally, server, primary, replica, rounds)
            check_nothing_written(tally, server, primary, replica)
            sha = lua_cases.load(primary, "weir")["weir"]
            check_stream(tally, server, primary, sha)
            compare(tally, primary, replica, "after long rings")
            check_replica(tally, primary, replica)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
