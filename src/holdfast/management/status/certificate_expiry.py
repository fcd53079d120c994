"""The node's own certificate: whether it is valid, and how long; and whether the files of `[tls]` can be used.

Rules of this file: the driver reads the files; this file compares the dates of what it uses with the wall clock.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.engine.clock import Clock
from holdfast.engine.events import CertificateRead
from holdfast.units import iso8601

SOON_MS: Final = 14 * 86_400_000
"""Reported this long before it expires."""
SOON_SHARE: Final = 4
"""A short-lived certificate is reported in the last quarter (1/SOON_SHARE) of its validity."""


def fault_of(own: CertificateRead, now_ms: int) -> str:
    """Why others refuse that certificate at that time, for a person; empty if its dates are no reason."""
    if own.ends_ms is None or own.begins_ms <= now_ms < own.ends_ms:
        return ""
    if now_ms >= own.ends_ms:
        when = f"has expired: others refuse connections over TLS; it is valid until {iso8601(own.ends_ms)}"
    else:
        when = f"is not valid yet: others refuse connections over TLS; it is valid from {iso8601(own.begins_ms)}"
    return f"tls certificate_file: this node's certificate {when}"


class CertificateExpiry:
    """Of the certificate that the node shows to others; nothing before the driver has told of one, and without one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told = CertificateRead()

    def read(self, event: CertificateRead) -> None:
        """The driver uses another certificate, or cannot use its files, or can again."""
        self._told = event

    def conditions(self) -> Iterator[tuple[str, str]]:
        """For each a key that identifies it, and the line of `status`; none while all is well."""
        if self._told.problem:
            text = f"{self._told.problem}; the previous certificates are used until the files are corrected"
            yield "certificate files", text
        begins_ms, ends_ms, now_ms = self._told.begins_ms, self._told.ends_ms, self._clock.wall_ms
        if ends_ms is not None and now_ms < begins_ms:
            text = fault_of(self._told, now_ms)
            yield f"certificate begins {begins_ms}", f"{text}: correct the clock, or put another one into the file"
            return
        if ends_ms is None or now_ms < ends_ms - min(SOON_MS, (ends_ms - begins_ms) // SOON_SHARE):
            return
        ended = now_ms >= ends_ms
        soon = f"tls certificate_file: this node's certificate expires soon; it is valid until {iso8601(ends_ms)}"
        text = fault_of(self._told, now_ms) or soon
        yield f"certificate {'ended' if ended else 'ends'} {ends_ms}", f"{text}: put a new one into the file"
