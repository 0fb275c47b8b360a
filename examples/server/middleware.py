#!/usr/bin/env python3
"""A web application whose requests `weir serve` decides. The middleware is for any WSGI server.

    weir serve --policies examples/server/policies.yaml
    python3 examples/server/middleware.py        and then: curl -i localhost:8000
"""
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse
import wsgiref.simple_server

PASSED_ON = ("retry-after", "ratelimit", "ratelimit-policy")
LONGEST = 16384  # bytes of a path; weir would refuse a longer one, or hang up on it, which looks like no answer


class Limited:
    """An application behind limits. While the server does not answer, or fails (5xx), requests go ahead. Whatever else
    is not a 200 is a refusal: 429 of a limit, 403 of a deny list, 400 of a request that weir cannot read."""

    def __init__(self, app, host="localhost", port=7311, deadline=0.05):
        self.app, self.host, self.port, self.deadline = app, host, port, deadline
        self.own = threading.local()  # a connection a thread

    def __call__(self, environ, start_response):
        answer = self.ask(environ)
        if answer is None:
            return self.app(environ, start_response)
        status, fields, body = answer
        if status != 200:
            start_response(f"{status} {http.client.responses.get(status, 'Refused')}",
                           [*fields, ("Content-Type", "application/problem+json")])
            return [body]
        time.sleep(json.loads(body)["delay"])  # of limits that shape: leaky-bucket, smooth, warmup

        def start(text, headers, *rest):
            return start_response(text, [*headers, *fields], *rest)
        return self.app(environ, start)

    def ask(self, environ):
        """(status, fields to pass on, body), or None: nobody decided."""
        path = urllib.parse.quote(environ["PATH_INFO"], encoding="latin-1")
        attributes = {"ip": environ["REMOTE_ADDR"], "method": environ["REQUEST_METHOD"], "path": path,
                      "user": environ.get("REMOTE_USER") or None}
        if len(path) > LONGEST:
            return 414, [], b""
        try:
            answer = self.send(json.dumps({"attributes": attributes}))
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


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


def main():
    weir = urllib.parse.urlsplit(os.environ.get("WEIR_URL", "http://localhost:7311"))
    port = int(os.environ.get("PORT", "8000"))
    app = Limited(hello, weir.hostname, weir.port, float(os.environ.get("WEIR_DEADLINE", "0.05")))
    with wsgiref.simple_server.make_server("localhost", port, app) as server:
        print(f"http://localhost:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
