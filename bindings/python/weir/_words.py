"""How the keys of a middleware's rules begin, so that no client can choose a key of another rule."""
from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple

from . import _weir
from ._types import Key

if TYPE_CHECKING:
    from .web import Rule


@functools.lru_cache(1)
def spare() -> _weir.Store:
    """A store in which nothing is ever taken: it says how large limits are, and which would share a state. It has room for the largest."""
    return _weir.Store("memory:8m?large=90%")


def share(one: Rule, other: Rule) -> bool:
    """Whether their limits would have one state under one key. If they are too many for one call, that is not known."""
    try:
        spare().peek_all([("key", one.limit, 0), ("key", other.limit, 0)])
    except (_weir.ESHARED, _weir.EINVAL):
        return True
    return False


def refuse_cost(limit: _weir.Limit, cost: Any, whose: str) -> None:
    """A constant cost that is none, or that no state of the limit ever admits. No function knows before the first request what it returns."""
    if callable(cost):
        return
    if isinstance(cost, bool) or not hasattr(cost, "__index__"):
        raise TypeError(f"invalid cost {cost!r} of {whose}: expected a whole number, or a function that returns one")
    if cost in (0, 1):
        return  # every limit admits one
    never = [row.limit for row in spare().peek_all([("cost", limit, cost)]).rows if row.retry_after_us < 0]
    if never:
        raise ValueError(f"invalid cost {cost} of {whose}: expected at most {min(never)}, which is all that the limit admits at once; "
                         "lower the cost or raise the limit")


def own_words(rules: List[Rule]) -> List[str]:
    """For each rule, a beginning that no other has: its name, or its number, or a higher one that is nobody's."""
    taken = [it for it in (rule.origin() for rule in rules if not rule.shadow) if isinstance(it, str)]
    words = [""] * len(rules)
    for number, rule in sorted(enumerate(rules, 1), key=lambda it: it[1].shadow):  # those in shadow come last: they change no other word
        kind = "shadow." if rule.shadow else ""
        tries = itertools.chain([rule.name] if rule.name else [], (f"rule{n}" for n in itertools.count(number, len(rules))))
        word = next(word for word in (f"{kind}{it}:" for it in tries) if not any(word.startswith(it) or it.startswith(word) for it in taken))
        taken.append(word)
        words[number - 1] = word
    return words


def beginnings(rules: List[Rule], words: List[str]) -> List[str]:
    """What is put before the keys of each rule. A client may choose what a function of the program returns. If an equal key of another
    rule would share its state, the function's keys always begin with its rule's name: so they never depend on those of other rules."""
    found = []
    enforced = [rule for rule in rules if not rule.shadow]
    for rule, word in zip(rules, words):
        alike = [it for it in enforced if it.origin() == rule.origin()]
        others = [it for it in enforced if it.origin() != rule.origin()]
        if rule.shadow:
            found.append(word)
        elif isinstance(rule.origin(), str) or not any(share(one, other) for one in alike for other in others):
            found.append("")
        else:
            found.append(words[rules.index(alike[0])])  # two rules of one function
    return found


def joined(word: str, key: Optional[Key]) -> Any:
    """The key with its rule's word, unless it begins so already. What is not a key stays as it is, for the store to refuse."""
    if not word or not key or not isinstance(key, (str, bytes)):
        return key
    if isinstance(key, str):
        return key if key.startswith(word) else word + key
    return key if key.startswith(word.encode()) else word.encode() + key


class Words(NamedTuple):
    """How the keys of one rule begin."""

    begins: str
    others: Tuple[str, ...]  # so begin the keys of other rules that may share a state
    more: str  # what is put before a key that begins so, too

    def key(self, key: Optional[Key]) -> Any:
        """What a rule's function returned, as the key that the store gets."""
        key = joined(self.begins, key)
        others: Any = tuple(it.encode() for it in self.others) if isinstance(key, bytes) else self.others
        return joined(self.more, key) if isinstance(key, (str, bytes)) and key.startswith(others) else key


def as_words(rules: List[Rule]) -> List[Words]:
    """For each rule. A path's word may begin with another's, as login: and login:ip:. Then a client could be the user ip:192.0.2.7.
    And what a function returns may begin with the word of a rule in shadow. Only such keys change: to try a rule resets no count."""
    words = own_words(rules)
    begins = beginnings(rules, words)
    starts = [word or rule.origin() for rule, word in zip(rules, begins)]

    def others(rule: Rule, own: Any) -> Tuple[str, ...]:
        return tuple(it for it, other in zip(starts, rules) if not rule.shadow and isinstance(it, str) and
                     not (isinstance(own, str) and own.startswith(it)) and share(rule, other))
    return [Words(begin, others(rule, start), words[starts.index(start)]) for begin, rule, start in zip(begins, rules, starts)]
