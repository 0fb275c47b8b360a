#!/usr/bin/env python3
"""The storage and the strategies for the package `limits`: its contract beside its own storages, Flask-Limiter on top, and the
calls that slowapi makes."""
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, redis_server  # noqa: E402

bindings.in_python(__file__)
import flask  # noqa: E402
import flask_limiter  # noqa: E402
import limits  # noqa: E402
import limits.errors  # noqa: E402
import limits.storage  # noqa: E402
import limits.strategies  # noqa: E402
import weir  # noqa: E402
import weir.limits  # noqa: E402

NOW = 1_700_000_000_000_000


class Storages:
    """One storage of each scheme, by storage_from_string as every user of limits opens them."""

    def __enter__(self):
        self.redis = redis_server.Server().__enter__()
        self.name = f"weir-py-limits-{os.getpid()}"
        uris = ["weir+memory://", "weir+memory://1m", f"weir+shm:///{self.name}?size=1m", f"weir+file:///dev/shm/{self.name}-file?size=1m",
                f"weir+redis://127.0.0.1:{self.redis.port}?deadline=10s"]
        return {uri.partition(":")[0]: limits.storage.storage_from_string(uri) for uri in uris}

    def __exit__(self, *_):
        self.redis.__exit__()
        for name in (self.name, f"{self.name}-file"):
            os.unlink(f"/dev/shm/{name}")


def test_contract(check):
    """What limits' own tests ask of every storage."""
    with Storages() as storages:
        for name, storage in storages.items():
            check(isinstance(storage, limits.storage.Storage) and storage.check(), f"{name}: healthy")
            key = limits.parse("10/minute").key_for("user")
            check.equal((storage.get(key), [storage.incr(key, 60) for _ in range(3)], storage.get(key)), (0, [1, 2, 3], 3), f"{name}: incr, get")
            check.equal(storage.incr(key, 60, amount=5), 8, f"{name}: amount")
            check.within(storage.get_expiry(key), int(time.time()) + 30, int(time.time()) + 61, f"{name}: expiry")
            storage.clear(key)
            check.equal(storage.get(key), 0, f"{name}: clear")
            check.equal((storage.incr("any key", 30), storage.get("any key"), storage.get("unknown")), (1, 1, 0), f"{name}: keys of others")
            window = limits.parse("3/minute").key_for("moving")
            check.equal([storage.acquire_entry(window, 3, 60) for _ in range(4)], [True, True, True, False], f"{name}: entries")
            start, count = storage.get_moving_window(window, 3, 60)
            check(count == 3 and abs(start - time.time()) < 30, f"{name}: moving window {start, count}")
            check.equal(storage.acquire_entry(window, 3, 60, amount=4), False, f"{name}: too many")
            check.equal((storage.acquire_entry("none", 0, 60), storage.get_moving_window("none", 0, 60)[1]), (False, 0), f"{name}: 0/minute")
            check.equal(storage.incr("a/1/\u00b2/minute", 60), 1, f"{name}: a key of somebody else")
            check.equal(storage.get_moving_window("fresh", 3, 60)[1], 0, f"{name}: fresh")
            check(issubclass(storage.base_exceptions, Exception), f"{name}: its exceptions")
            for refused, kind in ((storage.reset, NotImplementedError), (lambda it=storage: it.incr("e", 5, elastic_expiry=True), limits.errors.ConfigurationError)):
                try:
                    refused()
                    check(False, f"{name}: {kind.__name__}")
                except kind as error:
                    check(len(str(error)) > 20, f"{name}: says why")


def test_redis_away(check):
    """Each of 4 processes decides its part of a limit: 5 of 20, and 1 of 3."""
    for peers, limit, admitted in ((4, "20/minute", 5), (4, "3/minute", 1), (1, "20/minute", 20)):
        storage = limits.storage.storage_from_string(f"weir+redis://127.0.0.1:1?peers={peers}")
        strategy = limits.strategies.FixedWindowRateLimiter(storage)
        check.equal(sum(strategy.hit(limits.parse(limit), "user") for _ in range(40)), admitted, f"peers={peers}: {limit}")


