#!/usr/bin/env python3
"""The golden vectors through the Node binding: every field of every answer, in private and in shared memory."""
import os
import sys
import tempfile

from lib import build, checks, node_binding


def test_memory(check):
    node_binding.counted(check, "vectors.js", "memory:64m", *build.vectors())


def test_file(check):
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder:
        node_binding.counted(check, "vectors.js", f"file:{os.path.join(folder, 'zone')}?size=64m",
                             *sorted((build.ROOT / "tests" / "vectors").glob("*.vec")))


if __name__ == "__main__":
    sys.exit(checks.run([test_memory, test_file], sys.argv[1:]))
