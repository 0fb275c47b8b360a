#!/usr/bin/env python3
"""Delays in a real nginx: never early, in order, nobody else is held up, and nothing is left of a client that leaves.

Times are measured from before a request is sent, so that too early is certain; how late an answer may be, no machine
promises, so that is only printed.
"""
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

from lib import checks, clocks, nginx_server
from lib.nginx_server import Backend, get, serve

RATES = {
    "leaky": '"leaky-bucket 10/s burst 10"', "leaky-delay": '"leaky-bucket 10/s burst 10 delay 3"',
    "smooth": '"smooth 10/s"', "warmup": '"warmup 20/s over 300ms"', "bucket": '"token-bucket 10/s burst 2" wait=2s',
    "any": '"token-bucket 10/s burst 1" wait=any', "stepped": '"token-bucket 2/200ms burst 2 stepped" wait=2s'}


class Asked:
    """A request that is under way, and when it was sent."""

    def __init__(self, nginx, path, client=None):
        self.client = client or nginx.client()
        self.sent = time.monotonic()
        self.client.send(get(path))

    def read(self):
        self.answer = self.client.read()
        self.took_us = (time.monotonic() - self.sent) * 1e6
        self.client.close()
        return self


def at_once(nginx, paths):
    """Requests that are all there before nginx sees the first: it stands still while they are sent."""
    clients, worker = [nginx.client() for _ in paths], nginx.workers()[0]
    nginx.send(signal.SIGSTOP, worker)
    try:
        return [Asked(nginx, path, client) for path, client in zip(paths, clients)]
    finally:
        nginx.send(signal.SIGCONT, worker)


def read_all(asked):
    """In threads, so that each is timed when it comes."""
    threads = [threading.Thread(target=it.read) for it in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(nginx_server.PATIENCE_SECONDS)
    return asked


def test_never_early(check):
    locations = "".join(f"location /{name} {{ weir_limit key={name}$arg_k zone=z {text}; }}\n" for name, text in RATES.items())
    late = []
    with serve(locations) as nginx:
        for round in range(4):
            names = [name for _ in range(7) for name in RATES]
            asked = read_all(at_once(nginx, [f"/{name}?k={round}" for name in names]))
            delayed = dict.fromkeys(RATES, 0)
            for name, it in zip(names, asked):
                delay = int(it.answer.weir["delay_us"])
                check.equal((it.answer.status, it.answer.weir["status"]), (200, "DELAYED" if delay else "PASSED"), name)
                check(it.took_us >= delay, f"{name}: {it.took_us:.0f} us, delay {delay}")
                check("retry-after" not in it.answer.fields, f"{name}: no Retry-After on what passed")
                delayed[name] += delay > 0
                if delay:
                    late.append((it.took_us - delay) / 1000)
            check(min(delayed.values()) > 0, f"some of each are delayed: {delayed}")
    print(f"late by {statistics.median(late):.1f} ms in the middle, {max(late):.1f} at most, of {len(late)}")


def test_rate(check):
    """Requests that wait go on at the rate, one after another."""
    http = 'log_format w "$arg_n"; access_log {folder}/access.log w;\n'
    with serve('location / { weir_limit key=$arg_k zone=z "leaky-bucket 20/s burst 30"; }', http) as nginx:
        start = clocks.now()
        asked = []
        for number in range(20):
            asked.append(Asked(nginx, f"/?k=a&n={number}"))
            nginx.wait_for(lambda: nginx.errors().count("weir: delayed") + len(nginx.access()) > number)  # it is decided
        read_all(asked)
        took = clocks.now() - start
        check(took >= 19 / 20 - 0.001, f"twenty at twenty a second took {took:.3f} s")
        nginx.wait_for(lambda: len(nginx.access()) >= 20)
        # Who comes while nginx is held up, and need not wait any more, may be before those whose time is over just now.
        waited = [number for number, it in enumerate(asked) if it.answer.weir["delay_us"] != "0"]
        check.equal([int(line) for line in nginx.access() if int(line) in waited], waited, "in order")
        check(all(it.took_us >= int(it.answer.weir["delay_us"]) for it in asked), "none early")


def test_not_blocked(check):
    """While some wait, the only worker serves others."""
    locations = """location /slow { weir_limit key=$arg_k zone=z "leaky-bucket 1/h burst 50"; }
        location /free { }"""
    with serve(locations, "access_log {folder}/access.log;\n") as nginx:
        nginx.get("/slow?k=a")
        asked = [Asked(nginx, "/slow?k=a") for _ in range(20)]
        nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 20)
        check.equal(nginx.statuses(["/free"] * 100), [200] * 100, "others are served")
        check.equal(nginx.statuses([f"/slow?k=b{i}" for i in range(100)]), [200] * 100, "other keys, too")
        check(not any(" /slow?k=a " in line for line in nginx.access()[1:]), "those who wait still do")
        for it in asked:
            it.client.close()
        check(nginx.wait_for(lambda: sum(" 499 " in line for line in nginx.access()) >= 20), "clients that left are let go")


