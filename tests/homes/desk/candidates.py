#!/usr/bin/env python3
"""weir replay under several candidates: each decides what the model decides, candidates in one pass are as good as alone, all reports say the same.

    tests/homes/desk/candidates.py [NAME …]
"""
import collections
import gzip
import html
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from lib import abuse_tools, checks, desk, weir_server

T = 1794810525  # 2026-11-16T06:28:45Z
MODEL = pathlib.Path(__file__).resolve().parents[2] / "model" / "replay.py"
WEIR = weir_server.WEIR
KEYS = 60_000  # more than 4 MB can hold
LIMITS = ["token-bucket 2/s burst 5", "token-bucket 20/m stepped", "leaky-bucket 1/s burst 3", "fixed-window 9/10s",
          "fixed-window 9/10s from-first", "sliding-log 8/10s", "sliding-window 9/10s precision 1s", "sliding-counter 9/10s",
          "smooth 5/s", "warmup 5/s over 10s", "concurrent 3 lease 5s", "fixed-window 12/month", "fixed-window 7/day",
          "token-bucket 1/s burst 5, fixed-window 30/m", "token-bucket 3/s cost 2, sliding-log 50/m"]

Done = collections.namedtuple("Done", "out err code")


def weir(*words, text=None):
    done = subprocess.run([str(WEIR), "replay", *map(str, words)], input=text, capture_output=True, timeout=600,
                          env=weir_server.environment())
    return Done(done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="surrogateescape"), done.returncode)


def stamp(at):
    return time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at))


def rows(draw, n, keys=6):
    """Requests of a minute or so: (second, address, path, bytes)."""
    at = T
    for _ in range(n):
        at += draw.choice([0, 0, 0, 0, 1, 1, 2, 7])
        yield at, f"203.0.113.{draw.randint(1, keys)}", draw.choice(["/", "/login", "/users/7"]), draw.randint(0, 5)


def combined(some):
    return "".join(f'{ip} - - [{stamp(at)}] "GET {path} HTTP/1.1" 200 {size} "-" "curl/8.1"\n' for at, ip, path, size in some).encode()


FORMATS = {
    "combined": combined,
    "common": lambda some: re.sub(rb' "-" "curl/8.1"', b"", combined(some)),
    "json": lambda some: "".join(json.dumps({"time": at, "remote_addr": ip, "request": f"GET {path} HTTP/1.1", "status": 200,
                                             "body_bytes_sent": size}) + "\n" for at, ip, path, size in some).encode(),
    "csv": lambda some: ("time,ip,path,bytes\n" + "".join(f"{at},{ip},{path},{size}\n" for at, ip, path, size in some)).encode(),
    "envoy": lambda some: "".join(
        f'[{time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))}.250Z] "GET {path} HTTP/1.1" 200 - 1 {size} 3 2 "{ip}" "curl/8.1" '
        f'"b2" "shop.example.com" "10.0.0.1:80"\n' for at, ip, path, size in some).encode(),
    "traefik": lambda some: "".join(
        f'{ip} - - [{stamp(at)}] "GET {path} HTTP/1.1" 200 {size} "-" "curl/8.1" 42 "web@docker" "http://10.0.0.9:80" 3ms\n'
        for at, ip, path, size in some).encode(),
    "haproxy": lambda some: "".join(
        f'Nov 16 06:28:45 lb haproxy[7]: {ip}:5 [{time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(at))}.125] web app/a 0/0/0/3/3 200 '
        f'{size} - - ---- 1/1/0/0/0 0/0 "GET {path} HTTP/1.1"\n' for at, ip, path, size in some).encode(),
}


def model(limits, log, *words):
    """What the model decides about the arrivals that the reader gives."""
    seen = desk.read("-", *words, text=log)
    trace = "".join(f"{t // 10**6}.{t % 10**6:06d},{desk_quoted(key)},{cost}\n" for t, key, cost in zip(seen.times, seen.keys, seen.costs))
    done = subprocess.run([sys.executable, MODEL, limits], input=trace.encode(), capture_output=True, timeout=600, check=False)
    return done.stdout.decode() or done.stderr.decode()


