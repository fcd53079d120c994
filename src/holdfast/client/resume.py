"""What the client's links know of deliveries after a break, and what they conclude from the peer's unsettled map.

Rules of this file: no loop, no socket; the links ask and act. A peer that answers without a map keeps nothing: then
nothing is resumed (docs/client.md). Sources: AMQP 1.0 §2.6.5, §2.6.13, §2.7.3, §3.4.1.
"""

from collections import deque
from collections.abc import Callable, Container
from math import ceil
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.amqp.links.resuming import ResumeAction, Step, compare, content
from holdfast.amqp.links.sender import Sender as EngineSender
from holdfast.amqp.message.message import count_sections
from holdfast.amqp.wire.composites import UINT_MAX
from holdfast.amqp.wire.performatives import Received
from holdfast.errors import RemoteProtocolError

T = TypeVar("T")

FIRST_TAG: Final = 0
"""Of a link's delivery-tags, which wrap at 32 bits."""


def timeout_s(seconds: float) -> int:
    """A terminus's timeout for at least so many seconds (§3.5.3)."""
    return min(UINT_MAX, ceil(min(seconds, float(UINT_MAX))))


class _Rounds:
    """A map too large for a frame is sent in rounds of attach, settle, detach, while each settles some (§2.7.3)."""

    def __init__(self) -> None:
        self.attached = False
        """The node answered an attach: from then on an attach resumes."""
        self.partial = False
        """The last map, of either side, was incomplete."""
        self.again = False
        """The link was detached to be attached again with the rest."""
        self._ended = False
        self._left = -1

    def _told(self, link: EngineSender | EngineReceiver) -> None:
        """The node answered the attach of `link`. A complete map ends the rounds: those of the next break, which may
        leave as many tags as one of these did, count anew."""
        self.attached = True
        self.partial = link.resumes_only
        if not self.partial:
            self._ended = False
            self._left = -1

    def next_round(self) -> None:
        """This round is over, and the caller detaches."""
        self.again = self._ended = True

    def begins_round(self) -> bool:
        """Whether the link that was detached is to be attached again at once; from then on it no longer is."""
        again, self.again = self.again, False
        return again

    def _stuck(self, left: int) -> bool:
        """Whether the last round settled nothing, so that another, with `left` tags, would not either. A break ends no
        round: what it settled nobody knows yet."""
        ended, self._ended = self._ended, False
        if not ended:
            return False
        before, self._left = self._left, left
        return 0 <= before <= left


class Keyed(Protocol):
    """What a SendingState needs of a message."""

    key: int

    def whole(self) -> bytes | None:
        """Its payload; None of one that is sent in parts."""


K = TypeVar("K", bound=Keyed)


class SendingState(_Rounds, Generic[K]):
    """A sender's deliveries in doubt by tag; K is what the sender knows of one."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[bytes, K] = {}
        self.steps: deque[tuple[Step, K]] = deque()
        """To be sent before anything new."""
        self.next_tag = FIRST_TAG

    def suspend(self, link: EngineSender) -> None:
        """The link is over, or its connection is."""
        self.again = False  # a detach that was not answered is answered no more
        held = {step.tag: item for step, item in self.steps if step.act is not ResumeAction.SETTLE}
        self.held |= held | (link.suspended if link.over else link.unsettled_tags())
        self.steps.clear()
        self.next_tag = link.next_tag

    def map(self, in_doubt: Container[int]) -> dict[bytes, Any] | None:
        """The unsettled map of the next attach; None where there was no link to resume, or no round helped."""
        self.held = {tag: item for tag, item in self.held.items() if item.key in in_doubt}
        if self.partial and self._stuck(len(self.held)):
            self.forget()
        return dict.fromkeys(self.held) if self.attached else None

    def forget(self) -> None:
        """Nothing of an earlier link counts any more: what is in doubt goes as new."""
        self.held.clear()
        self.steps.clear()
        self.attached = self.partial = False
        self._left = -1

    def answered(self, link: EngineSender) -> list[tuple[K, Any]]:
        """Takes the peer's map in; returns what it decided: (item, state). What stays `held` is not to be sent anew."""
        self._told(link)
        held, self.held = self.held, {}
        if not link.resumes or link.remote_attach is None:
            return []
        decided = []
        theirs = link.remote_attach.unsettled or {}
        incomplete = link.remote_attach.incomplete_unsettled
        sent = set((link.local_attach.unsettled or {}) if link.local_attach is not None else {})
        for step in compare(role=False, mine=dict.fromkeys(held), theirs=theirs, incomplete=incomplete):
            item = held[step.tag]
            if step.act is ResumeAction.SETTLE:
                decided.append((item, step.state))
                self.steps.append((step, item))
            elif step.act is ResumeAction.RESUME:
                self.steps.append((step, item))
            elif step.act is ResumeAction.AWAIT or step.tag not in sent:  # what our own map left out is told next time
                self.held[step.tag] = item
        return decided

    def go_on(self, link: EngineSender) -> list[K]:
        """Sends what resumes, as far as there is credit; returns what was given up of it, to go from its beginning as a
        delivery of its own.
        """
        again = []
        while self.steps and (link.credit or link.resume_credit):
            step, item = self.steps.popleft()
            if step.act is ResumeAction.SETTLE:
                link.resume(step.tag, context=item, state=step.state, settled=True)
            elif (whole := item.whole()) is None:
                link.resume(step.tag, context=item, state=None, aborted=True)
                again.append(item)
            else:
                rest, state = content(step.state, whole)
                link.resume(step.tag, rest, context=item, state=state)
        return again

    def kept(self) -> list[K]:
        """What must not be sent as new: it is resumed, or waits for a complete map."""
        return [*self.held.values(), *(item for _, item in self.steps)]

    def round_over(self, link: EngineSender) -> bool:
        """All that this round could resume is settled, and new deliveries are forbidden: detach, attach again."""
        return link.resumes_only and not self.again and not self.steps and not link.unsettled


