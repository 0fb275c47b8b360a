"""weir.Store: the extension's, with slots and the async forms."""
from __future__ import annotations

import logging
import re
import time
from typing import Optional, Union

from . import _async, _slots, _weir
from ._types import Key, LimitText, Time


log = logging.getLogger("weir")
TELL_S = 10.0  # between two warnings of one store
MEANWHILE = {"open": "everything is allowed", "closed": "everything is denied"}


def without_password(url: str) -> str:
    """An address for people. A password may hold an @: it ends at the last one before the host. Only paths of sockets hold one behind it."""
    return re.sub("//[^/?]*@" if url.startswith("redis+unix:") else r"//[^?]*@", "//", url)


class Store(_weir.Store):
    """Where states are kept: ``memory:64m``, ``shm:/name``, ``file:/path`` or ``redis://host``.

    Any number of threads may use it. After a fork the child goes on with it: a zone is shared, ``memory:`` is a copy,
    and ``redis://`` connects by itself. If somebody removes a zone and makes another one, the store goes on with that one.
    """

    __slots__ = ("__weakref__", "_tell_at")
    _tell_at: float

    def close(self) -> None:
        """Closes the store. Waits end with ``ECANCELED``; other calls go on to their end."""
        super().close()
        _async.wake(self)

    def __repr__(self) -> str:
        """Without the password, because programs log it; ``url`` has it."""
        return super().__repr__().replace(repr(self.url), repr(without_password(self.url)))

    def __exit__(self, *error: object) -> None:
        self.close()

    def _told(self, why: Optional[str]) -> bool:
        """The extension calls it when a local fallback begins to decide, with the reason or, if servers can be reached, without words; and
        with None when they decide again. False: it was too soon, tell it again."""
        now = time.monotonic()
        if why is None:
            log.warning("weir: the store is back: its servers decide again (%s)", without_password(self.url))
            return True
        if now < getattr(self, "_tell_at", 0.0):
            return False
        self._tell_at = now + TELL_S
        words = dict(part.partition("=")[::2] for part in self.url.partition("?")[2].split("&"))
        meanwhile = MEANWHILE.get(words.get("fail", ""), "this process decides alone")
        some = self.url.startswith("redis+cluster:")
        what = f"cannot be reached: {why}" if why else f"{'do' if some else 'does'} not decide: answers do not come in time"
        log.warning("weir: %sthe store %s; meanwhile%s %s (%s)", "servers of " if some else "", what, ", for their keys," if some else "", meanwhile,
                    without_password(self.url))
        return True

    def _replaced(self, why: Optional[str]) -> None:
        """The extension calls it when another zone is at the store's path: it is open now, or why it could not be opened."""
        if why is None:
            log.error("weir: %s was replaced: what the old zone had counted is lost, this process counts in the new one from now on", self.url)
        elif time.monotonic() >= getattr(self, "_tell_at", 0.0):
            self._tell_at = time.monotonic() + TELL_S
            log.error("weir: %s was replaced, and the new zone cannot be opened, so nothing is decided: %s; it is tried again every second", self.url, why)

    def slot(self, key: Key, limit: LimitText, cost: int = 1, *, max_wait: Optional[Time] = None) -> _slots.Slot:
        """Slots of a concurrent limit, held by ``with`` or ``async with``.

        It waits until there are slots, at most ``max_wait`` seconds; then it raises ``Denied``. The lease is renewed in the
        background and released at the end. If the lease was lost meanwhile, the end of the block raises ``ENOLEASE``.
        """
        return _slots.Slot(self, [(key, self.limit(limit), cost)], max_wait)

    async def wait_async(self, key: Key, limit: LimitText, cost: int = 1, max_wait: Optional[Time] = None) -> _weir.Decision:
        """``wait`` for asyncio: no thread waits. Tasks that wait for the same key and limit are served in their order.

        A task that is cancelled gives its charge back.
        """
        return await _async.wait(self, key, self.limit(limit), cost, max_wait)


AnyStore = Union[Store, str]


def as_store(store: AnyStore) -> Store:
    """A store, or the one that an address names."""
    if isinstance(store, Store):
        return store
    if isinstance(store, str):
        return Store(store)
    raise TypeError(f"a store must be a weir.Store or its address, not {type(store).__name__}")
