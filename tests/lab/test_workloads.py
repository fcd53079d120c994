"""Workloads as data: every kind is made from a table, a mistake in one is told in one line; the producers' log."""

from contextlib import nullcontext
from dataclasses import fields
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from holdfast.errors import ConfigError
from holdfast_lab.base.client_history import History, Violation, make_key
from holdfast_lab.workloads import KINDS, Consume, ProducerLog, Subscription, full_address, make_workload, subscription

NEEDED: dict[str, Any] = {
    "node": "hub", "queue": "q", "address": "q@hub", "addresses": ["q@hub"], "to": "r", "topic": "t", "entries": [],
    "publishers": ["hub"], "subscriptions": [], "gone": "old",
}  # fmt: skip


def needed(kind: str) -> dict[str, Any]:
    """The fewest keys of a table of that kind."""
    names = {item.name for item in fields(KINDS[kind]) if item.init}
    return {"kind": kind, **{name: value for name, value in NEEDED.items() if name in names}}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_made_and_counts(kind: str) -> None:
    workload = make_workload(needed(kind), "workload 1")
    assert workload.kind == kind
    assert all(isinstance(value, (int, float)) for value in workload.metrics().values())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_key_that_is_none_is_told(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'colour' in workload 1; expected one of .*name"):
        make_workload({**needed(kind), "colour": "blue"}, "workload 1")


def test_what_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match=r"^workload 2: .*'address'"):
        make_workload({"kind": "publish", "node": "hub"}, "workload 2")
    with pytest.raises(
        ConfigError, match=r"^invalid value None for workload 2 kind; expected one of addressed, apart, bounded, "
    ):
        make_workload({}, "workload 2")


@pytest.mark.parametrize(
    ("address", "node", "full"), [("q", "hub", "q@hub"), ("q@jfk", "hub", "q@jfk"), ("q@localhost", "hub", "q@hub")]
)
def test_full_address(address: str, node: str, full: str) -> None:
    assert full_address(address, node) == full


@pytest.mark.parametrize(("breaks", "held"), [(None, 3), (8, 4), (11, 4)])
def test_what_was_given_back_is_awaited_on_its_link_alone(breaks: int | None, held: int) -> None:
    """With credit for one, three later messages may have been sent by then; after a break, any number."""
    consume, link = Consume(node="hub", queue="q", credit=1), object()
    consume._in_place(7, link)
    consume.given_back[7] = 0
    shown = 0
    with (
        nullcontext() if breaks else pytest.raises(Violation, match="7 was given back, and 4 later ones came before it")
    ):
        for sequence in range(8, 12):
            link = object() if sequence == breaks else link
            consume._in_place(sequence, link)
            shown += 1
    assert shown == held


def test_a_log_writes_down_before_it_sends() -> None:
    history = History()
    log = ProducerLog(history, "p", "q@hub", 100)
    assert [log.take(), log.take()] == [1, 2]
    assert list(log.open) == [1, 2]
    assert history.offered == {make_key(0, 1): "q@hub", make_key(0, 2): "q@hub"}


def test_what_a_reader_is_owed() -> None:
    history = History()
    history.add_reader("r", "q@hub")
    mine, other, late = make_key(0, 1), make_key(0, 2), make_key(0, 3)
    for key, address in ((mine, "q@hub"), (other, "q@jfk"), (late, "q@hub")):
        history.offer(key, address)
    history.paid("r", late)  # shown before its producer heard that it was accepted
    for key in (mine, other, late):
        history.accept(key)
        history.receive(key, "q at hub", marked=False)
    assert history.owed == {"r": {mine: None}} and not history.settled
    history.paid("r", mine)
    assert history.settled


def test_another_disk_owes_nothing_and_forgets_what_it_showed() -> None:
    history = History()
    history.add_reader("r", "q@hub")
    key, elsewhere = make_key(0, 1), make_key(0, 2)
    for item, place in ((key, "q at hub"), (elsewhere, "q at jfk")):
        history.offer(item, "q@hub")
        history.accept(item)
        history.receive(item, place, marked=False, sequence=7)
    history.disk_changed("hub")
    assert history.settled and history.disks_changed["hub"] == 1
    history.receive(key, "q at hub", marked=False, sequence=7)
    with pytest.raises(Violation, match="shown twice at q at jfk"):
        history.receive(elsewhere, "q at jfk", marked=False, sequence=7)


def test_what_a_gone_disk_gave_is_not_known_to_the_one_there_now() -> None:
    """A consumer was sent it before the disk was replaced, and hands it out after."""
    history = History()
    key = make_key(0, 1)
    history.disk_changed("hub")
    history.receive(key, "q at hub", marked=False, sequence=7, disk=0)
    history.receive(key, "q at hub", marked=False, sequence=2, disk=1)
    for disk in (0, 1):
        with pytest.raises(Violation, match="shown twice at q at hub"):
            history.receive(key, "q at hub", marked=False, sequence=2, disk=disk)


def test_two_sequences_of_one_key_are_noted() -> None:
    history = History()
    key = make_key(0, 1)
    history.receive(key, "q at hub", marked=False, sequence=3)
    history.receive(key, "q at hub", marked=True, sequence=3)
    assert not history.doubled
    history.receive(key, "q at hub", marked=True, sequence=9)
    assert history.doubled == {key: ("q at hub", 9)} and history.redeliveries == 2


async def test_what_another_disk_holds_was_never_advanced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers a question that was asked of the one before."""
    history = History()
    bed, reads = Mock(history=history), Subscription(node="hub", queue="q")
    reader = subscription._Reader(Mock(), {"queue_uuid": "u", "lease_epoch": 1, "advanced": 16}, 0)
    answer = {"messages": 10, "next_sequence": 11, "head": 1}
    monkeypatch.setattr(subscription, "asked", AsyncMock(return_value=answer))
    assert not await reads._empty(bed, reader, 16)
    history.disk_changed("hub")
    with pytest.raises(subscription.Fenced):
        await reads._empty(bed, reader, 16)
