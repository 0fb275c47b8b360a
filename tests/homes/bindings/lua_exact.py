#!/usr/bin/env python3
"""Four nginx workers share a limit: whatever comes at once, exactly as many pass as it says; with workers killed, over reloads.

    lua_exact.py --original     also shows that resty.limit.req lets more pass; $LUA_RESTY_LIMIT_TRAFFIC names its lib/ folder
"""
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading

from lib import bindings, checks, lua_nginx

WORKERS, CONNECTIONS = 4, 32
NUMBER, REQUESTS = 1000, 3000
TIMES = 5  # workers that are killed, and reloads, under load
DICTS = "lua_shared_dict store 4m; lua_shared_dict seen 1m;"
REQ = """
    local lim = assert(require("{limit}.req").new("store", 0.001, {number} - 1))
    local delay, err = lim:incoming(ngx.var.arg_k, true)
    if not delay then return ngx.exit(err == "rejected" and 429 or 500) end"""
COUNT = """
    local lim = assert(require("{limit}.count").new("store", {number}, 100000))
    local delay, err = lim:incoming(ngx.var.arg_k, true)
    if not delay then return ngx.exit(err == "rejected" and 429 or 500) end"""
# `at` counts those that are inside, by itself, and `most` remembers how many there were.
CONN = """
    local lim = assert(require("{limit}.conn").new("store", 3, 2, 0.001))
    local delay, err = lim:incoming(ngx.var.arg_k, true)
    if not delay then return ngx.exit(err == "rejected" and 429 or 500) end
    local seen = ngx.shared.seen
    local now = seen:incr("at", 1, 0)
    if now > (seen:get("most") or 0) then seen:set("most", now) end
    ngx.sleep(0.002)
    seen:incr("at", -1)
    assert(lim:leaving(ngx.var.arg_k))"""
ZONE = """
    local decision, err = assert(weir.open("{url}")):take(ngx.var.arg_k, "token-bucket 1/100d burst {number}")
    if not decision.allowed then return ngx.exit(429) end"""


def location(name, text, **values):
    code = text.replace("{number}", str(NUMBER))
    for word, value in values.items():
        code = code.replace(f"{{{word}}}", value)
    return f"location = /{name} {{ content_by_lua_block {{ {code} ngx.say('passed') }} }}\n"


def locations(limit, url):
    return "".join([location("req", REQ, limit=limit), location("count", COUNT, limit=limit), location("conn", CONN, limit=limit),
                    location("zone", ZONE, url=url) if url else ""])


class Served:
    """Four workers, a zone in a file that they share."""

    def __init__(self, limit="resty.weir.limit", package=""):
        self.folder = tempfile.TemporaryDirectory()
        url = f"file:{self.folder.name}/zone?size=1m"
        self.nginx = lua_nginx.Nginx(DICTS, locations(limit, url), workers=WORKERS, listen="reuseport", package=package)

    def __enter__(self):
        return self.nginx.__enter__()

    def __exit__(self, *about):
        try:
            return self.nginx.__exit__(*about)
        finally:
            self.folder.cleanup()


def rush(nginx, path):
    return bindings.rush(nginx.port, path, REQUESTS, CONNECTIONS)


def after(nginx, path):
    """How many of some more requests pass, each over a connection of its own, so that any worker may get it."""
    return sum(nginx.get(path).status == 200 for _ in range(20))


def test_exact(check):
    with Served() as nginx:
        for name in ("req", "count", "zone"):
            check.equal(rush(nginx, f"/{name}?k=a"), {200: NUMBER, 429: REQUESTS - NUMBER}, f"{name}: {WORKERS} workers")
            check.equal(after(nginx, f"/{name}?k=a"), 0, f"{name}: and none after that")


def test_at_a_time(check):
    with Served() as nginx:
        seen = collections.Counter()

        def most():
            seen.update(rush(nginx, "/conn?k=a"))
            return nginx.lua('return ngx.shared.seen:get("most")')
        checks.until("as many as may be are inside at once", lambda: most() >= 5)
        check(seen[200] > 0 and seen[429] > 0 and set(seen) == {200, 429}, f"conn: {seen}")
        check.equal(nginx.lua('return ngx.shared.seen:get("most")'), 5, "conn: never more than conn and burst")
        check.equal(nginx.lua('return (require("resty.weir.limit.conn").new("store", 3, 2, 1):incoming("a"))'), 0, "all have left")


def disturb(stop, act, done):
    """Does something some times, with a pause before each."""
    while len(done) < TIMES and not stop.wait(0.1):
        done.append(act())


@contextlib.contextmanager
def disturbed(act):
    """While there is load: a list that grows each time. It is as long as TIMES in the end, unless something failed."""
    stop, done = threading.Event(), []
    thread = threading.Thread(target=disturb, args=(stop, act, done))
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def test_killed(check):
    chance = random.Random(checks.seed())
    with Served() as nginx:
        nginx.allow(lua_nginx.nginx_server.KILLED)

        def kill():
            try:
                os.kill(chance.choice(nginx.workers()), signal.SIGKILL)
            except (ProcessLookupError, IndexError):
                pass
        for name in ("req", "count", "zone"):
            path, seen, rounds = f"/{name}?k=killed", collections.Counter(), 0
            with disturbed(kill) as kills:
                while not seen[429] or len(kills) < TIMES:
                    seen.update(bindings.wrk(nginx.port, path, seconds=1, connections=CONNECTIONS, threads=2))
                    rounds += 1
            check(set(seen) == {200, 429}, f"{name}: workers were killed: {seen}")
            # An answer may be lost with its worker, on each of its connections, or when wrk goes; the charge is not.
            lost = (TIMES + rounds) * CONNECTIONS
            check.within(seen[200], NUMBER - lost, NUMBER, f"{name}: no more passed than {NUMBER}, {rounds} rounds")
            check(nginx.wait_for(lambda: len(nginx.workers()) == WORKERS), "others are started")
            check.equal(after(nginx, path), 0, f"{name}: the charges are there")


