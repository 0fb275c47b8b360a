#!/usr/bin/env python3
"""The example of docs/BUDGETS.md under load: 50 clients of a server that streams tokens within its budgets.

    budget_example.py [--seed N]

The clock stands still while they run, so what each limit allows is a number. Held to this: at no decision were more
tokens granted than every limit had left, and at the end each limit was charged exactly what was used, by those who
finished, were cut off, went away, or sent a settle again because its answer was lost. Who died left his estimate
charged, and his slots held until the lease ended.
"""
import argparse
import collections
import http.client
import json
import random
import sys
import threading

from lib import checks, http_client, weir_server
from lib.build import ROOT

FOLDER = ROOT / "examples" / "budgets"
sys.path.insert(0, str(FOLDER))

import chat  # noqa: E402
import weir_budget  # noqa: E402

CLIENTS, USERS, ASKS, ROUNDS = 50, 25, 4, 2
BASE = 1_700_000_000
USER, MONTH, ORG, EVERYBODY, SLOTS = 4_000, 200_000, 60_000, 70_000, 5
LOST = 0.2  # of the answers to settles


class Ledger:
    """What each limit of a minute was charged, at most: grants count when they are told, refunds when they are sent."""

    def __init__(self, rng, check):
        self.rng, self.check, self.lock = rng, check, threading.Lock()
        self.used = collections.Counter()    # by who, for good
        self.minute = collections.Counter()  # by who, since the round began
        self.lost = collections.Counter()    # answers, by receipt
        self.counts = collections.Counter()

    @staticmethod
    def payers(attributes):
        return ((attributes["user"], USER), (attributes["org"], ORG), ("everybody", EVERYBODY))

    def granted(self, attributes, amount):
        with self.lock:
            self.counts["grants"] += 1
            for who, most in self.payers(attributes):
                self.used[who] += amount
                self.minute[who] += amount
                if self.minute[who] > most:
                    self.check(False, f"{who} was granted {self.minute[who]} of {most}")

    def refunded(self, attributes, amount):
        with self.lock:
            for who, _ in self.payers(attributes):
                self.used[who] -= amount
                self.minute[who] -= amount

    def loses(self, receipt):
        """Whether the answer to a settle is lost: as often as the example sends it again, less one."""
        with self.lock:
            lost = self.lost[receipt] < weir_budget.RETRIES - 1 and self.rng.random() < LOST
            self.lost[receipt] += lost
            return lost


def watched(ledger):
    """The example's budget, whose every step is written down; some answers to settles are lost."""
    class Watched(weir_budget.Budget):
        def _take(self, *words):
            answer = super()._take(*words)
            if answer["allowed"]:
                ledger.granted(self.attributes, answer["granted"])
            return answer

        def _again(self, verb, body):
            if verb == "settle":
                granted, = [grant.granted for grant in self.grants if grant.receipt == body["receipt"]]
                ledger.refunded(self.attributes, granted - body["actual"])
            return super()._again(verb, body)

        def _ask(self, verb, body):
            answer = super()._ask(verb, body)
            if verb == "settle" and ledger.loses(body["receipt"]):
                raise http.client.HTTPException("the answer was lost")
            return answer
    return Watched


def who(number):
    """The last two are those who die."""
    user = number % USERS if number < CLIENTS else number
    return {"user": f"user{user}", "org": "large" if user < 20 else "small"}


def client(port, number, seed, ledger):
    rng = random.Random(seed)
    for _ in range(ASKS):
        prompt, answer = rng.randint(1, 200), rng.choice((5, 300, 900, 2500))
        if rng.random() < 0.15:  # goes away while the answer comes
            gone = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            gone.request("POST", "/v1/chat", json.dumps(dict(who(number), prompt=prompt, answer=answer)))
            gone.getresponse().read(10)
            gone.close()
            continue
        end, words = chat.chat(port, prompt=prompt, answer=answer, **who(number))
        tokens = len(words) + prompt if end["end"] != "denied" else 0
        with ledger.lock:
            ledger.counts[end["end"]] += 1
        ledger.check(end.get("tokens", 0) == tokens and (end["end"] == "stop") == (len(words) == answer),
                     f"{end} with {len(words)} words of {answer}")


def one_round(server, ledger, seed):
    """Fifty clients until they are done, and everybody whom the chat server still serves."""
    talk = chat.Server(0, f"127.0.0.1:{server.port}")
    talk.daemon_threads = False  # so that its end waits for those who went away
    serving = threading.Thread(target=talk.serve_forever)
    serving.start()
    clients = [threading.Thread(target=client, args=(talk.server_address[1], i, f"{seed} {i}", ledger)) for i in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    talk.shutdown()
    serving.join()
    talk.server_close()


def remaining(http, attributes):
    """What is left, by the name of the limit."""
    body = {"attributes": {"path": "/v1/chat", "phase": "start", **attributes}, "cost": 0, "detail": True}
    return {row["name"]: row["remaining"] for row in http.post("/v1/peek", body).json["limits"]}


def compare(http, check, ledger, where, held):
    for number in (*range(USERS), CLIENTS, CLIENTS + 1):
        user, org = who(number)["user"], who(number)["org"]
        left = remaining(http, who(number))
        wanted = {"tokens": USER - ledger.minute[user], "month": MONTH - ledger.used[user], "org": ORG - ledger.minute[org],
                  "everybody": EVERYBODY - ledger.minute["everybody"], "slots": SLOTS - held[user]}
        check.equal({name: left[name] for name in wanted}, wanted, f"{where}: {user}, what was settled is what was used")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=checks.seed())
    options = parser.parse_args()
    print(f"seed {options.seed}")
    check = checks.Checks()
    ledger = Ledger(random.Random(options.seed), check)
    chat.Budget = watched(ledger)
    held = collections.Counter()
    with weir_server.Server(f"--test-clock --policies {FOLDER}/policies.yaml") as server, http_client.Client(server.port) as http:
        for number in range(ROUNDS):
            http.post("/v1/clock", {"now": BASE + 61 * number})
            ledger.minute.clear()
            dying = chat.Budget(f"127.0.0.1:{server.port}", {"path": "/v1/chat", **who(CLIENTS + number)})
            dying.start(700, enough=1)
            dying.close()
            held[who(CLIENTS + number)["user"]] += 1
            one_round(server, ledger, f"{options.seed} {number}")
            compare(http, check, ledger, f"round {number}", held)
        http.post("/v1/clock", {"now": BASE + 61 * ROUNDS + 600})
        ledger.minute.clear()
        compare(http, check, ledger, "after the lease", collections.Counter())
    print(dict(ledger.counts))
    check(ledger.counts["budget"] > 0 and ledger.counts["stop"] > 0 and ledger.counts["denied"] > 0, "all ends were met")
    check(max(ledger.lost.values()) == 2, "answers were lost, some of them twice")
    return check.end()


if __name__ == "__main__":
    sys.exit(main())
