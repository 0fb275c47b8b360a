#!/usr/bin/env python3
"""Holds the server to the golden vectors, every field, in every way that it can be asked.

    vectors.py [FILE.vec …]

Over RESP2 without and RESP3 with DETAIL, over HTTP as GET queries and as POSTed JSON with its decimal seconds; and
once more as TAKEALL, each limit of a step under a key of its own, which all or nothing decides as one key with all
of them. The time is the test clock's. Charges are settled once by the receipts that the server signed; charges that
only the vectors claim, by receipts signed here with the zone's secret (receipts.py). What the vectors take of
concurrent limits is acquired here, which is decided alike: the server refuses such takes. TAKEALL has no word for
that, and leaves their cases out.
"""
import re
import sys

from lib import build, checks, http_client, lua_cases, weir_server
from lib.receipts import Signer, id_of, letters


WAITS = {-1: None, -2: "any"}
BATCH = 200
INTEGER_MAX = 10 ** 15 - 1  # of a structured field
SIX = ("allowed", "limit", "remaining", "retry_after", "reset_after", "delay")


# ---- steps ----

class Reader(lua_cases.Reader):
    """Steps that know whose receipt or lease they name."""

    def __init__(self):
        super().__init__()
        self.texts, self.charges, self.holders = [], {}, {}

    def line(self, place, verb, rest):
        if verb == "case":
            self.charges, self.holders = {}, {}
        elif verb in ("ok", "bad"):
            self.texts.append((place, verb, rest))
        elif verb == "limit":
            self.parts = [lua_cases.language.text([limit]) for limit in lua_cases.language.parse(rest)]
        super().line(place, verb, rest)

    def step(self, place, verb, words, wanted):
        step = super().step(place, verb, words, wanted)
        step.parts, step.source = self.parts, None
        step.canonical = ", ".join(self.parts)
        step.leased = any(part.startswith("concurrent") for part in self.parts)
        step.sent = "take" if verb == "grant" else verb
        if step.leased and step.sent == "take":
            step.sent = "acquire"
        if verb == "settle":
            step.claim = int(words[1]), int(words[2])
            step.source = self.charges.pop((*step.claim, step.canonical), None)  # a receipt settles once
        elif verb in ("renew", "release"):
            step.source = self.holders.get(words[1])
        elif verb == "acquire" and step.six[0]:
            self.holders[words[2]] = step
        elif verb == "take" and step.six[0]:
            self.charges[step.time, granted_of(step), step.canonical] = step
        return step


def granted_of(step):
    """What a step is granted: files that do not tell it have no least."""
    if step.granted is not None:
        return step.granted
    return step.cost if step.six[0] else 0


def in_turn(steps, clock, encode, send, receive):
    """Sends every step, those that name an earlier one's reply behind it; (step, reply) as they come. The
    clock goes before the steps of its time."""
    waiting, now, under_way = [], None, set()

    def flush():
        send([request for _, request in waiting])
        for step, _ in waiting:
            reply = receive()
            if step:
                step.reply = reply
                yield step, reply
        waiting.clear()
        under_way.clear()

    for step in steps:
        if len(waiting) >= BATCH or step.source in under_way:
            yield from flush()
        if step.time != now:
            now = step.time
            waiting.append((None, clock(now)))
        waiting.append((step, encode(step)))
        under_way.add(step)
    yield from flush()


# ---- what is expected ----

class Judge:
    """Compares replies with what the vectors say, whoever brought them."""

    def __init__(self, home, check, signer):
        self.home, self.check, self.signer = home, check, signer

    def equal(self, step, got, wanted, what=""):
        self.check(got == wanted, f"{step.place} ({self.home}) {what}: got {got!r}, expected {wanted!r}")

    def decision(self, step, six, receipt, rows, bind, lease, granted=None):
        """receipt is None where there is none to be had; granted where the answer does not tell it."""
        if step.verb == "grant":
            self.equal(step, [six[0], six[5]], step.six)
            return
        self.equal(step, six, step.six)
        if granted is not None:
            self.equal(step, granted, granted_of(step), "granted")
        charged = granted_of(step) if step.verb != "peek" else 0
        name = id_of(receipt) if receipt is not None and charged else 0
        if receipt is not None:
            body = b"w4-%d-%d-%s" % (step.time, charged, letters(name, 7)) if charged else b"w2-%d-0" % step.time
            self.equal(step, receipt[:-12], body, "receipt")
        if receipt is not None and step.place.startswith("settle"):
            wanted = self.signer.receipt(step.key.encode(), step.canonical, step.time, charged, name)
            self.equal(step, receipt, wanted, "signature")
        if step.sent == "acquire":
            self.equal(step, lease > 0, bool(six[0] and step.cost), "lease")
        if rows is None:
            return
        self.equal(step, len(rows), len(step.parts), "rows")
        for i, row in step.rows.items():
            self.equal(step, rows[i], row, f"row {i}")
        if step.bind is not None:
            self.equal(step, bind, step.bind, "bind")


# ---- RESP ----

