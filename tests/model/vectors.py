"""Writes the golden vectors; the format is in tests/vectors/README.md. The same seed writes the same bytes.

    vectors.py --out tests/vectors          what is kept: per file the named edge cases and a few random ones
    vectors.py --out DIR --part tails       tails.vec: all other random cases
    … --made FILE                           or a copy of this, if another build made it and the checksum is right
    vectors.py --out DIR --part all --seed N

The tails are not kept, only their checksum (tests/vectors/tails.sha256, written with what is kept). A model that writes
other tails than before is an error until that file is written again, on purpose.
"""
import argparse
import hashlib
import os
import random
import shutil

import edges_buckets
import edges_budgets
import edges_changes
import edges_fold
import edges_parse
import edges_settle
import edges_shaping
import edges_shares
import edges_windows
import limits as language
from scripts import FAMILIES, random_limit, random_script

SEED = 20240229
EDGES = {"fold": edges_fold.fold, "changes": edges_changes.changes,
         "budgets": edges_budgets.budgets, "settle": edges_settle.settle, "shares": edges_shares.shares,
         "articles": edges_fold.articles}
for module in (edges_buckets, edges_windows, edges_shaping):
    EDGES.update({name: getattr(module, name) for name in FAMILIES if hasattr(module, name)})
PERIOD = {"sliding_log": ("s", "m", "3s"), "smooth": ("s", "100ms"), "warmup": ("s", "100ms")}
ABOUT = {
    "fold": "several limits of one key",
    "changes": "limits whose numbers change under way",
    "settle": "charges corrected afterwards",
    "budgets": "less than the cost granted, and limits with a cost of their own",
    "shares": "two sizes of one limit that take turns",
    "articles": "examples printed in articles on rate limiting",
}


def one(rng, family, name):
    return random_script(rng, name, random_limit(rng, family), 32, leasing=family == "concurrent")


def several(rng, family, name):
    texts = {}
    for _ in range(rng.choice((2, 2, 3, 4))):
        text = random_limit(rng, rng.choice(FAMILIES))
        texts[language.parse(text)[0].identity()] = text
    return random_script(rng, name, ", ".join(texts.values()), 14)


def changed(rng, family, name):
    period, fine = rng.choice(PERIOD.get(family, ("s", "m", "h", "7us"))), None
    texts = [random_limit(rng, family, period)]
    if family == "sliding_window":
        fine = language.parse(texts[0])[0].precision
    if family == "calendar":
        period = language.parse(texts[0])[0].span()
    texts += [random_limit(rng, family, period, fine) for _ in range(3)]
    return random_script(rng, name, texts[0], 26, others=texts, leasing=family == "concurrent")


def settled(rng, family, name):
    return random_script(rng, name, random_limit(rng, family), 36, settling=True)


def shared(rng, family, name):
    """Classes that share a limit: the same rate, other sizes."""
    whole = language.parse(random_limit(rng, family))[0]
    parts = [language.text([language.reduced(whole, part)]) for part in rng.sample(range(1, 100), 2)]
    return random_script(rng, name, whole.text(), 30, others=[whole.text(), *parts], settling=family != "concurrent",
                         leasing=family == "concurrent")


def hostile(rng, family, name):
    """Everything at once: numbers that change, receipts and leases, a clock that leaps and runs back."""
    period, fine = rng.choice(PERIOD.get(family, ("s", "m", "2m", "h", "7us"))), None
    texts = [random_limit(rng, family, period)]
    if family == "sliding_window":
        fine = language.parse(texts[0])[0].precision
    if family == "calendar":
        period = language.parse(texts[0])[0].span()
    texts += [random_limit(rng, family, period, fine) for _ in range(2)]
    return random_script(rng, name, texts[0], 40, others=texts, settling=family != "concurrent",
                         leasing=family == "concurrent", jumping=True)


MAKERS = {  # file: (how to make one random case, of which families, how many of each, how many of these are kept)
    "fold": (several, (None,), 34, 4),
    "changes": (changed, FAMILIES, 8, 1),
    "settle": (settled, [f for f in FAMILIES if f != "concurrent"], 9, 1),
    "shares": (shared, [f for f in FAMILIES if f not in ("smooth", "warmup")], 9, 1),
    "articles": (None, (), 0, 0),
    "budgets": (edges_budgets.random_budget, (None,), 60, 6),
    **{family: (one, (family,), 40, 3) for family in FAMILIES},
}
SUM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "tails.sha256")


