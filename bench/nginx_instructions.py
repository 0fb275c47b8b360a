"""Instructions that a request takes in nginx's process, by valgrind's callgrind, and which functions have them. For
bench/nginx.py. What the kernel does is not in it, nor what memory costs; but the figures are the same on a busy machine.
"""
import collections
import random
import re
import subprocess
import sys

import nginx_rows
from nginx_rows import FIRST_KEY

REQUESTS, TIMES, KEYS = 100, 3, 2_000
LEAST = 5  # instructions; functions with fewer are not shown


def dump(nginx):
    """Has callgrind write down what was done since it last did; the file."""
    subprocess.run(["callgrind_control", "-d", str(nginx.process.pid)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return max(nginx.folder.glob("callgrind.*.*"), key=lambda path: int(path.suffix[1:]))


def by_function(path):
    """Instructions of each function itself, from a dump: cost lines are its own but for the one after calls=."""
    costs, names, function, is_call = collections.Counter(), {}, "", False
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith(("fn=", "cfn=")):
            number, _, name = line.partition("=")[2].partition(" ")
            names.setdefault(number, name)
            function = names[number] if line.startswith("fn=") else function
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[+*\-\d]", line):
            costs[function] += 0 if is_call else int(line.split()[1])
            is_call = False
    return costs


def ask(client, row, times):
    for _ in range(times):
        status = client.get(f"/?k={FIRST_KEY + (random.randrange(KEYS) if row.many else 0)}").status
        if status != (429 if row.denied else 200):
            sys.exit(f"{row.title}: answered with {status}")


def measure(nginx, row):
    """The middle one of some measurements: now and then nginx does something else as well, such as a tick of its clock."""
    found = []
    with nginx.client(row.port_name) as client:
        ask(client, row, REQUESTS)  # symbols are resolved
        for _ in range(TIMES):
            dump(nginx)
            ask(client, row, REQUESTS)
            found.append(by_function(dump(nginx)))
    found.sort(key=lambda costs: costs.total())
    return collections.Counter({name: cost / REQUESTS for name, cost in found[TIMES // 2].items()})


def show(build, rows, with_functions):
    print(f"\ninstructions per request in nginx's process (one after the other; where keys are random, {KEYS:,} of them)")
    random.seed(1)
    found = {}
    options = dict(master=False, command=["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=callgrind.%p"])
    with nginx_rows.start_rows(build, rows, **options) as nginx:
        for row in rows:
            for _ in range(5):  # limit_req, at 1r/m, denies for as many minutes
                nginx_rows.fill(nginx, row, row.keys[:KEYS])
        for row in rows:
            found[row] = measure(nginx, row)
    for group in dict.fromkeys(row.group for row in rows):
        show_group([row for row in rows if row.group == group], found, with_functions)


def show_group(rows, found, with_functions):
    print(f"  {rows[0].title.rpartition(', ')[0]:32} {'all':>8} {'over ' + rows[0].name:>16} {'x own':>6}")
    extra = {row.name: found[row].total() - found[rows[0]].total() for row in rows}
    for row in rows:
        own = f"{extra[row.name] / extra[row.against]:6.2f}" if extra.get(row.against) else ""
        print(f"    {row.name:30} {found[row].total():8,.0f} {extra[row.name]:+16,.0f} {own}")
        if with_functions and row is not rows[0]:
            more = {name: found[row][name] - found[rows[0]][name] for name in set(found[row]) | set(found[rows[0]])}
            for name in sorted(more, key=lambda name: -abs(more[name])):
                if abs(more[name]) >= LEAST:
                    print(f"      {more[name]:+8.0f}  {name}")
