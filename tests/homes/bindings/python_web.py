#!/usr/bin/env python3
"""The middlewares of the Python package: rules, keys, fields, denials, failures of the store; called as WSGI and ASGI say, and
in Flask, Django, Starlette and FastAPI."""
import asyncio
import functools
import json
import logging
import os
import pathlib
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, ports  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402
import weir.asgi  # noqa: E402
import weir.web  # noqa: E402
import weir.wsgi  # noqa: E402
from lib.python_clients import Asgi, Wsgi, both, store_at  # noqa: E402


@both
def test_answers(check, client):
    web = client(store_at(), "fixed-window 2/h from-first")
    status, fields, body = web.ask()
    check.equal((status, body, fields["ratelimit"], fields["ratelimit-policy"]),
                (200, b"ok", '"fixed-window";r=1;t=3600', '"fixed-window";q=2;w=3600'), f"{web.kind}: allowed")
    check(web.seen[0].remaining == 1 and "retry-after" not in fields, f"{web.kind}: the application knows the decision")
    web.ask()
    status, fields, body = web.ask()
    told = json.loads(body)
    check.equal((status, fields["retry-after"], fields["weir-reason"], fields["content-type"], fields["cache-control"]),
                (429, "3600", "limit", "application/problem+json", "no-store"), f"{web.kind}: denied")
    check.equal((told["status"], told["reason"], told["allowed"], told["limit"], told["remaining"], told["retry_after"]),
                (429, "limit", False, 2, 0, 3600.0), f"{web.kind}: the body")
    check(len(web.seen) == 2 and web.ask(peer="192.0.2.8")[0] == 200, f"{web.kind}: another address")
    check.equal(web.ask(method="HEAD")[2], b"", f"{web.kind}: HEAD has no body")


@both
def test_rules(check, client):
    """All or nothing; costs; names; exemptions; keys that do not apply."""
    store = store_at()
    by_key = weir.web.by_header("X-Api-Key", missing="skip")
    web = client(store, [weir.web.Rule("fixed-window 5/h from-first", name="address"),
                         weir.web.Rule("fixed-window 3/h from-first", key=by_key, cost=lambda r: int(r.header("x-cost") or 1), name="key"),
                         weir.web.Rule("fixed-window 100/h from-first", key=weir.web.everybody)],
                 exempt=["/health", "/static/*"], headers="ietf")
    status, fields, _ = web.ask(headers=[("X-Api-Key", "k1"), ("X-Cost", "3")])
    check.equal((status, fields["ratelimit"]), (200, '"address";r=4;t=3600,"key";r=0;t=3600,"fixed-window";r=99;t=3600'), f"{web.kind}: three limits")
    status, fields, _ = web.ask(headers=[("x-api-key", "k1")])
    check(status == 429 and '"address";r=4' in fields["ratelimit"], f"{web.kind}: the denied one charged nothing")
    check.equal(store.peek("header.x-api-key:k1", "fixed-window 3/h from-first").remaining, 0, f"{web.kind}: the key's name")
    check.equal(store.peek("ip:192.0.2.7", "fixed-window 5/h from-first").remaining, 4, f"{web.kind}: the address's")
    check(web.ask()[0] == 200, f"{web.kind}: without the field the rule does not apply")
    for path in ("/health", "/static/", "/static/a.css"):
        check("ratelimit" not in web.ask(path)[1], f"{web.kind}: {path} is exempt")
    for path in ("/healthy", "//health", "/static/../login", "/static//login", "/static"):
        check("ratelimit" in web.ask(path, peer="192.0.2.99")[1], f"{web.kind}: {path} is not exempt")
    web = client(store_at(), weir.web.Rule("fixed-window 1/h from-first", key=weir.web.by_header("X-Api-Key")))
    check([web.ask()[0], web.ask()[0]] == [200, 429], f"{web.kind}: without the field the address counts")
    web = client(store_at(), "fixed-window 1/h", exempt=lambda request: request.method == "OPTIONS", deny_status=503, headers="x-ratelimit")
    check.equal([web.ask(method="OPTIONS")[0], web.ask()[0], web.ask()[0]], [200, 200, 503], f"{web.kind}: a function, another status")
    check("x-ratelimit-limit" in web.ask()[1] and "retry-after" in web.ask()[1], f"{web.kind}: another style")
    web = client(store_at(), "fixed-window 1/h", headers="retry-after")
    check.equal([{"ratelimit", "ratelimit-policy", "retry-after"} & set(web.ask()[1]) for _ in range(2)], [set(), {"retry-after"}], f"{web.kind}: only Retry-After")


