"""Where a message is: asked at its first node, answered along its path (docs/where.md)."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.custody.forwarding import PASSED_BYTES
from holdfast.engine import events
from holdfast.links.ingress import NODE_MESSAGE_BYTES_MAX
from holdfast.management.where import message_ids
from holdfast.management.where import questions as asks
from holdfast.management.where import search as where
from holdfast.management.where.questions import (
    ANSWER_BYTES_MAX,
    CLIENT_ASKS_MAX,
    NEIGHBOUR_ASKS_BURST,
    NEIGHBOUR_ASKS_MAX,
    NODES_MAX,
    PATH_MAX,
)
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support import today
from support.hops import STRICT, apart, reroute
from support.rig import Client, Node, Rig

IDS = ["order 17", Ulong(0), Ulong(200), Ulong(2**63), UUID(int=5), b"\x00\x01", "x" * 300, b"y" * 256]


def put(node: Node, *ids: Any, address: str = "work@d", **parts: Any) -> Client:
    client = node.rig.client(node)
    link = client.sender(address)
    node.rig.settle()
    for message_id in ids:
        properties = Properties(message_id=message_id)
        if not link.sendable:
            node.rig.settle()
        link.send(Message(properties=properties, data=[b"body"], **parts).encode(), context=str(message_id))
    node.rig.settle()
    return client


def ask(node: Node, message_id: Any, **arguments: Any) -> dict[str, Any]:
    status, told, text = node.rig.client(node).manage("WHERE", "node", message_id=message_id, **arguments)
    assert status == 200, text
    return told


def ask_long(node: Node, message_id: str, limit_s: float) -> dict[str, Any]:
    """The same where the answer takes time."""
    heard: list[Any] = []
    assert node.core is not None and node.core.questions.ask("", (message_id,), limit_s, heard.append)
    node.due = True
    node.rig.run(limit_s + 0.1)
    return asks.answer_of((message_id,), heard[0])


def states(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["node"], step["state"]) for step in told["steps"]]


def line() -> tuple[Rig, list[Node]]:
    rig = Rig()
    nodes = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    return rig, nodes


# ------------------------------------------------------------------------------------------------ message-ids


@given(st.text(max_size=400) | st.binary(max_size=400) | st.integers(0, 2**64 - 1).map(Ulong) | st.uuids())
def test_every_message_id_is_found_by_its_own_encodings_alone(message_id: Any) -> None:
    wanted = tuple(message_ids.encodings(message_ids.checked(message_id) if message_ids.checked(message_id) is not None
                                         else "-"))  # fmt: skip
    bare = Message(properties=Properties(message_id=message_id, to="somewhere"), data=[b"x"]).encode()
    found = message_ids.first_field(bare[: message_ids.HEAD_BYTES])
    assert found.startswith(wanted) == (message_ids.checked(message_id) is not None)
    for other in ("order 1", Ulong(7), UUID(int=7), b"order 1"):
        if other != message_id or type(other) is not type(message_id):
            checked = message_ids.checked(other)
            assert checked is not None and not found.startswith(tuple(message_ids.encodings(checked)))


def test_other_encodings_of_properties_and_ids() -> None:
    wanted = tuple(message_ids.encodings(5))
    for start in (b"\x00\x53\x73", b"\x00\x80" + bytes(7) + b"\x73", b"\x00" + b"\xa3\x14amqp:properties:list"):
        for field in (b"\x53\x05", b"\x80" + bytes(7) + b"\x05"):
            for head in (
                b"\xc0" + bytes((1 + len(field), 1)),
                b"\xd0" + (4 + len(field)).to_bytes(4, "big") + bytes(3) + b"\1",
            ):
                assert message_ids.first_field(start + head + field).startswith(wanted)
    assert message_ids.first_field(b"\x00\x53\x73\x45\x00\x53\x75\xa0\0") == b""
    assert message_ids.first_field(b"\x00\x53\x75\xa0\x02ab") == b""
    assert message_ids.encodings(0)[-1] == b"\x44"


@pytest.mark.parametrize("value", [None, True, -1, 1.5, "x" * 513, b"x" * 513, [], ["a"] * 5, ["a", None], {}])
def test_what_is_no_message_id_is_refused(value: Any) -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    status, _, text = client.manage("WHERE", "node", message_id=value)
    assert status == 400 and "expected 1 to 4 message-ids" in text


@pytest.mark.parametrize("limit_s", [0, 0.09, 61, "5", None])
def test_the_time_limit_is_checked(limit_s: Any) -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    assert client.manage("WHERE", "node", message_id="x", limit_s=limit_s)[0] == 400


# ------------------------------------------------------------------------------------------------ along the path


@pytest.mark.parametrize("message_id", IDS, ids=repr)
def test_along_the_path_to_its_queue(message_id: Any) -> None:
    _, (a, _, _, d) = line()
    put(a, message_id)
    told = ask(a, message_id)
    assert states(told) == [("a", "passed"), ("b", "passed"), ("c", "passed"), ("d", "queued")]
    assert told["found"] and told["complete"] and told["custody"] == "d" and told["waits_for"] == "a consumer"
    assert [hop["node"] for hop in told["path"]] == ["a", "b", "c", "d"] and all(hop["since"] for hop in told["path"])
    last = told["steps"][-1]
    assert (last["queue"], last["sequence"], last["origin"], last["number"]) == ("work", 1, "a", 1) and d.core


def test_of_several_ids_to_choose_from_any_is_found() -> None:
    _, (a, *_) = line()
    put(a, Ulong(17))
    assert ask(a, ["17", Ulong(17)])["found"] and not ask(a, ["17", b"17"])["found"]


def test_what_nobody_knows() -> None:
    _, (a, *_) = line()
    told = ask(a, "nothing")
    assert not told["found"] and states(told) == [("a", "not here")] and told["custody"] is None


def test_after_the_node_forgot_what_it_passed_on() -> None:
    """Unknown at the first node after its restart; at one in between, the table leads on."""
    _, (a, b, c, _) = line()
    put(a, "1")
    a.rig.run(1)
    b.crash()
    b.start()
    a.rig.run(3)
    told = ask(a, "1")
    assert states(told) == [("a", "passed"), ("b", "not here"), ("c", "passed"), ("d", "queued")] and told["found"]
    a.crash()
    a.start()
    a.rig.run(3)
    assert not ask(a, "1")["found"] and ask(c, "1")["found"]


def test_what_it_waits_for_in_transmission() -> None:
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c={"queues": (QueueConfig(name="work", messages_max=1),)}, a={
        "unknown_destination": "keep"})  # fmt: skip
    rig.run(3)
    a.checks = b.checks = c.checks = False  # a look through thousands of messages at each event
    put(a, *[str(number) for number in range(4005)], address="work@c")
    told = ask(a, "4004")
    assert told["custody"] in ("a", "b")
    waits = [step["waits_for"] for step in told["steps"] if step["state"] == "in transmission"]
    assert waits and waits[0].startswith(("credit of", "the answer of", "answers of"))
    put(a, "unrouted", address="work@nowhere")
    assert ask(a, "unrouted")["waits_for"] == "a route to 'nowhere'"
    apart(rig, "a", "b")
    rig.refuse_dials = True
    put(a, "cut", address="work@c")
    told = ask(a, "cut")
    assert told["waits_for"].startswith("the session with 'b', which is") and told["custody"] == "a"
    assert told["path"] == [{"node": "a", "since": told["steps"][0]["since"]}] and b.core and c.core


def test_a_full_queue_at_the_destination_is_what_it_waits_for() -> None:
    """Also for what its sender holds: the node that has no room is asked."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c={"queues": (QueueConfig(name="work", messages_max=2),)})
    rig.run(3)
    put(a, *[str(number) for number in range(200)], address="work@c")
    for message_id in ("2", "70", "199"):
        told = ask(a, message_id)
        assert told["state"] == "in transmission" and told["custody"] in ("a", "b")
        assert told["waits_for"] == "room in queue 'work', which is full" or told["custody"] == "a", message_id
    told = ask(a, "2")
    assert states(told) == [("a", "passed"), ("b", "in transmission"), ("c", "expected")] and told["complete"]
    assert told["steps"][1]["waits_for"] == "the answer of 'c'" and told["custody"] == "b"
    assert b.core and c.core


