#!/usr/bin/env python3
"""The packages on a system with systemd: installed, started, restarted, handed over, killed, upgraded and removed, under
load. Run by operation_deb_boot.sh on a copy of the system; nothing of it is meant for a real one.
"""
import glob
import os
import pathlib
import re
import subprocess
import sys
import time

HOST = pathlib.Path("/run/weir-test/host")
PACKAGES = "/run/weir-test/packages"
SOURCE = "/run/weir-test/source"
sys.path.insert(0, f"{SOURCE}/tests")
os.environ["WEIR"] = "/usr/bin/weir"

from lib import checks, http_client, operation_tools, redis_server, resp  # noqa: E402
from lib.operation_tools import PLENTY, SCARCE, SCARCE_MOST

PORT = 7311
ZONE = pathlib.Path("/var/lib/weir/zone")


def run(*words, check=False):
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done


def install(*names):
    paths = [path for name in names for path in glob.glob(f"{PACKAGES}/{name}_*.deb")]
    return run("dpkg", "-i", *paths)


def shown(name, unit="weir.service"):
    return run("systemctl", "show", "-P", name, unit).stdout.strip()


def until(ask, seconds=10):
    end = time.monotonic() + seconds
    while not ask() and time.monotonic() < end:
        time.sleep(0.02)
    return ask()


def answers(port=PORT, **fields):
    try:
        with http_client.Client(port, timeout=5) as client:
            return client.get("/healthz", fields).status == 200
    except OSError:
        return False


# ---- tests, one after the other on one system ----

def test_install(check):
    done = install("weir", "libweir0", "libweir-dev", "weir-redis-module")
    check.equal(done.returncode, 0, f"dpkg -i: {done.stdout}{done.stderr}")
    check(until(lambda: shown("ActiveState") == "active"), f"it runs: {run('systemctl', 'status', 'weir').stdout}")
    check.equal(shown("ActiveState", "weir.socket"), "active", "its socket is there")
    check(until(answers), "it answers")
    check.equal(run("systemctl", "is-enabled", "weir.service", "weir.socket").stdout.split(), ["enabled"] * 2, "at every start")
    done = run("systemd-analyze", "verify", "--man=no", "/lib/systemd/system/weir.service", "/lib/systemd/system/weir.socket")
    check(done.returncode == 0 and not done.stderr.strip(), f"the units: {done.stderr}")
    told = run("systemd-analyze", "security", "--no-pager", "weir.service").stdout
    exposure = re.search(r"Overall exposure level for weir.service: ([\d.]+)", told)
    check(exposure and float(exposure[1]) <= 2.0, f"exposure: {exposure and exposure[0]}")
    print(f"  {exposure and exposure[0]}", flush=True)


def test_sandbox(check):
    status = pathlib.Path(f"/proc/{shown('MainPID')}/status").read_text(encoding="ascii")
    uid = int(re.search(r"^Uid:\t(\d+)", status, re.M)[1])
    check(61184 <= uid <= 65519, f"a user of its own: {uid}")
    for field, value in (("CapEff", "0000000000000000"), ("CapBnd", "0000000000000000"), ("NoNewPrivs", "1"),
                         ("Seccomp", "2")):
        check.contains(status, f"{field}:\t{value}\n", f"{field} of the process")
    check.equal(ZONE.stat().st_mode & 0o777, 0o600, "the zone is nobody else's")
    check.equal(ZONE.stat().st_uid, uid, "but its own")
    told = run("journalctl", "--no-pager", "-u", "weir")  # there is no journal here; what it said is on the console
    check(told.returncode in (0, 1), "its words")


def with_load(check, name, act):
    """Something done to the service under load: no request is lost, no count is wrong."""
    with resp.Client(PORT) as client:
        for key in (PLENTY, SCARCE):
            client.call("WEIR.RESET", key)
    load = operation_tools.Load(PORT, each=1).start()
    time.sleep(0.7)
    act()
    until(lambda: load.allowed(SCARCE) >= SCARCE_MOST, 10)
    time.sleep(0.5)
    load.end()
    check(not load.lost, f"{name}: lost: {load.lost[:3]}")
    check.equal(load.allowed(SCARCE), SCARCE_MOST, f"{name}: of a limit of {SCARCE_MOST}, allowed")
    check.equal(operation_tools.charged(PORT, PLENTY), load.allowed(PLENTY), f"{name}: charged, and told")
    print(f"  {name}: {load.answers()} answers", flush=True)


