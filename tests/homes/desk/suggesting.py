#!/usr/bin/env python3
"""weir suggest on generated logs whose truth is known: it stops who should be stopped, spares who should be spared, and keeps its goal on the part
that it did not choose by. What it says is held against `weir replay` of that part; what it gives to paste against weir check and nginx.

    tests/homes/desk/suggesting.py [NAME …]
"""
import atexit
import collections
import fcntl
import gzip
import html
import json
import os
import pathlib
import pty
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

from lib import checks, nginx_server, weir_server

T = 1794787200  # 2026-11-16T00:00:00Z
WEIR = weir_server.WEIR
ATTACKER, SCRAPER, NAT = "203.0.113.9", "203.0.113.77", "192.0.2.1"
SAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "access.log.gz"  # a day of a shop
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weir-suggest-"))
atexit.register(shutil.rmtree, FOLDER, True)

Done = collections.namedtuple("Done", "out err code")


def weir(*words, text=None, env=None):
    done = subprocess.run([str(WEIR), *map(str, words)], input=text, capture_output=True, timeout=600,
                          env=weir_server.environment(env), stdin=None if text is not None else subprocess.DEVNULL)
    return Done(done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="surrogateescape"), done.returncode)


# ---- logs ----

def steady(draw, who, rate, start, end):
    """Requests at random times, so many per second."""
    at = start + draw.expovariate(rate)
    while at < end:
        yield at, who
        at += draw.expovariate(rate)


def users(draw, count, seconds, pause):
    """Sessions of 10 to 40 s at 0.1 to 2 requests per second, with pauses between them."""
    rows = []
    for i in range(count):
        at = draw.uniform(0, pause)
        while at < seconds:
            end = min(at + draw.uniform(10, 40), seconds)
            rows += steady(draw, f"198.51.{i // 250}.{i % 250 + 1}", draw.uniform(0.1, 2), at, end)
            at = end + draw.expovariate(1 / pause)
    return rows


def line(at, ip):
    return f'{ip} - - [{time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + int(at)))}] "GET / HTTP/1.1" 200 512 "-" "curl/8.1"\n'


def write(name, rows):
    path = FOLDER / name
    path.write_text("".join(line(at, ip) for at, ip in sorted(rows)))
    return path


def attack(draw):
    return write("attack.log", [*users(draw, 250, 400, 60), *steady(draw, ATTACKER, 50, 0, 400)])


def burst(draw):
    """Two hours; at each full hour everybody comes at once, with up to 20 requests."""
    rows = [*users(draw, 250, 7200, 1500), *steady(draw, ATTACKER, 50, 3000, 3300), *steady(draw, ATTACKER, 50, 5000, 5300)]
    for hour in (1800, 5400):
        rows += [(hour + draw.uniform(0, 3), f"198.51.{i // 250}.{i % 250 + 1}") for i in range(250) for _ in range(draw.randint(5, 20))]
    return write("burst.log", rows)


def scrape(draw):
    """Six hours; one asks every four seconds, never faster than users do."""
    return write("scrape.log", [*users(draw, 250, 21600, 5000), *((i * 4.0, SCRAPER) for i in range(5400))])


def nat(draw):
    """200 users behind one address ask for four times as much as the attacker."""
    rows = [*users(draw, 250, 120, 20), *steady(draw, ATTACKER, 50, 0, 120)]
    for _ in range(200):
        rows += steady(draw, NAT, draw.uniform(0.1, 2), 0, 120)
    return write("nat.log", rows)


# ---- what it says, held against others ----

def second_part(path, told):
    """The lines of the part that it judged by, cut out by their times."""
    start = round(told["judged_on"]["from"])
    other = path.with_suffix(".second")
    stamps = {}
    with path.open() as log, other.open("w") as out:
        for row in log:
            stamp = row.split("[", 1)[1][:20]
            if stamp not in stamps:
                stamps[stamp] = time.strptime(stamp, "%d/%b/%Y:%H:%M:%S")
            if int(time.mktime(stamps[stamp]) - time.timezone) >= start:
                out.write(row)
    return other


def nginx_takes(text):
    """Whether nginx takes lines to paste: those for the server go into one. Its exit code, and what it says."""
    http, _, server = text.partition("# in server { ... }:\n")
    return nginx_server.Nginx.check(http + "server { listen {port}; root {folder}; " + server + "}")


def hold_against_replay(check, path, told, what, *spare):
    """`weir replay` of the second part counts what suggest said; so does a replay of the policy that is to be pasted."""
    part = second_part(path, told)
    for it in told["suggestions"]:
        name = f"{what}: {it['limits']}"
        key = ("--key", "'all'") if it["total"] else ()
        judged = it["judged"]
        policy = FOLDER / "policy.yaml"
        policy.write_text(it["policy_file"])
        checked = weir("check", policy)
        check.equal(checked.code, 0, f"{name}: weir check takes {it['policy']!r}: {checked.err}")
        by_policy = json.loads(weir("replay", "--policies", policy, "--memory", "64m", "--json", part).out)
        check.equal(by_policy["denied"], judged["denied"], f"{name}: the policy denies as much: {it['policy']}")
        words = [word for other in spare if it["left_out"] for word in ("--spare", other)]
        seen = json.loads(weir("replay", it["limits"], "--json", *key, *words, part).out)
        check.equal((judged["allowed"], judged["denied"], judged["delayed"]), (seen["allowed"], seen["denied"], seen["delayed"]), f"{name}: as replay says")
        check.equal(judged["highest_1s"], seen["highest_admitted"]["1s"], f"{name}: the highest rate as replay says")
        if not it["total"]:
            check.equal(told["judged_on"]["keys"], seen["keys"], f"{name}: all keys as replay says")
            check.equal(judged["keys_denied"], seen["keys_denied"], f"{name}: denied keys as replay says")
            check.equal([(key["key"], key["denied"]) for key in judged["most_denied"]],
                        [(key["key"], key["denied"]) for key in seen["most_denied"]], f"{name}: the worst as replay says")
            check.equal(judged.get("keys_delayed"), seen["keys_delayed"], f"{name}: delayed keys as replay says")
            check.equal([(key["key"], key["delayed"]) for key in judged.get("most_delayed", ())],
                        [(key["key"], key["delayed"]) for key in seen["most_delayed"]], f"{name}: who waits most as replay says")
        code, said = nginx_takes(it["nginx"])
        check.equal(code, 0, f"{name}: nginx takes {it['nginx']!r}: {said}")
        check(it["policy"].startswith("- {name: clients"), f"{name}: the policy is an entry")


