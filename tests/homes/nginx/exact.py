#!/usr/bin/env python3
"""Four workers share one limit: whatever comes at once, exactly as many pass as the limit says; over reloads, too.

Loads of ab, wrk and connections of this test; limits have periods in which nothing comes back.
"""
import re
import subprocess
import sys
import threading

from lib import checks, nginx_server
from lib.nginx_server import get, serve

WORKERS = 4
LIMITS = {
    "fixed-window 1000/100d": 1000, "fixed-window 777/100d from-first": 777, "sliding-log 500/100d": 500,
    "sliding-window 900/100d": 900, "sliding-counter 800/100d": 800, "token-bucket 1/100d burst 1000": 1000,
    "token-bucket 600/100d stepped": 600, "leaky-bucket 1/100d burst 499 nodelay": 500, "fixed-window 1/100d": 1}
ZONE = "weir_zone y 8m;\n"


def ab(nginx, path, number, at_once=40):
    """How many of these requests were answered with 2xx."""
    done = subprocess.run(["ab", "-q", "-k", "-l", "-n", str(number), "-c", str(at_once), nginx.url(path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    counts = dict(re.findall(r"^([\w\- ]+):\s+(\d+)", done.stdout, re.M))
    if int(counts.get("Complete requests", -1)) != number:
        raise AssertionError(f"ab: {done.stdout}")
    return number - int(counts.get("Non-2xx responses", 0))


def wrk(nginx, path, seconds):
    """(2xx, others) of what wrk sends in this time."""
    done = subprocess.run(["wrk", "-t", "2", "-c", "40", "-d", f"{seconds}s", nginx.url(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    total = int(re.search(r"(\d+) requests in", done.stdout)[1])
    others = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    return total - int(others[1] if others else 0), int(others[1] if others else 0)


def at_once(nginx, paths, connections=16):
    """The 200s of each path, sent over many connections at the same time, in turn."""
    passed, lock, ready = dict.fromkeys(paths, 0), threading.Lock(), threading.Barrier(connections)

    def ask(mine):
        with nginx.client() as client:
            ready.wait(60)
            answers = client.pipeline([get(path) for path in mine], 50)
        with lock:
            for path, answer in zip(mine, answers):
                passed[path] += answer.status == 200
    threads = [threading.Thread(target=ask, args=(paths[i:] + paths[:i],)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    return passed


def busy_workers(nginx):
    """How many of the workers wrote something to the log."""
    return len(set(re.findall(r"\[error\] (\d+)#", nginx.errors())))


def test_ab(check):
    locations = "".join(f'location = /{i} {{ weir_limit key=$arg_k zone=y "{text}"; }}\n' for i, text in enumerate(LIMITS))
    with serve(locations, ZONE, workers=WORKERS, listen="reuseport") as nginx:  # connections go to any of them
        for i, (text, number) in enumerate(LIMITS.items()):
            check.equal(ab(nginx, f"/{i}?k={i}", 2000), number, text)
        check(busy_workers(nginx) > 1, f"{busy_workers(nginx)} workers took part")


def test_wrk(check):
    with serve('location / { weir_log_level info; weir_limit key=$arg_k zone=z "token-bucket 1/100d burst 300"; }', workers=WORKERS,
               main="worker_rlimit_nofile 4096;") as nginx:
        passed, others = wrk(nginx, "/?k=w", 3)
        check(others > 0, f"wrk sent enough: {passed} and {others}")
        check.equal(passed, 300, "a token bucket of 300")
        check.equal(ab(nginx, "/?k=w", 200), 0, "and none after that")


def test_keys(check):
    """Many keys at once, each with its own number."""
    with serve('location / { weir_limit key=$arg_k zone=z "fixed-window 100/100d"; }', workers=WORKERS) as nginx:
        paths = [f"/?k={i}" for i in range(10)]
        for round in range(3):
            passed = at_once(nginx, [f"{path}-{round}" for path in paths] * 12)
            check.equal(set(passed.values()), {100}, f"ten keys, {passed}")


def test_limits(check):
    """Several limits: the tightest decides, the others are charged as often, no more."""
    locations = """
        location = /all {
            weir_limit key=user:$arg_k zone=z "fixed-window 300/100d";
            weir_limit key=everybody zone=z "sliding-log 700/100d";
            weir_limit key=user:$arg_k zone=z "token-bucket 1/100d burst 400"; }
        location = /user { weir_limit key=user:$arg_k zone=z "fixed-window 300/100d, token-bucket 1/100d burst 400" cost=0; }
        location = /everybody { weir_limit key=everybody zone=z "sliding-log 700/100d" cost=0; }
        """
    with serve(locations, workers=WORKERS) as nginx:
        passed = at_once(nginx, ["/all?k=a", "/all?k=b", "/all?k=c"] * 60)
        check.equal(sum(passed.values()), 700, f"all together: {passed}")
        check(max(passed.values()) <= 300, f"none more than its own: {passed}")
        check.equal(nginx.get("/everybody").weir["remaining"], "0", "everybody's is used up")
        for path, number in passed.items():
            answer = nginx.get(path.replace("/all", "/user"))
            check.equal(re.findall(r";r=(\d+)", answer.fields["ratelimit"]), [str(300 - number), str(400 - number)],
                        f"{path}: charged as often as it passed")


def test_zones(check):
    """The same over two zones, where what one denies is given back in the other."""
    locations = """
        location = /all {
            weir_limit key=$arg_k zone=z "fixed-window 300/100d";
            weir_limit key=everybody zone=y "fixed-window 500/100d";
        }
        location = /user { weir_limit key=$arg_k zone=z "fixed-window 300/100d" cost=0; }
        """
    with serve(locations, ZONE, workers=WORKERS) as nginx:
        passed = at_once(nginx, ["/all?k=a", "/all?k=b", "/all?k=c"] * 60)
        check.equal(sum(passed.values()), 500, f"all together: {passed}")
        for path, number in passed.items():
            check.equal(nginx.get(path.replace("/all", "/user")).weir["remaining"], str(300 - number), f"{path}: charged")


def test_conns(check):
    """Slots: never more requests behind nginx at once than there are."""
    now, most, lock = [0], [0], threading.Lock()
    open_gate = threading.Event()

    def answer(_):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        open_gate.wait(0.2)
        with lock:
            now[0] -= 1
        return nginx_server.Backend.answer()
    with nginx_server.Backend(answer) as backend:
        locations = f"location / {{ proxy_pass http://127.0.0.1:{backend.port}; weir_conn key=$arg_k zone=z 7; }}"
        with serve(locations, workers=WORKERS) as nginx:
            passed, others = wrk(nginx, "/?k=c", 3)
            check(passed > 7 and others > 0, f"{passed} passed, {others} did not")
            check.equal(most[0], 7, "requests behind nginx at once")
            open_gate.set()


def test_reloads(check):
    """A limit goes on being counted over reloads, under load."""
    http = """map $status $is_passed { 200 1; default 0; } log_format w "$pid";
        access_log {folder}/access.log w if=$is_passed;\n"""
    location = 'location / { weir_log_level info; weir_limit key=$arg_k zone=z "token-bucket 1/100d burst 2000"; }'
    with serve(location, http, workers=WORKERS) as nginx:
        load = subprocess.Popen(["wrk", "-t", "2", "-c", "30", "-d", "5s", nginx.url("/?k=r")], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        reloads = 0
        while load.poll() is None:
            check(nginx.reload(wait=False), "reloaded")
            reloads += 1
        check.contains(load.communicate()[0], "requests in", "wrk")
        nginx.wait_for(lambda: len(nginx.children()) == WORKERS)
        ab(nginx, "/?k=r", 2100)  # what a slow machine has left
        nginx.wait_for(lambda: len(nginx.access()) >= 2000)
        check.equal(len(nginx.access()), 2000, f"passed over {reloads} reloads, by {len(set(nginx.access()))} workers")
        check(reloads > 0, f"{reloads} reloads")
        check.equal(ab(nginx, "/?k=r", 100), 0, "used up")


TESTS = [test_ab, test_wrk, test_keys, test_limits, test_zones, test_conns, test_reloads]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
