"""Numbered, time-stamped messages from nodes of a fleet to queues of others, all from this one process: one clock.

Rules of this file: a producer's name goes with every sender, so that a message handed over counts once, whatever
breaks; its time stamp is taken as it is handed over, the other one as it comes.
"""

import asyncio
import contextlib
import itertools
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from _bus_figures import Message

from holdfast.client import Connection, Receiver, Sender, Url, connect

QUEUE = "bus-routing"
BODY = struct.Struct("!IQ")
BODY_BYTES = 200
RETRY_S = 120.0
IN_DOUBT_MAX = 100_000
"""So high that handing over never waits for a node: what a node does not take is late, not unsent."""
CREDIT = 1_000
Pair = tuple[str, str]
"""Source and target."""
Classes = Mapping[str, Sequence[Sequence[Pair]]]
"""By class the rounds that are sent in turn; each is one message, or the copies of a broadcast."""


@dataclass(slots=True)
class Stream:
    """One class's messages from one node to another, numbered from 0."""

    kind: str
    source: str
    target: str
    sent_at: list[float] = field(default_factory=list)
    came_at: dict[int, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return len(self.came_at) == len(self.sent_at)


def classes_of(names: Sequence[str], unicasts: Mapping[str, Pair], broadcaster: str) -> dict[str, list[list[Pair]]]:
    """Each to all others; some unicasts, by name; one broadcast. Five classes with three unicasts."""
    steps = range(1, len(names))
    each = [[(name, names[(place + step) % len(names)])] for step in steps for place, name in enumerate(names)]
    return {
        "each to all": each,
        **{kind: [[pair]] for kind, pair in unicasts.items()},
        "broadcast": [[(broadcaster, name) for name in names if name != broadcaster]],
    }


class Traffic:
    """`async with Traffic(addresses, targets)`: receivers of the targets' queues; `start` begins to send."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]], targets: Sequence[str]) -> None:
        self.addresses = addresses
        self.targets = targets
        self.doubles = 0
        self._streams: dict[tuple[str, str, str], Stream] = {}
        self._numbered: list[Stream] = []
        self._connections: dict[str, Connection] = {}
        self._senders: dict[Pair, Sender] = {}
        self._receiving: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    async def __aenter__(self) -> "Traffic":
        for target in self.targets:
            receiver = await (await self._connection(target)).receiver(QUEUE, credit=CREDIT)
            self._receiving.append(asyncio.create_task(self._receive(receiver), name=f"receive at {target}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._sending, *self._receiving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            with contextlib.suppress(Exception):
                await connection.abort()

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            host, port = self.addresses[name]
            self._connections[name] = await connect(Url(host=host, port=port), retry_s=RETRY_S)
        return self._connections[name]

    async def _sender(self, pair: Pair) -> Sender:
        if pair not in self._senders:
            source, target = pair
            self._senders[pair] = await (await self._connection(source)).sender(
                f"{QUEUE}@{target}", producer=f"{QUEUE}-{source}-{target}", in_doubt_max=IN_DOUBT_MAX
            )
        return self._senders[pair]

    async def _receive(self, receiver: Receiver) -> None:
        async for delivery in receiver:
            at = time.monotonic()
            place, number = BODY.unpack_from(b"".join(delivery.message.data or ()))
            came = self._numbered[place].came_at
            if number in came:
                self.doubles += 1
            came.setdefault(number, at)
            delivery.accept()
            self._news.set()

    # ------------------------------------------------------------------------------------------------ sending

    async def attach(self, classes: Classes) -> None:
        """All links that `classes` need, and their streams."""
        for kind, rounds in classes.items():
            for pair in itertools.chain.from_iterable(rounds):
                await self._sender(pair)
                key = kind, *pair
                if key not in self._streams:
                    self._streams[key] = Stream(*key)
                    self._numbered.append(self._streams[key])

    async def start(self, classes: Classes, rate: float) -> None:
        """From now on `rate` messages a second, the same of each class, each round due at its own moment."""
        await self.attach(classes)
        self._over.clear()
        for kind, rounds in classes.items():
            every_s = len(rounds[0]) * len(classes) / rate
            self._sending.append(asyncio.create_task(self._send(kind, rounds, every_s), name=f"send {kind}"))

    async def _send(self, kind: str, rounds: Sequence[Sequence[Pair]], every_s: float) -> None:
        due = time.monotonic()
        places = {(one.source, one.target): place for place, one in enumerate(self._numbered) if one.kind == kind}
        for pairs in itertools.cycle(rounds):
            if self._over.is_set():
                return
            for pair in pairs:
                stream = self._numbered[places[pair]]
                body = BODY.pack(places[pair], len(stream.sent_at)).ljust(BODY_BYTES, b".")
                stream.sent_at.append(time.monotonic())
                await self._senders[pair].post(body)
            due += every_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), max(0.0, due - time.monotonic()))

    async def pause(self) -> None:
        """No more is sent; what is under way goes on. Whoever is just handing over ends with that: all counts."""
        self._over.set()
        sending, self._sending = self._sending, []
        await asyncio.gather(*sending)

    # ------------------------------------------------------------------------------------------------ what came

    def messages(self, first: float = 0.0, last: float = float("inf")) -> list[Message]:
        """Those with a time stamp from `first` to before `last`, each stream's in the order of their numbers."""
        return [
            Message(one.kind, one.source, one.target, number, at, one.came_at.get(number))
            for one in self._numbered
            for number, at in enumerate(one.sent_at)
            if first <= at < last
        ]

    async def until(self, holds: Callable[[], bool], limit_s: float) -> bool:
        """Whether `holds` came true in time; it is asked whenever a message has come."""
        until = time.monotonic() + limit_s
        while not holds():
            for task in self._receiving:
                if task.done():
                    task.result()
                    raise ConnectionError(f"{task.get_name()} has ended")
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), until - time.monotonic())
            except TimeoutError:
                return holds()
        return True

    async def all_came(self, limit_s: float) -> bool:
        """Whether all that was sent came in time."""
        return await self.until(lambda: all(one.whole for one in self._numbered), limit_s)

    async def first_after(self, kind: str, pair: Pair, moment: float, limit_s: float) -> float | None:
        """When the first message of that stream came that was handed over from `moment` on; None: none did in time.

        It cannot have come by a link that was cut at `moment`, and it comes after all that was held up there, as order
        is kept: what is measured is never too short.
        """
        stream = self._streams[kind, *pair]
        before = next((number for number, at in enumerate(stream.sent_at) if at >= moment), len(stream.sent_at))

        def came() -> list[float]:
            return [at for number, at in stream.came_at.items() if number >= before]

        return min(came()) if await self.until(lambda: bool(came()), limit_s) else None
