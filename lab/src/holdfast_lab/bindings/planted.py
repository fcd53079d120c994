"""Rules of bindings that are taken out, one at a time, to see that they are missed.

Rules of this file: a function of the nodes' code gives way to a broken variant, in one process, for as long as a run
takes; what is to find it is a history or drawn runs.
"""

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.errors import BrokenInvariant
from holdfast.federation import confirming
from holdfast.federation.aliases import Heard
from holdfast.federation.claims import Claims
from holdfast.federation.federation import Federation
from holdfast.federation.following import Following
from holdfast.federation.keeping import Sets
from holdfast.federation.own import Own
from holdfast.federation.publications import Publications, Seen
from holdfast.federation.rows import VOID, Row, Stamp
from holdfast.federation.serving import Serving
from holdfast.federation.sets import Edition, Held, Key
from holdfast.federation.standing import Reached, Standing
from holdfast.federation.taking import voided
from holdfast_lab.bindings import drawn
from holdfast_lab.bindings.drawn import Shape
from holdfast_lab.bindings.histories import HISTORIES

SEEDS: Final = 12
"""Drawn runs after which a rule counts as not missed."""


class Found(NamedTuple):
    """How a rule was missed; no `text`: it was not."""

    name: str
    sentence: str
    text: str
    by: str


@dataclass(frozen=True, slots=True)
class Rule:
    """`owner` and `attribute` of what is broken; `by`: a history, or how runs are drawn."""

    sentence: str
    owner: Any
    attribute: str
    broken: Any
    by: str | Shape
    also: tuple[tuple[Any, str, Any], ...] = ()
    """What else must give way."""


def _said_before_stored(self: Federation, now: float) -> Any:
    writes = _RECORDS(self, now)
    for key, held in (self.sets.under_way or {}).items() if writes else ():
        self.sets.moved.setdefault(key, self.sets.stored.get(key))
        if held is not None:
            self.sets.stored[key] = held
    self._say_committed(now)
    return writes


def _unreachable_withdrawn(self: Following, topic: str, *given: Any) -> None:
    _FIND_OF(self, topic, *given)
    for key in list(self.lost_at):
        del self.lost_at[key]
        self._sets.drop(key)


def _older_taken(self: Federation, neighbour: Any, message: Any) -> None:
    held = self.sets.current(message.key)
    if held is not None and message.new.stamp < held.stamp and message.key in neighbour.taking.wanted:
        self.sets.put(message.key, voided(held))
    _CONTENT(self, neighbour, message)


def _older_sent(self: Serving, key: Key, held: Held | None, cache: Any) -> Any:
    follower = self.followers.get(key)
    if follower is not None:
        follower.has = Edition(VOID, follower.has.digest)
    return _NEXT(self, key, held, cache)


def _never_claimed(self: Claims, *_: object) -> None:
    return


def _never_checked(self: Federation, now: float) -> None:
    self._to_check.clear()
    self.sets.rebuild()


def _any_alias(self: Heard, what: str, value: object) -> str:
    if isinstance(value, list):
        self._names[int(value[0])] = str(value[1])
        return str(value[1])
    return _READ(self, what, value)


def _no_publication(self: Publications, store: str, number: int) -> Seen:
    return Seen.NEW


def _refused_kept(self: Sets) -> list[Key]:
    gone = [*(self.under_way or ()), *self.staged]
    if self.under_way is not None:
        self.commit()
    return gone


def _any_life(self: Standing, since: Stamp) -> Reached:
    return Reached(tuple(sorted(name for name, stamp in self._names.items() if stamp.version >= since.version)), NOBODY)


def _confirmed_by_what_leaves(
    self: Own, row: Row, kept: Set[Row], *, all_of_them: bool = True
) -> tuple[Row, Stamp] | None:
    return _SINCE_OF(self, row, self.since.keys(), all_of_them=all_of_them)


def _removed_first(self: Own, *told: Any) -> Any:
    add, remove = _DIFFERENCE(self, *told)
    return ((), remove) if remove else (add, remove)


def _no_room_made(self: Own, held: Held, wide: frozenset[Row], rows_max: int) -> tuple[list[Row], list[Row]]:
    return sorted(wide - held.rows), []


