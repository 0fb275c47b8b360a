"""Runs vector files on the model: `python3 tests/model/verify.py tests/vectors/*.vec`.

Also a reader of the format to copy from.  Where a case has one limit with closed formulas, the
formulas must give the same line.  `grant` lines are those of the files made with Guava itself.
Exit 0, or 1 with the lines that differ.
"""
import sys

import closed
import limits as language
from model import Model
from scripts import KEY, seven, six
from search import Answer


DECIDES = ("take", "peek", "acquire", "row")


def wait_of(word):
    return word if word in ("default", "any") else int(word)


def amount(word):
    """The cost and the least of `500..4000`, or of `4000`."""
    least, _, cost = word.rpartition("..")
    return int(cost), int(least or 0)


class Case:
    """The state of one case; each method answers what should stand after the `=`."""

    def __init__(self):
        self.model, self.limits, self.formula, self.rows, self.bound = Model(), None, None, [], 0

    def limit(self, text):
        before = [limit.identity() for limit in self.limits or []]
        self.limits = language.parse(text)
        if before and before == [limit.identity() for limit in self.limits]:
            if self.formula:
                self.formula.become(self.limits[0])
        else:
            fresh = self.limits[0].kind != "concurrent" and len(self.limits) == 1 and not before
            self.formula = closed.make(self.limits[0]) if fresh else None

    def decided(self, verb, t, cost, *args):
        cost, least = amount(cost)
        answer, self.rows, self.bound = getattr(self.model, verb)(t, KEY, self.limits, cost, *args, least)
        if self.formula and least == 0 and not self.limits[0].cost:
            other = Answer(*closed.saturated(self.formula.take(t, cost, args[-1], verb != "peek")))
            assert six(other) == six(answer), ("formula", other, answer)
        else:
            self.formula = None
        return seven(answer)

    def take(self, t, cost, wait):
        return self.decided("take", int(t), cost, wait_of(wait))

    def peek(self, t, cost, wait):
        return self.decided("peek", int(t), cost, wait_of(wait))

    def acquire(self, t, cost, name, wait):
        return self.decided("acquire", int(t), cost, name, wait_of(wait))

    def row(self, i):
        return seven(self.rows[int(i)])

    def renew(self, t, name):
        return str(int(self.model.renew(int(t), KEY, self.limits, name)))

    def release(self, t, name):
        return str(int(self.model.release(int(t), KEY, self.limits, name)))

    def settle(self, *numbers):
        t, t0, c0, c1 = map(int, numbers)
        if self.formula:
            self.formula.settle(t, t0, c0, c1)
        return "ok" if self.model.settle(t, KEY, self.limits, t0, c0, c1) else "refused"

    def reset(self, t):
        self.model.reset(KEY)
        self.formula = closed.make(self.limits[0]) if self.formula else None

    def bind(self, i):
        assert int(i) == self.bound, self.bound

    def grant(self, t, cost, wait):
        answer = self.model.take(int(t), KEY, self.limits, int(cost), wait_of(wait))[0]
        return f"{int(answer.allowed)} {answer.delay}"


def parsed(line):
    verb, _, text = line.partition(" ")
    text, _, canonical = text.partition(" => ")
    try:
        found = language.text(language.parse(text))
    except language.Refused:
        found = None
    return found == (canonical if verb == "ok" else None), found


def verify(path):
    """(lines that count, complaints)."""
    case, count, wrong = None, 0, []
    with open(path, encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            count += 1
            verb, _, rest = line.partition(" ")
            try:
                if verb in ("ok", "bad"):
                    right, found = parsed(line)
                elif verb == "case":
                    case, right, found = Case(), True, ""
                elif verb == "limit":
                    right, found = case.limit(rest) is None, ""
                else:
                    head, _, want = rest.partition(" = ")
                    found = getattr(case, verb)(*head.split())
                    found = found or ""
                    if verb in DECIDES and len(want.split()) == 6:  # of the files that do not tell what is granted
                        found = found.rpartition(" ")[0]
                    right = found == want
            except AssertionError as error:
                right, found = False, error
            if not right:
                wrong.append(f"{path}:{number}: {line}: model says {found}")
    return count, wrong


def main(paths):
    count, wrong = 0, []
    for path in paths:
        more, complaints = verify(path)
        count += more
        wrong += complaints
    print("\n".join(wrong[:20] + [f"{count} lines, {len(wrong)} wrong"]))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
