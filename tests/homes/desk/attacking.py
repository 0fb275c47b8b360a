#!/usr/bin/env python3
"""weir suggest on a log with an attack from many addresses: keys that are nearly always refused are suspects, which the goal does not protect. A limit that
stops them comes first, also if an office is to be spared.

    tests/homes/desk/attacking.py [NAME …]
"""
import atexit
import collections
import html
import json
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from lib import checks, weir_server

T = 1794787200  # 2026-11-16T00:00:00Z
OFFICE = "192.0.2.10"
CLIENTS, ATTACKERS, GUESSES = 200, 40, 50
NO_LIMIT = "None of these limits meets the goal and denies half of what the suspects ask for"
ALL_LOGIN = "All their requests are POST /login: try"
LOGIN = ("--where", "path=/login", "--where", "method=POST")
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weir-attack-"))
atexit.register(shutil.rmtree, FOLDER, True)

Row = collections.namedtuple("Row", "at ip status path method agent", defaults=("/login", "POST", "Mozilla/5.0"))


def weir(*words):
    return subprocess.run([str(weir_server.WEIR), *map(str, words)], capture_output=True, timeout=600, env=weir_server.environment(), stdin=subprocess.DEVNULL, text=True)


def suggest(check, *words, code=0):
    done = weir("suggest", "--json", *words)
    check.equal(done.returncode, code, f"{words}: its exit code {done.stderr}")
    return json.loads(done.stdout)


# ---- a day of a shop ----

def clients(draw):
    """Each logs in up to three times, and sometimes mistypes the password once or twice before."""
    for i in range(CLIENTS):
        for _ in range(draw.randint(1, 3)):
            at = draw.uniform(6 * 3600, 23 * 3600)
            for _ in range(draw.randint(1, 2) if draw.random() < .3 else 0):
                yield Row(at, f"198.51.100.{i + 1}", 401)
                at += draw.uniform(5, 30)
            yield Row(at, f"198.51.100.{i + 1}", 302)
            for _ in range(draw.randint(1, 4)):
                at += draw.expovariate(1 / 20)
                yield Row(at, f"198.51.100.{i + 1}", 200, "/shoes", "GET")


def office(draw):
    """Many people behind one address, who come in the morning and after lunch."""
    for _ in range(120):
        yield Row(draw.gauss(8.5 * 3600, 1200), OFFICE, 302 if draw.random() < .9 else 401)
        yield Row(draw.uniform(13 * 3600, 14 * 3600), OFFICE, 302)


def attack(draw, hour, status=401):
    return [Row(hour * 3600 + draw.uniform(0, 720), f"203.0.113.{i + 1}", status, agent="Mozilla/5.0 (X11)") for i in range(ATTACKERS) for _ in range(GUESSES)]


def line(row):
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + int(row.at)))
    return f'{row.ip} - - [{stamp}] "{row.method} {row.path} HTTP/1.1" {row.status} 512 "-" "{row.agent}"\n'


def shop(name, hours, status=401):
    draw = random.Random(checks.seed())
    rows = [*clients(draw), *office(draw), *(row for hour in hours for row in attack(draw, hour, status))]
    path = FOLDER / name
    path.write_text("".join(line(row) for row in sorted(rows)))
    return path


def logs():
    return (shop("late.log", [21.1]), 1), (shop("twice.log", [7.2, 21.1]), 2)


def of_suspects(told, it):
    """The part of the requests of suspects that a suggestion denies."""
    return (it["chosen"]["suspects_denied"] + it["judged"]["suspects_denied"]) / sum(told[part]["suspects"]["requests"] for part in ("chosen_on", "judged_on"))


# ---- tests ----

