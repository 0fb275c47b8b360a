#!/usr/bin/env python3
"""The module under sanitizers: runs tests with a real nginx into which AddressSanitizer is loaded first.

    asan.py [TEST.py [ARGUMENT …]] …

WEIR_BUILD names a build with -fsanitize=address,undefined. Whatever a sanitizer reports in an nginx fails the test that
started it (nginx_server.py). Without arguments: those that handle memory in all the ways there are.
"""
import os
import pathlib
import sys

import nginx_server  # finds module_asan

import module_asan

HERE = pathlib.Path(__file__).resolve().parent
TESTS = [["limits.py"], ["headers.py"], ["conns.py"], ["redirects.py"], ["shaping.py"], ["vectors.py"], ["config.py"],
         ["faults.py", "--short"], ["fleet.py"], ["rate.py"], ["overload.py"], ["info.py"]]
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD", nginx_server.ROOT / "build" / "asan"))


def main(arguments):
    total = [0, 0]
    if not module_asan.is_sanitized(BUILD / "ngx_http_weir_module.so"):
        print(f"{BUILD}/ngx_http_weir_module.so is built without sanitizers; set WEIR_BUILD\n0 passed, 1 failed")
        return 1
    env = dict(os.environ, WEIR_BUILD=str(BUILD), WEIR=str(BUILD / "weir"))
    for test in module_asan.split(arguments) or TESTS:
        if not arguments and not (HERE / test[0]).exists():
            continue
        passed, failed = module_asan.run([str(HERE / test[0]), *test[1:]], env)
        print(f"{' '.join(test)}: {passed} passed, {failed} failed", flush=True)
        total[0] += passed
        total[1] += failed
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
