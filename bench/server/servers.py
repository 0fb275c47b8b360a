"""The servers that are measured, all on loopback and on one core, each in a folder of its own, stopped at the end.

    with Servers(build, with_weir=True) as servers: servers["redis"].port, servers["nginx"].pid …

"redis", "redis module" (where weir_redis.so is built), "nginx", "weir", "weir, no headers", "weir, small zone", and the
floors "echo" and "http echo". All are up during the whole run; those not asked are idle.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests"))

from lib import ports  # noqa: E402

SERVER_CORE, CLIENT_CORE = 0, 1
START_SECONDS = 10
os.environ["PATH"] += os.pathsep + "/usr/sbin"  # nginx is there, and not everybody looks


def pinned(core, command):
    return [*(("taskset", "-c", str(core)) if os.cpu_count() > 1 else ()), *map(str, command)]


def tail(path):
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""


class Server:
    """One process; `pid` is the one that does the work."""

    def __init__(self, name, command, port, folder):
        self.name, self.port, self.folder = name, port, folder
        self.output = folder / "output"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(pinned(SERVER_CORE, command), stdin=subprocess.PIPE, stdout=output,
                                            stderr=subprocess.STDOUT, cwd=folder)
        self.pid = self.process.pid

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                sys.exit(f"{self.name} does not start:\n{tail(self.output)}")
            time.sleep(0.02)
        return self

    def listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def resident_kb(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Servers(dict):
    def __init__(self, build, with_weir=True):
        super().__init__()
        self.build, self.with_weir = pathlib.Path(build), with_weir
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="weir-bench-"))

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.values():
            server.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def start(self):
        self.redis("redis")
        module = self.build / "weir_redis.so"
        if module.exists():
            self.redis("redis module", "--loadmodule", module)
        self.nginx()
        self.echo("echo", "resp")
        self.echo("http echo", "http")
        if self.with_weir:
            self.weir("weir", "64m")
            self.weir("weir, no headers", "64m", "--headers", "off")
            self.weir("weir, small zone", "8m")

    def add(self, name, command, port):
        folder = self.root / name.replace(" ", "-").replace(",", "")
        folder.mkdir(exist_ok=True)
        self[name] = Server(name, command, port, folder)
        return self[name].wait()

    def redis(self, name, *options):
        port = ports.take()
        self.add(name, ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                        *options], port)

    def nginx(self):
        port, folder = ports.take(), self.root / "nginx"
        folder.mkdir()
        folder.chmod(0o755)
        self.root.chmod(0o755)
        text = (HERE / "nginx.conf").read_text(encoding="utf-8")
        conf = folder / "nginx.conf"
        conf.write_text(text.replace("@PORT@", str(port)).replace("@FOLDER@", str(folder)))
        server = self.add("nginx", ["nginx", "-c", conf], port)
        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii")
        server.pid = int(children.split()[0])

    def weir(self, name, size, *options):
        port = ports.take()
        self.add(name, [self.build / "weir", "serve", "--listen", f"127.0.0.1:{port}", "--threads", "1", "--store",
                        f"memory:{size}", "--envoy", HERE / "ratelimit.yaml", *options], port)

    def echo(self, name, kind):
        folder = self.root / name.replace(" ", "-")
        port_file = folder / "output"
        folder.mkdir()
        server = Server(name, [self.build / "bench/bench-echo", kind], 0, folder)
        self[name] = server
        end = time.monotonic() + START_SECONDS
        while not port_file.read_text().endswith("\n"):
            if time.monotonic() > end:
                sys.exit(f"{name} does not start")
            time.sleep(0.02)
        server.port = int(port_file.read_text())

    def version(self, name):
        command = {"redis": ["redis-server", "--version"], "nginx": ["nginx", "-v"]}[name]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
        return {"redis": lambda text: "redis-server " + text.split("v=")[1].split()[0],
                "nginx": lambda text: "nginx " + text.split("/")[1].split()[0]}[name](done.stdout)