def test_first(check):
    """The first limit stops the attack and denies nobody else. One that does not stop it comes later, and says so."""
    for path, attacks in logs():
        told = suggest(check, path, *LOGIN)
        check.equal((told["suspects"], told["judged_on"]["suspects"]["requests"]), (ATTACKERS, ATTACKERS * GUESSES), f"{path.name}: who is a suspect")
        check.equal(told["chosen_on"]["suspects"]["requests"], (attacks - 1) * ATTACKERS * GUESSES, f"{path.name}: in the first half")
        seen = told["judged_on"]["suspects"]
        check(T + 21.1 * 3600 <= seen["first"] + 1 and seen["last"] <= T + 21.1 * 3600 + 721, f"{path.name}: when they asked: {seen}")
        first = told["suggestions"][0]
        check(first["meets_goal"] and of_suspects(told, first) > 0.5, f"{path.name}: the first one stops the attack: {first['limits']}, {of_suspects(told, first)}")
        others = [key["key"] for key in json.loads(weir("replay", first["limits"], *LOGIN, "--where", "ip!=203.0.113.0/24", "--json", path).stdout)["most_denied"]]
        check(len(others) <= 2, f"{path.name}: it denies hardly anybody else: {others}")
        parts = [of_suspects(told, it) for it in told["suggestions"]]
        check(parts[0] >= 0.5 * max(parts), f"{path.name}: none stops far more than the first: {parts}")


def test_office(check):
    """A limit that stops an office together with the attack does not come first: one that leaves the office out does. Whom a limit hurts is said, also if
    many suspects are denied more."""
    draw = random.Random(checks.seed())
    path, page = FOLDER / "office.log", FOLDER / "office.html"
    rows = [*clients(draw), *attack(draw, 21.1)]
    rows += [Row(draw.gauss((9, 13)[i % 2] * 3600, 600), OFFICE, 302 if draw.random() < .9 else 401, agent=f"Mozilla/{i % 3}") for i in range(440)]
    path.write_text("".join(line(row) for row in sorted(rows)))
    told = suggest(check, path, *LOGIN, "--report", page)
    first = told["suggestions"][0]
    check(first["strict"] and first["meets_goal"] and of_suspects(told, first) > 0.5, f"the first one stops the attack and leaves the office out: {first['limits']}")
    check.equal([key["key"] for key in first["left_out_keys"]], [OFFICE], "nobody else is left out")
    hurting = [it for it in told["suggestions"] if any(key["key"] == OFFICE for key in it["hurts"])]
    if not check.equal(len(hurting), 1, "one other stops the office"):
        return
    it = hurting[0]
    seen = {key["key"]: key for key in json.loads(weir("replay", it["limits"], *LOGIN, "--where", "ip!=203.0.113.0/24", "--json", path).stdout)["most_denied"]}
    hurt = {key["key"]: key for key in it["hurts"]}
    check.equal({ip: (key["denied"], key["requests"]) for ip, key in hurt.items()}, {ip: (seen[ip]["denied"], seen[ip]["requests"]) for ip in hurt}, "as replay says")
    check.equal(it["hurt_keys"], len(seen), "all who are hurt")
    check(2 * hurt[OFFICE]["denied"] > hurt[OFFICE]["requests"], f"it stops the office: {hurt}")
    mine = [row for row in rows if row.ip == OFFICE]
    check.equal((hurt[OFFICE]["good"], hurt[OFFICE]["answers"], hurt[OFFICE]["agents"]), (sum(row.status == 302 for row in mine), len(mine), 3), "how it was answered")
    good = f"{100 * hurt[OFFICE]['good'] / len(mine):.1f}%"
    words = f"{OFFICE}: {hurt[OFFICE]['denied']} of its 440 requests denied in the whole log; {good} of its answers were good; 3 agents"
    out = " ".join(weir("suggest", path, *LOGIN).stdout.split())
    check.contains(out, f"whom it hurts {words}", "terminal")
    check.contains(html.unescape(page.read_text()), words, "page")
    check("with --where path" not in out, "the path is selected already")
    check.contains(" ".join(weir("suggest", path).stdout.split()), "3 agents; 100.0% for /login: limit it alone with --where path=/login, or leave it out with --where path!=/login",
                   "without --where: what it asks for, and that it need not be limited")


