#!/usr/bin/env python3
"""The module under valgrind: runs tests with every nginx in memcheck, and fails on what it finds in the module.

    valgrind.py [TEST.py [ARGUMENT …]] …

Errors with no function of the module among their callers are nginx's own: counted, not failed. Takes minutes.
"""
import os
import pathlib
import re
import shutil
import sys
import tempfile

from lib import nginx_server, sanitizers


HERE = pathlib.Path(__file__).resolve().parent
TESTS = [["limits.py"], ["headers.py"], ["redirects.py"], ["conns.py", "slots", "abort", "reject", "several"],
         ["shaping.py", "not_blocked", "abort", "graceful", "waits"], ["faults.py", "--short", "changes", "master"]]
OURS = re.compile(r"weir")


def wrapper(folder):
    """An nginx in valgrind, whose processes write a file each."""
    path = pathlib.Path(folder, "valgrind-nginx")
    path.write_text(f"#!/bin/sh\nexec {shutil.which('valgrind')} --log-file={folder}/report.%p --leak-check=full "
                    f"--show-leak-kinds=definite --num-callers=30 --quiet {nginx_server.NGINX} \"$@\"\n")
    path.chmod(0o755)
    return path


def errors(text):
    """(in the module, elsewhere), each as valgrind tells them."""
    blocks = ["\n".join(lines) for lines in split(text.splitlines())]
    ours = [block for block in blocks if OURS.search(block)]
    return ours, [block for block in blocks if not OURS.search(block)]


def split(lines):
    """Blocks, which end with an empty line."""
    block = []
    for line in [re.sub(r"^==\d+== ?", "", line) for line in lines] + [""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def main(arguments):
    if not shutil.which("valgrind"):
        print("valgrind is missing; install the package valgrind\n0 passed, 1 failed")
        return 1
    total, elsewhere = [0, 0], 0
    with tempfile.TemporaryDirectory(prefix="weir-valgrind-") as folder:
        env = dict(os.environ, NGINX_BINARY=str(wrapper(folder)))
        for test in sanitizers.split(arguments) or TESTS:
            passed, failed = sanitizers.run([str(HERE / test[0]), *test[1:]], env)
            found = []
            for report in sorted(pathlib.Path(folder).glob("report*")):
                ours, others = errors(report.read_text(errors="replace"))
                found += ours
                elsewhere += len(others)
                report.unlink()
            for error in found[:10]:
                print(error[:3000] + "\n")
            print(f"{' '.join(test)}: {passed} passed, {failed} failed, {len(found)} errors", flush=True)
            total[0] += passed
            total[1] += failed + len(found)
    print(f"{elsewhere} of valgrind's findings are not the module's")
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
