#!/usr/bin/env python3
"""The Python package as users get it: pip builds and installs it without a network, also from its sdist; mypy accepts it and a
program that uses it, and refuses a wrong one."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, build, checks  # noqa: E402

USES = """
import asyncio
import datetime
from typing import Callable, Dict, List, Optional, Tuple
import weir
import weir.asgi
import weir.limits
import weir.wsgi

store: weir.Store = weir.Store("memory:1m")
d: weir.Decision = store.take("k", "fixed-window 5/h", 2, wait=datetime.timedelta(seconds=1), detail=True)
left: int = d.remaining
retry: Optional[datetime.timedelta] = d.retry_after
fields: List[Tuple[str, str]] = d.fields()
many: List[weir.Decision] = store.take_many([("a", weir.Limit("fixed-window 1/s")), (b"b", "fixed-window 1/s", 2)])
try:
    with store.slot("k", "concurrent 1", max_wait=1.5) as slot:
        lost: bool = slot.lost
except weir.Denied as denied:
    print(denied.decision.retry_after_us)
except (weir.EINVAL, weir.ENOLEASE) as error:
    print(error.code, error.column)

async def main() -> weir.Decision:
    async with store.slot("k", "concurrent 1"):
        return await store.wait_async("k", "token-bucket 1/s")

@weir.limited(store, "fixed-window 5/h", key=lambda name: f"mail:{name}")
def send(name: str) -> int:
    return len(name)

def told(request: weir.wsgi.Request, decision: weir.Decision) -> Optional[Dict[str, str]]:
    print(request.key, request.rule.name)
    return {"ip": request.ip} if decision.remaining else None

async def told_later(request: weir.asgi.Request, decision: weir.Decision) -> None:
    print(request.path)

def plain(environ: Dict[str, str], start_response: Callable[..., object]) -> List[bytes]:
    return []

async def later(scope: weir.asgi.Scope, receive: weir.asgi.Receive, send: weir.asgi.Send) -> None:
    pass

guards = weir.wsgi.RateLimit(plain, store, "fixed-window 5/h", on_denied=told), weir.asgi.RateLimit(later, store, "fixed-window 5/h", on_denied=told_later,
                                                                                                   trusted_hops="server")
number: int = send("ann")
asyncio.run(main())
"""
WRONG = """
import weir
store = weir.Store(5)
d = store.take(5, "fixed-window 5/h")
d.remaining = 3
text: str = store.take("k", "fixed-window 5/h", cots=1).remaining
"""


def run(*words, **named):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **named)


def offline(**more):
    """No network, and a compiler that is quick about it."""
    return dict(os.environ, CFLAGS="-O0", PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONDONTWRITEBYTECODE="1", **more)


def test_pip(check):
    """The sdist holds all that the build needs; pip makes a wheel of it, which has a tag for every Python from 3.9 on."""
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        done = run(bindings.PYTHON, "-B", bindings.PYTHON_SOURCE / "build_backend.py", "sdist", here)
        check.equal(done.returncode, 0, f"sdist: {done.stdout}")
        source = next(here.glob("*.tar.gz"))
        with tarfile.open(source) as tar:
            names = [name.partition("/")[2] for name in tar.getnames()]
        for name in ("PKG-INFO", "pyproject.toml", "library/include/weir.h", "library/LICENSE", "src/module.c", "weir/py.typed", "weir/_weir.pyi"):
            check(name in names, f"the sdist has {name}")
        check(not [name for name in names if "server" in name or "tests" in name or name.endswith((".o", ".pyc"))], "and nothing else")
        done = run(bindings.PYTHON, "-m", "pip", "install", "--no-deps", "--target", here / "site", source, env=offline(), cwd=here)
        check(done.returncode == 0, f"pip install: {done.stdout[-3000:]}")
        done = run(bindings.PYTHON, "-c", "import weir; print(weir.__version__, weir.Store('memory:64k').take('k', 'fixed-window 5/h').remaining)",
                   env=dict(os.environ, PYTHONPATH=str(here / "site")), cwd=here)
        check.equal(done.stdout, f"{version()} 4\n", "it works")


def version():
    return run(build.ROOT / "tools" / "version.sh").stdout.strip()


def test_wheel(check):
    """The wheel that tests use: its tag, its record, and no symbol but the module's own."""
    env = bindings.python()
    folder = pathlib.Path(env["PYTHONPATH"]).parent
    wheel = next(folder.glob("*.whl"))
    check(wheel.name.startswith(f"weir-{version()}-cp39-abi3-linux_"), wheel.name)
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        record = packed.read(f"weir-{version()}.dist-info/RECORD").decode()
    check(sorted(line.partition(",")[0] for line in record.split("\n") if line) == sorted(names), "the record names every file")
    check.equal(len([name for name in names if name.endswith(".so")]), 1, "one extension")
    symbols = run("nm", "-D", "--defined-only", folder / "site" / "weir" / "_weir.abi3.so").stdout
    check.equal([line.split()[-1] for line in symbols.split("\n") if " T " in line], ["PyInit__weir"], "symbols")
    missing = run("nm", "-D", "--undefined-only", folder / "site" / "weir" / "_weir.abi3.so").stdout
    check("_Py_Dealloc" in missing and "PyType_FromSpec" in missing, "Python's names are left open")
    done = run(bindings.PYTHON, "-c", "import doctest, weir, inspect; print([n for n in weir.__all__ if not (getattr(weir, n).__doc__ or '').strip()])", env=env)
    check.equal(done.stdout, "[]\n", "everything has a docstring")


