#!/usr/bin/env python3
"""Slots that are renewed and released, waits of asyncio that hold no thread, the decorator; on every kind of store."""
import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, redis_server  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402

SHORT = "concurrent 1 lease 400ms"
PAUSE = 1.0  # longer than two of these leases


@contextlib.contextmanager
def stores():
    """One of each kind that processes share, and memory."""
    name = f"/weir-py-slots-{os.getpid()}"
    with redis_server.Server() as redis:
        try:
            with weir.Store("memory:1m") as memory, weir.Store(f"shm:{name}?size=1m") as zone, \
                    weir.Store(f"redis://127.0.0.1:{redis.port}?deadline=10s") as remote:
                yield {"memory": memory, "shm": zone, "redis": remote}
        finally:
            os.unlink(f"/dev/shm{name}")


class Renewed:
    """A slot with a short lease that is held for longer. A process that is held up for most of a lease loses it, as it should:
    then `says_nothing`, and it is tried with longer times."""

    def __init__(self, store, scale):
        self.store, self.key, self.limit, self.lease = store, f"renewed {scale}", f"concurrent 1 lease {400 * scale}ms", 0.4 * scale
        self.slot, self.times = store.slot(self.key, self.limit), []
        renew, self.slot.renew = self.slot.renew, lambda: self.note(renew())

    def note(self, result=None):
        self.times.append(time.monotonic())
        return result

    def is_held(self):
        return not self.slot.lost and not self.store.acquire(self.key, self.limit)

    def says_nothing(self, held):
        self.note()
        return not held and max(later - time for time, later in zip(self.times, self.times[1:])) > self.lease / 2


def test_with(check):
    def renewed(kind, store, scale):
        it, held = Renewed(store, scale), False
        with contextlib.suppress(weir.ENOLEASE), it.slot:
            it.note()
            time.sleep(PAUSE * scale)
            held = it.is_held()
            it.slot.check()
        if it.says_nothing(held):
            return False
        check(held, f"{kind}: still held after two leases")
        return True
    with stores() as each:
        for kind, store in each.items():
            with store.slot("k", "concurrent 1") as slot:
                check(slot.held and slot.lease > 0 and slot.decision.allowed and not slot.lost, f"{kind}: held")
                slot.check()
            check(not slot.held and store.acquire("k", "concurrent 1").allowed, f"{kind}: released")
            checks.in_time(lambda scale, kind=kind, store=store: renewed(kind, store, scale))


def test_refused(check):
    store = weir.Store("memory:1m")
    with store.slot("k", "concurrent 1"):
        try:
            with store.slot("k", "concurrent 1", max_wait=0):
                check(False, "a second slot")
        except weir.Denied as error:
            check(not error.decision.allowed and error.decision.retry_after_us > 0, "denied, and when to retry")
    for wrong, kind in ((lambda: store.slot("k", "fixed-window 1/s"), weir.EUNSUPPORTED), (lambda: store.slot("k", "concurrent 1", 0), weir.EINVAL),
                        (lambda: store.slot("k", "concurrent 1", max_wait=-1), weir.EINVAL),
                        (lambda: store.slot("k", "concurrent 1", max_wait=float("nan")), weir.EINVAL), (lambda: store.slot("k", "x"), weir.ESYNTAX)):
        try:
            wrong()
            check(False, f"{kind.__name__} expected")
        except kind:
            check(True, "refused")
    slot = store.slot("k", "concurrent 2")
    with slot:
        try:
            with slot:
                check(False, "entered twice")
        except RuntimeError as error:
            check.contains(str(error), "held already", "entered twice")
    with slot:
        check(slot.held, "it may be entered again later")


def test_no_thread(check):
    """If the system has no thread that renews, the slot is not held, and the next one tries again."""
    code = '''
import threading, time, weir
store = weir.Store("memory:1m")
threading.stack_size(1 << 46)
try:
    with store.slot("k", "concurrent 1 lease 400ms"):
        print("entered")
except RuntimeError as error:
    print(error, store.peek("k", "concurrent 1 lease 400ms").remaining)
threading.stack_size(0)
with store.slot("k", "concurrent 1 lease 8s") as slot:
    first = slot.expires
    while slot.expires == first:  # until it is renewed
        time.sleep(0.01)
    print(store.peek("k", "concurrent 1 lease 8s").remaining)
'''
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=checks.PATIENCE_SECONDS)
    check.equal(done.stdout, "can't start new thread 1\n0\n", "refused, then renewed")


