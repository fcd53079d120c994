"""Nodes' federations in a line, without a network: messages between them go at once.

Rules of this file: no assertions about behaviour, but that nothing an honest node says is refused.
"""

from collections.abc import Callable
from typing import Any

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.federation.federation import Federation
from holdfast.federation.parents import Routes
from holdfast.federation.rows import Row
from holdfast.federation.sets import Key
from holdfast.federation.settings import Bounds, Entry
from holdfast.federation.validation import validate

T = "t"
Fields = dict[str, Any]


class Together:
    """Nodes in a line, whose messages go at once. `seen`: what went, newest last."""

    def __init__(self, names: str, bounds: Bounds = Bounds()) -> None:
        self.now = 0.0
        self.names = names
        self.up = {
            name: {names[other]: 1_000 for other in (at - 1, at + 1) if 0 <= other < len(names)}
            for at, name in enumerate(names)
        }
        self.nodes = {name: Federation(name, 1_000, 0.0, bounds=bounds) for name in names}
        self.seen: list[tuple[str, str, Fields]] = []
        self.refusing: set[str] = set()
        self.slow: set[str] = set()
        """Nodes whose commits do not begin."""
        self.change: Callable[[str, str, Fields], Fields] = lambda start, end, fields: fields
        routes = Routes(self.up)
        for name, node in self.nodes.items():
            node.configure([Entry(T, other) for other in self.up[name]], 0.0)
            node.route(routes, 0.0)
        for name, node in self.nodes.items():
            for other in self.up[name]:
                node.up(other, 0.0)
        self.settle()

    def settle(self) -> None:
        busy = True
        while busy:
            busy = False
            for name, node in self.nodes.items():
                if name not in self.slow and node.records(self.now):
                    busy = True
                    (node.refused if name in self.refusing else node.committed)(self.now)
                for other in list(node.neighbours):
                    for message in node.take(other, 200, self.now):
                        busy = True
                        fields, _ = decode(encode(message))
                        assert isinstance(fields, dict)
                        fields = self.change(name, other, fields)
                        self.seen.append((name, other, fields))
                        assert self.nodes[other].receive(name, fields, self.now) is None
                validate(node)

    def part(self, one: str, other: str) -> None:
        """The session between two neighbours ends."""
        self.nodes[one].down(other, self.now)
        self.nodes[other].down(one, self.now)

    def join(self, one: str, other: str) -> None:
        """A session between them comes up."""
        self.nodes[one].up(other, self.now)
        self.nodes[other].up(one, self.now)

    def step(self) -> None:
        """Each node commits once and says all that it has to say, before it hears what others say in this step."""
        said: list[tuple[str, str, Fields]] = []
        for name, node in self.nodes.items():
            if node.records(self.now):
                node.committed(self.now)
            said += [(name, other, fields) for other in node.neighbours for fields in node.take(other, 200, self.now)]
        for name, other, fields in said:
            self.seen.append((name, other, fields))
            assert self.nodes[other].receive(name, fields, self.now) is None

    def wait(self, for_s: float, step_s: float = 0.5) -> None:
        end = self.now + for_s
        while self.now < end:
            self.now += step_s
            for node in self.nodes.values():
                while node.next_deadline(self.now) <= self.now:
                    before = node.next_deadline(self.now)
                    node.tick(self.now)
                    if node.next_deadline(self.now) == before:
                        break
            self.settle()

    def rows(self, name: str, origin: str) -> frozenset[Row]:
        held = self.nodes[name].sets.committed(Key(origin, T))
        assert held is not None
        return held.rows

    def kinds(self) -> list[str]:
        return [fields["kind"] for _, _, fields in self.seen]


def rows(count: int, first: int = 0) -> list[Row]:
    return [Row(f"k.{number}") for number in range(first, first + count)]


def compare_parts(node: Federation, name: str, now: float, topic: str = T) -> None:
    """The neighbour says that it has another form of the node's own set, and is sent sums of parts."""
    rows = [[node.name, topic, Ulong(1), Ulong(1), Ulong(1)]]
    assert node.receive(name, {"kind": "follow", "rows": rows, "stop": [], "whole": False}, now) is None
    node.take(name, 200, now)
    assert node.neighbours[name].serving.followers[Key(node.name, topic)].compared is not None
