#!/usr/bin/env python3
"""Logs that real programs write: nginx, Apache, HAProxy, Caddy and weir itself. What was sent is what is read, whatever the
program makes of quotes, backslashes and bytes that are not ASCII.

    tests/homes/desk/real_logs.py [NAME …]
"""
import sys
import time

from lib import checks, desk, nginx_server, weir_server
from lib.http_client import Client

NGINX_LOGS = r"""
log_format seconds '$remote_addr $msec "$request_method" "$request_uri" $status $body_bytes_sent $request_time '
                   '"$http_user_agent" "$http_x_client"';
log_format members escape=json '{"time":"$time_iso8601","remote_addr":"$remote_addr","request":"$request",'
                               '"status":$status,"bytes":$body_bytes_sent,"http_user_agent":"$http_user_agent",'
                               '"host":"$host"}';
log_format appended '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
                    '"$http_referer" "$http_user_agent" "$http_x_forwarded_for" $request_time';
access_log {folder}/combined combined;
access_log {folder}/seconds seconds;
access_log {folder}/members members;
access_log {folder}/appended appended;
"""
SECONDS_FORMAT = ('$remote_addr $msec "$request_method" "$request_uri" $status $body_bytes_sent $request_time '
                  '"$http_user_agent" "$http_x_client"')


def same(check, what, log, fmt, *words, agents=True, whole=True, span=None, paths=None, text=None):
    """One log, read by several keys. span: when the requests were sent."""
    sent = desk.REQUESTS
    source = ["-"] if text else [log]
    seen = desk.read(*source, *words, text=text)
    check.equal(seen.keys, [it.ip for it in sent], f"{what}: addresses")
    check.equal(set(seen.costs), {"1"}, f"{what}: costs")
    check(any(line.startswith("file ") and f" {fmt} " in line for line in seen.files), f"{what}: {fmt}: {seen.files} {seen.error}")
    check.equal((seen.facts.get("unreadable"), seen.facts.get("lines")), (0, len(sent)), f"{what}: all lines")
    first, last = span
    check(all(int(first) * 1e6 <= it <= (last + 1) * 1e6 for it in seen.times), f"{what}: times {seen.times} in {span}")
    check.equal(seen.times, sorted(seen.times), f"{what}: in order")
    check.equal(seen.facts.get("spread", 0) > 0, whole, f"{what}: whole seconds")
    seen = desk.read(*source, *words, "--key", "path", text=text)
    check.equal(seen.keys, paths or desk.PATHS, f"{what}: paths")
    seen = desk.read(*source, *words, "--key", "method, path", "--where", "path=/login|/users/*", "--template",
                     "/users/{id}/edit", text=text)
    check.equal(seen.keys, ["GET,/login", "POST,/login", "GET,/users/%7Bid%7D/edit", "GET,/users/%7Bid%7D/edit"],
                f"{what}: methods, a filter, a template")
    check.equal(seen.facts["filtered"], 3, f"{what}: filtered")
    seen = desk.read(*source, *words, "--key", "query.user", text=text)
    check.equal((seen.keys, seen.facts["keyless"]), (["ann"], 6), f"{what}: an argument")
    if agents:
        seen = desk.read(*source, *words, "--key", "header.user-agent", text=text)
        check.equal([key.encode(errors="surrogateescape").decode() for key in seen.keys], [it.agent for it in sent],
                    f"{what}: agents")


def test_nginx(check):
    with nginx_server.Nginx(NGINX_LOGS, 'location / { return 200 "hello\\n"; }', module=False) as nginx:
        first = time.time()
        for request in desk.REQUESTS:
            desk.send(nginx.port, request, f"X-Client: user-{request.ip}\r\n")
        nginx.stop()
        span = (first, time.time())
        same(check, "nginx, combined", nginx.folder / "combined", "combined", span=span)
        same(check, "nginx, appended", nginx.folder / "appended", "combined", span=span)
        same(check, "nginx, JSON", nginx.folder / "members", "json", span=span)
        seconds = nginx.folder / "seconds"
        same(check, "nginx, a format", seconds, "text", "--format", SECONDS_FORMAT, span=span, whole=False)
        same(check, "nginx, a directive", seconds, "text", "--format", f"log_format x '{SECONDS_FORMAT}';", span=span, whole=False)
        seen = desk.read(seconds, "--format", SECONDS_FORMAT, "--key", "header.x-client", "--cost", "bytes/4")
        check.equal(seen.keys, [f"user-{it.ip}" for it in desk.REQUESTS], "nginx: a header field")
        check.equal(seen.costs, ["2"] * len(desk.REQUESTS), "nginx: bytes, rounded up")
        seen = desk.read(seconds)
        check("unknown format" in seen.error and "--format" in seen.error and seen.code == 1, f"nginx: unknown: {seen.error}")
        seen = desk.read(nginx.folder / "combined", "--key", "header.x-client")
        check.contains(seen.error, "have no field header.x-client; they have ip, method, path", "nginx: a field that is not there")
        check.contains(seen.error, """; if lines have it, give nginx's log_format: --format '... "$http_x_client"'""", "nginx: how to name it")
        seen = desk.read(nginx.folder / "combined", nginx.folder / "members", "--key", "ip/24")
        check.equal(seen.keys, ["127.0.0.0/24"] * 2 * len(desk.REQUESTS), "nginx: two files, networks")


