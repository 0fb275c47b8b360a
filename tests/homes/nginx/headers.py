#!/usr/bin/env python3
"""Fields of limited answers: every style, on what passed, what was rejected and what error_page makes of it."""
import sys

from lib import checks, nginx_server
from lib.nginx_server import T0, serve

STYLES = ("ietf", "ietf-06", "x-ratelimit", "retry-after", "off")
ALL = ("ratelimit", "ratelimit-policy", "retry-after", *(f"{x}ratelimit-{name}" for x in ("", "x-")
                                                         for name in ("limit", "remaining", "reset")))
LIMIT = 'weir_limit key=$arg_k zone=z "token-bucket 1/m burst 2";'
PASSED = {
    "ietf": {"ratelimit": '"token-bucket";r=1;t=60', "ratelimit-policy": '"token-bucket";q=2;w=120'},
    "ietf-06": {"ratelimit-limit": "2", "ratelimit-remaining": "1", "ratelimit-reset": "60"},
    "x-ratelimit": {"x-ratelimit-limit": "2", "x-ratelimit-remaining": "1", "x-ratelimit-reset": "60"},
    "retry-after": {}, "off": {}}
REJECTED = {
    "ietf": {"ratelimit": '"token-bucket";r=0;t=60', "ratelimit-policy": '"token-bucket";q=2;w=120', "retry-after": "60"},
    "ietf-06": {"ratelimit-limit": "2", "ratelimit-remaining": "0", "ratelimit-reset": "60", "retry-after": "60"},
    "x-ratelimit": {"x-ratelimit-limit": "2", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60", "retry-after": "60"},
    "retry-after": {"retry-after": "60"}, "off": {}}


def fields(answer):
    return {name: answer.fields[name] for name in ALL if name in answer.fields}


def test_styles(check):
    locations = "weir_test_clock $arg_t;\n" + "".join(
        f"location = /{style} {{ {LIMIT} weir_headers {style}; }}\n" for style in STYLES) + f"location = /default {{ {LIMIT} }}"
    with serve(locations) as nginx:
        for style in (*STYLES, "default"):
            answers = [nginx.get(f"/{style}?k={style}&t={T0}") for _ in range(3)]
            kind = "ietf" if style == "default" else style
            check.equal(fields(answers[0]), PASSED[kind], f"{style}, passed")
            check.equal([it.status for it in answers], [200, 200, 429], f"{style}, statuses")
            check.equal(fields(answers[2]), REJECTED[kind], f"{style}, rejected")


def test_openai(check):
    """Beside the IETF fields three for each name, also where the name has odd characters."""
    names = ("requests", "tokens", "tokens--all-")
    limits = 'weir_limit key=a zone=z "fixed-window 5/h" name=requests; ' \
             'weir_limit key=b zone=z "token-bucket 100/m" name=Tokens cost=30; ' \
             'weir_limit key=c zone=z "sliding-log 9/h" "name=tokens (all)";'
    with serve(f"location = /openai {{ weir_test_clock {T0}; {limits} weir_headers openai; }}") as nginx:
        answer = nginx.get("/openai")
        check.equal([answer.fields.get(f"x-ratelimit-{part}-{name}") for name in names for part in ("limit", "remaining", "reset")],
                    ["5", "4", "1h0m0s", "100", "70", "18s", "9", "8", "1h0m0s"], "three for each name")
        check.equal(answer.fields["ratelimit"], '"requests";r=4;t=3600,"Tokens";r=70;t=18,"tokens (all)";r=8;t=3600', "beside the IETF fields")


def test_months(check):
    """w is the length of the current month, and the next one lets in again."""
    day, month = 86400, 'weir_limit key=$arg_k zone=z "fixed-window 1/month from 31 zone +08:00";'
    with serve(f"weir_test_clock $arg_t;\nlocation = /month {{ {month} }}") as nginx:
        for start, days in ((1_769_788_800, 28), (1_772_208_000, 31), (1_774_886_400, 30)):  # 2026-01-31, 02-28, 03-31 in +08:00
            answers = [nginx.get(f"/month?k=a&t={(start + second) * 1_000_000}") for second in (0, days * day - 1)]
            check.equal([it.status for it in answers], [200, 429], f"the month of {days} days")
            check.equal(answers[0].fields["ratelimit-policy"], f'"fixed-window";q=1;w={days * day}', f"w of {days} days")
            check.equal(answers[1].fields["retry-after"], "1", "its last second")


def test_error_pages(check):
    """The fields stay with the answer, whoever makes it."""
    pages = {
        "page": "error_page 429 /page.html;", "named": "error_page 429 @named;", "other": "error_page 429 =503 @named;",
        "away": "error_page 429 http://example.test/wait;", "ok": "error_page 429 =200 /page.html;",
        "missing": "error_page 429 /nothing-there;"}
    statuses = {"page": 429, "named": 429, "other": 503, "away": 302, "ok": 200, "missing": 429}
    locations = "weir_test_clock $arg_t;\n" + "".join(
        f"location = /{name} {{ {LIMIT} {text} }}\n" for name, text in pages.items()) + """
        location = /page.html { root {folder}/html; }
        location @named { root {folder}/html; try_files /page.html =404; }
        """
    with serve(locations, files={"html/page.html": "wait a little\n"}) as nginx:
        for name, status in statuses.items():
            answers = [nginx.get(f"/{name}?k={name}&t={T0}") for _ in range(3)]
            check.equal(fields(answers[0]), PASSED["ietf"], f"{name}, passed")
            status = 404 if name == "missing" and answers[2].status == 404 else status
            check.equal(answers[2].status, status, f"{name}: status")
            check.equal(fields(answers[2]), REJECTED["ietf"], f"{name}, rejected")
            if name in ("page", "named", "other", "ok"):
                check.equal(answers[2].text, "wait a little\n", f"{name}: body")
            check.equal(answers[2].weir.get("status"), "REJECTED", f"{name}: $weir_status")


def test_error_page_with_limit(check):
    """A page with a limit of its own is not decided again; the fields are of what was."""
    locations = f"""
        weir_test_clock $arg_t;
        location = /a {{ {LIMIT} error_page 429 /page.html; }}
        location = /page.html {{ root {{folder}}/html; weir_limit key=$arg_k zone=z "fixed-window 1/100d"; weir_headers off; }}
        """
    with serve(locations, files={"html/page.html": "wait a little\n"}) as nginx:
        answers = [nginx.get(f"/a?k=a&t={T0}") for _ in range(5)]
        check.equal([(it.status, it.text[:4]) for it in answers[2:]], [(429, "wait")] * 3, "the page, again and again")
        check.equal([it.status for it in (nginx.get(f"/page.html?k=a&t={T0}") for _ in range(2))], [200, 429],
                    "asked for by itself it has its limit")


def test_other_answers(check):
    """Files, 304, 206, 404, an empty answer, a backend's: all are told."""
    locations = f"""
        {LIMIT}
        location /file {{ root {{folder}}/html; }}
        location /backend {{ proxy_pass http://127.0.0.1:PORT; }}
        location /nobody {{ proxy_pass http://127.0.0.1:1; }}
        """
    with nginx_server.Backend(lambda head: nginx_server.Backend.answer(
            "201 Created", "X-Own: 1\r\nRateLimit: \"theirs\";r=5\r\nRetry-After: 7\r\n")) as backend:
        locations = locations.replace("PORT", str(backend.port))
        with serve(locations, files={"html/file": "0123456789"}) as nginx:
            modified = nginx.get("/file?k=1").fields["last-modified"]
            for what, path, sent, status in (
                    ("a file", "/file?k=2", {}, 200), ("not modified", "/file?k=3", {"if-modified-since": modified}, 304),
                    ("a range", "/file?k=4", {"range": "bytes=0-3"}, 206), ("not found", "/filex?k=5", {}, 404),
                    ("a backend", "/backend?k=6", {}, 201), ("no backend", "/nobody?k=7", {}, 502)):
                answer = nginx.get(path, sent)
                check.equal(answer.status, status, what)
                check.contains(answer.fields.get("ratelimit", ""), '"token-bucket";r=1;t=60', what)
                check.contains(answer.fields.get("ratelimit-policy", ""), '"token-bucket";q=2;w=120', what)
            answer = nginx.get("/backend?k=8")
            check.equal((answer.fields["x-own"], answer.text), ("1", "ok\n"), "the backend's own stays")
            nginx.allow("connect\\(\\) failed")


def test_replace(check):
    """Fields of an upstream make way for ours, whichever style they have; its Retry-After stays where ours is missing."""
    theirs = ("RateLimit: \"theirs\";r=5\r\nratelimit-policy: \"theirs\";q=9\r\nRateLimit-Limit: 7\r\nX-RateLimit-Limit: 7\r\n"
              "X-Rate-Limit-Remaining: 7\r\nRetry-After: 7\r\nRateLimitX: mine\r\n")
    with nginx_server.Backend(lambda head: nginx_server.Backend.answer("200 OK", theirs)) as backend:
        proxy = f"proxy_pass http://127.0.0.1:{backend.port};"
        locations = f"""
            weir_test_clock $arg_t; weir_headers ietf replace;
            location /a {{ {proxy} {LIMIT} error_page 429 /page; }}
            location /x {{ {proxy} {LIMIT} weir_headers x-ratelimit replace; }}
            location /add {{ {proxy} {LIMIT} weir_headers ietf; }}
            location /page {{ {proxy} }}
            location /none {{ {proxy} }}
            """
        with serve(locations) as nginx:
            answers = [nginx.get(f"/a?k=a&t={T0}") for _ in range(3)]
            check.equal(fields(answers[0]), {**PASSED["ietf"], "retry-after": "7"}, "replaced")
            check.equal(answers[0].fields["ratelimitx"], "mine", "other fields stay")
            check("x-rate-limit-remaining" not in answers[0].fields, "that spelling, too")
            check.equal((answers[2].status, fields(answers[2])), (429, REJECTED["ietf"]), "our Retry-After wins on our own rejection")
            check.equal(fields(nginx.get(f"/x?k=x&t={T0}")), {**PASSED["x-ratelimit"], "retry-after": "7"}, "another style")
            check.contains(nginx.get(f"/add?k=b&t={T0}").fields["ratelimit"], "theirs", "added without the word")
            check.equal(nginx.get("/none").fields["ratelimit"], '"theirs";r=5', "theirs stay where no limit applied")


def test_names(check):
    """Names are escaped as structured fields need it."""
    locations = r"""
        location /quote { weir_limit key=$arg_k zone=z "fixed-window 5/100d" 'name=say "hi" there'; }
        location /same {
            weir_limit key=a$arg_k zone=z "fixed-window 5/100d" name=n;
            weir_limit key=b$arg_k zone=z "fixed-window 6/100d" name=n; }
        """
    with serve(locations) as nginx:
        check.contains(nginx.get("/quote?k=a").fields["ratelimit"], '"say \\"hi\\" there";r=', "quotes")
        check.contains(nginx.get("/same?k=a").fields["ratelimit"], '"n";r=4;t=', "the first of a name")
        check.contains(nginx.get("/same?k=a").fields["ratelimit"], '"n-2";r=4;t=', "the second")


def test_seconds(check):
    """Whole seconds, rounded up; Retry-After never says too little."""
    locations = """weir_test_clock $arg_t;
        location / { weir_limit key=$arg_k zone=z "fixed-window 1/10s"; }"""
    with serve(locations) as nginx:
        nginx.get(f"/?k=a&t={T0}")
        for after, wanted in ((0, "10"), (1, "10"), (8999999, "2"), (9000000, "1"), (9999999, "1")):
            answer = nginx.get(f"/?k=a&t={T0 + after}")
            check.equal((answer.status, answer.fields.get("retry-after")), (429, wanted), f"{after} us later")
        check.equal(nginx.get(f"/?k=a&t={T0 + 10000000}").status, 200, "the next window")


TESTS = [test_styles, test_openai, test_months, test_error_pages, test_error_page_with_limit, test_other_answers, test_replace, test_names,
         test_seconds]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
