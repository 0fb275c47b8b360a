#!/usr/bin/env python3
"""Every RESP command: its replies in RESP2 and RESP3, its errors in words, inline commands, broken protocol."""
import socket
import sys

from lib import checks, http_client, weir_server

RedisError = weir_server.resp.RedisError
WINDOW = "fixed-window 10/h"
VERBS = ("weir.take", "weir.peek", "weir.takeall", "weir.settle", "weir.reset", "weir.acquire", "weir.renew",
         "weir.release", "cl.throttle", "weir.show", "weir.decide")


def at(server, protocol=2):
    """A client of a server whose time stands still."""
    client = server.client(protocol=protocol)
    client.call("WEIR.CLOCK", 1700000000000000)
    return client


def raw(server, data, seconds=weir_server.PATIENCE_SECONDS):
    """All that comes back for bytes, up to the server's end."""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        return one.makefile("rb").read()


# ---- replies ----

def test_replies(check):
    with weir_server.Server("--test-clock") as server:
        for protocol in (2, 3):
            with at(server, protocol) as client:
                key = f"k{protocol}"
                reply = client.call("WEIR.TAKE", key, WINDOW)
                check.equal(reply[:6], [1, 10, 9, 0, 2800000000, 0], f"RESP{protocol}: six integers")
                check(reply[6].startswith(b"w4-1700000000000000-1-") and len(reply) == 7, "and the receipt")
                check.equal(client.call("weir.take", key, WINDOW, "cost", 5)[2], 4, "in lower case")
                check.equal(client.call("WEIR.PEEK", key, WINDOW)[:3], [1, 10, 4], "PEEK")
                check.equal(client.call("WEIR.TAKE", key, WINDOW, "COST", 11)[:4], [0, 10, 4, -1], "never is -1")
                detail = client.call("WEIR.TAKE", key, WINDOW + ", token-bucket 1/s", "DETAIL", "COST", 1)
                check.equal((detail[2], detail[7], detail[8:]),
                            (0, 1, [[1, 10, 3, 0, 2800000000, 0], [1, 1, 0, 0, 1000000, 0]]), "DETAIL")
                several = client.call("WEIR.TAKEALL", 2, key, WINDOW, 1, key + "b", "fixed-window 1/h", 1, "DETAIL")
                check.equal((several[:3], several[7], len(several)), ([1, 1, 0], 1, 10), "TAKEALL")
                check.equal(client.call("WEIR.TAKEALL", 2, key, WINDOW, 1, key + "b", "fixed-window 1/h", 1)[0], 0,
                            "all or nothing")
                check.equal(client.call("WEIR.PEEK", key, WINDOW)[2], 2, "nothing charged")
                taken = client.call("WEIR.TAKE", key, WINDOW, "COST", 2)
                check.equal(client.call("WEIR.SETTLE", key, WINDOW, taken[6], 1), "OK", "SETTLE")
                check.equal(client.call("WEIR.PEEK", key, WINDOW)[2], 1, "one given back")
                check.equal((client.call("WEIR.RESET", key), client.call("WEIR.PEEK", key, WINDOW)[2]), (1, 10), "RESET")
                lease = client.call("WEIR.ACQUIRE", key, "concurrent 1 lease 10s")
                check(lease[0] == 1 and lease[7] > 0 and len(lease) == 8, f"ACQUIRE: {lease}")
                check.equal(client.call("WEIR.ACQUIRE", key, "concurrent 1 lease 10s")[7], 0, "no lease when denied")
                check.equal(client.call("WEIR.RENEW", key, "concurrent 1 lease 10s", lease[7]), 1, "RENEW")
                check.equal([client.call("WEIR.RELEASE", key, "concurrent 1 lease 10s", lease[7]) for _ in range(2)],
                            [1, 0], "RELEASE, and once more")
                check.equal(client.call("WEIR.TAKE", key + "w", "token-bucket 1/s", "WAIT", "any")[5], 0, "WAIT any")
                check.equal(client.call("WEIR.TAKE", key + "w", "token-bucket 1/s", "WAIT", 1000000)[5], 1000000, "WAIT")
                check.equal(client.call("WEIR.TAKE", key + "w", "token-bucket 1/s", "WAIT", 5)[:4], [0, 1, 0, 1999995],
                            "too short a wait")


