"""What tests of abuse share: an honest client that must not notice, memory, counters, attackers.

    with weir_server.Server("--store memory:1m") as server, abuse_tools.Watch(server, check, "flood") as watch:
        … abuse …
    # now: the honest client got every answer, the right one, and the server's memory stayed in bounds

Attackers that need speed are processes of their own (attack), so that Python's lock is not what limits them.
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from . import checks, http_client, resp, weir_server

HONEST_LIMIT = "fixed-window 1000000000/d from-first"
HONEST_PAUSE = 0.002
END_SECONDS = 60.0  # for what a server says until it closes, which it does
MIB = 1 << 20


# ---- memory and counters ----

def is_sanitized():
    """Sanitizers need several times the memory: bounds do not hold then."""
    program = pathlib.Path(weir_server.WEIR).read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def memory(server, field="VmRSS"):
    """Bytes of the server's memory now; field="VmHWM": at the worst moment since it started."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(re.search(rf"^{field}:\s+(\d+) kB$", status, re.M)[1]) * 1024


def cpu_seconds(server):
    """What the server has worked, however long the machine made it wait."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_stopped(server):
    """After SIGSTOP: every thread of it."""
    def is_stopped(task):
        return task.joinpath("stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] in "Tt"
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
    return server.wait_for(lambda: all(map(is_stopped, tasks.iterdir())))


def metrics(server, client=None):
    """{"name{labels}": value} of /metrics, asked for on a connection of its own unless one is given."""
    if client is None:
        with http_client.Client(server.port) as own:
            return metrics(server, own)
    text = client.get("/metrics").body.decode()
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def total(values, name, **labels):
    """The sum over all series of a name that have these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(value for series, value in values.items()
               if series.partition("{")[0] == name and all(word in series for word in wanted))


# ---- the honest client ----

