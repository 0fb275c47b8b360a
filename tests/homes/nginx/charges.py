#!/usr/bin/env python3
"""Limits that are charged by the answer, on= and charge_if=: judged as if charged, given back where the answer does not
count. Aborts, redirects, caches, several limits and zones, Redis. And limits in subrequests, weir_subrequests.

Limits have periods of a hundred days, in which nothing comes back by itself.
"""
import json
import re
import sys

from lib import checks, ports, redis_server
from lib.nginx_server import T0, Backend, get, serve
from conns import Gate, Held


from fleet import ENGINES, PATIENT, address  # noqa: E402

KINDS = ("token-bucket 3/100d", "leaky-bucket 3/100d burst 2 nodelay", "fixed-window 3/100d", "fixed-window 3/100d from-first", "sliding-log 3/100d",
         "sliding-window 3/100d", "sliding-counter 3/100d", "token-bucket 3/100d stepped")


def backend():
    """Answers with the status that the path names, /401 or /x/401."""
    words = {200: "OK", 302: "Found", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 500: "Oh", 503: "Busy"}

    def answer(head):
        status = int(re.search(r"/(\d\d\d)[ ?]", head)[1])
        return Backend.answer(f"{status} {words[status]}", "X-Charge: %d\r\n" % (status >= 400))
    return Backend(answer)


def statuses(nginx, paths):
    return [nginx.get(path).status for path in paths]


def test_statuses(check):
    with backend() as there:
        to = f"proxy_pass http://127.0.0.1:{there.port};"
        locations = f"""
            location /list/ {{ {to} weir_limit key=list:$arg_k zone=z "fixed-window 2/100d" on=401,403; }}
            location /class/ {{ {to} weir_limit key=class:$arg_k zone=z "fixed-window 2/100d" on=4xx,5xx,!404; }}
            location /not/ {{ {to} weir_limit key=not:$arg_k zone=z "fixed-window 2/100d" on=!2xx,!302; }}
            location /read/ {{ {to} weir_limit key=$arg_k zone=z "fixed-window 2/100d" cost=0; }}
            location /info {{ weir_info; }} location /text {{ weir_info prometheus; }}
            """
        with serve(locations) as nginx:
            for path, free, charged in (("list", (200, 404, 500, 302), (401, 403)), ("class", (200, 302, 404), (401, 503)),
                                        ("not", (200, 302), (404, 500))):
                for status in free:
                    answers = [nginx.get(f"/{path}/{status}?k=a") for _ in range(3)]
                    check.equal({(it.status, it.weir["remaining"], it.weir["status"]) for it in answers}, {(status, "2", "PASSED")},
                                f"{path}: {status} costs nothing")
                check.contains(answers[-1].fields["ratelimit"], ";r=2", f"{path}: the fields say so")
                check(";t=" not in answers[-1].fields["ratelimit"] or ";t=0" in answers[-1].fields["ratelimit"],
                      f"{path}: there is nothing to reset: {answers[-1].fields['ratelimit']}")
                check.equal(statuses(nginx, [f"/{path}/{status}?k=a" for status in charged]), list(charged), f"{path}: these cost")
                check.equal(statuses(nginx, [f"/{path}/200?k=a"] * 2), [429, 429], f"{path}: then nothing passes")
                check.equal(nginx.get(f"/read/200?k={path}:a").weir["remaining"], "0", f"{path}: in the zone")
                check.equal(nginx.get(f"/{path}/200?k=b").status, 200, f"{path}: another key")
            zone = next(it for it in json.loads(nginx.get("/info").body)["zones"] if it["name"] == "z")
            check.equal(zone["given_back"], 3 * (4 + 3 + 2) + 3, "each charge that came back is counted")
            check.contains(nginx.get("/text").text, 'nginx_weir_given_back_total{zone="z"} %d\n' % zone["given_back"], "for Prometheus, too")


def test_kinds(check):
    """Every kind that counts is as it was."""
    locations = "weir_test_clock $arg_t;" + "".join(
        f'location /{i}/ {{ empty_gif; weir_limit key={i}:$arg_k zone=z "{kind}" on=404; }}\n'
        f'location /{i}/not-there {{ alias /nowhere/; weir_limit key={i}:$arg_k zone=z "{kind}" on=404; }}\n'
        for i, kind in enumerate(KINDS))
    with serve(locations) as nginx:
        for i, kind in enumerate(KINDS):
            check.equal(statuses(nginx, [f"/{i}/x?k=a&t={T0}"] * 9), [200] * 9, f"{kind}: given back")
            check.equal(statuses(nginx, [f"/{i}/not-there?k=a&t={T0}"] * 4), [404] * 3 + [429], f"{kind}: charged")


