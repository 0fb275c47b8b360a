#!/usr/bin/env python3
"""weir suggest where a few heavy keys push the limit up: beside the loose limit it offers a strict one that leaves them out, with what the log says
about them. Everybody else keeps the goal, and what is pasted does what was judged.

    tests/homes/desk/exempting.py [NAME …]
"""
import atexit
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lib import checks, nginx_server, weir_server

T = 1794787200  # 2026-11-16T00:00:00Z
HOURS = 6
OFFICE, CRAWLER, PROBE, ATTACKER = "192.0.2.10", "192.0.2.66", "192.0.2.5", "203.0.113.9"
SAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "access.log.gz"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="weir-exempt-"))
atexit.register(shutil.rmtree, FOLDER, True)

Row = collections.namedtuple("Row", "at ip status agent", defaults=(200, "Mozilla/5.0"))
Done = collections.namedtuple("Done", "out err code")


def weir(*words):
    done = subprocess.run([str(weir_server.WEIR), *map(str, words)], capture_output=True, timeout=600, env=weir_server.environment(), stdin=subprocess.DEVNULL)
    return Done(done.stdout.decode(), done.stderr.decode(), done.returncode)


# ---- logs ----

def users(draw, count):
    return [Row(start + draw.uniform(0, 600), f"198.51.100.{i + 1}")
            for i in range(count) for start in (draw.uniform(0, HOURS * 3600 - 600) for _ in range(3)) for _ in range(draw.randint(5, 30))]


def every(seconds, ip, status=lambda i: 200, agent=lambda i: "Mozilla/5.0"):
    return [Row(i * seconds, ip, status(i), agent(i)) for i in range(int(HOURS * 3600 / seconds))]


def heavy(draw):
    return [*users(draw, 120), *every(4, OFFICE, agent=lambda i: f"Mozilla/5.0 ({i % 40})"), *every(6, CRAWLER, agent=lambda i: 'Bot/2.1 <"\\x1b[31m">'),
            *every(5, PROBE, agent=lambda i: "kube-probe/1.31"), *every(7, ATTACKER, status=lambda i: 200 if i % 20 == 0 else 401, agent=lambda i: "x/1")]


def write(name, rows):
    path = FOLDER / name
    with path.open("w") as out:
        for row in sorted(rows):
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(T + int(row.at)))
            out.write(f'{row.ip} - - [{stamp}] "GET / HTTP/1.1" {row.status} 512 "-" "{row.agent}"\n')
    return path


def suggest(check, path, *words):
    done = weir("suggest", "--json", path, *words)
    check.equal(done.code, 0, f"{path.name} {words}: its exit code {done.err}")
    told = json.loads(done.out)
    return told, [it for it in told["suggestions"] if it.get("strict")]


def window(it):
    return int(re.search(r"sliding-counter (\d+)/h", it["limits"])[1])


# ---- tests ----

def test_offer(check):
    draw = random.Random(checks.seed())
    rows = heavy(draw)
    path = write("heavy.log", rows)
    told, strict = suggest(check, path)
    check.equal([it["name"] for it in told["suggestions"]], ["bucket", "window", "strict"], "the strict one comes last")
    if not strict:
        return
    it, loose = strict[0], told["suggestions"][1]
    check(window(loose) >= 3 * window(it), f"it is far stricter: {loose['limits']}, {it['limits']}")
    counts = collections.Counter(row.ip for row in rows)
    keys = {key["key"]: key for key in it["left_out_keys"]}
    check.equal(sorted(keys), sorted([OFFICE, CRAWLER, PROBE, ATTACKER]), "the heavy keys are left out, nobody else")
    check.equal({ip: key["requests"] for ip, key in keys.items()}, {ip: counts[ip] for ip in keys}, "their requests")
    check.equal((keys[ATTACKER]["401"], keys[ATTACKER]["answers"]), (sum(row.status == 401 for row in rows), counts[ATTACKER]), "their answers")
    check.equal((len(keys[OFFICE]["agents"]), keys[OFFICE]["more_agents"]), (8, True), "an office has many agents")
    check.equal(keys[PROBE]["agents"], [{"agent": "kube-probe/1.31", "requests": counts[PROBE]}], "a probe has one")
    seen = json.loads(weir("replay", it["limits"], "--json", path).out)
    denied = {key["key"]: key["denied"] for key in seen["most_denied"]}
    check.equal({ip: key["would_deny"] for ip, key in keys.items()}, {ip: denied.get(ip) for ip in keys}, "what it would deny them, as replay says")
    check(it["judged"]["keys_denied"] <= 1 and it["meets_goal"], f"nobody else is denied: {it['judged']}")
    check(it["left_out"] and not told["spared"]["left_out"], "it leaves keys out, though nobody asked for it")
    check.contains(told["replay"][1], f"--spare {OFFICE}", "its replay spares them")
    check("--spare" not in told["replay"][0], "that of the others does not")


