#!/usr/bin/env python3
"""`weir pipe`: that nothing of a stream is lost or changed, that it is never faster than its limit, what happens to lines, slow and
vanishing readers, and what it shows on a terminal. tests/unit/cli_pace.c has the pace itself, under a virtual clock. Here only
what holds on any machine is expected: "not before"."""
import fcntl
import os
import pathlib
import pty
import random
import re
import select
import signal
import subprocess
import sys
import tempfile

from lib import checks, clocks
from lib.build import WEIR

PATIENCE = 120
TMP = pathlib.Path(tempfile.mkdtemp(prefix="weir-pipe-"))
ENV = {**os.environ, "XDG_STATE_HOME": str(TMP / "state"), "HOME": str(TMP / "home")}
FAST = "token-bucket 500m/s burst 16m"


def weir(*words, given=None, **more):
    done = subprocess.run([WEIR, "pipe", *words], input=given, stdout=more.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, env=ENV,
                          timeout=PATIENCE, check=False, **more)
    return done.returncode, done.stdout, done.stderr.decode()


def start(*words, **more):
    return subprocess.Popen([WEIR, "pipe", *words], stdin=more.pop("stdin", subprocess.PIPE), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=ENV, **more)


def noise(length, letters=b"\n\r\0 abcdefghij"):
    dice = random.Random(checks.seed())
    return bytes(dice.choices(letters, k=length))


# ---- what comes out ----

def test_unchanged(check):
    data = noise(700000)
    (TMP / "a").write_bytes(data[:300000])
    (TMP / "b").write_bytes(data[300000:])
    (TMP / "empty").write_bytes(b"")
    for lines in ((), ("--lines",)):
        check(weir(FAST, *lines, given=data) == (0, data, ""), f"{lines}: standard input")
        check(weir(FAST, *lines, TMP / "a", TMP / "empty", TMP / "b", given=b"no") == (0, data, ""), f"{lines}: files")
        check(weir(FAST, *lines, TMP / "a", "-", given=data[300000:]) == (0, data, ""), f"{lines}: - among files")
        check(weir("token-bucket 20m/s burst 1", *lines, given=data) == (0, data, ""), f"{lines}: a burst of one")
        check(weir(FAST, *lines, given=b"") == (0, b"", ""), f"{lines}: nothing")
    for text in (b"\n\n\n", b"last line without an end", b"x" * 65535 + b"\n", b"x" * 65536 + b"\n", b"x" * 65537 + b"\ny",
                 b"\n" + b"x" * 200000 + b"\n" + b"y" * 65536):
        check(weir(FAST, "--lines", given=text) == (0, text, ""), f"lines: {text[:20]}, {len(text)} bytes")


def test_lines_are_counted(check):
    """Under a limit that never refills, what comes out is the burst."""
    slow = "token-bucket 1/366d burst 3"
    for text, expected in ((b"a\nb\nc\nd\n", b"a\nb\nc\n"), (b"\n\n\n\n", b"\n\n\n"),
                           (b"a" * 300000 + b"\nb\n" + b"c" * 70000 + b"\nd\n", b"a" * 300000 + b"\nb\n" + b"c" * 70000 + b"\n")):
        (TMP / "lines").write_bytes(text)
        job = start(slow, "--lines", TMP / "lines", stdin=subprocess.DEVNULL)
        got = b""
        while len(got) < len(expected):
            got += job.stdout.read1(1 << 20)
        job.kill()
        got += job.stdout.read()
        job.wait()
        check(got == expected, f"three lines of {text[:10]}…: {len(got)} bytes, expected {len(expected)}")
    job = start("token-bucket 1/366d burst 5")
    job.stdin.write(b"0123456789")
    job.stdin.flush()
    check.equal(job.stdout.read(5), b"01234", "five bytes")
    check.equal(select.select([job.stdout], [], [], 0.2)[0], [], "and no sixth one")
    job.kill()
    job.communicate()


# ---- how fast ----