def test_a_full_queue_is_what_waits_at_its_destination_too() -> None:
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (QueueConfig(name="work", messages_max=1, order="strict"),)})
    rig.run(1)
    a.core.catalog.ledger.identities["c"] = 2
    put(a, "2", "3", "4", address="work@c")
    rig.run(1)
    rig.client(c).manage("SKIP", "queue", "work")
    rig.run(3)
    told = ask(a, "4")
    assert states(told)[-1] == ("c", "held back") and told["waits_for"] == "room in queue 'work', which is full"


def test_held_until_a_table_changes_and_a_loop_of_questions_ends() -> None:
    rig = Rig()
    a, b, d = rig.graph("a-b", "b-d", routes={"a": {"d": "b"}, "b": {"d": "a"}}, d=STRICT)
    rig.run(3)
    put(a, "1")
    told = ask(a, "1")
    assert told["waits_for"] == "a change of a routing table: the message came back" and told["custody"] == "a"
    a.queue("@d").shared.finish_wherever([1, 2])  # gone from here: only b's memory of it leads back
    rig.settle()
    told = ask(a, "1")
    assert states(told)[-1] in [("a", "asked before"), ("b", "passed")] and not told["complete"]
    reroute(rig, b)
    assert d.core


def test_a_gap_keeps_it_waiting() -> None:
    rig, (a, _, _, d) = line()
    a.core.catalog.ledger.identities["d"] = 4
    put(a, "4")
    told = ask(a, "4")
    assert states(told)[-1] == ("d", "held back") and told["waits_for"] == "missing numbers of a: 1 to 3"
    assert told["custody"] == "d" and d.queue("$waiting").messages == 1 and rig


