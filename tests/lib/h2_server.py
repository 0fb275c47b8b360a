"""A real `weir serve` for tests, on free loopback ports, stopped at the end.

    with Server("--envoy", path) as server: server.port
    with Server(tls=("a.crt", "a.key")) as server: server.tls_port

A server that dies, that leaks or that a sanitizer complains about is a failure of the test that started it.
"""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

from .build import BUILD
START_SECONDS = 60
STOP_SECONDS = 60


class Server:
    def __init__(self, *options, store="memory:16m", tls=None, files=None, env=None, threads=2):
        """files: texts by the names they get in the server's folder, which {folder} in options stands for."""
        self.port = self.tls_port = None
        self.folder = tempfile.TemporaryDirectory(prefix="weir-serve-")
        for name, text in (files or {}).items():
            (pathlib.Path(self.folder.name) / name).write_text(text)
        words = [word.replace("{folder}", self.folder.name) for word in options]
        if tls:
            words += ["--listen-tls", "127.0.0.1:0", "--tls-cert", tls[0], "--tls-key", tls[1]]
        self.command = [str(BUILD / "weir"), "serve", "--listen", "127.0.0.1:0", "--store", store,
                        "--threads", str(threads), *words]
        self.env = dict(os.environ, **(env or {}))
        self.process = None
        # appended to: what is read here meanwhile must not move where the server writes
        self.log = open(pathlib.Path(self.folder.name) / "said", "a+", encoding="utf-8")
        self.log_tail = ""

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=self.env)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError(f"weir serve does not start: {self.said()}")
            time.sleep(0.02)
        return self

    def __exit__(self, kind, *_):
        code = self.stop()
        said = self.said()
        self.log.close()
        self.folder.cleanup()
        if kind is None and (code != 0 or "Sanitizer" in said or "runtime error" in said):
            raise RuntimeError(f"weir serve ended with {code}: {said}")

    def stop(self):
        """Ends it in good order; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def said(self):
        self.log.seek(0)
        return self.log.read()[-6000:]

    def is_ready(self):
        """Whether it has said where it listens, and all else that it says when it does."""
        said = self.said()
        if not re.search(r"^store: ", said, re.M):
            return False
        found = re.findall(r"^listening on 127\.0\.0\.1:(\d+)( \(TLS\))?", said, re.M)
        self.port = next(int(port) for port, tls in found if not tls)
        self.tls_port = next((int(port) for port, tls in found if tls), None)
        return True

    def alive(self):
        """Whether it still decides, over HTTP/1."""
        try:
            return self.get("/v1/take?key=alive&limit=token-bucket+1m/s")[0] == 200
        except OSError:
            return False

    def get(self, path, timeout=30):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name, **labels):
        """The sum of a metric's lines that have these labels; None: there are none."""
        found = None
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name) and line[len(name):len(name) + 1] in ("{", " ") and \
                    all(f'{label}="{value}"' in line for label, value in labels.items()):
                found = (found or 0) + float(line.rsplit(" ", 1)[1])
        return found

    def resident(self):
        """Kilobytes of memory."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0
