#!/usr/bin/env python3
"""Holds Envoy's rate limit service, asked as POST /json, to the golden vectors.

Every case that such a request can say is played: one limit text, takes that do not wait (Envoy cannot delay a
request, and its configuration has no leases). Each limit is a descriptor with `limit:`, each case a value of its own
below it. Compared is what an answer tells: allowed, what is left, and when to come again or when all is as new.
"""
import json
import re
import sys

from lib import build, checks, http_client, weir_server
import vectors

UINT32_MAX = 2 ** 32 - 1
SHAPES = re.compile(r"leaky-bucket|smooth|warmup|concurrent")


def playable(steps):
    """The cases, each with its takes, that a rate limit request can say."""
    cases = {}
    for step in steps:
        cases.setdefault(step.key, []).append(step)
    for key, case in cases.items():
        texts = {step.canonical for step in case}
        takes = [step for step in case if step.verb == "take"]
        plain = all(step.verb in ("take", "peek") for step in case) and all(
            vectors.WAITS.get(step.wait, step.wait) in (None, 0) and not step.least for step in takes)
        if len(texts) == 1 and plain and takes and not SHAPES.search(case[0].canonical):
            yield key, case[0].canonical, takes


def configuration(texts):
    lines = ["domain: vectors", "descriptors:"]
    for i, text in enumerate(texts):
        lines += [f"  - key: limit\n    value: \"{i}\"\n    descriptors:\n      - key: case\n        limit: \"{text}\""]
    return "\n".join(lines) + "\n"


def request(index, key, cost):
    entries = [{"key": "limit", "value": str(index)}, {"key": "case", "value": key}]
    body = {"domain": "vectors", "descriptors": [{"entries": entries, "hitsAddend": str(cost)}]}
    return http_client.post("/json", body)


def microseconds(duration):
    seconds, _, parts = duration.removesuffix("s").partition(".")
    return int(seconds) * 1000000 + int(parts.ljust(9, "0")[:6] or 0)


def compare(check, step, answer):
    allowed, _, remaining, retry_after, reset_after, _ = step.six
    check.equal(answer.status, 200 if allowed else 429, f"{step.place}: status")
    status = json.loads(answer.body)["statuses"][0]
    check.equal(status["code"], "OK" if allowed else "OVER_LIMIT", f"{step.place}: code")
    check.equal(status.get("limitRemaining", 0), min(remaining, UINT32_MAX), f"{step.place}: remaining")
    until = reset_after if allowed else retry_after
    if until >= 0:
        until = -(-until // 1_000_000) * 1_000_000  # Envoy drops what is less than a second
        check.equal(microseconds(status.get("durationUntilReset", "0s")), until, f"{step.place}: until")


def main():
    reader, check = vectors.Reader(), checks.Checks()
    for path in build.vectors():
        reader.read(path)
    cases = list(playable(reader.steps))
    texts = sorted({text for _, text, _ in cases})
    files = {"envoy.yaml": configuration(texts)}
    with weir_server.Server("--test-clock --envoy envoy.yaml", files=files) as server, \
            http_client.Client(server.port) as client:
        for key, text, takes in cases:
            index = texts.index(text)
            asked = [(step, part) for step in takes
                     for part in (http_client.post("/v1/clock", {"now": http_client.Number(http_client.seconds(step.time))}),
                                  request(index, key, step.cost))]
            answers = client.pipeline([part for _, part in asked])
            for (step, _), answer in list(zip(asked, answers))[1::2]:
                compare(check, step, answer)
    print(f"{len(cases)} cases of {len(texts)} limits")
    check(len(cases) > 50, f"only {len(cases)} cases could be played")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
