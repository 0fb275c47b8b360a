"""Real redis-servers for tests: each on a free loopback port, in a folder of its own, stopped at the end.

    with redis_server.Server() as server, server.client() as client: …
    with redis_server.Server("--appendonly yes") as primary, primary.replica() as replica: …

Options are those of redis-server; `config` is text for its configuration file (users, for example).
"""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import ports, resp

START_SECONDS = 60


def binary():
    """The server to test with: $REDIS_SERVER, redis-server or valkey-server."""
    for name in (os.environ.get("REDIS_SERVER"), "redis-server", "valkey-server"):
        if name and shutil.which(name):
            return name
    sys.exit("redis-server is missing; install the package redis-server (or name a server in REDIS_SERVER)\n"
             "0 passed, 1 failed")


class Server:
    def __init__(self, options="", config="", port=None):
        self.own_port = None if port else ports.take()
        self.options, self.config, self.port = options, config, port or self.own_port
        self.folder = tempfile.mkdtemp(prefix="weir-redis-")
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        ports.give_back(self.own_port)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Starts it, or starts it again on its port and data."""
        folder = pathlib.Path(self.folder)
        (folder / "redis.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\nsave \"\"\n"
            f"logfile {folder / 'log'}\n{self.config}\n")
        self.process = subprocess.Popen(
            [binary(), str(folder / "redis.conf"), *shlex.split(self.options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{binary()} does not start:\n{self.log()}")
            time.sleep(0.02)

    def answers(self):
        try:
            with self.client(timeout=START_SECONDS) as client:
                client.call("PING")
        except resp.RedisError as error:
            return not str(error).startswith("LOADING")
        except OSError:
            return False
        return True

    def log(self):
        path = pathlib.Path(self.folder) / "log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def client(self, **options):
        return resp.Client(self.port, **options)

    def replica(self, options=""):
        """A server that replicates this one, not started yet."""
        return Server(f"--replicaof 127.0.0.1 {self.port} {options}")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Ends it at once, as a crash would; start() brings it back."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        if self.process:
            self.process.wait()

    def stop(self):
        """Ends it in good order."""
        self.process.terminate()
        self.process.wait()
