#!/usr/bin/env python3
"""What must not harm: workers killed under load, reloads under load, zones that are full, slots of the dead.

    faults.py [--short | --long] [TEST …]

--short for sanitizers, --long for a soak.
"""
import random
import re
import signal
import subprocess
import sys
import threading
import time

from lib import checks, nginx_server
from lib.nginx_server import Backend, get, serve

WORKERS = 4
SECONDS = 6
KEYS = 100_000
INFO = "location = /info { weir_info; }\n"
EXITED = r"worker process \d+ exited on signal 9"


def zone(nginx, name="z"):
    return next(it for it in nginx.get("/info").json["zones"] if it["name"] == name)


class Load(threading.Thread):
    """Requests over connections that come and go, as fast as they are answered, until it is told to end. Those that a
    killed worker took with it are counted as lost."""

    def __init__(self, nginx, path):
        super().__init__(daemon=True)
        self.nginx, self.path, self.on = nginx, path, True
        self.statuses, self.lost = {}, 0

    def run(self):
        while self.on:
            try:
                with self.nginx.client() as client:
                    for _ in range(10):
                        for answer in client.pipeline([get(self.path)] * 10):
                            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
            except OSError:
                self.lost += 1

    @classmethod
    def start_all(cls, nginx, path, number=6):
        loads = [cls(nginx, path) for _ in range(number)]
        for load in loads:
            load.start()
        return loads

    @staticmethod
    def end_all(loads):
        for load in loads:
            load.on = False
        for load in loads:
            load.join(nginx_server.PATIENCE_SECONDS)
        if any(load.is_alive() for load in loads):  # a worker is alive and answers nobody
            raise nginx_server.WrongEnd(f"no answer:\n{loads[0].nginx.states()}")
        return {status: sum(load.statuses.get(status, 0) for load in loads) for status in (200, 429, 500, 502, 503)}


def undecided(nginx):
    """How many requests passed because nobody could decide: who waits for a lock in vain passes, and says so."""
    return nginx.errors().count("let pass")


def kill_workers(nginx, seconds):
    """Kills one worker after another, at moments of no kind; how many."""
    killed, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        workers = nginx.workers()
        if workers:
            try:
                nginx.send(signal.SIGKILL, random.choice(workers))
                killed += 1
            except ProcessLookupError:
                pass
        time.sleep(random.random() * 0.02)
    return killed


def test_killed(check):
    """Never more than the limit pass; nothing hangs; the zone goes on."""
    limit = 3000
    locations = INFO + f"""
        location = /a {{ weir_log_level info; weir_limit key=$arg_k zone=z "token-bucket 1/100d burst {limit}, sliding-log 4000/100d"; }}
        location = /read {{ weir_limit key=$arg_k zone=z "token-bucket 1/100d burst {limit}" cost=0; }}
        """
    with serve(locations.replace("zone=z", "zone=y"), "weir_zone y 16m;\n", workers=WORKERS, log="notice") as nginx:
        nginx.allow(EXITED)
        total = killed = 0
        end, patience = time.monotonic() + SECONDS, time.monotonic() + 5 * nginx_server.PATIENCE_SECONDS
        while time.monotonic() < end or (killed < 10 and time.monotonic() < patience):
            key = f"k{killed}"
            loads = Load.start_all(nginx, f"/a?k={key}")
            killed += kill_workers(nginx, 1.0)
            got = Load.end_all(loads)
            total += sum(got.values())
            used = limit - int(nginx.get(f"/read?k={key}").weir["remaining"])
            check(got[200] <= limit and got[200] <= used, f"{key}: {got[200]} passed, {used} charged, of {limit}")
            check(got[500] + got[502] + got[503] == 0, f"{key}: {got}")
        info = zone(nginx, "y")
        print(f"{killed} workers killed, {total} answers, {info['repairs']} repairs")
        check(killed >= 10, f"{killed} were killed")
        check.equal(nginx.statuses(["/a?k=new"] * 20), [200] * 20, "the zone works")
        nginx.wait_for(lambda: len(nginx.workers()) == WORKERS)
        check.equal(len(nginx.workers()), WORKERS, "all workers are there again")
        check(nginx.reload(), "and a reload goes well")
        check.equal(nginx.get("/a?k=new").weir["remaining"], str(limit - 21), "states are kept")


