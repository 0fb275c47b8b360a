#!/usr/bin/env python3
"""The command line on a running server (--server): the same output and exit codes as with a store of its own, over TCP,
TLS and a unix socket, with tokens; and what it says when something is wrong."""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

from lib import checks
from lib.build import WEIR
from lib.h2_server import Server

ADMIN, TOKEN = "the-admin-of-the-desk", "whoever-asks-the-desk"


def weir(*words, env=None, text=None):
    """Exit code, stdout, stderr."""
    clean = {name: value for name, value in os.environ.items() if name not in ("WEIR_TOKEN", "WEIR_ADMIN_TOKEN")}
    done = subprocess.run([WEIR, *words], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          env=dict(clean, **(env or {})), check=False)
    return done.returncode, done.stdout, done.stderr


def alike(text):
    """Without what differs from call to call: receipts, leases, times."""
    text = re.sub(r"\bw\d-[-\w]+", "RECEIPT", text)
    text = re.sub(r'("(?:lease|reset_after|retry_after|delay|at|fresh|now)"):[\d.]+', r"\1:N", text)
    text = re.sub(r"(?m)^\d{6,}$|lease \d{6,}", "LEASE", text)
    return re.sub(r"\b(in|retry in|resets in|delay) (?:\d+(?:\.\d+)?(?:us|ms|[smhdw]))+", r"\1 TIME", text)


SEVERAL = "fixed-window 5/366d, sliding-log 2/366d"
CALLS = [
    ("take", "ann", "fixed-window 3/366d"),
    ("take", "ann", "fixed-window 3/366d", "--json"),
    ("peek", "ann", "fixed-window 3/366d"),
    ("take", "ann", "fixed-window 3/366d", "--cost", "2"),
    ("take", "ann", "fixed-window 3/366d", "--cost", "4"),
    ("take", "ann", "fixed-window 3/366d", "--cost", "4", "--json"),
    ("take", "ann", "fixed-window 3/366d", "--cost", "0"),
    ("take", "bob", SEVERAL, "--detail"),
    ("take", "bob", SEVERAL, "--detail", "--json"),
    ("take", "bob", SEVERAL, "--detail"),
    ("peek", "bob", SEVERAL, "--detail", "--json"),
    ("take", "slow", "leaky-bucket 1/d burst 3"),
    ("take", "slow", "leaky-bucket 1/d burst 3"),
    ("take", "slow", "leaky-bucket 1/d burst 3", "--wait", "0"),
    ("take", "slow", "leaky-bucket 1/d burst 3", "--wait", "500ms", "--json"),
    ("take", "slow", "leaky-bucket 1/d burst 3", "--wait", "any"),
    ("wait", "w", "token-bucket 10/s burst 1"),
    ("wait", "w", "token-bucket 10/s burst 1"),
    ("wait", "w", "fixed-window 1/366d", "--max", "1s"),
    ("wait", "w", "fixed-window 1/366d", "--max", "1s", "--json"),
    ("take", 'q"\\\n\x01\u00e9', "fixed-window 3/366d", "--json"),
    ("take", "k" * 60000, "fixed-window 3/366d"),
    ("acquire", "job", "concurrent 2 lease 1h"),
    ("acquire", "job", "concurrent 2 lease 1h", "--json"),
    ("acquire", "job", "concurrent 2 lease 1h"),
    ("acquire", "job", "concurrent 2 lease 1h", "--json"),
    ("release", "job", "concurrent 2 lease 1h", "12345678"),
    ("renew", "job", "concurrent 2 lease 1h", "12345678", "--json"),
    ("release", "job", "fixed-window 3/366d", "12345678"),
    ("acquire", "job", "fixed-window 3/366d"),
    ("take", "job", "concurrent 2"),
    ("take", "warm", "warmup 5/s over 1h"),
    ("show", "ann"),
    ("show", "bob", "--json"),
    ("show", "slow"),
    ("show", "job"),
    ("show", "job", "--json"),
    ("show", "warm", "--json"),
    ("show", "nobody"),
    ("show", "nobody", "--json"),
    ("show", ""),
    ("reset", "ann"),
    ("reset", "ann", "--json"),
    ("take", "ann", "fixed-window 3/366d"),
    ("take", "ann", "no-such 3/s"),
    ("take", "", "fixed-window 3/366d"),
    ("take", "ann", "fixed-window 3/366d", "--cost", "x"),
    ("explain", "token-bucket 10/s burst 20"),
    ("explain", SEVERAL, "--json"),
    ("explain", "nonsense"),
]