def refusal(call):
    """What a ValueError says; "" if there was none."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


LOGIN = ["/login", "/login/", "//login", "///login//", "/./login", "/x/../login", "/login;x", "/login ", "/login.", "/;/login", "/login;x/"]
NOT_LOGIN = ["/Login", "/logins", "/login/x", "/", "", "/x/login", "/%6cogin", "/login?x", "/login\\"]


@both
def test_paths(check, client):
    """A rule of a path applies in every spelling that a framework may read as that path."""
    login = weir.web.Rule("fixed-window 100/h from-first", path="/login", name="login")
    store = store_at()
    web = client(store, login)
    for path in LOGIN:
        check("ratelimit" in web.ask(path)[1], f"{web.kind}: {path!r} is /login")
    check.equal(store.peek("login:192.0.2.7", login.limit).remaining, 100 - len(LOGIN), f"{web.kind}: by its name and the address")
    for path in NOT_LOGIN:
        check("ratelimit" not in web.ask(path)[1], f"{web.kind}: {path!r} is not /login")
    old = client(store_at(), weir.web.Rule("fixed-window 100/h", key=lambda r: "k" if r.path.rstrip("/") == "/login" else None), exempt=["/health"])
    check.equal(["ratelimit" in old.ask(path)[1] for path in ("//login", "///login//", "/logins")], [True, True, False], f"{web.kind}: r.path")
    for path in ("/login\n", "/login\0", "/\x7f"):
        status, _, body = web.ask(path)
        check.equal((status, json.loads(body)["detail"]), (400, "the path has a control character"), f"{web.kind}: {path!r}")
    check(client(store_at(), "fixed-window 1/h").ask("/a\n")[0] == 200, f"{web.kind}: nobody asked for the path")

    web = client(store_at(), weir.web.Rule("fixed-window 100/h from-first", path=["/api/*", "/caf\u00e9"]))
    sent = "/caf\u00e9" if web.kind == "asgi" else "/caf\u00e9".encode().decode("latin-1")
    for path in ("/api/", "/api/a/b", "//api//a", "/x/../api/a", "/api/../x", "//api/../x", sent, "/" + sent + "/"):
        check("ratelimit" in web.ask(path)[1], f"{web.kind}: {path!r} is one of several")
    for path in ("/api", "/apis", "/x/api/", "/cafe"):
        check("ratelimit" not in web.ask(path)[1], f"{web.kind}: {path!r} is none of them")

    same = [weir.web.Rule("fixed-window 1/h from-first", path=path) for path in ("/a", "/b")]
    web = client(store_at(), same)
    check.equal([web.ask(path)[0] for path in ("/a", "/b", "//a", "/b")], [200, 200, 429, 429], f"{web.kind}: each path has its own state")
    web = client(store_at(), weir.web.Rule("fixed-window 9/h from-first", cost=lambda r: 5 if r.at("/export", "/dump/*") else 1))
    check.equal([web.ask(path)[1]["ratelimit"] for path in ("//export", "/x")], ['"fixed-window";r=4;t=3600', '"fixed-window";r=3;t=3600'],
                f"{web.kind}: a cost by path")
    for path, why in (("/a//b", "expected '/a/b'"), ("login", "begins with /"), ("/a*b", "only at its end"), ("/a;x/*", "expected '/a/*'"), ([], "is empty"),
                      ("/api/<int:id>", "not as a route"), ("/api/{id}", "not as a route"), ("/a\n", "invalid path"), (["/a", 5], "invalid path 5")):
        check.contains(refusal(lambda path=path: client(store_at(), weir.web.Rule("fixed-window 1/h", path=path))), why, f"{web.kind}: {path!r}")


@both
def test_addresses(check, client):
    """X-Forwarded-For counts only behind trusted proxies, from its end; IPv6 counts by /64."""
    web = client(store_at(), "fixed-window 1/h from-first")
    web.ask(headers=[("X-Forwarded-For", "198.51.100.1")])
    check.equal(web.ask(headers=[("X-Forwarded-For", "198.51.100.2")])[0], 429, f"{web.kind}: not trusted by default")
    web.ask(peer="2001:db8:1:2::1")
    check.equal([web.ask(peer=peer)[0] for peer in ("2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "::ffff:192.0.2.7")], [429, 200, 429], f"{web.kind}: IPv6")

    def seen(hops, peer, *forwarded):
        store = store_at()
        client(store, "fixed-window 9/h from-first", trusted_hops=hops).ask(peer=peer, headers=[("X-Forwarded-For", it) for it in forwarded])
        return [ip for ip in ("192.0.2.7", "198.51.100.1", "198.51.100.2", "198.51.100.3", "2001:db8::/64")
                if store.peek(f"ip:{ip}", "fixed-window 9/h from-first").remaining == 8]
    check.equal(seen(0, "192.0.2.7", "198.51.100.1"), ["192.0.2.7"], f"{web.kind}: no hops")
    check.equal(seen(1, "192.0.2.7", "198.51.100.1"), ["198.51.100.1"], f"{web.kind}: one")
    check.equal(seen(1, "192.0.2.7", "198.51.100.3, 198.51.100.1"), ["198.51.100.1"], f"{web.kind}: what the client wrote is left of it")
    check.equal(seen(2, "192.0.2.7", "198.51.100.3", "198.51.100.1,198.51.100.2"), ["198.51.100.1"], f"{web.kind}: two fields are one")
    check.equal(seen(1, "192.0.2.7", ", ,"), ["192.0.2.7"], f"{web.kind}: empty")
    check.equal(seen(1, "192.0.2.7"), ["192.0.2.7"], f"{web.kind}: missing")
    check.equal(seen(1, None, "198.51.100.1"), ["198.51.100.1"], f"{web.kind}: behind a Unix socket")
    check.equal(seen(1, "192.0.2.7", "[2001:db8::5]:443"), ["2001:db8::/64"], f"{web.kind}: with a port")
    check.equal(seen(1, "192.0.2.7", "x, " * 90000 + "198.51.100.1"), ["198.51.100.1"], f"{web.kind}: a field of 270 kB")


def gone_store():
    """A store whose file was replaced by one that is no zone: its verbs fail, as those of a damaged or unreachable one do."""
    with tempfile.TemporaryDirectory() as folder:
        store = weir.Store(f"file:{folder}/zone?size=64k")
        pathlib.Path(folder, "other").write_text("no zone", encoding="ascii")
        os.rename(f"{folder}/other", f"{folder}/zone")
        try:
            while True:
                store.take("k", "fixed-window 1/h")
                time.sleep(0.01)
        except weir.EGONE:
            return store


@both
def test_failures(check, client):
    """A store that fails: denied or let through, as was said; a key that a client makes invalid never opens the door."""
    logging.getLogger("weir").setLevel(logging.CRITICAL)
    for on_error, wanted in (("deny", 429), ("allow", 200)):
        web = client(gone_store(), "fixed-window 1/h", on_error=on_error)
        status, fields, _ = web.ask()
        check.equal(status, wanted, f"{web.kind}: {on_error}")
        if on_error == "deny":
            check.equal((fields.get("weir-reason"), fields.get("retry-after")), ("closed", "1"), f"{web.kind}: why")
    for key in ("", "x" * 70000, "\udc80"):
        web = client(store_at(), weir.web.Rule("fixed-window 1/h", key=lambda request, key=key: key), on_error="allow")
        check.equal(web.ask()[0], 400, f"{web.kind}: a key of {len(key)}")
        check.equal(web.seen, [], f"{web.kind}: it did not get through")
    web = client(weir.Store("memory:64k?full=deny"), "fixed-window 5/d", on_error="allow")  # what has no room is denied all the same
    answers = [web.ask(peer=f"10.0.{i // 250}.{i % 250}") for i in range(4000)]
    statuses = {(status, fields.get("weir-reason")) for status, fields, _ in answers}
    check.equal(statuses, {(200, None), (429, "full")}, f"{web.kind}: full")
    for wrong, part in (({"on_error": "open"}, "on_error"), ({"headers": "no"}, "headers"), ({"trusted_hops": -1}, "trusted_hops"),
                        ({"deny_status": 200}, "deny_status"), ({"ipv6_prefix": 0}, "ipv6_prefix"), ({"exempt": "/health"}, "exempt")):
        try:
            client(store_at(), "fixed-window 1/h", **wrong)
            check(False, f"{web.kind}: {wrong}")
        except (ValueError, TypeError) as error:
            check.contains(str(error), part, f"{web.kind}: {wrong}")
    for rules, kind in (([], ValueError), ("nonsense", weir.ESYNTAX), (["fixed-window 1/h", "fixed-window 2/h"], weir.ESHARED)):
        try:
            client(store_at(), rules)
            check(False, f"{web.kind}: {rules}")
        except kind:
            check(True, "found at the start")


def refuses(call, kind, part):
    try:
        call()
    except kind as error:
        return part in str(error)
    return False


@both
def test_mistakes(check, client):
    """A mistake of the program is raised, and not blamed on the client's key."""
    for kind in (weir.wsgi.RateLimit, weir.asgi.RateLimit):
        for name, part in (("key", "key= belongs to a rule"), ("cost", "cost= belongs to a rule"), ("kye", "unexpected keyword argument 'kye'")):
            try:
                kind(None, store_at(), "fixed-window 1/h", **{name: weir.web.everybody})
                said = "nothing"
            except TypeError as error:
                said = str(error)
            check(part in said, f"{kind.__module__}: {name}=: {said}")
    for rule, kind, part in ((weir.web.Rule("fixed-window 1/h", cost=-1), weir.EINVAL, "cost -1"), (weir.web.Rule("fixed-window 1/h", name=5), TypeError, "name"),
                             (weir.web.Rule("fixed-window 1/h", key="all"), TypeError, "a function of the request")):
        check(refuses(lambda rule=rule: client(store_at(), rule), kind, part), f"{client.kind}: {part} is found at the start")
    check(refuses(lambda: client(store_at(), "fixed-window 1/h", exempt=["health"]), ValueError, "'health'"), f"{client.kind}: a path without /")
    web = client(store_at(), weir.web.Rule("fixed-window 1/h", cost=lambda request: -1))
    check(refuses(web.ask, weir.EINVAL, "cost -1") and not web.seen, f"{client.kind}: a function's cost")
    store = store_at()
    web = client(store, "fixed-window 1/h", on_error="allow")
    store.close()
    check(refuses(web.ask, weir.EINVAL, "closed") and not web.seen, f"{client.kind}: the store is closed")
    many = [weir.web.Rule("fixed-window 1/h", key=lambda request, i=i: f"k{i}") for i in range(17)]
    check(refuses(client(store_at(), many).ask, weir.EINVAL, "16"), f"{client.kind}: more than 16 limits")
    # The same limit by address and by a field: a request without the field counts under both.
    web = client(store_at(), ["fixed-window 1/h", weir.web.Rule("fixed-window 1/h", key=weir.web.by_header("X-Key"))])
    check.equal([web.ask()[0], web.ask()[0]], [200, 429], f"{client.kind}: without the field")