class Honest(threading.Thread):
    """Takes from a key of its own, over RESP and HTTP in turn, on kept and on new connections, and notes every
    answer that is missing, late or wrong. Its key counts down by one a request: a charge that is lost,
    doubled or evicted shows."""

    def __init__(self, port, key="honest", pause=HONEST_PAUSE, reconnect=True, in_parts=False, idle=None):
        """idle: a connection that is silent for so many seconds may be let go. Where the machine held this client up for
        half of that, it asks once more on a new one; its count tells if that was charged twice."""
        super().__init__(daemon=True)
        self.port, self.key, self.pause, self.reconnect, self.in_parts = port, key, pause, reconnect, in_parts
        self.idle = idle
        self.over = threading.Event()
        self.latencies, self.wrong = [], []
        self.remaining = None
        self.kept, self.spoke = {}, {}  # by kind: the connection that is kept, and when it was spoken to before this time

    def run(self):
        try:
            kinds = [resp.Client, http_client.Client]
            ways = [lambda kind=kind: self.by_kept(kind) for kind in kinds]
            if self.reconnect:
                ways += [lambda kind=kind: self.by_new(kind) for kind in kinds]
            for kind in kinds:
                self.connect(kind)
            turn = 0
            while not self.over.is_set():
                start = time.monotonic()
                self.note(self.patiently(ways[turn % len(ways)]))
                self.latencies.append(time.monotonic() - start)
                turn += 1
                time.sleep(self.pause)
        except Exception as error:  # any: the client was let down
            self.wrong.append(repr(error))
        for client in self.kept.values():
            client.close()

    def patiently(self, way):
        while True:
            try:
                return way()
            except ConnectionError:
                if not self.idle or self.silence < self.idle / 2:
                    raise

    def connect(self, kind):
        self.spoke[kind] = time.monotonic()
        self.kept[kind] = kind(self.port)

    def by_kept(self, kind):
        client, spoke, now = self.kept[kind], self.spoke[kind], time.monotonic()
        try:
            answer = self.ask(kind, client)
        except ConnectionError:
            self.silence = time.monotonic() - spoke
            client.close()
            self.connect(kind)
            raise
        self.spoke[kind] = now
        return answer

    def by_new(self, kind):
        start = time.monotonic()
        try:
            with kind(self.port) as client:
                return self.ask(kind, client)
        except ConnectionError:
            self.silence = time.monotonic() - start
            raise

    def ask(self, kind, client):
        return self.by_resp(client) if kind is resp.Client else self.by_http(client)

    def send(self, client, data):
        """As a whole, or in two parts, as the network cuts it now and then."""
        half = len(data) // 2 if self.in_parts else 0
        if half:
            client.socket.sendall(data[:half])
            time.sleep(0.001)
        client.socket.sendall(data[half:])

    def by_resp(self, client):
        self.send(client, resp.encode(("WEIR.TAKE", self.key, HONEST_LIMIT)))
        allowed, _, remaining, *_ = client.read()
        return allowed == 1, remaining

    def by_http(self, client):
        self.send(client, http_client.get("/v1/take", key=self.key, limit=HONEST_LIMIT))
        answer = client.read()
        return answer.status == 200 and answer.json["allowed"], answer.json.get("remaining")

    def note(self, answer):
        allowed, remaining = answer
        expected = remaining if self.remaining is None else self.remaining - 1
        if not allowed or remaining != expected:
            self.wrong.append(f"allowed {allowed}, remaining {remaining}, expected {expected}")
        self.remaining = remaining

    def is_in(self):
        """Whether both its connections have been answered, or it was let down."""
        return len(self.latencies) >= 2 or bool(self.wrong)

    def end(self):
        self.over.set()
        self.join(END_SECONDS)
        if self.is_alive():
            self.wrong.append("an answer does not come")

    def p99_ms(self):
        ranked = sorted(self.latencies)
        return 1000 * ranked[len(ranked) * 99 // 100] if ranked else float("nan")


class Watch:
    """An honest client beside the abuse, and at the end: nothing wrong with it, memory within bounds, alive."""

    def __init__(self, server, check, name, most=64 * MIB, least_answers=20, **honest):
        self.server, self.check, self.name, self.most = server, check, name, most
        self.least_answers = least_answers
        self.honest = Honest(server.port, **honest)

    def __enter__(self):
        self.before = memory(self.server)
        self.honest.start()
        return self

    def __exit__(self, kind, *_):
        server, honest, name = self.server, self.honest, self.name
        if kind is None:
            server.wait_for(lambda: len(honest.latencies) >= self.least_answers or not honest.is_alive())
        honest.end()
        if kind is not None:
            return
        self.check(server.process.poll() is None, f"{name}: the server is gone: {server.stderr()}")
        self.check(not honest.wrong, f"{name}: the honest client: {honest.wrong[:5]}")
        self.check(len(honest.latencies) >= self.least_answers,
                   f"{name}: the honest client got only {len(honest.latencies)} answers")
        if server.process.poll() is not None:
            return
        peak = memory(server, "VmHWM")
        if not is_sanitized():
            self.check(peak <= self.most, f"{name}: {peak / MIB:.1f} MiB, more than {self.most / MIB:.0f}")
        print(f"  {name}: honest {len(honest.latencies)} answers, p99 {honest.p99_ms():.2f} ms; "
              f"memory {self.before / MIB:.1f} MiB before, {peak / MIB:.1f} at most", flush=True)


# ---- attackers ----

class Attack:
    """Functions of `module` in processes of their own: Attack(__file__, "resp_flood", port, seconds). Each prints
    what it has to tell in one line of words; ends() returns these."""

    def __init__(self, module, function, *arguments, count=1):
        words = [sys.executable, module, "--attack", function, *map(str, arguments)]
        self.processes = [subprocess.Popen([*words, str(i)], stdout=subprocess.PIPE, text=True) for i in range(count)]

    def ends(self, seconds=600):
        told = []
        for process in self.processes:
            try:
                out, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                out = "attacker-hangs"
            told.append(out.split() if process.returncode == 0 else ["attacker-failed"])
        return told


def main(tests, attacks=None):
    """The program of a test file: its tests, or one attack."""
    words = sys.argv[1:]
    if words and words[0] == "--attack":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print(*(attacks[words[1]](*map(int, words[2:])) or ()))
        return 0
    return checks.run(tests, words)


def is_long():
    return "--long" in sys.argv


# ---- raw connections ----

def connect(port, timeout=END_SECONDS, receive=None, source=None):
    """A plain connection; `receive` is the size of its receive buffer, `source` the address it comes from."""
    it = socket.socket()
    it.settimeout(timeout)
    if receive:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    if source:
        it.bind((source, 0))
    it.connect(("127.0.0.1", port))
    return it


def read_all(it, seconds=END_SECONDS):
    """Everything until the peer closes; raises TimeoutError if it does not in time. A reset is an end, too."""
    end = time.monotonic() + seconds
    parts = []
    while True:
        it.settimeout(max(0.001, end - time.monotonic()))
        try:
            part = it.recv(1 << 16)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def exchange(port, data, seconds=END_SECONDS, half_close=False):
    """What a server says to these bytes until it closes."""
    with connect(port) as it:
        try:
            it.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass  # it had seen enough
        if half_close:
            it.shutdown(socket.SHUT_WR)
        return read_all(it, seconds)


def statuses(answer):
    """The status codes of a stream of HTTP answers."""
    return [int(code) for code in re.findall(rb"^HTTP/1\.[01] (\d{3}) ", answer, re.M)]