def test_with_a_consumer_then_consumed() -> None:
    rig, (a, _, _, d) = line()
    put(a, "1", "2")
    client = rig.client(d)
    client.receiver("work", credit=1)
    rig.settle()
    assert states(ask(a, "1"))[-1] == ("d", "with a consumer")
    assert ask(a, "2")["waits_for"] == "a consumer's credit"
    client.accept()
    rig.run(1)
    told = ask(a, "1")
    assert states(told)[-1] == ("d", "consumed") and told["complete"] and told["found"]


def test_what_a_subscription_still_needs() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = put(hub, "0", address="work")
    assert client.manage("OPEN", "subscription", "copy", queue="work", mode="copy")[0] == 201
    put(hub, "1", address="work")
    consumer = rig.client(hub)
    consumer.receiver("work")
    rig.settle()
    consumer.accept()
    rig.run(1)
    told = ask(hub, "1")
    assert told["state"] == "consumed" and told["waits_for"] == "subscriptions copy"
    client.manage("DELETE", "subscription", "copy", queue="work")
    rig.run(1)
    assert not ask(hub, "1")["found"]
    put(hub, "2", address="other")
    assert client.manage("OPEN", "subscription", "take", queue="other", mode="take")[0] == 201
    assert ask(hub, "2")["waits_for"] == "subscription 'take'"


def test_dead_letters_and_what_ended_on_its_way() -> None:
    rig = Rig()
    a, b, _ = rig.line("a", "b", "d", d={"create_queues": False})
    rig.run(3)
    put(a, "1", address="nowhere@d")
    told = ask(a, "1")
    assert told["state"] == "dead letter" and "no queue 'nowhere'" in told["steps"][-1]["reason"]
    apart(rig, "b", "d")
    rig.refuse_dials = True
    put(a, "2", header=Header(ttl=100))
    rig.run(4)
    told = ask(a, "2")
    assert states(told)[-1] == ("b", "ended") and told["custody"] is None
    assert told["steps"][-1]["waits_for"] == "its turn, at which its end is reported"
    rig.refuse_dials = False
    rig.run(8)
    told = ask(a, "2")
    assert states(told)[-1] == ("d", "ended") and told["found"] and told["custody"] is None and b.core


