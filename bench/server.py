#!/usr/bin/env python3
"""weir serve beside redis-server and nginx, over RESP, HTTP and gRPC (make bench-server).

    bench/server.py [SECTION…] [--rounds N] [--quick] [--peers] [--build DIR]

Sections: resp, http, grpc, latency, flood, beside, cross; all unless some are named. All servers are up and idle but the
one that is asked; they run on one core, the client on another. Figures are the server's CPU time per request and
requests a second, medians of interleaved rounds; a ratio is the median of the rounds' ratios. What weir loses is printed
as well; nothing here fails on a time, but answers other than those a row is about end the run. README.md says more.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
from server import cross, measure, open_loop, quiet, rows, servers as the_servers  # noqa: E402

TABLES = {"resp": (rows.resp, rows.INCR, "RESP, 50 connections"),
          "http": (rows.http, rows.NGINX, "HTTP/1.1, 50 connections"),
          "grpc": (rows.grpc, rows.GET, "gRPC, 4 connections of 16 streams, and 50 of one")}
SECTIONS = [*TABLES, "latency", "flood", "beside", "cross"]


def arguments():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("sections", metavar="SECTION", nargs="*", help=", ".join(SECTIONS) + "; all by default")
    options.add_argument("--rounds", type=int)
    options.add_argument("--quick", action="store_true", help="three short rounds")
    options.add_argument("--peers", action="store_true", help="leave weir out")
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    given = options.parse_args()
    for name in given.sections:
        if name not in SECTIONS:
            options.error(f"no section {name}; there are {', '.join(SECTIONS)}")
    given.sections = given.sections or SECTIONS
    given.seconds = 0.3 if given.quick else 1.0
    given.rounds = given.rounds or (3 if given.quick else 5)
    given.build = given.build.resolve()
    return given


def build_load(build):
    subprocess.run(["ninja", "-C", str(build), "bench/bench-load", "bench/bench-echo"], check=True,
                   stdout=subprocess.DEVNULL)
    return build / "bench/bench-load"


# ---- showing ----

def show_table(figures, title, base, table):
    present = [row for row in table if figures.has(row.key())]
    names = list(dict.fromkeys(row.name for row in present))
    against = base if figures.has((base, 1)) else None
    print(f"\n{title}: server CPU per request" + (f", how many times that of {against}" if against else ""))
    print(f"  {'':30} {'pipelined 16':^34}   {'one at a time':^34}")
    head = f"{'µs':>7} {'ratio':>8} {'a second':>10} {'idle':>5}"
    print(f"  {'':30} {head}     {head}")
    for name in names:
        cells = []
        for pipeline in rows.PIPELINES:
            key = (name, pipeline)
            if not figures.has(key):
                cells.append(" " * 33)
                continue
            ratio = f"{figures.ratio(key, (base, pipeline)):7.2f}x" if figures.has((base, pipeline)) else " " * 8
            cells.append(f"{figures.cpu_us(key):7.2f} {ratio} {figures.a_second(key):10,.0f} "
                         f"{figures.client_idle(key):4.0%} ")
        print(f"  {name:30} {cells[0]}   {cells[1]}".rstrip())


def show_aims(figures):
    lines = []
    for name, key, base, how, sign, aim in rows.AIMS:
        if figures.has(key, base):
            value = figures.ratio(key, base)
            value = value if how == "cpu" else 1 / value
            met = value <= aim if sign == "<=" else value >= aim
            lines.append(f"  {name:58} {value:6.2f}   aim {sign} {aim:<4} {'met' if met else 'MISSED'}")
    if lines:
        print("\naims", *lines, sep="\n")


def run(given, servers):
    loader = measure.Loader(given.build / "bench/bench-load", servers)
    tables = {name: [row for row in TABLES[name][0]() if row.server in servers]
              for name in given.sections if name in TABLES}
    asked = [row for table in tables.values() for row in table]
    if "grpc" in tables and "http" not in tables:
        asked += [row for row in rows.http() if row.name == rows.GET and row.server in servers]
    figures = measure.measure(loader, asked, given.rounds, given.seconds)
    print(f"{servers.version('redis')}, {servers.version('nginx')}, {os.cpu_count()} cores, {measure.KEYS:,} random keys, "
          f"{given.rounds} interleaved rounds of {given.seconds:g} s, medians\nidle: the share of time in which the "
          "client had nothing to do; near none, the client is the bottleneck and the CPU is what tells")
    for name, table in tables.items():
        show_table(figures, TABLES[name][2], TABLES[name][1], table)
    if "latency" in given.sections:
        open_loop.latency(loader, given, servers)
    if "flood" in given.sections:
        open_loop.flood(loader, given, servers)
    if "beside" in given.sections:
        open_loop.beside(loader, given, servers)
    if "cross" in given.sections:
        cross.cross(given, servers)
    show_aims(figures)
    if figures.noisy():
        print(f"\nin {figures.noisy()} of {len(figures.others)} measurements of the tables others had more than "
              f"{quiet.NOISY:.0%} of a core: go by the CPU, not by what was done a second")


def main():
    given = arguments()
    began = time.monotonic()
    build_load(given.build)
    with the_servers.Servers(given.build, with_weir=not given.peers) as servers:
        run(given, servers)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
