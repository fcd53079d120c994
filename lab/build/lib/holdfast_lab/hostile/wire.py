"""Acts on frames and connections: bytes that are no frame, performatives where none is due. AMQP 1.0 §2.2 to §2.4.

Rules of this file: those of `acts.py`.
"""

from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import Attach, Close, Disposition, Error, Open, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast_lab.hostile.acts import (
    act,
)
from holdfast_lab.hostile.client import CHAOS, HostileClient


@act("frames that are none", rude=True)
def garbage(client: HostileClient) -> bytes:
    random = client.random
    data = bytearray(client.flow(echo=True) + client.attach(True)[1] + client.frames(Disposition(True, 0, 5)))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data))
        data[at] = random.randrange(256)
    return bytes(data)


@act("a body that is none", rude=True)
def bodies(client: HostileClient) -> bytes:
    random = client.random
    return frame(random.choice((0, 1, 300)), b"\x00\x53" + random.randbytes(random.randint(1, 40)))


@act("open again", rude=True)
def open_again(client: HostileClient) -> bytes:
    return client.frames(Open(client.name, max_frame_size=client.random.choice((0, 511, 512))))


@act("begin again", rude=True)
def begin_again(client: HostileClient) -> bytes:
    return client.begin(CHAOS)


@act("close", rude=True)
def close(client: HostileClient) -> bytes:
    client.over = True
    return client.frames(Close(client.random.choice((None, Error("amqp:internal-error", "x" * 300)))))


@act("attach without terms", rude=True)
def bare_attach(client: HostileClient) -> bytes:
    """No initial-delivery-count where one is due, an empty name, a source of an unknown kind."""
    draw = client.random.choice
    session = client.session()
    handle = client.free_handle(session)
    unknown = Described(Symbol("example:terminus:list"), [])
    return client.frames(draw((
        Attach(client.new_name(), handle, False, target=Target(draw(client.places.own))),
        Attach("", handle, True, source=Source(draw(client.places.own))),
        Attach(client.new_name(), handle, True, source=unknown, target=unknown),
        Attach(client.new_name(), handle, True, source=Source(Ulong(7))),
    )))  # fmt: skip
