#!/usr/bin/env python3
"""weir_store in real nginxes over a real Redis, by the module and by scripts: one limit for several nginx, to the
request; a Redis that is killed, stopped, slow, refuses; denials remembered. Who leaves meanwhile: fleet_leaves.py.

    fleet.py [WORD …]    only the tests with such a word in their name
"""
import queue
import re
import signal
import sys
import threading
import time

from lib import checks, nginx_server, ports, redis_server, sanitizers
from lib.build import REDIS_MODULE
from lib.nginx_server import Nginx, get, poll, serve
from lib.redis_cluster import Cluster
from lib.store_client import SLACK_US, machine, recovered
from lib.store_proxy import Proxy


# a plain redis-server takes only a plain module: that of the build around
PLAIN = REDIS_MODULE.parent.parent / REDIS_MODULE.name if sanitizers.is_sanitized(REDIS_MODULE) else REDIS_MODULE
ENGINES = (("module", f"--loadmodule {PLAIN}"), ("lua", ""))
PATIENT = "deadline=10s"  # where nothing is to be late
DEADLINE_US = 1000000  # of those who lose their Redis
OUTAGE = "peers=4 deadline=1s"
INFO = "location /info { weir_info; }"


def address(port, options=""):
    return f"weir_store redis://127.0.0.1:{port} {options};"


def limited(port, options=PATIENT, limit="fixed-window 100/366d", more="", http2="", **others):
    """An nginx whose / is limited by Redis, ?k= being the key and ?c= the cost."""
    return serve(f'{http2} location / {{ weir_limit key=$arg_k zone=z cost=$arg_c "{limit}"; {more} }} {INFO}',
                 address(port, options), **others)


def store(nginx):
    """What weir_info says of the first store."""
    return nginx.get("/info").json["stores"][0]


def wait_for_state(nginx, check, state):
    check(nginx.wait_for(lambda: store(nginx)["state"] == state), f"weir_info says {state}: {store(nginx)}")


def logged(nginx, text):
    return sum(text in line for line in nginx.errors().splitlines())


def told(nginx):
    """How often the log says that an outage began, and that one is over."""
    return logged(nginx, "the zone decides meanwhile"), logged(nginx, "decides again")


def timed(nginx, path):
    """(answer, microseconds it took)."""
    start = time.monotonic()
    answer = nginx.get(path)
    return answer, (time.monotonic() - start) * 1e6


class Load:
    """Requests one after the other over some connections, until stop()."""

    def __init__(self, nginx, path, clients=4):
        self.nginx, self.path, self.open, self.answers, self.broken = nginx, path, True, [], []
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while self.open:
            try:
                self.answers.append(self.nginx.get(self.path))
            except OSError as error:
                self.broken.append(error)

    def wait(self, more):
        """Until there are so many more answers."""
        wanted = len(self.answers) + more
        return poll(lambda: len(self.answers) >= wanted)

    def stop(self):
        self.open = False
        for thread in self.threads:
            thread.join()
        return self

    def count(self, status):
        return sum(answer.status == status for answer in self.answers)

    def degraded(self):
        return sum(answer.weir["degraded"] == "1" for answer in self.answers)


# ---- one limit for all ----

