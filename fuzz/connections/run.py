#!/usr/bin/env python3
"""Whole connections against a real server: HTTP/1, HTTP/2 and RESP mixed, pipelines, held answers, resets, half-closed and slow
clients, unix sockets, reloads, a Redis that is slow, stopped or killed. $WEIR is the server, best one with sanitizers.

    fuzz/connections/run.py                     the corpus, then some seconds of new rounds (make test)
    fuzz/connections/run.py --seconds 3600      longer (make soak)
    fuzz/connections/run.py --seed 7            the same rounds again
    fuzz/connections/run.py --world redis       only this kind of server: see WORLDS
    fuzz/connections/run.py FILE …              plays scripts (script.py), such as those that a finding leaves behind

A finding is a server that ends or says anything of a sanitizer, an answer that is not the one to its question, is missing or
cannot be read, descriptors or memory that do not come back, /healthz late, a stop that does not end. It is printed with its
seed; what was played last is in fuzz/crashes-connections. Scripts with a finding that is mended go to fuzz/corpus/connections.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests")]

from lib import checks, http_client, redis_server, resp, weir_server
import make  # noqa: E402
import script  # noqa: E402
from play import Finding, Player  # noqa: E402

CORPUS = ROOT / "fuzz" / "corpus" / "connections"
CRASHES = ROOT / "fuzz" / "crashes-connections"
LAP = 20                # rounds between two looks at descriptors and memory
LAPS = 10               # laps of one server
MOST_LIVE = 150         # connections of earlier rounds that may still be under way
KEPT_ROUNDS = 60        # that a finding writes down
HEALTH_SECONDS = 60.0   # the latest that /healthz may be, on a busy machine
SETTLE_SECONDS = 60.0   # until descriptors and connections of the dead are gone
PEAK_BYTES = 1 << 30    # the documented 256 MiB for what is under way, with what sanitizers add, and the stores
POLICIES = """version: 1
policies:
  - name: users
    match: {path: /u}
    key: user
    limits:
      - {name: all, limit: fixed-window 1000000/d}
      - {name: few, limit: token-bucket 1000/s}
  - name: shaped
    match: {path: /shaped}
    key: user
    limit: leaky-bucket 200/s burst 50
"""
KEYS = ("users/all/{user=u", "users/few/{user=u", "shaped/{user=u")
RULES = """domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
"""
TIMES = "--threads 2 --request-timeout 5s --drain-timeout 1s"
# name: options, Redis, token, few connections
WORLDS = {
    "memory": (f"{TIMES} --store memory:8m --access-log access.log", False, False, False),
    "plain": ("--threads 1 --drain-timeout 1s", False, False, False),
    "redis": (f"{TIMES} --store redis://127.0.0.1:{{redis}}?deadline=100ms", True, False, False),
    "module": (f"{TIMES} --store redis://127.0.0.1:{{redis}}?deadline=20s&engine=module", True, False, False),
    "token": (f"{TIMES} --token-file token", False, True, False),
    "crowd": (f"{TIMES} --max-connections 24", False, False, True),
}
ASAN = "abort_on_error=0:detect_leaks=1:quarantine_size_mb=16:malloc_context_size=15:exitcode=99"


class Health(threading.Thread):
    """Somebody who asks for /healthz all the time, on one connection."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.client = http_client.Client(port, timeout=HEALTH_SECONDS)
        self.over, self.wrong, self.asked = threading.Event(), None, 0

    def run(self):
        try:
            while not self.over.wait(0.05):
                if self.client.get("/healthz").status != 200:
                    self.wrong = "/healthz is not 200"
                self.asked += 1
        except (OSError, ValueError) as error:
            if not self.over.is_set():
                self.wrong = f"/healthz is not answered within {HEALTH_SECONDS:.0f} s: {error!r}"


def module_file():
    """The module without sanitizers, whatever the server is built with."""
    build = ROOT / "build"
    if not (build / "weir_redis.so").exists():
        for command in ([str(ROOT / "tools" / "configure.sh"), str(build)], ["ninja", "-C", str(build), "weir_redis.so"]):
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return build / "weir_redis.so"


