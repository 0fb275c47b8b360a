#!/usr/bin/env python3
"""The redis:// store over TLS and unix sockets: certificates that are good and that are not, faults under load."""
import pathlib
import subprocess
import sys
import tempfile
import time

from lib import checks, ports, redis_server
from lib.build import REDIS_MODULE
from lib.store_client import ESYSTEM, SLACK_US, Driver, machine, opened, recovered

FROZEN = "token-bucket 1/d burst 500"


def openssl(*words, folder):
    subprocess.run(["openssl", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def make_certificates(folder):
    """An authority, a server's certificate for localhost and 127.0.0.1, one for another host, a client's."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test authority",
            folder=folder)
    for name, names in (("server", "DNS:localhost,IP:127.0.0.1"), ("other", "DNS:other.example"),
                        ("client", "DNS:client")):
        openssl("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
                folder=folder)
        (pathlib.Path(folder) / "names").write_text(f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "names", "-out", f"{name}.crt", folder=folder)


class TlsServer(redis_server.Server):
    """Listens with TLS on one more port."""

    def __init__(self, folder, certificate="server", clients="no"):
        self.tls_port = ports.take()
        super().__init__(f"--loadmodule {REDIS_MODULE} --tls-port {self.tls_port} --tls-auth-clients {clients} "
                         f"--tls-cert-file {folder}/{certificate}.crt --tls-key-file {folder}/{certificate}.key "
                         f"--tls-ca-cert-file {folder}/ca.crt")


def decides(driver):
    return recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded) is not None


def test_certificates(check):
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(folder)
        ca = f"ca={folder}/ca.crt"
        with TlsServer(folder) as server:
            for name, host, options, code in (
                    ("by address", "127.0.0.1", ca, 0), ("by name", "localhost", ca, 0),
                    ("unknown authority", "127.0.0.1", "", ESYSTEM),
                    ("not verified", "127.0.0.1", "verify=no", 0),
                    ("no such file", "127.0.0.1", "ca=/nonexistent", ESYSTEM)):
                with opened(f"rediss://{host}:{server.tls_port}?{options}") as driver:
                    check.equal(driver.code, code, f"{name}: opening ({driver.message})")
                    check(code or decides(driver), f"{name}: decides")
            with Driver(f"rediss://127.0.0.1:{server.port}?{ca}") as driver:
                check.equal(driver.code, 0, "a plain port: opens, as if nobody were there")
                check(recovered(lambda: "TLS" in driver.call("check")[1]) is not None, "a plain port: check says so")
        with TlsServer(folder, "other") as server, opened(f"rediss://localhost:{server.tls_port}?{ca}") as driver:
            check.equal(driver.code, ESYSTEM, f"another host's certificate: opening ({driver.message})")
        with TlsServer(folder, clients="yes") as server:
            mine = f"cert={folder}/client.crt&key={folder}/client.key"
            with Driver(f"rediss://127.0.0.1:{server.tls_port}?{ca}&{mine}") as driver:
                check(driver.code == 0 and decides(driver), "a client's certificate: decides")


def test_load(check):
    """Many threads in one session, and a server that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        make_certificates(folder)
        with TlsServer(folder) as server:
            url = f"rediss://127.0.0.1:{server.tls_port}?ca={folder}/ca.crt"
            with Driver(f"{url}&deadline=30s") as driver:
                for words in (("exact", 8, 500), ("fork", 4, 500)):
                    total = driver.tally(*words, words[0], FROZEN)
                    check.equal((total.allowed, total.degraded, total.errors), (500, 0, 0), f"TLS: {words[0]}")
                check.equal(driver.call("many", 1000, "m", "fixed-window 1/366d")[:3], ["0", "1000", "0"],
                            "TLS: a batch")
                big = driver.take("k" * 60000, "fixed-window 1/366d")
                check.equal((big.code, big.allowed, big.degraded), (0, 1, 0), "TLS: a key of many records")
            with Driver(url) as driver:
                check(decides(driver), "TLS: before")
                driver.hammer("load", FROZEN)
                server.kill()
                time.sleep(3.0)  # longer than any call may last
                server.start()
                check(decides(driver), "TLS: after the server's return")
                total = driver.tally("stop")
                check.equal(total.errors, 0, "TLS: errors")
                check.at_most(total.worst_us, 50000 + SLACK_US + total.held_us, "TLS: the longest call, us")


def test_unix_socket(check):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        with redis_server.Server(f"--loadmodule {REDIS_MODULE} --unixsocket {path}") as server, server.client() as client:
            with Driver(f"redis+unix://{path}?db=3") as driver:
                check(driver.code == 0 and decides(driver), f"unix: decides ({driver.message})")
                driver.take("k", FROZEN)
                client.call("SELECT", 3)
                check.equal(client.call("EXISTS", "weir:k"), 1, "unix: in the database named")


TESTS = [test_certificates, test_load, test_unix_socket]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))
