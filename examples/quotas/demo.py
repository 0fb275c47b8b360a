#!/usr/bin/env python3
"""Two customers of a model that is not there: what they get, what they see, what a crash leaves behind.

    weir serve --policies examples/quotas/plans.yaml
    examples/quotas/demo.py [--weir HOST:PORT] [--now SECONDS]
"""
import argparse
import pathlib
import tempfile
import time

from llm_quota import Denied, Quota


def ask(quota, customer, plan, estimate, actual, enough=1):
    """One answer of the model, which stops at what was granted."""
    try:
        with quota.take(customer, plan, estimate, enough) as grant:
            used = min(actual, grant.granted)
            quota.settle(grant, used)
            print(f"{customer}: {grant.granted} of {estimate} granted, {used} used")
    except Denied as denied:
        print(f"{customer}: {denied}")


def show(quota, customer, plan):
    left = quota.left(customer, plan)
    print(f"{customer}: {left['used']} of {left['limit']} used in {left['period']}, {left['left']} left until {left['resets']}")


def demo(start):
    quota = start()
    ask(quota, "bob", "free", 4000, 1234)
    ask(quota, "ann", "pro", 200_000, 150_000)
    quota.take("bob", "free", 90_000)
    ask(quota, "bob", "free", 50_000, 50_000, enough=20_000)
    print("the program crashes and starts again")
    quota = start()
    quota.recover()
    ask(quota, "bob", "free", 99_000, 99_000)
    ask(quota, "bob", "free", 4000, 4000)
    show(quota, "bob", "free")
    show(quota, "ann", "pro")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", default="127.0.0.1:7311")
    parser.add_argument("--now", type=float, help="instead of the time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo(lambda: Quota(options.weir, pathlib.Path(folder) / "journal.db", "Europe/Berlin", lambda: options.now or time.time()))


if __name__ == "__main__":
    main()
