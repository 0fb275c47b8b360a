#!/usr/bin/env python3
"""Ways around a policy: spellings, repeated fields, addresses that are none, parameters that are empty or out of place.
Each of them meets the limit, or is refused; none is let through as if no policy was there."""
import subprocess
import sys

from lib import checks, weir_server
from lib.http_client import get, request
from http_api import asked
from http_wire import problem

POLICIES = """version: 1
trusted_proxies: [127.0.0.1, 10.0.0.0/8]
policies:
  - {name: login, match: {path: /login}, key: ip, limit: fixed-window 1000/h}
  - {name: keyed, match: {path: /keyed}, key: header.x-api-key, limit: fixed-window 1000/h}
  - {name: hosted, match: {path: /hosted, host: shop.example}, key: "'all'", limit: fixed-window 1000/h}
  - {name: posts, match: {path: /posts, method: POST}, key: user, limit: fixed-window 1000/h}
"""


def keys(answer):
    return [row["key"] for row in answer.json["limits"]] if answer.status == 200 else answer.status


def lines(server, words):
    """What it said with these words, once it did."""
    server.wait_for(lambda: words in server.stderr())
    return [line for line in server.errors if words in line]


# ---- paths ----

# The table of docs/POLICIES.md: what is /login, and what is not. None: refused.
SPELLINGS = [
    ("/login", True), ("/%6cogin", True), ("//login", True), ("/x/../login", True), ("/./login", True),
    ("/login?a", True), ("/login#a", True),
    ("/login;a=b", True), ("/login;", True), ("/login%3Ba=b", True), ("/x/..;/login", True),
    ("/login%20", True), ("/%20login", True), ("/login.", True), ("/login..", True),
    ("http://shop.example/login?a", True), ("login", True),
    ("/login/.", False), ("/login/", False), ("/LOGIN", False), ("/login%2520", False), ("/login\\", False),
    ("/login%00", None), ("/login%0a", None), ("/login%00.png", None), ("/login%7f", None),
]


def test_paths(check):
    with asked(policies=POLICIES) as (_, client):
        for text, same in SPELLINGS:
            wanted = 400 if same is None else ["login/{ip=192.0.2.1}"] if same else []
            ask = {"attr_path": text, "attr_ip": "192.0.2.1", "detail": 1}
            check.equal(keys(client.get("/v1/take", **ask)), wanted, f"attr.path={text}")
            body = {"attributes": {"path": text, "ip": "192.0.2.1"}, "detail": True}
            check.equal(keys(client.post("/v1/take", body)), wanted, f"JSON path {text}")
            for field in ("x-forwarded-uri", "x-original-uri"):
                fields = {field: text, "x-forwarded-for": "192.0.2.1"}
                check.equal(keys(client.ask(get("/v1/take", fields, detail=1))), wanted, f"{field}: {text}")
        problem(check, client.get("/v1/take", attr_path="/%00"), 400, "control character", "why")
    kept = POLICIES.replace("version: 1\n", "version: 1\npath_parameters: keep\n")
    with asked(policies=kept) as (_, client):
        ask = {"attr_path": "/login;a=b", "attr_ip": "192.0.2.1", "detail": 1}
        check.equal(keys(client.get("/v1/take", **ask)), [], "path_parameters: keep")


def test_spelling_of_files(check):
    """What can never match is refused, with what to write instead."""
    for match, right in (("path: /a/../b", "/b"), ("path: /a/.", "/a/"), ("path: /a.", "/a"), ('path: "/a;b"', "/a"),
                         ('host: "shop.example:8080"', "shop.example"), ('host: "shop.example."', "shop.example"),
                         ('host: "https://shop.example"', "shop.example")):
        text = f"version: 1\npolicies:\n  - {{name: a, match: {{{match}}}, key: ip, limit: token-bucket 1/s}}\n"
        done = subprocess.run([weir_server.WEIR, "check", "-"], input=text, capture_output=True, text=True)
        check(done.returncode == 2 and f'write "{right}"' in done.stderr, f"{match}: {done.stdout}{done.stderr}")


# ---- names ----