def test_shared(check):
    """Two nginx of two workers each, exactly the limit between them."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, limited(redis.port, workers=2) as one, \
                limited(redis.port, workers=2) as other:
            first = [nginx.get("/?k=ann").status for nginx in (one, other)]
            loads = [Load(nginx, "/?k=ann") for nginx in (one, other)]
            for load in loads:
                load.wait(200)
            for load in loads:
                load.stop()
            check.equal(first, [200, 200], f"{name}: both let some through")
            check.equal(2 + sum(load.count(200) for load in loads), 100, f"{name}: let through by both")
            check.equal(sum(load.degraded() for load in loads), 0, f"{name}: decided without Redis")
            check.equal(sum(len(load.broken) for load in loads), 0, f"{name}: broken connections")
            with redis.client() as client:
                check.equal(client.call("KEYS", "*"), [b"weir:ann"], f"{name}: keys in Redis")


def test_answers(check):
    """Costs, several limits and keys, delays: what Redis answers is what is shown."""
    locations = """
        location /two { weir_limit key=$arg_k zone=z cost=$arg_c "fixed-window 10/366d, sliding-log 5/366d"; }
        location /keys { weir_limit key=a:$arg_k zone=z "fixed-window 3/366d" name=first;
                         weir_limit key=b:$arg_j zone=z "fixed-window 2/366d" name=second status=503; }
        location /slow { weir_limit key=$arg_p zone=z "leaky-bucket 1/$arg_p burst 5"; }
        """

    def delayed(nginx, name, scale):
        """False: the second came when it need not wait any more."""
        path, start = f"/slow?p={100 * scale}ms", time.monotonic()
        first, (second, took_us) = nginx.get(path), timed(nginx, path)
        if second.weir["status"] == "PASSED" and time.monotonic() - start >= 0.1 * scale:
            return False
        check.equal((first.weir["status"], second.weir["status"]), ("PASSED", "DELAYED"), f"{name}: delays")
        check(took_us >= int(second.weir["delay_us"]) > 0, f"{name}: delayed by {took_us} us")
        return True
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, serve(locations, address(redis.port, PATIENT)) as nginx:
            answer = nginx.get("/two?k=ann&c=3")
            check.equal((answer.status, answer.weir["limit"], answer.weir["remaining"], answer.weir["status"]),
                        (200, "5", "2", "PASSED"), f"{name}: cost 3 of two limits")
            answer = nginx.get("/two?k=ann&c=3")
            check.equal((answer.status, answer.weir["binding"], answer.weir["retry_after"]),
                        (429, "sliding-log 5/52w2d", answer.fields["retry-after"]), f"{name}: the second binds")
            check.equal([nginx.get(f"/keys?k=ann&j={i // 2}").status for i in range(4)], [200, 200, 200, 429],
                        f"{name}: two keys, the first denied")
            answer = [nginx.get("/keys?k=bob&j=0"), nginx.get("/keys?k=bob&j=7"), nginx.get("/keys?k=eve&j=7"),
                      nginx.get("/keys?k=joe&j=7")][-1]
            check.equal((answer.status, answer.weir["binding"]), (503, "second"), f"{name}: two keys, the second denied")
            checks.in_time(lambda scale, nginx=nginx, name=name: delayed(nginx, name, scale))


def test_single_process(check):
    """Without a master process."""
    with redis_server.Server() as redis, limited(redis.port, limit="fixed-window 3/366d", master=False) as nginx:
        answers = [nginx.get("/?k=ann") for _ in range(4)]
        check.equal([answer.status for answer in answers], [200, 200, 200, 429], "alone: statuses")
        check.equal({answer.weir["degraded"] for answer in answers}, {"0"}, "alone: decided by Redis")


def test_cluster(check):
    """Keys all over a cluster, by two nginx; keys of one request in one slot. Then one of the three nodes dies: the store
    is there partly, and says so; the others decide."""
    locations = """
        location /one { weir_limit key=$arg_k zone=z "fixed-window 3/366d"; }
        location /two { weir_limit "key=a:{$arg_k}" zone=z "fixed-window 3/366d";
                        weir_limit "key=b:{$arg_k}" zone=z "fixed-window 2/366d"; }
        """
    locations += f"{INFO} location /text {{ weir_info prometheus; }}"
    with Cluster(ENGINES[0][1] + " --cluster-require-full-coverage no", node_timeout_ms=600000) as cluster:
        http = f'weir_store "{cluster.url()}" {PATIENT};'
        with serve(locations, http) as one, serve(locations, http) as other:
            statuses = [nginx.get(f"/one?k={key}").status for key in range(40) for nginx in (one, other, one, other)]
            check.equal(statuses, [200, 200, 200, 429] * 40, "each key by itself")
            statuses = [nginx.get(f"/two?k={key}").status for key in range(20) for nginx in (one, other, one)]
            check.equal(statuses, [200, 200, 429] * 20, "two keys in one slot")
            node_dies(check, cluster, one)


def node_dies(check, cluster, nginx):
    """Of a store, as weir_info, the metrics, the log and the answers have it."""
    key = [next(str(i) for i in range(100, 200) if cluster.owner(cluster.slot(f"weir:{i}")) == node) for node in range(3)]
    degraded = lambda: [nginx.get(f"/one?k={it}").weir["degraded"] for it in key]
    counts = lambda: [int(re.search(rf'^nginx_weir_store_{name}.* (\d+)$', nginx.get("/text").text, re.M)[1])
                      for name in ("up", "servers{.*reached", "servers{.*away")]
    check.equal((store(nginx)["state"], counts(), degraded()), ("up", [1, 3, 0], ["0"] * 3), "all are there")
    cluster.nodes[1].kill()
    wait_for_state(nginx, check, "partly")
    said, line = store(nginx), f"1 of 3 servers cannot be reached: 127.0.0.1:{cluster.nodes[1].port}: "
    check.equal((said["servers"], said["away"], counts()), (3, 1, [1, 2, 1]), "one is away, and the store is up")
    check.contains(said["why"], f"127.0.0.1:{cluster.nodes[1].port}: ", "which one")
    check.equal(degraded(), ["0", "1", "0"], "the others decide")
    check(nginx.wait_for(lambda: logged(nginx, line) and logged(nginx, "; for their keys, the zone decides meanwhile")), f"the log: {nginx.errors()}")
    cluster.nodes[1].start()
    check(nginx.wait_for(lambda: degraded() == ["0"] * 3), "it decides again")
    wait_for_state(nginx, check, "up")
    check(nginx.wait_for(lambda: told(nginx) == (1, 1)), f"two lines, one each: {nginx.errors()}")


# ---- Redis out of reach ----

def outage(check, name, nginx, harm, repair):
    """No request takes longer than the deadline, whatever happens; the zone decides meanwhile; Redis does again."""
    check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), f"{name}: Redis decides")
    before, mark = told(nginx), machine.mark()
    harm()
    worst_us = degraded = 0
    for _ in range(100):
        answer, took_us = timed(nginx, "/?k=meanwhile")
        worst_us, degraded = max(worst_us, took_us), degraded + (answer.weir["degraded"] == "1")
        check(answer.status in (200, 429), f"{name}: answered {answer.status}")
    check.at_most(worst_us, DEADLINE_US + SLACK_US + machine.since_us(mark), f"{name}: the longest request, us")
    wait_for_state(nginx, check, "down")
    start = time.monotonic()
    answers = [nginx.get("/?k=dead") for _ in range(101)]
    check.equal({answer.weir["degraded"] for answer in answers}, {"1"}, f"{name}: decided without Redis")
    check.equal([answer.status for answer in answers].count(200), 25, f"{name}: a share of 100 among 4 is let through")
    check.equal((answers[0].weir["status"], answers[-1].weir["status"]), ("DEGRADED", "REJECTED"), f"{name}: $weir_status")
    check.at_most(time.monotonic() - start, 60.0, f"{name}: a dead server costs nothing, s; with a deadline each it is 101")
    check(nginx.wait_for(lambda: told(nginx)[0] > before[0]), f"{name}: the log says so")
    check.equal(told(nginx)[0] - told(nginx)[1], 1, f"{name}: once, and nobody says that it is over")
    repair()
    took = recovered(lambda: nginx.get("/?k=probe").weir["degraded"] == "0")
    check(took is not None, f"{name}: Redis decides again soon")
    # A machine that holds Redis up for three deadlines makes another outage, which is told in the same way.
    check(nginx.wait_for(lambda: told(nginx)[0] == told(nginx)[1] > before[1]), f"{name}: the log says that, too, once each: {told(nginx)}")


def test_killed(check):
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, limited(redis.port, OUTAGE) as nginx:
            outage(check, f"killed, {name}", nginx, redis.kill, redis.start)


def test_stopped(check):
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, limited(redis.port, OUTAGE) as nginx:
            outage(check, f"stopped, {name}", nginx, lambda: redis.signal(signal.SIGSTOP),
                   lambda: redis.signal(signal.SIGCONT))


class Timed(Load):
    """The same, with the longest that a request took."""
    worst_us = 0

    def ask(self):
        while self.open:
            answer, took_us = timed(self.nginx, self.path)
            self.answers.append(answer)
            self.worst_us = max(self.worst_us, took_us)


def test_one_stopped(check):
    """One of three servers of a cluster stands still: its keys are decided by the deadline, and nobody else waits for them."""
    with Cluster(ENGINES[0][1], node_timeout_ms=600000) as cluster, serve('location / { weir_limit key=$arg_k zone=z "fixed-window 1g/366d"; }', f'weir_store "{cluster.url(first=1)}" deadline=2s;') as nginx:
        keys = [next(str(i) for i in range(100) if cluster.owner(cluster.slot(f"weir:{i}")) == node) for node in range(3)]
        for key in keys:
            check(nginx.wait_for(lambda key=key: nginx.get(f"/?k={key}").weir["degraded"] == "0"), "all decide")
        mark = machine.mark()
        cluster.nodes[0].signal(signal.SIGSTOP)
        others, late = [Timed(nginx, f"/?k={key}") for key in keys[1:]], []
        for _ in range(16):  # their deadlines are all over the time, so that some of nginx's threads always wait
            late.append(Timed(nginx, f"/?k={keys[0]}", clients=1))
            check(others[0].wait(10), "meanwhile")
            time.sleep(0.1)
        check(poll(lambda: sum(load.degraded() for load in late) > 16), "the one does not decide")
        for load in late + others:
            load.stop()
        cluster.nodes[0].signal(signal.SIGCONT)
        slack_us = 500000 + machine.since_us(mark)
        check.equal([load.degraded() for load in others], [0, 0], "the others do")
        check.at_most(max(load.worst_us for load in late), 2125000 + slack_us, "the longest request of the one, us")
        check.at_most(max(load.worst_us for load in others), 500000 + slack_us, "the longest of the others, us")


def test_late(check):
    """Answers that are late now and then are told, with how many of them there were, and are not an outage."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, "deadline=100ms") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "late: Redis decides")

        def is_told():
            """One of them late, many in time."""
            proxy.mode, proxy.delay = "slow", 0.15
            nginx.get("/?k=late")
            proxy.mode = "pass"
            for _ in range(40):
                nginx.get("/?k=in-time")
            return logged(nginx, "answers did not come within 100ms; raise deadline=, and use fail=closed")
        check(nginx.wait_for(is_told), f"late: it is logged: {nginx.errors()[-2000:]}")


