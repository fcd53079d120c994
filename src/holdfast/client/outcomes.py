"""How a message ended, as values (AMQP 1.0 §3.4).

Rules of this file: frozen values; `from_state` is the one place that reads the wire's delivery states.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.amqp.wire import conditions, performatives
from holdfast.amqp.wire.extensions import TRY_LATER
from holdfast.client.errors import NotAccepted


@dataclass(frozen=True, slots=True)
class Accepted:
    """The node has stored the message: custody has passed to it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The node has refused the message. `condition` is an AMQP error condition, `description` its text.

    With `is_full` the node had no room for it, and may accept it later. A producer may send the same number again.
    """

    condition: str
    description: str
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """The node has not taken the message; it may be sent again."""


@dataclass(frozen=True, slots=True)
class Modified:
    """The node has not taken the message; it may be sent again. AMQP 1.0 §3.4.5.

    `delivery_failed` counts this as an attempt; with `undeliverable_here` it is to be sent elsewhere.
    """

    delivery_failed: bool = False
    undeliverable_here: bool = False


@dataclass(frozen=True, slots=True)
class Spooled:
    """The message was written to the spool, and is sent from there in its turn, under `number`."""

    number: int


Outcome = Accepted | Rejected | Released | Modified | Spooled
"""What became of a message that was sent."""

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()


def is_not_taken(outcome: Outcome) -> bool:
    """Whether the node may take the very same message another time."""
    return isinstance(outcome, (Released, Modified)) or (isinstance(outcome, Rejected) and outcome.is_full)


def check_accepted(outcome: Outcome, what: str) -> None:
    """Raises NotAccepted unless the node, or the spool, has the message. `what`: who sent it."""
    if isinstance(outcome, (Accepted, Spooled)):
        return
    if isinstance(outcome, Rejected):
        why = f"{outcome.description} ({outcome.condition})" if outcome.description else outcome.condition
        text = f"{what}: the node rejected the message: {why}"
        raise NotAccepted(text, outcome, outcome.condition, is_full=outcome.is_full)
    done = "released" if isinstance(outcome, Released) else "modified"
    raise NotAccepted(f"{what}: the node {done} the message; it can be sent again", outcome, None, is_full=False)


def too_large(bytes_max: int) -> Rejected:
    """What becomes of a message that is larger than the node takes: it is not sent, for it would cost the link."""
    return Rejected(conditions.MESSAGE_SIZE_EXCEEDED, f"the node takes at most {bytes_max} bytes in a message")


def from_state(state: object) -> Outcome:
    """The outcome that a settled delivery's state means (§3.4); what is none of the others was not taken."""
    if isinstance(state, performatives.TransactionalState):  # the outcome that it has within its transaction
        state = state.outcome
    if isinstance(state, performatives.Accepted):
        return ACCEPTED
    if isinstance(state, performatives.Rejected):
        error = state.error
        if error is None:
            return Rejected("amqp:not-allowed", "rejected without a reason")
        is_full = (error.info or {}).get(TRY_LATER) is True
        return Rejected(str(error.condition), error.description or "", is_full)
    if isinstance(state, performatives.Modified):
        return Modified(bool(state.delivery_failed), bool(state.undeliverable_here))
    return RELEASED
