#!/usr/bin/env python3
"""The HTTP API: every route and method, what is told, what is refused and why, numbers, keys, fields."""
import base64
import sys

from lib import checks, http_client, weir_server
from lib.http_client import Number, post, request
from http_wire import problem

ASKING = {"/v1/take": "GET, HEAD, POST", "/v1/peek": "GET, HEAD, POST", "/v1/takeall": "POST", "/v1/settle": "POST",
          "/v1/reset": "POST", "/v1/acquire": "POST", "/v1/renew": "POST", "/v1/release": "POST",
          "/v1/explain": "POST"}
TELLING = {"/healthz": "GET, HEAD", "/healthcheck": "GET, HEAD", "/readyz": "GET, HEAD", "/metrics": "GET, HEAD",
           "/v1/stats": "GET, HEAD", "/v1/history": "GET, HEAD", "/v1/top": "GET, HEAD", "/v1/policies": "GET, HEAD", "/v1/simulate": "POST",
           "/v1/reload": "POST", "/v1/clock": "POST", "/json": "POST", "/": "GET, HEAD"}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get")


def asked(options="--test-clock", policies=None):
    """A server with the time standing still, unless told otherwise, and a client."""
    server = weir_server.Server(options, policies)
    server.__enter__()
    client = http_client.Client(server.port)
    if "--test-clock" in options:
        client.post("/v1/clock", {"now": 1700000000})
    return Both(server, client)


class Both:
    def __init__(self, server, client):
        self.server, self.client = server, client

    def __enter__(self):
        return self.server, self.client

    def __exit__(self, *reason):
        self.client.close()
        self.server.__exit__(*reason)


# ---- routes ----

def test_routes(check):
    with asked() as (_, client):
        for path, allowed in {**ASKING, **TELLING}.items():
            for method in METHODS:
                body = b"{}" if method not in ("GET", "HEAD") else None
                answer = client.ask(request(method, path, {"content-type": "application/json"}, body),
                                    head=method == "HEAD")
                what = f"{method} {path}"
                if method in allowed.split(", "):
                    check(answer.status != 405, f"{what}: {answer.status}")
                    check.equal(answer.fields.get("allow"), None, f"{what}: no Allow")
                else:
                    check.equal(answer.status, 405, what)
                    if method != "HEAD":
                        problem(check, answer, 405, allowed, what)
                    check.equal(answer.fields.get("allow"), allowed, f"{what}: Allow")
        for path in ("/v1", "/v1/", "/v1/take/", "/V1/TAKE", "/v2/take", "/v1/takeall/x", "/nothing", "/../etc/passwd",
                     "/%2e%2e/", "//", "/v1/take%20"):
            problem(check, client.ask(request("GET", path)), 404, "nothing at", path)
        for path, allowed in {**ASKING, **TELLING}.items():
            if "POST" in allowed and path != "/json":
                for kind in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
                    fields = {"content-type": kind} if kind else {}
                    problem(check, client.ask(request("POST", path, fields, b"{}")), 415, "application/json",
                            f"{path} of type {kind}")
        for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json;charset=utf-8"):
            answer = client.ask(request("POST", "/v1/reset", {"content-type": kind}, b'{"key":"k"}'))
            check.equal(answer.status, 200, f"type {kind}")