def test_lost(check):
    """Queries that lose their connection are told, too; a longer deadline would not help them."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, PATIENT) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "lost: Redis decides")

        cut = [-9.0]

        def is_told():
            """Now and then a connection ends within a reply; many queries are answered. (An outage begins if a look comes just then.)"""
            if time.monotonic() - cut[0] > 4:
                proxy.mode = "cut"
                nginx.get("/?k=lost")
                proxy.mode, cut[0] = "pass", time.monotonic()
            for _ in range(20):
                nginx.get("/?k=in-time")
            return logged(nginx, "answers did not come: the connection was lost; meanwhile requests that the zone decided: ")
        check(nginx.wait_for(is_told), f"lost: it is logged: {nginx.errors()[-2000:]}")
        check.equal((logged(nginx, "did not come within"), logged(nginx, "raise deadline=")), (0, 0), "lost: nothing was late")


def test_slow(check):
    """Answers that come after the deadline are as none at all; Redis was charged all the same."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, limited(proxy.port, "deadline=100ms") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "slow: Redis decides")
        proxy.mode, proxy.delay = "slow", 5.0
        mark = machine.mark()
        answer, took_us = timed(nginx, "/?k=late")
        check.equal((answer.status, answer.weir["status"]), (200, "DEGRADED"), "slow: the zone decides")
        check(took_us >= 100000, f"slow: after the deadline, {took_us} us")
        check.at_most(took_us, 100000 + SLACK_US + machine.since_us(mark), "slow: but not long after, us")
        proxy.mode = "pass"
        check(recovered(lambda: nginx.get("/?k=probe").weir["degraded"] == "0") is not None, "slow: and back")
        check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), "slow: nothing is under way")


