#!/usr/bin/env python3
"""Where a request could slip by its limits, or trip nginx: locations on its way that ask different things, keys made
to be equal, clients that leave, memory laid out anew, values that forge lines of a log.
"""
import socket
import sys
import threading
import time

from lib import checks, nginx_server, redis_server
from lib.nginx_server import Backend, get, serve


TWICE = "fixed-window 2/100d"


def test_every_location_asks(check):
    """What a location on the way has not asked is asked by the next one, once."""
    locations = f"""
        location = / {{ root {{folder}}/html; index index.html; weir_overload connections=1000; }}
        location = /index.html {{ root {{folder}}/html; weir_limit key=index zone=z "{TWICE}"; }}
        location /slot {{ root {{folder}}/html; weir_conn key=slot zone=z 100; try_files /nothing @slot; }}
        location @slot {{ weir_limit key=slot zone=z "{TWICE}"; }}
        location /empty {{ root {{folder}}/html; weir_limit key=$arg_none zone=z "{TWICE}"; try_files /nothing @empty; }}
        location @empty {{ weir_limit key=empty zone=z "{TWICE}"; }}
        location /dry {{ root {{folder}}/html; weir_limit key=dry zone=z "sliding-log 1/100d" dry_run; try_files /nothing @dry; }}
        location @dry {{ weir_limit key=dry zone=z "{TWICE}"; }}
        location /first {{ root {{folder}}/html; weir_limit key=first zone=z "fixed-window 9/100d"; try_files /nothing @second; }}
        location @second {{ weir_limit key=second zone=z "fixed-window 1/100d"; }}
        """
    with serve(locations, files={"html/index.html": "index\n"}) as nginx:
        for path in ("/", "/slot", "/empty", "/dry"):
            check.equal(nginx.statuses([path] * 4), [200, 200, 429, 429], f"{path}: the second location's limit")
        check.equal(nginx.statuses(["/first"] * 4), [200] * 4, "a request that was decided is not decided again")


def test_error_pages_are_free(check):
    """What cannot be read is answered; its error page is not limited."""
    locations = f"""
        location / {{ weir_limit key=k zone=z cost=$arg_c "{TWICE}"; error_page 400 /page; }}
        location /page {{ weir_limit key=page zone=z "{TWICE}"; }}
        """
    with serve(locations) as nginx:
        check.equal([nginx.get("/?c=x").status for _ in range(5)], [400] * 5, "the same answer every time")


def test_log_lines(check):
    """A client writes no lines of its own into the log."""
    locations = r"""location ~ "^/c/(?<c>[\s\S]*)$" { weir_limit key=k zone=z cost=$c "fixed-window 9/100d"; }
        location ~ "^/t/(?<t>[\s\S]*)$" { weir_limit key=k zone=z "$t"; }"""
    with serve(locations) as nginx:
        check.equal([nginx.get(path).status for path in ("/c/1%0aFORGED", "/t/1%0aFORGED")], [400, 500], "refused")
        check(not any(line.startswith("FORGED") for line in nginx.errors().splitlines()), "no line begins with what was sent")
        check.contains(nginx.errors(), "1?FORGED", "what it was can be seen")


def test_info_within_a_page(check):
    files = {"html/a.html": 'A<!--#include virtual="/info" -->' + "C" * 100}
    with serve("location / { root {folder}/html; ssi on; } location /info { weir_info; }", files=files) as nginx:
        text = nginx.get("/a.html").text
        check(text.startswith('A{"zones"') and text.rstrip().endswith("C" * 100), f"the page goes on behind it: {text[-120:]}")


def test_client_leaves_before_post_action(check):
    """What is done behind a request is done once, though its client left while it was delayed."""
    checks.in_time(lambda scale: leave_before_post_action(check, scale))