def test_pasted(check):
    """The policy and nginx's lines are right, and the policy denies what was judged."""
    path = write("pasted.log", heavy(random.Random(checks.seed())))
    told, strict = suggest(check, path)
    if not check.equal(len(strict), 1, "there is a strict one"):
        return
    it, policy, part = strict[0], FOLDER / "strict.yaml", FOLDER / "second.log"
    policy.write_text(it["policy_file"])
    check.equal(weir("check", policy).code, 0, f"weir check takes {it['policy']}")
    start = time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(told["judged_on"]["from"]))
    part.write_text("".join(line for line in path.open() if line.split("[")[1][:20] >= start))
    seen = json.loads(weir("replay", "--policies", policy, "--memory", "64m", "--json", part).out)
    check.equal(seen["denied"], it["judged"]["denied"], "the policy denies as much as was judged")
    for ip in (OFFICE, CRAWLER, PROBE, ATTACKER):
        check.contains(it["nginx"], f" {ip} 1;", f"nginx leaves {ip} out")
        check.contains(it["policy"], f'"{ip}"', f"the policy leaves {ip} out")
    code, said = nginx_server.Nginx.check(it["nginx"] + "server { listen {port}; root {folder}; }")
    check.equal(code, 0, f"nginx takes {it['nginx']}: {said}")


def test_words(check):
    """Terminal and page say that somebody must decide, and what the log says. What clients wrote is masked."""
    path, page = write("words.log", heavy(random.Random(checks.seed()))), FOLDER / "page.html"
    out = weir("suggest", path, "--report", page).out
    said = " ".join(out.split())
    check.contains(out, "for each ip, with exemptions", "terminal: the heading")
    check.contains(said, "left out 4 keys that it would deny. You must decide: keep a friend, like an office or a probe, in `allow` or `geo` below; delete an attacker there.", "terminal: who decides")
    check.contains(said, "95.0% of the answers were 401; agent \"x/1\"", "terminal: an attacker")
    check.contains(said, "8 or more agents", "terminal: an office")
    check("\033" not in out, "terminal: masked")
    text = page.read_text()
    for words in ("You must decide:", "95.0% of the answers were 401", "8 or more agents", "clients-strict"):
        check.contains(text, words, f"page: {words}")
    row = re.search(rf">{re.escape(OFFICE)}</td>.*</tr>", text[text.index("Heaviest keys"):])
    check.equal(row and row[0].count("spared"), 1, "page: only the strict limit spares the office")
    check('<"' not in text and "\033" not in text, "page: masked")
    check.contains(re.search(r"pre\{[^}]*\}", text)[0], "white-space:pre-wrap", "page: long lines to paste stay in their box")
    begins = "Mozilla/5.0 " + "x" * 50  # 62 bytes
    for agent, said in ((f"{begins}\u00fc tail", f"{begins}\u2026"), (f"{begins}y", f"{begins}y"), (f"{begins}yz", f"{begins}y\u2026")):
        path = write("agents.log", [*users(random.Random(checks.seed()), 120), *every(4, OFFICE, agent=lambda i: agent)])
        check.contains(" ".join(weir("suggest", path, "--report", page).out.split()), f'agent "{said}"', "terminal: an agent that is cut says so")
        check.contains(page.read_text(), f"agent &quot;{said}&quot;", "page: an agent that is cut says so")


