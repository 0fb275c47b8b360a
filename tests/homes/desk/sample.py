#!/usr/bin/env python3
"""examples/access.log.gz: tools/sample_log.py makes it again, byte for byte, and a limit shows who is in it.

    tests/homes/desk/sample.py [NAME …]
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

from lib import build, checks, weir_server

SAMPLE = build.ROOT / "examples/access.log.gz"


def test_made_again(check):
    """The text is compared, because another version of zlib may pack it in another way. The header has neither time nor name."""
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        made = [pathlib.Path(folder) / name for name in ("one.gz", "two.gz")]
        for path in made:
            subprocess.run([build.ROOT / "tools/sample_log.py", path], check=True)
        check.equal(made[0].read_bytes(), made[1].read_bytes(), "the same bytes each time")
        check(gzip.decompress(made[0].read_bytes()) == gzip.decompress(SAMPLE.read_bytes()), "tools/sample_log.py makes examples/access.log.gz")
    check.equal(SAMPLE.read_bytes()[:8], b"\x1f\x8b\x08\0\0\0\0\0", "neither time nor name in its header")
    check(SAMPLE.stat().st_size < 200_000, "it is small")


def test_who_is_in_it(check):
    done = subprocess.run([str(weir_server.WEIR), "replay", "--json", "token-bucket 1/s burst 20", str(SAMPLE)], capture_output=True,
                          check=True, env=weir_server.environment())
    seen = json.loads(done.stdout)
    check.equal([it["key"] for it in seen["most_denied"]], ["203.0.113.200"], "the attack alone is denied")
    check.equal([it["key"] for it in seen["heaviest"][:3]], ["203.0.113.200", "192.0.2.77", "192.0.2.10"], "attack, scraper, office")


if __name__ == "__main__":
    sys.exit(checks.run([test_made_again, test_who_is_in_it], sys.argv[1:]))