def test_killed_with_logs(check):
    """The same where every request moves blocks about: logs, windows and leases that grow, under few keys."""
    locations = INFO + """
        location = /a { weir_log_level info; weir_conn key=$request_id zone=z 1;
            weir_limit key=$arg_k zone=z "sliding-log 2000/100d, sliding-window 2000/100d"; }
        location = /read { weir_limit key=$arg_k zone=z "sliding-log 2000/100d" cost=0; }
        """
    with serve(locations, workers=WORKERS, log="notice") as nginx:
        nginx.allow(EXITED)
        killed = 0
        for round in range(max(1, SECONDS // 2)):
            loads = Load.start_all(nginx, f"/a?k={round}")
            killed += kill_workers(nginx, 1.0)
            got = Load.end_all(loads)
            used = 2000 - int(nginx.get(f"/read?k={round}").weir["remaining"])
            check(got[200] <= used <= 2000, f"{got[200]} passed, {used} charged")
        print(f"{killed} workers killed, {zone(nginx)['repairs']} repairs")
        check.equal(nginx.statuses(["/a?k=new"] * 20), [200] * 20, "the zone works")


def test_killed_while_locked(check):
    """Requests that walk a long log under its lock: sooner or later one is killed there, and the next one repairs."""
    entries = 20_000
    locations = INFO + f"""
        location = /fill {{ weir_limit key=$arg_k zone=y "sliding-log {entries + 1000}/100d"; }}
        location = /walk {{ weir_log_level info; weir_limit key=$arg_k zone=y "sliding-log {entries + 1000}/100d" cost={entries + 900}; }}
        """
    with serve(locations, "weir_zone y 16m large=50%;\n", workers=WORKERS, log="notice") as nginx:
        nginx.allow(EXITED)
        check.equal(flood(nginx, "/fill?k=a", entries), 0, "a long log")
        killed, end = 0, time.monotonic() + 5 * nginx_server.PATIENCE_SECONDS
        while zone(nginx, "y")["repairs"] == 0 and time.monotonic() < end:
            loads = Load.start_all(nginx, "/walk?k=a")
            killed += kill_workers(nginx, 0.5)
            got = Load.end_all(loads)
            check.equal(got[500], 0, f"no error: {got}")
            check(got[200] <= undecided(nginx), f"none was allowed: {got}, undecided {undecided(nginx)}")
        repairs = zone(nginx, "y")["repairs"]
        print(f"{killed} workers killed, {repairs} repairs")
        check(repairs > 0, f"a lock was held by one of {killed} that were killed")
        remaining = int(nginx.get("/fill?k=a").weir["remaining"])
        check.equal(remaining, 999, "no charge was lost, none made up")


def test_slots_of_the_dead(check):
    """Slots that a killed worker held are free when their lease is over, and not before."""
    gate = threading.Event()
    with Backend(lambda head: gate.wait(60) and Backend.answer()) as backend:
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{backend.port}; weir_conn key=$arg_k zone=z "concurrent 3 lease 15s"; }}
            location /quick {{ weir_conn key=$arg_k zone=z "concurrent 3 lease 15s"; }}
            """
        with serve(locations) as nginx:
            nginx.allow(EXITED)
            clients = [nginx.client() for _ in range(3)]
            for client in clients:
                client.send(get("/slow?k=a"))
            nginx.wait_for(lambda: len(backend.heads) >= 3)
            worker = nginx.workers()[0]
            before = time.monotonic()  # the leases were renewed some seconds ago at most
            nginx.send(signal.SIGKILL, worker)
            nginx.wait_for(lambda: nginx.workers() not in ([], [worker]))
            answers = []
            nginx.wait_for(lambda: answers.append(nginx.get("/quick?k=a").status) or answers[-1] == 200)
            took = time.monotonic() - before
            check(answers[-1] == 200, f"free again after {took:.1f} s")
            check(answers[0] == 429 or took > 1.2, f"held by the dead at first: {answers[:3]} after {took:.1f} s")
            check.equal(nginx.statuses(["/quick?k=a"] * 10), [200] * 10, "and for good")
            gate.set()
            for client in clients:
                client.close()


def test_reload_under_load(check):
    """No request is lost; charges are kept."""
    locations = INFO + 'location = /a { weir_limit key=$arg_k zone=z "fixed-window 100000/100d"; }\n'
    with serve(locations, workers=2) as nginx:
        done, wrong, on = [0] * 4, [], [True]

        def ask(i):
            while on[0]:
                try:  # a connection each: nginx may close those that idle, as a reload does
                    answer = nginx.get("/a?k=r", {"connection": "close"})
                    done[i] += answer.status == 200
                    if answer.status != 200:
                        wrong.append(answer.status)
                except OSError as error:
                    wrong.append(error)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        reloads, end = 0, time.monotonic() + SECONDS / 2
        while time.monotonic() < end:
            check(nginx.reload(), "reloaded")
            reloads += 1
        on[0] = False
        for thread in threads:
            thread.join(60)
        check(not wrong, f"{len(wrong)} went wrong, first {wrong[:3]}")
        check.equal(int(nginx.get("/a?k=r").weir["remaining"]), 100000 - sum(done) - 1, f"all charged, over {reloads} reloads")
        check(sum(done) > 10 and reloads > 0, f"{sum(done)} requests, {reloads} reloads")


def test_changes(check):
    """A reload with other numbers, and with a zone of another size."""
    def location(number):
        return f'location / {{ empty_gif; weir_limit key=$arg_k zone=z "fixed-window {number}/100d"; }} {nginx_server.SHOWN}'
    with serve("", workers=2) as nginx:
        check(nginx.reload(server=location(5)), "a limit")
        check.equal(nginx.statuses(["/?k=a"] * 7), [200] * 5 + [429] * 2, "five")
        check(nginx.reload(server=location(8)), "a higher one")
        check.equal(nginx.statuses(["/?k=a"] * 5), [200] * 3 + [429] * 2, "three more")
        check(nginx.reload(http="weir_zone z 2m;\n"), "a larger zone")
        check.equal(nginx.statuses(["/?k=a"] * 9), [200] * 8 + [429], "starts afresh")
        check(re.search(r'\[warn\].*"z".*another size', nginx.errors()), "and says so")
        check(nginx.reload(http="weir_zone z 2m; weir_zone other 1m;\n"), "another zone beside it")
        check.equal(nginx.statuses(["/?k=a"]), [429], "goes on")
        nginx.allow(r"\[emerg\].*nonsense")
        check.equal(nginx.reload(server='location / { weir_limit key=$arg_k zone=z "nonsense"; }'), False, "a bad configuration")
        check.equal(nginx.statuses(["/?k=a"]), [429], "the old one goes on")
        check(nginx.reload(server=location(10)), "and is replaced by a good one")
        check.equal(nginx.statuses(["/?k=a"] * 3), [200, 200, 429], "as before")


def flood(nginx, path, number):
    """A key of its own for each request; how many were not answered with 2xx."""
    done = subprocess.run(["ab", "-q", "-k", "-l", "-n", str(number), "-c", "20", nginx.url(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=900)
    counts = dict(re.findall(r"^([\w\- ]+):\s+(\d+)", done.stdout, re.M))
    if int(counts.get("Complete requests", -1)) != number:
        raise AssertionError(f"ab: {done.stdout}")
    return int(counts.get("Non-2xx responses", 0)) + int(counts.get("Failed requests", 0))


def test_full(check):
    """A zone that is far too small: nothing is rejected for lack of room, what is evicted is counted."""
    locations = INFO + """
        location = /bucket { weir_limit key=$request_id zone=small "token-bucket 1/100d burst 5"; }
        location = /log { weir_limit key=$request_id zone=logs "sliding-log 20/100d"; }
        location = /conn { weir_conn key=$request_id zone=logs 2; }
        location = /busy { weir_limit key=$arg_k zone=small "token-bucket 1/100d burst 50"; }
        """
    with serve(locations, "weir_zone small 80k;\nweir_zone logs 128k large=50%;\n", workers=2) as nginx:
        check.equal(flood(nginx, "/bucket", KEYS), 0, "buckets")
        info = zone(nginx, "small")
        evicted = info["evicted_fresh"] + info["evicted_unused"] + info["evicted_soonest"]
        check(evicted + info["keys"] >= KEYS, f"every key is there or was evicted: {info}")
        check(0 < info["keys"] <= info["capacity"], f"keys and capacity: {info}")
        check.equal(flood(nginx, "/log", KEYS // 5), 0, "logs")
        check.equal(flood(nginx, "/conn", KEYS // 5), 0, "slots")
        info = zone(nginx, "logs")
        check(info["evicted_unused"] + info["evicted_soonest"] > 0 and info["large_used"] <= info["large_bytes"], f"logs: {info}")
        got = []
        for _ in range(60):  # a key that is used all the time outlives a flood of others
            got += nginx.statuses(["/busy?k=busy"] + ["/bucket"] * 40)[:1]
        check.equal(got, [200] * 50 + [429] * 10, "a busy key stays")
        check("[alert]" not in nginx.errors() and "no room" not in nginx.errors(), "nothing to complain of")


def test_full_denies(check):
    """full=deny: a key without room is rejected, and says why; those that are there go on."""
    locations = INFO + """
        location = /new { weir_limit key=$request_id zone=small "fixed-window 1/100d from-first"; }
        location = /key { weir_limit key=$arg_k zone=small "fixed-window 2/100d from-first"; add_header X-Why $weir_status always; }
        location = /conn { weir_conn key=$arg_k zone=small 2; add_header X-Why $weir_status always; }
        location = /rate { weir_rate key=$arg_k zone=small "token-bucket 1g/s"; add_header X-Why $weir_status always; }
        location = /keys { weir_keys zone=logs; } location = /small { weir_keys zone=small; }
        location = /log { weir_limit key=$arg_k zone=logs "sliding-log 5/h"; add_header X-Why $weir_status always; }
        """
    with serve(locations, "weir_zone small 80k full=deny large=20%;\nweir_zone logs 80k full=deny;\n", workers=2) as nginx:
        answers = [nginx.get(f"/log?k={i}") for i in range(300)]
        full = [it for it in answers if it.status == 429 and it.fields["x-why"] == "FULL"]
        check(50 < len(full) == zone(nginx, "logs")["refused"], f"the area for logs is full: {len(full)}, {zone(nginx, 'logs')}")
        check(all(3000 < int(it.fields["retry-after"]) <= 3600 for it in full), f"until the first ends: {full[0].fields}")
        with nginx.client() as client:
            for method in ("GET", "DELETE"):
                check.equal(client.get("/keys?key=nobody", method=method).json.get("refused"), len(full), f"{method}: weir_keys says that the zone refuses")
                check.equal("refused" in client.get("/small?key=nobody", method=method).json, False, f"{method}: of a zone that does not, nothing")
        check.equal(nginx.get("/key?k=first").status, 200, "the first")
        rejected = flood(nginx, "/new", KEYS // 5)
        info = zone(nginx, "small")
        check(0 < rejected < KEYS // 5 and info["refused"] == rejected, f"some are rejected: {rejected}, {info}")
        check.equal((info["evicted_unused"], info["evicted_soonest"]), (0, 0), "nobody was forgotten")
        for path in ("/key", "/conn"):
            answers = [nginx.get(f"{path}?k=new{i}") for i in range(100)]
            full = [it for it in answers if it.status == 429]
            check(len(full) > 50, f"{path}: most are rejected: {len(full)}")
            check(all(it.fields["x-why"] == "FULL" for it in full), f"{path}: with that reason")
            check(all(int(it.fields["retry-after"]) >= 1 for it in full), f"{path}: and a time")
        check.equal([nginx.get("/key?k=first").status for _ in range(2)], [200, 429], "who is there goes on")
        check("no room for a new key" in nginx.errors(), "the log says so")
        check(nginx.reload(http="weir_zone small 80k large=20%;\nweir_zone logs 80k full=deny;\n"), "without full=deny")
        check.equal(flood(nginx, "/new", 500), 0, "everybody is let in again")
    for words in ("full=never", "full=", "full=deny full=deny", "large=20% large=20%", "full=deny large=20% full=evict"):
        code, said = nginx_server.Nginx.check(f"weir_zone z 1m {words};\n", "location / { empty_gif; }")
        check(code == 1 and "weir_zone" in said, f"weir_zone {words}: {said}")


def test_master_killed(check):
    """nginx as a whole killed and started again: it starts afresh, with nothing left to stumble over."""
    with serve('location / { weir_limit key=$arg_k zone=z "fixed-window 3/100d"; }', workers=2) as nginx:
        for _ in range(3):
            check.equal(nginx.statuses(["/?k=a"] * 4), [200] * 3 + [429], "three")
            nginx.kill()
            nginx.start()


TESTS = [test_killed, test_killed_with_logs, test_killed_while_locked, test_slots_of_the_dead, test_reload_under_load,
         test_changes, test_full, test_full_denies, test_master_killed]

if __name__ == "__main__":
    if "--short" in sys.argv:
        SECONDS, KEYS = 2, 10_000
    if "--long" in sys.argv:
        SECONDS, KEYS = 120, 1_000_000
    sys.exit(checks.run(TESTS, sys.argv[1:]))
