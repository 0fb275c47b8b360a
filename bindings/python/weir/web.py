"""What the middlewares of weir.wsgi and weir.asgi share: who is limited by what, and what an answer says.

A request is charged under all rules that apply to it, or under none. The words and fields of a denial are those of
``weir serve``: 429, ``Retry-After``, ``RateLimit``, ``Weir-Reason`` and problem+json.
"""
from __future__ import annotations

import difflib
import functools
import hashlib
import http
import inspect
import ipaddress
import itertools
import json
import logging
import re
import threading
import time
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _slots, _weir, _words
from ._store import AnyStore, as_store
from ._types import Key, LimitText

log = logging.getLogger("weir")
Fields = List[Tuple[str, str]]
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
MOST_KEY = 65536  # bytes
MOST_FIELD = 4096  # bytes of X-Forwarded-For that are looked at: proxies add at its end
# A failure of the store, of which on_error says what it means. Others are mistakes of the program, and are raised.
STORE_FAILED = (_weir.EUNREACHABLE, _weir.EBUSY, _weir.EFULL, _weir.ESYSTEM, _weir.ENOMEM, _weir.EDAMAGED, _weir.EGONE, _weir.ETRUNCATED,
                _weir.EFOREIGN, _weir.EVERSION, _weir.EOWNER)


class NoAddress(RuntimeError):
    """The server does not tell the client's address, as behind a Unix socket: set trusted_hops, or use another key."""


class BadRequest(RuntimeError):
    """What a client can bring about: the answer is 400."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail  # for the client


class BadAddress(BadRequest, NoAddress):
    """X-Forwarded-For says who the client is, but not as it should."""


class BadPath(BadRequest):
    """A path with a control character, which frameworks and servers read in different ways."""


# ---- requests ----

class Request:
    """What rules see of a request. ``raw`` is WSGI's environ or ASGI's scope. In ``path`` a // is a /, as
    Flask reads it; ``sent`` is as the server gives it; ``at`` knows all spellings. ``port`` is the peer's; 0: the server has put another address in its place. ``rule`` and ``key`` say what denied it: on_denied
    sees them, keys and costs do not. on_shadow sees them, too, and ``denied``: whether the request goes no further anyway."""

    __slots__ = ("method", "path", "sent", "peer", "port", "raw", "fields", "guard", "charset", "spellings", "rule", "key", "denied")
    rule: Rule
    key: Key
    denied: bool

    def __init__(self, method: str, path: str, peer: Optional[str], port: Optional[int], raw: Any,
                 fields: Callable[[str], Optional[str]], guard: Guard, charset: str = "utf-8") -> None:
        self.method, self.sent, self.peer, self.port, self.raw, self.fields, self.guard = method, path, peer, port, raw, fields, guard
        self.path = re.sub("//+", "/", path) if "//" in path else path
        self.charset = charset  # of the path: WSGI has its bytes as characters
        self.spellings: Optional[Tuple[bytes, bytes]] = None

    def at(self, *paths: str) -> bool:
        """Whether the request is for one of these paths: "/login" (also with a slash at its end) or "/api/*", in any spelling."""
        return self.is_at(as_places(paths))

    def is_at(self, places: Places) -> bool:
        if self.spellings is None:
            path = self.path.encode(self.charset, "replace")
            self.spellings = (path or b"/", spelled(path))
        return any(path.rstrip(b"/") in places.exact or path.startswith(places.starts) for path in self.spellings)

    def header(self, name: str) -> Optional[str]:
        """A header field by its name, in any case; None: there is none."""
        return self.fields(name.lower())

    @property
    def ip(self) -> str:
        """The client's address, or its network: IPv6 counts by /64. X-Forwarded-For is read only with trusted_hops."""
        forwarded, hops = self.header("x-forwarded-for"), self.guard.trusted_hops
        if hops == 0 and self.port == 0 and forwarded is not None:
            raise BadAddress(REPLACED, "X-Forwarded-For is not accepted here")
        found = client(self.peer, forwarded, 0 if hops == SERVER else int(hops))
        try:
            network = self.guard.network(found)
            if hops == 0 and forwarded is not None:
                warn_of_proxy(found)
            return network
        except ValueError:
            if found == self.peer and self.port != 0:
                raise NoAddress(f"the server says that the client's address is {found!r}, which is not an address") from None
            raise BadAddress(f"X-Forwarded-For: {found[:100]!r} is not an address: is trusted_hops the number of proxies?",
                             "an entry of X-Forwarded-For is not an address") from None


