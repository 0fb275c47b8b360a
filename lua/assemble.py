#!/usr/bin/env python3
"""Assembles the pieces beside this file into the scripts that servers run.

    assemble.py --out DIR      writes every script as DIR/NAME.lua
    assemble.py --header FILE  writes a C header with every script, its SHA1 and its arguments
    assemble.py --list         prints the names
                 --installed   leaves out the scripts with a test clock

A piece is a Lua file of blocks. `--@block NAME A B` begins one, with the names of its parameters;
`--@use FILE.BLOCK x | y` stands for that block's lines with x for A and y for B. Scripts are made of text,
not of functions, since a function in a script would be made anew at every call. Comments and indentation do
not get into a script, nor does a last newline, which shells drop and which would change the SHA1.
"""
import argparse
import hashlib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
VERBS = HERE.parent / "src" / "wire" / "verbs.h"
CONSTANTS = {
    "EXACT_MAX": "9007199254740992",  # 2^53: beyond it doubles do not count exactly
    "COST_MAX": "1000000000000",
    "DURATION_MAX": "31622400000000",  # 366 days
    "MINUTE": "60000000",
    "DAY": "86400000000",
    "HOUR": "3600000000",
    "COUNTER_MAX": "2000000000",
    "CELLS_MAX": "131072",
    "SHORT_VALUE": "1024",  # longer values are written in part where that will do
    # a section's places in its table, an op's likewise
    **{f"S_{name}": str(i) for i, name in enumerate(
        "KIND PERIOD EXTRA POS SIZE FRESH AT AMOUNT BEFORE STORED CAPACITY HEAD LEN SUM LAST BYTES CELL CELL_AT COUNT"
        .split(), 1)},
    **{f"O_{name}": str(i) for i, name in enumerate("HOLDER KIND PERIOD EXTRA COUNT BURST COST".split(), 1)},
    # the numbers of verbs, from the one list
    **dict(re.findall(r"^    X\(([A-Z]+), (\d+), .*\bLUA\b", VERBS.read_text(encoding="utf-8"), re.MULTILINE)),
}
# The function library: raise the version with every change of it (tests/redis/lua_function.py insists). What it serves
# changes only when calls of older programs would be misunderstood.
LIBRARY_VERSION, LIBRARY_SERVES = 3, 1
# name: (kind, algorithm, what loads and reports, shape of the state, waits, arguments)
LEAN = {
    "token_bucket": (0, "token_bucket", "bucket", "bucket", "wait_at_most", "cost wait count period burst"),
    "stepped": (1, "stepped", "stepped", "bucket", "wait_at_most", "cost wait count period burst"),
    "leaky_bucket": (2, "leaky_bucket", "bucket", "bucket", "wait_any",
                     "cost wait count period burst extra flags"),
    "fixed_window": (3, "fixed_window", "fixed_window", "window", "wait_none", "cost count period"),
    "from_first": (4, "fixed_window", "fixed_window", "window", "wait_none", "cost count period"),
    "sliding_log": (5, "sliding_log", "stamps", "ring", "wait_none", "cost count period"),
    "sliding_window": (6, "sliding_window", "stamps", "ring", "wait_none", "cost count period extra"),
    "sliding_counter": (7, "sliding_counter", "sliding_counter", "counter", "wait_none",
                        "cost count period"),
    "smooth": (8, "guava", "guava", "guava", "wait_any", "cost wait count period extra"),
    "warmup": (9, "guava", "guava", "guava", "wait_any", "cost wait count period extra cold"),
    "concurrent": (10, "concurrent", "concurrent", "ring", "wait_none", "cost count period"),
}
# Lean scripts name library functions where they use them: most calls need one or two.
INLINE = {"unpack": "struct.unpack", "pack": "struct.pack", "sub": "string.sub", "rep": "string.rep",
          "byte": "string.byte", "find": "string.find", "format": "string.format"}


