#!/usr/bin/env python3
"""The page about building for another nginx, step by step: its commands, on a tree as an operator unpacks it (made of
the headers of nginx-dev), and the module that comes of it in a real nginx. A wrong -Dnginx_source is an error.

    building.py [--source FOLDER]    a tree of nginx's sources instead, for an nginx that $NGINX_BINARY names
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lib import checks, nginx_server
from lib.build import ROOT
from lib.nginx_server import Nginx

DEBIAN = pathlib.Path("/usr/share/nginx/src")
HEADING = "### For another nginx"


def steps():
    """The shell blocks of the page's section: (nginx's own build, meson)."""
    page = (ROOT / "docs/NGINX.md").read_text(encoding="utf-8")
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    return re.findall(r"```sh by=[^\n]*\n(.*?)```", section, re.S)


def run_steps(text, folder, source, built="build"):
    """Runs a block where the page has it: $WEIR is this repository, nginx-1.28.0 the unpacked sources."""
    env = dict(os.environ, WEIR=str(ROOT), MAKEFLAGS="-j2", CC=f"{'ccache ' if shutil.which('ccache') else ''}cc",
               CCACHE_NOHASHDIR="1")
    text = text.replace("nginx-1.28.0", source.name).replace("build-1.28.0", str(folder / built))
    return subprocess.run(["sh", "-euc", text], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)


def unpacked(folder, configured=False):
    """A tree of sources under `folder`: the one given (with what it was configured for), or that of nginx-dev without what Debian put beside it."""
    if "--source" in sys.argv:
        given = pathlib.Path(sys.argv[sys.argv.index("--source") + 1]).resolve()
        tree = folder / given.name
        shutil.copytree(given, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", *(() if configured else ("objs",))))
        if not (tree / "configure").exists():  # a checkout of the repository
            shutil.copy(tree / "auto/configure", tree)
        return tree
    tree = folder / "nginx-1.22.1"
    for name in ("auto", "src"):
        shutil.copytree(DEBIAN / name, tree / name)
    shutil.copy(DEBIAN / "configure", tree)
    return tree


def limits(check, module, what):
    """The module works."""
    before, nginx_server.NGINX_MODULE = nginx_server.NGINX_MODULE, module
    try:
        with Nginx("weir_zone z 1m;", 'location / { empty_gif; weir_limit key=k zone=z "fixed-window 2/100d"; }') as nginx:
            check.equal(nginx.statuses(["/"] * 3), [200, 200, 429], f"{what}: in nginx")
    finally:
        nginx_server.NGINX_MODULE = before


def test_nginx_build(check):
    with tempfile.TemporaryDirectory(prefix="weir-building-") as folder:
        folder = pathlib.Path(folder)
        source = unpacked(folder)
        quick = steps()[0] if "--source" in sys.argv else steps()[0].replace("./configure", "./configure --with-cc-opt='-O0 -g0'")
        done = run_steps(quick, folder, source)
        module = source / "objs/ngx_http_weir_module.so"
        if not check(done.returncode == 0 and module.exists(), f"nginx's build: {done.stdout[-3000:]}"):
            return
        shown = subprocess.run(["nm", "-D", "--defined-only", module], stdout=subprocess.PIPE, text=True, check=True).stdout
        check.equal(sorted(line.split()[2] for line in shown.splitlines()),
                    ["ngx_http_weir_module", "ngx_module_names", "ngx_module_order", "ngx_modules"], "nginx's build: exported")
        limits(check, module, "nginx's build")


def test_meson(check):
    """Configured for other sources; a folder without any is an error that says so."""
    with tempfile.TemporaryDirectory(prefix="weir-building-") as folder:
        folder = pathlib.Path(folder)
        whole = "--source" in sys.argv
        lines = steps()[1].splitlines()
        text = "\n".join(line for line in lines if whole or line.startswith(("cd", "meson")))
        source = unpacked(folder, configured=True)
        done = run_steps(text.replace("/usr/src/", f"{folder}/"), folder, source)
        check.equal(done.returncode, 0, f"meson: {done.stdout[-2000:]}")
        if whole and done.returncode == 0:
            limits(check, folder / "build/ngx_http_weir_module.so", "meson")
        done = run_steps(text.replace("/usr/src/", f"{folder}/missing/"), folder, source, "wrong")
        check(done.returncode != 0, "meson: a wrong folder is an error")
        check.contains(done.stdout, f'no sources of nginx in "{folder}/missing/', "meson: it says which")


TESTS = [test_nginx_build, test_meson]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, [word for i, word in enumerate(sys.argv[1:], 1)
                                      if word != "--source" and sys.argv[i - 1] != "--source"]))
