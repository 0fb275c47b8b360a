#!/usr/bin/env python3
"""Formats whose programs are not at hand, as their documentation describes them: Envoy, Istio, Traefik, AWS ALB; and CSV.
Also what the words for keys, filters, costs and fields mean.

    tests/homes/desk/documented.py [NAME …]
"""
import json
import sys

from lib import checks, desk

T = 1794810525  # 2026-11-16T06:28:45Z

ENVOY = ('[2026-11-16T06:28:45.{ms}Z] "{method} {path} HTTP/1.1" 200 - 154 {bytes} {ms} 91 "{ip}" "curl/8.1" '
         '"b2f6ac3e" "Shop.example.com" "10.0.35.28:80"\n')
ISTIO = ('[2026-11-16T06:28:45.{ms}Z] "{method} {path} HTTP/2" 200 - via_upstream - "-" 154 {bytes} {ms} 91 "203.0.113.99" '
         '"curl/8.1" "b2f6ac3e" "shop.example.com" "10.0.35.28:80" outbound|80||shop.default.svc.cluster.local '
         '10.0.35.1:4000 10.0.35.28:80 {ip}:5555 - default\n')
TRAEFIK = ('{ip} - - [16/Nov/2026:06:28:45 +0000] "{method} {path} HTTP/1.1" 200 {bytes} "-" "curl/8.1" 42 "web@docker" '
           '"http://10.0.0.9:80" {ms}ms\n')
ALB = ('https 2026-11-16T06:28:59.186641Z app/shop/50dc6c495c0c9188 {ip}:2817 10.0.0.1:80 0.086 0.{ms} 0.037 200 200 34 '
       '{bytes} "{method} https://Shop.example.com:443{path} HTTP/1.1" "curl/8.1" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 '
       'arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/shop/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d7" '
       '"shop.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/1234" 1 2026-11-16T06:28:45.{ms}000Z '
       '"authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"\n')
ROWS = [dict(ip="203.0.113.7", method="GET", path="/users/1?a=b", ms="100", bytes=1000),
        dict(ip="203.0.113.8", method="POST", path="/login", ms="250", bytes=1001),
        dict(ip="2001:db8:1:2:3::4", method="GET", path="/users/2", ms="900", bytes=0)]
KEYS = ["203.0.113.7", "203.0.113.8", "2001:db8:1:2::/64"]


def lines(shape, brackets=False):
    rows = [dict(row, ip=f"[{row['ip']}]" if brackets and ":" in row["ip"] else row["ip"]) for row in ROWS]
    return "".join(shape.format(**row) for row in rows).encode()


