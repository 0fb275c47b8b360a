#!/usr/bin/env python3
"""The module under sanitizers: runs tests with a server into which AddressSanitizer is loaded first.

    module_asan.py [TEST.py [ARGUMENT …]] …

WEIR_BUILD names a build with -fsanitize=address,undefined. Without arguments: vectors, commands, damaged values
and random arguments. What a sanitizer reports fails the run.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import lua_cases
import redis_server

HERE = pathlib.Path(__file__).resolve().parent
TESTS = [["module_vectors.py"], ["module_commands.py"], ["state_damage.py"], ["module_fuzz.py"]]
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD", lua_cases.ROOT / "build" / "asan"))


def library(name):
    """The compiler's own run-time library; the module is linked to that one."""
    done = subprocess.run([*os.environ.get("CC", "gcc").split(), f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return done.stdout.strip()


def wrapper(folder):
    """A redis-server with the sanitizer in it."""
    path = pathlib.Path(folder, "asan-redis-server")
    options = f"detect_leaks=0:halt_on_error=1:log_path={folder}/report"
    path.write_text(f"#!/bin/sh\nexport LD_PRELOAD={library('libasan.so')} ASAN_OPTIONS={options}\n"
                    f"export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path={folder}/report\n"
                    f"exec {redis_server.binary()} \"$@\"\n")
    path.chmod(0o755)
    return path


def is_sanitized(module):
    return b"__asan_report_load" in module.read_bytes()


def run(test, env):
    done = subprocess.run([sys.executable, HERE / test[0], *test[1:]], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    counts = COUNTS.findall(done.stdout)
    passed, failed = map(int, counts[-1]) if counts else (0, 0)
    if done.returncode or failed:
        print(done.stdout[-4000:])
    return passed, failed + (not counts or (done.returncode != 0 and failed == 0))


def split(arguments):
    """`a.py --x b.py` to [[a.py, --x], [b.py]]."""
    tests = []
    for word in arguments:
        if word.endswith(".py"):
            tests.append([word])
        else:
            tests[-1].append(word)
    return tests


def main(arguments):
    total = [0, 0]
    if not is_sanitized(BUILD / "weir_redis.so"):
        print(f"{BUILD}/weir_redis.so is built without sanitizers; set WEIR_BUILD\n0 passed, 1 failed")
        return 1
    with tempfile.TemporaryDirectory(prefix="weir-asan-") as folder:
        env = dict(os.environ, WEIR_BUILD=str(BUILD), REDIS_SERVER=str(wrapper(folder)))
        for test in split(arguments) or TESTS:
            passed, failed = run(test, env)
            reports = sorted(pathlib.Path(folder).glob("report*"))
            for report in reports:
                print(report.read_text(errors="replace")[:6000])
                report.unlink()
            print(f"{' '.join(test)}: {passed} passed, {failed} failed, {len(reports)} reports", flush=True)
            total[0] += passed
            total[1] += failed + len(reports)
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
