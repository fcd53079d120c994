"""What the other side of TLS refused, in words (tls_alerts.py)."""

import re
import ssl

import pytest

from holdfast.node.network.encryption import describe
from holdfast.tls_alerts import explain


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "it has expired, or a clock is wrong; put a new one into certificate_file"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", "it is revoked"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not know the authority; add that to ca_file there"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the other side wants a certificate; give one as certificate_file"),
        ("TLSV1_ALERT_INTERNAL_ERROR", "the other side gave up: internal error"),
        ("UNSUPPORTED_PROTOCOL", "unsupported protocol"),
    ],
)
def test_an_alert_is_told_in_words(reason: str, words: str) -> None:
    assert words in explain(reason) and not re.search(r"sslv3|tlsv1|alert", explain(reason))
    error = ssl.SSLError(1, "text")
    error.reason = reason
    assert describe(error) == f"TLS: {explain(reason)}"
