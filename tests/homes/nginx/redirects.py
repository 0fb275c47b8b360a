#!/usr/bin/env python3
"""A request is decided and charged once a phase, whatever nginx makes of it: internal redirects, subrequests; and each
request of a connection by itself: keep-alive, pipelines, HTTP/2.
"""
import subprocess
import sys

from lib import checks
from lib.nginx_server import Backend, get, serve

READ = 'location = /read { weir_limit key=$arg_k zone=z "fixed-window 100/100d" cost=0; }\n'
LIMIT = 'weir_limit key=$arg_k zone=z "fixed-window 100/100d";'
LATE = LIMIT.replace(";", " phase=precontent;")
FILES = {"html/dir/index.html": "index\n", "html/a.txt": "a\n", "html/b.txt": "b\n", "html/private/secret": "secret\n",
         "html/page.html": "page\n", "html/ssi.txt": '<!--#include virtual="/a.txt?k=x" -->'
         '<!--#include virtual="/b.txt?k=x" --><!--#include virtual="/ssi2.txt?k=x" -->',
         "html/ssi2.txt": '<!--#include virtual="/a.txt?k=x" -->', "html/plus.txt": "plus\n"}


def charged(nginx, key):
    return 100 - int(nginx.get(f"/read?k={key}").weir["remaining"])


def once(check, nginx, path, wanted, what):
    """The key of the request is x in all of these; charged once more after it."""
    before = charged(nginx, "x")
    answer = nginx.get(path)
    check.equal((answer.status, answer.text), wanted, what)
    check.equal(charged(nginx, "x") - before, 1, f"{what}: charged once")
    check.equal(answer.weir.get("status"), "PASSED", f"{what}: $weir_status")
    check(answer.fields.get("ratelimit", "").count(";r=") == 1, f"{what}: one limit is told: {answer.fields}")


def test_redirects(check):
    """Both the location that is asked and the one it ends in have the limit."""
    locations = f"""{READ} {LIMIT}
        location / {{ root {{folder}}/html; }}
        location /try {{ root {{folder}}/html; try_files /nothing /a.txt?k=$arg_k; }}
        location /try-named {{ root {{folder}}/html; try_files /nothing @named; }}
        location @named {{ root {{folder}}/html; {LIMIT} try_files /b.txt =404; }}
        location /error {{ root {{folder}}/html; error_page 404 =200 /page.html; }}
        location /error-named {{ root {{folder}}/html; error_page 404 =200 @named; }}
        location /twice {{ root {{folder}}/html; error_page 404 =200 /dir/; }}
        location /rewrite {{ root {{folder}}/html; rewrite ^ /a.txt last; }}
        location /break {{ root {{folder}}/html; rewrite ^ /a.txt break; }}
        """
    with serve(locations, files=FILES) as nginx:
        once(check, nginx, "/a.txt?k=x", (200, "a\n"), "a file")
        once(check, nginx, "/dir/?k=x", (200, "index\n"), "index")
        once(check, nginx, "/try?k=x", (200, "a\n"), "try_files")
        once(check, nginx, "/try-named?k=x", (200, "b\n"), "try_files, named")
        once(check, nginx, "/error?k=x", (200, "page\n"), "error_page")
        once(check, nginx, "/error-named?k=x", (200, "b\n"), "error_page, named")
        once(check, nginx, "/twice?k=x", (200, "index\n"), "error_page and index")
        once(check, nginx, "/rewrite?k=x", (200, "a\n"), "rewrite last")
        once(check, nginx, "/break?k=x", (200, "a\n"), "rewrite break")


def test_precontent(check):
    """The later phase, too, is gone through once."""
    locations = f"""{READ} {LATE}
        location / {{ root {{folder}}/html; }}
        location /error {{ root {{folder}}/html; error_page 404 =200 /page.html; }}
        location /ssi {{ root {{folder}}/html; ssi on; ssi_types *; }}
        """
    with serve(locations, files=FILES) as nginx:
        once(check, nginx, "/dir/?k=x", (200, "index\n"), "index")
        once(check, nginx, "/error?k=x", (200, "page\n"), "error_page")
        once(check, nginx, "/ssi.txt?k=x", (200, "a\nb\na\n"), "SSI")


