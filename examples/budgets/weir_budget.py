"""The budget of one answer whose cost is known only afterwards. Only the standard library is needed.

    budget = Budget("127.0.0.1:7311", {"path": "/v1/chat", "user": "ann", "org": "acme"})
    budget.start(1000, enough=100)          # raises Denied
    try:
        while tokens_come:
            if budget.left == 0 and not budget.more(500):
                break                       # cut off
            budget.use(1)
    finally:
        budget.finish()                     # settles what was used, releases the slots

What holds: `used` never comes to more than was granted. Each grant is settled by what was used of it, once, however often
the call is sent. A process that dies before finish() leaves its grants charged and its slots held until the lease ends.
"""
import http.client
import json

RETRIES = 3  # of a settle or release whose answer is lost: both count once


class Denied(Exception):
    """Nothing was charged. retry_after: seconds, or None for never."""

    def __init__(self, retry_after):
        super().__init__(f"denied, retry after {retry_after}")
        self.retry_after = retry_after


class Grant:
    def __init__(self, attributes, granted, receipt):
        self.attributes, self.granted, self.receipt, self.used = attributes, granted, receipt, 0


class Budget:
    def __init__(self, weir, attributes):
        self.weir, self.attributes = weir, attributes
        self.connection, self.lease, self.grants = None, 0, []

    @property
    def left(self):
        return sum(grant.granted - grant.used for grant in self.grants)

    @property
    def used(self):
        return sum(grant.used for grant in self.grants)

    def start(self, estimate, enough=1):
        """One request, its slots, and as many tokens as there are: from `enough` to the estimate."""
        answer = self._take("acquire", "start", estimate, enough)
        if not answer["allowed"]:
            raise Denied(answer["retry_after"])
        self.lease = answer["lease"]

    def more(self, estimate, enough=1):
        """Tokens alone. How many; 0: the answer must end."""
        answer = self._take("take", "more", estimate, enough)
        return answer["granted"]

    def use(self, tokens):
        assert tokens <= self.left
        for grant in self.grants:
            part = min(tokens, grant.granted - grant.used)
            grant.used += part
            tokens -= part

    def finish(self):
        """Every limit is charged what was used, to the token."""
        try:
            for grant in self.grants:
                self._again("settle", {"attributes": grant.attributes, "receipt": grant.receipt, "actual": grant.used})
        finally:  # whatever became of that, the slots are free
            if self.lease:
                self._again("release", {"attributes": self.grants[0].attributes, "lease": self.lease})
            self.close()

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def _take(self, verb, phase, estimate, enough):
        attributes = dict(self.attributes, phase=phase, tokens=estimate, enough=enough)
        answer = self._ask(verb, {"attributes": attributes})
        if "allowed" not in answer:  # a mistake of ours, such as an unknown attribute
            raise RuntimeError(answer.get("detail", answer))
        if answer["allowed"]:
            self.grants.append(Grant(attributes, answer["granted"], answer["receipt"]))
        return answer

    def _again(self, verb, body):
        for tried in range(1, RETRIES + 1):
            try:
                return self._ask(verb, body)
            except (OSError, http.client.HTTPException):
                self.close()
                if tried == RETRIES:
                    raise

    def _ask(self, verb, body):
        if not self.connection:
            self.connection = http.client.HTTPConnection(self.weir, timeout=30)
        self.connection.request("POST", "/v1/" + verb, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 500:
            raise OSError(f"weir answered {response.status}: {answer}")
        return answer
