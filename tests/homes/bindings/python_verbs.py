#!/usr/bin/env python3
"""The verbs of the Python package, its decisions and its exceptions; arguments of every wrong kind; threads, fork, close, the
end of the interpreter, subinterpreters."""
import copy
import datetime
import gc
import math
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, build, checks, redis_server  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402

NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000


def store_at(now=NOW, url="memory:4m"):
    store = weir.Store(url)
    store.set_time(now)
    return store


def raises(check, kind, part, function, what=""):
    try:
        got = function()
    except kind as error:
        check(part in str(error), f"{what or part}: {error}")
        return error
    except BaseException as error:
        check(False, f"{what or part}: {error!r} instead of {kind.__name__}")
    else:
        check(False, f"{what or part}: {got!r} instead of {kind.__name__}")
    return None


# ---- verbs ----

def test_decisions(check):
    store = store_at()
    d = store.take("k", "fixed-window 3/h from-first", 2)
    check.equal((d.allowed, d.limit, d.remaining, d.retry_after_us, d.reset_after_us, d.delay_us), (True, 3, 1, 0, HOUR, 0), "allowed")
    check(bool(d) and d.granted == 2 and d.charged == 2 and d.time_us == NOW and d.binding == 0 and not d.degraded and d.local is False and d.lease == 0, "the rest")
    check.equal((d.retry_after, d.reset_after, d.delay), (datetime.timedelta(0), datetime.timedelta(hours=1), datetime.timedelta(0)), "timedeltas")
    denied = store.take("k", "fixed-window 3/h from-first", 2)
    check(not denied and denied.retry_after == datetime.timedelta(hours=1) and denied.granted == 0 and denied.receipt is None, "denied")
    never = store.take("k", "fixed-window 3/h from-first", 4)
    check(never.retry_after is None and never.retry_after_us == weir.NEVER, "never")
    check(store.peek("k", "fixed-window 3/h from-first").allowed and store.peek("k", "fixed-window 3/h from-first").receipt is None, "peek")
    check.contains(repr(d), "allowed=True, limit=3, remaining=1", "repr")
    check.contains(repr(store.peek("some", "fixed-window 3/h", 9, least=1)), "granted=3)", "repr: how much is granted")
    check.equal((d.rows, d.error, d.code), ((), None, 0), "no rows, no error")
    store.reset("k")
    check.equal(store.peek(b"k", "fixed-window 3/h from-first").remaining, 3, "reset; str and bytes are the same key")


def test_long_forms(check):
    store = store_at()
    both = "token-bucket 10/s burst 20, fixed-window 5/h from-first"
    d = store.take("k", both, 3, detail=True)
    check.equal([row.remaining for row in d.rows], [17, 2], "a row per limit")
    d = store.take("k", "token-bucket 10/s burst 20", 20, wait=2.0)
    check(d.allowed and d.delay_us == 300_000, f"a reservation: {d}")
    for wait in (1, 1.0, datetime.timedelta(seconds=1)):
        got = [store.peek("k", "token-bucket 10/s burst 20", cost, wait=wait).allowed for cost in (7, 8)]
        check.equal(got, [True, False], f"wait={wait!r}")
    check(store.peek("k", "token-bucket 10/s burst 20", 1, wait=math.inf).allowed, "any wait")
    d = store.take("llm", "fixed-window 100/h from-first", 400, least=50)
    check.equal((d.granted, d.charged), (100, 100), "least")
    d = store.take_all([("a", "fixed-window 3/h from-first"), ("b", "fixed-window 9/h from-first", 9), ("c", weir.Limit("fixed-window 9/h from-first"), 1, 1)])
    check.equal([row.remaining for row in d.rows], [2, 0, 8], "take_all")
    d = store.take_all(iter([["a", "fixed-window 3/h from-first"], ("b", "fixed-window 9/h from-first")]))
    check(not d.allowed and d.binding == 1 and store.peek("a", "fixed-window 3/h from-first").remaining == 2, "all or nothing")
    check(store.peek_all([("a", "fixed-window 3/h from-first", 2)]).allowed, "peek_all")
    many = store.take_many([(f"m{i % 2}", "fixed-window 2/h from-first") for i in range(6)] + [("x" * 70000, "fixed-window 2/h")])
    check.equal([d.allowed for d in many], [True] * 4 + [False] * 3, "take_many")
    check(isinstance(many[-1].error, weir.EINVAL) and many[-1].code == -1 and many[0].error is None, "one of many fails")
    check.equal(store.take_many([]), [], "none of many")


