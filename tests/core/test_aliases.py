"""Traces by small numbers: bounds at both ends of a link, nodes that know no numbers, liars."""

from typing import Any
from uuid import UUID

import pytest

from holdfast.amqp.connection import Settings
from holdfast.broker.entries import entry
from holdfast.custody.transfers import carried
from holdfast.errors import RemoteProtocolError
from holdfast.peering import doors
from holdfast.peers.neighbours import trace_aliases as aliases
from holdfast.peers.neighbours.trace_aliases import CONNECTION_ALIASES_MAX, LINK_ALIASES_MAX, Count, Given, Taken
from support.hops import STRICT, cut_any, is_empty, names, send
from support.liars import connect, custody_link
from support.rig import Node, Rig
from support.wires import listen


def stores(first: int, count: int) -> bytes:
    return b"".join(UUID(int=number).bytes for number in range(first, first + count))


def give(given: Given, trace: bytes) -> tuple[bytes, bytes] | None:
    """What a transfer with that trace writes: (path, aliases); None for the trace in full."""
    path = given.known.get(trace)
    if path is not None:
        return path, b""
    told = given.tell(trace)
    if told is not None:
        given.told(trace, *told)
    return told


# ------------------------------------------------------------------------------------------------ one link


def test_what_is_given_is_what_is_taken() -> None:
    given, taken = Given(Count()), Taken(Count())
    for trace in (stores(1, 1), stores(1, 3), stores(1, 3), stores(2, 2), stores(9, 1) + stores(1, 1) + stores(9, 1)):
        written = give(given, trace)
        assert written is not None and len(written[0]) == len(trace) // 16
        taken.hear(written[1])
        assert taken.trace(written[0]) == trace
    assert give(given, stores(1, 3)) == (b"\0\1\2", b"")


def test_a_number_counts_only_once_its_transfer_is_written() -> None:
    count = Count()
    given = Given(count)
    first = given.tell(stores(1, 2))
    assert first == given.tell(stores(1, 2)) and count.held == 0  # the first was too large for the neighbour
    assert given.known.get(stores(1, 2)) is None


def test_the_bound_of_a_link_at_both_ends() -> None:
    given, taken = Given(Count()), Taken(Count())
    for number in range(LINK_ALIASES_MAX):
        written = give(given, stores(number, 1))
        assert written is not None
        taken.hear(written[1])
    assert give(given, stores(LINK_ALIASES_MAX, 1)) is None  # in full from now on
    assert give(given, stores(0, 1)) == (b"\0", b"")
    with pytest.raises(RemoteProtocolError, match="expected at most 249"):
        taken.hear(bytes((LINK_ALIASES_MAX,)) + stores(LINK_ALIASES_MAX, 1))


def test_the_bound_of_a_connection_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "CONNECTION_ALIASES_MAX", 4)
    ours, theirs = Count(), Count()
    given, taken = [Given(ours) for _ in range(2)], [Taken(theirs) for _ in range(2)]
    for at in range(2):
        written = give(given[at], stores(1, 2))
        assert written is not None
        taken[at].hear(written[1])
    assert give(given[0], stores(5, 1)) is None and ours.held == theirs.held == 4
    with pytest.raises(RemoteProtocolError, match="invalid number of aliases in a transfer in custody"):
        taken[0].hear(b"\2" + stores(5, 1))
    given[1].forget()
    taken[1].forget()  # a link that is gone gives its numbers back
    written = give(given[0], stores(5, 1))
    assert written == (b"\2", b"\2" + stores(5, 1))
    taken[0].hear(written[1])
    assert ours.held == theirs.held == 3 <= CONNECTION_ALIASES_MAX


