"""The same servers asked by wrk and h2load, so that nobody need trust the load generator of this folder.

wrk does not pipeline and asks for one key; h2load sends one body. Both take more of the client's core than bench-load:
where they ask for less than the server can do, its CPU time per request is what can be compared.
"""
import re
import statistics
import subprocess
import sys

from . import rows
from .quiet import cpu_seconds
from .servers import CLIENT_CORE, pinned

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def ask(command, pid, pattern):
    """What the client printed, the number in it that the pattern finds, and the CPU seconds of the server."""
    before = cpu_seconds(pid)
    done = subprocess.run(pinned(CLIENT_CORE, command), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    cpu = cpu_seconds(pid) - before
    found = re.search(pattern, done.stdout)
    if done.returncode or not found:
        sys.exit(f"{command[0]} failed:\n{done.stdout}")
    return done.stdout, float(found.group(1)), cpu


def with_wrk(server, seconds):
    url = f"http://127.0.0.1:{server.port}" + rows.path("user:x0000000000", rows.PLENTY)
    text, _, cpu = ask(["wrk", "-t1", "-c50", f"-d{seconds}s", url], server.pid, r"Requests/sec: +([\d.]+)")
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"wrk saw errors:\n{text}")
    requests, took = re.search(r"(\d+) requests in ([\d.]+)s", text).groups()
    return int(requests) / float(took), cpu * 1e6 / int(requests)


def grpc_body(folder):
    """One RateLimitRequest of the domain bench for user=x0000000000, with gRPC's prefix."""
    def field(number, payload):
        return bytes([number << 3 | 2, len(payload)]) + payload
    entry = field(1, b"user") + field(2, b"x0000000000")
    message = field(1, b"bench") + field(2, field(1, entry))
    path = folder / "grpc-body"
    path.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    return path


def with_h2load(server, requests, data):
    text, rate, cpu = ask(
        ["h2load", "-t1", "-c4", "-m16", f"-n{requests}", f"-d{data}", "-H", "content-type: application/grpc", "-H",
         "te: trailers", f"http://127.0.0.1:{server.port}{METHOD}"], server.pid, r"finished in .*?, ([\d.]+) req/s")
    if f"{requests} succeeded" not in text or f"{requests} 2xx" not in text:
        sys.exit(f"h2load saw errors:\n{text}")
    return rate, cpu * 1e6 / requests


def cross(given, servers):
    found = {}
    data = grpc_body(servers.root)
    for _ in range(given.rounds):
        for name in ("nginx", "weir"):
            if name in servers:
                found.setdefault(f"wrk, {name}", []).append(with_wrk(servers[name], max(1, round(given.seconds))))
        if "weir" in servers:
            found.setdefault("h2load, weir", []).append(
                with_h2load(servers["weir"], int(100_000 * given.seconds), data))
    print("\nthe same by wrk (50 connections, one key) and h2load (4 connections, 16 streams each)")
    for name, runs in found.items():
        print(f"  {name:28} {statistics.median(cpu for _, cpu in runs):7.2f} µs "
              f"{statistics.median(rate for rate, _ in runs):12,.0f} a second")