def test_words(check):
    path, page = shop("words.log", [21.1]), FOLDER / "page.html"
    out = weir("suggest", path, *LOGIN, "--report", page).stdout
    said, text = " ".join(out.split()), html.unescape(page.read_text())
    for name, it in (("terminal", said), ("page", text)):
        check.contains(it, "40 keys with 2000 requests and no good answer (2026-11-16 21:06:", f"{name}: who and when")
        check.contains(it, "The goal does not protect them.", f"{name}: what it means")
        spans = re.findall(r"(?:chosen on|judged on|answer \()[^0-9]*(?:2026-11-16 [0-9:]{8}) to [0-9:]{8}( UTC)?", it)
        check.equal(spans, [" UTC"] * 3, f"{name}: in which zone times are")
    check(re.search(r"<br>from 2026-11-16 [0-9:]{8} to 2026-11-16 [0-9:]{8} UTC", text), "page: the same of all")
    check.contains(weir("replay", "token-bucket 1/m", path).stdout, "; times in UTC", "replay: the same of its chart")
    trace = FOLDER / "zone.csv"
    trace.write_text("time,key\n" + "".join(f"{i},k{i % 7}\n" for i in range(900)))
    check("UTC" not in weir("suggest", trace, "--report", page).stdout + weir("replay", "token-bucket 1/m", trace).stdout, "a trace that begins at 0 has no zone")
    check(not re.search(r"<br>from [^<]*UTC", page.read_text()), "nor has its page")
    for name, it in (("terminal", said), ("page", text)):
        check.contains(it, "% of their requests would be denied", f"{name}: what the good one denies them")
        check.contains(it, "none of their requests would be denied: this limit does not stop them", f"{name}: the other one says so")
        check.contains(it, "met: besides the suspects 0 keys denied, and the goal permits 1", f"{name}: the goal")


def test_spared(check):
    """With the office spared the strict limit stays, with an exemption: the loose one stops less than half of the attack."""
    for path, _ in logs():
        told = suggest(check, path, *LOGIN, "--spare", OFFICE)
        first = told["suggestions"][0]
        check(first["left_out"] and first["meets_goal"] and of_suspects(told, first) > 0.5, f"{path.name}: {first['limits']} stops the attack and leaves the office out")
        check.contains(first["policy"], f'allow: [{{ip: ["{OFFICE}"]}}]', f"{path.name}: the exemption")


def test_status(check):
    """A filter on the status hides good answers, but not from this."""
    for path, _ in logs():
        told = suggest(check, path, *LOGIN, "--where", "status=401")
        check.equal(told["suspects"], ATTACKERS, f"{path.name}: the same suspects")
        first = told["suggestions"][0]
        check(first["meets_goal"] and of_suspects(told, first) > 0.3, f"{path.name}: the first one stops them: {first['limits']}")


def test_none(check):
    """Nobody is a suspect: with good answers, with few requests, without a status, if all keys are like this, if keys were forgotten, if it is spared."""
    check.equal(suggest(check, shop("fine.log", [21.1], 200), *LOGIN)["suspects"], 0, "good answers")
    check.equal(suggest(check, shop("odd.log", [21.1], 404), *LOGIN)["suspects"], 0, "404 is no refusal")
    path = shop("late.log", [21.1])
    for status in (403, 429):
        check.equal(suggest(check, shop(f"{status}.log", [21.1], status), *LOGIN)["suspects"], ATTACKERS, f"{status} is one")
    told = suggest(check, path, *LOGIN, "--spare", "203.0.113.0/24")
    check.equal((told["suspects"], "suspects" in weir("suggest", path, *LOGIN, "--spare", "203.0.113.0/24").stdout), (0, False), "who is spared is none")
    lines = path.read_text().splitlines()
    few = FOLDER / "few.log"
    seen = collections.Counter()
    for line in lines:
        ip = line.split()[0]
        seen[ip] += 1
        if not ip.startswith("203.") or seen[ip] <= 4:
            few.open("a").write(line + "\n")
    check.equal(suggest(check, few, *LOGIN)["suspects"], 0, "four requests are too few")
    bare = FOLDER / "bare.csv"
    bare.write_text("time,ip\n" + "".join(f"{T + i},192.0.2.{i % 40}\n" for i in range(4000)))
    check.equal(suggest(check, bare)["suspects"], 0, "no status in the log")
    only = FOLDER / "only.log"
    only.write_text("".join(text + "\n" for text in lines if text.startswith("203.")))
    check.equal(suggest(check, only)["suspects"], 0, "all keys are like this")
    huge = FOLDER / "huge.log"
    huge.write_text("".join(f'10.{i >> 16}.{i >> 8 & 255}.{i & 255} - - [16/Nov/2026:{i * 86399 // 30000 // 3600:02}:{i * 86399 // 30000 // 60 % 60:02}:00 +0000] "POST /login HTTP/1.1" 302 1 "-" "-"\n' for i in range(30000)))
    check.equal(suggest(check, path, huge, *LOGIN, "--memory", "4m")["suspects"], 0, "keys were forgotten, and their good answers")