def test_throttle(check):
    """redis-cell's reply: limited, the limit, what is left, seconds to retry (-1: none), seconds to be as new."""
    with weir_server.Server("--test-clock") as server, at(server) as client:
        replies = [client.call("CL.THROTTLE", "u", 2, 30, 60) for _ in range(4)]
        check.equal(replies, [[0, 3, 2, -1, 2], [0, 3, 1, -1, 4], [0, 3, 0, -1, 6], [1, 3, 0, 2, 6]], "one by one")
        check.equal(client.call("cl.throttle", "v", 15, 30, 60, 5), [0, 16, 11, -1, 10], "a quantity")
        check.equal(client.call("CL.THROTTLE", "v", 15, 30, 60, 0), [0, 16, 11, -1, 10], "of nothing")
        check.equal(client.call("CL.THROTTLE", "v", 15, 30, 60, 17), [1, 16, 11, -1, 10], "more than there ever is")
        check.equal(client.call("CL.THROTTLE", "w", 0, 1, 1), [0, 1, 0, -1, 1], "no burst")
        check.equal(client.call("WEIR.TAKE", "u", "token-bucket 30/m burst 3")[2], 0, "a token bucket like any other")
        for words, what in ((("k", -1, 30, 60), "max_burst"), (("k", 1, 0, 60), "count"), (("k", 1, 1, 0), "period"),
                            (("k", "x", 30, 60), "max_burst"), (("k", 1, 30, 60, -1), "quantity"),
                            (("k", 1, 30, 60, "1.5"), "quantity"), (("k", 1, 30, "1s"), "period"), (("", 1, 1, 1), "key"),
                            (("k", 1, 30), "wrong number"), (("k", 1, 30, 60, 1, 1), "wrong number")):
            reply = client.pipeline([("CL.THROTTLE", *words)])[0]
            check(isinstance(reply, RedisError) and what in str(reply), f"CL.THROTTLE {words}: {reply!r}")