def hold_against_terminal(check, path, told, what, *words):
    """The text for people has the same counts."""
    out = weir("suggest", path, *words).out
    denied = [tuple(map(int, found)) for found in re.findall(r"^  denied +(\d+) of (\d+) requests", out, re.M)]
    keys = [tuple(map(int, found)) for found in re.findall(r"^ +(\d+) of (\d+) keys?, ", out, re.M)]
    limits = re.findall(r"^\d\. (.*?)  for ", out, re.M)
    part = told["judged_on"]
    check.equal(limits, [it["limits"] for it in told["suggestions"]], f"{what}: limits as in JSON")
    check.equal(denied, [(it["judged"]["denied"], part["requests"]) for it in told["suggestions"]], f"{what}: denied requests as in JSON")
    check.equal(keys, [(it["judged"]["keys_denied"], part["keys"]) for it in told["suggestions"]], f"{what}: denied keys as in JSON")
    for it in told["suggestions"]:
        check.contains(out, it["policy"], f"{what}: the policy is shown")
        check.contains(out, it["nginx"].splitlines()[-1], f"{what}: nginx's line is shown")
    check(all(len(row) <= 80 for row in out.splitlines() if "{name" not in row and "weir_limit" not in row), f"{what}: fits 80 columns")
    check("\033" not in out, f"{what}: without a terminal no colours")
    check.equal("--spare ADDRESS" in out, "--spare" not in words, f"{what}: a hint that addresses may be shared")


def suggest(check, path, what, *words, code=0):
    done = weir("suggest", "--json", path, *words)
    check.equal(done.code, code, f"{what}: its exit code {done.err}")
    return json.loads(done.out)


def meets(check, told, what, goal=0.01):
    for it in told["suggestions"]:
        judged, part = it["judged"], told["judged_on"]
        check(judged["keys_denied"] <= goal * part["keys"], f"{what}: {it['limits']}: {judged['keys_denied']} of {part['keys']} keys is the goal")
        check(it["meets_goal"], f"{what}: {it['limits']}: says so")
        keys = judged["keys_part"]
        check(keys["low"] <= keys["part"] <= keys["high"] and keys["high"] > keys["low"], f"{what}: an interval around it: {keys}")


def stops(told, who):
    """The part of somebody's requests that the best suggestion denies."""
    return max(key["denied"] / key["requests"] for it in told["suggestions"] for key in it["judged"]["most_denied"] + [{"key": who, "denied": 0, "requests": 1}]
               if key["key"] == who)


def test_attacker(check):
    path = attack(random.Random(checks.seed()))
    told = suggest(check, path, "an attacker")
    check.equal(told["goal"], {"deny_keys": 0.01, "at_least": 1, "default": True}, "an attacker: the usual goal")
    check(len(told["suggestions"]) >= 2, "an attacker: two limits of different kinds")
    check.equal(len({it["name"] for it in told["suggestions"]}), len(told["suggestions"]), "an attacker: of different kinds")
    for it in told["suggestions"]:
        worst = it["judged"]["most_denied"][0]
        check.equal(worst["key"], ATTACKER, f"an attacker: {it['limits']} denies it most")
        check(worst["denied"] > 0.8 * worst["requests"], f"an attacker: {it['limits']} stops it: {worst}")
    meets(check, told, "an attacker")
    hold_against_replay(check, path, told, "an attacker")
    hold_against_terminal(check, path, told, "an attacker")
    spans = [row["span"] for row in told["peaks"]]
    check.equal(spans, [1, 60], "an attacker: peaks of spans that the log has")
    check(all(row["p50"] <= row["p90"] <= row["p99"] <= row["p99.9"] <= row["most"] for row in told["peaks"]), "an attacker: percentiles in order")
    counts = collections.Counter((row.split(" ", 1)[0], row.split("[", 1)[1][:20]) for row in path.open())
    check.equal(told["peaks"][0]["most"], max(counts.values()), "an attacker: the peak of a second, counted")
    piped = weir("suggest", "--json", text=path.read_bytes())
    check.equal(json.loads(piped.out)["suggestions"], told["suggestions"], f"the same from a pipe {piped.err}")
    with path.open("rb") as log:
        done = subprocess.run([str(WEIR), "suggest", "--json"], stdin=log, capture_output=True, timeout=600, env=weir_server.environment())
    check.equal(json.loads(done.stdout)["suggestions"], told["suggestions"], "the same from standard input that is a file")
    few = suggest(check, path, "few requests", "--deny-requests", "0.1%")
    for it in few["suggestions"]:
        check(it["judged"]["denied"] <= 0.001 * few["judged_on"]["requests"] or not it["meets_goal"], f"few requests: {it['limits']} says whether it meets the goal")
    check(any(it["meets_goal"] for it in few["suggestions"]), "few requests: one that meets it")


