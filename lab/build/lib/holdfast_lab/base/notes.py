"""The event log of a run, a line for each thing that happened."""

from typing import NamedTuple


class Note(NamedTuple):
    """One line of the event log: when (virtual seconds since the start), where, what."""

    at: float
    place: str
    kind: str
    text: str
