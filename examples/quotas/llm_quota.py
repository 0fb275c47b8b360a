"""LLM tokens by plan and calendar month, with the limits of `plans.yaml`. Only the standard library is needed.

    quota = Quota("127.0.0.1:7311", "journal.db", "Europe/Berlin")
    with quota.take("bob", "free", 4000, enough=500) as grant:  # raises Denied, or OSError: nobody knows whether it was charged
        answer = model(max_tokens=grant.granted)                # if it raises, the answer costs nothing
        quota.settle(grant, answer.tokens)
    quota.left("bob", "free")

What holds: the receipt is in the journal before the model is called. So recover(), called at every start and every minute, settles
what a crash or an outage left open; each process has a journal of its own. Only a charge whose answer was lost has no receipt: it
stays until the period ends, or support refunds it. So a take is never sent again.
"""
import collections
import datetime
import http.client
import json
import sqlite3
import threading
import time
import zoneinfo

SETTLE_SECONDS = 3600  # a settle that is sent again later may count twice
SOON_SECONDS = 1       # when to ask again while answers of the same customer are not settled


class Grant(collections.namedtuple("Grant", "receipt granted quota")):
    """What an answer may need. What the block ends without settling costs nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.receipt in self.quota.running:
            self.quota.settle(self, 0)


class Denied(Exception):
    """Nothing was charged. limit: "minute" or "month"; retry_after: seconds, or None for never. Look at the reason before you blame
    the customer: "full" is a store without room."""

    def __init__(self, reason, limit, retry_after):
        again = "never again" if retry_after is None else f"again in {retry_after:.0f} s"
        super().__init__(f"denied by {limit}: {reason}, {again}")
        self.reason, self.limit, self.retry_after = reason, limit, retry_after


class Quota:
    def __init__(self, weir, journal, zone, now=time.time):
        self.weir, self.zone, self.now = weir, zoneinfo.ZoneInfo(zone), now
        self.lock, self.running = threading.Lock(), set()  # receipts of answers that are still written
        self.journal = sqlite3.connect(journal, isolation_level=None, check_same_thread=False)
        self._sql("create table if not exists grants (receipt text primary key, customer text, attributes text, at real, actual int, end text)")

    def period(self):
        """The month in the customers' zone, like 2026-11, and when the next one begins."""
        today = datetime.datetime.fromtimestamp(self.now(), self.zone)
        following = datetime.datetime(today.year + today.month // 12, today.month % 12 + 1, 1, tzinfo=self.zone)
        return f"{today:%Y-%m}", following

    def take(self, customer, plan, tokens, enough=1):
        attributes, following = self._attributes(customer, plan, tokens=tokens, enough=enough)
        answer = self._ask("take", {"attributes": attributes, "detail": True})
        if "allowed" not in answer:  # a mistake of ours
            raise RuntimeError(answer.get("detail", answer))
        if not answer["allowed"]:
            raise self._denied(answer, attributes, following.timestamp() - self.now())
        self.running.add(answer["receipt"])
        self._sql("insert into grants values (?, ?, ?, ?, null, null)", answer["receipt"], customer, json.dumps(attributes), self.now())
        return Grant(answer["receipt"], answer["granted"], self)

    def settle(self, grant, actual):
        """Charges what the answer really cost. If weir is away or refuses, recover() does it later."""
        self._sql("update grants set actual = ? where receipt = ?", actual, grant.receipt)
        self.running.discard(grant.receipt)
        try:
            self._settle(grant.receipt)
        except (OSError, http.client.HTTPException):
            pass

    def recover(self):
        """Settles what is open; an answer that a crash ended costs nothing. What weir cannot settle now is tried again. Returns the
        receipts that were sent once and are too old to be sent again, or no longer valid: look at them, and refund them."""
        lost = []
        for receipt, at, sent in self._sql("select receipt, at, actual is not null from grants where end is null"):
            if receipt in self.running:
                continue
            if sent and self.now() - at > SETTLE_SECONDS:
                self._sql("update grants set end = 'too old' where receipt = ?", receipt)
                lost.append(receipt)
                continue
            self._sql("update grants set actual = coalesce(actual, 0) where receipt = ?", receipt)
            try:
                refused = self._settle(receipt)
            except (OSError, http.client.HTTPException):
                break
            if refused and refused.startswith("invalid receipt"):  # else a mistake that may be mended: a token, the policies
                self._sql("update grants set end = ? where receipt = ?", refused, receipt)
                lost.append(receipt)
        return lost

    def left(self, customer, plan):
        """What a page for the customer shows. Charges nothing."""
        attributes, following = self._attributes(customer, plan)
        month, = [row for row in self._ask("explain", {"attributes": attributes})["limits"] if row["name"] == "month"]
        return {"period": attributes["period"], "limit": month["limit"], "used": month["used"], "left": month["remaining"],
                "resets": following.isoformat()}

    def _attributes(self, customer, plan, **more):
        period, following = self.period()
        return {"customer": customer, "plan": plan, "period": period, **more}, following

    def _denied(self, answer, asked, rest):
        """The window of weir is longer than a month, so the rest of the month is ours to tell. But while estimates are open, as
        far as this process knows, what they do not need comes back soon."""
        limit = next((row["name"] for row in answer.get("limits", ()) if not row["allowed"]), None)
        wait = answer["retry_after"]
        if limit == "month" and answer["reason"] == "limit" and wait is not None:
            (still,), = self._sql("select count(*) from grants where customer = ? and end is null", asked["customer"])
            soon = still or self.left(asked["customer"], asked["plan"])["left"] >= asked["enough"]  # settled just now
            wait = SOON_SECONDS if soon else rest
        return Denied(answer["reason"], limit, wait)

    def _settle(self, receipt):
        """Why it is refused; None: it is settled."""
        (attributes, actual), = self._sql("select attributes, actual from grants where receipt = ?", receipt)
        answer = self._ask("settle", {"attributes": json.loads(attributes), "receipt": receipt, "actual": actual})
        if "settled" not in answer:
            return answer.get("detail", "?")
        self._sql("update grants set end = 'settled' where receipt = ?", receipt)
        return None

    def _sql(self, text, *values):
        with self.lock:
            return self.journal.execute(text, values).fetchall()

    def _ask(self, verb, body):
        connection = http.client.HTTPConnection(self.weir, timeout=5)
        try:
            connection.request("POST", "/v1/" + verb, json.dumps({"policy": "llm", **body}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 500:
            raise OSError(f"weir answered {response.status}: {answer}")
        return answer