def test_abort(check):
    """A client that leaves frees its timer and its slot; its charge stays. nginx can end at once."""
    locations = """location /slow { weir_conn key=$arg_k zone=z 3; weir_limit key=$arg_k zone=z "leaky-bucket 1/h burst 500"; }
        location /conn { weir_conn key=$arg_k zone=z 3; }"""
    with serve(locations, "access_log {folder}/access.log;\n", listen="") as nginx:
        nginx.get("/slow?k=a")
        for round in range(10):
            asked = [Asked(nginx, "/slow?k=a") for _ in range(3)]
            nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 3 * round + 3)
            check.equal(nginx.get("/conn?k=a").status, 429, "slots are held while they wait")
            for it in asked:
                it.client.close()
            check(nginx.wait_for(lambda: nginx.get("/conn?k=a").status == 200), "and given back")
        nginx.wait_for(lambda: sum(" 499 " in line for line in nginx.access()) >= 30)
        asked = Asked(nginx, "/slow?k=a")
        nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 31)
        found = re.findall(r"weir: delayed by .*? delay: (\d+)", nginx.errors())
        check(int(found[-1]) > 30 * 3600, f"charges stay: {found[-1]} s after thirty that left")
        asked.client.close()
        nginx.wait_for(lambda: sum(" 499 " in line for line in nginx.access()) >= 31)
        nginx.stop()
        check.equal(nginx.process.returncode, 0, "nothing holds the worker")


def test_graceful(check):
    """A worker that is to end serves those who wait first."""
    with serve('location / { weir_limit key=$arg_k zone=z "leaky-bucket 2/s burst 5"; }') as nginx:
        asked = [Asked(nginx, "/?k=a") for _ in range(4)]
        nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 3)
        check(nginx.reload(wait=False), "reload")
        check.equal(nginx.get("/?k=b").status, 200, "the new worker serves")
        read_all(asked)
        check.equal([it.answer.status for it in asked], [200] * 4, "all that waited were served")
        check(all(it.took_us >= int(it.answer.weir["delay_us"]) for it in asked), "none early")
        asked = [Asked(nginx, "/?k=c") for _ in range(3)]
        nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 5)
        nginx.send(signal.SIGQUIT)
        read_all(asked)
        check.equal([it.answer.status for it in asked], [200] * 3, "before the end, too")


def test_fast_end(check):
    """SIGTERM ends nginx although some wait for an hour."""
    nginx_server.until_at_once(lambda: fast_end(check))


def fast_end(check):
    with serve('location / { weir_limit key=$arg_k zone=z "leaky-bucket 1/h burst 5"; weir_conn key=$arg_k zone=z 9; }') as nginx:
        asked = [Asked(nginx, "/?k=a") for _ in range(4)]
        nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 3)
        by_itself = nginx.stop_at_once()
        for it in asked:
            it.client.close()
        check(True, "ended")
    return by_itself


def test_waits(check):
    """What would have to wait longer than wait= is rejected."""
    locations = """weir_test_clock $arg_t;
        location /half { weir_limit key=$arg_k zone=z "token-bucket 1/s burst 1" wait=500ms; }
        location /two { weir_limit key=$arg_k zone=z "token-bucket 1/s burst 1" wait=2s; }
        location /none { weir_limit key=$arg_k zone=z "token-bucket 1/s burst 1"; }
        location /zero { weir_limit key=$arg_k zone=z "leaky-bucket 1/s burst 5" wait=0; }
        location /leaky { weir_limit key=$arg_k zone=z "leaky-bucket 1/s burst 5" wait=1500ms; }
        location /any { weir_limit key=$arg_k zone=z "token-bucket 1/s burst 1" wait=any; }
        location /smooth { weir_limit key=$arg_k zone=z "smooth 1/s" wait=1s; }
        """
    t = nginx_server.T0
    wanted = {  # (status, delay_us, retry_after_us) of requests at the same moment
        "half": [(200, "0", "0"), (429, "0", "500000"), (429, "0", "500000")],
        "two": [(200, "0", "0"), (200, "1000000", "0"), (200, "2000000", "0"), (429, "0", "1000000")],
        "none": [(200, "0", "0"), (429, "0", "1000000")],
        "zero": [(200, "0", "0"), (429, "0", "1000000")],
        "leaky": [(200, "0", "0"), (200, "1000000", "0"), (429, "0", "500000")],
        "any": [(200, "0", "0"), (200, "1000000", "0"), (200, "2000000", "0"), (200, "3000000", "0")],
        "smooth": [(200, "0", "0"), (200, "1000000", "0"), (429, "0", "1000000")]}
    with serve(locations) as nginx:
        for name, outcomes in wanted.items():
            answers = [nginx.get(f"/{name}?k={name}&t={t}") for _ in outcomes]
            check.equal([(it.status, it.weir["delay_us"], it.weir["retry_after_us"]) for it in answers], outcomes, name)