class World:
    """A server of some kind, and what belongs to it."""

    def __init__(self, name):
        self.name = name
        options, self.redis, self.token, self.may_refuse = WORLDS[name]
        self.exact = not self.redis
        self.database = None
        if self.redis:
            module = f"--loadmodule {module_file()}" if name == "module" else ""
            self.database = redis_server.Server(module)
            self.database.__enter__()
            options = options.replace("{redis}", str(self.database.port))
        files = {"rules.yaml": RULES}
        if self.token:
            files["token"] = make.TOKEN + "\n"
        self.server = weir_server.Server(f"{options} --listen unix:socket --envoy rules.yaml", files=files,
                                         policies=POLICIES, env={"ASAN_OPTIONS": ASAN})
        try:
            self.server.start()
        except BaseException:
            self.remove()
            raise
        self.health = Health(self.server.port)
        self.health.start()
        self.fields = {"authorization": f"Bearer {make.TOKEN}"} if self.token else None
        self.files = self.descriptors()

    def address(self, kind):
        if kind == "unix":
            return socket.AF_UNIX, str(self.server.folder / "socket")
        return socket.AF_INET, ("127.0.0.1", self.server.port)

    def store(self, what, *words):
        """Something happens to Redis."""
        if not self.redis:
            return
        process = self.database.process
        running = process.poll() is None
        if what == "start" and not running:
            self.database.start()
        elif what == "kill":
            self.database.kill()
        elif what in ("stop", "cont") and running:
            process.send_signal({"stop": signal.SIGSTOP, "cont": signal.SIGCONT}[what])
        elif what == "pause" and running:
            try:
                with self.database.client(timeout=2) as client:
                    client.call("CLIENT", "PAUSE", words[0], "ALL")
            except (OSError, resp.RedisError):
                pass

    def reload(self):
        self.server.signal(signal.SIGHUP)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def memory(self, field):
        for line in pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def alive(self):
        if self.server.process.poll() is not None:
            raise Finding("the server has ended")
        if self.health.wrong:
            raise Finding(self.health.wrong)
        if weir_server.REPORTS.search(self.server.stderr()):
            raise Finding("a sanitizer's report")

    def quiet(self, receipts):
        """Nobody is connected: descriptors are back, memory is within its bound, keys and receipts are sound."""
        self.store("cont")
        self.store("start")
        if not self.server.wait_for(lambda: self.descriptors() <= self.files + 8, SETTLE_SECONDS):
            self.alive()
            raise Finding(f"{self.descriptors()} descriptors are open, {self.files} at the start")
        peak = self.memory("VmHWM")
        if peak > PEAK_BYTES:
            raise Finding(f"{peak >> 20} MiB of memory")
        with http_client.Client(self.server.port) as client:
            top = client.get("/v1/top", self.fields, k=64).json
            for row in (row for policy in top["policies"] if policy["name"] in ("users", "shaped")
                        for row in policy["hottest"] + policy["denied"]):
                if not str(row.get("key")).startswith(KEYS):
                    raise Finding(f"/v1/top has a key that nobody asked for: {row}")
            for limit, number, receipt in receipts:
                self.settle(client, limit, number, receipt)

    def settle(self, client, limit, number, receipt):
        """A receipt is good for its own key and for no other."""
        asked = {"key": f"z{number}", "limit": f"fixed-window {limit}/d", "receipt": receipt, "actual": 0}
        other = client.post("/v1/settle", {**asked, "key": f"y{number}"}, self.fields)
        own = client.post("/v1/settle", asked, self.fields)
        if other.status not in (400, 503) or own.status not in (200, 503):
            raise Finding(f"receipt {receipt} of z{number}: {own.status} {own.body}, of another key {other.status}")

    def stop(self):
        """SIGTERM, whatever is under way: it ends in time and clean."""
        self.store("cont")
        self.alive()
        self.health.over.set()
        try:
            self.server.stop()
        except weir_server.WrongEnd as error:
            raise Finding(f"at the end: {error}") from None

    def remove(self):
        self.server.kill()
        self.server.read_rest(2)
        shutil.rmtree(self.server.folder, ignore_errors=True)
        if self.database:
            self.database.__exit__()


def told(world):
    """What a server said before it ended, as far as it helps."""
    try:
        world.server.process.wait(10 if weir_server.REPORTS.search(world.server.stderr()) else 0.2)
    except subprocess.TimeoutExpired:
        world.server.kill()
    world.server.read_rest(5)
    text = world.server.stderr()
    at = max(text.find("ERROR: "), text.find("runtime error:") - 200, 0)
    return f"exit code {world.server.process.returncode}\n{text[at:at + 6000]}"


