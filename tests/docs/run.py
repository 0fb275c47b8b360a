#!/usr/bin/env python3
"""Holds the documentation to the software: every command and every snippet in it is run.

    tests/docs/run.py [NAME …]     only files and checks whose name contains one of these

Fenced blocks of README.md, CONTRIBUTING.md, docs/*.md, the README.md of examples and bindings, and of the pages in Chinese
(README.zh-CN.md, docs/zh/*.md), by their tag:
  sh            run by sh in a scratch folder that looks like the repository after `make`, with the command
                on PATH and a state folder of its own; the blocks of one page share it, in order. The last
                exit status must be 0, or N if the tag is `sh exit=N`.
  sh no-run     what would recurse, install or take long: every line must be a make target that exists, one
                of apt-get, git and cd, or a script of the repository with options that it knows.
  sh by=FILE    run by another test, which reads it from the page.
  sh ports      7001 to 7009 are free ports instead. The block ends what it starts.
  output        what the block before it prints, stderr included; `…` is anything within a line.
  c             compiled without a warning and run. Without a main it is a fragment: FRAGMENT stands around
                it (docs/LIBRARY.md says what that provides).
  sh redis      with a real redis-server that has loaded the module, which the page calls port 6379; redis-cli
                finds it. `sh redis no-module` has a server without it, `sh redis cluster` a Cluster of one. The
                blocks of one page share these servers, in order. `c redis` likewise.
  python, js, go        a whole program, run against that server with redis-py, node-redis, redigo.
  python local  a whole program that uses the binding, without a server; also `js local`, `lua local`, `sh local`
                (bindings_home.py). With file=NAME it is a file of the page.
  conf          lines of redis.conf, or `conf sentinel` of sentinel.conf: a server must start with them.
  sh serve …    with a real `weir serve` of these options, which the page calls port 7311; redis-cli finds it. The
                blocks of one page that name the same options share the server, in order. `python serve …` likewise.
  yaml [NAME]   a file of the page (policies.yaml), which `weir check` must accept, or refuse with `yaml … refused`.
  nginx         what stands in nginx's http {}, with weir's module loaded: `nginx -t` must like it, or refuse it with
                `nginx refused`. `nginx main` is a whole nginx.conf, `nginx server` and `nginx location` are parts.
                `nginx lua` has Debian's module for Lua beside weir's; `from=FILE` shows lines of FILE, which is what runs.
  sh nginx      with a real nginx that runs the page's last nginx block, on what the page calls port 8080.
  text, csv, java, mermaid    to be read only. There is no block without a tag.

Also: links, anchors and pictures are there, the README and the pages by task are short, both languages of the README have
the same commands, the man pages render without a warning, the commands and options of `weir --help` and those in
docs/CLI.md and weir.1 are the same, every function of weir.h and every limit is described.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD", ROOT / "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
sys.path.insert(0, str(ROOT / "tests/docs"))

import bindings_home  # noqa: E402
import nginx_home  # noqa: E402
import redis_home  # noqa: E402
import server_home  # noqa: E402

READ_ONLY = ("text", "csv", "java", "mermaid")
CLIENTS = ("python", "js", "go", "lua")
PATIENCE_SECONDS = 600  # the first Go block builds what it needs
FRAGMENT = """
#include <weir.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
weir_store *store;
weir_limit *limit;
weir_key key;
weir_decision d;
weir_error err;
void serve(void) {}
void refuse(int64_t retry_after_us) { (void)retry_after_us; }
static int fragment(void)
{
#line 1 "fragment"
%s
    return 0;
}
int main(void)
{
    if (weir_store_open("memory:1m", &store, &err) ||
        weir_limit_parse("token-bucket 100/s burst 200", &limit, &err))
        return 1;
    key = weir_key_text("user:42");
    int code = fragment();
    weir_limit_free(limit);
    weir_store_close(store);
    return code;
}
"""

passed = failed = 0
chosen = [word for word in sys.argv[1:] if not word.startswith("-")]


def report(name, problem=None):
    global passed, failed
    if problem is None:
        passed += 1
        print(f"ok   {name}")
    else:
        failed += 1
        print(f"FAIL {name}\n     " + str(problem).rstrip().replace("\n", "\n     "), flush=True)


def wanted(name):
    return not chosen or any(word in name for word in chosen)


def pages(every=False):
    found = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "docs/zh").glob("*.md")), ROOT / "examples/README.md", ROOT / "examples/redis/README.md", ROOT / "examples/server/README.md",
             ROOT / "bench/README.md", *sorted((ROOT / "bindings").glob("*/README.md"))]
    return [page for page in found if page.exists() and (every or wanted(str(page.relative_to(ROOT))))]


# ---- blocks ----

class Block:
    def __init__(self, page, line, tag):
        self.page, self.line, self.lines, self.output = page, line, [], None
        words = tag.split()
        self.kind, self.flags = (words[0] if words else ""), words[1:]

    def name(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def text(self):
        return "\n".join(self.lines) + "\n"


def blocks_of(page):
    blocks, open_block, fence = [], None, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        start = re.match(r"^ {0,3}(```+)(.*)$", line)
        if open_block is not None:
            if start and start[1] == fence and not start[2].strip():
                blocks.append(open_block)
                open_block = None
            else:
                open_block.lines.append(line)
        elif start:
            fence, open_block = start[1], Block(page, number, start[2].strip())
    if open_block is not None:
        report(open_block.name(), "the block is never closed")
    return attach_outputs(blocks)


def attach_outputs(blocks):
    """`output` belongs to the block before it."""
    kept = []
    for block in blocks:
        if block.kind != "output":
            kept.append(block)
        elif kept and kept[-1].kind in ("sh", "c", "yaml", "nginx", *CLIENTS) and kept[-1].output is None:
            kept[-1].output = block.lines
        else:
            report(block.name(), "an output block without a command before it")
    return kept


def compare(expected, printed):
    """None, or how what was printed differs."""
    lines = printed.rstrip("\n").split("\n") if printed.strip() else []
    expected = [line for line in expected]
    while expected and not expected[-1].strip():
        expected.pop()
    for number in range(max(len(lines), len(expected))):
        want = expected[number] if number < len(expected) else None
        have = lines[number] if number < len(lines) else None
        pattern = None if want is None else ".*".join(map(re.escape, want.rstrip().split("…")))
        if pattern is None or have is None or not re.fullmatch(pattern, have.rstrip()):
            return f"output line {number + 1}\nexpected: {want}\nprinted:  {have}\nall of it:\n{printed}"
    return None


# ---- running ----

class Scratch:
    """A folder like the repository after make: copies of what a reader may write to, links to the rest."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="weir-docs-"))
        for name in ("include", "examples"):
            shutil.copytree(ROOT / name, self.path / name)
        for name in ("tests", "bench", "fuzz", "tools", "docs", "src", "modules", "bindings", "lua", "LICENSE", "Makefile", "README.md"):
            if (ROOT / name).exists():
                (self.path / name).symlink_to(ROOT / name)
        (self.path / "build").symlink_to(BUILD)
        self.env = dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}", HOME=str(self.path / "home"),
                        XDG_STATE_HOME=str(self.path / "home/state"), NO_COLOR="1", LC_ALL="C.UTF-8",
                        COLUMNS="80", TERM="dumb")
        (self.path / "home").mkdir()
        self.redis = redis_home.Home(self.path, BUILD)
        self.serve = server_home.Home(self.path, BUILD)
        self.nginx = nginx_home.Home(self.path, self.redis)

    def run(self, command, env=None):
        return subprocess.run(command, cwd=self.path, env=env or self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS, text=True,
                              errors="replace", check=False)

    def close(self):
        """None, or what is wrong with how a server ended."""
        problem = None
        try:
            self.nginx.close()
        except nginx_home.nginx_server.WrongEnd as error:
            problem = error
        self.redis.__exit__()
        self.serve.close()
        shutil.rmtree(self.path, ignore_errors=True)
        return problem