async def coroutine(*_):
    return True


class Awaited:
    async def __call__(self, *_):
        return True


@both
def test_types(check, client):
    """An option of another type is refused at the start, by its name and value: a text from the environment is no number, and "false" is not False."""
    rule = weir.web.Rule("fixed-window 5/h from-first")
    for kind, part, its in ((TypeError, "invalid shadow 'false'", {"shadow": "false"}), (TypeError, "invalid shadow '0'", {"shadow": "0"}), (TypeError, "invalid shadow 1", {"shadow": 1}),
                            (TypeError, "invalid shadow None", {"shadow": None}), (TypeError, "invalid cost '2'", {"cost": "2"}), (TypeError, "invalid cost True", {"cost": True}),
                            (TypeError, "invalid cost 1.5", {"cost": 1.5}), (TypeError, "invalid cost None", {"cost": None, "shadow": True}), (TypeError, "invalid name 5", {"name": 5}),
                            (TypeError, "invalid name b'login'", {"name": b"login", "shadow": True}), (ValueError, "invalid name ''", {"name": ""}), (TypeError, "invalid path 5", {"path": 5}),
                            (TypeError, "the key of the rule \"fixed-window 5/h from-first\" is async", {"key": coroutine}), (TypeError, "is async", {"cost": functools.partial(coroutine)}),
                            (TypeError, "invalid path b'/login'", {"path": b"/login"}), (ValueError, "invalid path 5", {"path": ["/login", 5]}), (TypeError, "limit", {"limit": 5})):
        check(refuses(lambda its=its: client(store_at(), rule._replace(**its)), kind, part), f"{client.kind}: {its}")
    for kind, part, its in ((TypeError, "invalid deny_status '503'", {"deny_status": "503"}), (TypeError, "invalid deny_status 429.5", {"deny_status": 429.5}),
                            (ValueError, "invalid deny_status 200: expected 400 to 599", {"deny_status": 200}), (TypeError, "invalid ipv4_prefix '24'", {"ipv4_prefix": "24"}),
                            (TypeError, "invalid ipv4_prefix True", {"ipv4_prefix": True}), (TypeError, "invalid ipv6_prefix 48.0", {"ipv6_prefix": 48.0}),
                            (ValueError, "invalid ipv6_prefix 129: expected 1 to 128", {"ipv6_prefix": 129}), (ValueError, "invalid trusted_hops True", {"trusted_hops": True}),
                            (ValueError, "invalid trusted_hops '1'", {"trusted_hops": "1"}), (ValueError, "invalid on_error True", {"on_error": True}), (ValueError, "invalid headers None", {"headers": None}),
                            (TypeError, "invalid exempt True", {"exempt": True}), (TypeError, "invalid exempt '/health'", {"exempt": "/health"}), (TypeError, "on_shadow", {"on_shadow": "log"}),
                            (TypeError, "exempt is async", {"exempt": coroutine}), (TypeError, "exempt is async", {"exempt": Awaited()}), (TypeError, "on_shadow is async", {"on_shadow": coroutine})):
        check(refuses(lambda its=its: client(store_at(), rule, **its), kind, part), f"{client.kind}: {its}")
    check(refuses(lambda: weir.web.by_header("X-Key", secret="false"), TypeError, "invalid secret 'false'"), "secret of by_header")