def test_fail(check):
    """What each fail= does while there is no Redis at all."""
    port = ports.take()
    for fail, passes, status in (("open", 10, "DEGRADED"), ("closed", 0, "CLOSED"), ("local", 3, "REJECTED")):
        with limited(port, f"fail={fail} peers=2", "fixed-window 6/366d") as nginx:
            wait_for_state(nginx, check, "down")
            answers = [nginx.get("/?k=ann") for _ in range(10)]
            check.equal([answer.status for answer in answers], [200] * passes + [429] * (10 - passes), f"{fail}: statuses")
            check.equal(answers[-1].weir["status"], status, f"{fail}: $weir_status")
            check.equal({answer.weir["degraded"] for answer in answers}, {"1"}, f"{fail}: $weir_degraded")
            if fail == "closed":
                check.equal(answers[0].fields["retry-after"], "1", "closed: to be tried again in a second")
                check.equal((logged(nginx, 'rejected, Redis did not decide (fail=closed), zone "z"'), logged(nginx, "rejected by")), (10, 0),
                            "closed: no limit is blamed")
            zone = nginx.get("/info").json["zones"][0]
            found = zone["passed"], zone["closed"], zone["rejected"]
            check.equal(found, (passes, *((10, 0) if fail == "closed" else (0, 10 - passes))), f"{fail}: passed, closed, rejected")
            check.contains(store(nginx)["why"], "Connection refused", f"{fail}: why")
            check.equal((store(nginx)["asked"], store(nginx)["unreachable"]), (10, 10), f"{fail}: counted")
    with limited(port, "fail=closed peers=2", "fixed-window 6/366d", more="weir_dry_run on;", http2="location /keys { weir_keys zone=z; weir_store off; }") as nginx:
        for method in ("GET", "DELETE"):
            check.contains(nginx.client().get("/keys?key=ann", method=method).json["note"], "in Redis, not here", f"weir_keys says so: {method}")
        wait_for_state(nginx, check, "down")
        answer = nginx.get("/?k=ann")
        check.equal((answer.status, answer.weir["status"], answer.weir["degraded"]), (200, "DRY_RUN", "1"), "closed, in dry run")
        check.equal((logged(nginx, 'dry run, would be rejected, Redis did not decide (fail=closed), zone "z"'), logged(nginx, "rejected by")), (1, 0),
                    "closed, in dry run: no limit is blamed")


