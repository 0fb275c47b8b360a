"""Decides a trace: `python3 tests/model/replay.py LIMITS [--wait T] < trace.csv`.

Prints exactly what `weir replay LIMITS --decisions` prints: a header, then a line a request.
A line of the trace is `time,key[,cost]`: seconds with up to six decimals, keys quoted as in
RFC 4180 where needed.  Exit 0, or 2 with the line at fault.
"""
import argparse
import re
import sys

import limits as language
from model import Model
from search import LONGEST, MAX53, MOST, NEVER

HEADER = "time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay"
TIME = re.compile(r"[0-9]+(?:\.[0-9]{1,6})?")
FIELD = re.compile(r'"((?:[^"]|"")*)",|([^",]*),')
WHOLE = re.compile(r"[0-9]+")


class Bad(ValueError):
    """What is wrong with a line, or with an argument."""


def records(lines):
    """(line number, fields) of each record; bytes travel as Latin-1, unharmed."""
    number, pending, start = 0, "", 0
    for line in lines:
        number += 1
        if not pending:
            start = number
            if '"' not in line:
                line = line.rstrip("\r\n")
                if line:
                    yield number, line.split(",")
                continue
        pending += line
        if pending.count('"') % 2:
            continue                    # a quoted line end
        yield start, split_quoted(start, pending.rstrip("\r\n"))
        pending = ""
    if pending:
        raise Bad(f"line {start}: a quote is not closed")


def split_quoted(number, text):
    """The fields of a record that has quotes in it."""
    fields, rest = [], text + ","
    while rest:
        match = FIELD.match(rest)
        if not match:
            raise Bad(f"line {number}: badly quoted")
        fields.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        rest = rest[match.end():]
    return fields


def request(number, fields):
    """(time in microseconds, key, cost) of a record."""
    if not 2 <= len(fields) <= 3:
        raise Bad(f"line {number}: expected time,key[,cost]")
    time, key = fields[0], fields[1]
    cost = fields[2] if len(fields) == 3 else "1"
    if not TIME.fullmatch(time):
        raise Bad(f"line {number}: not a time: {time!r}")
    seconds, _, decimals = time.partition(".")
    t = int(seconds) * 1_000_000 + int(decimals.ljust(6, "0"))
    if t > MAX53:
        raise Bad(f"line {number}: time out of bounds: {time}")
    if not WHOLE.fullmatch(cost) or int(cost) > MOST:
        raise Bad(f"line {number}: not a cost: {cost!r}")
    if not 1 <= len(key) <= 65536:
        raise Bad(f"line {number}: a key has 1 to 65536 bytes")
    return t, key, int(cost)


def seconds(us):
    return "never" if us == NEVER else f"{us // 1_000_000}.{us % 1_000_000:06d}"


def quoted(key):
    if any(c in key for c in ',"\r\n'):
        return '"' + key.replace('"', '""') + '"'
    return key


def parse_wait(text):
    if text in ("default", "any"):
        return text
    wait = 0 if re.fullmatch(r"0[a-z]*", text) else language.parse_length(text.lower())
    if wait > LONGEST:
        raise Bad(f"wait is longer than 366 days: {text}")
    return wait


def replay(limits, wait, lines, write):
    model, out = Model(), [HEADER]
    for number, fields in records(lines):
        t, key, cost = request(number, fields)
        a = model.take(t, key, limits, cost, wait)[0]
        out.append(f"{seconds(t)},{quoted(key)},{cost},{a.allowed:d},{a.limit},{a.remaining},"
                   f"{seconds(a.retry_after)},{seconds(a.reset_after)},{seconds(a.delay)}")
        if len(out) >= 10_000:
            write("\n".join(out) + "\n")
            out.clear()
    if out:
        write("\n".join(out) + "\n")


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("limits")
    ask.add_argument("--wait", default="default", help="a duration, or any")
    ask.add_argument("--decisions", action="store_true", help="always on")
    args = ask.parse_args()
    sys.stdin.reconfigure(encoding="latin-1", newline="\n")
    sys.stdout.reconfigure(encoding="latin-1", newline="\n")
    try:
        replay(language.parse(args.limits), parse_wait(args.wait), sys.stdin, sys.stdout.write)
    except (Bad, language.Refused) as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
