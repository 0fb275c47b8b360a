"""A real Redis cluster of three primaries and three replicas.

    with Cluster(options) as cluster: cluster.url(), cluster.nodes[0].kill()
"""
import contextlib
import re
import time

from . import redis_server

READY_SECONDS = 120
NODE_TIMEOUT_MS = 15000  # where no node is to fail, a busy machine is not to be taken for a dead one


class Cluster:
    """Six servers; node i + 3 replicates node i."""

    def __init__(self, options="", node_timeout_ms=NODE_TIMEOUT_MS):
        self.nodes = [redis_server.Server(
            f"--cluster-enabled yes --cluster-node-timeout {node_timeout_ms} "
            f"--cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0 {options}") for _ in range(6)]
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        for node in self.nodes:
            self.stack.enter_context(node)
        self.clients = [self.stack.enter_context(node.client()) for node in self.nodes]
        bounds = [0, 5461, 10923, 16384]
        for i, client in enumerate(self.clients):
            client.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i, client in enumerate(self.clients):
            if i > 0:
                client.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
            if i < 3:
                client.call("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
        self.ids = [client.call("CLUSTER", "MYID").decode() for client in self.clients]
        self.wait(lambda: all("cluster_known_nodes:6" in self.info(i) for i in range(6)))
        for i in range(3):
            self.clients[i + 3].call("CLUSTER", "REPLICATE", self.ids[i])
        self.wait(lambda: all("cluster_state:ok" in self.info(i) and "cluster_slots_ok:16384" in self.info(i) for i in range(6)))
        self.wait(lambda: all(b"master_link_status:up" in self.clients[i].call("INFO", "replication")
                              for i in range(3, 6)))
        return self

    def __exit__(self, *_):
        self.stack.close()

    def info(self, i):
        return self.clients[i].call("CLUSTER", "INFO").decode()

    def has_copied(self, i):
        """Whether the replica of a node has all of its states."""
        offsets = [re.search(rb"(?:master|slave)_repl_offset:(\d+)", self.clients[at].call("INFO", "replication"))[1]
                   for at in (i, i + 3)]
        return offsets[0] == offsets[1]

    def wait(self, ready):
        end = time.monotonic() + READY_SECONDS
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError("the cluster does not come up")
            time.sleep(0.05)

    def url(self, options="", first=0):
        return f"redis+cluster://127.0.0.1:{self.nodes[first].port}/{'?' if options else ''}{options}"

    def owner(self, slot):
        """Which of the first three has a slot."""
        return 0 if slot < 5461 else 1 if slot < 10923 else 2

    def slot(self, key):
        return self.clients[0].call("CLUSTER", "KEYSLOT", key)