def test_none(check):
    """No offer: where no key is heavy, where many are, where the limit is strict anyway, where the reader has named keys, where a key cannot be pasted."""
    draw = random.Random(checks.seed() + 1)
    check.equal(suggest(check, SAMPLE)[1], [], "the sample: its limit is strict anyway")
    check.equal(suggest(check, write("users.log", users(draw, 120)))[1], [], "users only: nobody is heavy")
    many = [row for i in range(6) for row in every(4 + i, f"192.0.2.{i + 1}")]
    check.equal(suggest(check, write("many.log", [*users(draw, 120), *many]))[1], [], "six heavy keys: too many")
    path = write("named.log", heavy(draw))
    check.equal(suggest(check, path, "--spare", OFFICE)[1], [], "--spare: the reader has decided")
    check.equal(suggest(check, path, "--key", "ip, path")[1], [], "a key of two parts cannot be exempt")
    odd = FOLDER / "odd.csv"
    for name, offered in (("svc", 1), ("s'], x: [*", 0), ("svc\u202e", 0), ("x" * 70, 0)):
        rows = [(row.at, name if row.ip == OFFICE else row.ip) for row in [*users(draw, 120), *every(4, OFFICE), *every(5, PROBE)]]
        odd.write_text("time,user\n" + "".join(f'{T + at:.3f},"{user}"\n' for at, user in sorted(rows)))
        check.equal(len(suggest(check, odd, "--key", "user")[1]), offered, f"a user {name[:12]!r}: only plain words are pasted")
    cut = FOLDER / "cut.json"
    for name, offered in (("svc", 1), ("svc\0x", 0)):
        rows = [(row.at, name if row.ip == OFFICE else row.ip) for row in [*users(draw, 200), *every(4, OFFICE), *every(5, PROBE)]]
        cut.write_text("".join(json.dumps({"time": T + at, "user": user}) + "\n" for at, user in sorted(rows)))
        check.equal(len(suggest(check, cut, "--key", "user")[1]), offered, f"a user {name!r}: what is pasted is all of the key")


def test_spared(check):
    """To spare an office does not hide the limit that others need: where the office would push the window far up, a strict one without it comes beside
    it, and first, if it stops who comes later."""
    rows = [*users(random.Random(checks.seed()), 120), *every(4, OFFICE)]
    scraper = [Row((HOURS - 2) * 3600 + 2 * i, ATTACKER) for i in range(1800)]
    for name, more, place in (("quiet.log", [], 2), ("scraped.log", scraper, 0)):
        path = write(name, [*rows, *more])
        told, strict = suggest(check, path, "--spare", OFFICE)
        names = [it["name"] for it in told["suggestions"]]
        if not check.equal(names.index("strict") if strict else -1, place, f"{name}: where the strict one is: {names}"):
            continue
        it, loose = strict[0], next(it for it in told["suggestions"] if it["name"] == "window")
        check(window(loose) >= 3 * window(it), f"{name}: it is far stricter: {loose['limits']}, {it['limits']}")
        check((it["left_out"], loose["left_out"], told["spared"]["left_out"]) == (True, False, True), f"{name}: only it leaves the office out")
        check.contains(it["policy"], f'allow: [{{ip: ["{OFFICE}"]}}]', f"{name}: the exemption")
        check("left_out_keys" not in it, f"{name}: nobody must decide about heavy keys")
        check(it["meets_goal"], f"{name}: it meets the goal")
        check.equal([key["key"] for key in it["judged"]["most_denied"]], [ATTACKER] if more else [], f"{name}: whom it denies")
        check.equal(len(told["replay"]), 1, f"{name}: one replay has all")