def test_subrequests(check):
    locations = f"""{READ} {LIMIT}
        location / {{ root {{folder}}/html; }}
        location /ssi {{ root {{folder}}/html; ssi on; ssi_types *; }}
        location /auth {{ alias {{folder}}/html/a.txt; auth_request /check; }}
        location = /check {{ proxy_pass http://127.0.0.1:PORT; {LIMIT} }}
        location /mirror {{ alias {{folder}}/html/a.txt; mirror /copy; }}
        location = /copy {{ proxy_pass http://127.0.0.1:PORT; {LIMIT} }}
        location /added {{ alias {{folder}}/html/a.txt; add_before_body /plus.txt; add_after_body /b.txt; addition_types *; }}
        location /inner {{ alias {{folder}}/html/a.txt; add_after_body /limited.txt; addition_types *; }}
        location /limited.txt {{ alias {{folder}}/html/b.txt; weir_limit key=$arg_k zone=z "fixed-window 1/200d"; }}
        """
    with Backend() as backend, serve(locations.replace("PORT", str(backend.port)), files=FILES) as nginx:
        once(check, nginx, "/ssi.txt?k=x", (200, "a\nb\na\n"), "SSI, one within another")
        once(check, nginx, "/auth?k=x", (200, "a\n"), "auth_request")
        once(check, nginx, "/mirror?k=x", (200, "a\n"), "mirror")
        once(check, nginx, "/added?k=x", (200, "plus\na\nb\n"), "addition")
        for _ in range(3):
            once(check, nginx, "/inner?k=x", (200, "a\nb\n"), "a subrequest whose location has another limit")
        check(nginx.wait_for(lambda: len(backend.heads) >= 2), "the backend was asked for auth_request and mirror")


def test_rejected_subrequests(check):
    """A rejected request asks nobody; one with a limit on the subrequest's location only is not limited."""
    locations = """
        location /auth { alias {folder}/html/a.txt; auth_request /check; weir_limit key=$arg_k zone=z "fixed-window 1/100d"; }
        location = /check { proxy_pass http://127.0.0.1:PORT; }
        """
    with Backend() as backend, serve(locations.replace("PORT", str(backend.port)), files=FILES) as nginx:
        check.equal(nginx.statuses(["/auth?k=a"] * 4), [200, 429, 429, 429], "one")
        check.equal(len(backend.heads), 1, "the backend was asked once")


def test_accel(check):
    """X-Accel-Redirect from a backend."""
    locations = f"""{READ} {LIMIT}
        location /app {{ proxy_pass http://127.0.0.1:PORT; }}
        location /private {{ root {{folder}}/html; internal; }}
        """
    with Backend(lambda head: Backend.answer(fields="X-Accel-Redirect: /private/secret?k=x\r\n")) as backend:
        with serve(locations.replace("PORT", str(backend.port)), files=FILES) as nginx:
            once(check, nginx, "/app?k=x", (200, "secret\n"), "X-Accel-Redirect")


def test_error_page_decides_first(check):
    """Where only the page has a limit, it is decided there, once: the first location had none."""
    locations = f"""{READ}
        location /none {{ root {{folder}}/html; error_page 404 =200 /page.html; }}
        location /page.html {{ root {{folder}}/html; {LIMIT} }}
        """
    with serve(locations, files=FILES) as nginx:
        answer = nginx.get("/none?k=x")
        check.equal((answer.status, answer.text), (200, "page\n"), "the page")
        check(charged(nginx, "x") <= 1, f"charged {charged(nginx, 'x')} times")


def test_rejected_once(check):
    """error_page after a rejection leads to a location with the same limit."""
    locations = """
        weir_limit key=$arg_k zone=z "fixed-window 2/100d";
        location / { root {folder}/html; error_page 429 /page.html; }
        location /named { alias {folder}/html/a.txt; error_page 429 = @named; }
        location @named { root {folder}/html; try_files /b.txt =404; }
        """
    with serve(locations, files=FILES) as nginx:
        answers = [nginx.get("/a.txt?k=x") for _ in range(4)]
        check.equal([(it.status, it.text) for it in answers], [(200, "a\n")] * 2 + [(429, "page\n")] * 2, "the page")
        answers = [nginx.get("/named?k=y") for _ in range(4)]
        check.equal([(it.status, it.text) for it in answers], [(200, "a\n")] * 2 + [(200, "b\n")] * 2, "named, = its own status")
        check.equal([it.weir["status"] for it in answers], ["PASSED"] * 2 + ["REJECTED"] * 2, "and yet rejected")