def test_variables(check):
    """charge_if=, of the answer: cache hits cost nothing."""
    with backend() as there:
        http = """proxy_cache_path {folder}/cache keys_zone=c:1m;
            map $upstream_cache_status $missed { HIT 0; default 1; }"""
        locations = f"""
            location /cached/ {{ proxy_pass http://127.0.0.1:{there.port}; proxy_cache c; proxy_cache_valid 200 1h;
                weir_limit key=$arg_k zone=z "fixed-window 2/100d" charge_if=$missed; }}
            location /both/ {{ proxy_pass http://127.0.0.1:{there.port};
                weir_limit key=both:$arg_k zone=z "fixed-window 2/100d" charge_if=$upstream_http_x_charge on=401,200; }}
            """
        with serve(locations, http) as nginx:
            check.equal(statuses(nginx, ["/cached/200?k=a"] * 9), [200] * 9, "one miss, eight hits")
            answers = [nginx.get(path) for path in ("/cached/200?k=a", "/cached/x/200?k=a", "/cached/y/200?k=a", "/cached/200?k=a")]
            check.equal([it.status for it in answers], [200, 200, 429, 429], "another miss is the last")
            check.equal(answers[0].weir["remaining"], "1", "what is left after hits")
            check.equal(statuses(nginx, ["/both/200?k=a", "/both/404?k=a", "/both/401?k=a", "/both/401?k=a", "/both/200?k=a"]),
                        [200, 404, 401, 401, 429], "both conditions")


def test_concurrent(check):
    """Requests at the same time count as if they will be charged: the limit is never exceeded."""
    with Gate() as gate:
        locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; weir_limit key=$arg_k zone=z "fixed-window 3/100d" on=401; }}
            location /quick {{ weir_limit key=$arg_k zone=z "fixed-window 3/100d" on=401; }}"""
        with serve(locations, workers=2) as nginx:
            held = Held(nginx, gate, ["/slow?k=a"] * 3)
            check.equal(statuses(nginx, ["/quick?k=a"] * 2), [429, 429], "three are under way")
            gate.let(3)
            check.equal([it.status for it in held.read()], [200] * 3, "they did not count")
            check.equal(statuses(nginx, ["/quick?k=a"] * 5), [200] * 5, "and are given back when they answer")
            held.close()
            gone = Held(nginx, gate, ["/slow?k=a"] * 2)
            gone.close()
            check(nginx.wait_for(lambda: nginx.errors().count("prematurely closed connection") >= 2), "two leave")
            check.equal(nginx.get("/quick?k=a").weir["remaining"], "1", "who leaves before the answer stays charged")
            gate.let(9)


def test_redirects(check):
    """The status that the client gets counts, whoever made it; a rejection by another limit gives back."""
    with backend() as there:
        to = f"proxy_pass http://127.0.0.1:{there.port}; proxy_intercept_errors on;"
        limit = 'weir_limit key=$arg_k zone=z "fixed-window 2/100d" on=401,404;'
        locations = f"""
            location /same/ {{ {to} {limit} error_page 401 /page; }}
            location /other/ {{ {to} {limit} error_page 401 =200 /page; }}
            location /into/ {{ {to} {limit} error_page 500 =404 /page; }}
            location /file {{ root {{folder}}/html; weir_limit key=$arg_k zone=z "fixed-window 2/100d" on=304,206; }}
            location = /page {{ root {{folder}}/html; }}
            location /two/ {{ {to} {limit} weir_limit key=all:$arg_k zone=y "fixed-window 3/100d"; }}
            location /later/ {{ {to} {limit} weir_limit key=late:$arg_k zone=z "fixed-window 1/100d" phase=precontent; }}
            location /dry/ {{ {to} weir_limit key=$arg_k zone=dry "fixed-window 2/100d" on=401 dry_run; }}
            location /queue/ {{ {to} weir_limit key=$arg_k zone=dry "leaky-bucket 1/100d burst 9" on=401 dry_run; }}
            location /info {{ weir_info; }}
            """
        with serve(locations, "weir_zone y 1m; weir_zone dry 1m;", files={"html/page": "page\n", "html/file": "0123456789"}) as nginx:
            check.equal(statuses(nginx, ["/same/401?k=a"] * 3), [401, 401, 429], "an error page keeps the status")
            check.equal(statuses(nginx, ["/other/401?k=b"] * 5), [200] * 5, "or changes it")
            check.equal(statuses(nginx, ["/into/500?k=c"] * 3), [404, 404, 429], "to one that counts")
            when = nginx.get("/file?k=d").fields["last-modified"]
            for sent, status in (({"if-modified-since": when}, 304), ({"range": "bytes=0-3"}, 206)):
                check.equal([nginx.get("/file?k=d").status for _ in range(3)], [200] * 3, f"{status}: whole files cost nothing")
                check.equal(nginx.get("/file?k=d", sent).status, status, f"{status}: charged")
            check.equal(nginx.get("/file?k=d").status, 429, "304 and 206 were charged")
            check.equal(statuses(nginx, ["/two/200?k=e"] * 4), [200] * 3 + [429], "the limit beside it counts all")
            check.equal(statuses(nginx, ["/later/200?k=f"] * 5), [200] + [429] * 4, "rejected later")
            check.equal(nginx.get("/same/200?k=f").weir["remaining"], "2", "costs nothing")
            answers = [nginx.get(f"/dry/{status}?k=g") for status in (200, 200, 200, 401, 401, 200)]
            check.equal([it.weir["status"] for it in answers], ["PASSED"] * 5 + ["DRY_RUN"], "in dry run")
            check.equal(statuses(nginx, ["/queue/401?k=h"] + ["/queue/200?k=h"] * 3), [401] + [200] * 3, "a queue in dry run")
            zone = next(it for it in nginx.get("/info").json["zones"] if it["name"] == "dry")
            check.equal([zone[what] for what in ("passed", "dry_run", "given_back")], [6, 4, 3], "in dry run, too, passed less given_back is what failed")


def test_equal_keys(check):
    """Where keys turn out to be equal the charge stays: the other limit counts all."""
    locations = """location / { weir_limit key=$arg_a zone=z "fixed-window 3/100d" on=404;
                                weir_limit key=$arg_b zone=z "fixed-window 9/100d"; }"""
    with serve(locations) as nginx:
        check.equal(statuses(nginx, ["/?a=x&b=y"] * 5), [200] * 5, "two keys")
        check.equal(statuses(nginx, ["/?a=k&b=k"] * 4), [200] * 3 + [429], "one key: nobody gains by it")


def test_redis(check):
    """In Redis, in order: a client's next request finds what the last one gave back. What Redis did not get is owed."""
    limit = 'weir_limit key=$arg_k zone=z "fixed-window 1/100d" on=404;'
    locations = f"""location /a {{ {limit} }} location /not-there {{ alias /nowhere/; {limit} }}
        location /kinds {{ weir_limit key=$arg_k zone=z "token-bucket 9/100d, sliding-log 9/100d" cost=4 on=404; }}
        location /info {{ weir_info; }}"""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, redis.client() as client, \
                serve(locations, address(redis.port, f"{PATIENT} denial_cache=1s")) as nginx:
            check(nginx.wait_for(lambda: nginx.get("/a?k=settle-in").weir["degraded"] == "0"), f"{name}: Redis decides")
            for i in range(10):
                client.call("SCRIPT", "FLUSH")
                check.equal(nginx.statuses(["/a?k=a"] * 10), [200] * 10, f"{name}: given back in order")
            check.equal(statuses(nginx, ["/not-there?k=a", "/a?k=a"]), [404, 429], f"{name}: charged")
            answers = [nginx.get("/kinds?k=b") for _ in range(5)]
            check.equal([(it.status, it.weir["remaining"]) for it in answers], [(200, "9")] * 5, f"{name}: costs, two limits")
            check(nginx.wait_for(lambda: nginx.get("/info").json["stores"][0]["queue"] == 0), f"{name}: nothing is left")


