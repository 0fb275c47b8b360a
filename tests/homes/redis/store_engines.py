#!/usr/bin/env python3
"""What decides inside the server comes, goes, changes its version and is refused while a redis:// store is open.

    store_engines.py [WORD …]    only the tests with such a word in their name

Holds the store to this: a reply by which a server says that it did nothing is no failure, the call is put in another
way; no charge is made twice; what a server says reaches whoever asked.
"""
import json
import shutil
import subprocess
import sys
import threading
import time

from lib import checks, lua_cases, ports, redis_server
from lib.build import REDIS_MODULE, WEIR
from lib.store_client import ENOLEASE, ESYSTEM, EUNREACHABLE, Driver, machine, opened, recovered
from lib.store_proxy import Proxy

PATIENT = "deadline=30s&fail=closed"
WITH_MODULE = f"--loadmodule {REDIS_MODULE} --enable-module-command yes"
FROZEN = "token-bucket 1/366d burst {}"
VERSION, SERVES = lua_cases.assemble.LIBRARY_VERSION, lua_cases.assemble.LIBRARY_SERVES


def address(server, options=PATIENT):
    return f"redis://127.0.0.1:{server.port}?{options}"


def weir(*words):
    """(exit status, what it printed)"""
    done = subprocess.run([WEIR, *words], capture_output=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def library(version, serves, body="return redis.error_reply('ERR a library of another version')"):
    """One that has all functions, and does nothing of ours."""
    names = ["weir", "weir_peek", "weir_free", *("weir_" + name for name in lua_cases.LEAN)]
    out = ["#!lua name=weir"] + [f"redis.register_function('{name}', function() {body} end)" for name in names]
    if version:
        out += [f"redis.register_function{{function_name='weir_version', flags={{'no-writes'}}, "
                f"callback=function() return {{{version}, {serves}}} end}}"]
    return "\n".join(out)


def test_module_unloaded(check):
    """Every verb goes on by the scripts, on the same states."""
    for fail in ("open", "closed"):
        with redis_server.Server(WITH_MODULE) as server, server.client() as client:
            with Driver(address(server, f"deadline=30s&fail={fail}")) as driver:
                limit, leases = FROZEN.format(9), "concurrent 3 lease 1h"
                d = driver.take("k", limit, 4)
                held = driver.decide("acquire", "c", leases, 1)
                client.call("MODULE", "UNLOAD", "weir")
                for name, words in (("settle", ("settle", "k", limit, d.receipt, 2)),
                                    ("renew", ("renew", "c", leases, held.lease)),
                                    ("release", ("release", "c", leases, held.lease))):
                    check.equal(driver.code_of(*words), 0, f"unloaded, fail={fail}: {name}")
                d = driver.take("k", limit)
                check.equal((d.code, d.allowed, d.degraded, d.remaining), (0, 1, 0, 6), f"unloaded, fail={fail}: take")
                check.equal(driver.peek("k", limit).remaining, 6, f"unloaded, fail={fail}: peek")
                check.equal(driver.code_of("reset", "k"), 0, f"unloaded, fail={fail}: reset")
                check.equal(driver.call("check"), ["0", ""], f"unloaded, fail={fail}: check")


def slots_of_several_keys(check, where, driver):
    """A request, tokens and slots of a user, a team and everybody: all or none, and one lease names all slots."""
    user, team, every = "fixed-window 9/366d cost 1, concurrent 2 lease 1h cost 1", "concurrent 3 lease 1h cost 2", FROZEN.format(99)
    asks = ("{s}u", user, 5, "{s}t", team, 5, "{s}e", every, 5)
    d = driver.decide("acquire", *asks)
    check.equal((d.code, d.allowed, d.degraded, d.remaining, d.charged), (0, 1, 0, 1, 5), f"{where}: acquired")
    check(d.lease > 0, f"{where}: a lease")
    check.equal(driver.decide("acquire", *asks)[:2], (0, 0), f"{where}: the team has one slot left, and a call takes two")
    check.equal([driver.peek(key, limit).remaining for key, limit in zip(asks[0::3], asks[1::3])], [1, 1, 94],
                f"{where}: what is denied holds and charges nothing")
    check.equal(driver.code_of("release", "{s}e", "concurrent 9", d.lease), ENOLEASE, f"{where}: no slot, no lease")
    for key, limit in (("{s}u", user), ("{s}t", team)):
        check.equal(driver.code_of("renew", key, limit, d.lease), 0, f"{where}: renews {key}")
        check.equal(driver.code_of("release", key, limit, d.lease), 0, f"{where}: releases {key}")
        check.equal(driver.code_of("release", key, limit, d.lease), ENOLEASE, f"{where}: {key} is released once")
    check.equal(driver.peek("{s}t", team).remaining, 3, f"{where}: the slots are back")
    check.equal(driver.decide("acquire", "{s}u", user, 0, "{s}t", team, 0)[9], 0, f"{where}: cost 0 holds nothing")


def test_slots_of_several_keys(check):
    with redis_server.Server(WITH_MODULE) as server, Driver(address(server)) as driver:
        slots_of_several_keys(check, "module", driver)
    for engine in ("lua", "function"):
        with redis_server.Server() as server, Driver(address(server, f"{PATIENT}&engine={engine}")) as driver:
            slots_of_several_keys(check, engine, driver)
    with Driver("memory:1m") as driver:
        slots_of_several_keys(check, "zone", driver)


def test_answers_of_another_form(check):
    """What does not answer as ours do has not settled, released or reset anything."""
    for body in ("return 'OK'", "return redis.status_reply('QUEUED')", "return false", "return {1, 2, 3, 4, 5, 6, 7}"):
        with redis_server.Server() as server, server.client() as client:
            client.call("FUNCTION", "LOAD", library(VERSION, SERVES, body))
            with Driver(address(server, "engine=function&deadline=5s&fail=closed")) as driver:
                limit = FROZEN.format(9)
                for words in (("settle", "k", limit, "w3-1700000000000000-4-77", 2), ("reset", "k"),
                              ("release", "k", "concurrent 3 lease 1h", 77)):
                    check.equal(driver.code_of(*words), EUNREACHABLE, f"{body}: {words[0]}")


def test_module_unloaded_in_a_batch(check):
    """Of a pipeline that the unloading cuts in two, nothing is charged twice."""
    with redis_server.Server(WITH_MODULE) as server, server.client() as client, Driver(address(server)) as driver:
        driver.take("k", FROZEN.format(1))
        client.call("MODULE", "UNLOAD", "weir")
        check.equal(driver.call("many", 300, "m", FROZEN.format(2))[:3], ["0", "300", "0"], "a batch after the unloading")
        values = client.pipeline([("STRLEN", f"weir:m:{i}") for i in range(300)])
        check.equal(set(values), {28}, "every key was charged")
        check.equal(driver.call("many", 300, "m", FROZEN.format(2))[:3], ["0", "300", "0"], "and once: another is left")
        check.equal(driver.call("many", 300, "m", FROZEN.format(2))[:3], ["0", "0", "0"], "and no third")


def test_module_comes_and_goes_under_load(check):
    with redis_server.Server(WITH_MODULE) as server, server.client() as client, Driver(address(server)) as driver:
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                client.pipeline([("MODULE", "UNLOAD", "weir")])
                time.sleep(0.003)
                client.pipeline([("MODULE", "LOAD", str(REDIS_MODULE))])
                time.sleep(0.003)

        thread = threading.Thread(target=swap)
        thread.start()
        total = driver.tally("exact", 8, 500, "load", FROZEN.format(777))
        stop.set()
        thread.join()
        check.equal((total.allowed, total.degraded, total.errors), (777, 0, 0), "admitted, degraded, errors")


def test_engine_module_without_it(check):
    """Where only the module may decide, its absence is an outage."""
    with redis_server.Server(WITH_MODULE) as server, server.client() as client:
        with Driver(address(server, "engine=module&fail=open&deadline=300ms")) as driver:
            check(recovered(lambda: driver.take("k", FROZEN.format(1)).degraded == 0) is not None, "the module decides")
            client.call("MODULE", "UNLOAD", "weir")
            d = driver.take("k", FROZEN.format(1))
            check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), "engine=module, unloaded: fail=open decides")
            check(recovered(lambda: "engine=module" in driver.call("check")[1]) is not None, "and check says why")
            client.call("MODULE", "LOAD", str(REDIS_MODULE))
            check(recovered(lambda: driver.take("k", FROZEN.format(1)).degraded == 0) is not None, "loaded again")


