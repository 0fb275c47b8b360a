#!/usr/bin/env python3
"""Who may what: tokens over HTTP and RESP, and which hosts and origins are answered."""
import base64
import socket
import sys
import time

from lib import checks, http_client, weir_server
from lib.http_client import get, post, request
from http_wire import problem

DATA, ADMIN = "data-token_1234567890", "admin-token_0987654321"
TAKE = {"key": "k", "limit": "fixed-window 1000/366d"}
OPEN = ("/healthz", "/readyz", "/healthcheck", "/")
ADMINISTERED = (get("/v1/stats"), get("/v1/history"), get("/v1/top"), get("/v1/policies"), post("/v1/reload"), post("/v1/reset", {"key": "k"}))
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
               for data in (get("/v1/take", **TAKE), post("/v1/take", TAKE))]
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


# ---- which protocol it is ----

def first_answer(server, data, cuts=()):
    """What comes back to these bytes, sent in these portions, until the server closes or is silent behind an answer."""
    with socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS) as sock:
        start = 0
        for end in (*cuts, len(data)):
            sock.sendall(data[start:end])
            start = end
            if end < len(data):
                time.sleep(0.01)  # so that it is a portion of its own
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while chunk := sock.recv(65536):
            got += chunk
        return got


def test_http_is_never_resp(check):
    """Requests that a page can make a browser send: whatever the method and however long the line is, nothing in
    them runs as a command."""
    limit = "fixed-window 5/366d"
    smuggled = f"WEIR.TAKE smuggled '{limit}'\r\n".encode() * 2
    heads = [b"PATCH /" + b"a" * 100 + b" HTTP/1.1\r\n", b"FROBNICATE /" + b"a" * 5000 + b" HTTP/1.1\r\n",
             b"frob /" + b"b" * 90 + b" HTTP/1.1\r\n", b"PING /" + b"c" * 70 + b" HTTP/1.1\r\n", b"ping / HTTP/1.1\r\n",
             b"POST " + b"d" * 80 + b"\r\n", b"POST\r\n", b"Host: " + b"e" * 70 + b"\r\n", b"host: x\r\n",
             b"\nBREW / HTTP/1.1\n", b"\r\nBREW /" + b"f" * 70 + b" HTTP/1.1\r\n", b"Content-Type: x\r\n", b"$5 / HTTP/1.1\r\n",
             b"*1 / HTTP/1.1\r\n", b"M-SEARCH * HTTP/1.1\r\n", b"a" * 70 + b"\r\n", b"PUT\t/ HTTP/1.1\r\n",
             b"weir.take /" + b"g" * 80 + b" HTTP/1.1\r\n", b"echo " + b"h" * 17000, b"HELLO / HTTP/1.1\r\n"]
    with weir_server.Server("--threads 1") as server, server.client() as client:
        for head in heads:
            for cuts in ((), (1,), (3, 40), (66,)):
                cuts = tuple(cut for cut in cuts if cut < len(head))
                data = head + smuggled + b"Host: x\r\nContent-Length: 0\r\n\r\n" + smuggled
                got = first_answer(server, data, cuts)
                check(b"*7\r\n" not in got, f"{head[:40]!r} cut at {cuts}: {got[:100]!r}")
        check.equal(client.call("WEIR.PEEK", "smuggled", limit)[2], 5, "none of them was charged")
        for data in (b"PING\r\nPOST / HTTP/1.1\r\n" + smuggled, b"PING\r\nHost: x\r\n" + smuggled,
                     b"*1\r\n$4\r\nPING\r\npost / x\r\n" + smuggled):
            got = first_answer(server, data)
            check(got.startswith(b"+PONG\r\n-ERR Protocol error") and b"*7" not in got, f"later on: {data[:40]!r}, {got!r}")
        for word in (b"WEIR.SHOW k", b"weir.show k", b"WEIR.RESET k", b"COMMAND COUNT", b"ECHO x", b"INFO", b"Quit"):
            got = first_answer(server, word + b"\r\n")
            check(not got.startswith(b"HTTP"), f"{word}: {got[:60]}")
        for data in (b"weir.take k '%b'\r\n" % limit.encode(), b"\r\n\nWEIR.TAKE k '%b'\n" % limit.encode()):
            for cuts in ((), (1,), (4,), (20,)):
                check(first_answer(server, data, cuts).startswith(b"*7\r\n"), f"and a command still is one: {data!r}")