def test_slots_without_redis(check):
    """Slots that the zone gave are given back to the zone, in shares of the limit."""
    with nginx_server.Backend(lambda head: gate.wait(60) and nginx_server.Backend.answer()) as backend:
        gate = threading.Event()
        locations = f"""
            location /slow {{ proxy_pass http://127.0.0.1:{backend.port}; weir_conn key=k zone=z 4; }}
            location /quick {{ weir_conn key=k zone=z 4; }} {INFO}
            """
        with serve(locations, address(ports.take(), "peers=2")) as nginx:
            wait_for_state(nginx, check, "down")
            clients = [nginx.client() for _ in range(2)]
            for client in clients:
                client.send(get("/slow"))
            nginx.wait_for(lambda: len(backend.heads) == 2)
            check.equal(nginx.get("/quick").status, 429, "both slots of the share are held")
            gate.set()
            check.equal([client.read().status for client in clients], [200, 200], "the requests end")
            check(nginx.wait_for(lambda: nginx.get("/quick").status == 200), "and give their slots back")
            for client in clients:
                client.close()


# ---- Redis that refuses ----

def test_password(check):
    """A wrong password: told, never shown; right once Redis has it."""
    with redis_server.Server("--requirepass right-one") as redis:
        url = f"weir_store redis://:wrong-one@127.0.0.1:{redis.port};"
        with serve(f'location / {{ weir_limit key=k zone=z "fixed-window 9/366d"; }} {INFO}', url) as nginx:
            check(nginx.wait_for(lambda: logged(nginx, "WRONGPASS")), "password: the log has the server's words")
            check.equal(nginx.get("/").weir["status"], "DEGRADED", "password: the zone decides")
            check.contains(store(nginx)["why"], "WRONGPASS", "password: weir_info has them, too")
            check.contains(store(nginx)["url"], "redis://:***@127.0.0.1", "password: and hides it")
            with redis.client() as client:
                client.call("AUTH", "right-one")
                client.call("CONFIG", "SET", "requirepass", "wrong-one")
            check(recovered(lambda: nginx.get("/").weir["degraded"] == "0") is not None, "password: Redis decides")
            check("wrong-one" not in nginx.errors(), "password: it is nowhere in the log")


def test_refusals(check):
    """What Redis refuses the zone decides; the log says why, once a second at most."""
    with redis_server.Server() as redis, limited(redis.port) as nginx, redis.client() as client:
        client.call("SET", "weir:foreign", "not weir's")
        start = time.monotonic()
        answers = [nginx.get("/?k=foreign") for _ in range(50)]
        most = 1 + int(time.monotonic() - start + 1)
        check.equal({(answer.status, answer.weir["status"]) for answer in answers}, {(200, "DEGRADED")}, "refused: decided")
        check(1 <= logged(nginx, "the server refused: WEIRSTATE") <= most, f"refused: logged {logged(nginx, 'refused')}")
        check.equal((store(nginx)["state"], nginx.get("/?k=ann").weir["degraded"]), ("up", "0"), "refused: others are well")
        check.equal(client.call("GET", "weir:foreign"), b"not weir's", "refused: the value is as it was")
        locations = """location / { weir_limit key=$arg_a zone=z "fixed-window 9/366d";
                                    weir_limit key=$arg_b zone=z "sliding-log 9/366d" phase=precontent; }"""
        with serve(locations, address(redis.port, PATIENT)) as nginx:
            found = [nginx.get(path).weir["degraded"] for path in ("/?a=ann&b=bob", "/?a=foreign&b=bob", "/?a=ann&b=foreign")]
            check.equal(found, ["0", "1", "1"], "refused: $weir_degraded is 1 if one of two phases was")


def test_refuses_to_write(check):
    """A Redis that refuses all writes, with weir_conn and weir_limit: told once, over when it decides again; requests are
    counted once each; what is to be given back is tried now and then."""
    locations = """weir_conn key=$arg_k zone=z "concurrent 1 lease 1h"; weir_limit key=l:$arg_k zone=z "fixed-window 100/366d";"""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, redis.client() as client, \
                nginx_server.Backend(lambda head: gate.wait(60) and nginx_server.Backend.answer()) as backend:
            gate = threading.Event()
            slow = f"location /slow {{ proxy_pass http://127.0.0.1:{backend.port}; {locations} }}"
            with serve(f"{slow} location / {{ {locations} }} {INFO}", address(redis.port, PATIENT), workers=1) as nginx:
                refuses_to_write(check, name, nginx, client, backend, gate)