SERVER = "server"  # trusted_hops: the server knows who the client is
# uvicorn does so for the peers of --forwarded-allow-ips, and leaves no trace of theirs. With * every client can choose its address.
REPLACED = ("the server has put an address of X-Forwarded-For in the place of the client's: set trusted_hops to the number of proxies, or start "
            "uvicorn with --no-proxy-headers (gunicorn: --forwarded-allow-ips \"\")")
PROXY_TOLD = threading.Lock()  # who takes it tells; nobody gives it back


def warn_of_proxy(peer: str) -> None:
    """Once per process: a peer nearby that sends X-Forwarded-For is a proxy, whose address all its clients share."""
    if not PROXY_TOLD.locked() and parse_address(peer).is_private and PROXY_TOLD.acquire(blocking=False):
        log.warning("weir: requests from %s have X-Forwarded-For, but trusted_hops is 0: all clients of that proxy count as one address. Set "
                    "trusted_hops to the number of proxies", peer)


def client(peer: Optional[str], forwarded: Optional[str], hops: int) -> str:
    """The address that the outermost trusted proxy saw. Each of `hops` proxies has added what it saw to the field's end."""
    seen = [part.strip() for part in (forwarded or "")[-MOST_FIELD:].split(",") if part.strip()] if hops else []
    if not peer and not seen and hops:
        raise NoAddress(f"X-Forwarded-For is missing: the last of the {hops} proxies that trusted_hops speaks of must send it")
    if not peer and not seen:
        raise NoAddress("the server does not tell the client's address: set trusted_hops, or use another key than the address")
    if not peer:
        return seen[max(0, len(seen) - hops)]
    seen.append(peer)
    return seen[max(0, len(seen) - 1 - hops)]


