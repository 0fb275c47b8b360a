#!/usr/bin/env python3
"""A restart loses no request and no count: by socket activation, by SIGUSR2, and what the zone keeps.

    tests/homes/server/operation_restart.py [--long] [NAME …]
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time

from lib import checks, operation_tools, resp, weir_server
from lib.operation_tools import LIMITS, PLENTY, SCARCE, SCARCE_MOST
import abuse_slow

LONG = "--long" in sys.argv
ROUNDS = 20 if LONG else 4
BETWEEN = 1.0


class Folder:
    """For a zone that outlives servers."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="weir-zone-"))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def judge(check, load, port, name):
    """Every request has its answer, and what was told is what was charged."""
    check(not load.lost, f"{name}: {len(load.lost)} requests lost: {load.lost[:5]}")
    check(load.answers() > 1000, f"{name}: only {load.answers()} answers")
    check.equal(operation_tools.charged(port, PLENTY), load.allowed(PLENTY), f"{name}: charged, and told")
    check.equal(load.allowed(SCARCE), SCARCE_MOST, f"{name}: of a limit of {SCARCE_MOST}, allowed")
    print(f"  {name}: {load.answers()} answers, {load.reconnected} connections closed with notice, "
          f"{load.asked_again} between two requests", flush=True)


# ---- systemd's way ----

def test_socket_activation(check):
    """The new server starts on the socket when the old one has been told to stop, or before."""
    with Folder() as folder:
        options = f"--threads 2 --store file:{folder}/zone?size=4m"
        sockets = operation_tools.listening()
        port = sockets[0].getsockname()[1]
        old = operation_tools.Activated(sockets, options).__enter__()
        load = operation_tools.Load(port).start()
        for number in range(ROUNDS):
            time.sleep(BETWEEN)
            if number % 2:  # one after the other, as `systemctl restart` does
                old.stop()
                new = operation_tools.Activated(sockets, options).__enter__()
            else:  # both at once
                new = operation_tools.Activated(sockets, options).__enter__()
                old.stop()
            shutil.rmtree(old.folder)
            old = new
        load.go_on(5000)
        load.end()
        judge(check, load, port, "socket activation")
        old.__exit__(None)


def test_several_sockets(check):
    """Each is served, by every thread; a socket that does not listen is refused."""
    sockets = operation_tools.listening(3)
    with operation_tools.Activated(sockets, "--threads 3") as server:
        for port in server.ports:
            with resp.Client(port) as client:
                check.equal(client.call("PING"), "PONG", "a socket that was handed over")
        check.equal(len([line for line in server.lines if line.startswith("listening on")]), 3, "all are told of")
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    try:
        with operation_tools.Activated([deaf]):
            check(False, "a socket that does not listen is refused")
    except weir_server.WrongEnd as error:
        check.contains(str(error), "not a listening socket", "a socket that does not listen is refused")


def test_sockets_with_tls(check):
    """Which of them speak TLS, the options say, in their order."""
    sockets = operation_tools.listening(2)
    options = "--threads 2 --listen 127.0.0.1:1 --listen-tls 127.0.0.1:2 --tls-cert cert.pem --tls-key key.pem"
    server = operation_tools.Activated(sockets, options)
    abuse_slow.make_certificate(server.folder)
    with server:
        with resp.Client(server.ports[0]) as client:
            check.equal(client.call("PING"), "PONG", "the first is plain")
        trust = ssl.create_default_context(cafile=server.folder / "cert.pem")
        with socket.create_connection(("127.0.0.1", server.ports[1]), weir_server.PATIENCE_SECONDS) as plain, \
                trust.wrap_socket(plain, server_hostname="localhost") as it:
            it.sendall(b"PING\r\n")
            check.equal(it.recv(100), b"+PONG\r\n", "the second has TLS")


