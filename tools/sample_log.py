#!/usr/bin/env python3
"""Writes examples/access.log.gz: one day of a small shop, in the combined format, always the same.

    tools/sample_log.py examples/access.log.gz

Who is in it:

    users         520 addresses; they come in the morning and in the evening, look at pages, think, look at the next one
    an office     192.0.2.10 is the address of 30 people at work, from 8 to 18
    a scraper     192.0.2.77 reads one product page every 30 s, all day
    every hour    48 shops fetch the prices at the full hour, all within two seconds
    an attack     203.0.113.200 tries passwords at /login, 20 per second, from 14:20 on, for three minutes

The truth is known, so the answer of a tool can be judged: a limit should stop the attack, and should spare the office.
"""
import gzip
import sys
import time

START = 1791763200  # 12 October 2026, 00:00:00 UTC
DAY = 86400
SEED = 20261012

AGENTS = ["Mozilla/5.0 (X11; Linux x86_64) Firefox/143.0", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/141.0",
          "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0) Safari/605.1", "Mozilla/5.0 (Linux; Android 16) Chrome/141.0 Mobile"]
ASSETS = [("/style.css", 4211), ("/shop.js", 18840), ("/logo.svg", 1920), ("/font.woff2", 22110)]
# How much goes on in each hour of the day.
RHYTHM = [2, 1, 1, 1, 1, 2, 4, 7, 9, 10, 10, 9, 11, 10, 8, 8, 9, 10, 12, 14, 15, 13, 8, 4]


class Chance:
    """The same numbers with every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def of(self, choices):
        return choices[self.below(len(choices))]


def moment(chance, rhythm):
    """A second of the day, more often in busy hours."""
    at = chance.below(sum(rhythm))
    for hour, weight in enumerate(rhythm):
        if at < weight:
            return hour * 3600 + chance.below(3600)
        at -= weight
    raise AssertionError("the weights have a sum")


def visit(chance, rows, at, ip, agent, pages):
    """Pages with what belongs to them, and time to think."""
    for page in range(pages):
        path, size = chance.of([("/", 5120), (f"/products/{1 + chance.below(60)}", 8230), ("/search?q=lamp", 6010), ("/cart", 3110)])
        rows.append((at, ip, f"GET {path}", 200, size, agent))
        if page == 0:
            rows.extend((at + 1, ip, f"GET {asset}", 200, bytes_sent, agent) for asset, bytes_sent in ASSETS)
        at += 4 + chance.below(40)
    if chance.below(6) == 0:
        rows.append((at, ip, "POST /login", 401 if chance.below(5) == 0 else 302, 310, agent))


def users(chance, rows):
    for user in range(520):
        ip = f"198.51.100.{1 + user}" if user < 190 else f"2001:db8:{user:x}::{1 + user % 9:x}"
        agent = chance.of(AGENTS)
        for _ in range(1 + chance.below(4)):
            visit(chance, rows, moment(chance, RHYTHM), ip, agent, 2 + chance.below(9))


def office(chance, rows):
    at_work = [weight if 8 <= hour < 18 else 0 for hour, weight in enumerate(RHYTHM)]
    for _ in range(30):
        agent = chance.of(AGENTS[:2])
        for _ in range(7):
            visit(chance, rows, moment(chance, at_work), "192.0.2.10", agent, 3 + chance.below(6))


def scraper(rows):
    rows.extend((at, "192.0.2.77", f"GET /products/{1 + at // 30 % 60}", 200, 8230, "price-reader/2.4") for at in range(5, DAY, 30))


def shops(chance, rows):
    for hour in range(24):
        rows.extend((hour * 3600 + chance.below(2), f"198.51.100.{200 + shop}", "GET /prices.json", 200, 15870, "shop-sync/1.1")
                    for shop in range(48))


def attack(rows):
    begin = 14 * 3600 + 20 * 60
    rows.extend((begin + i // 20, "203.0.113.200", "POST /login", 401, 187, "python-requests/2.32") for i in range(180 * 20))


def log():
    chance, rows = Chance(SEED), []
    users(chance, rows)
    office(chance, rows)
    scraper(rows)
    shops(chance, rows)
    attack(rows)
    rows = [row for row in rows if row[0] < DAY]
    rows.sort(key=lambda row: row[0])  # those of one second stay as they are
    stamp = {at: time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(START + at)) for at in {row[0] for row in rows}}
    return "".join(f'{ip} - - [{stamp[at]}] "{request} HTTP/1.1" {status} {size} "-" "{agent}"\n'
                   for at, ip, request, status, size, agent in rows).encode()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with open(sys.argv[1], "wb") as out:
        out.write(gzip.compress(log(), 9, mtime=0))
