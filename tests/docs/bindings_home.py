"""Blocks of pages about bindings: `python local`, `js local`, `lua local` and `sh local`.

They run without a server (`js redis local`: with a redis-server), in the page's folder, where the language finds the binding as this build has made it, and the
loader finds libweir.so.0. With file=NAME a block is only written to that file of the page, for the blocks behind it.
Zones in shared memory that a page calls /readme… get names of their own, and go at the end.
A binding adds its line to ENVIRONMENTS: what it adds to the environment.
"""
import atexit
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

RUNNERS = {"python": (["/usr/bin/python3", "-B"], "py"), "js": (["node"], "mjs"), "lua": (["luajit"], "lua"), "sh": (["sh"], "sh")}


def python_environment(page):
    from lib import bindings
    return {"PYTHONPATH": bindings.python()["PYTHONPATH"]}


def node_modules(scratch):
    """Modules are looked for beside the page, not by an environment: weir, and the packages that its manual uses."""
    from lib import node_binding
    folder = scratch.path / "node_modules"
    if folder.exists():
        return
    folder.mkdir()
    for path in [*node_binding.packages().iterdir(), node_binding.folder() / "node_modules" / "weir"]:
        (folder / path.name).symlink_to(path)


ENVIRONMENTS = [python_environment]  # functions: the page's path to {name: value}


ZONES = f"/weir-docs-{os.getpid()}-"


def remove_zones():
    for path in pathlib.Path("/dev/shm").glob(ZONES[1:] + "*"):
        path.unlink()


atexit.register(remove_zones)


def environment(page, env, build):
    added = {"LD_LIBRARY_PATH": str(build), "PYTHONDONTWRITEBYTECODE": "1"}
    for one in ENVIRONMENTS:
        added.update(one(page))
    return dict(env, **added)


def run(scratch, block, build, text):
    """The run of a block; None: it was a file."""
    name = next((flag[5:] for flag in block.flags if flag.startswith("file=")), None)
    runner, ending = RUNNERS[block.kind]
    if block.kind == "js":
        node_modules(scratch)
    path = scratch.path / (name or f"block{block.line}.{ending}")
    path.write_text(text.replace("/readme", ZONES), encoding="utf-8")
    return None if name else scratch.run([*runner, path.name], environment(block.page, scratch.env, build))
