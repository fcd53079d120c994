"""TLS alerts that the other side sent, in words for an operator. RFC 8446 §6.2.

Rules of this file: texts alone; `ssl` is not imported for them.
"""

import re
from typing import Final

_ALERT: Final = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")
"""OpenSSL's name of an alert that has arrived; the version in it is the one that has introduced the alert."""

_REFUSED: Final = "the other side does not accept the certificate of this one"
_WORDS: Final = {
    "CERTIFICATE_EXPIRED": f"{_REFUSED}: it has expired, or a clock is wrong; put a new one into certificate_file",
    "CERTIFICATE_REVOKED": f"{_REFUSED}: it is revoked; put another one into certificate_file",
    "UNKNOWN_CA": f"{_REFUSED}: it does not know the authority; add that to ca_file there",
    "BAD_CERTIFICATE": f"{_REFUSED}: it is not valid there",
    "CERTIFICATE_UNKNOWN": f"{_REFUSED}; its log says why",
    "UNSUPPORTED_CERTIFICATE": f"{_REFUSED}: it is of a kind that is not supported there",
    "CERTIFICATE_REQUIRED": "the other side wants a certificate; give one as certificate_file",
    "PROTOCOL_VERSION": "the two sides have no version of TLS in common; compare version_min",
    "HANDSHAKE_FAILURE": "the two sides have no cipher in common, or the other one wants a certificate",
    "INSUFFICIENT_SECURITY": "the two sides have no cipher in common",
    "ACCESS_DENIED": "the other side refuses access",
}


def explain(reason: str) -> str:
    """OpenSSL's name of what failed, without its own words where it is an alert of the other side."""
    alert = _ALERT.fullmatch(reason)
    if alert is None:
        return reason.lower().replace("_", " ")
    return _WORDS.get(alert[1], f"the other side gave up: {alert[1].lower().replace('_', ' ')}")