def test_listen_pid_of_another(check):
    """Descriptors meant for another process are left alone."""
    with weir_server.Server("--threads 1", env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as server:
        with server.client() as client:
            check.equal(client.call("PING"), "PONG", "it opened its own socket")


# ---- SIGUSR2 ----

def test_hand_over(check):
    """The server starts itself anew on its sockets, again and again, under load."""
    with Folder() as folder, operation_tools.Succession(f"--threads 2 --store file:{folder}/zone?size=4m") as (server, notify):
        pid, message = notify.receive()
        check.equal(message.get("READY"), "1", "the first is ready")
        load = operation_tools.Load(server.port).start()
        for number in range(ROUNDS):
            time.sleep(BETWEEN)
            os.kill(pid, signal.SIGUSR2)
            told = notify.receive()
            if not check(told is not None and "MAINPID" in told[1], f"hand-over {number}: the successor tells: {told}"):
                break
            new = int(told[1]["MAINPID"])
            check(new != pid and told[0] == new and told[1].get("READY") == "1", f"hand-over {number}: {told}")
            check.equal(operation_tools.exit_code_of(pid), 0, f"hand-over {number}: exit code of the old one")
            pid = new
        load.go_on(5000)
        load.end()
        judge(check, load, server.port, "hand-over")
        check(all("STOPPING" not in message for _, message in notify.all),
              "those that hand over do not say that the service stops")
        check.equal(operation_tools.end(pid), 0, "exit code of the last one")
        check.equal(notify.receive(), (pid, {"STOPPING": "1"}), "the last one says that it stops")
        check(not weir_server.REPORTS.search(server.stderr()), f"no sanitizer's report: {server.stderr()}")


def test_hand_over_that_fails(check):
    """A successor that cannot start changes nothing; the next attempt may succeed."""
    good = "version: 1\npolicies:\n- {name: api, key: user, limit: gcra 1/s}\n"
    with operation_tools.Succession("--threads 2 --no-watch", True, policies=good) as (server, notify):
        notify.receive()
        with server.client() as client:
            server.write("policies.yaml", "version: 1\npolicies: none of these\n")
            server.signal(signal.SIGUSR2)
            check(server.wait_for(lambda: "policies.yaml" in server.stderr()), "the successor says what is wrong")
            check(server.wait_for(lambda: "this process continues" in server.stderr()), f"the old one goes on: {server.stderr()}")
            check.equal(client.call("PING"), "PONG", "and does")
            with server.client() as another:
                check.equal(another.call("PING"), "PONG", "also for new connections")
            server.write("policies.yaml", good)
            server.signal(signal.SIGUSR2)
            server.signal(signal.SIGUSR2)  # once is enough
            told = notify.receive()
            check(told and told[1].get("READY") == "1", f"the second attempt succeeds: {told}")
        check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "exit code of the old one")
        check.equal(notify.receive(2), None, "there is one successor, not two")
        with server.client() as client:
            check.equal(client.call("PING"), "PONG", "it answers")
        check.equal(operation_tools.end(told[0]), 0, "exit code of the new one")


def test_connections_during_a_hand_over(check):
    """Whoever asks at that moment is answered, by the old one or by the new one, whichever socket it came to."""
    with operation_tools.Succession("--threads 4") as (server, notify):
        old, _ = notify.receive()
        os.kill(old, signal.SIGUSR2)
        clients = []
        end = time.monotonic() + 1.0
        while time.monotonic() < end and len(clients) < 800:
            start, client = time.monotonic(), resp.Client(server.port)
            client.socket.sendall(b"PING\r\n")
            if time.monotonic() - start > operation_tools.SILENT_SECONDS:
                client.close()  # the machine held us up: one that drains need not have waited for so long
            else:
                clients.append(client)
        answered = 0
        for client in clients:
            try:
                answered += client.read() == "PONG"
            except OSError:
                pass
            client.close()
        told = notify.receive()
        check.equal(answered, len(clients), "connections made while one takes over are served")
        check.equal(operation_tools.exit_code_of(old), 0, "exit code of the old one")
        check.equal(operation_tools.end(int(told[1]["MAINPID"])), 0, "exit code of the new one")


