"""What tests/run.py runs. {build} is the build folder; words with * are globbed from the root."""
import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent

# seconds: when to give up; alone: not beside others, because it is about the clock or all cores; load: how many cores it
# keeps busy on average (run.py prints time and work), so that those that mostly wait run side by side.
Test = collections.namedtuple("Test", "name build command seconds alone load", defaults=(3600, False, 1.0))

# What tests need that are no programs of the build, by the first word of their name; others need everything.
NEEDS = {
    "vectors": ["tests/vectors", "tests/tails.vec"],
    "command line": ["weir", "tests/hold_zone"],
    "model": ["weir", "tests/vectors", "tests/tails.vec"],
    "fuzz": ["weir"],
    "desk": ["weir", "tests/desk_read", "ngx_http_weir_module.so"],
    "redis": ["weir", "weir_redis.so", "tests/cancel", "tests/store_driver", "tests/calendar_days", "tests/vectors", "tests/tails.vec",
              "lua/weir.lua"],
    "server": ["weir", "weir_redis.so", "tests/hold_zone", "tests/tails.vec"],
    "nginx": ["weir", "ngx_http_weir_module.so", "weir_redis.so", "tests/tails.vec"],
    "dashboard": ["weir"],
    "bindings": ["weir", "libraries", "weir_redis.so", "tests/tails.vec"],
    "slices": ["weir", "weir_redis.so", "tests/slices_plans", "tests/slices_volume", "tests/slices_worker"],
    "coverage": [],  # it compiles what it counts
}

# How many cores a test keeps busy on average, as run.py printed it (work by time), where that is much less than one, or more.
LOADS = {
    "server: http_access": 0.1, "server: seeing": 0.1, "server: spelling": 0.1, "server: http_decisions": 0.1, "server: http_connections": 0.1,
    "server: life": 0.1, "server: h2_basics": 0.2, "server: abuse_slow": 0.2, "server: h2_abuse": 0.2,
    "server: reload": 0.4, "server: tls_serve": 0.4, "server: recipes": 0.3, "server: grpc_service": 0.4,
    "server: abuse_flood": 2.0, "server: abuse_connections": 0.4, "server: operation_stop": 0.1,
    "command line: run": 0.3, "command line: pipe": 0.3, "server: cli_shared": 0.3, "server: operation_log": 0.2, "server: monitoring": 0.4,
    "nginx: rate": 0.1, "nginx: twins": 0.1, "nginx: shaping": 0.1, "nginx: conns": 0.1, "nginx: fleet": 0.3,
    "nginx: faults": 0.4, "nginx: overload": 0.3, "nginx: edges": 0.2, "nginx: limits": 0.3, "nginx: slices": 0.4,
    "bindings: node_waits": 0.3, "bindings: node_cluster": 2.0,
    "bindings: lua_exact": 2.0, "bindings: lua_limit": 0.3,
    "bindings: python_slots": 0.2, "bindings: python_web": 0.4, "bindings: python_denials": 0.5, "bindings: python_workers": 1.5,
    "redis: store_cluster": 0.2, "redis: store_faults": 0.2, "redis: store_sentinel": 0.2, "redis: store_tls": 0.4, "redis: store_slices": 0.2,
    "redis: store_waits": 0.1, "redis: store_slots": 0.1, "redis: lua_function": 0.1, "server: redis_store": 0.1, "server: redis_outages": 0.2, "server: zone_held": 0.1,
    "server: grpc_envoy": 0.3, "server: under_way": 0.4, "desk: reading": 0.3, "fuzz: connections, 10 s": 0.3,
    "dashboard: in Chromium": 0.4, "documentation": 0.3, "library: how tests are run": 0.1,
}

LONG = ("documentation", "dashboard", "model: against", "nginx: rate", "nginx: twins", "nginx: faults", "nginx: fleet",
        "server: grpc_service", "server: abuse_connections", "redis: module under", "redis: store_", "deaths: at")


def load(name):
    """Of the test with this name, whatever its build."""
    return LOADS.get(name.partition(" (")[0], 1.0)


def names(pattern, without=()):
    """Every file is a test: what a folder holds, by name. tests/api/runner.py finds files that nobody runs."""
    return [path.stem for path in sorted(ROOT.glob(pattern)) if path.stem not in without]


VECTORS = "tests/vectors/*.vec {build}/tests/tails.vec"
UNITS = names("tests/unit/*.c", without=["clock"])
FUZZ = [name.removeprefix("fuzz_") for name in names("fuzz/fuzz_*.c")]
THREADS = "cancel threads threads_chaos threads_counts threads_groups threads_leases waits waits_cancel waits_served remote_link".split()


def programs(group, names, build):
    return [Test(f"{group}: {name} ({build})", build, f"{{build}}/tests/{name}") for name in names]


def raced(turns):
    """Threads under the thread sanitizer, which makes some of them very slow: those do fewer turns."""
    return [Test(f"threads: {name} (tsan)", "tsan", " ".join([f"{{build}}/tests/{name}", *turns.get(name, [])])) for name in THREADS]