def test_behind_others(check):
    """After the other modules of the phase: realip has found the address, try_files the file."""
    locations = f"""{READ} set_real_ip_from 127.0.0.1; real_ip_header X-Client;
        location /addr {{ weir_limit key=$remote_addr zone=z "fixed-window 2/100d"; }}
        location /try {{ root {{folder}}/html; try_files /nothing /a.txt?k=$arg_k; {LATE} }}
        location /gone {{ root {{folder}}/html; try_files /nothing =404; {LATE} }}
        location /a.txt {{ root {{folder}}/html; {LATE} }}
        location /auth {{ alias {{folder}}/html/a.txt; auth_request /no; {LATE} }}
        location = /no {{ proxy_pass http://127.0.0.1:PORT; }}
        """
    with Backend(lambda head: Backend.answer("403 Forbidden")) as backend:
        with serve(locations.replace("PORT", str(backend.port)), files=FILES) as nginx:
            for address in ("192.0.2.1", "192.0.2.2"):
                check.equal(nginx.statuses(["/addr"] * 3, {"x-client": address}), [200, 200, 429], f"by address: {address}")
            once(check, nginx, "/try?k=x", (200, "a\n"), "try_files to another location")
            check.equal(nginx.statuses(["/auth?k=y"] * 3), [403] * 3, "auth_request")
            check.equal(charged(nginx, "y"), 0, "what auth_request forbids is not charged")
            check.equal(nginx.statuses(["/gone?k=y"] * 3), [404] * 3, "try_files finds nothing")
            check.equal(charged(nginx, "y"), 0, "and that is not charged")


def test_connections(check):
    """Keep-alive and pipelines: every request of a connection counts."""
    locations = 'location / { weir_limit key=$arg_k zone=z "fixed-window 30/100d"; }'
    with serve(locations, "keepalive_requests 1000;") as nginx, nginx.client() as client:
        got = [client.get("/?k=a").status for _ in range(40)]
        check.equal(got, [200] * 30 + [429] * 10, "one after another on a connection")
        got = [it.status for it in client.pipeline([get("/?k=b")] * 40)]
        check.equal(got, [200] * 30 + [429] * 10, "pipelined")
        got = [(it.status, it.weir["remaining"]) for it in client.pipeline([get(f"/?k={k}") for k in "cdcdcd"])]
        check.equal(got, [(200, "29"), (200, "29"), (200, "28"), (200, "28"), (200, "27"), (200, "27")], "two keys in turn")
    with serve(locations.replace("30/100d", "1000/100d"), "keepalive_requests 10;") as nginx:
        with nginx.client() as client:
            got = [client.get("/?k=a") for _ in range(10)]
            check.equal([it.fields["connection"] for it in got], ["keep-alive"] * 9 + ["close"], "until nginx closes")


def test_http2(check):
    locations = 'location / { weir_limit key=$arg_k zone=z "fixed-window 5/100d"; }'
    with serve(locations, listen="http2") as nginx:
        done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--parallel", "--parallel-immediate", *["-o", "/dev/null"] * 12, "-w",
                               "%{http_code} %{http_version} %header{ratelimit-policy} %header{retry-after}\n",
                               *[nginx.url("/?k=a")] * 12], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
        lines = done.stdout.splitlines()
        check.equal(sorted(line[:5] for line in lines), ["200 2"] * 5 + ["429 2"] * 7, "streams")
        check(all('"fixed-window";q=5;w=8640000' in line for line in lines), f"fields: {lines[:2]}")
        check(all(line.split()[-1].isdigit() for line in lines if line.startswith("429")), "Retry-After")
        # curl of some versions cannot have several streams on such a connection; h2load can
        done = subprocess.run(["h2load", "-n", "200", "-c", "4", "-m", "10", nginx.url("/?k=b")], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        check.contains(done.stdout, "status codes: 5 2xx, 0 3xx, 195 4xx, 0 5xx", "h2load")


TESTS = [test_redirects, test_precontent, test_subrequests, test_rejected_subrequests, test_accel,
         test_error_page_decides_first, test_rejected_once, test_behind_others, test_connections, test_http2]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
