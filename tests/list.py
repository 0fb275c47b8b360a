"""What tests/run.py runs. {build} is the build folder; words with * are globbed from the root."""
import collections

# seconds: when to give up; alone: not beside others, because it is about the clock or all cores; load: how many cores it
# keeps busy on average (run.py prints time and work), so that those that mostly wait run side by side.
Test = collections.namedtuple("Test", "name build command seconds alone load", defaults=(900, False, 1.0))

# What tests need that are no programs of the build, by the first word of their name; others need everything.
NEEDS = {
    "vectors": ["tests/vectors"],
    "command line": ["weir"],
    "model": ["weir", "tests/vectors"],
    "fuzz": ["weir"],
    "redis": ["weir", "weir_redis.so", "tests/store_driver", "tests/vectors", "lua/weir.lua"],
    "server": ["weir", "weir_redis.so"],
    "nginx": ["weir", "ngx_http_weir_module.so", "weir_redis.so"],
    "dashboard": ["weir"],
    "coverage": [],  # it compiles what it counts
}

# How many cores a test keeps busy on average, as run.py told (work by time), where that is much less than one, or more.
LOADS = {
    "server: http_access": 0.1, "server: seeing": 0.1, "server: http_decisions": 0.1, "server: http_connections": 0.1,
    "server: life": 0.1, "server: h2_basics": 0.2, "server: abuse_slow": 0.2, "server: h2_abuse": 0.2,
    "server: reload": 0.4, "server: tls_serve": 0.4, "server: recipes": 0.3, "server: grpc_service": 0.4,
    "server: abuse_flood": 2.0, "server: abuse_connections": 0.4, "server: operation_stop": 0.1,
    "server: operation_log": 0.2, "server: monitoring": 0.4,
    "nginx: rate": 0.1, "nginx: twins": 0.1, "nginx: shaping": 0.1, "nginx: conns": 0.1, "nginx: fleet": 0.3,
    "nginx: faults": 0.4, "nginx: overload": 0.3, "nginx: edges": 0.2, "nginx: limits": 0.3,
    "redis: store_cluster": 0.2, "redis: store_faults": 0.2, "redis: store_sentinel": 0.2, "redis: store_tls": 0.4,
}

LONG = ("documentation", "dashboard", "model: against", "nginx: rate", "nginx: twins", "nginx: faults", "nginx: fleet",
        "server: grpc_service", "server: abuse_connections", "redis: module under", "redis: store_", "deaths: at")


def load(name):
    """Of the test with this name, whatever its build."""
    return LOADS.get(name.partition(" (")[0], 1.0)


VECTORS = "tests/vectors/*.vec"
UNITS = """base_buffer base_duration base_error base_hash base_random core_buckets core_definitions core_fold
    core_guava core_leases core_load core_never_more core_ring core_rows core_show core_sound core_windows limit_errors limit_explain
    limit_language limit_memory limit_receipt limit_sound policy_envoy policy_envoy_memory policy_execute policy_keys policy_memory policy_parse
    policy_parts policy_plan policy_yaml remote_share remote_slot server_access_log server_doors server_histogram
    server_memory server_metrics
    server_rls server_rls_model server_rls_stores server_rls_wire server_top sim_playground header_promises store_bounds store_settled store_take_or_undo store_verbs
    store_wait wire_decision wire_fields wire_grpc wire_http1 wire_json wire_resp wire_resp_write wire_sha wire_state wire_url
    wire_verbs
    zone_change zone_evict zone_file zone_large zone_limits zone_space""".split()
FUZZ = """duration envoy grpc http1 json limit policy receipt redis_url replay resp state steps url zone""".split()
THREADS = "threads threads_chaos threads_groups remote_link".split()


def programs(group, names, build):
    return [Test(f"{group}: {name} ({build})", build, f"{{build}}/tests/{name}") for name in names]


def vectors(build):
    """Every home of the library, held to the golden vectors."""
    return [
        Test(f"vectors: memory ({build})", build, f"{{build}}/tests/vectors {VECTORS}"),
        Test(f"vectors: shm ({build})", build, f"tests/vectors/shm.sh {{build}} {VECTORS}"),
        Test(f"vectors: file ({build})", build, f"tests/vectors/file.sh {{build}} {VECTORS}"),
    ]


