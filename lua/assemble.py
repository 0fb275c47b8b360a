#!/usr/bin/env python3
"""Assembles the pieces beside this file into the scripts that servers run.

    assemble.py --out DIR      writes every script as DIR/NAME.lua
    assemble.py --header FILE  writes the C table of src/remote/scripts.h: every script, its SHA1 and its arguments
    assemble.py --list         prints the names
                 --installed   leaves out the scripts with a test clock

A piece is a Lua file of blocks. `--@block NAME A B` begins one, with the names of its parameters;
`--@use FILE.BLOCK x | y` stands for that block's lines with x for A and y for B. Scripts are made of text,
not of functions, since a function in a script would be made again at every call. Comments and indentation do
not get into a script, nor does a last newline, which shells drop and which would change the SHA1.
"""
import argparse
import hashlib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
# What the scripts have in common with the C: names and numbers are read from there.
WEIR, BASE, CORE, STATE, VERBS = (path.read_text(encoding="utf-8") for path in (
    HERE.parent / "include/weir.h", SOURCE / "base/base.h", SOURCE / "core/core.h", SOURCE / "wire/state.h",
    SOURCE / "wire/verbs.h"))
ROWS = "".join(path.read_text(encoding="utf-8") for path in sorted((SOURCE / "core").glob("*.c")))


def number(text, name):
    """The value of `#define NAME number` or of an enumerator `NAME = number`, as Lua writes it."""
    found = re.search(rf"^#define {name} (.+?)(?: /\*.*)?$|\b{name} = (\d+)", text, re.MULTILINE)
    value = re.sub(r"U?INT\d+_C\((\w+)\)", r"\1", found[1] or found[2]) if found else ""
    if not re.fullmatch(r"[\d ()<*+-]+", value):
        sys.exit(f"lua/assemble.py: no number called {name} in the C sources, but {value!r}")
    return str(eval(value))  # pylint: disable=eval-used


def kinds():
    """Every kind in the order of its number: the constant, and the name of its row and script."""
    return re.findall(r"^    X\(([A-Z_]+), ([a-z_]+)\)", CORE, re.MULTILINE)


def full_name(row):
    found = re.search(rf'weir__algorithm_{row} = {{.*?\.full_name = "([^"]+)"', ROWS, re.DOTALL)
    return found[1] if found else sys.exit(f"lua/assemble.py: src/core has no row called {row} with a full_name")


