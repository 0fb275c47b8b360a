"""The Node binding under test: compiled once against this build's library, with the packages of npm that its tests need.

    run = node_binding.run("vectors.js", words)       a script of tests/homes/bindings/node, which prints "N passed, N failed"
    node_binding.environment()                        where node finds weir and the packages

With a build that has AddressSanitizer the addon has it, too, and node runs with its library loaded first.
"""
import os
import pathlib
import shutil
import subprocess
import sys

from . import bindings, build

SOURCE = build.ROOT / "bindings" / "node"
SCRIPTS = build.ROOT / "tests" / "homes" / "bindings" / "node"
PACKAGES = """express@5.1.0 fastify@5.6.0 express-rate-limit@8.1.0 rate-limiter-flexible@8.0.1 ioredis@5.8.0 typescript@5.9.3 @types/node@20.19.0
    @types/express@5.0.3""".split()
ASAN = "-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1 -UNDEBUG"


def sources():
    return [path for path in sorted(SOURCE.rglob("*")) if path.is_file() and
            not {"build", "library", "node_modules"} & set(path.relative_to(SOURCE).parts)]


def copy(folder):
    """The package without what a build leaves in it."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("build", "library", "node_modules"))


def make(folder):
    package = folder / "node_modules" / "weir"
    package.parent.mkdir()
    copy(package)
    (package / "library").symlink_to(build.ROOT)  # where an unpacked package has its sources
    env = dict(os.environ, WEIR_LIBRARY=str(build.BUILD / "libweir.a"))
    if bindings.is_sanitized():
        env["CFLAGS"] = ASAN
    done = subprocess.run(["node", "build.js"], cwd=package, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode or "warning" in done.stdout:
        raise RuntimeError(f"node build.js: {done.stdout}")


def folder():
    return bindings.once("node", [*sources(), build.BUILD / "libweir.a"], make)


def packages():
    """The folder of the packages, installed once, outside the tree."""
    home = pathlib.Path(os.environ.get("WEIR_NPM") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weir-npm")
    place = home / "bindings"

    def install(made):
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(made), *PACKAGES]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            shutil.rmtree(made, ignore_errors=True)
            sys.exit(f"npm cannot install {' '.join(PACKAGES)} into {made}:\n{done.stdout}\n0 passed, 1 failed")

    return bindings.once_at(place, " ".join(PACKAGES), install) / "node_modules"


def environment(with_packages=False, **more):
    env = dict(os.environ, NODE_PATH=f"{folder() / 'node_modules'}{f':{packages()}' if with_packages else ''}", **more)
    if bindings.is_sanitized():
        libraries = [subprocess.run(["cc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
                     for name in ("libasan.so", "libubsan.so")]
        env["LD_PRELOAD"] = " ".join(libraries)
        env["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=0:exitcode=99"  # node itself does not free all it has
        env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    return env


def run(script, words=(), with_packages=False, options=(), **more):
    """One script, to its end."""
    command = ["node", *options, str(SCRIPTS / script), *map(str, words)]
    return subprocess.run(command, env=environment(with_packages, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=600)


def counted(check, script, *words, **options):
    """Its checks are ours."""
    done = run(script, words, **options)
    passed, failed = bindings.counted(done)
    check.passed += passed
    check.failed += failed
    if failed or done.returncode:
        print(f"FAIL {script} {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-4000:]}", flush=True)
    return done