def leave_before_post_action(check, seconds):
    """False: the second came when it need not be delayed any more."""
    with Backend() as backend:
        locations = f"""location / {{ weir_limit key=$arg_k zone=z "leaky-bucket 1/{seconds}s burst 5"; post_action /after; }}
            location /after {{ proxy_pass http://127.0.0.1:{backend.port}; }}"""
        with serve(locations) as nginx:
            start = time.monotonic()
            nginx.get("/?k=a")
            check(nginx.wait_for(lambda: len(backend.heads) == 1), "after a request that went its way")
            with socket.create_connection(("127.0.0.1", nginx.port)) as it:
                it.sendall(get("/?k=a"))
                nginx.wait_for(lambda: "weir: delayed" in nginx.errors() or len(backend.heads) > 1)
                if "weir: delayed" not in nginx.errors() and time.monotonic() - start >= seconds:
                    return False
                check("weir: delayed" in nginx.errors(), "it is delayed")
            check(nginx.wait_for(lambda: len(backend.heads) >= 2), "and its client has left")
            check.equal(nginx.get("/?k=a").status, 200, "the next one waits for longer than it would have")
            check(nginx.wait_for(lambda: len(backend.heads) >= 3), "after that one")
            check.equal(len(backend.heads), 3, "three requests, three times")
    return True


def test_another_share(check):
    """Another large= is another layout: nothing is let pass for want of room."""
    limit = 'weir_limit key=k zone=y "{}";'
    with serve("location / { " + limit.format(TWICE) + " }", "weir_zone y 500k large=0%;") as nginx:
        check.equal(nginx.statuses(["/"] * 3), [200, 200, 429], "before")
        nginx.reload(http="weir_zone z 1m; weir_zone y 500k large=90%;",
                     server="location / { empty_gif; " + limit.format("sliding-log 3/100d") + " }")
        check.equal(nginx.statuses(["/"] * 5), [200, 200, 200, 429, 429], "after")
        check.contains(nginx.errors(), "start again from fresh", "and it is told")
        check(nginx.reload(), "once more, as it is")
        check.equal(nginx.statuses(["/"] * 2), [429] * 2, "that is taken over")


def test_made_to_be_equal(check):
    """A key that is another's gives no fresh limit, in the zone or in Redis, whatever is done while Redis is away."""
    limits = f'weir_limit key=$http_x_user zone=z "fixed-window 3/100d"; weir_limit key=$remote_addr zone=z "{TWICE}";'
    with redis_server.Server() as redis:
        for name, http in (("zone", ""), ("redis", f"weir_store redis://127.0.0.1:{redis.port} deadline=10s fail=open;")):
            with serve(f"location / {{ {limits} }}", http) as nginx:
                check.equal(nginx.statuses(["/"] * 3), [200, 200, 429], f"{name}: an address")
                answers = [nginx.get("/", {"X-User": "127.0.0.1"}) for _ in range(3)]
                check.equal([(it.status, it.weir["status"]) for it in answers], [(429, "REJECTED")] * 3, f"{name}: as user")


def test_stopped_at_once(check):
    """Slots that Redis gave are given back by workers that are told to stop at once."""
    nginx_server.until_at_once(lambda: stopped_at_once(check))


def stopped_at_once(check):
    gate = threading.Event()
    with redis_server.Server() as redis, Backend(lambda head: gate.wait(60) and Backend.answer()) as backend:
        locations = f"location / {{ proxy_pass http://127.0.0.1:{backend.port}; weir_conn key=k zone=z 1; }}"
        nginx = serve(locations, f"weir_store redis://127.0.0.1:{redis.port} deadline=10s;")
        with nginx, socket.create_connection(("127.0.0.1", nginx.port)) as it:
            it.sendall(get("/"))
            check(nginx.wait_for(lambda: len(backend.heads) == 1), "one is served")
            with redis.client() as client:
                check.equal(client.call("EXISTS", "weir:k"), 1, "and holds its slot")
            by_itself = nginx.stop_at_once()
            with redis.client() as client:
                check(not by_itself or client.call("EXISTS", "weir:k") == 0, "it is free")
            gate.set()
    return by_itself


TESTS = [test_every_location_asks, test_error_pages_are_free, test_log_lines, test_info_within_a_page,
         test_client_leaves_before_post_action, test_another_share, test_made_to_be_equal, test_stopped_at_once]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