def test_library_by_many_at_once(check):
    """Many stores find no library, many threads of one lose it: nobody's call fails, none counts twice."""
    with redis_server.Server() as server, server.client() as client:
        drivers = [Driver(address(server, f"engine=function&{PATIENT}")) for _ in range(4)]
        totals = [None] * len(drivers)

        def work(i):
            totals[i] = drivers[i].tally("exact", 8, 100, "load", FROZEN.format(1234))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(drivers))]
        for thread in threads:
            thread.start()
        for _ in range(30):
            client.call("FUNCTION", "FLUSH")
            time.sleep(0.005)
        for thread in threads:
            thread.join()
        check.equal([(t.errors, t.degraded) for t in totals], [(0, 0)] * len(drivers), "errors, degraded")
        check.equal(sum(t.allowed for t in totals), 1234, "admitted by all")
        for driver in drivers:
            driver.close()


def test_library_versions(check):
    with redis_server.Server() as server, server.client() as client:
        for name, text in (("without a version", library(0, 0)), ("older", library(VERSION - 1, SERVES)),
                           ("older, of other calls", library(VERSION - 1, SERVES - 1))):
            client.call("FUNCTION", "LOAD", "REPLACE", text)
            with Driver(address(server, f"engine=function&{PATIENT}")) as driver:
                check.equal((driver.code, driver.message), (0, ""), f"a library {name}: opening")
                d = driver.take(name, FROZEN.format(2))
                check.equal((d.code, d.allowed, d.degraded, d.remaining), (0, 1, 0, 1), f"a library {name} is replaced")
        client.call("FUNCTION", "LOAD", "REPLACE", library(VERSION + 7, SERVES + 1))
        with opened(address(server, f"engine=function&{PATIENT}")) as driver:
            check.equal(driver.code, ESYSTEM, "a newer library of other calls")
            check(f"version {VERSION + 7}" in driver.message, f"is refused by its version: {driver.message}")
        client.call("FUNCTION", "LOAD", "REPLACE", library(VERSION + 1, SERVES, "return 5"))
        with Driver(address(server, f"engine=function&{PATIENT}")) as driver:
            check.equal(driver.code, 0, "a newer library that serves our calls")
            check.equal(client.call("FCALL", "weir_version", 0), [VERSION + 1, SERVES], "stays")


