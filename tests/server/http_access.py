#!/usr/bin/env python3
"""Who may what: tokens over HTTP and RESP, and which hosts and origins are answered."""
import base64
import sys

import weir_server
import http_client
from http_client import get, post, request
from http_wire import problem

DATA, ADMIN = "data-token_1234567890", "admin-token_0987654321"
TAKE = {"key": "k", "limit": "fixed-window 1000/366d"}
OPEN = ("/healthz", "/readyz", "/healthcheck", "/")
ADMINISTERED = (get("/v1/stats"), get("/v1/top"), get("/v1/policies"), post("/v1/reload"))
RedisError = weir_server.resp.RedisError


def bearer(token):
    return {"authorization": f"Bearer {token}"} if token else {}


def with_fields(data, fields):
    """A request's bytes with further fields."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    head, _, body = data.partition(b"\r\n\r\n")
    return head + b"\r\n" + lines + b"\r\n" + body


def statuses(server, token):
    """What a token opens: asking, measuring, administering."""
    with http_client.Client(server.port) as client:
        ask = [client.ask(with_fields(data, bearer(token))).status
               for data in (get("/v1/take", **TAKE), post("/v1/take", TAKE), post("/v1/reset", {"key": "k"}))]
        measure = client.ask(with_fields(get("/metrics"), bearer(token))).status
        administer = [client.ask(with_fields(data, bearer(token))).status for data in ADMINISTERED]
        free = [client.ask(get(path)).status for path in OPEN]
        assert len(set(ask)) == len(set(administer)) == 1, (ask, administer)
        assert set(free) == {200}, free
        return ask[0], measure, administer[0]


def files(**tokens):
    return {name: token + "\n" for name, token in tokens.items()}


def test_tokens(check):
    both = files(data=DATA, admin=ADMIN)
    cases = [
        ("no tokens", "", {}, {None: (200, 200, 200), "any": (200, 200, 200)}),
        ("one for all", "--token-file data", both,
         {None: (401, 401, 401), DATA: (200, 200, 200), ADMIN: (401, 401, 401), DATA[:-1]: (401, 401, 401),
          DATA + "x": (401, 401, 401)}),
        ("two", "--token-file data --admin-token-file admin", both,
         {None: (401, 401, 401), DATA: (200, 200, 403), ADMIN: (200, 200, 200), "wrong": (401, 401, 401)}),
        ("only for administration", "--admin-token-file admin", both,
         {None: (200, 200, 403), ADMIN: (200, 200, 200), "wrong": (200, 200, 403)}),
        ("public", "--public-without-token", {}, {None: (200, 200, 403), "any": (200, 200, 403)}),
        ("public with an admin token", "--public-without-token --admin-token-file admin", both,
         {None: (200, 200, 403), ADMIN: (200, 200, 200)}),
    ]
    for what, options, texts, wanted in cases:
        with weir_server.Server(options, files=texts) as server:
            for token, opened in wanted.items():
                check.equal(statuses(server, token), opened, f"{what}, token {token}")
    env = {"WEIR_TOKEN": DATA, "WEIR_ADMIN_TOKEN": ADMIN}
    with weir_server.Server("", env=env) as server:
        check.equal([statuses(server, token) for token in (None, DATA, ADMIN)],
                    [(401, 401, 401), (200, 200, 403), (200, 200, 200)], "tokens of the environment")
    with weir_server.Server("--token-file data", files=files(data="of-the-file"), env=env) as server:
        check.equal(statuses(server, "of-the-file")[0], 200, "a file wins over the environment")
    with weir_server.Server("--token-file data", files={"data": f"{DATA}\r\nsecond line\n"}) as server:
        check.equal(statuses(server, DATA)[0], 200, "a token is its file's first line")


def test_spelling(check):
    with weir_server.Server("--token-file data", files=files(data=DATA)) as server:
        with http_client.Client(server.port) as client:
            for value, status in ((f"Bearer {DATA}", 200), (f"bearer {DATA}", 200), (f"BEARER {DATA}", 200),
                                  (DATA, 401), ("Bearer", 401), ("Bearer ", 401), (f"Bearer  {DATA}x", 401),
                                  (f"Token {DATA}", 401), ("Basic " + base64.b64encode(b"u:" + DATA.encode()).decode(), 401),
                                  (f"Bearer {DATA.upper()}", 401), ("Bearer " + "x" * 5000, 401)):
                answer = client.get("/v1/take", {"authorization": value}, **TAKE)
                check.equal(answer.status, status, f"Authorization: {value:.50}")
            answer = client.get("/v1/take", **TAKE)
            problem(check, answer, 401, "Authorization: Bearer", "no token")
            check.equal(answer.fields.get("www-authenticate"), 'Bearer realm="weir"', "WWW-Authenticate")
            check.equal(client.ask(request("PUT", "/v1/take")).status, 405, "a wrong method is told before the token")
            check.equal(client.get("/nothing").status, 404, "and so is a wrong path")
            before = client.get("/v1/peek", {"authorization": f"Bearer {DATA}"}, **TAKE).json["remaining"]
            for _ in range(3):
                client.get("/v1/take", **TAKE)
            after = client.get("/v1/peek", {"authorization": f"Bearer {DATA}"}, **TAKE).json["remaining"]
            check.equal(after, before, "without a token nothing is charged")


def test_tokens_resp(check):
    take = ("WEIR.TAKE", "k", "fixed-window 1000/366d")
    with weir_server.Server("--token-file data --admin-token-file admin", files=files(data=DATA, admin=ADMIN)) as server:
        with server.client() as client:
            for words in (take, ("PING",), ("INFO",), ("COMMAND",), ("CLIENT", "ID"), ("SELECT", 0), ("WEIR.NOTHING",),
                          ("WEIR.CLOCK", 5), ("CL.THROTTLE", "k", 1, 1, 1)):
                reply = client.pipeline([words])[0]
                check(str(reply).startswith("NOAUTH"), f"{words[0]} without a token: {reply!r}")
            for words in (("AUTH", "wrong"), ("AUTH", "default", "wrong"), ("AUTH", DATA + "x"), ("AUTH", DATA[:-1]),
                          ("AUTH", ""), ("HELLO", "3", "AUTH", "default", "wrong")):
                reply = client.pipeline([words])[0]
                check(str(reply).startswith("WRONGPASS"), f"{words}: {reply!r}")
            check(str(client.pipeline([("HELLO", 3)])[0]).startswith("NOAUTH"), "HELLO without AUTH")
            check(str(client.pipeline([("AUTH",)])[0]).startswith("ERR wrong number"), "AUTH of nothing")
            check(str(client.pipeline([take])[0]).startswith("NOAUTH"), "still not")
            check.equal(client.call("AUTH", DATA), "OK", "AUTH token")
            check.equal(client.call(*take)[2], 999, "and it is open")
            check(str(client.pipeline([("AUTH", "wrong")])[0]).startswith("WRONGPASS"), "a wrong one later")
            check.equal(client.call(*take)[2], 998, "takes nothing away")
            check.equal(client.call("RESET"), "RESET", "RESET")
            check(str(client.pipeline([take])[0]).startswith("NOAUTH"), "forgets the token")
        for words in (("AUTH", "anybody", DATA), ("AUTH", ADMIN), ("HELLO", 2, "AUTH", "default", DATA),
                      ("HELLO", 3, "AUTH", "u", ADMIN, "SETNAME", "x")):
            with server.client() as client:
                replies = client.pipeline([words, take])
                check(isinstance(replies[1], list), f"{words}, in one pipeline with what follows: {replies}")
        with server.client() as client:
            replies = client.pipeline([take, ("AUTH", DATA), take, ("RESET",), take])
            check.equal([isinstance(reply, RedisError) for reply in replies], [True, False, False, False, True],
                        f"in the order of the pipeline: {replies}")
        with server.client() as client:
            check.equal(client.call("QUIT"), "OK", "QUIT needs no token")
    with weir_server.Server() as server, server.client() as client:
        check(str(client.pipeline([("AUTH", "x")])[0]).startswith("ERR AUTH"), "AUTH where none is asked for")
        check(client.call("HELLO", 3, "AUTH", "default", "x")[b"proto"] == 3, "HELLO with AUTH all the same")


# ---- browsers ----

def test_hosts(check):
    """Names that a browser could be led to by others are not answered, but for questions as GET (auth_request)."""
    cases = {"localhost": 200, "LOCALHOST": 200, "localhost.": 200, "127.0.0.1": 200, "127.1.2.3": 200, "[::1]": 200,
             "weir.localhost": 200, "limits.example": 200, "LIMITS.example": 200, "evil.example": 421,
             "limits.example.evil.example": 421, "evillocalhost": 421, "localhost.evil.example": 421, "8.8.8.8": 421,
             "127.0.0.1.evil.example": 421, "[::2]": 421, "0.0.0.0": 421, "localhost:x": 421}
    with weir_server.Server("--host limits.example --host other.example") as server:
        with http_client.Client(server.port) as client:
            for host, status in cases.items():
                for port in ("", f":{server.port}", ":80") if ":x" not in host else ("",):
                    for data in (post("/v1/take", TAKE, {"host": host + port}), get("/v1/stats", {"host": host + port}),
                                 get("/", {"host": host + port}), get("/metrics", {"host": host + port})):
                        answer = client.ask(data)
                        check.equal(answer.status, status, f"{data[:20]!r} for {host}{port}")
                        if status == 421:
                            problem(check, answer, 421, "--host", f"for {host}{port}")
            for host in ("evil.example", "shop.example:443"):
                check.equal(client.get("/v1/take", {"host": host}, **TAKE).status, 200, f"a proxy asks for {host}")
            absolute = request("GET", "http://evil.example/v1/stats", {"host": "localhost"})
            check.equal(client.ask(absolute).status, 421, "an absolute target's host is what counts")


def test_origins(check):
    with weir_server.Server("--host limits.example") as server, http_client.Client(server.port) as client:
        cases = {f"http://localhost:{server.port}": 200, "http://localhost": 200, "https://limits.example": 200,
                 "http://127.0.0.1:9999": 200, "null": 403, "https://evil.example": 403, "http://localhost.evil.example": 403,
                 "file://localhost": 403, "": 403, "chrome-extension://abc": 403, "http://": 403,
                 "http://limits.example.evil.example": 403}
        for origin, status in cases.items():
            for data in (post("/v1/take", TAKE, {"origin": origin}), get("/v1/stats", {"origin": origin}),
                         post("/v1/reload", None, {"origin": origin})):
                answer = client.ask(data)
                check.equal(answer.status, status, f"{data[:20]!r} from {origin!r}")
                if status == 403:
                    problem(check, answer, 403, "pages", f"from {origin!r}")
                check("access-control-allow-origin" not in answer.fields, "no other site may read it")
        check.equal(client.ask(request("OPTIONS", "/v1/take", {"origin": "https://evil.example"})).status, 405,
                    "no preflight is granted")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(weir_server.run(TESTS, sys.argv[1:]))