def test_burst(check):
    path = burst(random.Random(checks.seed() + 1))
    told = suggest(check, path, "a burst at the full hour")
    check(stops(told, ATTACKER) > 0.8, "a burst at the full hour: the attacker is stopped")
    meets(check, told, "a burst at the full hour")
    hold_against_replay(check, path, told, "a burst at the full hour")


def test_scraper(check):
    path = scrape(random.Random(checks.seed() + 2))
    told = suggest(check, path, "a slow scraper")
    first = told["suggestions"][0]
    check.equal(first["judged"]["most_denied"][0]["key"], SCRAPER, f"a slow scraper: {first['limits']} denies it most")
    check(stops(told, SCRAPER) > 0.3, f"a slow scraper: it is held back: {stops(told, SCRAPER)}")
    meets(check, told, "a slow scraper")
    hold_against_replay(check, path, told, "a slow scraper")


def test_nat(check):
    path = nat(random.Random(checks.seed() + 3))
    told = suggest(check, path, "a NAT address", "--spare", NAT)
    check.equal(told["spared"]["keys"], 1, "a NAT address: is found")
    check(told["spared"]["left_out"], "a NAT address: it asks for more than the attacker, so it is left out")
    check(stops(told, ATTACKER) > 0.8, "a NAT address: the attacker is stopped")
    for it in told["suggestions"]:
        check.equal(it["judged"]["spared_denied"], 0, f"a NAT address: {it['limits']} spares it")
        check(all(key["key"] != NAT for key in it["judged"]["most_denied"]), f"a NAT address: {it['limits']} does not name it")
        check.contains(it["nginx"], f"{NAT} 1;", "a NAT address: nginx's line has it")
    meets(check, told, "a NAT address")
    hold_against_replay(check, path, told, "a NAT address", NAT)
    hold_against_terminal(check, path, told, "a NAT address", "--spare", NAT)
    network = suggest(check, path, "a network to spare", "--spare", "192.0.2.0/24")
    check.equal([it["judged"] for it in network["suggestions"]], [it["judged"] for it in told["suggestions"]], "a network to spare: the same")
    without = suggest(check, path, "a NAT address, not spared")
    check(any(key["key"] == NAT for it in without["suggestions"] for key in it["judged"]["most_denied"]), "a NAT address, not spared: is hurt")
    user = suggest(check, path, "a user to spare", "--spare", "198.51.0.7")
    check(not user["spared"]["left_out"], "a user to spare: the limit is loose enough")
    check(all(it["judged"]["spared_denied"] == 0 for it in user["suggestions"]), "a user to spare: is spared")


def test_protect(check):
    path = FOLDER / "attack.log"
    if not path.exists():
        attack(random.Random(checks.seed()))
    told = suggest(check, path, "protect", "--protect", "100/s")
    check(any(it["total"] for it in told["suggestions"]), "protect: a limit for all together")
    for it in told["suggestions"]:
        check.equal(it["judged"]["highest_1s"] <= 100, it["meets_goal"], f"protect: {it['limits']} says whether it keeps 100/s")
        check(it["meets_goal"] or not it["total"], f"protect: {it['limits']} keeps it")
    hold_against_replay(check, path, told, "protect")
    check.contains(weir("suggest", path, "--protect", "100/s").out, f"  most delayed  {ATTACKER}: ", "protect: who waits is named")
    waits = [it["judged"]["most_delayed"][0]["key"] for it in told["suggestions"] if it["judged"].get("most_delayed")]
    check(ATTACKER in waits, f"protect: who waits is named, for machines: {waits}")
    none = suggest(check, path, "protect too much", "--protect", "5/s", "--spare", ATTACKER, code=1)
    check.equal((none["verdict"], none["suggestions"]), ("no limit", []), "protect too much: no limit")
    check(none["reason"] and none["advice"], "protect too much: it says why, and what to do")


def test_nothing_to_say(check):
    draw = random.Random(checks.seed() + 4)
    few = write("few.log", users(draw, 12, 600, 30))
    told = suggest(check, few, "12 keys", "--deny-keys", "1%", code=1)
    check.equal(told["verdict"], "too short", "12 keys: 1% of them says nothing")
    check.contains(told["reason"], "12 keys is less than one key", "12 keys: the reason")
    out = weir("suggest", few, "--deny-keys", "1%").out
    check.contains(out, "The log says too little for a suggestion.", "12 keys: in words")
    usual = suggest(check, few, "12 keys, no goal")
    check.equal(usual["goal"], {"deny_keys": 0.01, "at_least": 1, "default": True}, "12 keys, no goal: the usual one")
    empty = FOLDER / "empty.log"
    empty.write_text("")
    check.equal(suggest(check, empty, "an empty log", code=1)["verdict"], "too short", "an empty log: too short")
    check.equal(weir("suggest", text=b"").code, 1, "an empty pipe: too short")
    one = write("one.log", steady(draw, NAT, 20, 0, 200))
    told = suggest(check, one, "one key")
    check.equal(told["goal"], {"deny_keys": 0, "default": True}, "one key, no goal: nobody is denied")
    check(all(it["judged"]["denied"] == 0 for it in told["suggestions"] if it["meets_goal"]), "one key: it fits")
    check.equal(suggest(check, one, "one key", "--deny-keys", "1%", code=1)["verdict"], "too short", "one key: 1% of it says nothing")
    short = write("short.log", [(i / 10, f"198.51.100.{i % 200}") for i in range(90)])
    check.contains(suggest(check, short, "nine seconds", code=1)["reason"], "long: it needs 10 s", "nine seconds: too short")
    half = write("half.log", [*users(draw, 150, 60, 10), (4000, NAT)])
    check.equal(suggest(check, half, "an empty half", "--deny-keys", "1%", code=1)["verdict"], "too short", "an empty half: too short")
    more = write("more.log", [*users(draw, 150, 100, 20), *((at + 100, ip) for at, ip in users(draw, 150, 100, 20) for _ in range(30))])
    told = suggest(check, more, "a day that changes", "--deny-keys", "1%", code=1)
    check.equal(told["verdict"], "no limit", "a day that changes: no limit")
    check(told["suggestions"] and not any(it["meets_goal"] for it in told["suggestions"]), "a day that changes: what was tried is shown")


