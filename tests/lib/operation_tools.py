"""What tests of operation share: a load of honest clients that count every answer, sockets handed over as systemd
does it, and systemd's end of sd_notify.

    load = Load(port, …); load.start(); … restarts …; load.end()
    load.lost == []          every request got its answer
    load.allowed(SCARCE)     what clients were told in all, to be held against the limit
"""
import collections
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from . import http_client, resp, weir_server

PLENTY, SCARCE = "plenty", "scarce"
PLENTY_MOST, SCARCE_MOST = 100000000, 3000
LIMITS = {PLENTY: f"fixed-window {PLENTY_MOST}/d from-first", SCARCE: f"fixed-window {SCARCE_MOST}/d from-first"}
KINDS = ("http", "resp", "kept_http", "kept_resp", "pipelined_http", "pipelined_resp")
PIPELINE = 10
SILENT_SECONDS = 0.4  # a server that drains waits for a request for somewhat longer
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Processes whose parent ends become ours, so that their exit code can be seen."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed")


def exit_code_of(pid, seconds=weir_server.STOP_SECONDS):
    """The exit code of a child, or an orphan that we adopted; None: it does not end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def charged(port, key):
    """How much a key was charged, as the server sees it."""
    with http_client.Client(port) as client:
        answer = client.get("/v1/peek", key=key, limit=LIMITS[key])
        return answer.json["limit"] - answer.json["remaining"]


# ---- the load ----

class Load:
    """Threads that ask without a pause, in the ways that clients have. What was told is counted by key; a request
    without its answer is lost. Two may end between two requests, which are not lost then but asked once more: a
    connection over RESP, since RESP cannot say that it will, and a pipeline, behind an answer that says so."""

    def __init__(self, port, kinds=KINDS, each=2, pause=0.002):
        self.port, self.pause = port, pause
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.told, self.lost = collections.Counter(), []
        self.asked_again = self.reconnected = 0
        self.threads = [threading.Thread(target=self.run, args=(getattr(self, kind),), daemon=True)
                        for kind in kinds for _ in range(each)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(weir_server.PATIENCE_SECONDS)
            if thread.is_alive():
                self.lost.append("an answer does not come")
        return self

    def allowed(self, key):
        return self.told[key, True]

    def answers(self):
        return sum(self.told.values())

    def go_on(self, answers):
        """Waits for so many answers more, and for the end of what is scarce; or until a request is lost, or none is
        answered any more."""
        most, seen, end = self.answers() + answers, 0, 0.0
        while (self.answers() < most or not self.told[SCARCE, False]) and not self.lost:
            if self.answers() != seen:
                seen, end = self.answers(), time.monotonic() + weir_server.PATIENCE_SECONDS
            if time.monotonic() > end:
                return
            time.sleep(0.01)

    def run(self, way):
        try:
            way()
        except Exception as error:  # any: the request under way is lost
            with self.lock:
                self.lost.append(f"{way.__name__}: {error!r}")

    def tell(self, key, allowed):
        with self.lock:
            self.told[key, bool(allowed)] += 1

    def keys(self):
        """Plenty and scarce in turn, until it is over."""
        while not self.over.is_set():
            for key in (PLENTY, SCARCE):
                yield key
                time.sleep(self.pause)

    def connect(self, kind):
        heard = time.monotonic()
        client = kind(self.port)
        client.heard = heard
        return client

    def again(self, client, kind):
        client.close()
        return self.connect(kind)

    def speak(self, client, data):
        """Sends, and waits for the beginning of an answer. False: there is none, since the machine had held us up for
        so long that a server that drains need not have waited for us. For all that we know it has waited since we last sent
        something: its answer may have been there for as long."""
        asked = time.monotonic()
        try:
            client.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # which is seen when reading, too
        was_silent = time.monotonic() - client.heard > SILENT_SECONDS
        try:
            answered = client.stream.peek(1) != b""
        except ConnectionResetError:
            answered = False
        if not answered and not was_silent:
            raise ConnectionError("closed without an answer")
        self.asked_again += not answered
        client.heard = asked
        return answered

    def read_http(self, client, key):
        """Whether the connection is good for another request."""
        answer = client.read()
        if answer.status not in (200, 429):
            raise ValueError(f"status {answer.status}: {answer.body[:100]}")
        self.tell(key, answer.status == 200)
        return answer.fields.get("connection", "").lower() != "close"

    def http(self):
        for key in self.keys():
            client = self.connect(http_client.Client)
            while not self.speak(client, http_client.get("/v1/take", key=key, limit=LIMITS[key])):
                client = self.again(client, http_client.Client)
            self.read_http(client, key)
            client.close()

    def kept_http(self):
        client = self.connect(http_client.Client)
        for key in self.keys():
            while not self.speak(client, http_client.get("/v1/take", key=key, limit=LIMITS[key])):
                client = self.again(client, http_client.Client)
            if not self.read_http(client, key):
                client = self.again(client, http_client.Client)
                self.reconnected += 1
        client.close()

    def pipelined_http(self):
        client = self.connect(http_client.Client)
        for key in self.keys():
            left = PIPELINE
            while left:
                goes_on = self.speak(client, http_client.get("/v1/take", key=key, limit=LIMITS[key]) * left)
                while left and goes_on:
                    goes_on = self.read_http(client, key)
                    left -= 1
                if not goes_on:
                    client = self.again(client, http_client.Client)
                    self.asked_again += left > 0
        client.close()

    def resp(self):
        for key in self.keys():
            client = self.connect(resp.Client)
            while not self.speak(client, resp.encode(("WEIR.TAKE", key, LIMITS[key]))):
                client = self.again(client, resp.Client)
            reply = client.read()
            if isinstance(reply, resp.RedisError):
                raise reply
            self.tell(key, reply[0])
            client.close()

    def kept_resp(self, count=1):
        client = resp.Client(self.port)
        for key in self.keys():
            left = count
            while left:
                left, ended = self.ask_resp(client, key, left)
                if ended:
                    client.close()
                    client = resp.Client(self.port)
                    self.asked_again += left > 0
        client.close()

    def pipelined_resp(self):
        self.kept_resp(count=PIPELINE)

    def ask_resp(self, client, key, count):
        """How many answers are missing, and whether the connection came to its end."""
        try:
            client.socket.sendall(resp.encode(("WEIR.TAKE", key, LIMITS[key])) * count)
        except (BrokenPipeError, ConnectionResetError):
            return count, True
        for left in range(count, 0, -1):
            if client.stream.peek(1) == b"":
                return left, True  # between two answers, in good order
            reply = client.read()
            if isinstance(reply, resp.RedisError):
                raise reply
            self.tell(key, reply[0])
        return 0, False


# ---- as systemd does it ----

class Notify:
    """The socket of $NOTIFY_SOCKET; messages come as {"READY": "1", …} with the sender's process id."""

    def __init__(self, abstract=False):
        self.folder = tempfile.mkdtemp(prefix="weir-notify-")
        self.path = f"@weir-notify-{os.getpid()}-{time.monotonic_ns()}" if abstract else f"{self.folder}/socket"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind("\0" + self.path[1:] if abstract else self.path)
        self.all = []

    def receive(self, seconds=weir_server.START_SECONDS):
        """The next message, or None; (pid, {name: value})."""
        self.socket.settimeout(seconds)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
        except TimeoutError:
            return None
        pid = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        message = dict(line.split("=", 1) for line in data.decode().splitlines())
        self.all.append((pid, message))
        return pid, message

    def close(self):
        self.socket.close()
        if not self.path.startswith("@"):
            os.unlink(self.path)
        os.rmdir(self.folder)


