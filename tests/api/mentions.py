#!/usr/bin/env python3
"""Files that comments and pages mention exist. A mention is a name with an ending that files of ours have: `conn.c`,
`zone/lock.c`, `docs/SPEC.md`. It must be a file of the tree by its whole path, by the end of its path, or by its name.

Names of other people's files stand in OTHERS; files that users write, and files that the build makes, in MADE.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MENTION = re.compile(r"(?<![\w/.$*{<-])((?:\.\./|\./)?(?:[\w.-]+/)*[\w-]+\.(?:c|h|py|sh|md|lua|js|mjs|scd|vec))(?![\w*(-]|\.\w)")
COMMENTS = {
    ".c": re.compile(r"/\*.*?\*/|//[^\n]*", re.S), ".h": re.compile(r"/\*.*?\*/|//[^\n]*", re.S),
    ".js": re.compile(r"/\*.*?\*/|//[^\n]*", re.S), ".mjs": re.compile(r"/\*.*?\*/|//[^\n]*", re.S),
    ".py": re.compile(r'""".*?"""|#[^\n]*', re.S), ".sh": re.compile(r"(?m)^\s*#[^\n]*"),
    ".lua": re.compile(r"--[^\n]*"), ".build": re.compile(r"#[^\n]*"),
}
# Headers of the system and of others, and files that peers have.
OTHERS = set("ngx_event_quic.h nginx.h node_api.h pyconfig.h Node.js".split())
# Made by the build, or by users in the examples of pages.
MADE = set("lua_scripts.h tails.vec web_files.h ngx_auto_config.h ngx_auto_headers.h app.c a.py b.py _file_.c".split())
STANDS_FOR = re.compile(r"[A-Z]+\.(c|py|lua|vec)|weir(_\w+)?\.lua")  # FILE.vec; the installed scripts

passed = failed = 0


def report(name, problem):
    global passed, failed
    if problem:
        failed += 1
        print(f"FAIL {name}: {problem}")
    else:
        passed += 1


def tree():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], stdout=subprocess.PIPE, text=True, check=True)
    return [name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]


def said(name):
    """What of a file is for people: all of a page, the comments of code."""
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    if name.endswith((".md", ".scd")):
        return text
    comments = COMMENTS.get(pathlib.Path(name).suffix)
    return "\n".join(comments.findall(text)) if comments else ""


def main():
    files = tree()
    ends = set()
    for name in files:
        parts = name.split("/")
        ends.update("/".join(parts[i:]) for i in range(len(parts)))
    for name in files:
        if name.startswith(("fuzz/corpus/", "tests/vectors/")) or name == "CHANGELOG.md":
            continue
        missing = set()
        for mention in MENTION.findall(said(name)):
            plain = mention
            while plain.startswith(("./", "../")):
                plain = plain.partition("/")[2]
            base = plain.rpartition("/")[2]
            if plain not in ends and base not in OTHERS | MADE and not STANDS_FOR.fullmatch(base):
                missing.add(mention)
        report(name, f"there is no {', '.join(sorted(missing))}" if missing else None)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