def test_unknown_names(check):
    """If no line has the key, the fields that there are are named, and what to do."""
    log = FOLDER / "peers.json"
    log.write_text("".join(json.dumps({"ts": T + i, "peer": f"192.0.2.{i % 9}", "an\033[31m": {"deep": 1}, "uri": "/"}) + "\n" for i in range(300)))
    for words in (["suggest", log], ["replay", "token-bucket 1/s", log]):
        out = weir(*words).out
        check.contains(out, "the first line has the fields ts, peer, an\\u001b[31m.deep, uri;", f"{words[0]}: names the fields, also nested ones")
        check("\033" not in out, f"{words[0]}: masked")
        check.contains(out, "--field ip=NAME says which one is the address, --key which one is the key", f"{words[0]}: what to do")
        seen = json.loads(weir(*words, "--field", "ip=peer", "--json").out)
        check.equal((seen["requests"], seen["keys"]), (300, 9), f"{words[0]}: and that works")
        out = weir(*words, "--key", "header.x-peer").out
        check.contains(out, "no line has header.x-peer\n    the first line has", f"{words[0]}: a key that no line has")
        check.contains(out, "--field header.x-peer=NAME says which one it is, --key another key", f"{words[0]}: what to do then")
        seen = json.loads(weir(*words, "--key", "header.x-peer", "--field", "header.x-peer=peer", "--json").out)
        check.equal((seen["requests"], seen["keys"]), (300, 9), f"{words[0]}: and that works, too")
    check.equal(suggest(check, log, "no key", "--key", "header.x-peer", code=1)["reason"], "No line has a value for the key header.x-peer.", "suggest: the reason")
    log.write_text(log.read_text() + json.dumps({"ts": T + 301, "ip": "192.0.2.1"}) + "\n")
    check("has the fields" not in weir("replay", "token-bucket 1/s", log).out, "some lines have the key: nothing to guess")


def test_arguments(check):
    log = write("args.log", users(random.Random(checks.seed() + 5), 120, 200, 20))
    wrong = {
        ("--deny-keys", "1"): 'invalid --deny-keys "1": expected a part from 0% to 100%',
        ("--deny-keys", "101%"): 'invalid --deny-keys "101%"',
        ("--deny-keys", "-1%"): 'invalid --deny-keys "-1%"',
        ("--deny-keys", "%"): 'invalid --deny-keys "%"',
        ("--deny-requests", "0.12345%"): "at most four decimals",
        ("--deny-requests", "1e-3%"): 'invalid --deny-requests "1e-3%"',
        ("--deny-requests", "nan%"): 'invalid --deny-requests "nan%"',
        ("--protect", "500"): 'invalid --protect "500": expected requests per second or minute',
        ("--protect", "0/s"): 'invalid --protect "0/s"',
        ("--protect", "5/h"): 'invalid --protect "5/h"',
        ("--protect", "5/s, fixed-window 1/s"): "invalid --protect",
        ("--spare", "10.0.0.1/8"): 'invalid --spare "10.0.0.1/8"',
        ("--spare", ""): 'invalid --spare "": it is empty',
        ("--spare", "203.0.113.200"): 'invalid --spare "203.0.113.200": no key of the log is like this',
        ("--spare", "ev\033[31mil"): "ev?[31mil",
        ("--memory", "1k"): "invalid --memory",
        ("--report", str(log)): "that is the log",
        ("--follow",): 'unknown option "--follow"',
        ("--key", "nonsense("): "",
        ("--spare", "a" * 3000): "no key of the log is like this",
    }
    for words, said in wrong.items():
        got = weir("suggest", log, *words)
        check.equal(got.code, 2, f"{words}: {got.err}")
        check.contains(got.err, said, f"{words}: says what is wrong")
        check("\033" not in got.err and got.out == "", f"{words}: nothing else")
    check.equal(weir("suggest", FOLDER / "nobody.log").code, 3, "a file that is not there")
    check.equal(weir("suggest", FOLDER).code, 2, "a folder")
    got = weir("suggest", log, "-", text=b"")
    check.contains(got.err, "each must be a file", "a file and standard input")
    check.equal(weir("suggest", log, env={"TMPDIR": "/nowhere"}).code, 0, "a file needs no copy")
    got = weir("suggest", text=log.read_bytes(), env={"TMPDIR": "/nowhere"})
    check.equal(got.code, 3, f"no room for a copy: {got.err}")
    check.contains(got.err, "cannot keep a copy of standard input in /nowhere", "no room for a copy: says so")
    got = subprocess.run(["sh", "-c", f"exec '{WEIR}' suggest <&-"], capture_output=True, timeout=600, env=weir_server.environment())
    check.equal((got.returncode, got.stdout), (3, b""), f"standard input is closed: it is not an empty log {got.stderr}")
    odd = FOLDER / "odd.log"
    odd.write_text("a 1728568536.120\n" * 20)
    for words, said in {("--disorder", "2h"): 'invalid disorder "7200s": lines may be at most 1h', ("--cost", "nonsense"): "have no field nonsense; they have ip,"}.items():
        check.contains(weir("suggest", log, *words).err, said, f"{words}: names what is wrong")
    check.contains(weir("suggest", odd, "--format", "$name $msec").err, "have no field ip, and no other that has a known name; say which one it is: --field ip=NAME",
                   "no known field: says what to do")
    fifo = FOLDER / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cp", str(log), str(fifo)]):
        piped = suggest(check, fifo, "a pipe with a name")
    check.equal(piped["suggestions"], suggest(check, log, "a file")["suggestions"], "a pipe with a name: as the file")
    page = FOLDER / "page.html"
    check.equal(weir("suggest", log, "--report", page).code, 0, "a page")
    told = suggest(check, log, "for the page")
    text = page.read_text()
    for it in told["suggestions"]:
        check.contains(text, f"<code>{it['limits']}</code>", "a page: names the limits")
        count = f"{it['judged']['allowed']:,}".replace(",", "\u202f")
        check.contains(text, f"<b>{count}</b><span>allowed</span>", "a page: has the same counts")
    said = html.unescape(text)
    check("<title>weir suggest</title>" in said and "A key is who is limited" in said, "a page: says what it is about")
    for words in ("deny at most 1% of the keys", *(it["why"] for it in told["suggestions"]), *(it["nginx"].strip() for it in told["suggestions"]),
                  *(it["policy_file"].strip() for it in told["suggestions"])):
        check.contains(said, words, "a page: has the goal, the reasons and the texts to paste")
    check.equal(weir("suggest", SAMPLE, "--report", page).code, 0, "a page of the sample")
    said = html.unescape(page.read_text())
    check.contains(said, "1 of 508 keys, 0.20%; expect 0.035% to 1.11%", "a page: what to expect")
    check.contains(said, ", cut: the highest bar is 2\u202f446,", "a page: one peak does not flatten the day")
    check("\ufffd" not in said, "a page: every character is shown")