def compare(check, where, env=None):
    """Every call, here and there."""
    with tempfile.TemporaryDirectory() as folder:
        for call in CALLS:
            local = [] if call[0] == "explain" else ["--store", f"file:{folder}/zone?size=4m"]
            here, there = weir(*call, *local), weir(*call, *where, env=env)
            name = " ".join(call)[:80]
            check.equal((there[0], alike(there[1])), (here[0], alike(here[1])), f"{name}: {there[2]}")
            if here[0] != 3:
                check.equal(alike(there[2]), alike(here[2]), f"{name}: on stderr")


def settle_and_leases(check, where, env=None):
    """Receipts and leases that a server gave."""
    limit = "sliding-window 100k/h"
    answer = json.loads(weir("take", "llm", limit, "--cost", "4000", "--json", *where, env=env)[1])
    shown = re.search(r"^receipt (\S+)$", weir("take", "llm", limit, *where, env=env)[1], re.M)
    check(shown is not None, "a take shows its receipt")
    code, out, err = weir("settle", "llm", limit, answer["receipt"], "1234", *where, env=env)
    check.equal((code, out), (0, "settled: the charge is now 1234\n"), f"settle: {err}")
    left = json.loads(weir("peek", "llm", limit, "--json", *where, env=env)[1])["remaining"]
    check.equal(left, 100000 - 1234 - 1, "what is left then")
    code, out, err = weir("settle", "llm", limit, "w1-1700000000000000-1", "0", *where, env=env)
    check.equal((code, out), (2, ""), f"a receipt that is none of the server's: {err}")
    lease = weir("acquire", "deploy", "concurrent 1 lease 10m", *where, env=env)[1].strip()
    check.equal(weir("acquire", "deploy", "concurrent 1 lease 10m", *where, env=env)[0], 1, "nothing is left to acquire")
    check.equal(weir("acquire", "deploy", "concurrent 1 lease 10m", "--wait", "50ms", *where, env=env)[0], 1,
                "nor within 50 ms")
    waited, first = [], weir("acquire", "queue", "concurrent 1 lease 10m", *where, env=env)[1].strip()
    waiter = threading.Thread(target=lambda: waited.append(
        weir("acquire", "queue", "concurrent 1 lease 10m", "--wait", "any", *where, env=env)))
    waiter.start()
    weir("release", "queue", "concurrent 1 lease 10m", first, *where, env=env)
    waiter.join()
    check.equal(waited[0][0], 0, "who waits for a slot gets it after the release")
    check.equal(weir("renew", "deploy", "concurrent 1 lease 10m", lease, *where, env=env)[:2], (0, f"renewed: lease {lease}\n"),
                "renew")
    check.equal(weir("release", "deploy", "concurrent 1 lease 10m", lease, *where, env=env)[:2],
                (0, f"released: lease {lease}\n"), "release")
    check.equal(weir("release", "deploy", "concurrent 1 lease 10m", lease, *where, env=env)[0], 1, "release once more")


def test_tcp(check):
    with Server() as server:
        where = ("--server", f"http://127.0.0.1:{server.port}")
        compare(check, where)
        settle_and_leases(check, where)
        check.equal(weir("peek", "x", "fixed-window 9/d", "--server", f"127.0.0.1:{server.port}")[0], 0, "host:port")


