#!/usr/bin/env python3
"""Real Redis clients talk to the server: redis-cli at a prompt and otherwise, redis-benchmark, redis-py, and from
resp_clients.js node-redis and ioredis, from resp_clients.go redigo; each with and without a token.
"""
import asyncio
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time

from lib import checks, weir_server

sys.path.append("/usr/lib/python3/dist-packages")  # where Debian's python3-redis is, whichever python3 this is

HERE = pathlib.Path(__file__).resolve().parent
GO = "/usr/share/gocode"
TOKEN = "a-token-of-some-length"
PATIENCE = weir_server.PATIENCE_SECONDS
BUILD_SECONDS = 600  # go builds what it needs first
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def servers():
    """A server without and one with a token, as (server, token)."""
    for token in ("", TOKEN):
        env = {"WEIR_TOKEN": token} if token else None
        with weir_server.Server(env=env) as server:
            yield server, token


def need(program, package):
    if not shutil.which(program):
        raise RuntimeError(f"{program} is missing; on Debian and Ubuntu: apt-get install {package}")
    return program


# ---- redis-cli ----

def cli(server, token, *words, stdin=None):
    command = [need("redis-cli", "redis-tools"), "-p", str(server.port), *words]
    env = dict(os.environ, REDISCLI_AUTH=token) if token else os.environ
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, env=env)
    return done.stdout.decode() + done.stderr.decode()


def test_redis_cli(check):
    for server, token in servers():
        check.equal(cli(server, token, "PING"), "PONG\n", "PING")
        check.equal(cli(server, token, "-n", "0", "WEIR.TAKE", "c", "fixed-window 5/366d").split("\n")[:3], ["1", "5", "4"],
                    "WEIR.TAKE")
        check.equal(cli(server, token, "-3", "WEIR.PEEK", "c", "fixed-window 5/366d").split("\n")[:3], ["1", "5", "4"], "RESP3")
        check(cli(server, token, "--csv", "CL.THROTTLE", "c2", "2", "30", "60") == "0,3,2,-1,2\n", "--csv")
        check("wrong number of arguments" in cli(server, token, "WEIR.TAKE"), "an error")
        check("ERR" in cli(server, token, "-e", "GET", "k"), "no data commands")
        lines = "WEIR.TAKE s 'fixed-window 9/366d'\nPING\nNONSENSE\nWEIR.TAKE s \"fixed-window 9/366d\"\n"
        said = cli(server, token, stdin=lines.encode())
        check(said.count("\n9\n") == 2 and "PONG" in said and "unknown command" in said, f"from standard input: {said!r}")
        many = b"".join(weir_server.resp.encode(("WEIR.TAKE", "pipe", "fixed-window 9999/366d")) for _ in range(1000))
        said = cli(server, token, "--pipe", stdin=many)
        check("errors: 0, replies: 1000" in said, f"--pipe: {said!r}")
        check.equal(cli(server, token, "WEIR.PEEK", "pipe", "fixed-window 9999/366d").split("\n")[2], "8999", "all of them")
        check("id=" in cli(server, token, "CLIENT", "LIST"), "CLIENT LIST")
        check("redis_version" in cli(server, token, "INFO"), "INFO")
        if token:
            check("NOAUTH" in cli(server, "", "WEIR.PEEK", "c", "fixed-window 5/366d"), "without the token")
            check("WRONGPASS" in cli(server, "wrong", "WEIR.PEEK", "c", "fixed-window 5/366d"), "with a wrong one")
            check("PONG" in cli(server, "", "--no-auth-warning", "-a", token, "PING"), "-a")
            check("PONG" in cli(server, "", "--no-auth-warning", "--user", "default", "--pass", token, "PING"), "--user")