def test_errors(check):
    take = ("WEIR.TAKE", "k", WINDOW)
    cases = [
        (("WEIR.TAKE",), "wrong number of arguments for 'weir.take'"), (("WEIR.TAKE", "k"), "wrong number"),
        (("WEIR.PEEK", "k"), "'weir.peek'"), (("WEIR.RESET",), "'weir.reset'"), (("WEIR.RESET", "k", "x"), "'weir.reset'"),
        (("WEIR.SETTLE", "k", WINDOW, "r"), "'weir.settle'"), (("WEIR.SETTLE", "k", WINDOW, "r", 1, 2), "'weir.settle'"),
        (("WEIR.RENEW", "k", "concurrent 1"), "'weir.renew'"), (("WEIR.RELEASE", "k", "concurrent 1"), "'weir.release'"),
        (("WEIR.TAKEALL", 1, "k", WINDOW), "'weir.takeall'"), (("WEIR.ACQUIRE", "k"), "'weir.acquire'"),
        (("WEIR.TAKE", "", WINDOW), "1 to 65536 bytes"), (("WEIR.TAKE", "k", "nonsense 1/s"), "nonsense"),
        (("WEIR.TAKE", "k", ""), "limit"), (("WEIR.TAKE", "k", "token-bucket 1/fortnight"), "limit"),
        ((*take, "COST"), "COST"), ((*take, "COST", "x"), 'not "x"'), ((*take, "COST", -1), 'not "-1"'),
        ((*take, "COST", 10 ** 12 + 1), "1000000000000"), ((*take, "COST", 1, "COST", 2), "each once"),
        ((*take, "WAIT", "soon"), 'not "soon"'), ((*take, "WAIT", "1s"), 'not "1s"'), ((*take, "WAIT"), "WAIT"),
        ((*take, "WAIT", 10 ** 18), "WAIT"), ((*take, "DETAIL", "DETAIL"), "each once"), ((*take, "FAST"), 'found "FAST"'),
        (("WEIR.TAKEALL", 0, "k", WINDOW, 1), "from 1 to 16"), (("WEIR.TAKEALL", 17, "k", WINDOW, 1), "from 1 to 16"),
        (("WEIR.TAKEALL", "x", "k", WINDOW, 1), "number of keys"), (("WEIR.TAKEALL", 2, "k", WINDOW, 1), "expected 2 times"),
        (("WEIR.TAKEALL", 1, "k", WINDOW, "x"), "a cost"), (("WEIR.TAKEALL", 1, "k", WINDOW, 1, "COST", 1), "COST"),
        (("WEIR.SETTLE", "k", WINDOW, "w2-1-1-AAAAAAAAAAA", 1), "invalid receipt"),
        (("WEIR.SETTLE", "k", WINDOW, "w1-1-1", 1), "invalid receipt"), (("WEIR.SETTLE", "k", WINDOW, "", 1), "invalid receipt"),
        (("WEIR.SETTLE", "k", WINDOW, "r", -1), "the actual cost"),
        (("WEIR.SETTLE", "k", "concurrent 1", "r", 1), "release the lease"),
        (("WEIR.TAKE", "k", "concurrent 1"), "acquire"), (("WEIR.TAKE", "k", "concurrent 1", "WAIT", "any"), "acquire"),
        (("WEIR.TAKE", "k", WINDOW + ", concurrent 1", "DETAIL"), "acquire"),
        (("WEIR.TAKEALL", 2, "k", WINDOW, 1, "j", "concurrent 1", 1), "acquire"),
        (("WEIR.ACQUIRE", "k", WINDOW), "none of the limits is concurrent"), (("WEIR.RENEW", "k", WINDOW, 1), "concurrent"),
        (("WEIR.RENEW", "k", "concurrent 1", 0), "lease id"), (("WEIR.RELEASE", "k", "concurrent 1", "x"), "lease id"),
        (("GET", "k"), "unknown command 'GET'"), (("SET", "k", "v"), "WEIR.TAKE"), (("MULTI",), "unknown command"),
        (("EVAL", "return 1", 0), "unknown command"), (("WEIR.NOTHING",), "unknown command"), (("",), "unknown command"),
        (("PING", 1, 2), "'ping'"), (("ECHO",), "'echo'"), (("SELECT", 1), "only 0"), (("SELECT",), "'select'"),
        (("HELLO", 4), "NOPROTO"), (("HELLO", "x"), "NOPROTO"), (("HELLO", 3, "AUTH"), "syntax"), (("CLIENT",), "'client'"),
        (("CLIENT", "FROB"), "FROB"), (("COMMAND", "FROB"), "COMMAND"), (("WEIR.CLOCK", "x"), "the time"),
        (("WEIR.CLOCK",), "'weir.clock'"), (("WEIR.CLOCK", 1 << 60), "the time"),
        (("evil\r\n+OK\r\n",), "unknown command"), (("WEIR.TAKE", "k", "evil\r\n:1\r\n"), "limit"),
        ((*take, "COST", "\r\n-ERR x"), "COST"),
    ]
    with weir_server.Server("--test-clock") as server:
        for protocol in (2, 3):
            with at(server, protocol) as client:
                replies = client.pipeline([words for words, _ in cases])
                for (words, wanted), reply in zip(cases, replies):
                    check(isinstance(reply, RedisError) and wanted in str(reply), f"{words!r:.60}: {reply!r}")
                    check(str(reply).split(" ")[0] in ("ERR", "NOPROTO"), f"{words!r:.60}: its kind, {reply!r}")
                check.equal(client.call("WEIR.PEEK", "k", WINDOW)[2], 10, "nothing of these charged anything")
                mixed = client.pipeline([take, ("WEIR.TAKE",), take, ("NONSENSE",), ("PING",), take])
                check.equal([type(reply).__name__ for reply in mixed],
                            ["list", "RedisError", "list", "RedisError", "str", "list"], "in their order")
                client.call("WEIR.RESET", "k")
    with weir_server.Server() as server, server.client() as client:
        check("--test-clock" in str(client.pipeline([("WEIR.CLOCK", 5)])[0]), "no test clock unless asked for")


