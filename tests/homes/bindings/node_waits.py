#!/usr/bin/env python3
"""Waits and slots of the Node binding, in private memory, in a file and on a real Redis, also one that stands still."""
import sys
import tempfile

from lib import checks, node_binding, redis_server


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


if __name__ == "__main__":
    sys.exit(checks.run([test_memory, test_file, test_redis, test_outage], sys.argv[1:]))
