#!/usr/bin/env python3
"""Holds a real nginx to the golden vectors, every field, over pipelined keep-alive connections.

    vectors.py [FILE.vec …]

Time, key, limits and cost come in fields of the request; the decision is read from the variables and from the
RateLimit fields. A wait belongs to a directive, so each wait of the vectors has a location of its own. Once with all
limits of a step under one key in one directive, once each under a key of its own in directives of their own,
which all or nothing decides in the same way. Peeks charge nothing and are left out; a key that was reset goes on under
another name. Cases with settles and leases are left out.
"""
import re
import sys

from lib import build, checks, lua_cases, nginx_server
from lib.nginx_server import SHOWN, get


BATCH = 100
INTEGER_MAX = 10 ** 15 - 1  # of a structured field
HTTP = "weir_zone z 64m; keepalive_requests 1000000; large_client_header_buffers 4 32k; client_header_buffer_size 16k;"
WAITS = {-1: "", -2: "wait=any"}
LEFT_OUT = ("settle", "acquire", "renew", "release")


# ---- steps ----

class Reader(lua_cases.Reader):
    """Steps that know their limits one by one; texts of parse.vec."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def line(self, place, verb, rest):
        if verb in ("ok", "bad"):
            self.texts.append((place, verb, rest))
        elif verb == "limit":
            self.parts = [lua_cases.language.text([limit]) for limit in lua_cases.language.parse(rest)]
        super().line(place, verb, rest)

    def step(self, place, verb, words, wanted):
        step = super().step(place, verb, words, wanted)
        step.parts = self.parts
        return step


def takes_of(steps):
    """Those that are takes of cases without settles and leases; a reset renames the key."""
    other = {step.key for step in steps if step.verb in LEFT_OUT or any("concurrent" in part for part in step.parts)}
    lives, takes = {}, []
    for step in steps:
        if step.key in other:
            continue
        if step.verb == "reset":
            lives[step.key] = lives.get(step.key, 0) + 1
        elif step.verb in ("take", "grant"):
            step.name = f"{step.key}/{lives.get(step.key, 0)}"
            takes.append(step)
    return takes, len(other)


def with_same_limits(takes):
    """Cases of several limits that stay the same: there a limit's place can be its key."""
    texts, changed = {}, set()
    for step in takes:
        if texts.setdefault(step.key, step.parts) != step.parts:
            changed.add(step.key)
    return [step for step in takes if len(step.parts) > 1 and step.key not in changed]


# ---- the two ways ----

def least(wait):
    """A least does not go with a wait."""
    return "" if wait not in ("", "wait=0") else "least=$http_x_least"


class Together:
    """All limits under one key."""
    name, prefix = "one key", "/w"

    @staticmethod
    def directives(wait):
        return f'weir_limit key=$http_x_key zone=z "$http_x_limit" cost=$http_x_cost {wait} {least(wait)};'

    @staticmethod
    def fields(step):
        return {"x-key": step.name, "x-limit": step.text}


class Apart:
    """Each limit under a key of its own."""
    name, prefix = "a key each", "/a"

    @staticmethod
    def directives(wait):
        return "".join(f'weir_limit key=$http_x_key{i} zone=z "$http_x_limit{i}" cost=$http_x_cost {wait} {least(wait)};'
                       for i in range(16))

    @staticmethod
    def fields(step):
        return {f"x-{word}{i}": value for i, part in enumerate(step.parts)
                for word, value in (("key", f"{step.name}#{i}"), ("limit", part))}


def location(way, wait):
    words = WAITS.get(wait, f"wait={wait}us" if wait else "wait=0")
    return f"location = {way.prefix}{wait} {{ weir_test_clock $http_x_time; {way.directives(words)} empty_gif; {SHOWN} }}\n"


def configuration(ways):
    return "".join(location(way, wait) for way, takes in ways for wait in sorted({-1} | {step.wait for step in takes}))


def run(nginx, way, takes, check):
    with nginx.client() as client:
        for start in range(0, len(takes), BATCH):
            part = takes[start:start + BATCH]
            answers = client.pipeline([
                get(f"{way.prefix}{step.wait}", {**way.fields(step), "x-time": step.time, "x-cost": step.cost, "x-least": step.least or ""})
                for step in part])
            for step, answer in zip(part, answers):
                compare(way, step, answer, check)


