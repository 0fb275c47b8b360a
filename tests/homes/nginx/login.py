#!/usr/bin/env python3
"""The recipes of docs/LOGIN.md, with applications that answer in the ways of the page's table: guesses are
stopped, right passwords cost nothing, a locked account looks like a wrong password, a known device helps with its own account alone.
"""
import base64
import hmac
import pathlib
import re
import sys
import urllib.parse

from lib import checks, lua_nginx, ports
from lib.nginx_server import Backend, Nginx

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/LOGIN.md").read_text(encoding="utf-8")
BY_ADDRESS, = re.findall(r"(?ms)^```nginx\n(.*?)^```$", PAGE)
BY_ACCOUNT = (ROOT / "examples/login/nginx.conf").read_text(encoding="utf-8")
LUA = "".join(f"load_module {lua_nginx.MODULES}/{name}.so;" for name in ("ndk_http_module", "ngx_http_lua_module"))
WRONG = {"401": ("401 Unauthorized", ""), "form": ("200 OK", ""), "same": ("302 Found", "Location: /login?error\r\n")}
RIGHT = {"401": ("204 No Content", ""), "form": ("302 Found", "Location: /home\r\n"), "same": ("302 Found", "Location: /home\r\n")}


def rows():
    """What the page's table says to write, by kind: (alone, of addresses, of accounts)."""
    table = re.findall(r"(?m)^\| (?:401|200, the form again|both the same) \|[^|]*\|(.*)\|(.*)\|$", PAGE)
    texts = [(*re.findall("`([^`]+)`", address), *re.findall("`([^`]+)`", account)) for address, account in table]
    return {"401": texts[0], "form": texts[1], "same": (texts[2][0],) * 3}


class Application(Backend):
    """Every password but `right` is wrong; what was tried is in `tried`."""

    def __init__(self, kind):
        super().__init__(self.reply)
        self.kind, self.tried = kind, []

    @staticmethod
    def head(stream):
        """The head, and the body behind it."""
        lines = []
        while (line := stream.readline()) not in (b"", b"\r\n"):
            lines.append(line.decode("latin-1"))
        length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
        return "".join(lines) + stream.read(length).decode() if lines else ""

    def reply(self, text):
        if text.startswith("GET"):
            return self.answer("200 OK", "X-Form: 1\r\n")
        fields = urllib.parse.parse_qs(text.rpartition("\r\n")[2])
        account, password = (fields.get(name, [""])[0] for name in ("account", "password"))
        self.tried.append((account, password))
        return self.answer(*(RIGHT if password == "right" else WRONG)[self.kind])


def recipe(text, kind, application):
    """A recipe as its reader changes it: the row of the table, the application, no stand-in."""
    alone, address, account = rows()[kind]
    text = text[:re.search(r"(?m)^server \{ +# stands in", text).start()]
    text = text.replace("on=400,401 ", f"{address} ").replace("on=401 ", f"{alone if text.startswith(BY_ADDRESS[:20]) else account} ")
    for number, place in (("listen 8080", "listen 127.0.0.1:{port}"), ("127.0.0.1:8082", "127.0.0.1:{port3}"),
                          ("127.0.0.1:8081", f"127.0.0.1:{application.port}"), ("/var/log/nginx", "{folder}"),
                          ('local secret = ""', 'local secret = "s3cret"')):
        text = text.replace(number, place)
    head = re.search(r"`(map \$upstream_http_location \$failed [^`]*)`", PAGE)[1]
    offices = "set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;\n"
    return offices + (head + "\n" if kind == "same" else "") + text


