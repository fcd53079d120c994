"""The store of a node that has one of everything, as an earlier commit left it: a node of today goes on with it.

A field that a record gains is read with its default from the rows that this store has. When the layout changes, `python
tests/storage/test_a_nodes_store.py` writes a new golden store for it, and the older ones stay.
"""

import json
import lzma
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.layout.schema import SCHEMA
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.check import check
from support.rig import Node, Rig

GOLDEN = Path(__file__).with_name("golden")
LARGE_BYTES = 300_000
KEPT = ("name", "uuid", "messages", "tombstones", "bytes", "bytes_max", "messages_max", "when_full", "order",
        "order_wait_s", "durable", "next_sequence", "subscriptions")  # fmt: skip
"""What `STATUS` tells of a queue that a restart does not change."""
IDENTITY = ("store", "former", "uuid", "queue_uuid", "lease_epoch")


def hub_of(rig: Rig, path: Path) -> Node:
    node = rig.node(
        "hub", start=False, neighbours=(NeighbourConfig(name="jfk"),),
        queues=(QueueConfig(name="work", order="strict", bytes_max=10_000_000),), limits=Limits(stream_bytes=65_536),
    )  # fmt: skip
    node.store = LmdbStore(path)  # type: ignore[assignment]
    node.unwatched |= {"work", "kept", "streamed"}
    node.start()
    return node


def told(node: Node) -> dict[str, Any]:
    """What the node says of itself, as JSON has it."""
    client = node.rig.client(node)
    _, status, _ = client.manage("STATUS", "node")
    _, subscriptions, _ = client.manage("QUERY", "subscription")
    found = {
        "queues": [{key: queue[key] for key in KEPT} for queue in status["queues"]],
        "subscriptions": subscriptions["subscriptions"],
        "dead_letters": {key: status["dead_letters"][key] for key in ("messages", "bytes", "dropped_total")},
        "origins": [{key: row[key] for key in ("origin", "mark", "gaps", "waiting")} for row in status["origins"]],
        "losses_total": status["losses_total"],
        "store": status["store"],
        "former": status["former_store"],
    }
    client.close_transport()
    return dict(json.loads(json.dumps(found, default=str)))


def without_identity(found: Any) -> Any:
    """Without what a copied store gets anew."""
    if isinstance(found, dict):
        return {key: without_identity(value) for key, value in found.items() if key not in IDENTITY}
    return [without_identity(value) for value in found] if isinstance(found, list) else found


def write(path: Path) -> dict[str, Any]:
    """A store with one of everything at `path`, left as by a crash; what its node said last."""
    rig = Rig()
    hub = hub_of(rig, path)
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    rig.settle()
    away, client = rig.client(jfk), rig.client(hub)
    arriving = away.sender("work@hub")
    options = {
        "bytes_max": 5_000_000,
        "messages_max": 1_000,
        "when_full": "refuse",
        "order": "none",
        "order_wait_s": 5.0,
    }
    assert client.manage("CREATE", "queue", "kept", **options)[0] == 201
    assert client.manage("CREATE", "queue", "quick", durable=False)[0] == 201
    source = {"durable": 2, "expiry_policy": Symbol("never"), "timeout": 0xFFFFFFFF}
    stays = client.receiver("work", name="stays", credit=3, source=source)
    leaving, kept, named = (
        client.sender("in@jfk"), client.sender("kept"), client.sender("work", properties={PRODUCER: "meter-7"})
    )  # fmt: skip
    rig.settle()
    for number in range(1, 6):
        away.send(arriving, f"arrived {number}", header=Header(durable=True))
        client.send(leaving, f"leaving {number}", header=Header(durable=True, ttl=10**9))
        client.send(kept, f"kept {number}", header=Header(durable=True, priority=number))
        client.send(named, f"named {number}", number=2 * number)
    client.send(kept, "large " + LARGE_BYTES * "x")
    rig.settle()
    jfk.crash()
    for number in range(6, 8):
        client.send(leaving, f"leaving {number}", header=Header(durable=True), message_annotations={Symbol("x-a"): 1})
    rig.settle()
    for name, mode, until in (("reports", "copy", 3), ("audit", "copy", 0)):
        _, lease, _ = client.manage("OPEN", "subscription", name, queue="kept", mode=mode, start="first")
        if until:
            rights = {key: lease[key] for key in ("queue_uuid", "lease_epoch")}
            assert client.manage("ADVANCE", "subscription", name, queue="kept", sequence=until, **rights)[0] == 200
    other = client.receiver("work", name="other", credit=4)
    rig.settle()
    client.accept(Accepted(), count=1, link=stays)
    client.accept(Rejected(), count=1, link=other)
    client.accept(Modified(delivery_failed=True, undeliverable_here=True), count=1, link=other)
    client.accept(Accepted(), count=1, link=other)
    rig.settle()
    found = told(hub)
    hub.crash()
    rig.settle()
    hub.store.close()
    return found


@pytest.mark.parametrize("schema", [int(path.stem.split("-")[1]) for path in GOLDEN.glob("node-*.json")])
def test_a_node_of_today_goes_on_with_it(tmp_path: Path, schema: int) -> None:
    (tmp_path / "data.mdb").write_bytes(lzma.decompress((GOLDEN / f"node-{schema}.mdb.xz").read_bytes()))
    wanted = json.loads((GOLDEN / f"node-{schema}.json").read_text())
    rig = Rig()
    hub = hub_of(rig, tmp_path)
    now = told(hub)
    assert now["former"] == wanted["store"]  # a file that was copied is a new store (docs/adr/0025-copied-stores.md)
    assert without_identity(now) == without_identity(wanted)
    client = rig.client(hub)
    links = {name: client.receiver(name) for name in ("work", "kept", "$dead-letters")}
    rig.settle()
    found = {name: [body[:20] for body in client.bodies(link)] for name, link in links.items()}
    assert sorted(found["work"]) == [f"arrived {number}" for number in range(1, 6)] + ["named 2", "named 4", "named 5"]
    assert len(found["$dead-letters"]) == wanted["dead_letters"]["messages"] == 1
    numbers = [f"kept {number}" for number in range(1, 6)]
    assert sorted(found["kept"]) == [*numbers, "large xxxxxxxxxxxxxx"]
    large = next(message for message in client.messages(links["kept"]) if len(message.body_bytes()) > 1_000)
    assert len(large.body_bytes()) == 6 + LARGE_BYTES
    client.accept(Accepted())
    named = client.sender("work", properties={PRODUCER: "meter-7"})
    rig.settle()
    assert named.remote_attach is not None and named.remote_attach.properties is not None
    assert {str(key): value for key, value in named.remote_attach.properties.items()}["holdfast:last-number"] == 10
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    rig.run(40)
    assert jfk.bodies("in") == ["leaving 6", "leaving 7"]
    hub.crash()
    hub.store.close()
    assert check(tmp_path).findings == []


def test_what_is_written_today_is_read_today(tmp_path: Path) -> None:
    """And the golden store of this layout is of this layout."""
    wanted = write(tmp_path)
    hub = hub_of(Rig(), tmp_path)
    assert told(hub) == wanted
    assert (GOLDEN / f"node-{SCHEMA}.json").exists()
    hub.store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        found = write(Path(made))
        (GOLDEN / f"node-{SCHEMA}.mdb.xz").write_bytes(lzma.compress((Path(made) / "data.mdb").read_bytes()))
        (GOLDEN / f"node-{SCHEMA}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