def refuses_to_write(check, name, nginx, client, backend, gate):
    replicas = lambda n: client.call("CONFIG", "SET", "min-replicas-to-write", str(n))
    refusals = lambda: int((re.findall(rb"errorstat_NOREPLICAS:count=(\d+)", client.call("INFO", "errorstats")) or [0])[0])
    check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["status"] == "PASSED"), f"{name}: Redis decides")
    check(nginx.wait_for(lambda: store(nginx)["queue"] == 0), f"{name}: nothing is under way")
    with nginx.client() as held:
        held.send(get("/slow?k=held"))
        check(nginx.wait_for(lambda: backend.heads), f"{name}: a slot is held")
        before = store(nginx)
        replicas(1)
        check.equal({nginx.get(f"/?k=k{i}").weir["status"] for i in range(40)}, {"DEGRADED"}, f"{name}: the zone decides")
        said = store(nginx)
        check.equal(said["state"], "refuses", f"{name}: weir_info's state")
        check.contains(said["why"], "NOREPLICAS", f"{name}: and why")
        gate.set()
        check.equal(held.read().status, 200, f"{name}: it ends")
    check(nginx.wait_for(lambda: store(nginx)["owed"] == 1), f"{name}: its slot is owed, and nothing else: {store(nginx)}")
    tried = 83 if name == "module" else 82  # after 1 s, and 2 s later
    check(nginx.wait_for(lambda: refusals() >= tried), f"{name}: its release is tried again: {refusals()}")
    check.at_most(refusals(), 84, f"{name}: two queries of each request were refused, and a few releases")
    check.equal([store(nginx)[it] - before[it] for it in ("asked", "answered", "unreachable")], [80, 0, 80], f"{name}: decisions are counted")
    check.equal(told(nginx), (1, 0), f"{name}: told once: {nginx.errors()}")
    replicas(0)
    check.equal(nginx.get("/?k=after").weir["status"], "PASSED", f"{name}: Redis decides again")
    check(nginx.wait_for(lambda: logged(nginx, "decides again; meanwhile requests that the zone decided: 40")), f"{name}: the log: {nginx.errors()}")
    check(nginx.wait_for(lambda: store(nginx)["owed"] == 0), f"{name}: what was owed is given back")
    check.equal((nginx.get("/?k=held").weir["status"], store(nginx)["state"]), ("PASSED", "up"), f"{name}: its slot is free")


def test_one_deadline(check):
    """The queries of a request share its deadline."""
    locations = f"""location / {{ weir_conn key=$arg_k zone=z 5; weir_conn key=b:$arg_k zone=z 5;
                                  weir_limit key=l:$arg_k zone=z "fixed-window 100/366d"; }} {INFO}"""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, serve(locations, address(proxy.port, OUTAGE)) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "Redis decides")
        before, mark = store(nginx)["asked"], machine.mark()
        proxy.mode = "hold"
        answer, took_us = timed(nginx, "/?k=ann")
        check.equal((answer.weir["status"], store(nginx)["asked"] - before), ("DEGRADED", 3), "the zone decides, Redis was asked for all")
        check.at_most(took_us, 1.2 * DEADLINE_US + SLACK_US + machine.since_us(mark), "three queries, us")


class Far(Proxy):
    """Before a server that is far away: each answer comes `delay` later, and none holds up the next."""
    lines = {}

    def harm(self, sink, data):
        if sink not in self.lines:
            self.lines[sink] = queue.Queue()
            threading.Thread(target=self.carry, args=(sink, self.lines[sink]), daemon=True).start()
        self.lines[sink].put((time.monotonic() + self.delay, data))
        return True

    def carry(self, sink, line):
        try:
            while True:
                due, data = line.get()
                time.sleep(max(0.0, due - time.monotonic()))
                sink.sendall(data)
        except OSError:
            pass


SIX = " ".join(f"weir_conn key={name}:$arg_k zone=z 5;" for name in "abcde") + ' weir_limit key=l:$arg_k zone=z "fixed-window 100/366d";'


def test_far(check):
    """A request of many queries has little time left for the last of them. That says nothing about the server, which answers all others."""
    with redis_server.Server() as redis, Far(redis.port) as far, serve(f"location / {{ {SIX} }} {INFO}", address(far.port, OUTAGE), workers=1) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=settle-in").weir["degraded"] == "0"), "far: Redis decides")
        far.delay = 0.4
        for i in range(3):
            nginx.get(f"/?k={i}")
            check.equal(store(nginx)["state"], "up", "far: it is not given up")


def test_one_deadline_of_many(check):
    """The same while the threads are at work for others."""
    locations = f"""location / {{ weir_limit key=$arg_k zone=z "fixed-window 100/366d"; }} location /six {{ {SIX} }} {INFO}"""
    with redis_server.Server() as redis, Far(redis.port) as far, serve(locations, address(far.port, OUTAGE), workers=1) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/six?k=settle-in").weir["degraded"] == "0"), "many: Redis decides")
        far.delay, mark, loads = 0.4, machine.mark(), []
        for i in range(6):  # their queries are all over the time
            loads.append(Load(nginx, f"/?k=other{i}", clients=1))
            time.sleep(0.07)
        worst_us = max(timed(nginx, f"/six?k={i}")[1] for i in range(4))
        for load in loads:
            load.stop()
        check.at_most(worst_us, 1.9 * DEADLINE_US + machine.since_us(mark), "many: six queries, us")


