"""nginx for the blocks of a page: configuration tested by nginx itself, and real nginxes with weir's module.

    home = Home(scratch folder, redis)                     redis: redis_home.Home, for pages that name port 6379
    problem, printed = home.check(block)                   nginx -t
    server = home.server()                                 runs what the page's last such block says
    text = server.there(text)       what the page calls ports 8080 to 8082, /etc/nginx, /var/log/nginx, /var/www/html
                                    is this server's
    printed = server.back(printed)  and the other way round

A block is text of http {}, which pages call /etc/nginx/conf.d/site.conf; `nginx server`, `nginx location` and
`nginx main` are text of these levels, main being a whole nginx.conf. With `lua` Debian's module for Lua is loaded, too. With
`from=FILE` the block shows lines of that file, and the whole file is what runs. Where the first `sh nginx` block behind it starts a
server, others go on with it; nginx on their PATH is that server's, and its `-s reload` is back when only new workers run.
A server must not have logged [alert] or [emerg] when it is stopped, which the page's next nginx block does.

Tables whose second column begins with `weir_` are replacements: each goes through nginx -t, and so does what it replaces.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from lib import nginx_server
import redis_home  # noqa: E402

PORTS = {"8080": "port", "8081": "port2", "8082": "port3"}
REDIS_PORT = "6379"
MODULE_THERE = "/usr/lib/nginx/modules/ngx_http_weir_module.so"
MODULE = re.compile(r"(?<=load_module )\S*ngx_http_weir_module\.so")
# what pages call files, and what they are in a server's folder; the longer ones first
FILES = (("/etc/nginx/conf.d/site.conf", "{folder}/http.conf"), ("/etc/nginx", "{folder}"),
         ("/var/log/nginx", "{folder}"), ("/var/www/html", "{folder}/html"))
LUA = "".join(f"load_module /usr/lib/nginx/modules/{name}.so;" for name in ("ndk_http_module", "ngx_http_lua_module"))
PAGE = "<h1>It works</h1>\n"
LARGE = 400000  # bytes of /large.bin
RELOADING = """#!/bin/sh
count() { grep -Ec "start worker process [0-9]+" "$DOCS_NGINX_FOLDER/error.log"; }
gone() { grep -c "exited with code" "$DOCS_NGINX_FOLDER/error.log"; }
before=$(count) left=$(gone)
"$DOCS_NGINX" -p "$DOCS_NGINX_FOLDER/" -c nginx.conf -e "$DOCS_NGINX_FOLDER/error.log" "$@" || exit
case "$*" in *reload*)
    for _ in $(seq 3000); do
        [ "$(count)" -gt "$before" ] && [ "$(gone)" -gt "$left" ] && exit 0
        sleep 0.02
    done
    echo "nginx does not reload" >&2
    exit 1
esac
"""

# nginx answers a request before it logs it. Its one worker has done so when it has seen that another connection was closed.
READING = """#!/bin/sh
case "$*" in *.log*)
    python3 -c 'import socket, sys
it = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
it.shutdown(socket.SHUT_WR)
it.recv(1)' "$DOCS_NGINX_PORT" || exit
esac
exec /bin/cat "$@"
"""


class Dressed(nginx_server.Nginx):
    """An nginx, and how a page speaks of it."""

    def __init__(self, text, flags, redis):
        self.whole = "main" in flags
        self.redis_port = str(redis.server([]).port) if REDIS_PORT in text else REDIS_PORT
        super().__init__(self.placed(self.level(text, flags)), main=LUA if "lua" in flags else "",
                         files={"html/index.html": PAGE, "html/large.bin": "x" * LARGE})

    @staticmethod
    def level(text, flags):
        if "location" in flags:
            text = f"location / {{\n{text}}}\n"
        if "server" in flags or "location" in flags:
            text = f"weir_zone clients 10m; server {{ listen 8080;\n{text}}}\n"
        return text

    def placed(self, text):
        """Text of a page with the names of places that Nginx fills in."""
        text = redis_home.patient(text).replace("deadline=50ms", "deadline=10s")
        text = re.sub(r"\blisten +(?=\d+[; ])", "listen 127.0.0.1:", text)
        for number, name in PORTS.items():
            text = re.sub(rf"\b{number}\b", f"{{{name}}}", text)
        for name, place in FILES:
            text = text.replace(name, place)
        return re.sub(rf"\b{REDIS_PORT}\b", self.redis_port, text)

    def configure(self):
        super().configure()
        if not self.whole:
            return
        made = (self.folder / "nginx.conf").read_text()
        head = " ".join(line for line in made.split("events")[0].splitlines() if "load_module" not in line)
        inside = " ".join(line for line in made.splitlines() if "_temp_path" in line or line.startswith("access_log"))
        text = MODULE.sub(str(nginx_server.NGINX_MODULE), self.http).replace("http {", f"http {{ {inside}", 1)
        self.write("nginx.conf", f"{head} {text}")

    def test(self):
        """(exit code, what was said) of nginx -t."""
        self.configure()
        done = subprocess.run([*self.words(), "-t"], env=self.environment(), stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, self.back(done.stdout)

    def there(self, text):
        return self.filled(self.placed(text))

    def back(self, text):
        text = text.replace(f"{self.folder}/http.conf", "/etc/nginx/conf.d/site.conf")
        text = text.replace(f"{self.folder}/html", "/var/www/html").replace(str(nginx_server.NGINX_MODULE), MODULE_THERE)
        text = re.sub(rf"{self.folder}/(?=\w+\.log)", "/var/log/nginx/", text).replace(str(self.folder), "/etc/nginx")
        for number, name in PORTS.items():
            if name in self.ports:
                text = re.sub(rf"\b{self.ports[name]}\b", number, text)
        return re.sub(rf"\b{self.redis_port}\b", REDIS_PORT, text)

    def environment_of(self, env, folder):
        """For shell beside it: its nginx comes first, and so does a cat that waits for the log."""
        for name, text in (("nginx", RELOADING), ("cat", READING)):
            path = folder / name
            path.write_text(text, encoding="ascii")
            path.chmod(0o755)
        return dict(env, PATH=f"{folder}:{env['PATH']}", DOCS_NGINX=nginx_server.NGINX,
                    DOCS_NGINX_FOLDER=str(self.folder), DOCS_NGINX_PORT=str(self.port))


def text_of(block):
    """What a block means: its text, or the file that it shows lines of."""
    source = next((flag[5:] for flag in block.flags if flag.startswith("from=")), None)
    if not source:
        return block.text()
    text = (ROOT / source).read_text(encoding="utf-8")
    if block.text() not in text:
        raise RuntimeError(f"these lines are not in {source}")
    return text


class Home:
    def __init__(self, folder, redis):
        self.folder, self.redis = pathlib.Path(folder), redis
        self.block, self.running = None, None

    def close(self):
        """Raises WrongEnd where a server has something to answer for."""
        server, self.running = self.running, None
        if not server:
            return
        try:
            server.stop()
        finally:
            server.clear()

    def check(self, block):
        """What nginx -t says of a block: (problem or None, what it printed)."""
        refused = "refused" in block.flags
        self.block = self.block if refused else block
        self.close()
        nginx = Dressed(text_of(block), block.flags, self.redis)
        try:
            code, printed = nginx.test()
        finally:
            nginx.clear()
        wrong = (code == 0) if refused else (code != 0 or "[warn]" in printed)
        return (f"nginx -t ended with {code}\n{printed}" if wrong else None), printed

    def server(self):
        if not self.block:
            raise RuntimeError("no nginx block stands before it")
        if not self.running:
            self.running = Dressed(text_of(self.block), self.block.flags, self.redis)
            self.running.start()
        return self.running

    def environment(self, env):
        folder = self.folder / "home/nginx"
        folder.mkdir(parents=True, exist_ok=True)
        self.redis.tools()
        env = dict(env, PATH=f"{self.redis.bin}:{env['PATH']}", DOCS_PORT=self.running.redis_port)
        return self.running.environment_of(env, folder)


# ---- replacements ----

def replacements(page):
    """(line, before, after) of the rows of a page's tables that replace something by weir_…"""
    found = []
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("| `") else []
        if len(cells) == 3 and cells[1].startswith("`weir_"):
            found.append((number, *(re.findall(r"`([^`]+)`", cell) for cell in cells[:2])))
    return found


def configuration(directives):
    """One http {} of directives: what declares zones goes there, all else into a location; zones that they use but do
    not declare are added."""
    zones = [text for text in directives if re.match(r"(weir|limit_req|limit_conn)_zone ", text)]
    others = [text for text in directives if text not in zones]
    for name in sorted(set(re.findall(r"\bzone=(\w+)", " ".join(others)))):
        if not re.search(rf"weir_zone {name} |zone={name}:", " ".join(zones)):
            zones += [f"weir_zone {name} 10m;"] if "weir_" in " ".join(others) else [
                f"limit_req_zone $binary_remote_addr zone={name}:10m rate=10r/s;"]
    for name in sorted(set(re.findall(r"\blimit_conn (\w+)", " ".join(others)))):
        zones.append(f"limit_conn_zone $binary_remote_addr zone={name}:10m;")
    inside = "\n".join(text for text in others if text.endswith(";"))
    return "\n".join(zones) + "\nserver { listen 8080; location / {\n" + inside + "\n} }\n"


def check_replacements(page, redis):
    """[(name, problem or None)] for every row."""
    told = []
    for number, before, after in replacements(page):
        for what, directives in (("before", before), ("after", after)):
            directives = [text for text in directives if re.match(r"(weir|limit)_", text)]
            if not directives:
                continue
            nginx = Dressed(configuration(directives), [], redis)
            try:
                code, printed = nginx.test()
            finally:
                nginx.clear()
            problem = f"{configuration(directives)}\n{printed}" if code or "[warn]" in printed else None
            told.append((f"{page.relative_to(ROOT)}:{number}: {what}", problem))
    return told
