"""A configuration that is taken up while the node runs (core/reloading.py, docs/operations.md)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.federation.settings import Entry
from holdfast.settings.changes import TOLD_MAX, bounded, compare
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from support.reloads import lines, read
from support.rig import Client, Node, Rig

ANN: Final = UserConfig(name="ann", password="one")
BOB: Final = UserConfig(name="bob", password="one")
ROOT: Final = UserConfig(name="root", password="one")


def rule(user: str, address: str, *allow: str, **told: Any) -> AccessRule:
    return AccessRule(name=f"{user} {address}", users=(user,), addresses=(address,), allow=allow, **told)


def rules(*more: AccessRule, groups: tuple[GroupConfig, ...] = ()) -> AccessConfig:
    return AccessConfig(rules=(rule("root", "*", "administer"), *more), groups=groups)


def login(node: Node, user: str, password: str = "one") -> Client:
    return node.rig.login(node, user, password)


# ------------------------------------------------------------------------------------------------------ users


def test_users_come_change_and_go_and_nobody_else_is_disturbed() -> None:
    node = Rig().node("hub", users=(ANN, BOB))
    ann, bob = login(node, "ann"), login(node, "bob")
    cleo = UserConfig(name="cleo", password="one", links_max=3)
    assert read(node, users=(replace(ANN, password="two"), BOB, cleo)).accepted
    assert (ann.amqp.usable, bob.amqp.usable) == (False, True)
    assert ann.closed is not None and ann.closed.condition == "amqp:unauthorized-access"
    assert login(node, "cleo").amqp.usable and login(node, "ann", "two").amqp.usable
    assert not login(node, "ann", "one").amqp.usable
    assert node.core.users.by_name["cleo"].links_max == 3
    assert lines(node) == ["user 'ann' changed; user 'cleo' added"]
    assert read(node, users=(BOB,)).accepted
    assert not login(node, "cleo").amqp.usable and bob.amqp.usable
    assert lines(node)[1:] == ["user 'ann' removed; user 'cleo' removed"]


def test_bounds_of_a_user_change_without_sending_it_away() -> None:
    node = Rig().node("hub", users=(ANN,))
    ann = login(node, "ann")
    assert read(node, users=(replace(ANN, links_max=1),)).accepted
    assert ann.amqp.usable
    first = ann.sender("in")
    node.rig.settle()
    second = ann.sender("out")
    node.rig.settle()
    assert (first.detached, second.detached) == (False, True)


def test_the_first_user_sends_everybody_away_and_the_last_lets_everybody_in() -> None:
    node = Rig().node("hub")
    anyone = node.rig.client(node)
    named = login(node, "ann", "whatever")
    node.rig.settle()
    assert anyone.amqp.usable and named.amqp.usable
    assert read(node, users=(ANN,)).accepted
    assert not anyone.amqp.usable and not named.amqp.usable and "the node has users now" in str(anyone.closed)
    assert not node.rig.client(node).amqp.usable or node.rig.settle() or not login(node, "ann", "two").amqp.usable
    assert login(node, "ann").amqp.usable
    assert read(node, users=()).accepted
    again = node.rig.client(node)
    node.rig.settle()
    assert again.amqp.usable


def test_whoever_is_sent_away_is_told_once_however_often_the_file_is_read() -> None:
    """It has not answered the close when the rules change as well."""
    node = Rig().node("hub")
    anyone = node.rig.client(node)
    node.rig.settle()
    for more in ({}, {"access": rules()}):
        node.handle(events.ConfigRead(config=replace(node.config, users=(ANN, ROOT), **more)))
    node.rig.settle()
    assert "the node has users now" in str(anyone.closed)
    assert sum("connection closed: " in line for line in node.logs) == 1, node.logs


def test_that_users_may_do_everything_is_said_at_the_start_and_when_the_last_rule_goes() -> None:
    def said(node: Node) -> int:
        node.rig.settle()
        return sum("every user may do everything, as there is no [[access]]" in line for line in node.logs)

    assert said(Rig().node("hub")) == 0, "where there are no users, nobody thinks of rights"
    assert said(Rig().node("hub", users=(ROOT,), access=rules())) == 0
    node = Rig().node("hub", users=(ANN, ROOT))
    assert said(node) == 1
    assert read(node, users=(ROOT,)).accepted and said(node) == 1
    assert read(node, users=(ROOT,), access=rules()).accepted and said(node) == 1
    assert read(node, users=(ROOT,)).accepted and said(node) == 2


def test_a_certificate_that_is_another_users_sends_both_away() -> None:
    one = UserConfig(name="ann", certificate="ann.example")
    node = Rig().node("hub", users=(one, BOB))
    entrance = node.core.doors.entrance
    assert entrance.user_of("ann.example") == "ann"
    assert read(node, users=(ANN, replace(BOB, certificate="ann.example"))).accepted
    assert entrance.user_of("ann.example") == "bob"


def test_a_neighbour_whose_password_changed_comes_again_with_the_new_one() -> None:
    rig = Rig()
    hub = rig.node("hub", users=(UserConfig(name="jfk", password="one"),), neighbours=(NeighbourConfig(name="jfk"),))
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="one")
    rig.node("jfk", neighbours=(to_hub,))
    rig.run(5)
    assert hub.core.neighbours["jfk"].established
    assert read(hub, users=(UserConfig(name="jfk", password="two"),)).accepted
    rig.run(5)
    assert not hub.core.neighbours["jfk"].established
    assert read(hub, users=(UserConfig(name="jfk", password="one"),)).accepted
    rig.run(10)
    assert hub.core.neighbours["jfk"].established


# ------------------------------------------------------------------------------------------------------ rules


def test_a_right_that_is_taken_away_ends_its_links_and_one_that_is_given_is_there() -> None:
    before = rules(rule("ann", "in", "send"), rule("bob", "in", "send"))
    queues = (QueueConfig(name="in"), QueueConfig(name="out"))
    node = Rig().node("hub", users=(ANN, BOB, ROOT), access=before, queues=queues)
    ann, bob = login(node, "ann"), login(node, "bob")
    link = ann.sender("in")
    node.rig.settle()
    assert read(node, access=rules(rule("ann", "out", "receive"), rule("bob", "in", "send"))).accepted
    assert not ann.amqp.usable and link.detached, "the link would outlive the right to send"
    assert bob.amqp.usable, "nothing about bob has changed"
    ann = login(node, "ann")
    sender, receiver = ann.sender("in"), ann.receiver("out", credit=0)
    node.rig.settle()
    assert (sender.detached, receiver.detached) == (True, False)


def test_a_group_that_changes_concerns_who_is_in_it_or_was() -> None:
    users = (ANN, BOB, ROOT)
    of_group = AccessRule(name="team", groups=("team",), addresses=("in",), allow=("send",))
    node = Rig().node("hub", users=users, access=rules(of_group, groups=(GroupConfig(name="team", users=("ann",)),)))
    ann, bob, root = (login(node, name) for name in ("ann", "bob", "root"))
    assert read(node, access=rules(of_group, groups=(GroupConfig(name="team", users=("bob",)),))).accepted
    assert [client.amqp.usable for client in (ann, bob, root)] == [False, False, True]
    assert lines(node) == ["group 'team' changed"]


def test_rules_of_one_host_do_not_concern_users_of_another() -> None:
    acme = UserConfig(name="ann", password="two", vhost="acme")
    told = {"users": (ANN, ROOT, acme), "vhosts": (VhostConfig(name="acme"),)}
    node = Rig().node("hub", **told, access=rules(rule("ann", "in", "send"), rule("ann", "in", "send", vhost="acme")))
    here = login(node, "ann")
    there = node.rig.client(node, mechanism="PLAIN", user="ann", password="two", hostname="vhost:acme")
    node.rig.settle()
    assert here.amqp.usable and there.amqp.usable
    assert read(node, access=rules(rule("ann", "in", "send"), rule("ann", "out", "send", vhost="acme"))).accepted
    assert (here.amqp.usable, there.amqp.usable) == (True, False)


def test_the_first_rule_denies_all_else_and_without_the_last_everything_is_allowed() -> None:
    node = Rig().node("hub", users=(ANN, ROOT))
    ann = login(node, "ann")
    assert read(node, access=rules()).accepted
    assert not ann.amqp.usable
    ann = login(node, "ann")
    refused = ann.sender("in")
    node.rig.settle()
    assert refused.detached
    assert read(node, access=AccessConfig()).accepted
    ann = login(node, "ann")
    allowed = ann.sender("in")
    node.rig.settle()
    assert not allowed.detached


def test_what_neighbours_may_publish_follows_the_rules_of_now() -> None:
    rig = Rig()
    jfk, hub = rig.pair(users=(UserConfig(name="jfk", password="one"), ROOT), queues=(QueueConfig(name="work"),))
    jfk.config = replace(
        jfk.config, neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="one"),)
    )
    jfk.crash()
    jfk.start()
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.run(3)
    client.send(link, "1")
    rig.run(1)
    assert read(hub, access=rules(rule("jfk", "other", "send"))).accepted
    rig.run(5)
    client.send(link, "2")
    rig.run(1)
    assert read(hub, access=rules(rule("jfk", "work", "send"))).accepted
    rig.run(5)
    client.send(link, "3")
    rig.run(1)
    assert (hub.bodies("work"), hub.bodies("$dead-letters")) == (["1", "3"], ["2"])


# -------------------------------------------------------------------------------------- neighbours and routes


def dialled(name: str, **told: Any) -> NeighbourConfig:
    return NeighbourConfig(name=name, remote="127.0.0.1:1", **told)


def sent(rig: Rig, node: Node, address: str, *bodies: str, **parts: Any) -> None:
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
    rig.run(1)


def test_a_neighbour_that_is_added_at_both_ends_gets_its_session_and_its_messages() -> None:
    rig = Rig()
    jfk = rig.node("jfk", unknown_destination="keep")
    hub = rig.node("hub", queues=(QueueConfig(name="work"),))
    sent(rig, jfk, "work@hub", "1", "2")
    assert read(hub, neighbours=(NeighbourConfig(name="jfk"),)).accepted
    assert read(jfk, neighbours=(dialled("hub"),)).accepted
    rig.run(5)
    assert jfk.core.neighbours["hub"].established and hub.bodies("work") == ["1", "2"]
    assert lines(jfk) == ["neighbour 'hub' added"]
    assert [row["user"] for row in hub.core.users.status("") if row["kind"] == "neighbour"] == ["jfk"]


def test_a_neighbour_that_is_removed_is_gone_with_its_session_and_comes_back_with_what_waited() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work"),))
    rig.run(3)
    hub.hold_commits = True
    sent(rig, jfk, "work@hub", "1", "2")
    assert read(jfk, neighbours=()).accepted, "while transfers are in doubt"
    assert not jfk.core.neighbours and not jfk.core.next_hops
    hub.hold_commits = False
    rig.run(10)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    assert link.detached, "nothing is known of that node any more"
    assert not hub.core.neighbours["jfk"].established
    assert read(jfk, neighbours=(dialled("hub"),)).accepted
    rig.run(10)
    assert hub.bodies("work") == ["1", "2"]
    assert read(hub, neighbours=()).accepted
    rig.run(10)
    assert not jfk.core.neighbours["hub"].established
    jfk.core.validate()


def test_what_is_said_of_a_neighbour_changes_with_its_next_session() -> None:
    rig = Rig()
    jfk, hub = rig.pair(vhosts=(VhostConfig(name="acme"),))
    rig.run(3)
    changed = NeighbourConfig(name="jfk", hosts=("acme",), hold_time_s=7.0)
    assert read(hub, neighbours=(changed,)).accepted
    neighbour = hub.core.neighbours["jfk"]
    assert not neighbour.established and neighbour.hop.may_have("acme@jfk")
    rig.run(5)
    assert neighbour.established and neighbour.config is changed
    assert read(jfk, neighbours=(NeighbourConfig(name="hub"),)).accepted, "now the other end dials"
    assert read(hub, neighbours=(dialled("jfk"),)).accepted
    rig.run(10)
    assert neighbour.established and neighbour.peer.dialled


def test_routes_lead_another_way_from_a_reload_on() -> None:
    rig = Rig()
    jfk, *_ = rig.graph("jfk-ord", "jfk-bos", "ord-hub", "bos-hub", routes={"jfk": {"hub": "ord"}})
    rig.run(3)
    sent(rig, jfk, "work@hub", "1")
    assert read(jfk, forwarding=(("hub", "bos"),)).accepted
    rig.run(2)
    assert jfk.core.forwarding.via("hub") == "bos"
    sent(rig, jfk, "work@hub", "2")
    rig.run(5)
    hub = rig.nodes["hub"]
    assert hub.bodies("work") == ["1", "2"]
    assert read(jfk, neighbours=(dialled("bos"),), forwarding=(("hub", "bos"),)).accepted
    sent(rig, jfk, "work@hub", "3")
    rig.run(5)
    assert hub.bodies("work") == ["1", "2", "3"] and lines(jfk)[-1] == "neighbour 'ord' removed"


def test_an_event_of_a_neighbour_that_was_removed_meanwhile_is_nothing() -> None:
    node = Rig().node("hub", neighbours=(dialled("jfk"),))
    node.rig.settle()
    assert read(node, neighbours=()).accepted
    node.handle(events.ConnectFailed(neighbour="jfk", reason="given up"))
    node.handle(events.ConnectionOpened(connection=99, peer="127.0.0.1:1", loopback=True, neighbour="jfk"))
    node.rig.settle()
    assert not node.core.connections and not any("defect" in line for line in node.logs)


def test_neighbours_that_routing_uses_without_a_topology_wait_for_a_restart() -> None:
    free = NodeConfig(name="hub", neighbours=(dialled("jfk"),))
    changes = compare(free, replace(free, neighbours=(dialled("ord"),)), routed={"jfk"})
    assert [item.name for item in changes.config.neighbours] == ["ord", "jfk"]
    assert (changes.changed, changes.restart) == (("neighbour 'ord' added",), ("neighbour 'jfk' removed",))


# ------------------------------------------------------------------------------------------ links, federation


def test_links_begin_and_end_and_one_that_changed_waits() -> None:
    node = Rig().node("hub", create_queues=False, queues=(QueueConfig(name="raw"), QueueConfig(name="clean")))
    clean = LinkConfig(name="clean", source="raw", target="clean", selector="JMSPriority > 3")
    assert read(node, links=(clean,)).accepted
    sent(node.rig, node, "raw", "1")
    assert node.bodies("clean") == ["1"]
    assert read(node, links=(replace(clean, selector=""),)).config.links == (clean,)
    assert lines(node) == ["link 'clean' added", "nothing has changed", "from the next start on: link 'clean' changed"]
    assert read(node).accepted and not node.core.queue_links.by_name
    sent(node.rig, node, "raw", "2")
    assert (node.bodies("raw"), node.bodies("clean")) == (["2"], ["1"])
    queues = (*node.config.queues, QueueConfig(name="new"))
    assert read(node, queues=queues, links=(LinkConfig(name="x", source="raw", target="new"),)).accepted
    node.rig.run(1)
    assert node.bodies("new") == ["2"]
    node.crash()
    node.start()
    assert not node.core.queue_links.by_name, "the file of that start has none"


def test_a_link_made_by_a_request_is_not_replaced() -> None:
    node = Rig().node("hub")
    client = node.rig.client(node)
    assert client.manage("CREATE", "link", "x", **{"from": "a", "to": "b"})[0] == 201
    assert not read(node, links=(LinkConfig(name="x", source="a", target="c"),)).accepted
    assert "link 'x' was made by a request" in lines(node)[0]
    assert read(node).accepted and len(node.core.queue_links.by_name) == 1


def test_topics_are_spread_over_a_neighbour_from_a_reload_on() -> None:
    rig = Rig()
    topics = (QueueConfig(name="topic/news"),)
    jfk, hub = rig.pair(jfk={"queues": topics}, queues=topics)
    rig.run(3)
    for node, other in ((jfk, "hub"), (hub, "jfk")):
        assert read(node, federation=(Entry("news", other),)).accepted
    rig.run(3)
    reader = rig.client(hub)
    link = reader.receiver("topic/news", source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.run(3)
    sent(rig, jfk, "topic/news", "1", properties=Properties(subject="x"), header=Header(durable=True))
    rig.run(3)
    assert reader.bodies(link) == ["1"]
    decided = read(hub, neighbours=(), federation=())
    assert [item.name for item in decided.config.neighbours] == ["jfk"], "routing uses the link to it"
    assert lines(hub)[-1] == "from the next start on: neighbour 'jfk' removed"


# -------------------------------------------------------------------------------------------- nothing changes


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"users": (ANN, ANN)}, "user 'ann' is listed twice"),
        ({"queues": (QueueConfig(name="a", when_full="never"), QueueConfig(name="b"))}, "invalid value 'never'"),
        ({"queues": (QueueConfig(name="topic/a", durable=False), QueueConfig(name="b"))}, "a topic is durable"),
        ({"queues": tuple(QueueConfig(name=f"q{number}") for number in range(9))}, "the limit is 8"),
        ({"links": (LinkConfig(name="x", source="new", target="none"),)}, "for link 'x' to; expected another queue"),
        ({"links": (LinkConfig(name="x", source="new", target="new"),)}, "for link 'x' to; expected another queue"),
        ({"links": (LinkConfig(name="x", source="new", target="old", selector="("),)}, "invalid selector of link 'x'"),
        ({"forwarding": (("ord", "jfk"),)}, "for route 'ord' via; expected the name of a [[neighbour]]"),
        ({"users": (), "access": rules()}, "is there without a [[user]]"),
        (
            {"users": (UserConfig(name="x", password="x", vhost="new"),), "vhosts": (VhostConfig(name="new"),)},
            "invalid value 'new' for user 'x' vhost; expected the name of a [[vhost]] (there is none); a restart",
        ),
    ],
)
def test_a_mistake_changes_nothing_at_all_and_gets_one_line(fields: dict[str, Any], text: str) -> None:
    old = (QueueConfig(name="old"),)
    node = Rig().node("hub", users=(ANN,), limits=Limits(queues_max=8), create_queues=False, queues=old)
    ann = login(node, "ann")
    before = sorted(node.core.catalog.queues)
    told = {"users": (BOB,), "queues": (*old, QueueConfig(name="new"))} | fields
    decided = read(node, **told)
    assert not decided.accepted and decided.config == node.core.reloading.config
    assert ann.amqp.usable and sorted(node.core.catalog.queues) == before
    (line,) = lines(node)
    assert line.startswith("nothing has changed: ") and text in line and "\n" not in line
    assert read(node, queues=(QueueConfig(name="new"),)).accepted


def test_a_file_that_could_not_be_read_is_told_with_its_line() -> None:
    node = Rig().node("hub")
    node.handle(events.ConfigRead(config=None, problem="hub.toml: unknown key 'x'"))
    assert lines(node) == ["nothing has changed: hub.toml: unknown key 'x'"]
    (decided,) = node.reloading
    assert isinstance(decided, events.ConfigDecided) and not decided.accepted


# ------------------------------------------------------------------------------------------------- management


def _asking() -> tuple[Node, Client, Callable[[], None]]:
    """A node with users, its administrator's client, and what has that one ask for a reload."""
    node = Rig().node("hub", users=(ANN, ROOT), access=rules())
    root = login(node, "root")
    replies = root.session.attach_receiver("replies", *_ends("replies"))
    replies.grant(10)
    requests = root.sender("$management")
    node.rig.settle()

    def ask() -> None:
        told = {"operation": "RELOAD", "type": "holdfast:node", "name": ""}
        message = Message(properties=Properties(reply_to="replies"), application_properties=told, value={})
        requests.send(message.encode(), context=None, settled=True)
        node.rig.settle()

    return node, root, ask


