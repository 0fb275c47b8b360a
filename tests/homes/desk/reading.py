#!/usr/bin/env python3
"""Files: packed, damaged, several, out of order, endless. Every line is an arrival or is counted with a reason.

    tests/homes/desk/reading.py [NAME …]
"""
import gzip
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import zlib

from lib import build, checks, desk, weir_server

T = 1794810525


def line(at, ip="10.0.0.1", rest=""):
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at))
    return f'{ip} - - [{stamp}] "GET / HTTP/1.1" 200 5 "-" "curl/8.1"{rest}\n'.encode()


def log(seconds, each=3):
    return b"".join(line(T + s, f"10.0.{s % 250}.{i}") for s in range(seconds) for i in range(each))


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def counted(check, seen, what):
    facts = seen.facts
    check.equal(facts["lines"], facts["arrivals"] + facts["filtered"] + facts["keyless"] + facts["unreadable"], f"{what}: every line")
    check.equal(len(seen.lines), facts["arrivals"], f"{what}: every arrival")


class Folder:
    def __init__(self):
        self.place = tempfile.TemporaryDirectory(prefix="weir-desk-")

    def __enter__(self):
        self.path = pathlib.Path(self.place.name)
        return self

    def __exit__(self, *_):
        self.place.cleanup()

    def __call__(self, name, data):
        (self.path / name).write_bytes(data)
        return self.path / name


def test_packed(check):
    text = log(2000)
    plain = desk.read("-", text=text)
    check.equal(plain.facts["arrivals"], 6000, "plain")
    packed = {"gzip": gzip.compress(text), "gzip, several members": gzip.compress(text[:70000]) + gzip.compress(text[70000:]),
              "gzip, zeros behind it": gzip.compress(text) + bytes(512), "zstd": zstd(text),
              "zstd, several frames": zstd(text[:70000]) + zstd(text[70000:]),
              **{f"zstd, a frame of kind {kind} to be skipped": bytes([0x50 + kind]) + b"\x2a\x4d\x18\x07\0\0\0skipped" + zstd(text)
                 for kind in (0, 1, 15)}}
    for name, data in packed.items():
        with Folder() as folder:
            seen = desk.read(folder("access.log", data))
        check.equal(seen.lines, plain.lines, f"{name}: the same {seen.error} {seen.files}")
        check.equal(seen.facts["damaged"], 0, f"{name}: not damaged")
        check.equal(desk.read("-", text=data).lines, plain.lines, f"{name}: from a pipe")
        check.equal((seen.facts["done"], seen.facts["size"]), (len(data), len(data)), f"{name}: how much is done")