def judge(block, done, printed):
    """None, or what is wrong with how a block ended and what it printed."""
    status = next((int(flag[5:]) for flag in block.flags if flag.startswith("exit=")), 0)
    if done.returncode != status:
        return f"exit status {done.returncode}, not {status}\n{printed}"
    return compare(block.output, printed) if block.output is not None else None


def run_shell(scratch, block):
    done = scratch.run(["sh", "-c", block.text()])
    return judge(block, done, done.stdout)


def run_ports(scratch, block):
    """Shell that starts servers of its own."""
    free = {name: str(redis_home.ports.take()) for name in sorted(set(re.findall(r"\b700[1-9]\b", block.text())))}
    text = re.sub(r"(--store redis\S*:700\d)(?![\w?])", rf"\1{redis_home.PATIENT}", block.text())
    done = scratch.run(["sh", "-c", re.sub(r"\b700[1-9]\b", lambda it: free[it[0]], text)])
    printed = done.stdout
    for name, port in free.items():
        printed = printed.replace(port, name)
        redis_home.ports.give_back(int(port))
    return judge(block, done, printed)


def run_redis(scratch, block):
    """Shell, or a client's program, with a server."""
    server = scratch.redis.server(block.flags)
    text = server.there(block.text())
    if block.kind == "sh":
        words = redis_home.show_terminal(text)
    else:
        runner, path = redis_home.command(block, scratch.path)
        path.write_text(text, encoding="utf-8")
        words = [*runner, path.name]
    done = scratch.run(words, scratch.redis.environment(server, scratch.env))
    return judge(block, done, server.back(done.stdout))


