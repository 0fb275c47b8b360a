#!/usr/bin/env python3
"""Writes the help texts beside this file as a C table: embed.py OUT TEXT…

NAME.txt is what `weir NAME --help` prints. In it a line `@PART` stands for all of _PART.txt. weir.txt is what
`weir --help` prints around the list of commands.
"""
import json
import pathlib
import sys


HERE = pathlib.Path(__file__).resolve().parent


def text(path):
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(text(HERE / f"_{line[1:-1]}.txt") if line.startswith("@") else line for line in lines)


def main(out, *names):
    paths = [pathlib.Path(name) for name in names if not pathlib.Path(name).name.startswith("_")]
    rows = [f"    {{{json.dumps(path.stem)}, {json.dumps(text(path), ensure_ascii=False)}}},\n" for path in paths]
    pathlib.Path(out).write_text("/* Made by src/cli/help/embed.py. */\n"
                                 "static const struct {\n    const char *name, *text;\n} main_helps[] = {\n"
                                 + "".join(rows) + "};\n", encoding="utf-8")


main(*sys.argv[1:])