def test_reset_needs_the_admin_token(check):
    """It gives back all that a key has used, as a refund does."""
    with weir_server.Server("--token-file data --admin-token-file admin", files=files(data=DATA, admin=ADMIN)) as server, server.client() as client:
        client.call("AUTH", DATA)
        client.call("WEIR.TAKE", "k", "fixed-window 1/366d")
        replies = client.pipeline([("WEIR.PEEK", "k", "fixed-window 1/366d"), ("WEIR.RESET", "k"), ("weir.reset", "k", "x"), ("WEIR.PEEK", "k", "fixed-window 1/366d")])
        check.equal((replies[0][0], replies[3][0]), (0, 0), "it is not reset")
        check.equal([str(it) for it in replies[1:3]], ["NOPERM 'weir.reset' needs the admin token"] * 2, "with the token for data")
        client.call("AUTH", ADMIN)
        check.equal(client.call("WEIR.RESET", "k"), 1, "with the admin token")
        check.contains(client.call("COMMAND", "INFO", "weir.reset")[0][0], b"weir.reset", "it is listed")
    with weir_server.Server("--admin-token-file admin", files=files(admin=ADMIN)) as server, server.client() as client:
        check(str(client.pipeline([("WEIR.RESET", "k")])[0]).startswith("NOPERM"), "without any")


def test_clock_needs_the_admin_token(check):
    tokens = files(data=DATA, admin=ADMIN)
    with weir_server.Server("--test-clock --token-file data --admin-token-file admin", files=tokens) as server:
        with server.client() as client:
            client.call("AUTH", DATA)
            reply = client.pipeline([("WEIR.CLOCK", 5)])[0]
            check(str(reply).startswith("NOPERM"), f"WEIR.CLOCK with the token for data: {reply!r}")
            client.call("AUTH", ADMIN)
            check.equal(client.call("WEIR.CLOCK", 5), "OK", "with the admin token")
    with weir_server.Server("--test-clock --admin-token-file admin", files=tokens) as server, server.client() as client:
        check(str(client.pipeline([("WEIR.CLOCK", 5)])[0]).startswith("NOPERM"), "without any")
    with weir_server.Server("--test-clock --public-without-token") as server, server.client() as client:
        check(str(client.pipeline([("WEIR.CLOCK", 5)])[0]).startswith("NOPERM"), "in public")
    with weir_server.Server("--test-clock") as server, server.client() as client:
        check.equal(client.call("WEIR.CLOCK", 5), "OK", "where no token is set")


# ---- guessing ----

def test_wrong_tokens(check):
    """A connection has so many, an address more are slow; the right token is never slow, nor is anybody else."""
    begun = time.monotonic()
    with weir_server.Server("--threads 1 --token-file data", files=files(data=DATA)) as server:
        with server.client() as client:
            replies = []
            try:
                for i in range(40):
                    replies += client.pipeline([("AUTH", f"wrong {i}")])
            except (OSError, EOFError, RedisError):
                pass
            check(len(replies) == 16 and all(str(reply).startswith("WRONGPASS") for reply in replies),
                  f"one connection: {len(replies)} answers")
        guessers = [server.client() for _ in range(12)]
        start = time.monotonic()
        for guesser in guessers:
            guesser.socket.sendall(weir_server.resp.encode(("AUTH", "wrong")) * 3)
        with server.client() as client, http_client.Client(server.port) as web:
            check.equal(client.call("AUTH", DATA), "OK", "the right token meanwhile, from the same address")
            check.equal(web.get("/v1/take", bearer(DATA), **TAKE).status, 200, "over HTTP, too")
            check.equal(web.get("/healthz").status, 200, "and who needs none")
            quick = time.monotonic() - start
        last = reply_of(guessers[-1])
        slow = time.monotonic() - start
        check(str(last).startswith("WRONGPASS"), f"a slow answer: {last!r}")
        check(slow >= 0.9, f"wrong ones wait: {slow:.2f} s")
        check(quick < slow, f"the right one does not: {quick:.2f} s of {slow:.2f} s")
        with http_client.Client(server.port) as web:
            start = time.monotonic()
            check.equal(web.get("/v1/take", bearer("wrong"), **TAKE).status, 401, "over HTTP")
            check(time.monotonic() - start >= 0.9, "it waits as well")
        check(server.wait_for(lambda: any("wrong token" in line and "127.0.0.1" in line for line in server.errors)),
              f"it is said: {server.errors}")
        most = 5 + (time.monotonic() - begun) // 10  # one in ten seconds
        check(len(server.errors) <= most, f"but not each time: {len(server.errors)} lines")
        for guesser in guessers:
            guesser.close()


