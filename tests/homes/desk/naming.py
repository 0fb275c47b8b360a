#!/usr/bin/env python3
"""How logs, lines and fields are named to weir replay and weir suggest: lists of values, files that are given twice or still grow, header fields, limits of
other programs. What cannot be meant gets an error that says what to write.

    tests/homes/desk/naming.py [NAME …]
"""
import atexit
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from lib import checks, nginx_server, weir_server

T = 1794787200  # 2026-11-16T00:00:00Z
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weir-naming-"))
atexit.register(shutil.rmtree, FOLDER, True)

Done = collections.namedtuple("Done", "out err code")


def weir(*words, text=None):
    done = subprocess.run([str(weir_server.WEIR), *map(str, words)], input=text, capture_output=True, timeout=600, env=weir_server.environment(),
                          stdin=None if text is not None else subprocess.DEVNULL)
    return Done(done.stdout.decode(), done.stderr.decode(), done.returncode)


def line(at, ip, status=200, method="GET"):
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + int(at)))
    return f'{ip} - - [{stamp}] "{method} /login HTTP/1.1" {status} 512 "-" "curl/8.1"\n'


def visits(count=3000, seconds=600):
    """Each second, some of 30 visitors; statuses and methods in turn."""
    draw = random.Random(checks.seed())
    return [line(i * seconds / count, f"192.0.2.{draw.randint(1, 30)}", (200, 401, 403, 429)[i % 4], ("GET", "POST")[i % 2]) for i in range(count)]


def write(name, lines):
    path = FOLDER / name
    path.write_text("".join(lines))
    return path


def requests(check, path, *words):
    done = weir("replay", "token-bucket 1/s", "--json", path, *words)
    return json.loads(done.out)["requests"] if check.equal(done.code, 0, f"{words}: {done.err}") else None


# ---- lines ----

def test_lists(check):
    """Several values of a condition: a status also with commas, as nginx's on= has them. For others the error says how to write them."""
    path = write("lists.log", visits())
    for text, count in (("status=401,429", 1500), ("status=401|429", 1500), ("status!=401,429", 1500), ("status=401,4xx", 2250), ("status!=429", 2250)):
        check.equal(requests(check, path, "--where", text), count, text)
    for text, said in {"method=GET,POST": "between values write |, like GET|POST", "ip=192.0.2.1,192.0.2.2": "between values write |, like 192.0.2.1|192.0.2.2",
                       "status=401,,429": "a value is empty"}.items():
        done = weir("replay", "token-bucket 1/s", "--where", text, path)
        check.equal(done.code, 2, f"{text}: an error")
        check.contains(done.err, said, f"{text}: says what to write")
    told = json.loads(weir("suggest", "--json", "--where", "status=401,429", path).out)
    for it in told["suggestions"]:
        check.contains(it["nginx"] or "", " on=401,429", "nginx's line has the list")
        check.contains(it["nginx"] or "", "weir_zone status-401", "its zone is named by the first")


# ---- files ----

def test_twice(check):
    """One file, named twice, is an error that names it; files that are alike are not."""
    path, other = write("twice.log", visits(400)), write("other.log", visits(400))
    (FOLDER / "link.log").symlink_to(path)
    os.link(path, FOLDER / "hard.log")
    (FOLDER / "sub").mkdir()
    limit = ["replay", "token-bucket 1/s"]
    for command in (limit, ["suggest"]):
        done = weir(*command, path, other, path)
        check.equal((done.code, done.out), (2, ""), f"{command[0]}: an error {done.err}")
        check.contains(done.err, f"{path} is given twice: its lines would count twice", f"{command[0]}: names it")
        for again in (FOLDER / "link.log", FOLDER / "hard.log", f"{FOLDER}/sub/../twice.log"):
            done = weir(*command, path, again)
            check.equal(done.code, 2, f"{command[0]}: {again} is the same file")
            check.contains(done.err, f"{path} is given twice, also as {again}:", f"{command[0]}: names both")
    with path.open("rb") as log:
        done = subprocess.run([str(weir_server.WEIR), *limit, str(path), "-"], stdin=log, capture_output=True, timeout=600, env=weir_server.environment())
    check.equal(done.returncode, 2, f"standard input is the same file: {done.stderr}")
    check.equal(weir(*limit, path, other).code, 0, "two files with the same lines")
    check.equal(weir(*limit, FOLDER / "nobody.log", FOLDER / "nobody.log").code, 3, "what is not there is told as ever")


def test_growing(check):
    """A log that grows while it is read: all passes read the same of it, and nothing is told. One that is shortened is an error."""
    path = write("growing.log", visits(9000, 900))
    done, ended = [], threading.Event()

    def grow():
        with path.open("a") as log:
            for i in range(2000000):
                if ended.is_set():
                    break
                log.write(line(900 + i / 1000, "192.0.2.40"))
                log.flush()
    thread = threading.Thread(target=grow)
    thread.start()
    try:
        done.append(weir("suggest", "--json", path))
        done.append(subprocess.run([str(weir_server.WEIR), "suggest", "--json"], stdin=path.open("rb"), capture_output=True, text=True, timeout=600, env=weir_server.environment()))
    finally:
        ended.set()
        thread.join()
    check.equal((done[0].code, done[0].err), (0, ""), "a file that grows")
    check.equal((done[1].returncode, done[1].stderr), (0, ""), "standard input that grows")
    for told in (json.loads(done[0].out), json.loads(done[1].stdout)):
        check.equal(told["chosen_on"]["requests"] + told["judged_on"]["requests"], told["requests"], "both halves are the whole")


