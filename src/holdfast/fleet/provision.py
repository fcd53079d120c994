"""A provision: the certificate, authority, revocation list, topology and configuration for one site, signed as one
text.

Rules of this file: pure. The service's answer and a file that is carried to the site contain the same text. The carrier
can neither change it nor give a site the provision of a different site.
"""

import base64
import binascii
import json
from dataclasses import asdict, dataclass, fields
from typing import Final, Protocol

from holdfast.errors import ConfigError
from holdfast.schema import is_whole

PROVISION_BYTES_MAX: Final = 8 * 1024 * 1024
_CONTEXT: Final = b"holdfast fleet provision 1\n"
"""Precedes the signed text, so that this signature is not valid for any other kind of text."""


class Signer(Protocol):
    def sign(self, data: bytes) -> bytes: ...


class Verifier(Protocol):
    def verified(self, signature: bytes, data: bytes) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """`version` counts configurations, 0 if there is none yet; `crl_number` counts revocation lists. `certificate` is
    empty if the site keeps its certificate, `config` if the node is not in the topology. `service`: the address of the
    fleet's service. `topology_file`: the name by which `config` refers to `topology`."""

    node: str
    version: int
    crl_number: int
    certificate: str
    authority: str
    revocations: str
    topology_file: str
    topology: str
    config: str
    service: str


def seal(provision: Provision, signer: Signer) -> str:
    """The text, with the authority's signature."""
    body = json.dumps(asdict(provision), ensure_ascii=False)
    signature = base64.b64encode(signer.sign(_CONTEXT + body.encode())).decode()
    return json.dumps({"provision": body, "signature": signature}, ensure_ascii=False)


def unseal(text: str, verifier: Verifier) -> Provision:
    """Verifies the signature, and reads the provision. ConfigError if the authority has not signed it."""
    try:
        whole = json.loads(text)
        body, signature = whole["provision"], base64.b64decode(whole["signature"], validate=True)
        is_signed = verifier.verified(signature, _CONTEXT + body.encode())
        given = json.loads(body) if is_signed else None
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise ConfigError("this is no provision of a fleet; make it with `holdfast fleet sign`") from None
    if given is None:
        raise ConfigError(
            "the provision was not signed by this site's fleet, or was changed on its way; ask for it again"
        )
    return _checked(given)


def authority_in(text: str) -> str:
    """The authority's certificate in a provision that has not been verified."""
    try:
        authority = json.loads(json.loads(text)["provision"])["authority"]
    except (ValueError, KeyError, TypeError, RecursionError):
        authority = None
    if not isinstance(authority, str):
        raise ConfigError("this is no provision of a fleet; make it with `holdfast fleet sign`")
    return authority


def _checked(given: dict[str, object]) -> Provision:
    """Checks the fields. A later version may add fields; those that this version needs must be present."""
    known = {field.name: field.type for field in fields(Provision)}
    for name, kind in known.items():
        value = given.get(name)
        if not (is_whole(value) if kind is int else isinstance(value, str)):
            raise ConfigError(
                f"the provision has no {name}: the fleet runs another version of Holdfast; upgrade the site"
            )
    return Provision(**{name: given[name] for name in known})  # type: ignore[arg-type]
