#!/usr/bin/env python3
"""How a server stops: what is under way is answered, what is held, too; nobody new is let in; twice is at once. And
what it tells systemd about it.

    tests/homes/server/operation_stop.py [NAME …]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from lib import abuse_tools, checks, http_client, operation_tools, redis_server, resp, weir_server

LIMIT = "fixed-window 1000000/d from-first"


def hold(server, client, delay):
    """Has a take held for `delay` seconds from its key's first one; that one's time, or earlier."""
    limit = f"leaky-bucket 1/{delay}s burst 100"
    start = time.monotonic()
    client.post("/v1/take", {"key": "h", "limit": limit})
    client.send(http_client.post("/v1/take", {"key": "h", "limit": limit, "hold": True}))
    if not server.wait_for_charges("h", limit, 2):
        raise weir_server.WrongEnd("nothing is held")
    return start


# ---- what is under way ----

def test_idle_connections_are_closed(check):
    with weir_server.Server("--threads 2 --drain-timeout 1h") as server:
        clients = [resp.Client(server.port), http_client.Client(server.port)]
        clients[0].call("PING")
        clients[1].get("/healthz")
        silent = abuse_tools.connect(server.port)
        server.stop()
        for it in (clients[0].socket, clients[1].socket, silent):
            check.equal(it.recv(100), b"", "an idle connection ends in good order")
            it.close()


def test_held_answers_arrive(check):
    checks.in_time(lambda scale: held_answer_arrives(check, 4 * scale))


def held_answer_arrives(check, delay):
    """False: it was due before the server drained."""
    with weir_server.Server("--threads 2 --max-delay 1h --drain-timeout 1h") as server, http_client.Client(server.port) as client:
        start = hold(server, client, delay)
        check(server.drain(), "nobody new is let in meanwhile")
        if time.monotonic() - start >= delay:
            return False
        answer = client.read()
        waited = time.monotonic() - start
        check(answer.status == 200 and answer.json["delay"] == 0, f"a held answer arrives: {answer}")
        check(waited >= delay, f"when it is due: after {waited:.1f} s")
        check.equal(answer.fields.get("connection"), "close", "and says that it is the last")
        check(client.at_end(), "which it is")
        server.stop()
    return True


def test_held_answers_do_not_hold_the_server(check):
    """Longer than --drain-timeout: answered then, with what is left of the delay."""
    options = "--threads 2 --max-delay 2h --drain-timeout 1s"
    with weir_server.Server(options) as server, http_client.Client(server.port) as client:
        hold(server, client, 3600)
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        answer = client.read()
        waited = time.monotonic() - start
        check(waited >= 0.99, f"answered when the time is over: after {waited:.1f} s")
        check(answer.status == 200 and 3000000000 <= answer.json["delay"] < 3600000000, f"with the rest of it: {answer}")
        server.stop()


def test_twice_is_at_once(check):
    options = "--threads 2 --max-delay 2h --drain-timeout 1h"
    with weir_server.Server(options) as server, http_client.Client(server.port) as client:
        hold(server, client, 3600)
        server.drain()
        time.sleep(1)
        check(server.process.poll() is None, "once: it waits")
        server.signal(signal.SIGTERM)
        check.equal(client.read().status, 200, "twice: the held answer goes")
        server.stop()


def begun(server):
    """Connections that have spoken, over HTTP and over RESP."""
    values = abuse_tools.metrics(server)
    return tuple(abuse_tools.total(values, "weir_open_connections", protocol=it) for it in ("http", "resp"))


def test_requests_under_way_are_finished(check):
    """Half a request is there when the signal comes; the other half follows."""
    body = json.dumps({"key": "k", "limit": LIMIT}).encode()
    whole = http_client.request("POST", "/v1/take", {"content-type": "application/json"}, body)
    command = resp.encode(("WEIR.TAKE", "k", LIMIT))
    for number in (signal.SIGTERM, signal.SIGINT):
        with weir_server.Server("--threads 2 --request-timeout 1h --drain-timeout 1h") as server:
            web, redis = http_client.Client(server.port), resp.Client(server.port)
            web.send(whole[:-10])
            redis.socket.sendall(command[:-10])
            check(server.wait_for(lambda: begun(server) == (2, 1)), "both have begun, beside who looks")
            server.signal(number)
            check(server.wait_for(server.is_closed), "it drains")
            time.sleep(1.0)  # longer than an idle connection would be kept
            web.send(whole[-10:])
            redis.socket.sendall(command[-10:])
            answer = web.read()
            check(answer.status == 200 and answer.fields.get("connection") == "close", f"half a request: {answer}")
            check.equal(redis.read()[0], 1, "half a command")
            check(web.at_end() and redis.stream.read() == b"", "then the connections end")
            check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, f"exit code after {number.name}")
            web.close()
            redis.close()


def test_pipelines_are_exact(check):
    """Of a pipeline as much is answered as was charged."""
    with weir_server.Server("--threads 2 --store file:zone?size=1m") as server:
        web, redis = http_client.Client(server.port), resp.Client(server.port)
        server.signal(signal.SIGSTOP)
        web.send(http_client.get("/v1/take", key="w", limit=LIMIT) * 500)
        redis.socket.sendall(resp.encode(("WEIR.TAKE", "r", LIMIT)) * 500)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGCONT)
        told = abuse_tools.read_all(web.socket).count(b"HTTP/1.1 200"), abuse_tools.read_all(redis.socket).count(b"*7\r\n")
        check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "exit code")
        server.start()
        with server.client() as client:
            charged = tuple(1000000 - client.call("WEIR.PEEK", key, LIMIT)[2] for key in "wr")
        check.equal(charged, told, "a pipeline that a stop cut short: charged, and told")


def test_who_waits_at_the_door_is_let_in(check):
    """Connections that were made and asked, but not accepted yet, when the signal came."""
    with weir_server.Server("--threads 2") as server:
        server.signal(signal.SIGSTOP)
        waiting = [abuse_tools.connect(server.port) for _ in range(300)]
        for it in waiting:
            it.sendall(b"PING\r\n")
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGCONT)
        answered = 0
        for it in waiting:
            try:
                answered += abuse_tools.read_all(it) == b"+PONG\r\n"
            except TimeoutError:
                pass
            it.close()
        check.equal(answered, len(waiting), "those who waited are answered")
        check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "exit code")


def test_readiness(check):
    """Who asks on a connection that is kept, since the question has begun, hears that the end has come."""
    ready = http_client.get("/readyz")
    options = "--threads 1 --request-timeout 1h --drain-timeout 1h"
    with weir_server.Server(options) as server, http_client.Client(server.port) as client:
        check.equal(client.ask(ready).status, 200, "ready")
        client.send(ready[:-4])
        check(server.drain(), "it drains")
        answer = client.ask(ready[-4:])
        check.equal((answer.status, answer.fields.get("connection")), (503, "close"), "not ready while it drains")


def test_remote_store(check):
    """Answers that wait for Redis are under way, too."""
    with redis_server.Server() as redis, redis.client() as control:
        url = f"redis://127.0.0.1:{redis.port}?deadline=1m"
        with weir_server.Server(["--threads", "2", "--drain-timeout", "1h", "--store", url]) as server, server.client() as client:
            check.equal(client.call("WEIR.TAKE", "k", LIMIT)[0], 1, "Redis decides")
            control.call("CLIENT", "PAUSE", "800")
            client.socket.sendall(resp.encode(("WEIR.TAKE", "k", LIMIT)) * 5)
            time.sleep(0.1)  # most likely they have been asked by now; if not, all the same holds
            server.signal(signal.SIGTERM)
            replies = [client.read() for _ in range(5)]
            check.equal([reply[2] for reply in replies], list(range(999998, 999993, -1)), "all five are answered")
            check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "exit code")


# ---- systemd ----

def test_notify(check):
    for abstract in (False, True):
        notify = operation_tools.Notify(abstract)
        with weir_server.Server("--threads 2", env={"NOTIFY_SOCKET": notify.path}) as server:
            pid, message = notify.receive()
            check.equal((pid, message), (server.process.pid, {"READY": "1", "MAINPID": str(pid)}), "ready")
            with server.client() as client:
                check.equal(client.call("PING"), "PONG", "which is true")
            server.stop()
            check.equal(notify.receive(), (pid, {"STOPPING": "1"}), "stopping")
        notify.close()


def test_no_notify(check):
    """Nobody listens there, or nothing that could be a socket."""
    for path in ("/nowhere/socket", "nonsense", "", "@", "/" + "x" * 200):
        with weir_server.Server("--threads 1", env={"NOTIFY_SOCKET": path}) as server, server.client() as client:
            check.equal(client.call("PING"), "PONG", f"NOTIFY_SOCKET={path[:20]}")


# ---- as the first process of a container ----

def test_process_one(check):
    """It takes signals and reaps; it does not hand over, since the container would end with it."""
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        print("  this system does not let us make namespaces: not tested", flush=True)
        return
    folder = weir_server.Server("").folder
    process = subprocess.Popen([*words, weir_server.WEIR, "serve", "--listen", f"unix:{folder}/s"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=weir_server.environment())
    try:
        check.contains(process.stdout.readline(), "listening on", "it starts")
        with socket.socket(socket.AF_UNIX) as it:
            it.connect(f"{folder}/s")
            it.sendall(b"PING\r\n")
            check.equal(it.recv(100), b"+PONG\r\n", "it answers")
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        server = int(pathlib.Path(children).read_text(encoding="ascii").split()[0])
        os.kill(server, signal.SIGUSR2)
        check.contains(process.stderr.readline(), "cannot hand over", "it refuses to hand over")
        check.equal(ask_unix(f"{folder}/s"), b"+PONG\r\n", "and goes on")
        os.kill(server, signal.SIGTERM)
        check.equal(process.wait(weir_server.STOP_SECONDS), 0, "exit code")
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)


# ---- sockets in the file system ----

def test_unix_socket(check):
    folder = weir_server.Server("").folder
    path = f"{folder}/s"
    try:
        server = weir_server.Server(["--listen", f"unix:{path}", "--threads", "2"], listen=None)
        with server:
            check.equal(ask_unix(path), b"+PONG\r\n", "a socket in the file system")
            code, said = weir_server.refused(["--listen", f"unix:{path}"])
            check(code != 0 and "in use" in said, f"a second server is refused: {code}, {said}")
            check.equal(ask_unix(path), b"+PONG\r\n", "and the first goes on")
            server.kill()
            check(os.path.exists(path), "what a killed server leaves")
            server.start()
            check.equal(ask_unix(path), b"+PONG\r\n", "is taken by the next")
    finally:
        shutil.rmtree(folder)


def test_unix_socket_is_removed(check):
    """Who made it removes it, also by a successor; what another has put there meanwhile stays."""
    folder = weir_server.Server("").folder
    path = f"{folder}/s"
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            with weir_server.Server(["--listen", f"unix:{path}", "--threads", "1"], listen=None) as server:
                server.signal(number)
                server.process.wait(weir_server.STOP_SECONDS)
                check(not os.path.exists(path), f"{number.name}: it is gone")
        with weir_server.Server(["--listen", f"unix:{path}", "--threads", "1"], listen=None) as server:
            os.unlink(path)
            with weir_server.Server(["--listen", f"unix:{path}", "--threads", "1"], listen=None):
                server.stop()
                check.equal(ask_unix(path), b"+PONG\r\n", "another's stays")
        check(not os.path.exists(path), "until that one goes")
        code, said = weir_server.refused(["--listen", f"unix:{path}", "--store", "file:/nonexistent/zone"])
        check(code == 3 and not os.path.exists(path), f"one that does not start leaves none: {code} {said}")
        with weir_server.Server(["--listen", f"unix:{path}", "--threads", "1"], listen=None) as server:
            server.signal(signal.SIGUSR2)
            check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "handed over")
            check.equal(ask_unix(path), b"+PONG\r\n", "the successor has it")
            check(server.wait_for(lambda: "takes over" in server.stderr()), "and it is said who that is")
            successor = int(re.search(r"process (\d+) takes over", server.stderr())[1])
            os.kill(successor, signal.SIGTERM)
            check(comes_true(lambda: not os.path.exists(path)), "and removes it")
    finally:
        shutil.rmtree(folder)


def comes_true(ask):
    end = time.monotonic() + weir_server.PATIENCE_SECONDS
    while not ask() and time.monotonic() < end:
        time.sleep(0.01)
    return ask()


def readiness(port):
    with http_client.Client(port) as client:
        return tuple(client.get(path).status for path in ("/healthz", "/readyz", "/healthcheck"))


def test_shutdown_delay(check):
    """Not ready at once, served for a while, then the usual end; a second signal is at once."""
    with weir_server.Server("--threads 2 --shutdown-delay 2s") as server:
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        check(server.wait_for(server.is_closed), "then nobody new is let in")
        took = time.monotonic() - start
        check(took >= 1.9, f"after the delay: {took:.2f} s")
        server.stop()
    with weir_server.Server("--threads 2 --shutdown-delay 1h") as server:
        with http_client.Client(server.port) as old:
            check.equal(readiness(server.port), (200, 200, 200), "before")
            server.signal(signal.SIGTERM)
            check(server.wait_for(lambda: readiness(server.port) == (200, 503, 503)), "not ready, but alive, for new connections")
            check.equal(old.get("/v1/take", key="k", limit=LIMIT).status, 200, "old ones are served")
            with resp.Client(server.port) as client:
                check.equal(client.call("WEIR.TAKE", "k", LIMIT)[0], 1, "and new ones")
        server.signal(signal.SIGTERM)
        check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "twice is at once")


def test_reload_never_blocks(check):
    """Pipes where files should be: nobody writes to them, so that opening one could take for ever."""
    policies = "version: 1\npolicies: []\n"
    for which in ("policies", "certificate"):
        server = weir_server.Server("--threads 1", policies=policies, files={"cert.pem": "", "key.pem": ""})
        if which == "certificate":
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                            "-days", "2", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=x"], cwd=server.folder, check=True,
                           stderr=subprocess.DEVNULL)
            server.options += ["--listen-tls", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
        name = "policies.yaml" if which == "policies" else "cert.pem"
        with server:
            path = server.folder / name
            path.unlink()
            os.mkfifo(path)
            server.signal(signal.SIGHUP)
            check(server.wait_for(lambda: "stay in force: " in server.stderr() and name in server.stderr()),
                  f"{which}: it is told, {server.stderr()}")
            with http_client.Client(server.port) as client:
                check.equal(client.post("/v1/reload", {}).status, 409, f"{which}: by /v1/reload, too")
                check.equal(client.get("/readyz").status, 200, f"{which}: and it goes on")
            server.signal(signal.SIGHUP)
            server.stop()
            check.equal(server.process.returncode, 0, f"{which}: SIGTERM is heard")


def ask_unix(path):
    with socket.socket(socket.AF_UNIX) as it:
        it.settimeout(weir_server.PATIENCE_SECONDS)
        it.connect(path)
        it.sendall(b"PING\r\n")
        return it.recv(100)


TESTS = [test_idle_connections_are_closed, test_held_answers_arrive, test_held_answers_do_not_hold_the_server,
         test_twice_is_at_once, test_requests_under_way_are_finished, test_pipelines_are_exact,
         test_who_waits_at_the_door_is_let_in, test_readiness, test_remote_store, test_notify, test_no_notify, test_process_one,
         test_unix_socket, test_unix_socket_is_removed, test_shutdown_delay, test_reload_never_blocks]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