def run_serve(scratch, block):
    """Shell, or a Python program, with a weir serve of the tag's options."""
    server = scratch.serve.server(block.flags[block.flags.index("serve") + 1:])
    text = server.there(block.text())
    words = redis_home.show_terminal(text) if block.kind == "sh" else ["python3", "-c", text]
    scratch.redis.tools()
    env = dict(scratch.env, PATH=f"{scratch.redis.bin}:{scratch.env['PATH']}", DOCS_PORT=str(server.port))
    done = scratch.run(words, env)
    return judge(block, done, server.back(done.stdout))


def run_local(scratch, block):
    """With a binding, without a server, or with a redis-server."""
    server = scratch.redis.server(block.flags) if "redis" in block.flags else None
    done = bindings_home.run(scratch, block, BUILD, server.there(block.text()) if server else block.text())
    return judge(block, done, server.back(done.stdout) if server else done.stdout) if done else None


def run_nginx(scratch, block):
    """Shell with an nginx of the page's last configuration."""
    server = scratch.nginx.server()
    done = scratch.run(redis_home.show_terminal(server.there(block.text())), scratch.nginx.environment(scratch.env))
    return judge(block, done, server.back(done.stdout))


def check_nginx(scratch, block):
    problem, printed = scratch.nginx.check(block)
    return problem or (compare(block.output, printed) if block.output is not None else None)


def check_yaml(scratch, block):
    problem, printed = scratch.serve.check_yaml(block, scratch.env)
    return problem or (compare(block.output, printed) if block.output is not None else None)


def make_targets():
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").split("\n")
    return {name for line in lines if re.match(r"^[a-z][a-z -]*:", line)
            for name in line.split(":")[0].split()}


def unknown_word(line):
    """What is wrong with one line of a block that is not run, or None."""
    words = shlex.split(line, comments=True)
    while words and (words[0] == "sudo" or re.match(r"^[A-Z_]+=", words[0])):
        words.pop(0)
    if not words:
        return None
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        missing = [target for target in targets if target not in make_targets()]
        return f"the Makefile has no target {', '.join(missing)}" if missing else None
    if words[0] in ("apt-get", "apt", "git", "cd"):
        return None
    script = ROOT / words[0]
    if "/" not in words[0] or not script.is_file() or not os.access(script, os.X_OK):
        return f"{words[0]}: neither make, apt-get, git or cd, nor a script of the repository: run it"
    known = script.read_text(encoding="utf-8", errors="replace")
    odd = [word for word in words[1:] if word.startswith("--") and word.split("=")[0] not in known]
    return f"{words[0]} does not know {', '.join(odd)}" if odd else None


def check_unrun(block):
    problems = [f"{line}: {problem}" for line in block.lines if (problem := unknown_word(line))]
    return "\n".join(problems) or None


def check_runner(block, by):
    """A test of that name exists, is in the list, and reads this page."""
    test = ROOT / by
    name = test.stem
    if not test.is_file() or not re.search(rf"\b{name}\b", (ROOT / "tests/list.py").read_text(encoding="utf-8")):
        return f"{by} is not a test of tests/list.py"
    page = block.name().partition(":")[0]
    return None if page in test.read_text(encoding="utf-8") else f"{by} does not read this page"


