"""Conditions of TLS: that the files of `[tls]` cannot be used, and that this node's certificate is not valid, or
expires soon.

Rules of this file: the driver reads the files; this file compares the dates of what it uses with the wall clock.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.certificate_validity import fault_of
from holdfast.engine.clock import Clock
from holdfast.engine.events import CertificateRead
from holdfast.management.status.condition import Condition
from holdfast.units import iso8601

SOON_MS: Final = 14 * 86_400_000
"""Reported this long before it expires."""
SOON_SHARE: Final = 4
"""A short-lived certificate is reported in the last quarter (1/SOON_SHARE) of its validity."""


class CertificateStatus:
    """Of the certificate that the node shows to others. There are no conditions before the driver has reported one, nor
    without one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told = CertificateRead()

    def read(self, event: CertificateRead) -> None:
        """The driver uses another certificate, or cannot use its files, or can again."""
        self._told = event

    def conditions(self) -> Iterator[Condition]:
        """None while all is well."""
        if self._told.problem:
            text = f"{self._told.problem}; the previous certificates are used until the files are corrected"
            yield Condition("certificate files", text)
        begins_ms, ends_ms, now_ms = self._told.begins_ms, self._told.ends_ms, self._clock.wall_ms
        if ends_ms is not None and now_ms < begins_ms:
            text = fault_of(begins_ms, ends_ms, now_ms)
            yield Condition(
                f"certificate begins {begins_ms}", f"{text}: correct the clock, or put another one into the file"
            )
            return
        if ends_ms is None or now_ms < ends_ms - min(SOON_MS, (ends_ms - begins_ms) // SOON_SHARE):
            return
        ended = now_ms >= ends_ms
        soon = f"tls certificate_file: this node's certificate expires soon; it is valid until {iso8601(ends_ms)}"
        text = fault_of(begins_ms, ends_ms, now_ms) or soon
        yield Condition(f"certificate {'ended' if ended else 'ends'} {ends_ms}", f"{text}: put a new one into the file")