def test_restart(check):
    before = shown("MainPID")
    with_load(check, "systemctl restart", lambda: run("systemctl", "restart", "weir", check=True))
    check(shown("MainPID") != before and shown("ActiveState") == "active", "it is another process")


def test_hand_over(check):
    before = shown("MainPID")

    def act():
        run("systemctl", "kill", "--kill-whom=main", "-s", "USR2", "weir", check=True)
        until(lambda: shown("MainPID") not in (before, "0"))
        until(lambda: not pathlib.Path(f"/proc/{before}").exists())
    with_load(check, "SIGUSR2", act)
    check(shown("MainPID") != before, f"systemd knows the new main process: {before}, {shown('MainPID')}")
    check.equal((shown("ActiveState"), shown("SubState"), shown("NRestarts")), ("active", "running", "0"), "and goes on")
    check(not pathlib.Path(f"/proc/{before}").exists(), "the old one is gone")


def test_upgrade(check):
    before = shown("MainPID")
    with_load(check, "dpkg -i", lambda: check.equal(install("weir").returncode, 0, "an upgrade"))
    check(until(lambda: shown("ActiveState") == "active") and shown("MainPID") != before, "the new one runs")


def test_reload(check):
    path = pathlib.Path("/etc/weir/policies.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("policies: []", "policies:\n- {name: fresh, key: user, limit: token-bucket 1/s}\n"),
                    encoding="utf-8")
    before = shown("MainPID")
    check.equal(run("systemctl", "reload", "weir").returncode, 0, "systemctl reload")
    with http_client.Client(PORT) as client:
        check(until(lambda: [it["name"] for it in client.get("/v1/policies").json["policies"]] == ["fresh"]),
              "the policies are in force")
    check.equal(shown("MainPID"), before, "by the same process")
    path.write_text(text, encoding="utf-8")


def test_crash(check):
    """kill -9: systemd starts it again, and it knows what it had counted."""
    with resp.Client(PORT) as client:
        client.call("WEIR.RESET", SCARCE)
        client.call("WEIR.TAKE", SCARCE, operation_tools.LIMITS[SCARCE], "COST", "123")
    before = shown("MainPID")
    os.kill(int(before), 9)
    check(until(lambda: shown("MainPID") not in (before, "0") and answers()), "it comes back")
    check.equal(operation_tools.charged(PORT, SCARCE), 123, "with its counts")


def blocks(page):
    """The commands of a page that need systemd, each with what it should print; … is anything within a line."""
    text = pathlib.Path(page).read_text(encoding="utf-8")
    found = re.findall(r"(?ms)^```text systemd\n(.*?)^```\n(?:^```text systemd-output\n(.*?)^```)?", text)
    return [(command, [".*".join(map(re.escape, line.split("…"))) for line in (output or "").splitlines()])
            for command, output in found]


def test_manual(check):
    """docs/OPERATIONS.md, command by command: a token as a credential, another address, a restart, a hand-over, a log."""
    found = blocks(f"{SOURCE}/docs/OPERATIONS.md")
    check(len(found) >= 5, f"{len(found)} blocks of the manual need systemd")
    for command, expected in found:
        done = run("sh", "-e", "-c", command)
        printed = (done.stdout + done.stderr).splitlines()
        right = done.returncode == 0 and len(printed) == len(expected) and all(map(re.fullmatch, expected, printed))
        check(right, f"the manual's\n{command}ended with {done.returncode}, printed {printed}, expected {expected}")
    told = run("ss", "-Hltn", "sport = :7311").stdout.split()
    check.contains(told, "0.0.0.0:7311", "its address for all hosts")


def test_library_and_module(check):
    source = pathlib.Path("/tmp/program.c")
    source.write_text('#include <weir.h>\n#include <stdio.h>\nint main(void) { return !weir_strerror(0); }\n', encoding="ascii")
    flags = run("pkg-config", "--cflags", "--libs", "weir", check=True).stdout.split()
    run("cc", "-o", "/tmp/program", str(source), *flags, check=True)
    check.equal(run("/tmp/program").returncode, 0, "a program with pkg-config's flags")
    check.contains(run("ldd", "/tmp/program").stdout, "/lib/", "by the shared library")
    module = glob.glob("/usr/lib/*/weir/weir_redis.so")
    check.equal(len(module), 1, "the module")
    with redis_server.Server(f"--loadmodule {module[0]}") as redis, redis.client() as client:
        check.equal(client.call("WEIR.TAKE", "k", "token-bucket 1/s")[0], 1, "Redis has loaded it")