@both
def test_costs(check, client):
    """A constant cost that no state ever admits is found at the start; limits that admit any, and those with a cost of their own, take it."""
    rule = weir.web.Rule("fixed-window 5/h", name="export")
    for its in ({"cost": 6}, {"cost": 6, "limit": "fixed-window 99/h, sliding-log 5/d"}, {"cost": 6, "limit": "concurrent 5"}, {"cost": 6, "limit": "token-bucket 9/s burst 5"}, {"cost": 6, "shadow": True}):
        check(refuses(lambda its=its: client(store_at(), rule._replace(**its)), ValueError, 'invalid cost 6 of the rule "export": expected at most 5'), f"{client.kind}: {its}")
    for its in ({"cost": 5}, {"cost": 6, "limit": "smooth 5/s"}, {"cost": 6, "limit": "fixed-window 5/h cost 2"}, {"cost": lambda request: 6}):
        check.equal(client(store_at(), rule._replace(**its)).ask()[0], 429 if callable(its["cost"]) else 200, f"{client.kind}: {its}")
    check(refuses(lambda: weir.limited(store_at(), "fixed-window 5/h", cost=6)(len), ValueError, "invalid cost 6"), "the decorator")
    check(refuses(lambda: weir.limited(store_at(), "fixed-window 5/h", cost="1")(len), TypeError, "invalid cost '1'"), "the decorator, and a text")