class Succession:
    """A server and those that take over from it: (server, notify) within, all of them gone behind."""

    def __init__(self, options, abstract=False, **others):
        self.notify = Notify(abstract)
        self.server = weir_server.Server(options, env={"NOTIFY_SOCKET": self.notify.path}, **others)

    def __enter__(self):
        adopt_orphans()
        self.server.start()
        return self.server, self.notify

    def __exit__(self, *_):
        self.server.kill()
        for pid in {pid for pid, _ in self.notify.all} - {self.server.process.pid}:
            try:  # only those still there that are our own
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            except (ChildProcessError, ProcessLookupError):
                pass
        self.notify.close()
        shutil.rmtree(self.server.folder, ignore_errors=True)


# Puts descriptors where systemd does, out of the way of each other first.
ACTIVATE = """import fcntl, os, sys
fds = [int(word) for word in sys.argv[1].split(",")]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 3 + len(fds)) for fd in fds]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i, inheritable=True)
    os.close(fd)
os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"] = str(len(fds)), str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Activated(weir_server.Server):
    """A server that is given its listening sockets by us, who keep them."""

    def __init__(self, sockets, options="", **others):
        super().__init__(options, listen=None, **others)
        self.sockets = sockets

    def start(self):
        fds = [it.fileno() for it in self.sockets]
        words = [sys.executable, "-c", ACTIVATE, ",".join(map(str, fds)), weir_server.WEIR, "serve", *self.options]
        self.launch(words, pass_fds=fds)
        if not self.wait_for(lambda: any(line.startswith("store: ") for line in self.lines), weir_server.START_SECONDS):
            self.kill()
            raise weir_server.WrongEnd(f"it does not start (exit code {self.process.returncode}):\n{self.stderr()}")
        self.ports = [it.getsockname()[1] for it in self.sockets if it.family != socket.AF_UNIX]
        self.port = self.ports[0] if self.ports else None
        return self


def listening(count=1, backlog=1024):
    """Listening sockets on free loopback ports."""
    made = []
    for _ in range(count):
        it = socket.socket()
        it.bind(("127.0.0.1", 0))
        it.listen(backlog)
        made.append(it)
    return made


def end(pid, seconds=weir_server.STOP_SECONDS):
    """Stops a process that we adopted; its exit code."""
    os.kill(pid, signal.SIGTERM)
    return exit_code_of(pid, seconds)