def test_without_redis(check):
    """The zone decides as the local fallback, with a share of the limit; charges are given back to it."""
    locations = """location /a { weir_limit key=$arg_k zone=z "token-bucket 6/100d" on=404; }
        location /info { weir_info; }"""
    with serve(locations, address(ports.take(), "peers=2")) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/info").json["stores"][0]["state"] == "down"), "no Redis")
        answers = [nginx.get("/a?k=a") for _ in range(9)]
        check.equal({(it.status, it.weir["status"], it.weir["remaining"]) for it in answers}, {(200, "DEGRADED", "3")}, "given back")


def test_redis_refuses(check):
    """A charge that Redis cannot take back now, since it has no memory, is given back when it has."""
    limit = 'weir_limit key=$arg_k zone=z "fixed-window 1/100d" on=401;'
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, redis.client() as client, Gate() as gate:
            locations = f"""location /slow {{ proxy_pass http://127.0.0.1:{gate.port}; {limit} }} location /a {{ {limit} }}
                location /info {{ weir_info; }}"""
            with serve(locations, address(redis.port, PATIENT), workers=1) as nginx:
                check(nginx.wait_for(lambda: nginx.get("/a?k=settle-in").weir["degraded"] == "0"), f"{name}: Redis decides")
                held = Held(nginx, gate, ["/slow?k=a"])
                client.call("CONFIG", "SET", "maxmemory", "1")
                gate.let(1)
                check.equal([it.status for it in held.read()], [200], f"{name}: it did not count")
                check(nginx.wait_for(lambda: nginx.get("/info").json["stores"][0]["owed"] == 1), f"{name}: owed")
                client.call("CONFIG", "SET", "maxmemory", "0")
                check(nginx.wait_for(lambda: nginx.get("/a?k=a").status == 200), f"{name}: given back")
                check.equal(statuses(nginx, ["/a?k=a"] * 3), [200] * 3, f"{name}: once")
                held.close()


