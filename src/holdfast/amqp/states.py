"""The states of a connection and the transitions between them. AMQP 1.0 §2.4.6.

Rules of this file: the table is the machine; lifecycle.py takes every step through it.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """§2.4.6. DISCARDING is not used: after a fault the transport goes as soon as our close is written."""

    START = "START"
    HDR_RCVD = "HDR RCVD"
    HDR_SENT = "HDR SENT"
    HDR_EXCH = "HDR EXCH"
    OPEN_PIPE = "OPEN PIPE"
    OC_PIPE = "OC PIPE"
    OPEN_RCVD = "OPEN RCVD"
    OPEN_SENT = "OPEN SENT"
    CLOSE_PIPE = "CLOSE PIPE"
    OPENED = "OPENED"
    CLOSE_RCVD = "CLOSE RCVD"
    CLOSE_SENT = "CLOSE SENT"
    END = "END"


class Step(Enum):
    """What was sent (S) or received (R). FAIL: the peer broke the protocol, or the transport is gone."""

    S_HEADER = "S:HDR"
    R_HEADER = "R:HDR"
    S_OPEN = "S:OPEN"
    R_OPEN = "R:OPEN"
    S_CLOSE = "S:CLOSE"
    R_CLOSE = "R:CLOSE"
    R_FRAME = "R:FRAME"
    FAIL = "FAIL"


TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (State.START, Step.R_HEADER): State.HDR_RCVD,
    (State.START, Step.S_HEADER): State.HDR_SENT,
    (State.HDR_RCVD, Step.S_HEADER): State.HDR_EXCH,
    (State.HDR_SENT, Step.R_HEADER): State.HDR_EXCH,
    (State.HDR_SENT, Step.S_OPEN): State.OPEN_PIPE,
    (State.HDR_EXCH, Step.S_OPEN): State.OPEN_SENT,
    (State.HDR_EXCH, Step.R_OPEN): State.OPEN_RCVD,
    (State.OPEN_PIPE, Step.R_HEADER): State.OPEN_SENT,
    (State.OPEN_PIPE, Step.S_CLOSE): State.OC_PIPE,
    (State.OC_PIPE, Step.R_HEADER): State.CLOSE_PIPE,
    (State.OPEN_RCVD, Step.S_OPEN): State.OPENED,
    (State.OPEN_SENT, Step.R_OPEN): State.OPENED,
    (State.OPEN_SENT, Step.S_CLOSE): State.CLOSE_PIPE,
    (State.CLOSE_PIPE, Step.R_OPEN): State.CLOSE_SENT,
    (State.OPENED, Step.R_FRAME): State.OPENED,
    (State.OPENED, Step.S_CLOSE): State.CLOSE_SENT,
    (State.OPENED, Step.R_CLOSE): State.CLOSE_RCVD,
    (State.CLOSE_RCVD, Step.S_CLOSE): State.END,
    (State.CLOSE_SENT, Step.R_FRAME): State.CLOSE_SENT,
    (State.CLOSE_SENT, Step.R_CLOSE): State.END,
    **{(state, Step.FAIL): State.END for state in State if state is not State.END},
}
"""A transition that is not in the table is a protocol error of the peer (R) or of ours (S)."""

MAY_SPEAK: Final = frozenset((State.OPEN_PIPE, State.OPEN_SENT, State.OPENED))
CLOSING: Final = frozenset((State.OC_PIPE, State.CLOSE_PIPE, State.CLOSE_SENT))