# ---- denials remembered ----

ROUNDS = 200  # until the machine lets one pass in time


def test_denial_cache(check):
    with redis_server.Server() as redis, \
            limited(redis.port, f"{PATIENT} denial_cache=1s", "fixed-window 10/366d") as nginx:
        def ask(path):
            """(status, whether Redis was asked)."""
            before, answer = store(nginx), nginx.get(path)
            after = store(nginx)
            check.equal(after["asked"] - before["asked"] + after["cached_denials"] - before["cached_denials"], 1,
                        f"{path}: asked, or remembered")
            return answer.status, after["asked"] > before["asked"]
        for number in range(ROUNDS):
            key = f"ann{number}"
            check.equal(ask(f"/?k={key}&c=8"), (200, True), "cost 8")
            start = time.monotonic()
            got = [ask(f"/?k={key}&c={cost}") for cost in (5, 5, 7, 2)]
            if time.monotonic() - start < 0.9:  # else the machine held us up for longer than a denial is remembered
                break
        check.equal(got, [(429, True), (429, False), (429, False), (200, True)],
                    "cost 5 is denied, again and for a higher cost from memory, a lower cost is asked for")
        check.equal(ask("/?k=bob&c=5"), (200, True), "another key")
        check(nginx.wait_for(lambda: ask(f"/?k={key}&c=5") == (429, True)), "it is forgotten")


def test_least(check):
    """Redis grants one amount; a denial is remembered by the least; without Redis the zones grant, or nobody does."""
    locations = f"""
        location / {{ weir_limit key=a:$arg_k zone=z cost=$arg_c least=$arg_l "fixed-window 9/366d cost 1, fixed-window 50/365d";
                      weir_limit key=o:$arg_k zone=z cost=$arg_c least=$arg_l "fixed-window 30/366d"; }}
        location /one {{ weir_limit key=$arg_k zone=z cost=$arg_c least=$arg_l "fixed-window 30/366d"; }} {INFO}
        """
    with redis_server.Server() as redis, serve(locations, address(redis.port, f"{PATIENT} denial_cache=1s")) as nginx:
        def granted(path):
            answer = nginx.get(path)
            return answer.status, answer.weir["granted"], answer.weir["degraded"]
        check.equal(granted("/?k=a&c=100&l=5"), (200, "30", "0"), "the smaller of both")
        check.equal(granted("/?k=a&c=100&l=5"), (429, "0", "0"), "nothing is left")
        for number in range(ROUNDS):
            key = f"b{number}"
            check.equal(granted(f"/one?k={key}&c=20"), (200, "20", "0"), "without a least: all of it")
            start = time.monotonic()
            check.equal(granted(f"/one?k={key}&c=100&l=15"), (429, "0", "0"), "15 of 10")
            before = store(nginx)["asked"]
            check.equal([granted(f"/one?k={key}&c=100&l={least}")[0] for least in (15, 16)], [429, 429], "as much, or more")
            asked = store(nginx)["asked"] - before
            if time.monotonic() - start < 0.9:  # else the machine held us up for longer than a denial is remembered
                break
        check.equal(asked, 0, "a denial is remembered by the least")
        check.equal(granted(f"/one?k={key}&c=100&l=8"), (200, "10", "0"), "a smaller least is asked for")
        redis.kill()
        check.equal(granted("/one?k=c&c=100&l=8"), (200, "30", "1"), "the zone grants what it has")
    with redis_server.Server() as redis, serve(locations, address(redis.port, "fail=open")) as nginx:
        redis.kill()
        check.equal(nginx.get("/one?k=c&c=100&l=8").weir["granted"], "100", "fail=open: all of it")