def desk_quoted(key):
    return '"' + key.replace('"', '""') + '"' if "," in key or '"' in key else key


def test_formats(check):
    draw = random.Random(checks.seed())
    for name, make in FORMATS.items():
        log = make(rows(draw, 150))
        for limits in ("token-bucket 1/s burst 3", "sliding-window 2/10s precision 1s, fixed-window 30/m"):
            got = weir(limits, "--decisions", text=log)
            check.equal(got.out, model(limits, log), f"{name}, {limits}: as the model {got.err}")
            check(",0," in got.out, f"{name}, {limits}: something is denied")
        got = weir("token-bucket 3/s burst 9", "--decisions", "--key", "path,ip", "--cost", "bytes", text=log)
        if name != "common":
            check.equal(got.out, model("token-bucket 3/s burst 9", log, "--key", "path,ip", "--cost", "bytes"),
                        f"{name}: keys of two parts, a cost {got.err}")
        told = json.loads(weir("token-bucket 1/s", "--json", text=log).out)
        check.equal(told["log"]["files"][0]["format"], name, f"{name}: is detected")


def test_kinds(check):
    draw = random.Random(checks.seed() + 1)
    log = combined(rows(draw, 300))
    names = [f"c{i}" for i in range(len(LIMITS))]
    words = [word for name, limits in zip(names, LIMITS) for word in ("--limit", f"{name}={limits}")]
    together = weir("--decisions", *words, text=log)
    check.equal(together.code, 0, f"all kinds at once: {together.err}")
    lines = together.out.splitlines()
    check.equal(lines[0].split(",")[-1], "candidate", "its header")
    for name, limits in zip(names, LIMITS):
        mine = [line.rpartition(",")[0] for line in lines[1:] if line.endswith("," + name)]
        alone = weir(limits, "--decisions", text=log)
        stored = weir(limits, "--decisions", "--store", "memory:16m", text=log)
        check.equal(alone.out.splitlines()[1:], mine, f"{limits}: in one pass as alone {alone.err}")
        check.equal(stored.out, alone.out, f"{limits}: as a store decides {stored.err}")
        check.equal(alone.out, model(limits, log), f"{limits}: as the model decides")
    told = json.loads(weir("--json", *words, text=log).out)
    for name, limits, it in zip(names, LIMITS, told["candidates"]):
        mine = [line.split(",") for line in lines[1:] if line.endswith("," + name)]
        denied = collections.Counter(row[1] for row in mine if row[3] == "0")
        check.equal((it["allowed"], it["denied"], it["keys_denied"]), (len(mine) - denied.total(), denied.total(), len(denied)),
                    f"{limits}: counts")
        check.equal({row["key"]: row["denied"] for row in it["most_denied"]}, dict(denied), f"{limits}: the worst keys")
        delayed = collections.Counter(row[1] for row in mine if row[3] == "1" and float(row[8]) > 0)
        check.equal((it["delayed"], it["keys_delayed"]), (delayed.total(), len(delayed)), f"{limits}: delayed")
        check.equal({row["key"]: row["delayed"] for row in it["most_delayed"]}, dict(delayed), f"{limits}: the keys that wait most")
        check.equal(it["longest_locked_out"], locked_out(mine), f"{limits}: locked out")
        check.equal(it["highest_admitted"], highest(mine), f"{limits}: highest rates")
        check.equal(sum(it["timeline"]["allowed"]), it["allowed"], f"{limits}: the timeline has all")
        owners = sum(1 for row in mine if row[1] in denied)
        check.equal(it["requests_of_keys_denied"], owners, f"{limits}: traffic of keys that were denied")