def vectors(build):
    """Every home of the library, held to the golden vectors."""
    return [
        Test(f"vectors: memory ({build})", build, f"{{build}}/tests/vectors {VECTORS}"),
        Test(f"vectors: shm ({build})", build, f"tests/vectors/shm.sh {{build}} {VECTORS}"),
        Test(f"vectors: file ({build})", build, f"tests/vectors/file.sh {{build}} {VECTORS}"),
    ]


def histories(build, calls):
    """Every answer on hot keys explained by one order of all calls."""
    return [Test(f"histories: {calls} calls ({build})", build, f"{{build}}/tests/history {calls}", 3600)]


def shared(build):
    """Threads and processes together, killed and failed."""
    kills = {"release": 3000, "asan": 300}[build]
    return [
        *programs("threads", THREADS, build),
        *programs("processes", ("processes", "processes_open", "processes_limits", "lock_sections", "fork_memory", "stop"), build),
        *[Test(f"processes: waits, {home} ({build})", build, f"{{build}}/tests/waits_processes {home}")
          for home in ("shm", "file")],
        *histories(build, {"release": 200000, "asan": 50000}[build]),
        *[Test(f"deaths: at random, {home} ({build})", build, f"{{build}}/tests/kill {kills} random {home}")
          for home in ("shm", "file")],
        Test(f"deaths: while opening ({build})", build, "{build}/tests/kill_open"),
        Test(f"failures: every call once ({build})", build, "{build}/tests/fault"),
    ]


def clocks(build):
    return [
        Test(f"clock: fast beside real ({build})", build, "{build}/tests/clock", alone=True),
        Test(f"clock: threads held up ({build})", build, "{build}/tests/threads_clock", alone=True),
    ]


def command_line(build):
    return [Test(f"command line: {path.stem.removeprefix('cli_')} ({build})", build, f"tests/homes/cli/{path.name}")
            for path in sorted((ROOT / "tests/homes/cli").glob("cli_*")) if path.suffix in (".py", ".sh")]


def model(build, rounds):
    return [
        Test("model: its own checks", build, "tests/model/check.sh"),
        Test(f"model: against the library ({build})", build,
             f"tests/model/differential.py --rounds {rounds}", 3600),
        Test("model: Guava's traces", build, "tests/guava/check.py"),
    ]


def slices(plans, long=False):
    """Many processes, one limit: random plans in one clock, and what they gain."""
    return [Test(f"slices: {plans} plans", "release", f"tests/slices/check.py --plans {plans}"),
            Test("slices: volume", "release", "{build}/tests/slices_volume"),
            Test("slices: real processes", "release", "tests/slices/real.py" + (" --long" if long else ""))]


def fuzz(build):
    """What fuzzing has found, once more."""
    return [Test(f"fuzz corpus: {name} ({build})", build, f"{{build}}/fuzz/fuzz_{name} fuzz/corpus/{name}/*")
            for name in FUZZ]


def connections(seconds):
    """Whole connections of every protocol."""
    return [Test(f"fuzz: connections, {seconds} s", "asan", f"fuzz/connections/run.py --seconds {seconds}", seconds + 600)]


def homes(folder, names, build):
    return [Test(f"{folder}: {name} ({build})", build, f"tests/homes/{folder}/{name}.py") for name in names]


def redis(build):
    """Real servers: the scripts, the module, the store."""
    return homes("redis", names("tests/homes/redis/*.py", without=["module_asan"]), build)


def server(build):
    """Real clients against a real server."""
    if build == "asan":  # where memory is handled in other ways than the rest of them try
        return homes("server", """http_api http_wire http_pipelines http_decisions http_policies policies_everywhere http_around
            resp_commands reload grpc_service grpc_envoy cli_server h2_abuse h2_fuzz tls_serve abuse_bytes long_work settle_once
            turns under_way slices settle_changed refund spelling""".split(), build)
    return homes("server", names("tests/homes/server/*.py", without=["threads", "operation_deb_inside", "mounted_python"]), build)


SLOW_NGINX = "rate config vectors shaping".split()  # under sanitizers; they are for make soak


def nginx(build):
    """A real nginx with the module."""
    if build == "asan":
        apart = ["faults", "exact", "twins", "building", "valgrind", *SLOW_NGINX]
        return [*homes("nginx", names("tests/homes/nginx/*.py", without=apart), build),
                Test(f"nginx: faults ({build})", build, "tests/homes/nginx/faults.py --short")]
    return homes("nginx", names("tests/homes/nginx/*.py", without=["valgrind"]), build)


def desk(build):
    """Logs of real programs, read; hostile files under sanitizers; the two threads of replay under theirs."""
    chosen = {"asan": ["documented", "reading"], "tsan": ["threads"]}
    others = names("tests/homes/desk/*.py", without=sum(chosen.values(), []))
    return homes("desk", chosen.get(build, others), build)


