"""Latency by a fixed schedule: at half of what the slower server can do, beside a flood of keys never seen, and beside
clients that ask as much as they can.

A latency counts from when its request was due, so that a server that stalls is charged for all who waited. One client
thread sends both the honest requests and the flood: what it delays itself is in both columns, which is why the
flood stands beside as many requests for keys that are known.
"""
import dataclasses
import statistics

from . import quiet, rows
from .measure import ALLOWED, Row, progress

POINTS = ("p50", "p99", "p99.9")
HONEST_RATE, HONEST_CONNECTIONS = 2_000, 10
PIPELINE, CROWD = 256, 8


def closed(loader, row, seconds):
    """What the server can do at most, asked now."""
    return loader.run(row, "--seconds", seconds, "--warmup", seconds / 10)["a_second"]


def median_points(found):
    return [statistics.median(one["latency_us"][point] for one in found) for point in POINTS]


def latency(loader, given, servers):
    pairs = [("RESP", [Row("redis INCR", "redis", "resp", ("INCR", rows.KEY)),
                       Row("weir take", "weir", "resp", ("WEIR.TAKE", rows.KEY, rows.PLENTY), ALLOWED)]),
             ("HTTP", [Row("nginx return 200", "nginx", "http", ("GET", rows.path(rows.KEY, rows.PLENTY)), ALLOWED),
                       Row("weir GET take", "weir", "http", ("GET", rows.path(rows.KEY, rows.PLENTY)), ALLOWED)])]
    for title, members in pairs:
        members = [row for row in members if row.server in servers]
        slower = min(closed(loader, row, given.seconds) for row in members)
        rate = round(slower / 2, -3)
        found = {row.name: [] for row in members}
        for number in range(given.rounds):
            for row in members:
                progress(f"latency, {title}: round {number + 1} of {given.rounds}")
                found[row.name].append(loader.run(row, "--rate", rate, "--seconds", 2 * given.seconds, "--warmup",
                                                  given.seconds / 10))
        progress("")
        print(f"\n{title} by a fixed schedule, {rate:,.0f} requests a second (half of what the slower one can): µs")
        show_points(found)


def show_points(found):
    print(f"  {'':34}" + "".join(f"{point:>9}" for point in POINTS) + f"{'worst':>9} {'others had':>12}")
    for name, runs in found.items():
        worst = max(one["latency_us"]["max"] for one in runs)
        others = statistics.median(one["others"] for one in runs)
        print(f"  {name:34}" + "".join(f"{value:9.0f}" for value in median_points(runs)) + f"{worst:9.0f} "
              f"{others:8.0%}" + (" of a core: noisy" if others > quiet.NOISY else ""))


def flood(loader, given, servers):
    """An honest client alone, beside requests for known keys, beside the flood; at half of the capacity."""
    if "weir, small zone" not in servers:
        return
    honest = Row("honest", "weir, small zone", "resp", ("WEIR.TAKE", "honest:##########", rows.PLENTY), ALLOWED,
                 connections=HONEST_CONNECTIONS)
    known = Row("known keys", "weir, small zone", "resp", ("WEIR.TAKE", rows.KEY, rows.PLENTY), ALLOWED)
    loader.fill(known)
    before = servers["weir, small zone"].resident_kb()
    first = 1_000_000
    for pipeline in (1, 16):
        crowd = dataclasses.replace(known, pipeline=pipeline)
        fresh = dataclasses.replace(crowd, name="never-seen keys")
        rate = round(closed(loader, crowd, given.seconds) / 2, -3)
        found = {"alone": [], "beside known keys": [], "beside never-seen keys": []}
        for number in range(given.rounds):
            progress(f"flood, pipelined {pipeline}: round {number + 1} of {given.rounds}")
            slow = ("--rate", HONEST_RATE, "--keys", 1000, "--seconds", 2 * given.seconds)
            found["alone"].append(loader.run(honest, *slow))
            found["beside known keys"].append(
                loader.run(honest, *slow, and_then=(crowd, ("--rate", rate))))
            found["beside never-seen keys"].append(
                loader.run(honest, *slow, and_then=(fresh, ("--rate", rate, "--order", "fresh", "--first", first))))
            first += int(rate * 2 * given.seconds) + 1
        progress("")
        how = "one at a time" if pipeline == 1 else f"pipelined {pipeline}"
        print(f"\nan honest client, {HONEST_RATE:,} requests a second, beside {rate:,.0f} a second, {how} (half of the "
              "capacity): µs")
        show_points(found)
    print(f"  a zone of 8 MiB, {first - 1_000_000:,} keys never seen; the process {before // 1024} MiB before, "
          f"{servers['weir, small zone'].resident_kb() // 1024} MiB after")


def beside(loader, given, servers):
    """An honest client beside others that keep long pipelines full."""
    if "weir" not in servers:
        return
    honest = Row("honest", "weir", "resp", ("WEIR.TAKE", "honest:##########", rows.PLENTY), ALLOWED,
                 connections=HONEST_CONNECTIONS)
    take, get = ("WEIR.TAKE", rows.KEY, rows.PLENTY), ("GET", rows.path(rows.KEY, rows.PLENTY))
    crowds = {"alone": None,
              f"beside {CROWD} of RESP": Row("crowd", "weir", "resp", take, connections=CROWD, pipeline=PIPELINE),
              f"beside {CROWD} of HTTP": Row("crowd", "weir", "http", get, connections=CROWD, pipeline=PIPELINE),
              f"beside {CROWD} of /metrics": Row("crowd", "weir", "http", ("GET", "/metrics"), connections=CROWD,
                                                 pipeline=16)}
    found = {name: [] for name in crowds}
    for number in range(given.rounds):
        for name, crowd in crowds.items():
            progress(f"beside pipelines: round {number + 1} of {given.rounds}, {name}")
            found[name].append(loader.run(honest, "--rate", HONEST_RATE, "--keys", 1000, "--seconds", 2 * given.seconds,
                                          and_then=(crowd, ("--rate", "max")) if crowd else None))
    progress("")
    print(f"\nan honest client, {HONEST_RATE:,} requests a second, beside connections whose pipelines are always full "
          f"({PIPELINE} takes, 16 of /metrics): µs")
    show_points(found)
