"""The actions that rules allow at an address, and the addresses that are only for administrators.

Rules of this file: pure. An address is that of a queue or topic in the node's own form (broker/entries/address.py).
"""

from typing import Final

from holdfast.broker.entries.address import split_topic

SEND: Final = "send"
RECEIVE: Final = "receive"
BROWSE: Final = "browse"
CREATE: Final = "create"
DELETE: Final = "delete"
LINK_FROM: Final = "link-from"
LINK_TO: Final = "link-to"
RELAY: Final = "relay"
ADMINISTER: Final = "administer"

ACTIONS: Final = (SEND, RECEIVE, BROWSE, CREATE, DELETE, LINK_FROM, LINK_TO, RELAY, ADMINISTER)

NAMED_ONLY: Final = (RELAY, ADMINISTER)
"""Actions that rules allow only to named users or groups, never to all users: a node does not relay for everybody."""

NODE: Final = "$management"
"""The address that is checked for an operation on the node or on all queues."""

TEMPORARY: Final = "$temporary/"
"""The prefix of the names of dynamic nodes; also the address that is checked before one is created."""

NEIGHBOURS: Final = "$holdfast/"
"""Before the addresses of which the sessions of neighbours decide themselves who is one (peering/doors.py)."""


def needed(action: str, address: str) -> tuple[str, str] | None:
    """What it takes to do that there, as (action, address); None: nothing. "" is the address of a dynamic node that is
    to be created.

    Whoever logged in may ask `$management`, because each request is decided by itself. What belongs to the node, and
    dynamic nodes of others, are for administrators. A dynamic node takes messages from whoever may send to its
    address, as it must where it is a `reply-to`.
    """
    if not address:
        return CREATE, TEMPORARY
    if action in (SEND, RECEIVE) and (address == NODE or address.startswith(NEIGHBOURS)):
        return None
    if address.startswith(TEMPORARY) and action in (SEND, CREATE):
        return action, address
    if address.startswith(("$", "@")):
        return ADMINISTER, address
    return action, of_topic(address)


def of_topic(address: str) -> str:
    """The address without a subject: a permission is that of a whole topic."""
    name, at, node = address.partition("@")
    topic = split_topic(name)
    return address if topic is None else f"{topic[0]}{at}{node}"
