"""Links to a remote whose answers about links and sessions are late, or refusals (link_slots.py)."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.amqp.connection import Connection, Receiver
from holdfast.amqp.wire.conditions import RESOURCE_LIMIT_EXCEEDED
from holdfast.amqp.wire.performatives import Accepted, Error
from holdfast.amqp.wire.types import Symbol
from holdfast.endpoints.remotes.kept_link import ANSWER_S, WAIT_S
from holdfast.endpoints.remotes.link_slots import LOOK_S, LinkSlots
from holdfast.endpoints.remotes.refused import AGAIN_S, RefusedLinks
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection
from support.one_node import done, fill
from support.plain_party import bodies, payload
from support.remotes import CHANGE_S, few, only
from support.rig import Node, Rig


def leaving(node: Node) -> list[str]:
    """Its links that are to leave their slots."""
    assert node.core is not None
    return [link.name for link in node.core.remotes.by_name["mq"].links if link.leaving]


def test_a_link_that_is_to_leave_goes_on_when_a_session_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for an answer before it leaves, and then nobody waits for its slot any more."""
    rig, node, client, broker = few(
        1, 2, broker=PlainBroker(decide=lambda address, payload: None if address == "busy" else Accepted())
    )
    send_begin = Connection._send_begin
    held: list[tuple[Any, ...]] = []

    def late(self: Any, session: Any, remote_channel: int | None) -> None:
        if self.settings.container_id == broker.name and session.channel:
            held.append((self, session, remote_channel))
        else:
            send_begin(self, session, remote_channel)

    monkeypatch.setattr(Connection, "_send_begin", late)
    fill(rig, client, 1, "busy@mq")
    fill(rig, client, 1, "other@mq")
    connection = rig.plain["mq"].connection
    while leaving(node) != ["busy@mq"]:
        rig.run(LOOK_S / 4)
    send_begin(*held.pop())
    rig.run(LOOK_S / 4)
    assert "other" in broker.came
    connection.settle(connection.open[0], Accepted())
    fill(rig, rig.client(node), 1, "busy@mq", first=2)
    rig.run(2 * LOOK_S)
    connection.settle(connection.open[0], Accepted())
    assert bodies(broker.came["busy"]) == ["1", "2"] and leaving(node) == [] and only(node)["lost"] == 0


def test_links_that_ask_often_put_off_no_turn() -> None:
    """As many new addresses do, or addresses that the remote refuses."""
    rig, node, client, broker = few(1, 1)
    fill(rig, client, 1, "first@mq")
    for number in range(int(CHANGE_S / LOOK_S * 2)):
        fill(rig, client, 1, f"new-{number}@mq")
        rig.run(LOOK_S / 2)
    assert len(broker.came) > 2 and only(node)["lost"] == 0


def test_each_link_that_waits_is_looked_at_once_where_many_slots_come() -> None:
    looks: list[object] = []

    class Idle:
        """A link with nothing to send."""

        @property
        def wants(self) -> bool:
            looks.append(self)
            return False

    links: dict[object, object] = {}
    settings = SimpleNamespace(handle_max=0xFFFF)
    session = SimpleNamespace(
        usable=True, remote_channel=0, links=links, handle_max_out=0xFFFF, connection=SimpleNamespace(settings=settings)
    )
    peer: Any = SimpleNamespace(amqp=SimpleNamespace(sessions=[session], usable=True, session_count=1, channels=1))
    clock: Any = SimpleNamespace(now=0.0)
    slots = LinkSlots(clock, lambda link, peer, session: links.update({link: None}))
    waiting: Any = dict.fromkeys(Idle() for _ in range(1_000))
    slots.waiting.update(waiting)
    slots.begin(peer)
    slots.give()
    assert not slots.waiting and len(links) == len(looks) == 1_000


def test_a_link_that_asks_where_there_is_no_slot_costs_no_look_at_all_that_wait() -> None:
    looks: list[object] = []

    class Idle:
        """A link with nothing to send."""

        @property
        def wants(self) -> bool:
            looks.append(self)
            return False

    peer: Any = SimpleNamespace(amqp=SimpleNamespace(sessions=[], usable=True, session_count=1, channels=1))
    clock: Any = SimpleNamespace(now=0.0)
    slots = LinkSlots(clock, lambda link, peer, session: None)
    slots.peer = peer
    for _ in range(100):
        link: Any = Idle()
        slots.ask(link)
    assert len(slots.waiting) == 100 and len(looks) <= 100


