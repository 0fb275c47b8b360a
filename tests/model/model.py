"""The reference model: the states of all keys, and the verbs with an explicit time.

    model = Model()
    answer, rows, bound = model.take(t, b"key", limits.parse("token-bucket 10/s"), cost=1)

Slow and plain on purpose.  Nothing here knows how the C library does it.
"""
import buckets
import guava
import leases
import windows
from search import MAX53, NEVER, Answer, first_instant

MAKERS = {
    "token-bucket": buckets, "leaky-bucket": buckets,
    "fixed-window": windows, "sliding-log": windows, "sliding-window": windows,
    "sliding-counter": windows, "smooth": guava, "warmup": guava, "concurrent": leases,
}
ENGINES = {}


def engine(limit):
    """The algorithm of a limit; engines hold no state."""
    if limit not in ENGINES:
        ENGINES[limit] = MAKERS[limit.kind].make(limit)
    return ENGINES[limit]


def fold(rows):
    """One answer for several limits, and the index of the one that bound."""
    denied = [row.retry_after for row in rows if not row.allowed]
    retry = 0
    if denied:
        retry = NEVER if NEVER in denied else max(denied)
        bound = [not row.allowed and row.retry_after == retry for row in rows].index(True)
    else:
        left = [row.remaining for row in rows]
        bound = left.index(min(left))
    answer = Answer(
        allowed=not denied,
        limit=rows[bound].limit,
        remaining=rows[bound].remaining,
        retry_after=retry,
        reset_after=max(row.reset_after for row in rows),
        delay=0 if denied else max(row.delay for row in rows))
    return answer, bound


class Model:
    """A state is kept with the time from which on it is absent for good, by the numbers it was
    written under."""

    def __init__(self, evicting=False, keeping=False):
        """evicting: what is found lapsed is forgotten, so that a clock running back finds nothing.
        keeping: nothing is, and the algorithms must find out themselves."""
        self.keys = {}
        self.evicting, self.keeping = evicting, keeping

    # -- states ---------------------------------------------------------------------------------

    def state(self, key, limit, t):
        state, until = self.keys.get(key, {}).get(limit.identity(), (None, 0))
        if until > t or self.keeping:
            return state
        if self.evicting:
            self.keys.get(key, {}).pop(limit.identity(), None)
        return None

    def keep(self, key, limit, t, state):
        states = self.keys.setdefault(key, {})
        if state is None:
            states.pop(limit.identity(), None)
        else:
            made = engine(limit)
            until = t + made.standing(state, t)[1] + made.kept_for
            states[limit.identity()] = (state, until)

    # -- deciding -------------------------------------------------------------------------------

    def judge(self, t, key, limit, cost, wait):
        """(allowed, retry_after, delay) under one limit."""
        made = engine(limit)
        if wait == "default":
            wait = made.default_wait
        elif wait == "any":
            wait = made.any_wait
        return made.judge(self.state(key, limit, t), t, cost, wait)

    def grant(self, t, places, cost, least, wait):
        """The largest amount from least to cost that all these (key, limit) allow, which allow the least."""
        places = [(key, limit) for key, limit in places if not limit.cost]

        def denied(amount):
            return amount > cost or not all(self.judge(t, key, limit, amount, wait)[0] for key, limit in places)
        return first_instant(denied, least) - 1

    def decide(self, t, asks, wait, charging, name=None):
        """asks: (key, limits, cost, least) each; least 0: all of the cost.  Returns (answer, rows, index of what
        bound)."""
        least = max(least for _, _, _, least in asks)      # one amount for all that have a least
        most = min((cost for _, _, cost, some in asks if some), default=asks[0][2])
        assert not least or least <= most and wait in ("default", 0)
        flat = [(key, limit, cost, some) for key, limits, cost, some in asks for limit in limits]
        for key, limit, cost, some in flat:
            assert not some or limit.cost or limit.kind not in ("leaky-bucket", "smooth", "warmup")
        verdicts = [self.judge(t, key, limit, limit.asked(least if some else cost), wait) for key, limit, cost, some in flat]
        granted = 0
        if all(allowed for allowed, _, _ in verdicts):
            places = [(key, limit) for key, limit, _, some in flat if some]
            granted = self.grant(t, places, most, least, wait) if least else most
            gives = [limit.asked(granted if some else cost) for _, limit, cost, some in flat]
        else:
            gives = [0 if not allowed else limit.asked(self.grant(t, [(key, limit)], most, least, wait) if some else cost)
                     for (key, limit, cost, some), (allowed, _, _) in zip(flat, verdicts)]
        if charging and all(allowed for allowed, _, _ in verdicts):
            for (key, limit, _, _), amount in zip(flat, gives):
                if amount:
                    self.charge(t, key, limit, amount, name)
        rows = []
        for (key, limit, _, _), (allowed, retry, delay), amount in zip(flat, verdicts, gives):
            made = engine(limit)
            remaining, reset = made.standing(self.state(key, limit, t), t)
            rows.append(Answer(allowed, *[min(MAX53, x) for x in (made.limit, remaining, retry, reset, delay, amount)]))
        answer, bound = fold(rows) if len(rows) > 1 else (rows[0], 0)
        return answer._replace(granted=granted), rows, bound

    def charge(self, t, key, limit, cost, name):
        named = {"name": name} if limit.kind == "concurrent" else {}
        state = engine(limit).charge(self.state(key, limit, t), t, cost, **named)
        self.keep(key, limit, t, state)

    # -- the verbs ------------------------------------------------------------------------------

    def take(self, t, key, limits, cost=1, wait="default", least=0):
        return self.decide(t, [(key, limits, cost, least)], wait, True)

    def take_all(self, t, asks, wait="default"):
        return self.decide(t, asks, wait, True)

    def peek(self, t, key, limits, cost=1, wait="default", least=0):
        return self.decide(t, [(key, limits, cost, least)], wait, False)

    def acquire(self, t, key, limits, cost, name, wait="default", least=0):
        return self.decide(t, [(key, limits, cost, least)], wait, True, name)

    def renew(self, t, key, limits, name):
        return self._named("renew", t, key, limits, name)

    def release(self, t, key, limits, name):
        return self._named("release", t, key, limits, name)

    def _named(self, verb, t, key, limits, name):
        limit, = [limit for limit in limits if limit.kind == "concurrent"]
        state = self.state(key, limit, t)
        done, state = getattr(engine(limit), verb)(state, t, name)
        if done:
            self.keep(key, limit, t, state)
        return done

    def settle(self, t, key, limits, t0, c0, c1):
        """False where a limit refuses to be settled; then nothing is.  Limits with a cost of their own are left
        alone."""
        limits = [limit for limit in limits if not limit.cost]
        if not limits or any(limit.kind == "concurrent" for limit in limits):
            return False
        for limit in limits:
            before = self.state(key, limit, t)
            after = engine(limit).settle(before, t, t0, c0, c1)
            if after is not before:     # not void: written under the present numbers
                self.keep(key, limit, t, after)
        return True

    def reset(self, key):
        self.keys.pop(key, None)