def test_slots_forgotten(check):
    """A server that does not close the answer: the slot comes back."""
    store, limit = weir.Store("memory:1m"), "concurrent 1"
    web = Wsgi(store, limit)
    parts = web.app({"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.7"}, lambda status, fields: None)
    check.equal(store.peek("ip:192.0.2.7", limit).remaining, 0, "held")
    del parts
    check.equal(store.peek("ip:192.0.2.7", limit).remaining, 1, "forgotten, released")


def test_slots(check):
    """`concurrent`: a slot is held until the answer is done, also where the application fails."""
    store, limit = weir.Store("memory:1m"), "concurrent 1"
    inside = []

    def app(environ, start_response):
        inside.append(store.peek("ip:192.0.2.7", limit).remaining)
        if environ["PATH_INFO"] == "/fail":
            raise KeyError("mine")
        start_response("200 OK", [])

        def parts():
            yield b"a"
            inside.append(store.peek("ip:192.0.2.7", limit).remaining)
            yield b"b"
        return parts()
    web = Wsgi(store, limit, app)
    check.equal(web.ask()[2], b"ab", "wsgi: streamed")
    try:
        web.ask("/fail")
    except KeyError:
        pass
    check.equal((inside, store.peek("ip:192.0.2.7", limit).remaining), ([0, 0, 0], 1), "wsgi: held, released")
    inside.clear()

    async def aapp(scope, receive, send):
        inside.append(store.peek("ip:192.0.2.7", limit).remaining)
        if scope["path"] == "/fail":
            raise KeyError("mine")
        await send({"type": "http.response.start", "status": 200, "headers": []})
    web = Asgi(store, [limit, weir.web.Rule("concurrent 5", key=weir.web.everybody)], aapp)
    check.equal(web.ask()[0], 200, "asgi")
    try:
        web.ask("/fail")
    except KeyError:
        pass
    left = store.peek("ip:192.0.2.7", limit).remaining, store.peek("all", "concurrent 5").remaining
    check.equal((inside, left), ([0, 0], (1, 5)), "asgi: held, released")


