"""A storage and strategies for the package ``limits``, and so for Flask-Limiter and slowapi.

    import weir.limits                                  # makes the names known
    Limiter(key_func, app=app, storage_uri="weir+shm:///web", strategy="weir-token-bucket")

Addresses: ``weir+shm:///name?size=64m``, ``weir+file:///path``, ``weir+redis://host:6379``, ``weir+memory://``. The storage counts
as ``limits`` asks, also what was denied. The strategies ``weir-…`` decide by weir's own limits, where a denied request charges nothing.
"""
from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Optional, Tuple, Type, cast

import limits.errors
import limits.storage
import limits.strategies
from limits.limits import GRANULARITIES, RateLimitItem

from . import _weir
from ._store import Store

MOST = 1_000_000_000  # what a counter may come to; weir's windows admit no more
WINDOW_STATS: Any = getattr(limits, "WindowStats", lambda *numbers: numbers)  # newer versions have names for the two
SCHEMES = ("weir+memory", "weir+shm", "weir+file", "weir+redis", "weir+rediss")


def address(uri: str) -> str:
    """weir's address of a storage's: weir+shm:///web is shm:/web."""
    scheme, colon, rest = uri.partition("://")
    if not colon or scheme not in SCHEMES:
        raise limits.errors.ConfigurationError(f'invalid storage "{uri}": expected {", ".join(f"{it}://" for it in SCHEMES)}')
    kind = scheme[len("weir+"):]
    if kind.startswith("redis"):
        return f"{kind}://{rest}"
    return f"{kind}:{(rest.lstrip('/') or '64m') if kind == 'memory' else '/' + rest.lstrip('/')}"


def hits_of(decision: _weir.Decision) -> int:
    """What a counter has come to. A local fallback has a part of the window, 1/peers, so each of its hits stands for as many: then a
    limit of 20 admits 20/peers here, and at least 1."""
    used, peers = decision.limit - decision.remaining, round(MOST / max(1, decision.limit))
    return used * peers if used > 1 else used


def period_of(key: str) -> Optional[int]:
    """The seconds of a key as limits makes them: …/AMOUNT/MULTIPLES/GRANULARITY."""
    parts = key.rsplit("/", 2)
    granularity = GRANULARITIES.get(parts[-1])
    if granularity is None or len(parts) < 3 or not parts[-2].isdecimal():
        return None
    return int(parts[-2]) * granularity.GRANULARITY.seconds