def check_pace(check, name, jobs, rate, burst, begun):
    """Whatever is read by a time was due by then, counted from before the start."""
    sums = {job.stdout.fileno(): 0 for job in jobs}
    over = 0
    while sums:
        for fd in select.select(list(sums), [], [])[0]:
            got = os.read(fd, 1 << 20)
            check_pace.sum += len(got)
            over = max(over, check_pace.sum - burst - rate * (clocks.now() - begun))
            if not got:
                del sums[fd]
    check.at_most(over, 0, f"{name}: bytes before their time")


def test_never_faster(check):
    data = noise(300000)
    for limit, rate, burst in (("token-bucket 500k/s burst 50k", 5e5, 5e4), ("token-bucket 400k/s burst 1", 4e5, 1),
                               ("token-bucket 1m/s burst 20k", 1e6, 2e4)):
        begun, check_pace.sum = clocks.now(), 0
        (TMP / "data").write_bytes(data)
        job = start(limit, TMP / "data", stdin=subprocess.DEVNULL)
        check_pace(check, limit, [job], rate, burst, begun)
        check.equal((job.wait(timeout=PATIENCE), check_pace.sum), (0, len(data)), f"{limit}: all of it")


def test_shared(check):
    """Three pipes on one key: together they are never faster than the limit."""
    (TMP / "data").write_bytes(noise(120000))
    store = f"file:{TMP}/zone?size=1m"
    begun, check_pace.sum = clocks.now(), 0
    jobs = [start("token-bucket 400k/s burst 40k", "--key", "upload", "--store", store, TMP / "data", stdin=subprocess.DEVNULL)
            for _ in range(3)]
    check_pace(check, "three pipes", jobs, 4e5, 4e4, begun)
    check.equal([job.wait(timeout=PATIENCE) for job in jobs], [0, 0, 0], "three pipes: all of them end")
    check.equal(check_pace.sum, 360000, "three pipes: all of it")
    check.equal(weir("token-bucket 400k/s burst 40k", "--key", "another", given=b"x")[:2], (0, b"x"), "the default store")
    code, _, err = weir("token-bucket 5m/s burst 1", "--key", "k", given=b"x")
    check.equal(code, 2, "a burst that is too small to share")
    check.contains(err, "expected burst 100000 or more", "in words")


# ---- readers and writers ----

def test_reader_goes_away(check):
    job = start(FAST, "/dev/zero", stdin=subprocess.DEVNULL)
    job.stdout.read(100000)
    job.stdout.close()
    check.equal(job.wait(timeout=PATIENCE), -signal.SIGPIPE, "ends by SIGPIPE, as other filters do")
    job = start("token-bucket 1/d burst 1", "/dev/zero", stdin=subprocess.DEVNULL)
    job.stdout.read(1)
    job.stdout.close()
    check.equal(job.wait(timeout=PATIENCE), -signal.SIGPIPE, "also while it waits for tomorrow's byte")


def test_odd_descriptors(check):
    data = noise(400000)
    read_end, write_end = os.pipe()
    out_read, out_write = os.pipe()
    for fd in (read_end, out_write):  # as a shell may leave them
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
    job = subprocess.Popen([WEIR, "pipe", FAST], stdin=read_end, stdout=out_write, stderr=subprocess.PIPE, env=ENV)
    os.close(read_end)
    os.close(out_write)
    got, sent = b"", 0
    while True:
        ready = select.select([out_read], [write_end] if sent < len(data) else [], [])
        if ready[1]:
            sent += os.write(write_end, data[sent:sent + 4096])
            if sent == len(data):
                os.close(write_end)
        if ready[0]:
            part = os.read(out_read, 3000)
            got += part
            if not part:
                break
        if sent < len(data) and len(got) % 50000 < 3000:  # its calls are interrupted; not at its end, where sanitizers stop it, too
            job.send_signal(signal.SIGSTOP)
            job.send_signal(signal.SIGCONT)
    os.close(out_read)
    check(got == data and job.wait(timeout=PATIENCE) == 0, f"descriptors that do not block: {len(got)} of {len(data)}")