# ---- what is expected ----

def ceiling(us):
    """Whole seconds, never early; none for never."""
    return "" if us < 0 else str(-(-us // 1000000))


def number(text):
    return int(text) if text else -1


def compare(way, step, answer, check):
    where = f"{step.place} ({way.name})"
    values = answer.weir
    if not check(values.get("status"), f"{where}: {answer}"):
        return
    allowed = int(answer.status == 200)
    six = [allowed, *(number(values[name]) for name in ("limit", "remaining", "retry_after_us", "reset_us", "delay_us"))]
    if step.verb == "grant":
        check.equal([six[0], six[5]], step.six, where)
        return
    check.equal(six, step.six, where)
    granted = step.granted if step.least is not None else step.cost if allowed else 0
    check.equal(number(values["granted"]), granted, f"{where} granted")
    wanted = "REJECTED" if not allowed else "DELAYED" if step.six[5] else "PASSED"
    check.equal((answer.status, values["status"], values["degraded"]), (200 if allowed else 429, wanted, "0"), where)
    check.equal([values[name] for name in ("retry_after", "reset", "delay")], [ceiling(us) for us in step.six[3:]], where)
    check.equal(answer.fields.get("retry-after", ""), "" if allowed else ceiling(step.six[3]), f"{where} Retry-After")
    if len(step.parts) == 1 or step.bind is not None:
        check.equal(values["binding"], step.parts[step.bind or 0], f"{where} binding")
    rows = [step.rows[i] for i in range(len(step.parts))] if len(step.rows) == len(step.parts) else [step.six]
    if len(rows) == len(step.parts):
        wanted = [(str(min(row[2], INTEGER_MAX)), ceiling(row[4] if row[0] else row[3])) for row in rows]
        check.equal(re.findall(r";r=(\d+)(?:;t=(\d+))?", answer.fields["ratelimit"]), wanted, f"{where} RateLimit")


# ---- texts ----

def run_texts(nginx, texts, check):
    """What is refused, with its column in the log, and the canonical text of what is not."""
    refused = 0
    for place, verb, rest in texts:
        text = rest.partition(" => ")[0] if verb == "ok" else rest
        answer = nginx.get("/w-1", {"x-key": place, "x-limit": text, "x-cost": "0", "x-time": "1"})  # after a 500 nginx closes
        values = answer.weir
        canonical = rest.partition(" => ")[2].split(", ")
        if verb == "bad" and not rest.strip():
            check.equal((answer.status, values["status"]), (200, ""), f"{place}: no limits at all")
        elif verb == "bad" or any(part.startswith("concurrent") for part in canonical):
            check.equal(answer.status, 500, f"{place} {rest!r}")
            refused += 1
        else:
            check(answer.status == 200 and values["binding"] in canonical, f"{place} {rest!r}: {answer}")
    logged = len(re.findall(r"\[error\].*column \d+", nginx.errors()))
    bad = sum(verb == "bad" and bool(rest.strip()) for _, verb, rest in texts)
    check(logged >= bad, f"{logged} columns logged of {bad} bad texts")
    return refused


def main(paths):
    reader = Reader()
    for path in paths or build.vectors():
        reader.read(path)
    takes, left_out = takes_of(reader.steps)
    ways = [(Together, takes), (Apart, with_same_limits(takes))]
    check = checks.Checks()
    with nginx_server.Nginx(HTTP, configuration(ways)) as nginx:
        for way, part in ways:
            before = check.passed
            run(nginx, way, part, check)
            print(f"{way.name}: {len(part)} takes, {check.passed - before} checks held", flush=True)
        if reader.texts:
            print(f"{len(reader.texts)} texts, {run_texts(nginx, reader.texts, check)} refused")
    cases = len({step.key for step in reader.steps})
    waits = len({step.wait for step in takes})
    print(f"{cases - left_out} of {cases} cases, {waits} waits; {left_out} cases with settles or leases left out")
    check(len(takes) > 0 and check.passed > len(takes), "the vectors were run")
    return check.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