def parse_address(text: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address]:
    """Of an address with or without a port; or a ValueError."""
    plain = text
    if plain.startswith("["):
        plain = plain[1:].partition("]")[0]
    elif plain.count(":") == 1:
        plain = plain.partition(":")[0]
    address = ipaddress.ip_address(plain.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


# ---- paths ----

PathLike = Union[str, Sequence[str]]


class Places(NamedTuple):
    """Paths to compare with, as bytes: those without a slash at their end, and the beginnings of those that ended with a star."""

    exact: FrozenSet[bytes]
    starts: Tuple[bytes, ...]


def spelled(path: bytes) -> bytes:
    """The one spelling of a path that is decoded already, as policies have it."""
    try:
        return _weir.path(path.replace(b"%", b"%25").replace(b"?", b"%3F").replace(b"#", b"%23"))
    except _weir.EINVAL as error:
        raise BadPath(f"{error}: {path[:100]!r}", str(error)) from None


@functools.lru_cache(1024)
def as_places(paths: Tuple[str, ...]) -> Places:
    """Frameworks resolve some spellings and not others. So a request is at a path if either reading says so: the one that only makes
    // a /, or the one that resolves everything."""
    exact, starts = set(), set()
    for path in paths:
        if not isinstance(path, str) or not path.startswith("/") or "*" in path[:-1]:
            raise ValueError(f"invalid path {path!r}: expected one that begins with /, and a star only at its end, as /login or /api/*")
        if "<" in path or "{" in path:
            raise ValueError(f"invalid path {path!r}: it is compared as text, not as a route; for /api/<id> write /api/*")
        star, plain = path.endswith("*"), path.encode().rstrip(b"*")
        right = b"" if any(c < 32 or c == 127 for c in plain) else spelled(plain)
        if right != plain:
            raise ValueError(f"invalid path {path!r}: expected {right.decode('utf-8', 'replace') + '*' * star!r}, its one spelling")
        if star:
            starts.add(plain)
        else:
            exact.add(plain.rstrip(b"/"))
    return Places(frozenset(exact), tuple(starts))


def overlap(one: Optional[Places], other: Optional[Places]) -> bool:
    """Whether a request can be at both; None is everywhere."""
    if one is None or other is None:
        return True
    return bool(one.exact & other.exact) or any(
        (path + b"/").startswith(b.starts) for a, b in ((one, other), (other, one)) for path in [*a.exact, *a.starts])


# ---- keys ----

KeyOf = Callable[[Request], Optional[Key]]


def refuse_truth(word: str, value: Any) -> None:
    """What is no bool: "false" and "0" would be true."""
    if not isinstance(value, bool):
        raise TypeError(f'invalid {word} {value!r}: expected True or False; compare a text first, as os.environ["MODE"] == "on"')


class Known:
    """A function of this module, of which is known how its keys begin."""

    def __init__(self, key: KeyOf, begins: str) -> None:
        functools.update_wrapper(self, key)
        self.key, self.begins = key, begins

    def __call__(self, request: Request) -> Optional[Key]:
        return self.key(request)


def known(begins: str) -> Callable[[KeyOf], Known]:
    return lambda key: Known(key, begins)


@known("ip:")
def by_ip(request: Request) -> Key:
    """One state per address: ``ip:192.0.2.7``, ``ip:2001:db8::/64``."""
    return f"ip:{request.ip}"


@known("all")
def everybody(request: Request) -> Key:
    """One state for all requests."""
    return "all"


def by_header(name: str, *, missing: str = "ip", secret: bool = False) -> KeyOf:
    """One state per value of a header field: ``header.x-user:VALUE``. With secret=True the key has 16 digits of the value's SHA-256
    instead. Without the field, or if it is empty, the address is the key: ``no-header.x-user:ADDRESS``; with missing="skip" the rule
    does not apply."""
    if not isinstance(name, str):
        raise TypeError(f'by_header needs the name of a field, as by_header("X-User"), not {type(name).__name__}')
    if missing not in ("ip", "skip"):
        raise ValueError(f'invalid missing {missing!r}: expected "ip" or "skip"')
    refuse_truth("secret", secret)

    @known(f"header.{name.lower()}:")
    def key(request: Request) -> Optional[Key]:
        value = request.header(name)
        if value:
            shown = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16] if secret else value
            return f"header.{name.lower()}:{shown}"
        # Not by_ip's key: a rule by address beside this one may have the same limit, and would share its state.
        return None if missing == "skip" else f"no-header.{name.lower()}:{request.ip}"
    return key


class Rule(NamedTuple):
    """Who is limited by what. ``key`` returns None where the rule does not apply. A rule with ``path`` applies only there, and its keys
    begin with its name (or path): ``login:192.0.2.7`` without a key of its own, else ``login:`` and that key."""

    limit: LimitText
    key: KeyOf = by_ip
    cost: Union[int, Callable[[Request], int]] = 1
    name: Optional[str] = None  # what the RateLimit field calls it; keys of a function may begin with it
    path: Optional[PathLike] = None  # "/login", "/api/*" or several: nowhere else
    shadow: bool = False  # decided and told, never enforced

    def called(self) -> str:
        """For messages."""
        return f'"{self.name or self.limit}"'

    def checked(self) -> Rule:
        unfinished: Any = by_header
        if self.key is unfinished:
            raise TypeError(f'the key of the rule {self.called()} is by_header itself: expected a call of it, as by_header("X-User")')
        if not callable(self.key):
            raise TypeError(f"the key of a rule must be a function of the request, not {type(self.key).__name__}")
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(f"invalid name {self.name!r} of a rule: expected a str, or None")
        if self.name is not None and not (self.name and self.name.isascii() and self.name.isprintable()):
            raise ValueError(f"invalid name {self.name!r}: expected printable ASCII, which HTTP fields can hold")
        refuse_truth("shadow", self.shadow)
        refuse_async(f"the key of the rule {self.called()}", self.key)
        refuse_async(f"the cost of the rule {self.called()}", self.cost)
        return self

    def places(self) -> Optional[Places]:
        if self.path is None:
            return None
        if isinstance(self.path, bytes) or not isinstance(self.path, (str, Iterable)):
            raise TypeError(f"invalid path {self.path!r} of the rule {self.called()}: expected a str as /login or /api/*, or a list of them")
        paths = (self.path,) if isinstance(self.path, str) else tuple(self.path)
        if not paths:
            raise ValueError("the path of a rule is empty: expected at least one, as /login or /api/*")
        return as_places(paths)

    def own_key(self) -> Rule:
        """Rules of two paths do not share a state, whatever their keys are."""
        if self.path is None:
            return self
        word = f"{self.name or (self.path if isinstance(self.path, str) else self.path[0])}:"
        if self.key is by_ip:
            return self._replace(key=Known(lambda request: f"{word}{request.ip}", word))
        own = self.key

        def key(request: Request) -> Optional[Key]:
            found: Optional[Key] = _words.joined(word, own(request))
            return found
        return self._replace(key=Known(key, word))

    def origin(self) -> object:
        """Rules of one origin have equal keys: how they begin, or the program's own function."""
        return self.key.begins if isinstance(self.key, Known) else self.key


