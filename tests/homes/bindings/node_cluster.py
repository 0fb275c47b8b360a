#!/usr/bin/env python3
"""Express in four workers of a cluster under wrk: exactly as many pass as the limit says, also while workers are killed."""
import collections
import os
import random
import signal
import sys
import tempfile
import threading

from lib import bindings, checks, node_binding, ports

NUMBER, CONNECTIONS = 200, 32


def cluster(folder, port):
    command = ["node", node_binding.SCRIPTS / "cluster.js", port, f"file:{folder}/zone?size=4m"]
    return bindings.Workers(command, port, env=node_binding.environment(with_packages=True), path="/who")


def load(port, path, enough):
    """The answers of wrk by status, until enough(them): a busy machine needs longer."""
    seen = collections.Counter()
    while not enough(seen):
        seen.update(bindings.wrk(port, path, seconds=1, connections=CONNECTIONS, threads=1))
    return seen


def denied(seen):
    return seen[429] > 50


def after(port, path):
    return [bindings.ask(port, path)[0] for _ in range(8)]


def test_exact(check):
    port = ports.take()
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder, cluster(folder, port):
        check.equal(len({bindings.ask(port, "/who")[2] for _ in range(40)}), 4, "four workers answer")
        for path in ("/bucket?k=a", "/window?k=a"):
            seen = load(port, path, denied)
            check.equal((seen[200], set(seen)), (NUMBER, {200, 429}), f"{path}: exactly the limit, and nothing else: {seen}")
            check.equal(set(after(port, path)), {429}, f"{path}: none after that")
        seen = load(port, "/slots?k=a", lambda seen: seen[200] > 10 and seen[429] > 10)
        check.equal(set(seen), {200, 429}, f"slots: {seen}")
        check.equal(after(port, "/slots?k=a"), [200] * 8, "slots are all given back")
    ports.give_back(port)


def serving(port):
    """The workers that answer now."""
    return sorted({int(bindings.ask(port, "/who")[2]) for _ in range(8)})


def kill_under_load(port, chance, stop, killed):
    """Ends workers by SIGKILL, one at a time, while others answer."""
    while not stop.wait(0.1):
        alive = serving(port)
        if len(alive) > 1:
            killed.append(chance.choice(alive))
            os.kill(killed[-1], signal.SIGKILL)


def test_killed(check):
    port, chance = ports.take(), random.Random(checks.seed())
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder, cluster(folder, port):
        stop, killed = threading.Event(), []
        thread = threading.Thread(target=kill_under_load, args=(port, chance, stop, killed))
        thread.start()
        try:
            seen = load(port, "/bucket?k=b", lambda seen: denied(seen) and len(killed) >= 3)
        finally:
            stop.set()
            thread.join()
        lost = len(killed) * CONNECTIONS  # answers that a worker took with it, at most
        passed = seen[200]
        check(passed <= NUMBER, f"never more than the limit: {seen}")
        more = 0
        while bindings.ask(port, "/bucket?k=b")[0] == 200:
            more += 1
        check(NUMBER - lost <= passed + more <= NUMBER, f"no charge is lost: {passed} and {more} more passed, {len(killed)} were killed")
    ports.give_back(port)


if __name__ == "__main__":
    sys.exit(checks.run([test_exact, test_killed], sys.argv[1:]))