def test_settle(check):
    store = store_at()
    d = store.take("k", "fixed-window 100/h from-first", 60)
    check(re.fullmatch(r"w3-\d+-60-\d+", d.receipt) and d.receipt == d.receipt, f"a receipt that stays: {d.receipt}")
    check(store.settle("k", "fixed-window 100/h from-first", d.receipt, 10) is True, "settled")
    check(store.settle("k", "fixed-window 100/h from-first", d, 10) is False, "settled before")
    check.equal(store.peek("k", "fixed-window 100/h from-first").remaining, 90, "50 are back")
    check(store.settle("k", "fixed-window 100/h from-first", store.take("k", "fixed-window 100/h from-first"), 0), "by the decision itself")
    raises(check, weir.ERECEIPT, "receipt", lambda: store.settle("k", "fixed-window 1/h", "nonsense", 1))
    raises(check, weir.ERECEIPT, "NUL", lambda: store.settle("k", "fixed-window 1/h", "w1-1-1\0", 1))
    raises(check, weir.ERECEIPT, "nothing was charged", lambda: store.settle("k", "fixed-window 1/h", store.peek("q", "fixed-window 1/h"), 1))
    raises(check, TypeError, "str or Decision", lambda: store.settle("k", "fixed-window 1/h", 5, 1))


def settle_everything(store, key, minute, month):
    """A request of two limits with different charges: the minute is charged 4000, the month what is left, 2000."""
    store.take(key, month, 998_000)
    d = store.take_all([(key, minute, 4000), (key, month, 4000, 500)])
    assert [row.charged for row in d.rows] == [4000, 2000]
    settled = [store.settle(key, limit, row.receipt, 1212) for limit, row in zip((minute, month), d.rows)]
    return d, settled, [store.peek(key, limit, 0).remaining for limit in (minute, month)]


def test_one_charge_has_one_receipt(check):
    """Whichever of a call's receipts is settled: nothing is given back twice, or by another request's charge."""
    with redis_server.Server() as redis:
        for name, store in (("memory", weir.Store("memory:8m")), ("redis", weir.Store(f"redis://127.0.0.1:{redis.port}?deadline=10s"))):
            one_charge(check, name, store)
            store.close()


def one_charge(check, name, store):
    minute, month = "fixed-window 20k/h from-first", "fixed-window 1m/30d from-first"
    d, settled, left = settle_everything(store, "k", minute, month)
    check.equal((settled, left), ([True, True], [18_788, 788]), f"{name}: each request is settled by its row")
    check(d.receipt is None, f"{name}: charges that differ have no common receipt: {d.receipt}")
    for given in (d, d.receipt):
        raises(check, weir.ERECEIPT, "rows[i].receipt", lambda: store.settle("k", month, given, 0), f"{name}: {given}")
    raises(check, weir.ERECEIPT, "receipt of its own rows", lambda: store.settle("k", month, "", 0), name)
    d = store.take_all([("k", minute, 300), ("org", minute, 300)])
    check(d.receipt and [row.receipt for row in d.rows] == [d.receipt] * 2, f"{name}: the same charge has the same receipt")
    check.equal([store.settle(key, minute, given, 0) for key in ("k", "org") for given in (d.rows[0], d)], [True, False] * 2, f"{name}: once per key")
    d = store.take("k", minute + ", sliding-log 9000/h", 300, detail=True)
    check.equal([store.settle("k", minute, d.rows[0], 0), store.settle("k", minute + ", sliding-log 9000/h", d, 0), store.settle("k", "sliding-log 9000/h", d.rows[1], 0)],
                [True, True, False], f"{name}: one request of two limits")
    check.equal([store.peek("k", text, 0).remaining for text in (minute, "sliding-log 9000/h")], [18_788, 9000], f"{name}: nothing twice")
    d = store.take_all([("k", minute, 0), ("org", minute, 300)])
    check.equal((d.receipt, d.rows[0].receipt), (None, None), f"{name}: what was charged nothing")
    check(store.settle("org", minute, d.rows[1], 0), f"{name}: beside one that was")


