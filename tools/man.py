#!/usr/bin/env python3
"""Man pages of the library's functions, one each, from the comments of include/weir.h.

    tools/man.py --list HEADER           the names, one per line
    tools/man.py HEADER SCDOC FOLDER     writes FOLDER/NAME.3 for each of them
"""
import pathlib
import re
import subprocess
import sys

FUNCTION = re.compile(
    r"/\*(?P<comment>(?:(?!\*/).)*)\*/\n(?P<declared>(?:WEIR_API|static inline)\b(?P<before>[^;{(/]*?)\b(?P<name>weir_\w+)\((?P<arguments>[^;{]*?)\))\s*[;{]",
    re.S)
MARKS = re.compile(r"WEIR_(API|MUST_CHECK|NONNULL_FIRST|NONNULL)\s+|static inline\s+")


def functions(header):
    return [(it["name"], it["comment"], " ".join(MARKS.sub("", it["declared"]).split()))
            for it in FUNCTION.finditer(header)]


def plain(comment):
    """The lines of a comment, without its frame."""
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.split("\n")]
    return "\n".join(lines).strip("\n").strip().split("\n")


def escape(text):
    text = re.sub(r"([\\*_`#~])", r"\\\1", text)
    return re.sub(r"\b((?:weir|WEIR)(?:\\_\w+)+(?:\\_)?)", r"*\1*", text)


def paragraphs(lines):
    """Text that is indented stands as it is."""
    quoted = False
    for line in lines:
        indented = line.startswith("  ")
        if line and indented != quoted:
            yield ""
            yield "```"
            quoted = indented
        yield line[2:] if quoted else escape(line)
    if quoted:
        yield "```"


def wrapped(declared):
    if len(declared) <= 76:
        return declared + ";"
    head, rest = declared.split("(", 1)
    lines, line = [], head + "("
    for argument in rest[:-1].split(", "):
        if len(line) + len(argument) > 76:
            lines.append(line.rstrip())
            line = "    "
        line += argument + ", "
    return "\n".join(lines + [line[:-2] + ");"])


def page(name, comment, declared):
    lines = plain(comment)
    first = re.split(r"[.;:](?:\s|$)", " ".join(lines), maxsplit=1)[0]
    returns = []
    if declared.startswith("int "):
        returns = ["# RETURN VALUE", "", "0, or a negative *WEIR\\_E...* code: *weir\\_strerror*(3) has its text, *weir*(3) the list.",
                   "Denied is a decision, not a failure. Results are written on success only.", ""]
    return "\n".join([f"{name}(3)", "", "# NAME", "", f"{name} - {first[0].lower() + first[1:] if not first.startswith(('weir_', 'WEIR_')) else first}", "",
                      "# SYNOPSIS", "", "*\\#include <weir.h>*", "", "```", wrapped(declared), "```", "", "# DESCRIPTION", "",
                      *paragraphs(lines), "", *returns, "# SEE ALSO", "", "*weir*(3), *weir-limits*(7)", ""])


def main():
    if sys.argv[1] == "--list":
        print("\n".join(name for name, _, _ in functions(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))))
        return
    header, scdoc, folder = sys.argv[1:]
    for it in functions(pathlib.Path(header).read_text(encoding="utf-8")):
        made = subprocess.run([scdoc], input=page(*it), capture_output=True, text=True, encoding="utf-8")
        if made.returncode:
            sys.exit(f"{it[0]}: {made.stderr}\n{page(*it)}")
        pathlib.Path(folder, f"{it[0]}.3").write_text(made.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