class Pieces:
    """All blocks: (file, block) to (parameters, lines)."""

    def __init__(self):
        self.blocks = {}
        for path in sorted(HERE.glob("*.lua")):
            self.read(path)

    def read(self, path):
        block = None
        for line in path.read_text(encoding="utf-8").splitlines():
            line = bare(line)
            if line.startswith("--@block "):
                name, *parameters = line.split()[1:]
                block = (path.stem, name)
                if block in self.blocks:
                    sys.exit(f"{path}: block {name} stands there twice")
                self.blocks[block] = (parameters, [])
            elif line and block:
                self.blocks[block][1].append(line)
            elif line:
                sys.exit(f"{path}: a line before the first block: {line}")

    def expand(self, use, names):
        """The lines of `FILE.BLOCK arguments`, all uses in them expanded."""
        use, _, rest = use.partition(" ")
        use = replace(use, names)
        arguments = [replace(word.strip(), names) for word in rest.split(" | ")] if rest else []
        block = tuple(use.split("."))
        if block not in self.blocks:
            sys.exit(f"there is no block {use}")
        parameters, lines = self.blocks[block]
        if len(arguments) != len(parameters):
            if parameters:
                sys.exit(f"{use} takes {len(parameters)} arguments, not {len(arguments)}")
        scope = dict(names, **dict(zip(parameters, arguments)))
        out = []
        for line in lines:
            if line.startswith("--@use "):
                out += self.expand(replace(line[7:], scope), names)
            else:
                out.append(replace(line, scope))
        return out


def bare(line):
    """A line without indentation and comment; directives stay."""
    line = line.strip()
    if line.startswith("--@"):
        return line
    quoted = None
    for i, letter in enumerate(line):
        if quoted:
            quoted = None if letter == quoted and line[i - 1] != "\\" else quoted
        elif letter in "'\"":
            quoted = letter
        elif line.startswith("--", i):
            return line[:i].rstrip()
    return line


def replace(line, names):
    """Replaces whole words, outside of quotes for all but the assembler's own."""
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), line)


def general(pieces, clock):
    names = dict(CONSTANTS, clock=clock, KEEP_CELLS="state.keep_cells")
    return "\n".join(pieces.expand("verbs.main", names))


def lean(pieces, name, clock):
    kind, algorithm, loader, shape, waits, arguments = LEAN[name]
    words = arguments.split()
    stamps = algorithm in ("sliding_log", "sliding_window")
    values = ", ".join(f"tonumber(ARGV[{i}])" for i in range(1, len(words) + 1))
    names = dict(
        CONSTANTS, clock=clock, KIND=str(kind), MARK=str(503 + kind * 65536),
        ALGORITHM=algorithm, LOADER=loader, SHAPE="quick_" + shape, WAITS="lean." + waits,
        JUDGE=loader if loader in ("stamps", "concurrent") else algorithm,
        CHARGE={"bucket": "bucket.charge", "concurrent": "concurrent.charge 0"}.get(
            loader, algorithm + ".charge"),
        ARGUMENT_COUNT=str(len(words)), ARGUMENT_NAMES=arguments,
        ARGUMENT_LOCALS=f"{', '.join(words)} = {values}",
        ARGUMENT_ALL=" and ".join(words),
        FRESHER=f"{loader}.fresh count" if shape == "bucket" else f"{loader}.fresh",
        RING_FRESH="quick_ring.fresh_stamps" if stamps else "quick_ring.fresh_leases",
        KEEP_CELLS="state.keep_cells" if shape == "ring" else "state.keep_none",
        PRECISION="extra" if name == "sliding_window" else "0")
    lines = pieces.expand("lean.main", names)
    return "\n".join(inline(line) for line in lines)


def inline(line):
    return re.sub(r"(?<![\w.])(unpack|pack|sub|rep|byte|find|format)\(",
                  lambda call: INLINE[call[1]] + "(", line)


def only(verbs, name, words):
    """Refuses all verbs but these."""
    other = " and ".join(f"ARGV[1] ~= '{CONSTANTS[verb]}'" for verb in verbs)
    return (f"if {other} then\n"
            f"return redis.error_reply('ERR {name} is for {words} alone')\nend")


FREE = only(("RESET", "RELEASE"), "weir_free", f"reset ({CONSTANTS['RESET']}) and release ({CONSTANTS['RELEASE']})")
PEEK = only(("PEEK", "SHOW"), "weir_peek", f"peek ({CONSTANTS['PEEK']}) and show ({CONSTANTS['SHOW']})")


