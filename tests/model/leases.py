"""Concurrent: who holds how many slots, and until when.

State: (at, ((name, slots, expiry), ...)) with `at` the newest acquire or renew; None once all
leases are released or have lapsed.  A name of None is a lease that nobody can name again.
"""
from search import MINUTE, NEVER, first_event


class Concurrent:
    default_wait = any_wait = 0
    kept_for = 0                    # once it is back to fresh

    def __init__(self, limit):
        self.limit, self.lease = limit.count, limit.lease
        self.horizon = max(MINUTE, limit.lease)

    def live(self, state, t):
        """(the time that counts, the leases held at it)."""
        if state is None or state[0] - t > self.horizon:
            return t, ()
        now = max(t, state[0])
        held = tuple(entry for entry in state[1] if now < entry[2])
        return (now, held) if held else (t, ())

    def used(self, state, t):
        return sum(slots for _, slots, _ in self.live(state, t)[1])

    def lapses(self, state, t):
        return [expiry for _, _, expiry in self.live(state, t)[1]]

    def judge(self, state, t, cost, wait):
        if cost > self.limit:
            return False, NEVER, 0

        def may(x):
            return self.used(state, x) + cost <= self.limit

        if may(t):
            return True, 0, 0
        return False, first_event(may, t, self.lapses(state, t)) - t, 0

    def standing(self, state, t):
        fresh = first_event(lambda x: not self.used(state, x), t, self.lapses(state, t))
        return max(0, self.limit - self.used(state, t)), fresh - t

    def charge(self, state, t, cost, name=None):
        now, held = self.live(state, t)
        return now, held + ((name, cost, now + self.lease),)

    def renew(self, state, t, name):
        """(renewed or not, the state afterwards)."""
        now, held = self.live(state, t)
        if name not in [entry[0] for entry in held]:
            return False, state
        return True, (now, tuple((who, slots, now + self.lease if who == name else expiry)
                                 for who, slots, expiry in held))

    def release(self, state, t, name):
        now, held = self.live(state, t)
        kept = tuple(entry for entry in held if entry[0] != name)
        if len(kept) == len(held):
            return False, state
        return True, (state[0], kept) if kept else None


def make(limit):
    return Concurrent(limit)