def bindings(build):
    """Other languages, with the frameworks they are used in."""
    if build == "asan":
        return homes("bindings", ["node_arguments", "node_ends", "node_waits", "python_replaced", "python_slots", "python_verbs"], build)
    return homes("bindings", names("tests/homes/bindings/*.py"), build)


def browser():
    return [Test("dashboard: in Chromium", "release", "tests/homes/web/run.mjs", 3600)]


def library():
    return [Test(f"library: {name}", "release", f"tests/api/{name}.sh")
            for name in ("cxx", "symbols", "pkgconfig", "cmake", "version", "man", "examples", "layers", "words")] + \
        [Test("library: how tests are run", "release", "tests/api/runner.py"),
         Test("library: files that are mentioned", "release", "tests/api/mentions.py"),
         Test("library: steps of CONTRIBUTING", "release", "tests/api/steps.py")]


def coverage():
    return [Test("coverage: of core and limit", "release", "tools/coverage.sh")]


def documentation():
    return [Test("documentation", "release", "tests/docs/run.py")]


def tests(kind):
    """All of a kind: quick, test or soak; those that take longest begin first, so that none of them is left for the end."""
    return sorted((test._replace(load=load(test.name)) for test in listed(kind)), key=lambda test: not test.name.startswith(LONG))


def listed(kind):
    if kind == "quick":
        return vectors("release") + programs("unit", UNITS, "release") + command_line("release")
    if kind == "soak":
        return model("release", 200) + slices(50000, long=True) + connections(3600) + [
            *[Test(f"deaths: thousands, {home}", "release", f"{{build}}/tests/kill 20000 random {home}", 3600)
              for home in ("shm", "file")],
            Test("deaths: while opening", "release", "{build}/tests/kill_open 2000", 3600),
            Test("deaths: at every instruction", "release", "{build}/tests/kill_step all", 3600),
            *histories("release", 1000000), *raced({}), Test("server: threads, long (tsan)", "tsan", "tests/homes/server/threads.py --long"),
            Test("redis: module under sanitizers, long", "asan",
                 "tests/homes/redis/module_asan.py module_vectors.py module_commands.py state_damage.py module_fuzz.py"),
            Test("cancellations: thousands", "release", "{build}/tests/cancel 10000", 3600),
            Test("forks: hundreds", "release", "{build}/tests/fork_memory 500", 3600),
            Test("stops: a thousand", "release", "{build}/tests/stop 1000", 3600),
            Test("limits changed live", "release", "{build}/tests/zone_change 200000", 3600),
            *[Test(f"server: {name}, long", "release", f"tests/homes/server/{name}.py --long", 3600, True)
              for name in ("abuse_flood", "abuse_bytes", "abuse_connections", "operation_restart", "zone_kill")],
            Test("nginx: faults, long", "release", "tests/homes/nginx/faults.py --long", 3600, True),
            *[Test(f"nginx: {name} (asan)", "asan", f"tests/homes/nginx/{name}.py", 3600) for name in SLOW_NGINX],
            Test("nginx: under valgrind", "release", "tests/homes/nginx/valgrind.py", 3600, True),
            *[Test(f"bindings: {name}, long", "release", f"tests/homes/bindings/{name}.py --long", 3600)
              for name in ("node_memory", "node_package", "python_package", "lua_store", "lua_vectors")],
            *[Test(f"bindings: {name} (asan)", "asan", f"tests/homes/bindings/{name}.py", 3600) for name in ("lua_store", "lua_limit")],
            Test("bindings: python_verbs, ten million takes", "release", "tests/homes/bindings/python_verbs.py memory --long", 3600),
            Test("packages", "release", "tests/homes/server/operation_deb.sh", 3600, True),
            *[Test(f"redis: {name}, long", "release", f"tests/homes/redis/{name}.py --long", 3600)
              for name in ("store_cancel", "module_replica", "module_aof", "module_hammer", "module_fuzz", "state_damage",
                           "calendar_days")],
        ]
    return [
        Test("deaths: at every instruction", "release", "{build}/tests/kill_step"),
        *vectors("release"), *vectors("asan"), *programs("unit", UNITS, "release"), *programs("unit", UNITS, "asan"),
        *shared("release"), *shared("asan"), *raced({"threads": ["1", "5"], "threads_chaos": ["3000"], "threads_leases": ["300"]}), *programs("unit", ["desk_engine"], "tsan"),
        *histories("tsan", 30000),
        Test("histories: something is broken", "release", "{build}/tests/history_broken", 3600), *clocks("release"),
        *command_line("asan"), *model("release", 2), *slices(800), *fuzz("asan"), *connections(10), *redis("release"),
        Test("redis: module under sanitizers", "asan", "tests/homes/redis/module_asan.py"),
        *server("release"), *server("asan"), Test("server: threads (tsan)", "tsan", "tests/homes/server/threads.py"),
        *nginx("release"), *nginx("asan"), *desk("release"), *desk("asan"), *desk("tsan"), *bindings("release"), *bindings("asan"),
        *browser(),
        *coverage(), *library(), *documentation(),
    ]