# ---- what clients say besides ----

def test_greetings(check):
    with weir_server.Server() as server, server.client() as client:
        hello = client.call("HELLO")
        check.equal(hello[:2] + hello[4:6], [b"server", b"weir", b"proto", 2], "HELLO is a list in RESP2")
        hello = client.call("HELLO", 3, "SETNAME", "me")
        check.equal((hello[b"proto"], hello[b"mode"], hello[b"role"]), (3, b"standalone", b"master"), "and a map in RESP3")
        check.equal(client.call("HELLO", 2)[5], 2, "and back again")
        check.equal([client.call("PING"), client.call("PING", "x"), client.call("ECHO", "y")], ["PONG", b"x", b"y"], "PING")
        check.equal(client.call("SELECT", 0), "OK", "SELECT 0")
        for words in (("SETNAME", "a"), ("SETINFO", "LIB-NAME", "x"), ("SETINFO", "LIB-VER", "1"), ("NO-EVICT", "on")):
            check.equal(client.call("CLIENT", *words), "OK", f"CLIENT {words}")
        check.equal(client.call("CLIENT", "GETNAME"), None, "names are taken, not kept")
        number = client.call("CLIENT", "ID")
        with server.client() as other:
            check(other.call("CLIENT", "ID") != number, "connections have their own numbers")
        check(b"id=%d " % number in client.call("CLIENT", "INFO"), "CLIENT INFO")
        check(b"id=%d " % number in client.call("CLIENT", "LIST"), "CLIENT LIST")
        check(server.wait_for(lambda: b"connected_clients:1\r" in client.call("INFO")), "the other one is gone")
        info = client.call("INFO").decode()
        check("redis_version:" in info and "store:memory" in info, info)
        check("loading:0" in info or "loading" not in info, "INFO says nothing of loading")
        check.equal(client.call("INFO", "server")[:8], b"# Server", "INFO server")
        check.equal(client.call("RESET"), "RESET", "RESET")
        check.equal(client.call("QUIT"), "OK", "QUIT")
        check.equal(client.stream.read(), b"", "and it is closed")


def test_command(check):
    with weir_server.Server() as server, server.client() as client:
        told = {row[0].decode(): row for row in client.call("COMMAND")}
        check.equal(sorted(told), sorted(VERBS), "COMMAND")
        check.equal(told["weir.take"][1:], [-3, ["fast"], 1, 1, 1], "its arity, flags and keys")
        check.equal(client.call("COMMAND", "COUNT"), len(VERBS), "COMMAND COUNT")
        check.equal(sorted(name.decode() for name in client.call("COMMAND", "LIST")), sorted(VERBS), "COMMAND LIST")
        info = client.call("COMMAND", "INFO", "weir.peek", "nothing", "WEIR.RESET")
        check.equal([row and row[0] for row in info], [b"weir.peek", None, b"weir.reset"], "COMMAND INFO of some")
        check.equal(client.call("COMMAND", "DOCS"), [], "COMMAND DOCS")
        client.call("HELLO", 3)
        check.equal(client.call("COMMAND", "DOCS", "weir.take"), {}, "in RESP3")


# ---- inline and broken ----

