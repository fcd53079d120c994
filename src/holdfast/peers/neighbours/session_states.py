"""The states of a session with a neighbour and its transitions, as a table (traffic-control §3.2, figure 5; RFC 4271
§8).

Rules of this file: data. Every state and event is in TRANSITIONS or, with its reason, in IMPOSSIBLE; docs/sessions.md
shows the picture that `diagram` draws.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """As BGP's finite state machine names them (RFC 4271 §8.2.2)."""

    IDLE = "Idle"
    CONNECT = "Connect"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class SessionEvent(Enum):
    """The events of a session."""

    DIALLED = "dialled"
    CONNECTED = "connected"
    ACCEPTED = "accepted"
    OPENED = "opened"
    CONTROL_UP = "control up"
    LOST = "lost"


TRANSITIONS: Final = {
    (State.IDLE, SessionEvent.DIALLED): State.CONNECT,
    (State.IDLE, SessionEvent.ACCEPTED): State.OPEN_CONFIRM,
    (State.CONNECT, SessionEvent.CONNECTED): State.OPEN_SENT,
    (State.CONNECT, SessionEvent.ACCEPTED): State.OPEN_CONFIRM,
    (State.CONNECT, SessionEvent.LOST): State.IDLE,
    (State.OPEN_SENT, SessionEvent.OPENED): State.OPEN_CONFIRM,
    (State.OPEN_SENT, SessionEvent.ACCEPTED): State.OPEN_CONFIRM,
    (State.OPEN_SENT, SessionEvent.LOST): State.IDLE,
    (State.OPEN_CONFIRM, SessionEvent.CONTROL_UP): State.ESTABLISHED,
    (State.OPEN_CONFIRM, SessionEvent.ACCEPTED): State.OPEN_CONFIRM,
    (State.OPEN_CONFIRM, SessionEvent.LOST): State.IDLE,
    (State.ESTABLISHED, SessionEvent.ACCEPTED): State.OPEN_CONFIRM,
    (State.ESTABLISHED, SessionEvent.LOST): State.IDLE,
}

_ONE_DIAL: Final = "only an idle session dials, and no dial ends twice"
_LATE_DIAL: Final = "a dial that comes through when the session is elsewhere is hung up before it counts"
_OPEN_ONCE: Final = "the engine tells of one open for each connection, and this one's has come"
_NO_LINK: Final = "the control link's answer and the hello come on a connection that has opened"
_NOTHING: Final = "there is no connection that could do so"

IMPOSSIBLE: Final = {
    (State.IDLE, SessionEvent.CONNECTED): _LATE_DIAL,
    (State.IDLE, SessionEvent.OPENED): _NOTHING,
    (State.IDLE, SessionEvent.CONTROL_UP): _NOTHING,
    (State.IDLE, SessionEvent.LOST): _NOTHING,
    (State.CONNECT, SessionEvent.DIALLED): _ONE_DIAL,
    (State.CONNECT, SessionEvent.OPENED): _NOTHING,
    (State.CONNECT, SessionEvent.CONTROL_UP): _NOTHING,
    (State.OPEN_SENT, SessionEvent.DIALLED): _ONE_DIAL,
    (State.OPEN_SENT, SessionEvent.CONNECTED): _LATE_DIAL,
    (State.OPEN_SENT, SessionEvent.CONTROL_UP): _NO_LINK,
    (State.OPEN_CONFIRM, SessionEvent.DIALLED): _ONE_DIAL,
    (State.OPEN_CONFIRM, SessionEvent.CONNECTED): _LATE_DIAL,
    (State.OPEN_CONFIRM, SessionEvent.OPENED): _OPEN_ONCE,
    (State.ESTABLISHED, SessionEvent.DIALLED): _ONE_DIAL,
    (State.ESTABLISHED, SessionEvent.CONNECTED): _LATE_DIAL,
    (State.ESTABLISHED, SessionEvent.OPENED): _OPEN_ONCE,
    (State.ESTABLISHED, SessionEvent.CONTROL_UP): "it comes once for each connection, and ends OpenConfirm",
}
"""What cannot happen, and why; it would end the node before it could do damage."""


def diagram() -> str:
    """TRANSITIONS as a Mermaid state diagram, a line each, in the table's order."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.IDLE.value}"]
    lines += [f"    {before.value} --> {after.value}: {what.value}" for (before, what), after in TRANSITIONS.items()]
    return "\n".join(lines)