def test_apache(check):
    with desk.Apache() as apache:
        first = time.time()
        apache.send(desk.REQUESTS)
        apache.stop()
        span = (first, time.time())
        same(check, "Apache, common", apache.log("common"), "common", span=span, agents=False)
        same(check, "Apache, combined", apache.log("combined"), "combined", span=span)
        same(check, "Apache, vhost", apache.log("vhost"), "combined", span=span)
        same(check, "Apache, vhost by name", apache.log("vhost"), "combined", "--format", "combined", span=span)
        seen = desk.read(apache.log("vhost"), "--key", "host")
        check.equal(set(seen.keys), {"localhost"}, "Apache: hosts")


def test_haproxy(check):
    with desk.HAProxy() as haproxy:
        first = time.time()
        haproxy.send(desk.REQUESTS)
        syslog = haproxy.syslog(len(desk.REQUESTS))
        haproxy.stop()
        span = (first, time.time())
        raw = b"".join(line + b"\n" for line in haproxy.log("output").read_bytes().splitlines() if b" web/<NOSRV> " in line)
        same(check, "HAProxy", None, "haproxy", span=span, agents=False, whole=False, text=raw)
        same(check, "HAProxy, syslog", None, "haproxy", span=span, agents=False, whole=False, text=syslog)
        seen = desk.read("-", text=raw)
        check(any("zone assumed" in line for line in seen.files), f"HAProxy: no zone, and it says so: {seen.files}")
        later = desk.read("-", "--timezone", "-01:00", text=raw)
        check.equal([b - a for a, b in zip(seen.times, later.times)], [3600000000] * len(desk.REQUESTS), "HAProxy: a zone")
        cut = b"\n".join(line[:-12] for line in raw.splitlines())
        check.equal(desk.read("-", text=cut).facts["unreadable"], 0, "HAProxy: requests that syslog cut")


def test_caddy(check):
    with desk.Caddy() as caddy:
        first = time.time()
        caddy.send(desk.REQUESTS)
        caddy.stop()
        span = (first, time.time())
        same(check, "Caddy", caddy.log("access.json"), "caddy", span=span, whole=False)
        seen = desk.read(caddy.log("access.json"), "--key", "host", "--cost", "duration/1us")
        check.equal(set(seen.keys), {"example.com"}, "Caddy: hosts")
        check(all(1 <= int(cost) < 60e6 for cost in seen.costs), f"Caddy: durations {seen.costs}")


def test_weir(check):
    policies = "version: 1\npolicies: [{name: api, key: user, limit: token-bucket 5/s}]\n"
    with weir_server.Server("--access-log access.json --access-log-sample 1 --access-log-request", policies=policies) as server:
        first = time.time()
        with Client(server.port) as client:
            for user in ("ann", "bob", "ann"):
                client.get("/v1/take", **{"policy": "api", "attr.user": user, "attr.ip": "10.1.2.3", "cost": "2"})
        server.stop()
        seen = desk.read(server.folder / "access.json")
        check.equal(seen.keys, ["api/{user=ann}", "api/{user=bob}", "api/{user=ann}"], f"weir: keys {seen.error}")
        check.equal(seen.costs, ["2", "2", "2"], "weir: costs")
        check(all((first - 1) * 1e6 <= it <= (time.time() + 1) * 1e6 for it in seen.times), "weir: times")
        check(any(" weir " in line for line in seen.files), f"weir: {seen.files}")
        check.equal(seen.facts["spread"], 0, "weir: exact times")


if __name__ == "__main__":
    sys.exit(checks.run([test_nginx, test_apache, test_haproxy, test_caddy, test_weir], sys.argv[1:]))