def test_a_link_leaves_once_what_a_remote_accepted_that_settles_second_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The remote gets that answer when the message is gone from this node's disk."""
    told: list[str] = []
    happened = PlainConnection._happened

    def noted(self: PlainConnection, event: Any) -> None:
        told.append(type(event).__name__)
        happened(self, event)

    monkeypatch.setattr(PlainConnection, "_happened", noted)
    rig, node, client, _ = few(1, 1, broker=PlainBroker(decide=lambda address, payload: None))
    for address in "ab":
        fill(rig, client, 1, f"{address}@mq")
    connection = rig.plain["mq"].connection
    (delivery,) = connection.open
    told.clear()
    node.hold_commits = True
    first = delivery.delivery_id
    delivery.link.session.write_disposition(True, first, first, False, Accepted())  # type: ignore[attr-defined]
    rig.run(2 * CHANGE_S)
    assert told == []
    node.hold_commits = False
    rig.run(2 * CHANGE_S)
    assert told[:2] == ["ReceiverSettled", "LinkDetached"] and only(node)["lost"] == 0


@pytest.mark.parametrize("how", ["closes the connection", "cuts it", "answers, and closes it later"])
def test_a_remote_that_ends_the_connection_for_a_further_session_gets_its_messages(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its channel-max allows one."""
    rig, node, client, broker = few(2, 8)
    receive = PlainConnection.receive
    closing: list[PlainConnection] = []

    def one_alone(self: PlainConnection, data: bytes, now: float) -> None:
        receive(self, data, now)
        if len(self.amqp.sessions) > 1 and self not in closing:
            closing.append(self)
            if how == "closes the connection":
                self.amqp.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "one session"))
            elif how == "cuts it":
                rig.plain["mq"].cut()

    monkeypatch.setattr(PlainConnection, "receive", one_alone)
    for address in "abc":
        fill(rig, client, 1, f"{address}@mq")
    for number in range(40):
        fill(rig, rig.client(node), 1, "a@mq", first=2 + number)
        rig.run(15)
        if how.startswith("answers") and closing and closing[-1].amqp.usable:
            rig.plain["mq"].cut()
    assert {*bodies(broker.came["a"])} == {*map(str, range(1, 42))}
    assert bodies(broker.came["b"]) == bodies(broker.came["c"]) == ["1"]
    assert only(node)["lost"] <= 4, "tried again rarely"


# ------------------------------------------------------------------------------------------------ refused links


class TakesLinks:
    """A broker that takes so many links on a connection, though its handle-max allows more."""

    def __init__(self, patch: pytest.MonkeyPatch, takes: int, how: str = "refuses") -> None:
        self.takes = takes
        self.how = how
        self.refused: list[str] = []
        self.own: set[str] = set()
        """Addresses that it refuses with the same words, for reasons of their own."""
        self._attach = PlainConnection._attach

        def attach(connection: PlainConnection, link: Any) -> None:
            self._came(connection, link)

        patch.setattr(PlainConnection, "_attach", attach)

    def _came(self, connection: PlainConnection, link: Any) -> None:
        address = str((link.remote_attach.target if isinstance(link, Receiver) else link.remote_attach.source).address)
        if not connection.amqp.usable or not link.session.usable:
            return
        if len(connection.links) < self.takes and address not in self.own:
            self._attach(connection, link)
            return
        self.refused.append(address)
        error = Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "too many links")
        if self.how == "refuses":
            link.refuse(RESOURCE_LIMIT_EXCEEDED, "too many links")
        elif self.how == "answers first":
            link.accept()
            link.detach(error=error)
        else:
            (link.session.end if self.how == "ends the session" else connection.amqp.close)(error)


@pytest.mark.parametrize("how", ["refuses", "answers first"])
def test_links_take_turns_where_the_remote_refuses_more(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = TakesLinks(monkeypatch, 2, how)
    rig, node, client, plain = few(100, 8)
    for address in "abcde":
        fill(rig, client, 1, f"{address}@mq")
    allowed = "the connection allows 2 links (the remote has refused more)"
    assert only(node)["waiting"] == [f"{address}@mq: it waits for its turn: {allowed}" for address in "cde"]
    rig.run(3 * 4 * LOOK_S)
    assert {address: bodies(plain.came[address]) for address in plain.came} == {key: ["1"] for key in "abcde"}
    for number in range(30):
        fill(rig, rig.client(node), 1, f"{'abcde'[number % 5]}@mq", first=2 + number)
        rig.run(4 * LOOK_S)
    rig.run(CHANGE_S)
    assert sum(map(len, plain.came.values())) == 35 and only(node)["lost"] == 0
    assert len(broker.refused) <= 3 + 2, "more is tried again rarely"


def test_more_links_are_attached_again_once_the_remote_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = TakesLinks(monkeypatch, 1)
    rig, node, client, _ = few(100, 8)
    fill(rig, client, 1, "a@mq")
    for number in range(int((AGAIN_S[0] + 2 * CHANGE_S) / LOOK_S)):
        for address in "abcdef":
            fill(rig, rig.client(node), 1, f"{address}@mq", first=2 + number)
        rig.run(LOOK_S)
        if number == 0:
            broker.takes = 6
    rig.run(CHANGE_S)
    assert len(rig.plain["mq"].connection.links) == 6 and only(node)["waiting"] == []


@pytest.mark.parametrize("others", [1, 4])
def test_an_address_that_is_refused_for_a_limit_of_its_own_takes_no_slots_away(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote says the same as of too many links."""
    broker = TakesLinks(monkeypatch, 100)
    broker.own = {"own"}
    rig, node, client, plain = few(100, 8)
    names = "abcd"[:others]
    for address in names:
        fill(rig, client, 1, f"{address}@mq")
    fill(rig, client, 1, "own@mq")
    served = 0
    for number in range(100):
        for address in names:
            fill(rig, rig.client(node), 1, f"{address}@mq", first=2 + number)
        served += len(rig.plain["mq"].connection.links)
        rig.run(2 * LOOK_S)
    rig.run(2 * CHANGE_S)
    assert all(len(plain.came[address]) == 101 for address in names) and only(node)["lost"] == 0
    assert served > 100 * others * 0.9
    assert 4 <= len(broker.refused) <= 20
    broker.own = set()
    rig.run(2 * WAIT_S[1])
    assert bodies(plain.came["own"]) == ["1"]


@pytest.mark.parametrize("how", ["ends the session", "closes the connection"])
@pytest.mark.parametrize("takes", [1, 3])
def test_a_remote_that_ends_more_than_the_links_that_are_too_many_gets_its_messages(
    takes: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TakesLinks(monkeypatch, takes, how)
    rig, node, client, plain = few(100, 1)
    for address in "abcdef":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(10 * CHANGE_S)
    lost = only(node)["lost"]
    for number in range(60):
        fill(rig, rig.client(node), 1, f"{'abcdef'[number % 6]}@mq", first=2 + number)
        rig.run(4 * LOOK_S)
    rig.run(2 * CHANGE_S)
    assert {*plain.came} == {*"abcdef"} and sum(map(len, map(set, plain.came.values()))) == 66
    assert lost <= 6 and only(node)["lost"] - lost <= 6


def test_a_connection_that_is_closed_because_nothing_came_bounds_no_links() -> None:
    """Proton says resource-limit-exceeded of that, too."""
    rig, node, client, _ = few(100, 1)
    for address in "abcd":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(2 * ANSWER_S)
    rig.plain["mq"].connection.amqp.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "local-idle-timeout expired"))
    rig.run(CHANGE_S)
    assert only(node)["lost"] == 1 and len(rig.plain["mq"].connection.links) == 4


