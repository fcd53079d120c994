"""A node as of protocol version 1 that does not change: what it said to its neighbour when it was recorded, byte for
byte (tests/core/golden/node-1.json). Each node of today still understands it.

It was recorded on 2026-11-30 from the version before nodes told their versions: jfk dials the hub, which is the super
node of their topology, and sends it four messages. Recordings are never made anew; a new version of the protocol gets a
recording beside this one. It answers what the hub said then: a hub that opened its second session later would hear an
answer to what it did not ask.
"""

import json
from pathlib import Path
from uuid import UUID

from amqp.joined import performatives
from holdfast.amqp.wire.performatives import Accepted, Disposition, Open
from holdfast.peers.neighbours.features import PROTOCOL_KEY
from support.hops import STRICT, names
from support.raw import Raw
from support.rig import Node, Rig
from support.routing import core_routes, network

RECORDED = json.loads((Path(__file__).parent / "golden" / "node-1.json").read_text(encoding="utf-8"))


def joined() -> tuple[Rig, Node, Raw]:
    rig = Rig()
    _, hub = network(rig, "jfk-hub", supers=("hub",), start=False, hub=STRICT)
    hub.start()
    peer = Raw(rig, hub, address="127.0.0.1")
    return rig, hub, peer


def test_its_session_is_up_and_its_messages_arrive_once() -> None:
    rig, hub, peer = joined()
    for data in RECORDED["said"]:
        peer.end.wire.write(peer.end, bytes.fromhex(data))
        rig.run(0.05)
    assert hub.core is not None
    session = hub.core.neighbours["jfk"]
    assert session.established and hub.bodies("work") == names(1, 4)
    assert (session.software, session.protocol) == (None, None), "it told none"
    assert hub.core.catalog.ledger.neighbour_stores["jfk"] == UUID(RECORDED["store"])
    assert core_routes(hub).paths["jfk"].nodes == ("hub", "jfk") and core_routes(hub).states.known["jfk"].record.version
    heard = [found for _, found, _ in performatives(peer.received)]
    accepted = {
        number
        for item in heard
        if isinstance(item, Disposition) and isinstance(item.state, Accepted)
        for number in range(item.first, (item.first if item.last is None else item.last) + 1)
    }
    assert len(accepted) == 4
    [opened] = [item for item in heard if isinstance(item, Open)]
    assert (opened.properties or {})[PROTOCOL_KEY] == 1


def test_a_drained_node_takes_what_it_brings_and_is_avoided_by_it() -> None:
    """It knows nothing of drained nodes: it brings what it has, and the cost that it hears is one that it accepts."""
    rig, hub, peer = joined()
    assert rig.client(hub).manage("DRAIN", "node")[0] == 200
    for data in RECORDED["said"]:
        peer.end.wire.write(peer.end, bytes.fromhex(data))
        rig.run(0.05)
    assert hub.core is not None and hub.core.neighbours["jfk"].established and hub.bodies("work") == names(1, 4)
    own = core_routes(hub).states.own
    assert own is not None and own.record.drained
