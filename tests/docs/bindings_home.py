"""Blocks of pages about bindings: `python local`, `js local`, `lua local` and `sh local`.

They run without a server (`js redis local`: with a redis-server), in the page's folder, where the language finds the binding as this build has made it, and the
loader finds libweir.so.0. With file=NAME a block is only written to that file of the page, for the blocks behind it.
Zones in shared memory that a page calls /readme… get names of their own, and go at the end. What a page calls port 8000 is a
free one, and `python -m gunicorn` of a shell block is Debian's.
A binding adds its line to ENVIRONMENTS: what it adds to the environment.

Lua runs in a real nginx (lua_nginx.py), where `weir` is resty.weir; with dicts=NAME there is such a lua_shared_dict. With
`http` a block is the text of http {}, whose server the page calls port 8080: it prints the status codes of 30 requests to /,
each once.
"""
import atexit
import os
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

GUNICORN = 'python() { exec /usr/bin/python3 "$@" --log-level critical; }\n'
RUNNERS = {"python": (["/usr/bin/python3", "-B"], "py"), "js": (["node"], "mjs"), "sh": (["sh"], "sh")}


def python_environment(page):
    from lib import bindings
    return {"PYTHONPATH": bindings.python()["PYTHONPATH"]}


def node_modules(scratch):
    """Modules are looked for beside the page, not by an environment: weir, and the packages that its manual uses."""
    from lib import node_binding
    folder = scratch.path / "node_modules"
    if folder.is_dir() and not folder.is_symlink():
        return
    clients = list(folder.resolve().iterdir()) if folder.is_symlink() else []  # redis_home has been here
    folder.unlink(missing_ok=True)
    folder.mkdir()
    found = [*clients, *node_binding.packages().iterdir(), node_binding.folder() / "node_modules" / "weir"]
    for name, path in {path.name: path for path in found}.items():
        (folder / name).symlink_to(path)


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


def run_lua(block, text):
    from lib import lua_nginx
    dicts = "".join(f"lua_shared_dict {flag[6:]} 1m;" for flag in block.flags if flag.startswith("dicts="))
    try:
        if "http" in block.flags:
            with lua_nginx.Nginx(text.replace("8080", "127.0.0.1:{port2}")) as nginx:
                codes = [nginx.get("/", port="port2").status for _ in range(30)]
                return types.SimpleNamespace(returncode=0, stdout="".join(f"{code}\n" for code in dict.fromkeys(codes)))
        with lua_nginx.Nginx(dicts) as nginx:
            return types.SimpleNamespace(returncode=0, stdout=nginx.say(text))
    except (lua_nginx.LuaError, lua_nginx.nginx_server.WrongEnd) as error:
        return types.SimpleNamespace(returncode=1, stdout=str(error))


def run(scratch, block, build, text):
    """The run of a block; None: it was a file."""
    if block.kind == "lua":
        return run_lua(block, text.replace("/readme", ZONES))
    name = next((flag[5:] for flag in block.flags if flag.startswith("file=")), None)
    runner, ending = RUNNERS[block.kind]
    if block.kind == "js":
        node_modules(scratch)
    path = scratch.path / (name or f"block{block.line}.{ending}")
    text = text.replace("/readme", ZONES)
    if block.kind == "sh" and "gunicorn" in text:
        from lib import ports
        port = ports.take()
        text = GUNICORN + text.replace(":8000", f":{port}")
    path.write_text(text, encoding="utf-8")
    return None if name else scratch.run([*runner, path.name], environment(block.page, scratch.env, build))
