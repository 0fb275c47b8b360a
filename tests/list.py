"""What tests/run.py runs. {build} is the build folder; words with * are globbed from the root."""
import collections

# seconds: when to give up; alone: not beside others, because it is about the clock or all cores.
Test = collections.namedtuple("Test", "name build command seconds alone", defaults=(300, False))

VECTORS = "tests/vectors/*.vec"


def vectors(build):
    """Every home of the library, held to the golden vectors."""
    return [
        Test(f"vectors: memory ({build})", build, f"{{build}}/tests/vectors {VECTORS}"),
        Test(f"vectors: shm ({build})", build, f"tests/vectors/shm.sh {{build}} {VECTORS}"),
        Test(f"vectors: file ({build})", build, f"tests/vectors/file.sh {{build}} {VECTORS}"),
    ]


def command_line(build):
    return [Test(f"command line: {name} ({build})", build, f"tests/e2e/cli_{name}.sh")
            for name in ("verbs", "errors", "replay", "explain", "desk")]


def model(build, rounds):
    return [
        Test("model: its own checks", build, "tests/model/check.sh"),
        Test(f"model: against the library ({build})", build,
             f"tests/model/differential.py --rounds {rounds}", 3600),
        Test("model: Guava's traces", build, "tests/guava/check.py"),
    ]


def library():
    return [Test(f"library: {name}", "release", f"tests/api/{name}.sh")
            for name in ("cxx", "symbols", "pkgconfig", "examples", "layers", "words")]


def documentation():
    return [Test("documentation", "release", "tests/docs/run.py")]


def tests(kind):
    if kind == "quick":
        return vectors("release") + command_line("release")
    if kind == "soak":
        return model("release", 200)
    return (vectors("release") + vectors("asan") + command_line("asan") + model("release", 2)
            + library() + documentation())
