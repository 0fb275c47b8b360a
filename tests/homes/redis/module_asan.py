#!/usr/bin/env python3
"""The module under sanitizers: runs tests with a server into which AddressSanitizer is loaded first.

    module_asan.py [TEST.py [ARGUMENT …]] …

WEIR_BUILD names a build with -fsanitize=address,undefined. Without arguments: vectors, commands, fewer damaged
values and random arguments than without sanitizers. What a sanitizer reports fails the run.
"""
import os
import pathlib
import sys
import tempfile

from lib import redis_server, sanitizers
from lib.build import BUILD, REDIS_MODULE

HERE = pathlib.Path(__file__).resolve().parent
TESTS = [["module_vectors.py"], ["module_commands.py"], ["state_damage.py", "--short"], ["module_fuzz.py", "--short"]]


def wrapper(folder):
    """A redis-server with the sanitizer in it."""
    path = pathlib.Path(folder, "asan-redis-server")
    options = f"detect_leaks=0:halt_on_error=1:log_path={folder}/report"
    path.write_text(f"#!/bin/sh\nexport LD_PRELOAD={sanitizers.library('libasan.so')} ASAN_OPTIONS={options}\n"
                    f"export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path={folder}/report\n"
                    f"exec {redis_server.binary()} \"$@\"\n")
    path.chmod(0o755)
    return path


def main(arguments):
    total = [0, 0]
    if not sanitizers.is_sanitized(REDIS_MODULE):
        print(f"{REDIS_MODULE} is built without sanitizers; set WEIR_BUILD\n0 passed, 1 failed")
        return 1
    with tempfile.TemporaryDirectory(prefix="weir-asan-") as folder:
        env = dict(os.environ, WEIR_BUILD=str(BUILD), REDIS_SERVER=str(wrapper(folder)))
        for test in sanitizers.split(arguments) or TESTS:
            passed, failed = sanitizers.run([HERE / test[0], *test[1:]], env)
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
