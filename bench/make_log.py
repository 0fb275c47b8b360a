#!/usr/bin/env python3
"""Writes a combined access log to standard output, the same one for the same numbers.

    bench/make_log.py BYTES [SEED]

Users come and go over one day, a few of them are heavy, paths and agents are as long as real ones.
"""
import random
import sys
import time

MIDNIGHT = 1794787200                # 2026-11-16 00:00:00 UTC
USERS = 200_000


def parts(draw):
    """What lines are put together from: addresses, and all behind the time."""
    users = [f"{draw.randint(1, 223)}.{draw.randint(0, 255)}.{draw.randint(0, 255)}.{draw.randint(1, 254)}" for _ in range(USERS)]
    heavy = [f"198.51.100.{i}" for i in range(1, 40)]
    agents = ["Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "curl/8.9.1",
              "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36"]
    ends = []
    for _ in range(5000):
        method = draw.choice(["GET"] * 8 + ["POST", "HEAD"])
        path = draw.choice(["/", "/login", "/api/v1/items?page=%d" % draw.randint(1, 90), "/users/%d/edit" % draw.randint(1, 9999),
                            "/static/app.%08x.js" % draw.getrandbits(32)])
        status = draw.choice([200] * 12 + [301, 304, 404, 500])
        ends.append(f'] "{method} {path} HTTP/1.1" {status} {draw.randint(0, 60000)} "https://example.com/" "{draw.choice(agents)}"\n')
    return users, heavy, ends


def main():
    size, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    draw = random.Random(seed)
    users, heavy, ends = parts(draw)
    a_line = 25 + sum(map(len, ends)) // len(ends) + 31
    seconds = 86400
    per_second = max(1, size // a_line // seconds)
    written = 0
    for second in range(seconds):
        stamp = " - - [" + time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(MIDNIGHT + second))
        here = users[second * 2 % USERS:second * 2 % USERS + 4000] or users
        lines = [draw.choice(heavy if draw.random() < 0.1 else here) + stamp + draw.choice(ends) for _ in range(per_second)]
        text = "".join(lines)
        sys.stdout.write(text)
        written += len(text)
        if written >= size:
            return
    while written < size:            # what rounding left
        line = draw.choice(heavy) + stamp + draw.choice(ends)
        sys.stdout.write(line)
        written += len(line)


main()