@pytest.mark.parametrize("late_s", [LOOK_S / 2, 1.5 * LOOK_S, ANSWER_S / 3])
def test_a_remote_that_ends_the_connection_late_for_a_link_too_many_keeps_it_mostly(late_s: float) -> None:
    """It may look at its links from time to time."""
    remote, broker = settling(*"abcdefgh")
    rig, node, _, _ = few(100, 1, remote, broker)
    served, too_many_at = 0, 0.0
    for _ in range(int(1_200 / (LOOK_S / 2))):
        rig.run(LOOK_S / 2)
        connection = rig.plain["mq"].connection
        if len(connection.links) > 4:
            too_many_at = too_many_at or rig.now
        served += len(connection.links)
        if too_many_at and rig.now >= too_many_at + late_s:
            connection.amqp.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "too many links"))
            too_many_at = 0.0
    assert only(node)["lost"] <= 6 and served > 2 * 1_200 * 3


def test_a_connection_that_is_cut_while_one_more_link_is_tried_is_not_risked_again_at_once() -> None:
    """A remote may say nothing of the reason."""
    refused = RefusedLinks()
    refused.connection_ended(8, 0.0, is_limit=True)
    refused.try_more(4, AGAIN_S[0])
    assert refused.links_max == 5
    for now in range(int(ANSWER_S)):
        refused.try_more(5, AGAIN_S[0] + now)
    assert refused.links_max == 5
    now_s = AGAIN_S[0] + ANSWER_S
    refused.connection_ended(5, now_s, is_limit=False)
    refused.try_more(4, now_s + 1)
    assert refused.links_max == 4