def locked_out(mine):
    """From the first denial of a run to its last one, and until that one would be admitted. When the key comes again does not matter."""
    since, longest = {}, 0
    for row in mine:
        at, retry = round(float(row[0]) * 1e6), 0 if row[6] == "never" else round(float(row[6]) * 1e6)
        if row[3] == "0":
            longest = max(longest, at + retry - since.setdefault(row[1], at))
        else:
            since.pop(row[1], None)
    return longest / 1e6


def highest(mine):
    ahead = collections.Counter(int(float(row[0]) + float(row[8]) + 1e-9) for row in mine if row[3] == "1")
    first, last = min(ahead, default=0), max(ahead, default=0)
    return {name: max(sum(ahead[s + i] for i in range(length)) for s in range(first - length, last + 1)) if ahead else 0
            for name, length in (("1s", 1), ("10s", 10), ("1m", 60))}


def test_reports(check):
    """Terminal, JSON and page say the same."""
    draw = random.Random(checks.seed() + 2)
    log = combined(rows(draw, 3000, 30)) + b"not a line <script>alert(1)</script>\n"
    words = ["--limit", "tight=token-bucket 1/s burst 2", "--limit", "two=fixed-window 20/m, sliding-log 3/s", "--limit", "slow=leaky-bucket 1/s burst 9"]
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        page = pathlib.Path(folder) / "report.html"
        text = weir(*words, "--report", page, text=log)
        told = json.loads(weir(*words, "--json", text=log).out)
        check.equal((text.code, text.err), (0, ""), "it works")
        got = html.unescape(page.read_text(encoding="utf-8")).replace("\u202f", "")
        check("<script" not in page.read_text(), "nothing of a log is markup")
        check("@media screen and (prefers-color-scheme:dark)" in got, "dark colours are for screens, not for paper")
        check("http" not in re.sub(r"http-equiv", "", page.read_text()), "nothing comes from a network")
    for it in told["candidates"]:
        part = got[got.index(f"<h2>{it['name']}</h2>"):]
        facts = dict((what, number) for number, what in re.findall(r"<div><b>(\d+)</b><span>([^<]*)</span>", part[:part.index("</section>")]))
        check.equal([int(facts[what]) for what in ("allowed", "denied", "delayed", "keys denied", "most admitted in a second", "in a minute")],
                    [it["allowed"], it["denied"], it["delayed"], it["keys_denied"], it["highest_admitted"]["1s"], it["highest_admitted"]["1m"]],
                    f"{it['name']}: page and JSON")
        shown = text.out[text.out.index(f"\n{it['name']}  {it['limits']}\n"):]
        shown = shown[:shown.index("█ allowed")]
        numbers = [int((re.search(rf"^  {what} +(\d+)", shown, re.M) or "00")[1]) for what in ("allowed", "denied", "keys denied", "highest rate")]
        check.equal(numbers, [it["allowed"], it["denied"], it["keys_denied"], it["highest_admitted"]["1s"]], f"{it['name']}: terminal and JSON")
        locked = re.search(r"^  denied for +(\S+)", shown, re.M)
        check(bool(locked) == (it["denied"] > 0) and (not locked or f"<b>{locked[1]}</b><span>denied for" in part), f"{it['name']}: terminal and page have the same duration: {locked}")
        bars = [tuple(map(int, numbers)) for numbers in re.findall(r": (\d+) allowed, (\d+) of them delayed, (\d+) denied</title>", part[:part.index("</svg>")])]
        timeline = it["timeline"]
        wanted = [row for row in zip(timeline["allowed"], timeline["delayed"], timeline["denied"]) if row[0] + row[2]]
        check.equal(bars, wanted, f"{it['name']}: the bars of the page")
        check.equal(sum(row["denied"] for row in it["denied_by"]), it["denied"], f"{it['name']}: what denied")
    check.contains(text.out, "1  cannot be read", "the terminal says what it could not read")
    check.contains(got, "could not be read", "the page, too")
    check.equal(told["log"]["unreadable"], 1, "JSON, too")


