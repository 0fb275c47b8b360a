#!/usr/bin/env python3
"""`weir replay` of access logs: its decisions equal the model's, line by line, for logs of all programs; what it says of the
log, as text and as JSON; exit codes.

    tests/homes/desk/replaying.py [NAME …]
"""
import collections
import gzip
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from lib import build, checks, desk, nginx_server, weir_server

MODEL = build.ROOT / "tests" / "model" / "replay.py"
sys.path.insert(0, str(MODEL.parent))

import limits as language  # noqa: E402
import replay  # noqa: E402
from model import Model  # noqa: E402

TURNS = itertools.cycle(["token-bucket 1/s burst 2", "fixed-window 2/m", "sliding-log 2/10s, leaky-bucket 5/s burst 3",
                         "sliding-counter 3/10s"])  # two for each log
T = 1794810525


def weir(*words, text=None):
    done = subprocess.run([build.WEIR, "replay", *map(str, words)], input=text, capture_output=True, timeout=600,
                          env=weir_server.environment())
    return done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")


def combined(count, each=4):
    return b"".join(b'10.0.0.%d - - [%s] "GET /%d HTTP/1.1" 200 %d "-" "curl/8.1"\n' % (
        i % 7, time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + i // each)).encode(), i % 5, i) for i in range(count))


def like_the_model(check, what, log, *words):
    """What weir decides for the log, and the model for the arrivals that the reader's own program prints."""
    lines = desk.read(log, *words).lines
    trace = "".join(line + "\n" for line in lines)
    check(len(lines) > 0, f"{what}: there are lines")
    for limit in (next(TURNS), next(TURNS)):
        model = subprocess.run([sys.executable, "-B", str(MODEL), limit], input=trace, capture_output=True, text=True, check=True)
        code, out, err = weir(limit, "--decisions", log, *words)
        check.equal((code, out), (0, model.stdout), f"{what}, {limit}: {err}")


def test_model(check):
    logs = r"""
log_format members escape=json '{"time":"$time_iso8601","remote_addr":"$remote_addr","request":"$request","status":$status}';
access_log {folder}/combined combined;
access_log {folder}/members members;
"""
    with nginx_server.Nginx(logs, 'location / { return 200 "hello\\n"; }', module=False) as nginx:
        for request in desk.REQUESTS * 5:
            desk.send(nginx.port, request)
        nginx.stop()
        like_the_model(check, "nginx", nginx.folder / "combined")
        like_the_model(check, "nginx, JSON", nginx.folder / "members", "--key", "method", "--where", "path!=/login")
    with desk.Apache() as apache:
        apache.send(desk.REQUESTS * 5)
        apache.stop()
        like_the_model(check, "Apache, common", apache.log("common"))
        like_the_model(check, "Apache, combined", apache.log("combined"), "--cost", "bytes/1000")
    with desk.HAProxy() as haproxy:
        haproxy.send(desk.REQUESTS * 5)
        haproxy.syslog(5 * len(desk.REQUESTS))
        haproxy.stop()
        lines = [line for line in haproxy.log("output").read_bytes().splitlines() if b" web/<NOSRV> " in line]
        haproxy.log("httplog").write_bytes(b"\n".join(lines))
        like_the_model(check, "HAProxy", haproxy.log("httplog"))
    with desk.Caddy() as caddy:
        caddy.send(desk.REQUESTS * 5)
        caddy.stop()
        like_the_model(check, "Caddy", caddy.log("access.json"), "--key", "host")


def test_summary(check):
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        path = pathlib.Path(folder, "access.log")
        path.write_bytes(combined(400) + b"rubbish\n" + combined(400).replace(b"10.0.0.3", b"unknown"))
        code, out, err = weir("fixed-window 3/s", path, "--where", "path!=/4")
        code_json, text, _ = weir("fixed-window 3/s", path, "--where", "path!=/4", "--json")
        found = json.loads(text)
        bad = 1 + sum(1 for i in range(400) if i % 7 == 3 and i % 5 != 4)
        check.equal((code, code_json, err), (0, 0, ""), "exit codes")
        check.equal((found["log"]["lines"], found["log"]["unreadable"], len(found["log"]["examples"])), (801, bad, 5), "JSON: lines")
        check.equal(found["requests"] + found["log"]["filtered"] + bad, 801, "JSON: every line")
        check.equal(found["log"]["files"], [{"file": str(path), "format": "combined", "packing": "plain", "lines": 801,
                                             "unreadable": bad, "zone_assumed": False, "damage": ""}], "JSON: the file")
        for part in (f"{path}: combined, as its first 200 lines say", "        801\n", f"{bad}  cannot be read", f"{path}:401:1: ",
                     f"{found['log']['filtered']}  do not match --where", f"requests       {found['requests']:10}"):
            check.contains(out, part, "text")
        check.contains(weir("fixed-window 3/s", path, "--decisions")[2], "cannot be read", "decisions: on stderr")


def test_inputs(check):
    with tempfile.TemporaryDirectory(prefix="weir-desk-") as folder:
        plain, packed, cut = (pathlib.Path(folder, name) for name in ("access.log", "access.log.1.gz", "cut.gz"))
        plain.write_bytes(combined(800)[400 * 72:])
        packed.write_bytes(gzip.compress(combined(400)))
        cut.write_bytes(gzip.compress(combined(400))[:-200])
        limit = "fixed-window 3/s"
        whole = weir(limit, "--decisions", plain)[1]
        check(len(whole.splitlines()) > 300, "a log")
        check.equal(weir(limit, "--decisions", text=plain.read_bytes())[1], whole, "a pipe")
        with open(plain, "rb") as file:
            done = subprocess.run([build.WEIR, "replay", limit, "--decisions"], stdin=file, capture_output=True, check=False)
        check.equal(done.stdout.decode(), whole, "a file on standard input")
        for pipe in (f"<(cat {plain})", f"<(gzip -c {plain})", f"/dev/stdin < <(cat {plain})"):
            done = subprocess.run(["bash", "-c", f'"$0" replay "{limit}" --decisions {pipe}', build.WEIR], capture_output=True,
                                  env=weir_server.environment(), check=False)
            check.equal(done.stdout.decode(), whole, f"a pipe with a name: {pipe}: {done.stderr.decode()}")
        done = subprocess.run(["bash", "-c", f'"$0" replay "{limit}" --decisions <(echo 1,a; echo 2,b)', build.WEIR],
                              capture_output=True, env=weir_server.environment(), check=False)
        check.equal(len(done.stdout.splitlines()), 3, f"a trace from a pipe with a name: {done.stderr.decode()}")
        check.equal(weir(limit, "--decisions", text=gzip.compress(plain.read_bytes()))[1], whole, "packed, from a pipe")
        check.equal(weir(limit, "--decisions", "--format", "nginx", "-", text=plain.read_bytes())[1], whole, "with its format")
        code, out, err = weir(limit, plain, packed, "--json")
        check.equal((code, [it["packing"] for it in json.loads(out)["log"]["files"]]), (0, ["plain", "gzip"]), f"two files: {err}")
        code, out, err = weir(limit, cut)
        check(code == 3 and "requests" in out and "truncated gzip" in err, f"truncated: {code} {err}")
        for data, part in ((b"hello world, how are you\n", "unknown format"), (b"1.2.3.4 x\n" * 300, "unknown format"),
                           (b'{"a":1}\n', "unknown format"), (b"x" * 100000, "longer than 64 KiB")):
            code, out, err = weir(limit, text=data)
            check(code == 2 and out == "" and part in err, f"{data[:20]}: {code} {err}")
        code, out, err = weir(limit, text=b"\x1f\x8b\x08")
        check(code == 3 and "truncated gzip: it ends after 3 bytes" in err, f"three bytes of gzip: {code} {err}")
        code, out, err = weir(limit, "--json", text=b"x" * 100_000 + b"\n" + combined(400))
        check.equal((code, json.loads(out)["requests"], json.loads(out)["log"]["unreadable"]), (0, 400, 1), f"a long first line: {err}")
        code, out, err = weir(limit, "--format", "common", text=b"a\nb\n")
        check(code == 2 and "no line can be read" in err, f"nothing is readable: {code} {err}")
        code, out, err = weir(limit, folder)
        check(code in (2, 3) and folder in err, f"a directory: {code} {err}")
        code, out, err = weir(limit, "/nowhere", plain)
        check(code == 3 and "cannot open" in err, f"a file that is not there: {code} {err}")


def test_shares(check):
    """Classes that a field of the log says, against the model: each class has its own size of the limit, and all have one state."""
    rng = random.Random(checks.seed())
    percents = {"critical": 100, "batch": 50, "default": 25}
    classes = ["critical", "batch", "Batch", "other", None]
    rows = [(T + i // 9, f"10.0.0.{rng.randrange(3)}", rng.choice(classes), rng.randrange(3)) for i in range(300)]
    as_json = "".join(json.dumps({"time": at, "ip": ip, "cost": cost, **({"headers": {"X-Class": name}} if name else {})}) + "\n"
                      for at, ip, name, cost in rows).encode()
    as_text = "".join(f'{ip} [{time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at))}] {cost} "{name or "-"}"\n'
                      for at, ip, name, cost in rows).encode()
    as_csv = "time,ip,cost,class\n" + "".join(f"{at},{ip},{cost},{name or ''}\n" for at, ip, name, cost in rows)
    as_trace = "time,key,cost,class\n" + "".join(f"{at},{ip},{cost},{name or ''}\n" for at, ip, name, cost in rows)
    share = ",".join(f"{name}={percent}%" for name, percent in percents.items())
    for text in ("token-bucket 1/s burst 12", "sliding-log 9/10s, fixed-window 40/m", "leaky-bucket 2/s burst 7"):
        for what, log, by, *words in (("JSON", as_json, "header.x-class"), ("JSON, lower case", as_json, "lower(header.x-class)"),
                                      ("CSV", as_csv.encode(), None), ("trace", as_trace.encode(), None),
                                      ("text", as_text, "header.x-class", "--format", '$remote_addr [$time_local] $cost "$http_x_class"')):
            words = [*words, *(["--share-by", by] if by else []), "--share", share, "--memory", "16m"]
            code, out, err = weir(text, "--decisions", *words, text=log)
            model, expected = Model(), [replay.HEADER + ",class"]
            count = collections.Counter()
            for at, ip, name, cost in rows:
                of_second = sum(row[0] == at for row in rows)
                at_us = at * 10**6 + (0 if what == "trace" else count[at] * 10**6 // of_second)
                count[at] += 1
                name = (name or "").lower() if "lower" in what else name or ""
                limit = [language.reduced(it, percents.get(name, percents["default"])) for it in language.parse(text)]
                a = model.take(at_us, ip, limit, cost, "default")[0]
                expected.append(f"{replay.seconds(at_us)},{ip},{cost},{a.allowed:d},{a.limit},{a.remaining},{replay.seconds(a.retry_after)},"
                                f"{replay.seconds(a.reset_after)},{replay.seconds(a.delay)},{name}")
            check.equal((code, out.splitlines()), (0, expected), f"{what}, {text}: {err}")
            code, out, err = weir(text, "--json", *words, text=log)
            told = json.loads(out)
            check.equal(sum(it["requests"] for it in told["classes"]), len(rows), f"{what}, {text}: every request has a class")
            check.equal(sum(it["allowed"] for it in told["classes"]), told["allowed"], f"{what}, {text}: what classes got adds up")


if __name__ == "__main__":
    sys.exit(checks.run([test_model, test_shares, test_summary, test_inputs], sys.argv[1:]))
