"""The features of a session: capabilities that both nodes offer in their opens (CUSTODY, "The session").

Rules of this file: a node of an earlier version offers fewer of them, and only gets what it understands.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.amqp.wire.performatives import Open

CUSTODY: Final = "holdfast:custody"
"""It is a node, and speaks the protocol of custody."""
ALIASES: Final = "holdfast:aliases"
"""It reads traces by aliases (peers/neighbours/trace_aliases.py)."""
PACING: Final = "holdfast:pacing"
"""It passes the messages of pacing on (docs/pacing.md)."""
HOSTS: Final = "holdfast:hosts"
"""It takes destinations HOST@NODE (docs/virtual-hosts.md)."""
BINDINGS: Final = "holdfast:bindings"
"""It speaks of the bindings of topics (docs/federation.md)."""
BODIES: Final = "holdfast:bodies"
"""It keeps bare messages that later transfers name (peers/neighbours/shared_bodies.py)."""
ALL: Final = (CUSTODY, ALIASES, PACING, HOSTS, BINDINGS, BODIES)


def offered_by(theirs: Open | None, ours: Iterable[str] = ALL) -> frozenset[str]:
    """The features among `ours` that the other end also offers; none before its open."""
    offered = () if theirs is None else theirs.offered_capabilities or ()
    return frozenset(ours).intersection(map(str, offered))