def test_who_does_not_answer_is_named() -> None:
    rig, (a, b, c, _) = line()
    put(a, "1")
    for wire in rig.between("b", "c"):
        wire.silent = True
    told = ask_long(a, "1", 1)
    assert states(told) == [("a", "passed"), ("b", "passed"), ("c", "silent")]
    assert told["found"] and not told["complete"] and told["steps"][-1]["note"] == "it did not answer in time"
    for wire in rig.between("b", "c"):
        wire.cut()
    rig.refuse_dials = True
    told = ask(a, "1")
    assert states(told)[-1] == ("c", "silent") and "the session is" in told["steps"][-1]["note"]
    assert not a.core.questions.waiting and not b.core.questions.waiting and c.core


def test_a_large_message_is_found_where_it_lies() -> None:
    rig = Rig()
    hub = rig.node("hub", limits=Limits(stream_bytes=10_000))
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    link.send(Message(properties=Properties(message_id="large"), data=[bytes(200_000)]).encode(), context=1)
    rig.settle()
    rig.run(1)
    value = hub.queue("work").read(0, count_max=1, bytes_max=1)[0][1]
    assert value[1] & entry.BLOB and ask(hub, "large")["state"] == "queued"


# ------------------------------------------------------------------------------------------------ bounds


def test_no_more_is_looked_at_than_the_limit_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "NEWEST", 10)
    monkeypatch.setattr(where, "SHARE_COUNT", 4)
    rig = Rig()
    hub = rig.node("hub", limits=Limits(where_entries_max=60))
    put(hub, *[str(number) for number in range(100)], address="work")
    assert ask(hub, "99")["found"] and ask(hub, "90")["found"] and ask(hub, "40")["found"]
    told = ask(hub, "60")
    step = told["steps"][0]
    assert not told["found"] and not told["complete"] and 60 <= step["looked_at"] <= 64 and step["messages"] == 100
    assert step["note"].endswith("that were looked at, of 100")


def test_what_is_nowhere_is_told_from_what_was_not_looked_for() -> None:
    rig = Rig()
    hub = rig.node("hub")
    put(hub, "1", address="work")
    told = ask(hub, "2")
    assert not told["found"] and told["complete"] and told["state"] == "not here"


def test_the_last_that_may_be_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "NEWEST", 0)
    monkeypatch.setattr(where, "SHARE_COUNT", 1)
    rig = Rig()
    hub = rig.node("hub", limits=Limits(where_entries_max=10))
    put(hub, *[str(number) for number in range(12)], address="work")
    assert ask(hub, "9")["found"] and not ask(hub, "10")["found"]


def test_what_is_remembered_of_what_was_passed_on_is_bounded() -> None:
    rig = Rig()
    a, _, c = rig.line("a", "b", "c", a={"limits": Limits(passed_max=5)}, c=STRICT)
    rig.run(3)
    put(a, *[str(number) for number in range(6)], address="work@c")
    assert len(a.core.forwarding.passed) == 5 and ask(a, "1")["found"] and not ask(a, "0")["found"]
    put(a, "x" * 400, address="work@c")
    assert all(len(item[0]) <= PASSED_BYTES + 16 * entry.TRACE_MAX for item in a.core.forwarding.passed) and c.core


def test_a_queue_that_goes_while_it_is_looked_at_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "SHARE_COUNT", 1)
    rig = Rig()
    hub = rig.node("hub")
    client = put(hub, *"abc", address="work")
    client.close_transport()
    rig.settle()
    client = rig.client(hub)
    look = hub.core.questions.here.look("", tuple(message_ids.encodings("c")), None)
    running = look.run(1000)
    assert next(running, "over") is None
    assert client.manage("DELETE", "queue", "work")[0] == 200
    assert list(running) == [None] * len(list(running)) and look.complete and look.step is None


def test_so_many_questions_of_clients_and_no_more() -> None:
    rig = Rig()
    hub = rig.node("hub")
    answers: list[Any] = []
    for _ in range(CLIENT_ASKS_MAX):
        assert hub.core.questions.ask("", ("x",), 5, answers.append)
    assert not hub.core.questions.ask("", ("x",), 5, answers.append)
    hub.due = True
    rig.settle()
    assert len(answers) == CLIENT_ASKS_MAX and hub.core.questions.ask("", ("x",), 5, answers.append)


