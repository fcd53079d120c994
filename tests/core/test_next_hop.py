"""A neighbour as a next hop, apart from its session: when it is up, and what it makes of marks."""

from typing import Any
from uuid import UUID

import pytest

from holdfast.custody.hop.next_hop import RECEIPTS_MAX
from holdfast.names import DESTINATION_BYTES_MAX
from support.hops import send
from support.rig import Node, Rig

ORIGIN = UUID(int=7)


def pair() -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(2)
    return rig, jfk, hub


def test_it_is_up_while_the_session_is_established() -> None:
    rig, jfk, hub = pair()
    send(rig, jfk, "first", to="hub")
    hop, session = jfk.core.next_hops["hub"], jfk.core.neighbours["hub"]
    assert session.established and hop.peer is session.peer is not None
    (sender,) = hop.senders.values()
    assert sender.link is not None and sender.hop is hop
    hub.crash()
    rig.run(1)
    assert not session.established and hop.peer is None and sender.link is None
    send(rig, jfk, "second", to="hub")
    hub.start()
    rig.run(5)
    assert session.established and hop.peer is session.peer and hop.senders["hub"] is sender
    assert hub.bodies("work") == ["first", "second"]


class Heard:
    """Stands for receipts: keeps the marks that it hears."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, UUID, int]] = []

    def hear_mark(self, hop: Any, destination: str, origin: UUID, mark: int) -> None:
        self.marks.append((destination, origin, mark))


def heard(monkeypatch: pytest.MonkeyPatch, marks: object) -> list[tuple[str, UUID, int]]:
    _, jfk, _ = pair()
    receipts = Heard()
    monkeypatch.setattr(jfk.core.forwarding.receipts, "hear_mark", receipts.hear_mark)
    jfk.core.next_hops["hub"].hear_marks(marks)
    return receipts.marks


@pytest.mark.parametrize(
    "row",
    [
        None, [], ["far", ORIGIN], ["far", ORIGIN, 1, 1], [7, ORIGIN, 1], ["far", "x", 1], ["far", ORIGIN, 0],
        ["far", ORIGIN, 2**63], ["far", ORIGIN, True], ["far", ORIGIN, 1.0],
        ["x" * (DESTINATION_BYTES_MAX + 1), ORIGIN, 1],
    ],
)  # fmt: skip
def test_what_is_no_mark_is_passed_over_and_the_next_is_heard(monkeypatch: pytest.MonkeyPatch, row: Any) -> None:
    assert heard(monkeypatch, [row, ["far", ORIGIN, 3]]) == [("far", ORIGIN, 3)]


@pytest.mark.parametrize("marks", [None, 5, "marks", {}, {"far": 1}])
def test_what_is_no_list_of_marks_has_none(monkeypatch: pytest.MonkeyPatch, marks: object) -> None:
    assert heard(monkeypatch, marks) == []


@pytest.mark.parametrize("count", [RECEIPTS_MAX, RECEIPTS_MAX + 1])
def test_of_one_message_so_many_are_heard(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    assert len(heard(monkeypatch, [["far", ORIGIN, 1]] * count)) == RECEIPTS_MAX
