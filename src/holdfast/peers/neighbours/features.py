"""The features of a session: capabilities that both nodes offer in their opens (CUSTODY, "The session").

Rules of this file: a node of an earlier version offers fewer of them, and only gets what it understands.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast import __version__
from holdfast.amqp.wire.performatives import Open
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.schema import is_whole_within

CUSTODY: Final = "holdfast:custody"
"""It is a node, and speaks the protocol of custody."""
ALIASES: Final = "holdfast:aliases"
"""It reads traces by aliases (peers/neighbours/trace_aliases.py)."""
PACING: Final = "holdfast:pacing"
"""It passes the messages of pacing on (docs/pacing.md)."""
HOSTS: Final = "holdfast:hosts"
"""It takes destinations HOST@NODE (docs/virtual-hosts.md)."""
BINDINGS: Final = "holdfast:bindings"
"""It exchanges the bindings of topics (docs/federation.md)."""
BODIES: Final = "holdfast:bodies"
"""It keeps bare messages to which later transfers refer (peers/neighbours/shared_bodies.py)."""
ALL: Final = (CUSTODY, ALIASES, PACING, HOSTS, BINDINGS, BODIES)

PROTOCOL: Final = 1
"""The version of the protocol between nodes, for people only: two nodes use the features that both offer."""
VERSION_KEY: Final = Symbol("version")
PROTOCOL_KEY: Final = Symbol("holdfast:protocol")
VERSION_CHARACTERS_MAX: Final = 40

VERSIONS: Final[Mapping[Symbol, Any]] = {VERSION_KEY: __version__, PROTOCOL_KEY: Ulong(PROTOCOL)}
"""Properties of an open, sent only to nodes."""


def versions_of(properties: Mapping[Any, Any]) -> tuple[str | None, int | None]:
    """The software and protocol versions in the other end's open; None if it has none."""
    version, protocol = properties.get(VERSION_KEY), properties.get(PROTOCOL_KEY)
    told = version[:VERSION_CHARACTERS_MAX] if isinstance(version, str) and not isinstance(version, Symbol) else None
    return told, int(protocol) if is_whole_within(protocol, 0, 2**32) else None


def offered_by(theirs: Open | None, ours: Iterable[str] = ALL) -> frozenset[str]:
    """The features among `ours` that the other end also offers; none before its open."""
    offered = () if theirs is None else theirs.offered_capabilities or ()
    return frozenset(ours).intersection(map(str, offered))