def question(**fields: Any) -> dict[str, Any]:
    return {
        "kind": "where", "ask": Ulong(1), "ids": ["x"], "destination": "d", "origin": UUID(int=1), "number": Ulong(1),
        "to": "work", "asked": ["z"], "limit": Ulong(5_000),
    } | fields  # fmt: skip


class Asker:
    """A neighbour that keeps what it is told."""

    def __init__(self, node: Node, name: str = "a") -> None:
        self.core = node.core
        self.name = name
        self.told: list[dict[str, Any]] = []

    def hear(self, fields: dict[str, Any]) -> None:
        """As a session hears it from the neighbour."""
        self.core.control_kinds[fields["kind"]](self, fields)

    def send(self, fields: dict[str, Any]) -> bool:
        encode(fields)
        self.told.append(fields)
        return True


def test_a_neighbours_questions_are_bounded_in_number_and_rate() -> None:
    rig = Rig()
    hub = rig.node("hub")
    asker, told = Asker(hub), hub.core.questions
    for number in range(NEIGHBOUR_ASKS_MAX + 1):
        asker.hear(question(ask=Ulong(number)))
    assert len(told.looking) == NEIGHBOUR_ASKS_MAX
    assert [answer["steps"][0]["state"] for answer in asker.told] == ["busy"]
    hub.due = True
    rig.settle()
    assert len(asker.told) == NEIGHBOUR_ASKS_MAX + 1
    for number in range(100):
        asker.hear(question(ask=Ulong(number)))
        hub.due = True
        rig.settle()
    busy = [answer for answer in asker.told if answer["steps"][0]["state"] == "busy"]
    assert 100 - NEIGHBOUR_ASKS_BURST < len(busy) <= 100
    rig.run(1)
    asker.hear(question())
    assert len(told.looking) == 1


def test_a_question_that_comes_round_or_too_far() -> None:
    rig = Rig()
    hub, d = rig.graph("hub-d")
    rig.run(2)
    asker = Asker(hub)
    asker.hear(question(asked=["z", "hub"]))
    asker.hear(question(asked=["d"]))
    asker.hear(question(asked=[f"n{number}" for number in range(NODES_MAX - 1)]))
    asker.hear(question(asked=[f"n{number}" for number in range(NODES_MAX)]))  # malformed
    hub.due = True
    rig.settle()
    ends = [answer["steps"][-1] for answer in asker.told]
    assert [(step["node"], step["state"]) for step in ends] == [
        ("hub", "asked before"), ("d", "asked before"), ("d", "not asked"),
    ]  # fmt: skip
    assert d.core


@pytest.mark.parametrize("key", ["ask", "ids", "destination", "origin", "number", "to", "asked", "limit"])
@pytest.mark.parametrize("value", [None, -1, 2**70, "x" * 300, [], [None], ["x"] * 100, [["x"]], {"a": 1}, b"x"])
def test_malformed_questions_are_passed_over(key: str, value: Any) -> None:
    rig = Rig()
    hub = rig.node("hub")
    asker = Asker(hub)
    asker.hear(question(**{key: value}))
    hub.due = True
    rig.settle()
    assert len(asker.told) <= 1 and not hub.core.questions.looking


@pytest.mark.parametrize("key", ["ask", "number", "limit"])
@pytest.mark.parametrize("value", [True, -1, 2**64, 1.0])
def test_a_question_whose_number_is_none_is_passed_over(key: str, value: Any) -> None:
    hub = Rig().node("hub")
    asker = Asker(hub)
    asker.hear(question(**{key: value}))
    assert not asker.told and not hub.core.questions.looking
    asker.hear(question(**{key: Ulong(1)}))
    assert len(hub.core.questions.looking) == 1


def answers_with(node: Node, steps: list[dict[str, Any]]) -> None:
    """Whatever that node is asked by a neighbour it answers so."""

    def hear_ask(neighbour: Any, fields: dict[Any, Any]) -> None:
        assert neighbour.send({"kind": "there", "ask": fields["ask"], "steps": steps})

    assert node.core is not None
    node.core.control_kinds["where"] = hear_ask