RuleLike = Union[str, _weir.Limit, Rule]
Rules = Union[RuleLike, Sequence[RuleLike]]
Exempt = Union[Callable[[Request], bool], Iterable[str], None]


def as_rules(rules: Rules) -> List[Rule]:
    listed = [rules] if isinstance(rules, (str, _weir.Limit, Rule)) else list(rules)
    if not listed:
        raise ValueError("there are no rules: expected at least one limit")
    return [rule.checked() if isinstance(rule, Rule) else Rule(rule) for rule in listed]


def is_key(key: Key) -> bool:
    """Whether its length is a key's."""
    return 1 <= len(key.encode() if isinstance(key, str) else key) <= MOST_KEY


def refuse_async(what: str, function: object) -> None:
    """What it returns would be taken for the answer: a coroutine is true."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):
        raise TypeError(f"{what} is async: expected a plain function, also with ASGI")


def refuse_awaitable(what: str, answer: object) -> None:
    """As refuse_async, of a function that does not look like one."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"{what} returned an awaitable: expected a plain function, also with ASGI")


def as_exempt(exempt: Exempt) -> Callable[[Request], bool]:
    """A function, or paths: "/health", "/static/*"."""
    if exempt is None:
        return lambda request: False
    if callable(exempt):
        refuse_async("exempt", exempt)
        return exempt
    if isinstance(exempt, (str, bytes)) or not isinstance(exempt, Iterable):
        raise TypeError(f"invalid exempt {exempt!r}: expected a function, or a list of paths, as [\"/health\"]")
    paths = list(exempt)
    for path in paths:
        if not isinstance(path, str) or not path.startswith(("/", "*")):
            raise ValueError(f"invalid path {path!r} in exempt: expected a str that begins with /, as /health or /static/*")
    exact = {path for path in paths if not path.endswith("*")}
    starts = tuple(path[:-1] for path in paths if path.endswith("*"))

    def is_exempt(request: Request) -> bool:
        """A path that may mean another one (/static/../login) is not exempt by its beginning."""
        path = request.sent
        return path in exact or (bool(starts) and path.startswith(starts) and "/." not in path and "//" not in path and "\\" not in path)
    return is_exempt


# ---- deciding ----

def printed(word: object) -> object:
    """One line for the log: a client may have written part of it."""
    if not isinstance(word, Exception):
        return word
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(word)[:500])
    return line if len(str(word)) <= 500 else line + "…"


OPTIONS = ("exempt", "on_error", "on_denied", "on_shadow", "headers", "trusted_hops", "deny_status", "ipv4_prefix", "ipv6_prefix")


