"""Real nginxes with weir's module, for tests: each on ports and in a folder of its own.

    SERVER = 'location / { weir_limit key=$arg_k zone=z "fixed-window 2/d"; empty_gif; }'
    with nginx_server.Nginx("weir_zone z 1m;", SERVER) as nginx:
        answer = nginx.get("/?k=ann", {"x-a": "b"})     # answer.status .fields["ratelimit"] .body .text .json
        with nginx.client() as client:                  # keep-alive: client.get(path), client.pipeline([get(path), …])
            client.get("/")

(`return 200` would answer before any limit is asked, as with limit_req; empty_gif or a file of {folder}/html does not.)

`http` is the text within http{}; it has server{}s of its own, or `server` is the text of the one that is made.
In all texts {port}, {port2} … are ports of this nginx, {folder} its folder. nginx reads them from http.conf and
server.conf, so that line numbers in errors are those of the text. $WEIR_BUILD names the build folder of the
module; where that is built with AddressSanitizer, it is loaded first, and what it reports fails the test.

stop() ends nginx gracefully and raises WrongEnd unless it exits with 0, having logged no [alert], no [emerg] (but
what allow() said is to be expected) and no sanitizer's report; leaving the block does so, too.
What `nginx -t` says to a configuration: Nginx.check(http, …). Connections are nginx_client.py's, what stands behind nginx
is nginx_backend.py's; both are here, too.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from . import ports, sanitizers, weir_server
from .build import BUILD, NGINX_MODULE
from .http_client import request  # noqa: F401  for tests that send their own
from .nginx_backend import Backend  # noqa: F401
from .nginx_client import SHOWN, Answer, Client, get  # noqa: F401
from .weir_server import PATIENCE_SECONDS, WrongEnd

NGINX = os.environ.get("NGINX_BINARY") or shutil.which("nginx") or "/usr/sbin/nginx"
PLACES = re.compile(r"\{(port\d*|folder)\}")
BAD_LINES = re.compile(r"^.*\[(?:alert|emerg)\].*$", re.M)
KILLED = r"worker process \d+ exited on signal 9"
TEMPORARY = "client_body proxy fastcgi uwsgi scgi".split()
T0 = 1_800_000_000_000_000  # a time for weir_test_clock, at which windows of all usual lengths begin


def poll(ask, seconds=PATIENCE_SECONDS, step=0.005):
    """What ask() says once that is true, or at last."""
    end = time.monotonic() + seconds
    while True:
        got = ask()
        if got or time.monotonic() > end:
            return got
        time.sleep(step)


def sanitized_environment(folder, module=NGINX_MODULE):
    """The environment in which a sanitized module (or library) runs in an nginx that is not; reports go to `folder`."""
    if not sanitizers.is_sanitized(module):
        return {}
    report = f"log_path={folder}/report"
    # nginx itself does not free all that it allocates by these; the module uses its pools, or malloc
    pathlib.Path(folder, "leaks").write_text("leak:ngx_alloc\nleak:ngx_memalign\n")
    return {"LD_PRELOAD": sanitizers.library("libasan.so"),
            "ASAN_OPTIONS": f"detect_leaks=1:halt_on_error=1:abort_on_error=0:{report}",
            "LSAN_OPTIONS": f"suppressions={folder}/leaks:print_suppressions=0",
            "UBSAN_OPTIONS": f"halt_on_error=1:print_stacktrace=1:{report}"}


class Nginx:
    """`main` and `events` are text for these levels; `listen` is options of server's listen (http2), `log` the
    error log's level (info or debug); `files` are written into the folder (served from {folder}/html, say) before it starts;
    `command` goes before nginx's own words (valgrind); module=False leaves the module out. leaves_zones: see clear()."""
    leaves_zones = False

    def __init__(self, http="", server=None, main="", events="", workers=1, listen="", log="info", files=None, env=None,
                 module=True, master=True, connections=1000, command=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-nginx-"))
        self.http, self.server, self.main, self.events_text = http, server, main, events
        self.number, self.listen, self.level, self.env, self.module = workers, listen, log, env, module
        self.master, self.connections, self.command = master, connections, list(command)
        self.process, self.ports, self.allowed = None, {}, []
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
            else:
                print(f"error log: …{self.errors()[-3000:]}", flush=True)
        finally:
            self.clear()

    def clear(self):
        """Ends it, and removes what it has left. In production the next nginx removes zones of resty.weir.limit.*."""
        self.kill()
        if self.process and not self.leaves_zones:
            for path in pathlib.Path("/dev/shm").glob(f"weir-nginx-*-{self.process.pid}-*"):
                path.unlink(missing_ok=True)
        for port in self.ports.values():
            ports.give_back(port)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- its configuration --

    def write(self, name, text):
        """A file of its folder; the places in text are filled in."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else self.filled(text).encode())
        return path

    def filled(self, text):
        return PLACES.sub(lambda found: str(self.folder) if found[1] == "folder" else str(self.port_of(found[1])), text)

    def port_of(self, name):
        """The port of that name, which is chosen when it is first spoken of, and stays."""
        if name not in self.ports:
            self.ports[name] = ports.take()
        return self.ports[name]

    @property
    def port(self):
        return self.port_of("port")

    def configure(self):
        """Writes the configuration: nginx.conf, and in it http.conf and server.conf."""
        if self.module and not NGINX_MODULE.exists():
            raise WrongEnd(f"{NGINX_MODULE} is not there; build it with: ninja -C {BUILD}")
        self.write("http.conf", self.http)
        made = ""
        if self.server is not None:
            self.write("server.conf", self.server)
            made = f"server {{ listen 127.0.0.1:{{port}} {self.listen}; server_name localhost; include server.conf; }}"
        texts = self.http + (self.server or "")
        lines = [
            f"load_module {NGINX_MODULE};" if self.module else "",
            "user root;" if os.geteuid() == 0 else "",
            f"daemon off; master_process {'on' if self.master else 'off'}; worker_processes {self.number};",
            f"pid {{folder}}/nginx.pid; error_log {{folder}}/error.log {self.level};",
            self.main,
            f"events {{ worker_connections {self.connections}; {self.events_text} }}",
            "http {",
            "access_log {folder}/other.log;" if "access_log" in texts else "access_log off;",
            *(f"{name}_temp_path {{folder}}/temp/{name};" for name in TEMPORARY),
            "root {folder}/html;" if "root" not in self.http else "",
            "include http.conf;", made, "}"]
        (self.folder / "temp").mkdir(exist_ok=True)
        (self.folder / "html").mkdir(exist_ok=True)
        self.write("nginx.conf", "\n".join(line for line in lines if line) + "\n")

    def words(self):
        return [*self.command, NGINX, "-p", f"{self.folder}/", "-c", "nginx.conf", "-e", f"{self.folder}/error.log"]

    def environment(self):
        return {**weir_server.environment(), **(sanitized_environment(self.folder) if self.module else {}), **(self.env or {})}

    @classmethod
    def check(cls, http="", server=None, **options):
        """(exit code, what it said) of `nginx -t`; the folder's name is left out of what it said."""
        nginx = cls(http, server, **options)
        try:
            nginx.configure()
            done = subprocess.run([*nginx.words(), "-t"], env=nginx.environment(), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="backslashreplace",
                                  timeout=PATIENCE_SECONDS)
            reports = nginx.reports()
            if reports:
                raise WrongEnd(f"a sanitizer's report:\n{reports}")
            return done.returncode, done.stdout.replace(f"{nginx.folder}/", "")
        finally:
            nginx.clear()

    # -- its life --

    def start(self):
        """Starts it, or starts it again in its folder; back when all its workers run."""
        self.configure()
        before = len(self.errors())
        self.output = open(self.folder / "output", "ab")
        self.process = subprocess.Popen(self.words(), cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=self.output)
        self.wait_for(lambda: self.process.poll() is not None or self.is_ready(before))
        if self.process.poll() is not None:
            raise WrongEnd(f"nginx does not start (exit code {self.process.returncode}):\n{self.said()}\n{self.reports()}")
        return self

    def is_ready(self, before):
        if not self.master:
            return (self.folder / "nginx.pid").exists()
        return len(re.findall(r"start worker process \d+", self.errors()[before:])) >= self.number

    def children(self):
        """Living child processes: workers, also those that are about to end."""
        try:
            pids = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except OSError:
            return []
        return sorted(pid for pid in map(int, pids) if is_alive(pid))

    def states(self):
        """What its processes are doing, for the puzzled."""
        def of(pid, name):
            try:
                return pathlib.Path(f"/proc/{pid}/{name}").read_text().strip()
            except OSError as error:
                return str(error)
        return "\n".join(f"{pid}: {of(pid, 'wchan')}; {of(pid, 'syscall')}; {of(pid, 'stat')}"
                         for pid in (self.process.pid, *self.children()))

    def workers(self):
        """Workers that accept connections."""
        if not self.master:
            return [self.process.pid]
        log = self.errors()
        started = set(map(int, re.findall(r"start worker process (\d+)", log)))
        leaving = set(map(int, re.findall(r"\] (\d+)#\d+: gracefully shutting down", log)))
        return [pid for pid in self.children() if pid in started - leaving]

    def reload(self, http=None, server=None, wait=True):
        """Lets it read its configuration again, a new one if it is given; back when only new workers are there.
        False, at once, where nginx refuses the new configuration; then allow() what it says."""
        self.http = self.http if http is None else http
        self.server = self.server if server is None else server
        self.configure()
        before, old = len(self.errors()), set(self.workers())
        self.process.send_signal(signal.SIGHUP)

        def is_refused():
            return "[emerg]" in self.errors()[before:]

        def is_new():
            there = self.children() if wait else self.workers()
            return len(set(self.workers()) - old) >= self.number and not old & set(there)
        self.wait_for(lambda: is_refused() or is_new())
        if not is_refused() and not is_new():
            raise WrongEnd(f"old workers {sorted(old & set(self.children()))} do not end, or new ones do not come:\n{self.states()}\n{self.said()}")
        return not is_refused()

    def send(self, number, pid=None):
        """A signal, to the master or to that worker."""
        os.kill(pid or self.process.pid, number)

    def wait_for(self, ask, seconds=PATIENCE_SECONDS):
        return poll(ask, seconds)

    def allow(self, pattern):
        """Lines of the error log with this (a regular expression) are as they should be."""
        self.allowed.append(re.compile(pattern))

    def stop(self, number=signal.SIGQUIT, code=0):
        """Ends it, gracefully unless told otherwise, and raises unless all was well."""
        if self.process.poll() is None:
            self.send(number)
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            said = f"{self.states()}\n{self.said()}"
            self.kill()
            raise WrongEnd(f"nginx does not end in {PATIENCE_SECONDS:.0f} s:\n{said}") from None
        if self.process.returncode != code:
            raise WrongEnd(f"exit code {self.process.returncode}, not {code}:\n{self.said()}\n{self.reports()}")
        self.judge()

    def stop_at_once(self):
        """SIGTERM. False: a worker did not end within a second or two, so that nginx killed it, as it does."""
        self.allow(KILLED)
        self.stop(signal.SIGTERM)
        return not re.search(KILLED, self.errors())

    def judge(self):
        """Raises where something was logged that must not be."""
        bad = [line for line in BAD_LINES.findall(self.errors()) if not any(it.search(line) for it in self.allowed)]
        if self.reports() or bad:
            raise WrongEnd("in nginx's log:\n" + "\n".join(bad) + self.reports())

    def kill(self):
        """Ends it and its workers at once."""
        if not self.process:
            return
        pids = self.children()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        poll(lambda: not any(map(is_alive, pids)))
        self.output.close()

    # -- what it says --

    def errors(self):
        return self.read("error.log")

    def read(self, name):
        try:
            return (self.folder / name).read_text(errors="backslashreplace")
        except FileNotFoundError:
            return ""

    def access(self, name="access.log"):
        """The lines of a log that the configuration writes into {folder}."""
        return self.read(name).splitlines()

    def said(self):
        return f"{self.read('output')[-4000:]}\n{self.errors()[-6000:]}"

    def reports(self):
        """What sanitizers said."""
        texts = [path.read_text(errors="replace")[:8000] for path in sorted(self.folder.glob("report*"))]
        texts += [text for text in (self.read("output"), self.errors()) if weir_server.REPORTS.search(text)]
        return "\n".join(texts)

    # -- asking it --

    def client(self, port="port", **options):
        """A keep-alive connection."""
        return Client(self.port_of(port), **options)

    def get(self, path="/", fields=None, method="GET", body=None, port="port"):
        """One request over a connection of its own, which is closed afterwards."""
        with self.client(port) as client:
            return client.get(path, fields, method, body)

    def statuses(self, paths, fields=None, port="port"):
        """The status codes of these requests, pipelined over one connection."""
        with self.client(port) as client:
            return [answer.status for answer in client.pipeline([get(path, fields) for path in paths])]

    def url(self, path="/", port="port"):
        return f"http://127.0.0.1:{self.port_of(port)}{path}"


def until_at_once(attempt):
    """For what must end by itself at SIGTERM: attempt() returns stop_at_once()'s False where nginx did not wait for it. A busy
    machine may be too slow now and then, a worker that holds something up always is."""
    for _ in range(10):
        if attempt() is not False:
            return
    raise WrongEnd("workers do not end at SIGTERM: nginx kills them")


def serve(locations, http="", **options):
    """An nginx with the zone z and all variables SHOWN; a location that does not begin with where its answers come from
    (a proxy, files) answers with a small picture."""
    pictures = re.sub(r"(location [^{]*\{)(?! (?:proxy_pass|root|alias|weir_info))", r"\1 empty_gif;", locations)
    return Nginx(f"weir_zone z 1m;\n{http}", f"{SHOWN}\n{pictures}", **options)


def is_alive(pid):
    """Whether it runs; not what has ended and waits for its parent to notice."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
