#!/usr/bin/env python3
"""Values damaged in every way, then every verb by module and Lua: both refuse, or both answer and write the same.

    state_damage.py [--long|--short] [--seed N]

Every byte of a value of every kind is changed, every length cut, and bytes are made up; set by SET or by RESTORE
of a dumped payload. A refusal names the key and changes nothing; the server stays up. Without --long a random
part of all that.
"""
import random
import sys

from lib import checks, lua_cases, module_cases

T0 = 1700000000000000
KEY = "damaged"
LIMITS = [
    "token-bucket 10/s burst 20", "token-bucket 10/m burst 20 stepped", "leaky-bucket 10/h burst 15",
    "fixed-window 20/m", "fixed-window 20/h from-first", "sliding-log 12/m",
    "sliding-window 12/h precision 1m", "sliding-counter 20/h", "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s", "concurrent 12 lease 10m", "fixed-window 20/month from 31 zone +08:00",
    "fixed-window 20/90s zone -12:00", "fixed-window 20/year, fixed-window 20/w from mon, sliding-log 12/m",
    "fixed-window 20/m, sliding-log 12/m, smooth 5/s", "concurrent 12 lease 10m, token-bucket 9/h",
]


def charges(limits, count, apart):
    """The calls that make a value, with their times."""
    verb = "acquire" if "concurrent" in limits else "take"
    return [(T0 + i * apart, module_cases.Call(verb, KEY, limits, 1 + i % 2, lease=1000 + i)) for i in range(count)]


def values(client):
    """Sound values: (limits, the time of the last charge, bytes), rings whole, half full and gone round."""
    out = []
    for limits in LIMITS:
        shapes = [(1, 0), (5, 7)]
        if any(word in limits for word in ("log", "sliding-window", "concurrent")):
            shapes += [(7, 61000000), (30, 10000000)]
        for count, apart in shapes:
            client.call("DEL", KEY)
            for now, call in charges(limits, count, apart):
                client.pipeline([("WEIR.CLOCK", now, call.lease), call.by_module()])
            out.append((limits, T0 + (count - 1) * apart, client.call("GET", KEY)))
        if "concurrent" not in limits:  # with receipts that were settled
            for name in (1, 2):
                client.call("WEIR.SETTLE", KEY, limits, f"w3-{now}-2-{name}", 1)
            out.append((limits, now, client.call("GET", KEY)))
    return out


def damages(value, pick):
    """Ways to damage a value, in every byte and length."""
    for i in range(len(value)):
        for byte in {value[i] ^ 1, value[i] ^ 0x80, 0, 0xFF, value[i] + 1 & 0xFF, pick.randrange(256)} - {value[i]}:
            yield value[:i] + bytes([byte]) + value[i + 1:]
    for i in range(len(value)):
        yield value[:i]
        yield value[:i] + value[i + 1:]
        yield value[:i] + bytes([pick.randrange(256)]) + value[i:]
    yield value + bytes([12]) + value[3:]  # a kind that is yet to come
    for size in (1, 8, 40):
        yield value + bytes(size)
        yield value + value[2:]
    for _ in range(20):
        yield value[:2] + bytes([pick.randrange(13)]) + pick.randbytes(pick.randrange(90))
        yield pick.randbytes(pick.randrange(1, 60))


def calls(limits, now, pick):
    """(time, call): one of every verb."""
    first = limits.split(",")[0]
    for time in (now, now + pick.choice([1, 1000000, 61000000, 3600000000, -61000000, 10 ** 12])):
        for cost in (0, 1, 6, 12, 10 ** 12):
            yield time, module_cases.Call("take", KEY, limits, cost, detail=pick.random() < 0.5)
        yield time, module_cases.Call("peek", KEY, limits, 5)
        yield time, module_cases.Call("show", KEY)
        yield time, module_cases.Call("take", KEY, "fixed-window 7/8h", 1)
        if "concurrent" in first:
            for lease in (1000, 1003, 1006, 5):
                yield time, module_cases.Call("renew", KEY, first, lease=lease)
                yield time, module_cases.Call("release", KEY, first, lease=lease)
        elif "concurrent" not in limits:
            for cost in (0, 1, 9):
                yield time, module_cases.Call("settle", KEY, limits, cost, receipt=f"w1-{now}-2")
                yield time, module_cases.Call("settle", KEY, limits, cost, receipt=f"w1-{now - 61000000}-1")
                yield time, module_cases.Call("settle", KEY, limits, cost, receipt=f"w3-{now}-2-{1 + cost % 2}")
    yield now, module_cases.Call("reset", KEY)


