#!/usr/bin/env python3
"""Peers and weir side by side: interleaved rounds in one run, medians and ratios (make bench).

    bench/run.py [--rounds N] [--no-peers]

Workers (bench/worker.h, bench/peers/) are started once and asked in turn, so that what the machine does
meanwhile hits all alike. A figure is the wall time of a decision a thread. What weir loses is printed
as well; nothing here fails on a time.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
OPS = {"hot": 3_000_000, "million": 1_000_000, "flood": 500_000, "large": 200_000}
LARGE = {"log": "logs", "window": "windows", "lease": "leases, acquired and released, or refused"}


class Worker:
    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, cwd=ROOT)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{name} did not start")

    def ask(self, scenario, threads, ops):
        self.process.stdin.write(f"run {scenario} {threads} {ops}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 3 or answer[0] != scenario:
            sys.exit(f"{self.name}: {scenario} {threads}: {' '.join(answer)}")
        return float(answer[2])

    def resident_kb(self):
        for line in open(f"/proc/{self.process.pid}/status", encoding="ascii"):
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0

    def close(self):
        self.process.stdin.write("quit\n")
        self.process.stdin.close()
        self.process.wait()


def build_ours():
    subprocess.run(["ninja", "-C", str(BUILD), "bench/bench-weir", "bench/bench-floor"], check=True,
                   stdout=subprocess.DEVNULL)


def start(peers):
    workers = {"weir": Worker("weir", [str(BUILD / "bench/bench-weir")]),
               "floor": Worker("floor", [str(BUILD / "bench/bench-floor")])}
    if peers:
        built = subprocess.run([str(ROOT / "bench/peers/build.sh")], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.split("\n")
        workers["Guava"] = Worker("Guava", [built[0]])
        workers["x/time/rate"] = Worker("x/time/rate", [built[1]])
    return workers


def rows(peers):
    """(title, ops, [(worker, scenario, label)]) in the order they are asked."""
    def others(scenario):
        return [(name, scenario, name) for name in ("Guava", "x/time/rate")] if peers else []
    return [
        ("one hot key, allowed", OPS["hot"], [
            ("weir", "hot-allowed", "weir, key hashed once"), ("weir", "text-allowed", "weir, text key"),
            ("weir", "shm-allowed", "weir, shm, hashed once"),
            *others("hot-allowed"), ("floor", "floor-hot-allowed", "floor")]),
        ("one hot key, denied", OPS["hot"], [
            ("weir", "hot-denied", "weir, key hashed once"), ("weir", "text-denied", "weir, text key"),
            *others("hot-denied"), ("floor", "floor-hot-denied", "floor")]),
        ("a million random keys", OPS["million"], [
            ("weir", "million", "weir, text key"), *others("million"),
            ("floor", "floor-million", "floor")]),
        ("a million random keys, by sixteens", OPS["million"], [
            ("weir", "million-batch", "weir_take_many"),
            ("floor", "floor-million-batch", "floor")]),
        ("a full zone", OPS["flood"], [
            ("weir", "settled", "keys it holds"), ("weir", "flood", "never-seen keys")]),
        *[(f"a full area for large states: {what}", OPS["large"], [
            ("weir", f"{name}-known", "keys it holds"), ("weir", f"{name}-flood", "never-seen keys")])
          for name, what in LARGE.items()],
    ]


def measure(workers, table, rounds):
    figures = {}
    for number in range(rounds):
        print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for _, ops, entries in table:
            for threads in (1, 2):
                for worker, scenario, _ in entries:
                    ns = workers[worker].ask(scenario, threads, ops)
                    figures.setdefault((scenario, worker, threads), []).append(ns)
    print("\r" + " " * 20 + "\r", end="", file=sys.stderr)
    return {key: statistics.median(values) for key, values in figures.items()}


def show(table, figures):
    for title, _, entries in table:
        ours = figures[(entries[0][1], entries[0][0], 1)], figures[(entries[0][1], entries[0][0], 2)]
        print(f"\n{title}: ns a decision, 1 thread / 2 threads (and how many times the first row's)")
        for worker, scenario, label in entries:
            one, two = figures[(scenario, worker, 1)], figures[(scenario, worker, 2)]
            print(f"  {label:28} {one:8.1f} {two:8.1f}   {one / ours[0]:5.2f}x {two / ours[1]:5.2f}x")


def verdicts(figures, peers):
    def figure(scenario, worker, threads=1):
        return figures[(scenario, worker, threads)]
    lines = [
        ("million keys / floor", figure("million", "weir") / figure("floor-million", "floor"), "<=", 1.3),
        ("weir_take_many, ns", figure("million-batch", "weir"), "<=", 80),
        ("weir_take_many / floor", figure("million-batch", "weir") / figure("floor-million-batch", "floor"), "<=", 1.4),
        ("a hot key, two threads / floor", figure("hot-allowed", "weir", 2) / figure("floor-hot-allowed", "floor", 2), "<=", 1.15),
        ("shared / private memory", figure("shm-allowed", "weir") / figure("hot-allowed", "weir"), "<=", 1.3),
        ("two threads' scaling / the floor's", figure("million", "weir") / figure("million", "weir", 2)
         * figure("floor-million", "floor", 2) / figure("floor-million", "floor"), ">=", 0.95),
        ("flood / settled", figure("flood", "weir") / figure("settled", "weir"), "<=", 3),
        *[(f"full of large states, {name}: new / known",
           figure(f"{name}-flood", "weir") / figure(f"{name}-known", "weir"), "<=", 5) for name in LARGE],
    ]
    if peers:
        guava, go = figure("hot-allowed", "Guava"), figure("hot-allowed", "x/time/rate")
        lines += [
            ("hashed key / Guava", figure("hot-allowed", "weir") / guava, "<=", 1),
            ("x/time/rate / hashed key", go / figure("hot-allowed", "weir"), ">=", 2.5),
            ("text key / Guava", figure("text-allowed", "weir") / guava, "<=", 1.4),
            ("Guava / weir, million keys", figure("million", "Guava") / figure("million", "weir"), ">=", 3),
            ("x/time/rate / weir, million keys",
             figure("million", "x/time/rate") / figure("million", "weir"), ">=", 3),
        ]
    print("\naims")
    for name, value, sign, aim in lines:
        met = value <= aim if sign == "<=" else value >= aim
        print(f"  {name:38} {value:7.2f}   aim {sign} {aim:<5} {'met' if met else 'MISSED'}")


def memory(workers, peers):
    print("\nbytes per key")
    ours = subprocess.run([str(BUILD / "bench/bench-weir"), "memory"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    print("  " + ours.replace("\n", "\n  "))
    if peers:
        for name in ("Guava", "x/time/rate"):
            print(f"  {name}, a million limiters in a map: {workers[name].ask('memory', 1, 0):.1f}, "
                  "and the key's own text")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--no-peers", action="store_true")
    given = options.parse_args()
    peers = not given.no_peers
    build_ours()
    workers = start(peers)
    table = rows(peers)
    before = workers["weir"].resident_kb()
    figures = measure(workers, table, given.rounds)
    after = workers["weir"].resident_kb()
    print(f"{os.cpu_count()} cores, {given.rounds} interleaved rounds, medians")
    show(table, figures)
    print(f"\nthe process under the flood: {before // 1024} MiB before, {after // 1024} MiB after")
    memory(workers, peers)
    verdicts(figures, peers)
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