def run_c(scratch, block):
    server = scratch.redis.server(block.flags) if "redis" in block.flags else None
    text = server.there(block.text()) if server else block.text()
    whole = re.search(r"\bint main\(", text)
    source = scratch.path / f"block{block.line}.c"
    source.write_text(text if whole else FRAGMENT % text, encoding="utf-8")
    program = source.with_suffix("")
    unused = [] if whole else ["-Wno-unused-variable", "-Wno-unused-function"]
    done = scratch.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *unused, "-Iinclude",
                        str(source), str(BUILD / "libweir.a"), "-lpthread", "-lm", "-o", str(program)])
    if done.returncode:
        return done.stdout
    done = scratch.run([str(program)])
    return judge(block, done, server.back(done.stdout) if server else done.stdout)


def check_block(scratch, block):
    try:
        by = next((flag[3:] for flag in block.flags if flag.startswith("by=")), None)
        if block.kind == "sh" and by:
            return check_runner(block, by)
        if block.kind == "sh" and "no-run" in block.flags:
            return check_unrun(block)
        if "serve" in block.flags:
            return run_serve(scratch, block)
        if "local" in block.flags:
            return run_local(scratch, block)
        if block.kind == "yaml":
            return check_yaml(scratch, block)
        if block.kind == "nginx":
            return check_nginx(scratch, block)
        if block.kind == "sh" and "nginx" in block.flags:
            return run_nginx(scratch, block)
        if block.kind in CLIENTS or (block.kind == "sh" and "redis" in block.flags):
            return run_redis(scratch, block)
        if block.kind == "conf":
            return scratch.redis.check_conf(block)
        if block.kind == "sh" and "ports" in block.flags:
            return run_ports(scratch, block)
        if block.kind == "sh":
            return run_shell(scratch, block)
        if block.kind == "c":
            return run_c(scratch, block)
    except subprocess.TimeoutExpired:
        return f"took more than {PATIENCE_SECONDS} seconds"
    except (RuntimeError, OSError, server_home.weir_server.WrongEnd) as error:
        return error
    return f"unknown tag \"{block.kind}\": expected one of sh, c, conf, yaml, nginx, output, {', '.join((*CLIENTS, *READ_ONLY))}"


def check_pages():
    for page in pages():
        scratch = Scratch()
        try:
            for block in blocks_of(page):
                if block.kind not in READ_ONLY:
                    report(block.name(), check_block(scratch, block))
        finally:
            problem = scratch.close()
        if problem:
            report(f"{page.relative_to(ROOT)}: its servers end well", problem)


# ---- links, anchors, pictures ----

IMAGES = ROOT / "docs/images"
OUTSIDE = re.compile(r"^[a-z][a-z0-9+.-]*:|^//")  # another host: not ours to check


def prose(page):
    """A page without its fenced blocks and its spans of code."""
    text = re.sub(r"(?ms)^ {0,3}(```+).*?^ {0,3}\1", "", page.read_text(encoding="utf-8"))
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda span: "" if "](" in span[0] or "<" in span[0] else span[0], text)


