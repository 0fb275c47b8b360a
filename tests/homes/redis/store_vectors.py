#!/usr/bin/env python3
"""Holds the redis:// store to the golden vectors, every field, with each engine that a server can decide with."""
import re
import subprocess
import sys

from lib import checks, redis_server
from lib.build import BUILD, REDIS_MODULE, vectors

# fail=closed: an answer of the local fallback would be wrong, and be seen
CASES = (("module", f"--loadmodule {REDIS_MODULE} test-clock", "engine=module"),
         ("scripts", "", "engine=lua"),
         ("functions", "", "engine=function"),
         ("auto", "", "engine=auto"))


def main():
    check = checks.Checks()
    for name, options, choice in CASES:
        with redis_server.Server(options) as server, server.client() as client:
            url = f"redis://127.0.0.1:{server.port}?{choice}&fail=closed&deadline=10s"
            done = subprocess.run([str(BUILD / "tests" / "vectors"), "--store", url, *map(str, vectors())],
                                  stdout=subprocess.PIPE, text=True)
            counts = re.search(r"^(\d+) passed, (\d+) failed$", done.stdout, re.M)
            if not check(counts is not None, f"{name}: the vectors ran to their end"):
                continue
            passed, failed = map(int, counts.groups())
            check.passed += passed
            check.failed += failed
            if failed:
                print(f"{name}:\n{done.stdout[-3000:]}")
            check(passed > 10000, f"{name}: {passed} is about as many as there are")
            keys = client.call("KEYS", "*")
            check(keys and all(key.startswith(b"weir-test:weir:") for key in keys),
                  f"{name}: the test clock's keys have their own prefix")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