def test_names(check):
    """Names of fields are the same in any case, wherever they come in."""
    with asked(policies=POLICIES) as (_, client):
        wanted = ["keyed/{header.x-api-key=k1}"]
        for name in ("header.X-API-Key", "header.x-api-key", "Header.X-Api-Key"):
            body = {"attributes": {"Path": "/keyed", name: "k1"}, "detail": True}
            check.equal(keys(client.post("/v1/take", body)), wanted, f"JSON {name}")
            check.equal(keys(client.get("/v1/take", **{"attr_path": "/keyed", f"attr_{name}": "k1", "detail": 1})),
                        wanted, f"attr.{name}")
            taken = client.get("/v1/take", **{f"attr_{name}": "who", "key_from": name, "limit": "fixed-window 9/h"})
            check.equal(taken.status, 200, f"key_from={name}")
            done = subprocess.run([weir_server.WEIR, "check", "-", "--request", f"path=/keyed&{name}=k1"],
                                  input=POLICIES, capture_output=True, text=True)
            check.contains(done.stdout, wanted[0], f"weir check --request {name}")
        check.equal(client.get("/v1/peek", key="who", limit="fixed-window 9/h").json["remaining"], 6, "one key")
        twice = {"attributes": {"path": "/keyed", "header.X-Api-Key": "", "header.x-api-key": "k1"}}
        problem(check, client.post("/v1/take", twice), 400, "twice", "two spellings of one name")
        twice = {"attr_path": "/keyed", "attr_header.X-Api-Key": "", "attr_header.x-api-key": "k1"}
        problem(check, client.get("/v1/take", **twice), 400, "twice", "in a query")
        done = subprocess.run([weir_server.WEIR, "check", "-", "--request", "path=/keyed&header.A=1&header.a=2"],
                              input=POLICIES, capture_output=True, text=True)
        check(done.returncode == 2 and "twice" in done.stderr, f"weir check: {done.stderr}")


# ---- fields ----

def test_repeated_fields(check):
    """A field that decides must come once: those behind may take the first, the last, or all as a list."""
    with asked(policies=POLICIES) as (_, client):
        one = [("x-forwarded-uri", "/keyed")]
        check.equal(keys(client.ask(get("/v1/take", one + [("x-api-key", "k1")], detail=1))),
                    ["keyed/{header.x-api-key=k1}"], "once")
        for values in (("", "k1"), ("k1", ""), ("k1", "k2"), ("k1", "k1")):
            fields = one + [("X-Api-Key", value) for value in values]
            problem(check, client.ask(get("/v1/take", fields)), 400, "header.x-api-key was sent twice", f"{values}")
        for name in ("x-forwarded-uri", "x-original-uri"):
            fields = [(name, "/elsewhere"), (name, "/login")]
            problem(check, client.ask(get("/v1/take", fields)), 400, "path was sent twice", name)
        fields = {"x-forwarded-uri": "/elsewhere", "x-original-uri": "/login"}
        problem(check, client.ask(get("/v1/take", fields)), 400, "two fields that differ", "two that tell of the path")
        fields = {"x-forwarded-uri": "/login", "x-original-uri": "/login", "x-forwarded-for": "192.0.2.1"}
        check.equal(keys(client.ask(get("/v1/take", fields, detail=1))), ["login/{ip=192.0.2.1}"], "that say the same")
        fields = {"x-forwarded-uri": "/posts", "x-forwarded-method": "GET", "x-original-method": "POST"}
        problem(check, client.ask(get("/v1/take", fields)), 400, "two fields that differ", "methods")
        fields = {"x-forwarded-uri": "/hosted", "x-forwarded-host": "other.example, shop.example"}
        problem(check, client.ask(get("/v1/take", fields)), 400, "list of hosts", "hosts")
        fields = [("x-forwarded-uri", "/login"), ("x-real-ip", "1.1.1.1"), ("x-real-ip", "2.2.2.2")]
        problem(check, client.ask(get("/v1/take", fields)), 400, "ip was sent twice", "addresses")


