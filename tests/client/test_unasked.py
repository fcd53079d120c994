"""Links and sessions that the node begins and nobody asked for: a client takes none, and nothing else of the connection
is affected.
"""

import asyncio
from collections.abc import Callable

import pytest

from client.fake_broker import FakeBroker, Peer
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import Attach, Flow, Source, Target
from holdfast.client import Accepted, Connection, LinkStolen, Sender

LIMIT_S = 30.0


def own_session(peer: Peer) -> Session:
    session: Session = peer.links[0].session
    return session


def receives(peer: Peer, session: Session, *, drain: bool = False) -> None:
    session.attach_receiver("unasked", Source(address="a"), Target(address="b")).grant(10, drain=drain)
    peer.flush()


def sends(peer: Peer, session: Session) -> None:
    session.attach_sender("unasked", Source(address="a"), Target(address="b"))
    peer.flush()


def comes_and_goes(peer: Peer, session: Session) -> None:
    session.attach_sender("unasked", Source(address="a"), Target(address="b")).detach()
    session.attach_receiver("unasked", Source(address="a"), Target(address="b")).detach()
    peer.flush()


def begins(peer: Peer) -> None:
    session = peer.engine.begin()
    receives(peer, session)


def begins_and_ends(peer: Peer) -> None:
    session = peer.engine.begin()
    session.attach_receiver("unasked", Source(address="a"), Target(address="b")).grant(10)
    session.end()
    peer.flush()


@pytest.mark.parametrize(
    "unasked",
    [
        lambda peer: receives(peer, own_session(peer)),
        lambda peer: receives(peer, own_session(peer), drain=True),
        lambda peer: sends(peer, own_session(peer)),
        lambda peer: comes_and_goes(peer, own_session(peer)),
        begins,
        begins_and_ends,
    ],
    ids=["receiver", "drain", "sender", "gone at once", "session", "session gone at once"],
)
async def test_nothing_else_is_affected(
    unasked: Callable[[Peer], None], broker: FakeBroker, connection: Connection
) -> None:
    sender, receiver = await connection.sender("q"), await connection.receiver("other")
    peer = broker.connections[0]
    unasked(peer)
    for body in (b"1", b"2"):
        assert await asyncio.wait_for(sender.send(body), LIMIT_S) == Accepted()
    broker.put("other", b"3")
    assert (await asyncio.wait_for(anext(receiver), LIMIT_S)).message.body_bytes() == b"3"
    assert connection.reconnects == 0 and broker.connections == [peer]


async def test_one_under_the_name_of_ours_costs_ours_alone(broker: FakeBroker, connection: Connection) -> None:
    """§2.6.1: the older of two links of one name has ended."""
    stolen: Sender = await connection.sender("q", name="ours")
    other = await connection.sender("other")
    peer = broker.connections[0]
    attach = Attach("ours", 9, True, source=Source(address="a"), target=Target(address="b"))
    flow = Flow(0, 5000, 0, 5000, 9, 0, 10)
    peer.transport.write(frame(0, encoding.encode(attach)) + frame(0, encoding.encode(flow)))
    with pytest.raises(LinkStolen):
        await asyncio.wait_for(stolen.send(b"1"), LIMIT_S)
    assert await asyncio.wait_for(other.send(b"2"), LIMIT_S) == Accepted()
    assert connection.reconnects == 0