def spare(general_text):
    """What gives back, for servers that are out of memory. Redis 7.0 or newer reads the flag."""
    return f"#!lua flags=allow-oom\n{FREE}\n{general_text}"


def library(general_text, scripts):
    """A Redis Function library: the general script, the same with flags for what does not charge, and the lean
    ones. Stores ask it for its version, and which callers it serves."""
    def register(name, body, flags):
        return (f"redis.register_function{{function_name='{name}', flags={{{flags}}}, callback=function(KEYS, ARGV)\n"
                f"{body}\nend}}")
    out = ["#!lua name=weir", "local function weir(KEYS, ARGV)", general_text, "end",
           "redis.register_function('weir', weir)",
           register("weir_version", f"return {{{LIBRARY_VERSION}, {LIBRARY_SERVES}}}", "'no-writes'"),
           register("weir_peek", f"{PEEK}\nreturn weir(KEYS, ARGV)", "'no-writes'"),
           register("weir_free", f"{FREE}\nreturn weir(KEYS, ARGV)", "'allow-oom'")]
    for name, text in scripts.items():
        out += [f"redis.register_function('{name}', function(KEYS, ARGV)", text, "end)"]
    return "\n".join(out)


def assemble():
    """Every script: name to (text, arguments of a lean one)."""
    pieces = Pieces()
    out = {"weir": (general(pieces, "clock"), "")}
    for name in LEAN:
        out["take_" + name] = (lean(pieces, name, "clock"), LEAN[name][5])
    functions = {"weir_" + name: text for name, (text, _) in out.items() if name != "weir"}
    out["weir_free"] = (spare(out["weir"][0]), "")
    out["weir_library"] = (library(out["weir"][0], functions), "")
    out["weir_test"] = (general(pieces, "clock_test"), "")
    for name in LEAN:
        out[f"take_{name}_test"] = (lean(pieces, name, "clock_test"), LEAN[name][5])
    return out


def quoted(text):
    """A C string literal, a line each."""
    def escaped(line):
        return line.replace("\\", "\\\\").replace('"', '\\"')
    return '\\n"\n'.join(f'     "{escaped(line)}' for line in text.splitlines()) + '"'


def header(scripts):
    out = ["/* Made by lua/assemble.py from the pieces in lua/. */",
           "#ifndef WEIR_LUA_SCRIPTS_H", "#define WEIR_LUA_SCRIPTS_H", "",
           "/* A script: what it is called, its text and SHA1, and for a lean one (`take` of one key under one",
           " * limit of a kind) that kind and its arguments in order. */",
           "struct weir__script {",
           "    const char *name;", "    const char *sha1; /* 40 hexadecimal digits */",
           "    int kind;         /* enum weir__kind of a lean script, else -1 */",
           "    const char *arguments;",
           "    const char *text;", "};", "",
           "/* The function library: its version, and the number of the calls that it understands. */",
           f"enum {{ WEIR__LIBRARY_VERSION = {LIBRARY_VERSION}, WEIR__LIBRARY_SERVES = {LIBRARY_SERVES} }};", "",
           "static const struct weir__script weir__scripts[] = {"]
    kinds = {"take_" + name: row[0] for name, row in LEAN.items()}
    for name, (text, arguments) in scripts.items():
        digest = hashlib.sha1(text.encode()).hexdigest()
        kind = kinds.get(name.removesuffix("_test"), -1)
        out.append(f'    {{"{name}", "{digest}", {kind}, "{arguments}",\n{quoted(text)}}},')
    out += ["};", "", "#endif", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description="Assembles weir's Lua scripts.")
    parser.add_argument("--out", type=pathlib.Path, help="folder for NAME.lua files")
    parser.add_argument("--header", type=pathlib.Path, help="C header to write")
    parser.add_argument("--list", action="store_true", help="print the names of the scripts")
    parser.add_argument("--installed", action="store_true", help="only those that are installed: not the tests'")
    options = parser.parse_args()
    scripts = assemble()
    if options.installed:
        scripts = {name: it for name, it in scripts.items() if not name.endswith("_test")}
    if options.list:
        print("\n".join(scripts))
    if options.header:
        options.header.write_text(header(scripts), encoding="utf-8")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, (text, _) in scripts.items():
            (options.out / f"{name}.lua").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
