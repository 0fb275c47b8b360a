#!/usr/bin/env python3
"""tests/run.py itself: lines come while others still run, failures of all kinds count, those that wait run side by side and
never on the same port; every file in tests/ is run by somebody; and `make run` builds the program alone, `make` no tests."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
passed = failed = 0


def check(right, what):
    global passed, failed
    if right:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {what}", flush=True)


def inner(words):
    """tests/run.py with these tests: name=load=shell command."""
    spec = importlib.util.spec_from_file_location("run", ROOT / "tests" / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    tests = []
    for word in words:
        name, load, command = word.split("=", 2)
        path = pathlib.Path(os.environ["FOLDER"]) / name
        path.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        path.chmod(0o755)
        tests.append(run.tests_list.Test(name, "release", str(path), 20 if name == "late" else 600, load=float(load)))
    run.tests_list.tests = lambda kind: tests
    run.make = lambda build, tests: 0.0
    return run.main([])


def start(folder, *words):
    return subprocess.Popen([sys.executable, "-B", __file__, "--inner", *words], env=dict(os.environ, FOLDER=folder),
                            stdout=subprocess.PIPE, text=True)


def until(stream, part):
    for line in stream:
        if part in line:
            return line
    return ""


def test_progress():
    """A line is there, through a pipe, while another test still runs; that one ends only when the line was read."""
    with tempfile.TemporaryDirectory(prefix="weir-runner-") as folder:
        waits = f"while [ ! -e {folder}/go ]; do sleep 0.02; done; echo 1 passed, 0 failed"
        it = start(folder, f"slow=0.1={waits}", "quick=0.1=echo 2 passed, 0 failed")
        line = until(it.stdout, "quick")
        check(line.startswith("ok   [1/2] quick: 2 passed, 0 failed (") and "of work)" in line, f"a line as it ends: {line!r}")
        pathlib.Path(folder, "go").touch()
        rest = it.communicate()[0]
        check(rest.endswith("\n3 passed, 0 failed\n") and it.returncode == 0, f"the sum: {rest!r}")


def test_failures():
    with tempfile.TemporaryDirectory(prefix="weir-runner-") as folder:
        it = start(folder, "good=1=echo 4 passed, 0 failed", "bad=1=echo 1 passed, 2 failed; exit 1",
                   "silent=1=true", "ends=1=echo 1 passed, 0 failed; exit 3", "late=1=echo 1 passed, 0 failed; sleep 600",
                   "crash=1=kill -SEGV $$")
        said = it.communicate()[0]
        check(said.endswith("\n7 passed, 6 failed\n") and it.returncode == 1, f"every failure counts: {said[-300:]!r}")
        check("took too long" in said, "one that is late says so")
        named = until(iter(said.splitlines()), "failed: ")
        check(sorted(named.removeprefix("failed: ").split(", ")) == ["bad", "crash", "ends", "late", "silent"],
              f"they are named at the end: {named}")


def test_failures_again():
    """What failed is told once more at the end, in short: the rest of the output is not."""
    with tempfile.TemporaryDirectory(prefix="weir-runner-") as folder:
        it = start(folder, "named=1=echo FAIL it broke; echo '    at its line'; echo ok   another; echo 1 passed, 1 failed; exit 1",
                   "many=1=seq -f 'FAIL %.0f' 500; echo 0 passed, 500 failed; exit 1",
                   "silent=1=echo said; exit 3", "good=1=echo FAIL is a word here; echo 1 passed, 0 failed")
        said = it.communicate()[0]
        end = said[said.index("\n---- "):]
        check("\n---- named\nFAIL it broke\n    at its line\n----" in end, f"each with the lines behind it: {end[:300]!r}")
        check("\n---- many\nFAIL 1\n" in end and "\nFAIL 40\n…\n" in end and "FAIL 41" not in end, f"not too many: {end[-300:]!r}")
        check("\n---- silent\nsaid\n\nended with 3\n" in end and "good" not in end, f"how one ended that names none: {end[-300:]!r}")
        check(end.splitlines()[-1] == "2 passed, 502 failed", f"the sum is last: {end[-100:]!r}")


def test_side_by_side():
    """Four that wait for each other all run at once, on any number of cores."""
    with tempfile.TemporaryDirectory(prefix="weir-runner-") as folder:
        meets = f"touch {folder}/here.$$; while [ $(ls {folder} | grep -c here) -lt 4 ]; do sleep 0.02; done; echo 1 passed, 0 failed"
        it = start(folder, *(f"wait{i}=0.1={meets}" for i in range(4)))
        check(it.communicate()[0].endswith("\n4 passed, 0 failed\n"), "four that wait run side by side")


TAKING = """import sys; import ports
ports.usable = lambda: range(10001, 10801)
print(*(ports.take() for _ in range(100)), flush=True)
sys.stdin.read()"""


def test_ports():
    """Processes that take ports at the same time get different ones; those of one that was killed are free again."""
    env = dict(os.environ, PYTHONPATH=str(ROOT / "tests" / "lib"))
    for _ in range(3):
        takers = [subprocess.Popen([sys.executable, "-B", "-c", TAKING], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True) for _ in range(4)]
        found = [port for taker in takers for port in taker.stdout.readline().split()]
        check(len(found) == 400 and len(set(found)) == 400, f"{len(set(found))} of {len(found)} ports are different")
        for taker in takers:
            taker.kill()
            taker.communicate()


HELPERS = {"run.py", "lib.sh", "lib/ports.py", "guava/run.sh", "vectors/zone_fixture.c"}  # run by hand, by make or by other tests of theirs


def is_run(path, commands, texts):
    """Whether a command of the list runs this file, or another test does."""
    name = f"{{build}}/tests/{path.stem}" if path.suffix == ".c" else str(path.relative_to(ROOT))
    if any(name in command.split() for command in commands):
        return True
    others = {other: text for other, text in texts.items() if other != path and other.name not in ("list.py", "runner.py")}
    if path.suffix == ".c":
        return any(f'"{path.stem}"' in text or f"/{path.stem}" in text for other, text in others.items() if other.suffix == ".py")
    return any(path.name in text for other, text in others.items() if other.parent == path.parent)


def forgotten(tests, commands):
    """Test programs and scripts that nothing runs."""
    scripts = [path for path in tests.rglob("*") if path.is_file() and os.access(path, os.X_OK) and path.suffix != ".c"]
    texts = {path: path.read_text(encoding="utf-8") for path in tests.rglob("*") if path.suffix in (".py", ".sh", ".mjs", ".c", ".h")}
    programs = [path for path, text in texts.items() if path.suffix == ".c" and "int main(" in text]
    return sorted(str(path.relative_to(tests)) for path in {*scripts, *programs}
                  if path.name not in HELPERS and str(path.relative_to(tests)) not in HELPERS and not is_run(path, commands, texts))


def test_every_file_is_run():
    """The list takes what is in the folders: a file that nobody runs, or a name without a file, is an error."""
    sys.path.insert(0, str(ROOT / "tests"))
    import list as tests_list
    commands = [test.command for kind in ("quick", "test", "soak") for test in tests_list.listed(kind)]
    check(forgotten(ROOT / "tests", commands) == [], f"nobody runs {forgotten(ROOT / 'tests', commands)}")
    for path in ("tests/unit/core_fold.c", "tests/concurrent/kill_open.c", "tests/homes/server/threads.py", "tests/api/words.sh"):
        less = [command for command in commands if pathlib.Path(path).stem not in command]
        check(path.removeprefix("tests/") in forgotten(ROOT / "tests", less), f"{path} is missed when it is not listed")
    files = {word for command in commands for word in command.split() if word.startswith("tests/") and "*" not in word}
    check(all((ROOT / word).exists() for word in files), f"no such file: {[word for word in files if not (ROOT / word).exists()]}")
    programs = {word.removeprefix("{build}/tests/") for command in commands for word in command.split()
                if word.startswith("{build}/tests/") and not word.endswith(".vec")}
    built = (ROOT / "tests" / "meson.build").read_text(encoding="utf-8")
    check(all(f"'{name}'" in built for name in programs), f"not built: {sorted(programs)}")


def test_make_parts():
    """A user who needs one part builds nothing else; `make help` names targets that there are."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = subprocess.run(["make", "help"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    named = [line.split()[1] for line in told.splitlines() if line.startswith("make ") and not line.startswith("make  ")]
    check({"weir", "nginx-module", "redis-module", "run"} <= set(named) and all(f"\n{name}:" in rules for name in named), f"make help: {named}")
    for target, built in (("weir", "weir"), ("nginx-module", "ngx_http_weir_module.so"), ("redis-module", "weir_redis.so")):
        told = subprocess.run(["make", "-n", target], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        check([line for line in told.splitlines() if line.startswith("ninja")] == [f"ninja -C build {built}"], f"make {target}: {told}")
    for words in ([], ["install"], ["bench"]):
        told = subprocess.run(["make", "-n", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        check("tools/programs.sh\n" in told and "ninja -C build\n" not in told, f"make {words} builds what users run: {told}")
    told = subprocess.run([ROOT / "tools/installed-targets", ROOT / "build"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    check({"weir", "libweir.a", "weir_redis.so"} <= set(told), f"what users run: {told}")
    check(not [name for name in told if name.startswith(("tests/", "fuzz/", "bench/"))], f"what users run has no tests: {told}")


def test_make_run():
    told = subprocess.run(["make", "-n", "run"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    check("ninja -C build weir\n" in told and "ninja -C build\n" not in told, f"make run: {told}")
    steps = subprocess.run(["ninja", "-C", str(ROOT / "build"), "-t", "commands", "weir"], stdout=subprocess.PIPE, text=True,
                           check=True).stdout
    other = [line for line in steps.splitlines() if any(f" ../{it}/" in line for it in ("tests", "fuzz", "bench", "modules"))]
    check(steps and not other, f"make run builds {other[:1]}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inner"]:
        sys.exit(inner(sys.argv[2:]))
    for test in (test_progress, test_failures, test_failures_again, test_side_by_side, test_ports, test_every_file_is_run, test_make_parts, test_make_run):
        test()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