def test_reload_asks_the_driver_and_answers_what_changed() -> None:
    node, root, ask = _asking()
    ask()
    ask()
    assert [type(command).__name__ for command in node.reloading] == ["ReadConfig"], "one reading answers both"
    node.reloading.clear()
    node.handle(
        events.ConfigRead(
            config=replace(node.config, users=(ANN, ROOT, BOB)), changed=("log level",), restart=("store bytes_max",)
        )
    )
    node.rig.settle()
    answers = [Message.decode(item.payload) for item in root.deliveries]
    assert [dict(answer.application_properties or {})["statusCode"] for answer in answers] == [200, 200]
    body = {"changed": ["log level", "user 'bob' added"], "restart": ["store bytes_max"]}
    assert answers[0].value == body
    assert any("configuration reloaded: log level; user 'bob' added (by user 'root')" in line for line in node.logs)
    assert lines(node)[-1] == "from the next start on: store bytes_max"
    node.reloading.clear()
    ask()
    assert node.reloading == [events.ReadConfig()]
    node.handle(events.ConfigRead(config=None, problem="hub.toml: unknown key 'x'"))
    node.rig.settle()
    told = dict(Message.decode(root.deliveries[-1].payload).application_properties or {})
    assert (told["statusCode"], told["statusDescription"]) == (409, "nothing has changed: hub.toml: unknown key 'x'")
    assert login(node, "ann").manage("RELOAD", "node")[0] == 403


