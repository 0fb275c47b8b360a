"""What tests/run.py runs. {build} is the build folder; words with * are globbed from the root."""
import collections

Test = collections.namedtuple("Test", "name build command seconds alone", defaults=(300, False))

VECTORS = "tests/vectors/*.vec"


def quick(build):
    """The tests that take a moment, in any build."""
    return [
        Test(f"vectors, memory ({build})", build, f"{{build}}/tests/vectors {VECTORS}"),
    ]


def tests(kind):
    if kind == "quick":
        return quick("release")
    return quick("release") + quick("asan")