# ---- fields ----

def test_headers(check):
    """--field names a header field as policies do, and says where the log has it."""
    rows = [{"time": T + i, "ip": "192.0.2.1", "client": {"token": f"k{i % 3}"}, "headers": {"x-api-key": "proxy"}} for i in range(30)]
    path = write("headers.json", [json.dumps(row) + "\n" for row in rows])
    table = write("headers.csv", ["time,ip,tok\n", *(f"{T + i},192.0.2.1,k{i % 3}\n" for i in range(30))])
    for name in ("header.x-api-key", "header.X-Api-Key"):
        for log, place in ((path, "client.token"), (table, "tok")):
            done = weir("replay", "token-bucket 1/s", "--json", "--key", "header.x-api-key", "--field", f"{name}={place}", log)
            told = json.loads(done.out) if check.equal(done.code, 0, f"{name} of {log.name}: {done.err}") else {}
            check.equal(told.get("keys"), 3, f"{name} of {log.name}: the keys that the log has there")
    done = weir("replay", "token-bucket 1/s", "--key", "header.x-api-key", "--field", "header.x-api-key=client.tok", path)
    check.equal(done.code, 2, "a place that no line has")
    check.contains(done.err, 'invalid --field "header.x-api-key=client.tok": no line of the log has client.tok', "a place that no line has: says so")
    check.contains(weir("replay", "token-bucket 1/s", "--field", "token=x", path).err, "key and cost, or header.NAME", "what may be named")


# ---- what is decided ----

def test_both(check):
    """LIMITS beside --policies or --limit: the error names both, and what to drop."""
    path, policies = write("both.log", visits(100)), write("both.yaml", ["version: 1\npolicies:\n  - {name: a, key: ip, limit: fixed-window 1/m}\n"])
    for words, said in {("--policies", str(policies)): 'LIMITS "token-bucket 1/s" and --policies exclude each other: drop one of them',
                        ("--limit", "a=fixed-window 1/m"): 'LIMITS "token-bucket 1/s" and --limit exclude each other: drop LIMITS, or write it as --limit NAME=LIMITS'}.items():
        done = weir("replay", "token-bucket 1/s", *words, path)
        check.equal((done.code, done.out), (2, ""), f"{words[0]}: an error")
        check.contains(done.err, said, f"{words[0]}: says what to drop")
        check.equal(weir("replay", *words, path).code, 0, f"{words[0]}: alone it works")
    check.contains(weir("replay", "--limit", "a=fixed-window 1/m", "--policies", policies, path).err, "exclude each other: drop one of them", "both options")


def test_nothing(check):
    """An empty file is named. Limits that applied to no request are in the JSON, too."""
    empty = write("empty.log", [])
    check.contains(weir("replay", "token-bucket 1/s", empty).err, f"{empty} has no requests", "an empty file is named")
    check.contains(weir("replay", "token-bucket 1/s", text=b"").err, "standard input has no requests", "an empty pipe is named")
    path = write("nothing.log", visits(100))
    policies = write("nothing.yaml", ["version: 1\npolicies:\n  - {name: a, key: ip, limit: fixed-window 1/m}\n  - {name: b, match: {path: /nowhere}, key: ip, limit: fixed-window 1/m}\n"])
    done = weir("replay", "--json", "--policies", policies, path)
    check.equal(json.loads(done.out).get("unapplied"), ["b"], "the policy that applied to no request")
    check.contains(done.err, "b applied to no request", "as stderr says")


# ---- what is pasted ----

def test_nginx(check):
    """No zone refuses new keys, as LOGIN says. A network of IPv4 is a map, and its keys are those of policies."""
    path = write("nginx.log", visits())
    for words in (("--where", "path=/login"), ("--where", "status=401"), ("--where", "method=POST"), ()):
        told = json.loads(weir("suggest", "--json", path, *words).out)["suggestions"]
        check(told, f"{words}: there are suggestions")
        check(all(" 10m;" in it["nginx"] and "full=deny" not in it["nginx"] for it in told), f"{words}: nobody is shut out by a flood of new addresses")
    wide = write("wide.log", [line(i / 5, f"198.51.{i % 40}.{i % 7}") for i in range(3000)])
    for key, network in (("ip/24", "127.0.0.0/24"), ("ip/16/64", "127.0.0.0/16"), ("ip/8", "127.0.0.0/8")):
        it = json.loads(weir("suggest", "--json", "--deny-keys", "0%", "--key", key, wide).out)["suggestions"][0]
        check.contains(it["nginx"] or "", "key=clients:$clients_network ", f"{key}: the limit has it")
        if it["nginx"]:
            http = it["nginx"].partition("weir_limit")[0]
            server = "listen {port}; root {folder}; location / { add_header X-Network $clients_network; empty_gif; }" + it["nginx"][len(http):]
            with nginx_server.Nginx(http=http, server=server) as nginx:
                check.equal(nginx.get("/").fields.get("x-network"), network, f"{key}: as policies write it")
    check.equal(json.loads(weir("suggest", "--json", "--key", "ip/24/48", wide).out)["suggestions"][0]["nginx"], None, "ip/24/48: no variable has 48 bits of IPv6")