def test_leases(check):
    store = store_at()
    d = store.acquire("j", "concurrent 2", 2)
    check(d.lease > 0 and not store.acquire("j", "concurrent 2"), "held")
    store.renew("j", "concurrent 2", d.lease)
    store.release("j", "concurrent 2", d.lease)
    raises(check, weir.ENOLEASE, "no such lease", lambda: store.release("j", "concurrent 2", d.lease))
    raises(check, weir.EINVAL, "lease", lambda: store.release("j", "concurrent 2", -1))
    raises(check, weir.EUNSUPPORTED, "expected concurrent", lambda: store.acquire("j", "fixed-window 1/s"))
    raises(check, weir.EUNSUPPORTED, "expected concurrent", lambda: store.take_all([("j", "fixed-window 1/s")], acquire=True))
    d = store.take_all([("a", "concurrent 1"), ("b", "fixed-window 5/h"), ("c", "concurrent 1")], acquire=True)
    for key in "ac":
        store.release(key, "concurrent 1", d.lease)


def test_wait(check):
    store = store_at()
    d = store.wait("k", "fixed-window 1/h from-first")
    d = store.wait("k", "fixed-window 1/h from-first", max_wait=datetime.timedelta(hours=2))
    check(d.allowed and d.time_us == NOW + HOUR, "the clock moved instead of sleeping")
    check(not store.wait("k", "fixed-window 1/h from-first", 1, 10), "too late")
    check(not store.wait("k", "fixed-window 1/h from-first", 2), "never")
    real = weir.Store("memory:1m")
    start = time.monotonic()
    real.take("w", "token-bucket 20/s burst 1")
    check(real.wait("w", "token-bucket 20/s burst 1").allowed and time.monotonic() - start >= 0.04, "slept")


def test_limits(check):
    limit = weir.Limit("GCRA 10r/s burst 20, concurrent 5 lease 30s cost 2")
    check.equal(limit.text, "token-bucket 10/s burst 20, concurrent 5 lease 30s cost 2", "canonical")
    check.equal((len(limit), limit.kinds, limit.amounts, limit.periods_us, limit.bursts, limit.costs, limit.lease_us),
                (2, ("token-bucket", "concurrent"), (10, 5), (1_000_000, 30_000_000), (20, 0), (0, 2), 30_000_000), "numbers")
    check(limit == weir.Limit(limit.text) and hash(limit) == hash(weir.Limit(limit.text)) and limit != weir.Limit("fixed-window 1/s"), "equal")
    check(pickle.loads(pickle.dumps(limit)) == limit and copy.copy(limit) == limit and weir.Limit(limit) is limit, "pickled, copied")
    error = raises(check, weir.ESYNTAX, "expected a rate", lambda: weir.Limit("token-bucket 10 per second"))
    check.equal((error.column, error.code, error.name), (14, -2, "ESYNTAX"), "the place")
    raises(check, weir.ESYNTAX, "", lambda: weir.Limit("fixed-window 1/s\0"))
    raises(check, UnicodeEncodeError, "surrogates", lambda: weir.Limit("\ud800"))
    raises(check, TypeError, "str or Limit", lambda: weir.Limit(b"fixed-window 1/s"))
    store = weir.Store("memory:4m")
    for i in range(3000):  # more texts than it remembers
        check_quiet = store.take("k", f"fixed-window {i + 1}/h").limit == i + 1
        if not check_quiet:
            check(False, f"limit {i}")
    check(store.limit("fixed-window 3000/h") is store.limit("fixed-window 3000/h"), "remembered")
    long = "fixed-window" + " " * 5000 + "7/h"  # a thousand of these would be much memory
    check(store.limit(long) == store.limit(long) and store.limit(long) is not store.limit(long), "a long text is not kept")


def test_fields(check):
    store = store_at()
    d = store.take("k", "fixed-window 2/h from-first", 2, detail=True)
    check.equal(d.fields(), [("ratelimit", '"fixed-window";r=0;t=3600'), ("ratelimit-policy", '"fixed-window";q=2;w=3600')], "fields")
    d = store.take("k", "fixed-window 2/h from-first", 1, detail=True)
    check.equal(d.fields("x-ratelimit", ["a"])[0], ("retry-after", "3600"), "denied")
    check.contains(d.fields(names=['na"me'])[1][1], '"na\\"me";r=0', "named")
    check.equal((d.fields("retry-after"), d.fields("off")), ([("retry-after", "3600")], []), "only Retry-After, nothing")
    raises(check, weir.EINVAL, "invalid style", lambda: d.fields("no"))
    raises(check, ValueError, "2 names for 1", lambda: d.fields(names=["a", "b"]))
    raises(check, TypeError, "str or None", lambda: d.fields(names=[1]))
    raises(check, ValueError, "detail=True", lambda: store.take("k", "fixed-window 2/h").fields())