def test_entered_by_two(check):
    """One slot that two threads enter at a time: the second lease would hide the first."""
    store = weir.Store("memory:1m")
    held, slot, told = store.acquire("k", "concurrent 2", 2), store.slot("k", "concurrent 2"), []

    def enter():
        with slot:
            told.append(store.peek("k", "concurrent 2").remaining)
    thread = threading.Thread(target=enter)
    thread.start()
    while not slot.entering.locked():
        time.sleep(0.001)
    try:
        slot.__enter__()
        check(False, "entered by two")
    except RuntimeError as error:
        check.contains(str(error), "waited for already", "entered by two")
    store.release("k", "concurrent 2", held.lease)
    thread.join()
    check.equal((told, store.peek("k", "concurrent 2").remaining), ([1], 2), "the first one has it, and gives it back")


def test_lost(check):
    """A lease that somebody took away: the flag, check() and the end of the block tell; another exception is not hidden."""
    store = weir.Store("memory:1m")
    slot = store.slot("k", SHORT)
    try:
        with slot:
            store.reset("k")
            while not slot.lost:
                time.sleep(0.01)
            try:
                slot.check()
                check(False, "check() raises")
            except weir.ENOLEASE as error:
                check.contains(str(error), "was lost", "check() says so")
        check(False, "the end of the block raises")
    except weir.ENOLEASE:
        check(True, "the end raised")
    try:
        with slot:
            store.reset("k")
            raise KeyError("mine")
    except KeyError:
        check(True, "the program's own exception comes first")


def test_many_threads(check):
    """Never more at once than there are slots, and everybody is served."""
    store, inside, most, done = weir.Store("memory:1m"), [0], [0], []
    lock = threading.Lock()

    def work():
        for _ in range(10):
            with store.slot("k", "concurrent 3"):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with lock:
                    inside[0] -= 1
        done.append(1)
    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(len(done) == 12 and most[0] <= 3, f"{len(done)} threads done, at most {most[0]} inside")
    check.equal(store.peek("k", "concurrent 3").remaining, 3, "all are back")
    check.equal([thread.name for thread in threading.enumerate()].count("weir-renew"), 1, "one thread renews")
    import weir._slots as inside
    one = store.slot("again", "concurrent 1")
    for _ in range(1000):
        with one:
            pass
    check.at_most(len(inside.renewer.due), 64, "what was released is forgotten")
    with one:
        check.equal(sum(due.counts() for due in inside.renewer.due), 1, "and what is held is renewed once")


def test_close_during_redis(check):
    """Calls that are in progress without the interpreter's lock go on to their end; the last of them closes the store."""
    with redis_server.Server() as redis:
        for _ in range(3):
            store, ends = weir.Store(f"redis://127.0.0.1:{redis.port}?deadline=10s"), []
            begun = threading.Barrier(7)

            def work(store=store, ends=ends, begun=begun):
                store.take("k", "fixed-window 5/h")
                begun.wait()
                try:
                    while True:
                        store.take("k", "fixed-window 5/h")
                        store.take_all([("a", "fixed-window 5/h"), ("b", "token-bucket 5/h")])
                        store.take_many([("c", "fixed-window 5/h")])
                except weir.EINVAL as error:
                    ends.append(str(error))
            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            begun.wait()
            store.close()
            for thread in threads:
                thread.join()
            check.equal(ends, ["the store is closed"] * 6, "all end")


# ---- asyncio ----

def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


