"""Seconds, milliseconds, bytes, time stamps and numbers, named once.

Rules of this file: pure functions, no clock; wall time is always milliseconds since the Unix epoch, UTC
(AMQP 1.0 §1.6.17), monotonic time always float seconds.
"""

from datetime import datetime, timedelta, timezone
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

WHOLE_END: Final = 10**18
"""Whole numbers from here on are shown with an exponent."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def written(number: float) -> str:
    """As a person writes it: a whole number below WHOLE_END with all its digits, any other number with six significant
    digits."""
    is_whole = abs(number) < WHOLE_END and number == int(number)
    return str(int(number)) if is_whole else f"{number:g}"


def iso8601(wall_ms: int) -> str:
    """`wall_ms` as `2013-01-01T05:15:00.000Z`; years 1 to 9999, else the number itself as text."""
    try:
        moment = _EPOCH + timedelta(milliseconds=wall_ms)
    except OverflowError:
        return str(wall_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
