#!/usr/bin/env python3
"""The lists of files in CONTRIBUTING.md are true: what "Adding an algorithm" and "Adding a verb" name exists, and the C
files that name a kind of limit or a verb are those that are listed."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
passed = failed = 0


def check(name, problem):
    global passed, failed
    if problem:
        failed += 1
        print(f"FAIL {name}: {problem}")
    else:
        passed += 1


def section(title):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def files_of(text):
    """Paths from the root: in backquotes, or the targets of links."""
    return set(re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", text)) | set(re.findall(r"\]\(([\w./-]+)\)", text))


def sources(*folders):
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
            for folder in folders for ending in ("*.c", "*.h") for path in sorted((ROOT / folder).rglob(ending))}


def listed(header, pattern):
    return re.findall(pattern, (ROOT / header).read_text(encoding="utf-8"), re.MULTILINE)


def existing(title):
    text = section(title)
    check(f'"{title}" is a section', not text and "there is none")
    for path in sorted(files_of(text)):
        check(f'"{title}": {path}', not (ROOT / path).is_file() and "no such file")
    return files_of(text)


def kinds():
    """A kind is named in its own file, and in the files of the section."""
    named = existing("Adding an algorithm")
    kinds_and_rows = listed("src/core/core.h", r"^    X\(([A-Z_]+), ([a-z_]+)\)")
    check("kinds are found", len(kinds_and_rows) < 11 and f"only {len(kinds_and_rows)}")
    code = sources("src", "modules")
    used = set()
    for kind, row in kinds_and_rows:
        word = re.compile(rf"\bWEIR__{kind}\b|\b(?:KINDS|BECOMES)\({kind}\)|\bX\({kind}, |\bexplain_{row}\b")
        own = [path for path, text in code.items() if re.search(rf"^const struct weir__algorithm weir__algorithm_{row} =", text, re.M)]
        check(f"{kind} has a row in one file of src/core", (len(own) != 1 or not own[0].startswith("src/core/")) and own)
        places = {path for path, text in code.items() if word.search(text)}
        used |= places
        check(f"{kind} is named where CONTRIBUTING.md says", ", ".join(sorted(places - named - set(own))))
    claimed = {"src/core/core.h", "src/core/bucket.h", "src/limit/explain.c", "src/limit/options.c", "src/limit/parse.c",
               "src/store/zone/apply.c"}
    check("each file that is said to name a kind does", ", ".join(sorted(claimed - used)))
    check("these files stand in CONTRIBUTING.md", ", ".join(sorted(claimed - named)))


def verbs():
    """A verb is named in files of the section, but for those that only call verbs."""
    named = existing("Adding a verb")
    names = listed("src/wire/verbs.h", r"^    X\(([A-Z]+), \d+, ")
    check("verbs are found", len(names) < 12 and f"only {len(names)}")
    for path, text in sources("src", "modules/redis").items():
        found = sorted({name for name in names if re.search(rf"\bWEIR__VERB_{name}\b", text)})
        check(f"{path} stands in CONTRIBUTING.md", found and path not in named and f"it names {', '.join(found)}")


kinds()
verbs()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
