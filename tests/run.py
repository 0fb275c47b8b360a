#!/usr/bin/env python3
"""Builds weir and runs its tests; ends in one line "N passed, N failed".

    tests/run.py            everything, with sanitizers (make test)
    tests/run.py --quick    without sanitizers, seconds (make check)
    tests/run.py --soak     the long runs (make soak)
    tests/run.py NAME …     only the tests whose name contains one of these

Every test prints its own "N passed, N failed"; these are added up. One that ends badly without such a
line, or takes too long, counts as a failure. Tests are listed in tests/list.py. What a failed test said is printed when it
ends, and its failures once more before the last line: a log that lost its middle still tells them.

A line is printed for each test when it ends, with its time and what of it was work. Tests run side by side: those that
work, as many as there are cores; beside them those that mostly wait (Test.load). What is alone comes last, one by one.
"""
import collections
import glob
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import list as tests_list  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
SHOWN = 6000       # characters of a test that failed, of its failures and of its end
AGAIN = 40         # lines of each failed test that are said again at the end,
BEHIND = 12        # of each of its failures,
WIDE = 200         # and characters of each
LIGHT = 0.5        # tests of less load than this mostly wait
LIGHT_ROOM = 0.5   # what all of them together may keep busy, for each core
LIGHT_MOST = 4     # how many of them for each core: even they need memory, and a moment of it to start
# Sanitizers see as much at -O1, and their reports need only line numbers: that compiles in half the time. Warnings that need
# more than -O1 to be right are the release build's.
CHECKED = ["-Dwerror=true", "-Dbuildtype=debugoptimized", "-Doptimization=1", "-Db_lundef=false",
           "-Dc_args=-g1 -Wno-format-truncation -Wno-nonnull -Wno-maybe-uninitialized"]
BUILDS = {
    "release": ["-Dwerror=true"],
    "asan": [*CHECKED, "-Db_sanitize=address,undefined"],
    "tsan": [*CHECKED, "-Db_sanitize=thread"],
}
SOAK = "--soak"
GROUPS = set()  # of processes that are running, each with all that it started
Result = collections.namedtuple("Result", "passed failed output seconds work")


# ---- building ----

def folder(build):
    return ROOT / "build" if build == "release" else ROOT / "build" / build


def targets(tests):
    """What must be built for these: programs by their path in the command, the rest by the test's group."""
    found = set()
    for test in tests:
        words = test.command.split()
        programs = [word.removeprefix("{build}/") for word in words if word.startswith("{build}/")]
        found.update(programs)
        if not words[0].startswith("{build}/"):
            found.update(tests_list.NEEDS.get(test.name.partition(":")[0], ["all"]))
    return ["all"] if "all" in found else sorted(found)


def make(build, tests):
    """Configures and compiles one build; the time it took."""
    start = time.monotonic()
    where = folder(build)
    wanted = targets(tests)
    if not wanted:
        return 0.0
    for command in ([ROOT / "tools" / "configure.sh", where, *BUILDS[build]], ["ninja", "-C", where, *wanted]):
        done = subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout[-8000:])
            sys.exit(f"the {build} build failed\n0 passed, 1 failed")
    return time.monotonic() - start


# ---- running ----

def command_of(test):
    words = [word.replace("{build}", str(folder(test.build))) for word in shlex.split(test.command)]
    out = []
    for word in words:
        out += sorted(glob.glob(str(ROOT / word))) if "*" in word else [word]
    return out


def environment(test):
    where = folder(test.build)
    seed = {} if "WEIR_SEED" in os.environ or SOAK in sys.argv else {"WEIR_SEED": "1"}
    return dict(os.environ, **seed, WEIR=str(where / "weir"), WEIR_BUILD=str(where), LC_ALL="C.UTF-8",
                ASAN_OPTIONS="abort_on_error=0:detect_leaks=1", UBSAN_OPTIONS="halt_on_error=1",
                TSAN_OPTIONS="halt_on_error=1")


def wait(process, seconds):
    """(exit code or None: took too long, seconds of work by it and all that it waited for)"""
    late = threading.Event()

    def end():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    _, status, used = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return None if late.is_set() else process.returncode, used.ru_utime + used.ru_stime


