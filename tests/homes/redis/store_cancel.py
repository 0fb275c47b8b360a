#!/usr/bin/env python3
"""Threads that are cancelled inside verbs of a redis:// store: nobody hangs, and every verb works afterwards. With the
module, without it, and with slices. The program is tests/concurrent/cancel.c.

    store_cancel.py [--long]
"""
import subprocess
import sys

from lib import build, checks, redis_server

COUNTS = {False: 150, True: 5000}


def main():
    check = checks.Checks()
    count = COUNTS["--long" in sys.argv]
    program = build.BUILD / "tests" / "cancel"
    module = f"--loadmodule {build.REDIS_MODULE}"
    for name, options, slices in (("module", module, ""), ("lua", "", ""), ("slices", module, "&slices=20%&peers=2")):
        with redis_server.Server(options) as server:
            done = subprocess.run([program, str(count), f"redis://127.0.0.1:{server.port}?deadline=30s{slices}"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check.equal(done.returncode, 0, f"{name}: {count} cancellations: {done.stdout[-500:]}")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
