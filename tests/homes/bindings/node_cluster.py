#!/usr/bin/env python3
"""Express in four workers of a cluster under load: exactly as many pass as the limit says, also while workers are killed."""
import collections
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading

from lib import bindings, build, checks, node_binding, ports

WORKERS, CONNECTIONS, KILLS = 4, 32, 5
NUMBER, MANY, SLOTS = 200, 5000, 3
REQUESTS = 1000
SLOT = f"concurrent {SLOTS} lease 1h"  # far longer than the test: what is not given back stays taken


class Cluster(bindings.Workers):
    """Up when all of its workers listen."""

    def __init__(self, folder):
        self.folder, self.url = folder, f"file:{folder}/zone?size=4m"
        port = ports.take()
        command = ["node", node_binding.SCRIPTS / "cluster.js", port, self.url]
        super().__init__(command, port, env=node_binding.environment(with_packages=True), ready=self.is_full)

    def __exit__(self, *about):
        super().__exit__(*about)
        ports.give_back(self.port)

    def told(self, word):
        """The workers of which the cluster has said this."""
        return {int(pid) for pid in re.findall(rf"^{word} (\d+)$", self.output(), re.M)}

    def is_full(self):
        return len(self.told("listens") - self.told("ended")) == WORKERS

    def status(self, path):
        """Of one request, or None: the worker that had it was killed."""
        try:
            return bindings.ask(self.port, path)[0]
        except (OSError, http.client.HTTPException):
            return None

    def free(self, key):
        """Slots, as another program sees them."""
        done = subprocess.run([build.WEIR, "peek", key, SLOT, "--store", self.url, "--json"], stdout=subprocess.PIPE, text=True, check=False)
        return json.loads(done.stdout)["remaining"]


def in_folder(test):
    """The test with a cluster whose zone is in a folder of its own."""
    def run(check):
        with tempfile.TemporaryDirectory(prefix="weir-node-") as folder, Cluster(folder) as cluster:
            test(check, cluster)
    run.__name__ = test.__name__
    return run


@in_folder
def test_exact(check, cluster):
    names = {int(bindings.ask(cluster.port, "/who")[2]) for _ in range(10 * WORKERS)}
    check.equal(names, cluster.told("listens"), "four workers answer")
    for path in ("/bucket?k=a", "/window?k=a"):
        seen = bindings.rush(cluster.port, path, REQUESTS, CONNECTIONS)
        check.equal(seen, {200: NUMBER, 429: REQUESTS - NUMBER}, f"{path}: exactly the limit, and nothing else")
        check.equal({cluster.status(path) for _ in range(8)}, {429}, f"{path}: none after that")


@in_folder
def test_slots(check, cluster):
    """wrk goes away with requests in progress: their slots come back, too."""
    path, seen = "/slots?k=a", collections.Counter()
    while seen[200] <= 10 or seen[429] <= 10:  # a busy machine needs longer
        seen.update(bindings.wrk(cluster.port, path, seconds=1, connections=CONNECTIONS, threads=1))
    check.equal(set(seen), {200, 429}, f"slots: {seen}")
    for _ in range(8):  # an answer is there a moment before its slot is free
        checks.until("slots are all given back", lambda: cluster.free("a") == SLOTS)
        check.equal(cluster.status(path), 200, "a slot is free")
    checks.until("slots are all given back", lambda: cluster.free("a") == SLOTS)


def kill_under_load(cluster, chance, stop, killed):
    """Ends workers by SIGKILL, one at a time, while others answer."""
    while len(killed) < KILLS and not stop.wait(0.02):
        alive = sorted(cluster.told("listens") - cluster.told("ended"))
        if len(alive) > 1:
            killed.append(chance.choice(alive))
            os.kill(killed[-1], signal.SIGKILL)
            checks.until("the cluster knows it", lambda: killed[-1] in cluster.told("ended"))


@in_folder
def test_killed(check, cluster):
    chance, stop, killed = random.Random(checks.seed()), threading.Event(), []
    thread = threading.Thread(target=kill_under_load, args=(cluster, chance, stop, killed))
    thread.start()
    path, seen, rounds = "/many?k=b", collections.Counter(), 0
    try:
        while seen[429] <= 50 or (thread.is_alive() and len(killed) < KILLS):
            seen.update(bindings.wrk(cluster.port, path, seconds=1, connections=CONNECTIONS, threads=1))
            rounds += 1
    finally:
        stop.set()
        thread.join()
    checks.until("the killed ones are replaced", cluster.is_full)
    check.equal((len(killed), len(cluster.told("ended"))), (KILLS, KILLS), "workers were killed, and no other one ended")
    lost = (KILLS + rounds) * CONNECTIONS  # answers that a worker took with it, or that wrk did not wait for, at most
    passed = seen[200]
    check(passed <= MANY, f"never more than the limit: {seen}")
    more = 0
    while cluster.status(path) == 200:
        more += 1
    check(MANY - lost <= passed + more <= MANY, f"no charge is lost: {passed} and {more} more passed, {rounds} rounds")


if __name__ == "__main__":
    sys.exit(checks.run([test_exact, test_slots, test_killed], sys.argv[1:]))
