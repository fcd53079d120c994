"""What one neighbour takes from this node: what it has of each set, what it is to be sent, and what it has answered.

Rules of this file: only what is on disk is sent, and what it differs from is found out when there is credit, so that
nothing waits in a queue. Everything from the neighbour is bounded. Source: docs/adr/0079.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.federation.aliases import Malformed
from holdfast.federation.messages import (
    BYTES_MAX,
    FOLLOWED_MAX,
    LIST_MAX,
    ROWS_MAX,
    Change,
    Follow,
    Message,
    PartsOf,
    RowsOf,
    Stored,
)
from holdfast.federation.rows import DIGEST_END, VOID, Row, Stamp, name_hash, row_hash, text_hash
from holdfast.federation.sets import NOTHING, Edition, Held, Key, Parts, Step, steps_from, together

PART_ROWS: Final = 64
"""A part with at most this many rows is sent as rows."""

REPLIES_MAX: Final = 4_096
"""The maximum number of parts that one neighbour has asked for and that were not sent yet; more are not answered."""

NAMES_MAX: Final = 10_000
"""The maximum number of nodes that take one set through one neighbour."""

NAMES_ALL_MAX: Final = 200_000
"""The same for all sets of the neighbour together."""

TOLD_MAX: Final = NAMES_MAX * 9 // 10
TOLD_ALL_MAX: Final = NAMES_ALL_MAX * 9 // 10
"""The maximum number of names that a neighbour is sent, for one set and for all: less than it keeps, because it may
keep some that have gone until the next refresh."""

PARTS_KEPT: Final = 8
"""The number of sets whose parts are cached."""

PARTS_ROW_BYTES: Final = 100
"""The estimated memory of a row's place in the parts of a set."""


class Base(NamedTuple):
    """What a follower has, or will have once everything sent has arrived. `form`: identifies the rows. `rows`: the
    rows; None for an intermediate form, which is known only by its number."""

    form: int
    edition: Edition
    rows: frozenset[Row] | None


@dataclass(slots=True)
class Follower:
    """One set that the neighbour takes. `has`: the edition that it reported; `base`: the content that it will have once
    everything sent has arrived, None if unknown; `sent`: the edition that it was last sent, or has. `compared`: the
    form whose parts it compares with its own: it is sent no other before it has that one, so that what changes in the
    meantime does not make it begin anew."""

    has: Edition
    base: Base | None = None
    compared: Held | None = None
    sent: Edition = NOTHING
    whole: bool = False
    names: dict[str, Stamp] = field(default_factory=dict)
    lists_all: bool = False
    """Whether it had room for all names behind it that had changed, when it answered last."""

    def reset(self) -> None:
        """Only what it reported counts: it may lack anything else that it was sent."""
        self.sent, self.base, self.compared = self.has, None, None

    def reaches(self, base: Base) -> None:
        """It has that content, or will have it."""
        self.sent, self.base, self.compared = base.edition, base, None

    @property
    def digest(self) -> int:
        """The digest that is compared at each refresh."""
        return standing_digest(self.has, self.names, whole=self.whole)


