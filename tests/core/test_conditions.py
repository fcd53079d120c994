"""Each error condition of §2.8.15 to §2.8.18 and §4.5.10 that a node has for a peer, where the specification wants it
(docs/amqp.md, "Error conditions")."""

from collections.abc import Callable
from typing import Any

import pytest

from amqp.joined import performatives, wire
from amqp.node_player import Player
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.engine import events

BODY = b"\x00\x53\x75\xa0\x01x"


def producer(target: Target | None, handle: int = 0, name: str = "s") -> Attach:
    return Attach(name, handle, False, source=Source(), target=target, initial_delivery_count=0)


def consumer(source: Source | None, handle: int = 1, **terms: Any) -> Attach:
    return Attach("r", handle, True, source=source, target=Target(), **terms)


def idle(node: Player) -> None:
    node.wait(61)


def stop(node: Player) -> None:
    node.handle(events.Stopping())
    node.turn()


def take(node: Player) -> None:
    queue = node.core.catalog.queues["q"]
    queue.add_cursor("s", "take", 1)


Step = bytes | Callable[[Player], None]
Q = Target("q")
CASES: list[tuple[str, type, list[Step]]] = [
    (conditions.NOT_FOUND, Detach, [wire(producer(Target("missing")))]),
    (conditions.NOT_FOUND, Detach, [wire(consumer(Source("missing")))]),
    (conditions.NOT_FOUND, Detach, [wire(producer(Target("q@nowhere")))]),
    (conditions.UNAUTHORIZED_ACCESS, Detach, [wire(producer(Target("$holdfast/control")))]),
    (conditions.INVALID_FIELD, Detach, [wire(producer(Target("$waiting")))]),
    (conditions.NOT_FOUND, Detach, [wire(producer(Target("$cbs")))]),
    (conditions.NOT_FOUND, Detach, [wire(consumer(Source("$cbs")))]),
    (conditions.NOT_FOUND, Detach, [wire(producer(Target("$mine@elsewhere")))]),
    (conditions.INVALID_FIELD, End, [wire(Flow(7, 9, 0, 9))]),
    (conditions.NOT_FOUND, Detach, [wire(consumer(None))]),
    (conditions.NOT_IMPLEMENTED, Detach, [wire(consumer(Source()))]),
    (conditions.RESOURCE_LOCKED, Detach, [take, wire(consumer(Source("q")))]),
    (conditions.RESOURCE_DELETED, Detach, [
        wire(producer(Target(dynamic=True)), consumer(Source("$temporary/1e2feb89414c343c1027c4d1c386bbc4"))),
        wire(Detach(0, True)),
    ]),
    (conditions.PRECONDITION_FAILED, Disposition, [wire(producer(Target())), wire((Transfer(0, 0, b"t"), BODY))]),
    (conditions.DECODE_ERROR, Disposition, [wire(producer(Q)), wire((Transfer(0, 0, b"t"), b"\x01\x02"))]),
    (conditions.DECODE_ERROR, Close, [b"\0\0\0\x0c\x02\0\0\0\x00\x53\x11\x3f"]),
    (conditions.RESOURCE_LIMIT_EXCEEDED, Close, [idle]),
    (conditions.NOT_ALLOWED, Close, [wire(Begin(None, 0, 9, 9))]),
    (conditions.NOT_ALLOWED, Close, [wire(End(), channel=5)]),
    (conditions.ILLEGAL_STATE, Close, [wire(Open("c"))]),
    (conditions.CONNECTION_FORCED, Close, [stop]),
    (conditions.FRAMING_ERROR, Close, [b"\x7f\xff\xff\xff\x02\0\0\0"]),
    (conditions.FRAMING_ERROR, Close, [b"\0\0\0\x04\x02\0\0\0"]),
    (conditions.FRAMING_ERROR, Close, [wire(producer(Q, handle=1024))]),
    (conditions.FRAMING_ERROR, Close, [wire(Begin(None, 0, 9, 9), channel=256)]),
    (conditions.HANDLE_IN_USE, End, [wire(producer(Q), producer(Q, name="other"))]),
    (conditions.UNATTACHED_HANDLE, End, [wire(Detach(0, True))]),
    (conditions.UNATTACHED_HANDLE, End, [wire((Transfer(0, 0, b"t"), BODY))]),
    (conditions.TRANSFER_LIMIT_EXCEEDED, Detach, [
        wire(producer(Q)), wire(*((Transfer(0, number, b"t", settled=True), BODY) for number in range(11))),
    ]),
    (conditions.MESSAGE_SIZE_EXCEEDED, Detach, [
        wire(producer(Q)), wire((Transfer(0, 0, b"t"), Message(data=[b"x" * 100]).encode())),
        wire(consumer(Source("q"), max_message_size=50), Flow(0, 9, 0, 9, 1, 0, 5)),
    ]),
    (conditions.UNKNOWN_TRANSACTION, Disposition, [
        wire(producer(Q)), wire((Transfer(0, 0, b"t", state=TransactionalState(b"x")), BODY)),
    ]),
    (conditions.STOLEN, Detach, [wire(consumer(Source("q")), consumer(Source("q"), handle=2))]),
]  # fmt: skip

SAID_ELSEWHERE = {
    conditions.INTERNAL_ERROR: "nothing that a peer does leads there; a defect stops the node",
    conditions.FRAME_SIZE_TOO_SMALL: "tests/amqp/test_links.py::test_an_answer_larger_than_the_peers_frames",
    conditions.WINDOW_VIOLATION: "tests/amqp/test_extremes.py::test_one_transfer_past_our_window_ends_the_session",
    conditions.ERRANT_LINK: "what still comes for a link that we detached is under way, and dropped",
    conditions.TRANSACTION_TIMEOUT: "tests/core/test_transactions.py::test_time_is_bounded",
    conditions.TRANSACTION_ROLLBACK: (
        "tests/core/test_transactions_stored.py::test_a_failure_rolls_back_what_it_concerned"
    ),
    conditions.DETACH_FORCED: "a peer's word; a link is ended here for a reason that has a name of its own",
}


@pytest.mark.parametrize(("condition", "kind", "steps"), CASES)
def test_it_is_said_where_it_belongs(condition: str, kind: type, steps: list[Step]) -> None:
    node = Player()
    node.open(0)
    node.hear(0, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 100, 100)))
    for step in steps:
        node.take(0)
        if isinstance(step, bytes):
            node.hear(0, step)
        else:
            step(node)
    told = []
    for _, value, _ in performatives(node.take(0)):
        error = (
            value.state.error if isinstance(getattr(value, "state", None), Rejected) else getattr(value, "error", None)
        )
        if error is not None:
            told.append((type(value), str(error.condition)))
            assert error.description
    assert told == [(kind, condition)]


def test_every_condition_is_accounted_for() -> None:
    known = {value for name, value in vars(conditions).items() if name.isupper() and value.startswith("amqp:")}
    assert {condition for condition, _, _ in CASES} | SAID_ELSEWHERE.keys() == known
