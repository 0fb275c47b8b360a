#!/usr/bin/env python3
"""The completions of bash, zsh and fish against what the program itself says it takes: its commands (`weir --help`), their
options (`weir COMMAND --list-options`), the stores it opens. Also that help texts and man page name all of them."""
import re
import shutil
import subprocess
import sys

from lib.build import ROOT, WEIR
from lib.checks import Checks

TOOLS = ROOT / "tools" / "completion"
HIDDEN = {"--test-clock"}  # for tests, not in the manual
check = Checks()


def equal(got, wanted, what):
    check(got == wanted, f"{what}: missing {sorted(set(wanted) - set(got))}, too many {sorted(set(got) - set(wanted))}")


def weir(*words):
    return subprocess.run([WEIR, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False).stdout


def commands():
    """As `weir --help` lists them."""
    return re.findall(r"^  ([a-z]+) {2,}\S", weir("--help"), re.M)


def options(command):
    """Each with whether it takes a value and whether it may be repeated."""
    lines = weir(command, "--list-options").splitlines()
    return {line.split()[0]: (len(line.split()) > 1, line.endswith(" again")) for line in lines}


def stores():
    """Every scheme that a store's address may have: those that the program names when it meets one that it does not know."""
    text = weir("peek", "k", "fixed-window 1/s", "--store", "nonsense:") + \
        weir("peek", "k", "fixed-window 1/s", "--store", "redis+nonsense://x") + weir("take", "--help")
    return set(re.findall(r"\b(memory:|file:|shm:|rediss?(?:\+[a-z]+)?://)", text))


# ---- what each shell offers ----

def bash(words):
    script = f'compopt() {{ :; }}; source {TOOLS}/weir.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script, "bash", *words], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def zsh():
    """Commands, and for each its options, with what stands behind their descriptions."""
    text = (TOOLS / "_weir").read_text()
    names = re.findall(r"^    '([a-z]+):", text, re.M)
    variables = {it[1]: it[0] for it in re.finditer(r"^(\w+)=(?:\(.*?^\)|'.*?'$)", text, re.M | re.S)}
    blocks = {}
    for found in re.finditer(r"^([a-z| ]+)\)\n(.*?)^    ;;", text[text.index("case $command in"):], re.M | re.S):
        body = re.sub(r"\$(\w+)", lambda it: variables[it[1]], found[2])
        rows = re.findall(r"(\\\*)?'(--[a-z-]+)\[[^\]]*\](:?)([^']*)'", body)
        for command in found[1].split("|"):
            blocks[command.strip()] = {name: (bool(value), bool(again), rest) for again, name, value, rest in rows}
    return names, blocks


def fish():
    text = (TOOLS / "weir.fish").read_text().replace("\\\n", " ")
    listed = re.search(r"^set -l commands (.*)$", text, re.M)[1].split()
    offered = re.findall(r"^complete -c weir -n \$none -a (\w+) ", text, re.M)
    found = {}
    for line in text.splitlines():
        name = re.search(r" -l ([a-z-]+)", line)
        whose = re.search(r'__fish_seen_subcommand_from ([a-z ]+|\$commands)(; and not __fish_seen_subcommand_from ([a-z ]+))?"', line)
        if not name or not line.startswith("complete ") or "$none" in line:
            continue
        those = listed if not whose or whose[1] == "$commands" else whose[1].split()
        without = whose[3].split() if whose and whose[3] else []
        for command in set(those) - set(without):
            found.setdefault(command, {})["--" + name[1]] = (bool(re.search(r" -(x|r|rF|xa)\b", line)), line)
    return listed, offered, found


def test_commands(names):
    zsh_names, _ = zsh()
    fish_listed, fish_offered, _ = fish()
    equal(bash(["weir", ""]), {*names, "help", "--help", "--version"}, "bash: commands")
    equal(bash(["weir", "help", ""]), set(names), "bash: help")
    equal(set(zsh_names), {*names, "help"}, "zsh: commands")
    equal(set(fish_listed), set(names), "fish: the list")
    equal(set(fish_offered), {*names, "help"}, "fish: commands")


def test_options(command, truth):
    _, zsh_blocks = zsh()
    _, _, fish_found = fish()
    equal(bash(["weir", command, "--"]), set(truth), f"bash: {command}")
    mine = zsh_blocks.get(command, {})
    equal(set(mine), set(truth), f"zsh: {command}")
    theirs = fish_found.get(command, {})
    equal(set(theirs), set(truth), f"fish: {command}")
    for name, (takes, again) in truth.items():
        if name in mine:
            check(mine[name][0] == takes, f"zsh: {command} {name}: a value")
            check(mine[name][1] == again, f"zsh: {command} {name}: may be repeated")
        if name in theirs:
            check(theirs[name][0] == takes, f"fish: {command} {name}: a value")
        if takes:  # options are not offered where a value is expected
            check(not any(word.startswith("--") for word in bash(["weir", command, name, ""])), f"bash: {command} {name}: a value")


def test_help(command, truth):
    """The help names every option, and no other."""
    text = weir(command, "--help")
    shown = set(re.findall(r"^  (--[a-z][a-z-]*)", text, re.M))
    equal(shown | {"--help"} | (HIDDEN & set(truth)), set(truth), f"help: {command}")
    manual = (ROOT / "docs" / "man" / "weir.1.scd").read_text()
    for name in set(truth) - {"--help"} - HIDDEN:
        check(name in manual, f"weir(1) does not know {name}")


def test_stores(names):
    truth = stores()
    check({"memory:", "file:", "shm:", "redis://", "rediss://", "redis+cluster://", "redis+sentinel://", "redis+unix://"} <= truth,
          f"the program's own words name all stores: {truth}")
    _, zsh_blocks = zsh()
    _, _, fish_found = fish()
    for command in names:
        if "--store" not in options(command):
            continue
        check(truth <= bash(["weir", command, "--store", ""]), f"bash: {command} --store")
        offered = set(zsh_blocks[command]["--store"][2].replace("\\", "").split("(")[1].rstrip(")").split())
        check(truth <= offered, f"zsh: {command} --store: {truth - offered}")
        check(all(word in fish_found[command]["--store"][1] for word in truth), f"fish: {command} --store")
        text = weir(command, "--help").lower()
        check("redis" in text, f"help: {command} names Redis beside the other stores")
    for words in (("take", "k", "fixed-window 1/s", "--store", "x"), ("serve", "--store", "x"), ("bench", "--store", "x"),
                  ("replay", "fixed-window 1/s", "--store", "x"), ("reset", "k", "--store", "x")):
        check("redis://" in weir(*words), f"{words[0]}: the error lists redis://: {weir(*words)}")


def test_syntax():
    """By the shells themselves, where they are installed."""
    for shell, name in (("bash", "weir.bash"), ("zsh", "_weir"), ("fish", "weir.fish")):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", str(TOOLS / name)], stderr=subprocess.PIPE, text=True, check=False)
            check(done.returncode == 0, f"{name}: {done.stderr}")


def main():
    names = commands()
    check(len(names) >= 16 and "lua" in names, f"commands: {names}")
    test_commands(names)
    for command in names:
        truth = options(command)
        check("--help" in truth, f"{command} --list-options: {truth}")
        test_options(command, truth)
        test_help(command, truth)
    test_stores(names)
    test_syntax()
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
