"""Tests that are run once more in another environment: with a sanitizer loaded first, or under valgrind."""
import os
import subprocess
import sys

from .checks import COUNTS


def library(name):
    """The compiler's own run-time library; the module is linked to that one."""
    done = subprocess.run([*os.environ.get("CC", "gcc").split(), f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return done.stdout.strip()


def is_sanitized(module):
    return b"__asan_report_load" in module.read_bytes()


def run(test, env):
    """Runs a test, [path, argument …], in that environment: (passed, failed)."""
    done = subprocess.run([sys.executable, *map(str, test)], env=env, stdout=subprocess.PIPE,
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
