"""Every table of links is known to who looks for links whose peer is gone (peers/link_tables.py, docs/adr/0020)."""

import gc
import weakref
from typing import Any

import pytest

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Properties
from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.producer import ProducerLink
from holdfast.errors import BrokenInvariant
from holdfast.peers.link_tables import links_of
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.garbage import collected
from support.rig import Node, Rig


class Defect(Exception):
    """Raised where nothing is wrong."""


def core_of(node: Node) -> Any:
    assert node.core is not None
    return node.core


def failing(self: object, *arguments: object, **options: object) -> None:
    raise Defect("for once")


def refs_of(peer: Peer) -> dict[str, "weakref.ref[Any]"]:
    found = links_of(peer)
    return {f"{type(link).__name__} {link.link.name}": weakref.ref(link) for link in found}


def alive(refs: dict[str, "weakref.ref[Any]"]) -> dict[str, list[str]]:
    """Those that something still refers to, and what that is."""
    gc.collect()
    return {
        name: [f"{type(holder).__name__} {holder!r}"[:200] for holder in gc.get_referrers(link)]
        for name, ref in refs.items()
        if (link := ref()) is not None
    }


def test_nothing_refers_to_the_links_of_a_client_that_was_ended() -> None:
    """Each kind of link, in every table that it comes to stand in, as the failure comes."""
    rig = Rig()
    queues = (QueueConfig(name="full", messages_max=1), QueueConfig(name="memory", durable=False, messages_max=1))
    limits = Limits(user_requests_per_s=1, user_unsettled_bytes_max=1)
    node = rig.node("hub", queues=queues, limits=limits)
    core = core_of(node)
    other, client = rig.client(node, container_id="other"), rig.client(node)
    producer = client.sender("work")
    links = [
        producer, client.sender("full"), client.sender("memory"), client.sender(None),  # type: ignore[arg-type]
        client.sender("named", properties={PRODUCER: "me"}),
        client.receiver("work"), client.receiver("pre", snd_settle_mode=1), client.receiver("other", credit=0),
        client.reader("work", 1), client.receiver("work", name="kept", source={"timeout": 30}),
        client.receiver("work", name="sub", source={"durable": 2, "expiry_policy": "never"}),
    ]  # fmt: skip
    client.manage("STATUS", "node")
    for name in ("full", "memory"):
        link = other.sender(name)
        rig.settle()
        other.send(link, "a")
        rig.settle()
    requests, _ = client._management or (None, None)
    assert requests is not None and all(link.attached for link in links), [link.name for link in links]
    peer = next(peer for peer in core.connections.values() if peer.amqp.remote_open.container_id == "client")
    refs = refs_of(peer)
    for _ in range(3):  # one waits for the user's time
        requests.send(b"\0Sw\x40", context=None, settled=True)
    for link in links[1:5]:  # two of them are parked
        client.send(link, "again", number=1, properties=Properties(to="pre"))  # type: ignore[arg-type]
    rig.settle()
    links[7].grant(5, drain=True)  # type: ignore[union-attr]
    requests.send(b"\0Sw\x40", context=None, settled=True)
    client.send(links[4], "more", number=2)  # type: ignore[arg-type]
    client.send(producer, "the last one")
    assert len(refs) > 12
    core.users.granted[next(iter(core.users.waiting))] = None  # as between the tick and the turn's end
    core.links.presettled[next(link for link in links_of(peer) if _presettled(link))] = None
    tables = {name for name, link in core.links.each() if link.peer is peer}
    take = ProducerLink.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ProducerLink,
            "take",
            lambda self, *arguments, **options: (
                failing(self) if self.queue.name == "work" else take(self, *arguments, **options)
            ),
        )
        client.flush()
        assert client.end is not None
        end = client.end.wire.other(client.end)
        data = bytes(end.inbox)
        end.inbox.clear()
        end.receive(data)
    assert core.containment.peers_ended == 1
    del peer
    assert tables >= {
        "memory",
        "requests of users",
        "requests granted",
        "presettled",
        "producers",
        "consumers",
        "replies",
    }
    kept = alive(refs)
    assert set(kept) == {"ResumableConsumer kept", "ResumableConsumer sub"}, kept  # they may be resumed
    core.validate()


def _presettled(link: Any) -> bool:
    return isinstance(link, ConsumerLink) and link.presettled


def test_nothing_refers_to_the_links_of_a_neighbour_that_was_ended() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="full", messages_max=1),))
    rig.run(0.5)
    client = rig.client(jfk)
    link = client.sender("full@hub")
    rig.settle()
    for body in "abc":  # the others are parked
        client.send(link, body)
    rig.settle()
    core = core_of(hub)
    (peer,) = [peer for peer in core.connections.values() if peer.neighbour is not None]
    refs = refs_of(peer)
    assert any(name.startswith("CustodyReceiver") for name in refs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CustodyReceiver, "take", failing)
        client.send(link, "d")
        rig.settle()
    assert core.containment.peers_ended >= 1
    del peer
    rig.settle()
    kept = {name: why for name, why in alive(refs).items() if not name.startswith("CustodySender")}
    assert not kept
    core.validate()


@pytest.mark.parametrize(
    "table", ["refills", "waiting_for_space", "presettled", "drains", "requests", "memory", "streams"]
)
def test_a_link_that_is_left_in_a_table_is_found(table: str) -> None:
    """Both by the invariants and by who ends its peer."""
    rig = Rig()
    node = rig.node("hub")
    core = core_of(node)
    client = rig.client(node)
    client.sender("work")
    rig.settle()
    (peer,) = core.connections.values()
    (link,) = links_of(peer)
    client.close_transport()
    rig.settle()
    assert link not in core.links.of_peer(peer)
    core.validate()
    if table == "streams":
        core.streams[type("Stream", (), {"bringer": link})] = None
    else:
        core.links.waiting(table)[link] = None
    assert core.links.of_peer(peer) == [link]
    with pytest.raises(BrokenInvariant, match=f"{table}: a link's connection is gone"):
        core.validate()
    node.checks = False


@pytest.mark.parametrize("way", ["cut", "closed", "detached, then cut", "session ended, then cut"])
def test_a_client_that_is_gone_leaves_nothing_for_the_garbage_collector(way: str) -> None:
    """A node collects rarely (ADR 0005): what reference counts alone do not free would stay for minutes."""
    rig = Rig()
    node = rig.node("hub")
    core = core_of(node)
    client = rig.client(node)
    sender, consumer = client.sender("work"), client.receiver("work", credit=3)
    client.reader("work", 1)
    rig.settle()
    for body in "abcdef":
        client.send(sender, body)
    rig.settle()
    with collected() as left:
        if way == "cut":
            client.close_transport()
        elif way == "closed":
            client.amqp.close()
        else:
            if way.startswith("detached"):
                consumer.detach(closed=True)
                sender.detach(closed=True)
            else:
                client.session.end()
            rig.settle()
            client.close_transport()
        rig.settle()
        assert not core.connections
    assert not left