def agrees(check, what, text, fmt, whole=False, duration=True):
    seen = desk.read("-", text=text)
    check.equal(seen.keys, KEYS, f"{what}: addresses {seen.error} {seen.files}")
    check(any(f" {fmt} " in line for line in seen.files), f"{what}: {fmt}: {seen.files}")
    spread = [T * 10**6 + i * 10**6 // 3 for i in range(3)]
    check.equal(seen.times, spread if whole else [T * 10**6 + int(row["ms"]) * 1000 for row in ROWS], f"{what}: times")
    seen = desk.read("-", "--key", "path", "--cost", "bytes/1000", "--template", "/users/{id}", text=text)
    check.equal(list(zip(seen.keys, seen.costs)), [("/users/{id}", "1"), ("/login", "2"), ("/users/{id}", "0")],
                f"{what}: paths and bytes {seen.error}")
    if duration:
        seen = desk.read("-", "--cost", "duration", text=text)
        check.equal(seen.costs, ["100", "250", "900"], f"{what}: durations {seen.error}")
    seen = desk.read("-", "--where", "method!=POST", "--where", "status=2xx", "--where", "agent=curl/*", text=text)
    check.equal(seen.keys, [KEYS[0], KEYS[2]], f"{what}: filters {seen.error}")


def test_envoy(check):
    agrees(check, "Envoy", lines(ENVOY), "envoy")
    agrees(check, "Istio", lines(ISTIO, brackets=True), "envoy")
    chain = lines(ENVOY).replace(b'"203.0.113.7"', b'"1.2.3.4, 203.0.113.7"')
    check.equal(desk.read("-", text=chain).keys, KEYS, "Envoy: of several addresses the last")
    seen = desk.read("-", "--key", "host", text=lines(ENVOY))
    check.equal(set(seen.keys), {"shop.example.com"}, "Envoy: hosts")
    members = "".join(json.dumps({
        "start_time": f"2026-11-16T06:28:45.{row['ms']}Z", "method": row["method"], "path": row["path"], "response_code": 200,
        "bytes_sent": row["bytes"], "duration": int(row["ms"]), "downstream_remote_address": f"[{row['ip']}]:1"
        if ":" in row["ip"] else row["ip"] + ":1", "user_agent": "curl/8.1", "response_flags": "-"}) + "\n" for row in ROWS)
    agrees(check, "Envoy, JSON", members.encode(), "envoy")


def test_haproxy(check):
    """The port behind an address of IPv6 has no brackets before it, and is no part of the address."""
    ips = ["203.0.113.7:41234", "2001:db8:1:2:3::4:41234", "2001:db8:1:2:3:4:5:6:80", "2001:db8:1:9::443", "::ffff:192.0.2.1:5555"]
    text = "".join(f'Nov 16 06:28:45 lb haproxy[7]: {ip} [16/Nov/2026:06:28:45.100] web app/a 0/0/0/3/3 200 9 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"\n' for ip in ips)
    seen = desk.read("-", text=text.encode())
    check.equal(seen.keys, ["203.0.113.7", "2001:db8:1:2::/64", "2001:db8:1:2::/64", "2001:db8:1:9::/64", "192.0.2.1"], f"HAProxy: {seen.error} {seen.files}")


def test_traefik(check):
    agrees(check, "Traefik", lines(TRAEFIK), "traefik", whole=True)
    members = "".join(json.dumps({
        "ClientAddr": "x", "ClientHost": row["ip"], "ClientUsername": "-", "DownstreamContentSize": row["bytes"],
        "DownstreamStatus": 200, "Duration": int(row["ms"]) * 10**6, "RequestHost": "shop.example.com",
        "RequestMethod": row["method"], "RequestPath": row["path"], "StartUTC": f"2026-11-16T06:28:45.{row['ms']}123456Z",
        "request_User-Agent": "curl/8.1", "level": "info", "msg": "", "time": "2026-11-16T06:29:00Z"}) + "\n" for row in ROWS)
    text = members.encode().replace(b"123456Z", b"000456Z")
    agrees(check, "Traefik, JSON", text, "traefik")


def test_alb(check):
    agrees(check, "ALB", lines(ALB, brackets=True), "alb")
    seen = desk.read("-", "--key", "host", text=lines(ALB, brackets=True))
    check.equal(set(seen.keys), {"shop.example.com"}, "ALB: hosts")


def test_csv(check):
    text = ("Timestamp;Client_IP;Method;URL;status;bytes;duration_ms;User-Agent\r\n" + "".join(
        f"{T * 1000 + int(row['ms'])};\"{row['ip']}\";{row['method']};{row['path']};200;{row['bytes']};{row['ms']};curl/8.1\r\n"
        for row in ROWS)).encode()
    agrees(check, "CSV", text, "csv")
    quoted = f'time,user,tokens\n{T},"a ""b"", c\nd",5\n{T}.5,bob,7\n{T}.6,"open,1\n{T}.7,ann,2\n'.encode()
    seen = desk.read("-", "--key", "user", "--cost", "tokens", text=quoted)
    check.equal(seen.lines, [f'{T}.000000,a "b", c\\nd,5', f"{T}.500000,bob,7", f"{T}.700000,ann,2"], "CSV: quotes, line breaks")
    check.equal((seen.facts["unreadable"], seen.facts["lines"]), (1, 4), f"CSV: a quote that is missing: {seen.files}")
    check(any("example -:5:" in line for line in seen.files), f"CSV: its line: {seen.files}")


def test_trace(check):
    text = b"time,key,cost\n1.5,a\n1,\"b\"\"c\",3\n1,d,0\n\n0.000001,e\n"
    seen = desk.read("-", text=text)
    check.equal(seen.lines, ['1.500000,a,1', '1.000000,b"c,3', "1.000000,d,0", "0.000001,e,1"], "trace: as it stands")
    check(any(" trace " in line for line in seen.files), f"trace: {seen.files}")
    seen = desk.read("-", "--disorder", "10000000", text=text)
    check.equal(seen.times, [1, 1000000, 1000000, 1500000], "trace: put in order")
    seen = desk.read("-", "--strict", "--format", "trace", text=b"1,a\nx,b\n")
    check(seen.code == 1 and "line 2" in seen.error, f"trace: strict: {seen.error}")


def test_words(check):
    text = "".join(json.dumps({"time": T + i / 4, "ip": ip, "user": user, "http": {"route": route}, "tokens": tokens}) + "\n"
                   for i, (ip, user, route, tokens) in enumerate([
                       ("10.1.2.3", "Ann", "/a", 5), ("10.1.2.4", "ann", "/b", 6), ("::ffff:10.1.9.9", "", "/a", 7),
                       ("2001:db8::1", None, "/b", "x")])).encode()

    def keys(*words):
        seen = desk.read("-", *words, text=text)
        return seen.keys if seen.code == 0 else seen.error

    check.equal(keys(), ["10.1.2.3", "10.1.2.4", "10.1.9.9", "2001:db8::/64"], "the address")
    check.equal(keys("--key", "ip/16/32"), ["10.1.0.0/16"] * 3 + ["2001:db8::/32"], "networks")
    check.equal(keys("--key", "ip/56"), ["10.1.2.3", "10.1.2.4", "10.1.9.9", "2001:db8::/56"], "a network of IPv6")
    check.equal(keys("--key", "lower(user)"), ["ann", "ann"], "lower case; without a user there is no key")
    check.equal(keys("--key", "http.route"), ["/a", "/b", "/a", "/b"], "a member of a member")
    check.equal(keys("--key", "'all'"), ["all"] * 4, "a constant")
    check.equal(keys("--key", "user,http.route"), ["Ann,/a", "ann,/b"], "two parts")
    check.equal(len(set(keys("--key", "hash(user)"))), 2, "hashes")
    check.equal(keys("--field", "user=http.route", "--key", "user"), ["/a", "/b", "/a", "/b"], "a field elsewhere")
    check.equal(keys("--where", "ip=10.1.2.0/24|::/0"), ["10.1.2.3", "10.1.2.4", "2001:db8::/64"], "networks in filters")
    check.equal(keys("--where", "user!=*"), ["10.1.9.9", "2001:db8::/64"], "what is absent")
    check.equal(keys("--where", "user=A*|bob"), ["10.1.2.3"], "patterns")
    seen = desk.read("-", "--cost", "tokens", text=text)
    check.equal((seen.costs, seen.facts["unreadable"]), (["5", "6", "7"], 1), "a cost that is not a number")
    check("no readable cost" in " ".join(seen.files), f"and why: {seen.files}")
    for words, part in [
            (("--key", "user/24"), "only addresses have networks"), (("--key", "ip/33/64"), "lengths of its network"),
            (("--key", "a b"), "expected an attribute"), (("--where", "status"), "expected NAME=VALUE"),
            (("--where", "path=login"), "a path begins with /"), (("--where", "path=/a/../b"), "write /b"),
            (("--where", "ip=10.0.0.1/8"), "bits are set"), (("--cost", "bytes/x"), "whole number after the /"),
            (("--cost", "duration/5"), "a duration after the /"), (("--format", "combind"), "did you mean combined?"),
            (("--format", "$time_local$status"), "nobody can tell"), (("--format", "$status x"), "has no time"),
            (("--timezone", "CET"), "an offset from UTC"), (("--template", "/a"), "in braces"), (("--field", "x=y"), "NAME is one of")]:
        check.contains(str(keys(*words)), part, f"refused: {' '.join(words)}")


if __name__ == "__main__":
    sys.exit(checks.run([test_envoy, test_haproxy, test_traefik, test_alb, test_csv, test_trace, test_words], sys.argv[1:]))
