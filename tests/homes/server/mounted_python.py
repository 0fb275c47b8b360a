"""Flask or Starlette with the middleware of examples/server mounted at /api; recipes.py starts it."""
import os
import pathlib
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "server"))
import weir_limits  # noqa: E402

PORT = int(os.environ["PORT"])
WEIR = urllib.parse.urlsplit(os.environ["WEIR_URL"])
SERVER = {"host": WEIR.hostname, "port": WEIR.port, "deadline": float(os.environ["WEIR_DEADLINE"])}


def flask_app():
    import flask
    from werkzeug.middleware.dispatcher import DispatcherMiddleware
    from werkzeug.serving import run_simple
    api = flask.Flask("api")
    api.add_url_rule("/<path:path>", "hello", lambda path: "hello\n")
    api.wsgi_app = weir_limits.Wsgi(api.wsgi_app, **SERVER)
    run_simple("localhost", PORT, DispatcherMiddleware(flask.Flask("root"), {"/api": api}), threaded=True)


def starlette_app():
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def hello(_request):
        return PlainTextResponse("hello\n")
    api = weir_limits.Asgi(Starlette(routes=[Route("/{path:path}", hello)]), **SERVER)
    uvicorn.run(Starlette(routes=[Mount("/api", api)]), host="localhost", port=PORT, log_level="warning")


{"flask": flask_app, "starlette": starlette_app}[sys.argv[1]]()