def test_told(check):
    with asked("") as (server, client):
        client.get("/v1/take", attr_path="/api/x", attr_user="ann")
        check.equal(client.get("/healthz").body, b"OK\n", "healthy")
        check.equal(client.get("/readyz").body, b"ready\n", "ready")
        for path, kind in (("/metrics", "text/plain; version=0.0.4; charset=utf-8"), ("/v1/stats", "application/json"),
                           ("/v1/history", "application/json"), ("/v1/history?seconds=60", "application/json"),
                           ("/v1/top", "application/json"), ("/v1/policies", "application/json"),
                           ("/", "text/html; charset=utf-8")):
            answer = client.get(path)
            check.equal((answer.status, answer.fields["content-type"]), (200, kind), path)
        open_metrics = client.get("/metrics", {"accept": "application/openmetrics-text; version=1.0.0"})
        check(open_metrics.fields["content-type"].startswith("application/openmetrics-text"), "OpenMetrics by Accept")
        check(open_metrics.body.endswith(b"# EOF\n"), "OpenMetrics has its end")
        check(b'policy="demo-api"' in client.get("/metrics").body, "the policy is counted")
        check.equal([it["name"] for it in client.get("/v1/policies").json["policies"]], ["demo-api", "demo-login"],
                    "the demonstration")
        keys = [key["key"] for policy in client.get("/v1/top", k=5).json["policies"] for key in policy["hottest"]]
        check(any("ann" in key for key in keys), f"hottest keys: {keys}")
        for query in ({"k": 0}, {"k": 100000}, {"k": "x"}, {"n": 1}):
            check.equal(client.get("/v1/top", **query).status, 400, f"top of {query}")
        for query in ({"seconds": 0}, {"seconds": 3601}, {"seconds": "x"}, {"n": 1}):
            check.equal(client.get("/v1/history", **query).status, 400, f"history of {query}")
        check.equal(client.get("/v1/history?seconds=1&seconds=1").status, 400, "history, asked twice")
        check.equal(client.get("/v1/history?seconds=" + "1" * 1000).status, 400, "history of a long question")
        check.equal(client.post("/v1/clock", {"now": 5}).status, 404, "no test clock unless asked for")
        check.equal(client.post("/v1/simulate", {"nonsense": 1}).status, 400, "a simulation that is none")
        check(client.post("/json", {"domain": "x", "descriptors": []}).status >= 400, "Envoy's JSON without descriptors")


# ---- what is refused ----

def test_bad_parameters(check):
    good = {"key": "k", "limit": "fixed-window 9/h"}
    cases = [
        ({"limit": good["limit"]}, "key", "no key"), ({**good, "key": ""}, "65536", "an empty key"),
        ({"key": "k"}, "limit", "no limit"), ({**good, "limit": ""}, "", "an empty limit"),
        ({**good, "limit": "frobnicate 1/s"}, "frobnicate", "an unknown limit"),
        ({**good, "limit": "token-bucket 10/fortnight"}, "column", "a syntax error says where"),
        ({**good, "policy": "p"}, "not both", "limit and policy"), ({"key": "k", "policy": "p"}, "p", "no such policy"),
        ({**good, "cost": "-1"}, "cost", "a negative cost"), ({**good, "cost": "1.5"}, "1.5", "a broken cost"),
        ({**good, "cost": 10 ** 12 + 1}, "1000000000000", "a cost too large"), ({**good, "cost": ""}, "cost", "no cost"),
        ({**good, "cost": 10 ** 30}, "cost", "a cost beyond numbers"), ({**good, "wait": "soon"}, "soon", "a wait"),
        ({**good, "wait": "-1"}, "wait", "a negative wait"), ({**good, "wait": "367d"}, "366 days", "a long wait"),
        ({**good, "wait": 367 * 86400}, "366 days", "a long wait in seconds"),
        ({**good, "wait": "0.0000001"}, "wait", "a wait below a microsecond"),
        ({**good, "hold": "maybe"}, "true or false", "hold"), ({**good, "detail": "2"}, "true or false", "detail"),
        ({**good, "deny_status": 399}, "400", "deny_status"), ({**good, "deny_status": 600}, "599", "deny_status"),
        ({**good, "deny_status": 200}, "400", "deny_status of success"), ({**good, "headers": "xx"}, "ietf", "headers"),
        ({**good, "colour": "red"}, "colour", "an unknown parameter"), ({**good, "Key": "x"}, "Key", "another case"),
        ({"limit": good["limit"], "key_from": "nothing"}, "key_from", "key_from of nothing"),
    ]
    with asked() as (_, client):
        for query, words, what in cases:
            problem(check, client.get("/v1/take", **query), 400, words, f"GET: {what}")
            problem(check, client.post("/v1/take", query), 400, words, f"POST: {what}")
        for target, words in (("/v1/take?key=%zz&limit=fixed-window+9/h", "escape"), ("/v1/take?key=%e", "escape"),
                              ("/v1/take", ""), ("/v1/take?", "")):
            answer = client.ask(request("GET", target))
            check(answer.status in (200, 400), f"{target}: {answer.status}")
            if words:
                problem(check, answer, 400, words, target)
        plus = client.ask(request("GET", "/v1/take?&key=a+b%2Bc&&limit=fixed-window+9/h&"))
        check.equal(plus.json["remaining"], 8, "empty pairs are passed over")
        check.equal(client.post("/v1/take", {"key": "a b+c", "limit": "fixed-window 9/h"}).json["remaining"], 7,
                    "+ is a blank, %2B is +")
        check.equal(client.get("/v1/peek", **good).json["remaining"], 9, "nothing was charged by any of these")


