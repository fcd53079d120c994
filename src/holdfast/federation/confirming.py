"""Binds that wait to be confirmed: which nodes have stored the version that holds them, and when all have.

Rules of this file: who is in `confirmed` has stored the version, in the current life of the set; all else decides only
when the answer comes. Source: docs/adr/0079.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.federation.rows import Row, Stamp
from holdfast.federation.standing import Reached

UNLISTED_S: Final = 5.0
"""A node that confirmed before, and that no follower has listed for this long, is not waited for."""

REGULARS_MAX: Final = 20_000
"""The number of nodes of one topic above which only nodes that are listed now are waited for."""

LISTED: Final = float("inf")

WAITING_MAX: Final = 10_000
"""The maximum number of waiting binds of all topics; a further one is answered at once with what is known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a bind. Each node in `confirmed` sends what it accepts from then on, as long as its store exists;
    `waiting`: nodes that did not confirm in time. `complete`: there are none of these."""

    token: int
    topic: str
    confirmed: tuple[str, ...]
    waiting: tuple[str, ...]
    complete: bool


@dataclass(slots=True)
class Bind:
    token: int
    topic: str
    row: Row
    deadline: float
    by: Row | None = None
    """The announced row that confirms it, once one is on disk."""
    looked: bool = False
    """Whether all rows with wildcards were checked."""


@dataclass(slots=True)
class Confirming:
    """`regulars`: by topic, the nodes that followers list, LISTED, or listed of late, and until when they did."""

    binds: dict[int, Bind] = field(default_factory=dict)
    regulars: dict[str, dict[str, float]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    token: int = 0

    def ask(self, topic: str, row: Row, deadline: float) -> Bind:
        self.token += 1
        bind = self.binds[self.token] = Bind(self.token, topic, row, deadline)
        return bind

    def listed(self, topic: str, names: Mapping[str, Stamp], now: float) -> None:
        """Takes the nodes that are listed now. A node that has confirmed and is not listed is kept for UNLISTED_S."""
        regulars = self.regulars.setdefault(topic, {})
        for name, at in list(regulars.items()):
            if name in names:
                continue
            if at == LISTED:
                regulars[name] = now
            elif now >= at + UNLISTED_S:
                del regulars[name]
        regulars.update(dict.fromkeys(names, LISTED))
        if len(regulars) > REGULARS_MAX:
            self.regulars[topic] = dict.fromkeys(names, LISTED)

    def settle(self, bind: Bind, reached: Reached | None, now: float, *, give_up: bool = False) -> bool:
        """Answers the bind, if it is complete or its time is over. `reached`: of the version that holds it, None where
        that is not on disk."""
        done, waiting = reached or Reached((), frozenset())
        complete = reached is not None and not waiting
        if not complete and now < bind.deadline and not give_up:
            return False
        del self.binds[bind.token]
        waiting = waiting.difference(done) or waiting  # a follower that has it may wait for those behind it
        self.answers.append(Answer(bind.token, bind.topic, done, tuple(sorted(waiting)), complete))
        return True

    def next_deadline(self, now: float) -> float | None:
        """The next time at which a bind times out, or a node is not waited for."""
        if not self.binds:
            return None
        times = [bind.deadline for bind in self.binds.values()]
        for topic in {bind.topic for bind in self.binds.values()}:
            times += [at + UNLISTED_S for at in self.regulars.get(topic, {}).values() if at != LISTED]
        return max(now, min(times))
