#!/usr/bin/env python3
"""What a decision costs in other languages, beside an empty call and the limiters that people use there (make bench-bindings).

    bench/bindings.py [LANGUAGE …] [--rounds N]

Each language has a program that measures all its rows once for every line that it reads (bindings/measure.py is that of Python). Rows come
in rounds, each in a random order. A figure is the median over the rounds of nanoseconds of the processor per call; rows that wait
for a server are measured by the clock. "over" is the median of the differences to the first row, an empty call, within each round. Nothing fails because of a time.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests"))
from lib import bindings, build, node_binding, redis_server  # noqa: E402


def python():
    """The command and environment of Python's rows."""
    def make(folder):
        include = subprocess.run([bindings.PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('include'))"], stdout=subprocess.PIPE,
                                 text=True, check=True).stdout.strip()
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", f"-I{include}", str(ROOT / "bench/bindings/empty_call.c"), "-o", str(folder / "empty_call.abi3.so")],
                       check=True)
    empty = bindings.once("python-empty", [ROOT / "bench/bindings/empty_call.c"], make)
    env = bindings.python()
    env["PYTHONPATH"] += f":{empty}"
    return [bindings.PYTHON, "-B", str(ROOT / "bench/bindings/measure.py")], env


def lua():
    """Those of Lua, in an nginx of their own."""
    return [sys.executable, "-B", str(ROOT / "bench/bindings/measure_lua.py")], dict(os.environ)


def node():
    """Those of Node."""
    return ["node", str(ROOT / "bench/bindings/measure.js")], node_binding.environment(with_packages=True)


LANGUAGES = {"python": python, "node": node, "lua": lua}


def measure(command, env, rounds):
    """One {row: ns} per round."""
    with redis_server.Server(f"--loadmodule {build.REDIS_MODULE}") as redis:
        env = dict(env, BENCH_REDIS=str(redis.port))
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            told = []
            for _ in range(rounds + 1):
                process.stdin.write("round\n")
                process.stdin.flush()
                told.append(json.loads(process.stdout.readline()))
            process.stdin.close()
    return told[1:]  # the first one warms up


def report(name, told):
    print(f"\n{name}: nanoseconds per call, medians of {len(told)} rounds\n")
    first = next(iter(sorted(told[0], key=lambda row: "empty" not in row)))
    order = [first, *sorted((row for row in told[0] if row != first), key=lambda row: statistics.median(it[row] for it in told))]
    for row in order:
        over = statistics.median(it[row] - it[first] for it in told)
        print(f"  {row:<46}{statistics.median(it[row] for it in told):>10.0f}" + ("" if row == first else f"   over {over:>8.0f}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("languages", nargs="*", choices=[[], *LANGUAGES], default=[])
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for name in given.languages or LANGUAGES:
        command, env = LANGUAGES[name]()
        report(name, measure(command, env, given.rounds))


if __name__ == "__main__":
    main()
