"""Why a link, or a message on a link without an address, is refused.

Rules of this file: an address is hostile until checked; what cannot be is a Refusal, whose condition and words are
told to the peer.
"""

from typing import Any

from holdfast.amqp.wire import conditions
from holdfast.broker.entries.address import without_alias
from holdfast.errors import ConfigError
from holdfast.peers.authorise import Authoriser
from holdfast.peers.peer import Peer


class Refusal(Exception):
    """What cannot be answered with a link, or taken; `args` are the condition and the description."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


def plain_address(address: Any) -> Any:
    """`address` without what clients put around a name; Refusal where that cannot be read."""
    if not isinstance(address, str):
        return address
    try:
        return without_alias(str(address))
    except ConfigError as error:
        raise Refusal(conditions.INVALID_FIELD, str(error)) from error


def permit(authoriser: Authoriser, peer: Peer, action: str, address: str) -> None:
    """Refusal where who is behind the connection may not do that there; as `Authoriser.authorise` names both."""
    why = authoriser.authorise(peer.amqp.authenticated_user, action, address, host=peer.host)
    if why is not None:
        raise Refusal(conditions.UNAUTHORIZED_ACCESS, why)
