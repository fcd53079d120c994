"""Resuming a link: how two unsettled maps are compared, and how a map is cut to fit a frame. AMQP 1.0 §2.6.13, §2.7.3,
§3.4.1.

Rules of this file: pure functions; the rows below are the specification's example, tag by tag
(tests/amqp/test_resuming.py). A state is None (nothing known), Received, an outcome (Accepted, Rejected, Released,
Modified), or one that we cannot interpret (of a transaction or an extension), which counts as nothing known.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from holdfast.amqp.message.message import count_sections
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.performatives import Accepted, Attach, Modified, Received, Rejected, Released
from holdfast.errors import RemoteProtocolError

Unsettled = Mapping[bytes, Any]
"""Delivery-tag → state, in the order in which the deliveries were sent."""

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
START: Final = Received(0, 0)


class ResumeAction(Enum):
    """What happens to one delivery. The first five are transfers by the sender."""

    RESEND = "resend"
    """As a new delivery, without the resume flag."""
    RESUME = "resume"
    """With the resume flag, the content from `state` (a Received) on."""
    SETTLE = "settle"
    """With the resume flag, settled, no content: `state` is the outcome that both now have."""
    RESTATE = "restate"
    """With the resume flag, not settled, no content: `state` is ours and counts; the receiver settles."""
    ABORT = "abort"
    """With the resume flag, aborted: it cannot be resumed."""
    FORGET = "forget"
    """Nothing is sent: the other side has settled it."""
    AWAIT = "await"
    """Not decided yet: it depends on the sender's transfer, or on a complete map."""


class Step(NamedTuple):
    """`act` on the delivery `tag`; `state` as the act says, else None."""

    tag: bytes
    act: ResumeAction
    state: Any


class _Absent:
    """The state of a tag that the other map does not have."""


_ABSENT: Final = _Absent()


def sending(mine: Any, theirs: Any) -> tuple[ResumeAction, Any]:
    """What the sender does with a delivery that both maps have: (act, state)."""
    if isinstance(theirs, OUTCOMES):
        if not isinstance(mine, OUTCOMES):
            return ResumeAction.SETTLE, theirs  # tags 3, 8: what the receiver wants is taken over
        return (ResumeAction.SETTLE if mine == theirs else ResumeAction.RESTATE), mine  # tags 12, 13
    if isinstance(mine, OUTCOMES):
        return ResumeAction.ABORT, None  # tags 11, 14: decided without the receiver's whole message
    got = theirs if isinstance(theirs, Received) else START  # tag 4: null is as having nothing
    if isinstance(mine, Received) and _place(mine) > _place(got):
        return ResumeAction.ABORT, None  # tags 7, 9: what comes next for the receiver we no longer have
    return ResumeAction.RESUME, got  # tags 2, 4, 6


def _place(state: Received) -> tuple[int, int]:
    return state.section_number, state.section_offset


def compare(*, role: bool, mine: Unsettled, theirs: Unsettled, incomplete: bool = False) -> list[Step]:
    """What `role` (True: we receive) does with each delivery of `mine`, in its order; `incomplete`: of `theirs`.

    Deliveries that only `theirs` has need no action: the sender's were settled by us, and the receiver's are settled
    for it because we do not have them.
    """
    steps = []
    for tag, state in mine.items():
        other = theirs.get(tag, _ABSENT)
        if other is _ABSENT:
            if incomplete:
                step = Step(tag, ResumeAction.AWAIT, None)
            elif role or isinstance(state, OUTCOMES):
                step = Step(tag, ResumeAction.FORGET, None)  # tag 10
            else:
                step = Step(tag, ResumeAction.RESEND, None)  # tags 1, 5
        elif role:
            step = Step(tag, ResumeAction.AWAIT, None)
        else:
            step = Step(tag, *sending(state, other))
        steps.append(step)
    return steps


def content(state: Any, payload: bytes) -> tuple[bytes, Any]:
    """(payload, state) of the transfer that resumes a delivery whose receiver is at `state`.

    The whole payload from the start, or nothing if the receiver has every section (§3.4.1), because we never keep part
    of a delivery.
    """
    if isinstance(state, Received) and state.section_number:
        try:
            if state.section_number >= count_sections(payload):
                return b"", state
        except RemoteProtocolError:  # no message, so nobody can say where its sections are
            pass
    return payload, START


def fit(attach: Attach, bytes_max: int) -> None:
    """Cuts the attach's unsettled map so that the performative has at most `bytes_max` bytes, and then marks the map as
    incomplete. The first entries stay. If none fits, the map is empty and incomplete: the peer can resume nothing, and
    the attach itself may still be too large.
    """
    whole = attach.unsettled
    if not whole or len(encoding.encode(attach)) <= bytes_max:
        return
    attach.unsettled, attach.incomplete_unsettled = {}, True
    left = bytes_max - len(encoding.encode(attach)) - _MAP_HEAD_BYTES
    kept: dict[bytes, Any] = {}
    for tag, state in whole.items():
        left -= len(encoding.encode(tag)) + len(encoding.encode(state))
        if left < 0:
            break
        kept[tag] = state
    attach.unsettled = kept


_MAP_HEAD_BYTES: Final = 32
"""The maximum growth of the heads of map and list, plus handle and max-message-size, which are added later."""
