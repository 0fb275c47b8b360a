#!/usr/bin/env python3
"""Worker processes under load admit exactly as many as the limit says: 8 of gunicorn, with preload and without, 4 of uvicorn; also
while workers are killed with SIGKILL. The application notes each request that reached it in a file of its own."""
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, ports  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402

MOST = 1000
CONNECTIONS = 16
LIMIT = f"fixed-window {MOST}/d from-first"
WSGI = """
import os, weir, weir.wsgi
served = os.open("served", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def plain(environ, start_response):
    if environ["PATH_INFO"] != "/health":
        os.write(served, b".")
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
store = weir.Store("{store}")
app = weir.wsgi.RateLimit(plain, store, weir.wsgi.Rule("{limit}", key=weir.wsgi.everybody), exempt=["/health"])
"""
ASGI = """
import os, weir, weir.asgi
served = os.open("served", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
async def plain(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({{"type": message["type"] + ".complete"}})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["path"] != "/health":
        os.write(served, b".")
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
    await send({{"type": "http.response.body", "body": b"ok"}})
app = weir.asgi.RateLimit(plain, "{store}", weir.asgi.Rule("{limit}", key=weir.asgi.everybody), exempt=["/health"])
"""


def kill_some(workers, until, chance, most, killed):
    """Kills workers while requests are admitted."""
    while not until.is_set() and len(killed) < most:
        time.sleep(0.05)
        pid = workers.kill_one(chance)
        if pid:
            killed.append(pid)


def load(port, killed, least_kills):
    """Load in rounds, until there are denials and so many were killed: how many answers of each status."""
    seen, rounds = {}, 0
    while not seen.get(429) or len(killed) < least_kills:
        rounds += 1
        for status, count in bindings.wrk(port, seconds=1, connections=CONNECTIONS).items():
            seen[status] = seen.get(status, 0) + count
    return seen, rounds


def admitted(check, name, text, words, most_kills):
    port, zone = ports.take(), f"/weir-py-{name.replace(' ', '-')}-{os.getpid()}"
    url, killed, over = f"shm:{zone}?size=64k", [], threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        served = pathlib.Path(folder, "served")
        pathlib.Path(folder, "web.py").write_text(text.format(store=url, limit=LIMIT), encoding="utf-8")
        with bindings.Workers([bindings.PYTHON, "-m", *[str(port) if word == "PORT" else word.replace("PORT", str(port)) for word in words]], port,
                              env=os.environ, cwd=folder, path="/health") as workers:
            killer = threading.Thread(target=kill_some, args=(workers, over, random.Random(checks.seed()), most_kills, killed))
            killer.start()
            try:
                seen, rounds = load(port, killed, min(most_kills, 1))
            finally:
                over.set()
                killer.join()
            workers.stop()  # wrk has left requests in progress: they come to their end
            reached = os.path.getsize(served)
        with weir.Store(url) as store:
            left = store.peek("all", LIMIT).remaining
    os.unlink(f"/dev/shm{zone}")
    check(left == 0 and seen.get(429, 0) > 0, f"{name}: {left} left, {seen}")
    # A worker that is killed between its take and its answer has charged what nobody saw: one request for each at most.
    check.within(reached, MOST - len(killed), MOST, f"{name}: reached the application, {len(killed)} killed")
    check.at_most(seen.get(200, 0), reached, f"{name}: 200 as wrk saw them")
    if not most_kills:
        check.equal(reached, MOST, f"{name}: exactly")
        # wrk goes away at the end of a round, with one request in progress on each connection.
        check.within(seen.get(200), MOST - rounds * CONNECTIONS, MOST, f"{name}: as wrk saw them")
    else:
        check(killed, f"{name}: workers were killed")
    check.equal(set(seen) - {200, 429}, set(), f"{name}: no other answers")


GUNICORN = ["gunicorn", "web:app", "--workers", "8", "--bind", "127.0.0.1:PORT", "--log-level", "critical", "--timeout", "300"]
UVICORN = ["uvicorn", "web:app", "--workers", "4", "--port", "PORT", "--log-level", "critical"]


def test_gunicorn(check):
    admitted(check, "gunicorn", WSGI, GUNICORN, 0)


def test_gunicorn_killed(check):
    admitted(check, "gunicorn killed", WSGI, GUNICORN, 20)


def test_gunicorn_preload(check):
    admitted(check, "gunicorn preload", WSGI, [*GUNICORN, "--preload"], 0)


def test_gunicorn_preload_killed(check):
    admitted(check, "gunicorn preload killed", WSGI, [*GUNICORN, "--preload"], 20)


def test_uvicorn(check):
    admitted(check, "uvicorn", ASGI, UVICORN, 0)


def test_uvicorn_killed(check):
    admitted(check, "uvicorn killed", ASGI, UVICORN, 2)  # this uvicorn does not start others in their place


TESTS = [test_gunicorn, test_gunicorn_killed, test_gunicorn_preload, test_gunicorn_preload_killed, test_uvicorn, test_uvicorn_killed]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
