#!/usr/bin/env python3
"""The redis:// store against a real cluster of three primaries and three replicas: routing, a slot moved under
load, a node that fails over, keys in different slots.

    store_cluster.py [WORD …]    only the tests with such a word in their name
"""
import signal
import sys
import time

from lib import checks
from lib.build import REDIS_MODULE
from lib.redis_cluster import Cluster
from lib.store_client import ESLOTS, SLACK_US, Driver, calm, machine, recovered

ENGINES = (("module", f"--loadmodule {REDIS_MODULE}"), ("lua", ""))


def test_routing(check):
    for name, options in ENGINES:
        with Cluster(options) as cluster, Driver(cluster.url("deadline=30s")) as driver:
            check.equal((driver.code, driver.message), (0, ""), f"{name}: opening")
            degraded = wrong = 0
            for i in range(200):
                d = driver.take(f"user:{i}", "fixed-window 5/366d")
                degraded += d.degraded
                wrong += (d.code, d.allowed, d.remaining) != (0, 1, 4)
            check.equal((degraded, wrong), (0, 0), f"{name}: 200 keys all over the cluster")
            counts = [cluster.clients[i].call("DBSIZE") for i in range(3)]
            check(all(counts) and sum(counts) == 200, f"{name}: every node has its share: {counts}")
            many = driver.call("many", 300, "m", "fixed-window 1/366d")
            check.equal(many[:3], ["0", "300", "0"], f"{name}: a batch over all nodes")
            d = driver.decide("takeall", "a", "fixed-window 5/366d", 1, "b", "fixed-window 5/366d", 1)
            check.equal(d.code, ESLOTS, f"{name}: keys in different slots")
            d = driver.decide("takeall", "{t}a", "fixed-window 5/366d", 1, "{t}b", "fixed-window 5/366d", 1)
            check.equal((d.code, d.allowed, d.degraded), (0, 1, 0), f"{name}: keys with one hash tag")
            d = driver.decide("peekall", "{t}a", "fixed-window 5/366d", 1, "{t}b", "fixed-window 5/366d", 1)
            check.equal((d.code, d.remaining), (0, 4), f"{name}: peeked")
            total = driver.tally("exact", 8, 300, "hot", "token-bucket 1/d burst 500")
            check.equal((total.allowed, total.degraded), (500, 0), f"{name}: exact")


def test_slot_moved(check):
    """A slot goes from one node to another and back, key by key, while it is taken from."""
    for name, options in ENGINES:
        with Cluster(options) as cluster, Driver(cluster.url("deadline=30s")) as driver:
            keys = [f"{{moving}}:{i}" for i in range(20)]
            slot = cluster.slot("weir:" + keys[0])
            limit = "token-bucket 1/d burst 50"
            driver.hammer("{moving}", limit, threads=4, pause_us=200, keys=20)
            time.sleep(0.2)
            source = cluster.owner(slot)
            for target in ((source + 1) % 3, source):
                here = source if target != source else (source + 1) % 3
                move_slot(cluster, slot, here, target)
                time.sleep(0.2)
            calls, end = 0, time.monotonic() + 120
            while calls < 5000 and time.monotonic() < end:  # so that every key is used up
                time.sleep(0.5)
                calls += driver.tally("report").calls
            total = driver.tally("stop")
            check.equal((total.errors, total.degraded), (0, 0), f"{name}: errors, degraded while a slot moved")
            check.at_most(total.worst_us, 30000000 + SLACK_US + total.held_us, f"{name}: the longest call, us")
            check.equal(total.allowed, min(20 * 50, total.calls), f"{name}: admitted of {total.calls}")
            stats = b"".join(client.call("INFO", "errorstats") for client in cluster.clients)
            check(b"errorstat_ASK:" in stats and b"errorstat_MOVED:" in stats, f"{name}: ASK and MOVED came up")


