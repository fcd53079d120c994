"""What a fleet gives a site: certificate, authority, revocation list, topology and configuration, signed as one text.

Rules of this file: pure. Both ways carry the same text, the service's answer and a file in the post; whoever brings it
can neither change it nor hand a site what is another's.
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
"""Before what is signed: the authority's signature of it is none of anything else."""


class Signer(Protocol):
    def sign(self, data: bytes) -> bytes: ...


class Verifier(Protocol):
    def verified(self, signature: bytes, data: bytes) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provision:
    """`version` counts configurations, 0: there is none yet; `crl_number` counts revocation lists. `certificate` is
    empty where the site keeps the one that it has, and `config` for a node that the topology has no more. `service`:
    where its fleet is asked. `topology_file` is the name by which `config` refers to `topology`."""

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
    """ConfigError where it is not what the authority has signed."""
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
    """The authority's certificate of a provision that nobody has checked yet."""
    try:
        authority = json.loads(json.loads(text)["provision"])["authority"]
    except (ValueError, KeyError, TypeError, RecursionError):
        authority = None
    if not isinstance(authority, str):
        raise ConfigError("this is no provision of a fleet; make it with `holdfast fleet sign`")
    return authority


def _checked(given: dict[str, object]) -> Provision:
    """A later version may add fields; those that this one needs must be there."""
    known = {field.name: field.type for field in fields(Provision)}
    for name, kind in known.items():
        value = given.get(name)
        if not (is_whole(value) if kind is int else isinstance(value, str)):
            raise ConfigError(
                f"the provision has no {name}: the fleet runs another version of Holdfast; upgrade the site"
            )
    return Provision(**{name: given[name] for name in known})  # type: ignore[arg-type]
