#!/usr/bin/env python3
"""The example of docs/QUOTAS.md: months of Europe/Berlin to the second, settles after the month, crashes, lost answers, support."""
import datetime
import http.client
import pathlib
import subprocess
import sys
import tempfile
import threading
import zoneinfo

from lib import checks, http_client, weir_server
from lib.build import ROOT, WEIR

FOLDER = ROOT / "examples" / "quotas"
sys.path.insert(0, str(FOLDER))

import llm_quota  # noqa: E402

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
FREE, PRO = 100_000, 5_000_000
OPTIONS = f"--test-clock --policies {FOLDER}/plans.yaml"


def at(*when):
    return datetime.datetime(*when, tzinfo=BERLIN).timestamp()


class Scene:
    """A server whose clock is the program's, and programs with one journal."""

    def __init__(self, options=OPTIONS):
        self.server, self.folder, self.now = weir_server.Server(options), tempfile.TemporaryDirectory(), 0

    def __enter__(self):
        self.server.__enter__()
        self.go(at(2026, 11, 5))
        return self

    def __exit__(self, *error):
        self.folder.cleanup()
        self.server.__exit__(*error)

    def go(self, now):
        self.now = now
        with http_client.Client(self.server.port) as client:
            client.post("/v1/clock", {"now": int(now)})

    def start(self, kind=llm_quota.Quota):
        return kind(f"127.0.0.1:{self.server.port}", pathlib.Path(self.folder.name) / "journal.db", "Europe/Berlin", lambda: self.now)


def denied(quota, *words):
    """The limit and the time to wait; None: it was allowed."""
    try:
        quota.take(*words)
    except llm_quota.Denied as told:
        return told.limit, told.retry_after
    return None


def spend(quota, customer, plan, tokens):
    quota.settle(quota.take(customer, plan, tokens, tokens), tokens)


def test_months(check):
    """Each month has its quota exactly, from local midnight to local midnight, in summer and winter."""
    with Scene() as scene:
        quota = scene.start()
        for month in range(9, 9 + 15):
            first, following = at(2026 + month // 12, month % 12 + 1, 1), at(2026 + (month + 1) // 12, (month + 1) % 12 + 1, 1)
            name = f"{2026 + month // 12}-{month % 12 + 1:02}"
            scene.go(first)
            spend(quota, "bob", "free", FREE - 10)
            scene.go(following - 1)
            spend(quota, "bob", "free", 10)
            check.equal(denied(quota, "bob", "free", 1), ("month", 1), f"the last second of {name}")
            left = quota.left("bob", "free")
            check.equal((left["period"], left["used"], left["left"]), (name, FREE, 0), "what is left")
            check.equal(datetime.datetime.fromisoformat(left["resets"]).timestamp(), following, f"when {name} ends")


def test_late(check):
    """What is settled after midnight corrects the month that was charged."""
    with Scene() as scene:
        quota = scene.start()
        scene.go(at(2026, 11, 1) - 1)
        grants = [quota.take("bob", "free", 40_000), quota.take("bob", "free", 40_000)]
        scene.go(at(2026, 11, 1) + 1800)
        quota.settle(grants[0], 10_000)
        quota.settle(grants[1], 50_000)
        check.equal(quota.left("bob", "free")["used"], 0, "the new month is not charged")
        scene.go(at(2026, 11, 1) - 1)
        check.equal(quota.left("bob", "free")["used"], 60_000, "the old one is right")


def test_crashes(check):
    """A program that starts again settles what it had begun, once, and leaves alone what is written now."""
    with Scene(OPTIONS + " --store file:zone?size=1m") as scene:
        quota = scene.start()
        quota.take("bob", "free", 70_000)
        ready = quota.take("bob", "free", 20_000)
        scene.server.kill()
        quota.settle(ready, 5000)  # which nobody hears
        scene.server.start()
        scene.go(scene.now + 60)
        running = scene.start()
        again = running.take("ann", "pro", 9000)
        check.equal(running.recover(), [], "nothing is too old")
        check.equal(running.recover(), [], "nothing is open")
        check.equal(running.left("bob", "free")["used"], 5000, "what was used, and nothing for the answer that never came")
        running.settle(again, 8000)
        check.equal(running.left("ann", "pro")["used"], 8000, "an answer that is still written")
        check.equal(running._sql("select count(*) from grants where end is null"), [(0,)], "all is settled")
        lost = running.take("bob", "free", 1000)
        running.take("bob", "free", 3000)
        scene.server.kill()
        running.settle(lost, 1000)  # which nobody hears
        scene.server.start()
        scene.go(scene.now + llm_quota.SETTLE_SECONDS + 1)
        later = scene.start()
        check.equal((later.recover(), later.recover()), ([lost.receipt], []), "too old to be sent again, told once")
        check.equal(later.left("bob", "free")["used"], 6000, "one that was never sent is settled")


class Deaf(llm_quota.Quota):
    """The answers to these verbs are lost on their way."""
    lost = ("take",)

    def _ask(self, verb, body):
        answer = super()._ask(verb, body)
        if verb in self.lost:
            raise http.client.HTTPException("the answer was lost")
        return answer


def test_lost_answers(check):
    with Scene() as scene:
        quota = scene.start()
        try:
            scene.start(Deaf).take("bob", "free", 30_000)
            check(False, "a take whose answer is lost raises")
        except http.client.HTTPException:
            check.equal(quota.left("bob", "free")["used"], 30_000, "it is charged, and there is no receipt")
        deaf = scene.start(Deaf)
        deaf.lost = ("settle",)
        deaf.settle(deaf.take("bob", "free", 50_000), 1000)
        quota.recover()
        quota.recover()
        check.equal(quota.left("bob", "free")["used"], 31_000, "a settle that is sent again counts once")


def test_open_estimates(check):
    """A denial while estimates are open is not one until the next month."""
    with Scene() as scene:
        quota = scene.start()
        grant = quota.take("bob", "free", FREE)
        check.equal(denied(quota, "bob", "free", 1), ("month", llm_quota.SOON_SECONDS), "ask again soon")
        quota.settle(grant, 4000)
        spend(quota, "bob", "free", FREE - 4000)
        check.equal(denied(quota, "bob", "free", 1), ("month", at(2026, 12, 1) - scene.now), "when all is settled")
        check.equal(denied(quota, "bob", "free", FREE + 1, FREE + 1), ("month", None), "what no month has")
        for _ in range(58):
            spend(quota, "ann", "pro", 1)
        check.equal(quota.left("ann", "pro")["left"], PRO - 58, "what a minute admits is no matter of tokens")
        spend(quota, "ann", "pro", 1)
        spend(quota, "ann", "pro", 1)
        check.equal(denied(quota, "ann", "pro", 1)[0], "minute", "the requests of a minute")


def test_parallel(check):
    """Threads of one program: never more than the quota is granted, and what is settled is what was used."""
    with Scene() as scene:
        quota, used, lock = scene.start(), [], threading.Lock()

        def work(number):
            try:
                grant = quota.take("bob", "free", 4000, 500)
            except llm_quota.Denied:
                return
            with lock:
                used.append(min(grant.granted, 100 * number))
            quota.recover()
            quota.settle(grant, min(grant.granted, 100 * number))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 51)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check.equal((quota.recover(), quota.left("bob", "free")["used"]), ([], sum(used)), "to the token")