def test_hostile_keys(check):
    """Names in a log cannot command a terminal, and get into nothing that is pasted but by --spare, and then quoted."""
    draw = random.Random(checks.seed() + 6)
    evil, loud = 'x"]}], deny: [{path: "*"}] #\033]0;pwned\007\u009b31m', "bob'*\\"
    rows = [(at, f"user{who}") for at, who in users(draw, 150, 100, 10)]
    rows += [*steady(draw, evil, 20, 0, 100), *steady(draw, loud, 60, 0, 100)]
    log = FOLDER / "hostile.json"
    log.write_text("".join(json.dumps({"time": T + round(at, 6), "user": who, "path": "/"}) + "\n" for at, who in sorted(rows)))
    out = weir("suggest", log, "--key", "user")
    check.equal(out.code, 0, f"hostile keys: {out.err}")
    check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out.out), "hostile keys: no control character gets out")
    told = suggest(check, log, "hostile keys", "--key", "user")
    check(any(key["key"] == loud for it in told["suggestions"] for key in it["judged"]["most_denied"]), "hostile keys: the loudest is stopped")
    for it in told["suggestions"]:
        check("pwned" not in it["policy_file"] + it["nginx"], "hostile keys: nothing of them is pasted")
    for spared, other in ((loud, evil), (evil, loud)):
        told = suggest(check, log, "a hostile key to spare", "--key", "user", "--spare", spared)
        for it in told["suggestions"]:
            policy = FOLDER / "hostile.yaml"
            policy.write_text(it["policy_file"])
            checked = weir("check", policy)
            check.equal(checked.code, 0, f"a hostile key to spare: weir check takes {it['policy']!r}: {checked.err}")
            check("\033" not in it["policy_file"], "a hostile key to spare: escaped")
            part = FOLDER / "hostile.second"
            part.write_text("".join(row + "\n" for row in log.read_text().splitlines() if json.loads(row)["time"] >= told["judged_on"]["from"]))
            seen = json.loads(weir("replay", "--policies", policy, "--memory", "64m", "--key", "user", "--json", part).out)
            check.equal(seen["denied"], it["judged"]["denied"], f"a hostile key to spare: the policy spares it: {it['policy']}")
            check(it["nginx"] is None or not it["left_out"], "a hostile key to spare: geo has no names")


