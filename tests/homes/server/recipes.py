#!/usr/bin/env python3
"""The proxies of docs/PROXY.md and the programs of examples/server, with real servers: what the page and the files tell
people to write is read from them, with free ports in place of their own.

    tests/homes/server/recipes.py [NAME …]

nginx, Caddy, Python with Flask, Starlette and uvicorn, Node, npm and Go must be there.
"""
import http.server
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request


from lib import checks, ports, weir_server
from lib.build import ROOT

PAGE = (ROOT / "docs/PROXY.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples/server"
HERE = ROOT / "tests/homes/server"
START_SECONDS = 600  # go builds first
NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{}}
http {{
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder}; access_log off;
{text}
}}
"""


def block(heading, tag):
    """The first fenced block with this tag under a heading of the page."""
    section = re.split(rf"(?m)^#+ {re.escape(heading)}$", PAGE)[1]
    return re.search(rf"(?ms)^```{re.escape(tag)}$\n(.*?)^```$", section)[1]


def fetch(port, path="/", fields=None, body=None):
    """Status and fields of an answer; with a body it is a POST."""
    request = urllib.request.Request(f"http://localhost:{port}{path}", body, fields or {})
    try:
        with urllib.request.urlopen(request, timeout=weir_server.PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


class Backend(http.server.BaseHTTPRequestHandler):
    """What stands behind the proxies: says hello to everybody."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Program:
    """A program that listens on a port, in a folder of its own, ended at the end."""

    def __init__(self, words, port, env=None):
        self.words, self.port, self.env = words, port, dict(os.environ, **(env or {}))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-recipe-"))

    def __enter__(self):
        self.log = open(self.folder / "log", "w+", encoding="utf-8")
        words = [word.replace("{folder}", str(self.folder)) for word in self.words]
        self.process = subprocess.Popen(words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_SECONDS
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > end:
                said = self.said()
                self.__exit__()
                raise RuntimeError(f"{words[0]} does not start:\n{said}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(weir_server.STOP_SECONDS)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self):
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def listens(self):
        try:
            socket.create_connection(("localhost", self.port), 1).close()
            return True
        except OSError:
            return False


def proxied(check, name, start):
    """A proxy before a backend, by the page's policies: five logins a minute and address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend) as backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        with weir_server.Server("--test-clock", policies=block("The limits", "yaml proxied.yaml")) as server:
            stop_the_clock(server)
            with start(server.port, backend.server_address[1]) as proxy:
                check_proxy(check, name, proxy)
                server.kill()
                away = fetch(proxy.port, "/login")[0]
                check.equal(away, 200 if name == "nginx" else 502, f"{name}: while weir is away")
                server.start()  # so that it ends as it should
        backend.shutdown()


def stop_the_clock(server):
    """What is spent does not come back, however long a busy machine takes."""
    with server.client() as client:
        client.call("WEIR.CLOCK", 1700000000000000)


def check_proxy(check, name, proxy):
    for i in range(5):
        status, fields = fetch(proxy.port, "/login?next=%2F", body=b"user=ann" if i % 2 else None)
        check.equal(status, 200, f"{name}: login {i + 1}\n{proxy.said()}")
    if name == "nginx":
        check.contains(fields["RateLimit"], '"login";r=0', f"{name}: what is left")
    status, fields = fetch(proxy.port, "/login")
    check.equal(status, 429, f"{name}: one too many")
    check(0 < int(fields["Retry-After"] or 0) <= 60, f"{name}: Retry-After {fields['Retry-After']}")
    check.contains(fields["RateLimit-Policy"] or "", '"login";q=5;w=60', f"{name}: the policy")
    for field, value in (("X-Forwarded-For", "192.0.2.1"), ("X-Real-IP", "192.0.2.1"), ("X-Forwarded-Uri", "/"),
                         ("X-Original-URI", "/"), ("X-Forwarded-Method", "PUT"), ("X-Forwarded-User", "eve")):
        status, _ = fetch(proxy.port, "/login", {field: value})
        check.equal(status, 429, f"{name}: {field} of the client changes nothing")
    status, _ = fetch(proxy.port, "/login?key=eve&limit=token-bucket+1000/s&attr.ip=192.0.2.1")
    check.equal(status, 429, f"{name}: the client's query changes nothing")
    check.equal(fetch(proxy.port, "/%6cogin")[0], 429, f"{name}: another spelling is the same path")
    check.equal(fetch(proxy.port, "/login;a=b")[0], 429, f"{name}: and so is one with a parameter")
    check.equal(fetch(proxy.port, "/other")[0], 200, f"{name}: other paths go on")
    status, fields = fetch(proxy.port, "/internal/x")
    check.equal((status, fields["Retry-After"]), (403, None), f"{name}: a deny list is not a limit")
    status, _ = fetch(proxy.port, "/other%0a")  # which weir cannot read
    check.equal(status, 400, f"{name}: what weir cannot read is not let through")


def test_nginx(check):
    def start(weir, backend):
        port = ports.take()
        text = (EXAMPLES / "nginx.conf").read_text(encoding="utf-8").replace("127.0.0.1:7311", f"127.0.0.1:{weir}")
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:8000", f"127.0.0.1:{backend}")
        text = text.replace("50ms", "60s")  # a busy machine
        program = Program(["nginx", "-c", "{folder}/nginx.conf", "-p", "{folder}"], port,
                          {"PATH": os.environ["PATH"] + ":/usr/sbin"})
        (program.folder / "nginx.conf").write_text(NGINX.format(folder=program.folder, text=text), encoding="utf-8")
        return program
    proxied(check, "nginx", start)


def test_caddy(check):

    def start(weir, backend):
        port = ports.take()
        text = block("Caddy", "text").replace("localhost:7311", f"127.0.0.1:{weir}")
        text = text.replace("example.com {", f"http://localhost:{port} {{\n\tbind 127.0.0.1")
        text = text.replace("localhost:8000", f"127.0.0.1:{backend}")
        program = Program(["caddy", "run", "--adapter", "caddyfile", "--config", "{folder}/Caddyfile"], port)
        program.env.update(HOME=str(program.folder), XDG_DATA_HOME=str(program.folder),
                           XDG_CONFIG_HOME=str(program.folder))
        (program.folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text, encoding="utf-8")
        return program
    proxied(check, "caddy", start)


def middleware(check, name, words):
    """A program of examples/server: three pages a minute and address."""
    policies = (EXAMPLES / "policies.yaml").read_text(encoding="utf-8")
    with weir_server.Server("--test-clock", policies=policies) as server:
        stop_the_clock(server)
        env = {"PORT": str(ports.take()), "WEIR_URL": f"http://127.0.0.1:{server.port}", "WEIR_DEADLINE": "60"}
        with Program(words, int(env["PORT"]), env) as program:
            for path in ("/a" + "/" * 17000,):  # what weir refuses is not let through
                status = fetch(program.port, path)[0]
                check(400 <= status < 500, f"{name}: {path[:9]}…, {len(path)} bytes: {status}")
            for i in range(3):
                status, fields = fetch(program.port, "/a%20b?c")
                check.equal(status, 200, f"{name}: request {i + 1}\n{program.said()}")
                check.contains(fields["RateLimit"] or "", f'"pages";r={2 - i}', f"{name}: what is left")
            status, fields = fetch(program.port)
            check.equal(status, 429, f"{name}: one too many")
            check(0 < int(fields["Retry-After"] or 0) <= 20, f"{name}: Retry-After {fields['Retry-After']}")
            check.equal(fields["Content-Type"], "application/problem+json", f"{name}: the denial's type")
            server.kill()
            check.equal(fetch(program.port)[0], 200, f"{name}: while weir is away")
            check.contains(program.said(), "weir does not answer", f"{name}: it says so")
            server.start()


def answers(check, name, words):
    """What a middleware does by the status of what it asks, also where another server than weir listens there: only
    200, 5xx and no answer let a request through."""
    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        status = 200

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"delay": 0}'
            self.send_response(Answer.status)
            self.send_header("Content-Length", "0" if Answer.status == 204 else str(len(body)))
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"" if Answer.status == 204 else body)

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "12")
            self.end_headers()
            self.wfile.write(b'{"delay": 0}')

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as asked:
        threading.Thread(target=asked.serve_forever, daemon=True).start()
        env = {"PORT": str(ports.take()), "WEIR_DEADLINE": "60",
               "WEIR_URL": f"http://127.0.0.1:{asked.server_address[1]}"}
        with Program(words, int(env["PORT"]), env) as program:
            for status, wanted in ((200, 200), (500, 200), (503, 200), (400, 400), (401, 401), (403, 403), (404, 404),
                                   (413, 413), (414, 414), (429, 429), (431, 431), (302, 500), (307, 500), (204, 500)):
                Answer.status = status
                check.equal(fetch(program.port)[0], wanted, f"{name}: where weir says {status}")
        asked.shutdown()


MOUNTED = """version: 1
policies:
  - name: login
    match: {path: /api/login}
    key: "'all'"
    limit: fixed-window 1/366d
"""


def whole_address(port):
    """A request whose target is a whole address, as clients of proxies send it: its status."""
    with socket.create_connection(("localhost", port), weir_server.PATIENCE_SECONDS) as it:
        it.sendall(f"GET http://localhost:{port}/api/login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return int(it.makefile("rb").readline().split()[1])


def mounted(check, name, words, **more):
    """The middleware in a framework, mounted at /api: policies see the path that the client sent."""
    with weir_server.Server(policies=MOUNTED) as server:
        env = {"PORT": str(ports.take()), "WEIR_URL": f"http://127.0.0.1:{server.port}", "WEIR_DEADLINE": "60",
               **more}
        with Program(words, int(env["PORT"]), env) as program:
            check.equal(fetch(program.port, "/api/other")[0], 200, f"{name}: what no policy is about\n{program.said()}")
            check.equal(fetch(program.port, "/api/login?a=b")[0], 200, f"{name}: the first")
            check.equal(fetch(program.port, "/api/login")[0], 429, f"{name}: the second")
            check.equal(fetch(program.port, "/api/%6cogin")[0], 429, f"{name}: in another spelling")
            check(whole_address(program.port) in (400, 404, 429), f"{name}: a whole address is no way around")


def starts_nothing(check, name, words):
    """Importing a module ends by itself, and says nothing."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    check.equal((done.returncode, done.stdout), (0, ""), f"{name}: imported")


def test_python(check):
    module = EXAMPLES / "weir_limits.py"
    starts_nothing(check, "python", [sys.executable, "-B", "-c", f"import runpy; runpy.run_path({str(module)!r})"])
    for test in (middleware, answers):
        test(check, "python", [sys.executable, "-B", str(EXAMPLES / "demo.py")])


def test_python_frameworks(check):
    for name in ("flask", "starlette"):  # as Debian has them
        mounted(check, name, ["/usr/bin/python3", str(HERE / "mounted_python.py"), name])


def test_node(check):
    module = (EXAMPLES / "weir-limits.mjs").as_uri()
    starts_nothing(check, "node", ["node", "--input-type=module", "-e", f"await import({module!r})"])
    for test in (middleware, answers):
        test(check, "node", ["node", str(EXAMPLES / "demo.mjs")])


def test_express(check):
    done = subprocess.run([str(HERE / "npm_deps.sh")], stdout=subprocess.PIPE, text=True, check=True)
    mounted(check, "express", ["node", str(HERE / "mounted_express.mjs")], NODE_PATH=done.stdout.strip())


def test_go(check):
    with tempfile.TemporaryDirectory(prefix="weir-recipe-") as folder:
        tree = pathlib.Path(folder) / "go"
        shutil.copytree(EXAMPLES / "go", tree)
        (tree / "mounted").mkdir()
        shutil.copy(HERE / "mounted.go", tree / "mounted" / "main.go")
        env = dict(os.environ, GO111MODULE="on", GOFLAGS="", GOTOOLCHAIN="local",
                   GOCACHE=os.environ.get("GOCACHE", f"{folder}/cache"))
        subprocess.run(["go", "build", "-o", folder, "./demo", "./mounted"], cwd=tree, env=env, check=True)
        for test in (middleware, answers):
            test(check, "go", [f"{folder}/demo"])
        mounted(check, "go", [f"{folder}/mounted"])


if __name__ == "__main__":
    sys.exit(checks.run([test_nginx, test_caddy, test_python, test_python_frameworks, test_node, test_express, test_go],
                             sys.argv[1:]))
