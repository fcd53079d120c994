"""A broker that is no node in the simulated network (base/plain_broker.py), and what must hold of what it gets.

Rules of this file: what it has accepted was shown to it, as to a consumer: so the run's record knows whether a message
was lost, and whether a second copy was marked. A copy on the same connection is a violation, and so is a message that
comes for the first time behind one that its node has stored later.
"""

from collections import deque
from typing import Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Modified, Released
from holdfast_lab.base.client_history import History, Violation, key_in, make_key
from holdfast_lab.base.contents import body_of
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection, rejection
from holdfast_lab.plan.networks import OFFERED, BrokerShape, LinkShape
from holdfast_lab.sim.network import End, SimNetwork
from holdfast_lab.sim.world import World
from holdfast_lab.workloads.common import is_marked, key_of

TICK_S: Final = 5.0
"""How often it lets its engines look at the time."""
SILENT_S: Final = 60.0
"""It gives up a connection on which nothing came for so long, as RabbitMQ does: that of a node that has lost its power
says nothing of its end."""


class SimBroker:
    """A place of the network; one of its node's remotes."""

    def __init__(self, world: World, network: SimNetwork, shape: BrokerShape, node: str, history: History) -> None:
        self.world = world
        self.name = shape.name
        self.listening = True
        self._shape = shape
        self._node = node
        self._history = history
        self._random = world.seeds.stream(f"broker/{shape.name}")
        self.broker = PlainBroker(
            name=shape.name, decide=self._decide, credit=shape.credit, begins=shape.begins,
            links_max=shape.links_max, sessions_max=shape.sessions_max, excess=shape.excess,
        )  # fmt: skip
        self._connections: dict[End, PlainConnection] = {}
        self._current: End | None = None
        """Whose bytes it handles."""
        self._accepted_on: dict[bytes, End] = {}
        self._order: dict[str, dict[bytes, int]] = {}
        """By address: the place of each key among those that its node has stored."""
        self._last: dict[str, int] = {}
        """By address: the last place of a message that has come."""
        self._came: set[tuple[str, bytes]] = set()
        self._cuts = shape.cuts
        self._offered = 0
        network.add(self)
        network.join(node, self.name, LinkShape(delay_s=shape.delay_s))

    def stored(self, name: str, queue: str, key: bytes) -> None:
        """That node has stored a message of that key in that queue, behind all others there."""
        address, _, remote = queue.rpartition("@")
        if name == self._node and remote == self.name:
            of_address = self._order.setdefault(address, {})
            of_address.setdefault(key, len(of_address))

    def begin(self) -> None:
        """From now on there is something to fetch."""
        shape, self._offered = self._shape, self._shape.offers
        number = self._history.new_producer(shape.name) if shape.offers else 0
        keys = [make_key(number, each) for each in range(1, shape.offers + 1)]
        for key in keys:
            self._history.offer(key, f"{shape.fetched}@{self._node}")
        self.broker.offers[OFFERED] = deque(Message(data=[body_of(key, shape.size)]).encode() for key in keys)
        self._offer()

    def _offer(self) -> None:
        """What waits goes to whoever has credit for it."""
        for end, connection in self._connections.items():
            connection.offer()
            self._flush(end)

    @property
    def done(self) -> bool:
        """Whether all that it offers was fetched."""
        return len(self.broker.fetched) >= self._offered

    # ------------------------------------------------------------------------------------------------ a place

    def opened(self, end: End, *, dialled: bool) -> None:
        end.holder = self
        shape = self._shape
        self._connections[end] = PlainConnection(
            self.broker, self.world.now, idle_time_out_s=SILENT_S, max_frame_size=shape.frame_bytes,
            channel_max=0 if shape.begins else shape.sessions - 1, handle_max=shape.session_links - 1,
        )  # fmt: skip
        self.world.after(TICK_S, self._tick, end)
        if self._cuts > 0:
            self._cuts -= 1
            self.world.after(self._random.expovariate(1.0 / self._shape.lasts_s), self._cut, end)

    def received(self, end: End, data: bytes) -> None:
        connection = self._connections.get(end)
        if connection is None:
            return
        self._current = end
        fetched = len(self.broker.fetched)
        connection.receive(data, self.world.now)
        for payload in self.broker.fetched[fetched:]:
            self._history.accept(_key(payload))
        self._flush(end)

    def lost(self, end: End, reason: str) -> None:
        self._end(end)

    def writing(self, end: End, *, paused: bool) -> None:
        return

    # ------------------------------------------------------------------------------------------------ its work

    def _flush(self, end: End) -> None:
        connection = self._connections.get(end)
        data = b"" if connection is None else connection.take_output(self.world.now)
        if data:
            end.send(data)

    def _tick(self, end: End) -> None:
        connection = self._connections.get(end)
        if connection is not None:
            connection.tick(self.world.now)
            self._flush(end)
            if connection.amqp.closed:
                self._cut(end)
            else:
                self.world.after(TICK_S, self._tick, end)

    def _cut(self, end: End) -> None:
        if end in self._connections:
            self._end(end)
            end.close(abort=True)

    def _end(self, end: End) -> None:
        """What it has sent on that connection, and that has no outcome, it sends again."""
        connection = self._connections.pop(end, None)
        if connection is not None:
            self._history.may_repeat.update(_key(payload) for payload in connection.in_doubt)
            connection.lost()
            self._offer()

    def _decide(self, address: str, payload: bytes) -> object:
        message, end, place = Message.decode(payload), self._current, f"{address} at {self.name}"
        key = key_of(self._history, payload, message, place)
        assert key is not None and end is not None, "only workloads send there"
        self._in_order(address, key)
        draw = self._random.random()
        if draw < self._shape.returns:
            return self._random.choice((Released(), Modified(True, False)))
        if draw < self._shape.returns + self._shape.rejects:
            return rejection("drawn")
        if self._accepted_on.setdefault(key, end) is end and key in self._history.received:
            raise Violation(f"{key.decode()} came to {self.name} again on the connection on which it was accepted")
        self._accepted_on[key] = end
        self._history.receive(key, place, marked=is_marked(message))
        return Accepted()

    def _in_order(self, address: str, key: bytes) -> None:
        if (address, key) in self._came:
            return
        self._came.add((address, key))
        at = self._order.get(address, {}).get(key)
        if at is None:
            raise Violation(f"{key.decode()} came to {self.name}, and its node has not stored it")
        if at < self._last.get(address, 0):
            raise Violation(f"{key.decode()} came to {self.name} behind a message that its node has stored later")
        self._last[address] = at


def _key(payload: bytes) -> bytes:
    key = key_in(payload)
    assert key is not None, "it sends nothing else"
    return key
