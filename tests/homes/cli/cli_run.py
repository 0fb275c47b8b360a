#!/usr/bin/env python3
"""`weir run`: which exit codes it has, that commands never overlap, what happens to its lease, to signals, and when it is killed.
Nothing here depends on how fast the machine is: where a lease has to last, everything is tried again with a longer one."""
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

from lib import checks, clocks
from lib.build import BUILD, WEIR

PATIENCE = 120
TMP = pathlib.Path(tempfile.mkdtemp(prefix="weir-run-"))
ENV = {**os.environ, "XDG_STATE_HOME": str(TMP / "state"), "HOME": str(TMP / "home")}
STORE = ("--store", f"file:{TMP}/zone?size=1m")
ONE = "concurrent 1 lease 1h"


def weir(*words, stdin=subprocess.DEVNULL):
    done = subprocess.run([WEIR, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV,
                          timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def run(key, limits, *words, store=STORE):
    """Options stand before the first word that is `--`."""
    return weir("run", key, limits, *store, *words)


def start(key, limits, *words, **more):
    return subprocess.Popen([WEIR, "run", key, limits, *STORE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=ENV, **more)


def until(what, right):
    """Waits for an event of another process; how long it takes does not matter."""
    end = time.monotonic() + PATIENCE
    while not right():
        if time.monotonic() > end:
            raise RuntimeError(f"never happened: {what}")
        time.sleep(0.005)


def is_free(key, limits=ONE):
    code, _, error = weir("peek", key, limits, *STORE)
    if code not in (0, 1) and "there is no zone" not in error:
        raise RuntimeError(error)
    return code != 1


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- what it answers ----

def test_codes(check):
    for code in (0, 1, 7, 255):
        check.equal(run("codes", ONE, "--", "sh", "-c", f"exit {code}"), (code, "", ""), f"the code {code} of the command")
    check.equal(run("codes", ONE, "--", "sh", "-c", "kill -9 $$")[0], 137, "a command that SIGKILL ends")
    check.equal(run("codes", ONE, "--", "sh", "-c", "echo out; echo err >&2"), (0, "out\n", "err\n"), "its output is the command's")
    with open(__file__, encoding="utf-8") as text:
        check.equal(weir("run", "codes", ONE, *STORE, "--", "head", "-n1", stdin=text)[1], "#!/usr/bin/env python3\n", "and so is its input")
    code, _, err = run("codes", ONE, "--", "no-such-command-anywhere", "x")
    check.equal(code, 127, "not found")
    check.contains(err, 'cannot run "no-such-command-anywhere": No such file or directory', "not found, in words")
    (TMP / "plain").write_text("#!/bin/sh\n")
    check.equal(run("codes", ONE, "--", str(TMP / "plain"))[0], 126, "not executable")
    check(is_free("codes"), "after every one of these the slot is free again")
    check.equal(run("codes", ONE, "--", "printf", "%s|", "--wait", "--", "-x")[1], "--wait|--|-x|",
                "all that follows the first -- is the command's")


def test_denied(check):
    window = "fixed-window 1/366d"
    check.equal(run("denied", window, "--", "true")[0], 0, "the first is allowed")
    code, out, err = run("denied", window, "--wait", "0", "--", "echo", "no")
    check.equal((code, out), (1, ""), "the second is denied, and its command does not run")
    check.contains(err, "weir run: denied by fixed-window 1/52w2d: retry in ", "in words")
    check.equal(run("denied", window, "--wait", "1h", "--", "true")[0], 1, "known at once: it cannot be in time")
    for given, expected in (("0", 0), ("75", 75), ("255", 255)):
        check.equal(run("denied", window, "--wait", "0", "--denied-code", given, "--quiet", "--", "true"), (expected, "", ""),
                    f"--denied-code {given} --quiet")
    code, _, err = run("denied", "fixed-window 3/h", "--cost", "4", "--", "true")
    check.equal(code, 1, "more than the limit")
    check.contains(err, "a cost of 4 is never allowed, the limit is 3", "more than the limit, in words")


def test_usage(check):
    for words, part in (
            ((), "the command is missing"), (("--",), "the command is missing"),
            (("--on-lost", "x", "--", "true"), 'invalid --on-lost "x": expected stop or go-on'),
            (("--denied-code", "256", "--", "true"), 'invalid --denied-code "256": expected 0 to 255'),
            (("--failed-code", "-1", "--", "true"), 'invalid --failed-code "-1"'),
            (("--cost", "0", "--", "true"), 'invalid --cost "0"'), (("--wiat", "0", "--", "true"), "did you mean --wait?")):
        code, out, err = run("usage", ONE, *words)
        check.equal((code, out), (2, ""), f"usage: {words}")
        check.contains(err, part, f"usage: {words}")
    code, _, err = run("usage", ONE, "--", "true", store=("--store", "memory:64m"))
    check.equal(code, 2, "a private store")
    check.contains(err, "a memory: store is private to one process and limits nothing", "a private store, in words")
    bad = ("--store", f"file:{TMP}/missing/zone")
    check.equal(run("usage", ONE, "--", "true", store=bad)[0], 3, "a store that fails")
    check.equal(run("usage", ONE, "--failed-code", "99", "--", "true", store=bad)[0], 99, "--failed-code")
    check.equal(run("usage", "concurrent 1 leas 1h", "--", "true")[0], 2, "a limit that cannot be read")


# ---- slots ----

def test_never_more_than_the_limit(check):
    """Eight at a time want two slots, beside a limit that all of them fit in. Each notes when it begins and ends."""
    log = TMP / "log"
    log.touch()
    script = f"echo + >>{log}; sleep 0.01; echo - >>{log}"
    for limits in ("concurrent 2 lease 1h", "concurrent 2 lease 1h, fixed-window 1000/366d"):
        log.write_text("")
        done = subprocess.run(["xargs", "-P8", "-I{}", WEIR, "run", "overlap", limits, *STORE, "--", "sh", "-c", script],
                              input="\n".join(map(str, range(32))), text=True, env=ENV, timeout=PATIENCE, check=False)
        check.equal(done.returncode, 0, f"{limits}: all of them ran")
        at_once, most = 0, 0
        for mark in log.read_text().split():
            at_once += 1 if mark == "+" else -1
            most = max(most, at_once)
        check.equal(log.read_text().count("+"), 32, f"{limits}: all of them ran, once each")
        check.within(most, 1, 2, f"{limits}: at once")
        check(is_free("overlap", limits), f"{limits}: no slot is left")


def test_all_or_nothing(check):
    both = "concurrent 1 lease 1h, fixed-window 2/366d"
    check.equal(run("both", both, "--", WEIR, "run", "both", both, *STORE, "--wait", "0", "--quiet", "--", "true")[0], 1,
                "no slot is free")
    check.equal(run("both", both, "--", "true")[0], 0, "the denied one was not charged to the window")
    check.equal(run("both", both, "--wait", "0", "--quiet", "--", "true")[0], 1, "the window is used up")
    check(is_free("both"), "who is denied by the window holds no slot")
    mixed = "concurrent 1 lease 1h, token-bucket 20/s burst 1"
    begin = clocks.now()
    for _ in range(3):
        check.equal(run("mixed", mixed, "--", "true")[0], 0, "waits for a token and a slot")
    check(clocks.now() - begin >= 0.1, "three of them are never done before two more tokens have come")


def test_renewal(check):
    """A command that lasts longer than its lease keeps its slot."""
    def attempt(scale):
        lease, gate = 1.0 * scale, TMP / f"gate{scale}"
        limits, key = f"concurrent 1 lease {lease:g}s", f"renewal{scale}"
        job = start(key, limits, "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 5")
        until("the slot is taken", lambda: not is_free(key, limits))
        denied, end = True, time.monotonic() + 2.5 * lease
        while time.monotonic() < end and job.poll() is None:
            denied = denied and not is_free(key, limits)
            time.sleep(0.05)
        gate.touch()
        _, err = job.communicate(timeout=PATIENCE)
        if "lost its lease" in err:
            return False
        check.equal((job.returncode, err), (5, ""), "the code of the command")
        check(denied, "the slot is held for two and a half leases")
        check(is_free(key, limits), "and is free at the end")
        return True
    checks.in_time(attempt)


def test_lost(check):
    """Somebody resets the key: the next renewal finds that the lease is gone."""
    limits, gate = "concurrent 1 lease 1500ms", TMP / "gate-lost"
    for words, code in (((), 3), (("--failed-code", "44"), 44), (("--on-lost", "go-on"), 6)):
        goes_on = code == 6
        job = start("lost", limits, *words, "--", "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 6")
        until("the slot is taken", lambda: not is_free("lost", limits))
        weir("reset", "lost", *STORE)
        first = job.stderr.readline()
        check.contains(first, '"lost" has lost its lease: ', f"{words}: says so")
        check.contains(first, "the command goes on without it" if goes_on else "the command gets SIGTERM", f"{words}: in words")
        if goes_on:
            check(job.poll() is None, "go-on: it goes on")
            gate.touch()
        check.equal(job.wait(timeout=PATIENCE), code, f"{words}: the exit code")
        check.equal(job.stderr.read(), "", f"{words}: nothing else is said")


def test_held_store(check):
    """The store does not answer for longer than the lease: the command ends before another can have its slot for long."""
    limits = "concurrent 1 lease 2s"
    job = start("held", limits, "--", "sleep", "1000")
    until("the slot is taken", lambda: not is_free("held", limits))
    with subprocess.Popen([BUILD / "tests" / "hold_zone", f"file:{TMP}/zone", "all"], stdout=subprocess.PIPE, text=True) as holder:
        check.equal(holder.stdout.readline(), "held\n", "another process holds the locks of the zone, and stops")
        check.equal(job.wait(timeout=PATIENCE), 3, "the command was stopped")
        holder.kill()
        err = job.stderr.read()
        check.contains(err, "cannot renew the lease, which ends in ", "it said that renewing fails")
        check.contains(err, '"held" has lost its lease: it could not be renewed in time; the command gets SIGTERM', "and when it is lost")


# ---- signals ----

def test_forwarded(check):
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
        ready = TMP / f"ready-{name}"
        job = start("signals", ONE, "--", "sh", "-c", f"trap 'exit 42' {name}; touch {ready}; while :; do sleep 0.01; done")
        until("the trap is set", ready.exists)
        job.send_signal(getattr(signal, f"SIG{name}"))
        check.equal(job.wait(timeout=PATIENCE), 42, f"SIG{name} reaches the command")
        check(is_free("signals"), f"SIG{name}: the slot is released")
    job = start("signals", ONE, "--", "sh", "-c", "echo runs; exec sleep 1000")
    check.equal(job.stdout.readline(), "runs\n", "the slot is taken, and the command runs")
    job.send_signal(signal.SIGTERM)
    check.equal(job.wait(timeout=PATIENCE), 143, "a command that SIGTERM ends")


COUNTER = """
import signal, sys
count = 0
def more(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, more)
print("ready", flush=True)
sys.stdin.readline()
print("interrupted", count, flush=True)
sys.exit(9)
"""


def test_terminal(check):
    """Control-C goes to the whole group: the command gets it once, not a second time from weir, which waits for it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(WEIR, [WEIR, "run", "terminal", ONE, *STORE, "--", sys.executable, "-c", COUNTER], ENV)
    shown = b""
    for wanted, key in ((b"ready", b"\x03"), (b"^C", b"\n")):
        while wanted not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, key)
    while b"interrupted" not in shown or not shown.endswith(b"\n"):
        shown += os.read(terminal, 1000)
    check.contains(shown, b"interrupted 1", "interrupted once")
    check.equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9, "the code of the command")
    os.close(terminal)


def test_ignored(check):
    """nohup: what is ignored stays ignored, for weir and for its command."""
    ready = TMP / "ready-ignored"
    job = start("ignored", ONE, "--", "sh", "-c", f"touch {ready}; kill -HUP $$; kill -HUP $PPID; exit 9",
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    check.equal(job.wait(timeout=PATIENCE), 9, "SIGHUP is ignored by both")
    job = start("ignored", ONE, "--", "sh", "-c", "exit 8", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    check.equal(job.wait(timeout=PATIENCE), 8, "with SIGCHLD ignored the exit code is known all the same")


def test_signal_while_waiting(check):
    """Nothing stays reserved, charged or held."""
    bucket = "token-bucket 1/d burst 1"
    check.equal(run("interrupted", bucket, "--", "true")[0], 0, "the one token")
    before = weir("peek", "interrupted", bucket, "--wait", "any", "--json", *STORE)[1]
    job = start("interrupted", bucket, "--", "touch", str(TMP / "never"))
    until("it has a reservation", lambda: '"delay":17' in weir("peek", "interrupted", bucket, "--wait", "any", "--json", *STORE)[1])
    check('"delay":8' in before, f"one day before: {before}")
    job.send_signal(signal.SIGTERM)
    check.equal(job.wait(timeout=PATIENCE), -signal.SIGTERM, "it ends by that signal, as others do")
    after = weir("peek", "interrupted", bucket, "--wait", "any", "--json", *STORE)[1]
    check('"delay":8' in after, f"the reservation is given back: {after}")
    holder = start("interrupted-slot", ONE, "--", "sleep", "1000")
    until("the slot is taken", lambda: not is_free("interrupted-slot"))
    for limits in (ONE, f"{ONE}, fixed-window 1/366d"):
        job = start("interrupted-slot", limits, "--", "touch", str(TMP / "never"))
        time.sleep(0.1)  # it waits by then, or it ends at once: both are right
        job.send_signal(signal.SIGINT)
        check.equal(job.wait(timeout=PATIENCE), -signal.SIGINT, f"{limits}: while it waits for a slot")
    holder.send_signal(signal.SIGTERM)
    holder.wait(timeout=PATIENCE)
    check(is_free("interrupted-slot") and not (TMP / "never").exists(), "no slot is held, no command ran")
    check.equal(run("interrupted-slot", f"{ONE}, fixed-window 1/366d", "--wait", "0", "--", "true")[0], 0, "nothing was charged")


def test_killed(check):
    """kill -9: a command that holds slots dies with weir, also one that ignores SIGTERM. Others go on."""
    for words, limits, dies in (((), "concurrent 1 lease 1s", True), (("--on-lost", "go-on"), "concurrent 1 lease 1s", False),
                                ((), "fixed-window 100/d", False)):
        pid_file = TMP / f"pid{dies}{len(words)}"
        job = start("killed", limits, *words, "--", "sh", "-c", f"trap '' TERM; echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; "
                    "while :; do sleep 0.05; done")
        until("the command runs", pid_file.exists)
        pid = int(pid_file.read_text())
        job.kill()
        job.wait(timeout=PATIENCE)
        if dies:
            until("the command dies, too", lambda: not alive(pid))
            check(True, "the command dies, too")
            check.equal(run("killed", limits, "--", "true")[0], 0, "the lease ends by itself, and the next one has the slot")
        else:
            check(alive(pid), f"{words} {limits}: it goes on")
            os.kill(pid, signal.SIGKILL)


TESTS = [test_codes, test_denied, test_usage, test_never_more_than_the_limit, test_all_or_nothing, test_renewal, test_lost,
         test_held_store, test_forwarded, test_terminal, test_ignored, test_signal_while_waiting, test_killed]

if __name__ == "__main__":
    result = checks.run(TESTS, sys.argv[1:])
    subprocess.run(["rm", "-rf", str(TMP)], check=False)
    sys.exit(result)