def test_links_that_a_remote_takes_are_not_said_to_be_too_many_though_it_refuses_several_for_reasons_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others need not take turns."""
    broker = TakesLinks(monkeypatch, 100)
    broker.own = {*"bcef"}
    remote, _ = settling(*"abcdef")
    rig, node, _, _ = few(100, 1, remote, PlainBroker())
    served = 0
    for number in range(600):
        rig.run(LOOK_S)
        served += len(rig.plain["mq"].connection.links) if number >= 300 else 0
    assert served > 2 * 300 * 0.9 and only(node)["lost"] == 0
    broker.own = set()
    rig.run(2 * WAIT_S[1])
    assert len(rig.plain["mq"].connection.links) == 6


def test_links_take_turns_where_a_remote_takes_few_and_refuses_one_for_a_reason_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = TakesLinks(monkeypatch, 2)
    broker.own = {"b"}
    remote, plain = settling(*"abcdef")
    plain.settles = False
    rig, node, _, _ = few(100, 1, remote, plain)
    for name, offers in plain.offers.items():
        offers.append(payload(name))
    for _ in range(30):
        rig.run(CHANGE_S)
    assert [node.bodies(name) for name in "acdef"] == [[name] for name in "acdef"]
    assert len(broker.refused) < 60 and only(node)["lost"] == 0


def test_a_remote_that_refuses_every_link_for_a_while_has_its_links_take_turns_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that is lost there may still have the links that its user may have."""
    broker = TakesLinks(monkeypatch, 2)
    remote, plain = settling(*"abcdef")
    plain.settles = False
    rig, node, _, _ = few(100, 1, remote, plain)
    broker.takes = 0
    rig.plain["mq"].cut()
    rig.run(1_200)
    broker.takes = 2
    for name, offers in plain.offers.items():
        offers.append(payload(name))
    rig.run(2 * AGAIN_S[0] + 8 * CHANGE_S)
    assert [node.bodies(name) for name in "abcdef"] == [[name] for name in "abcdef"]


# ------------------------------------------------------------------------------------------------ settled messages


def settling(*names: str) -> tuple[RemoteConfig, PlainBroker]:
    """A remote with these addresses, which settles every second message that it sends."""
    fetch = tuple(Fetch(name, name) for name in names)
    broker = PlainBroker(offers={name: deque() for name in names}, settles=True)
    return RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=fetch), broker


def test_settled_messages_that_wait_for_room_keep_their_link() -> None:
    remote, broker = settling("full", "free")
    rig, node, client, _ = few(1, 1, remote, broker, queues=(QueueConfig(name="full", messages_max=2),))
    fill(rig, client, 2, "full")
    broker.offers["full"].extend(map(payload, "34"))
    broker.offers["free"].append(payload("1"))
    rig.plain["mq"].connection.offer()
    rig.run(4 * CHANGE_S)
    done(rig.client(node), "PURGE", "queue", "full")
    rig.run(2 * CHANGE_S)
    assert sorted(node.bodies("full")) == ["3", "4"] and node.bodies("free") == ["1"]


