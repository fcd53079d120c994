"""Counts messages that came again and were not stored again: copies of other nodes' messages, and what a named producer
sent twice."""


class Duplicates:
    """`suppressed`: since the node's start."""

    __slots__ = ("suppressed",)

    def __init__(self) -> None:
        self.suppressed = 0