class Resp:
    def __init__(self, judge, detail):
        self.judge, self.detail = judge, detail

    def run(self, server, steps):
        with server.client(protocol=3 if self.detail else 2) as client:
            for step, reply in in_turn(steps, lambda us: ("WEIR.CLOCK", us), self.command,
                                       lambda commands: client.socket.sendall(b"".join(map(encode_resp, commands))),
                                       client.read):
                self.compare(step, reply)

    def receipt(self, step):
        if step.source:
            return step.source.reply[6]
        return self.judge.signer.receipt(step.key.encode(), step.canonical, *step.claim)

    def command(self, step):
        verb = step.sent
        if verb == "reset":
            return ("WEIR.RESET", step.key)
        if verb == "settle":
            return ("WEIR.SETTLE", step.key, step.text, self.receipt(step), step.cost)
        if verb in ("renew", "release"):
            return ("WEIR." + verb, step.key, step.text, step.source.reply[7 + bool(step.source.least)] if step.source else 1)
        words = ["WEIR." + verb, step.key, step.text, "COST", step.cost]
        words += ["LEAST", step.least] if step.least else []
        if step.wait != -1:
            words += ["WAIT", WAITS.get(step.wait, step.wait)]
        return (*words, "DETAIL") if self.detail or len(step.parts) > 1 else words

    def compare(self, step, reply):
        if step.wanted == "refused":
            self.judge.check("cannot be settled" in str(reply), f"{step.place}: got {reply!r}")
        elif isinstance(reply, Exception):
            self.judge.check(False, f"{step.place} ({self.judge.home}): {reply}")
        elif step.verb == "reset":
            self.judge.equal(step, reply in (0, 1), True, reply)  # whether it was there, the vectors do not say
        elif step.verb in ("settle", "renew", "release"):
            self.judge.equal(step, reply, "OK" if step.wanted == "ok" else int(step.wanted))
        else:
            rest = reply[7:]
            granted = rest.pop(0) if step.least else None
            lease = rest.pop(0) if step.sent == "acquire" else 0
            self.judge.decision(step, reply[:6], reply[6], rest[1:] if rest else None, rest[0] if rest else None, lease,
                                granted)


def encode_resp(words):
    return weir_server.resp.encode(words)


class TakeAll(Resp):
    """The limits of a step, each under a key of its own, as one TAKEALL."""

    def __init__(self, judge):
        super().__init__(judge, True)

    @staticmethod
    def steps(steps):
        """Cases of takes under the same limits throughout: a limit's place is its key's name. A peek or a reset of
        several keys has no words, and peeks charge nothing."""
        def is_told(step):
            if step.leased or step.least and len(step.parts) > 1:  # each key would be granted its own amount
                return False
            return step.verb in ("take", "grant", "peek") or step.verb == "reset" and len(step.parts) == 1

        texts = {}
        for step in steps:
            texts.setdefault(step.key, step.canonical)
        other = {step.key for step in steps
                 if not is_told(step) or len(step.parts) > 1 and step.canonical != texts[step.key]}
        return [step for step in steps
                if step.key not in other and not (step.verb == "peek" and len(step.parts) > 1)]

    def command(self, step):
        if step.verb == "reset":
            return ("WEIR.RESET", step.key + "#0")
        if step.verb == "peek":
            return ("WEIR.PEEK", step.key + "#0", *super().command(step)[2:])
        words = ["WEIR.TAKEALL", len(step.parts)]
        for i, part in enumerate(step.parts):
            words += [f"{step.key}#{i}", part, step.cost]
        words += ["LEAST", step.least] if step.least else []
        if step.wait != -1:
            words += ["WAIT", WAITS.get(step.wait, step.wait)]
        return (*words, "DETAIL")


# ---- HTTP ----