def test_keys_on_their_way(check):
    """Two keys of one call, one moved already: TRYAGAIN until both are there."""
    with Cluster(ENGINES[0][1]) as cluster, Driver(cluster.url("deadline=3s")) as driver:
        two = ("{pair}a", "fixed-window 9/366d", 1, "{pair}b", "fixed-window 9/366d", 1)
        check.equal(driver.decide("takeall", *two).remaining, 8, "on their way: before")
        slot = cluster.slot("weir:{pair}a")
        source = cluster.owner(slot)
        target = (source + 1) % 3
        here, there = cluster.clients[source], cluster.clients[target]
        there.call("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[source])
        here.call("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[target])
        here.call("MIGRATE", "127.0.0.1", cluster.nodes[target].port, "weir:{pair}a", 0, 5000)
        mark = machine.mark()
        d = driver.decide("takeall", *two)
        check.equal((d.code, d.degraded), (0, 1), "on their way: no server could decide")
        check.at_most(d.us, 3000000 + SLACK_US + machine.since_us(mark), "on their way: us")
        check(b"errorstat_TRYAGAIN:" in there.call("INFO", "errorstats") + here.call("INFO", "errorstats"),
              "on their way: TRYAGAIN came up")
        move_slot(cluster, slot, source, target)
        d = driver.decide("takeall", *two)
        check.equal((d.code, d.degraded, d.remaining), (0, 0, 7), "on their way: afterwards")


def move_slot(cluster, slot, source, target):
    clients, ids = cluster.clients, cluster.ids
    clients[target].call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    clients[source].call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    while True:
        keys = clients[source].call("CLUSTER", "GETKEYSINSLOT", slot, 3)
        if not keys:
            break
        for key in keys:
            clients[source].call("MIGRATE", "127.0.0.1", cluster.nodes[target].port, key, 0, 5000)
            time.sleep(0.01)
    for i in (target, source, *(j for j in range(3) if j not in (source, target))):
        clients[i].call("CLUSTER", "SETSLOT", slot, "NODE", ids[target])


def fail_over(check, name, options, harm):
    with Cluster(options, node_timeout_ms=3000) as cluster, Driver(cluster.url()) as driver:
        key = "load"
        victim = cluster.owner(cluster.slot("weir:" + key))
        driver.hammer(key, "token-bucket 1/d burst 100")
        time.sleep(0.5)
        cluster.wait(lambda: cluster.has_copied(victim))
        harm(cluster.nodes[victim])
        cluster.wait(lambda: b"role:master" in cluster.clients[victim + 3].call("INFO", "replication"))
        took = recovered(lambda: not driver.take(key, "fixed-window 1g/h").degraded)
        check(took is not None, f"{name}: soon after the promotion")
        after = calm(driver)
        check.equal((after.errors, after.code), (0, 0), f"{name}: errors afterwards, and the last one")
        check.at_most(after.degraded, after.calls // 20, f"{name}: degraded afterwards, of {after.calls}")
        total = driver.tally("stop")
        check.equal((total.errors, total.code), (0, 0), f"{name}: errors, and the last one")
        check.at_most(total.worst_us, 50000 + SLACK_US + total.held_us, f"{name}: the longest call, us")
        check(total.degraded > 0, f"{name}: decisions were degraded meanwhile")
        # the server's 100 and the local fallback's 100; what the replica had not heard of is admitted again
        check.at_most(total.allowed, 250, f"{name}: admitted")
        check(driver.take("elsewhere", "fixed-window 5/366d").code == 0, f"{name}: other keys")


def test_node_killed(check):
    for name, options in ENGINES:
        fail_over(check, f"killed, {name}", options, lambda node: node.kill())


def test_node_stopped(check):
    fail_over(check, "stopped", ENGINES[0][1], lambda node: node.signal(signal.SIGSTOP))


def test_slots_without_a_node(check):
    """Keys of slots that no node has are decided by the fallback, and the store says why. A server that has not heard of a node
    is no reason to wait for long: another one is asked soon."""
    with Cluster("--cluster-require-full-coverage no") as cluster, Driver(cluster.url("deadline=10s")) as driver:
        keys = [next(f"k{i}" for i in range(100) if cluster.owner(cluster.slot(f"weir:k{i}")) == node) for node in range(3)]
        degraded = lambda: [driver.take(key, "fixed-window 1k/366d").degraded for key in keys]
        check.equal(degraded(), [0, 0, 0], "all slots have a node")
        for client in cluster.clients:
            client.call("CLUSTER", "DELSLOTSRANGE", 5461, 10922)
        cluster.nodes[2].kill()  # so that the map is read again
        cluster.nodes[2].start()
        checks.until("gaps", lambda: "5462 of 16384 slots of the cluster have no node" in " ".join(driver.call("check")))
        check.equal(degraded()[:2], [0, 1], "those of the others are decided")
        cluster.clients[1].call("CLUSTER", "ADDSLOTSRANGE", 5461, 10922)
        took = recovered(lambda: degraded() == [0, 0, 0])
        check(took is not None, "soon after there is a node")


def test_through_a_replica(check):
    """The address names a replica only: the map is learnt from it all the same."""
    with Cluster(ENGINES[0][1]) as cluster, Driver(cluster.url(first=4)) as driver:
        check(recovered(lambda: not driver.take("k", "fixed-window 100/h").degraded) is not None,
              "through a replica: decided")


TESTS = [test_routing, test_slot_moved, test_keys_on_their_way, test_slots_without_a_node, test_node_killed, test_node_stopped, test_through_a_replica]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))
