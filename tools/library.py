#!/usr/bin/env python3
"""The library's sources, for builds other than meson's that compile them in: bindings.

    tools/library.py sources             its files, one per line, from the root
    tools/library.py flags [CC]          the flags that it needs, as far as the compiler knows them
    tools/library.py files               everything that such a build reads
    tools/library.py header FOLDER       writes what the build makes: FOLDER/remote/lua_scripts.h

Include folders are include, src and FOLDER. The lists are src/library.txt and src/library_flags.txt, which meson reads, too.
"""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = ["-lpthread", "-lm", "-ldl"]


def lines(name):
    return [line for line in (ROOT / "src" / name).read_text(encoding="utf-8").split("\n") if line]


def sources():
    return [f"src/{name}" for name in lines("library.txt")]


def knows(compiler, flag):
    """Whether a compiler takes a flag without a word."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "a.c"
        source.write_text("int a;\n", encoding="utf-8")
        done = subprocess.run([*compiler, "-Werror", flag, "-c", str(source), "-o", str(source) + ".o"], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def flags(compiler):
    """`compiler` is a command with its words."""
    given = lines("library_flags.txt")
    return [flag.lstrip("?") for flag in given if not flag.startswith("?") or knows(compiler, flag.lstrip("?"))]


def files():
    """What a build needs: sources and headers, the Lua scripts and what puts them together, this file and its lists."""
    headers = [path.relative_to(ROOT).as_posix() for folder in {name.split("/")[0] for name in lines("library.txt")}
               for path in (ROOT / "src" / folder).rglob("*.h")]
    lua = [f"lua/{path.name}" for path in (ROOT / "lua").iterdir() if path.suffix in (".lua", ".py")]
    return sorted({*sources(), *headers, *lua, "include/weir.h", "src/library.txt", "src/library_flags.txt", "tools/library.py",
                   "LICENSE"})


def header(folder):
    made = pathlib.Path(folder) / "remote"
    made.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-B", str(ROOT / "lua" / "assemble.py"), "--header", str(made / "lua_scripts.h")], check=True)


def main(words):
    if words[:1] == ["sources"]:
        print("\n".join(sources()))
    elif words[:1] == ["flags"]:
        print("\n".join(flags(words[1:] or shlex.split(os.environ.get("CC", "cc")))))
    elif words == ["files"]:
        print("\n".join(files()))
    elif words[:1] == ["header"] and len(words) == 2:
        header(words[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