def test_library_without_rights(check):
    rights = "+fcall +time +get +getrange +strlen +exists +set +setrange +pexpireat +del +ping +role"
    with redis_server.Server(config=f"user limiter on >pw ~weir:* -@all {rights}") as server, server.client() as client:
        url = f"redis://limiter:pw@127.0.0.1:{server.port}?engine=function&{PATIENT}"
        with opened(url) as driver:
            check.equal(driver.code, ESYSTEM, "no library, and none may be loaded")
            check("NOPERM" in driver.message and "library" in driver.message, f"says so: {driver.message}")
        client.call("FUNCTION", "LOAD", lua_cases.SCRIPTS["weir_library"])
        with Driver(url) as driver:
            d = driver.take("k", FROZEN.format(2))
            check.equal((d.code, d.allowed, d.degraded), (0, 1, 0), "loaded by somebody else")
            check.equal(driver.peek("k", FROZEN.format(2)).remaining, 1, "peeked at")


def test_script_load_refused(check):
    """Who may not load scripts sends them."""
    rights = "+evalsha +eval +time +get +getrange +strlen +exists +set +setrange +pexpireat +del +ping +role"
    with redis_server.Server(config=f"user limiter on >pw ~weir:* -@all {rights}") as server, server.client() as client:
        with Driver(f"redis://limiter:pw@127.0.0.1:{server.port}?{PATIENT}") as driver:
            for expected in (1, 0):
                d = driver.take("k", FROZEN.format(2))
                check.equal((d.code, d.allowed, d.degraded, d.remaining), (0, 1, 0, expected), "by EVAL")
                client.call("SCRIPT", "FLUSH")
            check.equal(driver.code_of("reset", "k"), 0, "reset by EVAL")
        client.call("ACL", "SETUSER", "limiter", "-eval")
        client.call("SCRIPT", "FLUSH")
        with Driver(f"redis://limiter:pw@127.0.0.1:{server.port}?{PATIENT}") as driver:
            check.equal(driver.take("k", FROZEN.format(2)).code, ESYSTEM, "neither")
            check("NOPERM" in driver.call("check")[1], "check says why")


def break_saving(server, client):
    """From now on the server answers MISCONF: its folder is gone, so that it cannot save."""
    client.call("CONFIG", "SET", "save", "3600 100000")
    shutil.rmtree(server.folder)
    client.call("BGSAVE")
    check_end = time.monotonic() + 60
    while time.monotonic() < check_end:
        if b"rdb_last_bgsave_status:err" in client.call("INFO", "persistence"):
            return
        time.sleep(0.01)
    raise RuntimeError("BGSAVE does not fail")