def test_asgi_others(check):
    """WebSockets are limited by their handshake, other scopes pass."""
    sent, called = [], []

    async def app(scope, receive, send):
        called.append(scope["type"])

    async def send(message):
        sent.append(message["type"])
    web = weir.asgi.RateLimit(app, store_at(), "fixed-window 1/h")
    for kind in ("lifespan", "websocket", "websocket", "lifespan"):
        asyncio.run(web({"type": kind, "path": "/", "headers": [], "client": ["192.0.2.7", 1]}, None, send))
    check.equal((called, sent), (["lifespan", "websocket", "lifespan"], ["websocket.close"]), "scopes")


def test_shaping(check):
    """A delay is waited for. The store's clock stands still, so that each delay is longer than the one before."""
    for client in (Wsgi, Asgi):
        web, start = client(store_at(), "leaky-bucket 20/s burst 5"), time.monotonic()
        check.equal([web.ask()[0] for _ in range(3)], [200] * 3, f"{web.kind}: shaped")
        check.equal([decision.delay_us for decision in web.seen], [0, 50000, 100000], f"{web.kind}: with delays")
        check(time.monotonic() - start >= 0.15, f"{web.kind}: they are waited for")


# ---- frameworks ----

FLASK = """
import flask, weir.wsgi
app = flask.Flask(__name__)
app.wsgi_app = weir.wsgi.RateLimit(app.wsgi_app, "{store}", "fixed-window 3/d from-first", exempt=["/health"])
@app.route("/")
def index():
    return f"left {{flask.request.environ['weir.decision'].remaining}}"
@app.route("/health")
def health():
    return "fine"
"""
DJANGO = """
import django.conf, django.http, django.urls
django.conf.settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
def index(request):
    return django.http.HttpResponse(f"left {{request.META['weir.decision'].remaining}}")
def health(request):
    return django.http.HttpResponse("fine")
urlpatterns = [django.urls.path("", index), django.urls.path("health", health)]
from django.core.wsgi import get_wsgi_application
import weir.wsgi
app = weir.wsgi.RateLimit(get_wsgi_application(), "{store}", "fixed-window 3/d from-first", exempt=["/health"])
"""
STARLETTE = """
import starlette.applications, starlette.middleware, starlette.responses, starlette.routing, weir.asgi
async def index(request):
    return starlette.responses.PlainTextResponse(f"left {{request.scope['weir.decision'].remaining}}")
async def health(request):
    return starlette.responses.PlainTextResponse("fine")
app = starlette.applications.Starlette(routes=[starlette.routing.Route("/", index), starlette.routing.Route("/health", health)],
    middleware=[starlette.middleware.Middleware(weir.asgi.RateLimit, store="{store}", rules="fixed-window 3/d from-first", exempt=["/health"])])
"""
FASTAPI = """
import fastapi, weir.asgi
from fastapi.responses import PlainTextResponse
app = fastapi.FastAPI()
app.add_middleware(weir.asgi.RateLimit, store="{store}", rules="fixed-window 3/d from-first", exempt=["/health"])
@app.get("/", response_class=PlainTextResponse)
async def index(request: fastapi.Request):
    return f"left {{request.scope['weir.decision'].remaining}}"
@app.get("/health", response_class=PlainTextResponse)
def health():
    return "fine"
"""


