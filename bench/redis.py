#!/usr/bin/env python3
"""weir on a Redis server beside INCR and the scripts of articles (make bench-redis).

    bench/redis.py [--rounds N] [--only WORD] [--no-replica]

One server with the module, asked row by row in interleaved rounds, pipelined by 16 and not at all; then
another with AOF and a replica. A figure is the server's CPU time a command; a ratio is the median of the
rounds' ratios to the INCR of the same round. What weir loses is printed as well; nothing here fails on a
time, but a row whose replies are not what it is about ends the run. README.md says more.
"""
import argparse
import dataclasses
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT / "tests"))

from lib import lua_cases, redis_server, resp

CONNECTIONS = 50
PIPELINES = {16: 30_000, 1: 8_000}  # commands a measurement
KEYS, LARGE_KEYS, MEMORY_KEYS = 100_000, 100, 200_000
KEY = "user:x" + "#" * 10  # 16 bytes; the load puts a number in
LEASE = "@" * 15
TIME = "~" * 13  # milliseconds, by the client's clock
HOUR = 3_600_000_000
ALLOWED, DENIED, ANY = "allowed", "denied", ""


@dataclasses.dataclass
class Row:
    name: str
    command: tuple
    expect: str = ANY
    then: tuple = None      # a second command for the same key
    fill: tuple = None      # writes every key once; the command itself unless given
    prepare: object = None  # makes a command that writes every key again, each round
    keys: int = KEYS
    zero_is_allowed: bool = False
    group: str = ""


# ---- rows ----

