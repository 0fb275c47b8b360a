#!/usr/bin/env python3
"""Floods at full speed into a small zone: keys, limits and names that were never seen before. Memory stays in
bounds, every flooding request is answered, and an honest client's count is exact throughout.

    tests/homes/server/abuse_flood.py [--long] [NAME …]
"""
import itertools
import sys
import time

from lib import abuse_tools, weir_server
from lib.abuse_tools import MIB

PIPELINE = 200
RESP_LINES = 9  # of a reply to WEIR.TAKE
SECONDS = 30 if abuse_tools.is_long() else 2
LEAST = {"resp_long_keys": 600}  # so many requests each attacker sends, however long that takes; the others ENOUGH
ENOUGH = 20000
ZONE = "--store memory:1m --threads 2"
# The program, two threads' buffers and batches, counters for 32768 series, the hottest keys, the zone.
MOST = 48 * MIB

POLICIES = """version: 1
policies:
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-user, key: user, limit: token-bucket 10/s burst 20}
      - {name: per-address, key: [user, header.x-tenant], limit: sliding-window 100/m}
"""


# ---- attackers ----

def pump(port, seconds, batches, count_answers, least=ENOUGH):
    """Sends batches as fast as they are answered, for a time and at least so many; (requests, answers, errors)."""
    end = time.monotonic() + seconds
    asked = answered = failed = 0
    with abuse_tools.connect(port) as it:
        while time.monotonic() < end or asked < least:
            data, count = next(batches)
            it.sendall(data)
            asked += count
            got = errors = 0
            tail = b""
            while got + errors < count:
                part = it.recv(1 << 18)
                if not part:
                    return asked, answered + got, failed + errors
                more, wrong, tail = count_answers(tail + part)
                got, errors = got + more, errors + wrong
            answered, failed = answered + got, failed + errors
    return asked, answered, failed


def count_lines(data):
    """Replies, errors and the rest of RESP: a reply is RESP_LINES lines, an error one."""
    errors = sum(line.startswith(b"-") for line in data.split(b"\r\n")[:-1]) if b"\r\n-" in data or data[:1] == b"-" else 0
    if errors:  # slow, but exact: the replies between them
        lines = data.split(b"\r\n")
        rest = lines.pop()
        replies = at = 0
        while at < len(lines):
            if lines[at].startswith(b"-"):
                at += 1
            elif at + RESP_LINES <= len(lines):
                replies, at = replies + 1, at + RESP_LINES
            else:
                break
        return replies, errors, b"\r\n".join([*lines[at:], rest])
    replies = data.count(b"\r\n") // RESP_LINES
    at = 0
    for _ in range(replies * RESP_LINES):
        at = data.index(b"\r\n", at) + 2
    return replies, 0, data[at:]


def count_statuses(data):
    """Answers of HTTP: 200 and 429 are answers, the others errors."""
    last = data.rfind(b"HTTP/1.1 ")
    cut = last if last >= 0 and len(data) - last < 12 else len(data)  # its status is not there yet
    whole = data[:cut]
    good = whole.count(b"HTTP/1.1 200") + whole.count(b"HTTP/1.1 429")
    return good, whole.count(b"HTTP/1.1 ") - good, data[cut:] or data[-8:]


def words(*parts):
    return b"".join([b"*%d\r\n" % len(parts)] + [b"$%d\r\n%s\r\n" % (len(part), part) for part in parts])


def resp_keys(port, seconds, index):
    def batches():
        for start in itertools.count(0, PIPELINE):
            yield b"".join(words(b"WEIR.TAKE", b"k%d:%d" % (index, start + i), b"token-bucket 10/s")
                           for i in range(PIPELINE)), PIPELINE
    return pump(port, seconds, batches(), count_lines)


def resp_long_keys(port, seconds, index):
    pad = b"x" * 60000

    def batches():
        for number in itertools.count():
            yield words(b"WEIR.TAKE", b"%d:%d:%s" % (index, number, pad), b"token-bucket 10/s"), 1
    return pump(port, seconds, batches(), count_lines, LEAST["resp_long_keys"])


def resp_limits(port, seconds, index):
    def batches():
        for start in itertools.count(1, PIPELINE):
            yield b"".join(words(b"WEIR.TAKE", b"l%d:%d" % (index, start + i), b"token-bucket %d/s" % (start + i))
                           for i in range(PIPELINE)), PIPELINE
    return pump(port, seconds, batches(), count_lines)