def test_errors(check):
    (TMP / "both").write_bytes(b"once\n")
    with open(TMP / "both", "ab") as both:
        code, _, err = weir(FAST, TMP / "both", stdout=both)
    check((code, (TMP / "both").read_bytes()) == (3, b"once\n") and "also the output" in err, f"a file that would grow for ever: {code}, {err}")
    for words, code, part in (
            (("fixed-window 5/s",), 2, 'a stream cannot be limited by "fixed-window 5/s"; write one token-bucket'),
            (("leaky-bucket 5/s burst 2",), 2, "a stream cannot be limited by"),
            (("token-bucket 5/s, token-bucket 9/m",), 2, "a stream cannot be limited by"),
            ((FAST, "--store", "shm:/x"), 2, "--store needs --key KEY"), ((FAST, "--server", "localhost:1"), 2, "--server needs --key KEY"),
            ((FAST, "--key", "k", "--store", "memory:"), 2, "a memory: store is private to one process"),
            ((FAST, "--key", "k", "--server", "127.0.0.1:1"), 3, "is `weir serve` running there?"),
            ((FAST, "--key", "k", "--store", "redis://127.0.0.1:1"), 3, "the store cannot be reached"),
            ((), 2, "LIMIT is missing"), (("token-bucket",), 2, "invalid limit"),
            ((FAST, str(TMP / "missing")), 3, "No such file or directory"), ((FAST, str(TMP)), 3, "Is a directory"),
            ((FAST, *["-"] * 65), 2, "too many FILE: expected at most 64")):
        got, out, err = weir(*words, given=b"x")
        check.equal((got, out), (code, b""), f"{words}: {err}")
        check.contains(err, part, f"{words}")
    (TMP / "first").write_bytes(b"first")
    check.equal(weir(FAST, TMP / "first", TMP / "missing", given=b"")[:2], (3, b""), "all files are opened before anything is written")
    with open("/dev/full", "wb") as full:
        code, _, err = weir(FAST, given=b"x", stdout=full)
    check.equal(code, 3, "a full disk")
    check.contains(err, "cannot write to standard output: No space left on device", "a full disk, in words")


# ---- progress ----

def watched(*words, given=None):
    """What a terminal shows of it, as one text."""
    main, side = pty.openpty()
    job = subprocess.Popen([WEIR, "pipe", *words], stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=side, env=ENV)
    os.close(side)
    if given is not None:
        job.stdin.write(given)
        job.stdin.close()
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(main)
    return job.wait(timeout=PATIENCE), shown.decode()


def test_progress(check):
    (TMP / "data").write_bytes(b"line\n" * 20000)
    code, shown = watched("token-bucket 80k/s burst 10k", str(TMP / "data"))
    frames = shown.split("\r")
    check.equal(code, 0, "with progress")
    check(any(re.fullmatch(r"[\d.]+ kB  [\d.]+ k?B/s  0:00:\d\d  \d+%  0:00:\d\d left\x1b\[K", frame) for frame in frames[1:-1]),
          f"a file: bytes, speed, time, part and time left: {frames}")
    check(re.fullmatch(r"100 kB  [\d.]+ k?B/s  0:\d\d:\d\d  100%  0:00:00 left\x1b\[K", frames[-2]) is not None, f"its last words: {frames[-2]!r}")
    _, shown = watched("token-bucket 10k/s burst 8k", "--lines", given=b"line\n" * 20000)
    check(re.search(r"\r20\.0 klines  100 kB  [\d.]+ k?lines/s  0:\d\d:\d\d\x1b\[K\r\n$", shown) is not None, f"lines of a stream: {shown!r}")
    check("left" not in shown, "nobody knows how long a stream is")
    check.equal(watched(FAST, "--quiet", str(TMP / "data")), (0, ""), "--quiet")


TESTS = [test_unchanged, test_lines_are_counted, test_never_faster, test_shared, test_reader_goes_away, test_odd_descriptors, test_errors,
         test_progress]

if __name__ == "__main__":
    result = checks.run(TESTS, sys.argv[1:])
    subprocess.run(["rm", "-rf", str(TMP)], check=False)
    sys.exit(result)
