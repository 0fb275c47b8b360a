#!/usr/bin/env python3
"""The Node binding as a package: packed, installed from that by npm, compiled from the sources in it; its types and its version."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lib import bindings, build, checks, node_binding

TSC = ["--strict", "--noEmit", "--target", "es2022", "--module", "node16", "--moduleResolution", "node16", "--types", "node",
       "--esModuleInterop", "--noUncheckedIndexedAccess"]


def run(command, cwd, **more):
    done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-3000:]}", flush=True)
    return done


def compiled_with():
    """With --long the sources of the package are compiled; otherwise this build's library is linked, which is quicker."""
    return {} if "--long" in sys.argv else {"WEIR_LIBRARY": str(build.BUILD / "libweir.a")}


def test_install(check):
    """As users have it: a package without the repository around it."""
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder:
        home = pathlib.Path(folder)
        tree = home / "tree"
        for name in ("bindings/node", "src", "include", "lua", "tools"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            if name == "bindings/node":
                node_binding.copy(tree / name)
            else:
                (tree / name).symlink_to(build.ROOT / name)
        shutil.copy(build.ROOT / "LICENSE", tree)
        packed = run(["npm", "pack", "--silent", "--offline"], tree / "bindings/node")
        if not check.equal(packed.returncode, 0, "npm pack"):
            return
        archive = tree / "bindings/node" / packed.stdout.split()[-1]
        user = home / "user"
        user.mkdir()
        (user / "package.json").write_text("{}", encoding="ascii")
        shutil.move(archive, user / "weir.tgz")
        shutil.rmtree(tree)
        done = run(["npm", "install", "--offline", "--no-audit", "--no-fund", "./weir.tgz"], user, **compiled_with())
        check.equal(done.returncode, 0, "npm install, without the network")
        have = {path.relative_to(user / "node_modules/weir/library").as_posix() for path in (user / "node_modules/weir/library").rglob("*")}
        needed = {path.relative_to(build.ROOT).as_posix() for path in bindings.library_files() if path.suffix in (".c", ".h")}
        check.equal(needed - have, set(), "the package has all sources of the library")
        check("made/remote/lua_scripts.h" in have, "and the one that is made")
        said = run(["node", "-p", 'new (require("weir").Store)("memory:1m").take("a", "token-bucket 2/s").remaining'], user)
        check.equal(said.stdout, "1\n", "it works")
        check.equal(sorted(path.name for path in (user / "node_modules/weir/build").iterdir()), ["weir.node"], "nothing else is left of the build")


def test_types(check):
    with tempfile.TemporaryDirectory(prefix="weir-node-") as folder:
        home = pathlib.Path(folder)
        modules = home / "node_modules"
        modules.mkdir()
        for path in node_binding.packages().iterdir():
            (modules / path.name).symlink_to(path)
        (modules / "weir").symlink_to(node_binding.SOURCE)
        shutil.copy(node_binding.SCRIPTS / "types.ts", home)
        (home / "package.json").write_text("{}", encoding="ascii")
        for types in sorted(node_binding.SOURCE.glob("*.d.ts")):
            check(types.read_text(encoding="utf-8").strip(), f"{types.name} is there")
        skipped = "false" if "--long" in sys.argv else "true"  # the declarations themselves, and those of Node and of the frameworks
        done = run(["node", modules / "typescript/bin/tsc", *TSC, "--skipLibCheck", skipped, "--preserveSymlinks", "types.ts"], home)
        check.equal(done.returncode, 0, "tsc --strict")
    text = (node_binding.SOURCE / "index.d.ts").read_text(encoding="utf-8")
    header = (build.ROOT / "include/weir.h").read_text(encoding="utf-8")
    codes = re.findall(r"X\((E[A-Z]+), \d+,", header)
    check.equal(re.findall(r"readonly (E[A-Z]+): ErrorClass", text), [*codes, "EOVERLOAD", "EDENIED"], "the types have a class for each code")


def test_version(check):
    """npm wants it in package.json; everybody else reads the header."""
    header = subprocess.run([build.ROOT / "tools/version.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    check.equal(json.loads((node_binding.SOURCE / "package.json").read_text(encoding="utf-8"))["version"], header, "the package's version")


if __name__ == "__main__":
    sys.exit(checks.run([test_install, test_types, test_version], sys.argv[1:]))