def weir(*words):
    done = subprocess.run([WEIR, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


def test_support(check):
    with Scene() as scene:
        quota = scene.start()
        named = ("--server", f"http://127.0.0.1:{scene.server.port}", "--policy", "llm", "--request", "customer=acme&plan=pro&period=2026-11")
        check.equal(quota.left("acme", "pro")["limit"], 8_000_000, "a raise comes before the plan")
        check.equal(quota.left("ann", "pro")["limit"], PRO, "of one customer")
        spend(quota, "acme", "pro", 6_000_000)
        code, said = weir("explain", *named)
        check(code == 0 and "2000000 of 8000000 left, 6000000 used" in said, f"support sees: {said}")
        code, said = weir("refund", *named, "1000000", "--id", "ticket-1")
        check(code == 0 and "gave back 1000000 of 1000000" in said, f"support gives back: {said}")
        scene.go(at(2026, 12, 1))
        check.equal(quota.left("acme", "pro")["limit"], PRO, "and it ends with the month")


def test_gift(check):
    with Scene() as scene:
        quota = scene.start()
        check.equal([quota.left("gina", plan)["limit"] for plan in ("free", "pro")], [150_000, PRO], "who upgrades has the new plan")


def test_failures(check):
    """What weir refuses for now stays open; what it refuses for good is told, once. An answer that fails costs nothing."""
    with Scene() as scene:
        quota = scene.start()
        try:
            with quota.take("bob", "free", 70_000):
                raise KeyError("the model")
        except KeyError:
            check.equal(quota.left("bob", "free")["used"], 0, "what failed")
        with quota.take("bob", "free", 9000) as grant:
            quota.settle(grant, 500)
        check.equal(quota.left("bob", "free")["used"], 500, "what did not")
        waits, forged = quota.take("bob", "free", 4000), quota.take("bob", "free", 4000)
        quota._sql("update grants set receipt = ? where receipt = ?", forged.receipt + "x", forged.receipt)
        ask, quota._ask = quota._ask, lambda *words: {"status": 400, "detail": 'no policy is named "llm"'}
        quota.settle(waits, 300)
        check.equal(quota.recover(), [], "a mistake that may be mended")
        quota._ask = ask
        check.equal((quota.recover(), quota.recover()), ([forged.receipt + "x"], []), "a receipt that is not valid is told once")
        check.equal((quota._sql("select count(*) from grants where end = 'settled'"), quota.left("bob", "free")["used"]),
                    ([(3,)], 4800), "the rest is settled")
        left = quota.take("bob", "free", 4000)
        quota.weir, there = "127.0.0.1:1", quota.weir
        quota.settle(left, 100)
        check.equal(quota.recover(), [], "weir is away")
        quota.weir = there
        check.equal((quota.recover(), quota.left("bob", "free")["used"]), ([], 4900), "and back")


def test_strict(check):
    """What goes wrong most often where a raise is written in haste."""
    text = (FOLDER / "plans.yaml").read_text(encoding="utf-8")
    pro, = [line for line in text.splitlines(True) if "plan: pro" in line]
    raised, = [line for line in text.splitlines(True) if "customer: acme" in line]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plans.yaml"
        for name, wrong, code in (("as it is", text, 0), ("without from-first", text.replace("8m/32d from-first", "8m/32d"), 1),
                                  ("misspelt", text.replace("{customer: acme", "{custmer: acme"), 1),
                                  ("plans first", text.replace(raised, "").replace(pro, pro + raised), 1),
                                  ("behind one that hides it", text.replace(pro, pro + raised.replace('period: "2026-11"', "plan: pro")), 1)):
            path.write_text(wrong, encoding="utf-8")
            check.equal(weir("check", str(path), "--strict")[0], code, f"weir check --strict: {name}")


def test_demo(check):
    with Scene() as scene:
        done = subprocess.run([sys.executable, FOLDER / "demo.py", "--weir", f"127.0.0.1:{scene.server.port}", "--now", str(int(scene.now))],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        check(done.returncode == 0 and "bob: 100000 of 100000 used in 2026-11, 0 left until 2026-12-01T00:00:00+01:00" in done.stdout, done.stdout)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
