#!/usr/bin/env python3
"""TLS: curl, openssl, redis-cli, h2load, Python and grpc-js, with certificates made here; what is wrong with them."""
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc_service
from lib import checks, redis_server
from lib.build import BUILD
from lib.certificates import CURVE, Certificates, openssl
from lib.h2_server import Server

TAKE = "/v1/take?key={key}&limit={limit}"
PATIENCE_SECONDS = 60


def said_by(words, text=""):
    """What a command prints, given that input."""
    return subprocess.run(words, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                          check=False).stdout


def curl(certificates, server, path, *words):
    done = subprocess.run(["curl", "-sS", "--cacert", certificates.path("ca.crt"), "--max-time", "60", "-w",
                           "\n%{http_version} %{http_code}", *words, f"https://127.0.0.1:{server.tls_port}{path}"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    body, _, tail = done.stdout.rpartition("\n")
    return done.returncode, tail, body


def test_curl(check):
    with Certificates() as certificates:
        for kind in ("server", "rsa"):
            with Server(tls=certificates.pair(kind)) as server:
                path = TAKE.format(key="a", limit="fixed-window+9/366d")
                for name, words, wanted in (
                        ("HTTP/2 by ALPN", ("--http2",), "2 200"),
                        ("HTTP/1.1 by ALPN", ("--http1.1",), "1.1 200"),
                        ("HTTP/1.1 without ALPN", ("--http1.1", "--no-alpn"), "1.1 200"),
                        ("HTTP/2 without ALPN", ("--http2-prior-knowledge", "--no-alpn"), "2 200"),
                        ("TLS 1.2", ("--tlsv1.2", "--tls-max", "1.2", "--http2"), "2 200"),
                        ("TLS 1.3", ("--tlsv1.3", "--http2"), "2 200")):
                    code, tail, body = curl(certificates, server, path, *words)
                    check.equal((code, tail), (0, wanted), f"{kind}: {name} ({body})")
                body = curl(certificates, server, path)[2]
                check.equal(json.loads(body)["remaining"], 2, f"{kind}: all were counted")
                code, tail, _ = curl(certificates, server, path, "--tlsv1.0", "--tls-max", "1.1", "--ciphers",
                                     "DEFAULT@SECLEVEL=0")
                check.equal(code, 35, f"{kind}: TLS 1.1 is refused")
                code, tail, body = curl(certificates, server, "/metrics", "--http2")
                check(code == 0 and tail == "2 200" and "weir_build" in body, f"{kind}: a long answer")


def test_alpn(check):
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        for offered, wanted in ((("h2", "http/1.1"), "h2"), (("http/1.1", "h2"), "h2"), (("http/1.1",), "http/1.1"),
                                (("h2",), "h2"), (("spdy/3", "http/1.1"), "http/1.1"), ((), None),
                                (("spdy/3",), "refused")):
            try:
                with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
                        certificates.context(*offered).wrap_socket(plain, server_hostname="localhost") as secure:
                    got = secure.selected_alpn_protocol()
            except ssl.SSLError:
                got = "refused"
            check.equal(got, wanted, f"offered {offered}")


def test_openssl(check):
    """s_client: no renegotiation, sessions that are taken up again, one portion at a time."""
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-CAfile",
                 certificates.path("ca.crt"), "-verify_return_error"]
        ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        said = said_by([*words, "-ign_eof"], ask)
        check("HTTP/1.1 200 OK" in said and "Verify return code: 0" in said, f"asked: {said[-300:]}")
        process = subprocess.Popen([*words, "-tls1_2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        process.stdin.write("R\n")  # asks for a renegotiation
        process.stdin.flush()
        watch = threading.Timer(PATIENCE_SECONDS, process.kill)
        watch.start()
        said = process.stdout.read()  # it ends when that is refused; without its input it would end before
        watch.cancel()
        process.stdin.close()
        process.wait()
        check("no renegotiation" in said, f"renegotiation: {said[-300:]}")
        for version in ("-tls1_2", "-tls1_3"):
            session = certificates.path(f"session{version}")
            first = said_by([*words, version, "-sess_out", session, "-ign_eof"], ask)
            again = said_by([*words, version, "-sess_in", session, "-ign_eof"], ask)
            check("200 OK" in first and "200 OK" in again, f"{version}: asked twice")
            check("Reused, " in again, f"{version}: the session is taken up again")
        check(server.alive(), "the server goes on")


def test_resp(check):
    """Redis clients, which know no ALPN."""
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        words = ["redis-cli", "--tls", "--cacert", certificates.path("ca.crt"), "-p", str(server.tls_port)]
        said = said_by([*words, "WEIR.TAKE", "k", "fixed-window 2/366d"])
        check.equal(said.split()[:3], ["1", "2", "1"], "redis-cli")
        check.equal(said_by(words, "PING\n" * 500).count("PONG"), 500, "five hundred")


def pipeline(check, certificates, server, name, count, size, path):
    """`count` requests in portions of `size` bytes, all at once."""
    ask = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
            certificates.context().wrap_socket(plain, server_hostname="localhost") as secure:
        secure.setblocking(False)
        text, got, end = ask * count, b"", time.monotonic() + PATIENCE_SECONDS
        while got.count(b"HTTP/1.1 200 OK") < count and time.monotonic() < end:
            try:
                if text:
                    text = text[secure.send(text[:size]):]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
            try:
                more = secure.recv(1 << 16)
                if not more:
                    break
                got += more
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                select.select([secure], [secure] if text else [], [], 0.2)
        check.equal(got.count(b"HTTP/1.1 200 OK"), count, name)


def test_pipeline(check):
    """Many requests in one record, in many, and a byte at a time: what TLS holds back is read on."""
    path = TAKE.format(key="p", limit="fixed-window+1g/366d")
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        for name, count, size in (("one record", 150, 16000), ("many records", 3000, 16000), ("odd portions", 200, 777),
                                  ("a byte at a time", 3, 1)):
            pipeline(check, certificates, server, name, count, size, path)
        held = TAKE.format(key="h", limit="leaky-bucket+100/s+burst+1000") + "&hold=true&wait=any"
        pipeline(check, certificates, server, "answers that are held", 100, 16000, held)


def test_remote(check):
    """The same while each batch is with a store over the network."""
    path = TAKE.format(key="p", limit="fixed-window+1g/366d")
    with Certificates() as certificates, redis_server.Server() as redis, \
            Server(tls=certificates.pair(), store=f"redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        for name, count, size in (("one record", 150, 16000), ("many records", 2000, 16000),
                                  ("odd portions", 200, 777)):
            pipeline(check, certificates, server, f"remote: {name}", count, size, path)


def test_goodbye(check):
    """The end is said, so that nobody takes a cut connection for a whole answer."""
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
                certificates.context().wrap_socket(plain, server_hostname="localhost",
                                                   suppress_ragged_eofs=False) as secure:
            secure.sendall(ask)
            got, clean = b"", True
            try:
                while more := secure.recv(4096):
                    got += more
            except ssl.SSLEOFError:
                clean = False
            check(b"200 OK" in got, f"the answer: {got}")
            check(clean, "close_notify comes before the end")


def test_h2load(check):
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        path = TAKE.format(key="load", limit="fixed-window+1g/366d")
        said = said_by(["h2load", "-n", "20000", "-c", "8", "-m", "50", f"https://127.0.0.1:{server.tls_port}{path}"])
        check("20000 2xx" in said, f"h2load: {said[-600:]}")


def test_grpc(check):
    with Certificates() as certificates, grpc_service.serve(tls=certificates.pair()) as server:
        grpc_service.client(check, "tls", server.tls_port, certificates.path("ca.crt"))


def test_hostile(check):
    """Plain bytes, garbage, half a handshake, none, and an end without a word."""
    with Certificates() as certificates, Server("--request-timeout", "1s", "--idle-timeout", "2s",
                                                tls=certificates.pair()) as server:
        for name, data in (("plain HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), ("garbage", b"\xff" * 3000),
                           ("zeros", b"\0" * 3000), ("half a hello", b"\x16\x03\x01\x02\x00\x01\x00"),
                           ("nothing", b"")):
            with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain:
                plain.sendall(data)
                try:
                    while plain.recv(4096):
                        pass
                    closed = True
                except ConnectionResetError:
                    closed = True
                except socket.timeout:
                    closed = False
                check(closed, f"{name}: closed")
    with Certificates() as certificates, Server(tls=certificates.pair()) as server:
        peers = [socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) for _ in range(200)]
        check(server.alive(), "the server goes on")
        for peer in peers:
            peer.close()
        for _ in range(50):
            plain = socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS)
            secure = certificates.context().wrap_socket(plain, server_hostname="localhost")
            secure.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with socket.socket(fileno=secure.detach()) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        code, tail, _ = curl(certificates, server, "/healthz")
        check.equal((code, tail), (0, "2 200"), "the server goes on")


def records(data, each=16384, kind=b"\x16"):
    parts = [data[i:i + each] for i in range(0, len(data), each)]
    return b"".join(kind + b"\x03\x03" + struct.pack(">H", len(part)) + part for part in parts)


def hello_without_share():
    """A ClientHello of TLS 1.3 that names a group and brings no share of it: the server asks for another hello."""
    def extension(kind, data):
        return struct.pack(">HH", kind, len(data)) + data
    extensions = b"".join([extension(43, b"\x02\x03\x04"), extension(10, b"\0\x02\0\x1d"), extension(13, b"\0\x04\x04\x03\x08\x04"),
                           extension(51, b"\0\0")])
    body = b"\x03\x03" + b"r" * 32 + b"\x20" + b"s" * 32 + b"\0\x02\x13\x01" + b"\x01\0" + struct.pack(">H", len(extensions)) + extensions
    return b"\x01" + struct.pack(">I", len(body))[1:] + body


def is_refused(peer):
    """Whether the server ends the connection, by itself and soon."""
    try:
        while peer.recv(4096):
            pass
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False
    return True


def test_long_hello(check):
    """A hello of 128 KiB costs as much from its first four bytes on: refused by its length, however it is cut, also the second one."""
    start = b"\x01" + struct.pack(">I", 131000)[1:]
    with Certificates() as certificates, Server("--request-timeout", "5m", tls=certificates.pair()) as server:
        for name, data in (("at once", records(start + b"x" * 1000)), ("byte by byte", records(start, 1)),
                           ("cut in its length", records(start[:2]) + records(start[2:]))):
            with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as peer:
                peer.sendall(data)
                check(is_refused(peer), f"a long hello, {name}: refused")
        with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as peer:
            peer.sendall(records(hello_without_share(), 50))
            check.equal(peer.recv(6)[5:], b"\x02", "it is asked to say hello again")
            peer.sendall(records(b"\x01", kind=b"\x14") + records(start))
            check(is_refused(peer), "a long second hello: refused")
        for most in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = certificates.context()
            context.maximum_version = most
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
                        context.wrap_socket(plain, server_hostname="localhost") as secure:
                    secure.sendall(b"PING\r\n")
                    check.equal(secure.recv(100), b"+PONG\r\n", f"{most.name}: usual hellos are heard")
        code, tail, _ = curl(certificates, server, "/healthz", "--curves", "P-521:X25519")
        check.equal((code, tail), (0, "2 200"), "and those with another group first")


def test_files(check):
    """What is wrong with a certificate or a key is said, with its name, before anything listens."""
    with Certificates() as certificates:
        pathlib.Path(certificates.path("empty")).write_text("")
        pathlib.Path(certificates.path("text")).write_text("no certificate\n")
        good = certificates.pair()
        for name, pair, words in (
                ("no such certificate", (certificates.path("absent.crt"), good[1]), ("absent.crt", "No such file")),
                ("no such key", (good[0], certificates.path("absent.key")), ("absent.key", "No such file")),
                ("a folder", (certificates.folder.name, good[1]), (certificates.folder.name,)),
                ("an empty certificate", (certificates.path("empty"), good[1]), ("empty", "not a certificate")),
                ("no certificate", (certificates.path("text"), good[1]), ("text", "not a certificate")),
                ("no key", (good[0], certificates.path("text")), ("text", "not a private key")),
                ("another's key", (good[0], certificates.path("other.key")), ("other.key", "server.crt")),
                ("the key as certificate", (good[1], good[1]), ("server.key", "not a certificate")),
                ("a key with a passphrase", (good[0], certificates.path("locked.key")), ("locked.key", "encrypted"))):
            done = subprocess.run([str(BUILD / "weir"), "serve", "--listen-tls", "127.0.0.1:0", "--store",
                                   "memory:1m", "--tls-cert", pair[0], "--tls-key", pair[1]], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_SECONDS, check=False)
            check(done.returncode in (2, 3), f"{name}: exit code {done.returncode}")
            check(all(word in done.stdout for word in words), f"{name}: {words} in {done.stdout!r}")


def subject(certificates, server):
    """The name in the certificate that a new connection is shown."""
    with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
            certificates.context().wrap_socket(plain, server_hostname="localhost") as secure:
        return dict(pair[0] for pair in secure.getpeercert()["subject"])["commonName"]


def comes_true(ask):
    end = time.monotonic() + PATIENCE_SECONDS
    while not ask() and time.monotonic() < end:
        time.sleep(0.02)
    return ask()


def expiry(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        found = [line.split() for line in answer.read().decode().splitlines() if line.startswith("weir_tls_certificate_expiry")]
    return float(found[0][1]) if found else None


def reload_status(server):
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/reload", data=b"{}",
                                   headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_renewal(check):
    """A renewed pair is shown to new connections, by SIGHUP, by /v1/reload and when the files change; a bad one changes
    nothing and is told of; old connections go on."""
    with Certificates() as certificates:
        pair = [certificates.path("live.crt"), certificates.path("live.key")]

        def install(kind):
            for name, to in zip(certificates.pair(kind), pair):
                shutil.copy(name, to + ".part")
                os.replace(to + ".part", to)

        ways = {"SIGHUP": (["--no-watch"], lambda server: server.process.send_signal(signal.SIGHUP)),
                "/v1/reload": (["--no-watch"], lambda server: check.equal(reload_status(server)[0], 200, "reloaded")),
                "watching": ([], lambda server: None)}
        for way, (options, act) in ways.items():
            install("server")
            with Server(*options, tls=pair) as server:
                check.equal(subject(certificates, server), "server", f"{way}: as it began")
                began = expiry(server)
                check(began and abs(began - time.time() - 2 * 86400) < 3600, f"{way}: when it expires, {began}")
                with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE_SECONDS) as plain, \
                        certificates.context("http/1.1").wrap_socket(plain, server_hostname="localhost") as old:
                    install("later")
                    act(server)
                    check(comes_true(lambda server=server: subject(certificates, server) == "later"), f"{way}: renewed")
                    check(expiry(server) > began + 86400, f"{way}: it expires later")
                    old.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    check(old.recv(4096).startswith(b"HTTP/1.1 200"), f"{way}: a connection made before goes on")
                pathlib.Path(pair[1]).write_text("no key\n", encoding="ascii")
                if way == "/v1/reload":
                    status, said = reload_status(server)
                    check(status == 409 and "live.key" in said, f"{way}: what is wrong is told, {status} {said}")
                else:
                    act(server)
                    check(comes_true(lambda server=server: "the older policies and certificates stay in force: " in server.said() and "live.key" in server.said()),
                          f"{way}: what is wrong with the new key is told")
                check.equal(subject(certificates, server), "later", f"{way}: and the last good pair is used")


def test_client_certificates(check):
    """Only clients with a certificate of that authority get in, by TLS 1.2 and 1.3; who else there is gets no answer."""
    with Certificates() as certificates:
        folder = certificates.folder.name
        openssl(folder, "req", "-x509", *CURVE, "-nodes", "-days", "2", "-keyout", "ca2.key", "-out", "ca2.crt", "-subj",
                "/CN=another authority")
        for name, authority in (("client", "ca"), ("stranger", "ca2")):
            openssl(folder, "req", *CURVE, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key",
                    "-CAcreateserial", "-days", "2", "-out", f"{name}.crt")
        live = certificates.path("live-ca.crt")
        shutil.copy(certificates.path("ca.crt"), live)
        with Server("--no-watch", "--tls-client-ca", live, tls=certificates.pair()) as server:
            def asked(name, *words):
                known = ("--cert", certificates.path(f"{name}.crt"), "--key", certificates.path(f"{name}.key")) if name else ()
                return curl(certificates, server, "/healthz", *known, *words)[1][-3:]
            for version in ("1.2", "1.3"):
                words = (f"--tlsv{version}", "--tls-max", version)
                check.equal(asked("client", *words), "200", f"TLS {version}: a client of ours")
                check.equal(asked("stranger", *words), "000", f"TLS {version}: one of another authority")
                check.equal(asked(None, *words), "000", f"TLS {version}: one without a certificate")
            shutil.copy(certificates.path("ca2.crt"), live)
            check.equal(reload_status(server)[0], 200, "others are trusted now")
            check.equal((asked("client"), asked("stranger")), ("000", "200"), "and only they")
            pathlib.Path(live).write_text("nothing\n", encoding="ascii")
            status, said = reload_status(server)
            check(status == 409 and "live-ca.crt" in said, f"a file without certificates is refused: {status} {said}")
            check.equal((asked("client"), asked("stranger")), ("000", "200"), "and nothing is open")


if __name__ == "__main__":
    if not shutil.which("openssl"):
        sys.exit("openssl is missing; install the package openssl\n0 passed, 1 failed")
    grpc_service.MODULES = grpc_service.modules()
    sys.exit(checks.run([test_curl, test_alpn, test_openssl, test_resp, test_pipeline, test_remote, test_goodbye, test_h2load,
                  test_grpc, test_hostile, test_long_hello, test_files, test_renewal, test_client_certificates], sys.argv[1:]))