def test_an_unsettled_message_keeps_its_link_though_a_settled_one_waits_behind_it() -> None:
    """It is accepted on that link, and comes once."""
    remote, broker = settling("a", "b")
    rig, node, client, _ = few(1, 1, remote, broker, queues=(QueueConfig(name="a", messages_max=2),))
    fill(rig, client, 1, "a")
    broker.offers["a"].extend(map(payload, "23"))
    node.hold_commits = True
    rig.plain["mq"].connection.offer()
    rig.run(2 * CHANGE_S)
    assert [link.context for link in rig.plain["mq"].connection.links] == ["a"]
    node.hold_commits = False
    rig.run(LOOK_S)
    assert bodies(broker.fetched) == ["2"] and node.bodies("a") == ["1", "2"]


def next_turn(node: Node, rig: Rig) -> str:
    """Runs until a link is to leave its slot; its name."""
    while not leaving(node):
        rig.run(LOOK_S / 4)
    return leaving(node)[0]


@pytest.mark.parametrize("late_s", [LOOK_S / 4, 3 * LOOK_S])
def test_settled_messages_that_are_under_way_when_their_link_is_to_leave_arrive(late_s: float) -> None:
    """The remote sent them before it heard that it is to send no more."""
    remote, broker = settling("a", "b")
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    flush = party.flush
    party.flush = lambda: None  # type: ignore[method-assign]
    broker.offers["a"].extend(map(payload, "1234"))
    broker.offers["b"].append(payload("5"))
    party.connection.offer()
    assert next_turn(node, rig) == "a to a"
    rig.run(late_s)
    party.flush = flush  # type: ignore[method-assign]
    party.flush()
    rig.run(CHANGE_S)
    assert sorted(node.bodies("a")) == ["1", "2", "3", "4"] and node.bodies("b") == ["5"]
    assert not any("lost" in line for line in node.logs)


def test_a_link_keeps_its_slot_at_a_remote_that_settles_messages_and_answers_no_drain() -> None:
    remote, broker = settling("a", "b")
    broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    broker.offers["a"].extend(map(payload, "12"))
    broker.offers["b"].append(payload("3"))
    rig.plain["mq"].connection.offer()
    rig.run(3 * CHANGE_S)
    (text,) = [line for line in only(node)["waiting"] if "a to a" in line]
    assert text == "a to a: it keeps its slot: the remote settles messages, and has not answered the last drain"
    broker.drains = True
    rig.run(3 * CHANGE_S)
    assert sorted(node.bodies("a")) == ["1", "2"] and node.bodies("b") == ["3"]
    assert not any("keeps its slot" in line for line in only(node)["waiting"])


def test_links_take_turns_at_a_remote_that_settles_nothing_and_answers_no_drain() -> None:
    remote, broker = settling("a", "b", "c")
    broker.settles = broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    for name, offers in broker.offers.items():
        offers.append(payload(name))
    rig.plain["mq"].connection.offer()
    rig.run(3 * CHANGE_S)
    assert [node.bodies(name) for name in "abc"] == [["a"], ["b"], ["c"]]


def test_a_link_that_keeps_its_slot_gets_messages_again_though_its_drain_is_answered_later() -> None:
    remote, broker = settling("a", "b")
    broker.drains = False
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    broker.offers["a"].extend(map(payload, "12"))
    party.connection.offer()
    next_turn(node, rig)
    while leaving(node):
        rig.run(LOOK_S / 4)
    for link in party.connection.links:
        link.drained()  # type: ignore[union-attr]
    rig.settle()
    broker.offers["a"].extend(map(payload, "34"))
    party.connection.offer()
    rig.settle()
    assert sorted(node.bodies("a")) == ["1", "2", "3", "4"]


def test_settled_messages_that_come_after_their_link_has_ended_are_counted_in_the_log() -> None:
    remote, broker = settling("a", "b")
    rig, node, _, _ = few(1, 1, remote, broker)
    party = rig.plain["mq"]
    (link,) = party.connection.links
    next_turn(node, rig)
    flush = party.flush
    rig.settle()
    party.flush = lambda: None  # type: ignore[method-assign]
    link.credit = 10
    for body in "123":
        link.send(payload(body), context=payload(body), settled=body != "2")  # type: ignore[union-attr]
    rig.run(2 * LOOK_S)
    party.flush = flush  # type: ignore[method-assign]
    party.flush()
    rig.run(CHANGE_S)
    said = "settled messages that came after this node had ended the link are lost: 2"
    assert any(said in line for line in node.logs)
