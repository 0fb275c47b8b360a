#!/usr/bin/env python3
"""Memory of the Node binding stays flat: a million takes, ten million with --long."""
import sys

from lib import checks, node_binding


def test_memory(check):
    done = node_binding.counted(check, "memory.js", 10_000_000 if "--long" in sys.argv else 1_000_000, options=["--expose-gc", "--max-semi-space-size=2"])
    print(done.stdout.splitlines()[0])


if __name__ == "__main__":
    sys.exit(checks.run([test_memory], sys.argv[1:]))
