#!/usr/bin/env python3
"""Every home under the same hostile requests, which the model makes: numbers that change, charges settled late,
states that have lapsed, a clock that leaps and runs back.

    homes_random.py [--seed N] [--cases N]

The library on private memory and on a file, module, scripts, and both in turn on one key: the model's answers.
"""
import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile

from lib import build, checks
from lib.build import BUILD
import module_vectors


def library(tally, store, path):
    done = subprocess.run([BUILD / "tests/vectors", "--store", store, path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.splitlines() or ["nothing was printed"]
    tally(done.returncode == 0, f"{store}: " + "\n".join(lines[-20:]))


def redis(tally, path):
    """Module and Lua, their bytes compared."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = module_vectors.main([path])
    tally(code == 0, "\n".join(said.getvalue().splitlines()[-20:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=checks.seed())
    parser.add_argument("--cases", type=int, default=16)
    options = parser.parse_args()
    tally = checks.Checks()
    with tempfile.TemporaryDirectory(prefix="weir-homes-") as folder:
        model = build.ROOT / "tests/model/vectors.py"
        subprocess.run([sys.executable, model, "--out", folder, "--seed", str(options.seed), "--hostile",
                        str(options.cases)], check=True, stdout=subprocess.DEVNULL)
        path = os.path.join(folder, "hostile.vec")
        for store in ("memory:64m?large=50%", f"file:{folder}/zone?size=64m&large=50%"):
            library(tally, store, path)
        redis(tally, path)
    if tally.failed:
        print(f"again: homes_random.py --seed {options.seed} --cases {options.cases}")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