def test_damaged(check):
    text = log(3000)
    whole = desk.read("-", text=text)
    for name, data in {"gzip": gzip.compress(text), "zstd": zstd(text)}.items():
        seen = desk.read("-", text=data[:len(data) // 2])
        counted(check, seen, f"{name}, truncated")
        check(0 < len(seen.lines) < 9000, f"{name}, truncated: what there is: {len(seen.lines)}")
        check.equal(seen.lines[:1000], whole.lines[:1000], f"{name}, truncated: the beginning")
        check(any(f"damage: truncated {name}" in it for it in seen.files), f"{name}, truncated: it says so: {seen.files}")
        bad = bytearray(data)
        bad[len(bad) // 2:len(bad) // 2 + 20] = b"\xff" * 20
        seen = desk.read("-", text=bytes(bad))
        counted(check, seen, f"{name}, damaged")
        check.equal(seen.facts["damaged"], 1, f"{name}, damaged: {seen.files}")
    seen = desk.read("-", text=gzip.compress(text) + b"garbage")
    check.equal((len(seen.lines), seen.facts["damaged"]), (9000, 1), f"gzip, garbage behind it: {seen.files}")
    half = gzip.compress(text)[:8]
    check.equal(desk.read("-", text=half).facts.get("damaged"), 1, "gzip, hardly begun")
    wide = subprocess.run(["zstd", "-q", "-c", "--long=28"], input=bytes(1 << 20), capture_output=True, check=True).stdout
    check(any("a zstd window over 128 MiB" in it for it in desk.read("-", text=wide).files), "zstd that needs too much memory")
    for magic, command in ((b"BZh91AY", "bzcat"), (b"\xfd7zXZ\0\0", "xzcat"), (b"PK\3\4\0\0", "unzip -p")):
        check.contains(desk.read("-", text=magic + bytes(100)).error, command, "packed with something else")


def test_lines(check):
    good = [line(T + i) for i in range(50)]
    odd = {"binary data": b"10.0.0.1 - - [\0\1\2\xff\xfe\n", "longer than 64 KiB": b"x" * 1000000 + b"\n",
           "not in the format": b"hello world\n", "no readable time": good[0].replace(b"Nov", b"Foo"),
           "a value that cannot be read": line(T, "unknown"), "another long one": line(T, "1.2.3.4", "x" * 70000)}
    for name, bad in odd.items():
        for place in (0, 25, 50):
            seen = desk.read("-", text=b"".join(good[:place] + [bad] + good[place:]))
            counted(check, seen, f"{name} at {place}")
            check.equal((seen.facts.get("unreadable"), seen.facts.get("arrivals")), (1, 50), f"{name} at {place}: {seen.error}")
            check(any(it.startswith(f"example -:{place + 1}:") for it in seen.files), f"{name} at {place}: its place {seen.files}")
    seen = desk.read("-", text=b"".join(good) + b"rubbish\n" * 5 + b"".join(good) * 10)
    check.equal((seen.facts["unreadable"], sum(it.startswith("example") for it in seen.files)), (5, 5), "five examples")
    crlf = b"".join(good).replace(b"\n", b"\r\n\r\n").rstrip(b"\r\n")
    check.equal(desk.read("-", text=b"\xef\xbb\xbf" + crlf).lines, desk.read("-", text=b"".join(good)).lines,
                "CRLF, empty lines, a byte order mark, no end of the last line")
    seen = desk.read("-", text=os.urandom(300000))
    check(seen.code == 1 and "unknown format" in seen.error and seen.error.isprintable() or "\n" in seen.error, f"noise: {seen.error!r}")
    seen = desk.read("-", text=b"")
    check.equal((seen.code, seen.facts["lines"], seen.files), (0, 0, ["file - empty plain by 0 lines 0 unreadable 0"]), "an empty file")
    check.contains(desk.read("/tmp").error, "is a directory; name the files in it", "a directory")
    check.contains(desk.read("/nowhere/access.log").error, "cannot open: No such file", "a file that is not there")


def test_order(check):
    chance = random.Random(checks.seed())
    sent = [T * 1000 + i * 40 for i in range(5000)]
    shown = sorted(sent, key=lambda ms: ms + chance.randrange(9000))
    text = b"".join(b"%d.%03d,%d\n" % (ms // 1000, ms % 1000, ms) for ms in shown)
    seen = desk.read("-", "--disorder", "10000000", text=text)
    check.equal(seen.keys, [str(ms) for ms in sent], "in order")
    check((seen.facts["late"], seen.facts["out_of_order"] > 0) == (0, True), f"none late: {seen.facts}")
    seen = desk.read("-", "--disorder", "1000000", text=text)
    counted(check, seen, "out of order beyond the bound")
    check(seen.facts["late"] > 0 and seen.times == sorted(seen.times), f"late ones are counted: {seen.facts['late']}")
    text = b"".join(line(T + s, f"10.0.0.{i}") for s in (0, 1, 3) for i in range(4))
    seen = desk.read("-", text=text)
    expected = [(T + s) * 10**6 + i * 250000 for s in (0, 1, 3) for i in range(4)]
    check.equal(seen.times, expected, "whole seconds are spread")
    check.equal(desk.read("-", "--no-spread", text=text).times, [it // 10**6 * 10**6 for it in expected], "or not")


def test_clock(check):
    steady = [line(T + i) for i in range(20)]
    for name, bad, place in (("ahead", line(T + 10**8), 10), ("the first", line(T + 10**8), 0), ("ahead, twice", line(T + 10**9), 19)):
        seen = desk.read("-", text=b"".join(steady[:place] + [bad] + steady[place:]))
        counted(check, seen, name)
        check.equal((seen.facts["unreadable"], seen.facts["late"], seen.facts["arrivals"]), (1, 0, 20), f"one line {name}: {seen.facts}")
        check(any("a time far away" in it for it in seen.files), f"one line {name}: {seen.files}")
    seen = desk.read("-", text=b"".join(steady) + b"".join(line(T + 10**7 + i) for i in range(5)))
    check.equal((seen.facts["jumps"], seen.facts["arrivals"], seen.facts["last_us"]), (1, 25, (T + 10**7 + 4) * 10**6), "a jump that stays")
    seen = desk.read("-", text=b"".join(steady) + b"".join(line(T - 10**7 + i) for i in range(5)))
    check.equal((seen.facts["late"], seen.facts["arrivals"]), (5, 25), "a clock that is set back")
    sparse = b"".join(line(T + i * 10**6) for i in range(10))
    check.equal(desk.read("-", text=sparse).facts["arrivals"], 10, "a log with a line every eleven days")


def test_files(check):
    chance = random.Random(checks.seed())
    with Folder() as folder:
        rotated = [folder("access.log", log(300)[200 * 3 * 85:]), folder("access.log.1", log(200)[:100 * 3 * 85])]
        parts = [[], [], []]
        for i in range(3000):
            parts[chance.randrange(3)].append(b"%d.%03d,k%d\n" % (T + i // 100, i % 100 * 10, i))
        servers = [folder(f"web{i}.csv", b"".join(part)) for i, part in enumerate(parts)]
        packed = [folder("web0.gz", gzip.compress(b"".join(parts[0]))), *servers[1:]]
        seen = desk.read(*rotated)
        check.equal((seen.times, seen.facts["late"]), (sorted(seen.times), 0), "rotated files in any order")
        for paths in (servers, packed, [packed[2], packed[0], packed[1]]):
            seen = desk.read("--disorder", "1", *paths)
            check.equal(seen.keys, [f"k{i}" for i in range(3000)], f"several servers: {seen.facts['late']} late")
        with open(servers[0], "rb") as standard:
            seen = desk.read("--disorder", "1", "-", *servers[1:], file=standard)
        check.equal(seen.keys, [f"k{i}" for i in range(3000)], "one of them is a file at standard input")
        many = [folder(f"day{i}.log", line(T + i * 3600)) for i in range(200)]
        chance.shuffle(many)
        check.equal(desk.read(*many, files=40).times, [(T + i * 3600) * 10**6 for i in range(200)], "more files than may be open")
        seen = desk.read(folder("a.json", b'{"time":%d,"ip":"10.0.0.1"}\n' % T), folder("b.log", line(T + 1)))
        check.equal((len(seen.keys), [it.split()[2] for it in seen.files]), (2, ["json", "combined"]), "several formats")
        check.contains(desk.read(rotated[0], folder.path).error, "is a directory", "a directory among them")
        check.equal(desk.read(rotated[0], folder("empty", b"")).facts["arrivals"], desk.read(rotated[0]).facts["arrivals"], "an empty file")


def test_follow(check):
    """Lines that are appended, a file that is renamed, one that is shortened; nothing is given twice."""
    with Folder() as folder:
        path = folder("access.log", b"")
        at = T
        with subprocess.Popen([str(desk.READ), "--follow", "--disorder", "1", "--key", "ip", str(path)], stdout=subprocess.PIPE,
                              env=weir_server.environment()) as reader:
            def grows(how, count):
                nonlocal at
                for i in range(count):
                    at += 1
                    how(line(at, f"10.0.0.{i}"))
                for i in range(count):
                    got = reader.stdout.readline().decode().split(",")
                    check.equal(got[1:2], [f"10.0.0.{i}"], "a line that came")

            def append(data):
                with open(path, "ab") as file:
                    file.write(data)
            try:
                grows(append, 3)
                append(line(at + 1, "10.9.9.9")[:30])
                os.rename(path, folder.path / "access.log.1")
                with open(folder.path / "access.log.1", "ab") as file:
                    file.write(line(at + 1, "10.9.9.9")[30:])
                at += 1
                check.equal(reader.stdout.readline().decode().split(",")[1], "10.9.9.9", "half a line, and its rest")
                grows(append, 3)
                os.truncate(path, 0)
                append(line(at + 1, "10.8.8.8"))
                at += 1
                check.equal(reader.stdout.readline().decode().split(",")[1], "10.8.8.8", "after it was shortened")
                for rest in (b"", b"x" * 100_000):
                    append(line(at + 1, "10.7.7.7").rstrip(b"\n") + rest)
                    os.rename(path, folder.path / "access.log.1")
                    append(line(at + 2, "10.6.6.6") + line(at + 3, "10.5.5.5"))
                    at += 3
                    wanted = ["10.7.7.7"] * (not rest) + ["10.6.6.6", "10.5.5.5"]
                    check.equal([reader.stdout.readline().decode().split(",")[1] for _ in wanted], wanted,
                                f"a line that never ended, of {len(rest)} bytes and more, and the next file")
            finally:
                reader.kill()


if __name__ == "__main__":
    sys.exit(checks.run([test_packed, test_damaged, test_lines, test_order, test_clock, test_files, test_follow], sys.argv[1:]))