def test_same_as_limits(check):
    """The same calls on limits' memory storage and on weir's: the same answers, for both strategies."""
    for kind in ("fixed-window", "moving-window"):
        answers = []
        for storage in (limits.storage.MemoryStorage(), limits.storage.storage_from_string("weir+memory://")):
            limiter = limits.strategies.STRATEGIES[kind](storage)
            item, told = limits.parse("5 per 2 minute"), []
            for user, cost in (("ann", 1), ("ann", 2), ("bob", 5), ("bob", 1), ("ann", 2), ("ann", 1), ("ann", 1)):
                told.append((limiter.test(item, user), limiter.hit(item, user, cost=cost), limiter.get_window_stats(item, user)[1]))
            reset = limiter.get_window_stats(item, "ann")[0] - time.time()
            limiter.clear(item, "ann")
            told += [limiter.test(item, "ann"), 60 < reset < 122, limiter.get_window_stats(item, "ann")[1]]
            answers.append(told)
        check.equal(answers[1], answers[0], kind)


def test_time(check):
    """Windows end, by weir's clock."""
    storage = limits.storage.storage_from_string("weir+memory://")
    storage.store.set_time(NOW)
    fixed, item = limits.strategies.FixedWindowRateLimiter(storage), limits.parse("2/minute")
    check.equal([fixed.hit(item, "u") for _ in range(3)], [True, True, False], "fixed")
    storage.store.set_time(NOW + 59_999_999)
    check.equal(fixed.test(item, "u"), False, "not yet")
    storage.store.set_time(NOW + 60_000_000)
    check.equal(fixed.hit(item, "u"), True, "a new window")
    moving = limits.strategies.MovingWindowRateLimiter(storage)
    moving.hit(item, "m")
    storage.store.set_time(NOW + 90_000_000)
    check.equal([moving.hit(item, "m"), moving.hit(item, "m")], [True, False], "moving")
    storage.store.set_time(NOW + 120_000_000)
    check.equal([moving.hit(item, "m"), moving.hit(item, "m")], [True, False], "the oldest has gone")


def test_strategies(check):
    """weir's own limits: a denied request charges nothing, and all kinds are there."""
    storage = limits.storage.storage_from_string("weir+memory://")
    storage.store.set_time(NOW)
    item = limits.parse("2/minute")
    for name in ("weir-token-bucket", "weir-fixed-window", "weir-fixed-window-from-first", "weir-sliding-log", "weir-sliding-window", "weir-sliding-counter"):
        limiter = limits.strategies.STRATEGIES[name](storage)
        check.equal([limiter.hit(item, name) for _ in range(4)], [True, True, False, False], name)
        reset, left = limiter.get_window_stats(item, name)
        check(left == 0 and limiter.test(item, name) is False and time.time() <= reset <= time.time() + 130, f"{name}: {reset, left}")
        limiter.clear(item, name)
        check(limiter.test(item, name) and limiter.hit(item, name, cost=2), f"{name}: cleared")
    limiter = limits.strategies.STRATEGIES["weir-token-bucket"](storage)
    for _ in range(50):
        limiter.hit(item, "flood")
    storage.store.set_time(NOW + 30_000_000)
    check.equal(limiter.hit(item, "flood"), True, "denied ones charged nothing: half a minute later there is one")
    mine = weir.limits.strategy("test-burst", "token-bucket {rate} burst 7")(storage)
    check.equal([mine.hit(item, "burst") for _ in range(8)], [True] * 7 + [False], "a strategy with a text of its own")
    for wrong, kind in ((lambda: weir.limits.strategy("x", "nonsense {rate}"), weir.ESYNTAX), (lambda: weir.limits.Storage("redis://x"), limits.errors.ConfigurationError),
                        (lambda: weir.limits.Storage("weir+shm:///x", size="1m"), limits.errors.ConfigurationError)):
        try:
            wrong()
            check(False, f"{kind.__name__} expected")
        except kind:
            check(True, "refused")


def flask_app(**options):
    app = flask.Flask("test")
    limiter = flask_limiter.Limiter(lambda: flask.request.headers.get("X-User", "nobody"), app=app, headers_enabled=True, **options)

    @app.route("/")
    @limiter.limit("2/minute")
    def index():
        return "ok"

    @app.route("/both")
    @limiter.limit("3/minute; 4/hour")
    def both():
        return "ok"

    @app.route("/dear")
    @limiter.limit("10/minute", cost=4)
    def dear():
        return "ok"

    @app.route("/free")
    @limiter.exempt
    def free():
        return "ok"
    return app, limiter