def test_environment(check):
    """The recipe of README.md: an environment in the clone, with Debian's Flask and gunicorn, and the package for `python -m gunicorn`."""
    wheel = next(pathlib.Path(bindings.python()["PYTHONPATH"]).parent.glob("*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        python = pathlib.Path(folder, "env/bin/python")
        done = run(bindings.PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", pathlib.Path(folder, "env"))
        check.equal(done.returncode, 0, f"venv: {done.stdout}")
        done = run(bindings.PYTHON, "-m", "pip", "--python", python, "install", "--no-deps", wheel, env=offline())
        check.equal(done.returncode, 0, f"pip: {done.stdout}")
        done = run(python, "-c", "import flask, weir.wsgi; print(weir.__file__)", cwd=folder)
        check(done.stdout.startswith(folder), f"the package is the environment's: {done.stdout}")
        done = run(python, "-m", "gunicorn", "--version", cwd=folder)
        check.equal(done.returncode, 0, f"gunicorn: {done.stdout}")
    check("/env/" in (build.ROOT / ".gitignore").read_text(encoding="ascii").split(), "git ignores it")


def test_types(check):
    site = bindings.python()["PYTHONPATH"]
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "uses.py").write_text(USES, encoding="utf-8")
        (here / "wrong.py").write_text(WRONG, encoding="utf-8")
        env = dict(os.environ, MYPYPATH=site, MYPY_CACHE_DIR=str(here / "cache"))
        done = run("/usr/bin/mypy", "--strict", site + "/weir", "uses.py", env=env, cwd=here)
        check(done.returncode == 0, f"mypy --strict: {done.stdout}")
        done = run("/usr/bin/mypy", "--strict", "wrong.py", env=env, cwd=here)
        for line in (3, 4, 5, 6):
            check.contains(done.stdout, f"wrong.py:{line}: error", "mypy finds it")
        if "--long" not in sys.argv:
            return
        done = run("/usr/bin/python3", "-m", "mypy.stubtest", "weir._weir", "--ignore-missing-stub", env=dict(env, PYTHONPATH=site), cwd=here)
        check(done.returncode == 0, f"the stubs are those of the extension: {done.stdout}")


def test_other_versions(check):
    """Long: the same wheel with every other Python that is installed."""
    versions = [shutil.which(f"python3.{minor}") for minor in range(9, 20)] if "--long" in sys.argv else []
    for other in filter(None, versions):
        if run(other, "-c", "import ssl").returncode:
            continue
        for test in ("python_vectors", "python_verbs"):
            done = run(sys.executable, "-B", build.ROOT / "tests/homes/bindings" / f"{test}.py", env=dict(os.environ, WEIR_PYTHON=other))
            check(bindings.counted(done)[1] == 0, f"{other}, {test}: {done.stdout[-2000:]}")


def test_other_targets(check):
    """Long: wheels for other processors. With 64 bits and little-endian numbers, Python's pyconfig.h may be this machine's."""
    name = pathlib.Path(run("/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))").stdout.strip()).name
    ours = f"/usr/include/{os.uname().machine}-linux-gnu/{name}/pyconfig.h"
    for target, compiler in (("aarch64", "aarch64-linux-gnu-gcc"), ("riscv64", "riscv64-linux-gnu-gcc")) if "--long" in sys.argv else ():
        with tempfile.TemporaryDirectory() as folder:
            here = pathlib.Path(folder)
            (here / f"{target}-linux-gnu" / name).mkdir(parents=True)
            (here / f"{target}-linux-gnu" / name / "pyconfig.h").write_text(f'#include "{ours}"\n', encoding="utf-8")
            env = dict(os.environ, CC=compiler, CFLAGS=f"-I{here}", _PYTHON_HOST_PLATFORM=f"linux-{target}")
            done = run("/usr/bin/python3", "-B", build.ROOT / "bindings/python/build_backend.py", "wheel", here / "out", env=env)
            made = list((here / "out").glob(f"weir-*-cp39-abi3-linux_{target}.whl"))
            check(done.returncode == 0 and made, f"a wheel for {target}: {done.stdout[-2000:]}")
            if made:
                (here / "_weir.so").write_bytes(zipfile.ZipFile(made[0]).read("weir/_weir.abi3.so"))
                kind = run(compiler.replace("gcc", "readelf"), "-h", here / "_weir.so").stdout.lower()
                check(target.replace("64", "") in kind.replace("risc-v", "riscv"), f"it is for {target}: {kind}")


def test_make_wheel(check):
    """Long: make wheel."""
    if "--long" in sys.argv:
        done = run("make", "-C", build.ROOT, "wheel")
        check(done.returncode == 0 and list((build.ROOT / "build/wheel").glob("weir-*.whl")), f"make wheel: {done.stdout[-2000:]}")


TESTS = [test_wheel, test_environment, test_types, test_pip, test_other_versions, test_other_targets, test_make_wheel]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
