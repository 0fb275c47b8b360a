"""Bindings under test: each is built once into {build}/bindings, whatever number of tests need it; workers under load.

    folder = bindings.once("python", files, make)     make(folder) is called if one of the files changed since the last time
    with bindings.Workers(command, port) as workers:  a real server with worker processes, up as soon as it answers
        load = bindings.wrk(port, seconds=3)          counts of answers by status, as wrk saw them; it does not wait for the last ones
        load = bindings.rush(port, "/", 1000)         exactly so many requests over some connections; each is answered

A binding whose name is "python" has its builder here, so that every test of it gets the same one: bindings.python().
"""
import collections
import contextlib
import fcntl
import hashlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

from . import build, checks, sanitizers

START_SECONDS = 180  # frameworks are slow to load, and several of them start at a time
WRK = """
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init() seen = {} end
function response(status) seen[status] = (seen[status] or 0) + 1 end
function done()
  local sum = {}
  for _, thread in ipairs(threads) do
    for status, n in pairs(thread:get("seen")) do sum[status] = (sum[status] or 0) + n end
  end
  for status, n in pairs(sum) do io.write(string.format("status %d: %d\\n", status, n)) end
end
"""


# ---- building once ----

def fingerprint(files):
    seen = hashlib.sha256()
    for path in sorted(map(str, files)):
        seen.update(path.encode() + b"\0" + hashlib.sha256(pathlib.Path(path).read_bytes()).digest())
    return seen.hexdigest()


def once(name, files, make):
    """The folder of a binding, made by make(folder) if it is missing or a file has changed. Tests run side by side: the first
    one builds, the others wait for it."""
    return once_at(build.BUILD / "bindings" / name, fingerprint(files), make)


def once_at(folder, wanted, make):
    """The same for any folder; `wanted` is a text that says what it is made of."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = folder / ".made"
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text(encoding="ascii") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            mark.write_text(wanted, encoding="ascii")
    return folder


def library_files():
    """What the library is compiled from."""
    done = subprocess.run([sys.executable, "-B", str(build.ROOT / "tools" / "library.py"), "files"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return [build.ROOT / name for name in done.stdout.split()]


def is_sanitized():
    """Whether this build's library has AddressSanitizer: then bindings are compiled with it, too."""
    return (build.BUILD / "libweir.a").exists() and sanitizers.is_sanitized(build.BUILD / "libweir.a")


# ---- Python ----

PYTHON = "/usr/bin/python3"  # the one whose packages the frameworks are
PYTHON_SOURCE = build.ROOT / "bindings" / "python"


def python_files():
    """What the package is made from."""
    return [path for path in sorted(PYTHON_SOURCE.rglob("*")) if path.suffix in (".py", ".pyi", ".c", ".h", ".map", ".toml", ".md", ".typed")
            and "__pycache__" not in path.parts]


def python_make(folder):
    """The wheel, unpacked. The library that meson has built is linked in: tests of the build compile it themselves."""
    flags = "-fsanitize=address,undefined -g -O1 -UNDEBUG" if is_sanitized() else ""
    env = dict(os.environ, WEIR_LIBRARY=str(build.BUILD / "libweir.a"), CFLAGS=f"-Werror {flags}", LDFLAGS=flags)
    done = subprocess.run([PYTHON, "-B", str(PYTHON_SOURCE / "build_backend.py"), "wheel", str(folder)], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the Python package cannot be built:\n{done.stdout[-4000:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")


def python(**more):
    """The environment in which PYTHON finds the package `weir`."""
    library = build.BUILD / "libweir.a"
    if not library.exists():
        sys.exit(f"{library} is missing; make it with: ninja -C {build.BUILD} libweir.a\n0 passed, 1 failed")
    folder = once("python", [*python_files(), library], python_make)
    env = dict(os.environ, PYTHONPATH=str(folder / "site"), PYTHONDONTWRITEBYTECODE="1", **more)
    if is_sanitized():  # the interpreter itself leaks at its end, so leaks are counted by tests
        env.update(LD_PRELOAD=sanitizers.library("libasan.so"), PYTHONMALLOC="malloc", UBSAN_OPTIONS="halt_on_error=1",
                   ASAN_OPTIONS="detect_leaks=0:abort_on_error=0:quarantine_size_mb=4")
    return env


def in_python(path, marker="WEIR_INNER"):
    """A test that is written with the package runs itself once more, by PYTHON where it finds the package. Call it first."""
    if os.environ.get(marker) != path:
        other = os.environ.get("WEIR_PYTHON", PYTHON)  # the wheel is for every version: a test may be played by another one
        os.execve(other, [other, "-B", path, *sys.argv[1:]], python(**{marker: path}))


# ---- workers ----

class Workers:
    """A server and its worker processes, in a group of their own; what it printed is in output()."""

    def __init__(self, command, port, env=None, cwd=None, path="/", ready=None):
        self.command, self.port, self.env, self.cwd, self.path = [str(word) for word in command], port, env, cwd, path
        self.ready = ready or self.answers
        self.log = tempfile.NamedTemporaryFile()  # only they write by this descriptor: its place is theirs
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=self.env, cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + START_SECONDS
        try:
            while not self.ready():
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{self.command[0]} does not start:\n{self.output()[-3000:]}")
                time.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def answers(self):
        try:
            ask(self.port, self.path)
        except OSError:
            return False
        return True

    def output(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def children(self):
        """The worker processes, as the system knows them now."""
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text(encoding="ascii").split()]

    def kill_one(self, chance):
        """Ends a worker by SIGKILL, as the system does when memory is short; its number, or None."""
        alive = self.children()
        if not alive:
            return None
        worker = chance.choice(sorted(alive))
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        return worker

    def stop(self):
        """Ends it in good order; the exit code."""
        self.process.terminate()
        return self.process.wait()


def ask(port, path="/", method="GET", headers=None, timeout=START_SECONDS):
    """One request over a connection of its own: (status, fields in lower case, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def rush(port, path, count, connections=32):
    """So many requests, at all times one on each connection, and all of them answered: {status: how many answers}."""
    with tempfile.NamedTemporaryFile("r", encoding="ascii") as log:
        words = ["h2load", "--h1", "-n", count, "-c", connections, f"--log-file={log.name}", f"http://127.0.0.1:{port}{path}"]
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        statuses = collections.Counter(int(line.split()[1]) for line in log)
    if done.returncode or statuses.total() != count or -1 in statuses:
        raise RuntimeError(f"h2load: {statuses}\n{done.stdout[-2000:]}")
    return statuses


def wrk(port, path="/", seconds=2, connections=16, threads=1, headers=()):
    """Loads a server: {status: how many answers}. Connections that break, since their worker was killed, are made again. At the
    end wrk goes away, with a request in progress on each connection: the server may still count what nobody saw answered."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua", encoding="ascii") as script:
        script.write(WRK)
        script.flush()
        words = ["wrk", "-t", threads, "-c", connections, "-d", f"{seconds}s", "-s", script.name, "--timeout", "30s"]
        for field in headers:
            words += ["-H", field]
        done = subprocess.run([*map(str, words), f"http://127.0.0.1:{port}{path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"wrk: {done.stdout[-2000:]}")
    return {int(status): int(count) for status, count in re.findall(r"^status (\d+): (\d+)$", done.stdout, re.M)}


def counted(run):
    """What a program of another language printed last: (passed, failed)."""
    counts = checks.COUNTS.findall(run.stdout)
    if not counts:
        return 0, 1
    passed, failed = map(int, counts[-1])
    return passed, failed + (run.returncode != 0 and failed == 0)