def test_unix(check):
    with tempfile.TemporaryDirectory() as folder, Server("--listen", f"unix:{folder}/s") as _:
        where = ("--server", f"unix:{folder}/s")
        settle_and_leases(check, where)
        check.equal(weir("take", "ann", "fixed-window 3/366d", *where)[0], 0, "take")


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    f"{folder}/key", "-out", f"{folder}/cert", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    return f"{folder}/cert", f"{folder}/key"


def test_tls_and_tokens(check):
    with tempfile.TemporaryDirectory() as folder:
        pair = certificate(folder)
        with Server(tls=pair, env={"WEIR_TOKEN": TOKEN, "WEIR_ADMIN_TOKEN": ADMIN}) as server:
            where = ("--server", f"https://localhost:{server.tls_port}")
            trust = {"SSL_CERT_FILE": pair[0]}
            code, _, err = weir("take", "k", "fixed-window 9/d", *where)
            check.equal(code, 3, f"an authority that is not trusted: {err}")
            code, _, err = weir("take", "k", "fixed-window 9/d", *where, env=trust)
            check.equal(code, 3, "no token")
            check("--token" in err and "WEIR_TOKEN" in err, f"it says where tokens come from: {err}")
            check.equal(weir("take", "k", "fixed-window 9/d", *where, "--token", "wrong", env=trust)[0], 3, "a wrong token")
            check.equal(weir("take", "k", "fixed-window 9/d", *where, "--token", TOKEN, env=trust)[0], 0, "--token")
            check.equal(weir("take", "k", "fixed-window 9/d", *where, env=dict(trust, WEIR_TOKEN=TOKEN))[0], 0, "$WEIR_TOKEN")
            settle_and_leases(check, where, env=dict(trust, WEIR_ADMIN_TOKEN=ADMIN))


def test_explain(check):
    """What the server's policies say of a request, and how a key stands."""
    with Server() as server:
        where = ("--server", f"127.0.0.1:{server.port}")
        code, out, err = weir("explain", *where, "--request", "path=/login&ip=192.0.2.7")
        check.equal(code, 0, f"a request: {err}")
        check(all(word in out for word in ("5 of 5 left", "sliding-log 5/m", "demo-login", "{ip=192.0.2.7}")), f"it says all: {out}")
        answer = json.loads(weir("explain", *where, "--request", "path=/login&ip=192.0.2.7", "--json")[1])
        check.equal(answer["limits"][0]["policy"], "demo-login", "as JSON, the server's own")
        weir("take", "ann", "fixed-window 3/366d", *where)
        code, out, _ = weir("explain", "fixed-window 3/366d", "--key", "ann", *where)
        check(code == 0 and "2 of 3 left, 1 used" in out and ", on " not in out, f"a key: {out}")
        month = "fixed-window 9/month from 15 zone +08:00"
        weir("take", "ann", month, *where)
        code, out, _ = weir("explain", month, "--key", "ann", *where)
        check(re.search(r"8 of 9 left, 1 used, resets in [^,]*, on \d{4}-\d\d-15T00:00:00\+08:00, began on \d{4}-\d\d-15T00:00:00\+08:00\n", out), f"the end of a month: {out}")
        code, out, _ = weir("explain", month + ", fixed-window 3/h", "--key", "nobody", *where)
        check(re.search(r"9 of 9 left, 0 used, resets on \d{4}-\d\d-15T00:00:00\+08:00, began on \d{4}-\d\d-15T00:00:00\+08:00\n", out), f"nothing is used, but the month ends: {out}")
        check("3 of 3 left, 0 used\n" in out, f"nothing is used: {out}")
        check(re.search(r"from 15 zone \+08:00: 1 used.*, on \d{4}-\d\d-15T00:00:00\+08:00\n", weir("show", "ann", *where)[1]), "shown, too")
        check("Keys of policies are like POLICY/LIMIT/{customer=bob}" in weir("show", "bob", *where)[1], "a key without a state")
        check("--key is a value alone" in weir("explain", "--policy", "demo-login", "--key", "ip=192.0.2.7", *where)[2], "an attribute as key")
        check("no policy applies" in weir("explain", *where, "--request", "path=/nowhere")[1], "no policy")
        for words in (("--request", "a=%zz"), ("--policy", "no-such"), ("--request", "a=b", "--key", ""), (),
                      ("fixed-window 3/d", "--policy", "x")):
            code, out, err = weir("explain", *where, *words)
            check(code == 2 and not out and err.startswith("weir explain: "), f"{words}: {code} {out} {err}")
        for words in (("--key", "a"), ("--policy", "a"), ("--request", "a=b"), ("--token", "a")):
            code, out, err = weir("explain", "fixed-window 3/d", *words)
            check(code == 2 and "--server" in err, f"without a server: {words}: {err}")