def ask_on(nginx, path, stop, seen):
    """Asks until it is told to stop. A worker that leaves closes connections on which it has read nothing: those are made again."""
    while not stop.is_set():
        try:
            with nginx.client() as client:
                while not stop.is_set():
                    seen.append(client.get(path).status)
        except ConnectionError:
            pass


def test_reloaded(check):
    with Served() as nginx:
        for name in ("req", "count", "zone"):
            path, seen, stop = f"/{name}?k=reloaded", [], threading.Event()
            threads = [threading.Thread(target=ask_on, args=(nginx, path, stop, seen)) for _ in range(16)]
            for thread in threads:
                thread.start()
            try:
                with disturbed(lambda: nginx.reload(wait=False)) as reloads:
                    checks.until(f"{name}: requests are denied, and nginx was reloaded", lambda: 429 in seen and len(reloads) == TIMES)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            check.equal((seen.count(200), set(seen)), (NUMBER, {200, 429}), f"{name}: over {len(reloads)} reloads")
            check.equal(after(nginx, path), 0, f"{name}: and none after that")


def zones_of(*servers):
    """The zones of these: others of this machine may have theirs."""
    return {name for name in lua_nginx.shm_zones() if any(f"-{pid}-" in name for pid in servers)}


class Leaving(lua_nginx.Nginx):
    leaves_zones = True


def test_zones_are_removed(check):
    """The zone of a dict lives as long as its nginx, over reloads; what a dead nginx left is removed by the next one."""
    ask = 'return (require("resty.weir.limit.count").new("store", 10, 1000):incoming("k", true)), select(2, ' \
          'require("resty.weir.limit.count").new("store", 10, 1000):incoming("k", true))'
    with Leaving(DICTS) as nginx:
        first = nginx.process.pid
        check.equal(nginx.lua(ask), [0, 8], "counted")
        mine = zones_of(first)
        check.equal(len(mine), 1, "one zone, of this nginx")
        nginx.reload()
        check.equal(nginx.lua(ask), [0, 6], "a reload keeps the states")
        check.equal(zones_of(first), mine, "and the zone")
        nginx.reload(http=nginx.http.replace("store 4m", "store 2m"))
        check.equal(nginx.lua(ask), [0, 8], "a dict of another size is a new one")
        check.equal(len(zones_of(first)), 2, "and has its own zone")
        with Leaving(DICTS) as other:
            second = other.process.pid
            check.equal(other.lua(ask), [0, 8], "another nginx has its own states")
            check(mine <= zones_of(first), "and removes nothing of a living one")
    with lua_nginx.Nginx(DICTS) as nginx:
        nginx.lua(ask)
        check.equal((len(zones_of(nginx.process.pid)), zones_of(first, second)), (1, set()), "only the zone of the living nginx is left")


def test_hidden_processes(check):
    """Where /proc hides the master from its workers, nobody takes it for dead: a zone without a time of start stays while the process lives."""
    namespace = re.search(r"\d+", os.readlink("/proc/self/ns/pid")).group()
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    names = [f"weir-nginx-{namespace}-{pid}-0-65536-hidden-{os.getpid():08x}" for pid in (os.getpid(), dead.pid)]
    paths = [pathlib.Path("/dev/shm", name) for name in names]
    try:
        for path in paths:
            path.touch()
        with lua_nginx.Nginx(DICTS) as nginx:
            nginx.lua('return (require("resty.weir.limit.count").new("store", 10, 1000):incoming("k", true))')
            check.equal([path.exists() for path in paths], [True, False], "of a living process, of a dead one")
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def show_original(check):
    folder = os.environ.get("LUA_RESTY_LIMIT_TRAFFIC")
    if not folder or not pathlib.Path(folder, "resty/limit/req.lua").exists():
        sys.exit("LUA_RESTY_LIMIT_TRAFFIC must name the lib/ folder of lua-resty-limit-traffic\n0 passed, 1 failed")
    with Served("resty.limit", f"{folder}/?.lua;") as nginx:
        most = max(rush(nginx, f"/req?k={i}")[200] for i in range(10))
    print(f"resty.limit.req: {most} passed a limit of {NUMBER}")
    check(most > NUMBER, f"resty.limit.req let {most} pass")


TESTS = [test_exact, test_at_a_time, test_killed, test_reloaded, test_zones_are_removed, test_hidden_processes]

if __name__ == "__main__":
    if "--original" in sys.argv[1:]:
        sys.exit(checks.run([show_original], [word for word in sys.argv[1:] if word != "--original"]))
    sys.exit(checks.run(TESTS, sys.argv[1:]))
