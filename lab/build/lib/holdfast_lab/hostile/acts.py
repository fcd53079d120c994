"""What a hostile client does, one act at a time, at every layer of AMQP 1.0.

Rules of this file: an act takes the client and returns the bytes that it says. One that is `rude` breaks the protocol,
so that a node may end the link, the session or the connection; the others are legal, or harmless enough to go on.
On its session `HELD` a client settles nothing for good: what it holds there belongs to honest consumers.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import (
    Accepted,
    Error,
    Header,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from holdfast.amqp.wire.types import Described, Symbol
from holdfast_lab.hostile.client import UINT_MAX, HostileClient, Link

CREDITS: Final = (0, 1, 2, 100, 5_000, 2**31, UINT_MAX)
NUMBERS: Final = (0, 1, 7, 1_000, 2**31 - 1, 2**31, UINT_MAX - 1, UINT_MAX)
SIZES: Final = (1, 20, 1_000, 1_000, 20_000)
LARGE_BYTES: Final = (30_000, 300_000)
SEQUENCES: Final = (0, 1, 2, 50, 2**53, 2**63 - 1, 2**64 - 1)
STORM: Final = 20
REQUESTS: Final = 100
FLOOD: Final = 20

DATA: Final = b"\x00\x53\x75\xb0"


@dataclass(frozen=True, slots=True)
class Act:
    """`says(client)` gives the bytes; `rude`: it breaks the protocol."""

    name: str
    says: Callable[[HostileClient], bytes]
    rude: bool

    def __call__(self, client: HostileClient) -> bytes:
        return self.says(client)


ACTS: Final[dict[str, Act]] = {}
"""By name."""


def act(name: str, *, rude: bool = False) -> Callable[[Callable[[HostileClient], bytes]], Callable[..., bytes]]:
    """Registers an act."""

    def add(says: Callable[[HostileClient], bytes]) -> Callable[[HostileClient], bytes]:
        ACTS[name] = Act(name, says, rude)
        return says

    return add


def message(client: HostileClient, size: int | None = None, **properties: Any) -> bytes:
    """A message of one data section, now and then with a header or properties before it."""
    random = client.random
    size = random.choice(SIZES) if size is None else size
    head = b""
    if random.random() < 0.2:
        head = encode(Header(durable=True, ttl=random.choice((1, 1_000, UINT_MAX)), priority=random.choice((0, 255))))
    if properties or random.random() < 0.2:
        head += encode(Properties(**properties))
    return head + DATA + struct.pack(">I", size) + b"h" * size


def state(client: HostileClient) -> Any:
    """An outcome, or something in its place."""
    draw = client.random.choice
    return draw((
        Accepted(), Accepted(), Released(), Rejected(), Rejected(Error("amqp:internal-error", "x" * 500)),
        Modified(True, True), Modified(False, True, {Symbol("x-opt-a"): "b"}), Modified(True, False), None,
        Received(draw((0, 1, 9)), draw(NUMBERS)), TransactionalState(b"txn", Accepted()),
        Described(Symbol("example:unknown:list"), []),
    ))  # fmt: skip


def on_sender(name: str) -> Callable[[Callable[[HostileClient, Link], bytes]], Callable[..., bytes]]:
    """Registers an act on a link that sends and has credit; where there is none, a link is attached for the next."""

    def add(says: Callable[[HostileClient, Link], bytes]) -> Callable[[HostileClient, Link], bytes]:
        def with_link(client: HostileClient) -> bytes:
            link = client.pick(receives=False, credit=True)
            return client.attach(False)[1] if link is None else says(client, link)

        ACTS[name] = Act(name, with_link, rude=False)
        return says

    return add


def receiving(client: HostileClient) -> tuple[Link, bytes]:
    link = client.pick(receives=True)
    if link is not None:
        return link, b""
    link, said = client.attach(True)
    return link, said + client.flow(link, link_credit=10)


def open_address(client: HostileClient) -> str:
    """A queue of its own or of others, here or at another node."""
    places = client.places
    if client.random.random() < 0.3 and places.nodes:
        return f"{client.random.choice(places.own)}@{client.random.choice(places.nodes)}"
    return client.random.choice(places.own + places.shared if client.random.random() < 0.3 else places.own)