def test_flask_limiter(check):
    """Flask-Limiter as it is, on every storage and with both kinds of strategy."""
    with Storages() as storages:
        for name, storage in storages.items():
            uri = {"weir+memory": "weir+memory://", "weir+redis": f"weir+{storage.store.url}"}.get(name) or name + "://" + storage.store.url.partition(":")[2]
            for strategy in ("fixed-window", "moving-window", "weir-token-bucket", "weir-sliding-window"):
                app, _ = flask_app(storage_uri=uri, strategy=strategy)
                client, user = app.test_client(), {"X-User": f"{name}-{strategy}"}
                answers = [client.get("/", headers=user) for _ in range(3)]
                check.equal([it.status_code for it in answers], [200, 200, 429], f"{name}, {strategy}")
                check.equal([it.headers["X-RateLimit-Remaining"] for it in answers], ["1", "0", "0"], f"{name}, {strategy}: remaining")
                check(0 <= int(answers[2].headers["Retry-After"]) <= 62, f"{name}, {strategy}: Retry-After {answers[2].headers['Retry-After']}")
                check.equal([client.get("/dear", headers=user).status_code for _ in range(3)], [200, 200, 429], f"{name}, {strategy}: cost")
                check.equal([client.get("/both", headers=user).status_code for _ in range(4)], [200] * 3 + [429], f"{name}, {strategy}: two limits")
                check.equal(client.get("/free", headers=user).status_code, 200, f"{name}, {strategy}: exempt")
    app, limiter = flask_app(storage_uri="weir+memory://", strategy="weir-token-bucket", in_memory_fallback_enabled=True)
    check.equal([app.test_client().get("/").status_code for _ in range(3)], [200, 200, 429], "with a fallback in memory")
    limiter.reset()  # it is told that the storage cannot, and goes on


def test_as_slowapi_calls(check):
    """slowapi is not in Debian. It makes these calls of limits, in this order: the storage by its address, the strategy by its
    name, hit with identifiers and cost, get_window_stats for the fields, reset, and the same strategy on limits' memory as fallback."""
    storage = limits.storage.storage_from_string("weir+memory://", **{})
    for strategy in ("fixed-window", "moving-window", "weir-token-bucket"):
        check(strategy in limits.strategies.STRATEGIES, strategy)
        limiter = limits.strategies.STRATEGIES[strategy](storage)
        limit = limits.parse_many("2 per minute")[0]
        args = [f"192.0.2.7-{strategy}", "/endpoint"]
        check.equal([limiter.hit(limit, *args, cost=1) for _ in range(3)], [True, True, False], f"{strategy}: hit")
        stats = limiter.get_window_stats(limit, *args)
        check(stats[1] == 0 and 0 <= 1 + stats[0] - time.time() <= 62, f"{strategy}: {stats}")
        fallback = limits.strategies.STRATEGIES[strategy](limits.storage.MemoryStorage())
        check.equal([fallback.hit(limit, *args) for _ in range(3)], [True, True, False], f"{strategy}: the fallback")
    try:
        storage.reset()
        check(False, "reset")
    except NotImplementedError:
        check(True, "slowapi tells that it is not supported")


def test_exact_with_threads(check):
    """limits' memory storage lets more through when threads meet; this one does not."""
    storage = limits.storage.storage_from_string("weir+memory://")
    for strategy in ("fixed-window", "moving-window", "weir-sliding-window"):
        limiter, item, hits = limits.strategies.STRATEGIES[strategy](storage), limits.parse("100/day"), []

        def work(limiter=limiter, item=item, hits=hits, strategy=strategy):
            hits.append(sum(limiter.hit(item, strategy) for _ in range(50)))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check.equal(sum(hits), 100, strategy)


TESTS = [test_contract, test_redis_away, test_same_as_limits, test_time, test_strategies, test_flask_limiter, test_as_slowapi_calls, test_exact_with_threads]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))
