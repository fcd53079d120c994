"""What a site and the enrolment service say to each other, as both sides have to know it (docs/fleet.md).

Rules of this file: pure. On a TLS connection the service says one line of JSON with a nonce, the site one with its
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
"""How long a request for changes waits for one; shorter than what routers keep a silent connection."""
_SIGNED: Final = b"holdfast fleet request 1\n"


def line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def signed_part(nonce: str, do: str, body: str) -> bytes:
    """What a site signs of its request: it is good on this connection alone."""
    return _SIGNED + "\n".join((nonce, do, body)).encode()
