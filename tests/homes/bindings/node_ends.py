#!/usr/bin/env python3
"""Threads of Node that share a zone, and ends of every kind: terminate, process.exit, close, garbage."""
import sys
import tempfile

from lib import bindings, checks, node_binding, redis_server


def test_ends(check):
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder, redis_server.Server() as server:
        node_binding.counted(check, "ends.js", folder, f"redis://127.0.0.1:{server.port}?deadline=30s", 2 if bindings.is_sanitized() else 5)


if __name__ == "__main__":
    sys.exit(checks.run([test_ends], sys.argv[1:]))
