"""Logs for tests of src/desk: real programs that write them, and the reader's test program.

    with desk.Apache() as server:
        server.send(desk.REQUESTS)
    seen = desk.read(server.log("combined"), "--key", "ip")    # seen.keys .times .costs .facts .files .error

The requests come from several addresses of the loopback network, one after the other, so that the log has them in order.
"""
import collections
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import build, ports, weir_server

READ = build.BUILD / "tests" / "desk_read"
Request = collections.namedtuple("Request", "ip method target agent", defaults=("curl/8.1",))
Seen = collections.namedtuple("Seen", "times keys costs lines facts files code error")
REQUESTS = [
    Request("127.0.0.1", "GET", "/"),
    Request("127.0.0.2", "GET", "/login?user=ann&next=%2Fa"),
    Request("127.0.0.2", "POST", "/%6cogin"),
    Request("127.0.0.3", "GET", "/users/17/edit", 'with "quotes" and \\ backslash'),
    Request("127.0.0.3", "GET", "/users/18/edit", "ends with a backslash \\"),
    Request("127.0.0.4", "DELETE", "/a//b/../c;x=1?y"),
    Request("127.0.0.5", "GET", "/with'quote", "K\u00e4se [brackets] {braces}"),
]
PATHS = ["/", "/login", "/login", "/users/17/edit", "/users/18/edit", "/a/c", "/with'quote"]


def read(*words, text=None, file=None, files=None):
    """What the reader makes of a log; `text` or `file` is its standard input, `files` how many it may have open."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
    done = subprocess.run([str(READ), *map(str, words)], **({"stdin": file} if file else {"input": text}), capture_output=True,
                          timeout=600, env=weir_server.environment(), preexec_fn=limit)
    out, facts, files, lines = done.stdout.decode(errors="surrogateescape").split("\n"), {}, [], []
    for line in filter(None, out):
        words = line.split(" ", 2)
        if words[0] != "#":
            lines.append(line)
        elif words[1] in ("file", "example", "reason"):
            files.append(line[2:])
        else:
            facts[words[1]] = int(words[2])
    fields = [line.split(",", 1) for line in lines]
    return Seen([round(float(time) * 1e6) for time, _ in fields], [rest.rpartition(",")[0] for _, rest in fields],
                [rest.rpartition(",")[2] for _, rest in fields], lines, facts, files, done.returncode,
                done.stderr.decode(errors="replace").strip())


def send(port, request, fields=""):
    """One request on a connection of its own; back when the answer is over."""
    with socket.socket() as connection:
        connection.settimeout(weir_server.PATIENCE_SECONDS)
        connection.bind((request.ip, 0))
        connection.connect(("127.0.0.1", port))
        head = (f"{request.method} {request.target} HTTP/1.1\r\nHost: Example.COM:{port}\r\nUser-Agent: {request.agent}\r\n"
                f"{fields}Content-Length: 0\r\nConnection: close\r\n\r\n")
        connection.sendall(head.encode("utf-8"))
        while connection.recv(65536):
            pass


class Program:
    """A server in a folder of its own. `words` starts it; files are written before."""
    words = ()

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-desk-"))
        os.chmod(self.folder, 0o755)
        self.port = ports.take()
        self.process = None

    def configure(self):
        raise NotImplementedError

    def __enter__(self):
        self.configure()
        path = os.environ["PATH"] + ":/usr/sbin"
        homes = {name: str(self.folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        with open(self.folder / "output", "wb") as output:
            self.process = subprocess.Popen([word.format(folder=self.folder) for word in self.words],
                                            env=dict(os.environ, PATH=path, **homes), stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=subprocess.STDOUT, cwd=self.folder)
        end = time.monotonic() + weir_server.START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    said = (self.folder / "output").read_text(errors="replace")
                    self.__exit__()
                    raise RuntimeError(f"{self.words[0]} does not start: {said}") from None
                time.sleep(0.01)

    def send(self, requests, fields=""):
        for request in requests:
            send(self.port, request, fields)

    def stop(self):
        """Ends it, so that its logs are complete."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(weir_server.STOP_SECONDS)

    def __exit__(self, *_):
        self.stop()
        ports.give_back(self.port)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, name):
        return self.folder / name


class Apache(Program):
    words = ("apache2", "-f", "{folder}/apache.conf", "-D", "FOREGROUND")

    def configure(self):
        (self.folder / "html").mkdir()
        modules = "/usr/lib/apache2/modules"
        (self.folder / "apache.conf").write_text(f"""
ServerRoot {self.folder}
ServerName localhost
PidFile {self.folder}/pid
Mutex file:{self.folder} default
Listen 127.0.0.1:{self.port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
User nobody
Group nogroup
ErrorLog {self.folder}/error.log
DocumentRoot {self.folder}/html
LogFormat "%h %l %u %t \\"%r\\" %>s %b" common
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" combined
LogFormat "%v:%p %h %l %u %t \\"%r\\" %>s %O \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" vhost
CustomLog {self.folder}/common common
CustomLog {self.folder}/combined combined
CustomLog {self.folder}/vhost vhost
""", encoding="utf-8")


class HAProxy(Program):
    """Its log is `output`, and what it sends to syslog is in syslog()."""
    words = ("haproxy", "-db", "-f", "{folder}/haproxy.cfg")

    def __init__(self):
        super().__init__()
        self.syslog_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.syslog_socket.bind(("127.0.0.1", 0))

    def configure(self):
        (self.folder / "haproxy.cfg").write_text(f"""
global
    nbthread 1  # the threads of HAProxy do not agree on the millisecond
    log stdout format raw local0
    log 127.0.0.1:{self.syslog_socket.getsockname()[1]} format rfc3164 local0
defaults
    mode http
    option httplog
    option dontlognull
    log global
    timeout client 60s
    timeout connect 60s
    timeout server 60s
frontend web
    bind 127.0.0.1:{self.port}
    capture request header Host len 40
    http-request return status 200 content-type text/plain string hello
""", encoding="utf-8")

    def syslog(self, count):
        self.syslog_socket.settimeout(weir_server.PATIENCE_SECONDS)
        lines = []
        while len(lines) < count:
            line = self.syslog_socket.recv(65536)
            if b" [" in line and b'"' in line:
                lines.append(line.rstrip(b"\n"))
        return b"\n".join(lines) + b"\n"

    def __exit__(self, *rest):
        self.syslog_socket.close()
        super().__exit__(*rest)


class Caddy(Program):
    words = ("caddy", "run", "--adapter", "caddyfile", "--config", "{folder}/Caddyfile")

    def configure(self):
        (self.folder / "Caddyfile").write_text(f"""{{
    admin off
}}
http://:{self.port} {{
    bind 127.0.0.1
    log {{
        output file {self.folder}/access.json
    }}
    respond "hello"
}}
""", encoding="utf-8")
