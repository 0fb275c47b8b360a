"""Clients of the Python package's middlewares, called as WSGI and ASGI say. For tests that run inside bindings.in_python."""
import asyncio

import weir
import weir.asgi
import weir.wsgi

NOW = 1_700_000_000_000_000


class Wsgi:
    """A client of a WSGI application."""

    kind = "wsgi"

    def __init__(self, store, rules, app=None, **options):
        self.seen = []
        self.app = weir.wsgi.RateLimit(app or self.plain, store, rules, **options)

    def plain(self, environ, start_response):
        self.seen.append(environ["weir.decision"])
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"ok"]

    def ask(self, path="/", peer="192.0.2.7", method="GET", headers=()):
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, **({"REMOTE_ADDR": peer} if peer else {})}
        for name, value in headers:
            word = "HTTP_" + name.upper().replace("-", "_")
            environ[word] = f"{environ[word]},{value}" if word in environ else value
        told = []
        parts = self.app(environ, lambda status, fields, exc_info=None: told.append((status, fields)))
        body = b"".join(parts)
        if hasattr(parts, "close"):
            parts.close()
        (status, fields), = told
        return int(status.split()[0]), {name.lower(): value for name, value in fields}, body


class Asgi:
    """A client of an ASGI application."""

    kind = "asgi"

    def __init__(self, store, rules, app=None, **options):
        self.seen = []
        self.app = weir.asgi.RateLimit(app or self.plain, store, rules, **options)

    async def plain(self, scope, receive, send):
        self.seen.append(scope["weir.decision"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def ask(self, path="/", peer="192.0.2.7", method="GET", headers=(), port=1234):
        sent = []

        async def send(message):
            sent.append(message)
        scope = {"type": "http", "method": method, "path": path, "client": (peer, port) if peer else None,
                 "headers": [(name.lower().encode(), value.encode()) for name, value in headers], "query_string": b""}
        asyncio.run(self.app(scope, None, send))
        fields = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], fields, b"".join(it.get("body", b"") for it in sent[1:])


def store_at():
    store = weir.Store("memory:1m")
    store.set_time(NOW)
    return store


def both(test):
    """The same for WSGI and ASGI."""
    def run(check):
        for client in (Wsgi, Asgi):
            test(check, client)
    run.__name__ = test.__name__
    return run