class ReceivingState(_Rounds, Generic[T]):
    """A receiver's deliveries by tag: those that the user holds, and outcomes that the sender may not have received.

    The sender has received an outcome if a delivery arrived on credit that was granted after the outcome was written.

    What is open stays so for as long as the program likes, however many rounds there are: where the map of it fits no
    frame, the next round waits until something more was decided.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[bytes, T] = {}
        self.said: dict[bytes, tuple[int, Any]] = {}
        self.awaited: set[bytes] = set()
        """Tags that the sender is going to resume."""
        self._untold: set[bytes] = set()
        """Those that this link's map, which was cut, left out: nothing is said of them on this link."""
        self._cut = False
        self._came = 0
        self._said_count = 0
        self._grants: deque[tuple[int, int]] = deque()
        """(deliveries that may come without this grant, outcomes written before it)."""

    def took(self, tag: bytes, item: T) -> None:
        """A new delivery came."""
        self.open[tag] = item
        self.count()

    def count(self) -> None:
        """One more delivery used credit."""
        self._came += 1
        heard = 0
        while self._grants and self._grants[0][0] < self._came:
            heard = self._grants.popleft()[1]
        if heard:
            for tag, (number, _) in list(self.said.items()):
                if number > heard:
                    break
                if tag not in self.awaited and tag not in self._untold:  # else nothing was written on this link yet
                    del self.said[tag]

    def granting(self, link: EngineReceiver) -> None:
        """All outcomes so far are written, and `link` is about to grant more."""
        self._grants.append((self._came + link.credit, self._said_count))

    def settled(self, tag: bytes, outcome: Any) -> None:
        """The user decided."""
        if self.open.pop(tag, None) is not None:
            self._said_count += 1
            self.said[tag] = (self._said_count, outcome)

    def suspend(self) -> None:
        """The link is over, or its connection is."""
        self.again = False
        self._grants.clear()
        self._came = 0
        self.awaited.clear()

    def begins_round(self) -> bool:
        begins = super().begins_round()
        if begins:  # the sender answered our detach: it has heard all that was said before
            self.said = {tag: outcome for tag, outcome in self.said.items() if tag in self._untold}
        return begins

    def round_over(self, link: EngineReceiver) -> bool:
        """Nothing more comes of this round, and another one would tell more: detach, attach again."""
        if not (link.resumes_only and link.attached) or self.again or self.awaited:
            return False
        return bool(self.said) or not self._cut

    def map(self, payload_of: Callable[[T], bytes]) -> dict[bytes, Any] | None:
        """The unsettled map of the next attach; None where there was no link to resume."""
        if self.partial and not self._cut and self._stuck(len(self.said) + len(self.open)):
            self.forget()
        if not self.attached:
            return None
        said: dict[bytes, Any] = {tag: outcome for tag, (_, outcome) in self.said.items()}
        return said | {tag: _received(payload_of(item)) for tag, item in self.open.items()}

    def answered(self, link: EngineReceiver) -> bool:
        """Takes the peer's map in; False where it does not resume: all is forgotten then.

        What is no more in `open` does not go on: the peer settled it, or offers it again as new.
        """
        self._told(link)
        if not link.resumes or link.remote_attach is None or link.local_attach is None:
            self.forget()
            self.attached = True
            return False
        theirs = link.remote_attach.unsettled or {}
        mine: dict[bytes, Any] = dict.fromkeys((*self.said, *self.open))
        incomplete = link.remote_attach.incomplete_unsettled
        sent = link.local_attach.unsettled or {}
        self._cut = link.local_attach.incomplete_unsettled and bool(sent)
        self._untold = {tag for tag in mine if tag not in sent}
        for step in compare(role=True, mine=mine, theirs=theirs, incomplete=incomplete):
            if step.act is ResumeAction.FORGET and step.tag in sent:
                self.said.pop(step.tag, None)
                self.open.pop(step.tag, None)
        self.awaited = {tag for tag in mine if tag in theirs and tag in sent}
        return True

    def resumed(self, tag: bytes, *, settled: bool) -> tuple[T | None, Any]:
        """The sender resumes `tag`: (what the user holds, None) or (None, the outcome said; None if unknown)."""
        self.count()
        self.awaited.discard(tag)
        if settled:
            self.open.pop(tag, None)
            self.said.pop(tag, None)
            return None, None
        item = self.open.get(tag)
        if item is not None or tag not in self.said:
            return item, None
        _, outcome = self.said.pop(tag)
        self._said_count += 1
        self.said[tag] = (self._said_count, outcome)  # it is said again, now
        return None, outcome

    def aborted(self, tag: bytes) -> None:
        """The sender cannot go on with it: it does not come on this link, or comes as new."""
        self.resumed(tag, settled=True)

    def forget(self) -> None:
        """Nothing of an earlier link counts any more."""
        self.open.clear()
        self.said.clear()
        self.awaited.clear()
        self._untold.clear()
        self.attached = self.partial = self._cut = False
        self._left = -1


def _received(payload: bytes) -> Any:
    """The state of a delivery that came whole: nothing of it need come again."""
    try:
        return Received(count_sections(payload), 0)
    except RemoteProtocolError:
        return None
