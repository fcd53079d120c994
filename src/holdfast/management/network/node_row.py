"""A node's row for the others: a few numbers, as a list of fixed places in a control message.

Rules of this file: what another node says is checked place by place; a wrong row is None. Places may be added at the
end, and a node ignores those that it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.peers.neighbours.features import VERSION_CHARACTERS_MAX
from holdfast.schema import is_whole_within

PLACES_MAX: Final = 32
OWED_MAX: Final = 16
"""Nodes for which one row says so."""
END: Final = 2**63

DISK_FAILS: Final = 1
DRAINED: Final = 2


class NodeRow(NamedTuple):
    """`messages`: in the node's own queues; `in_transmission`: for other nodes; `oldest_s`: the age of the oldest of
    both, None without any. `sessions_up` of `sessions` with neighbours are Established; `links`: of all peers.
    `room_bytes`: what its store may still take. `bits`: DISK_FAILS, DRAINED. `owed`: how many of `in_transmission` are
    for each drained or unknown node."""

    version: str
    protocol: int
    uptime_s: int
    messages: int
    in_transmission: int
    oldest_s: int | None
    dead_letters: int
    sessions_up: int
    sessions: int
    links: int
    connections: int
    room_bytes: int
    warnings: int
    bits: int
    owed: Mapping[str, int]

    @property
    def is_drained(self) -> bool:
        return bool(self.bits & DRAINED)

    def row(self) -> dict[str, Any]:
        """The row as clients get it."""
        fields = self._asdict()
        bits, owed = fields.pop("bits"), fields.pop("owed")
        numbers = {key: Ulong(value) if isinstance(value, int) else value for key, value in fields.items()}
        return {
            **numbers,
            "disk_fails": bool(bits & DISK_FAILS),
            "drained": bool(bits & DRAINED),
            "owed": {name: Ulong(count) for name, count in owed.items()},
        }


def write(row: NodeRow) -> list[Any]:
    """The list that `read` reads."""
    *plain, owed = row
    pairs = [item for name, count in list(owed.items())[:OWED_MAX] for item in (name, Ulong(count))]
    return [*(Ulong(value) if isinstance(value, int) else value for value in plain), pairs]


def read(told: object) -> NodeRow | None:
    """Another node's row; None if it is none."""
    places = len(NodeRow._fields)
    if not isinstance(told, list) or not places <= len(told) <= PLACES_MAX:
        return None
    version, *numbers = told[: places - 1]
    owed = _owed(told[places - 1])
    if not isinstance(version, str) or len(version) > VERSION_CHARACTERS_MAX or owed is None:
        return None
    if not all(
        is_whole_within(value, 0, END) for at, value in enumerate(numbers) if at != _OLDEST or value is not None
    ):
        return None
    return NodeRow._make([str(version), *(None if value is None else int(value) for value in numbers), owed])


_OLDEST: Final = NodeRow._fields.index("oldest_s") - 1
"""Its place among the numbers: the only one that may be null."""


def _owed(told: object) -> dict[str, int] | None:
    if not isinstance(told, list) or len(told) % 2 or len(told) > 2 * OWED_MAX:
        return None
    owed = {}
    for name, count in zip(told[::2], told[1::2], strict=True):
        if not isinstance(name, str) or not is_whole_within(count, 0, END):
            return None
        try:
            owed[check_name(str(name))] = int(count)
        except ConfigError:
            return None
    return owed