def http_keys(port, seconds, index):
    def batches():
        for start in itertools.count(0, PIPELINE):
            yield b"".join(b"GET /v1/take?key=h%d:%d&limit=sliding-window+10/m HTTP/1.1\r\nHost: localhost\r\n\r\n"
                           % (index, start + i) for i in range(PIPELINE)), PIPELINE
    return pump(port, seconds, batches(), count_statuses)


def http_policy_keys(port, seconds, index):
    def batches():
        for start in itertools.count(0, PIPELINE):
            yield b"".join(b"GET /v1/take?attr.path=/api/%d&attr.user=u%d:%d HTTP/1.1\r\nHost: localhost\r\n"
                           b"X-Tenant: t%d\r\n\r\n" % (start, index, start + i, start + i)
                           for i in range(PIPELINE)), PIPELINE
    return pump(port, seconds, batches(), count_statuses)


ATTACKS = {function.__name__: function
           for function in (resp_keys, resp_long_keys, resp_limits, http_keys, http_policy_keys)}


# ---- tests ----

def flood(check, name, attack, options=ZONE, policies=None, errors_expected=False, most=MOST):
    """Runs an attack beside an honest client; what /metrics told at the end."""
    with weir_server.Server(f"{options} --access-log /dev/null", policies=policies) as server:
        with abuse_tools.Watch(server, check, name, most):
            time.sleep(0.2)
            told = abuse_tools.Attack(__file__, attack, server.port, SECONDS, count=2).ends()
        counts = [tuple(map(int, it)) for it in told if len(it) == 3]
        if not check(len(counts) == 2, f"{name}: the attackers: {told}"):
            return {}
        asked, answered, failed = map(sum, zip(*counts))
        check(asked > 1000, f"{name}: only {asked} requests in {SECONDS} s")
        check(answered + failed == asked, f"{name}: {asked} asked, {answered} answered, {failed} refused")
        if not errors_expected:
            check.equal(failed, 0, f"{name}: requests refused")
        values = abuse_tools.metrics(server)
        decided = sum(abuse_tools.total(values, "weir_decisions_total", outcome=it) for it in ("allowed", "denied"))
        check(decided >= answered, f"{name}: {decided} decisions counted of {answered}")
        lines = [abuse_tools.total(values, "weir_access_log_lines_total", result=it)
                 for it in ("written", "dropped", "failed")]
        check(sum(lines) <= decided and lines[0] > 0, f"{name}: {lines} lines of the log, {decided} decisions")
        check(abuse_tools.total(values, "weir_zone_states") <= abuse_tools.total(values, "weir_zone_states_max"),
              f"{name}: more states than there is room for")
        print(f"  {name}: {asked / SECONDS:.0f} requests a second, {failed} refused", flush=True)
        return values


def test_never_seen_keys_over_resp(check):
    values = flood(check, "keys over RESP", "resp_keys")
    check(abuse_tools.total(values, "weir_zone_evictions_total") > 1000, "keys over RESP: evictions are counted")


def test_never_seen_keys_over_http(check):
    values = flood(check, "keys over HTTP", "http_keys")
    check(abuse_tools.total(values, "weir_zone_evictions_total") > 1000, "keys over HTTP: evictions are counted")


def test_never_seen_keys_of_policies(check):
    values = flood(check, "keys of policies", "http_policy_keys", policies=POLICIES)
    check(abuse_tools.total(values, "weir_policy_decisions_total", policy="api") > 1000, "the policy is counted")
    check(abuse_tools.total(values, "weir_zone_evictions_total") > 1000, "keys of policies: evictions are counted")


def test_long_keys(check):
    flood(check, "keys of 60000 bytes", "resp_long_keys")


def test_never_seen_limits(check):
    """A zone knows so many limits at once; the others are refused, and the honest client's is none of them."""
    values = flood(check, "limits", "resp_limits", errors_expected=True)
    check(abuse_tools.total(values, "weir_zone_limits") <= abuse_tools.total(values, "weir_zone_limits_max"),
          "limits: the zone's rows are bounded")


TESTS = [test_never_seen_keys_over_resp, test_never_seen_keys_over_http, test_never_seen_keys_of_policies,
         test_long_keys, test_never_seen_limits]

if __name__ == "__main__":
    sys.exit(abuse_tools.main(TESTS, ATTACKS))
