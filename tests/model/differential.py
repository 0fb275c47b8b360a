#!/usr/bin/env python3
"""The library against the slow model on random limits and traces.

    tests/model/differential.py [--seed N] [--rounds N] [--lines N]

Each round has the model write vectors of its own seed, holds the library to them on a private zone and
on a file, and replays a random trace with `weir replay` and with the model, line for line. The seed is
printed; a failing round keeps its files. $WEIR_BUILD names the build folder.
"""
import argparse
import os
import pathlib
import random
import re
import secrets
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from scripts import FAMILIES, random_limit  # noqa: E402

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD", HERE.parent.parent / "build"))
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def vectors(folder, seed):
    """(passed, failed) of the library on the model's vectors of this seed."""
    subprocess.run([sys.executable, str(HERE / "vectors.py"), "--out", folder, "--part", "all", "--seed", str(seed)],
                   check=True, stdout=subprocess.DEVNULL)
    files = sorted(map(str, pathlib.Path(folder).glob("*.vec")))
    passed = failed = 0
    for store in ("memory:64m?large=50%", f"file:{folder}/zone?size=64m&large=50%"):
        done = subprocess.run([str(BUILD / "tests/vectors"), "--store", store, *files],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        counts = COUNTS.findall(done.stdout)
        more = tuple(map(int, counts[-1])) if counts else (0, 1)
        if more[1]:
            print(done.stdout[-3000:])
        passed, failed = passed + more[0], failed + more[1]
    return passed, failed


def trace(rng, path, lines):
    """A trace with idle times, bursts, costs and a clock that sometimes runs back."""
    now = 1_700_000_000_000_000 + rng.randrange(10**12)
    scale = 10 ** rng.randrange(2, 8)
    keys = [f"k{n}" for n in range(rng.choice((1, 3, 20)))]
    with open(path, "w", encoding="ascii") as out:
        for _ in range(lines):
            now += rng.choice((0, 1, rng.randrange(scale), rng.randrange(scale * 30)))
            if rng.random() < 0.02:
                now -= rng.randrange(scale)
            cost = rng.choice(("", "", "", ",1", ",2", f",{rng.randrange(12)}"))
            out.write(f"{now // 10**6}.{now % 10**6:06d},{rng.choice(keys)}{cost}\n")


def replay(rng, folder, lines):
    """True if both replays print the same."""
    path = pathlib.Path(folder) / "trace.csv"
    trace(rng, path, lines)
    limit = random_limit(rng, rng.choice(list(FAMILIES)))
    limit = limit if isinstance(limit, str) else limit.text()
    wait = rng.choice(([], [], ["--wait", "any"], ["--wait", "1s"]))
    outputs = []
    for command in ([str(BUILD / "weir"), "replay", "--decisions"], [sys.executable, str(HERE / "replay.py")]):
        with open(path, encoding="ascii") as given:
            done = subprocess.run([*command, *wait, limit], stdin=given, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        outputs.append((done.returncode, done.stdout))
    if outputs[0] == outputs[1] and outputs[0][0] == 0:
        return True
    ours, theirs = (output.split("\n") for _, output in outputs)
    first = next((n for n, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    print(f"{limit} {' '.join(wait)}: line {first + 1}: weir {ours[first:first + 1]}, model {theirs[first:first + 1]}")
    return False


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seed", type=int, default=int(os.environ.get("WEIR_SEED") or secrets.randbelow(2**31)))
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--lines", type=int, default=2000)
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    rng = random.Random(given.seed)
    passed = failed = 0
    for _ in range(given.rounds):
        folder = tempfile.mkdtemp(prefix="weir-model-")
        more = vectors(folder, rng.randrange(2**31))
        replays = [replay(rng, folder, given.lines) for _ in range(10)]
        passed += more[0] + sum(replays)
        wrong = more[1] + replays.count(False)
        failed += wrong
        if wrong:
            print(f"files kept in {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
