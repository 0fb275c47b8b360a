"""What the Lua tests share: the assembled scripts, limits as numbers, counting, the vectors as steps."""
import hashlib
import os
import re
import sys

from .build import ROOT
sys.path[:0] = [str(ROOT / "tests" / "model"), str(ROOT / "lua")]

import assemble  # noqa: E402
import limits as language  # noqa: E402

KINDS = ["token-bucket", "stepped", "leaky-bucket", "fixed-window", "from-first", "sliding-log",
         "sliding-window", "sliding-counter", "smooth", "warmup", "concurrent", "calendar"]
VERBS = {"take": 0, "peek": 1, "settle": 2, "reset": 3, "acquire": 4, "renew": 5, "release": 6, "show": 7}
WAITS = {"default": -1, "any": -2}
LEAN = ["take_" + name for name in assemble.LEAN]
SCRIPTS = {name: text for name, (text, _) in assemble.assemble().items()}
ARGUMENTS = {name: words.split() for name, (_, words) in assemble.assemble().items()}


def sha1(name):
    return hashlib.sha1(SCRIPTS[name].encode()).hexdigest()


def load(client, *names):
    """Loads scripts (all but the library, unless named); their SHA1s."""
    names = names or [name for name in SCRIPTS if name not in ("weir_library", "weir_free")]
    replies = client.pipeline([("SCRIPT", "LOAD", SCRIPTS[name]) for name in names])
    shas = {name: reply.decode() for name, reply in zip(names, replies)}
    assert all(shas[name] == sha1(name) for name in names)
    return shas


RECEIPT = re.compile(rb"^w3-([0-9]+)-([1-9][0-9]*)-([1-9][0-9]*)$")


def unnamed(reply):
    """A reply whose receipt has lost its id, to be compared with another's."""
    if isinstance(reply, list):
        return [unnamed(part) for part in reply]
    return RECEIPT.sub(rb"w1-\1-\2", reply) if isinstance(reply, bytes) else reply


def calendar_number(limit):
    """Unit, anchor and zone in one number: docs/STATE.md."""
    unit = ("", "week", "month", "year").index(limit.unit)
    anchor = {"": lambda: 0, "week": lambda day: day + 1, "month": lambda day: day,
              "year": lambda month, day: month * 32 + day}[limit.unit](*limit.anchor)
    return (unit * 512 + anchor) * 2048 + limit.zone + 720


class Numbers:
    """One limit as the scripts take it."""

    def __init__(self, limit):
        calendar = limit.unit or limit.zone
        name = ("stepped" if limit.stepped else "from-first" if limit.from_first else
                "calendar" if calendar else limit.kind)
        self.kind = KINDS.index(name)
        self.count, self.burst, self.flags = limit.count, limit.burst, int(limit.nodelay)
        self.period = limit.lease if limit.kind == "concurrent" else limit.period
        self.extra = limit.delay or limit.precision or limit.burst_for or limit.over
        if calendar:
            self.extra = calendar_number(limit)
        self.cold = int(limit.cold * 10 ** 6) if limit.kind == "warmup" else 0
        self.own = limit.cost

    def general(self, owns=False):
        own = [self.own] if owns else []
        return [self.kind, self.count, self.period, self.burst, self.extra, self.flags, self.cold, *own]

    def lean(self):
        """The name of its lean script."""
        return LEAN[self.kind]

    def lean_arguments(self, cost, wait):
        numbers = dict(vars(self), cost=cost, wait=wait)
        return [numbers[word] for word in ARGUMENTS[self.lean()]]


def parse(text):
    return [Numbers(limit) for limit in language.parse(text)]


def general(verb, limits, cost=1, wait=-1, lease=0, options=0, least=None):
    """ARGV of the general script for one key; least: 0 or more, and the reply tells what is granted."""
    owns = any(limit.own for limit in limits)
    options += 2 * (least is not None) + 4 * owns
    return [VERBS[verb], options, wait, lease, cost, *([] if least is None else [least]), len(limits),
            *(number for limit in limits for number in limit.general(owns))]


def evaluate(sha, keys, arguments):
    return ("EVALSHA", sha, len(keys), *keys, *arguments)