def whole(word: str, value: Any, least: int, most: int) -> int:
    """A number, and no text of one: it would be compared as a text."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"invalid {word} {value!r}: expected a whole number, {least} to {most}; make an int of a text first")
    if not least <= value <= most:
        raise ValueError(f"invalid {word} {value}: expected {least} to {most}")
    return value


def refuse_others(others: Any) -> None:
    """Arguments that the middleware does not have."""
    for name in others:
        if name in Rule._fields:
            raise TypeError(f"{name}= belongs to a rule: RateLimit(app, store, Rule(\"…\", {name}=…))")
        meant = difflib.get_close_matches(name, OPTIONS, 1)
        hint = f": did you mean {meant[0]}?" if meant else f": there are {', '.join(OPTIONS)}"
        raise TypeError(f"RateLimit() got an unexpected keyword argument {name!r}{hint}")


class Asked(NamedTuple):
    requests: List[Tuple[Key, _weir.Limit, int]]
    rules: List[Rule]  # one per request
    names: List[Optional[str]]  # one per limit
    holds: bool  # slots of concurrent limits, for as long as the request takes
    shadows: List[Tuple[Key, Rule, int]]  # decided each for itself, never enforced


class Answer(NamedTuple):
    """What a denied client gets."""

    status: int
    fields: Fields
    body: bytes


OnDenied = Optional[Callable[[Request, _weir.Decision], Any]]
OnShadow = Optional[Callable[[Request, _weir.Decision], None]]


class Guard:
    """The rules of a middleware, and what it answers."""

    def __init__(self, store: AnyStore, rules: Rules, *, exempt: Exempt = None, on_error: str = "deny", on_denied: OnDenied = None,
                 on_shadow: OnShadow = None, headers: str = "ietf", trusted_hops: Union[int, str] = 0, deny_status: int = 429, ipv4_prefix: int = 32,
                 ipv6_prefix: int = 64) -> None:
        if on_error not in ("deny", "allow"):
            raise ValueError(f'invalid on_error {on_error!r}: expected "deny" or "allow"')
        if headers not in ("ietf", "ietf-06", "x-ratelimit", "openai", "retry-after", "off"):
            raise ValueError(f'invalid headers {headers!r}: expected ietf, ietf-06, x-ratelimit, openai, retry-after or off')
        if trusted_hops != SERVER and not (type(trusted_hops) is int and 0 <= trusted_hops <= 100):
            raise ValueError(f'invalid trusted_hops {trusted_hops!r}: expected the number of proxies, 0 to 100, or "server"')
        for word, given_function in (("on_denied", on_denied), ("on_shadow", on_shadow)):
            if given_function is not None and not callable(given_function):
                raise TypeError(f"{word} must be a function of the request and the decision, not {type(given_function).__name__}")
        refuse_async("on_shadow", on_shadow)
        given = as_rules(rules)
        self.store = as_store(store)
        self.store._deny_full()  # who finds no room is denied, with a decision
        self.places = [rule.places() for rule in given]
        self.rules = [rule.own_key()._replace(limit=self.store.limit(rule.limit)) for rule in given]
        self.exempt, self.on_error, self.on_denied, self.headers = as_exempt(exempt), on_error, on_denied, headers
        self.on_shadow, self.words = on_shadow, _words.as_words(self.rules)
        self.trusted_hops, self.deny_status = trusted_hops, whole("deny_status", deny_status, 400, 599)
        self.prefixes = {4: whole("ipv4_prefix", ipv4_prefix, 1, 32), 6: whole("ipv6_prefix", ipv6_prefix, 1, 128)}
        self.told = 0.0
        self.check_rules()

    def check_rules(self) -> None:
        """Rules that could not be decided together are found at the start, not by the first request."""
        for rule in self.rules:
            if rule.shadow and self.store.limit(rule.limit).lease_us:
                raise ValueError(f"the rule {rule.called()} is in shadow and concurrent: shadow=True is for the other kinds of limit")
            _words.refuse_cost(self.store.limit(rule.limit), rule.cost, f"the rule {rule.called()}")
        enforced = [(its, rule) for its, rule in zip(self.places, self.rules) if not rule.shadow]
        for (its, one), (places, other) in itertools.combinations(enforced, 2):
            if one.origin() == other.origin() and overlap(its, places) and _words.share(one, other):
                raise _weir.ESHARED(f"two limits of one key would share a state: of the rules {one.called()} and {other.called()}; give each its own key")
        try:
            for _, rule in enforced:
                asked = self.asked([("check", rule, 1 if callable(rule.cost) else rule.cost)], [])
                self.fields(asked, self.store.peek_all(asked.requests))
        except STORE_FAILED as error:
            log.warning("weir: the store cannot be asked yet: %s", error)

    def network(self, text: str) -> str:
        address = parse_address(text)
        prefix = self.prefixes[address.version]
        return str(address) if prefix == address.max_prefixlen else str(ipaddress.ip_network((address, prefix), strict=False))

    def ask(self, request: Request) -> Optional[Asked]:
        """What the store is to be asked; None: no rule applies."""
        exempt = self.exempt(request)
        if exempt:
            if exempt is not True:
                refuse_awaitable("exempt", exempt)
            return None
        found: List[Tuple[Key, Rule, int]] = []
        shadows: List[Tuple[Key, Rule, int]] = []
        for rule, places, words in zip(self.rules, self.places, self.words):
            try:
                key = rule.key(request) if places is None or request.is_at(places) else None
                if key is not None:
                    one = words.key(key), rule, rule.cost(request) if callable(rule.cost) else rule.cost
                    if rule.shadow:  # one that the store would not take leaves the others undecided
                        _words.spare().peek_all([(one[0], self.store.limit(rule.limit), one[2])])
                    (shadows if rule.shadow else found).append(one)
            except Exception as error:
                if not rule.shadow:
                    raise
                self.shadow_failed(error)
        return self.asked(found, shadows) if found or shadows else None

    def asked(self, found: List[Tuple[Key, Rule, int]], shadows: List[Tuple[Key, Rule, int]]) -> Asked:
        requests: List[Tuple[Key, _weir.Limit, int]] = []
        names: List[Optional[str]] = []
        for key, rule, cost in found:
            limit = self.store.limit(rule.limit)
            requests.append((key, limit, cost))
            names += [rule.name] * len(limit)
        return Asked(requests, [rule for _, rule, _ in found], names, any(limit.lease_us for _, limit, _ in requests), shadows)

    # ---- shadows ----

    def shadow_requests(self, asked: Asked) -> List[Tuple[Key, _weir.Limit, int]]:
        return [(key, self.store.limit(rule.limit), cost) for key, rule, cost in asked.shadows]

    def tell_shadows(self, request: Request, asked: Asked, decisions: List[_weir.Decision], denied: bool) -> None:
        """Whom rules in shadow would have denied, and whether the request is denied anyway. What the store did not decide is not told."""
        for (key, rule, _), decision in zip(asked.shadows, decisions):
            if decision.allowed or decision.code:
                continue
            if self.on_shadow is None:
                self.warn("weir: the rule %s, in shadow, would deny requests, as one for %r%s", rule.called(), request.path[:100],
                          ", which is denied anyway" if denied else "")
                continue
            request.key, request.rule, request.denied = key, rule, denied
            try:
                refuse_awaitable("on_shadow", self.on_shadow(request, decision))
            except Exception:
                self.warn("weir: on_shadow failed", trace=True)

    def shadow_failed(self, error: Exception) -> None:
        self.warn("weir: rules in shadow are not decided: %s", error)

    def slot(self, asked: Asked, decision: _weir.Decision) -> Optional[_slots.Slot]:
        """What is held for as long as the request takes."""
        if not decision.lease:
            return None
        slot = _slots.Slot(self.store, [it for it in asked.requests if it[1].lease_us and it[2] > 0], None)
        slot.begin(decision)
        return slot

    # ---- answers ----

    def fields(self, asked: Asked, decision: _weir.Decision) -> Fields:
        return decision.fields(self.headers, asked.names)

    def denied(self, request: Request, asked: Asked, decision: _weir.Decision) -> Answer:
        binding = decision.binding  # counts the limits of all requests
        for (key, limit, _), rule in zip(asked.requests, asked.rules):
            if 0 <= binding < len(limit):
                request.key, request.rule = key, rule
            binding -= len(limit)
        rows, violated = iter(decision.rows), []
        for (_, limit, _), rule in zip(asked.requests, asked.rules):
            if not all([next(rows).allowed for _ in range(len(limit))]) and rule.name:
                violated.append(rule.name)
        told: Dict[str, Any] = {
            "violated-policies": violated, "allowed": False, "limit": decision.limit, "remaining": decision.remaining,
            "retry_after": None if decision.retry_after_us < 0 else decision.retry_after_us / 1e6,
            "reset_after": decision.reset_after_us / 1e6, "delay": 0.0, "granted": 0, "binding": decision.binding, "receipt": None,
            "degraded": decision.degraded, "local": decision.local}
        return self.refused("full" if decision.full else "closed" if decision.closed else "limit", self.fields(asked, decision), told)

    def answered(self, usual: Answer, own: Any) -> Optional[Answer]:
        """Of what on_denied returned; what it should not return is told in the log."""
        try:
            return own_answer(usual, own)
        except (TypeError, ValueError) as error:
            return self.on_denied_failed(usual, error)

    def on_denied_failed(self, usual: Answer, error: Exception) -> Answer:
        """Who is denied stays denied, by the usual answer."""
        self.warn("weir: on_denied failed, so the usual answer is sent: %s", error, trace=True)
        return usual

    def bad(self, error: BadRequest) -> Answer:
        self.warn("weir: a request is refused: %s", error)
        return bad_request(error.detail)

    def warn(self, text: str, *words: object, trace: bool = False) -> None:
        """At most once per second."""
        now = time.monotonic()
        if now - self.told > 1.0:
            self.told = now
            log.log(logging.ERROR if trace else logging.WARNING, text, *map(printed, words), exc_info=trace)

    def refused(self, reason: str, fields: Fields, told: Mapping[str, Any]) -> Answer:
        title = "Too Many Requests" if self.deny_status == 429 else "Denied"
        kind = {"type": QUOTA_EXCEEDED} if reason == "limit" else {}
        body = json.dumps({**kind, "title": title, "status": self.deny_status, "reason": reason, **told}).encode()
        return answer(self.deny_status, [("weir-reason", reason), *fields], body)

    def failed(self, asked: Asked, error: Exception) -> Union[Answer, _weir.Decision, None]:
        """What a failure of the store becomes: a denial, or 400 if the client's key is wrong; None: the request goes ahead. Mistakes of
        the program are raised."""
        # A client can send what makes no key: that never opens the door.
        if isinstance(error, UnicodeEncodeError) or not all(is_key(key) for key, _, _ in asked.requests):
            return bad_request("the request has no valid key")
        if isinstance(error, _weir.ESHARED):  # /a/../b is at /a/* and at /b
            return self.bad(BadRequest(str(error), "the request can be read in two ways"))
        if not isinstance(error, STORE_FAILED):
            raise error
        self.warn("weir: the store failed, requests are %s: %s", "denied" if self.on_error == "deny" else "let through", error)
        if self.on_error == "allow" and not isinstance(error, _weir.EFULL):  # who fills the store does not get through by it
            return None
        sizes = [(str(i), limit, cost) for i, (_, limit, cost) in enumerate(asked.requests)]
        return _words.spare().peek_all(sizes)._refused(isinstance(error, _weir.EFULL))


def is_denial(decision: Union[_weir.Decision, Answer, None]) -> bool:
    """Whether the request goes no further; None: it goes ahead without a decision."""
    return isinstance(decision, Answer) or (decision is not None and not decision.allowed)


def answer(status: int, fields: Fields, body: bytes, kind: str = "application/problem+json") -> Answer:
    return Answer(status, [*fields, ("cache-control", "no-store"), ("content-type", kind), ("content-length", str(len(body)))], body)


def bad_request(detail: str) -> Answer:
    return answer(400, [], json.dumps({"title": "Bad Request", "status": 400, "detail": detail}).encode())


# ---- what on_denied answers ----

def own_answer(usual: Answer, own: Any) -> Optional[Answer]:
    """Of None, the usual answer; of a dict, its JSON with the usual fields. None: it is an application, which answers by itself."""
    if own is None:
        return usual
    if isinstance(own, dict):
        return answer(usual.status, usual.fields[:-3], json.dumps(own).encode(), "application/json")
    if not callable(own):
        raise TypeError(f"on_denied returned {own!r}: expected None, a dict, or an application, as a response of Flask or Starlette is")
    return None


def own_fields(usual: Answer) -> Fields:
    """What an application's own answer has as well."""
    return usual.fields[:-2]  # not the type and length of the usual body


def phrase_of(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Denied"