class Prompt:
    """redis-cli on a terminal, where it asks for COMMAND DOCS and hints at arguments."""

    def __init__(self, server, token):
        env = dict(os.environ, TERM="xterm", HOME=str(server.folder))
        if token:
            env["REDISCLI_AUTH"] = token
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))  # or it asks the terminal
            os.execvpe("redis-cli", ["redis-cli", "-p", str(server.port)], env)

    def read(self, until="", seconds=PATIENCE):
        """What is said up to the prompt behind `until`."""
        said, end = "", time.monotonic() + seconds
        while not (until in said and said.endswith("> ")) and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    said += os.read(self.terminal, 65536).decode(errors="replace")
                except OSError:
                    break
        return said

    def type(self, line, until):
        os.write(self.terminal, line.encode() + b"\r")
        return self.read(until)

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def test_redis_cli_prompt(check):
    need("redis-cli", "redis-tools")
    for server, token in servers():
        prompt = Prompt(server, token)
        said = prompt.read()
        check(f"127.0.0.1:{server.port}>" in said and "ERR" not in said, f"the prompt: {said!r}")
        said = prompt.type("WEIR.TAKE p 'fixed-window 5/366d'", "7) ")
        check(re.search(r"1\) \(integer\) 1\r\n2\) \(integer\) 5\r\n3\) \(integer\) 4", said), f"a take: {said!r}")
        said = prompt.type("nonsense", "CL.THROTTLE")
        check("(error) ERR unknown command" in said, f"an error: {said!r}")
        said = prompt.type("help weir.take", "\r\n")
        check("Traceback" not in said and "rror" not in said, f"help: {said!r}")
        said = prompt.type("hello 3", "proto")
        check("proto" in said, f"HELLO 3: {said!r}")
        said = prompt.type("weir.take p 'fixed-window 5/366d'", "7) ")
        check("(integer) 3" in said, f"in RESP3: {said!r}")
        os.write(prompt.terminal, b"quit\r")
        prompt.close()
        check(server.process.poll() is None, "it lives on")


