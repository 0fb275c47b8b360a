#!/usr/bin/env python3
"""Holds resty.weir in a real nginx to the golden vectors, every field: zones through the FFI."""
import pathlib
import sys
import tempfile

from lib import build, checks, lua_nginx

HERE = pathlib.Path(__file__).resolve().parent


def run(nginx, check, url, into=False):
    """All vectors on one store."""
    paths = ", ".join(f'"{path}"' for path in build.vectors())
    passed, failed, said = nginx.lua(f'return require("lua_vectors").run(assert(weir.open("{url}")), {{{paths}}}, {str(into).lower()})')
    check.passed += passed
    check.failed += failed
    for line in said:
        print(f"{url}: {line}")
    check(passed > 30000, f"{url}: {passed} checks are about as many as there are")


def main():
    check = checks.Checks()
    with tempfile.TemporaryDirectory() as folder, lua_nginx.Nginx(package=f"{HERE}/?.lua;") as nginx:
        run(nginx, check, "memory:64m")
        run(nginx, check, f"file:{folder}/zone?size=64m", into=True)
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
