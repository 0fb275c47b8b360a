#!/usr/bin/env python3
"""The golden vectors through the Python package: every field of every answer, rows and bindings, limits and their texts."""
import datetime
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, build, checks  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402


def wait_of(word):
    return None if word == "default" else math.inf if word == "any" else datetime.timedelta(microseconds=int(word))


def answer(decision, granted):
    fields = [int(decision.allowed), decision.limit, decision.remaining, decision.retry_after_us, decision.reset_after_us, decision.delay_us]
    return " ".join(map(str, [*fields, decision.granted] if granted else fields))


class Player:
    def __init__(self, check, store, path):
        self.check, self.store, self.path = check, store, path
        self.key, self.limit, self.last, self.leases, self.line = None, None, None, {}, 0

    def compare(self, decision, expected):
        got = answer(decision, len(expected.split()) == 7)
        self.check(got == expected, f"{self.path.name}:{self.line}: got {got}, expected {expected}")

    def ask(self, verb, words, expected):
        least, _, cost = words[1].rpartition("..")
        named = {"wait": wait_of(words[2]), "least": int(least or 0), "detail": True}
        self.store.set_time(int(words[0]))
        self.last = getattr(self.store, "take" if verb == "grant" else verb)(self.key, self.limit, int(cost), **named)
        if verb == "grant":  # Guava tells only these two
            got = f"{int(self.last.allowed)} {self.last.delay_us}"
            self.check(got == expected, f"{self.path.name}:{self.line}: got {got}, expected {expected}")
        else:
            self.compare(self.last, expected)

    def acquire(self, words, expected):
        self.store.set_time(int(words[0]))
        least, _, cost = words[1].rpartition("..")
        self.last = self.store.take_all([(self.key, self.limit, int(cost), int(least or 0))], wait=wait_of(words[3]), acquire=True)
        self.compare(self.last, expected)
        if self.last.allowed:
            self.leases[words[2]] = self.last.lease

    def change(self, verb, words, expected):
        self.store.set_time(int(words[0]))
        try:
            getattr(self.store, verb)(self.key, self.limit, self.leases.get(words[1], 0))
            got = "1"
        except weir.ENOLEASE:
            got = "0"
        self.check(got == expected, f"{self.path.name}:{self.line}: {verb}: got {got}")

    def settle(self, words, expected):
        self.store.set_time(int(words[0]))
        try:
            self.store.settle(self.key, self.limit, f"w1-{words[1]}-{words[2]}", int(words[3]))
            got = "ok"
        except weir.EUNSUPPORTED:
            got = "refused"
        self.check(got == expected, f"{self.path.name}:{self.line}: settle: got {got}")

    def play(self, line, number):
        self.line = number
        said, _, expected = line.partition(" = ")
        verb, *words = said.split(" ")
        if verb == "case":
            self.key, self.leases = f"case:{self.path.name}:{number}", {}
        elif verb == "limit":
            self.limit = line[len("limit "):]
        elif verb in ("take", "peek", "grant"):
            self.ask(verb, words, expected)
        elif verb == "row":
            self.compare(self.last.rows[int(words[0])], expected)
        elif verb == "bind":
            self.check(self.last.binding == int(words[0]), f"{self.path.name}:{number}: binding {self.last.binding}")
        elif verb == "settle":
            self.settle(words, expected)
        elif verb == "reset":
            self.store.set_time(int(words[0]))
            self.store.reset(self.key)
        elif verb == "acquire":
            self.acquire(words, expected)
        elif verb in ("renew", "release"):
            self.change(verb, words, expected)
        else:
            self.check(False, f"{self.path.name}:{number}: unknown {verb}")


def parsed(check, line, name):
    word, _, text = line.partition(" ")
    text, _, canonical = text.partition(" => ")
    try:
        got = weir.Limit(text).text
    except weir.ESYNTAX as error:
        check(word == "bad" and error.column > 0, f"{name}: {text!r}: {error}")
    else:
        check(word == "ok" and got == canonical and weir.Limit(canonical).text == canonical, f"{name}: {text!r} is {got!r}")


def test_vectors(check):
    for path in build.vectors():
        with weir.Store("memory:64m") as store:
            player = Player(check, store, path)
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                if not line or line.startswith("#"):
                    continue
                if path.name == "parse.vec":
                    parsed(check, line, f"{path.name}:{number}")
                else:
                    player.play(line, number)
    check(check.passed > 10000, "the vectors are played")


if __name__ == "__main__":
    sys.exit(checks.run([test_vectors], sys.argv[1:]))