def test_lucky(check):
    """A guess that succeeds hides no attack: suspects may have one other answer of twenty, whatever it is, but no more. Who asks less may have none."""
    draw = random.Random(checks.seed())
    for guesses, others, status, suspect in ((50, 2, 302, True), (50, 3, 302, False), (20, 1, 200, True), (19, 1, 200, False), (5, 0, 200, True), (40, 3, 404, False), (40, 3, 503, False)):
        rows = [*clients(draw), *office(draw)]
        for i in range(ATTACKERS):
            rows += [Row(21.1 * 3600 + draw.uniform(0, 720), f"203.0.113.{i + 1}", 401 if n >= others else status) for n in range(guesses)]
        path, name = FOLDER / "lucky.log", f"{others} of {guesses} with {status}"
        path.write_text("".join(line(row) for row in sorted(rows)))
        told = suggest(check, path, *LOGIN)
        check.equal(told["suspects"], ATTACKERS if suspect else 0, name)
        words = f"{ATTACKERS} keys with {ATTACKERS * guesses} requests and {'hardly a' if others else 'no'} good answer ("
        check.equal(words in " ".join(weir("suggest", path, *LOGIN).stdout.split()), suspect, f"{name}: what is said")
        if suspect and guesses == 50:
            check(told["suggestions"][0]["meets_goal"] and of_suspects(told, told["suggestions"][0]) > 0.5, f"{name}: the first limit stops them")


def test_requests(check):
    """A goal in requests does not protect them either, and no advice says so."""
    path = shop("late.log", [21.1])
    told = suggest(check, path, *LOGIN, "--deny-requests", "3%")
    first = told["suggestions"][0]
    check(first["strict"] and first["meets_goal"] and of_suspects(told, first) > 0.3, f"the strict one, {first['limits']}, is first: only it stops them")
    out = weir("suggest", path, *LOGIN, "--deny-requests", "3%").stdout
    check(re.search(r"goal +met: besides the\s+suspects [0-9.]+% of the requests denied,\s+and the\s+goal permits 3%", out), f"the goal: {out}")


def test_slow(check):
    """No limit for each address stops guesses that are slow enough: this is said, and what to do."""
    draw, page = random.Random(checks.seed()), FOLDER / "slow.html"
    slow = [Row(draw.uniform(13, 19) * 3600, f"203.0.113.{i + 1}", 401) for i in range(ATTACKERS) for _ in range(6)]
    path = FOLDER / "slow.log"
    path.write_text("".join(line(row) for row in sorted([*clients(draw), *office(draw), *slow])))
    start = f"{NO_LIMIT}: each asks only about 6 times."
    rest = "Limit each account (docs/LOGIN.md)."
    for log, where, said in ((path, LOGIN, f"{start} {rest}"), (path, [], f"{start} {ALL_LOGIN} --where path=/login --where method=POST."),
                             (path, LOGIN[2:], f"{start} All their requests are for /login: try --where path=/login."), (shop("fast.log", [21.1]), LOGIN, None)):
        told = suggest(check, log, *where, "--report", page)
        check.equal(told["suspects_hint"], said, f"{log.name} {where}: for machines")
        out = " ".join(weir("suggest", log, *where).stdout.split())
        check.equal((start in out, start in html.unescape(page.read_text())), (bool(said), bool(said)), f"{log.name}: terminal, page")
    check.equal(suggest(check, path, *LOGIN, "--protect", "60/m")["suspects_hint"], f"{start} {rest}", "with --protect, too")


