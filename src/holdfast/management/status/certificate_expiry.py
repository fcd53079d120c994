"""The node's own certificate: whether it has ended, or soon will.

Rules of this file: the driver reads the file; this file compares its dates with the wall clock.
"""

from typing import Final

from holdfast.engine.clock import Clock
from holdfast.engine.events import CertificateRead
from holdfast.units import iso8601

SOON_MS: Final = 14 * 86_400_000
"""Reported this long before it expires."""
SOON_SHARE: Final = 4
"""A short-lived certificate is reported in the last quarter (1/SOON_SHARE) of its validity."""


class CertificateExpiry:
    """What the node's certificate file has; nothing before it was read, and without one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begins_ms = 0
        self._ends_ms: int | None = None

    def read(self, event: CertificateRead) -> None:
        """The driver has read the file."""
        self._begins_ms, self._ends_ms = event.begins_ms, event.ends_ms

    def condition(self) -> tuple[str, str] | None:
        """A key that identifies the condition, and the line of `status`; None while all is well."""
        ends_ms, now_ms = self._ends_ms, self._clock.wall_ms
        if ends_ms is None or now_ms < ends_ms - min(SOON_MS, (ends_ms - self._begins_ms) // SOON_SHARE):
            return None
        ended = now_ms >= ends_ms
        what = "has expired: others refuse connections over TLS" if ended else "expires soon"
        text = f"tls certificate_file: this node's certificate {what}; it is valid until {iso8601(ends_ms)}"
        return f"certificate {'ended' if ended else 'ends'} {ends_ms}", f"{text}: put a new one into the file"
