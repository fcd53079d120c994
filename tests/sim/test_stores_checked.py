"""`holdfast store check` finds nothing in what nodes leave on their disks, whatever they were through (docs/store.md).

Rules of this file: a store is looked at when the first row of a kind is written to it, as a kill then would leave it,
and in the end. All kinds that the check knows are written here; one that it does not know is a finding.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.amqp.wire.performatives import Properties, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.stored.records import BINDING, FEDERATION, QUEUE_LINK, SERVICE
from holdfast.custody.names import identity
from holdfast.endpoints.resumption.resume import UNSETTLED_STATE
from holdfast.engine import events
from holdfast.engine.port import TABLES, Batch
from holdfast.federation.stored import KINDS as KINDS_OF_BINDINGS
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.check_rows import CUSTODY_ROWS, NODE_ROWS, NODE_WORDS
from holdfast.units import MIB
from holdfast_lab.histories import HISTORIES
from support import today
from support.federated import DURABLE, publish, publisher, relay, subscribe
from support.hops import names, send, snapshot
from support.rig import Rig

pytestmark = pytest.mark.sim

Kind = tuple[str, bytes]

KINDS: frozenset[Kind] = frozenset(
    {(table, b"") for table in TABLES if table not in ("custody", "node", "bindings")}
    | {("custody", kind) for kind in CUSTODY_ROWS}
    | {("bindings", kind) for kind in KINDS_OF_BINDINGS}
    | {("node", kind) for kind in (*NODE_ROWS, *NODE_WORDS, BINDING, QUEUE_LINK, FEDERATION, SERVICE)}
)
LARGE = 3 * MIB


def kind_of(table: str, key: bytes) -> Kind:
    if table == "node":
        if key[:1] in (BINDING, QUEUE_LINK, FEDERATION, SERVICE):
            return table, key[:1]
        return table, key if key in NODE_WORDS else key[:-4]  # all others end with a queue's id
    return table, key[:1] if table in ("custody", "bindings") else b""


ALWAYS = ("copied-there-and-back", "sender-restart")
"""Histories that write what the scripts below do not."""
SOME = today.some([name for name in HISTORIES if name not in ALWAYS], len(HISTORIES) // 3)
EACH = 6
"""How often a kind of row that is new in a store is looked at."""


class Watch:
    """Looks at stores in memory while they are there: each at its end, and when a kind of row is new in it that was
    not looked at EACH times.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
        self.scratch = scratch
        self.seen: set[Kind] = set()
        self.times: Counter[Kind] = Counter()
        self.looks = 0
        self.stores: dict[MemoryStore, set[Kind]] = {}
        apply = MemoryStore._apply

        def watched(store: MemoryStore, batch: Batch) -> None:
            apply(store, batch)
            kinds = {kind_of(*place) for place in batch.puts}
            known = self.stores.setdefault(store, set())
            new = [kind for kind in kinds - known if self.times[kind] < EACH or today.long]
            known |= kinds
            if new:
                self.times.update(new)
                self.look(store)

        monkeypatch.setattr(MemoryStore, "_apply", watched)

    def look(self, store: MemoryStore) -> None:
        """The same rows, entries and pieces, on disk."""
        whole = Batch()
        whole.puts.update(store._tables)
        for queue_id, queue in store._queues.items():
            whole.appends += [(queue_id, sequence, queue.values[sequence]) for sequence in sorted(queue.values)]
        for blob, pieces in store._blobs.items():
            whole.pieces += [(blob, index, pieces[index]) for index in sorted(pieces)]
        disk = LmdbStore(self.scratch, ahead_bytes=1 << 16)
        disk.commit(whole)
        disk.close()
        assert check(self.scratch).findings == []
        shutil.rmtree(self.scratch)
        self.looks += 1

    def end(self) -> None:
        for store, known in self.stores.items():
            if not store._closed:
                self.look(store)
            self.seen |= known
        self.stores.clear()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Watch]:
    yield Watch(monkeypatch, tmp_path / "scratch")