def run(test):
    start = time.monotonic()
    work = 0.0
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(command_of(test), cwd=ROOT, env=environment(test), stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            GROUPS.add(process.pid)
            code, work = wait(process, test.seconds)
            GROUPS.discard(process.pid)
        except OSError as error:
            out.write(str(error).encode())
            code = -1
        out.seek(0)
        output = out.read().decode(errors="replace")
    if code is None:
        output += "\ntook too long"
    counts = COUNTS.findall(output)
    passed, failed = map(int, counts[-1]) if counts else (0, 0)
    if not counts or (code != 0 and failed == 0):
        failed += 1
        output += f"\nended with {code}"
    return Result(passed, failed, output, time.monotonic() - start, work)


def failures(output):
    """Lines that begin with FAIL, each with those behind it up to the next result."""
    found, more = [], 0
    for line in output.splitlines():
        if line.startswith("FAIL"):
            more = BEHIND
        elif line.startswith("ok ") or COUNTS.match(line):
            more = 0
        if more > 0:
            found.append(line)
            more -= 1
    return found


def shown(output):
    """What failed, with the lines behind it, and the end of a long output."""
    if len(output) <= SHOWN:
        return output
    return "\n".join(failures(output[:-SHOWN]))[:SHOWN] + "\n…" + output[-SHOWN:]


def again(output):
    """The failures in short, or how a test ended that names none."""
    lines = failures(output) or output.splitlines()[-BEHIND:]
    return [line[:WIDE] for line in lines[:AGAIN]] + ["…"] * (len(lines) > AGAIN)


class Report:
    """A line for each test as it ends, and the sum."""

    def __init__(self, count):
        self.count, self.done, self.passed, self.failed = count, 0, 0, 0
        self.wrong = []

    def tell(self, test, result):
        self.done += 1
        self.passed += result.passed
        self.failed += result.failed
        print(f"{'FAIL' if result.failed else 'ok  '} [{self.done}/{self.count}] {test.name}: {result.passed} passed, "
              f"{result.failed} failed ({result.seconds:.1f} s, {result.work:.1f} s of work)", flush=True)
        if result.failed:
            self.wrong.append((test.name, again(result.output)))
            print(shown(result.output), flush=True)


def has_room(test, running):
    """Whether there is a core for it, or room beside them if it mostly waits."""
    cores = os.cpu_count() or 1
    light = test.load < LIGHT
    alike = [it.load for it in running if (it.load < LIGHT) == light]
    if not alike:
        return True
    most, count = (LIGHT_ROOM * cores, LIGHT_MOST * cores) if light else (cores, cores)
    return len(alike) < count and sum(alike) + test.load <= most + 0.01


def run_together(tests, report):
    """Side by side, in the order of the list, as far as cores go; a small one may overtake one that has no room."""
    waiting, running, ended = list(tests), {}, queue.Queue()

    def begin(test):
        running[test.name] = test
        threading.Thread(target=lambda: ended.put((test, run(test))), daemon=True).start()

    while waiting or running:
        for test in list(waiting):
            if has_room(test, running.values()):
                waiting.remove(test)
                begin(test)
        test, result = ended.get()
        del running[test.name]
        report.tell(test, result)


def chosen(words):
    kinds = {"--quick": "quick", SOAK: "soak"}
    if "--help" in words:
        sys.exit(print(__doc__.strip()))
    unknown = [word for word in words if word.startswith("-") and word not in kinds]
    if unknown:
        sys.exit(f"unknown option {unknown[0]}; there are {', '.join(kinds)} and --help\n0 passed, 1 failed")
    kind = next((kinds[word] for word in words if word in kinds), "test")
    names = [word for word in words if not word.startswith("--")]
    tests = [test for test in tests_list.tests(kind)
             if not names or any(name in test.name for name in names)]
    unmatched = [name for name in names if not any(name in test.name for test in tests)]
    if unmatched:
        hint = "; only few tests are in --quick: leave it out" if kind == "quick" else ""
        sys.exit(f"no test has a name with {' or '.join(unmatched)} in it{hint}\n0 passed, 1 failed")
    twice = [name for name, count in collections.Counter(test.name for test in tests).items() if count > 1]
    if twice:
        sys.exit(f"tests/list.py has {twice[0]} twice\n0 passed, 1 failed")
    return tests


def main(words):
    tests = chosen(words)
    start = time.monotonic()
    for build in BUILDS:
        of_it = [test for test in tests if test.build == build]
        if of_it:
            print(f"building {build} …", flush=True)
            print(f"built {build} in {make(build, of_it):.0f} s", flush=True)
    report = Report(len(tests))
    run_together([test for test in tests if not test.alone], report)
    for test in tests:
        if test.alone:
            report.tell(test, run(test))
    if report.wrong:
        for name, lines in report.wrong:
            print("\n".join([f"---- {name}", *lines]))
        print("failed: " + ", ".join(name for name, _ in report.wrong))
    print(f"{len(tests)} tests in {time.monotonic() - start:.0f} s")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main(sys.argv[1:]))
    finally:
        for group in GROUPS:
            os.killpg(group, signal.SIGKILL)