def framework(check, name, text, server):
    """Two workers of a real server: three requests pass, whichever worker gets them."""
    port, zone = ports.take(), f"/weir-py-{name}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "web.py").write_text(text.format(store=f"shm:{zone}?size=64k"), encoding="utf-8")
        words = [bindings.PYTHON, "-m", *server, "web:app"]
        words += ["--bind", f"127.0.0.1:{port}", "--timeout", "300"] if server[0] == "gunicorn" else ["--port", port, "--log-level", "warning"]
        with bindings.Workers([*words, "--workers", 2], port, env=os.environ, cwd=folder, path="/health"):
            answers = [bindings.ask(port, "/") for _ in range(5)]
            check.equal([status for status, _, _ in answers], [200] * 3 + [429] * 2, f"{name}: statuses")
            check.equal([body for _, _, body in answers[:3]], [b"left 2", b"left 1", b"left 0"], f"{name}: the decision")
            check.contains(answers[0][1].get("ratelimit", ""), '"fixed-window";r=2', f"{name}: fields")
            check("retry-after" in answers[4][1], f"{name}: Retry-After")
    os.unlink(f"/dev/shm{zone}")


def test_frameworks(check):
    works = [("flask", FLASK, ["gunicorn"]), ("django", DJANGO, ["gunicorn"]), ("starlette", STARLETTE, ["uvicorn"]), ("fastapi", FASTAPI, ["uvicorn"])]
    threads = [threading.Thread(target=checks.run_one, args=(check, named(name, lambda check, it=it: framework(check, *it)))) for it in works
               for name in [it[0]]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def named(name, function):
    function.__name__ = name
    return function


TESTS = [test_answers, test_rules, test_paths, test_addresses, test_failures, test_mistakes, test_types, test_costs, test_slots, test_slots_forgotten, test_asgi_others, test_shaping, test_frameworks]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
