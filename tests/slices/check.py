#!/usr/bin/env python3
"""Random plans of processes that slice a limit: no admission is over it (judge.py); and
mistakes that one could build in are found.

    check.py [--plans N] [--mistakes N] [--seed S]    --seed: of the plans; those with mistakes are always the same
"""
import argparse
import subprocess
import sys

import judge
from lib import build, checks

PROGRAM = build.BUILD / "tests" / "slices_plans"
# The mistakes of world.h: in which limits they show soonest, and from which plan on (the plans are always the same).
MISTAKES = {
    "unreduced": ("", 1), "greedy": ("sliding-log", 1), "from-answer": ("fixed-window 60", 1), "no-slot": ("sliding-", 1),
    "kept": ("bucket", 1), "past-window": ("fixed-window 60", 1), "late-answer": ("fixed-window", 1),
    "late-return": (" 100/s burst", 1), "uncounted-return": (" 100/s burst", 180),
}


def plans(first, count, mistake="none", word=""):
    """(seed, limit, admissions, charges, end) of each plan."""
    with subprocess.Popen([PROGRAM, str(first), str(count), mistake, word], stdout=subprocess.PIPE, text=True) as it:
        for line in it.stdout:
            word, rest = line.split(" ", 1)
            if word == "A":
                time, cost = rest.split()
                admissions.append((int(time), int(cost)))
            elif word == "S":
                admissions.append(tuple(map(int, rest.split())))
            elif word in "CR":
                charges.append((word, *map(int, rest.split())))
            elif word == "plan":
                seed, text = rest.strip().split(" ", 1)
                admissions, charges = [], []
            else:
                yield int(seed), text, admissions, charges, rest.split()
    if it.returncode:
        raise RuntimeError(f"{PROGRAM} ended with {it.returncode}")


def test_plans(check, first, count):
    sums = dict.fromkeys(("local", "denied", "central", "calls", "returned", "lost"), 0)
    admitted = 0
    for seed, text, admissions, charges, end in plans(first, count):
        found = judge.problems(judge.one(text), admissions, charges)
        check(not found, f"plan {seed}, {text}: {len(found)} over, first {found[:1]}")
        admitted += len(admissions)
        for name, value in zip(end[2::2], end[3::2]):
            sums[name] += int(value)
    print(f"{count} plans from {first}: {admitted} admissions; " + ", ".join(f"{value} {name}" for name, value in sums.items()))
    check(sums["local"] > admitted // 4, "slices are used")
    check(sums["returned"] > 0 and sums["lost"] > 0, "slices are given back, and lost")


def test_mistakes(check, most):
    """Each is found."""
    for mistake, (word, first) in MISTAKES.items():
        tried, found = 0, []
        for seed, text, admissions, charges, _ in plans(first, most, mistake, word):
            tried += 1
            found = judge.problems(judge.one(text), admissions, charges)
            if found:
                print(f"{mistake}: found after {tried} plans (seed {seed}, {text}): {found[0]}")
                break
        check(found, f"{mistake} was not found by {most} plans")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", type=int, default=600)
    parser.add_argument("--mistakes", type=int, default=400, help="at most so many plans for each")
    parser.add_argument("--seed", type=int, default=checks.seed())
    chosen = parser.parse_args()
    check = checks.Checks()
    first = chosen.seed % (1 << 40)
    print(f"seed {chosen.seed}")
    test_plans(check, first, chosen.plans)
    test_mistakes(check, chosen.mistakes)
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
