#!/usr/bin/env python3
"""Denied requests in the Python middlewares: on_denied, bodies of one's own, the handlers of weir.Denied; and addresses that are none, or that a
server took from X-Forwarded-For."""
import asyncio
import json
import logging
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, ports  # noqa: E402

bindings.in_python(__file__)
import fastapi  # noqa: E402
import fastapi.responses  # noqa: E402
import flask  # noqa: E402
import weir  # noqa: E402
import weir.asgi  # noqa: E402
import weir.web  # noqa: E402
import weir.wsgi  # noqa: E402
from lib.python_clients import Asgi, Wsgi, both, store_at  # noqa: E402

ONCE = "fixed-window 1/h from-first"
LOGGED = []


class Log(logging.Handler):
    """What the package tells the program's log."""

    def emit(self, record):
        LOGGED.append(record.getMessage())


logging.getLogger("weir").addHandler(Log())


def raised(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    return ""


# ---- on_denied ----

@both
def test_told(check, client):
    """Each denial is told with its request and decision. Who returns nothing gets the usual answer."""
    told = []
    web = client(store_at(), ONCE, exempt=["/health"], on_denied=lambda request, decision: told.append((request.ip, request.path, decision.remaining)))
    statuses = [web.ask(path)[0] for path in ("/a", "/b", "/health", "/c")]
    check.equal((statuses, told), ([200, 429, 200, 429], [("192.0.2.7", "/b", 0), ("192.0.2.7", "/c", 0)]), f"{web.kind}: who is denied")
    _, fields, body = web.ask()
    check.equal((fields["content-type"], json.loads(body)["reason"]), ("application/problem+json", "limit"), f"{web.kind}: the usual answer")
    web = client(weir.Store("memory:64k?full=deny"), "fixed-window 5/d", on_denied=lambda request, decision: told.append("full"))
    while web.ask(peer=f"10.0.{len(web.seen) // 250}.{len(web.seen) % 250}")[0] == 200:
        pass
    check("full" not in told, f"{web.kind}: a store without room has made no decision")


@both
def test_which_rule(check, client):
    """on_denied sees which rule denied, and its key, also where other rules do not apply or have several limits."""
    told, store = [], store_at()
    web = client(store, [weir.web.Rule(ONCE, key=lambda r: b"never" if r.path == "/never" else None, name="never"),
                         "fixed-window 9/h from-first, fixed-window 3/d from-first",
                         weir.web.Rule(ONCE, key=lambda r: f"login:{r.ip}" if r.path == "/login" else None, name="login")],
                 on_denied=lambda r, decision: told.append((r.rule.name, str(r.rule.limit), r.key, decision.binding)))
    check.equal([web.ask(path)[0] for path in ("/login", "/login", "/never", "/never", "/", "/")], [200, 429, 200, 429, 200, 429], f"{web.kind}: statuses")
    check.equal(told, [("login", ONCE, "login:192.0.2.7", 2), ("never", ONCE, b"never", 0),
                       (None, "fixed-window 9/h from-first, fixed-window 3/d from-first", "ip:192.0.2.7", 1)], f"{web.kind}: rules and keys")
    store.reset(told[0][2])
    store.reset(told[2][2])
    check.equal(web.ask("/login")[0], 200, f"{web.kind}: keys to reset by")
    web = client(store_at(), weir.web.Rule(ONCE, key=lambda r: r.key))
    check.contains(raised(web.ask, AttributeError), "key", f"{web.kind}: before a denial there is none")


@both
def test_own_body(check, client):
    web = client(store_at(), ONCE, on_denied=lambda request, decision: {"error": "slow down", "after": decision.retry_after_us // 1_000_000})
    web.ask()
    status, fields, body = web.ask()
    check.equal((status, json.loads(body), fields["content-type"]), (429, {"error": "slow down", "after": 3600}, "application/json"), f"{web.kind}: a dict")
    check.equal([fields.get(name) for name in ("retry-after", "weir-reason", "cache-control", "ratelimit", "content-length")],
                ["3600", "limit", "no-store", '"fixed-window";r=0;t=3600', str(len(body))], f"{web.kind}: its fields")
    check.equal(web.ask(method="HEAD")[2], b"", f"{web.kind}: HEAD")
    make = flask.Response if client is Wsgi else fastapi.responses.PlainTextResponse
    for given, wanted in ((200, 429), (503, 503)):
        web = client(store_at(), ONCE, on_denied=lambda request, decision, given=given: make("later", given, {"Retry-After": "7", "X-Own": "1"}))
        web.ask()
        status, fields, body = web.ask()
        check.equal((status, body, fields["retry-after"], fields["x-own"], fields["weir-reason"], "ratelimit" in fields),
                    (wanted, b"later", "7", "1", "limit", True), f"{web.kind}: a response of {given}")
        check.equal(len(web.seen), 1, f"{web.kind}: the application did not see it")


@both
def test_mistakes(check, client):
    check.contains(raised(lambda: client(store_at(), ONCE, on_denied=5), TypeError), "a function of the request and the decision", f"{client.kind}: a number")
    web = client(store_at(), ONCE, on_denied=lambda request, decision: "slow down")
    web.ask()
    check.contains(raised(web.ask, TypeError), "on_denied returned 'slow down': expected None, a dict, or an application", f"{web.kind}: a text")
    web = client(store_at(), ONCE, on_denied=lambda request, decision: 1 // 0)
    web.ask()
    check("zero" in raised(web.ask, ZeroDivisionError) and len(web.seen) == 1, f"{web.kind}: what it raises does not open the door")
    for name, part in (("trusted_proxies", "did you mean trusted_hops?"), ("onDenied", "did you mean on_denied?"), ("skip", "there are exempt, on_error")):
        check.contains(raised(lambda name=name: client(store_at(), ONCE, **{name: 1}), TypeError), part, f"{client.kind}: {name}=")


def test_async(check):
    """on_denied of ASGI may be async; of a WebSocket it is told, and the handshake is refused."""
    told, sent = [], []

    async def on_denied(request, decision):
        await asyncio.sleep(0)
        told.append(request.path)
        return fastapi.responses.JSONResponse({"own": True})
    web = Asgi(store_at(), ONCE, on_denied=on_denied)
    web.ask()
    status, _, body = web.ask("/http")
    check.equal((status, body), (429, b'{"own":true}'), "async")

    async def send(message):
        sent.append(message["type"])
    asyncio.run(web.app({"type": "websocket", "path": "/socket", "headers": [], "client": ["192.0.2.7", 1]}, None, send))
    check.equal((told, sent), (["/http", "/socket"], ["websocket.close"]), "a WebSocket")


@both
def test_second_rule(check, client):
    """A limit of one route, beside that of all."""
    store = store_at()
    web = client(store, ["fixed-window 9/h from-first",
                         weir.web.Rule("fixed-window 2/h from-first", key=lambda r: f"login:{r.ip}" if r.path == "/login" else None, name="login")])
    check.equal([web.ask("/login")[0] for _ in range(3)] + [web.ask("/")[0]], [200, 200, 429, 200], f"{web.kind}: two logins, then other pages")
    web.ask("/login", peer="2001:db8:1:2::9")
    check.equal(store.peek("login:2001:db8:1:2::/64", "fixed-window 2/h from-first").remaining, 1, f"{web.kind}: r.ip is the network")


# ---- weir.Denied in frameworks: README.md has these handlers ----

def test_decorated_flask(check):
    app, store = flask.Flask("decorated"), store_at()

    @app.errorhandler(weir.Denied)
    def denied(error):
        return {"error": "too many requests"}, 429, error.fields()

    @app.route("/")
    @weir.limited(store, ONCE, key="index")
    def index():
        return "ok"
    first, second = app.test_client().get("/"), app.test_client().get("/")
    check.equal((first.status_code, second.status_code, second.json, second.headers["Retry-After"]), (200, 429, {"error": "too many requests"}, "3600"), "Flask")


def test_decorated_fastapi(check):
    app, store = fastapi.FastAPI(), store_at()

    @app.exception_handler(weir.Denied)
    async def denied(request, error):
        return fastapi.responses.JSONResponse({"error": "too many requests"}, 429, dict(error.fields()))

    @app.get("/sync")
    @weir.limited(store, ONCE, key="sync")
    def sync():
        return "ok"

    @app.get("/async")
    @weir.limited(store, ONCE, key="async")
    async def other():
        return "ok"
    web = Asgi(store_at(), "fixed-window 99/h", app)
    for path in ("/sync", "/async"):
        first, second = web.ask(path), web.ask(path)
        check.equal((first[0], second[0], second[2], second[1]["retry-after"]), (200, 429, b'{"error":"too many requests"}', "3600"), f"FastAPI: {path}")


# ---- addresses ----

@both
def test_bad_addresses(check, client):
    """What a client or a proxy writes into X-Forwarded-For gives 400, and no traceback. What the program lacks is raised."""
    forwarded = [("X-Forwarded-For", "unknown")]
    for options in ({}, {"on_error": "allow"}):
        web = client(store_at(), ONCE, trusted_hops=1, **options)
        LOGGED.clear()
        status, fields, body = web.ask(headers=forwarded)
        check.equal((status, fields["content-type"], json.loads(body)["detail"], web.seen),
                    (400, "application/problem+json", "an entry of X-Forwarded-For is not an address", []), f"{web.kind}: not an address")
        web.ask(headers=forwarded)
        check.equal(set(LOGGED), {"weir: a request is refused: X-Forwarded-For: 'unknown' is not an address: is trusted_hops the number of proxies?"},
                    f"{web.kind}: the log")
    web = client(store_at(), weir.web.Rule(ONCE, key=weir.web.everybody), trusted_hops=1, on_denied=lambda request, decision: {"ip": request.ip})
    web.ask()
    check.equal(web.ask(headers=forwarded)[0], 400, f"{web.kind}: on_denied that asks for it")
    for hops, part in ((0, "set trusted_hops"), (2, "X-Forwarded-For is missing: the last of the 2 proxies")):
        web = client(store_at(), ONCE, trusted_hops=hops)
        check.contains(raised(lambda web=web: web.ask(peer=None), weir.web.NoAddress), part, f"{web.kind}: a Unix socket, {hops} hops")
    check.contains(raised(lambda: client(store_at(), ONCE).ask(peer="testclient"), weir.web.NoAddress), "'testclient', which is not", f"{web.kind}: of the server")
    store = store_at()
    client(store, ONCE, trusted_hops=3).ask(headers=[("X-Forwarded-For", "198.51.100.1, 198.51.100.2")])
    check.equal(store.peek("ip:198.51.100.1", ONCE).remaining, 0, f"{web.kind}: fewer entries than hops: the first one counts")
    for hops in (-1, "proxy", None):
        check.contains(raised(lambda hops=hops: client(store_at(), ONCE, trusted_hops=hops), ValueError), f"invalid trusted_hops {hops!r}", f"{client.kind}: hops")


UVICORN = """
import weir.asgi
async def plain(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
def limited(hops):
    return weir.asgi.RateLimit(plain, "memory:64k", "fixed-window 1/d from-first", trusted_hops=hops, exempt=["/health"])
apps = {"/": limited(0), "/health": limited(0), "/hops": limited(1), "/server": limited("server")}
async def app(scope, receive, send):
    if scope["type"] == "http":
        await apps[scope["path"]](scope, receive, send)
"""


FLASK = """
import flask, logging, weir.wsgi
logging.basicConfig(format="%(name)s %(message)s")
app = flask.Flask(__name__)
app.route("/")(app.route("/health")(lambda: "ok"))
app.wsgi_app = weir.wsgi.RateLimit(app.wsgi_app, STORE, "fixed-window 2/d from-first", exempt=["/health"],
                                   on_denied=lambda r, decision: {"key": r.key, "limit": str(r.rule.limit)})
"""
PROXY = "have X-Forwarded-For, but trusted_hops is 0"


def in_flask(folder, store, *words):
    """gunicorn with one worker."""
    port = ports.take()
    pathlib.Path(folder, "web.py").write_text(FLASK.replace("STORE", repr(store)), encoding="utf-8")
    command = [bindings.PYTHON, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--timeout", "300", *words, "web:app"]
    return bindings.Workers(command, port, env=os.environ, cwd=folder, path="/health")


def test_proxy(check):
    """A proxy nearby, and no trusted_hops: all its clients are one, and the log says so, once."""
    with tempfile.TemporaryDirectory() as folder, in_flask(folder, "memory:64k") as workers:
        check.equal(bindings.ask(workers.port, "/")[0], 200, "without a proxy")
        check(PROXY not in workers.output(), "no word of it")
        answers = [bindings.ask(workers.port, "/", headers={"X-Forwarded-For": f"198.51.100.{i}"}) for i in range(3)]
        check.equal([status for status, _, _ in answers], [200, 429, 429], "others share the limit")
        check.equal(json.loads(answers[2][2]), {"key": "ip:127.0.0.1", "limit": "fixed-window 2/d from-first"}, "by which key and limit")
        check.equal(workers.output().count(f"weir weir: requests from 127.0.0.1 {PROXY}"), 1, workers.output())
    check(not weir.web.PROXY_TOLD.locked(), "this process has not told it yet")
    for client in (Wsgi, Asgi):
        LOGGED.clear()
        client(store_at(), ONCE).ask(peer="8.8.8.8", headers=[("X-Forwarded-For", "198.51.100.1")])
        client(store_at(), ONCE, trusted_hops=1).ask(peer="10.0.0.1", headers=[("X-Forwarded-For", "198.51.100.1")])
        check.equal(LOGGED, [], f"{client.kind}: a stranger who sends the field, and a proxy that is trusted")


def test_replaced(check):
    """Who removes a zone under running workers is told to restart them."""
    with tempfile.TemporaryDirectory() as folder, in_flask(folder, f"file:{folder}/zone?size=64k") as workers:
        check.equal(bindings.ask(workers.port, "/")[0], 200, "at first")
        os.unlink(f"{folder}/zone")
        weir.Store(f"file:{folder}/zone?size=64k").close()
        checks.until("the worker sees it", lambda: bindings.ask(workers.port, "/")[1].get("weir-reason") == "closed")
        check.contains(workers.output(), "open it again (restart the workers)", "the log")


def statuses(port, path):
    """Of a client that says to be others."""
    return [bindings.ask(port, path, headers={"X-Forwarded-For": field} if field else {})[0]
            for field in ("198.51.100.1, 192.0.2.1", "198.51.100.2, 192.0.2.1", None, None)]


def test_servers(check):
    """uvicorn takes the address from X-Forwarded-For by itself. No client gets through by that."""
    uvicorn, gunicorn = ["uvicorn", "--port", "PORT", "--log-level", "critical"], ["gunicorn", "-k", "uvicorn.workers.UvicornWorker", "--bind", "127.0.0.1:PORT"]
    for words, plain, server in ((uvicorn, [400, 400, 200, 429], [200, 429, 200, 429]),
                                 ([*uvicorn, "--forwarded-allow-ips", "*"], [400, 400, 200, 429], [200, 200, 200, 429]),
                                 ([*uvicorn, "--no-proxy-headers"], [200, 429, 429, 429], [200, 429, 429, 429]),
                                 ([*gunicorn, "--forwarded-allow-ips", "*"], [400, 400, 200, 429], [200, 200, 200, 429]),
                                 ([*gunicorn, "--forwarded-allow-ips", ""], [200, 429, 429, 429], [200, 429, 429, 429])):
        port, name = ports.take(), " ".join(words[:1] + words[-2:])
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "web.py").write_text(UVICORN, encoding="utf-8")
            command = [bindings.PYTHON, "-m", *[word.replace("PORT", str(port)) for word in words], "web:app"]
            with bindings.Workers(command, port, env=os.environ, cwd=folder, path="/health") as workers:
                check.equal(statuses(port, "/"), plain, f"{name}: trusted_hops=0")
                check.equal(statuses(port, "/hops"), [200, 429, 200, 429], f"{name}: one proxy, whose last entry counts")
                check.equal(statuses(port, "/server"), server, f"{name}: what the server says")
                check.equal(workers.output().count(PROXY), 400 not in plain, f"{name}: the log has a word of the proxy")
                check.equal(400 in plain, "has put an address of X-Forwarded-For in the place" in workers.output(), f"{name}: the log")


TESTS = [test_told, test_which_rule, test_own_body, test_mistakes, test_async, test_second_rule, test_decorated_flask, test_decorated_fastapi, test_bad_addresses, test_proxy, test_replaced, test_servers]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
