"""Which queue an address means at this node: for links, and for messages that carry their own address.

Rules of this file: an address is hostile until checked; what cannot be is a Refusal, whose condition and words are
told to the peer.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.amqp import conditions
from holdfast.amqp.effort import ATTACH
from holdfast.broker.address import Address, parse, without_alias
from holdfast.broker.queue import Queue
from holdfast.core.catalog import DEAD_LETTERS, TooManyQueues
from holdfast.core.temporaries import PREFIX
from holdfast.errors import ConfigError
from holdfast.names import check_name

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


MANAGEMENT: Final = "$management"
"""Where requests go, and where the answers to them come from (requests.py)."""

QUEUE_EFFORT: Final = 2 * ATTACH
"""What a queue that is made for a client costs its connection, beside the attach or message that asked for it."""


class Refusal(Exception):
    """What cannot be answered with a link, or taken; `args` are the condition and the description."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class Place(NamedTuple):
    """Where messages for an address go: `queue` holds them; `destination` and `to` where another node is meant.

    `unknown`: that other node, where nothing is known of it and `queue` is the dead letters.
    """

    queue: Queue
    destination: str | None
    to: str
    unknown: str | None = None


def plain_address(address: Any) -> Any:
    """`address` without what clients put around a name; Refusal where that cannot be read."""
    if not isinstance(address, str):
        return address
    try:
        return without_alias(str(address))
    except ConfigError as error:
        raise Refusal(conditions.INVALID_FIELD, str(error)) from error


def address_of(core: "NodeCore", text: str) -> Address:
    """The address that a plain text writes, as seen from here."""
    if text == DEAD_LETTERS or text.startswith(PREFIX):
        return Address(text, None)
    try:
        return parse(text, own_name=core.config.name, own_addresses=core.config.own_addresses)
    except ConfigError as error:
        raise Refusal(conditions.INVALID_FIELD, str(error)) from error


def target_of(core: "NodeCore", text: str) -> Address:
    """As `address_of`, where a client's messages go: a Refusal for the dead letters, of whichever node. What the node
    itself puts there, and what a neighbour has in custody, do not come this way."""
    if DEAD_LETTERS in (text, text.rpartition("@")[0]):
        words = "found as a target, accepted is as a source: the node alone puts messages there"
        raise Refusal(conditions.NOT_ALLOWED, f"{DEAD_LETTERS}: {words}")
    return address_of(core, text)


def local(core: "NodeCore", name: str) -> Queue:
    """The queue of that name here, made where the node makes what clients name."""
    if name.startswith(PREFIX):
        queue = core.catalog.queues.get(name)
    else:
        try:
            queue = core.catalog.local(name)
        except TooManyQueues as error:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, str(error)) from error
        except ConfigError as error:
            raise Refusal(conditions.INVALID_FIELD, str(error)) from error
    if queue is None:
        raise Refusal(conditions.NOT_FOUND, f"no queue {name!r} at {core.config.name!r}")
    return queue


def transmission(core: "NodeCore", destination: str) -> Queue:
    """The queue for what is bound for another node, which must have been heard of, unless such are kept."""
    known = core.forwarding.knows(check_name(destination))
    if not known and core.config.unknown_destination != "keep":
        core.forwarding.refused += 1
        raise Refusal(conditions.NOT_FOUND, f"{core.config.name!r} has no route to {destination!r}")
    try:
        queue = core.catalog.transmission(destination, known=known)
    except TooManyQueues as error:
        raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, str(error)) from error
    core.forwarding.steer(destination)
    return queue


def place(core: "NodeCore", address: Address) -> Place:
    """Where a message for that address is put."""
    if address.node is None:
        return Place(local(core, address.queue), None, "")
    if core.config.unknown_destination == "dead-letter" and not core.forwarding.knows(address.node):
        return Place(core.catalog.own(DEAD_LETTERS), None, address.queue, address.node)
    return Place(transmission(core, address.node), address.node, address.queue)
