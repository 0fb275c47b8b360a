"""Redis for the blocks of a page: real servers, started when first needed, and the clients that speak to them.

    with Home(scratch folder) as home:
        server = home.server(["redis", "no-module"])
        text = server.there(text)      what the page calls port 6379 is this server's port, and the module's path;
                                       deadlines that are good advice, but too short for a busy machine, are longer
        printed = server.back(printed)  and the other way round

`home.bin` goes first on PATH for such blocks: redis-cli there speaks to the server of $DOCS_PORT, and prints as on
a terminal what goes to the block's own output; python3, node and go find their Redis client, or say which Debian
package is missing.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from lib import ports, redis_server

INSTALLED = "/usr/local/lib/x86_64-linux-gnu/weir/weir_redis.so"
SCRIPTS = "/usr/local/share/weir/lua"
PORT = "6379"
PATIENT = "?deadline=10s"
DEADLINES = {"socket_timeout=0.05": "socket_timeout=30", "socket_timeout=0.5": "socket_timeout=30",
             "DialReadTimeout(50*time.Millisecond)": "DialReadTimeout(30*time.Second)"}
NODE = pathlib.Path("/usr/share/nodejs")
GO = pathlib.Path("/usr/share/gocode")


def patient(text):
    """The same without haste."""
    for short, long in DEADLINES.items():
        text = text.replace(short, long)
    return re.sub(rf"((?:--store |open\(\"|Store\(\")redis://[^\s?\"']*:{PORT})(?![\w?])", rf"\1{PATIENT}", text)


class Dressed(redis_server.Server):
    """A server and how a page speaks of it."""

    def __init__(self, module, options="", config=""):
        super().__init__(options, config)
        self.module = module

    def there(self, text):
        text = re.sub(rf"\b{PORT}\b", str(self.port), patient(text)).replace(INSTALLED, self.module)
        return text.replace(SCRIPTS, str(pathlib.Path(self.module).parent / "lua"))

    def back(self, text):
        return re.sub(rf"\b{self.port}\b", PORT, text).replace(self.module, INSTALLED).replace(PATIENT, "")


def has(*words):
    try:
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def python():
    """A Python with redis-py: not every python3 on PATH sees the system's packages."""
    found = (one for one in (sys.executable, "/usr/bin/python3") if has(one, "-c", "import redis"))
    return next(found, None)


class Home:
    def __init__(self, folder, build):
        self.folder, self.module, self.servers = pathlib.Path(folder), str(build / "weir_redis.so"), {}
        self.bin = self.folder / "home/bin"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.__exit__()

    def tool(self, name, program, package, arguments=""):
        """A command for the blocks; without its program it says what to install."""
        text = (f"exec {program} {arguments} \"$@\"" if program else
                f"echo '{name}, or its Redis client, is missing: apt-get install {package}' >&2; exit 127")
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def tools(self):
        if self.bin.exists():
            return
        self.bin.mkdir(parents=True)
        if NODE.is_dir() and not (self.folder / "node_modules").exists():
            (self.folder / "node_modules").symlink_to(NODE)
        node = shutil.which("node") if (NODE / "redis").is_dir() else None
        go = shutil.which("go") if (GO / "src/github.com/gomodule/redigo").is_dir() else None
        client = shutil.which("redis-cli") or shutil.which("valkey-cli")
        self.tool("python3", python(), "python3-redis")
        self.tool("node", node and f"env NODE_PATH={NODE} {node}", "nodejs node-redis")
        self.tool("go", go and f"env GO111MODULE=off GOPATH={GO} {go}", "golang-go golang-github-gomodule-redigo-dev")
        seen = "$([ \"$(readlink /proc/$$/fd/1)\" = \"$DOCS_STDOUT\" ] && echo --no-raw)"
        self.tool("redis-cli", client, "redis-tools", f"-p \"$DOCS_PORT\" {seen}")

    def server(self, flags):
        kind = next((flag for flag in ("no-module", "cluster") if flag in flags), "module")
        if kind not in self.servers:
            options = "" if kind == "no-module" else f"--loadmodule {self.module}"
            config = "enable-module-command yes\n"
            if kind == "cluster":
                options += " --cluster-enabled yes --cluster-announce-ip 127.0.0.1"
            server = Dressed(self.module, options, config)
            server.__enter__()
            self.servers[kind] = server
            if kind == "cluster":
                form_cluster(server)
        self.tools()
        return self.servers[kind]

    def environment(self, server, env):
        return dict(env, PATH=f"{self.bin}:{env['PATH']}", DOCS_PORT=str(server.port),
                    REDIS_URL=f"redis://127.0.0.1:{server.port}", WEIR_DEADLINE="30")

    def check_conf(self, block):
        """What is wrong with lines for redis.conf or sentinel.conf, or None: a server must start with them."""
        sentinel = "sentinel" in block.flags
        text = self.server([]).there(block.text())
        try:
            with redis_server.Server("--sentinel" if sentinel else "", text) as server, server.client() as client:
                if "loadmodule" in text:
                    client.call("WEIR.PEEK", "key", "token-bucket 1/s")
                if sentinel:
                    client.call("SENTINEL", "MASTERS")
        except (RuntimeError, redis_server.resp.RedisError) as error:
            return str(error)
        return None


def form_cluster(server):
    """All slots to this one node."""
    with server.client() as client:
        client.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        end = redis_server.time.monotonic() + redis_server.START_SECONDS
        while b"cluster_state:ok" not in client.call("CLUSTER", "INFO"):
            if redis_server.time.monotonic() > end:
                raise RuntimeError("the cluster does not form")
            redis_server.time.sleep(0.02)


def command(block, folder):
    """How a block in a client's language is run."""
    runner, ending = {"python": (["python3"], "py"), "js": (["node"], "mjs"), "go": (["go", "run"], "go")}[block.kind]
    return runner, pathlib.Path(folder) / f"block{block.line}.{ending}"


def show_terminal(text):
    """The words that run shell text such that redis-cli knows the block's own output."""
    return ["sh", "-c", 'DOCS_STDOUT=$(readlink /proc/$$/fd/1); export DOCS_STDOUT; exec sh -c "$1"', "sh", text]
