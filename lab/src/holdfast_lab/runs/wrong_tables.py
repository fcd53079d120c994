"""A fault in a node's memory: its table of link states holds records that no node announced.

Rules of this file: everything is drawn from the random source that is handed in. What is wrong afterwards is the table
alone; costs, sessions and the file stay as they were, and so a node that compares its table gets it right again.
"""

from dataclasses import replace
from random import Random
from typing import Final

from holdfast.routing.linkstate import LinkStates
from holdfast.routing.records import VERSION_END, VERSION_HIGH, Edition, Known, Record
from holdfast.routing.topology import MICRO

GHOSTS: Final = ("ghost", "phantom")
"""Nodes that there never were."""


def spoil(states: LinkStates, random: Random, *, share: float = 0.5) -> int:
    """Makes `share` of the records wrong, and what is remembered of neighbours; how many records it were."""
    names = list(states.known)
    spoilt = 0
    for name in names:
        if random.random() < share:
            spoilt += _spoil_record(states, name, names, random)
    if random.random() < 0.3:
        drawn = {name: random.randint(1, 9) * MICRO for name in sorted(random.sample(names, min(2, len(names))))}
        ghost = random.choice(GHOSTS)
        drawn.pop(ghost, None)  # the fault may strike twice; no node takes a record that names itself
        links = tuple(drawn.items())
        states.known[ghost] = Known(Record(ghost, random.choice((5, VERSION_END - 1)), links), ("ghost", 1))
    for told in states.told.values():
        for name in list(told.editions):
            if random.random() < share:
                told.editions[name] = Edition(random.choice((0, VERSION_END - 1)), random.getrandbits(63), 0)
    if random.random() < share:
        states.digest = random.getrandbits(63)
    return spoilt


def _spoil_record(states: LinkStates, name: str, names: list[str], random: Random) -> bool:
    known = states.known[name]
    record = known.record
    if not record.version:  # the file's word, of a node that was not heard of
        return False
    kind = random.choice(("version", "version", "links", "gone", "stamp", "missing"))
    if kind == "version":
        version = random.choice((VERSION_END - 1, VERSION_HIGH, record.version + 7, max(1, record.version - 5)))
        known = Known(replace(record, version=version), known.stamp, known.lost_by)
    elif kind == "links":
        links = {other: random.choice((None, random.randint(1, 9) * MICRO)) for other in names if random.random() < 0.4}
        links.pop(name, None)
        version = record.version + random.choice((0, 0, 1))
        known = Known(replace(record, version=version, links=tuple(sorted(links.items()))), known.stamp)
    elif kind == "gone":
        lost = random.random() < 0.5
        known = Known(replace(record, left=not lost), known.stamp, random.choice(names) if lost else None)
    elif kind == "stamp":
        known = Known(record, None, known.lost_by)
    elif name != states.name:
        del states.known[name]
        return True
    states.known[name] = known
    return True
