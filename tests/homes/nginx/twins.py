#!/usr/bin/env python3
"""nginx's own limit_req and limit_conn beside weir's leaky-bucket and weir_conn: the same requests, the same fate.

    twins.py [--seed N]

The same requests go to both at the same moments, pair by pair: the same accepts and rejects, the same delays. The two read
two clocks: limit_req that of nginx's last look at it, weir the real one; a busy machine may hold nginx up in between for as
long as it likes. So both times are known: nginx tells when it saw a request, and a second limit of weir's, whose window ends
at a known time, when weir decided it. What each should do then is calculated with limit_req's own arithmetic.
Patterns are laid out with a margin, so that the two do not come on two sides of an edge between two outcomes. Where that
happened, or one came too near to an edge for a clock in milliseconds, the run ends, without a look at what either answered,
and another takes its place.

Then in lockstep: both in dry run in one location and with one clock, so that every request is seen by both at once, thousands
of them.
"""
import collections
import random
import re
import statistics
import sys
import time

from lib import checks, clocks, nginx_server
from lib.nginx_server import Nginx, get
from conns import Gate

MARGIN_MS = 5        # nginx tells wall time in milliseconds, limit_req goes by another clock
APART_MS = 0.1       # weir's delays, from limit_req's arithmetic at weir's times
PLAN_MARGIN_MS = 25  # so that a machine that is a little late does not spoil the pattern
PAIRS = 150          # of each setting, at least
RUNS_MAX = 400

Setting = collections.namedtuple("Setting", "name rate burst mode")
SETTINGS = [Setting("none", 10, 0, ""), Setting("burst", 10, 4, ""), Setting("nodelay", 8, 5, "nodelay"),
            Setting("delay", 10, 6, "delay=2"), Setting("fast", 20, 8, "")]
SHOWN = 'add_header X-Twin "$msec $request_time a:$limit_req_status b:$weir_status d:$weir_delay_us r:$weir_reset_us" always;'
CLOCK = 'weir_limit key=clock zone=z "fixed-window 1g/366d";'  # resets last of all, when its window ends
WINDOW_US = 366 * 86400 * 1000000


def own(setting):
    words = f" burst={setting.burst}" if setting.burst else ""
    return f"limit_req zone={setting.name}{words}{' ' + setting.mode if setting.mode else ''};"


def weirs(setting, options=""):
    words = f" burst {setting.burst}" if setting.burst else ""
    mode = " " + setting.mode.replace("=", " ") if setting.mode else ""
    return f'weir_limit key={setting.name}:$arg_k zone=z "leaky-bucket {setting.rate}r/s{words}{mode}" {options};'


class Model:
    """limit_req's arithmetic: excess in thousandths of a request, time in milliseconds."""

    def __init__(self, setting):
        self.rate, self.burst = setting.rate, setting.burst * 1000
        self.until = {"": 0, "nodelay": self.burst}.get(setting.mode)
        if self.until is None:
            self.until = int(setting.mode.partition("=")[2]) * 1000
        self.excess, self.last = None, 0

    def excess_at(self, now):
        return None if self.excess is None else self.excess - self.rate * (now - self.last) + 1000

    def margin(self, now):
        """How many milliseconds earlier or later another outcome is."""
        excess = self.excess_at(now)
        if excess is None:
            return 1e9
        return min(abs(excess - edge) for edge in {self.burst, self.until}) / self.rate

    def take(self, now):
        """(accepted, delay in ms)"""
        excess = max(0, self.excess_at(now) or 0)
        if excess > self.burst:
            return False, 0.0
        self.excess, self.last = excess, now
        return True, max(0, excess - self.until) / self.rate if excess > self.until else 0.0


# ---- patterns: gaps in milliseconds ----