def _room_made_first(self: Own, held: Held, wide: frozenset[Row], rows_max: int) -> tuple[list[Row], list[Row]]:
    add, remove = _COVERING(self, held, wide, rows_max)
    return ([], remove) if remove else (add, remove)


_COVERING: Final = Own._covering
_DIFFERENCE: Final = Own._difference
_SINCE_OF: Final = Own.since_of
_RECORDS: Final = Federation.records
_NEXT: Final = Serving.next
_FIND_OF: Final = Following.find_of
_CONTENT: Final = Federation._content
_READ: Final = Heard.read
NOBODY: Final[frozenset[str]] = frozenset()

RULES: Final[dict[str, Rule]] = {
    "stored-before-said": Rule(
        "a set is on disk before it is said", Federation, "records", _said_before_stored, "failed-commit"
    ),
    "refused-is-undone": Rule("a refused commit leaves all as it was", Sets, "refuse", _refused_kept, "failed-commit"),
    "down-withdraws-nothing": Rule(
        "what is merely down withdraws nothing", Following, "find_of", _unreachable_withdrawn, drawn.CHURN
    ),
    "older-not-taken": Rule(
        "a lower stamp is not taken",
        Federation,
        "_content",
        _older_taken,
        "ring-link-down-new-parent-older",
        ((Serving, "next", _older_sent),),
    ),
    "claims": Rule("a higher stamp is told to the origin", Claims, "add", _never_claimed, "new-store-clock-back"),
    "digests-added-up": Rule(
        "digests are added up anew at each refresh", Federation, "_check", _never_checked, "tables-corrupted-and-ghosts"
    ),
    "one-name-an-alias": Rule("an alias means one name", Heard, "read", _any_alias, "alias-told-for-another-origin"),
    "publications": Rule("copies of a publication are dropped", Publications, "take", _no_publication, drawn.MIXED),
    "withdrawn-confirms-nothing": Rule(
        "what is being withdrawn confirms nothing new",
        Own,
        "since_of",
        _confirmed_by_what_leaves,
        "withdrawn-while-another-is-bound",
    ),
    "removed-last": Rule(
        "what is not wanted any more is withdrawn after what takes its place is announced",
        Own,
        "_difference",
        _removed_first,
        "replaced-by-what-it-covers",
    ),
    "rows-of-a-set": Rule("a set has no more rows than each node keeps", Own, "_covering", _no_room_made, drawn.SMALL),
    "room-with-the-summary": Rule(
        "what makes room for a summary goes in the version that adds it",
        Own,
        "_covering",
        _room_made_first,
        "one-more-than-a-set-holds",
    ),
    "current-life": Rule("only answers of the current life count", Standing, "_of", _any_life, "answer-of-an-old-life"),
    "five-seconds": Rule(
        "who is not listed is not waited for after 5 s",
        confirming,
        "UNLISTED_S",
        1e9,
        "entry-removed-while-a-bind-waits",
    ),
}


@contextmanager
def taken_out(rule: Rule) -> Iterator[None]:
    """The code without that rule, inside of the block."""
    ways = ((rule.owner, rule.attribute, rule.broken), *rule.also)
    whole = [getattr(owner, attribute) for owner, attribute, _ in ways]
    for owner, attribute, broken in ways:
        setattr(owner, attribute, broken)
    try:
        yield
    finally:
        for (owner, attribute, _), function in zip(ways, whole, strict=True):
            setattr(owner, attribute, function)


def find(name: str) -> Found:
    """Runs what is to miss the rule."""
    rule = RULES[name]
    with taken_out(rule):
        if isinstance(rule.by, str):
            return Found(name, rule.sentence, _history(HISTORIES[rule.by]), f"history `{rule.by}`")
        for seed in range(1, SEEDS + 1):
            failure = drawn.run(seed, rule.by).failure
            if failure:
                return Found(name, rule.sentence, failure, f"drawn runs, seed {seed}")
    return Found(name, rule.sentence, "", "drawn runs")


def _history(act: Callable[[], None]) -> str:
    try:
        act()
    except BrokenInvariant as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