def test_hostile(check):
    """Keys of a log that are commands of a terminal, or not UTF-8; a report that would take the place of the log."""
    keys = ["\x1b[31mred", "\x9b31mred", "\x85", "\x7f", "\r\nnext", "<b>", "grün", "\u061c\u200e\u200f\u202atxt.exe\u202e", "\u2066a\u2069"]
    unsafe = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
    log = "".join(json.dumps({"time": T + i, "user": key, "status": 200}, ensure_ascii=escaped) + "\n"
                  for i, escaped in enumerate((True, False)) for key in keys).encode()
    log += b'{"time": %d, "user": "\xff\x9b", "status": 200}\n' % (T + 2)
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        page = pathlib.Path(folder) / "report.html"
        text = weir("token-bucket 1/h", "--key", "user", "--report", page, text=log)
        check.equal((text.code, text.err), (0, ""), "hostile keys: it works")
        check("?[31mred" in text.out and "?31mred" in text.out and "grün" in text.out, f"hostile keys: they are shown: {text.out}")
        check.equal(re.findall(unsafe, text.out), [], "hostile keys: nothing that a terminal obeys")
        check.equal(re.findall(f"{unsafe}|<b>red", page.read_text(encoding="utf-8")), [], "hostile keys: nor in the page")
        json.loads(weir("token-bucket 1/h", "--key", "user", "--json", text=log).out)
        same = pathlib.Path(folder) / "access.log"
        same.write_bytes(log)
        link = pathlib.Path(folder) / "link.html"
        link.symlink_to(same)
        with open(same, "rb") as file:
            from_input = subprocess.run([str(WEIR), "replay", "token-bucket 1/h", "--report", str(same)], stdin=file, capture_output=True,
                                        timeout=600, check=False, env=weir_server.environment())
        check.equal((from_input.returncode, from_input.stdout), (2, b""), "the log as the report: by standard input")
        for report in (same, link):
            got = weir("token-bucket 1/h", "--report", report, same)
            check(got.code == 2 and "that is the log" in got.err, f"the log as the report: {got}")
        check.equal(same.read_bytes(), log, "the log as the report: it is as it was")


def test_damage(check):
    log = combined(rows(random.Random(5), 5000))
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as name:
        folder = pathlib.Path(name)

        def file(name, data):
            (folder / name).write_bytes(data)
            return folder / name

        cut = weir("token-bucket 1/s", "--json", file("cut.gz", gzip.compress(log)[:-40]))
        check.equal(cut.code, 3, "a truncated gzip fails")
        check.contains(cut.err, "cut.gz", "it says which file")
        check(0 < json.loads(cut.out)["requests"] <= 5000, "and counts what could be read")
        check.equal(json.loads(weir("token-bucket 1/s", "--json", file("good.gz", gzip.compress(log))).out)["requests"], 5000, "a whole one")
        many = weir("token-bucket 1/s", "--json", file("a.log", log), file("b.log", log))
        check.equal(json.loads(many.out)["requests"], 10000, "two files")
        check.equal(weir("token-bucket 1/s", folder).code, 3, "a directory")
        check.equal(weir("token-bucket 1/s", folder / "none").code, 3, "no such file")
        binary = weir("token-bucket 1/s", file("binary", bytes(range(256)) * 400))
        check(binary.code == 2 and "unknown format" in binary.err, f"binary data: {binary}")
        unknown = weir("token-bucket 1/s", text=b"what is this\nnobody knows\n")
        check(unknown.code == 2 and "--format" in unknown.err, f"an unknown format says how to go on: {unknown}")
        long = weir("token-bucket 1/s", "--json", text=log + b"x" * (1 << 20) + b"\n" + log)
        check.equal((json.loads(long.out)["requests"], json.loads(long.out)["log"]["unreadable"]), (10000, 1), "a line of a megabyte")
        check.equal(weir("token-bucket 1/s", file("empty", b"")).code, 0, "an empty file")
        check.equal(weir("token-bucket 1/s", "--report", folder / "no" / "page.html", text=log).code, 3, "a page that cannot be written")
        nothing = weir("token-bucket 1/s", "--format", "combined", text=b"x\ny\n")
        check(nothing.code == 2 and "no line can be read" in nothing.err, f"no line in the format: {nothing}")


