#!/usr/bin/env python3
"""Every command with random arguments against a live server, which must stay up and keep its promises.

    module_fuzz.py [--long|--short] [--seed N]

Words are of every sort: numbers beyond any bound, options in wrong places, limits cut and mixed, keys of any
bytes, values of every type and damaged ones. Every reply is an error that begins with a code, or of its
command's shape; what is refused leaves its keys as they were. The seed is printed.
"""
import random
import sys

from lib import checks, module_cases

NUMBERS = ["0", "1", "2", "7", "100", "-1", "-0", "1000000000000", "1000000000001", "9007199254740992",
           "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "1e9", "0x7f", "1.5", "", " 1", "nan",
           "140737488355327", "140737488355328", "31622400000000", "31622400000001"]
WORDS = ["LEASE", "COST", "WAIT", "DETAIL", "LEAST", "ACQUIRE", "any", "cost", "Wait", "NX", "w1-1-1", "w1-1700000000000000-3", "w1-0-0",
         "w1-9007199254740991-1000000000000", "w3-1-1-7", "w3-1700000000000000-3-9", "*", "\r\n", "%s%n%d", "weir"]
LIMITS = module_cases.LIMITS + [
    module_cases.MANY, "token-bucket 1000g/s burst 1000g", "token-bucket 1/366d burst 284", "sliding-log 100k/366d",
    "sliding-window 1000g/366d precision 366d", "sliding-window 10000/10ms precision 1us", "sliding-counter 1g/366d",
    "warmup 1000g/us over 366d cold 1000", "smooth 1/366d burst-for 366d", "smooth 1000g/us",
    "concurrent 100k lease 366d", "fixed-window 1000g/us", "leaky-bucket 1/us burst 0",
    "token-bucket 3/7us burst 1000g stepped", "concurrent 1 lease 1us", "fixed-window 60/m cost 1, token-bucket 9k/m, concurrent 5 cost 1",
    "smooth 5/s cost 1000g, fixed-window 1000g/month cost 1000g", "sliding-log 9/m cost 9, sliding-counter 90/m",
    ", ".join(f"sliding-log 5/{i}s" for i in range(1, 17)), ", ".join(f"smooth 5/{i}s" for i in range(1, 18)),
]
COMMANDS = ["WEIR.TAKE", "WEIR.PEEK", "WEIR.TAKEALL", "WEIR.SETTLE", "WEIR.RESET", "WEIR.ACQUIRE", "WEIR.RENEW",
            "WEIR.RELEASE", "CL.THROTTLE", "WEIR.CLOCK"]
LENGTHS = {"WEIR.TAKE": 7, "WEIR.PEEK": 7, "WEIR.ACQUIRE": 8}


class Fuzzer:
    def __init__(self, pick):
        self.pick, self.time = pick, 1700000000000000
        self.keys = [b"k%d" % i for i in range(30)]
        self.keys += [b"", b"\x00", b"\xff" * 300, b"x" * 65536, b"x" * 65537, b"{a}\r\n"]

    def number(self):
        pick = self.pick
        sort = pick.random()
        if sort < 0.5:
            return str(pick.randrange(10 ** pick.randrange(1, 5)))
        return pick.choice(NUMBERS) if sort < 0.9 else str(pick.randrange(-1 << 70, 1 << 70))

    def limits(self):
        pick = self.pick
        text = pick.choice(LIMITS)
        sort = pick.random()
        if sort < 0.85:
            return text
        if sort < 0.9:
            return text[:pick.randrange(len(text) + 1)]
        if sort < 0.95:
            return text + ", " + pick.choice(LIMITS)
        at = pick.randrange(len(text))
        return text[:at].encode() + pick.randbytes(pick.randrange(1, 4)) + text[at + 1:].encode()

    def key(self):
        return self.pick.choice(self.keys)

    def any(self):
        pick = self.pick
        return pick.choice([self.key, self.limits, self.number, lambda: pick.choice(WORDS),
                            lambda: pick.randbytes(pick.randrange(40))])()

    def options(self, leasts=1):
        pick = self.pick
        out = []
        for word, chance in (("COST", 0.5 if leasts == 1 else 0), ("WAIT", 0.2), ("DETAIL", 0.3), ("LEAST", 0.3)):
            if pick.random() < chance:
                out += {"DETAIL": lambda: [], "WAIT": lambda: ["any" if pick.random() < 0.2 else self.number()],
                        "LEAST": lambda: [str(pick.randrange(9)) for _ in range(leasts)]}.get(word, lambda: [self.number()])()
                out.insert(len(out) - {"DETAIL": 0, "LEAST": leasts}.get(word, 1), word)
        return out

    def clock(self):
        self.time = max(0, min((1 << 53) - 1, self.time + self.pick.choice(
            [0, 1, 1, 1000, 10 ** 6, 10 ** 6, 6 * 10 ** 7, 4 * 10 ** 9, -10 ** 6, -10 ** 8, 10 ** 12])))
        if self.pick.random() < 0.002:
            self.time = self.pick.choice([0, (1 << 53) - 1, 1700000000000000, 1700000000000000])
        return ["WEIR.CLOCK", self.time, self.pick.randrange(1, 20)]

    def call(self):
        """A command that means something, most of the time."""
        pick = self.pick
        name = pick.choice(COMMANDS)
        words = {
            "WEIR.TAKEALL": lambda: self.several(),
            "WEIR.SETTLE": lambda: [self.key(), self.limits(), self.receipt(), self.number()],
            "WEIR.RESET": lambda: [self.key()],
            "WEIR.RENEW": lambda: [self.key(), self.limits(), pick.randrange(1, 20)],
            "WEIR.RELEASE": lambda: [self.key(), self.limits(), pick.randrange(1, 20)],
            "CL.THROTTLE": lambda: [self.key(), *[self.number() for _ in range(pick.choice([3, 4]))]],
            "WEIR.CLOCK": lambda: self.clock()[1:],
        }.get(name, lambda: [self.key(), self.limits(), *self.options()])()
        if name != "WEIR.CLOCK" and pick.random() < 0.15:
            for _ in range(pick.randrange(1, 3)):
                self.spoil(words)
        return [name, *words]

    def receipt(self):
        return f"w1-{self.time - self.pick.choice([0, 1, 10 ** 6])}-{self.pick.randrange(9)}"

    def several(self):
        count = self.pick.choice([1, 2, 2, 3, 5, 16])
        words = [word for _ in range(count) for word in (self.key(), self.limits(), self.number())]
        return [str(count) if self.pick.random() < 0.95 else self.number(), *words, *self.options(count),
                *(["ACQUIRE"] if self.pick.random() < 0.3 else [])]

    def spoil(self, words):
        pick = self.pick
        at = pick.randrange(len(words) + 1)
        sort = pick.random()
        if sort < 0.4 and at < len(words):
            words[at] = self.any()
        elif sort < 0.7:
            words.insert(at, self.any())
        else:
            del words[at:]

    def disturb(self):
        """Something that others do to a key: another type, foreign or damaged bytes."""
        pick, key = self.pick, self.key()
        return pick.choice([
            ("DEL", key), ("DEL", key), ("SETRANGE", key, pick.randrange(200), pick.randbytes(pick.randrange(1, 9))),
            ("SETRANGE", key, 0, b"\xf7\x01" + pick.randbytes(pick.randrange(60))), ("APPEND", key, pick.randbytes(3)),
            ("SETBIT", key, pick.randrange(900), pick.randrange(2)), ("SET", key, pick.randrange(10 ** 9)),
            ("RPUSH", key, "x"), ("PEXPIRE", key, pick.choice([1, 10, 100000])), ("COPY", key, self.key(), "REPLACE"),
            ("PERSIST", key)])