def test_inline(check):
    cases = [
        (b"PING\r\n", b"+PONG\r\n"), (b"ping\n", b"+PONG\r\n"), (b"\r\nPING\r\n", b"+PONG\r\n"),
        (b"ECHO   hello  \r\n", b"$5\r\nhello\r\n"), (b'ECHO "a b\\x41\\n"\r\n', b"$5\r\na bA\n\r\n"),
        (b"ECHO 'it''s'\r\n", None), (b"ECHO 'a b'\r\n", b"$3\r\na b\r\n"), (b'ECHO ""\r\n', b"$0\r\n\r\n"),
        (b"PING\r\nPING\r\n\r\n\r\nPING\r\n", b"+PONG\r\n" * 3), (b"PING hi\r\n", b"$2\r\nhi\r\n"),
        (b"ECHO /path\r\n", None), (b"ECHO http\r\n", b"$4\r\nhttp\r\n"), (b"QUIT\r\nPING\r\n", b"+OK\r\n"),
    ]
    with weir_server.Server() as server:
        for data, wanted in cases:
            got = raw(server, data)
            check(got == wanted if wanted else got, f"{data!r}: {got!r}")
        reply = raw(server, b"weir.take inline 'fixed-window 3/366d'\r\nWEIR.PEEK inline \"fixed-window 3/366d\" DETAIL\r\n")
        check(reply.startswith(b"*7\r\n:1\r\n:3\r\n:2\r\n") and b"*9\r\n:1\r\n:3\r\n:2\r\n" in reply, f"inline: {reply}")
        check(raw(server, b"ECHO \"open\r\n").startswith(b"-ERR Protocol error"), "an open quote")
        check(raw(server, b"ECHO " + b"x" * 20000 + b"\r\n").startswith(b"-ERR Protocol error"), "a line too long")


def test_broken_protocol(check):
    broken = [b"*x\r\n", b"*-2\r\n", b"*1\r\n+PING\r\n", b"*1\r\n:1\r\n", b"*1\r\n$x\r\n", b"*1\r\n$-1\r\n", b"*1\r\n$4\r\nPINGxx",
              b"*1\r\n$99999999\r\n", b"*99999999\r\n", b"*129\r\n", b"*1\r\n*1\r\n$4\r\nPING\r\n",
              b"*1\r\n$65537\r\n", b"*2\r\n$4\r\nPING\r\n$99999999999999999999\r\n"]
    with weir_server.Server() as server:
        for data in broken:
            got = raw(server, b"*1\r\n$4\r\nPING\r\n" + data)
            check(got.startswith(b"+PONG\r\n-ERR Protocol error: ") and got.count(b"\r\n") == 2, f"{data!r}: {got!r}")
        check.equal(raw(server, b"*0\r\n*1\r\n$4\r\nPING\r\n"), b"+PONG\r\n", "an empty command is passed over")
        with server.client() as client:
            big = [b"k%02d" % i + b"x" * 65533 for i in range(16)]
            words = [word for key in big for word in (key, "fixed-window 9/366d", 1)]
            for left in (8, 7):
                check.equal(client.call("WEIR.TAKEALL", 16, *words)[2], left, "16 keys of 64 KiB")
            commands = [("WEIR.TAKE", key, "fixed-window 9/366d") for key in big]
            check.equal([reply[2] for reply in client.pipeline(commands)], [6] * 16, "and each by itself")
            deep = [("WEIR.TAKEALL", 16, *words, "WAIT", "any", "DETAIL")] * 5
            check.equal([reply[2] for reply in client.pipeline(deep, 5)], [5, 4, 3, 2, 1], "a pipeline of 5 MiB")


def test_cut_anywhere(check):
    encode = weir_server.resp.encode
    whole = (encode(("WEIR.TAKE", "cut", "fixed-window 100/366d")) + b"weir.take cut 'fixed-window 100/366d'\r\n"
             + encode(("WEIR.TAKE", "cut", "fixed-window 100/366d", "DETAIL")))
    with weir_server.Server("--threads 1") as server, server.client() as control:
        for size in (1, 2, 3, 5, 17, 40):
            control.call("WEIR.RESET", "cut")
            with server.client() as client:
                for start in range(0, len(whole), size):
                    client.socket.sendall(whole[start:start + size])
                check.equal([client.read()[2] for _ in range(3)], [99, 98, 97], f"pieces of {size}")


def test_one_state(check):
    """RESP and HTTP speak of the same states."""
    with weir_server.Server() as server, server.client() as resp, http_client.Client(server.port) as http:
        left = []
        for i in range(6):
            if i % 2:
                left.append(resp.call("WEIR.TAKE", "both", "fixed-window 100/366d")[2])
            else:
                left.append(http.get("/v1/take", key="both", limit="fixed-window 100/366d").json["remaining"])
        check.equal(left, [99, 98, 97, 96, 95, 94], "in turn")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