def test_arguments(check):
    log = combined(rows(random.Random(5), 10))
    for words, part in [
            ((), "LIMITS is missing"), (("--limit", "token-bucket 1/s"), "expected NAME=LIMITS"),
            (("--limit", "a=token-bucket 1/s", "--limit", "a=token-bucket 2/s"), "given twice"),
            (("--limit", "a=nothing 1/s"), "nothing"), (("--limit", "a=token-bucket 1/s", "--policies", "x"), "exclude each other"),
            (("--limit", "a=token-bucket 1/s", "--store", "memory:1m"), "--store keeps the states of one limit"),
            (("token-bucket 1/s", "--memory", "5"), "expected a size"), (("token-bucket 1/s", "--memory", "2x"), "expected a size"),
            (("token-bucket 1/s", "--share", "default=50%"), "no field class; they have ip, "),
            (("token-bucket 1/s", "--share-by", "header.x-class"), "--share says what the classes may use"),
            (("token-bucket 1/s", "--share", "default=50%", "--share-by", "header.x-class"), "no field header.x-class"),
            (("token-bucket 1/s", "--share", "default=50%", "--share-by", "a b"), "a b"),
            (("token-bucket 1/s", "--key", "nobody"), "no field nobody"), (("token-bucket 1/s", "--timezone", "CET"), "offset from UTC")]:
        got = weir(*words, text=log)
        check(got.code == 2 and part in got.err and not got.out, f"refused: {' '.join(words)}: {got}")