def test_good(check):
    """A limit whose denials are mostly of good keys says so, and does not come first. Each key that loses much is named. A good answer is below
    400: a scanner that finds nothing is not served."""
    draw, page = random.Random(checks.seed()), FOLDER / "good.html"
    quiet = [Row(start + draw.uniform(0, 600), f"198.51.{100 + i // 200}.{i % 200 + 1}")
             for i in range(1200) for start in (draw.uniform(0, HOURS * 3600 - 600) for _ in range(2)) for _ in range(draw.randint(5, 20))]
    words = "of what it denies in the whole log is of keys that mostly get good answers in both halves: see whom it hurts"
    for name, status, good in (("served.log", 200, True), ("sent on.log", 302, True), ("refused.log", 403, False), ("lost.log", 404, False), ("broken.log", 500, False)):
        office = every(10, OFFICE, agent=lambda i: f"Mozilla/5.0 ({i % 4})", status=lambda i: 200 if i % 3 == 0 else status)
        others = [row for ip, seconds in ((CRAWLER, 12), (PROBE, 14), (ATTACKER, 16), ("192.0.2.31", 40)) for row in every(seconds, ip, status=lambda i: 200 if i % 3 == 0 else status)]
        path = write(name, [*quiet, *office, *others])
        told, _ = suggest(check, path, "--report", page)
        window = next(it for it in told["suggestions"] if it["name"] == "window")
        check.equal((window["denies_good"], window["meets_goal"], window is told["suggestions"][0]), (good, True, not good), f"{name}: {window['limits']}")
        check.equal([key["key"] for key in window["hurts"]][:4], [OFFICE, CRAWLER, PROBE, ATTACKER], f"{name}: all who lose much are named")
        check.equal({key["key"]: (key["good"], key["answers"]) for key in window["hurts"]}[OFFICE], (len(office) if good else (len(office) + 2) // 3, len(office)), f"{name}: good answers")
        check.equal((words in " ".join(weir("suggest", path).out.split()), words in page.read_text()), (good, good), f"{name}: terminal, page")


def test_gentle(check):
    """Where all limits mostly deny good keys, one that denies nobody comes first. Not if it denies somebody in the second half, nor for one scraper."""
    draw, page = random.Random(checks.seed()), FOLDER / "gentle.html"
    rows = [Row(start + draw.uniform(0, 600), f"198.51.{100 + i // 200}.{i % 200 + 1}")
            for i in range(1200) for start in (draw.uniform(0, HOURS * 3600 - 600) for _ in range(2)) for _ in range(draw.randint(5, 20))]
    rows += [*every(1, PROBE), *every(2, OFFICE, agent=lambda i: f"Mozilla/5.0 ({i % 4})")]
    told, _ = suggest(check, write("friends.log", rows), "--report", page)
    first, *others = told["suggestions"]
    check.equal((first["name"], first["meets_goal"], first["denies_good"], first["hurt_keys"], first["chosen"]["keys_denied"], first["judged"]["keys_denied"]), ("gentle", True, False, 0, 0, 0), "it denies nobody")
    check(others and all(it["denies_good"] for it in others), f"the others deny friends: {[it['limits'] for it in others]}")
    seen = json.loads(weir("replay", first["limits"], "--json", FOLDER / "friends.log").out)
    check.equal(seen["denied"], 0, "nor does replay")
    check.contains(told["replay"][0], f"--limit 'gentle={first['limits']}'", "its replay")
    check.equal(len({it["name"] for it in told["suggestions"]}), len(told["suggestions"]), "each has a name of its own")
    check.contains(page.read_text(), "the others mostly deny keys that get good answers", "page: why")
    burst = [Row((HOURS - 1) * 3600 + i / 100, f"192.0.2.{i % 2 + 90}") for i in range(4000)]
    told = suggest(check, write("burst.log", [*rows, *burst]))[0]["suggestions"]
    check.equal({(it["name"] != "gentle", it["denies_good"]) for it in told}, {(True, True)}, "it would deny somebody, so it is left out")
    check("gentle" not in [it["name"] for it in suggest(check, SAMPLE)[0]["suggestions"]], "the sample: others deny no friends")


TESTS = [test_offer, test_pasted, test_words, test_none, test_spared, test_good, test_gentle]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