def test_together(check):
    """The hint names a limit for all together only if the attack exceeds it by far. It is made of the busiest minute without suspects."""
    draw, path = random.Random(checks.seed()), FOLDER / "together.log"
    rows = [*clients(draw), *office(draw)]
    busiest = max(collections.Counter(int(row.at) // 60 for row in rows if row.path == "/login").values())
    rows += [Row(21 * 3600 + draw.uniform(0, 240), f"203.0.{i >> 7}.{i & 127}", 401) for i in range(150) for _ in range(6)]
    path.write_text("".join(line(row) for row in sorted(rows)))
    rate = next(n for n in (5, 10, 15, 20, 30, 50) if n >= 2 * busiest)
    said = f"all together: --protect {rate}/m; without the suspects at most {busiest} came in a minute."
    for words in ((), ("--protect", "150/m")):
        told = suggest(check, path, *LOGIN, *words)
        check.contains(told["suspects_hint"] or "", said, f"{words}: what to protect")
    told = suggest(check, path, *LOGIN, "--protect", f"{rate}/m")
    best = max(told["suggestions"], key=lambda it: of_suspects(told, it))
    check(best["meets_goal"] and of_suspects(told, best) > 0.5, f"it stops them: {best['limits']}, {of_suspects(told, best)}")
    check("--protect" not in (told["suspects_hint"] or ""), "no hint at what is protected already")


def test_tight(check):
    """An attack in the second half that the limits chosen on the first half let through: the hint names a window that keeps the goal in both, says what it
    would do to whom, and that nothing has judged it. A command shows it."""
    draw, path, page = random.Random(checks.seed()), FOLDER / "tight.log", FOLDER / "tight.html"
    rows, seen = [*office(draw), *office(draw)], collections.Counter()
    for row in clients(draw):
        seen[row.ip] += row.path == "/login"
        if seen[row.ip] <= 4:
            rows.append(row)
    rows += [Row(20 * 3600 + draw.uniform(0, 7200), f"203.0.113.{i + 1}", 401) for i in range(ATTACKERS) for _ in range(25)]
    path.write_text("".join(line(row) for row in sorted(rows)))
    for words, left_out in (((), f" without {OFFICE}"), (("--spare", OFFICE), " without the keys to be spared"), (("--where", f"ip!={OFFICE}"), "")):
        told = suggest(check, path, *LOGIN, *words, "--report", page)
        name, hint = f"{words}", told["suspects_hint"] or ""
        check(not any(it["meets_goal"] and of_suspects(told, it) >= 0.5 for it in told["suggestions"]), f"{name}: no suggestion stops them")
        check.contains(hint, "It was chosen with the suspects of both halves, so nothing has judged it.", f"{name}: how it was chosen")
        command = [shlex.split(it) for it in told["replay"] if " 'tight=" in it]
        if not check.equal(len(command), 1, f"{name}: a command shows it"):
            continue
        words = [word for word in command[0][1:] if word not in ("--report", "report.html")]
        seen, attack = ({it["name"]: it for it in json.loads(weir(*words, "--json", *more).stdout)["candidates"]}["tight"] for more in ((), ("--where", "ip=203.0.113.0/24")))
        others = (seen["denied"] - attack["denied"], seen["keys_denied"] - attack["keys_denied"])
        whom = f"{others[0]} request{'s' * (others[0] != 1)} of {others[1]} other key{'s' * (others[1] != 1)}" if others[0] else "nobody else"
        check.contains(hint, f'"{seen["limits"]}"{left_out} would: in the whole log it denies {attack["denied"] / ATTACKERS / .25:.1f}% of their requests, and {whom}.',
                       f"{name}: as replay says")
        check(attack["denied"] >= 0.5 * ATTACKERS * 25 and others[1] <= 2, f"{name}: it stops them, and hardly anybody else: {seen['limits']}")
        check("tight" not in [it["name"] for it in told["suggestions"]], f"{name}: it is no suggestion")
        check.contains(html.unescape(page.read_text()), hint, f"{name}: the page has the hint")


def test_printed(check):
    """A limit that stops suspects, but misses the goal, does not hide the hint."""
    draw, path = random.Random(checks.seed()), FOLDER / "printed.log"
    rows = [*clients(draw), *attack(draw, 21.1)]
    for i in range(30):  # busy customers, only on the second half
        rows += [Row(20 * 3600 + 40 * n, f"192.0.2.{i + 1}", 302) for n in range(60)]
    path.write_text("".join(line(row) for row in sorted(rows)))
    told = suggest(check, path, *LOGIN)
    stopping = [it for it in told["suggestions"] if of_suspects(told, it) >= 0.5]
    check(stopping and not any(it["meets_goal"] for it in stopping), f"those that stop the attack miss the goal: {[it['limits'] for it in stopping]}")
    check.contains(told["suspects_hint"] or "", f"{NO_LIMIT}: each asks only about {GUESSES} times.", "the hint")


TESTS = [test_first, test_office, test_words, test_spared, test_status, test_none, test_lucky, test_requests, test_slow, test_together, test_tight, test_printed]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