def test_misconf_at_open(check):
    for name, options in (("module", WITH_MODULE), ("lua", "")):
        with redis_server.Server(options) as server, server.client() as client:
            break_saving(server, client)
            for fail, allowed in (("open", 1), ("closed", 0)):
                with Driver(address(server, f"fail={fail}&deadline=30s")) as driver:
                    check.equal((driver.code, driver.message), (0, ""), f"MISCONF, {name}, fail={fail}: opening")
                    d = driver.take("k", FROZEN.format(5))
                    check.equal((d.code, d.allowed, d.degraded), (0, allowed, 1), f"MISCONF, {name}, fail={fail}: take")
                    check("MISCONF" in driver.call("check")[1], f"MISCONF, {name}: {driver.call('check')}")
            status, said = weir("settle", "k", FROZEN.format(5), "w1-1700000000000000-1", "3", "--store",
                                address(server, "deadline=30s"))
            check(status == 3 and "MISCONF" in said, f"MISCONF, {name}: the command line says {status}, {said!r}")


def test_too_many_clients(check):
    with redis_server.Server("--maxclients 2") as server, server.client() as client, server.client() as other:
        other.call("PING")
        with Driver(address(server, "fail=open")) as driver:
            check.equal((driver.code, driver.message), (0, ""), "too many clients: opening")
            d = driver.take("k", FROZEN.format(5))
            check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), "too many clients: fail=open decides")
            client.call("CONFIG", "SET", "maxclients", "100")
            check(recovered(lambda: driver.take("k", FROZEN.format(5)).degraded == 0) is not None, "room again")


def test_words_reach_the_command_line(check):
    with redis_server.Server(config="user limiter on >pw ~weir:* -@all +ping +role") as server, server.client() as client:
        url = f"redis://limiter:pw@127.0.0.1:{server.port}?deadline=30s"
        for words in (("take", "k", FROZEN.format(5)), ("peek", "k", FROZEN.format(5)), ("reset", "k"),
                      ("settle", "k", FROZEN.format(5), "w1-1700000000000000-1", "3"),
                      ("acquire", "k", "concurrent 3"), ("release", "k", "concurrent 3", "5")):
            status, said = weir(*words, "--store", url)
            check(status == 3 and "NOPERM" in said, f"weir {words[0]}: {status}, {said!r}")
        client.call("SET", "weir:page", "not weir's")
        client.call("ACL", "SETUSER", "limiter", "+@all")
        status, said = weir("take", "page", FROZEN.format(5), "--store", url)
        check(status == 3 and "WEIRSTATE" in said, f"a foreign value: {status}, {said!r}")


def test_refusals_are_forgotten(check):
    """check tells of a refusal until a server decides again."""
    with redis_server.Server() as server, server.client() as client, Driver(address(server)) as driver:
        client.call("SET", "weir:page", "not weir's")
        driver.take("page", FROZEN.format(5))
        check("WEIRSTATE" in driver.call("check")[1], "a refusal")
        driver.take("k", FROZEN.format(5))
        check.equal(driver.call("check"), ["0", ""], "forgotten")


def test_wrapped_errors(check):
    """Before 7.0 servers put the script's line before an error: the code is found behind it."""
    with redis_server.Server() as server, server.client() as client, Proxy(server.port) as proxy:
        with Driver(f"redis://127.0.0.1:{proxy.port}?deadline=30s&fail=open") as driver:
            driver.take("k", FROZEN.format(5))
            proxy.mode = "wrap"
            client.call("CONFIG", "SET", "maxmemory", "1")
            d = driver.take("k", FROZEN.format(5))
            check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), "OOM, wrapped")
            check(driver.call("check")[1].endswith("OOM command not allowed when used memory > 'maxmemory'."),
                  f"unwrapped: {driver.call('check')}")


def test_giving_back_without_memory(check):
    """A release that leaves others, and a reset, on a server that is out of memory."""
    for engine, options in (("module", WITH_MODULE), ("lua", ""), ("function", "")):
        with redis_server.Server(options) as server, server.client() as client:
            with Driver(address(server, f"engine={engine}&{PATIENT}")) as driver:
                leases = [driver.decide("acquire", "c", "concurrent 9 lease 1h", 1).lease for _ in range(3)]
                driver.take("k", FROZEN.format(5))
                client.call("CONFIG", "SET", "maxmemory", "1")
                check.equal(driver.code_of("release", "c", "concurrent 9 lease 1h", leases[1]), 0, f"{engine}: release")
                check.equal(driver.peek("c", "concurrent 9 lease 1h").remaining, 7, f"{engine}: peek, two are held")
                check.equal(driver.code_of("reset", "k"), 0, f"{engine}: reset")
                check.equal(client.call("EXISTS", "weir:k"), 0, f"{engine}: the key is gone")
                check.equal(driver.code_of("settle", "c", FROZEN.format(5), "w1-1700000000000000-1", 3), EUNREACHABLE,
                            f"{engine}: a charge is not made")