def test_an_answer_goes_on_however_much_of_it_a_node_has_heard() -> None:
    """Each node adds its own step to what came, and what it tells must fit the control link too."""
    _, (a, b, c, d) = line()
    steps: list[dict[str, Any]] = []
    while (left := NODE_MESSAGE_BYTES_MAX - 150 - len(encode(steps))) > 50:
        parts = min(PATH_MAX, left // 505)
        path = ["y" * 500] * parts if parts else ["y" * (left - 50)]
        steps.append({"node": f"n{len(steps)}", "state": "passed", "path": path})
    steps[-1]["state"] = "queued"
    assert NODE_MESSAGE_BYTES_MAX - 200 < len(encode(steps)) < NODE_MESSAGE_BYTES_MAX
    answers_with(c, steps)
    put(a, "1", address="work@d")
    told = ask_long(a, "1", 5)
    assert states(told)[:2] == [("a", "passed"), ("b", "passed")]
    assert len(encode(told["steps"])) < NODE_MESSAGE_BYTES_MAX and len(told["steps"]) > 10
    last = told["steps"][-1]
    assert last["state"] == "left out" and last["node"] == f"n{len(told['steps']) - 3}"
    assert not told["complete"] and d.core
    assert all(node.core.neighbours[name].established_count == 1 for node, name in ((a, "b"), (b, "a"), (b, "c")))


def test_steps_are_told_up_to_the_bound_and_not_one_byte_past_it() -> None:
    def made(more: int) -> list[dict[str, Any]]:
        steps = [{"node": f"n{number}", "state": "passed", "note": "x" * 1000} for number in range(3)]
        steps[0]["note"] += "x" * (ANSWER_BYTES_MAX + more - sum(len(encode(step)) for step in steps))
        return steps

    assert asks._fitting(made(0)) == made(0)
    *kept, last = asks._fitting(made(1))
    assert kept == made(1)[:2]
    assert last["node"] == "n2" and last["state"] == "left out" and str(ANSWER_BYTES_MAX) in last["note"]


@pytest.mark.parametrize("stores", [("a", "aa"), (str(UUID(int=1)), str(UUID(int=2)))])
def test_names_put_in_the_place_of_stores_make_no_answer_endless(stores: tuple[str, str]) -> None:
    """A hostile node's name may hold stores itself: one is put in once, into what the nodes said."""
    one, other = (store * (500 // len(store)) for store in stores)
    steps = [
        {"node": other, "state": "held back", "store": stores[0], "waits_for": one},
        {"node": one, "state": "held back", "store": stores[1], "waits_for": other},
    ]
    told = asks.answer_of(("1",), [asks._read_step(step) for step in steps])
    assert len(encode(told)) < 20_000


values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.binary(max_size=5)
anything = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2)
)


@today.examples(30)
@given(st.lists(st.dictionaries(st.sampled_from(
    ["node", "state", "custody", "path", "sequence", "number", "waits_for", "subscriptions", "since", "other"],
), anything), max_size=5) | anything)  # fmt: skip
def test_whatever_a_node_answers_a_client_is_told_what_can_be_read(steps: Any) -> None:
    rig = Rig()
    a, b = rig.graph("a-b")
    rig.run(2)
    heard: list[list[dict[str, Any]]] = []
    put(a, "1", address="work@b")
    assert a.core.questions.ask("", ("1",), 5, heard.append)
    a.due = True
    for _ in range(20):
        if a.core.questions.waiting:
            break
        a.end_turn()
        a.handle(events.TimerFired())
    number = next(iter(a.core.questions.waiting))
    stranger, other = Asker(a, "c"), a.core.neighbours["b"]
    stranger.hear({"kind": "there", "ask": Ulong(number), "steps": []})
    other.hear({"kind": "there", "ask": True, "steps": []})
    assert number == 1 and not heard  # another neighbour's word about it does not count, nor does what is no number
    other.hear({"kind": "there", "ask": Ulong(number), "steps": steps})
    if isinstance(steps, list):
        assert len(heard) == 1
        encode(asks.answer_of(("1",), heard[0]))
    assert b.core