def shared(build):
    """Threads and processes together, killed and failed."""
    kills = {"release": 3000, "asan": 300}[build]
    return [
        *programs("threads", THREADS, build),
        *programs("processes", ("processes", "processes_open"), build),
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
    return [Test(f"command line: {name} ({build})", build, f"tests/homes/cli/cli_{name}.sh")
            for name in ("verbs", "errors", "replay", "explain", "desk", "check")] + \
        [Test(f"command line: completion ({build})", build, "tests/homes/cli/cli_completion.py")]


def model(build, rounds):
    return [
        Test("model: its own checks", build, "tests/model/check.sh"),
        Test(f"model: against the library ({build})", build,
             f"tests/model/differential.py --rounds {rounds}", 3600),
        Test("model: Guava's traces", build, "tests/guava/check.py"),
    ]


def fuzz(build):
    """What fuzzing has found, once more."""
    return [Test(f"fuzz corpus: {name} ({build})", build, f"{{build}}/fuzz/fuzz_{name} fuzz/corpus/{name}/*")
            for name in FUZZ]


def connections(seconds):
    """Whole connections of every protocol, from a new seed each time."""
    return [Test(f"fuzz: connections, {seconds} s", "asan", f"fuzz/connections/run.py --seconds {seconds}", seconds + 600)]


def redis(build):
    """Real servers: the scripts, the module, the store."""
    names = """lua_vectors lua_script lua_function lua_acl lua_args lua_random module_vectors module_commands
        module_replica module_aof module_hammer module_fuzz state_damage store_vectors store_replay store_engines homes_random settle_once
        store_faults store_cluster store_sentinel store_tls""".split()
    return [Test(f"redis: {name} ({build})", build, f"tests/homes/redis/{name}.py") for name in names]


def server(build):
    """Real clients against a real server."""
    names = """vectors vectors_json http_api http_wire http_pipelines http_access http_policies policies_everywhere http_around http_nginx
        resp_commands resp_clients
        grpc_service grpc_envoy cli_server h2_abuse h2_fuzz abuse_bytes long_work unauthorized recipes seeing settle_once turns under_way redis_store
        http_decisions http_connections life reload h2_basics tls_serve abuse_slow abuse_flood abuse_connections
        operation_log operation_restart operation_stop zone_kill monitoring zone_held""".split()
    if build == "asan":  # where memory is handled in other ways than the rest of them try
        names = """http_api http_wire http_pipelines http_decisions http_policies policies_everywhere http_around resp_commands reload
            grpc_service grpc_envoy cli_server
            h2_abuse h2_fuzz tls_serve abuse_bytes long_work settle_once turns under_way""".split()
    return [Test(f"server: {name} ({build})", build, f"tests/homes/server/{name}.py") for name in names]


SLOW_NGINX = "rate config vectors shaping".split()  # under sanitizers


def nginx(build):
    """A real nginx with the module."""
    names = "rate limits headers redirects edges vectors config overload info conns charges shaping fleet".split()
    if build == "asan":  # the slow ones are for make soak
        return [*[Test(f"nginx: {name} ({build})", build, f"tests/homes/nginx/{name}.py", 900) for name in names
                  if name not in SLOW_NGINX],
                Test(f"nginx: faults ({build})", build, "tests/homes/nginx/faults.py --short", 900)]
    return [Test(f"nginx: {name} ({build})", build, f"tests/homes/nginx/{name}.py", 900)
            for name in names + ["exact", "faults", "twins", "building"]]


def browser():
    return [Test("dashboard: in Chromium", "release", "tests/homes/web/run.mjs", 900)]


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
        return model("release", 200) + connections(3600) + [
            *[Test(f"deaths: thousands, {home}", "release", f"{{build}}/tests/kill 20000 random {home}", 3600)
              for home in ("shm", "file")],
            Test("deaths: while opening", "release", "{build}/tests/kill_open 2000", 3600),
            Test("deaths: at every instruction", "release", "{build}/tests/kill_step all", 3600),
            Test("limits changed live", "release", "{build}/tests/zone_change 200000", 3600),
            *[Test(f"server: {name}, long", "release", f"tests/homes/server/{name}.py --long", 3600, True)
              for name in ("abuse_flood", "abuse_bytes", "abuse_connections", "operation_restart", "zone_kill")],
            Test("nginx: faults, long", "release", "tests/homes/nginx/faults.py --long", 3600, True),
            *[Test(f"nginx: {name} (asan)", "asan", f"tests/homes/nginx/{name}.py", 1800) for name in SLOW_NGINX],
            Test("nginx: under valgrind", "release", "tests/homes/nginx/valgrind.py", 1800, True),
            Test("packages", "release", "tests/homes/server/operation_deb.sh", 1800, True),
            *[Test(f"redis: {name}, long", "release", f"tests/homes/redis/{name}.py --long", 3600)
              for name in ("module_replica", "module_aof", "module_hammer", "module_fuzz", "state_damage")],
        ]
    return [
        Test("deaths: at every instruction", "release", "{build}/tests/kill_step"),
        *vectors("release"), *vectors("asan"), *programs("unit", UNITS, "release"), *programs("unit", UNITS, "asan"),
        *shared("release"), *shared("asan"), *programs("threads", THREADS, "tsan"), *clocks("release"),
        *command_line("asan"), *model("release", 2), *fuzz("asan"), *connections(10), *redis("release"),
        Test("redis: module under sanitizers", "asan", "tests/homes/redis/module_asan.py"),
        *server("release"), *server("asan"), Test("server: threads (tsan)", "tsan", "tests/homes/server/threads.py"),
        *nginx("release"), *nginx("asan"),
        *browser(),
        *coverage(), *library(), *documentation(),
    ]
