"""What a node does not do is refused, and never passed over: settle modes that are none, transactions, filters,
deliveries of no bytes (docs/amqp.md)."""

from typing import Any

import pytest

from amqp.joined import wire
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.settings.limits import Limits
from holdfast.units import KIB
from support.raw import DATA, Raw, credit, opened, receives, sends, transfer
from support.rig import Node, Rig

TXN = TransactionalState(b"t1", Accepted())
UNKNOWN = "amqp:transaction:unknown-id"
START = Symbol("holdfast:start-sequence:ulong")
COPY = Symbol("copy")


def world(**limits: Any) -> tuple[Node, Raw]:
    rig = Rig()
    node = rig.node("hub", limits=Limits(**limits))
    node.unwatched.add("work")
    return node, opened(rig, node)


def one_stored(raw: Raw) -> None:
    raw.say(sends())
    raw.say(transfer())


def ended(told: list[Any]) -> list[str]:
    """The conditions of the detaches."""
    return [str(value.error.condition) for value in told if isinstance(value, Detach) and value.error is not None]


def rejected(told: list[Any]) -> list[str]:
    return [
        str(value.state.error.condition)
        for value in told
        if isinstance(value, Disposition) and isinstance(value.state, Rejected) and value.state.error is not None
    ]


# ------------------------------------------------------------------------------------------------ terms of an attach


@pytest.mark.parametrize("role", [True, False])
@pytest.mark.parametrize(
    "terms",
    [{"snd_settle_mode": 3}, {"snd_settle_mode": 255}, {"rcv_settle_mode": 2}, {"rcv_settle_mode": 255}],
)
def test_a_settle_mode_that_is_none_is_refused_and_not_echoed(role: bool, terms: dict[str, int]) -> None:
    _, raw = world()
    told = raw.say(receives(**terms) if role else sends(**terms))
    assert ended(told) == ["amqp:invalid-field"]
    (attach,) = [value for value in told if isinstance(value, Attach)]
    assert attach.snd_settle_mode <= 2 and attach.rcv_settle_mode <= 1
    assert (attach.source if role else attach.target) is None
    assert raw.say(sends(handle=1), transfer(handle=1)) and raw.alive


@pytest.mark.parametrize("terms", [{"durable": 3}, {"expiry_policy": Symbol("sometimes")}])
def test_a_terminus_with_a_value_that_is_none_is_refused(terms: dict[str, Any]) -> None:
    _, raw = world()
    source = Attach("r", 0, True, source=Source("work", **terms), target=Target("here"))
    target = Attach("s", 1, False, source=Source(), target=Target("work", **terms), initial_delivery_count=0)
    assert ended(raw.say(source, target)) == ["amqp:invalid-field"] * 2


def test_a_distribution_mode_that_is_unknown_takes_no_messages() -> None:
    node, raw = world()
    one_stored(raw)
    attach = Attach("r", 1, True, source=Source("work", distribution_mode=Symbol("all")), target=Target("here"))
    assert ended(raw.say(attach, credit(5, handle=1))) == ["amqp:not-implemented"]
    assert node.queue("work").messages == 1


@pytest.mark.parametrize("mode", [2, 255])
def test_a_transfer_with_a_settle_mode_that_is_none_ends_its_link(mode: int) -> None:
    node, raw = world()
    raw.say(sends(), sends(handle=1))
    assert ended(raw.say(transfer(rcv_settle_mode=mode))) == ["amqp:invalid-field"]
    raw.say(transfer(1, handle=1))
    assert node.queue("work").messages == 1


# ------------------------------------------------------------------------------------------------ no bytes


@pytest.mark.parametrize("address", ["work", None, "$management"])
def test_a_delivery_of_no_bytes_is_dropped_if_settled_and_else_rejected(address: Any) -> None:
    node, raw = world()
    raw.say(sends(address))
    assert rejected(raw.say(transfer(1, b"", settled=True))) == []
    assert rejected(raw.say(transfer(2, b""))) == ["amqp:decode-error"]
    several = transfer(3, b"", more=True) + wire((Transfer(0), b""))
    assert rejected(raw.say(several)) == ["amqp:decode-error"]
    assert raw.alive and all(queue.messages == 0 for queue in node.core.catalog.queues.values())  # type: ignore[union-attr]


def test_deliveries_of_no_bytes_among_a_run_are_not_stored() -> None:
    node, raw = world()
    raw.say(sends())
    frames = b"".join(transfer(number, b"" if number % 3 == 2 else DATA, settled=True) for number in range(30))
    raw.say(frames)
    assert node.queue("work").messages == 20


def test_they_use_credit_that_is_given_again() -> None:
    node, raw = world(credit=10)
    raw.say(sends())
    for number in range(50):
        raw.say(transfer(number, b"", settled=True))
    raw.say(transfer(50, settled=True))
    assert raw.alive and node.queue("work").messages == 1


# ------------------------------------------------------------------------------------------------ transactions


@pytest.mark.parametrize("address", ["work", None, "$management"])
def test_a_transfer_of_an_unknown_transaction_is_rejected(address: Any) -> None:
    node, raw = world()
    raw.say(sends(address))
    assert rejected(raw.say(transfer(state=TXN))) == [UNKNOWN]
    several = transfer(1, more=True) + wire((Transfer(0, state=TXN), DATA))
    assert rejected(raw.say(several)) == [UNKNOWN]
    assert raw.alive and all(queue.messages == 0 for queue in node.core.catalog.queues.values())  # type: ignore[union-attr]


