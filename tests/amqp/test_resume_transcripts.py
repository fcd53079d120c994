"""Golden transcripts of a peer that resumes its links, as sender and as receiver; there is hardly one to try.

Its bytes are its own: long forms where ours are short, tags of its own kind, and a table of its own making. The user
behind our engine keeps its maps for as long as the connection lives, and does as resuming.py says. Each is also run
with its bytes cut one by one. AMQP 1.0 §2.6.13, §2.7.3; the form of the transcripts is test_transcripts.py's.
"""

from typing import Any

import pytest

from amqp.resume_transcripts import TRANSCRIPTS
from amqp.test_transcripts import Habits, play
from holdfast.amqp.connection import (
    Connection,
    ConnEvent,
    CreditChanged,
    Delivery,
    LinkAttached,
    LinkDetached,
    Outcomes,
    Receiver,
    Sender,
)
from holdfast.amqp.links.resuming import ResumeAction, Step, compare, content
from holdfast.amqp.session.events import ResumeAborted
from holdfast.amqp.wire.performatives import Accepted, Rejected

BODY = b"\x00\x53\x75\xa0\x01"


class Keeper(Habits):
    """As receiver accepts what does not say `n`, which it rejects, and says so only to deliveries that say `!`, so
    that outcomes are in doubt; remembers both. As sender sends a, b, c, d, and resumes what the peer's map asks for.
    """

    def __init__(self, side: Connection) -> None:
        super().__init__(side)
        self.known: dict[bytes, Any] = {}
        self.held: dict[bytes, bytes] = {}
        self.bodies = [b"a", b"b", b"c", b"d"]
        self.steps: list[Step] = []
        self.next_tag = 100

    def act(self, events: list[ConnEvent]) -> None:
        for event in events:
            if isinstance(event, LinkAttached):
                self.attach(event)
            elif isinstance(event, CreditChanged):
                self.send(event.link)
            elif isinstance(event, Delivery):
                self.take(event)
            elif isinstance(event, ResumeAborted):
                self.known.pop(event.tag, None)
            elif isinstance(event, LinkDetached) and isinstance(event.link, Sender):
                self.held |= event.link.suspended
                self.next_tag = event.link.next_tag
            elif isinstance(event, Outcomes) and isinstance(event.state, Rejected):
                self.bodies += event.contexts

    def attach(self, event: LinkAttached) -> None:
        link = event.link
        assert link.remote_attach is not None
        theirs = link.remote_attach.unsettled
        if isinstance(link, Receiver):
            unsettled = None if theirs is None else {tag: self.known[tag] for tag in theirs if tag in self.known}
            link.accept(unsettled=unsettled)
            link.grant(10)
            return
        assert isinstance(link, Sender)
        link.use_tags(link.session.tag_offset(self.next_tag))
        mine: dict[bytes, Any] = dict.fromkeys(self.held)
        self.steps = compare(role=False, mine=mine, theirs=theirs or {})
        link.accept(unsettled=None if theirs is None else mine)
        self.send(link)

    def send(self, link: Sender) -> None:
        for step in self.steps if link.credit else []:
            body = self.held.pop(step.tag)
            if step.act is ResumeAction.RESEND:
                self.bodies.insert(0, body)
            elif step.act is ResumeAction.SETTLE:
                link.resume(step.tag, context=body, state=step.state, settled=True)
            else:
                payload, state = content(step.state, BODY + body)
                link.resume(step.tag, payload, context=body, state=state)
        self.steps = [] if link.credit else self.steps
        while link.sendable and self.bodies:
            body = self.bodies.pop(0)
            link.send(BODY + body, context=body)

    def take(self, event: Delivery) -> None:
        if event.resume and event.settled:
            self.known.pop(event.tag, None)
            return
        outcome = Rejected() if event.payload.endswith(b"n") else Accepted()
        if event.payload.endswith(b"!"):
            event.link.settle(event.delivery_id, event.delivery_id, outcome)
        else:
            self.known[event.tag] = outcome


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("title", TRANSCRIPTS)
def test_transcript(title: str, cut: int) -> None:
    for expected, got in play(TRANSCRIPTS[title], cut=cut, habits=Keeper):
        assert got == expected