def test_async_slots(check):
    """Tasks wait without threads, in their order; a release of another thread or process wakes them."""
    async def main(kind, store):
        order, inside = [], [0]

        async def work(i):
            async with store.slot("k", "concurrent 2"):
                inside[0] += 1
                check(inside[0] <= 2, f"{kind}: at most two")
                order.append(i)
                await asyncio.sleep(0.01)
                inside[0] -= 1
        before = threading.active_count()
        tasks = [asyncio.create_task(work(i)) for i in range(10)]
        await asyncio.gather(*tasks)
        check.equal(order, list(range(10)), f"{kind}: in order")
        if kind != "redis":  # asked by the loop's pool, for the time of a call
            check.at_most(threading.active_count(), before, f"{kind}: threads")
        check.equal(store.peek("k", "concurrent 2").remaining, 2, f"{kind}: all are back")

    async def renewed(kind, store, scale):
        it, held = Renewed(store, scale), False
        with contextlib.suppress(weir.ENOLEASE):
            async with it.slot:
                it.note()
                await asyncio.sleep(PAUSE * scale)
                held = it.is_held()
        if it.says_nothing(held):
            return False
        check(held, f"{kind}: renewed")
        return True
    with stores() as each:
        for kind, store in each.items():
            run(main(kind, store))
            checks.in_time(lambda scale, kind=kind, store=store: run(renewed(kind, store, scale)))


def test_async_other_process(check):
    """A release of another process wakes a task: long before the lease would end."""
    name = f"/weir-py-other-{os.getpid()}"
    store = weir.Store(f"shm:{name}?size=64k")
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        lease = store.acquire("k", "concurrent 1 lease 1h").lease
        os.write(1, b"")
        os.read(ready, 1)
        store.release("k", "concurrent 1 lease 1h", lease)
        os._exit(0)
    while store.peek("k", "concurrent 1 lease 1h").remaining:
        time.sleep(0.01)

    async def main():
        asyncio.get_running_loop().call_later(0.1, os.close, told)
        async with store.slot("k", "concurrent 1 lease 1h", max_wait=50):
            return True
    check(run(main()), "woken")
    os.waitpid(pid, 0)
    os.unlink(f"/dev/shm{name}")


def test_async_wait(check):
    async def main(kind, store):
        limit = "token-bucket 50/s burst 1"
        start = time.monotonic()
        decisions = await asyncio.gather(*(store.wait_async(f"w{kind}", limit) for _ in range(6)))
        check(all(d.allowed for d in decisions) and time.monotonic() - start >= 0.09, f"{kind}: five had to wait")
        window = "fixed-window 1/100ms from-first"
        order = []

        async def turn(i):
            if (await store.wait_async(f"f{kind}", window)).allowed:
                order.append(i)
        await asyncio.gather(*(turn(i) for i in range(4)))
        check.equal(order, [0, 1, 2, 3], f"{kind}: in order")
        check(not await store.wait_async(f"n{kind}", "fixed-window 5/h", 6), f"{kind}: never")
        await store.wait_async(f"d{kind}", "fixed-window 1/h from-first")
        begun = time.monotonic()
        check(not await store.wait_async(f"d{kind}", "fixed-window 1/h from-first", max_wait=30), f"{kind}: known to be too late")
        check.at_most(time.monotonic() - begun, 20, f"{kind}: and told at once")
    with stores() as each:
        for kind, store in each.items():
            run(main(kind, store))


def test_async_wrong(check):
    store = weir.Store("memory:1m")
    for wrong in (-1, float("nan")):
        try:
            run(store.wait_async("k", "fixed-window 5/h", max_wait=wrong))
            check(False, f"max_wait {wrong}")
        except weir.EINVAL as error:
            check.contains(str(error), "max_wait", f"max_wait {wrong}")
    check.equal(store.peek("k", "fixed-window 5/h").remaining, 5, "nothing was charged")


def test_async_closed(check):
    """close() ends all waits, whatever they wait for, also those in a queue and those of another thread's loop."""
    async def main(kind, store, close):
        hour = "fixed-window 1/h from-first"
        store.take(f"cl{kind}", hour)
        store.acquire(f"cl{kind}", "concurrent 1")

        async def hold():
            async with store.slot(f"cl{kind}", "concurrent 1"):
                return "held"
        tasks = [asyncio.ensure_future(it) for _ in range(3) for it in (hold(), store.wait_async(f"cl{kind}", hour))]
        while len(weir._async.asleep.get(store, ())) < 2:
            await asyncio.sleep(0.001)
        close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        check.equal([type(it).__name__ for it in ended], ["ECANCELED"] * 6, f"{kind}: all waits end")
    with stores() as each:
        for kind, store in each.items():
            by_thread = threading.Thread(target=store.close)
            run(main(kind, store, by_thread.start if kind == "shm" else store.close))