def test_a_settled_transfer_of_one_detaches_its_link() -> None:
    """Nobody waits for its outcome, and it must not pass for one that was committed."""
    node, raw = world()
    raw.say(sends(), sends(handle=1))
    assert ended(raw.say(transfer(state=TXN, settled=True))) == [UNKNOWN]
    raw.say(transfer(1, handle=1))
    assert node.queue("work").messages == 1


@pytest.mark.parametrize("settled", [True, False])
def test_a_large_transfer_of_one_is_refused_when_it_is_whole(settled: bool) -> None:
    node, raw = world(stream_bytes=100 * KIB)
    raw.say(sends())
    head, body = b"\x00\x53\x75\xb0" + (300 * KIB).to_bytes(4, "big"), b"x" * 30 * KIB
    told = raw.say(transfer(0, head, more=True), *[wire((Transfer(0, more=True), body)) for _ in range(9)])
    assert ended(told) == []
    told = raw.say(wire((Transfer(0, state=TXN, settled=settled), body)))
    assert (ended(told), rejected(told)) == (([UNKNOWN], []) if settled else ([], [UNKNOWN]))
    raw.rig.run(1)
    assert node.queue("work").messages == 0 and not node.store._blobs


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("mode", [None, COPY])
def test_an_outcome_of_one_ends_the_link_and_the_message_stays(settled: bool, mode: Any) -> None:
    node, raw = world()
    one_stored(raw)
    source = Source("work", distribution_mode=mode)
    raw.say(Attach("r", 1, True, source=source, target=Target("here")), credit(5, handle=1))
    assert ended(raw.say(Disposition(True, 0, None, settled, TXN))) == [UNKNOWN]
    assert node.queue("work").messages == 1
    again = raw.say(receives(handle=2), credit(5, handle=2))
    assert [type(value) for value in again].count(Transfer) == 1


def test_a_flow_with_a_transaction_acquires_nothing() -> None:
    node, raw = world()
    one_stored(raw)
    raw.say(receives(handle=1))
    told = raw.say(credit(5, handle=1, properties={Symbol("txn-id"): b"t1"}))
    assert ended(told) == ["amqp:not-implemented"] and not any(isinstance(value, Transfer) for value in told)
    told = raw.say(receives(handle=2), credit(5, handle=2, properties={Symbol("mine"): 1}))
    assert any(isinstance(value, Transfer) for value in told)
    assert node.queue("work").messages == 1
    assert isinstance(raw.say(Flow(0, 9, 0, 9, echo=True))[0], Flow)


# ------------------------------------------------------------------------------------------------ filters


def described(name: Any, value: Any = "x") -> Described:
    return Described(name, value)


REFUSED: list[tuple[dict[Any, Any], str]] = [
    ({Symbol("n"): described(Symbol("apache.org:no-local-filter:list"), [])}, "amqp:not-implemented"),  # of a queue
    ({Symbol("x"): described(Symbol("rabbitmq:stream-offset-spec"), "first")}, "amqp:not-implemented"),
    ({Symbol("x"): "a = 1"}, "amqp:invalid-field"),
    ({Symbol("e"): described(Symbol("holdfast:end-sequence:ulong"), Ulong(5))}, "amqp:invalid-field"),
    ({Symbol("l"): described(Symbol("holdfast:subscription:list"), ["s", "u", 1])}, "amqp:invalid-field"),
]


@pytest.mark.parametrize(("filters", "condition"), REFUSED)
@pytest.mark.parametrize("durable", [False, True])
def test_a_filter_on_a_link_that_takes_messages_is_refused(filters: Any, condition: str, durable: bool) -> None:
    node, raw = world()
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")} if durable else {}
    one_stored(raw)
    attach = Attach("r", 1, True, source=Source("work", filter=filters, **fields), target=Target("here"))
    told = raw.say(attach, credit(5, handle=1))
    assert ended(told) == [condition] and not any(isinstance(value, Transfer) for value in told)
    assert node.queue("work").messages == 1 and not node.queue("work").named
    attach = Attach("n", 2, True, source=Source("new", filter=filters), target=Target("here"))
    raw.say(attach)
    assert "new" not in node.core.catalog.queues  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (None, None),
        ({}, None),
        ({Symbol("s"): None}, None),
    ],
)
def test_no_filter_is_no_filter(filters: Any, kept: Any) -> None:
    _, raw = world()
    told = raw.say(Attach("r", 1, True, source=Source("work", filter=filters), target=Target("here")))
    (answer,) = [value for value in told if isinstance(value, Attach)]
    assert answer.source is not None and answer.source.filter == kept


def test_a_link_that_copies_gets_more_than_it_asked_for_and_is_told_so() -> None:
    """It moves nothing: what is left out is not echoed, and nobody misses a message."""
    _, raw = world()
    one_stored(raw)
    foreign = {Symbol("s"): described(Symbol("rabbitmq:stream-offset-spec"), "first")}
    sequence = {Symbol("b"): described(START, Ulong(1))}
    for handle, (filters, mode) in enumerate([(foreign, COPY), (foreign | sequence, None)], 1):
        source = Source("work", filter=filters, distribution_mode=mode)
        told = raw.say(
            Attach(f"r{handle}", handle, True, source=source, target=Target("here")), credit(5, handle=handle)
        )
        (answer,) = [value for value in told if isinstance(value, Attach)]
        assert answer.source is not None and answer.source.filter == (sequence if mode is None else None)
        assert any(isinstance(value, Transfer) for value in told)
