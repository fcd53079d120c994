"""Acts on deliveries: how they come in parts, are aborted, abandoned, settled, never settled. AMQP 1.0 §2.6.

Rules of this file: those of `acts.py`.
"""

from collections import deque

from holdfast.amqp.wire.performatives import (
    Disposition,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol
from holdfast_lab.hostile.acts import (
    DATA,
    LARGE_BYTES,
    NUMBERS,
    STORM,
    act,
    message,
    on_sender,
    receiving,
    state,
)
from holdfast_lab.hostile.client import HELD, HostileClient, Link


@on_sender("messages")
def messages(client: HostileClient, link: Link) -> bytes:
    count = min(link.credit, client.random.randint(1, 10))
    settled = client.random.choice((None, True, False))
    return b"".join(client.transfer(link, message(client), settled=settled) for _ in range(count))


@on_sender("zero bytes")
def zero_bytes(client: HostileClient, link: Link) -> bytes:
    return client.transfer(link, b"", settled=client.random.choice((None, True)))


def _no_message(client: HostileClient) -> bytes:
    """A payload whose sections are cut short, out of order or of the wrong kind."""
    whole = message(client, client.random.choice((1, 20, *LARGE_BYTES)))
    return client.random.choice((
        DATA + b"\x7f\xff\xff\xff", DATA, whole[:-1], whole + b"h", whole + DATA + b"\x00\x00\x01\x00h",
        whole + b"\x00\x53\x70\x45", b"\x00\x53\x73\xa1\x01h" + whole, whole + b"\x00\x53\x77\x40", b"\x00\x53\x77\x3f",
    ))  # fmt: skip


@on_sender("no message")
def no_message(client: HostileClient, link: Link) -> bytes:
    count = min(link.credit, client.random.randint(1, 10))
    return b"".join(client.transfer(link, _no_message(client)) for _ in range(count))


@act("no message, for honest consumers")
def no_message_for_others(client: HostileClient) -> bytes:
    """Into their queue: had one of them been stored, they could not read what they are given."""
    if not client.places.held:
        return b""
    link = client.pick(receives=False, channel=HELD, credit=True)
    if link is None:
        return client.attach(False, channel=HELD, target=Target(client.places.held))[1]
    settled = client.random.choice((None, True, False))
    return client.transfer(link, _no_message(client), channel=HELD, settled=settled)


@on_sender("aborted")
def aborted(client: HostileClient, link: Link) -> bytes:
    parts = client.transfer(link, message(client, client.random.choice(LARGE_BYTES)), more=True)
    return parts + client.frames(Transfer(link.handle, aborted=True, more=client.random.random() < 0.3))


@on_sender("large, abandoned in the middle")
def abandoned(client: HostileClient, link: Link) -> bytes:
    parts = client.transfer(link, message(client, client.random.choice(LARGE_BYTES)), more=True)
    link.abandoned = True
    return parts + (client.detach(link) if client.random.random() < 0.5 else b"")


@on_sender("large, whole")
def large(client: HostileClient, link: Link) -> bytes:
    return client.transfer(link, message(client, client.random.choice(LARGE_BYTES)))


@on_sender("never ending")
def never_ending(client: HostileClient, link: Link) -> bytes:
    """A delivery in parts of nothing at all."""
    return client.transfer(link, DATA, more=True) + client.frames(Transfer(link.handle, more=True)) * STORM


@on_sender("tags again")
def tags_again(client: HostileClient, link: Link) -> bytes:
    tag = client.random.choice((b"", b"t", b"t" * 32))
    return b"".join(client.transfer(link, message(client, 10), delivery_tag=tag) for _ in range(min(4, link.credit)))


@act("delivery-ids that skip or repeat", rude=True)
def delivery_ids(client: HostileClient) -> bytes:
    link = client.pick(receives=False, credit=True)
    if link is None:
        return client.attach(False)[1]
    number = client.random.choice(((client.session().next_id - 1) % 2**32, *NUMBERS))
    return client.transfer(link, message(client, 10), delivery_id=number, settled=client.random.random() < 0.5)


@act("beyond the credit", rude=True)
def beyond_credit(client: HostileClient) -> bytes:
    link, said = client.attach(False)
    return said + b"".join(client.transfer(link, message(client, 10)) for _ in range(STORM))


@act("dispositions for what is unknown")
def unknown_dispositions(client: HostileClient) -> bytes:
    draw = client.random.choice
    found = []
    for _ in range(5):
        first = draw(NUMBERS)
        last = (first + draw((0, 3, 10_000, 2**31 - 2))) % 2**32
        found.append(Disposition(draw((True, False)), first, draw((None, last)), draw((True, False)), state(client)))
    return client.frames(*found)


@act("dispositions")
def dispositions(client: HostileClient) -> bytes:
    heard = client.session().heard
    draw = client.random.choice
    found = [
        Disposition(True, heard.popleft()[0], None, draw((True, True, False)), state(client), draw((False, True)))
        for _ in range(min(len(heard), client.random.randint(1, 20)))
    ]
    return client.frames(*found)


def _answer_all(client: HostileClient, heard: deque[tuple[int, int]], outcome: Modified) -> bytes:
    """That outcome for all that a session heard, and credit for more."""
    said = client.frames(*(Disposition(True, number, None, True, outcome) for number, _ in heard))
    heard.clear()
    link = client.pick(receives=True)
    return said + (client.flow(link, link_credit=100) if link is not None else b"")


@act("modified undeliverable here")
def modified(client: HostileClient) -> bytes:
    heard = client.session().heard
    again = Modified(client.random.random() < 0.5, True, {Symbol("x-opt-why"): "y" * 20})
    return _answer_all(client, heard, again)


@act("modified with large annotations")
def annotated(client: HostileClient) -> bytes:
    """Ever another one, so that each message grows by all of them; and back for the next round."""
    heard = client.session().heard
    draw = client.random.choice
    notes = {Symbol(f"x-opt-{draw(range(50))}"): "y" * draw((20, 1_000, 8_000))}
    return _answer_all(client, heard, Modified(False, False, notes))


@act("rejected with a long reason")
def long_reasons(client: HostileClient) -> bytes:
    heard = client.session().heard
    settled = client.random.random() < 0.5
    why = Rejected(Error(Symbol("x:" + "c" * 300), "d" * client.random.choice((1, 600, 8_000))))
    said = client.frames(*(Disposition(True, number, None, settled, why) for number, _ in heard))
    heard.clear()
    return said


@act("never settling")
def never_settling(client: HostileClient) -> bytes:
    link, said = receiving(client)
    return said + client.flow(link, link_credit=5_000)


@act("held from others")
def held(client: HostileClient) -> bytes:
    """Takes messages of an honest queue and gives them back, or keeps them until it goes."""
    if not client.places.held:
        return b""
    link = client.pick(receives=True, channel=HELD)
    said = b""
    if link is None:
        link, said = client.attach(True, channel=HELD, source=Source(client.places.held))
    session = client.session(HELD)
    back = client.random.choice((Released(), Released(), Modified(True), Modified(False, True)))
    if client.random.random() < 0.6:
        said += client.frames(*(Disposition(True, n, None, True, back) for n, _ in session.heard), channel=HELD)
        session.heard.clear()
        session.window = 5_000
    return said + client.flow(link, channel=HELD, link_credit=client.random.choice((0, 1, 5, 50)))