@pytest.mark.parametrize("changed", ["rights", "login", "gone"])
def test_who_asks_for_a_reload_that_logs_him_out_has_his_answer_first(changed: str) -> None:
    node, root, ask = _asking()
    ask()
    fields: dict[str, Any] = {
        "rights": {"access": rules(AccessRule(name="more", users=("root",), addresses=("x",), allow=("send",)))},
        "login": {"users": (ANN, replace(ROOT, password="another"))},
        "gone": {"users": (ANN,), "access": AccessConfig()},
    }[changed]
    node.handle(events.ConfigRead(config=replace(node.config, **fields)))
    node.rig.settle()
    (answer,) = [Message.decode(item.payload) for item in root.deliveries]
    assert dict(answer.application_properties or {})["statusCode"] == 200
    assert not root.amqp.usable


def _ends(name: str) -> tuple[Any, Any]:
    return Source(address="$management"), Target(address=name)


# ------------------------------------------------------------------------------------------------- comparison


def test_each_field_of_a_node_is_taken_up_or_told() -> None:
    config = NodeConfig(name="hub", users=(ANN,))
    others: dict[str, Any] = {
        "roles": ("root",), "vhosts": (VhostConfig(name="x"),), "hostnames": ("x",), "has_users_file": True,
        "create_queues": True, "limits": Limits(credit=5, queues_max=6), "telemetry_messages": True,
    }  # fmt: skip
    changes = compare(config, replace(config, **others))
    assert changes.config == config and not changes.changed
    assert set(changes.restart) == {
        "node roles", "[[vhost]]", "node hostnames", "node users_file", "node create_queues", "limits credit",
        "limits queues_max", "telemetry messages",
    }  # fmt: skip
    assert compare(config, config).restart == ()


def test_what_is_told_is_bounded() -> None:
    assert bounded(map(str, range(TOLD_MAX))) == tuple(map(str, range(TOLD_MAX)))
    assert bounded([*map(str, range(TOLD_MAX + 2)), "1"])[TOLD_MAX:] == ("2 more",)


def test_routes_wait_for_a_restart_where_routing_is_used() -> None:
    """Those beside routing are asked for at the start; without it they are applied."""
    before = NodeConfig(name="hub", neighbours=(NeighbourConfig(name="jfk"),), forwarding=(("ord", "jfk"),))
    after = replace(before, forwarding=(("bos", "jfk"),))
    routed = compare(before, after, routed={"jfk"})
    assert routed.restart == ("[[route]]",) and routed.config.forwarding == before.forwarding
    free = compare(before, after)
    assert free.restart == () and free.config.forwarding == after.forwarding