def test_bad_json(check):
    cases = [
        (b"", "JSON"), (b"{", "JSON"), (b"[]", "object"), (b"null", "object"), (b'"x"', "object"), (b"{}x", "JSON"),
        (b'{"key":"a","key":"b","limit":"fixed-window 1/h"}', "key"), (b"{'key':1}", "JSON"),
        (b'{"key":"\xff\xfe","limit":"fixed-window 1/h"}', "UTF-8"), (b'{"key":"\\ud800"}', "surrogate"),
        (b'{"key":1,"limit":"fixed-window 1/h"}', "string"), (b'{"key":null}', "null"), (b'{"key":["a"]}', "array"),
        (b'{"key":{},"limit":"fixed-window 1/h"}', "object"), (b'{"key":"k","limit":5}', "string"),
        (b'{"key":"k","limit":"fixed-window 1/h","cost":true}', "cost"), (b'{"key":"k","colour":1}', "colour"),
        (b'{"key":"k","limit":"fixed-window 1/h","cost":01}', "JSON"), (b'{"key_base64":"@@"}', "base64"),
        (b'{"key_base64":5}', "base64"), (b'{"key":"k","attributes":5}', "attributes"),
        (b'{"key":"k","requests":5}', "requests"), (b"[" * 100 + b"]" * 100, "JSON"),
        (b'{"a":' * 20 + b"1" + b"}" * 20, "JSON"), (b'{"key":"k",}', "JSON"), (b"\xef\xbb\xbf{}", "JSON"),
    ]
    with asked() as (_, client):
        for body, words in cases:
            problem(check, client.post("/v1/take", body), 400, words, f"{body!r:.60}")
        many = {"key": "k", "limit": "fixed-window 1/h", "attributes": {f"a{i}": "x" for i in range(300)}}
        check.equal(client.post("/v1/take", many).status, 400, "more nodes than there is room for")
        answer = client.post("/v1/take", b'{"key":"k", oops')
        check(any(char.isdigit() for char in answer.json["detail"]), f"where it is broken: {answer.json['detail']}")


def test_numbers(check):
    """Numbers in JSON in all their spellings; seconds to the microsecond."""
    one = {"limit": "fixed-window 10000/h"}
    with asked() as (_, client):
        for text, cost in (("1e3", 1000), ("1.0", 1), ("1E+2", 100), ("0.5e1", 5), ("12.00", 12), ("10000e-3", 10),
                           ("0", 0), ("-0", 0), ("0e99", 0)):
            answer = client.post("/v1/take", {"key": text, "cost": Number(text), **one})
            check.equal(answer.json.get("remaining"), 10000 - cost, f"cost {text}")
        for text in ("1.5", "-1", "1e-1", "1e13", "1e999"):
            problem(check, client.post("/v1/take", {"key": "n", "cost": Number(text), **one}), 400, "cost", text)
        bucket = {"key": "w", "limit": "token-bucket 1/s"}
        client.post("/v1/take", bucket)
        for wait, left in (("0.25", 750000), ("0.000001", 999999), ("1e-6", 999999), ("0.999999", 1), ("0", 1000000),
                           ("5e-1", 500000), ("0.1234560", 876544)):
            body = client.post("/v1/take", {**bucket, "wait": Number(wait)}).json
            check.equal(body["retry_after"], left, f"wait {wait}")
        for wait, left in (("250ms", 750000), ("1us", 999999), ("0.25", 750000), ("999ms999us", 1), ("0", 1000000)):
            check.equal(client.get("/v1/take", **bucket, wait=wait).json["retry_after"], left, f"wait={wait}")
            check.equal(client.post("/v1/take", {**bucket, "wait": wait}).json["retry_after"], left, f'"wait":"{wait}"')
        check.equal(client.post("/v1/take", {**bucket, "wait": 1}).json["delay"], 1000000, "waited long enough")
        check.equal(client.get("/v1/take", **bucket, wait="any").json["delay"], 2000000, "any")
        raw = client.ask(post("/v1/peek", bucket)).body
        check(b'"retry_after":3.000000' in raw, f"seconds have six decimals: {raw}")
        for now in (Number("1700000000.000001"), Number("17e8"), 0):
            check.equal(client.post("/v1/clock", {"now": now}).status, 200, f"the clock at {now!r}")
        for now in (-1, "x", None, Number("0.0000001"), 10 ** 12):
            check.equal(client.post("/v1/clock", {"now": now}).status, 400, f"the clock at {now!r}")


