"""A program that speaks as a neighbour, and says whatever a test has it say.

Rules of this file: no assertions about behaviour.
"""

from typing import Any
from uuid import UUID

from holdfast.amqp.connection import LinkAttached, Sender
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.peers.neighbours import features
from support.rig import Client, Node, Rig


class Liar(Client):
    """A program that speaks as the neighbour jfk; it takes whatever links are attached to it."""

    def __init__(self, rig: Rig) -> None:
        capabilities = tuple(map(Symbol, features.ALL))
        super().__init__(rig, container_id="jfk", offered_capabilities=capabilities)

    def receive(self, data: bytes) -> None:
        for event in self.amqp.receive(data, self.rig.now):
            if isinstance(event, LinkAttached) and event.remote_initiated:
                event.link.accept()
                if not isinstance(event.link, Sender):
                    event.link.grant(100)


def connect(rig: Rig, node: Node) -> Liar:
    liar = Liar(rig)
    rig.clients.append(liar)
    liar.end = rig.attach(liar, node, peer="liar")
    rig.settle()
    return liar


def custody_link(rig: Rig, liar: Liar, name: str, destination: str = "hub") -> Any:
    """A link on which it sends messages in custody."""
    options = {Symbol("holdfast:destination"): destination, Symbol("holdfast:epoch"): UUID(int=5)}
    target = Target(address="$holdfast/custody")
    link = liar.session.attach_sender(name, Source(), target, properties=options)
    rig.settle()
    return link
