"""The Python part of bench/bindings.py: measures its rows as often as it is asked, each round in an order of its own.

Reads a line per round, prints {row: nanoseconds per call} as JSON. $BENCH_REDIS is the port of a redis-server.
"""
import itertools
import json
import os
import random
import sys
import time

import empty_call
import limits
import limits.storage
import limits.strategies

import weir
import weir.limits

LIMIT = "token-bucket 1000000/s burst 1000000"
KEYS = [f"user:{i}" for i in range(100000)]
REDIS = f"redis://127.0.0.1:{os.environ['BENCH_REDIS']}"
ITEM = limits.parse("100000000/minute")


def timed(count, function, *args, clock=time.thread_time_ns):
    """One function with the same arguments, again and again: time of this thread's processor, or by the clock."""
    calls = itertools.repeat(None, count)
    start = clock()
    for _ in calls:
        function(*args)
    return (clock() - start) / count


def over_keys(count, function, *args):
    keys = random.choices(KEYS, k=count)
    start = time.thread_time_ns()
    for key in keys:
        function(key, *args)
    return (time.thread_time_ns() - start) / count


def rows():
    memory, zone, remote = weir.Store("memory:64m"), weir.Store(f"shm:/weir-bench-{os.getpid()}?size=64m"), weir.Store(REDIS)
    limit = weir.Limit(LIMIT)
    batch = [(key, limit) for key in random.choices(KEYS, k=100)]
    fixed = limits.strategies.FixedWindowRateLimiter(memory_storage := limits.storage.MemoryStorage())
    moving = limits.strategies.MovingWindowRateLimiter(moving_storage := limits.storage.MemoryStorage())
    redis = limits.strategies.FixedWindowRateLimiter(redis_storage := limits.storage.storage_from_string(REDIS))
    ours = limits.strategies.STRATEGIES["weir-token-bucket"](our_storage := limits.storage.storage_from_string("weir+memory://"))
    rows.kept = (memory_storage, moving_storage, redis_storage, our_storage)
    for key in KEYS:
        memory.take(key, limit)
        zone.take(key, limit)
    memory.take("denied", "fixed-window 1/d")
    item = limits.parse("100/day")
    return {
        "an empty call": lambda: timed(20000, empty_call.call, "user:42", LIMIT),
        "take, one key, text": lambda: timed(20000, memory.take, "user:42", LIMIT),
        "take, one key, Limit": lambda: timed(20000, memory.take, "user:42", limit),
        "take, denied": lambda: timed(20000, memory.take, "denied", "fixed-window 1/d"),
        "take, 100,000 keys": lambda: over_keys(20000, memory.take, LIMIT),
        "take, 100,000 keys, shm": lambda: over_keys(20000, zone.take, LIMIT),
        "take_many of 100, per decision": lambda: timed(200, memory.take_many, batch) / 100,
        "limits, memory, fixed-window": lambda: timed(2000, fixed.hit, ITEM, "user:42"),
        "limits, memory, moving-window, denied": lambda: timed(2000, moving.hit, item, "user:42"),
        "limits on weir, memory, token-bucket": lambda: timed(2000, ours.hit, ITEM, "user:42"),
        "take on Redis, by the clock": lambda: timed(200, remote.take, "user:42", LIMIT, clock=time.perf_counter_ns),
        "limits on Redis, fixed-window, by the clock": lambda: timed(200, redis.hit, ITEM, "user:42", clock=time.perf_counter_ns),
    }


def main():
    measured = rows()
    names = list(measured)
    for _ in sys.stdin:
        random.shuffle(names)
        print(json.dumps({name: measured[name]() for name in names}), flush=True)
    os.unlink(f"/dev/shm/weir-bench-{os.getpid()}")
    os._exit(0)  # limits' own timers would keep it


if __name__ == "__main__":
    main()
