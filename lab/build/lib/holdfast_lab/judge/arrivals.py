"""What arrived against what was sent: counts, lost, twice, out of order.

Rules of this file: pure functions. A message is known by the text of its identity; order is within one
origin.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NAMED_MAX: Final = 10
"""Identities listed in a report; the counts are of all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one origin. `reordered` counts arrivals whose predecessor in the sending order arrived after
    them.
    """

    sent: int
    arrived: int
    lost: int
    twice: int
    strange: int
    reordered: int
    examples: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.sent == self.arrived and not (self.lost or self.twice or self.strange or self.reordered)


def judge(sent: Sequence[str], arrived: Sequence[str]) -> Verdict:
    """Compares one origin's identities in the order sent (each once) with those in the order of arrival."""
    place = {identity: number for number, identity in enumerate(sent)}
    assert len(place) == len(sent), "an identity was sent twice"
    found = Counter(arrived)
    lost = [identity for identity in sent if identity not in found]
    twice = [identity for identity, count in found.items() if count > 1]
    strange = [identity for identity in found if identity not in place]
    reordered = []
    highest = -1
    for identity in dict.fromkeys(arrived):
        number = place.get(identity)
        if number is None:
            continue
        if number < highest:
            reordered.append(identity)
        highest = max(highest, number)
    named = (("lost", lost), ("twice", twice), ("strange", strange), ("reordered", reordered))
    examples = [f"{what} {identity}" for what, identities in named for identity in identities[:NAMED_MAX]]
    extra = sum(found[identity] - 1 for identity in twice)
    return Verdict(len(sent), len(arrived), len(lost), extra, len(strange), len(reordered), tuple(examples[:NAMED_MAX]))


def judge_all(sent: Mapping[str, Sequence[str]], arrived: Mapping[str, Sequence[str]]) -> dict[str, Verdict]:
    """`judge` for each origin of either, in alphabetical order."""
    return {origin: judge(sent.get(origin, ()), arrived.get(origin, ())) for origin in sorted({*sent, *arrived})}
