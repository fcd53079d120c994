"""Whether others accept a certificate at a time, by its dates.

Rules of this file: a pure function, no clock.
"""

from holdfast.units import iso8601


def fault_of(begins_ms: int, ends_ms: int | None, now_ms: int) -> str:
    """Why others refuse this node's certificate at `now_ms`, for a person; empty if its dates are no reason, or if
    there is none (`ends_ms` is None). All are milliseconds of the wall clock."""
    if ends_ms is None or begins_ms <= now_ms < ends_ms:
        return ""
    if now_ms >= ends_ms:
        when = f"has expired: others refuse connections over TLS; it is valid until {iso8601(ends_ms)}"
    else:
        when = f"is not valid yet: others refuse connections over TLS; it is valid from {iso8601(begins_ms)}"
    return f"tls certificate_file: this node's certificate {when}"