def test_selection(check):
    """Options that select become conditions of the policy."""
    draw = random.Random(checks.seed() + 7)
    rows = []
    for at, ip in [*users(draw, 150, 200, 20), *steady(draw, ATTACKER, 30, 0, 200)]:
        path, method = draw.choice([("/login", "POST"), ("/api/x", "GET"), ("/health", "GET")])
        rows.append((at, f'{ip} - ann [{time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + int(at)))}] "{method} {path} HTTP/1.1" 200 {draw.randint(1, 9)} "-" "c"\n'))
    log = FOLDER / "selection.log"
    log.write_text("".join(row for _, row in sorted(rows)))
    for words in (["--where", "path=/login", "--where", "method=POST|PUT"], ["--where", "path!=/health|/login", "--key", "ip/24/48"],
                  ["--where", "status=2xx", "--key", "user, path", "--deny-requests", "5%"], ["--key", "header.x-no", "--deny-requests", "1%"]):
        got = weir("suggest", "--json", log, *words)
        if "header.x-no" in words:
            check(got.code in (1, 2), f"{words}: nothing to say {got.err}")
            continue
        check(got.code in (0, 1), f"{words}: {got.err}")
        told = json.loads(got.out)
        check(told["suggestions"], f"{words}: has suggestions: {told['reason']}")
        for it in told["suggestions"]:
            if "status=2xx" in words:
                check(it["policy"] is None and it["nginx"] is None and len(it["notes"]) > 1, f"{words}: what the text cannot say is not left out of it")
                check.contains(weir("suggest", log, *words).out, "a policy is decided before the answer is known", f"{words}: says so")
                continue
            policy = FOLDER / "selection.yaml"
            policy.write_text(it["policy_file"])
            check.equal(weir("check", policy).code, 0, f"{words}: weir check takes {it['policy']}")
            where = words[:words.index("--key")] if "--key" in words else words  # whole seconds are spread over the lines that are left
            seen = json.loads(weir("replay", "--policies", policy, *where, "--memory", "64m", "--json", second_part(log, told)).out)
            check.equal(seen["denied"], it["judged"]["denied"], f"{words}: the policy denies as much: {it['policy']}")
            other = json.loads(weir("replay", "--policies", policy, "--memory", "64m", "--json", second_part(log, told)).out)
            check.within(other["denied"], 0.95 * seen["denied"] - 5, 1.05 * seen["denied"] + 5, f"{words}: it selects the same lines by itself: {it['policy']}")
            if it["nginx"]:
                code, said = nginx_takes(it["nginx"])
                check.equal(code, 0, f"{words}: nginx takes {it['nginx']!r}: {said}")


def test_together(check):
    """Everything that two runs suggest can be pasted together, and what is for the login has states of its own."""
    log = SAMPLE
    pages = suggest(check, log, "pages")
    logins = suggest(check, log, "logins", "--where", "path=/login", "--deny-keys", "3%")
    parts = [*pages["suggestions"], *logins["suggestions"]]
    check.equal(len(parts), 4, "two limits each")
    policy = FOLDER / "together.yaml"
    policy.write_text("version: 1\npolicies:\n" + "".join(f"  {it['policy']}\n" for it in parts))
    checked = weir("check", policy)
    check.equal(checked.code, 0, f"one policy file of all: {checked.err}")
    shown = weir("suggest", log).out
    check.contains(shown, "  policy        version: 1\n                policies: # if a file has this already, paste only the next line\n                  - {name: clients, ",
                   "the lines around the entry are printed")
    zones = "".join(it["nginx"].partition("# in server { ... }:\n")[0] if it in logins["suggestions"] else it["nginx"].partition("weir_limit")[0] for it in parts)
    limits = [re.search("^ *(weir_limit .*)", it["nginx"], re.M)[1] for it in parts]
    check(all(" name=login" in line and "key=login:$weir_network" in line for line in limits[2:]), f"the login has keys and names of its own: {limits[2:]}")
    login = logins["suggestions"][0]["nginx"]
    check.contains(login, "(;|$)\" {\n    weir_limit key=login:$weir_network ", "a location for the login")
    check.contains(login, "# Repeat the server's weir_limit here: those of a location replace it.", "a location's limits replace those of the server")
    check.contains(login, "# nginx prefers location = /login and location ^~ /login: put this weir_limit into them, too", "these would take the requests")
    pasted = login.partition("# in server { ... }:\n")[2].replace("# Then what the location does", f"{limits[0]} empty_gif;\n    # Then what the location does")
    server = f"listen {{port}}; root {{folder}}; {limits[0]} location = /page {{ empty_gif; }} {pasted}"
    with nginx_server.Nginx(http=zones, server=server) as nginx:
        check("[warn]" not in nginx.errors(), "nginx does not warn")
        check.equal(nginx.statuses(["/login"] * 9).count(200), 5, "the login has the limit that was suggested for it: 5/m")
        seen = nginx.statuses(["/page"] * 60)
        check(429 in seen, "many pages are denied")


def test_order(check):
    """What meets the goal comes first, and of two that stop much the gentler one."""
    log = SAMPLE
    told = suggest(check, log, "the sample")["suggestions"]
    check.equal([it["limits"] for it in told], ["token-bucket 30/m", "sliding-counter 50/h"], "the gentler one is first")
    check(told[0]["judged"]["keys_denied"] < told[1]["judged"]["keys_denied"] and told[0]["judged"]["denied"] < told[1]["judged"]["denied"], "it denies less")
    out = weir("suggest", log).out
    check.contains(out, "of them\nthe gentlest, which denies the fewest keys.", "the order is stated")
    check(re.search(r"\n {16}and \d+ more\n", weir("suggest", log, "--protect", "5/s").out), "a list that is cut says so")
    check.contains(out, "  goal          met: besides the suspects 0 keys denied, and the goal permits 5\n", "how much room the goal has")
    lucky = FOLDER / "lucky.log"
    lucky.write_bytes(gzip.open(log).read().replace(b'POST /login HTTP/1.1" 401 ', b'POST /login HTTP/1.1" 302 '))
    check.contains(weir("suggest", lucky).out, "  goal          met: 1 key denied, and the goal permits 5\n", "good answers: it is no suspect")
    logins = weir("suggest", lucky, "--where", "path=/login").out
    check.contains(logins, "  goal          met, with little room: 1 key denied, and the goal permits 1\n", "little room is told")
    check("little room" not in out, "but only then")
    for words in (["--deny-keys", "0.5%"], ["--deny-requests", "10%"], ["--protect", "20/s"]):
        met = [it["meets_goal"] for it in json.loads(weir("suggest", "--json", log, *words).out)["suggestions"]]
        check.equal(met, sorted(met, reverse=True), f"{words}: none that misses the goal comes before one that meets it")