def test_redis_has_no_room(check):
    """A key that holds too many states in Redis is decided in the zone, whatever fail= says, and given back there."""
    locations = """location /a { weir_limit key=$arg_k zone=z "token-bucket 2/100d" on=404; }"""
    with redis_server.Server(ENGINES[0][1]) as redis, redis.client() as client, \
            serve(locations, address(redis.port, f"{PATIENT} fail=open"), workers=1) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/a?k=settle-in").weir["degraded"] == "0"), "Redis decides")
        for i in range(16):
            client.call("WEIR.TAKE", "weir:full", f"fixed-window 9/{i + 1}d from-first")
        answers = [nginx.get("/a?k=full") for _ in range(6)]
        check.equal([(it.status, it.weir["status"]) for it in answers], [(200, "DEGRADED")] * 6, "no room: given back in the zone")


# ---- subrequests ----

def test_subrequests(check):
    """weir_subrequests: locations that auth_request and SSI ask have limits of their own."""
    with backend() as there:
        locations = f"""
            location /page {{ empty_gif; auth_request /auth; }}
            location /plain {{ empty_gif; auth_request /auth-off; }}
            location = /auth {{ proxy_pass http://127.0.0.1:{there.port}/$http_s; internal; weir_subrequests on;
                weir_limit key=auth:$http_k zone=z "fixed-window 2/100d" on=401 status=403; }}
            location = /auth-off {{ proxy_pass http://127.0.0.1:{there.port}/$http_s; internal;
                weir_limit key=off:$http_k zone=z "fixed-window 2/100d" status=403; }}
            location /slow {{ empty_gif; auth_request /auth-slow; }}
            location = /auth-slow {{ proxy_pass http://127.0.0.1:{there.port}/200; internal; weir_subrequests on;
                weir_limit key=slow:$http_k zone=z "leaky-bucket 20/s burst 9"; }}
            location /ssi {{ root {{folder}}/html; ssi on; ssi_types *; }}
            location /part {{ root {{folder}}/html; weir_subrequests on; weir_limit key=part zone=z "fixed-window 3/100d";
                weir_conn key=part zone=z 9; error_page 429 = /sorry; }}
            location /sorry {{ root {{folder}}/html; }}
            """
        files = {"html/ssi": '<!--#include virtual="/part" --><!--#include virtual="/part" -->', "html/part": "part\n",
                 "html/sorry": "sorry\n"}
        with serve(locations, files=files) as nginx:
            def ask(path, key, status, times=1):  # a subrequest of auth_request has the fields of the page's request
                return [nginx.get(path, {"k": key, "s": status}).status for _ in range(times)]
            check.equal(ask("/page", "a", "200", 5), [200] * 5, "what is let in costs nothing")
            check.equal(ask("/page", "a", "401", 2) + ask("/page", "a", "200"), [401, 401, 403], "failures do")
            check.equal(ask("/page", "b", "200"), [200], "another key")
            check.equal(ask("/plain", "a", "200", 5), [200] * 5, "off by default")
            check.equal(nginx.get("/page", {"k": "b", "s": "200"}).weir["status"], "", "the variables of the page are its own")
            check.equal(ask("/slow", "a", "200", 4), [200] * 4, "delayed")
            check.equal([nginx.get("/ssi").text for _ in range(3)], ["part\npart\n", "part\nsorry\n", "sorry\nsorry\n"], "each include asks")
            left = nginx.client()
            left.send(get("/slow", {"k": "a"}))
            left.close()
            check.equal(ask("/slow", "b", "200"), [200], "a client that leaves while its subrequest waits")


def test_subrequests_inherit(check):
    """What the main request has asked is not asked again by a subrequest that inherits it; Redis decides those, too."""
    locations = """
        weir_subrequests on; weir_limit key=$arg_k zone=z "fixed-window 3/100d"; weir_conn key=$arg_k zone=z 1;
        location /page { empty_gif; auth_request /auth; }
        location = /auth { root {folder}/html; try_files /ok =404; }
        """
    with redis_server.Server() as redis:
        for http in ("", address(redis.port, PATIENT)):
            with serve(locations, http, files={"html/ok": "ok\n"}) as nginx:
                check.equal(statuses(nginx, ["/page?k=a"] * 4), [200] * 3 + [429], f"one charge for each page {http}")


TESTS = [test_statuses, test_kinds, test_variables, test_concurrent, test_redirects, test_equal_keys, test_redis, test_without_redis,
         test_redis_refuses, test_redis_has_no_room,
         test_subrequests, test_subrequests_inherit]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