# ---- exceptions ----

def test_errors(check):
    listed = re.findall(r"^    X\((E[A-Z]+), (\d+), \"(.*?)\"\)", (build.ROOT / "include/weir.h").read_text(encoding="utf-8"), re.M)
    check.equal(len(listed), weir._weir.error_count, "the list is read whole")
    for name, number, text in listed:
        kind = getattr(weir, name, None)
        check(kind is not None and issubclass(kind, weir.Error) and kind.code == -int(number) and kind.name == name and name in weir.__all__
              and kind.__doc__ == text and f"class {name}(" in (bindings.PYTHON_SOURCE / "weir/_weir.pyi").read_text(encoding="utf-8"), name)
    check(issubclass(weir.EINVAL, ValueError) and issubclass(weir.EUNREACHABLE, ConnectionError) and issubclass(weir.ENOMEM, MemoryError), "bases")
    for url, kind in (("foo:", weir.EURL), ("", weir.EURL), ("memory:\0", weir.EURL), ("file:/nowhere/at/all", weir.ESYSTEM),
                      ("memory:1", weir.EURL)):
        raises(check, kind, "", lambda url=url: weir.Store(url), url)
    mistyped = f"/weir-py-mistyped-{os.getpid()}"
    raises(check, weir.ESYSTEM, "there is no zone; check its name", lambda: weir.Store(f"shm:{mistyped}?create=no"), "create=no")
    check(not os.path.exists(f"/dev/shm{mistyped}"), "create=no makes no zone")
    raises(check, TypeError, "", lambda: weir.Store(5))
    raises(check, TypeError, "", weir.Store)


class Index:
    def __init__(self, act, value=1):
        self.act, self.value = act, value

    def __index__(self):
        self.act()
        return self.value


class Text(str):
    def __hash__(self):
        raise RuntimeError("hash")

    def __eq__(self, other):
        raise RuntimeError("eq")


class Number(int):
    def __index__(self):
        raise RuntimeError("index")

    def __int__(self):
        raise RuntimeError("int")


def test_wrong_arguments(check):
    store, limit = store_at(), "fixed-window 5/h"
    for key in (None, 1, 1.5, [], object(), bytearray(b"a"), memoryview(b"a")):
        raises(check, TypeError, "the key must be str or bytes", lambda key=key: store.take(key, limit), repr(key))
    for key in ("", b"", "a" * 65537, b"a" * 65537, "é" * 32769):
        raises(check, weir.EINVAL, "invalid key of", lambda key=key: store.take(key, limit))
    raises(check, UnicodeEncodeError, "surrogates", lambda: store.take("\udc80", limit))
    check(store.take("a\0b", limit).remaining == 4 and store.peek("a", limit).remaining == 5 and store.take(b"\xff\0", limit), "keys hold NUL")
    for wrong in (None, 5, b"fixed-window 5/h", ["fixed-window 5/h"]):
        raises(check, TypeError, "the limit must be str or Limit", lambda wrong=wrong: store.take("k", wrong))
    for cost in (-1, -2**63, 10**12 + 1, 2**63 - 1, 2**63, -2**63 - 1, 2**64, 10**40):
        for verb in (store.take, store.peek, store.wait, lambda *a: store.take(*a, detail=True), lambda *a: store.take_all([a]),
                     lambda *a: store.acquire(a[0], "concurrent 1", a[2])):
            raises(check, weir.EINVAL, "invalid cost", lambda verb=verb, cost=cost: verb("k", limit, cost), str(cost))
    for cost in ("1", 1.0, None, [1]):
        raises(check, TypeError, "cost must be an int", lambda cost=cost: store.take("k", limit, cost))
    for wait in (-1, -0.5, math.nan, -math.inf, 10**9, 1e30, 10**40, datetime.timedelta(days=-1), datetime.timedelta(days=5000)):
        raises(check, weir.EINVAL, "invalid", lambda wait=wait: store.take("k", limit, wait=wait), repr(wait))
        raises(check, weir.EINVAL, "invalid", lambda wait=wait: store.wait("k", limit, max_wait=wait), repr(wait))
    for wait in ("1", [], b"1"):
        raises(check, TypeError, "seconds, a timedelta or None", lambda wait=wait: store.take("k", limit, wait=wait))
    for words, named in (((), {}), (("k",), {}), (("k", limit, 1, 2), {}), (("k", limit), {"key": "k"}), (("k", limit), {"nothing": 1})):
        raises(check, TypeError, "take()", lambda words=words, named=named: store.take(*words, **named))
    for requests in (5, None, [5], ["ab"], [("k",)], [("k", limit, 1, 1, 1)], [None]):
        raises(check, TypeError, "", lambda requests=requests: store.take_all(requests), repr(requests))
    raises(check, weir.EINVAL, "expected 1 to 16", lambda: store.take_all([("k", limit)] * 17))
    raises(check, weir.EINVAL, "limits in one call", lambda: store.take_all([(f"k{i}", "fixed-window 1/s, fixed-window 1/m") for i in range(9)]))
    raises(check, weir.ESHARED, "", lambda: store.take_all([("k", limit), ("k", limit)]))
    raises(check, weir.EINVAL, "invalid least", lambda: store.take("k", limit, 1, least=2))
    raises(check, ZeroDivisionError, "", lambda: store.take_all(1 / 0 for _ in range(3)))
    raises(check, ZeroDivisionError, "", lambda: store.take_all([(1 / 0 for _ in range(3))]))
    for kind in (weir.Decision, weir.Wakeup):
        raises(check, TypeError, "cannot be made", kind)
    raises(check, TypeError, "", lambda: type("Mine", (weir.Limit,), {}))
    for wrong in (-1, 2**53, 2**70):
        raises(check, weir.EINVAL, "", lambda wrong=wrong: store.set_time(wrong))


