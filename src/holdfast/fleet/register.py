"""The register of a fleet's sites: tokens, certificates, and each site's last report.

Rules of this file: data and its form in JSON (`fleet.json`), without secrets: it has only a token's hash. Times are
seconds since 1970, or 0 for something that has not happened.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.errors import ConfigError

REGISTER_BYTES_MAX: Final = 64 * 1024 * 1024
CERTIFICATES_MAX: Final = 20
"""The maximum number of unexpired certificates of a site; a further one is refused. A site renews every two months."""
LAPSED_DAYS_MAX: Final = 30
"""For this long after its certificate has expired, a site may still renew it by itself."""
DAY_S: Final = 86_400
_FORM: Final = 1


@dataclass(slots=True)
class TokenRecord:
    """`key_hash`: of the key for which the token was used. The same key may use it again until it expires, because the
    answer may have been lost."""

    secret_hash: str
    ends_s: int
    key_hash: str = ""


@dataclass(slots=True)
class CertificateRecord:
    """`serial` in hexadecimal digits; `hosts`: the names in the certificate other than the node's."""

    serial: str
    key_hash: str
    made_s: int
    ends_s: int
    hosts: list[str]
    pem: str
    revoked_s: int = 0


@dataclass(slots=True)
class Site:
    """`seen_s`: the time of its last request; `version`, `crl_number`, `software`, `problem`: from that request."""

    token: TokenRecord | None = None
    certificates: list[CertificateRecord] = field(default_factory=list)
    seen_s: int = 0
    version: int = 0
    crl_number: int = 0
    software: str = ""
    problem: str = ""

    def latest(self) -> CertificateRecord | None:
        """The newest certificate that is not revoked."""
        return next((each for each in reversed(self.certificates) if not each.revoked_s), None)

    def of_key(self, key_hash: str, now_s: float) -> CertificateRecord | None:
        """The valid certificate for this key."""
        good = (each for each in self.certificates if not each.revoked_s and each.ends_s > now_s)
        return next((each for each in good if each.key_hash == key_hash), None)


@dataclass(slots=True)
class Register:
    """`service`: HOST:PORT at which sites reach the fleet. `version`: of the current configuration. `crl_number`: of
    the revocation list."""

    service: str
    version: int = 0
    crl_number: int = 1
    sites: dict[str, Site] = field(default_factory=dict)

    def revoked(self) -> Iterator[CertificateRecord]:
        """The certificates that a revocation list must name."""
        for site in self.sites.values():
            yield from (each for each in site.certificates if each.revoked_s)

    def forget_ended(self, now_s: float) -> None:
        """Removes certificates that expired too long ago to be renewed."""
        oldest_s = now_s - LAPSED_DAYS_MAX * DAY_S
        for site in self.sites.values():
            site.certificates = [each for each in site.certificates if each.ends_s >= oldest_s]

    def as_json(self) -> str:
        return json.dumps({"v": _FORM, **asdict(self)}, ensure_ascii=False, indent=1)


def parse_register(text: str) -> Register:
    """Reads a register. ConfigError if it is invalid."""
    try:
        given = json.loads(text)
        form = given.pop("v")
        if form != _FORM:
            raise ConfigError(
                f"it has form {form!r}, and this version of Holdfast reads form {_FORM}; upgrade Holdfast"
            )
        sites = {name: _site(each) for name, each in given.pop("sites").items()}
        return Register(**given, sites=sites)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError("it is damaged; put back a copy of the fleet's directory") from None


def _site(given: dict[str, Any]) -> Site:
    token = given.pop("token")
    certificates = [CertificateRecord(**each) for each in given.pop("certificates")]
    return Site(token=None if token is None else TokenRecord(**token), certificates=certificates, **given)
