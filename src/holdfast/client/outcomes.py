"""How a message ended, as values (AMQP 1.0 §3.4).

Rules of this file: frozen values; `from_state` is the one place that reads the wire's delivery states.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.amqp import conditions, performatives


@dataclass(frozen=True, slots=True)
class Accepted:
    """Stored by the node: custody has passed on."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused for good; `condition` is an AMQP error condition. The same number may be tried again later."""

    condition: str
    description: str


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
NOT_TAKEN: Final = (Released, Modified)


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
        return Rejected(str(error.condition), error.description or "")
    if isinstance(state, performatives.Modified):
        return Modified(bool(state.delivery_failed), bool(state.undeliverable_here))
    return RELEASED