def test_too_short(check):
    """A log that is too short for a goal says for which one it is long enough, and that one works."""
    log = SAMPLE
    told = suggest(check, log, "logins", "--where", "path=/login", "--deny-keys", "1%", code=1)
    check.equal(told["verdict"], "too short", "logins: this goal is too small")
    check("--deny-requests" not in told["advice"], "logins: one key makes most of the requests, so no goal in requests")
    goal = re.search(r"--deny-keys ([0-9.]+%)", told["advice"])
    check(goal and suggest(check, log, "logins, as advised", "--where", "path=/login", "--deny-keys", goal[1])["suggestions"], f"the advice is good: {told['advice']}")
    limit = re.search(r'weir replay "([^"]+)"', told["advice"])
    seen = json.loads(weir("replay", limit[1], "--where", "path=/login", "--json", log).out)
    check.equal([row["key"] for row in seen["most_denied"]], ["203.0.113.200"], f"the limit to try: {limit[1]}")


def test_costs(check):
    """What is pasted counts what the log counted: the cost is in it, or there is no text. A limit for all together counts requests."""
    draw = random.Random(checks.seed() + 11)
    rows = [(at, who, draw.randint(1, 99)) for at, who in users(draw, 150, 200, 20)]
    rows += [(at, ATTACKER, draw.randint(1, 999)) for at, _ in steady(draw, ATTACKER, 20, 0, 200)]
    rows.sort()
    log, trace, part, policy = (FOLDER / name for name in ("costs.json", "costs.csv", "costs.second", "costs.yaml"))
    lines = [json.dumps({"time": T + round(at, 3), "ip": who, "path": f"/a/{cost}", "bytes": cost, "headers": {"X-Tokens": str(cost)}}) + "\n"
             for at, who, cost in rows]
    log.write_text("".join(lines))
    trace.write_text("time,key,cost\n" + "".join(f"{T + at:.3f},{who},{cost}\n" for at, who, cost in rows))
    told = suggest(check, log, "a cost that requests have", "--cost", "header.x-tokens")
    part.write_text("".join(row for row in lines if json.loads(row)["time"] >= told["judged_on"]["from"]))
    for it in told["suggestions"]:
        policy.write_text(it["policy_file"])
        check.equal(weir("check", policy).code, 0, f"a cost that requests have: weir check takes {it['policy']}")
        seen = json.loads(weir("replay", "--policies", policy, "--memory", "64m", "--json", part).out)
        check.equal(seen["denied"], it["judged"]["denied"], f"a cost that requests have: the policy denies as much: {it['policy']}")
        check.contains(it["nginx"], " cost=$http_x_tokens;", "a cost that requests have: nginx's line has it")
        code, said = nginx_takes(it["nginx"])
        check.equal(code, 0, f"a cost that requests have: nginx takes {it['nginx']!r}: {said}")
    for path, *words in ((log, "--cost", "bytes"), (log, "--cost", "header.x-tokens/10"), (trace,), (log, "--key", "ip, path", "--template", "/a/{id}"),
                         (log, "--key", "ip, path:/a/{id}")):
        told = json.loads(weir("suggest", "--json", path, *words).out)
        check(told["suggestions"], f"{path.name} {words}: has suggestions")
        for it in told["suggestions"]:
            check.equal((it["policy"], it["policy_file"], it["nginx"]), (None, None, None), f"{path.name} {words}: no text that counts something else")
            check(len(it["notes"]) >= 2, f"{path.name} {words}: says why")
    told = suggest(check, trace, "costs and a rate to protect", "--protect", "500/s")
    totals = [it for it in told["suggestions"] if it["total"]]
    check.equal([it["limits"] for it in totals], ["leaky-bucket 500/s burst 250 cost 1", "sliding-log 500/s cost 1"], "costs and a rate to protect: requests are counted")
    check(all(it["judged"]["denied"] == 0 and it["judged"]["highest_1s"] > 20 and it["policy"] for it in totals), "costs and a rate to protect: it lets so many through")


def test_ipv6(check):
    """A key is a network of 64 bits: who spares one of its addresses spares all of it, also in what is pasted."""
    draw = random.Random(checks.seed() + 8)
    rows = [(at, f"2001:db8:0:{int(who.split('.')[2]) * 250 + int(who.split('.')[3]):x}::1") for at, who in users(draw, 150, 200, 20)]
    rows += [(at, f"2001:db8:aaaa:1::{draw.randint(1, 99):x}") for at, _ in steady(draw, "", 60, 0, 200)]
    rows += [(at, f"2001:db8:bbbb:1::{draw.randint(1, 99):x}") for at, _ in steady(draw, "", 20, 0, 200)]
    log = write("six.log", rows)
    told = suggest(check, log, "IPv6", "--spare", "2001:db8:aaaa:1::7")
    check(told["spared"]["left_out"], "IPv6: the network is left out")
    for it in told["suggestions"]:
        check.equal(it["judged"]["most_denied"][0]["key"], "2001:db8:bbbb:1::/64", "IPv6: the other one is stopped")
        check.contains(it["nginx"], " 2001:db8:aaaa:1::/64 1;", "IPv6: nginx spares all of it")
    hold_against_replay(check, log, told, "IPv6", "2001:db8:aaaa:1::7")
    wide = write("wide.log", [(at, f"2001:db8:{int(ip.split(':')[3], 16):x}:100::1" if ip.startswith("2001:db8:0:") else ip) for at, ip in rows])
    for it in suggest(check, wide, "IPv6, /56", "--key", "ip/56", "--spare", "2001:db8:aaaa:1::7")["suggestions"]:
        check.contains(it["policy"] or "", 'allow: [{ip: ["2001:db8:aaaa::/56"]}], key: ip/32/56', "IPv6, /56: the policy counts the same networks")