def random_cases(name, seed, part):
    """Cases whose answers all homes can give; the others are thrown away."""
    make, families, count, kept = MAKERS[name]
    for family in families:
        made = tried = 0
        while made < count:
            rng = random.Random(f"{seed} {name} {family} {tried}")
            tried += 1
            script = make(rng, family, f"random-{family or 'mix'}-{tried}")
            if script.same_evicted:
                made += 1
                if part == "all" or (part == "kept") == (made <= kept):
                    yield script


def vector_file(name, seed, part):
    about = ABOUT.get(name, name.replace("_", " "))
    lines = [f"# weir vectors: {about}. Format: README.md.",
             f"# Made by tests/model/vectors.py --seed {seed}; do not edit."]
    seen = set()
    for script in list(EDGES[name]()) + list(random_cases(name, seed, part)):
        assert script.name not in seen and script.same_evicted, script.name
        seen.add(script.name)
        lines += [""] + script.lines
    return lines


def tails_file(seed):
    lines = ["# weir vectors: random cases of all files. Format: tests/vectors/README.md.",
             f"# Made by tests/model/vectors.py --part tails --seed {seed}."]
    for name in MAKERS:
        for script in random_cases(name, seed, "tails"):
            lines += [""] + script.lines
            lines[lines.index(f"case {script.name}", len(lines) - len(script.lines))] = f"case {name}-{script.name}"
    return lines


def checksum(lines):
    return hashlib.sha256(("\n".join(lines) + "\n").encode()).hexdigest() + "  tails.vec\n"


def was_made(path):
    """Whether it is there and has the checksum."""
    if not path or not os.path.exists(path):
        return False
    with open(path, encoding="ascii") as made, open(SUM, encoding="ascii") as kept:
        return kept.read() == checksum(made.read().splitlines())


def hold_to_checksum(lines):
    with open(SUM, encoding="ascii") as kept:
        if kept.read() != checksum(lines):
            raise SystemExit("tests/vectors/tails.sha256: the model writes other vectors than it did. If that is on purpose:\n"
                             "    python3 tests/model/vectors.py --out tests/vectors")


def hostile_file(seed, count):
    """Not kept: SPEC leaves open whether a clock that runs back finds what had lapsed. Homes that have not
    evicted it do, as the model does."""
    lines = []
    for family in FAMILIES:
        for i in range(count):
            rng = random.Random(f"{seed} hostile {family} {i}")
            lines += [""] + hostile(rng, family, f"hostile-{family}-{i}").lines
    return lines


def parse_file(seed):
    lines = ["# weir vectors: limit texts. Format: README.md.",
             f"# Made by tests/model/vectors.py --seed {seed}; do not edit."]
    for kind, text, canonical in edges_parse.lines():
        try:
            found = language.text(language.parse(text))
            assert language.text(language.parse(found)) == found, found
        except language.Refused:
            found = None
        assert found == canonical, (kind, text, found)
        lines.append(f"ok {text} => {found}" if kind == "ok" else f"bad {text}")
    return lines


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--out", required=True, help="directory for the .vec files")
    ask.add_argument("--seed", type=int, default=SEED)
    ask.add_argument("--part", choices=("kept", "tails", "all"), default="kept")
    ask.add_argument("--made", help="tails.vec of another build, which is copied if it is the same")
    ask.add_argument("--hostile", type=int, default=0, help="only hostile.vec, with so many cases of each")
    args = ask.parse_args()
    if args.part == "tails" and args.seed == SEED and was_made(args.made):
        shutil.copyfile(args.made, os.path.join(args.out, "tails.vec"))
        return
    if args.hostile:
        files = {"hostile": hostile_file(args.seed, args.hostile)}
    elif args.part == "tails":
        files = {"tails": tails_file(args.seed)}
        if args.seed == SEED:
            hold_to_checksum(files["tails"])
    else:
        files = {name: vector_file(name, args.seed, args.part) for name in MAKERS}
        files["parse"] = parse_file(args.seed)
        if args.part == "kept" and args.seed == SEED:
            with open(os.path.join(args.out, "tails.sha256"), "w", encoding="ascii") as out:
                out.write(checksum(tails_file(SEED)))
    for name, lines in sorted(files.items()):
        path = os.path.join(args.out, f"{name}.vec")
        with open(path, "w", encoding="ascii", newline="\n") as out:
            out.write("\n".join(lines) + "\n")
        print(f"{name}.vec: {sum(line.startswith('case ') for line in lines)} cases, "
              f"{len(lines)} lines")


if __name__ == "__main__":
    main()
