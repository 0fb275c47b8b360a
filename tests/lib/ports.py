#!/usr/bin/env python3
"""Ports for tests that run side by side: take() gives one that no other test gets while this process lives.

    port = ports.take()         nobody listens on it, nor on the one ten thousand above it, where a cluster's bus is
    ports.give_back(port)       at the end of the process at the latest

Both are outside of those that the system gives to connections by itself, so that none of these is in the way when a server
comes back to its port. A port is claimed by an abstract Unix socket of its name: such names live in the same network
namespace as ports do, and end with the process that holds them, however it ends.

As a program: prints a port and holds it until its input ends.
"""
import functools
import pathlib
import random
import socket
import sys

BUS = 10000  # a cluster's bus is so far above
FIRST = 10000  # above those that people use
ENOUGH = 1000
claims = {}  # by port: the sockets that hold it


@functools.lru_cache
def usable():
    """Ports that may be given, with their bus."""
    try:
        low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except OSError:
        low, high = 32768, 60999
    # a number that is not round: the documentation's tests find ports in what is printed
    every = [port for port in range(FIRST, 65536 - BUS) if port % 5 and port & (port - 1) and port != 12345]
    found = [port for port in every if not (low <= port <= high or low <= port + BUS <= high)]
    return found if len(found) >= ENOUGH else every  # where connections may have them all, the claim is what is left


def claim(port):
    """A socket that says that the port is ours, or None."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0weir-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("", port))
        return name
    except OSError:
        name.close()
        return None


def take():
    chance, choice = random.SystemRandom(), usable()
    while True:
        port = chance.choice(choice)
        held = [claim(port), claim(port + BUS)]
        if all(held):
            claims[port] = held
            return port
        for it in filter(None, held):
            it.close()


def give_back(port):
    for it in claims.pop(port, ()):
        it.close()


if __name__ == "__main__":
    print(take(), flush=True)
    sys.stdin.read()