def bursts(setting, chance):
    return chance.choice([0, 0, 0, 0, 0, 0, 0, 2000 // setting.rate + 7, 5300 // setting.rate])


def steady(setting, _):
    return 620 // setting.rate


def anyhow(setting, chance):
    return int(chance.expovariate(setting.rate * 1.6 / 1000))


def planned(setting, pattern, chance, number):
    """Times from 0 on that keep away from all edges: those that do not are put off."""
    model, now, times = Model(setting), 0, []
    for _ in range(number):
        now += pattern(setting, chance) if times else 0
        while model.margin(now) < min(PLAN_MARGIN_MS, 400 / setting.rate):
            now += 1
        model.take(now)
        times.append(now)
    return times


# ---- a run ----

Seen = collections.namedtuple("Seen", "status start_ms took_ms own weirs delay_us decided_ms")


def seen(answer):
    """What nginx says of a request: when it came (start), how long it took, when weir decided it (if it did)."""
    found = re.fullmatch(r"([\d.]+) ([\d.]+) a:(\S*) b:(\S*) d:(\S*) r:(\S*)", answer.fields["x-twin"])
    now, took = (round(float(text) * 1000) for text in found.groups()[:2])
    ends_us = (now * 1000 // WINDOW_US + 1) * WINDOW_US
    decided_ms = (ends_us - int(found[6])) / 1000 if found[6] else now - took
    return Seen(answer.status, now - took, took, found[3], found[4], int(found[5] or 0), decided_ms)


def run(nginx, plans):
    """Sends the pairs of all settings at their times; {setting: [(own, weir's)]} in order."""
    sends = sorted((at, i, setting) for setting, times in plans.items() for i, at in enumerate(times))
    clients = [(nginx.client(), nginx.client()) for _ in sends]
    key, start = f"{time.monotonic_ns()}", time.monotonic()
    for (at, _, setting), pair in zip(sends, clients):
        ahead = start + at / 1000 - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        for client, path in zip(pair, "ab"):
            client.send(get(f"/{path}/{setting.name}?k={key}"))
    pairs = collections.defaultdict(list)
    for (_, _, setting), pair in zip(sends, clients):
        pairs[setting].append([seen(client.read()) for client in pair])
        for client in pair:
            client.close()
    return pairs


def compare(check, setting, pairs, tally):
    """Until one came too near an edge, or out of order."""
    models = Model(setting), Model(setting)
    before = [0, 0]
    for number, (first, second) in enumerate(pairs):
        times = first.start_ms, second.decided_ms
        if any(model.margin(now) < MARGIN_MS or now < last for model, now, last in zip(models, times, before)):
            tally.cut += 1
            return
        before = times
        outcomes = [model.take(now) for model, now in zip(models, times)]
        if outcomes[0][0] != outcomes[1][0] or bool(outcomes[0][1]) != bool(outcomes[1][1]):
            tally.cut += 1  # they came on two sides of an edge
            return
        tally.pairs[setting] += 1
        judge(check, f"{setting.name}, pair {number}: {first} {second}", (first, second), outcomes, tally)


def judge(check, what, pair, outcomes, tally):
    first, second = pair
    (accepted, meant_ms), (_, weirs_meant_ms) = outcomes
    word = "REJECTED" if not accepted else "DELAYED" if meant_ms else "PASSED"
    check.equal((first.status, first.own), (200 if accepted else 429, word), f"{what}: limit_req itself")
    check.equal((second.status, second.weirs, bool(second.delay_us)), (first.status, word, word == "DELAYED"), f"{what}: outcomes")
    tally.outcomes[word] += 1
    held_ms = second.decided_ms - second.start_ms
    check(held_ms > -MARGIN_MS, f"{what}: weir decided before nginx saw it")
    tally.held.append(held_ms)
    if word != "DELAYED":
        return
    delay_ms = second.delay_us / 1000
    apart = abs(delay_ms - weirs_meant_ms)
    check(apart <= APART_MS, f"{what}: weir's delay is {delay_ms} ms, limit_req would take {weirs_meant_ms} ms then")
    for it, delay in ((first, meant_ms), (second, delay_ms)):
        check(it.took_ms >= delay - 2, f"{what}: {it} was early, not before {delay} ms")
    tally.apart.append(apart)
    tally.late.append((second.took_ms - held_ms - delay_ms) - (first.took_ms - meant_ms))


class Tally:
    def __init__(self):
        self.pairs, self.outcomes, self.cut = collections.Counter(), collections.Counter(), 0
        self.late, self.apart, self.held = [], [], []  # milliseconds: measured, as they were meant, until weir read its clock


def test_requests(check, seed):
    chance = random.Random(seed)
    zones = "".join(f"limit_req_zone $arg_k zone={it.name}:1m rate={it.rate}r/s;\n" for it in SETTINGS)
    locations = "limit_req_status 429;\n" + SHOWN + "".join(
        f"location /a/{it.name} {{ empty_gif; {own(it)} }}\nlocation /b/{it.name} {{ empty_gif; {weirs(it)} {CLOCK} }}\n"
        for it in SETTINGS) + f"location /clock {{ empty_gif; {CLOCK} }}\n"
    tally = Tally()
    with Nginx(f"weir_zone z 1m;\n{zones}", locations, connections=4000) as nginx:
        nginx.get("/clock")  # where nothing is counted, nothing is reset
        for number in range(RUNS_MAX):
            pattern = (bursts, steady, anyhow)[number % 3]
            steps = clocks.Steps()
            pairs = run(nginx, {it: planned(it, pattern, chance, 25) for it in SETTINGS})
            if steps.moved():  # the clock that nginx tells was set, and limit_req goes by another one
                tally.cut += 1
                continue
            for setting in SETTINGS:
                compare(check, setting, pairs[setting], tally)
            if number >= 5 and all(tally.pairs[it] >= PAIRS for it in SETTINGS):
                break
    print(f"pairs {({it.name: tally.pairs[it] for it in SETTINGS})}, runs cut short {tally.cut}, {dict(tally.outcomes)}")
    check(all(tally.pairs[it] >= PAIRS for it in SETTINGS), f"enough pairs keep away from edges: {tally.pairs}")
    check(min(tally.outcomes[it] for it in ("PASSED", "DELAYED", "REJECTED")) > 50, f"all outcomes: {tally.outcomes}")
    if tally.late:
        middle = statistics.median(tally.late)
        print(f"delays: meant {statistics.median(tally.apart):.3f} ms apart in the middle, {max(tally.apart):.3f} at most; "
              f"weir's came {middle:+.1f} ms later, {min(tally.late):+.1f} to {max(tally.late):+.1f}; "
              f"weir's clock {statistics.median(tally.held):+.1f} ms ahead, {min(tally.held):+.1f} to {max(tally.held):+.1f}")
        check(abs(middle) <= 5, f"delays take as long: {middle} ms")


# ---- in lockstep ----

WORDS = {"PASSED": "PASSED", "DELAYED_DRY_RUN": "DELAYED", "REJECTED_DRY_RUN": "REJECTED"}


def weirs_outcome(answer):
    """Of a limit in dry run: from the decision's numbers."""
    values = answer.weir
    if values["status"] == "PASSED":
        return "PASSED"
    return "DELAYED" if values["delay_us"] != "0" else "REJECTED"


def test_lockstep(check, seed):
    """Requests one after another, without a pause or with one, as they come; both see the same."""
    settings = [Setting("s1", 1, 3, ""), Setting("s2", 10, 0, ""), Setting("s3", 20, 12, ""), Setting("s4", 20, 12, "nodelay"),
                Setting("s5", 25, 15, "delay=6"), Setting("s6", 7, 2, "nodelay"), Setting("s7", 3, 9, "delay=4")]
    chance, tally, wrong = random.Random(seed), Tally(), []
    zones = "".join(f"limit_req_zone $arg_k zone={it.name}:1m rate={it.rate}r/s;\n" for it in settings)
    locations = f"limit_req_dry_run on; weir_dry_run on; weir_test_clock $nginx_us;\n{nginx_server.SHOWN}\n" + "".join(
        f'location /{it.name} {{ empty_gif; {own(it)} {weirs(it)} add_header X-Own "$msec $limit_req_status"; '
        f"{nginx_server.SHOWN} }}\n" for it in settings)
    end, patience = time.monotonic() + 12, time.monotonic() + 300

    def is_enough():
        return all(tally.pairs[it] > 20 for it in settings) and min(tally.outcomes[it] for it in WORDS.values()) > 20

    clock = "map $msec $nginx_us { ~^(?<nginx_s>\\d+)[.](?<nginx_ms>\\d+)$ ${nginx_s}${nginx_ms}000; }"
    with Nginx(f"weir_zone z 1m;\nkeepalive_requests 1000000;\n{clock}\n{zones}", locations) as nginx, nginx.client() as client:
        models, keys, steps = {it: Model(it) for it in settings}, dict.fromkeys(settings, 0), clocks.Steps()
        while time.monotonic() < end or not (is_enough() or time.monotonic() > patience):
            for setting in chance.choices(settings, k=chance.choice([1, 2, 5, 30])):
                model = models[setting]
                answer = client.get(f"/{setting.name}?k={keys[setting]}")
                now, outcome = answer.fields["x-own"].split()
                now = round(float(now) * 1000)
                if steps.moved():  # weir's clock was set, limit_req's was not: other keys for all, from here on
                    keys, models = {it: key + 1 for it, key in keys.items()}, {it: Model(it) for it in settings}
                    tally.cut += 1
                    continue
                if model.margin(now) < MARGIN_MS:  # another key, from here on
                    keys[setting] += 1
                    models[setting] = Model(setting)
                    tally.cut += 1
                    continue
                model.take(now)
                tally.pairs[setting] += 1
                tally.outcomes[WORDS[outcome]] += 1
                if weirs_outcome(answer) != WORDS[outcome]:
                    wrong.append((setting, outcome, answer.weir))
            time.sleep(chance.choice([0, 0.001, 0.01, 0.05]))
    print(f"lockstep: {({it.name: tally.pairs[it] for it in settings})}, too near an edge {tally.cut}, {dict(tally.outcomes)}")
    check(not wrong, f"{len(wrong)} differ, first {wrong[:2]}")
    check(all(tally.pairs[it] > 20 for it in settings), f"requests: {tally.pairs}")
    check(min(tally.outcomes[it] for it in WORDS.values()) > 20, f"all outcomes: {tally.outcomes}")


# ---- connections ----

def test_connections(check, seed):
    """Requests that come, end and are left, at random: limit_conn and weir_conn answer alike."""
    chance = random.Random(seed)
    with Gate() as first, Gate() as second:
        http = "weir_zone z 1m;\nlimit_conn_zone $arg_k zone=c:1m;\nlimit_conn_status 429;\naccess_log {folder}/access.log;\n"
        locations = f"""
            location /a {{ proxy_pass http://127.0.0.1:{first.port}; limit_conn c 3; }}
            location /b {{ proxy_pass http://127.0.0.1:{second.port}; weir_conn key=$arg_k zone=z 3; }}
            """
        with Nginx(http, locations) as nginx:
            Pairs(check, nginx, chance, (first, second)).play(150)


class Pairs:
    """Requests under way at both, in the same order."""

    def __init__(self, check, nginx, chance, gates):
        self.check, self.nginx, self.chance, self.gates = check, nginx, chance, gates
        self.held, self.logged, self.reached = {"x": [], "y": []}, 0, [0, 0]
        self.outcomes = collections.Counter()

    def play(self, number):
        for _ in range(number):
            key = self.chance.choice("xy")
            self.chance.choice([self.come, self.come, self.leave])(key)
        for key in "xy":
            while self.held[key]:
                self.leave(key)
        for gate in self.gates:
            gate.let(1000)
        print(f"connections: {dict(self.outcomes)}")
        self.check(self.outcomes[200] > 20 and self.outcomes[429] > 20, f"both outcomes: {self.outcomes}")

    def come(self, key):
        pair = [self.nginx.client(), self.nginx.client()]
        for client, path in zip(pair, "ab"):
            client.send(get(f"/{path}?k={key}"))
        got = [self.outcome(client, i) for i, client in enumerate(pair)]
        self.check.equal(got[1], got[0], f"a request of {key} beside {len(self.held[key])}")
        self.check.equal(got[0], 200 if len(self.held[key]) < 3 else 429, "limit_conn itself")
        self.outcomes[got[0]] += 1
        if got == [200, 200]:
            self.held[key].append(pair)
        else:
            for client in pair:
                client.close()

    def outcome(self, client, i):
        """200: it has reached its backend; else what was answered."""
        client.socket.setblocking(False)
        gate, answered = self.gates[i], []

        def is_told():
            if len(gate.heads) > self.reached[i]:
                return True
            try:
                answered.append(client.socket.recv(16, 2))  # MSG_PEEK
                return True
            except BlockingIOError:
                return False
        self.nginx.wait_for(is_told)
        client.socket.setblocking(True)
        if len(gate.heads) > self.reached[i]:
            self.reached[i] += 1
            return 200
        self.logged += 1
        return client.read().status

    def leave(self, key):
        """The client goes; nginx has logged it when the slot is free."""
        if not self.held[key]:
            return
        for client in self.held[key].pop(self.chance.randrange(len(self.held[key]))):
            client.close()
            self.logged += 1
        self.nginx.wait_for(lambda: len(self.nginx.access()) >= self.logged)


def main(words):
    seed = int(words[words.index("--seed") + 1]) if "--seed" in words else checks.seed()
    print(f"seed {seed}")
    tests = []
    for test in (test_requests, test_lockstep, test_connections):
        tests.append(lambda check, test=test: test(check, seed))
        tests[-1].__name__ = test.__name__
    return checks.run(tests, [word for word in words if word.startswith("test")])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