class Http:
    def __init__(self, judge, by_query):
        self.judge, self.by_query = judge, by_query

    def run(self, server, steps):
        with http_client.Client(server.port) as client:
            for step, answer in in_turn(steps, self.clock, self.request,
                                        lambda requests: client.send(b"".join(requests)), client.read):
                self.compare(step, answer)

    @staticmethod
    def clock(us):
        return http_client.post("/v1/clock", {"now": http_client.Number(http_client.seconds(us))})

    def request(self, step):
        verb = step.sent
        if self.by_query and verb in ("take", "peek"):
            return self.query(verb, step)
        body = {"key": step.key, "limit": step.text}
        if verb == "reset":
            body = {"key": step.key}
        elif verb == "settle":
            body.update(receipt=self.receipt(step), actual=step.cost)
        elif verb in ("renew", "release"):
            body.update(lease=step.source.reply.json["lease"] if step.source else 1)
        else:
            body.update(cost=step.cost, detail=len(step.parts) > 1)
            body.update({"least": step.least} if step.least else {})
            if step.wait != -1:
                body["wait"] = WAITS.get(step.wait) or http_client.Number(http_client.seconds(step.wait))
        return http_client.post("/v1/" + verb, body)

    @staticmethod
    def query(verb, step):
        query = {"key": step.key, "limit": step.text, "cost": step.cost}
        query.update({"least": step.least} if step.least else {})
        if step.wait != -1:
            query["wait"] = WAITS.get(step.wait) or f"{step.wait}us" if step.wait else "0"
        if len(step.parts) > 1:
            query["detail"] = "1"
        return http_client.get("/v1/" + verb, **query)

    def receipt(self, step):
        if step.source:
            return step.source.reply.json["receipt"]
        return self.judge.signer.receipt(step.key.encode(), step.canonical, *step.claim).decode()

    def compare(self, step, answer):
        equal = lambda got, wanted, what: self.judge.equal(step, got, wanted, what)  # noqa: E731
        body = answer.json
        if step.wanted == "refused":
            equal(answer.status, 400, "status")
            self.judge.check("cannot be settled" in body["detail"], f"{step.place}: {body}")
        elif step.verb == "reset":
            equal((answer.status, list(body)), (200, ["reset"]), "answer")
        elif step.verb == "settle":
            equal((answer.status, body), (200, {"settled": True}), "answer")
        elif step.verb in ("renew", "release"):
            wanted = 200 if step.wanted == "1" else 404
            equal(answer.status, wanted, "status")
        else:
            self.decision(step, answer, body, equal)

    def decision(self, step, answer, body, equal):
        if "allowed" not in body:
            return equal(body, "a decision", "answer")
        allowed = body["allowed"]
        kind = "application/json" if allowed else "application/problem+json"
        equal((answer.status, answer.fields["content-type"]), (200 if allowed else 429, kind), "status and type")
        receipt = body["receipt"]
        equal(receipt is not None, allowed and step.verb != "peek", "whether there is a receipt")
        rows = [six_of(row) for row in body["limits"]] if len(step.parts) > 1 else None
        told = [[*row, it["granted"]] if step.least else row for row, it in zip(rows, body["limits"])] if rows else None
        self.judge.decision(step, six_of(body), receipt and receipt.encode(), told, body["binding"],
                            body.get("lease", 0), body["granted"])
        for i, granted in step.row_grants.items():
            equal(body["limits"][i]["granted"], granted, f"row {i} granted")
        equal((body["degraded"], body["local"]), (False, False), "degraded, local")
        if rows:
            equal([row["text"] for row in body["limits"]], step.parts, "the limits' texts")
        if step.verb != "grant":
            equal(answer.fields.get("retry-after"), ceiling(step.six[3]) if not step.six[0] else None, "Retry-After")
            wanted = [(str(min(row[2], INTEGER_MAX)), ceiling(row[3] if not row[0] else row[4]))
                      for row in (rows or [step.six])]
            got = re.findall(r';r=(\d+)(?:;t=(\d+))?', answer.fields["ratelimit"])
            equal([(r, t or None) for r, t in got], wanted, "RateLimit")


def six_of(body):
    values = [body[name] for name in SIX]
    return [-1 if value is None else int(value) for value in values]


def ceiling(us):
    """Whole seconds, never early; None for never."""
    return None if us < 0 else str(-(-us // 1000000))


# ---- texts ----

def run_texts(server, texts, check):
    """parse.vec: what is refused, and the canonical text of what is not, over both protocols."""
    requests, commands = [], []
    for _, verb, rest in texts:
        text = rest.partition(" => ")[0] if verb == "ok" else rest
        requests.append(http_client.post("/v1/peek", {"key": "k", "limit": text, "detail": True}))
        commands.append(("WEIR.PEEK", "k", text))
    with http_client.Client(server.port) as http, server.client() as resp:
        for (place, verb, rest), answer, reply in zip(texts, http.pipeline(requests), resp.pipeline(commands)):
            if verb == "bad":
                check(answer.status == 400 and "limit" in answer.json["detail"], f"{place}: {answer}")
                check(isinstance(reply, weir_server.resp.RedisError) and str(reply).startswith("ERR limit"),
                            f"{place}: {reply}")
                continue
            check.equal(", ".join(row["text"] for row in answer.json.get("limits", [])), rest.partition(" => ")[2],
                        place)
            check(isinstance(reply, list), f"{place}: {reply!r}")


def main(paths):
    reader = Reader()
    for path in paths or build.vectors():
        reader.read(path)
    check, steps = checks.Checks(), reader.steps
    homes = (("RESP2", lambda judge: Resp(judge, False), steps),
             ("RESP3, detail", lambda judge: Resp(judge, True), steps),
             ("TAKEALL", TakeAll, TakeAll.steps(steps)),
             ("GET", lambda judge: Http(judge, True), steps),
             ("POST", lambda judge: Http(judge, False), steps))
    for home, make, part in homes:
        before = check.passed
        with weir_server.Server("--test-clock --store file:zone?size=64m") as server:
            signer = Signer.of_zone(server.folder / "zone")
            make(Judge(home, check, signer)).run(server, part)
            if home == "POST":
                run_texts(server, reader.texts, check)
        check(check.passed - before > len(part) and len(part) > 0, f"{home}: {check.passed - before} checks ran")
    return check.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
