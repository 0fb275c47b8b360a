"""Builds the package: a backend as PEP 517 describes it, which needs only Python and a C compiler. So pip downloads nothing.

    pip install ./bindings/python          from the repository
    python3 build_backend.py wheel DIR     the wheel alone; `sdist DIR` the source

The library is compiled in: its files are in the repository, or in the folder `library` of an sdist. $CC, $CFLAGS and $LDFLAGS
are heeded; $WEIR_LIBRARY names a libweir.a that is linked instead of compiling the library again. The extension has the limited API of Python 3.9: one wheel serves every later version.
"""
import base64
import concurrent.futures
import hashlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = HERE / "library" if (HERE / "library").is_dir() else HERE.parent.parent
TAG = "cp39-abi3"
FLAGS = ["-std=gnu11", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))  # 1980: the same source makes the same bytes
SUMMARY = "Rate limits that are exact across processes, with or without Redis"

sys.path.insert(0, str(LIBRARY / "tools"))
sys.dont_write_bytecode = True
import library  # noqa: E402


def version():
    header = (LIBRARY / "include" / "weir.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define WEIR_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def platform():
    return re.sub(r"[^a-z0-9_]", "_", sysconfig.get_platform().lower())


def metadata():
    return (f"Metadata-Version: 2.1\nName: weir\nVersion: {version()}\nSummary: {SUMMARY}\nLicense: BSD-2-Clause\n"
            "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n"
            + (HERE / "README.md").read_text(encoding="utf-8"))


# ---- compiling ----

def run(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)}\n{done.stdout}")


def compile_extension(folder):
    """folder/_weir.abi3.so"""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if "WEIR_LIBRARY" not in os.environ:
        library.header(folder)
    include = [f"-I{LIBRARY / 'include'}", f"-I{LIBRARY / 'src'}", f"-I{folder}", f"-I{sysconfig.get_path('include')}"]
    flags = [*FLAGS, *library.flags(compiler), *shlex.split(os.environ.get("CFLAGS", ""))]
    made_library = os.environ.get("WEIR_LIBRARY")
    sources = sorted((HERE / "src").glob("*.c")) + ([] if made_library else [LIBRARY / name for name in library.sources()])
    objects = [folder / f"{i}.o" for i in range(len(sources))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda pair: run([*compiler, *flags, *include, "-c", str(pair[0]), "-o", str(pair[1])]), zip(sources, objects)))
    made = folder / "_weir.abi3.so"
    run([*compiler, "-shared", "-pthread", f"-Wl,--version-script={HERE / 'src' / 'module.map'}", *map(str, objects),
         *([made_library] if made_library else []), "-o", str(made), *shlex.split(os.environ.get("LDFLAGS", "")), *library.LINK])
    return made


# ---- packing ----

class Wheel:
    def __init__(self, path):
        self.zip, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED), []

    def add(self, name, data, mode=0o644):
        item = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        item.compress_type, item.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
        self.zip.writestr(item, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info):
        self.record.append(f"{info}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)), "\n".join(self.record) + "\n")
        self.zip.close()


def package_files():
    return [path for path in sorted((HERE / "weir").rglob("*")) if path.suffix in (".py", ".pyi", ".typed")]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"weir-{version()}-{TAG}-{platform()}.whl"
    info = f"weir-{version()}.dist-info"
    with tempfile.TemporaryDirectory() as folder:
        extension = compile_extension(pathlib.Path(folder)).read_bytes()
    wheel = Wheel(pathlib.Path(wheel_directory) / name)
    for path in package_files():
        wheel.add(path.relative_to(HERE).as_posix(), path.read_bytes())
    wheel.add("weir/_weir.abi3.so", extension, 0o755)
    wheel.add(f"{info}/METADATA", metadata().encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\nTag: {TAG}-{platform()}\n".encode())
    wheel.add(f"{info}/licenses/LICENSE", (LIBRARY / "LICENSE").read_bytes())
    wheel.close(info)
    return name


def build_sdist(sdist_directory, config_settings=None):
    base = f"weir-{version()}"
    own = [HERE / "pyproject.toml", HERE / "build_backend.py", HERE / "README.md", HERE / "src" / "module.map",
           *sorted((HERE / "src").glob("*.[ch]")), *package_files()]
    named = [(path.relative_to(HERE).as_posix(), path.read_bytes()) for path in own]
    named += [(f"library/{name}", (LIBRARY / name).read_bytes()) for name in library.files()]
    named.append(("PKG-INFO", metadata().encode()))
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, data in named:
            item = tarfile.TarInfo(f"{base}/{name}")
            item.size, item.mtime, item.mode = len(data), EPOCH, 0o644
            tar.addfile(item, io.BytesIO(data))
    return f"{base}.tar.gz"


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("wheel", "sdist"):
        raise SystemExit(__doc__)
    pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    print((build_wheel if sys.argv[1] == "wheel" else build_sdist)(sys.argv[2]))
