#!/usr/bin/env python3
"""Builds weir and runs its tests; ends in one line "N passed, N failed".

    tests/run.py            everything, with sanitizers (make test)
    tests/run.py --quick    without sanitizers, seconds (make check)
    tests/run.py --soak     the long runs (make soak)
    tests/run.py NAME …     only the tests whose name contains one of these

Every test prints its own "N passed, N failed"; these are added up. One that ends badly without such a
line, or takes too long, counts as a failure. Tests are listed in tests/list.py.
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import list as tests_list  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
BUILDS = {
    "release": ["-Dwerror=true"],
    "asan": ["-Dwerror=true", "-Dbuildtype=debugoptimized", "-Db_sanitize=address,undefined",
             "-Db_lundef=false"],
    "tsan": ["-Dwerror=true", "-Dbuildtype=debugoptimized", "-Db_sanitize=thread",
             "-Db_lundef=false"],
}


def folder(build):
    return ROOT / "build" if build == "release" else ROOT / "build" / build


def make(build):
    """Configures and compiles one build; the time it took."""
    start = time.monotonic()
    where = folder(build)
    if not (where / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(where), *BUILDS[build]], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "-C", str(where)], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout[-8000:])
        sys.exit(f"the {build} build failed\n0 passed, 1 failed")
    return time.monotonic() - start


def run(test):
    """Runs one test; (passed, failed, output, seconds)."""
    where = folder(test.build)
    command = [word.replace("{build}", str(where)) for word in shlex.split(test.command)]
    words = []
    for word in command:
        words += sorted(map(str, ROOT.glob(word))) if "*" in word else [word]
    env = dict(os.environ, WEIR=str(where / "weir"), WEIR_BUILD=str(where), LC_ALL="C.UTF-8",
               ASAN_OPTIONS="abort_on_error=0:detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1",
               TSAN_OPTIONS="halt_on_error=1")
    start = time.monotonic()
    try:
        done = subprocess.run(words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=test.seconds)
        output, code = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace") + "\ntook too long", -1
    except OSError as error:
        output, code = str(error), -1
    counts = COUNTS.findall(output)
    passed, failed = map(int, counts[-1]) if counts else (0, 0)
    if not counts or (code != 0 and failed == 0):
        failed += 1
        output += f"\nended with {code}"
    return passed, failed, output, time.monotonic() - start


def chosen(words):
    kinds = {"--quick": "quick", "--soak": "soak"}
    kind = next((kinds[word] for word in words if word in kinds), "test")
    names = [word for word in words if not word.startswith("--")]
    tests = [test for test in tests_list.tests(kind)
             if not names or any(name in test.name for name in names)]
    if not tests:
        sys.exit(f"no test has a name with {' or '.join(names)} in it\n0 passed, 1 failed")
    return tests


def main(words):
    tests = chosen(words)
    for build in BUILDS:
        if any(test.build == build for test in tests):
            print(f"built {build} in {make(build):.0f} s", flush=True)
    total_passed = total_failed = 0
    alone = [test for test in tests if test.alone]
    together = [test for test in tests if not test.alone]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = list(zip(together, pool.map(run, together)))
    results += [(test, run(test)) for test in alone]
    for test, (passed, failed, output, seconds) in results:
        print(f"{'ok  ' if not failed else 'FAIL'} {test.name}: {passed} passed, {failed} failed "
              f"({seconds:.1f} s)", flush=True)
        if failed:
            print(output[-6000:], flush=True)
        total_passed += passed
        total_failed += failed
    print(f"{total_passed} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