def test_joined(check):
    """Values that --where leaves out of one field, in several conditions, are one condition of the policy, of nginx, and of the replay."""
    path = write("joined.log", [*visits(), *(line(i, "192.0.2.77", 200, "PUT") for i in range(60))])
    for words, policy, nginx in (
            (["ip!=192.0.2.1", "method=GET", "ip!=192.0.2.2|192.0.2.3"], 'ip: {not: ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}', ""),
            (["method!=PUT", "method!=POST"], 'method: {not: ["PUT", "POST"]}', '{ default ""; PUT 1; POST 1; }'),
            (["user!=ann", "user!=*"], "user: {absent: true}", ""),
            (["status!=403", "status!=429"], None, "on=!403,!429")):
        where = [word for it in words for word in ("--where", it)]
        told = json.loads(weir("suggest", "--json", "--deny-keys", "100%", *where, path).out)
        check.equal(told["requests"], requests(check, path, *where), f"{words}: the same requests")
        it = told["suggestions"][0]
        if policy:
            check.contains(it["policy"] or "", policy, f"{words}: the policy")
        check.contains(it["nginx"] or "", nginx, f"{words}: nginx")
    for words in (["ip=192.0.2.0/24", "ip!=192.0.2.1"], ["path=/log*", "path=*in"], ["path=/login", "lower(path)!=/x"]):
        it = json.loads(weir("suggest", "--json", *(word for it in words for word in ("--where", it)), path).out)["suggestions"][0]
        check.equal((it["policy"], "write what all of them say as one" in it["notes"][0]), (None, True), f"{words}: what to do instead: {it['notes']}")


def limits(text, count):
    """The lines with this limit in place of theirs, in one zone."""
    return re.sub(r'zone=\S+ "[^"]*"', f'zone=one "fixed-window {count}/h from-first"', re.sub("weir_zone .*\n", "", text))


def parts(text):
    """Lines for http, and those for server."""
    at = re.search(r"^(weir_limit|location)", text, re.M).start()
    return text[:at], text[at:]


def test_pasted_together(check):
    """Lines of several keys stand beside each other. In one zone, no value that a client sends is the key of another limit, and a request without the
    value has none. A name that begins with a digit is no capture of nginx."""
    path = write("keys.json", [json.dumps({"time": T + i, "ip": f"192.0.2.{i % 9}", "user": f"u{i % 7}", "header.x-api-key": f"k{i % 5}", "path": "/2fa", "method": "POST"}) + "\n"
                               for i in range(300)])
    runs = [(), ("--key", "header.x-api-key"), ("--key", "user"), ("--where", "path=/2fa"), ("--where", "path=/2fa", "--key", "user")]
    told = [json.loads(weir("suggest", "--json", path, *words).out)["suggestions"] for words in runs]
    names = [re.findall(r'name: "?([^,"]+)', it["policy"])[0] for run in told for it in run]
    check.equal(names, [start + end for start in ("clients", "x-api-key", "user", "2fa", "2fa-user") for end in ("", "-window")], "their names")
    code, said = nginx_server.Nginx.check("".join(it["nginx"].partition("# in server")[0] for run in told for it in run) + "server { listen {port}; root {folder}; }")
    check.equal(code, 0, f"nginx takes all of them: {said}")
    http, server = parts(limits(told[0][0]["nginx"], 50))
    more, keys = parts(limits(told[1][0]["nginx"], 3))
    with nginx_server.Nginx(http="weir_zone one 1m;" + http + more, server="listen {port}; root {folder}; location / { empty_gif; }" + server + keys) as nginx:
        check.equal(nginx.statuses(["/"] * 5), [200] * 5, "without the value, its limit does not apply")
        for value in ("127.0.0.1", "clients:127.0.0.1"):
            check.equal(nginx.statuses(["/"] * 4, {"X-Api-Key": value}), [200, 200, 200, 429], f"{value}: it is no address")
    http, server = parts(limits(json.loads(weir("suggest", "--json", "--where", "path=/2fa", "--where", "method=POST", path).out)["suggestions"][0]["nginx"], 1))
    with nginx_server.Nginx(http="weir_zone one 1m;" + http, server="listen {port}; root {folder};" + server.replace("    # Repeat", "    empty_gif;\n    # Repeat")) as nginx:
        check.equal([nginx.get("/2fa", method=method).status for method in ("POST", "POST", "GET")], [405, 429, 200], "only POST is limited")


TESTS = [test_pasted_together, test_joined, test_lists, test_twice, test_growing, test_headers, test_both, test_nothing, test_nginx]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
