"""How a message ended, as values (AMQP 1.0 §3.4).

Rules of this file: frozen values; `from_state` is the one place that reads the wire's delivery states.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.amqp import conditions, performatives
from holdfast.amqp.extensions import TRY_LATER


@dataclass(frozen=True, slots=True)
class Accepted:
    """Stored by the node: custody has passed on."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused; `condition` is an AMQP error condition. The same number may be tried again later: where `is_full`, the
    node had no room for it, and may take it then."""

    condition: str
    description: str
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Not taken now; it may be sent again."""


@dataclass(frozen=True, slots=True)
class Modified:
    """Not taken now; `delivery_failed` counts as an attempt, `undeliverable_here` asks for another place."""

    delivery_failed: bool = False
    undeliverable_here: bool = False


@dataclass(frozen=True, slots=True)
class Spooled:
    """Written to the spool, beyond what may be in doubt: sent from there in its turn, as `number`."""

    number: int


Outcome = Accepted | Rejected | Released | Modified | Spooled

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()


def is_not_taken(outcome: Outcome) -> bool:
    """Whether the node may take the very same message another time."""
    return isinstance(outcome, (Released, Modified)) or (isinstance(outcome, Rejected) and outcome.is_full)


def too_large(bytes_max: int) -> Rejected:
    """What becomes of a message that is larger than the node takes: it is not sent, for it would cost the link."""
    return Rejected(conditions.MESSAGE_SIZE_EXCEEDED, f"the node takes at most {bytes_max} bytes in a message")


def from_state(state: object) -> Outcome:
    """The outcome that a settled delivery's state means (§3.4); what is none of the others was not taken."""
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
