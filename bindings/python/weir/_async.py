"""Waiting in asyncio: the decision says when to ask again, so no thread waits.

Tasks of one loop that wait for the same key and limit stand in one queue. The first one asks; the others wait behind it. A
redis:// store is asked by a thread of the loop's pool, which is busy for the time of the call only.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Deque, Dict, Optional, Set, Tuple, TypeVar

from . import _weir
from ._types import Key, Time, seconds

if TYPE_CHECKING:
    from ._store import Store

T = TypeVar("T")
Place = Tuple[int, Key, str]
Queues = Dict[Place, Deque["asyncio.Future[None]"]]
queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Queues] = weakref.WeakKeyDictionary()
asleep: weakref.WeakKeyDictionary[Store, Set[asyncio.Future[None]]] = weakref.WeakKeyDictionary()  # whom close() wakes


def ring(rung: asyncio.Future[None]) -> None:
    if not rung.done():
        rung.set_result(None)


async def pause(store: Store, rung: asyncio.Future[None], timeout: float) -> None:
    """Until it rings or the time is over. If the store is closed meanwhile, that is raised at once."""
    here = asleep.setdefault(store, set())
    here.add(rung)
    try:
        if not store.closed:  # a close() from now on finds it
            await asyncio.wait([rung], timeout=timeout)
    finally:
        here.discard(rung)
    check_open(store)


def check_open(store: Store) -> None:
    if store.closed:
        raise _weir.ECANCELED("the store was closed during the wait, nothing is charged")


def wake(store: Store) -> None:
    """After close(), in any thread: the first of each queue wakes, and the others after it."""
    for rung in list(asleep.get(store, ())):
        with contextlib.suppress(RuntimeError):  # its loop is closed, too
            rung.get_loop().call_soon_threadsafe(ring, rung)


async def call(store: Store, verb: Callable[..., T], *args: Any, **named: Any) -> T:
    """A verb of the store; where it blocks, in the loop's pool."""
    if not store.blocks:
        return verb(*args, **named)
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(verb, *args, **named))


async def ask(store: Store, give_back: Callable[[_weir.Decision], None], verb: Callable[..., _weir.Decision], *args: Any,
              **named: Any) -> _weir.Decision:
    """A verb that charges. If the task is cancelled while another thread asks, what that gets is given back."""
    if not store.blocks:
        return verb(*args, **named)
    asking = asyncio.ensure_future(call(store, verb, *args, **named))

    def undo(asked: asyncio.Future[_weir.Decision]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            decision = asked.result()
            with contextlib.suppress(_weir.Error):
                give_back(decision)

    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        asking.add_done_callback(undo)
        raise


@contextlib.asynccontextmanager
async def turn(store: Store, key: Key, limit: _weir.Limit, deadline: float) -> AsyncIterator[bool]:
    """Until it is this task's turn; false: the deadline came first."""
    loop = asyncio.get_running_loop()
    here, place = queues.setdefault(loop, {}), (id(store), key, limit.text)
    queue = here.setdefault(place, collections.deque())
    mine: asyncio.Future[None] = loop.create_future()
    queue.append(mine)
    try:
        if queue[0] is mine:
            yield True
        else:
            left = None if deadline == float("inf") else max(0.0, deadline - loop.time())
            done, _ = await asyncio.wait([mine], timeout=left)
            check_open(store)
            yield bool(done)
    finally:
        first = queue[0] is mine
        queue.remove(mine)
        if queue and first and not queue[0].done():
            queue[0].set_result(None)
        if not queue and here.get(place) is queue:
            del here[place]


class Bell:
    """Rings when slots are released. (asyncio.wait_for loses a cancellation that comes at the same time, asyncio.wait does not.)"""

    def __init__(self, wakeup: _weir.Wakeup) -> None:
        self.wakeup, self.loop = wakeup, asyncio.get_running_loop()
        self.rung: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_reader(wakeup.fileno(), self.ring)

    def ring(self) -> None:
        ring(self.rung)

    def arm(self) -> None:
        """Before asking: what is released from now on rings."""
        self.wakeup.arm()
        self.rung = self.loop.create_future()

    def close(self) -> None:
        self.loop.remove_reader(self.wakeup.fileno())
        self.wakeup.close()


def waits(decision: _weir.Decision, left: float) -> bool:
    """Whether it is of use to ask again within so many seconds."""
    return not decision.allowed and 0 <= decision.retry_after_us and decision.retry_after_us / 1e6 <= left


async def wait(store: Store, key: Key, limit: _weir.Limit, cost: int, max_wait: Optional[Time]) -> _weir.Decision:
    if limit.lease_us:
        raise _weir.EUNSUPPORTED("a wait for slots is store.slot(), with `async with`")
    if max_wait is not None and not seconds(max_wait) >= 0:
        raise _weir.EINVAL(f"invalid max_wait {max_wait}: expected 0 seconds or more, or None")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (float("inf") if max_wait is None else seconds(max_wait))

    def left() -> float:
        return max(0.0, deadline - loop.time())

    def give_back(decision: _weir.Decision) -> None:
        if decision.receipt is not None:
            store.settle(key, limit, decision, 0)

    async with turn(store, key, limit, deadline) as mine:
        while True:
            decision = await ask(store, give_back, store.take, key, limit, cost, wait=left())
            if not mine or not waits(decision, left()):
                break
            await pause(store, loop.create_future(), decision.retry_after_us / 1e6)
    try:
        if decision.delay_us > 0:
            await asyncio.sleep(decision.delay_us / 1e6)
    except asyncio.CancelledError:
        with contextlib.suppress(_weir.Error):
            await asyncio.shield(call(store, give_back, decision))
        raise
    return decision