def reply_of(client):
    try:
        return client.read()
    except RedisError as error:
        return error


# ---- twice ----

def test_given_twice(check):
    """Two readers could go by different ones, so neither counts."""
    pairs = ("key=a&key=b", "key=a&limit=x&limit=y", "cost=1&cost=1", "hold=true&h%6fld=false", "wait=1&wait=2",
             "policy=a&policy=b", "attr.user=a&attr.user=b", "detail=1&detail=0", "headers=off&headers=ietf",
             "deny_status=429&deny_status=403", "key_from=ip&key_from=ip")
    with weir_server.Server("--token-file data", files=files(data=DATA)) as server, http_client.Client(server.port) as client:
        for query in pairs:
            for path in ("/v1/take", "/v1/peek"):
                answer = client.ask(with_fields(get(f"{path}?{query}"), bearer(DATA)))
                problem(check, answer, 400, "twice", f"{path}?{query}")
        for query in ("k=1&k=2", "policy=a&policy=b"):
            check.equal(client.ask(with_fields(get(f"/v1/top?{query}"), bearer(DATA))).status, 400, f"/v1/top?{query}")
        for body in (b'{"key":"a","key":"b","limit":"fixed-window 1/s"}', b'{"key":"a","k\\u0065y":"b","limit":"fixed-window 1/s"}',
                     b'{"key":"a","key_base64":"Yg==","limit":"fixed-window 1/s"}',
                     b'{"attributes":{"user":"a","user":"b"}}'):
            data = request("POST", "/v1/take", {"content-type": "application/json", **bearer(DATA)}, body)
            check.equal(client.ask(data).status, 400, f"{body!r}")
        body = b'{"requests":[{"key":"a","key_base64":"Yg==","limit":"fixed-window 1/s"}]}'
        data = request("POST", "/v1/takeall", {"content-type": "application/json", **bearer(DATA)}, body)
        check.equal(client.ask(data).status, 400, f"{body!r}")
        data = with_fields(with_fields(get("/v1/take", **TAKE), bearer(DATA)), bearer(DATA))
        check.equal(client.ask(data).status, 401, "Authorization twice opens nothing")
        with server.client() as redis:
            reply = redis.pipeline([("HELLO", 3, "AUTH", "u", DATA, "AUTH", "u", DATA)])[0]
            check("syntax" in str(reply), f"HELLO with AUTH twice: {reply!r}")
            redis.call("AUTH", DATA)
            reply = redis.pipeline([("WEIR.TAKE", "k", "fixed-window 1/s", "COST", 1, "COST", 2)])[0]
            check("each once" in str(reply), f"COST twice: {reply!r}")
    code, said = weir_server.refused("--store memory:64m?large=10%&large=20% --listen 127.0.0.1:0")
    check(code == 2 and "twice" in said, f"an option of the store: {code} {said}")


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
                check.equal(client.get("/v1/show", {"host": host}, key="k").status, 421, f"but does not look at states: {host}")
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
    sys.exit(checks.run(TESTS, sys.argv[1:]))
