#!/usr/bin/env python3
"""The redis:// store with and without slices, one hot key, two processes (make bench-redis).

    bench/redis_slices.py [--rounds N] [--seconds S] [--engine module|lua] [--library] [--server] [--nginx]

Rows are measured in turns, with and without slices in each round; a figure is the median of the rounds. Redis counts its own
commands (INFO commandstats). The slices are those of ten peers of 5 % of 100,000/s, so that one process holds at most 500
units. Nothing here fails on a time; an aim that is missed is printed as well.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from lib import nginx_server, redis_server, weir_server  # noqa: E402
from lib.build import REDIS_MODULE, WEIR  # noqa: E402

LIMIT, RATE = "token-bucket 100000/s", 100_000
SLICES = "&slices=5%&peers=10"
PROCESSES = 2
# name, times the limit (0: as fast as they are answered), threads of each process
ROWS = [("0.5 times the limit", 0.5, 1), ("0.9 times the limit", 0.9, 1), ("1.5 times the limit", 1.5, 1), ("5 times the limit", 5, 1),
        ("as fast as they can", 0, 1), ("as fast as they can, 16 threads each", 0, 16)]
SERVED = [("RESP, pipelined 16", "resp", 16), ("RESP, one at a time", "resp", 1), ("HTTP, pipelined 16", "http", 16),
          ("HTTP, one at a time", "http", 1)]
NGINX = [("allowed", "token-bucket 100m/s"), ("most denied", "token-bucket 1000/s")]
COMMANDS = {"resp": ["WEIR.TAKE", "hot", LIMIT], "http": ["GET", "/v1/take?key=hot&limit=" + LIMIT.replace(" ", "%20")]}


def commands(redis):
    """Commands that decide, as Redis counts them."""
    with redis.client() as admin:
        lines = admin.call("INFO", "commandstats").decode().split()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines
               if line.startswith(("cmdstat_eval", "cmdstat_fcall", "cmdstat_weir")))


def url_of(redis, sliced):
    return f"redis://127.0.0.1:{redis.port}?deadline=1s{SLICES if sliced else ''}"


def drain(redis, sliced):
    """Takes what a burst would give, so that what is over the limit is denied from the first moment on."""
    subprocess.run([WEIR, "take", "hot", LIMIT, "--cost", str(RATE * (95 if sliced else 100) // 100), "--least", "1",
                    "--store", url_of(redis, sliced)], stdout=subprocess.DEVNULL)


def take(program, redis, sliced, row, seconds):
    """Two processes at once: what each printed, and how many commands Redis saw meanwhile."""
    _, times, threads = row
    rate = times * RATE / PROCESSES
    processes = [subprocess.Popen([program, url_of(redis, sliced), LIMIT, str(seconds), str(rate), str(threads)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    for process in processes:
        if process.stdout.readline() != "ready\n":
            sys.exit("bench-slices does not start")
    if times == 0 or times > 1:
        drain(redis, sliced)
    before = commands(redis)
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    lines = [[float(word) for word in process.stdout.readline().split()] for process in processes]
    seen = commands(redis) - before
    for process in processes:
        process.stdin.close()
        process.wait()
    takes, allowed, local, degraded = (sum(line[i] for line in lines) for i in range(4))
    return {"rate": sum(line[0] / line[4] for line in lines), "allowed": sum(line[1] / line[4] for line in lines), "takes": takes,
            "degraded": degraded, "per_command": takes / max(1, seen),
            "p50": statistics.mean(line[5] for line in lines), "p99": max(line[6] for line in lines),
            "p999": max(line[7] for line in lines)}


def serve(program, redis, sliced, row, seconds):
    """One server, asked over the network."""
    _, protocol, pipeline = row
    with weir_server.Server(["--store", url_of(redis, sliced), "--threads", "1"]) as server:
        ask = [program, "--port", str(server.port), "--proto", protocol, "--pipeline", str(pipeline), "--keys", "1",
               "--cpu-of", str(server.process.pid)]
        subprocess.run([*ask, "--seconds", "0.3", "--", *COMMANDS[protocol]], check=True, stdout=subprocess.DEVNULL)
        before = commands(redis)
        answer = json.loads(subprocess.run([*ask, "--seconds", str(seconds), "--", *COMMANDS[protocol]],
                                           check=True, stdout=subprocess.PIPE, text=True).stdout)
        seen = commands(redis) - before
    if answer["others"] or answer["errors"]:
        sys.exit(f"answers other than decisions: {answer}")
    return {"rate": answer["a_second"], "cpu_us": answer["server_cpu_us"] / answer["requests"],
            "per_command": answer["requests"] / max(1, seen)}


def cpu_seconds(pids):
    """What these processes have worked."""
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def ask_nginx(_, redis, sliced, row, seconds):
    """One nginx with two workers, asked by wrk."""
    _, limit = row
    server = f'location / {{ empty_gif; weir_log_level info; weir_limit key=hot zone=z "{limit}"; }}'
    http = (f"error_log {{folder}}/crit.log crit; keepalive_requests 1000000000; weir_zone z 1m;\nweir_store {url_of(redis, sliced)};")
    with nginx_server.Nginx(http, server, workers=2, listen="reuseport") as nginx:
        wrk = ["wrk", "-t", "1", "-c", "50", nginx.url("/")]
        subprocess.run([*wrk, "-d", "1s"], check=True, stdout=subprocess.DEVNULL)
        workers = nginx.workers()
        before, cpu = commands(redis), cpu_seconds(workers)
        said = subprocess.run([*wrk, "-d", f"{math.ceil(seconds)}s"], check=True, stdout=subprocess.PIPE, text=True).stdout
        seen, cpu = commands(redis) - before, cpu_seconds(workers) - cpu
    requests = int(re.search(r"(\d+) requests in", said)[1])
    if "Socket errors" in said:
        sys.exit(f"wrk: {said}")
    return {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), "cpu_us": cpu * 1e6 / requests,
            "per_command": requests / max(1, seen)}


def median(rounds, name):
    return statistics.median(each[name] for each in rounds)


def aim(met, text):
    return f"{text}: {'met' if met else 'MISSED'}"


def show_library(results):
    print(f"\nthe library, {PROCESSES} processes, one hot key, {LIMIT}; without and with slices (h = 500)")
    print(f"  {'':38} {'decisions a second':>24} {'allowed a second':>20} {'a command':>14} {'p50, p99, p99.9 of a call, µs':>44}")
    for row in ROWS:
        for sliced in (False, True):
            rounds = results[row[0], sliced]
            times = ", ".join(f"{median(rounds, name) / 1000:.2f}" for name in ("p50", "p99", "p999"))
            print(f"  {row[0] if not sliced else '  with slices':38} {median(rounds, 'rate'):24,.0f} {median(rounds, 'allowed'):20,.0f} "
                  f"{median(rounds, 'per_command'):14,.1f} {times:>44}" + (f"  {median(rounds, 'degraded'):.0f} degraded"
                                                                        if median(rounds, "degraded") else ""))
    fast = ROWS[4][0]
    gain = statistics.median(one["rate"] / two["rate"] for one, two in zip(results[fast, True], results[fast, False]))
    under, over = (median(results[ROWS[i][0], True], "per_command") for i in (1, 2))
    print("  " + "; ".join((aim(gain >= 50, f"{gain:.0f} times as many decisions (aim 50)"),
                            aim(under >= 150, f"{under:.0f} decisions a command under the limit (aim 150)"),
                            aim(over >= 60, f"{over:.0f} over it (aim 60)"),
                            aim(median(results[ROWS[1][0], True], "p99") < 5000, "p99 of a call under 5 µs"))))


def show_server(results):
    show_requests(f"weir serve in front of one Redis, one thread, one hot key, {LIMIT}", SERVED, results)


def show_nginx(results):
    show_requests("nginx in front of one Redis, two workers, one hot key, HTTP/1.1 one at a time", NGINX, results)


def show_requests(title, rows, results):
    print(f"\n{title}, 50 connections; without and with slices")
    for row in rows:
        plain, sliced = results[row[0], False], results[row[0], True]
        gain = statistics.median(two["rate"] / one["rate"] for one, two in zip(plain, sliced))
        print(f"  {row[0]:22} {median(plain, 'rate'):12,.0f} requests a second, {median(sliced, 'rate'):12,.0f} with slices ({gain:.1f} times); "
              f"server CPU {median(plain, 'cpu_us'):.1f} and {median(sliced, 'cpu_us'):.1f} µs each; "
              f"a command of Redis decides {median(plain, 'per_command'):.1f} and {median(sliced, 'per_command'):,.0f}")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--engine", choices=("module", "lua"), default="module")
    options.add_argument("--library", action="store_true", help="only the library")
    options.add_argument("--server", action="store_true", help="only the server")
    options.add_argument("--nginx", action="store_true", help="only nginx")
    given = options.parse_args()
    build = ROOT / "build"
    subprocess.run(["ninja", "-C", str(build), "bench/bench-slices", "bench/bench-load"], check=True, stdout=subprocess.DEVNULL)
    every = not (given.library or given.server or given.nginx)
    parts = [(take, ROWS, "bench-slices", show_library)] if every or given.library else []
    parts += [(serve, SERVED, "bench-load", show_server)] if every or given.server else []
    parts += [(ask_nginx, NGINX, "", show_nginx)] if every or given.nginx else []
    for measure, rows, program, show in parts:
        results = {(row[0], sliced): [] for row in rows for sliced in (False, True)}
        for _ in range(given.rounds):
            for row in rows:
                for sliced in (False, True):
                    module = f"--loadmodule {REDIS_MODULE}" if given.engine == "module" else ""
                    with redis_server.Server(module) as redis:
                        results[row[0], sliced].append(measure(str(build / "bench" / program), redis, sliced, row, given.seconds))
        show(results)


if __name__ == "__main__":
    main()