def large_and_resumable(rig: Rig) -> None:
    """Blobs in queues, on the way, for a dynamic node and one in memory; links that may be resumed; a subscription; a
    queue that is deleted with what it holds; a proper stop with what was shown how often."""
    queues = (QueueConfig(name="work"), QueueConfig(name="memory", durable=False), QueueConfig(name="gone"))
    limits = {"limits": Limits(stream_bytes=MIB)}
    jfk, hub = rig.pair(queues=queues, jfk=limits, **limits)
    rig.run(2)
    receiver = rig.client(hub)
    dynamic = receiver.session.attach_receiver("dynamic", Source(dynamic=True), Target())
    rig.settle()
    hub.unwatched |= {dynamic.source.address, "memory"}
    client = rig.client(hub)
    assert client.manage("OPEN", "subscription", "audit", queue="work", mode="copy")[0] in (200, 201)
    for name in ("work", "memory", "gone", dynamic.source.address):
        resumable = {"timeout": 30, "durable": UNSETTLED_STATE}
        link = client.sender(name, name=f"to {name}", target=resumable, properties={"holdfast:tag-offset": 0})
        link.use_tags(0)
        rig.settle()
        for body in ("small", "x" * LARGE):
            client.send(link, body)
            rig.run(1)
        if name == "gone":
            link.detach()
            rig.settle()
    send(rig, jfk, "1", "y" * LARGE, to="hub")
    rig.run(5)
    consumer = rig.client(hub)
    consumer.receiver("work", credit=2)
    rig.settle()
    assert hub.core is not None
    assert client.manage("DELETE", "queue", "gone")[0] in (200, 204)
    rig.run(1)
    hub.handle(events.Stopping())
    rig.run(10)
    hub.crash()
    hub.start()
    rig.run(5)


def numbered_anew(rig: Rig) -> None:
    """An older store put back, which its neighbour finds out."""
    jfk, _ = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 3), to="hub")
    rig.run(2)
    kept = snapshot(jfk)
    send(rig, jfk, *names(4, 9), to="hub")
    rig.run(2)
    jfk.crash()
    jfk.store = kept
    rig.refuse_dials = True
    jfk.start()
    send(rig, jfk, *names(10, 20), to="hub")
    rig.refuse_dials = False
    rig.run(40)
    assert jfk.core is not None and jfk.core.identities.renewed


def subscribed(rig: Rig) -> None:
    """A topic with a durable subscription, which another takes the place of."""
    node = rig.node("hub")
    client = rig.client(node)
    for pattern in ("a", "b"):
        source = {"durable": 2, "expiry_policy": Symbol("never")}
        link = client.receiver(f"topic/news/{pattern}", name="s", source=source)
        rig.run(1)
        link.detach(closed=False)
        rig.settle()


def stepped(rig: Rig) -> None:
    """A link whose step has a window that is not over; the name of a service."""
    node = rig.node("hub")
    client = rig.client(node)
    steps = [{"drop_repeats": {"key": "amqp.subject", "within_s": 600}}]
    assert client.manage("CREATE", "link", "l", **{"from": "raw", "to": "clean", "steps": steps})[0] == 201
    assert client.manage("CREATE", "service", "billing", address="raw")[0] == 201
    link = client.sender("raw")
    rig.settle()
    client.send(link, "x", properties=Properties(subject="a"))
    rig.run(1)


def federated(rig: Rig) -> None:
    """A topic that one node forwards to another by request, and the other's bindings, of which one goes."""
    jfk, hub = rig.pair()
    rig.run(2)
    assert rig.client(jfk).manage("CREATE", "federation", "news@hub")[0] == 201
    client = rig.client(hub)
    for pattern in ("a", "b.#"):
        link = client.receiver(f"topic/news/{pattern}")
        rig.run(2)
        if pattern == "a":
            link.detach()
            rig.run(2)


def relayed(rig: Rig) -> None:
    """A topic that one node forwards to another by a static entry, and messages that went that way."""
    jfk, hub = rig.pair()
    rig.run(2)
    relay(rig, f"{jfk.name}>{hub.name}")
    subscribe(rig, hub, name="d", source=DURABLE)
    publish(rig, publisher(rig, jfk), "1")
    publish(rig, publisher(rig, jfk), "2")


def drained(rig: Rig) -> None:
    """A node that takes no new messages."""
    node = rig.node("hub")
    assert rig.client(node).manage("DRAIN", "node")[0] in (200, 201)


def test_of_every_kind_of_row_none_is_a_finding(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "RENEW_COUNT", 1)  # else all is numbered anew at once
    for name in (*ALWAYS, *SOME):
        assert HISTORIES[name].run(1).ok, name
        watch.end()
    for script in (large_and_resumable, numbered_anew, subscribed, stepped, federated, relayed, drained):
        script(Rig())
        watch.end()
    assert watch.seen == KINDS
    assert watch.looks > 30
