"""How much memory a message takes while it waits to be applied.

Rules of this file: pure; rather too much than too little.
"""

from typing import Final

from holdfast.federation.messages import Change, Claim, Federate, Follow, Message, PartsOf, RowsOf, Stored
from holdfast.federation.rows import Row

MESSAGE_BYTES: Final = 1_024
ITEM_BYTES: Final = 384
ROW_BYTES: Final = 192
"""What a message holds in memory, at most: itself with its digests, each name or set in it, and each row beside its
text."""


def held_bytes(message: Message) -> int:
    """How much memory a message takes until it is applied: at least what it does, beside names of the session."""
    items = 0
    rows: tuple[Row, ...] = ()
    match message:
        case Federate(rows=named, asks=asks):
            items = len(named) + sum(1 + len(ask.patterns) for ask in asks)
            rows = tuple(Row(pattern) for ask in asks for pattern in ask.patterns)
        case Stored(names=names):
            items = len(names)
        case Follow(rows=sets, stop=stop):
            items = len(sets) + len(stop)
        case Change():
            items, rows = len(message.edges), (*message.add, *message.remove)
        case RowsOf():
            items, rows = len(message.edges or ()), message.rows
        case PartsOf():
            items = len(message.edges or ())
        case Claim():
            items = len(message.trace)
    return MESSAGE_BYTES + ITEM_BYTES * items + sum(ROW_BYTES + row.size for row in rows)
