"""What a node needs to speak TLS: the names of its files (docs/security.md, `[tls]`).

Rules of this file: names, and whether there are such files; they are read in `network/certificates.py`, at start and
when they change.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError
from holdfast.regular_files import check_regular

CLIENT_CERTIFICATES: Final = ("none", "optional", "required")
VERSIONS: Final = ("1.2", "1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files. `certificate`: the node's own, with those between it and its authority; `key` None: it is in the same
    file. `authorities`: who may have signed the certificates of clients and neighbours; None: those that this machine
    trusts. `revoked`: the lists of those that they have revoked. `client_certificates`: whether a peer that comes to us
    is asked for one. `version_min`: of TLS."""

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
    revoked: Path | None = None
    client_certificates: str = "none"
    version_min: str = "1.2"

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        for key, value, choices in (
            ("client_certificates", self.client_certificates, CLIENT_CERTIFICATES),
            ("version_min", self.version_min, VERSIONS),
        ):
            if value not in choices:
                raise ConfigError(f"invalid value {value!r} for tls {key}; expected one of {', '.join(choices)}")
        if self.key is not None and self.certificate is None:
            raise ConfigError("tls has key_file without certificate_file; give both")
        if self.client_certificates != "none" and self.authorities is None:
            text = f"tls client_certificates is {self.client_certificates!r} without ca_file"
            raise ConfigError(f"{text}; name the authorities that sign the clients' certificates")

    def check_readable(self) -> None:
        """Raises ConfigError that names the key, also where TLS is not spoken yet."""
        for key, path in self.named:
            try:
                check_regular(path)
            except OSError as error:
                text = f"tls {key} {path} cannot be used ({error.strerror})"
                raise ConfigError(f"{text}; expected a readable file in PEM") from None

    @property
    def named(self) -> tuple[tuple[str, Path], ...]:
        """The files by key."""
        listed = (
            ("certificate_file", self.certificate), ("key_file", self.key), ("ca_file", self.authorities),
            ("crl_file", self.revoked),
        )  # fmt: skip
        return tuple((key, path) for key, path in listed if path is not None)


NO_TLS: Final = TlsFiles()