class Storage(limits.storage.Storage, limits.storage.MovingWindowSupport):
    """Counters of ``limits`` in a store of weir: exact across the processes of a host, or of a fleet."""

    STORAGE_SCHEME = list(SCHEMES)

    def __init__(self, uri: Optional[str] = None, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        if options:
            raise limits.errors.ConfigurationError(f"unknown options {sorted(options)}: write them into the address, ?size=64m")
        self.store = Store(address(uri or "weir+memory://"))
        self.periods: Dict[str, int] = {}  # of keys that were not made by limits' own items

    @property
    def base_exceptions(self) -> Type[Exception]:
        return _weir.Error

    def window(self, key: str) -> Optional[_weir.Limit]:
        """The counter of a key is one large window that begins with its first hit."""
        period = self.periods.get(key) or period_of(key)
        return None if period is None else self.counter(period)

    def counter(self, seconds: int) -> _weir.Limit:
        return self.store.limit(f"fixed-window {MOST}/{seconds}s from-first")

    def incr(self, key: str, expiry: int, elastic_expiry: bool = False, amount: int = 1) -> int:
        if elastic_expiry:
            raise limits.errors.ConfigurationError("weir has no windows with elastic expiry: use fixed-window or moving-window, or a strategy "
                                                   "of weir: weir-token-bucket, weir-sliding-window")
        period = max(1, math.ceil(expiry))
        if period_of(key) != period and self.periods.get(key) != period:
            if len(self.periods) >= 10000:
                self.periods.clear()
            self.periods[key] = period
        decision = self.store.take(key, self.counter(period), amount)
        return hits_of(decision) if decision.allowed else MOST

    def get(self, key: str) -> int:
        limit = self.window(key)
        return 0 if limit is None else hits_of(self.store.peek(key, limit, 0))

    def get_expiry(self, key: str) -> int:
        limit = self.window(key)
        left_us = 0 if limit is None else self.store.peek(key, limit, 0).reset_after_us
        return int(time.time() + left_us / 1e6)

    def check(self) -> bool:
        try:
            self.store.peek("weir:check", "fixed-window 1/s")
            return True
        except _weir.Error:
            return False

    def reset(self) -> Optional[int]:
        raise NotImplementedError("a store of weir is not emptied as a whole: clear the keys, or remove the zone")

    def clear(self, key: str) -> None:
        self.store.reset(key)

    # ---- the moving window: an exact log ----

    def log(self, limit: int, expiry: int) -> _weir.Limit:
        return self.store.limit(f"sliding-log {limit}/{max(1, math.ceil(expiry))}s")

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        if amount > limit:
            return False  # also "0/minute", which is not a limit of weir
        return self.store.take(key, self.log(limit, expiry), amount).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Tuple[int, int]:
        """When the oldest entry that counts was made, and how many there are."""
        if limit < 1:
            return int(time.time()), 0
        log = self.log(limit, expiry)
        left = self.store.peek(key, log, 0).remaining
        if left == limit:
            return int(time.time()), 0
        soonest = self.store.peek(key, log, left + 1)  # allowed when the oldest has gone
        wait_us = soonest.retry_after_us if not soonest.allowed else 0
        return int(time.time() + wait_us / 1e6 - expiry), limit - left


class Strategy(limits.strategies.RateLimiter):
    """Decides by a limit of weir. A subclass has the text: ``{rate}`` is "5/60s", ``{amount}`` and ``{seconds}`` its numbers."""

    TEXT = "token-bucket {rate}"

    def __init__(self, storage: Any) -> None:
        super().__init__(storage)
        # Other storages are the fallback of Flask-Limiter and slowapi, for a storage that is down: a memory of our own.
        self.store = storage.store if isinstance(storage, Storage) else Store("memory:4m")

    def limit(self, item: RateLimitItem) -> _weir.Limit:
        seconds = item.get_expiry()
        return self.store.limit(self.TEXT.format(rate=f"{item.amount}/{seconds}s", amount=item.amount, seconds=seconds))

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return self.store.take(item.key_for(*identifiers), self.limit(item), cost, wait=0).allowed

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return self.store.peek(item.key_for(*identifiers), self.limit(item), cost, wait=0).allowed

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> Tuple[int, int]:
        """When there is more if nothing is left, otherwise when all of it is there; and what is left."""
        decision = self.store.peek(item.key_for(*identifiers), self.limit(item), wait=0)
        us = decision.reset_after_us if decision.allowed else max(0, decision.retry_after_us)
        return cast(Tuple[int, int], WINDOW_STATS(math.ceil(time.time() + us / 1e6), decision.remaining))

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        self.store.reset(item.key_for(*identifiers))


def strategy(name: str, text: str) -> Type[Strategy]:
    """Makes a strategy and registers its name: strategy("api", "token-bucket {rate} burst 20")."""
    kind = cast(Type[Strategy], type(f"Strategy_{name}", (Strategy,), {"TEXT": text}))
    _weir.Limit(text.format(rate="5/60s", amount=5, seconds=60))  # a mistake is found here
    cast(Any, limits.strategies.STRATEGIES)[name] = kind
    return kind


KINDS: List[str] = ["token-bucket", "fixed-window", "sliding-log", "sliding-window", "sliding-counter"]
for _kind in KINDS:
    strategy(f"weir-{_kind}", f"{_kind} {{rate}}")
strategy("weir-fixed-window-from-first", "fixed-window {rate} from-first")
