"""Slots: leases that are renewed while they are used, and released at the end.

One thread of the process renews those that were entered by `with`. Those of `async with` are renewed by timers of their loop.
"""
from __future__ import annotations

import asyncio
import atexit
import contextlib
import heapq
import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Tuple, Type

from . import _async, _weir
from ._types import Key, Time, seconds

if TYPE_CHECKING:
    from ._store import Store

Held = Tuple[Key, _weir.Limit, int]  # key, limit, cost


class Denied(Exception):
    """There was no slot in time, or a decorated function was denied. `decision` says when to try again."""

    def __init__(self, decision: _weir.Decision) -> None:
        super().__init__("never allowed" if decision.retry_after_us < 0 else f"denied, retry in {decision.retry_after_us / 1e6} s")
        self.decision = decision

    def fields(self) -> List[Tuple[str, str]]:
        """For the HTTP answer of a handler: Retry-After, unless it is never allowed."""
        after = self.decision.retry_after_us
        return [] if after < 0 else [("retry-after", str(max(1, -(-after // 1_000_000))))]


class Due(NamedTuple):
    """When a slot is to be renewed. `turn` tells one hold of a slot from a later one."""

    when: float
    number: int
    slot: Slot
    turn: int

    def counts(self) -> bool:
        return self.slot.held and self.slot.turn == self.turn


class Renewer:
    """The thread that renews. It starts with the first slot, and ends when the program does."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a child of fork: its parent renews what its parent holds."""
        self.changed = threading.Condition()
        self.due: List[Due] = []
        self.count, self.ended, self.most = 0, False, 64
        self.thread: Optional[threading.Thread] = None

    def add(self, slot: Slot) -> None:
        with self.changed:
            if self.thread is None:
                thread = threading.Thread(target=self.run, name="weir-renew", daemon=True)
                thread.start()  # if the system has no thread for it, the next slot tries again
                self.thread = thread
            self.count += 1
            mine = Due(time.monotonic() + slot.pause(), self.count, slot, slot.turn)
            heapq.heappush(self.due, mine)
            if len(self.due) > self.most:  # slots that were released stay until they are due: at most as many as are held
                self.due = [it for it in self.due if it.counts()]
                heapq.heapify(self.due)
                self.most = max(64, 2 * len(self.due))
            if self.due[0] is mine:
                self.changed.notify()

    def next(self) -> Optional[Due]:
        """What is due; None: the program ends."""
        with self.changed:
            while not self.ended:
                left = self.due[0].when - time.monotonic() if self.due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self.due)
                self.changed.wait(left)
        return None

    def run(self) -> None:
        while True:
            due = self.next()
            if due is None:
                return
            try:
                again = due.counts() and due.slot.renew()
            except Exception:  # whatever it was: this thread renews for all
                due.slot.lost, again = True, False
            if again and due.counts():
                self.add(due.slot)

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify()
            thread = self.thread
        if thread is not None:
            thread.join(1.0)


renewer = Renewer()
atexit.register(renewer.end)
os.register_at_fork(after_in_child=renewer.forget)


class Slot:
    """What ``store.slot()`` gives. Enter it with ``with`` or ``async with``, once at a time.

    ``lost`` becomes true if the lease could not be renewed in time: others may have the slots then. ``check()`` raises
    ``ENOLEASE`` in that case, and so does the end of the block, if it ends without another exception.
    """

    def __init__(self, store: Store, wanted: List[Held], max_wait: Optional[Time]) -> None:
        if not all(limit.lease_us for _, limit, _ in wanted):
            raise _weir.EUNSUPPORTED(f'no limit of "{wanted[0][1].text}" has leases: expected concurrent')
        if max_wait is not None and not seconds(max_wait) >= 0:
            raise _weir.EINVAL(f"invalid max_wait {max_wait}: expected 0 seconds or more, or None")
        if not all(cost >= 1 for _, _, cost in wanted):
            raise _weir.EINVAL("invalid cost: a slot holds 1 or more")
        self.store, self.wanted = store, wanted
        self.max_wait = None if max_wait is None else seconds(max_wait)
        self.decision: Optional[_weir.Decision] = None
        self.lease, self.lost, self.held = 0, False, False
        self.expires = 0.0
        self.owner = self.turn = 0
        self.entering = threading.Lock()  # while it is entered: a second lease would take the place of the first
        self.renewing: Optional[asyncio.Task[None]] = None
        self.timer: Optional[asyncio.TimerHandle] = None

    def __reduce__(self) -> Any:
        raise TypeError("a slot cannot be pickled or copied: it belongs to the process that holds it")

    def __repr__(self) -> str:
        return f"<weir.Slot of {self.wanted[0][0]!r}{', lost' if self.lost else ', held' if self.held else ''}>"

    # ---- both forms ----

    def lease_seconds(self) -> float:
        return min(limit.lease_us for _, limit, _ in self.wanted) / 1e6

    def pause(self) -> float:
        """Between renewals: three tries are left before the lease expires."""
        return self.lease_seconds() / 4

    def begin(self, decision: _weir.Decision) -> None:
        if not decision.allowed:
            raise Denied(decision)
        self.decision, self.lease = decision, decision.lease
        self.lost, self.held, self.owner = False, True, os.getpid()
        self.turn += 1
        self.expires = time.monotonic() + self.lease_seconds()

    @contextlib.contextmanager
    def entry(self) -> Iterator[None]:
        if not self.entering.acquire(blocking=False):
            raise RuntimeError("the slot is waited for already: make another one with store.slot()")
        try:
            if self.held:
                raise RuntimeError("the slot is held already: make another one with store.slot()")
            yield
        finally:
            self.entering.release()

    def renew(self) -> bool:
        """Renews now; false: it is lost, or no longer held. A store that cannot be reached is asked again until the lease is over."""
        begun = time.monotonic()
        try:
            for key, limit, _ in self.wanted:
                self.store.renew(key, limit, self.lease)
            self.expires = begun + self.lease_seconds()
            return True
        except _weir.ENOLEASE:
            self.lost |= self.held
        except _weir.Error:
            self.lost |= self.held and (self.store.closed or time.monotonic() >= self.expires)
        return not self.lost

    def check(self) -> None:
        """Raises ``ENOLEASE`` if the lease is lost."""
        if self.lost:
            raise _weir.ENOLEASE("the lease was lost: it was not renewed in time, others may hold the slots")

    def release(self) -> None:
        """Gives the slots back, all of them; the first failure is raised."""
        failure: Optional[_weir.Error] = None
        for key, limit, _ in self.wanted:
            try:
                self.store.release(key, limit, self.lease)
            except _weir.Error as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def end(self) -> bool:
        """Whether this process has something to release."""
        ours = self.held and self.owner == os.getpid()
        self.held = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return ours

    # ---- with ----

    def __enter__(self) -> Slot:
        (key, limit, cost), = self.wanted
        with self.entry():
            self.begin(self.store.wait(key, limit, cost, self.max_wait, acquire=True))
            try:
                renewer.add(self)
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if not self.end():
            return
        try:
            self.release()
        except _weir.Error:
            if kind is None:
                raise

    # ---- async with ----

    async def acquire_async(self) -> _weir.Decision:
        """Asks, and again when a slot is released or a lease may have expired."""
        (key, limit, cost), = self.wanted
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (float("inf") if self.max_wait is None else self.max_wait)
        async with _async.turn(self.store, key, limit, deadline) as mine:
            decision = await self.acquire_once(key, limit, cost)
            if decision.allowed or not mine or not decision.retry_after_us >= 0:
                return decision
            wakeup = self.store.wakeup(key, limit)
            bell = _async.Bell(wakeup)
            try:
                while True:
                    bell.arm()
                    decision = await self.acquire_once(key, limit, cost)
                    left = deadline - loop.time()
                    if decision.allowed or decision.retry_after_us < 0 or left <= 0:
                        return decision
                    await _async.pause(self.store, bell.rung, min(left, max(0.001, decision.retry_after_us / 1e6)))
            finally:
                bell.close()

    async def acquire_once(self, key: Key, limit: _weir.Limit, cost: int) -> _weir.Decision:
        def give_back(decision: _weir.Decision) -> None:
            if decision.lease:
                self.store.release(key, limit, decision.lease)
        return await _async.ask(self.store, give_back, self.store.acquire, key, limit, cost)

    async def __aenter__(self) -> Slot:
        with self.entry():
            self.begin(await self.acquire_async())
            self.plan()
        return self

    def plan(self) -> None:
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self.renewing = loop.create_task(self.renew_async())
        self.timer = loop.call_later(self.pause(), begin)

    async def renew_async(self) -> None:
        if self.held and await _async.call(self.store, self.renew) and self.held:
            self.plan()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if not self.end():
            return
        try:
            await asyncio.shield(_async.call(self.store, self.release))
        except _weir.Error:
            if kind is None:
                raise