def test_addresses(check):
    """Who it is must be readable. What a proxy leaves empty is no hop."""
    with asked(policies=POLICIES) as (server, client):
        def of(fields):
            return client.ask(get("/v1/take", fields, attr_path="/login", detail=1))
        for text in ("6.6.6.6, 1.2.3.4,", "6.6.6.6, 1.2.3.4, ,", "6.6.6.6,,1.2.3.4,10.1.1.1,,"):
            check.equal(keys(of({"x-forwarded-for": text})), ["login/{ip=1.2.3.4}"], f"X-Forwarded-For: {text}")
        for text in ("unknown", "6.6.6.6, unknown", "1.2.3.4, 010.1.1.1", "_hidden", "unix:"):
            problem(check, of({"x-forwarded-for": text}), 400, "ip is not an address", f"X-Forwarded-For: {text}")
        for text in ("", ",", " , "):
            problem(check, of({"x-forwarded-for": text}), 400, "without an address", f"X-Forwarded-For: {text!r}")
        check.equal(keys(of({"x-forwarded-for": ",", "x-real-ip": "1.2.3.4"})), ["login/{ip=1.2.3.4}"], "X-Real-IP")
        for text, why in (("unknown", "ip is not an address"), ("", "ip is empty"), (" 1.2.3.4", "ip is not an address")):
            problem(check, client.get("/v1/take", attr_path="/login", attr_ip=text), 400, why, f"attr.ip={text!r}")
            body = {"attributes": {"path": "/login", "ip": text}}
            problem(check, client.post("/v1/take", body), 400, why, f"JSON ip {text!r}")
        said = lines(server, "refused with 400")
        check(len(said) == 1 and "127.0.0.1" in said[0], f"it is said once for each address: {server.errors}")
        spoken = [("1.2.3.4:80", "1.2.3.4"), ("::ffff:1.2.3.4", "1.2.3.4"), ("2001:db8::7", "2001:db8::/64")]
        for text, wanted in spoken:
            client.get("/v1/take", attr_ip=text, key_from="ip", limit="fixed-window 9/h")
        left = [client.get("/v1/peek", key=key, limit="fixed-window 9/h").json["remaining"]
                for key in ("1.2.3.4", "2001:db8::/64")]
        check.equal(left, [7, 8], "key_from=ip: one spelling, as policies have it")
        for text in ("/a;b", "/a.", "//a"):
            client.get("/v1/take", attr_path=text, key_from="path", limit="fixed-window 9/h")
        check.equal(client.get("/v1/peek", key="/a", limit="fixed-window 9/h").json["remaining"], 6, "key_from=path")


HOSTS = """version: 1
trusted_proxies: [127.0.0.1]
policies:
  - name: shop
    match: {host: shop.example}
    key: host
    limit: fixed-window 99/366d
"""


def test_hosts(check):
    """What some proxies take for shop.example is that here, too, or refused."""
    with asked(policies=HOSTS) as (_, client):
        for text in ("shop.example", "SHOP.Example", "shop.example:8080", "shop.example.", "shop.example.:80", "shop.example:", "other.example"):
            wanted = [] if text.startswith("other") else ["shop/{host=shop.example}"]
            check.equal(keys(client.ask(get("/v1/take", {"x-forwarded-host": text}, detail=1))), wanted, f"X-Forwarded-Host: {text}")
        for text in ("shop.example:x", "shop.example:80:80", "user@shop.example", "http://shop.example", "shop.example/", "shop%2eexample",
                     "[shop.example]", "shop.example:80x"):
            for field in ("x-forwarded-host", "x-original-host"):
                problem(check, client.ask(get("/v1/take", {field: text}, detail=1)), 400, "host is not a host", f"{field}: {text}")
            problem(check, client.post("/v1/take", {"attributes": {"host": text}}), 400, "host is not a host", f"JSON host {text}")
            problem(check, client.get("/v1/take", attr_host=text), 400, "host is not a host", f"attr.host={text}")


# ---- parameters ----

def test_values(check):
    with asked(policies=POLICIES) as (_, client):
        for value in ([], ["k1"], {}, {"a": 1}, [["k1"]]):
            body = {"attributes": {"path": "/keyed", "header.x-api-key": value}}
            problem(check, client.post("/v1/take", body), 400, "header.x-api-key", f"an attribute {value}")
            problem(check, client.post("/v1/take", {"attributes": {"unasked": value}}), 400, "unasked", f"{value}, unasked")
        none = client.post("/v1/take", {"attributes": {"path": "/keyed", "header.x-api-key": None}})
        check.equal(none.json["verdict"], "none", "null is missing")


