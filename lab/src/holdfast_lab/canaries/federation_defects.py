"""Canaries in topics over several nodes.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.endpoints.spreading import Published
from holdfast.federation.keeping import ROW
from holdfast.peers.neighbours.shared_bodies import BODY_OF, NOTHING
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 3
MANY: Final = 16


def _chosen_again(original: Function) -> Function:
    """A node chooses anew for what another has sent it: whoever wants it gets it from both."""

    def _deliver(self: Any, origin: Any, number: int, queue: Any, value: bytes, *told: Any) -> None:
        original(self, origin, number, queue, value, *told)
        spreading = self._turns.effects._decided[Published].__self__
        if queue is not None and value[1] & entry.CUSTODY and spreading.is_spread(queue):
            spreading.spread(queue, spreading.branches(queue, value), value)

    return _deliver


def _not_stored(original: Function) -> Function:
    """What other nodes want is said to be on the disk, and only that something is wanted is there."""

    def before_commit(self: Any, turn: Any) -> None:
        federation = self.federation
        if federation is not None:
            told = federation.records
            federation.records = lambda now: [
                write for write in told(now) if write.key[1] == self._name or write.key[0] != ROW
            ]
        try:
            original(self, turn)
        finally:
            if federation is not None:
                del federation.records

    return before_commit


def _untold_beside_many(original: Function) -> Function:
    """A node that passes on what it gets, and wants much itself, is not told which message it is."""

    def _may_pass_on(self: Any, key: Any) -> bool:
        held = self.sets.current(key)
        return bool(original(self, key)) and len(held.rows) - len(held.marked) < FEW

    return _may_pass_on


def _asked_while_there(original: Function) -> Function:
    """Where several neighbours ask for a topic, a node stops to forward it to one whose session ends."""

    def lost(self: Any, session: Any) -> None:
        original(self, session)
        asked = self.made.asked
        topics = [topic for topic, _ in asked]
        gone = [key for key in asked if key[1] == session.name and topics.count(key[0]) > 1]
        for key in gone:
            del asked[key]
        if gone and self.made.moved():
            self._configure()

    return lost


def _passed_on_beyond(original: Function) -> Function:
    """What is to be passed on to a queue that is full of several messages is taken."""

    def no_room(self: Any, topic: Any, value: bytes, count: int) -> Any:
        full = original(self, topic, value, count)
        return None if full is not None and full[0].messages > 1 else full

    return no_room


def _body_of_another(original: Function) -> Function:
    """With many bodies kept, a further copy names the one before its own, if that is as long."""

    def share(self: Any, bare: Any, *, keeps: bool) -> Any:
        said, stands = original(self, bare, keeps=keeps)
        bodies = list(self._numbers)
        if stands == NOTHING and len(bodies) > MANY:
            before = bodies[bodies.index(bytes(bare)) - 1]
            if len(before) == len(bare):
                said = encode(BODY_OF) + encode(Ulong(self._numbers[before]))
        return said, stands

    return share


FEDERATION_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="federated-chosen-again",
        sentence="A node that gets a federated message sends it to all that want it, as if it were published there.",
        target="custody.arrival.destination:Destination._deliver",
        signature=(
            "(self, origin: holdfast.broker.stored.origins.Origin, number: int, queue: "
            "holdfast.broker.queue.Queue | None, value: bytes, size: int, to: str, fault: str | None = "
            "None) -> None"
        ),
        broken=_chosen_again,
        expected="was appended twice to topic/spread",
    ),
    Canary(
        name="federated-said-not-stored",
        sentence="A node says that it has stored what another wants, and forgets it when it is killed.",
        target="peering.binding_control:BindingControl.before_commit",
        signature="(self, turn: holdfast.state.turns.Turn) -> None",
        broken=_not_stored,
        expected="federated-whole",
    ),
    Canary(
        name="federated-untold-beside-many",
        sentence="A node that wants a message and passes it on is not told which one it is: others get it twice.",
        target="federation.federation:Federation._may_pass_on",
        signature="(self, key: holdfast.federation.sets.Key) -> bool",
        broken=_untold_beside_many,
        expected="was appended twice to topic/spread",
    ),
    Canary(
        name="federated-asked-while-there",
        sentence="A node that several neighbours ask for a topic forwards it to each only while that one is there.",
        target="peering.binding_control:BindingControl.lost",
        signature="(self, session: holdfast.peers.neighbours.session_port.Session) -> None",
        broken=_asked_while_there,
        expected="federated-whole",
    ),
    Canary(
        name="relayed-beyond-the-bound",
        sentence="A node takes what it passes on to a full queue, if that has several messages.",
        target="endpoints.passing_on:PassingOn.no_room",
        signature=(
            "(self, topic: holdfast.broker.queue.Queue, value: bytes, count: int)"
            " -> tuple[holdfast.broker.queue.Queue, int] | None"
        ),
        broken=_passed_on_beyond,
        expected="passed on beyond its bound",
    ),
    Canary(
        name="body-of-another",
        sentence="A copy for a further node names the body of another message, which that node then gets.",
        target="peers.neighbours.shared_bodies:GivenBodies.share",
        signature="(self, bare: bytes | memoryview, *, keeps: bool) -> tuple[bytes, bytes | memoryview]",
        broken=_body_of_another,
        expected="was appended twice to topic/spread",
    ),
)
