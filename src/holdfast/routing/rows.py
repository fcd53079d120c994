"""The rows of link states in control messages: how they are read and written.

Rules of this file: everything from a neighbour is checked, row by row; an invalid row raises Malformed. Source:
esb-dynamic-routing §4.2; docs/adr/0015-routing.md.
"""

from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.routing.records import (
    BITS_KNOWN,
    DIGEST_END,
    LEFT,
    LOST,
    STAMPED,
    SUPER,
    VERSION_END,
    Edition,
    Known,
    Record,
)
from holdfast.routing.topology import COST_MICRO_MAX
from holdfast.schema import is_whole_within

ROW_FIELDS: Final = 8
SUMMARY_FIELDS: Final = 4
FIELDS_MAX: Final = 32
"""A row may have more fields than are known here, up to so many: a newer node's, and left out."""


class Malformed(ValueError):
    """An invalid row, with what is wrong and what is expected."""


def _whole(what: str, value: object, low: int, end: int) -> int:
    if not is_whole_within(value, low, end):
        raise Malformed(f"invalid value {value!r} for {what}; expected {low} to {end - 1}")
    return int(value)


def _name(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise Malformed(f"invalid value {value!r} for {what}; expected a name")
    try:
        return check_name(str(value))
    except ConfigError as error:
        raise Malformed(f"{what}: {error}") from None


def read_names(told: object, most: int) -> list[str]:
    """A list of 1 to `most` names; empty where it is none."""
    if not isinstance(told, list) or not 0 < len(told) <= most or not all(isinstance(name, str) for name in told):
        return []
    try:
        return [check_name(str(name)) for name in told]
    except ConfigError:
        return []


def read_summary_row(row: object) -> tuple[str, Edition]:
    """Reads a row of a summary: a node and the version that is known. Raises Malformed."""
    if not isinstance(row, list) or not SUMMARY_FIELDS <= len(row) <= FIELDS_MAX:
        raise Malformed(f"invalid row of a summary; expected a list of {SUMMARY_FIELDS} to {FIELDS_MAX} fields")
    name = _name("a row's node", row[0])
    numbers = zip(row[1:SUMMARY_FIELDS], (VERSION_END, DIGEST_END, VERSION_END), strict=True)
    version, fingerprint, bits = (_whole(f"the summary of {name!r}", item, 0, end) for item, end in numbers)
    return name, Edition(version, fingerprint, bits & BITS_KNOWN)


def write_summary_row(name: str, edition: Edition) -> tuple[list[Any], int]:
    """The row that `read_summary_row` reads, and about how many bytes it takes."""
    return [name, Ulong(edition.version), Ulong(edition.fingerprint), Ulong(edition.bits)], 24 + len(name.encode())


def is_summary_row(row: object) -> bool:
    """Whether it can be read."""
    try:
        read_summary_row(row)
    except Malformed:
        return False
    return True


def read_row(row: object, neighbours_max: int) -> Known:
    """A row of a control message. Raises Malformed."""
    if not isinstance(row, list) or not ROW_FIELDS <= len(row) <= FIELDS_MAX:
        raise Malformed(f"invalid row; expected a list of {ROW_FIELDS} to {FIELDS_MAX} fields")
    name = _name("a row's node", row[0])
    where = f"the row of {name!r}"
    version = _whole(f"{where}, version", row[1], 1, VERSION_END)
    bits = _whole(f"{where}, bits", row[2], 0, VERSION_END) & BITS_KNOWN
    store, told = row[3], row[4]
    if store is not None and not isinstance(store, UUID):
        raise Malformed(f"invalid store in {where}; expected a UUID or none")
    if not isinstance(told, list) or len(told) % 2 or len(told) > 2 * neighbours_max:
        raise Malformed(f"invalid links in {where}; expected up to {neighbours_max}, a name and a cost each")
    links: dict[str, int | None] = {}
    for neighbour, cost in zip(told[::2], told[1::2], strict=True):
        neighbour = _name(f"{where}, a neighbour", neighbour)
        if neighbour == name or neighbour in links:
            raise Malformed(f"invalid neighbour {neighbour!r} in {where}; expected each once, and not the node itself")
        links[neighbour] = None if cost is None else _whole(f"{where}, a cost", cost, 1, COST_MICRO_MAX + 1)
    stamp = lost_by = None
    if bits & STAMPED:
        stamp = _name(f"{where}, stamped by", row[5]), _whole(f"{where}, stamp", row[6], 0, VERSION_END)
    if bits & LOST:
        lost_by = _name(f"{where}, lost by", row[7])
    record = Record(name, version, tuple(sorted(links.items())), store, bool(bits & LEFT), bool(bits & SUPER))
    return Known(record, stamp, lost_by)


def write_row(known: Known) -> tuple[list[Any], int]:
    """The row that `read_row` reads, and about how many bytes it takes."""
    record, stamp = known.record, known.stamp
    links: list[Any] = []
    size = 48 + len(record.name.encode()) + (0 if stamp is None else 12 + len(stamp[0].encode()))
    for neighbour, cost in record.links:
        links += [neighbour, None if cost is None else Ulong(cost)]
        size += 11 + len(neighbour.encode())
    bits = known.edition.bits | (LEFT if record.left else 0) | (SUPER if record.is_super else 0)
    count = None if stamp is None else Ulong(stamp[1])
    name = None if stamp is None else stamp[0]
    return [record.name, Ulong(record.version), Ulong(bits), record.store, links, name, count, known.lost_by], size