def anchors_of(page):
    """As GitHub makes them of headings, a second one of a name with -1; and those that the page writes itself."""
    seen, found = {}, set(re.findall(r'<[a-z]+ [^>]*\b(?:id|name)="([^"]+)"', prose(page)))
    for title in re.findall(r"(?m)^#+ +(.*?) *#*$", prose(page)):
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        count = seen[name] = seen.get(name, -1) + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def targets_of(page):
    """(links, pictures) of a page, as they are written."""
    text = prose(page)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text) + re.findall(r'<img [^>]*\bsrc="([^"]+)"', text)
    for listed in re.findall(r'\bsrcset="([^"]+)"', text):
        pictures += [one.split()[0] for one in listed.split(",")]
    links = re.findall(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)", text) + re.findall(r'<a [^>]*\bhref="([^"]+)"', text)
    links += re.findall(r"(?m)^\[[^\]]+\]: +(\S+)", text)
    return links, pictures


def broken_links(page):
    broken = []
    links, pictures = targets_of(page)
    for target in [link for link in links if not OUTSIDE.match(link)]:
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            broken.append(f"{target}: there is no such file")
        elif anchor and there.suffix == ".md" and anchor not in anchors_of(there):
            broken.append(f"{target}: there is no such heading")
    for target in pictures:
        there = (page.parent / target).resolve()
        if OUTSIDE.match(target) or there.parent != IMAGES or not there.is_file():
            broken.append(f"{target}: not a picture of docs/images")
    return broken


def check_picture(path, used):
    """None, or what is wrong with a file of docs/images."""
    head = path.read_bytes()[:400]
    kinds = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<svg "}
    if path.suffix not in kinds or not head.startswith(kinds[path.suffix]):
        return "neither a PNG nor an SVG"
    light, dark = path.name.replace("-dark.", "-light."), path.name.replace("-light.", "-dark.")
    if light == dark or not (IMAGES / light).is_file() or not (IMAGES / dark).is_file():
        return "a picture has two files, NAME-light and NAME-dark"
    return None if path in used else "no page shows it"


def check_links():
    if not wanted("links"):
        return
    every = [*pages(True), ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
    for page in every:
        broken = broken_links(page)
        glued = re.findall(r"(?m)^.*\S.*\n(#+ .*)", prose(page))
        report(f"{page.relative_to(ROOT)}: its links, anchors and pictures are there", "\n".join(broken) if broken else None)
        report(f"{page.relative_to(ROOT)}: a blank line stands before each heading", f"not before {glued}" if glued else None)
    used = {(page.parent / picture).resolve() for page in every for picture in targets_of(page)[1]}
    for path in sorted(IMAGES.iterdir()):
        report(f"docs/images/{path.name} is a picture that a page shows", check_picture(path, used))


# ---- lengths ----

README_LINES, TASK_WORDS = 200, 1100  # words without code
PARAGRAPH_WORDS = 90  # also of an item of a list, or a cell of a table
CODE_COLUMNS = 130  # what programs print may be longer


def long_paragraphs(page):
    text = re.sub(r"\]\([^)]*\)", "]", words_of(page))
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |\|)|```", text):
        for cell in paragraph.split(" | ") if paragraph.lstrip().startswith("|") else [paragraph]:
            words = cell.split()
            if len(words) > PARAGRAPH_WORDS:
                found.append(f"{len(words)} words: {' '.join(words[:12])} …")
    return found


def check_lengths():
    """The front door stays short: the README, and the pages that the index names for tasks. No page has a wall of text or of code."""
    if not wanted("lengths"):
        return
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    tasks = set(re.findall(r"\]\(([A-Z-]+\.md)\)", index.split("## I want to …")[1].split("\n## ")[0]))
    report("docs/README.md names pages by task", None if len(tasks) >= 10 else f"only {sorted(tasks)}")
    for page in sorted(ROOT.glob("README*.md")):
        lines = page.read_text(encoding="utf-8").count("\n")
        report(f"{page.name} has at most {README_LINES} lines", f"it has {lines}" if lines > README_LINES else None)
    for name in sorted(tasks):
        words = len(words_of(ROOT / "docs" / name).split())
        report(f"docs/{name} has at most {TASK_WORDS} words", f"it has {words}" if words > TASK_WORDS else None)
    for page in pages(True):
        name = str(page.relative_to(ROOT))
        wide = [f"{block.name()}: {line[:60]} …" for block in blocks_of(page) if block.kind not in ("output", "text")
                for line in block.lines if len(line) > CODE_COLUMNS]
        report(f"{name}: no walls of text or code", "\n".join(long_paragraphs(page) + wide) or None)


# ---- the pages in Chinese ----

CHINESE = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"


def words_of(page):
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands_of(page):
    """What both languages of a page must have: the kinds of its blocks, and what stands in backticks."""
    return [[block.kind, *block.flags] for block in blocks_of(page)], set(re.findall(r"`([^`\n]+)`", words_of(page)))


def check_chinese():
    """A line break within a Chinese sentence is shown as a blank. What is new in one README is in the other, too."""
    if not wanted("chinese"):
        return
    for page in (ROOT / "README.zh-CN.md", *sorted((ROOT / "docs/zh").glob("*.md"))):
        broken = re.findall(rf"^(?![|#<-]).*{CHINESE}$\n(?![|#<`-]).*\S.*$", words_of(page), flags=re.M)
        report(f"{page.relative_to(ROOT)}: no sentence is broken into lines", "\n".join(broken) or None)
    tags, commands = commands_of(ROOT / "README.md")
    theirs, others = commands_of(ROOT / "README.zh-CN.md")
    differ = sorted(commands ^ others) + [f"block {i + 1}" for i in range(max(len(tags), len(theirs))) if tags[i:i + 1] != theirs[i:i + 1]]
    report("README.md and README.zh-CN.md have the same commands", "\n".join(differ) or None)


# ---- man pages ----

def render(source, folder):
    """What is wrong with a page, or None."""
    page = folder / source.stem
    with open(source, encoding="utf-8") as text, open(page, "w", encoding="utf-8") as out:
        made = subprocess.run(["scdoc"], stdin=text, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        return made.stderr
    env = dict(os.environ, LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80")
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace", check=False)
    return done.stderr.strip() or (f"man ended with {done.returncode}" if done.returncode else None)


def check_man():
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "docs/man").glob("*.scd")):
            if wanted(f"docs/man/{source.name}"):
                report(f"docs/man/{source.name} renders without a warning", render(source, pathlib.Path(folder)))


# ---- the command and its pages say the same ----

def weir(*words):
    return subprocess.run([str(BUILD / "weir"), *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def commands():
    section = weir("--help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in section.split("\n") if line.strip()]


def options_in(text):
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text.replace("\\-", "-").replace("\\_", "_"))) - {"help"}


def options_of(name):
    """Those of its usage; where that says [options], also those that have a line of their own. The server has its own pages."""
    text = weir(name, "--help")
    usage = text.split("\n\n")[0]
    listed = re.findall(r"(?m)^  (?:-\w, )?--([a-z][a-z-]*)", text) if "[options]" in usage and name != "serve" else []
    return options_in(usage) | set(listed)


def sections(text, heading):
    """{name: text} of the sections whose heading matches."""
    parts = re.split(heading, text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def check_commands():
    if not wanted("commands"):
        return
    pages_of = {
        "docs/CLI.md": sections((ROOT / "docs/CLI.md").read_text(encoding="utf-8"), r"^## weir ([a-z]+)$"),
        "docs/man/weir.1.scd": sections((ROOT / "docs/man/weir.1.scd").read_text(encoding="utf-8"),
                                        r"^## weir ([a-z]+)\b.*$"),
    }
    for page, described in pages_of.items():
        there, here = set(commands()), set(described)
        report(f"{page} describes the commands of weir --help",
               f"missing: {sorted(there - here)}, too many: {sorted(here - there)}" if there != here else None)
        for name in sorted(there & here):
            text = re.sub(r"(?ms)^```.*?^```", "", re.split(r"(?m)^# ", described[name])[0])
            known, told = options_of(name), options_in(text)
            report(f"{page}: the options of weir {name}",
                   f"missing: {sorted(known - told)}, unknown: {sorted(told - known)}" if known != told else None)


# ---- every function and every limit is described ----

def check_words():
    if not wanted("words"):
        return
    functions = set((ROOT / "tests/api/symbols.txt").read_text(encoding="ascii").split())
    functions |= {"weir_key_text", "weir_key_bytes", "weir_request_make"}
    limits = ("token-bucket", "gcra", "leaky-bucket", "fixed-window", "sliding-log", "sliding-window",
              "sliding-counter", "smooth", "warmup", "concurrent", "burst", "stepped", "nodelay", "delay",
              "from-first", "precision", "burst-for", "over", "cold", "lease")
    for page, words in (("docs/LIBRARY.md", functions), ("docs/man/weir.3.scd", functions),
                        ("docs/SPEC.md", limits), ("docs/man/weir-limits.7.scd", limits)):
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\_", "_")
        missing = sorted(word for word in words if not re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", text))
        report(f"{page} names all {'functions' if words is functions else 'words of the language'}",
               f"missing: {', '.join(missing)}" if missing else None)


# ---- the runbook ----

def literals_of_sources():
    """Every text of C and Python that can be printed; neighbours are one text, as the compiler sees them."""
    code = "\n".join(path.read_text(encoding="utf-8") for folder, ending in (("src", "*.c"), ("modules", "*.c"), ("bindings/python/weir", "*.py"))
                     for path in sorted((ROOT / folder).rglob(ending)))
    code += (ROOT / "include/weir.h").read_text(encoding="utf-8")
    joined = re.sub(r'(?<!\\)"\s*\n\s*"', "", code)
    names = re.findall(r"\bWEIR_E[A-Z]+\b", code)
    return {text.replace('\\"', '"') for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)} | set(names)


def is_message(text, literals):
    """Whether a literal has the parts of a text between its …, in this order; or is a format that gives the text, with words that are literals, too."""
    parts = [part.strip() for part in text.split("…") if part.strip()]
    if any(re.search(".*".join(map(re.escape, parts)), literal) for literal in literals):
        return True
    for literal in (it for it in literals if "%s" in it and len(it) > 12):
        pattern = "(.*?)".join(re.escape(part) for part in re.split(r"%[\w.*]+", literal))
        found = re.fullmatch(pattern, text)
        if found and all(word in literals for group in found.groups() for word in map(str.strip, group.split("…")) if word):
            return True
    return False


def check_runbook():
    """Every alert is in the section that it names; every message of the tables is one that the program has."""
    if not wanted("runbook"):
        return
    rows = {"": []}
    for line in (ROOT / "docs/RUNBOOK.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rows[section := line[3:].lower().replace(" ", "-")] = []
        elif line.startswith("| `"):
            rows[section] += re.findall(r"`([^`]+)`", line.split(" | ")[0])
    rules = (ROOT / "packaging/monitoring/rules.yaml").read_text(encoding="utf-8")
    alerts = dict(re.findall(r"- alert: (\w+)(?:(?!- alert:).)*?runbook_url: docs/RUNBOOK\.md#(\S+)", rules, flags=re.S))
    named = set(re.findall(r"- alert: (\w+)", rules))
    report("every alert has a runbook_url", f"missing: {sorted(named - set(alerts))}" if named - set(alerts) else None)
    missing = [f"{name} is not in #{section}" for name, section in alerts.items() if name not in rows.get(section, ())]
    report("docs/RUNBOOK.md: every alert is where it points to", "\n".join(missing) or None)
    literals = literals_of_sources()
    for text in (it for texts in rows.values() for it in texts if it not in named):
        report(f"docs/RUNBOOK.md: {text}", None if is_message(text, literals) else "neither an alert nor a message of the program")


# ---- nginx: what replaces its directives, what is described ----

def check_replacements():
    if not wanted("replacements"):
        return
    with tempfile.TemporaryDirectory() as folder, redis_home.Home(folder, BUILD) as redis:
        told = nginx_home.check_replacements(ROOT / "docs/MIGRATING.md", redis)
    for name, problem in told:
        report(name, problem)
    report("docs/MIGRATING.md has tables of replacements", None if len(told) > 20 else f"{len(told)} cells")


def check_module():
    """Every directive, variable and option of the nginx module is described, and nothing else."""
    if not wanted("module"):
        return
    sources = {name: (ROOT / f"modules/nginx/{name}.c").read_text(encoding="utf-8")
               for name in ("module", "fields", "conf_limit", "conf_store", "overload")}
    directives = set(re.findall(r'ngx_string\("(weir_\w+)"\)', sources["module"]))
    variables = {f"${name}" for name in re.findall(r'ngx_string\("(weir_\w+)"\)', sources["fields"])}
    options = {word for name in ("conf_limit", "conf_store", "overload")
               for word in re.findall(r'"([a-z_]+=)"', sources[name])}
    for page in ("docs/NGINX.md", "docs/man/weir-nginx.7.scd"):
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\_", "_")
        missing = sorted(word for word in directives | variables | options
                         if not re.search(rf"(?<![\w$]){re.escape(word)}" + ("" if word.endswith("=") else r"(?!\w)"), text))
        unknown = set(re.findall(r"(?<![\w$])weir_[a-z]+(?:_[a-z]+)*(?=[ ;`])", text)) - directives - {"weir_redis"}
        report(f"{page} describes the module's directives, variables and options",
               f"missing: {missing}, unknown: {sorted(unknown)}" if missing or unknown else None)


def main():
    for check in (check_pages, check_links, check_lengths, check_chinese, check_man, check_commands, check_words, check_runbook, check_replacements, check_module):
        check()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
