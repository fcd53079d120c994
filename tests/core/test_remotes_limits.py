"""Links to a remote whose answers about links and sessions are late, or refusals (link_slots.py)."""

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
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection
from support.one_node import fill
from support.plain_party import bodies, payload
from support.remotes import CHANGE_S, few, leaving, only, settling


class Idle:
    """A link with nothing to send, which notes how often it is asked."""

    def __init__(self, looks: list[object]) -> None:
        self._looks = looks

    @property
    def wants(self) -> bool:
        self._looks.append(self)
        return False


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
    links: dict[object, object] = {}
    settings = SimpleNamespace(handle_max=0xFFFF)
    session = SimpleNamespace(
        usable=True, remote_channel=0, links=links, handle_max_out=0xFFFF, connection=SimpleNamespace(settings=settings)
    )
    peer: Any = SimpleNamespace(amqp=SimpleNamespace(sessions=[session], usable=True, session_count=1, channels=1))
    clock: Any = SimpleNamespace(now=0.0)
    slots = LinkSlots(clock, lambda link, peer, session: links.update({link: None}))
    waiting: Any = dict.fromkeys(Idle(looks) for _ in range(1_000))
    slots.waiting.update(waiting)
    slots.begin(peer)
    slots.give()
    assert not slots.waiting and len(links) == len(looks) == 1_000


def test_no_further_link_is_tried_before_the_remote_has_answered_all_that_it_takes() -> None:
    class Wanting:
        """A link with something to send."""

        wants = True
        serving: object = None
        detach_sent = is_idle = False
        turn_since = 0.0

    links: Any = [Wanting() for _ in range(3)]
    links[0].serving = object()
    settings = SimpleNamespace(handle_max=9)
    session = SimpleNamespace(
        usable=True, remote_channel=0, links=dict(enumerate(links[:2])), handle_max_out=9,
        connection=SimpleNamespace(settings=settings),
    )  # fmt: skip
    peer: Any = SimpleNamespace(amqp=SimpleNamespace(sessions=[session], usable=True, session_count=1, channels=1))
    clock: Any = SimpleNamespace(now=0.0)
    slots = LinkSlots(clock, lambda link, peer, session: None)
    slots.begin(peer)
    slots.holders.update(dict.fromkeys(links[:2]))
    slots.refused_links.links_max = 2
    slots.ask(links[2])
    slots.tick(LOOK_S)
    assert slots.refused_links.links_max == 2
    links[1].serving = object()
    slots.tick(2 * LOOK_S)
    assert slots.refused_links.links_max == 3


def test_a_link_that_asks_where_there_is_no_slot_costs_no_look_at_all_that_wait() -> None:
    looks: list[object] = []
    peer: Any = SimpleNamespace(amqp=SimpleNamespace(sessions=[], usable=True, session_count=1, channels=1))
    clock: Any = SimpleNamespace(now=0.0)
    slots = LinkSlots(clock, lambda link, peer, session: None)
    slots.peer = peer
    for _ in range(100):
        link: Any = Idle(looks)
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


def test_a_further_session_that_the_remote_does_not_answer_is_told_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, broker = few(1, 2)
    send_begin = Connection._send_begin

    def never(self: Any, session: Any, remote_channel: int | None) -> None:
        if self.settings.container_id != broker.name or not session.channel:
            send_begin(self, session, remote_channel)

    monkeypatch.setattr(Connection, "_send_begin", never)
    for address in "ab":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(ANSWER_S + CHANGE_S)
    fill(rig, client, 1, "c@mq")
    (line,) = only(node)["waiting"]
    assert line.startswith("c@mq: it waits for its turn") and "the remote has refused further sessions" in line
    assert only(node)["lost"] == 0


def test_sessions_of_a_connection_that_is_lost_are_begun_again_at_once() -> None:
    """The remote has refused none of them."""
    rig, node, client, _ = few(1, 3)
    for address in "abc":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(2 * ANSWER_S)
    rig.plain["mq"].cut()
    rig.run(CHANGE_S)
    for address in "abc":
        fill(rig, rig.client(node), 1, f"{address}@mq", first=2)
    rig.run(LOOK_S)
    assert only(node)["lost"] == 1 and len(rig.plain["mq"].connection.links) == 3


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


