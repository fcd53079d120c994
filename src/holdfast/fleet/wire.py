"""The protocol between a site and the enrolment service, for both sides (docs/fleet.md).

Rules of this file: pure. On a TLS connection the service sends one line of JSON with a nonce, the site one with its
request, and the service one with the answer.
"""

import json
from collections.abc import Mapping
from typing import Final

from holdfast.fleet.provision import PROVISION_BYTES_MAX
from holdfast.units import KIB

REQUEST_BYTES_MAX: Final = 64 * KIB
ANSWER_BYTES_MAX: Final = PROVISION_BYTES_MAX + 64 * KIB
WAIT_S_MAX: Final = 55.0
"""The maximum wait of a request for changes; shorter than the time for which routers keep a silent connection."""
_SIGNED: Final = b"holdfast fleet request 1\n"


def line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def signed_part(nonce: str, do: str, body: str) -> bytes:
    """The text that a site signs for its request; the signature is valid only on this connection."""
    return _SIGNED + "\n".join((nonce, do, body)).encode()
