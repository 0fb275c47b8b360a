#!/usr/bin/env python3
"""Waits and slots of the Node binding, in private memory, in a file and on a real Redis, also one that stands still."""
import sys
import tempfile

from lib import checks, node_binding, redis_server
from lib.redis_cluster import Cluster


def test_memory(check):
    node_binding.counted(check, "waits.js", "memory:1m")


def test_file(check):
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder:
        node_binding.counted(check, "waits.js", f"file:{folder}/zone?size=1m")


def test_redis(check):
    with redis_server.Server() as server:
        node_binding.counted(check, "waits.js", f"redis://127.0.0.1:{server.port}?deadline=30s")


def test_outage(check):
    with redis_server.Server() as server:
        node_binding.counted(check, "outage.js", f"redis://127.0.0.1:{server.port}", server.process.pid)


def test_cluster(check):
    with Cluster(node_timeout_ms=600000) as cluster:
        keys = [next(f"k{i}" for i in range(100) if cluster.owner(cluster.slot(f"weir:k{i}")) == node) for node in range(3)]
        node_binding.counted(check, "late.js", cluster.url(first=1), cluster.nodes[0].process.pid, *keys)


if __name__ == "__main__":
    sys.exit(checks.run([test_memory, test_file, test_redis, test_outage, test_cluster], sys.argv[1:]))