def test_hand_over_to_a_new_program(check):
    """What was installed since it started is what SIGUSR2 starts."""
    with Folder() as folder:
        shutil.copy(weir_server.WEIR, folder / "weir")
        real, weir_server.WEIR = weir_server.WEIR, str(folder / "weir")
        try:
            succession = operation_tools.Succession("--threads 2")
            server, notify = succession.__enter__()
        finally:
            weir_server.WEIR = real
        old, _ = notify.receive()
        script = folder / "new"
        script.write_text(f'#!/bin/sh\necho "the new one" > "{folder}/seen"\nexec "{real}" "$@"\n')
        script.chmod(0o755)
        script.rename(folder / "weir")  # as a package manager puts it there
        os.kill(old, signal.SIGUSR2)
        told = notify.receive()
        check((folder / "seen").exists(), "the program that stands there now was started")
        check.equal(operation_tools.exit_code_of(old), 0, "exit code of the old one")
        with resp.Client(server.port) as client:
            check.equal(client.call("PING"), "PONG", "the new one answers")
        check.equal(operation_tools.end(int(told[1]["MAINPID"])), 0, "exit code of the new one")
        succession.__exit__()


def program_of(pid):
    return os.path.basename(os.readlink(f"/proc/{pid}/exe"))


def test_hand_over_by_path(check):
    """Upgrades as people do them: the running program is moved away, by a relative path, through a link. What stands
    where it was started is what is started."""
    operation_tools.adopt_orphans()
    with Folder() as folder:
        for way in ("moved", "relative", "linked"):
            for name in ("weir", "weir.old", "new"):
                (folder / name).unlink(missing_ok=True)
            shutil.copy(weir_server.WEIR, folder / ("old" if way == "linked" else "weir"))
            shutil.copy(weir_server.WEIR, folder / "new")
            if way == "linked":
                (folder / "weir").symlink_to("old")
            real, weir_server.WEIR = weir_server.WEIR, str(folder / "weir")
            here = os.getcwd()
            try:
                if way == "relative":
                    weir_server.WEIR = "../" * len(pathlib.Path(tempfile.gettempdir()).parts) + str(folder / "weir").lstrip("/")
                server = weir_server.Server("--threads 1")
                server.start()
            finally:
                weir_server.WEIR = real
                os.chdir(here)
            if way == "linked":
                (folder / "weir").unlink()
                (folder / "weir").symlink_to("new")
            else:
                (folder / "weir").rename(folder / "weir.old")
                shutil.copy(folder / "new", folder / "weir")
            server.signal(signal.SIGUSR2)
            check(server.wait_for(lambda server=server: re.search(r"process (\d+) takes over", server.stderr())),
                  f"{way}: one takes over, {server.stderr()}")
            successor = int(re.search(r"process (\d+) takes over", server.stderr())[1])
            check.equal(program_of(successor), "new" if way == "linked" else "weir", f"{way}: which one")
            check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, f"{way}: exit code of the old one")
            with resp.Client(server.port) as client:
                check.equal(client.call("PING"), "PONG", f"{way}: the new one answers")
            check.equal(operation_tools.end(successor), 0, f"{way}: exit code of the new one")
            shutil.rmtree(server.folder)


def test_hand_over_to_no_server(check):
    """Nothing, garbage, somebody else's program, a server that cannot start: told of, and the old one goes on."""
    operation_tools.adopt_orphans()
    with Folder() as folder:
        shutil.copy(weir_server.WEIR, folder / "weir")
        real, weir_server.WEIR = weir_server.WEIR, str(folder / "weir")
        try:
            server = weir_server.Server("--threads 1", policies="version: 1\npolicies: []\n")
            server.start()
        finally:
            weir_server.WEIR = real
        cases = [("garbage", b"no program at all\n" * 10, 0o755, "Exec format error"), ("not executable", b"x", 0o644, "ermission"),
                 ("gone", None, 0, "No such file"), ("another program", b"#!/bin/sh\nexit 0\n", 0o755, "before it was ready"),
                 ("one that dies", b"#!/bin/sh\nkill -9 $$\n", 0o755, "before it was ready")]
        for what, text, mode, words in cases:
            (folder / "weir").unlink(missing_ok=True)
            if text is not None:
                (folder / "weir").write_bytes(text)
                (folder / "weir").chmod(mode)
            server.forget_errors()
            server.signal(signal.SIGUSR2)
            check(server.wait_for(lambda words=words: words in server.stderr()), f"{what}: it is told, {server.stderr()}")
            check("takes over" not in server.stderr(), f"{what}: and nothing else is, {server.stderr()}")
            with resp.Client(server.port) as client:
                check.equal(client.call("PING"), "PONG", f"{what}: the old one goes on")
        shutil.copy(real, folder / "weir")
        server.write("policies.yaml", "nonsense\n")
        server.forget_errors()
        server.signal(signal.SIGUSR2)
        check(server.wait_for(lambda: "before it was ready" in server.stderr()), f"a server that cannot start: {server.stderr()}")
        server.write("policies.yaml", "version: 1\npolicies: []\n")
        server.forget_errors()
        server.signal(signal.SIGUSR2)
        check(server.wait_for(lambda: "takes over" in server.stderr()), f"and then one that can: {server.stderr()}")
        successor = int(re.search(r"process (\d+) takes over", server.stderr())[1])
        check.equal(server.process.wait(weir_server.STOP_SECONDS), 0, "exit code of the old one")
        check.equal(operation_tools.end(successor), 0, "exit code of the new one")
        shutil.rmtree(server.folder)


