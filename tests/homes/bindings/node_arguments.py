#!/usr/bin/env python3
"""The Node binding and arguments of every wrong kind."""
import sys

from lib import checks, node_binding


def test_arguments(check):
    node_binding.counted(check, "arguments.js")


if __name__ == "__main__":
    sys.exit(checks.run([test_arguments], sys.argv[1:]))