CONSTANTS = {
    "EXACT_MAX": number(BASE, "WEIR__EXACT_MAX"),  # beyond it doubles do not count exactly
    "COST_MAX": number(WEIR, "WEIR_COST_MAX"),
    "DURATION_MAX": number(WEIR, "WEIR_DURATION_MAX"),
    "MINUTE": number(CORE, "WEIR__FINE_PERIOD_MAX_US"),
    "DAY": "86400000000",
    "HOUR": number(CORE, "WEIR__SETTLED_US"),
    "COUNTER_MAX": number(CORE, "WEIR__PAIR_MAX"),
    "COUNTER_COUNT_MAX": number(ROWS, "COUNT_MAX"),
    "LOG_COUNT_MAX": number(CORE, "WEIR__LOG_COUNT_MAX"),
    "SLOTS_MAX": number(ROWS, "SLOTS_MAX"),
    "CELLS_MAX": number(CORE, "WEIR__CELLS_MAX"),
    "LEASE_UNIT": str(1 << int(number(CORE, "WEIR__LEASE_SHIFT"))),
    "SHORT_VALUE": "1024",  # longer values are written in part where that will do
    # a section's places in its table, an op's likewise
    **{f"S_{name}": str(i) for i, name in enumerate(
        "KIND PERIOD EXTRA POS SIZE FRESH AT AMOUNT BEFORE STORED CAPACITY HEAD LEN SUM LAST BYTES CELL CELL_AT COUNT"
        .split(), 1)},
    **{f"O_{name}": str(i) for i, name in enumerate("HOLDER KIND PERIOD EXTRA COUNT BURST COST".split(), 1)},
    # the numbers of verbs and kinds, from the lists
    **dict(re.findall(r"^    X\(([A-Z]+), (\d+), .*\bLUA\b", VERBS, re.MULTILINE)),
    **{constant: str(i) for i, (constant, _) in enumerate(kinds())},
    "KIND_LAST": str(len(kinds()) - 1),
    "KIND_NAMES": ", ".join(f"'{full_name(row)}'" for _, row in kinds()),
    "MARKS_KIND": number(STATE, "WEIR__MARKS_KIND"),
    "NODELAY": number(CORE, "WEIR__NODELAY"),
}
# The function library: raise the version with every change of it (tests/homes/redis/lua_function.py insists). What it serves
# changes only when calls of older programs would be misunderstood.
LIBRARY_VERSION, LIBRARY_SERVES = 7, 1
# row: (algorithm, what loads and reports, shape of the state, waits, arguments)
LEAN = {
    "token_bucket": ("token_bucket", "bucket", "bucket", "wait_at_most", "cost wait count period burst"),
    "stepped": ("stepped", "stepped", "bucket", "wait_at_most", "cost wait count period burst"),
    "leaky_bucket": ("leaky_bucket", "bucket", "bucket", "wait_any",
                     "cost wait count period burst extra flags"),
    "fixed_window": ("fixed_window", "fixed_window", "window", "wait_none", "cost count period"),
    "from_first": ("fixed_window", "fixed_window", "window", "wait_none", "cost count period"),
    "sliding_log": ("sliding_log", "stamps", "ring", "wait_none", "cost count period"),
    "sliding_window": ("sliding_window", "stamps", "ring", "wait_none", "cost count period extra"),
    "sliding_counter": ("sliding_counter", "sliding_counter", "counter", "wait_none",
                        "cost count period"),
    "smooth": ("guava", "guava", "guava", "wait_any", "cost wait count period extra"),
    "warmup": ("guava", "guava", "guava", "wait_any", "cost wait count period extra cold"),
    "concurrent": ("concurrent", "concurrent", "ring", "wait_none", "cost count period"),
    "calendar": ("calendar", "calendar", "calendar", "wait_none", "cost count period extra"),
}
KIND_OF = {row: number for number, (_, row) in enumerate(kinds())}
if set(LEAN) != set(KIND_OF):
    sys.exit(f"lua/assemble.py: lean scripts and WEIR__KINDS differ: {', '.join(sorted(set(LEAN) ^ set(KIND_OF)))}")
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
    algorithm, loader, shape, waits, arguments = LEAN[name]
    kind = KIND_OF[name]
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
        out["take_" + name] = (lean(pieces, name, "clock"), LEAN[name][4])
    functions = {"weir_" + name: text for name, (text, _) in out.items() if name != "weir"}
    out["weir_free"] = (spare(out["weir"][0]), "")
    out["weir_library"] = (library(out["weir"][0], functions), "")
    out["weir_test"] = (general(pieces, "clock_test"), "")
    for name in LEAN:
        out[f"take_{name}_test"] = (lean(pieces, name, "clock_test"), LEAN[name][4])
    return out


def quoted(text):
    """A C string literal, a line each."""
    def escaped(line):
        return line.replace("\\", "\\\\").replace('"', '\\"')
    return '\\n"\n'.join(f'     "{escaped(line)}' for line in text.splitlines()) + '"'


def header(scripts):
    out = ["/* Made by lua/assemble.py from the pieces in lua/. */",
           "#include \"remote/scripts.h\"", "",
           f"const int weir__library_version = {LIBRARY_VERSION}, weir__library_serves = {LIBRARY_SERVES};", "",
           "const struct weir__script weir__scripts[] = {"]
    for name, (text, arguments) in scripts.items():
        digest = hashlib.sha1(text.encode()).hexdigest()
        kind = KIND_OF.get(name.removeprefix("take_").removesuffix("_test"), -1)
        out.append(f'    {{"{name}", "{digest}", {kind}, "{arguments}",\n{quoted(text)}}},')
    out += ["};", ""]
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