def test_async_cancelled(check):
    """A task that is cancelled leaves nothing charged, held or queued."""
    async def main(kind, store):
        limit = "token-bucket 1/m burst 5"
        d = await store.wait_async(f"c{kind}", limit, 5)
        task = asyncio.create_task(store.wait_async(f"c{kind}", limit, 5))
        while store.peek(f"c{kind}", limit, wait=120).allowed:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        while not store.peek(f"c{kind}", limit, wait=120).allowed:  # what a thread of the pool asked for comes back, long before its time
            await asyncio.sleep(0.01)
        check(task.cancelled(), f"{kind}: the reservation is given back")
        async with store.slot(f"s{kind}", "concurrent 1"):
            waiting = [asyncio.create_task(store.slot(f"s{kind}", "concurrent 1").__aenter__()) for _ in range(3)]
            await asyncio.sleep(0.05)
            for it in waiting:
                it.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        while store.peek(f"s{kind}", "concurrent 1").remaining == 0:  # what a thread of the pool got meanwhile comes back
            await asyncio.sleep(0.01)
        check(d.allowed, f"{kind}: no slot is left behind")
        import weir._async as inside
        check.equal(list(inside.queues[asyncio.get_running_loop()]), [], f"{kind}: nobody is queued")
    with stores() as each:
        for kind, store in each.items():
            run(main(kind, store))


def test_decorator(check):
    store = weir.Store("memory:1m")

    @weir.limited(store, "fixed-window 2/h from-first", key=lambda user, **_: f"mail:{user}", cost=lambda user, n=1: n)
    def send(user, n=1):
        """Sends."""
        return user, n
    check(send("ann") == ("ann", 1) and send.__doc__ == "Sends." and send.__name__ == "send", "called")
    try:
        send("ann", n=2)
        check(False, "denied")
    except weir.Denied as error:
        check.equal(error.decision.remaining, 1, "denied")
    check(send("bob", n=2) == ("bob", 2), "another key")

    @weir.limited(store, "concurrent 1", max_wait=0)
    def alone():
        try:
            return alone()
        except weir.Denied:
            return "once"
    check.equal(alone(), "once", "holds a slot while it runs")

    @weir.limited(store, "token-bucket 50/s burst 1", key="async", max_wait=None)
    async def later():
        return 5

    async def main():
        return await asyncio.gather(*(later() for _ in range(3)))
    check.equal(run(main()), [5, 5, 5], "async")
    check.equal(weir.limited("memory:64k", "fixed-window 1/h")(len)("abc"), 3, "a store by its address")

    def parts():
        yield 1

    async def parts_async():
        yield 1
    for generator in (parts, parts_async):  # it would run without its slot
        try:
            weir.limited(store, "concurrent 1")(generator)
            check(False, f"{generator.__name__} is refused")
        except TypeError as error:
            check.contains(str(error), "generator", f"{generator.__name__} is refused")
    check.equal(list(weir.limited(store, "fixed-window 1/h")(parts)()), [1], "a generator under a rate")


def test_sliced(check):
    """A decision from a slice of a Redis store says so."""
    limit, decisions = "fixed-window 1000000/366d", []
    with redis_server.Server() as redis, \
            weir.Store(f"redis://127.0.0.1:{redis.port}?slices=10%&peers=2&slice-life=5s&deadline=1m") as store:
        def is_local():
            decisions.extend(store.take("hot", limit) for _ in range(10))
            return decisions[-1].local
        checks.until("a decision from a slice", is_local)
        check.equal((decisions[0].local, decisions[-1].limit, decisions[-1].charged), (False, 1000000, 1), "the first one is Redis' own")


TESTS = [test_with, test_sliced, test_refused, test_no_thread, test_entered_by_two, test_lost, test_many_threads, test_close_during_redis, test_async_slots, test_async_other_process, test_async_wait, test_async_wrong, test_async_closed, test_async_cancelled,
         test_decorator]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
