#!/usr/bin/env python3
"""`weir lua` prints the scripts that are assembled here, their SHA1s, and the numbers that the model's parser gives."""
import json
import pathlib
import subprocess
import sys

from lib import checks, lua_cases
from lib.build import WEIR
from lib.lua_cases import general, parse

LIMITS = ["token-bucket 10/s burst 20", "token-bucket 1k/1h30m stepped", "leaky-bucket 10r/s burst 5 delay 3",
          "leaky-bucket 1/m nodelay", "fixed-window 100/m", "fixed-window 1/366d from-first", "sliding-log 5/m",
          "sliding-window 240/h precision 1m", "sliding-window 7/7us", "sliding-counter 1g/h",
          "smooth 5/s burst-for 2s", "warmup 5/s over 3s cold 1.000001", "concurrent 20 lease 30s",
          "fixed-window 9/month from 31 zone +08:00", "fixed-window 9/year from 02-29",
          "fixed-window 9/90s zone -12:00"]


def weir(*words):
    """(exit status, output)"""
    done = subprocess.run([WEIR, "lua", *words], capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode()


def joined(numbers):
    return 0, " ".join(map(str, numbers)) + "\n"


def main():
    tally = checks.Checks()
    listed = [line.split()[:2] for line in weir("--list")[1].splitlines()]
    tally.equal(listed, [[name, lua_cases.sha1(name)] for name in lua_cases.SCRIPTS], "--list")
    for name, text in lua_cases.SCRIPTS.items():
        tally(weir(name) == (0, text), f"{name}: not the text that is assembled")
        tally.equal(weir(name, "--sha"), (0, lua_cases.sha1(name) + "\n"), f"{name} --sha")
    folder = pathlib.Path(WEIR).parent / "lua"
    told = json.loads(subprocess.run(["meson", "introspect", "--installed", str(folder.parent)], capture_output=True,
                                     timeout=60, check=True).stdout)
    for name, text in lua_cases.SCRIPTS.items():
        path = folder / f"{name}.lua"
        if name.endswith("_test"):
            continue
        tally(path.exists() and path.read_text() == text, f"{path} is not the script")
        tally(told.get(str(path), "").endswith(f"/share/weir/lua/{name}.lua"), f"{name} is not installed")
    tally(weir() == (0, lua_cases.SCRIPTS["weir"]), "without a name: not the general script")
    tally(weir("--function") == (0, lua_cases.SCRIPTS["weir_library"]), "--function: not the library")
    for text in LIMITS + [", ".join(LIMITS)]:
        limits = parse(text)
        tally.equal(weir("--args", text), joined(general("take", limits)), f"--args {text}")
        tally.equal(weir("--args", text, "--cost", "7", "--wait", "any"), joined(general("take", limits, 7, -2)),
                    f"--args {text} --cost 7 --wait any")
        if len(limits) == 1:
            tally.equal(weir(limits[0].lean(), "--args", text, "--wait", "1s"),
                        joined(limits[0].lean_arguments(1, 1_000_000)), f"{limits[0].lean()} --args {text}")
    for words in (["take_token"], ["take_smooth", "--args", LIMITS[0]], ["--args", "x"],
                  ["weir", "--function"], ["take_fixed_window", "--args", f"{LIMITS[4]}, {LIMITS[6]}"]):
        tally.equal(weir(*words)[0], 2, f"exit status of {words}")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