def test_parameters(check):
    limit = "fixed-window 9/h"
    with asked(policies=POLICIES) as (_, client):
        cases = [
            ({"policy": "keyed", "key_from": "ip"}, "key_from needs a limit"), ({"key_from": "ip"}, "key_from needs a limit"),
            ({"policy": ""}, "policy is empty"), ({"policy": "", "key": "k"}, "policy is empty"),
            ({"limit": ""}, "limit is empty"), ({"key": "k", "limit": ""}, "limit is empty"),
            ({"key": "k", "limit": "", "policy": "keyed"}, "limit is empty"), ({"limit": limit, "policy": ""}, "policy is empty"),
            ({"key_from": "", "key": "k", "limit": limit}, "key_from is empty"),
            ({"key_from": "ip", "key": "k", "limit": limit}, "key or key_from"),
            ({"key": "", "limit": limit}, "1 to 65536"), ({"key": "k", "policy": "keyed", "limit": limit}, "not both"),
            ({"receipt": "w2-1", "key": "k", "limit": limit}, "settle"), ({"actual": 1, "key": "k", "limit": limit}, "settle"),
            ({"lease": 5, "key": "k", "limit": limit}, "lease"),
        ]
        for what, why in cases:
            for path in ("/v1/take", "/v1/peek"):
                problem(check, client.get(path, **what), 400, why, f"GET {path} {what}")
                problem(check, client.post(path, what), 400, why, f"POST {path} {what}")
        problem(check, client.post("/v1/take", {"requests": [{"key": "k", "limit": limit}]}), 400, "takeall", "requests")
        for more in ({"key": "k"}, {"limit": limit}, {"policy": "keyed"}, {"attributes": {}}, {"cost": 3}):
            body = {"requests": [{"key": "k", "limit": limit}], **more}
            problem(check, client.post("/v1/takeall", body), 400, "requests only", f"takeall beside {more}")


def test_deny_first(check):
    eight = ", ".join(f"{kind} 9/{unit}" for kind in ("fixed-window", "sliding-log") for unit in "smhd")
    policies = f"""version: 1
policies:
  - {{name: a, key: ip, limit: "{eight}"}}
  - {{name: b, key: ip, limit: "{eight}"}}
  - {{name: c, key: ip, limit: "{eight}"}}
  - {{name: d, deny: [{{user: eve}}]}}
"""
    with asked(policies=policies) as (_, client):
        problem(check, client.get("/v1/take", attr_user="ann"), 400, "more than 16 limits", "too many")
        denied = client.get("/v1/take", attr_user="eve")
        check.equal((denied.json.get("verdict"), denied.json.get("violated-policies")), ("deny", ["d"]), "denied first")


# ---- who is believed ----

def test_untrusted_is_said(check):
    with asked(policies=POLICIES.replace("127.0.0.1, ", "")) as (server, client):
        for _ in range(3):
            client.ask(request("GET", "/v1/take", {"X-Forwarded-For": "1.2.3.4"}))
        client.ask(request("GET", "/v1/take", {"X-Api-Key": "1.2.3.4"}))
        said = lines(server, "trusted_proxies")
        check(len(said) == 1 and "127.0.0.1 sends X-Forwarded-For" in said[0], f"once for each address: {server.errors}")
    with asked(policies=POLICIES) as (server, client):
        client.ask(request("GET", "/v1/take", {"X-Forwarded-For": "1.2.3.4"}))
        client.ask(request("GET", "/v1/take"))
        check.equal([line for line in server.errors if "trusted_proxies" in line], [], "not of those that are trusted")
    text = POLICIES.replace("trusted_proxies: [127.0.0.1, 10.0.0.0/8]\n", "")
    done = subprocess.run([weir_server.WEIR, "check", "-"], input=text, capture_output=True, text=True)
    check.contains(" ".join(done.stdout.split()), "no trusted_proxies", "weir check says so")
    done = subprocess.run([weir_server.WEIR, "check", "-"], input=POLICIES, capture_output=True, text=True)
    check("no trusted_proxies" not in " ".join(done.stdout.split()), "and is silent where there are some")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