def test_many_links_that_are_refused_at_once_are_one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are tried as soon as after a single one."""
    broker = TakesLinks(monkeypatch, 6)
    rig, node, client, _ = few(100, 1)
    for address in "abcdef":
        fill(rig, client, 1, f"{address}@mq")
    broker.takes = 2
    rig.plain["mq"].cut()
    rig.run(CHANGE_S)
    assert len(broker.refused) >= 4
    broker.takes = 6
    for number in range(int((AGAIN_S[0] + CHANGE_S) / LOOK_S)):
        for address in "abcdef":
            fill(rig, rig.client(node), 1, f"{address}@mq", first=2 + number)
        rig.run(LOOK_S)
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


def test_a_link_that_is_refused_again_beside_as_many_is_one_too_many() -> None:
    """It is the one more that was tried."""
    known = RefusedLinks()
    assert known.refused("last", 2, 0.0) and known.links_max == 2
    known.try_more(2, AGAIN_S[0])
    assert known.links_max == 3
    assert known.refused("last", 2, AGAIN_S[0]) and known.links_max == 2


def test_a_link_that_is_refused_beside_fewer_too_leaves_what_was_known_before() -> None:
    known = RefusedLinks()
    assert known.refused("other", 4, 0.0)
    assert known.refused("own", 3, 0.0) and known.links_max == 3
    assert not known.refused("own", 2, 0.0) and known.links_max == 4


def test_a_link_that_was_refused_before_the_remote_ended_the_connection_may_be_one_too_many() -> None:
    """What it takes has become less since."""
    known = RefusedLinks()
    assert known.refused("last", 8, 0.0)
    known.connection_ended(9, 0.0, is_limit=True)
    assert known.links_max == 4
    assert known.refused("last", 3, 0.0) and known.links_max == 3


def test_a_link_that_is_refused_beside_fewer_is_known_by_its_first_refusal() -> None:
    """Another was refused beside as many meanwhile."""
    known = RefusedLinks()
    assert known.refused("own", 2, 0.0)
    known.try_more(2, AGAIN_S[0])
    assert known.refused("other", 2, AGAIN_S[0]) and known.links_max == 2
    assert not known.refused("own", 1, AGAIN_S[0]) and known.links_max is None


def test_once_the_remote_has_taken_one_more_link_the_next_refusal_is_as_the_first() -> None:
    known = RefusedLinks()
    first = AGAIN_S[0]
    assert known.refused("a", 2, 0.0)
    known.try_more(2, first)
    known.try_more(3, first)
    assert known.links_max == 4, "one was taken, and one more is tried"
    assert known.refused("b", 3, first) and known.links_max == 3
    known.try_more(3, 2 * first - 1)
    assert known.links_max == 3
    known.try_more(3, 2 * first)
    assert known.links_max == 4


def test_a_connection_that_ends_with_a_single_link_bounds_none() -> None:
    """There is nothing less to ask for."""
    known = RefusedLinks()
    known.connection_ended(1, 0.0, is_limit=True)
    assert known.links_max is None


def test_a_remote_that_ends_connections_is_asked_for_fewer_links_each_time() -> None:
    """Though more want one, some of which rest."""
    known = RefusedLinks()
    found = []
    for _ in range(4):
        known.connection_ended(9, 0.0, is_limit=True)
        found.append(known.links_max)
    assert found == [4, 2, 1, 1]


def test_a_connection_that_is_closed_because_nothing_came_bounds_no_links() -> None:
    """Proton says resource-limit-exceeded of that, too."""
    rig, node, client, _ = few(100, 1)
    for address in "abcd":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(2 * ANSWER_S)
    rig.plain["mq"].connection.amqp.close(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "local-idle-timeout expired"))
    rig.run(CHANGE_S)
    assert only(node)["lost"] == 1 and len(rig.plain["mq"].connection.links) == 4


def test_a_session_that_the_remote_ended_says_nothing_of_a_connection_that_is_lost_later() -> None:
    """It has kept the links of its other session."""
    rig, node, client, _ = few(2, 2)
    for address in "abc":
        fill(rig, client, 1, f"{address}@mq")
    connection = rig.plain["mq"].connection
    assert [len(session.links) for session in connection.amqp.sessions] == [2, 1]
    connection.amqp.sessions[1].end(Error(Symbol(RESOURCE_LIMIT_EXCEEDED), "too many links"))
    rig.run(2 * LOOK_S)
    assert len(connection.links) == 2
    rig.plain["mq"].cut()
    rig.run(CHANGE_S)
    assert only(node)["lost"] == 1 and len(rig.plain["mq"].connection.links) == 2


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