SITE = """weir_zone clients 1m;
server {
    listen 127.0.0.1:8080;
    weir_limit key=$binary_remote_addr zone=clients "fixed-window 4/d from-first";
    root /var/www/html;
}
"""
MODULE_LINK = pathlib.Path("/etc/nginx/modules-enabled/50-mod-http-weir.conf")


def limited():
    """(status, RateLimit) of a request to nginx; None: it is not there."""
    try:
        with http_client.Client(8080, timeout=5) as client:
            answer = client.get("/")
            return answer.status, answer.fields.get("ratelimit", "").split(";")[1:2]
    except (OSError, EOFError):
        return None


def test_nginx(check):
    """The module: installed, loaded by nginx's own service, counted over a reload and an upgrade, removed."""
    pathlib.Path("/var/www/html").mkdir(parents=True, exist_ok=True)
    pathlib.Path("/var/www/html/index.html").write_text("limited\n", encoding="ascii")
    done = install("libnginx-mod-http-weir")
    check.equal(done.returncode, 0, f"dpkg -i: {done.stdout}{done.stderr}")
    check(MODULE_LINK.exists(), "a line loads the module")
    pathlib.Path("/etc/nginx/conf.d/weir.conf").write_text(SITE, encoding="ascii")
    done = run("nginx", "-t")
    check.equal(done.returncode, 0, f"nginx -t: {done.stderr}")
    run("systemctl", "start", "nginx", check=True)
    check.equal(limited(), (200, ["r=3"]), "a request passes")
    run("systemctl", "reload", "nginx", check=True)
    check.equal(limited(), (200, ["r=2"]), "a reload keeps what was counted")
    before = shown("MainPID", "nginx.service")
    check.equal(install("libnginx-mod-http-weir").returncode, 0, "an upgrade")
    check.equal(limited(), (200, ["r=1"]), "so does an upgrade of the package")
    check.equal(shown("MainPID", "nginx.service"), before, "by the same nginx")
    check.equal((limited(), limited()), ((200, ["r=0"]), (429, ["r=0"])), "the limit is the limit")
    check.equal(run("dpkg", "-r", "libnginx-mod-http-weir").returncode, 0, "dpkg -r")
    check(limited() is not None, "nginx serves on")
    pathlib.Path("/etc/nginx/conf.d/weir.conf").unlink()
    check.equal(run("nginx", "-t").returncode, 0, "without the module and its directives, too")
    check.equal(run("dpkg", "--purge", "libnginx-mod-http-weir").returncode, 0, "dpkg --purge")
    left = list(MODULE_LINK.parent.glob("*weir*")) + list(pathlib.Path("/usr/lib/nginx/modules").glob("*weir*"))
    check.equal(left, [], "nothing is left")
    run("systemctl", "stop", "nginx", check=True)


def test_removal(check):
    run("systemctl", "stop", "weir.socket", "weir.service")
    check.equal(run("dpkg", "-r", "weir").returncode, 0, "dpkg -r")
    check(pathlib.Path("/etc/weir/policies.yaml").exists() and ZONE.exists(), "what was configured and counted stays")
    check.equal(run("dpkg", "--purge", "weir").returncode, 0, "dpkg --purge")
    left = [path for path in ("/etc/default/weir", "/etc/weir/policies.yaml", "/var/lib/weir", "/var/lib/private/weir",
                              "/lib/systemd/system/weir.service", "/usr/bin/weir") if os.path.lexists(path)]
    check.equal(left, [], "nothing is left")


TESTS = [test_install, test_sandbox, test_restart, test_hand_over, test_upgrade, test_reload, test_crash,
         test_manual, test_library_and_module, test_nginx, test_removal]


def main():
    check = checks.Checks()
    try:
        for test in TESTS:
            checks.run_one(check, test)
    finally:
        (HOST / "counts").write_text(f"{check.passed} {check.failed}\n", encoding="ascii")


if __name__ == "__main__":
    main()