def test_memory(check):
    """Any number of keys in bounded memory; it says what it forgot."""
    lines = "".join(f'10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255} - - [{stamp(T + i // 500)}] "GET / HTTP/1.1" 200 5 "-" "x"\n'
                    for i in range(KEYS)).encode()
    words = ["--limit", "a=token-bucket 1/s burst 2", "--limit", "b=sliding-log 3/m", "--json"]
    exact = json.loads(weir(*words, text=lines).out)
    check.equal((exact["keys"], exact["keys_forgotten"], exact["approximate"]), (KEYS, 0, False), "enough memory: exact")
    few = json.loads(weir(*words, "--memory", "2m", text=lines).out)
    check.equal(few["requests"], KEYS, "little memory: every request is counted")
    check(few["approximate"] and few["keys_forgotten"] > KEYS // 2, f"little memory: it says so: {few['keys_forgotten']}")
    check.within(few["keys"], KEYS * 0.94, KEYS * 1.06, "little memory: about as many keys")
    short = weir("--limit", "a=token-bucket 1/s", "--memory", "2m", "--json", text=lines)
    check.equal(json.loads(short.out)["approximate"], False, "states that are fresh again may be forgotten: still exact")
    again = lines + lines.replace(b"16/Nov", b"17/Nov")
    fresh = [json.loads(weir("--limit", "a=token-bucket 1/s", "--limit", "b=sliding-log 1/s", "--memory", memory, "--json", text=again).out)
             for memory in ("1g", "4m")]
    check.equal([it["approximate"] for it in fresh], [False, False], "keys that come again")
    check(fresh[1]["keys_forgotten"] > KEYS // 2, f"keys that come again: some were forgotten: {fresh[1]['keys_forgotten']}")
    check.equal([[c["allowed"] for c in it["candidates"]] for it in fresh], [[2 * KEYS] * 2] * 2, "keys that come again: the same decisions")
    text = weir(*words[:-1], "--memory", "2m", text=lines)
    check.contains(text.out, "approximate:", "the terminal says so, too")

    def peak(memory):
        code = ("import resource,subprocess,sys;subprocess.run(sys.argv[1:],stdin=sys.stdin,stdout=subprocess.DEVNULL,check=True);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", code, str(WEIR), "replay", *words, "--memory", memory], input=lines,
                              capture_output=True, timeout=600, check=True, env=weir_server.environment())
        return int(done.stdout)

    if not abuse_tools.is_sanitized():
        check.at_most(peak("2m"), 32 << 10, "KiB of memory, of them 2m for keys")


def test_times(check):
    """Whatever the times are, the timeline has every request, in bins that are few enough."""
    draw = random.Random(checks.seed() + 4)
    for most in (0.05, 90, 7000, 4e5, 9e9):
        for ordered in (True, False):
            times = [draw.random() * most for _ in range(2000)]
            trace = "".join(f"{at:.6f},k{i % 9}\n" for i, at in enumerate(sorted(times) if ordered else times)).encode()
            told = json.loads(weir("token-bucket 5/s burst 50", "--json", text=trace).out)
            timeline = told["timeline"]
            check.equal((sum(timeline["allowed"]), sum(timeline["denied"])), (told["allowed"], told["denied"]), f"up to {most} s, {ordered}: all")
            check(len(timeline["allowed"]) <= 480 and timeline["start"] <= told["first"] <= told["last"] < timeline["start"] + timeline["span"],
                  f"up to {most} s, {ordered}: the span {timeline['start']} {timeline['span']}")
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        page = pathlib.Path(folder) / "page.html"
        for seconds, said in ((86400.5, "1d"), (172801, "2d"), (3600.4, "1h")):
            out = weir("token-bucket 1/s", "--report", page, text=f"0,a\n{seconds},b\n".encode()).out
            check.contains(out, f" over {said}\n", "a span is not rounded up as a wait is")
            check.contains(page.read_text(), f"<b>{said}</b><span>from the first to the last", "nor on the page")


def test_follow(check):
    """A log that grows: decisions come as lines do, and a signal ends it with all that was read."""
    lines = combined(rows(random.Random(7), 400)).splitlines(keepends=True)
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        path = pathlib.Path(folder) / "access.log"
        path.write_bytes(b"".join(lines[:300]))
        with subprocess.Popen([str(WEIR), "replay", "token-bucket 1/s", "-f", "--decisions", str(path)], stdout=subprocess.PIPE,
                              env=weir_server.environment()) as process:
            try:
                process.stdout.readline()
                process.stdout.readline()
                with open(path, "ab") as file:
                    file.write(b"".join(lines[300:]))
                seen = 1
                while seen < 310:  # some of the new ones
                    seen += process.stdout.readline().count(b"\n")
                process.send_signal(signal.SIGINT)
                rest = process.stdout.read()
                process.wait(weir_server.STOP_SECONDS)
            finally:
                process.kill()
        check.equal((seen + rest.count(b"\n"), process.returncode), (400, 0), "every line is decided")


def test_gaps(check):
    """More than a day between all lines: each keeps its key and its attributes."""
    some = [(T + 3 * 86400 * i, f"192.0.2.{10 ** i}", path, 1) for i, path in enumerate(("/login", "/other/page", "/login"))]
    got = weir("fixed-window 1/m", "--decisions", text=combined(some))
    check.equal([row.split(",")[1] for row in got.out.splitlines()[1:]], [ip for _, ip, _, _ in some], "gaps: the keys")
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as name:
        path = pathlib.Path(name) / "policies.yaml"
        path.write_text("version: 1\npolicies:\n  - {name: login, deny: [{path: /login}]}\n", encoding="utf-8")
        got = weir("--policies", path, "--decisions", text=combined(some))
    check.equal([row.split(",")[3] for row in got.out.splitlines()[1:]], ["0", "1", "0"], f"gaps: the attributes {got.err}")


POLICIES = """version: 1
policies:
  - name: login
    match: {path: /login}
    limits:
      - {name: per-ip, key: ip, limit: token-bucket 1/m burst 3}
  - name: all
    deny: [{ip: 203.0.113.2}]
    limits:
      - {name: per-ip, key: ip, limit: fixed-window 3/m}
"""


def test_policies(check):
    draw = random.Random(checks.seed() + 3)
    some = list(rows(draw, 800))
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as name:
        path = pathlib.Path(name) / "policies.yaml"
        path.write_text(POLICIES, encoding="utf-8")
        got = weir("--policies", path, "--json", text=combined(some))
        check.equal(got.code, 0, f"policies: {got.err}")
        told = json.loads(got.out)
        check.equal(told["requests"], 800, "policies: requests")
        by = {row["limit"]: row["denied"] for row in told["denied_by"]}
        listed = sum(ip == "203.0.113.2" for _, ip, _, _ in some)
        check.equal(by["deny lists"], listed, f"policies: what the list denied: {by}")
        check(by["login/per-ip"] > 0 and by["all/per-ip"] > 0, f"policies: what limits denied: {by}")
        check.equal(sum(by.values()), told["denied"], "policies: all that was denied")
        check.equal(weir("--policies", path, text=combined(some)).code, 0, "policies: for people")
        check.equal(got.err, "", "policies: all of them apply")
        path.write_text(POLICIES.replace("path: /login", "path: /loggin").replace("key: ip, limit: fixed", "key: tenant, limit: fixed"), encoding="utf-8")
        for options in (("--json",), ()):
            idle = weir("--policies", path, *options, text=combined(some))
            check.equal((idle.code, [line.split(" applied to no request")[0] for line in idle.err.splitlines()]),
                        (0, ["weir replay: login/per-ip", "weir replay: all/per-ip", "weir replay: no line has a field tenant"]),
                        f"policies: what never applies is named: {idle.err}")
        path.write_text(POLICIES.replace("deny: [{ip: 203.0.113.2}]", "allow: [{ipp: 203.0.113.2}, {user: a}, {host: b}]"), encoding="utf-8")
        misspelt = weir("--policies", path, "--json", text=combined(some))
        check.equal(misspelt.err.splitlines(), ["weir replay: no line has a field ipp (did you mean ip?)"], "policies: what no line has is named")
        check.equal(json.loads(misspelt.out).get("unseen"), ["ipp"], "policies: also for machines")
        path.write_text("version: 1\npolicies:\n  - {name: a, match: {path: /login}, key: ip, limit: fixed-window 9/m}\n"
                        "  - {name: b, match: {path: /mine}, key: user, limit: fixed-window 9/m, missing: deny}\n", encoding="utf-8")
        odd = [(T + i, "192.0.2.1", target, 1) for i, target in enumerate(("/login", "/login%09", "/login%00", "/mine", "/login"))]
        by = {row["limit"]: row["denied"] for row in json.loads(weir("--policies", path, "--json", text=combined(odd)).out)["denied_by"]}
        check.equal(by, {"a": 0, "b": 0, "deny lists": 0, "missing: deny": 1, "refused with 400": 2}, "policies: what denies without a limit is told apart")
        missing = weir("--policies", path, text=combined(odd)).err
        check.contains(missing, "b applied to no request: its policy denied 1, because they have no value for the key (missing: deny)", "policies: why one never applies")
        path.write_text("version: 1\npolicies: 5\n", encoding="utf-8")
        check.equal(weir("--policies", path, text=combined(some)).code, 2, "policies: a bad file")
        check.equal(weir("--policies", path.parent / "none", text=combined(some)).code, 3, "policies: no file")


def test_shadow(check):
    """What limits in shadow would have denied is told apart, and counts as if they were enforced; for people, machines and on the page."""
    some = list(rows(random.Random(checks.seed() + 4), 800))
    policy = "version: 1\npolicies:\n  - {name: one, key: ip, limit: fixed-window 3/m%s}\n  - {name: two, match: {path: /login}, key: ip, limit: fixed-window 1/m%s}\n"
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as name:
        path, page = pathlib.Path(name) / "policies.yaml", pathlib.Path(name) / "page.html"

        def replay(first, second):
            path.write_text(policy % (first, second), encoding="utf-8")
            return json.loads(weir("--policies", path, "--json", text=combined(some)).out)

        check("shadow_denied" not in replay("", ""), "shadow: nothing is in shadow")
        alone = replay("", ", shadow: true")
        watched = replay(", shadow: true", ", shadow: true")
        told = {row["limit"]: row["denied"] for row in watched["shadow_denied_by"]}
        check.equal((watched["denied"], watched["allowed"]), (0, 800), "shadow: nothing is denied")
        check.equal(told["one"], alone["denied"], "shadow: as much as if it were enforced")
        check(max(told.values()) <= watched["shadow_denied"] <= sum(told.values()), f"shadow: requests that one of them would deny: {watched['shadow_denied']} of {told}")
        check.equal(alone["denied"] + alone["shadow_denied"], watched["shadow_denied"], "shadow: not those that are denied anyway")
        out = weir("--policies", path, "--report", page, text=combined(some)).out
        check.contains(out, f"  in shadow      {watched['shadow_denied']:10}  ", "shadow: for people")
        check.contains(out, f"  would be denied by (shadow)\n    {told['one']:13}  one\n    {told['two']:13}  two\n", "shadow: by which limits")
        most = watched["most_shadow_denied"]
        check.equal(sum(key["denied"] for key in most), watched["shadow_denied"], "shadow: of few keys all are named")
        check.equal({key["key"]: key["requests"] for key in most}, dict(collections.Counter(ip for _, ip, _, _ in some)), "shadow: their requests")
        for key in most:
            check(re.search(rf"^ +{key['denied']} of {key['requests']} +{re.escape(key['key'])}$", out.partition("Most denied, in shadow\n")[2], re.M), f"shadow: {key} for people")
            check.contains(page.read_text().partition("Keys that limits in shadow would deny most")[2], f"{key['key']}</td><td>{key['denied']}</td><td>{key['requests']}</td>", "shadow: the page, whom")
        path.write_text(policy % ("", ""), encoding="utf-8")
        enforced = json.loads(weir("--policies", path, "--json", text=combined(some)).out)
        check("most_shadow_denied" not in enforced, "shadow: nothing is in shadow, no list")
        path.write_text((policy % (", shadow: true", "")).replace(", match: {path: /login}", ", match: {path: /none}"), encoding="utf-8")
        one, path_one = json.loads(weir("--policies", path, "--json", text=combined(some)).out), policy.partition("\n  - {name: two")[0] + "\n"
        path.write_text(path_one % "", encoding="utf-8")
        check.equal(one["most_shadow_denied"], json.loads(weir("--policies", path, "--json", text=combined(some)).out)["most_denied"], "shadow: whom it would deny if it were enforced")
        check.contains(out, "(ip; policies have their own)", "policies: whose keys are counted")
        check.contains(page.read_text(), "What would deny, in shadow", "shadow: the page")
        check.contains(page.read_text(), "Keys are counted by ip here, but policies have keys of their own. If yours is an API key, count by it: <code>--key header.x-api-key</code>", "page: whose keys")
        check("each one has a limit of its own" not in page.read_text(), "page: keys of policies are others")
        policy = "version: 1\npolicies:\n  - {name: keyed, match: {path: /login}, key: customer, missing: deny%s, limit: fixed-window 3/m}\n  - {name: other, match: {path: /login}, allow: [{path: '*'}], key: ip%s, limit: fixed-window 1/m}\n"
        alone, watched = replay("", ""), replay(", shadow: true", "")
        check(alone["denied"] > 0, "shadow: nobody has a key")
        check.equal((watched["denied"], watched["shadow_denied"]), (0, alone["denied"]), "shadow: missing: deny as well")
        check.equal(watched["shadow_denied_by"], [{"limit": "keyed", "denied": alone["denied"]}], "shadow: by which limit")


if __name__ == "__main__":
    sys.exit(checks.run([test_formats, test_kinds, test_reports, test_hostile, test_damage, test_arguments, test_memory, test_times, test_follow, test_gaps, test_policies, test_shadow], sys.argv[1:]))
