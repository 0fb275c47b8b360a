#!/usr/bin/env python3
"""Every day from 1970 to 2200 in windows of the calendar: C and Lua against Python's datetime.

    calendar_days.py [--seed N] [--long]

Python's calendar says at which days windows start. The library and the scripts' arithmetic (in a real server) are asked
for the window of every midnight, of UTC and of the zone, of the instant before, and of a time within every day. A run
tries some anchors and zones, drawn by the seed; --long tries every anchor of week, month and year in extreme zones.
"""
import argparse
import bisect
import os
import random
import subprocess
import sys
from datetime import date, timedelta

from lib import checks, lua_cases, redis_server
from lib.build import BUILD

import assemble  # beside lua_cases

DAY, MINUTE, ONE = 86_400_000_000, 60_000_000, timedelta(days=1)
EPOCH, FIRST, LAST = date(1970, 1, 1), date(1968, 1, 1), date(2201, 12, 31)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
PART = 3000 * DAY
ZONES = (-720, -210, 0, 345, 840)


def text_of(span, zone):
    hours, minutes = divmod(abs(zone), 60)
    return f"fixed-window 1/{span}" + (f" zone {'-' if zone < 0 else '+'}{hours:02}:{minutes:02}" if zone else "")


def last_of(year, month):
    return ((date(year, month, 28) + 4 * ONE).replace(day=1) - ONE).day


def starts(span):
    """The days on which windows start."""
    unit, _, anchor = span.partition(" from ")
    years = range(FIRST.year, LAST.year + 1)
    if unit == "w":
        day = FIRST + (WEEKDAYS.index(anchor) - FIRST.weekday()) % 7 * ONE
        return [day + 7 * i * ONE for i in range((LAST - day).days // 7 + 1)]
    if unit.endswith("d"):  # so many days; in the zone they count from its 1970-01-01
        length = int(unit[:-1] or 1)
        first = -(-(FIRST - EPOCH).days // length)
        return [EPOCH + length * i * ONE for i in range(first, (LAST - EPOCH).days // length + 1)]
    if unit == "month":
        day = int(anchor or 1)
        return [date(y, m, min(day, last_of(y, m))) for y in years for m in range(1, 13)]
    month, day = map(int, (anchor or "01-01").split("-"))
    return [date(y, month, min(day, last_of(y, month))) for y in years]


def edges(days, zone):
    found = [(day - EPOCH).days * DAY - zone * MINUTE for day in days]
    before = max(i for i, edge in enumerate(found) if edge <= 0)
    return found[before:]


def every_span():
    year = [date(2024, 1, 1) + i * ONE for i in range(366)]
    return (["d", "10d", "366d"] + [f"w from {name}" for name in WEEKDAYS] + ["month", "year"] + [f"month from {day}" for day in range(1, 32)]
            + [f"year from {day:%m-%d}" for day in year])


def in_c(cases):
    """(passed, failed, what was printed)"""
    given = []
    for span, zone in cases:
        given += [f"limit {text_of(span, zone)}", *map(str, edges(starts(span), zone)), "end"]
    done = subprocess.run([os.path.join(BUILD, "tests", "calendar_days")], input="\n".join(given) + "\n",
                          stdout=subprocess.PIPE, text=True)
    words = done.stdout.split()
    return int(words[-4]), int(words[-2]), done.stdout


SWEEP = """
local extra, period, first, last = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local edges, right, wrong, seen = {}, 0, 0, 'nothing'
for i = 5, #ARGV do edges[#edges + 1] = tonumber(ARGV[i]) end
local at, zone_us = 1, (extra % 2048 - 720) * 60000000
local function check(t, from)
    local i, start, finish = from, nil, nil
    while i + 2 <= #edges and t >= edges[i + 1] do i = i + 1 end
    if t < 0 or t < edges[1] or t >= edges[#edges] then return i end
    WINDOW
    if start == edges[i] and finish == edges[i + 1] then
        right = right + 1
    else
        wrong = wrong + 1
        seen = string.format('%.0f: %.0f to %.0f', t, start, finish)
    end
    return i
end
local at_zone, at_any, noise = 1, 1, 12345 + first / DAY
for midnight = first, last, DAY do
    noise = (noise * 16807) % 2147483647
    at = check(midnight - 1, at)
    at = check(midnight, at)
    at_zone = check(midnight - zone_us - 1, at_zone)
    at_zone = check(midnight - zone_us, at_zone)
    at_any = check(midnight + noise * 40, at_any)
end
return {right, wrong, seen}
"""


def sweep_script():
    """The sweep around the very lines that the scripts are made of."""
    pieces = assemble.Pieces()
    window = "\n".join(pieces.expand("calendar.window start | finish | t", assemble.CONSTANTS))
    return SWEEP.replace("WINDOW", window).replace("DAY", str(DAY))


def in_lua(cases, tally):
    with redis_server.Server() as server, server.client() as client:
        sha = client.call("SCRIPT", "LOAD", sweep_script()).decode()
        for span, zone in cases:
            limit, = lua_cases.parse(text_of(span, zone))
            known = edges(starts(span), zone)
            right = 0
            for first in range(0, known[-1], PART):  # in parts: no call may take long
                last = min(first + PART, known[-1]) - 1
                some = known[max(0, bisect.bisect(known, first - 2 * DAY) - 1):bisect.bisect(known, last + 2 * DAY) + 1]
                good, wrong, seen = client.call("EVALSHA", sha, 0, limit.extra, limit.period, first, last, *some)
                right += good
                tally(wrong == 0, f"Lua, {text_of(span, zone)}: {wrong} wrong, the last at {seen!r}")
            tally(right > 400_000, f"Lua, {text_of(span, zone)}: {right} instants were right")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--seed", type=int, default=checks.seed())
    options.add_argument("--long", action="store_true", help="every anchor, in C in all zones, in Lua in two")
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    rng, tally = random.Random(given.seed), checks.Checks()
    spans = every_span()
    few = ["d", "month", "month from 31", "year", "year from 02-29", "w from mon"] + rng.sample(spans, 15)
    cases = [(span, zone) for span in (spans if given.long else few) for zone in ZONES
             if zone or not span.endswith("d")]
    passed, failed, printed = in_c(cases)
    tally(passed > 400_000 * len(cases) and not failed, f"C: {passed} right, {failed} wrong\n{printed}")
    print(f"C: {len(cases)} limits, {passed} instants", flush=True)
    some = [(span, zone) for span, zone in cases if zone in (-720, 840)] if given.long else rng.sample(cases, 6)
    in_lua(some, tally)
    print(f"Lua: {len(some)} limits")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
