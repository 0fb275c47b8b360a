#!/usr/bin/env python3
"""The Node binding in real frameworks: Express, Fastify, express-rate-limit; the same traffic through what one comes from."""
import sys

from lib import checks, node_binding


def test_web(check):
    node_binding.counted(check, "web.js", with_packages=True)


if __name__ == "__main__":
    sys.exit(checks.run([test_web], sys.argv[1:]))