def test_traces_remembered_are_bounded() -> None:
    given, taken = Given(Count()), Taken(Count())
    for number in range(3 * aliases.TRACES_MAX):
        trace = stores(number % 100, 1) + stores(number // 100, 1)
        written = give(given, trace)
        assert written is not None
        taken.hear(written[1])
        assert taken.trace(written[0]) == trace
        assert len(given.known) <= aliases.TRACES_MAX and len(taken.known) <= aliases.TRACES_MAX


def test_a_trace_that_was_refused_is_not_taken_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound each message comes here: what it costs then is a look."""
    monkeypatch.setattr(aliases, "LINK_ALIASES_MAX", 1)
    given = Given(Count())
    assert give(given, stores(0, 1)) == (b"\0", b"\0" + stores(0, 1))
    looked_at: list[bytes] = []
    stores_of = aliases.stores_of
    monkeypatch.setattr(aliases, "stores_of", lambda trace: looked_at.append(trace) or stores_of(trace))
    refused = [stores(number, 1) for number in range(1, aliases.TRACES_MAX + 1)]
    assert [give(given, trace) for trace in refused * 3] == [None] * 3 * aliases.TRACES_MAX
    assert looked_at == refused
    past = stores(aliases.TRACES_MAX + 1, 1)  # one more than is remembered: all are looked at anew, and no more held
    assert give(given, past) is None and give(given, refused[0]) is None
    assert looked_at == [*refused, past, refused[0]] and len(given._refused) == 2


# ------------------------------------------------------------------------------------------------ between nodes


def traces(node: Node) -> set[bytes]:
    return {entry.unpack(value).trace for _, value in node.queue("work").read(0, count_max=10**4, bytes_max=2**30)}


def test_a_store_is_named_once_for_each_link(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = listen(monkeypatch)
    rig = Rig()
    nodes = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, nodes[0], *names(1, 200))
    passed = nodes[1].store.uuid.bytes
    assert heard["c", "d"].count(passed) == 1
    cut_any(rig)
    rig.run(10)
    send(rig, nodes[0], *names(201, 300))
    rig.run(3)
    assert nodes[3].bodies("work") == names(1, 300) and is_empty(*nodes)
    assert traces(nodes[3]) == {b"".join(node.store.uuid.bytes for node in nodes[:3])}
    assert heard["c", "d"].count(passed) <= 2
    held = [peer.aliases_given.held for peer in nodes[2].core.connections.values() if peer.neighbour is not None]
    assert max(held) == 3  # a, b and c itself


def test_a_node_that_knows_no_numbers_gets_the_trace_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = listen(monkeypatch)

    def settings(**fields: Any) -> Settings:
        if fields["container_id"] == "c":
            offered = tuple(item for item in fields["offered_capabilities"] if item != "holdfast:aliases")
            fields["offered_capabilities"] = offered
            if "answer_open" in fields:
                fields["answer_open"] = lambda theirs, ours: None
        return Settings(**fields)

    monkeypatch.setattr(doors.amqp, "Settings", settings)
    rig = Rig()
    nodes = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, nodes[0], *names(1, 50))
    assert nodes[3].bodies("work") == names(1, 50)
    assert traces(nodes[3]) == {b"".join(node.store.uuid.bytes for node in nodes[:3])}
    told = b"x-opt-holdfast-aliases"
    assert told not in heard["b", "c"] and told in heard["a", "b"] and told not in heard["c", "d"]


def test_past_the_bound_a_trace_goes_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "CONNECTION_ALIASES_MAX", 1)
    heard = listen(monkeypatch)
    rig = Rig()
    nodes = rig.line("a", "b", "c", c=STRICT)
    rig.run(3)
    send(rig, nodes[0], *names(1, 30), to="c")
    assert nodes[2].bodies("work") == names(1, 30)
    assert heard["b", "c"].count(nodes[1].store.uuid.bytes) >= 30 > heard["a", "b"].count(b"x-opt-holdfast-aliases")


def test_an_alias_never_told_ends_that_link_alone() -> None:
    rig = Rig()
    _, hub = rig.pair(start=False)
    hub.start()
    liar = connect(rig, hub)
    links = []
    for number in range(2):
        link = custody_link(rig, liar, f"custody{number}")
        assert link.attached and not link.refused
        links.append(link)
        if number == 0:
            section = carried.write(UUID(int=7).bytes + bytes(7) + b"\1", 1, to=b"work", trace=b"\x09", receipt=0,
                                    short=True)  # fmt: skip
            link.send(section + b"\x00\x53\x75\xa0\x01x", context=1)
            rig.settle()
            assert link.detached
            assert any("neighbour jfk" in line and "invalid alias 9 in a transfer" in line for line in hub.logs)
    section = carried.write(UUID(int=7).bytes + bytes(7) + b"\1", 1, to=b"work", trace=b"\x09", receipt=0, short=True,
                            aliases=b"\x09" + UUID(int=8).bytes)  # fmt: skip
    links[1].send(section + b"\x00\x53\x75\xa0\x01x", context=1)
    rig.settle()
    assert not links[1].detached and hub.bodies("work") == ["x"]
    assert traces(hub) == {UUID(int=8).bytes}