def shaped(words, reply):
    """Whether a reply is one that its command may give."""
    name = words[0]
    if isinstance(reply, Exception):
        return str(reply).split(" ")[0] in ("ERR", "WEIRSTATE", "WEIRSHARED", "WEIRFULL")
    if name in ("WEIR.SETTLE", "WEIR.CLOCK"):
        return reply == "OK"
    if name in ("WEIR.RESET", "WEIR.RENEW", "WEIR.RELEASE"):
        return reply in (0, 1)
    if name == "CL.THROTTLE":
        return len(reply) == 5 and reply[0] in (0, 1) and reply[2] <= reply[1] and reply[3] >= -1 and reply[4] >= 0
    least = LENGTHS.get(name, 7)
    six = reply[:6]
    return (len(reply) >= least and all(isinstance(number, int) for number in six) and six[0] in (0, 1) and six[1] >= 1
            and min(six[2], six[4], six[5]) >= 0 and (six[3] == 0 if six[0] else six[3] >= -1 and six[5] == 0)
            and reply[6].startswith((b"w1-", b"w3-")))


def run(tally, client, fuzzer, calls):
    done = 0
    while done < calls:
        batch = []
        for _ in range(200):
            if fuzzer.pick.random() < 0.05:
                batch.append(list(fuzzer.disturb()))
            if fuzzer.pick.random() < 0.3:
                batch.append(fuzzer.clock())
            batch.append(fuzzer.call())
        replies = client.pipeline(batch)
        for words, reply in zip(batch, replies):
            if str(words[0]).startswith(("WEIR", "CL")):
                tally(shaped(words, reply), f"{words}: {reply!r}")
        done += len(batch)
        check_refusals(tally, client, fuzzer)


def check_refusals(tally, client, fuzzer):
    """A refused call leaves every key as it was."""
    keys = [key for key in fuzzer.keys if key]
    client.pipeline([("PERSIST", key) for key in keys])
    for _ in range(10):
        words = fuzzer.call()
        before = client.pipeline([("DUMP", key) for key in keys])
        if words[0] == "WEIR.CLOCK" or not isinstance(client.pipeline([words])[0], Exception):
            continue
        after = client.pipeline([("DUMP", key) for key in keys])
        tally(before == after, f"{words}: refused, and a key changed")


def main(arguments):
    seed = int(arguments[arguments.index("--seed") + 1]) if "--seed" in arguments else checks.seed()
    print(f"seed {seed}", flush=True)
    tally, fuzzer = checks.Checks(), Fuzzer(random.Random(seed))
    with module_cases.server(argument="test-clock") as server, server.client() as client:
        run(tally, client, fuzzer, 1000000 if "--long" in arguments else 8000 if "--short" in arguments else 25000)
        tally.equal(client.call("PING"), "PONG", "the server is up")
        tally("Guru Meditation" not in server.log(), "the server reported a crash")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