def login(nginx, account, password, address="192.0.2.7", cookie="", path="/login"):
    fields = {"X-Real-IP": address, "Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
    return nginx.get(path, fields, "POST", urllib.parse.urlencode({"account": account, "password": password}).encode())


def device(account, secret=b"s3cret"):
    return "device=" + base64.urlsafe_b64encode(hmac.digest(secret, account.encode(), "sha1")).decode().rstrip("=")


def run(kind, text):
    with Application(kind) as application, Nginx(recipe(text, kind, application), main=LUA) as nginx:
        yield application, nginx


def test_by_address(check):
    for kind in WRONG:
        for application, nginx in run(kind, BY_ADDRESS):
            answers = [login(nginx, "ann", "right").status for _ in range(9)] + [nginx.get("/login").status for _ in range(9)]
            check(429 not in answers, f"{kind}: right passwords and the form cost nothing: {answers}")
            check.equal([login(nginx, "ann", "wrong").status == 429 for _ in range(7)], [False] * 5 + [True] * 2, f"{kind}: guesses")
            application.tried.clear()
            odd = ("/login;/../x", "/login%3b/../x", "/login;x/%2e%2e/foo", "/login;x", "/x/..;/login", "/%256cogin", "/%5Clogin", "/x\\login", "/x/..", "/./login")
            check.equal({path: login(nginx, "ann", "wrong", path=path).status for path in odd}, dict.fromkeys(odd, 404), f"{kind}: other spellings")
            check.equal(application.tried, [], f"{kind}: they do not reach the application")
            check.equal(nginx.get("/login.well-known/..x?next=%2Fhome;a%25").status, 200, f"{kind}: not odd")


def whole(answer):
    """All that a client sees of an answer, without its clock."""
    return answer.status, [it for it in answer.fields.items() if it[0] != "date"], answer.body


def test_by_account(check):
    for kind in WRONG:
        for application, nginx in run(kind, BY_ACCOUNT):
            check.equal({login(nginx, "ann", "right").status for _ in range(30)}, {int(RIGHT[kind][0][:3])}, f"{kind}: right passwords")
            check.equal({nginx.get("/login").status for _ in range(30)}, {200}, f"{kind}: the form")
            answers = [whole(login(nginx, "Ann", f"wrong{i}", f"192.0.2.{i}")) for i in range(20)]
            check.equal({str(it) for it in answers}, {str(answers[0])}, f"{kind}: a locked account looks like a wrong password")
            guesses = [it for it in application.tried if it[1].startswith("wrong")]
            check.equal(len(guesses), 10, f"{kind}: ten guesses")
            check.equal(whole(login(nginx, "Ann", "right", "192.0.2.99")), answers[0], f"{kind}: nor does the right one help")
            check.equal([(name, len(password)) for name, password in application.tried[-11:]],
                        [("Ann", 7)] * 10 + [("Ann", 5)], f"{kind}: then the application sees the name as typed, and another password of that length")
            for password in ("", "right", "x" * 3000, "p\u0430r\u043e", "\u043f\u0430\u0440", " ", "a\0b"):
                login(nginx, "ann", password, f"203.0.113.{len(application.tried)}")
                tried = application.tried[-1][1]
                check.equal(len(tried.encode()), len(password.encode()), f"{kind}: as long as {password[:9]!r}, for checks of length")
                check(tried != password or not password, f"{kind}: never {password[:9]!r} itself: {tried[:9]!r}")
            locked = [login(nginx, "ann", "x", "198.51.100.1").status == 429 for _ in range(22)]
            check.equal(locked, [False] * 20 + [True] * 2, f"{kind}: guesses at a locked account count for the address")
            bad = [nginx.get("/login", {"X-Real-IP": "198.51.100.2"}, "POST", b"nothing").status for _ in range(22)]
            check.equal(bad, [400] * 20 + [429] * 2, f"{kind}: bad forms, too")
            state = nginx.get("/keys?key=account:ann", port="port3").json["states"][0]
            check((state["remaining"], 0 < state["retry_after"] <= 3600) == (0, True), f"{kind}: it is shown: {state}")


def test_devices(check):
    for application, nginx in run("form", BY_ACCOUNT):
        for i in range(12):
            login(nginx, "ann", "wrong", f"192.0.2.{i}")
        check.equal(login(nginx, "ann", "right", cookie=device("ann")).status, 302, "ann's own device, while her account is locked")
        check.equal(login(nginx, "ANN", "right", cookie=device("ann")).status, 302, "in any spelling")
        for cookie in (device("eve"), device("ann", b"other"), device("ann", b""), "device=", device("ann")[:-1], device("ann") + "=", device("ann").upper()):
            check.equal(login(nginx, "ann", "right", cookie=cookie).status, 200, f"not with {cookie}")
        application.tried.clear()
        for i in range(40):
            login(nginx, "bob", f"wrong{i}", f"203.0.113.{i}", device("eve"))
            login(nginx, "ann", f"wrong{i}", f"203.0.113.{i}", device("ann"))
        tried = [name for name, password in application.tried if password.startswith("wrong")]
        check.equal((tried.count("bob"), tried.count("ann")), (10, 10), "eve's device does not help with bob; a stolen one has a limit of its own")
        for i in range(25):
            login(nginx, "eve", "wrong", "203.0.113.200")
        check.equal(login(nginx, "carl", "right", "203.0.113.200").status, 429, "an address that failed")
        check.equal(login(nginx, "carl", "right", "203.0.113.200", device("carl")).status, 302, "a known device there")


def test_undecided(check):
    """If Redis does not decide, nobody is told that a password is wrong: 503, from either limit."""
    with Application("form") as application:
        text = recipe(BY_ACCOUNT, "form", application).replace("weir_headers off;", f"weir_store redis://127.0.0.1:{ports.take()} fail=closed;")
        with Nginx(text, main=LUA) as nginx:
            answers = [login(nginx, "ann", "right", cookie=cookie) for cookie in ("", device("ann"))]
            check.equal([it.status for it in answers], [503, 503], "an unknown device, and a known one")
            check.equal(application.tried, [], "the application is not asked")


def test_no_secret(check):
    """As long as no secret is written no device is known."""
    with Application("form") as application, Nginx(recipe(BY_ACCOUNT, "form", application).replace('"s3cret"', '""'), main=LUA) as nginx:
        for i in range(12):
            login(nginx, "ann", "wrong", f"192.0.2.{i}", device("ann", b""))
        check.equal(login(nginx, "ann", "right", cookie=device("ann", b"")).status, 200, "locked")


if __name__ == "__main__":
    sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