class PartsCache:
    """Caches the parts of a few forms of sets, because they are asked for many times."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Key, Held, Parts]] = {}
        """By form, those asked for last at the end."""

    def has(self, held: Held) -> bool:
        """Whether `of` need not make them."""
        return held.form in self._kept

    def discard_unused(self, servings: Collection["Serving"], committed: Callable[[Key], Held | None]) -> None:
        """Discards the forms that none of these compares any more, nor may begin to compare."""
        for key, held, _ in list(self._kept.values()):
            now = committed(key)
            is_current = now is not None and now.form == held.form
            if not any(serving.may_compare(key, held, is_current=is_current) for serving in servings):
                del self._kept[held.form]

    def held_bytes(self, committed: Callable[[Key], Held | None]) -> int:
        """The estimated memory: of the parts, and of the rows of forms that sets do not have any more."""
        size = 0
        for key, held, _ in self._kept.values():
            now = committed(key)
            size += PARTS_ROW_BYTES * len(held.rows)
            size += 0 if now is not None and now.form == held.form else held.bytes
        return size

    def of(self, key: Key, held: Held) -> Parts:
        found = self._kept.pop(held.form, None)
        parts = Parts(held.rows) if found is None else found[2]
        self._kept[held.form] = key, held, parts
        while len(self._kept) > PARTS_KEPT:
            del self._kept[next(iter(self._kept))]
        return parts

    def form(self, key: Key, held: Held, has: Stamp) -> Held:
        """The form that a follower with that stamp is to compare: one whose parts are kept, because others compare it,
        if the way from there to `held` is known; otherwise `held`."""
        for other, form, _ in reversed(self._kept.values()):
            if other == key and has < form.stamp < held.stamp and steps_from(form.form, held) is not None:
                return form
        return held


class Serving:
    """Of one neighbour, while its session is up. `pending`: sets of which it may have to be sent something; `answered`:
    sets of which its answers moved, since the caller took this back."""

    def __init__(self, neighbour: str) -> None:
        self.neighbour = neighbour
        self.topics: frozenset[str] = frozenset()
        """Topics that it forwards to us: it takes their sets."""
        self.followers: dict[Key, Follower] = {}
        self.named = 0
        """The number of names of nodes behind it, of all sets."""
        self.pending: dict[Key, None] = {}
        self.answered: dict[Key, None] = {}
        self.replies: deque[tuple[Key, Edition, str]] = deque()
        """The parts to send: set, edition and digits."""

    # ------------------------------------------------------------------------------------------------ from it

    def federate(self, topics: frozenset[str]) -> None:
        for key in [key for key in self.followers if key.topic not in topics]:
            self._stop(key)
        self.topics = topics

    def follow(self, message: Follow) -> list[tuple[Key, Edition]]:
        """The neighbour reports what it has of sets that it takes. Raises Malformed."""
        if message.whole:
            for key in list(self.followers):
                self._stop(key)
        for key in message.stop:
            self._stop(key)
        for key, has in message.rows:
            if key.topic not in self.topics:
                raise Malformed(f"follow of {key.topic!r}; expected a topic that it forwards here")
            if key not in self.followers and len(self.followers) >= FOLLOWED_MAX:
                raise Malformed(f"more than {FOLLOWED_MAX} sets followed")
            follower = self.followers.setdefault(key, Follower(has))
            follower.has = has
            follower.reset()
            if has == NOTHING:
                follower.base = Base(0, NOTHING, frozenset())
            self.pending[key] = self.answered[key] = None
        return list(message.rows)

    def _stop(self, key: Key) -> None:
        gone = self.followers.pop(key, None)
        if gone is not None:
            self.named -= len(gone.names)
            self.pending.pop(key, None)
            self.answered[key] = None

    def stored(self, message: Stored, held: Held | None) -> None:
        """The neighbour reports what it has stored of a set, of which `held` is here. Does nothing if it has stopped
        taking the set. Raises Malformed."""
        follower = self.followers.get(message.key)
        if follower is None:
            return
        is_void, compared = message.has.stamp < follower.has.stamp, follower.compared
        follower.has, follower.whole = message.has, message.whole
        if is_void or (compared is not None and message.has.stamp >= compared.stamp):
            follower.reset()  # it takes what is here, or has compared to the end, or has what did not come from here
        for form in (compared, held):
            if form is not None and form.edition == message.has:
                follower.reaches(_base(form))
        for name, stamp in message.names:
            if stamp is None:
                self.named -= follower.names.pop(name, None) is not None
                continue
            if name not in follower.names:
                if len(follower.names) >= NAMES_MAX or self.named >= NAMES_ALL_MAX:
                    raise Malformed(f"more than {NAMES_MAX} names behind it, or {NAMES_ALL_MAX} of all sets")
                self.named += 1
            follower.names[name] = stamp
        few = len(follower.names) < TOLD_MAX and self.named < TOLD_ALL_MAX
        follower.lists_all = few and len(message.names) < LIST_MAX
        self.answered[message.key] = self.pending[message.key] = None

    def send_again(self) -> None:
        """Trusts only what the neighbour has reported: anything else that was sent is sent again."""
        for key, follower in self.followers.items():
            if follower.has != follower.sent or follower.compared is not None:
                follower.reset()
                self.pending[key] = None

    def may_compare(self, key: Key, held: Held, *, is_current: bool) -> bool:
        """Whether the neighbour compares this form of a set, or may begin to: of those that it takes, the current
        ones."""
        follower = self.followers.get(key)
        if follower is None:
            return False
        return is_current or (follower.compared is not None and follower.compared.form == held.form)

    def compared(self, key: Key, edition: Edition) -> Held | None:
        """The form that the neighbour compares with its own; None if it is no longer that one."""
        follower = self.followers.get(key)
        held = None if follower is None else follower.compared
        return held if held is not None and held.edition == edition else None

    def ask(self, message: PartsOf, cache: PartsCache) -> None:
        """The neighbour has different sums of these parts."""
        held = self.compared(message.key, message.new)
        if held is None:
            return
        ours = cache.of(message.key, held).digests(message.prefix)
        for digit, (mine, theirs) in enumerate(zip(ours, message.digests, strict=True)):
            if mine != theirs:
                if len(self.replies) >= REPLIES_MAX:
                    return  # who asks faster than it is answered asks again at its next refresh
                self.replies.append((message.key, message.new, f"{message.prefix}{digit:x}"))

    # ------------------------------------------------------------------------------------------------ to it

    def reply(self, key: Key, new: Edition, prefix: str, parts: Parts) -> Message:
        """The requested part: its rows, or the sums of the parts in it."""
        rows = tuple(parts.rows(prefix)) if parts.count(prefix) <= PART_ROWS else ()
        if (rows or not parts.count(prefix)) and (len(rows) <= 1 or sum(row.size for row in rows) <= BYTES_MAX):
            return RowsOf(key, new, prefix, rows)
        return PartsOf(key, new, prefix, parts.digests(prefix))

    def next(self, key: Key, held: Held | None, cache: PartsCache) -> Message | None:
        """The next message about a set; None if the neighbour has, or was sent, what is here, or still compares."""
        follower = self.followers.get(key)
        if follower is None or held is None or held.stamp == VOID:
            return None
        if follower.has == held.edition:
            follower.reaches(_base(held))
        if follower.has.stamp > held.stamp or follower.sent == held.edition or follower.compared is not None:
            return None
        if follower.base is None and follower.sent.digest == held.digest:
            follower.base = Base(held.form, follower.sent, held.rows)
        if follower.base is not None:
            found = _change(key, follower.base, held)
            if found is not None:
                change, base = found
                follower.reaches(base)
                return change
        if len(held.rows) <= PART_ROWS and _fits(held.rows):
            follower.reaches(_base(held))
            return RowsOf(key, held.edition, "", _ordered(held.rows), held.edges)
        form = follower.compared = cache.form(key, held, follower.has.stamp)
        follower.sent, follower.base = form.edition, None
        return PartsOf(key, form.edition, "", cache.of(key, form).digests(""), form.edges)

    def end_comparison(self, key: Key) -> None:
        """The set is gone or void: its parts are no longer told."""
        follower = self.followers.get(key)
        if follower is not None and follower.compared is not None:
            follower.reset()

    def was_sent(self, key: Key, held: Held | None) -> bool:
        """Whether the neighbour was sent all of the set."""
        follower = self.followers.get(key)
        return follower is None or held is None or follower.sent == held.edition

    def is_behind(self, key: Key, held: Held | None) -> bool:
        """Whether the neighbour has a higher stamp than we have."""
        follower = self.followers.get(key)
        return follower is not None and held is not None and held.stamp != VOID and follower.has.stamp > held.stamp

    @property
    def digest(self) -> tuple[int, int]:
        """Count and sum of all sets that it takes, with its answers."""
        return len(self.followers), combined((key, one.digest) for key, one in self.followers.items())


def combined(rows: Iterable[tuple[Key, int]]) -> int:
    """The sum over all sets of what was sent about each."""
    return sum(text_hash(key.origin, key.topic, digest) for key, digest in rows) % DIGEST_END


def standing_digest(has: Edition, names: Mapping[str, Stamp], *, whole: bool) -> int:
    """The digest of what a follower has and has answered."""
    behind = sum(name_hash(name, stamp) for name, stamp in names.items()) % DIGEST_END
    return text_hash(*has.stamp, has.digest, whole, behind)


def _base(held: Held) -> Base:
    return Base(held.form, held.edition, held.rows)


def _change(key: Key, base: Base, held: Held) -> tuple[Change, Base] | None:
    """As many of the changes that led from `base` to the set as one message can hold, and what they lead to; None if
    the way is not known and the whole difference too large."""
    steps = steps_from(base.form, held)
    add: Set[Row]
    remove: Set[Row]
    if steps is None:
        if base.rows is None:
            return None
        add, remove, end, edges = held.rows - base.rows, base.rows - held.rows, _base(held), held.edges
    else:
        count = _fitting(steps)
        add, remove = together(steps[:count])
        if count == len(steps):
            end, edges = _base(held), held.edges
        else:
            following = steps[count]
            end, edges = Base(following.form, following.edition, None), following.edges
            if not base.edition.stamp < end.edition.stamp < held.stamp:
                return None
    if not _fits(add) or not _fits(remove):
        return None
    return Change(key, base.edition, end.edition, edges, _ordered(add), _ordered(remove)), end


def _fitting(steps: Sequence[Step]) -> int:
    """How many of the changes fit one message together; at least the first."""
    add: list[Row] = []
    remove: list[Row] = []
    for count, step in enumerate(steps):
        add += step.add
        remove += step.remove
        if count and not (_fits(add) and _fits(remove)):
            return count
    return len(steps)


def _ordered(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=row_hash))


def _fits(rows: Collection[Row]) -> bool:
    return len(rows) <= ROWS_MAX and (len(rows) <= 1 or sum(row.size for row in rows) <= BYTES_MAX)
