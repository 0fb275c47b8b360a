#!/usr/bin/env python3
"""kill -9 under load with a file: zone, and a restart, again and again: no limit is exceeded by more than the requests
that were in flight when a kill came, and no charge is ever lost that a client was told of.

    tests/homes/server/zone_kill.py [--long] [NAME …]
"""
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from lib import checks, operation_tools, resp, weir_server

LONG = "--long" in sys.argv
ROUNDS = 100 if LONG else 12
CLIENTS = 8
PIPELINE = 5
MOST = 200000 if LONG else 25000
SCARCE = f"fixed-window {MOST}/d from-first"
PLENTY = "fixed-window 100000000/d from-first"
LOG = f"sliding-log {MOST // 2}/d"
KEYS = {"scarce": SCARCE, "plenty": PLENTY, "log": LOG}


class Client(threading.Thread):
    """Takes in pipelines, whoever serves; counts what it was told, and what it was never told because of a kill."""

    def __init__(self, port, over):
        super().__init__(daemon=True)
        self.port, self.over = port, over
        self.told = dict.fromkeys(KEYS, 0)
        self.denied = dict.fromkeys(KEYS, 0)
        self.untold = dict.fromkeys(KEYS, 0)
        self.wrong = []

    def run(self):
        while not self.over.is_set():
            try:
                with resp.Client(self.port, timeout=weir_server.PATIENCE_SECONDS) as client:
                    self.take(client)
            except (ConnectionError, TimeoutError, OSError):
                time.sleep(0.01)  # it is down

    def take(self, client):
        while not self.over.is_set():
            for key, limit in KEYS.items():
                client.socket.sendall(resp.encode(("WEIR.TAKE", key, limit)) * PIPELINE)
                answered = 0
                try:
                    while answered < PIPELINE:
                        reply = client.read()
                        answered += 1
                        if isinstance(reply, resp.RedisError):
                            self.wrong.append(str(reply))
                        elif reply[0] == 1:
                            self.told[key] += 1
                        else:
                            self.denied[key] += 1
                finally:
                    self.untold[key] += PIPELINE - answered


def remaining(port, key):
    with resp.Client(port) as client:
        reply = client.call("WEIR.PEEK", key, KEYS[key])
        return reply[2], reply[1]


def start_on(sockets, options):
    return operation_tools.Activated(sockets, options).start()


def test_kill_under_load(check):
    """The same socket all the time, so that clients only wait while nobody serves."""
    seed = checks.seed()
    print(f"  kills: seed {seed}")
    chance = random.Random(seed)
    folder = weir_server.Server("").folder
    zone = f"file:{folder}/zone?size=16m&large=70%"
    sockets = operation_tools.listening()
    port = sockets[0].getsockname()[1]
    over = threading.Event()
    server = start_on(sockets, f"--threads 2 --store {zone}")
    clients = [Client(port, over) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for number in range(ROUNDS):
            time.sleep(chance.uniform(0.02, 0.35))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            check.equal(server.process.returncode, -signal.SIGKILL, f"kill {number}: it was still alive")
            shutil.rmtree(server.folder)
            server = start_on(sockets, f"--threads 2 --store {zone}")
        answers = lambda: sum(sum(it.told.values()) + sum(it.denied.values()) for it in clients)  # noqa: E731
        used_up = lambda key: sum(client.denied[key] for client in clients) > 0  # noqa: E731
        most = answers() + 5000  # a slow machine takes its time for these, and to use up what is scarce
        server.wait_for_work(lambda: answers() > most and used_up("scarce") and used_up("log"), answers)
        over.set()
        for client in clients:
            client.join(weir_server.PATIENCE_SECONDS)
        judge(check, clients, port, seed)
        server.stop()
        shutil.rmtree(server.folder)
        done = subprocess.run([weir_server.WEIR, "zone", f"{folder}/zone"], capture_output=True, text=True, check=False)
        check(done.returncode == 0 and "sound" in done.stdout, f"the zone is sound: {done.stdout}{done.stderr}")
        print("  " + done.stdout.splitlines()[-1].strip(), flush=True)
    finally:
        over.set()
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def judge(check, clients, port, seed):
    wrong = [it for client in clients for it in client.wrong]
    check(not wrong, f"seed {seed}: errors: {wrong[:3]}")
    for key in KEYS:
        left, most = remaining(port, key)
        told = sum(client.told[key] for client in clients)
        untold = sum(client.untold[key] for client in clients)
        denied = sum(client.denied[key] for client in clients)
        charged = most - left
        check(charged <= most and told <= most, f"seed {seed}, {key}: {told} told, {charged} charged, the limit is {most}")
        check(told <= charged, f"seed {seed}, {key}: {told} were told, only {charged} are charged: a charge was lost")
        check(charged - told <= untold, f"seed {seed}, {key}: {charged - told} charged that nobody was told of, "
              f"{untold} were in flight")
        if key != "plenty":
            check(denied > 0 and charged == most, f"seed {seed}, {key}: the limit was reached: {charged} of {most}")
        print(f"  {key}: {told} told, {charged} charged, {untold} in flight at {ROUNDS} kills, {denied} denied", flush=True)


def test_kill_while_starting(check):
    """A server killed while it opens the zone leaves it for the next."""
    chance = random.Random(checks.seed())
    folder = weir_server.Server("").folder
    zone = f"file:{folder}/zone?size=1m"
    try:
        with weir_server.Server(f"--threads 1 --store {zone}") as server, server.client() as client:
            client.call("WEIR.TAKE", "k", PLENTY, "COST", "77")
        for _ in range(60 if LONG else 20):
            process = subprocess.Popen([weir_server.WEIR, "serve", "--listen", "127.0.0.1:0", "--store", zone],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=weir_server.environment())
            time.sleep(chance.uniform(0.0, 0.02))
            process.kill()
            process.wait()
        with weir_server.Server(f"--threads 1 --store {zone}") as server, server.client() as client:
            check.equal(client.call("WEIR.PEEK", "k", PLENTY)[2], 100000000 - 77, "killed while starting: the count is there")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


TESTS = [test_kill_under_load, test_kill_while_starting]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