def answer_once(text):
    """A server of others that answers once; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener, listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(text)
    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def test_trouble(check):
    nobody = socket.socket()
    nobody.bind(("127.0.0.1", 0))  # bound, but nobody listens, and nobody else gets it
    closed = nobody.getsockname()[1]
    for words, wanted, word in (
            (("--server", f"127.0.0.1:{closed}"), 3, "weir serve"),
            (("--server", "unix:/nowhere/at/all"), 3, "weir serve"),
            (("--server", "ftp://x"), 2, "http://host:port"),
            (("--server", "http://x y"), 2, "http://host:port"),
            (("--server", "127.0.0.1:1", "--store", "memory:1m"), 2, "exclude each other"),
            (("--token", "x"), 2, "--server"),
            (("--server", "127.0.0.1:1", "--token", "two words"), 2, "token")):
        for command in (("take", "k", "fixed-window 9/d"), ("reset", "k"), ("release", "k", "concurrent 1", "5"),
                        ("settle", "k", "fixed-window 9/d", "w1-1-1", "0")):
            code, out, err = weir(*command, *words)
            check(code == wanted and not out and word in err and err.startswith(f"weir {command[0]}: "),
                  f"{command[0]} {words}: {code} {out} {err}")
    nobody.close()
    for text in (b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                 b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]", b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
                 b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"allowed":true}', b"HTTP/1.1 500 x\r\n\r\n",
                 b'HTTP/1.1 503 x\r\nContent-Length: 15\r\n\r\n{"detail":"no"}'):
        port = answer_once(text)
        code, out, err = weir("take", "k", "fixed-window 9/d", "--server", f"127.0.0.1:{port}")
        check(code == 3 and not out and str(port) in err, f"{text[:30]}: {code} {out} {err}")
    hostile = json.dumps({"detail": "red \x1b[31m, \x07, \x7f, \x9b31m"}, ensure_ascii=False).encode()
    for status in (400, 401, 403, 500):
        port = answer_once(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(hostile), hostile))
        _, out, err = weir("take", "k", "fixed-window 9/d", "--server", f"127.0.0.1:{port}")
        check("red " in err and all(it.isprintable() for it in err.rstrip("\n")), f"{status}: a server's words cannot steer a terminal: {err!r}")
    row = {"allowed": True, "limit": 9, "remaining": 8, "retry_after": 0, "reset_after": 1, "delay": 0, "granted": 1, "binding": 0,
           "receipt": "w4-\x1b[31m", "degraded": False}
    port = answer_once(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(json.dumps(row)), json.dumps(row).encode()))
    code, out, _ = weir("take", "k", "fixed-window 9/d", "--server", f"127.0.0.1:{port}")
    check(code == 0 and all(it.isprintable() for it in out.replace("\n", "")), f"nor does its receipt: {code} {out!r}")


if __name__ == "__main__":
    sys.exit(checks.run([test_tcp, test_unix, test_tls_and_tokens, test_explain, test_trouble], sys.argv[1:]))