def test_hostile_objects(check):
    """Subclasses with methods of their own, and arguments that act while they are read."""
    store, limit = store_at(), "fixed-window 5/h"
    check(store.take(Text("k"), Text(limit), Number(2)).remaining == 3, "subclasses are what they hold")
    check.equal(store.take("k", limit, Index(lambda: None)).remaining, 2, "__index__")
    raises(check, ZeroDivisionError, "", lambda: store.take("k", limit, Index(lambda: 1 / 0)))
    raises(check, TypeError, "", lambda: store.take("k", limit, Index(lambda: None, "1")))
    for verb in (lambda it: store_at().take("k", limit, it), lambda it: store_at().take_all([("k", limit, it)])):
        check(verb(Index(lambda: None)).allowed, "as an int")

    def closing(verb):
        here = store_at()
        raises(check, weir.EINVAL, "the store is closed", lambda: verb(here, Index(here.close)))
    closing(lambda here, it: here.take("k", limit, it))
    closing(lambda here, it: here.take("k", limit, it, detail=True))
    closing(lambda here, it: here.take_all([("a", limit), ("k", limit, it)]))
    closing(lambda here, it: here.take_many([("a", limit), ("k", limit, it)]))
    closing(lambda here, it: here.wait("k", limit, it))
    closing(lambda here, it: here.settle("k", limit, "w1-1-1", it))
    closing(lambda here, it: here.release("k", "concurrent 1", it))

    requests = [("a", limit)] * 3
    requests.append(("k", limit, Index(requests.clear)))
    check.equal(len(store.take_many(requests)), 4, "a list that empties itself")
    texts = [f"fixed-window {i}/h" for i in range(1, 2000)]
    forget = Index(lambda: [store.limit(text) for text in texts])  # the limit is pushed out of the memory of texts meanwhile
    check(store.take("forgotten", "fixed-window 7/d", forget).limit == 7, "a limit that is forgotten while it is used")


def test_closed(check):
    store = store_at()
    held = store.wakeup("k", "concurrent 1")
    store.close()
    store.close()
    for name, call in {"take": lambda: store.take("k", "fixed-window 1/s"), "info": store.info, "counts": store.counts, "enter": lambda: store.reset("k"),
                       "wakeup": lambda: store.wakeup("k", "concurrent 1"), "time": lambda: store.set_time(1)}.items():
        raises(check, weir.EINVAL, "the store is closed", call, name)
    check(store.closed and "closed" in repr(store) and held.fileno() >= 0, "a wake-up keeps it open inside")
    held.arm()
    held.close()
    held.close()
    raises(check, weir.EINVAL, "the wake-up is closed", held.fileno)
    with weir.Store("memory:1m") as inside:
        check(inside.take("k", "fixed-window 1/s").allowed, "with")
    check(inside.closed, "closed at the end")
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        raises(check, TypeError, "open it by its address", lambda refused=refused: refused(weir.Store("memory:1m")))
        raises(check, TypeError, "belongs to the process", lambda refused=refused: refused(weir.Store("memory:1m").slot("k", "concurrent 1")))
        raises(check, TypeError, "", lambda refused=refused: refused(held))


