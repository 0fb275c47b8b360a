#!/usr/bin/env python3
"""A zone that was removed and made again under the Python package: every verb goes on in the new one, in every thread; what was held
in the old one ends well; and a file that is no zone is told, without a decision."""
import contextlib
import fcntl
import glob
import logging
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402

NOW, SECOND = 1_700_000_000_000_000, 1_000_000
LIMIT, HOURLY, SLOTS = "fixed-window 100/h from-first", "fixed-window 100/h", "concurrent 1 lease 1h"


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append((record.levelname, record.getMessage()))


@contextlib.contextmanager
def zone():
    """A store with a clock that stands still, what replaces its zone, and the log. A second later the store looks at its path."""
    lines, log = Lines(), logging.getLogger("weir")
    log.addHandler(lines)
    with tempfile.TemporaryDirectory() as folder:
        url = f"file:{folder}/zone?size=64k"
        with weir.Store(url) as store:
            store.set_time(NOW)
            times = iter(range(NOW + 2 * SECOND, NOW + 3600 * SECOND, 2 * SECOND))

            def replace(by=None):
                os.unlink(f"{folder}/zone")
                if by is None:
                    weir.Store(url).close()
                else:
                    pathlib.Path(folder, "zone").write_text(by, encoding="ascii")
                now = next(times)
                store.set_time(now)
                return now
            try:
                yield store, replace, lines.texts
            finally:
                log.removeHandler(lines)


def test_verbs(check):
    """Whichever verb is the first one after it."""
    for name, call in (("take", lambda store: store.take("k", LIMIT).remaining), ("peek", lambda store: store.peek("k", LIMIT).remaining - 1),
                       ("take, detail", lambda store: store.take("k", LIMIT, detail=True).rows[0].remaining),
                       ("take_all", lambda store: store.take_all([("k", LIMIT)]).remaining),
                       ("peek_all", lambda store: store.peek_all([("k", LIMIT)]).remaining - 1),
                       ("take_many", lambda store: store.take_many([("k", LIMIT)] * 2)[1].remaining + 1),
                       ("wait", lambda store: store.wait("k", LIMIT).remaining),
                       ("reset", lambda store: store.reset("k") or 99), ("acquire", lambda store: store.acquire("slots", SLOTS) and 99),
                       ("check", lambda store: store.check() or 99)):
        with zone() as (store, replace, lines):
            store.take("k", LIMIT, 50)
            now = replace()
            check.equal(call(store), 99, f"{name}: in the new zone")
            check.equal(store.take("other", LIMIT).time_us, now, f"{name}: the clock still stands")
            check.equal([level for level, _ in lines], ["ERROR"], f"{name}: {lines}")
            check.contains(lines[0][1], "was replaced: what the old zone had counted is lost", f"{name}: the log")


def test_removed(check):
    """Nobody has made another zone yet: the store goes on in its own, and the check says what is wrong."""
    with tempfile.TemporaryDirectory() as folder, weir.Store(f"file:{folder}/zone?size=64k") as store:
        store.take("k", LIMIT, 50)
        os.unlink(f"{folder}/zone")
        said = ""
        try:
            store.check()
        except weir.ESYSTEM as error:
            said = str(error)
        check.contains(said, "zone: the zone was removed while it is in use", "the check")
        check.equal(store.take("k", LIMIT).remaining, 49, "takes go on")
        check(not os.path.exists(f"{folder}/zone"), "the check makes no zone")


def test_held(check):
    """Leases and wake-ups of the old zone."""
    with zone() as (store, replace, _):
        lease = store.acquire("slots", SLOTS).lease
        wakeup = store.wakeup("slots", SLOTS)
        replace_refused = ""
        try:
            replace()
        except weir.EINVAL as error:  # a wake-up is a call, so the clock cannot be set
            replace_refused = str(error)
        check.contains(replace_refused, "other calls use the store", "the clock")
        wakeup.arm()
        wakeup.close()
        replace()
        for verb in (store.renew, store.release):
            try:
                verb("slots", SLOTS, lease)
                check(False, "a lease of the old zone")
            except weir.ENOLEASE:
                check(True, "it is gone")
        check(store.acquire("slots", SLOTS).allowed, "others may have the slot")


def test_settled(check):
    """A charge of the old zone is lost with it. To settle it gives nothing back of what others were charged in the new one."""
    for first in ("settle", "take"):
        with zone() as (store, replace, _):
            old = store.take("k", HOURLY, 50)
            replace()
            with weir.Store(store.url) as other:
                other.set_time(old.time_us + 1)
                other.take("k", HOURLY, 60)
            if first == "take":
                store.take("other", HOURLY)
            check(store.settle("k", HOURLY, old, 10) is True, f"{first} first: it is settled")
            check.equal(store.peek("k", HOURLY).remaining, 40, f"{first} first: others stay charged")
            new = store.take("k", HOURLY, 30)
            store.settle("k", HOURLY, new, 10)
            check.equal(store.peek("k", HOURLY).remaining, 30, f"{first} first: a charge of the new zone is corrected")
            store.settle("k", HOURLY, store.take("k", HOURLY, 1), 5)
            check.equal(store.peek("k", HOURLY).remaining, 25, f"{first} first: also upwards")


