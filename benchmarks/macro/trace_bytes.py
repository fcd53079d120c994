"""The cost of a message's trace on the wire: bytes between two nodes for each message, by the number of nodes it has
passed.

Two NodeCores, joined in memory; one sends on what it has in transmission, once to a neighbour that takes aliases and
once to one that does not. All bytes that it writes count, and the messages alone. Nothing is timed: any machine gives
the same figures. Prints one JSON object. `python benchmarks/macro/trace_bytes.py --help`; how to read it:
benchmarks/README.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from _report import emit, frame

from holdfast.amqp.connection import Settings
from holdfast.amqp.message.message import Message
from holdfast.broker.entries import entry, packed
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.peering import doors
from holdfast.peers.neighbours import features
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore

WALL_MS = 1_700_000_000_000
NOW = 1.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 4, 16, 64], help="nodes passed (default 1 4 16 64)")
    parser.add_argument("--messages", type=int, default=1_000, help="of each run (default %(default)s)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body (default %(default)s)")
    parser.add_argument("--json-out", type=Path, help="also write the report there")
    return parser.parse_args(arguments)


class Node:
    """A NodeCore whose commits are done at once; `written` counts what it sends."""

    def __init__(self, config: NodeConfig, seed: int) -> None:
        self.store = MemoryStore()
        self.core = NodeCore(config, self.store, rng=Random(seed), wall_ms=WALL_MS, now=NOW)
        self.out = bytearray()
        self.written = 0
        self.dials = False

    def handle(self, *told: events.Event) -> None:
        for event in (*told, events.TurnEnded(wall_ms=WALL_MS)):
            waiting = self.core.handle(event, NOW)
            while waiting:
                command = waiting.pop(0)
                if isinstance(command, events.SendBytes):
                    data = b"".join(command.chunks)
                    self.out += data
                    self.written += len(data)
                elif isinstance(command, events.Commit):
                    self.store.commit(command.batch)
                    done = events.Committed(number=command.number, room_bytes=self.store.room_bytes())
                    waiting += self.core.handle(done, NOW)
                    waiting += self.core.handle(events.TurnEnded(wall_ms=WALL_MS), NOW)
                elif isinstance(command, events.Connect):
                    self.dials = True


def exchange(one: Node, other: Node) -> None:
    """Until both are silent."""
    while one.out or other.out:
        for sender, receiver in ((one, other), (other, one)):
            data, sender.out = bytes(sender.out), bytearray()
            if data:
                receiver.handle(events.BytesReceived(connection=1, data=data))


def without_aliases(**fields: Any) -> Settings:
    """What a node that knows no aliases offers."""
    offered = tuple(item for item in fields["offered_capabilities"] if item != features.ALIASES)
    return Settings(**fields | {"offered_capabilities": offered})


def run(passed: int, messages: int, size: int) -> int:
    """Bytes that a node writes to hand on `messages`, of which each has passed `passed` nodes with it."""
    here = Node(NodeConfig(name="here", neighbours=(NeighbourConfig(name="there", remote="127.0.0.1:1"),)), 1)
    there = Node(
        NodeConfig(name="there", neighbours=(NeighbourConfig(name="here"),), queues=(QueueConfig(name="work"),)), 2
    )
    stores = [UUID(int=number << 64 | number).bytes for number in range(1, passed)]
    origin = UUID(bytes=stores[0]) if stores else here.core.identities.store_uuid
    bare = Message(data=[bytes(size)]).encode()
    here.handle(events.TimerFired())
    assert here.dials
    here.handle(events.ConnectionOpened(connection=1, peer="there", loopback=True, neighbour="there"))
    there.handle(events.ConnectionOpened(connection=1, peer="here", loopback=True))
    exchange(here, there)
    here.core.handle(events.TimerFired(), NOW)
    queue = here.core.catalog.transmission("there")
    before = here.written
    for number in range(1, messages + 1):
        value = entry.pack(
            flags=entry.DURABLE, enqueued_ms=WALL_MS, bare=bare, identity=entry.Identity(origin, number),
            trace=b"".join(stores), to="work",
        )  # fmt: skip
        queue.append(value, packed.size_of(value))
    here.core.forwarding.steer("there")
    here.handle()
    exchange(here, there)
    arrived = there.core.catalog.queues["work"].messages
    if arrived != messages:
        raise SystemExit(f"trace_bytes: {arrived} of {messages} messages arrived")
    return here.written - before


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    settings = {key: value for key, value in vars(options).items() if key != "json_out"}
    report = frame("trace_bytes", Path(tempfile.gettempdir()), settings)
    body = len(Message(data=[bytes(options.size)]).encode())
    rows = []
    for passed in options.nodes:
        short = run(passed, options.messages, options.size)
        doors.amqp.Settings = without_aliases  # type: ignore[misc,assignment]  # an older neighbour
        full = run(passed, options.messages, options.size)
        doors.amqp.Settings = Settings  # type: ignore[misc]  # as it was
        rows.append(
            {
                "passed": passed,
                "full_bytes": round(full / options.messages, 1),
                "aliased_bytes": round(short / options.messages, 1),
                "beside_the_message_full": round(full / options.messages - body, 1),
                "beside_the_message_aliased": round(short / options.messages - body, 1),
                "saved_percent": round(100 * (1 - short / full), 1),
            }
        )
    report["results"] = rows
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
