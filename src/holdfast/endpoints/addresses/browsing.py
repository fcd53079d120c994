"""Whether a source requests messages without taking them (AMQP 1.0 §3.5.3, std-dist-mode).

Rules of this file: pure. Both the permission check and the attach use it, so that they never differ.
"""

from typing import Final

from holdfast.amqp.wire.extensions import START_SEQUENCE
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described, Symbol

COPY: Final = Symbol("copy")


def browses(source: Source) -> bool:
    """True for a reader by sequence, and for a browser. A durable subscriber of Qpid JMS requests `copy` too, and is
    not a browser."""
    return _starts(source) or (source.distribution_mode == COPY and not subscribes(source))


def subscribes(source: Source) -> bool:
    """Whether it requests a durable subscription."""
    return bool(source.durable) and str(source.expiry_policy) == "never" and not _starts(source)


def _starts(source: Source) -> bool:
    found = (source.filter or {}).values()
    return any(isinstance(value, Described) and str(value.descriptor) == START_SEQUENCE for value in found)