def keep(name, seed, rounds):
    CRASHES.mkdir(exist_ok=True)
    path = CRASHES / f"{name}-{seed}.script"
    path.write_text(f"#! {name}\n# seed {seed}\n" + "".join(
        f"# round {number}\n{script.dump(steps)}" for number, steps in rounds))
    return path


class Fuzzer:
    def __init__(self, seed, seconds, only):
        self.seed, self.end, self.only = seed, time.monotonic() + seconds, only
        self.slice = max(1.5, min(60, seconds / (1 if only else len(WORLDS))))  # all of them, however short it is
        self.rounds, self.failed, self.passed, self.counts = 0, 0, 0, {}

    def run(self):
        """One server after the other, of all kinds in turn, until the time is over; each kind once at least."""
        session = 0
        names = random.Random(self.seed).sample(list(WORLDS), len(WORLDS)) if not self.only else [self.only]
        while session < len(names) or time.monotonic() < self.end:
            name = names[session % len(names)]
            seed = f"{self.seed}.{session}"
            self.session(name, seed)
            session += 1
            if self.failed >= 10:
                break

    def session(self, name, seed):
        """The rounds of one server."""
        dice = random.Random(seed)
        start, before = time.monotonic(), self.rounds
        numbers, connections = make.Numbers(), make.Numbers()
        played, world = [], World(name)
        player = Player(world)
        slice_end = time.monotonic() + self.slice
        try:
            for lap in range(LAPS):
                for number in range(LAP):
                    steps = make.round_of(dice, numbers, connections, world)
                    played = played[-KEPT_ROUNDS:] + [(lap * LAP + number, steps)]
                    for step in steps:
                        player.step(step)
                    world.alive()
                    self.rounds += 1
                    while player.retire(list(player.live)) > MOST_LIVE:
                        player.poll(0.02)
                    if time.monotonic() > slice_end:
                        break
                player.finish()
                world.quiet([player.receipts.popleft() for _ in range(min(20, len(player.receipts)))])
                if time.monotonic() > slice_end:
                    break
            for step in make.round_of(dice, numbers, connections, world):  # nobody finishes this one
                player.step(step)
            world.stop()
            self.passed += 1
            print(f"ok   {name}, seed {seed}: {self.rounds - before} rounds, {player.counts['answers']} answers in "
                  f"{time.monotonic() - start:.0f} s", flush=True)
        except (Finding, OSError, ValueError) as finding:
            self.failed += 1
            print(f"FAIL {name}, seed {seed}: {finding if isinstance(finding, Finding) else repr(finding)}\n"
                  f"     {keep(name, seed, played)}\n{told(world)}", flush=True)
        finally:
            player.abandon()
            for what, count in player.counts.items():
                self.counts[what] = self.counts.get(what, 0) + count
            world.health.over.set()
            world.remove()


def replay(paths, times):
    """Plays scripts, those of one world on one server; (passed, failed)."""
    passed = failed = 0
    by_world = {}
    for path in paths:
        world, steps = script.load(pathlib.Path(path).read_text())
        by_world.setdefault(world or "memory", []).append((path, steps))
    for name, scripts in by_world.items():
        world = World(name)
        try:
            for path, steps in scripts:
                for _ in range(times):
                    player = Player(world)
                    for step in steps:
                        player.step(step)
                    player.finish()
                    world.alive()
            world.quiet([])
            world.stop()
            passed += len(scripts)
        except (Finding, OSError, ValueError) as finding:
            failed += 1
            print(f"FAIL {path}: {finding}\n{told(world)}", flush=True)
        finally:
            player.abandon()
            world.remove()
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--seed")
    parser.add_argument("--world", choices=WORLDS)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    scripts = options.files or sorted(CORPUS.glob("*.script"))
    passed, failed = replay(scripts, options.times)
    if not options.files:
        fuzzer = Fuzzer(options.seed or str(checks.seed()), options.seconds, options.world)
        print(f"connections: seed {fuzzer.seed}", flush=True)
        start = time.monotonic()
        fuzzer.run()
        took = time.monotonic() - start
        counts = ", ".join(f"{count} {what}" for what, count in sorted(fuzzer.counts.items()))
        print(f"connections: {fuzzer.rounds} rounds in {took:.0f} s, {counts}")
        passed, failed = passed + fuzzer.passed, failed + fuzzer.failed
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
