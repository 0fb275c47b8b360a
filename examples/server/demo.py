#!/usr/bin/env python3
"""A web application behind weir_limits.py.

    weir serve --policies examples/server/policies.yaml
    python3 examples/server/demo.py        and then: curl -i localhost:8000
"""
import os
import urllib.parse
import wsgiref.simple_server

import weir_limits


def hello(_environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


def main():
    weir = urllib.parse.urlsplit(os.environ.get("WEIR_URL", "http://localhost:7311"))
    port = int(os.environ.get("PORT", "8000"))
    app = weir_limits.Wsgi(hello, host=weir.hostname, port=weir.port,
                           deadline=float(os.environ.get("WEIR_DEADLINE", "0.05")))
    with wsgiref.simple_server.make_server("localhost", port, app) as server:
        print(f"http://localhost:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
