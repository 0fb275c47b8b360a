"""Checks the model against SPEC: `python3 tests/model/selfcheck.py [--seed N] [--cases N]`.

- every answer found by search equals SPEC's closed formula (closed.py);
- retry_after is exact: allowed at t+retry_after, denied one microsecond earlier;
- forgetting a state whose reset_after is 0 changes no answer;
- sliding log and sliding window never admit more than count in any span of a period;
- the canonical text parses back to the same limit;
- the vector files beside the model say what the model says (verify.py).
Prints the seed; exit 0 or 1.
"""
import argparse
import copy
import glob
import os
import random
import sys

import closed
import limits as language
import vectors
import verify
from model import Model, engine, fold
from scripts import BASE, FAMILIES, KEY, random_cost, random_limit, random_step, random_wait
from search import DAY, MAX53, MOST, NEVER


class Failed(Exception):
    pass


def check(ok, *what):
    if not ok:
        raise Failed(" ".join(str(w) for w in what))


def against_formulas(rng, family, size):
    """Search and formula on the same requests, settlements and changes of numbers."""
    text = random_limit(rng, family)
    first, = language.parse(text)
    period, precision = first.span() if first.period else None, first.precision
    if first.from_first:
        period = language.bare(first.period)
    other = closed.make(first)
    if other is None:
        return
    model, now, last, receipts, limit = Model(), BASE + rng.randint(0, DAY), None, [], first
    log = []
    for _ in range(size):
        now = min(max(0, now + random_step(rng, last, limit, True)), MAX53 // 2)
        cost, wait = random_cost(rng, engine(limit).limit), random_wait(rng, last, limit)
        if receipts and family != "concurrent" and rng.random() < 0.12:
            t0, c0 = rng.choice(receipts[-5:])
            c1 = rng.choice((0, c0 // 2, c0, 2 * c0, rng.randint(0, MOST)))
            log.append(("settle", now, t0, c0, c1))
            model.settle(now, KEY, [limit], t0, c0, c1)
            other.settle(now, t0, c0, c1)
        elif family != "concurrent" and rng.random() < 0.06:
            limit, = language.parse(random_limit(rng, family, period, precision))
            other.become(limit)
            log.append(limit.text())
        else:
            charging = rng.random() < 0.85
            verb = model.take if charging else model.peek
            log.append((verb.__name__, now, cost, wait))
            last = verb(now, KEY, [limit], cost, wait)[0]
            formula = closed.saturated(other.take(now, cost, wait, charging))
            check(tuple(last)[:6] == formula, text, log[-12:], "search", last, "formula", formula)
            if last.allowed:
                receipts.append((now, cost))


def exact_retry(rng, family, size):
    """The definition of retry_after and of delay, put to the model from outside."""
    limits = language.parse(random_limit(rng, family))
    if rng.random() < 0.3:
        more, = language.parse(random_limit(rng, rng.choice(FAMILIES)))
        if more.identity() != limits[0].identity():
            limits.append(more)
    model, now, last = Model(), BASE + rng.randint(0, DAY), None
    for _ in range(size):
        now = max(0, now + random_step(rng, last, limits[0], len(limits) == 1))
        cost, wait = random_cost(rng, engine(limits[0]).limit), random_wait(rng, last, limits[0])
        peeked = model.peek(now, KEY, limits, cost, wait)[0]
        before = copy.deepcopy(model.keys)
        last, rows, _ = model.take(now, KEY, limits, cost, wait)
        check(fold(rows)[0][:6] == last[:6], "fold", rows, last)
        for field in ("allowed", "retry_after", "delay") + (("limit",) if len(limits) == 1 else ()):
            check(getattr(peeked, field) == getattr(last, field), limits, "peek", peeked, last)
        if last.allowed and cost:
            continue
        check(last == peeked and model.keys == before, limits, "charged nothing, yet changed")
        if not last.allowed and last.retry_after != NEVER:
            then = now + last.retry_after
            check(last.retry_after > 0, limits, last)
            check(model.peek(then, KEY, limits, cost, wait)[0].allowed, limits, "too early", last)
            before = model.peek(then - 1, KEY, limits, cost, wait)[0]
            check(not before.allowed, limits, "not the first instant", last)


def evictable(rng, family, size):
    """A store that forgets what is back to fresh answers the same (time not running back)."""
    limits = language.parse(random_limit(rng, family))
    keeping, evicting, now, last = Model(keeping=True), Model(evicting=True), BASE + rng.randint(0, DAY), None
    for _ in range(size):
        now += random_step(rng, last, limits[0], False)
        cost, wait = random_cost(rng, engine(limits[0]).limit), random_wait(rng, last, limits[0])
        last = keeping.take(now, KEY, limits, cost, wait)[0]
        twin = evicting.take(now, KEY, limits, cost, wait)[0]
        check(last == twin, limits[0].text(), now, cost, wait, "kept", last, "evicted", twin)


def never_more(rng, family, size):
    """Brute force over all that was admitted: no span of a period holds more than count."""
    limit, = language.parse(random_limit(rng, family))
    model, now, last, admitted = Model(), BASE + rng.randint(0, DAY), None, []
    for _ in range(size):
        now += random_step(rng, last, limit, False)
        cost = random_cost(rng, limit.count)
        last = model.take(now, KEY, [limit], cost)[0]
        recent = sum(c for t, c in admitted if t > now - limit.period)
        if last.allowed:
            admitted.append((now, cost))
            check(recent + cost <= limit.count, limit, now, recent, cost)
        elif cost <= limit.count:
            slack = max(1, limit.precision)
            strict = sum(c for t, c in admitted if t > now - limit.period - slack)
            check(strict + cost > limit.count, limit, now, "denied though", strict)


def round_trip(rng, family, size):
    for _ in range(size):
        limits = language.parse(random_limit(rng, family))
        check(language.parse(language.text(limits)) == limits, language.text(limits))


def is_noticed(lines):
    """Whether tails that are not those of the checksum are an error."""
    try:
        vectors.hold_to_checksum(lines)
    except SystemExit:
        return True
    print("other tails than those of tests/vectors/tails.sha256 are taken")
    return False


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--seed", type=int, default=int(os.environ.get("WEIR_SEED") or random.SystemRandom().randrange(10 ** 9)))
    ask.add_argument("--cases", type=int, default=12, help="of each check and algorithm")
    ask.add_argument("files", nargs="*", help="more vectors to verify: tails.vec")
    args = ask.parse_args()
    print(f"seed {args.seed}")
    failed = 0
    for family in FAMILIES:
        checks = [against_formulas, exact_retry, round_trip, evictable]
        if family in ("sliding_log", "sliding_window"):
            checks.append(never_more)
        for one in checks:
            for case in range(args.cases):
                try:
                    one(random.Random(f"{args.seed} {family} {one.__name__} {case}"), family, 60)
                except Failed as error:
                    failed += 1
                    print(f"{family} {one.__name__} case {case}: {error}")
                    break
    paths = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "..", "vectors", "*.vec")))
    paths += args.files
    if paths:
        failed += verify.main(paths)
    failed += not is_noticed(["# other tails"])
    print("failed" if failed else "ok", f"({failed} of the checks)" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