MINUTE, DAY = 60_000_000, 86_400_000_000


def calendar(unit, anchor, zone, period, end, count=1):
    """A value with one window of the calendar; the zone is in minutes."""
    extra = (unit * 512 + anchor) * 2048 + zone + 720
    return b"\xf7\x01\x0b" + b"".join(number.to_bytes(size, "little") for number, size in
                                      ((period, 6), (extra, 6), (end, 7), (count, 7)))


def lies():
    """(whether it is sound, limits, value): windows of the calendar that say what cannot be, each in one number."""
    december, new_year = 1701388800000000, 1704067200000000  # 2023-12-01, 2024-01-01
    month, year, week = "fixed-window 20/month", "fixed-window 20/year", "fixed-window 20/w from mon"
    yield True, month, calendar(2, 1, 0, 31 * DAY, december)
    yield True, month, calendar(2, 1, 0, 31 * DAY, 2 ** 53)
    for end in (0, 1, december - 1, december + 1, december - DAY, december + DAY, 2 ** 53 - 1, 2 ** 53 + 2, 2 ** 56 - 1):
        yield False, month, calendar(2, 1, 0, 31 * DAY, end)
    yield False, month, calendar(2, 2, 0, 31 * DAY, december)
    yield False, month, calendar(2, 1, 60, 31 * DAY, december)
    for anchor in (0, 32, 511):
        yield False, month, calendar(2, anchor, 0, 31 * DAY, december)
    for zone in (841, 1327):
        yield False, month, calendar(2, 1, zone, 31 * DAY, december - zone * MINUTE)
    for unit in (0, 1, 3, 4, 7, 2 ** 20):
        yield False, month, calendar(unit, 1, 0, 31 * DAY, december)
    for period in (30 * DAY, 31 * DAY + 1, 366 * DAY):
        yield False, month, calendar(2, 1, 0, period, december)
    yield True, year, calendar(3, 33, 0, 366 * DAY, new_year)
    yield False, year, calendar(3, 33, 0, 366 * DAY, december)
    for anchor in (0, 1, 32, 13 * 32 + 1, 2 * 32 + 30, 4 * 32 + 31):
        yield False, year, calendar(3, anchor, 0, 366 * DAY, new_year)
    yield True, week, calendar(1, 1, 0, 7 * DAY, T0 - T0 % (7 * DAY) + 4 * DAY)
    yield False, week, calendar(1, 1, 0, 7 * DAY, T0 - T0 % (7 * DAY) + 7 * DAY)
    for anchor in (0, 8):
        yield False, week, calendar(1, anchor, 0, 7 * DAY, T0 - T0 % (7 * DAY) + 4 * DAY)
    yield True, "fixed-window 20/d zone -12:00", calendar(0, 0, -720, DAY, december + DAY // 2)
    yield False, "fixed-window 20/d zone -12:00", calendar(0, 0, -720, DAY, december)
    yield False, "fixed-window 20/d", calendar(0, 0, 0, DAY, december)  # that is another kind
    for count in (0, 2 ** 53 + 2):
        yield False, month, calendar(2, 1, 0, 31 * DAY, december, count)


def is_error(reply):
    return isinstance(reply, Exception)


class Check:
    def __init__(self, tally, client, pick):
        self.tally, self.client, self.pick = tally, client, pick
        self.shas = lua_cases.load(client)
        self.pending = []

    def homes(self, now, call):
        """The same call by each writer."""
        out = [call.by_module(), call.by_lua(self.shas["weir_test"], now)]
        limits = module_cases.parsed(call.limits) if call.verb == "take" and not call.detail else []
        if len(limits) == 1:
            arguments = limits[0].lean_arguments(call.cost, call.wait)
            out.append(lua_cases.evaluate(self.shas[limits[0].lean() + "_test"], [KEY], [*arguments, now]))
        return out

    def put(self, value, dumped):
        return ("RESTORE", KEY, 0, dumped, "REPLACE") if dumped else ("SET", KEY, value)

    def add(self, what, value, now, call, dumped):
        commands = [("WEIR.CLOCK", max(0, now), 9999)]
        for home in self.homes(max(0, now), call):
            commands += [self.put(value, dumped), home, ("GET", KEY)]
        self.pending.append((what, value, now, call, commands))
        if len(self.pending) >= 200:
            self.flush()

    def expect_lies(self):
        """Every home says of every lie that the value is damaged, and in the same words (compare)."""
        for good, limits, value in lies():
            every = list(calls(limits, T0, self.pick))
            for now, call in every:
                self.add("a lie", value, now, call, None)
            replies = self.client.pipeline([c for home in self.homes(T0, every[1][1]) for c in (("SET", KEY, value), home)])
            for reply in replies[1::2]:
                self.tally(good == (not is_error(reply)), f"{value.hex()} is {'sound' if good else 'a lie'}: {reply!r}")

    def flush(self):
        replies = self.client.pipeline([c for *_, commands in self.pending for c in commands], batch=2000)
        at = 0
        for what, value, now, call, commands in self.pending:
            end = at + len(commands)
            self.compare(what, value, now, call, replies[at + 2:end:3], replies[at + 3:end:3])
            at = end
        self.pending = []

    def compare(self, what, value, now, call, answers, left):
        where = f"{what}, {call.verb} {call.limits} cost {call.cost} at {now} of {value.hex()}"
        first = answers[0]
        for home, answer, after in zip(("module", "Lua", "lean Lua"), answers, left):
            same = (lua_cases.unnamed(answer) == lua_cases.unnamed(first)
                    or (is_error(answer) and is_error(first) and str(answer) == str(first)))
            self.tally(same, f"{where}: {home} answered {answer!r}, the module {first!r}")
            self.tally(after == left[0], f"{where}: {home} left {after and after.hex()}, "
                                               f"the module {left[0] and left[0].hex()}")
            if is_error(answer):
                self.tally(after == value, f"{where}: {home} refused and changed the value")
                self.tally(str(answer).startswith("WEIRSTATE") and KEY in str(answer),
                                 f"{where}: {home} said {answer}")


def run(tally, client, pick, share):
    sound = values(client)
    check = Check(tally, client, pick)
    for limits, now, value in sound:
        for call_now, call in calls(limits, now, pick):
            check.add("sound", value, call_now, call, None)
        for damaged in damages(value, pick):
            if not damaged or pick.random() > share:
                continue
            dumped = None
            if pick.random() < 0.3:
                client.call("SET", KEY, damaged)
                dumped = client.call("DUMP", KEY)
            every = list(calls(limits, now, pick))
            for call_now, call in every if share == 1 else pick.sample(every, 4):
                check.add("damaged", damaged, call_now, call, dumped)
    check.expect_lies()
    check.flush()
    return sum(1 for _ in sound)


def main(arguments):
    seed = int(arguments[arguments.index("--seed") + 1]) if "--seed" in arguments else checks.seed()
    pick, tally = random.Random(seed), checks.Checks()
    print(f"seed {seed}", flush=True)
    with module_cases.server(argument="test-clock") as server, server.client() as client:
        run(tally, client, pick, 1 if "--long" in arguments else 0.05 if "--short" in arguments else 0.15)
        tally.equal(client.call("PING"), "PONG", "the server is up")
        tally("Guru Meditation" not in server.log(), "the server reported a crash")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
