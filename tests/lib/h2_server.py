"""`weir serve` as tests of HTTP/2, gRPC and TLS need it: weir_server.Server with options as words, a port for TLS, and a look
at its metrics.

    with Server("--envoy", path) as server: server.port
    with Server(tls=("a.crt", "a.key")) as server: server.tls_port
"""
import pathlib
import re
import urllib.error
import urllib.request

from . import weir_server


class Server(weir_server.Server):
    def __init__(self, *options, store="memory:16m", tls=None, files=None, env=None, threads=2):
        """files: texts by the names they get in the server's folder, which {folder} in options stands for."""
        super().__init__(["--store", store, "--threads", threads, *options], files=files, env=env)
        self.options = [word.replace("{folder}", str(self.folder)) for word in self.options]
        if tls:
            self.options += ["--listen-tls", "127.0.0.1:0", "--tls-cert", tls[0], "--tls-key", tls[1]]
        self.tls_port = None

    def start(self):
        super().start()
        found = re.findall(r"^listening on 127\.0\.0\.1:(\d+)( \(TLS\))?", "\n".join(self.lines), re.M)
        self.port = next(int(port) for port, tls in found if not tls)
        self.tls_port = next((int(port) for port, tls in found if tls), None)
        return self

    def said(self):
        return "\n".join(self.lines + self.errors)

    def alive(self):
        """Whether it still decides, over HTTP/1."""
        try:
            return self.get("/v1/take?key=alive&limit=token-bucket+1m/s")[0] == 200
        except OSError:
            return False

    def get(self, path, timeout=weir_server.PATIENCE_SECONDS):
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
