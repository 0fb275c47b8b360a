"""Counting what held, and running tests. A test file ends in

    if __name__ == "__main__":
        sys.exit(checks.run(TESTS, sys.argv[1:]))

where each of TESTS is a function that is given the Checks. Every program of tests prints "N passed, N failed" at its end.
"""
import os
import random
import re
import signal
import sys
import time
import traceback

COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
MOST_PRINTED = 50
PATIENCE_SECONDS = 120


def seed():
    """Of a random test: $WEIR_SEED, which make test sets, so that it plays the same each time; otherwise a new one."""
    return int(os.environ.get("WEIR_SEED") or random.SystemRandom().randrange(1 << 31))


class Checks:
    """Counts what held and prints what did not."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, right, what):
        if right:
            self.passed += 1
        else:
            self.failed += 1
            if self.failed <= MOST_PRINTED:
                print(f"FAIL {what}", flush=True)
        return right

    def equal(self, got, wanted, what):
        return self(got == wanted, f"{what}: got {got!r}, expected {wanted!r}")

    def contains(self, text, part, what):
        return self(part in text, f"{what}: {part!r} is not in {text!r}")

    def at_most(self, got, most, what):
        return self(got <= most, f"{what}: {got} is over {most}")

    def within(self, got, least, most, what):
        return self(least <= got <= most, f"{what}: {got} is not within {least} … {most}")

    def end(self):
        """Prints the counts; the exit code."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def in_time(attempt, lengths=(1, 3, 12)):
    """For what must be done before a time is over. attempt(scale) returns False, without any check of the outcome, where the
    machine held it up for so long that the outcome says nothing; then it is done once more with all times longer."""
    for scale in lengths:
        if attempt(scale) is not False:
            return
    raise RuntimeError("this machine holds its processes up for too long")


def until(what, condition):
    """Waits until condition() is true, for as long as a busy machine may need. What never happens is a failure of the test."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"never happened: {what}")
        time.sleep(0.01)


def run_one(check, test):
    """A test that ends early is one failure; the others still run."""
    start = time.monotonic()
    try:
        test(check)
    except Exception as error:
        check(False, f"{test.__name__}: {error!r}")
        traceback.print_exc(file=sys.stdout)
    print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)


def heed_signals():
    """A shell starts its background jobs with SIGINT and SIGQUIT ignored, nohup with SIGHUP; all that they start inherits it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


def forgotten(tests):
    """The tests of the program that are in no list of it, and so would never run."""
    program = vars(sys.modules["__main__"])
    lists = [tests, *(it for it in program.values() if isinstance(it, list))]
    listed = {getattr(test, "__name__", "") for tests in lists for test in tests}
    return [name for name, it in program.items()
            if name.startswith("test_") and getattr(it, "__module__", "") == "__main__" and name not in listed]


def run(tests, arguments):
    """Runs the tests whose name contains one of the words given, or all; the exit code. Options (--long) are not words."""
    heed_signals()
    if forgotten(tests):
        raise RuntimeError(f"not in the list of tests: {', '.join(forgotten(tests))}")
    check, words = Checks(), [word for word in arguments if not word.startswith("-")]
    for test in tests:
        if not words or any(word in test.__name__ for word in words):
            run_one(check, test)
    return check.end()
