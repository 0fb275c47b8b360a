#!/usr/bin/env python3
"""`weir replay` under the thread sanitizer: one thread reads, another decides, and both look at the same batches, facts and signals.

    WEIR=build/tsan/weir tests/homes/desk/threads.py [NAME …]
"""
import gzip
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from lib import build, checks, weir_server

SAMPLE = build.ROOT / "examples/access.log.gz"
REQUESTS = 23129
T = 1794810525
RACE = "WARNING: ThreadSanitizer"
POLICIES = """version: 1
policies:
  - name: login
    match: {path: /login}
    key: ip
    limit: sliding-log 5/m
"""


def weir(check, what, *words, code=0, text=None):
    done = subprocess.run([str(weir_server.WEIR), "replay", *map(str, words)], input=text, capture_output=True, check=False, timeout=1200,
                          env=weir_server.environment())
    err = done.stderr.decode(errors="replace")
    check(RACE not in err, f"{what}: a race: {err[:4000]}")
    check.equal(done.returncode, code, f"{what}: {err[:400]}")
    return done.stdout.decode(errors="replace")


def line(at, ip):
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at))
    return f'{ip} - - [{stamp}] "GET / HTTP/1.1" 200 5 "-" "curl/8.1"\n'


def test_whole(check):
    """Many batches, in all the ways in which they are decided."""
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        policies = pathlib.Path(folder) / "policies.yaml"
        policies.write_text(POLICIES, encoding="ascii")
        for what, *words in (("candidates", "--limit", "a=token-bucket 1/s burst 20", "--limit", "b=sliding-window 60/m"),
                             ("policies", "--policies", policies), ("a store", "token-bucket 1/s", "--store", "memory:4m"),
                             ("little memory", "token-bucket 1/s", "--memory", "1m")):
            told = json.loads(weir(check, what, "--json", *words, SAMPLE))
            check.equal(told["requests"], REQUESTS, f"{what}: every request")
        lines = weir(check, "decisions", "token-bucket 1/s", "--decisions", SAMPLE)
        check.equal(len(lines.splitlines()), REQUESTS + 1, "decisions: every request")


def test_ends(check):
    """Either thread may end it: a file that is cut, a store that is too small, a reader that has gone."""
    data = SAMPLE.read_bytes()
    weir(check, "cut", "token-bucket 1/s", "-", code=3, text=data[:len(data) // 2])
    trace = "".join(f"60,k{i}\n" for i in range(20000)).encode()
    weir(check, "a store too small", "fixed-window 2/d", "--store", "memory:64k", code=3, text=trace)
    with subprocess.Popen([str(weir_server.WEIR), "replay", "token-bucket 1/s", "--decisions", str(SAMPLE)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=weir_server.environment()) as child:
        child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read().decode(errors="replace")
    check(RACE not in err, f"nobody reads what it prints: {err[:4000]}")


def test_follow(check):
    """A log that is followed, and a signal that ends it."""
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        path = pathlib.Path(folder) / "access.log"
        path.write_text("".join(line(T + i, "10.0.0.1") for i in range(3)), encoding="ascii")
        with subprocess.Popen([str(weir_server.WEIR), "replay", "token-bucket 1/s", "--decisions", "--disorder", "1ms", "-f", str(path)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=weir_server.environment()) as child:
            for _ in range(3):
                child.stdout.readline()
            with open(path, "a", encoding="ascii") as file:
                file.write(line(T + 10, "10.0.0.2"))
            seen = [child.stdout.readline().decode() for _ in range(2)]
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=600)
        check(any("10.0.0.2" in it for it in seen), f"what was appended: {seen}")
        check.equal((child.returncode, RACE in err.decode(errors="replace")), (0, False), f"it is followed: {err.decode(errors='replace')[:4000]}")


def test_hostile(check):
    weir(check, "noise", "token-bucket 1/s", "--format", "combined", code=2, text=bytes(range(256)) * 2000)
    weir(check, "long lines", "token-bucket 1/s", text=(line(T, "10.0.0.1") + "x" * 200_000 + "\n" + line(T + 1, "10.0.0.1")).encode())
    weir(check, "packed noise", "token-bucket 1/s", "-", code=3, text=gzip.compress(b"\n")[:10] + bytes(range(256)) * 50)


if __name__ == "__main__":
    sys.exit(checks.run([test_whole, test_ends, test_follow, test_hostile], sys.argv[1:]))
