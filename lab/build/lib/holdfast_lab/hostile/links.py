"""Acts on sessions and links: windows, credit, handles, storms, half-open links. AMQP 1.0 §2.5, §2.6.

Rules of this file: those of `acts.py`.
"""

from holdfast.amqp.wire.performatives import Begin, Detach, Disposition, End, Flow, Source, Target, Transfer
from holdfast.amqp.wire.types import Symbol
from holdfast_lab.hostile.acts import (
    CREDITS,
    NUMBERS,
    STORM,
    act,
    message,
    open_address,
    receiving,
)
from holdfast_lab.hostile.client import CHAOS, FIRST_IDS, UINT_MAX, WINDOWS, HostileClient


@act("windows")
def windows(client: HostileClient) -> bytes:
    draw = client.random.choice
    session = client.session()
    session.window = draw(WINDOWS)
    return client.flow(outgoing_window=draw(WINDOWS), next_incoming_id=draw((session.expected, None, *FIRST_IDS)))


@act("credit")
def credit(client: HostileClient) -> bytes:
    link, said = receiving(client)
    draw = client.random.choice
    terms = {"link_credit": draw(CREDITS), "drain": draw((False, False, True)), "echo": draw((False, True))}
    return said + client.flow(link, delivery_count=draw((link.seen, link.seen, *NUMBERS)), **terms)


@act("credit by turns")
def credit_by_turns(client: HostileClient) -> bytes:
    link, said = receiving(client)
    return said + (client.flow(link, link_credit=1) + client.flow(link, link_credit=0)) * STORM


@act("echoes")
def echoes(client: HostileClient) -> bytes:
    return client.flow(echo=True) * STORM


@act("receiver")
def receiver(client: HostileClient) -> bytes:
    draw = client.random.choice
    source = Source(draw(client.places.own), distribution_mode=draw((None, None, Symbol("copy"))))
    if client.places.shared and client.random.random() < 0.3:  # honest queues: it only looks
        source = Source(draw(client.places.shared), distribution_mode=Symbol("copy"))
    link, said = client.attach(
        True, source=source, snd_settle_mode=draw((0, 1, 2)), rcv_settle_mode=draw((0, 1)),
        max_message_size=draw((None, None, 0, 1, 100, 2**64 - 1)),
    )  # fmt: skip
    return said + client.flow(link, link_credit=draw(CREDITS))


@act("sender")
def sender(client: HostileClient) -> bytes:
    draw = client.random.choice
    return client.attach(False, target=Target(open_address(client)), snd_settle_mode=draw((0, 1, 2)))[1]


@act("attach storm")
def attach_storm(client: HostileClient) -> bytes:
    found = []
    for _ in range(STORM):
        link, said = client.attach(client.random.random() < 0.5)
        found += [said, client.detach(link, closed=client.random.random() < 0.7)]
    return b"".join(found)


@act("links that stay")
def links_that_stay(client: HostileClient) -> bytes:
    return b"".join(client.attach(client.random.random() < 0.5)[1] for _ in range(STORM))


@act("detach")
def detach(client: HostileClient) -> bytes:
    links = list(client.session().links.values())
    return client.detach(client.random.choice(links), closed=client.random.random() < 0.5) if links else b""


@act("half-open links")
def half_open_links(client: HostileClient) -> bytes:
    """Attached, and never anything more: without a terminus, without credit, without an answer to a detach."""
    draw = client.random.choice
    said = client.attach(True, target=draw((None, Target())))[1] + client.attach(False, target=None)[1]
    return said + client.attach(True, source=draw((None, Source())))[1]


@act("sessions")
def sessions(client: HostileClient) -> bytes:
    draw = client.random.choice
    found = []
    for channel in range(2, 2 + STORM):
        found.append(client.end(channel))
        found.append(client.begin(channel, handle_max=draw((0, 1, UINT_MAX)), incoming_window=draw((0, 1, UINT_MAX))))
        if draw((True, False)):
            found.append(client.end(channel))
    return b"".join(found)


@act("a session of one window and two readers")
def narrow_session(client: HostileClient) -> bytes:
    channel = 2 + STORM + client.random.randrange(5)
    ended = client.end(channel)
    said = client.begin(channel, incoming_window=1, handle_max=UINT_MAX)
    client.session(channel).window = 1
    address = client.random.choice(client.places.own)
    for _ in range(2):
        link, attached = client.attach(True, channel=channel, source=Source(address))
        said += attached + client.flow(link, channel=channel, link_credit=10)
    return ended + said


@act("sessions anew at the wrap")
def wrap(client: HostileClient) -> bytes:
    """Delivery-ids and transfer-ids that pass 2^32."""
    said = client.end(CHAOS) + client.begin(
        CHAOS, next_outgoing_id=client.random.choice((UINT_MAX, UINT_MAX - 1, UINT_MAX - 5)), incoming_window=5_000
    )
    client.session().window = 5_000
    link, attached = client.attach(False, initial_delivery_count=UINT_MAX - 1)
    return said + attached + b"".join(client.transfer(link, message(client, 10)) for _ in range(4))


@act("handles and names again", rude=True)
def handles_again(client: HostileClient) -> bytes:
    links = list(client.session().links.values())
    if not links:
        return client.attach(True)[1]
    old = client.random.choice(links)
    if client.random.random() < 0.5:
        return client.attach(old.receives, name=old.name)[1]
    return client.attach(True, handle=client.random.choice((old.handle, UINT_MAX, 4_096)))[1]


@act("settle modes out of range", rude=True)
def settle_modes(client: HostileClient) -> bytes:
    draw = client.random.choice
    return client.attach(draw((True, False)), snd_settle_mode=draw((0, 3, 255)), rcv_settle_mode=draw((2, 3, 255)))[1]


@act("unknown handles and channels", rude=True)
def unknown_handles(client: HostileClient) -> bytes:
    draw = client.random.choice
    said = draw((
        Detach(draw(NUMBERS)), Transfer(draw(NUMBERS), 0, b"t"), Flow(0, 1, 0, 1, draw(NUMBERS), 0, 1),
        Begin(9, 0, 1, 1), End(), Disposition(True, 0),
    ))  # fmt: skip
    return client.frames(said, channel=draw((0, 1, 99, 65_535)))
