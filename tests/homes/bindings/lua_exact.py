#!/usr/bin/env python3
"""Four nginx workers share a limit: whatever comes at once, exactly as many pass as it says; with workers killed, over reloads.

    lua_exact.py --original     also shows that resty.limit.req lets more pass; $LUA_RESTY_LIMIT_TRAFFIC names its lib/ folder
"""
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

WORKERS, NUMBER = 4, 300
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


def load(nginx, path, seconds=1, connections=32):
    return bindings.wrk(nginx.port, path, seconds=seconds, connections=connections, threads=2)


def after(nginx, path):
    """How many of some more requests pass, each over a connection of its own, so that any worker may get it."""
    return sum(nginx.get(path).status == 200 for _ in range(20))


def test_exact(check):
    with Served() as nginx:
        for name in ("req", "count", "zone"):
            seen = load(nginx, f"/{name}?k=a")
            check(seen.get(429, 0) > NUMBER, f"{name}: wrk sent enough: {seen}")
            check.equal(seen.get(200), NUMBER, f"{name}: {WORKERS} workers")
            check.equal(set(seen), {200, 429}, f"{name}: nothing else")
            check.equal(after(nginx, f"/{name}?k=a"), 0, f"{name}: and none after that")


def test_at_a_time(check):
    with Served() as nginx:
        seen = load(nginx, "/conn?k=a")
        check(seen.get(200, 0) > 50 and seen.get(429, 0) > 50 and set(seen) == {200, 429}, f"conn: {seen}")
        check.equal(nginx.lua('return ngx.shared.seen:get("most")'), 5, "conn: never more than conn and burst, and as many")
        check.equal(nginx.lua('return (require("resty.weir.limit.conn").new("store", 3, 2, 1):incoming("a"))'), 0, "all have left")


def disturb(nginx, stop, act):
    """Does something again and again while there is load; how many times."""
    times = 0
    while not stop.wait(0.15):
        act(nginx)
        times += 1
    return times


def under(nginx, path, act, seconds=1):
    """The load on a path while something happens to nginx: (answers, how many times it happened)."""
    stop, times = threading.Event(), []
    thread = threading.Thread(target=lambda: times.append(disturb(nginx, stop, act)))
    thread.start()
    try:
        seen = load(nginx, path, seconds)
    finally:
        stop.set()
        thread.join()
    return seen, times[0]


def test_killed(check):
    chance = random.Random(checks.seed())

    def kill(nginx):
        try:
            os.kill(chance.choice(nginx.workers()), signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            pass
    with Served() as nginx:
        nginx.allow(lua_nginx.nginx_server.KILLED)
        for name in ("req", "count", "zone"):
            seen, kills = under(nginx, f"/{name}?k=killed", kill)
            check(kills > 2 and 500 not in seen, f"{name}: {kills} workers were killed: {seen}")
            passed = seen.get(200, 0)
            # An answer may be lost with its worker, on each of its connections; the charge is not.
            check.within(passed, NUMBER - kills * 32, NUMBER, f"{name}: no more passed than {NUMBER}, with {kills} kills")
            check.equal(after(nginx, f"/{name}?k=killed"), 0, f"{name}: the charges are there")
        nginx.wait_for(lambda: len(nginx.workers()) == WORKERS)


def test_reloaded(check):
    with Served() as nginx:
        for name in ("req", "count", "zone"):
            seen, times = under(nginx, f"/{name}?k=reloaded", lambda it: it.reload(wait=False))
            check(times > 0 and 500 not in seen, f"{name}: {times} reloads: {seen}")
            check.equal(seen.get(200, 0) + after(nginx, f"/{name}?k=reloaded"), NUMBER, f"{name}: over {times} reloads")


def test_zones_are_removed(check):
    """The zone of a dict lives as long as its nginx, over reloads; what a dead nginx left is removed by the next one."""
    before = set(lua_nginx.shm_zones())
    with lua_nginx.Nginx(DICTS) as nginx:
        ask = 'return (require("resty.weir.limit.count").new("store", 10, 1000):incoming("k", true)), select(2, ' \
              'require("resty.weir.limit.count").new("store", 10, 1000):incoming("k", true))'
        check.equal(nginx.lua(ask), [0, 8], "counted")
        mine = set(lua_nginx.shm_zones()) - before
        check(len(mine) == 1 and f"-{nginx.process.pid}-" in next(iter(mine)), f"one zone, of this nginx: {mine}")
        nginx.reload()
        check.equal(nginx.lua(ask), [0, 6], "a reload keeps the states")
        check.equal(set(lua_nginx.shm_zones()) - before, mine, "and the zone")
        nginx.reload(http=nginx.http.replace("store 4m", "store 2m"))
        check.equal(nginx.lua(ask), [0, 8], "a dict of another size is a new one")
        check.equal(len(set(lua_nginx.shm_zones()) - before), 2, "and has its own zone")
        with lua_nginx.Nginx(DICTS) as other:
            check.equal(other.lua(ask), [0, 8], "another nginx has its own states")
            check(mine <= set(lua_nginx.shm_zones()), "and removes nothing of a living one")
    with lua_nginx.Nginx(DICTS) as nginx:
        nginx.lua(ask)
        left = set(lua_nginx.shm_zones()) - before
        check(len(left) == 1 and not left & mine, f"only the zone of the living nginx is left: {left}")


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
    most = 0
    with Served("resty.limit", f"{folder}/?.lua;") as nginx:
        for i in range(10):
            most = max(most, load(nginx, f"/req?k={i}").get(200, 0))
    print(f"resty.limit.req: {most} passed a limit of {NUMBER}")
    check(most > NUMBER, f"resty.limit.req let {most} pass")


TESTS = [test_exact, test_at_a_time, test_killed, test_reloaded, test_zones_are_removed, test_hidden_processes]

if __name__ == "__main__":
    if "--original" in sys.argv[1:]:
        sys.exit(checks.run([show_original], [word for word in sys.argv[1:] if word != "--original"]))
    sys.exit(checks.run(TESTS, sys.argv[1:]))