def test_cycles(check):
    """A store in a cycle goes, and its descriptors with it."""
    class Node:
        pass
    path = f"shm:/weir-py-cycle-{os.getpid()}"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        node = Node()
        node.self, node.store = node, weir.Store(f"{path}?size=64k")
        node.wakeup = node.store.wakeup("k", "concurrent 1")
    del node
    gc.collect()
    check.at_most(len(os.listdir("/proc/self/fd")), before, "descriptors after 20 stores in cycles")
    os.unlink("/dev/shm" + path[4:])


# ---- threads, signals, fork, the end ----

def test_threads(check):
    store, limit = weir.Store("memory:4m"), "fixed-window 1000/d from-first"
    counts = []

    def run():
        counts.append(sum(store.take("k", limit).allowed for _ in range(400)))
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check.equal(sum(counts), 1000, "eight threads")


def test_close_during_calls(check):
    """Waits end, takes end or are refused; nothing crashes."""
    for _ in range(5):
        store = weir.Store("memory:1m")
        store.acquire("k", "concurrent 1")
        store.take("turn", "token-bucket 1/h")
        ends, behind = [], []

        def wait(ends, *wanted, store=store, **options):
            try:
                store.wait(*wanted, **options)
            except (weir.ECANCELED, weir.EINVAL) as error:
                ends.append(str(error))

        def take(store=store, ends=ends):
            try:
                while True:
                    store.take("t", "fixed-window 5/h")
            except weir.EINVAL as error:
                ends.append(str(error))
        slot = {"target": wait, "kwargs": {"acquire": True}}
        first = [threading.Thread(args=(ends, "k", "concurrent 1"), **slot), threading.Thread(target=wait, args=(ends, "turn", "token-bucket 1/h"))]
        for thread in first:
            thread.start()
        while not (store.counts()["denied"] and store.counts()["delayed"]):  # until each has asked: both wait
            time.sleep(0.001)
        others = [threading.Thread(args=(behind, "k", "concurrent 1"), **slot), *[threading.Thread(target=take) for _ in range(2)]]
        for thread in others:
            thread.start()
        while store.counts()["denied"] < 50:
            time.sleep(0.001)
        store.close()
        for thread in first + others:
            thread.join()
        closed, canceled = "the store is closed", "the store was closed during the wait, nothing is charged"
        check.equal(sorted(ends), [closed] * 2 + [canceled] * 2, "all end")
        check(behind in ([closed], [canceled]), f"one behind it, or too late for that: {behind}")


def test_signal(check):
    """Ctrl-C ends a wait; a handler that returns does not."""
    script = """if 1:
        import os, signal, threading, time, weir
        store = weir.Store("memory:1m")
        store.acquire("k", "concurrent 1")
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        def send():
            while len(seen) < 3:
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.02)
            while True:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=send, daemon=True).start()
        try:
            store.wait("k", "concurrent 1", acquire=True)
        except KeyboardInterrupt:
            os.write(1, b"interrupted %d" % (len(seen) >= 3))
            os._exit(0)
    """
    check.equal(child(script), "interrupted 1", "a signal")


def child(script, code=0, **named):
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **named)
    return done.stdout if done.returncode == code else f"ended with {done.returncode}: {done.stdout}"