def ring(kind, period, precision, entries):
    """A command that writes a ring of so many entries, spread over the period (docs/STATE.md)."""
    def command():
        now, capacity = int(time.time() * 1e6), 2
        while capacity < entries + 4:
            capacity = capacity * 2 + 2
        stamps = [now - period + (i + 1) * period // (entries + 1) for i in range(entries)]
        head = bytes([0xF7, 1, kind]) + b"".join(
            number.to_bytes(size, "little") for number, size in
            [(period, 6), (precision, 6), (capacity, 4), (0, 4), (entries, 4), (stamps[-1], 7), (entries, 7),
             (0, 1)])
        cells = b"".join(struct.pack("<QQ", stamp, 1) for stamp in stamps)
        return ("SET", KEY, head + cells.ljust(capacity * 16, b"\0"), "PXAT", (stamps[-1] + period) // 1000 + 1)
    return command


def zset(entries):
    def command():
        now = int(time.time() * 1e6)
        pairs = [(now // 1000 - i * 300_000, f"{now // 1_000_000}.{i:06}") for i in range(entries)]
        return ("ZADD", KEY, *(word for pair in pairs for word in pair))
    return command


def lean(limit, words=("EVALSHA",)):
    it = lua_cases.parse(limit)[0]
    name = it.lean()
    script = lua_cases.sha1(name) if words[0] == "EVALSHA" else "weir_" + name
    return (words[0], script, 1, KEY, *it.lean_arguments(1, -1))


def general(limit):
    return ("EVALSHA", lua_cases.sha1("weir"), 1, KEY, *lua_cases.general("take", lua_cases.parse(limit)))


def naive(shas, name, *arguments):
    return ("EVALSHA", shas[name], 1, KEY, *arguments)


def take(limit):
    return ("WEIR.TAKE", KEY, limit)


# Debts that outlive the run, so that no key expires meanwhile.
PLENTY, ONCE = "token-bucket 1/h burst 1m", "token-bucket 1/366d"
LOG, WINDOW = "sliding-log 100k/h", "sliding-window 100k/h"
FINE_WINDOW = "sliding-window 100k/h precision 360ms"


def all_rows(shas):
    a_day = 1 / 86_400_000
    yield from label("plain", [
        Row("PING", ("PING",)),
        Row("INCR", ("INCR", KEY)),
        Row("INCR, 100 keys", ("INCR", KEY), keys=LARGE_KEYS),
        Row("INCR, keys with TTL", ("INCR", KEY), fill=("SET", KEY, 1, "PX", HOUR // 1000)),
        Row("GET, keys with TTL", ("GET", KEY), fill=("SET", KEY, "x" * 28, "PX", HOUR // 1000)),
        Row("SET PX", ("SET", KEY, "x" * 28, "PX", HOUR // 1000)),
    ])
    yield from label("module", [
        Row("token-bucket", take(PLENTY), ALLOWED),
        Row("token-bucket, denied", take(ONCE), DENIED),
        Row("CL.THROTTLE", ("CL.THROTTLE", KEY, 999_999, 1, 3600), ALLOWED, zero_is_allowed=True),
        Row("CL.THROTTLE, denied", ("CL.THROTTLE", KEY, 0, 1, 31_622_400), DENIED, zero_is_allowed=True),
        Row("leaky-bucket", take("leaky-bucket 1/h burst 1m"), ALLOWED),
        Row("fixed-window", take("fixed-window 1m/366d"), ALLOWED),
        Row("sliding-counter", take("sliding-counter 1m/366d"), ALLOWED),
        Row("sliding-log, 10 entries", take(LOG), ALLOWED, prepare=ring(5, HOUR, 0, 10)),
        Row("sliding-log, 10k entries", take(LOG), ALLOWED, prepare=ring(5, HOUR, 0, 10_000),
            keys=LARGE_KEYS),
        Row("sliding-window, 10 slots", take(WINDOW), ALLOWED, prepare=ring(6, HOUR, HOUR // 10, 10)),
        Row("sliding-window, 10k slots", take(FINE_WINDOW), ALLOWED,
            prepare=ring(6, HOUR, 360_000, 9_990), keys=LARGE_KEYS),
        Row("acquire and release, each", ("WEIR.ACQUIRE", KEY, "concurrent 100k lease 1h"), ANY,
            then=("WEIR.RELEASE", KEY, "concurrent 100k lease 1h", LEASE)),
    ])
    yield from label("our Lua", [
        Row("token-bucket", lean(PLENTY), ALLOWED),
        Row("token-bucket, denied", lean(ONCE), DENIED),
        Row("token-bucket by FCALL", lean(PLENTY, ("FCALL",)), ALLOWED),
        Row("token-bucket, general script", general(PLENTY), ALLOWED),
        Row("two limits, general script", general(f"{PLENTY}, fixed-window 1m/366d"), ALLOWED),
        Row("two limits, one denies", general(f"{ONCE}, fixed-window 1m/366d"), DENIED,
            fill=general(f"{ONCE}, fixed-window 1m/366d")),
        Row("two limits, a log of 90k", general(f"{PLENTY}, {LOG}"), ALLOWED, prepare=ring(5, HOUR, 0, 90_000), keys=4),
        Row("sliding-log, 10 entries", lean(LOG), ALLOWED, prepare=ring(5, HOUR, 0, 10)),
        Row("sliding-log, 10k entries", lean(LOG), ALLOWED, prepare=ring(5, HOUR, 0, 10_000),
            keys=LARGE_KEYS),
    ])
    yield from label("naive Lua", [
        Row("hash token bucket", naive(shas, "naive_bucket", 1_000_000, a_day, TIME, 1), ALLOWED),
        Row("hash token bucket, denied", naive(shas, "naive_bucket", 1, a_day, TIME, 1), DENIED),
        Row("the same, denials unwritten", naive(shas, "naive_careful", 1, a_day, TIME, 1), DENIED),
        Row("GCRA, one key", naive(shas, "naive_gcra", 1_000_000, HOUR, 1), ALLOWED),
        Row("GCRA, one key, denied", naive(shas, "naive_gcra", 1, 366 * 24 * HOUR, 1), DENIED),
        Row("zset log, 10 entries", naive(shas, "naive_log", 100_000, HOUR // 1000), ALLOWED,
            prepare=zset(10)),
    ])


def label(group, rows):
    for row in rows:
        row.group = group
        yield row


# With AOF and a replica.
REPLICATED = [("plain", "INCR"), ("plain", "INCR, 100 keys"), ("plain", "SET PX"),
              ("module", "token-bucket"), ("module", "token-bucket, denied"), ("module", "sliding-log, 10k entries"),
              ("our Lua", "token-bucket"), ("our Lua", "token-bucket, denied"),
              ("naive Lua", "hash token bucket"), ("naive Lua", "hash token bucket, denied")]


# ---- measuring ----

class Bench:
    """Rows on one server, each in a database of its own, so that every table has its row's keys alone."""

    def __init__(self, server, load, replicas=0):
        self.server, self.load, self.replicas = server, load, replicas
        self.folder = pathlib.Path(server.folder)
        self.rows, self.figures, self.rates = [], {}, {}
        with server.client() as client:
            self.shas = load_scripts(client)

    def template(self, name, words):
        path = self.folder / name
        path.write_bytes(resp.encode(words))
        return str(path)

    def ask(self, db, pipeline, commands, keys, order, templates):
        words = [self.server.port, db, CONNECTIONS, pipeline, commands, keys, order, self.replicas, *templates]
        done = subprocess.run([str(self.load), *map(str, words)], text=True, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit("the load failed")
        wall, cpu, *counts = done.stdout.split()
        return float(wall), float(cpu), [int(count) for count in counts]

    def add(self, rows):
        for row in rows:
            db = len(self.rows) + 1
            self.rows.append(row)
            if not row.prepare and not row.then:
                once = self.template("once", row.fill or row.command)
                self.ask(db, 16, row.keys, row.keys, "each", [once])

    def prepare(self, row):
        if row.prepare:
            words = self.template("prepare", row.prepare())
            self.ask(self.rows.index(row) + 1, 16 if row.keys == KEYS else 1, row.keys, row.keys, "each", [words])

    def measure(self, row, pipeline):
        db = self.rows.index(row) + 1
        templates = [self.template("command", row.command)]
        if row.then:
            templates.append(self.template("then", row.then))
        commands = PIPELINES[pipeline]
        wall, cpu, counts = self.ask(db, pipeline, commands, row.keys, "random", templates)
        check(row, counts, commands)
        self.figures.setdefault((row.group, row.name, pipeline), []).append(cpu / commands)
        self.rates.setdefault((row.group, row.name, pipeline), []).append(commands / wall)

    def round(self):
        for row in self.rows:
            self.prepare(row)
        for pipeline in PIPELINES:
            for row in self.rows:
                self.measure(row, pipeline)

    def cpu(self, row, pipeline):
        return statistics.median(self.figures[(*row, pipeline)])

    def ratio(self, row, base, pipeline):
        """The median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.figures[(*row, pipeline)],
                                                       self.figures[(*base, pipeline)]))


def check(row, counts, commands):
    ones, zeros, _, errors = counts
    allowed, denied = (zeros, ones) if row.zero_is_allowed else (ones, zeros)
    wanted = {ALLOWED: allowed, DENIED: denied, ANY: commands}[row.expect]
    if errors or wanted != commands:
        sys.exit(f"{row.group}, {row.name}: {allowed} allowed, {denied} denied, {errors} errors of {commands}")


def load_scripts(client):
    lua_cases.load(client, "weir", *lua_cases.LEAN)
    client.call("FUNCTION", "LOAD", lua_cases.SCRIPTS["weir_library"])
    return {path.stem: client.call("SCRIPT", "LOAD", path.read_text(encoding="utf-8")).decode()
            for path in (ROOT / "bench").glob("naive_*.lua")}


def build_load():
    source, program = ROOT / "bench/redis_load.c", BUILD / "bench/redis-load"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*os.environ.get("CC", "cc").split(), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra",
                        "-o", str(program), str(source)], check=True)
    return program


# ---- bytes per key ----

SIZED = [("plain", "INCR"), ("plain", "SET PX"), ("module", "token-bucket"), ("module", "fixed-window"),
         ("naive Lua", "hash token bucket"), ("naive Lua", "GCRA, one key")]


def used_memory(client):
    """Once tables have grown and nothing moves any more."""
    last = None
    for _ in range(50):
        words = dict(line.split(":", 1) for line in client.call("INFO", "memory").decode().splitlines()
                     if ":" in line)
        now = int(words["used_memory"])
        if last is not None and abs(now - last) < 20_000:
            return now
        last = now
        time.sleep(0.15)
    return last


def memory(bench, rows):
    found = {}
    with bench.server.client() as client:
        client.call("SELECT", 1)
        for row in rows:
            client.call("FLUSHDB", "SYNC")
            before = used_memory(client)
            bench.ask(1, 16, MEMORY_KEYS, MEMORY_KEYS, "each", [bench.template("memory", row.command)])
            found[(row.group, row.name)] = (used_memory(client) - before) / MEMORY_KEYS
        client.call("FLUSHDB", "SYNC")
    return found


# ---- showing ----

INCR, INCR_FEW = ("plain", "INCR"), ("plain", "INCR, 100 keys")
NAIVE = ("naive Lua", "hash token bucket")


def show(bench):
    print(f"  {'':30} {'pipelined 16':^27}   {'one at a time':^27}")
    print(f"  {'':30} {'µs':>7} {'x INCR':>8} {'a second':>10}   {'µs':>7} {'x INCR':>8} {'a second':>10}")
    group = None
    for row in bench.rows:
        if row.group != group:
            group = row.group
            print(f"  {group}")
        cells = []
        for pipeline in PIPELINES:
            name = (row.group, row.name)
            rate = statistics.median(bench.rates[(*name, pipeline)])
            cells.append(f"{bench.cpu(name, pipeline):7.2f} {bench.ratio(name, INCR, pipeline):7.2f}x {rate:10,.0f}")
        print(f"    {row.name:28} {cells[0]}   {cells[1]}")


AIMS = [
    ("module token-bucket / INCR", ("module", "token-bucket"), INCR, 2.0),
    ("module token-bucket, denied / INCR", ("module", "token-bucket, denied"), INCR, 1.2),
    ("module sliding-log, 10 / INCR", ("module", "sliding-log, 10 entries"), INCR, 2.5),
    ("module sliding-log, 10k / INCR", ("module", "sliding-log, 10k entries"), INCR, 2.5),
    ("… / INCR of as few keys", ("module", "sliding-log, 10k entries"), INCR_FEW, 2.5),
    ("module sliding-window, 10 / INCR", ("module", "sliding-window, 10 slots"), INCR, 2.5),
    ("module sliding-window, 10k / INCR", ("module", "sliding-window, 10k slots"), INCR, 2.5),
    ("… / INCR of as few keys", ("module", "sliding-window, 10k slots"), INCR_FEW, 2.5),
    ("Lua token-bucket / naive", ("our Lua", "token-bucket"), NAIVE, 1.0),
    ("Lua token-bucket, denied / naive", ("our Lua", "token-bucket, denied"),
     ("naive Lua", "hash token bucket, denied"), 0.7),
]


def verdict(name, values, aim):
    shown = "  ".join(f"{value:6.2f}" for value in values)
    print(f"  {name:48} {shown:16} aim <= {aim:<5} {'met' if max(values) <= aim else 'MISSED'}")


def verdicts(benches, bytes_a_key):
    print("\naims: pipelined 16, one at a time; both must")
    for bench, suffix in benches:
        measured = {(row.group, row.name) for row in bench.rows}
        for name, row, base, aim in AIMS:
            if {row, base} <= measured:
                verdict(name + suffix, [bench.ratio(row, base, pipeline) for pipeline in PIPELINES], aim)
    if ("module", "token-bucket") in bytes_a_key:
        verdict("bytes per key, module token-bucket", [bytes_a_key[("module", "token-bucket")]], 200)


def start(options, module=BUILD / "weir_redis.so"):
    return redis_server.Server(f"--loadmodule {module} --databases 64 {options}")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", metavar="WORD", help="rows with it in their name, and INCR")
    options.add_argument("--no-replica", action="store_true", help="leave the second server out")
    given = options.parse_args()
    if not (BUILD / "weir_redis.so").exists():
        sys.exit("build/weir_redis.so is missing: run make")
    run(given, build_load())


def chosen(rows, given):
    return [row for row in rows
            if not given.only or given.only in f"{row.group} {row.name}" or row.name.startswith("INCR")]


def run(given, load):
    began = time.monotonic()
    with start("") as server:
        bench = Bench(server, load)
        rows = chosen(all_rows(bench.shas), given)
        bytes_a_key = memory(bench, [row for row in rows if (row.group, row.name) in SIZED])
        bench.add(rows)
        rounds("first server", given.rounds, bench)
        with server.client() as client:
            version = client.call("INFO", "server").decode().split("redis_version:")[1].split()[0]
    print(f"redis-server {version}, {os.cpu_count()} cores, {CONNECTIONS} connections, {KEYS:,} random keys, "
          f"{given.rounds} interleaved rounds, medians\n\nserver CPU a command, no persistence")
    show(bench)
    benches = [(bench, "")]
    if not given.no_replica:
        benches.append((replicated(given, load), ", replicated"))
    print("\nbytes per key, 16-byte names, all but INCR with a time to live")
    for (group, name), value in bytes_a_key.items():
        print(f"    {group + ', ' + name:44} {value:6.1f}")
    verdicts(benches, bytes_a_key)
    print(f"\n{time.monotonic() - began:.0f} s")


def replicated(given, load):
    quiet = "--client-output-buffer-limit 'replica 0 0 0'"
    aof = "--appendonly yes --appendfsync everysec --auto-aof-rewrite-percentage 0"
    with start(f"{aof} {quiet}") as server:
        with redis_server.Server(f"--replicaof 127.0.0.1 {server.port} --databases 64") as replica:
            wait_for(replica)
            bench = Bench(server, load, replicas=1)
            bench.add([row for row in chosen(all_rows(bench.shas), given) if (row.group, row.name) in REPLICATED])
            rounds("with a replica", given.rounds, bench)
    print("\nserver CPU a command, AOF every second and a replica")
    show(bench)
    return bench


def wait_for(replica):
    end = time.monotonic() + 20
    with replica.client() as client:
        while b"master_link_status:up" not in client.call("INFO", "replication"):
            if time.monotonic() > end:
                sys.exit("the replica does not come up")
            time.sleep(0.05)


def rounds(what, count, bench):
    for number in range(count):
        print(f"\r{what}: round {number + 1} of {count}", end="", file=sys.stderr, flush=True)
        bench.round()
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
