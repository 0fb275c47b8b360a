"""Middleware for ASGI: FastAPI, Starlette, Django and every other framework that has it.

    from weir.asgi import RateLimit
    app.add_middleware(RateLimit, store="shm:/web", rules="token-bucket 10/s burst 20")
"""
from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any, Awaitable, Callable, Iterable, List, MutableMapping, Optional, Tuple, Union

from . import _async, _slots, _weir
from ._store import AnyStore
from .web import (Answer, Asked, BadRequest, Exempt, Fields, Guard, NoAddress, OnDenied, OnShadow, Request, Rule, Rules, by_header, by_ip, everybody,
                  is_denial, own_fields, refuse_others)

__all__ = ["NoAddress", "RateLimit", "Request", "Rule", "by_header", "by_ip", "everybody"]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
log = logging.getLogger("weir")


class RateLimit:
    """Limits requests, and handshakes of WebSockets, before they reach the application.

    The arguments are those of ``weir.wsgi.RateLimit``. ``on_denied`` may be ``async``; its applications are those of ASGI, such as a
    ``JSONResponse``. The decision of a request that goes ahead is in ``scope["weir.decision"]``: None if no rule was enforced.
    """

    def __init__(self, app: App, store: AnyStore, rules: Rules, *, exempt: Exempt = None, on_error: str = "deny", on_denied: OnDenied = None,
                 on_shadow: OnShadow = None, headers: str = "ietf", trusted_hops: Union[int, str] = 0, deny_status: int = 429, ipv4_prefix: int = 32,
                 ipv6_prefix: int = 64, **others: Any) -> None:
        refuse_others(others)
        self.app = app
        self.guard = Guard(store, rules, exempt=exempt, on_error=on_error, on_denied=on_denied, on_shadow=on_shadow, headers=headers,
                           trusted_hops=trusted_hops, deny_status=deny_status, ipv4_prefix=ipv4_prefix, ipv6_prefix=ipv6_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("weir.decision", None)
        request = view(scope, self.guard)
        try:
            asked = self.guard.ask(request) if scope["type"] in ("http", "websocket") else None
        except BadRequest as error:
            await say(self.guard.bad(error), scope, send)
            return
        if asked is None:
            await self.app(scope, receive, send)
            return
        shadows = await self.shadow(asked)
        decision: Union[_weir.Decision, Answer, None] = None  # the request goes ahead
        try:
            if asked.requests:
                decision = await self.take(asked)
        except (_weir.Error, UnicodeEncodeError) as error:
            decision = self.guard.failed(asked, error)
        self.guard.tell_shadows(request, asked, shadows, is_denial(decision))
        if decision is None:
            await self.app(scope, receive, send)
        elif isinstance(decision, Answer):
            await say(decision, scope, send)
        elif decision.allowed:
            await self.go(asked, decision, scope, receive, send)
        else:
            await self.deny(request, self.guard.denied(request, asked, decision), decision, receive, send)

    async def shadow(self, asked: Asked) -> List[_weir.Decision]:
        try:
            if asked.shadows:
                return await _async.call(self.guard.store, self.guard.store.take_many, self.guard.shadow_requests(asked))
        except Exception as error:
            self.guard.shadow_failed(error)
        return []

    async def deny(self, request: Request, usual: Answer, decision: _weir.Decision, receive: Receive, send: Send) -> None:
        try:
            own = self.guard.on_denied(request, decision) if self.guard.on_denied else None
            if inspect.isawaitable(own):
                own = await own
        except BadRequest as error:
            await say(self.guard.bad(error), request.raw, send)
            return
        except Exception as error:
            await say(self.guard.on_denied_failed(usual, error), request.raw, send)
            return
        told = self.guard.answered(usual, own)
        if told is not None or request.raw["type"] == "websocket":
            await say(told or usual, request.raw, send)
            return
        fields = encoded(own_fields(usual))

        async def send_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = usual.status if message["status"] == 200 else message["status"]
                message = dict(message, status=status, headers=merged(message.get("headers") or [], fields))
            await send(message)
        await own(request.raw, receive, send_fields)

    async def take(self, asked: Asked) -> _weir.Decision:
        """Where another thread asks, and the client goes away meanwhile, slots are given back."""
        store = self.guard.store

        def give_back(decision: _weir.Decision) -> None:
            for key, limit, _ in asked.requests:
                if decision.lease and limit.lease_us:
                    store.release(key, limit, decision.lease)
        return await _async.ask(store, give_back, store.take_all, asked.requests, acquire=asked.holds)

    async def go(self, asked: Asked, decision: _weir.Decision, scope: Scope, receive: Receive, send: Send) -> None:
        scope["weir.decision"] = decision
        fields: List[Tuple[bytes, bytes]] = []

        async def send_fields(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message = dict(message, headers=merged(message.get("headers") or [], fields))
            await send(message)

        slot = self.guard.slot(asked, decision)
        try:
            if slot is not None:
                slot.plan()
            fields += encoded(self.guard.fields(asked, decision))
            if decision.delay_us > 0:
                await asyncio.sleep(decision.delay_us / 1e6)
            await self.app(scope, receive, send_fields)
        finally:
            if slot is not None:
                await release(slot)


async def release(slot: _slots.Slot) -> None:
    """The request is over; who lost a lease meanwhile is told in the log."""
    try:
        await slot.__aexit__(None, None, None)
    except _weir.Error as error:
        log.warning("weir: a slot of %.100r could not be released: %s", slot.wanted[0][0], error)


def view(scope: Scope, guard: Guard) -> Request:
    def field(name: str) -> Optional[str]:
        wanted = name.encode("latin-1", "replace")
        found = [value for key, value in scope.get("headers") or [] if key.lower() == wanted]
        return b",".join(found).decode("latin-1") if found else None
    peer = scope.get("client")
    return Request(scope.get("method", "GET"), scope.get("path", ""), peer[0] if peer and peer[0] else None, peer[1] if peer else None, scope,
                   field, guard)


def encoded(fields: Fields) -> List[Tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]


def merged(headers: Iterable[Tuple[bytes, bytes]], fields: List[Tuple[bytes, bytes]]) -> List[Tuple[bytes, bytes]]:
    """Those that the application has set stay as they are."""
    own = list(headers)
    names = {name.lower() for name, _ in own}
    return [*own, *(field for field in fields if field[0] not in names)]


async def say(answer: Answer, scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "denied"})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded(answer.fields)})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else answer.body})