def test_fork(check):
    """A zone is shared with children, memory is a copy; waits, slots and wake-ups work in them."""
    name = f"/weir-py-fork-{os.getpid()}"
    script = f"""if 1:
        import asyncio, os, sys, weir
        zone, memory = weir.Store("shm:{name}?size=64k"), weir.Store("memory:64k")
        for store in (zone, memory):
            store.take("k", "fixed-window 10/d from-first", 3)
        zone.wait("k", "fixed-window 10/d from-first", 0)
        listening = zone.wakeup("k", "concurrent 1")  # with a thread that listens, which the child does not have
        with zone.slot("before", "concurrent 1"):
            pid = os.fork()
            if pid == 0:
                zone.take("k", "fixed-window 10/d from-first", 2)
                memory.take("k", "fixed-window 10/d from-first", 2)
                with zone.slot("s", "concurrent 1"):
                    pass
                async def main():
                    async with zone.slot("s", "concurrent 1"):
                        await zone.wait_async("w", "fixed-window 1/d")
                asyncio.run(main())
                try:
                    listening.arm()
                except weir.EINVAL:
                    listening.close()
                    zone.close()
                    memory.close()
                    sys.exit(0)
            status = os.waitpid(pid, 0)[1]
            held = zone.peek("before", "concurrent 1").remaining
        print(status, [store.peek("k", "fixed-window 10/d from-first").remaining for store in (zone, memory)], held)
    """
    check.equal(child(script), "0 [5, 7] 0\n", "fork")
    os.unlink(f"/dev/shm{name}")


def test_end_of_interpreter(check):
    """Threads in waits, slots that are held, stores in globals: the interpreter ends in order."""
    script = """if 1:
        import threading, time, weir, builtins
        store = weir.Store("memory:1m")
        held = store.slot("k", "concurrent 1 lease 200ms")
        held.__enter__()
        builtins.kept = (store, held, store.wakeup("k", "concurrent 1"))
        def wait():
            store.wait("k", "concurrent 1", acquire=True)
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        class Last:
            def __del__(self, take=store.take):
                take("late", "fixed-window 1/s")
        last = Last()
        time.sleep(0.1)
        print("end")
    """
    check.equal(child(script), "end\n", "the end")


def test_subinterpreters(check):
    script = """if 1:
        import weir
        try:
            import _xxsubinterpreters as inner
        except ImportError:
            import _interpreters as inner
        made = inner.create()
        try:
            told = inner.run_string(made, "import weir")
        except BaseException as error:
            told = error
        print("subinterpreters" in str(getattr(told, "msg", told)), weir.Store("memory:64k").take("k", "fixed-window 1/s").allowed)
    """
    check.equal(child(script), "True True\n", "refused, and the main one goes on")


def test_import_again(check):
    script = """if 1:
        import sys, weir
        first = weir.EINVAL
        for name in [name for name in sys.modules if name.startswith("weir")]:
            del sys.modules[name]
        import weir as again
        try:
            again.Store("memory:64k").take("", "fixed-window 1/s")
        except first:
            print("the same")
    """
    check.equal(child(script), "the same\n", "imported twice")


def test_memory_is_flat(check):
    """Takes of every form, refused ones, too: the process does not grow. make soak does it ten million times."""
    rounds = 4_000_000 if "--long" in sys.argv else 40_000  # each is one take, every fourth seven
    store, limit = weir.Store("memory:4m"), weir.Limit("token-bucket 100/s burst 200, fixed-window 5/s")

    def pages():
        return int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])

    def work(n):
        for i in range(n):
            key = f"user:{i % 1000}"
            store.take(key, limit)
            if i % 4 == 0:
                store.take(key, "sliding-log 3/s", detail=True).fields()
                store.take_all([(key, limit), ("all", "fixed-window 1/d")]).rows
                store.take_many([(key, limit), (key, f"fixed-window {i % 3000 + 1}/h")])
                d = store.take(key, "token-bucket 1000000/s", 5)
                store.settle(key, "token-bucket 1000000/s", d, 1)
                for wrong in (lambda: store.take("", limit), lambda: store.take("k", "x"), lambda: store.take("k", limit, 2**70)):
                    try:
                        wrong()
                    except ValueError:
                        pass
    work(rounds // 4)
    before = pages()
    work(rounds)
    check.at_most((pages() - before) * os.sysconf("SC_PAGE_SIZE"), 8_000_000 if bindings.is_sanitized() else 300_000, f"bytes after {rounds} rounds")


TESTS = [test_decisions, test_long_forms, test_one_charge_has_one_receipt, test_settle, test_leases, test_wait, test_limits, test_fields, test_errors, test_wrong_arguments,
         test_hostile_objects, test_closed, test_cycles, test_threads, test_close_during_calls, test_signal, test_fork, test_end_of_interpreter,
         test_subinterpreters, test_import_again, test_memory_is_flat]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