# ---- what the zone keeps ----

def test_state_outlives_a_restart(check):
    with Folder() as folder:
        for store, kept in ((f"file:{folder}/zone?size=1m", True), ("memory:1m", False)):
            server = weir_server.Server(f"--threads 2 --store {store}")
            with server:
                with server.client() as client:
                    reply = client.call("WEIR.TAKE", "k", LIMITS[SCARCE], "COST", "100")
                    receipt = reply[6]
                server.stop()
                server.start()
                with server.client() as client:
                    reply = client.call("WEIR.PEEK", "k", LIMITS[SCARCE])
                    check.equal(reply[2], SCARCE_MOST - (100 if kept else 0), f"{store}: remaining after a restart")
                    if kept:
                        check.equal(client.call("WEIR.SETTLE", "k", LIMITS[SCARCE], receipt, "40"), "OK",
                                    "a receipt of the server before is good")
                        check.equal(client.call("WEIR.PEEK", "k", LIMITS[SCARCE])[2], SCARCE_MOST - 40, "and settles")


def test_two_servers_on_one_zone(check):
    """They agree exactly, whoever is asked, and go on when one is killed."""
    name = f"/weir-test-{os.getpid()}"
    options = f"--threads 2 --store shm:{name}?size=1m"
    try:
        with weir_server.Server(options) as one, weir_server.Server(options) as two:
            loads = [operation_tools.Load(server.port, pause=0).start() for server in (one, two)]
            for load in loads:
                load.go_on(20000)
            for load in loads:
                load.end()
                check(not load.lost, f"two servers: {load.lost[:5]}")
            for server in (one, two):
                check.equal(operation_tools.charged(server.port, PLENTY), sum(it.allowed(PLENTY) for it in loads),
                            "two servers: charged, and told by both")
            check.equal(sum(it.allowed(SCARCE) for it in loads), SCARCE_MOST, "two servers: allowed by both")
            with one.client() as first, two.client() as second:
                reply = first.call("WEIR.TAKE", "r", LIMITS[SCARCE], "COST", "10")
                check.equal(second.call("WEIR.SETTLE", "r", LIMITS[SCARCE], reply[6], "4"), "OK",
                            "two servers: a receipt of one is good with the other")
            before = operation_tools.charged(two.port, PLENTY)
            one.kill()
            check.equal(operation_tools.charged(two.port, PLENTY), before, "two servers: one is killed, the other knows")
            one.start()
            check.equal(operation_tools.charged(one.port, PLENTY), before, "two servers: and it comes back to the same")
    finally:
        pathlib.Path(f"/dev/shm{name}").unlink(missing_ok=True)


TESTS = [test_socket_activation, test_several_sockets, test_sockets_with_tls, test_listen_pid_of_another, test_hand_over,
         test_hand_over_that_fails, test_connections_during_a_hand_over, test_hand_over_to_a_new_program,
         test_hand_over_by_path, test_hand_over_to_no_server,
         test_state_outlives_a_restart, test_two_servers_on_one_zone]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