def test_redis_benchmark(check):
    program = need("redis-benchmark", "redis-tools")
    for server, token in servers():
        command = [program, "-p", str(server.port), "-n", "20000", "-c", "20", "-P", "16", "-q", "-r", "100",
                   *(["-a", token] if token else []), "WEIR.TAKE", "b:__rand_int__", "fixed-window 1000000/366d"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
        check(done.returncode == 0 and "requests per second" in done.stdout, f"{done.stdout[-300:]} {done.stderr[-300:]}")
        with server.client() as client:
            if token:
                client.call("AUTH", token)
            spent = sum(1000000 - client.call("WEIR.PEEK", f"b:{i:012d}", "fixed-window 1000000/366d")[2] for i in range(100))
            check.equal(spent, 20000, "every request was charged once")


# ---- redis-py ----

def test_redis_py(check):
    import redis
    for server, token in servers():
        client = redis.Redis(port=server.port, db=0, password=token or None, client_name="tests")
        check.equal(client.ping(), True, "ping")
        one = client.execute_command("WEIR.TAKE", "py", "fixed-window 5/366d")
        check.equal(one[:4], [1, 5, 4, 0], "take")
        check.equal(client.execute_command("WEIR.SETTLE", "py", "fixed-window 5/366d", one[6], 0), b"OK", "settle")
        check.equal(client.execute_command("CL.THROTTLE", "py-cell", 2, 30, 60), [0, 3, 2, -1, 2], "CL.THROTTLE")
        pipeline = client.pipeline(transaction=False)
        for _ in range(1000):
            pipeline.execute_command("WEIR.TAKE", "py-many", "fixed-window 1000/366d")
        check.equal([reply[2] for reply in pipeline.execute()], list(range(999, -1, -1)), "a pipeline of 1000")
        pipeline = client.pipeline(transaction=False)
        for words in (("PING",), ("NONSENSE",), ("WEIR.PEEK", "py", "fixed-window 5/366d")):
            pipeline.execute_command(*words)
        replies = pipeline.execute(raise_on_error=False)
        check.equal([isinstance(reply, Exception) for reply in replies], [False, True, False], "errors in their place")
        for words, wanted in ((("WEIR.TAKE",), "wrong number"), (("GET", "k"), "unknown command"),
                              (("WEIR.TAKE", "k", "x"), "limit")):
            try:
                check(False, f"{words}: {client.execute_command(*words)}")
            except redis.ResponseError as error:
                check(wanted in str(error), f"{words}: {error}")
        check(client.client_id() > 0, "client_id")
        check("redis_version" in client.info(), "info")
        check.equal(client.echo("x"), b"x", "echo")
        pooled(check, redis, server, token)
        checked = redis.Redis(port=server.port, password=token or None, health_check_interval=1, decode_responses=True)
        check(checked.execute_command("WEIR.TAKE", "py-t", "fixed-window 5/366d")[6].startswith("w4-"), "as text")
        if token:
            for wrong, words in ((None, "Authentication required"), ("wrong", "invalid token")):
                try:
                    redis.Redis(port=server.port, password=wrong).ping()
                    check(False, f"token {wrong}: answered")
                except redis.RedisError as error:
                    check(words in str(error), f"token {wrong}: {error!r}")
            url = redis.from_url(f"redis://user:{token}@127.0.0.1:{server.port}/0")
            check.equal(url.ping(), True, "by URL, with a user's name")
            url.connection_pool.disconnect()
        asyncio.run(asynchronous(check, server, token))
        for it in (client, checked):
            it.connection_pool.disconnect()


def pooled(check, redis, server, token):
    """Threads that share a pool of connections."""
    pool = redis.BlockingConnectionPool(max_connections=4, port=server.port, password=token or None)
    client, wrong = redis.Redis(connection_pool=pool), []

    def work():
        try:
            for _ in range(50):
                client.execute_command("WEIR.TAKE", "py-pool", "fixed-window 10000/366d")
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check.equal(wrong, [], "a pool of connections")
    left = client.execute_command("WEIR.PEEK", "py-pool", "fixed-window 10000/366d")[2]
    check.equal(10000 - left, 500, "each was charged once")
    pool.disconnect()


async def asynchronous(check, server, token):
    import redis.asyncio
    client = redis.asyncio.Redis(port=server.port, password=token or None)
    replies = await asyncio.gather(*(client.execute_command("WEIR.TAKE", "py-async", "fixed-window 100/366d")
                                     for _ in range(100)))
    check.equal(sorted(reply[2] for reply in replies), list(range(100)), "a hundred at once, asynchronously")
    await client.close(close_connection_pool=True)


# ---- other languages ----

def counted(check, name, command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, env=dict(os.environ, **(env or {})))
    counts = COUNTS.search(done.stdout)
    if not check(counts is not None, f"{name} ran to its end: {done.stdout[-500:]}{done.stderr[-1500:]}"):
        return
    check.passed += int(counts[1])
    check.failed += int(counts[2])
    if int(counts[2]):
        print(done.stdout[-3000:])
    check(int(counts[1]) > 20, f"{name}: {counts[0]}")


def test_node(check):
    need("node", "nodejs")
    if not os.path.isdir("/usr/share/nodejs/redis"):
        raise RuntimeError("node-redis is missing; on Debian and Ubuntu: apt-get install node-redis")
    modules = subprocess.run([str(HERE / "npm_clients.sh")], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    for server, token in servers():
        counted(check, "node", ["node", str(HERE / "resp_clients.js"), str(server.port), token, modules],
                {"NODE_PATH": "/usr/share/nodejs"})


def test_go(check):
    program = need("go", "golang-go")
    if not os.path.isdir(f"{GO}/src/github.com/gomodule/redigo"):
        raise RuntimeError("redigo is missing; on Debian and Ubuntu: apt-get install golang-github-gomodule-redigo-dev")
    for server, token in servers():
        counted(check, "go", [program, "run", str(HERE / "resp_clients.go"), str(server.port), token],
                {"GO111MODULE": "off", "GOPATH": GO, "GOFLAGS": "", "GOCACHE": os.environ.get(
                    "GOCACHE", os.path.expanduser("~/.cache/go-build"))})


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
