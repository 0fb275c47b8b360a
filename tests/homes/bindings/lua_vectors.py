#!/usr/bin/env python3
"""Holds resty.weir in a real nginx to the golden vectors, every field: zones through the FFI, Redis over cosockets.

    lua_vectors.py [--long]

The zones run all vectors; Redis some of those that are kept, since each step is a round trip; with --long all of those.
The C tests hold the module and the scripts to all of them.
"""
import pathlib
import sys
import tempfile

from lib import build, checks, lua_nginx, redis_server

SOME = ("budgets", "concurrent", "fold", "settle", "smooth")  # of every verb, with all that a reply may have
HERE = pathlib.Path(__file__).resolve().parent


def run(nginx, check, url, files, into=False):
    """Vectors on one store; how many checks held."""
    paths = ", ".join(f'"{path}"' for path in files)
    passed, failed, said = nginx.lua(f'return require("lua_vectors").run(assert(weir.open("{url}")), {{{paths}}}, {str(into).lower()})')
    check.passed += passed
    check.failed += failed
    for line in said:
        print(f"{url}: {line}")
    return passed


def main():
    check = checks.Checks()
    everything = build.vectors()
    kept = [path for path in everything if path != build.TAILS and ("--long" in sys.argv[1:] or path.stem in SOME)]
    with tempfile.TemporaryDirectory() as folder, lua_nginx.Nginx(package=f"{HERE}/?.lua;") as nginx:
        for url, into in (("memory:64m", False), (f"file:{folder}/zone?size=64m", True)):
            passed = run(nginx, check, url, everything, into)
            check(passed > 300000, f"{url}: {passed} checks are about as many as there are")
        for engine, options in (("module", f"--loadmodule {build.REDIS_MODULE} test-clock"), ("lua", "")):
            with redis_server.Server(options) as server, server.client() as client:
                # fail=closed: an answer of the local fallback would be wrong, and be seen
                passed = run(nginx, check, f"redis://127.0.0.1:{server.port}?engine={engine}&fail=closed&deadline=30s", kept)
                check(passed > 10000, f"{engine}: {passed} checks are about as many as there are")
                keys = client.call("KEYS", "*")
                check(keys and all(key.startswith(b"weir-test:weir:") for key in keys), f"{engine}: the test clock's keys have their prefix")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
