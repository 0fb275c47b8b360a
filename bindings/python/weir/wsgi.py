"""Middleware for WSGI: Flask, Django, Bottle and every other framework that has it.

    from weir.wsgi import RateLimit
    app = RateLimit(app, "shm:/web", "token-bucket 10/s burst 20")
"""
from __future__ import annotations

import logging
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

from . import _slots, _weir
from ._store import AnyStore
from .web import (Answer, Asked, BadRequest, Exempt, Fields, Guard, NoAddress, OnDenied, OnShadow, Request, Rule, Rules, by_header, by_ip, everybody,
                  is_denial, own_fields, phrase_of, refuse_others)

__all__ = ["NoAddress", "RateLimit", "Request", "Rule", "by_header", "by_ip", "everybody"]
App = Callable[..., Iterable[bytes]]
log = logging.getLogger("weir")


def release(slot: _slots.Slot) -> None:
    """The request is over; who lost a lease meanwhile is told in the log."""
    if slot.end():
        try:
            slot.release()
        except _weir.Error as error:
            log.warning("weir: a slot of %.100r could not be released: %s", slot.wanted[0][0], error)


class Body:
    """The body of an answer; the slot is held until it is closed, as WSGI asks servers to do."""

    def __init__(self, parts: Iterable[bytes], slot: _slots.Slot) -> None:
        self.parts, self.slot = parts, slot

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.parts)

    def close(self) -> None:
        try:
            close = getattr(self.parts, "close", None)
            if close is not None:
                close()
        finally:
            release(self.slot)

    def __del__(self) -> None:
        release(self.slot)  # a server that forgot close(); otherwise there is nothing left to do


class RateLimit:
    """Limits requests before they reach the application.

    ``rules`` is a limit, a ``Rule`` or a list of them. ``exempt`` is a function or a list of paths. ``on_error`` says what
    happens if the store fails: "deny" or "allow". ``on_denied(request, decision)`` is told of each denial, with ``request.rule`` and
    ``request.key``; it returns None for the usual answer, a dict for a JSON of its own, or a WSGI application such as a
    ``flask.Response``. ``on_shadow(request, decision)`` is told what rules in shadow would deny, and ``request.denied``. The decision of a request that goes ahead is in
    ``environ["weir.decision"]``: None if no rule was enforced.
    """

    def __init__(self, app: App, store: AnyStore, rules: Rules, *, exempt: Exempt = None, on_error: str = "deny", on_denied: OnDenied = None,
                 on_shadow: OnShadow = None, headers: str = "ietf", trusted_hops: Union[int, str] = 0, deny_status: int = 429, ipv4_prefix: int = 32,
                 ipv6_prefix: int = 64, **others: Any) -> None:
        refuse_others(others)
        self.app = app
        self.guard = Guard(store, rules, exempt=exempt, on_error=on_error, on_denied=on_denied, on_shadow=on_shadow, headers=headers,
                           trusted_hops=trusted_hops, deny_status=deny_status, ipv4_prefix=ipv4_prefix, ipv6_prefix=ipv6_prefix)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        environ.setdefault("weir.decision", None)
        request = view(environ, self.guard)
        try:
            asked = self.guard.ask(request)
        except BadRequest as error:
            return say(self.guard.bad(error), environ, start_response)
        if asked is None:
            return self.app(environ, start_response)
        shadows = self.shadow(asked)
        decision: Union[_weir.Decision, Answer, None] = None  # the request goes ahead
        try:
            if asked.requests:
                decision = self.guard.store.take_all(asked.requests, acquire=asked.holds)
        except (_weir.Error, UnicodeEncodeError) as error:
            decision = self.guard.failed(asked, error)
        self.guard.tell_shadows(request, asked, shadows, is_denial(decision))
        if decision is None:
            return self.app(environ, start_response)
        if isinstance(decision, Answer):
            return say(decision, environ, start_response)
        if not decision.allowed:
            return self.deny(request, self.guard.denied(request, asked, decision), decision, start_response)
        return self.go(asked, decision, environ, start_response)

    def shadow(self, asked: Asked) -> List[_weir.Decision]:
        try:
            return self.guard.store.take_many(self.guard.shadow_requests(asked)) if asked.shadows else []
        except Exception as error:
            self.guard.shadow_failed(error)
            return []

    def deny(self, request: Request, usual: Answer, decision: _weir.Decision, start_response: Any) -> Iterable[bytes]:
        try:
            own = self.guard.on_denied(request, decision) if self.guard.on_denied else None
        except BadRequest as error:
            return say(self.guard.bad(error), request.raw, start_response)
        except Exception as error:
            return say(self.guard.on_denied_failed(usual, error), request.raw, start_response)
        told = self.guard.answered(usual, own)
        if told is not None:
            return say(told, request.raw, start_response)
        answered: Iterable[bytes] = own(request.raw, starter(start_response, own_fields(usual), usual.status))
        return answered

    def go(self, asked: Asked, decision: _weir.Decision, environ: Any, start_response: Any) -> Iterable[bytes]:
        environ["weir.decision"] = decision
        slot = self.guard.slot(asked, decision)
        try:
            if slot is not None:
                _slots.renewer.add(slot)
            fields = self.guard.fields(asked, decision)
            if decision.delay_us > 0:
                time.sleep(decision.delay_us / 1e6)
            parts = self.app(environ, starter(start_response, fields))
        except BaseException:
            if slot is not None:
                release(slot)
            raise
        return parts if slot is None else Body(parts, slot)


def view(environ: Any, guard: Guard) -> Request:
    def field(name: str) -> Optional[str]:
        word = name.upper().replace("-", "_")
        found = environ.get(word if word in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{word}")
        return None if found is None else str(found)
    return Request(environ.get("REQUEST_METHOD", "GET"), environ.get("PATH_INFO", ""), environ.get("REMOTE_ADDR") or None, None, environ,
                   field, guard, "latin-1")


def starter(start_response: Any, fields: Fields, instead_of_ok: int = 200) -> Any:
    """start_response with the fields; those that the application has set stay as they are."""
    def start(status: str, headers: List[Tuple[str, str]], *more: Any) -> Any:
        names = {name.lower() for name, _ in headers}
        if instead_of_ok != 200 and status.startswith("200"):
            status = f"{instead_of_ok} {phrase_of(instead_of_ok)}"
        return start_response(status, [*headers, *(field for field in fields if field[0] not in names)], *more)
    return start


def say(answer: Answer, environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response(f"{answer.status} {phrase_of(answer.status)}", answer.fields)
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [answer.body]
