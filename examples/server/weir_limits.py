"""Requests that `weir serve` decides: middlewares for WSGI (Flask, Django) and ASGI (Starlette, FastAPI).

    app.wsgi_app = weir_limits.Wsgi(app.wsgi_app)     # Flask
    app = weir_limits.Asgi(app)                       # any ASGI application

While the server does not answer, or fails (5xx), requests go ahead. Whatever else is not a 200 is a refusal: 429 of a limit,
403 of a deny list, 400 of a request that weir cannot read.
"""
import asyncio
import http.client
import json
import re
import sys
import threading
import time
import urllib.parse

PASSED_ON = ("retry-after", "ratelimit", "ratelimit-policy")
LONGEST = 16384  # bytes of a path; weir would refuse a longer one, or hang up on it, which looks like no answer
ORIGIN = re.compile(r"^[a-z][a-z0-9+.-]*://[^/]*", re.I)


class Client:
    """Asks one server; may be used by many threads, each of which keeps a connection."""

    def __init__(self, host="localhost", port=7311, deadline=0.05):
        self.host, self.port, self.deadline = host, port, deadline
        self.own = threading.local()

    def ask(self, path, **attributes):
        """(status, fields to pass on, body), or None: nobody decided."""
        path = ORIGIN.sub("", path) or "/"  # some clients send whole addresses
        if len(path) > LONGEST:
            return 414, [], b""
        try:
            answer = self.send(json.dumps({"attributes": {"path": path, **attributes}}))
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.own.connection = None
            print(f"weir does not answer: {error!r}", file=sys.stderr)
            return None
        status = answer.status
        if status not in (200, 403, 429):  # no decision, but a mistake to mend
            print(f"weir answers {status}: {body.decode(errors='replace')}", file=sys.stderr)
        if status >= 500:
            return None
        if status != 200 and status < 400:  # not weir's: refused, and nothing of it is passed on
            status, body = 500, b""
        return status, [(name, answer.headers[name]) for name in PASSED_ON if name in answer.headers], body

    def send(self, text):
        """A connection that was closed while nobody used it is replaced by a new one, once."""
        kept = getattr(self.own, "connection", None)
        connection = kept or http.client.HTTPConnection(self.host, self.port, timeout=self.deadline)
        self.own.connection = connection
        try:
            connection.request("POST", "/v1/take", text, {"Content-Type": "application/json"})
            return connection.getresponse()
        except (ConnectionError, http.client.HTTPException):
            self.own.connection = None
            if kept is None:
                raise
            return self.send(text)


def delay_of(body):
    """Seconds to wait: of limits that shape, leaky-bucket, smooth, warmup."""
    return json.loads(body)["delay"]


class Wsgi:
    """A WSGI application behind limits."""

    def __init__(self, app, **server):
        self.app, self.client = app, Client(**server)

    def __call__(self, environ, start_response):
        # Where the application is mounted is in SCRIPT_NAME, and no longer in PATH_INFO; both are decoded.
        path = urllib.parse.quote(environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"], "/:", encoding="latin-1")
        answer = self.client.ask(path, ip=environ["REMOTE_ADDR"], method=environ["REQUEST_METHOD"],
                                 user=environ.get("REMOTE_USER") or None)
        if answer is None:
            return self.app(environ, start_response)
        status, fields, body = answer
        if status != 200:
            start_response(f"{status} {http.client.responses.get(status, 'Refused')}",
                           [*fields, ("Content-Type", "application/problem+json")])
            return [body]
        time.sleep(delay_of(body))

        def start(text, headers, *rest):
            return start_response(text, [*headers, *fields], *rest)
        return self.app(environ, start)


class Asgi:
    """An ASGI application behind limits. Questions are asked in threads, so that nobody else waits for an answer."""

    def __init__(self, app, **server):
        self.app, self.client = app, Client(**server)

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        answer = await asyncio.to_thread(self.client.ask, path_of(scope), ip=(scope.get("client") or ["127.0.0.1"])[0],
                                         method=scope.get("method", "GET"), user=None)
        if answer is None:
            return await self.app(scope, receive, send)
        status, fields, body = answer
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in fields]
        if status != 200:
            return await refuse(scope, send, status, pairs, body)
        await asyncio.sleep(delay_of(body))

        async def send_with_fields(message):
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *pairs]}
            await send(message)
        return await self.app(scope, receive, send_with_fields)


def path_of(scope):
    """As the client sent it, if the server tells; mounting changes path and root_path, in old and new Starlette otherwise."""
    raw = scope.get("raw_path")
    if raw:
        return raw.decode("latin-1").split("?")[0]
    root = scope.get("root_path", "")
    return urllib.parse.quote(root + scope["path"])


async def refuse(scope, send, status, pairs, body):
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008})
    headers = [*pairs, (b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