def test_odd_logs(check):
    draw = random.Random(checks.seed() + 9)
    big = FOLDER / "big.csv"
    rows = sorted((draw.uniform(0, 300), f"u{draw.randrange(150)}", draw.choice([5, 10**11, 10**12])) for _ in range(3000))
    big.write_text("time,key,cost\n" + "".join(f"{T + at:.6f},{key},{cost}\n" for at, key, cost in rows))
    told = suggest(check, big, "huge costs", code=1)
    check.equal(told["verdict"], "no limit", "huge costs: no limit can count them")
    check(all(len(row) <= 80 for row in weir("suggest", big).out.splitlines()), "huge costs: the table fits")
    free = FOLDER / "free.csv"
    free.write_text("time,key,cost\n" + "".join(f"{T + at:.6f},{key},0\n" for at, key, _ in rows))
    check.equal([it["judged"]["denied"] for it in suggest(check, free, "what costs nothing")["suggestions"]], [0, 0], "what costs nothing is never denied")
    back = FOLDER / "back.csv"
    back.write_text("time,key,cost\n" + "".join(f"{T + at:.6f},{key},1\n" for at, key, _ in reversed(rows)))
    check.equal(suggest(check, back, "times that run back")["requests"], 3000, "times that run back: all are read")
    forth = write("forth.log", users(draw, 150, 300, 20))
    newest = FOLDER / "newest.log"
    newest.write_text("".join(reversed(forth.open().readlines())))
    told = suggest(check, newest, "the newest line first", code=1)
    check.equal((told["verdict"], told["suggestions"]), ("too short", []), "the newest line first: no limit for peaks that were not there")
    check.contains(told["reason"], "lines are too far out of order", "the newest line first: the reason")
    check.contains(told["advice"], "tac", "the newest line first: what to do")
    check(suggest(check, newest, "the newest line first, sorted", "--disorder", "10m")["suggestions"], "the newest line first: sorted by --disorder")
    silent = write("silent.log", [*users(draw, 150, 100, 20), *steady(draw, ATTACKER, 20, 0, 100), *steady(draw, NAT, 60, 0, 300)])
    told = suggest(check, silent, "a second half of spared keys only", "--spare", NAT, code=1)
    check(told["spared"]["left_out"] and not any(it["meets_goal"] for it in told["suggestions"]), "a second half of spared keys only: no goal is met by nothing")
    many = FOLDER / "many.csv"
    many.write_text("time,key\n" + "".join(f"{T + i / 100:.2f},k{draw.randrange(40000)}\n" for i in range(60000)))
    check(suggest(check, many, "little memory", "--memory", "1m")["approximate"], "little memory: it says that it is approximate")
    check(not suggest(check, many, "enough memory")["approximate"], "enough memory: exact")
    page = FOLDER / "none.html"
    got = weir("suggest", big, "--report", page)
    check.contains(got.err, "no limit was suggested, so there is no report", "nothing to report: says so")
    check(got.code == 1 and not page.exists(), "nothing to report: nothing written")
    cut = FOLDER / "cut.gz"
    cut.write_bytes(gzip.compress(many.read_bytes())[:-5000])
    got = weir("suggest", cut)
    check.equal(got.code, 3, f"a damaged file: {got.err}")
    check.contains(got.err, "what comes after that is missing", "a damaged file: says so")
    noise = FOLDER / "noise"
    noise.write_bytes(bytes(draw.randrange(256) for _ in range(50000)))
    check.equal(weir("suggest", noise).code, 2, "noise: wrong input")


def in_terminal(path, columns, **env):
    """What it prints to a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([str(WEIR), "suggest", str(path)], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL,
                               env=weir_server.environment({"TERM": "xterm", **env}))
    os.close(slave)
    out = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:
            break
        if not block:
            break
        out += block
    process.wait(600)
    os.close(master)
    return out.decode()


def test_terminal(check):
    log = write("terminal.log", users(random.Random(checks.seed() + 10), 120, 200, 20))
    coloured, plain, narrow = in_terminal(log, 80), in_terminal(log, 80, NO_COLOR="1"), in_terminal(log, 60, NO_COLOR="1")
    check.contains(coloured, "\033[1m", "a terminal: bold")
    check("\033" not in plain, "a terminal with NO_COLOR: plain")
    check.equal(re.sub(r"\033\[[0-9;]*m", "", coloured), plain, "a terminal: the same words")
    pasted = ("weir_", "{name", "policies: #")
    texts = [row for row in narrow.splitlines() if row.startswith("  why") or row.startswith(" " * 16) and not any(word in row for word in pasted)]
    check(texts and max(map(len, texts)) <= 60, "a narrow terminal: text is wrapped")


TESTS = [test_attacker, test_burst, test_scraper, test_nat, test_protect, test_nothing_to_say, test_unknown_names, test_arguments, test_hostile_keys, test_selection, test_together, test_order, test_too_short, test_costs, test_ipv6,
         test_odd_logs, test_terminal]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
