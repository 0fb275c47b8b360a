"""Where everything is. $WEIR_BUILD names another build folder than `build`, $WEIR another program than the one in it."""
import os
import pathlib
import sys

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD", ROOT / "build")).absolute()
WEIR = os.path.abspath(os.environ.get("WEIR", BUILD / "weir"))
REDIS_MODULE = BUILD / "weir_redis.so"
NGINX_MODULE = BUILD / "ngx_http_weir_module.so"
DRIVER = BUILD / "tests" / "store_driver"
TAILS = BUILD / "tests" / "tails.vec"  # what the model adds to the vectors that are kept


def vectors():
    """All files of golden vectors: those that are kept, and the tails."""
    if not TAILS.exists():
        sys.exit(f"{TAILS} is missing; make it with: ninja -C {BUILD} tests/tails.vec\n0 passed, 1 failed")
    return [*sorted((ROOT / "tests" / "vectors").glob("*.vec")), TAILS]