class Step:
    """A line of a vector file as a call, and what its reply must be."""

    def __init__(self, place, verb, key, limits, text):
        self.place, self.verb, self.key, self.limits, self.text = place, verb, key, limits, text
        self.time = self.cost = self.lease = 0
        self.wait = -1
        self.six = self.wanted = self.bind = self.least = self.granted = None
        self.rows, self.row_grants = {}, {}  # what each row granted, where the vectors tell it

    def general(self, sha):
        if self.verb == "reset":
            return evaluate(sha, [self.key], [VERBS["reset"], self.time])
        verb = "take" if self.verb == "grant" else self.verb
        detail = int(verb in ("take", "peek", "acquire"))
        arguments = general(verb, self.limits, self.cost, self.wait, self.lease, detail, self.least)
        return evaluate(sha, [self.key], [*arguments, self.time])

    def is_lean(self):
        return self.verb in ("take", "grant") and len(self.limits) == 1 and self.least is None and not self.limits[0].own

    def lean(self, shas):
        limit = self.limits[0]
        arguments = limit.lean_arguments(self.cost, self.wait)
        return evaluate(shas[limit.lean() + "_test"], [self.key], [*arguments, self.time])

    def compare(self, reply, tally, home):
        """Checks one reply, every field."""
        where = f"{self.place} ({home})"
        if self.wanted == "refused":
            return tally("cannot be settled" in str(reply), f"{where}: got {reply!r}")
        if isinstance(reply, Exception):
            return tally(False, f"{where}: {reply}")
        if self.verb == "reset":
            return tally(reply in (0, 1), f"{where}: got {reply!r}")
        if self.verb in ("settle", "renew", "release"):
            return tally.equal(reply, "OK" if self.wanted == "ok" else int(self.wanted), where)
        if self.verb == "grant":
            return tally.equal([reply[0], reply[5]], self.six, where)
        tally.equal(reply[:6], self.six, where)
        rest, granted = reply[7:], self.cost if reply[0] else 0
        if self.least is not None:
            granted = self.granted
            tally.equal(rest.pop(0), granted, where + " granted")
        charged = granted if self.verb != "peek" else 0
        tally.equal(unnamed(reply[6]), b"w1-%d-%d" % (self.time, charged), where + " receipt")
        tally.equal(reply[6][:2], b"w3" if charged else b"w1", where + " has an id")
        if rest:
            self.compare_detail(rest, tally, where)

    def compare_detail(self, rest, tally, where):
        if self.verb == "acquire":
            held = self.lease if self.six[0] and self.cost else 0
            tally.equal(rest.pop(0), held, where + " lease")
        rows = rest[1:]
        tally.equal(len(rows), len(self.limits), where + " rows")
        for i, row in self.rows.items():
            tally.equal(rows[i], row, f"{where} row {i}")
        if self.bind is not None:
            tally.equal(rest[0], self.bind, where + " bind")


def numbers(text):
    return [int(word) for word in text.split()]


class Reader:
    """Vector files to steps."""

    def __init__(self):
        self.steps, self.key, self.limits, self.text = [], None, None, None
        self.leases, self.next_lease = {}, 0

    def read(self, path):
        with open(path, encoding="ascii") as lines:
            for number, line in enumerate(lines, 1):
                line = line.rstrip("\n")
                if line and line[0] != "#":
                    self.line(f"{os.path.basename(path)}:{number}", *line.partition(" ")[::2])
        return self

    def line(self, place, verb, rest):
        head, _, wanted = rest.partition(" = ")
        if verb in ("ok", "bad"):
            return
        if verb == "case":
            self.key, self.leases = place, {}
        elif verb == "limit":
            self.limits, self.text = parse(rest), rest
        elif verb == "row":
            step = self.steps[-1]
            step.rows[int(head)] = numbers(wanted)[:6 if step.least is None else 7]
            step.row_grants.update({int(head): granted for granted in numbers(wanted)[6:]})
        elif verb == "bind":
            self.steps[-1].bind = int(head)
        else:
            self.steps.append(self.step(place, verb, head.split(), wanted))

    def step(self, place, verb, words, wanted):
        step = Step(place, verb, self.key, self.limits, self.text)
        step.time = int(words[0])
        if verb == "settle":
            step.wait, step.cost, step.wanted = f"w1-{words[1]}-{words[2]}", int(words[3]), wanted
        elif verb in ("renew", "release"):
            step.lease, step.wanted = self.leases.get(words[1], 1), wanted
        elif verb != "reset":
            least, dots, cost = words[1].rpartition("..")
            step.cost, step.six = int(cost), numbers(wanted)
            if len(step.six) == 7:
                step.granted = step.six.pop()
            if dots:
                step.least = int(least)
            step.wait = WAITS[words[-1]] if words[-1] in WAITS else int(words[-1])
        if verb == "acquire":
            self.next_lease += 1
            step.lease = (self.next_lease * 0x5DEECE66D + 11) % (1 << 47)
            if step.six[0]:
                self.leases[words[2]] = step.lease
        return step
