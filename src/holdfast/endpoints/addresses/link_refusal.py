"""Why a link, or a message on a link without an address, is refused.

Rules of this file: an address is hostile until checked; an invalid one raises Refusal, whose condition and text are
sent to the peer.
"""

from typing import Any

from holdfast.amqp.wire import conditions
from holdfast.broker.entries.address import without_alias
from holdfast.errors import ConfigError
from holdfast.peers.authorise import Authoriser
from holdfast.peers.peer import Peer


class Refusal(Exception):
    """An attach or a message that is refused; `args` are the condition and the description."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


def plain_address(address: Any) -> Any:
    """`address` without what clients put around a name; Refusal if it is malformed."""
    if not isinstance(address, str):
        return address
    try:
        return without_alias(str(address))
    except ConfigError as error:
        raise Refusal(conditions.INVALID_FIELD, str(error)) from error


def may(authoriser: Authoriser, peer: Peer, action: str, address: str) -> bool:
    """Whether the connection's user may do that there."""
    return authoriser.authorise(peer.who, action, address, host=peer.host) is None


def permit(authoriser: Authoriser, peer: Peer, action: str, address: str) -> None:
    """Refusal if the connection's user may not do that there; arguments as in `Authoriser.authorise`."""
    why = authoriser.authorise(peer.who, action, address, host=peer.host)
    if why is not None:
        if peer.audit is not None:
            peer.audit.refused(peer, action, address)
        raise Refusal(conditions.UNAUTHORIZED_ACCESS, why)