def test_not_a_zone(check):
    """Nothing is decided, and the log says why, once. As soon as there is a zone, it is used."""
    with zone() as (store, replace, lines):
        replace("no zone")
        for _ in range(5):
            try:
                store.take("k", LIMIT)
                check(False, "decided without a zone")
            except weir.EGONE:
                check(True, "not decided")
        check(len(lines) == 1 and lines[0][0] == "ERROR" and "the new zone cannot be opened" in lines[0][1], f"the log: {lines}")
        replace()

        def goes_on():
            with contextlib.suppress(weir.EGONE):
                return store.take("k", LIMIT).allowed
            return False
        checks.until("it is tried again", goes_on)
        check.contains(lines[-1][1], "counts in the new one", "the log")


@contextlib.contextmanager
def opening(text=None):
    """A zone that was replaced, by another one or a text, and that a thread opens now: it waits for a lock, at most for seconds. The store,
    what lets the lock go, and what the take of the thread returned."""
    with tempfile.TemporaryDirectory() as folder:
        path, answers = f"{os.path.realpath(folder)}/zone", []
        with weir.Store(f"file:{path}?size=64k") as store:
            store.set_time(NOW)
            store.take("k", LIMIT)
            weir.Store(f"file:{folder}/new?size=64k").close()
            if text:
                pathlib.Path(folder, "new").write_text(text, encoding="ascii")
            with open(f"{folder}/new", "r+b") as new:
                fcntl.lockf(new, fcntl.LOCK_EX)
                os.rename(new.name, path)
                store.set_time(NOW + 2 * SECOND)
                thread = threading.Thread(target=lambda: answers.append(taken(store)))
                thread.start()
                checks.until("the thread opens the zone", lambda: sum(os.path.realpath(it) == path for it in glob.glob("/proc/self/fd/*")) == 2)
                try:
                    yield store, lambda: fcntl.lockf(new, fcntl.LOCK_UN), answers
                finally:
                    fcntl.lockf(new, fcntl.LOCK_UN)
                    thread.join()


def taken(store):
    """What is left, or what the take failed with."""
    try:
        return store.take("k", LIMIT).remaining
    except weir.Error as error:
        return type(error).__name__


def test_waiting(check):
    """While one thread opens what is there now, the others wait for it, at most for seconds, and get what it gets."""
    for text, wanted in ((None, [98, 99]), ("no zone", ["EGONE", "EGONE"])):
        def attempt(_, text=text, wanted=wanted):
            begun = time.monotonic()
            with opening(text) as (store, unlock, answers):
                timer = threading.Timer(0.2, unlock)
                timer.start()
                mine = taken(store)
            timer.join()
            if time.monotonic() - begun > 4:
                return False
            check.equal(sorted([mine, *answers], key=str), wanted, f"two threads, {text or 'a zone'}")
            return True
        checks.in_time(attempt)


def test_child(check):
    """A child of fork has not got the thread that opens the zone: it opens the zone itself, and does not wait."""
    with opening() as (store, unlock, _):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os._exit(0 if isinstance(taken(store), int) else 1)
            os._exit(2)
        unlock()
        check.equal(os.waitpid(child, 0)[1], 0, "the child decides")


def test_threads(check):
    """Many threads find it at once: nobody is charged in two zones, and no call fails in another way."""
    with tempfile.TemporaryDirectory() as folder:
        url, wrong, ended = f"file:{folder}/zone?size=64k", [], threading.Event()
        store = weir.Store(url)

        def take():
            while not ended.is_set():
                try:
                    store.take("k", "fixed-window 1000000000/h")
                except weir.EGONE:  # closed while it waited for the one that opens it
                    time.sleep(0.001)
                except Exception as error:
                    wrong.append(repr(error))
                    return
        wakeup = store.wakeup("slots", SLOTS)  # keeps the old zone open
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        os.unlink(f"{folder}/zone")
        with weir.Store(url) as other:
            checks.until("they count in the new zone", lambda: other.peek("k", "fixed-window 1000000000/h").remaining < 999_999_999)
        wakeup.arm()
        wakeup.close()
        store.close()
        ended.set()
        for thread in threads:
            thread.join()
        check(all("closed" in it for it in wrong), f"calls: {wrong}")


TESTS = [test_verbs, test_removed, test_held, test_settled, test_not_a_zone, test_waiting, test_child, test_threads]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