def test_largest(check):
    """Of several limits the longest delay counts, once a phase."""
    locations = """
        location /two { weir_test_clock $arg_t; weir_limit key=a$arg_k zone=z "leaky-bucket 20/s burst 10" name=fast;
            weir_limit key=b$arg_k zone=z "leaky-bucket 5/s burst 10" name=slow; }
        location /phases { weir_limit key=c$arg_k zone=z "leaky-bucket 10/s burst 10" name=first;
            weir_limit key=d$arg_k zone=z "leaky-bucket 5/s burst 10" name=second phase=precontent; }
        """
    with serve(locations) as nginx:
        answers = [nginx.get(f"/two?k=1&t={nginx_server.T0}") for _ in range(3)]
        check.equal([it.weir["delay_us"] for it in answers], ["0", "200000", "400000"], "the slower one's")
        asked = read_all(at_once(nginx, ["/phases?k=1"] * 4))
        check.equal([it.answer.status for it in asked], [200] * 4, "both phases")
        check(all(it.took_us >= int(it.answer.weir["delay_us"]) for it in asked), "none early")
        waits = {}
        for connection, delay in re.findall(r"\*(\d+) weir: delayed by .*? delay: (\d+\.\d+)", nginx.errors()):
            waits.setdefault(connection, []).append(float(delay) * 1e6)
        check(any(len(each) == 2 for each in waits.values()), f"some wait twice: {waits}")
        longest = max(it.took_us for it in asked)
        check(longest >= max(map(sum, waits.values())), f"{longest:.0f} us for both delays of {waits}")


def test_bodies(check):
    """A delayed request with a body, and pipelined ones behind it."""
    with Backend() as backend:
        location = f'location / {{ proxy_pass http://127.0.0.1:{backend.port}; weir_limit key=$arg_k zone=z "leaky-bucket 10/s burst 10"; }}'
        with serve(location) as nginx, nginx.client() as client:
            start = clocks.now()
            answers = client.pipeline([get("/?k=a", {}, "POST", b"x" * size) for size in (1, 100, 10000, 200000)])
            check.equal([it.status for it in answers], [200] * 4, "POSTs")
            # the next one begins when the one before it has been answered
            check(clocks.now() - start >= 0.295, f"they waited: {clocks.now() - start:.3f} s")


def test_dry_run(check):
    with serve('location / { weir_limit key=$arg_k zone=z "leaky-bucket 1/h burst 100" dry_run; }') as nginx:
        start = time.monotonic()
        answers = [nginx.get("/?k=a") for _ in range(5)]
        check.equal([it.weir["status"] for it in answers], ["PASSED"] + ["DRY_RUN"] * 4, "dry run")
        check(time.monotonic() - start < 3000, "nobody waited an hour")


def test_http2(check):
    """Streams wait by themselves: those of another key are not held up."""
    locations = """location / { weir_limit key=$arg_k zone=z "leaky-bucket 10/s burst 10"; }"""
    with serve(locations, 'log_format w "$arg_k $weir_delay_us"; access_log {folder}/access.log w;\n', listen="http2") as nginx:
        start = time.monotonic()
        done = subprocess.run(["h2load", "-n", "5", "-c", "1", "-m", "5", nginx.url("/?k=a")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        check.contains(done.stdout, "status codes: 5 2xx", "h2load")
        check(time.monotonic() - start >= 0.4, "the last stream waited")
        check.equal(nginx.wait_for(lambda: len(nginx.access()) >= 5), True, "logged")


def test_http2_abort(check):
    """Streams that wait when their connection goes."""
    with serve('location / { weir_limit key=$arg_k zone=z "leaky-bucket 1/h burst 50"; weir_conn key=$arg_k zone=z 20; }',
               "access_log {folder}/access.log;\n", listen="http2") as nginx:
        load = subprocess.Popen(["h2load", "-n", "10", "-c", "2", "-m", "5", nginx.url("/?k=a")], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        check(nginx.wait_for(lambda: nginx.errors().count("weir: delayed") >= 9), "nine of ten wait")
        load.kill()
        load.wait()
        check(nginx.wait_for(lambda: sum(" 499 " in line for line in nginx.access()) >= 9), "and are let go")


TESTS = [test_never_early, test_rate, test_not_blocked, test_abort, test_graceful, test_fast_end, test_waits, test_largest,
         test_bodies, test_dry_run, test_http2, test_http2_abort]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
