#!/usr/bin/env python3
"""weir_overload: connections of all workers, the system's load, and what is said to those that are turned away."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lib import checks, nginx_server
from lib.nginx_server import Nginx

FILES = {"html/a": "a\n"}
SEEN = "add_header x-status $weir_status always;\n"
FAKE = """
#include <stdio.h>
int getloadavg(double *loads, int n);
int getloadavg(double *loads, int n)
{
    FILE *file = fopen(PATH, "r");
    int got = file && n > 0 ? fscanf(file, "%lf", loads) : -1;
    if (file)
        fclose(file);
    return got;
}
"""


def test_connections(check):
    """Idle ones count, whichever worker has them."""
    server = SEEN + "location / { weir_overload connections=4; }\nlocation /free { alias {folder}/html/a; }\n"
    with Nginx("", server, workers=2, files=FILES) as nginx:
        idle = [nginx.client() for _ in range(3)]
        for it in idle:
            check.equal(it.get("/free").status, 200, "a place without it")
        answer = nginx.get("/a")
        check.equal((answer.status, answer.fields.get("x-status")), (200, None), "as many as there may be")
        with nginx.client() as another:
            another.get("/free")
            answer = nginx.get("/a")
            check.equal((answer.status, answer.fields.get("retry-after")), (503, "1"), "one more")
            check.equal(answer.fields["x-status"], "OVERLOADED", "one more: $weir_status")
            check("ratelimit" not in answer.fields, "there is no limit to tell of")
            check.contains(nginx.errors(), "overloaded", "it is logged")
            with nginx.client() as more:
                more.get("/free")
                check.equal(another.get("/a").status, 503, "those that were there before are turned away, too")
        check(nginx.wait_for(lambda: nginx.get("/a").status == 200), "one less")
        for it in idle:
            it.close()


def test_levels(check):
    """Inheritance, off, a status of its own; together with limits, which are not charged then."""
    server = (SEEN + "weir_overload connections=1 status=529;\n"
              'location / { weir_limit key=k zone=z "fixed-window 1/100d"; }\n'
              "location /off { weir_overload off; alias {folder}/html/a; }\n"
              "location /own { weir_overload connections=100; alias {folder}/html/a; }\n"
              "location /page { error_page 529 =200 /a; }\n")
    with Nginx("weir_zone z 80k;", server, files=FILES) as nginx:
        with nginx.client() as idle:
            idle.get("/off")
            check.equal(nginx.statuses(["/a", "/off", "/own"]), [529, 200, 200], "levels")
            check.equal(nginx.get("/page").body, b"a\n", "its error page is shown, not rejected again")
        seen = []
        nginx.wait_for(lambda: seen.append(nginx.get("/a").status) or seen[-1] == 429)
        seen = [status for status in seen if status != 529]  # until nginx has seen that a connection is closed
        check.equal(seen, [200, 429], "when it is over, the one request there may be was not used up before")


def fake_load(folder):
    """An environment in which the load is what the file load says."""
    (folder / "fake.c").write_text(FAKE)
    subprocess.run(["cc", "-shared", "-fPIC", f'-DPATH="{folder}/load"', "-o", folder / "fake.so", folder / "fake.c"],
                   check=True)
    first = nginx_server.sanitized_environment(folder).get("LD_PRELOAD")
    return {"LD_PRELOAD": ":".join(filter(None, (first, str(folder / "fake.so"))))}


def test_load(check):
    with tempfile.TemporaryDirectory(prefix="weir-load-") as name:
        folder = pathlib.Path(name)
        (folder / "load").write_text("1.5")
        server = (SEEN + "location / { weir_overload load=1.5; }\n"
                  "location /both { weir_overload load=2.25 connections=1000; alias {folder}/html/a; }")
        with Nginx("", server, files=FILES, env=fake_load(folder)) as nginx:
            check.equal(nginx.statuses(["/a", "/both"]), [200, 200], "not above")
            (folder / "load").write_text("1.51")
            check(nginx.wait_for(lambda: nginx.get("/a").status == 503), "above")
            answer = nginx.get("/a")
            check.equal((answer.fields["x-status"], answer.fields["retry-after"]), ("OVERLOADED", "1"), "above")
            check.equal(nginx.get("/both").status, 200, "not above another")
            (folder / "load").write_text("2.26")
            check(nginx.wait_for(lambda: nginx.get("/both").status == 503), "above both")
            (folder / "load").unlink()
            check(nginx.wait_for(lambda: nginx.get("/both").status == 200), "a system that does not tell")


def test_configuration(check):
    wrong = [("", "invalid number of arguments"), ("status=503", "needs connections= or load="),
             ("connections=0", "number from 1"), ("connections=-1", "number from 1"), ("connections=", "number from 1"),
             ("connections=12a", "number from 1"), ("load=0", "from 0.01"), ("load=x", "from 0.01"),
             ("load=-1", "from 0.01"), ("load=0.001", "from 0.01"), ("load=10000.01", "from 0.01"),
             ("load=1 status=200", "400 to 599"),
             ("load=1 status=600", "400 to 599"), ("load=1 load=2", "given twice"), ("load=1 off", "off alone"),
             ("memory=1", "expected connections="), ("Load=1", "expected connections="),
             ("load=1; weir_overload load=2", "twice"), ("off; weir_overload off", "twice")]
    for words, message in wrong:
        code, said = Nginx.check("", f"weir_overload {words};")
        check.equal(code, 1, f"weir_overload {words} is refused")
        check.contains(said, message, words)
        check.contains(said, "server.conf:1", words)
    for words in ("load=0.01", "load=10000", "connections=1 load=1.5 status=400", "off"):
        check.equal(Nginx.check("", f"weir_overload {words};")[0], 0, f"weir_overload {words}")


def test_no_stub_status(check):
    """An nginx that does not count connections: this one, with that symbol under another name."""
    with tempfile.TemporaryDirectory(prefix="weir-nginx-") as folder:
        program = pathlib.Path(folder) / "nginx"
        code = pathlib.Path(nginx_server.NGINX).read_bytes()
        check.equal(code.count(b"\0ngx_stat_active\0"), 1, "where the symbol is")
        program.write_bytes(code.replace(b"\0ngx_stat_active\0", b"\0ngx_stat_nothing"[:16] + b"\0"))
        shutil.copymode(nginx_server.NGINX, program)
        usual, nginx_server.NGINX = nginx_server.NGINX, str(program)
        try:
            code, said = Nginx.check("", "weir_overload connections=10;")
            check.equal(code, 1, "connections= is refused there")
            check(re.search(r"built without --with-http_stub_status_module; use load=.*server.conf:1", said), said)
            check.equal(Nginx.check("", "weir_overload load=10;")[0], 0, "load= is not")
            with Nginx("", "location / { weir_overload load=10000; }", files=FILES) as nginx:
                check.equal(nginx.get("/a").status, 200, "and works")
        finally:
            nginx_server.NGINX = usual


if __name__ == "__main__":
    sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
