"""Why a message from a neighbour becomes a dead letter on arrival: it is malformed, or the neighbour's account may not
send there (docs/security.md).

Rules of this file: reads only. The account of the neighbour that sent a relayed message publishes it
(amqp-illustrations, "Message Relay"); whether messages may pass through this node is decided by the topology.
"""

from collections.abc import Mapping
from typing import Protocol

from holdfast.access.actions import CREATE, SEND
from holdfast.amqp.message import framing
from holdfast.custody.transfers.carried import Arrival
from holdfast.names import DEAD_LETTERS
from holdfast.peers.audit import Audit
from holdfast.peers.authorise import Authoriser
from holdfast.state.catalog import Catalog
from holdfast.state.on_demand import makes


class FaultOf(Protocol):
    """Finds the reason; None if there is none. `host`: the virtual host that the message is for; `via`: the neighbour
    that sent it."""

    def __call__(self, host: str, arrival: Arrival, via: str) -> str | None: ...


def no_message(host: str, arrival: Arrival, via: str) -> str | None:
    """A `FaultOf` for nodes without access rules: every neighbour may send everywhere."""
    fault = arrival.fault if arrival.large else framing.fault(arrival.bare)
    return None if fault is None else f"no message: {fault}"


class Publishing:
    """Checks each arrival. `accounts`: by neighbour, the user as whom its messages are published."""

    def __init__(self, catalog: Catalog, authoriser: Authoriser, accounts: Mapping[str, str], audit: Audit) -> None:
        self._catalog = catalog
        self._authoriser = authoriser
        self._accounts = accounts
        self._audit = audit

    def fault_of(self, host: str, arrival: Arrival, via: str) -> str | None:
        """As `FaultOf`."""
        fault = no_message(host, arrival, via)
        to = arrival.to
        if fault is not None or to == DEAD_LETTERS:  # where it would go anyway
            return fault
        who = self._accounts.get(via)
        actions = (SEND, CREATE) if makes(self._catalog, host, to) else (SEND,)
        for action in actions:
            if self._authoriser.authorise(who, action, to, host=host) is not None:
                self._audit.not_published(via, who, action, to, host)
                return f"neighbour {via!r} has no permission to {action} to {to!r} as user {who!r}"
        return None