def test_key_base64(check):
    limit = "fixed-window 9/h"
    with asked() as (server, client), server.client() as resp:
        for key in (b"\x00\xff\xfe", b"plain", bytes(range(256)), b"a"):
            text = base64.b64encode(key).decode()
            check.equal(client.post("/v1/take", {"key_base64": text, "limit": limit}).json["remaining"], 8, f"{key!r:.20}")
            check.equal(client.post("/v1/take", {"key_base64": text.rstrip("="), "limit": limit}).json["remaining"], 7,
                        "without padding")
            check.equal(resp.call("WEIR.TAKE", key, limit)[2], 6, "the same bytes over RESP")
        check.equal(client.post("/v1/take", {"key": "plain", "limit": limit}).json["remaining"], 5, "the same as text")
        check.equal(client.ask(request("GET", "/v1/take?key=%00%ff%fe&limit=fixed-window+9/h")).json["remaining"], 5,
                    "the same in a query")
        check.equal(client.post("/v1/take", b'{"key":"\\u0000\\u00e9\\ud83d\\ude00\\n","limit":"fixed-window 9/h"}').json
                    ["remaining"], 8, "escapes")
        check.equal(resp.call("WEIR.TAKE", "\0\u00e9\U0001f600\n".encode(), limit)[2], 7, "are what they stand for")
        for text in ("YQ=", "Y", "YQ==x", "Y Q==", "YR=="):
            problem(check, client.post("/v1/take", {"key_base64": text, "limit": limit}), 400, "base64", text)
        problem(check, client.post("/v1/take", {"key_base64": "", "limit": limit}), 400, "65536", "no bytes")


# ---- fields ----

def test_styles(check):
    names = {"ietf": {"ratelimit", "ratelimit-policy"},
             "ietf-06": {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"},
             "x-ratelimit": {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}, "retry-after": set(), "off": set(),
             "openai": {"ratelimit", "ratelimit-policy", *(f"x-ratelimit-{it}-fixed-window" for it in ("limit", "remaining", "reset"))}}

    def rates(answer):
        return {name for name in answer.fields if "ratelimit" in name}

    one = {"key": "s", "limit": "fixed-window 2/h"}
    for style, wanted in names.items():
        with asked(f"--test-clock --headers {style}") as (_, client):
            check.equal(rates(client.get("/v1/take", **one)), wanted, f"--headers {style}")
            for other, fields in names.items():
                check.equal(rates(client.get("/v1/peek", **one, headers=other)), fields, f"headers={other}")
                check.equal(rates(client.post("/v1/peek", {**one, "headers": other})), fields, f"{other} in JSON")
            client.get("/v1/take", **one)
            denied = client.get("/v1/take", **one)
            check.equal((denied.status, denied.fields.get("retry-after")), (429, None if style == "off" else "2800"),
                        f"Retry-After, {style}")
    with asked() as (_, client):
        answer = client.get("/v1/take", **one, headers="ietf-06").fields
        check.equal([answer["ratelimit-" + it] for it in ("limit", "remaining", "reset")], ["2", "1", "2800"], "ietf-06")
        answer = client.get("/v1/take", **one, headers="x-ratelimit").fields
        check.equal([answer["x-ratelimit-" + it] for it in ("limit", "remaining", "reset")], ["2", "0", "2800"], "x")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
