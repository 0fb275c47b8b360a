"""Real `weir serve`s for tests: each on a free loopback port, in a folder of its own, stopped at the end.

    with weir_server.Server("--threads 1", policies="version: 1\n…") as server, server.client() as client:
        client.call("WEIR.TAKE", "k", "token-bucket 1/s")

$WEIR names the program, or $WEIR_BUILD the build folder. stop() sends SIGTERM, expects exit code 0 and no
sanitizer's report; leaving the block does that, too, and raises WrongEnd where it is not so. What a server
that must not start says and exits with: refused(options).
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from . import ports, resp
from .build import WEIR


START_SECONDS = 60  # a sanitized build on a busy machine
STOP_SECONDS = 60
PATIENCE_SECONDS = 60.0  # for what must come, however slow the machine
REPORTS = re.compile(r"Sanitizer|runtime error:|SUMMARY:")


class WrongEnd(AssertionError):
    """A server that ended otherwise than it should, with what it said."""


def environment(changes=None):
    """Ours without tokens, which would change every test; sanitizers' reports end the program."""
    plain = {name: value for name, value in os.environ.items()
             if name not in ("WEIR_TOKEN", "WEIR_ADMIN_TOKEN", "WEIR_RECEIPT_SECRET", "LISTEN_FDS")}
    plain.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
    plain.update(changes or {})
    return plain


def refused(options, env=None, seconds=START_SECONDS):
    """Runs a server that should not start: its exit code and what it said on stderr. None: it did start."""
    process = subprocess.Popen([WEIR, "serve", *words_of(options)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="backslashreplace", env=environment(env))
    started = process.stdout.readline() != ""
    if started:
        process.terminate()
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1]
    return None if started else process.returncode, said


def words_of(options):
    return shlex.split(options) if isinstance(options, str) else [str(word) for word in options]


class Server:
    """`options` is text or a list; `files` are written into the server's folder, where it runs, before it
    starts; `policies` is the text of its policies.yaml. It listens on a port of its own, to which it comes back when it is
    started again; `listen` is another address, and listen=None leaves --listen to the options."""

    def __init__(self, options="", policies=None, files=None, env=None, listen="its own"):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-serve-"))
        self.options, self.listen, self.env, self.own_port = words_of(options), listen, env, None
        if listen == "its own":
            self.own_port = ports.take()
            self.listen = f"127.0.0.1:{self.own_port}"
        self.process = self.port = None
        self.lines, self.written, self.seen, self.reader = [], None, 0, None
        if policies is not None:
            files = dict(files or {}, **{"policies.yaml": policies})
            self.options += ["--policies", "policies.yaml"]
        for name, text in (files or {}).items():
            self.write(name, text)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.clear()
            raise

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.stop()
        finally:
            self.clear()

    def clear(self):
        self.kill()
        ports.give_back(self.own_port)
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        """Replaces a file of its folder at once, as a careful editor does."""
        path = self.folder / name
        part = path.with_name(path.name + ".part")
        part.write_bytes(text if isinstance(text, bytes) else text.encode())
        part.replace(path)
        return path

    def start(self):
        """Starts it, or starts it again in its folder; back when it is ready."""
        listen = ["--listen", self.listen] if self.listen else []
        self.launch([WEIR, "serve", *listen, *self.options])
        if not self.wait_for(lambda: any(line.startswith("store: ") for line in self.lines), START_SECONDS):
            self.kill()
            raise WrongEnd(f"weir serve does not start (exit code {self.process.returncode}):\n{self.stderr()}")
        found = [re.match(r"listening on (?:127\.0\.0\.1|\[::1\]|0\.0\.0\.0):(\d+)", line) for line in self.lines]
        self.ports = [int(match[1]) for match in found if match]
        self.port = self.ports[0] if self.ports else None
        return self

    def launch(self, words, **options):
        """Runs the program in its folder. stdout is read by a thread; stderr is a file, so that all that was said before an
        answer came is there when the answer is."""
        self.lines, self.written, self.seen = [], tempfile.TemporaryFile(), 0
        self.process = subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.written,
                                        text=True, errors="backslashreplace", env=environment(self.env), **options)
        self.reader = threading.Thread(target=self.gather, args=(self.process.stdout, self.lines), daemon=True)
        self.reader.start()

    @staticmethod
    def gather(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def wait_for(self, ask, seconds=PATIENCE_SECONDS):
        """Whether ask() comes true in time, while the server lives, or by what it said last."""
        end = time.monotonic() + seconds
        while not ask():
            if time.monotonic() > end or self.has_said_all():
                return bool(ask())
            time.sleep(0.005)
        return True

    def wait_for_work(self, ask, done):
        """As wait_for, for what takes work: patient for as long as done() changes."""
        seen = None
        while not ask():
            if done() == seen:
                return bool(ask())
            seen = done()
            self.wait_for(lambda: ask() or done() != seen)
        return True

    def has_said_all(self):
        """It has ended, and all that it said is read. One that took over may have its output, and say more."""
        return self.process.poll() is not None and not self.reader.is_alive()

    def read_rest(self, seconds):
        """After its end: back when all that it said is read, or after some seconds."""
        self.reader.join(seconds)

    @property
    def errors(self):
        """The lines that it has written to stderr since it started, or since forget_errors()."""
        size = os.fstat(self.written.fileno()).st_size if self.written else 0
        said = os.pread(self.written.fileno(), size - self.seen, self.seen) if size else b""
        return said.decode(errors="backslashreplace").splitlines()

    def forget_errors(self):
        self.seen = os.fstat(self.written.fileno()).st_size

    def stderr(self):
        return "\n".join(self.errors)

    def client(self, **options):
        """A RESP connection: tests/lib/resp.py."""
        return resp.Client(self.port, **options)

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{path}"

    def signal(self, number):
        self.process.send_signal(number)

    def wait_for_charges(self, key, limit, count):
        """Whether a fresh state comes to have so many charges of 1: for takes whose answers are not there yet."""
        with self.client() as client:
            most = client.call("WEIR.PEEK", f"{key}, but fresh", limit)[2]
            return self.wait_for(lambda: client.call("WEIR.PEEK", key, limit)[2] == most - count)

    def drain(self):
        """SIGTERM; back when it has begun to drain: nobody new is let in. Whether that came to pass."""
        self.signal(signal.SIGTERM)
        return self.wait_for(self.is_closed)

    def is_closed(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS):
                return False
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:
            return False

    def stop(self, code=0):
        """Ends it in good order and returns how long that took in seconds."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise WrongEnd(f"SIGTERM did not end the server in {STOP_SECONDS} s:\n{self.stderr()}") from None
        self.read_rest(STOP_SECONDS)
        if self.process.returncode != code:
            raise WrongEnd(f"exit code {self.process.returncode}, not {code}:\n{self.stderr()}")
        if REPORTS.search(self.stderr()):
            raise WrongEnd(f"a sanitizer's report:\n{self.stderr()}")
        return time.monotonic() - start

    def kill(self):
        """Ends it at once, as a crash would; start() brings it back."""
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
