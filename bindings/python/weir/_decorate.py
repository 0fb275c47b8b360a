"""A decorator: a function that may be called so often."""
from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any, Callable, Optional, TypeVar, Union, cast

from . import _slots, _weir, _words
from ._store import AnyStore, Store, as_store
from ._types import Key, LimitText, Time

F = TypeVar("F", bound=Callable[..., Any])


def limited(store: AnyStore, limit: LimitText, *, key: Union[None, Key, Callable[..., Key]] = None,
            cost: Union[int, Callable[..., int]] = 1, max_wait: Optional[Time] = 0) -> Callable[[F], F]:
    """Limits calls of a function, also an ``async def``.

    ``key`` and ``cost`` are values, or functions of the call's arguments; without a key, the function's own name is the key. A
    call that is denied raises ``weir.Denied``. With ``max_wait`` it waits so many seconds at most; None: as long as it
    takes. With a ``concurrent`` limit, the call holds its slots until it returns.
    """
    where = as_store(store)
    read = where.limit(limit)
    _words.refuse_cost(read, cost, f'the limit "{read}"')

    def decorate(function: F) -> F:
        if inspect.isasyncgenfunction(function) or (read.lease_us and inspect.isgeneratorfunction(function)):
            raise TypeError(f"{function.__qualname__} is a generator, which runs after its call has returned: take or hold a slot in it")
        name = f"{function.__module__}.{function.__qualname__}"

        def key_of(args: Any, named: Any) -> Key:
            return key(*args, **named) if callable(key) else name if key is None else key

        def cost_of(args: Any, named: Any) -> int:
            return cost(*args, **named) if callable(cost) else cost

        if asyncio.iscoroutinefunction(function):
            async def call_async(*args: Any, **named: Any) -> Any:
                its_key, its_cost = key_of(args, named), cost_of(args, named)
                if read.lease_us:
                    async with where.slot(its_key, read, its_cost, max_wait=max_wait):
                        return await function(*args, **named)
                passed(await where.wait_async(its_key, read, its_cost, max_wait))
                return await function(*args, **named)
            return cast(F, functools.wraps(function)(call_async))

        def call(*args: Any, **named: Any) -> Any:
            its_key, its_cost = key_of(args, named), cost_of(args, named)
            if read.lease_us:
                with where.slot(its_key, read, its_cost, max_wait=max_wait):
                    return function(*args, **named)
            passed(take(where, its_key, read, its_cost, max_wait))
            return function(*args, **named)
        return cast(F, functools.wraps(function)(call))

    return decorate


def take(store: Store, key: Key, limit: _weir.Limit, cost: int, max_wait: Optional[Time]) -> _weir.Decision:
    if max_wait is None or max_wait:
        return store.wait(key, limit, cost, max_wait)
    return store.take(key, limit, cost, wait=0)


def passed(decision: _weir.Decision) -> None:
    if not decision.allowed:
        raise _slots.Denied(decision)