def test_denial_cache_answers(check):
    """What is remembered runs on with the time, and is never denied for longer than Redis would."""
    locations = f"""
        location / {{ weir_limit key=$arg_k zone=z "token-bucket 2/s burst 1"; }}
        location /two {{ weir_limit key=a:$arg_k zone=z cost=$arg_c "fixed-window 10/366d";
                         weir_limit key=b:$arg_k zone=z "fixed-window 10/366d, sliding-log 20/366d"; }} {INFO}
        """
    with redis_server.Server() as redis, serve(locations, address(redis.port, f"{PATIENT} denial_cache=1s")) as nginx:
        for number in range(ROUNDS):
            key, start = f"ann{number}", time.monotonic()
            check.equal(nginx.get(f"/?k={key}").status, 200, "one of a bucket of one")
            denied = [nginx.get(f"/?k={key}")]
            told = time.monotonic()
            denied += [nginx.get(f"/?k={key}") for _ in range(4)]
            if time.monotonic() - start < 0.4:  # else the next one has come meanwhile
                break
        due = told + int(denied[0].weir["retry_after_us"]) / 1e6  # or earlier: it was told before we heard it
        check(store(nginx)["cached_denials"] >= 4, "the others are remembered")
        waits = [int(answer.weir["retry_after_us"]) for answer in denied]
        check(all(a > b > 0 for a, b in zip(waits, waits[1:])), f"retry_after runs on: {waits}")
        check.equal({(answer.status, answer.weir["remaining"], answer.weir["degraded"]) for answer in denied},
                    {(429, "0", "0")}, "all answer alike")
        asked = []  # when, and the answer
        nginx.wait_for(lambda: asked.append((time.monotonic(), nginx.get(f"/?k={key}").status)) or asked[-1][1] == 200)
        check.equal(asked[-1][1], 200, "allowed when it is time")
        check.equal([at - due for at, status in asked if status != 200 and at > due + 0.01], [], "and none is denied later")
        for number in range(ROUNDS):
            key = f"eve{number}"
            check.equal(nginx.get(f"/two?k={key}&c=8").status, 200, "two keys")
            before, start = store(nginx), time.monotonic()
            answers = [nginx.get(f"/two?k={key}&c={cost}") for cost in (5, 5, 6, 6)]
            if time.monotonic() - start < 0.9:  # else the machine held us up for longer than a denial is remembered
                break
        answers.append(nginx.get(f"/two?k={key}&c=2"))
        check.equal([answer.status for answer in answers], [429] * 4 + [200], "two keys, denied and not")
        check.equal(store(nginx)["cached_denials"] - before["cached_denials"], 2, "two keys: the same costs only")
        check.equal(answers[0].fields["ratelimit-policy"], answers[1].fields["ratelimit-policy"], "two keys: the fields")


# ---- the configuration ----

def test_directive(check):
    """What is wrong is said, with a fix; never a password."""
    for text, said in (
            ("redis://:secret@host:99999", "column 22: the port \"99999\" is not a number"),
            ("memcached://host", "column 1: unknown scheme"),
            ("redis://host?colour=red", "unknown option \"colour\""),
            ("redis://host deadline=soon", "\"deadline=soon\": expected a duration"),
            ("redis://host deadline=1m", "up to 10s"),
            ("redis://host?deadline=1m", "expected at most 10s"),
            ("redis://host fail=shut", "expected local"),
            ("redis://host peers=0", "from 1 to 1000000"),
            ("redis://host peers=2 peers=3", "given twice"),
            ("redis://host denial_cache=2s", "expected a duration up to 1s"),
            ("redis://host colour=red", "unknown option"),
            ("redis://host redis://:secret@other", "unknown option"),
            ("off fail=open", "nothing may follow"),
            ("redis://host; weir_store off", "is duplicate")):
        code, output = Nginx.check("weir_zone z 1m;", f"location / {{\nweir_store {text};\n}}")
        check.equal(code, 1, f"{text}: refused")
        check.contains(output, said, text)
        check.contains(output, "server.conf:2", f"{text}: the line")
        check("secret" not in output, f"{text}: no password is told")


def test_shared_stores(check):
    """The same address and options: one store. Any other: its own. off: none."""
    port = ports.take()
    locations = f"""
        location /a {{ weir_store redis://127.0.0.1:{port}; weir_limit key=k zone=z "fixed-window 1/366d"; }}
        location /b {{ weir_store redis://127.0.0.1:{port}/0 deadline=50ms; weir_limit key=k zone=z "fixed-window 1/366d"; }}
        location /c {{ weir_store redis://127.0.0.1:{port} fail=open; weir_limit key=k zone=z "fixed-window 1/366d"; }}
        location /d {{ weir_store off; weir_limit key=d zone=z "fixed-window 1/366d"; }}
        {INFO}
        """
    with serve(locations, f"weir_store redis://127.0.0.1:{port};") as nginx:
        urls = [it["url"] for it in nginx.get("/info").json["stores"]]
        check.equal(urls, [f"redis://127.0.0.1:{port}/0", f"redis://127.0.0.1:{port}/0?fail=open"], "stores")
        wait_for_state(nginx, check, "down")
        check.equal([nginx.get(path).weir["degraded"] for path in ("/a", "/b", "/c", "/d")], ["1", "1", "1", "0"], "off")


if __name__ == "__main__":
    with machine:
        sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))