def test_show(check):
    """What a key holds, by every engine and from a zone."""
    limits = "token-bucket 10/366d burst 20, fixed-window 50/366d, sliding-log 9/366d, smooth 1/366d"
    rows = {}
    with redis_server.Server(WITH_MODULE) as server:
        for engine in ("module", "lua", "function", "zone"):
            store = address(server, f"{PATIENT}&engine={engine}&prefix={engine}%3A")
            if engine == "zone":
                store = f"file:{server.folder}/zone"
                check.equal(weir("take", "another", limits, "--store", store)[0], 0, "zone: it is there")  # who only looks makes none
            check(weir("show", "k", "--store", store)[1].startswith("k has no state\n"), f"{engine}: nothing")
            check.equal(weir("take", "k", limits, "--cost", "3", "--store", store)[0], 0, f"{engine}: take")
            check.equal(weir("acquire", "k", "concurrent 5 lease 1h", "--cost", "2", "--store", store)[0], 0, f"{engine}: acquire")
            status, said = weir("show", "k", "--json", "--store", store)
            check.equal(status, 0, f"{engine}: show says {said}")
            rows[engine] = {row["algorithm"]: row for row in json.loads(said)["states"]}
            check.equal({name: (row["spent"], row["entries"]) for name, row in rows[engine].items()},
                        {"token-bucket": (3, 0), "fixed-window": (3, 0), "sliding-log": (3, 1), "smooth": (0, 0),
                         "concurrent": (2, 1)}, f"{engine}: spent and entries")
            words = weir("show", "k", "--store", store)[1]
            check("concurrent" in words and "2 used" in words and "1 lease" in words and "expires in" in words, f"{engine}: {words}")
    check.equal(rows["zone"]["token-bucket"]["remaining"], 17, "a zone knows what is left")
    check.equal(rows["zone"]["token-bucket"]["limit"], "token-bucket 10/52w2d burst 20", "and the limit")
    check.equal([rows[engine]["token-bucket"]["count"] for engine in rows], [10] * 4, "all know a bucket's count")
    status, said = weir("show", "k", "--store", f"redis://127.0.0.1:{ports.take()}")
    check(status == 3 and "EUNREACHABLE" in said, f"no server: {status}, {said}")


class Older(Proxy):
    """Before a module that does not know months: it hears another word, of the same length."""

    def change(self, data):
        return data.replace(b"/month", b"/mouth")


def test_older_module(check):
    """A limit that this program knows and the module does not: the error says what to do."""
    with redis_server.Server(WITH_MODULE) as server, Older(server.port) as older:
        status, said = weir("take", "k", "fixed-window 5/month", "--store", address(older))
        check.equal(status, 3, "an older module refuses the limit")
        check.contains(said, "weir_redis.so does not know this limit, it is older than this program: upgrade it first", said)
        check.contains(said, 'found "mouth"', "and what it said")
        check.equal(weir("take", "k", "fixed-window 5/m", "--store", address(older))[0], 0, "but not other limits")
        check.equal(weir("take", "s", "fixed-window 5/month", "--store", address(older, PATIENT + "&engine=lua"))[0], 0,
                    "the scripts know it")


def test_names(check):
    with redis_server.Server() as server, server.client() as client, Driver(address(server)) as driver:
        driver.take("k", FROZEN.format(5))
        check("name=weir" in client.call("CLIENT", "LIST").decode(), "CLIENT LIST names us")


TESTS = [test_module_unloaded, test_module_unloaded_in_a_batch, test_module_comes_and_goes_under_load,
         test_engine_module_without_it, test_library_by_many_at_once, test_library_versions, test_library_without_rights,
         test_script_load_refused, test_misconf_at_open, test_too_many_clients, test_words_reach_the_command_line,
         test_refusals_are_forgotten, test_wrapped_errors, test_giving_back_without_memory, test_show, test_older_module, test_names,
         test_answers_of_another_form, test_slots_of_several_keys]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))
