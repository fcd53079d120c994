"""The authorities that the client trusts and the certificate that it shows, if the URL begins with amqps://.

Rules of this file: a file that cannot be used is a ConfigError of one line; `ssl` is loaded for TLS alone.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.client.network.url import Url
from holdfast.client.network.wire import describe
from holdfast.errors import ConfigError
from holdfast.names import host_problem
from holdfast.regular_files import check_regular, read_regular
from holdfast.units import MIB

if TYPE_CHECKING:
    import ssl

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, as the node has them."""


class Tls(NamedTuple):
    """What a connection with TLS needs. `server_name`: the name that the node's certificate must have. `identified`:
    the node may be shown a certificate."""

    context: "ssl.SSLContext"
    server_name: str
    identified: bool


def tls_of(
    place: Url,
    *,
    ca_file: str | Path | None,
    certificate_file: str | Path | None,
    key_file: str | Path | None,
    server_name: str | None,
) -> Tls | None:
    """None for a URL without TLS. Raises ConfigError for files that cannot be used, or that TLS is missing for."""
    given = {
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "server_name": server_name,
    }
    for key, value in given.items():
        if value is not None and not place.tls:
            raise ConfigError(f"{key} {value} is for amqps://, not for {place}; remove it, or connect to amqps://")
    if not place.tls:
        return None
    if key_file is not None and certificate_file is None:
        raise ConfigError(f"key_file {key_file} is given without certificate_file; give both")
    if server_name is not None and (problem := host_problem(server_name)):
        text = f"invalid value {server_name[:80]!r} for server_name, with {problem}"
        raise ConfigError(f"{text}; expected the name in the node's certificate")
    context = _context(ca_file, certificate_file, key_file)
    return Tls(context, server_name or place.host, certificate_file is not None)


def _context(
    ca_file: str | Path | None, certificate_file: str | Path | None, key_file: str | Path | None
) -> "ssl.SSLContext":
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["amqp"])
    try:
        if ca_file is None:
            context.load_default_certs()
        else:
            check_regular(Path(ca_file))  # OpenSSL would wait for the writer of a pipe, whatever the signal
            context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ca_file {ca_file} cannot be read ({describe(error)}); give a PEM file") from None
    if certificate_file is not None:
        _identify(context, certificate_file, key_file)
    return context


def _identify(context: "ssl.SSLContext", certificate_file: str | Path, key_file: str | Path | None) -> None:
    for name, path in (("certificate_file", certificate_file), ("key_file", key_file)):
        try:
            if path is not None:
                check_regular(Path(path))
        except OSError as error:
            raise ConfigError(f"{name} {path} cannot be read ({describe(error)}); give a PEM file") from None
    try:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:
        where = f"certificate_file {certificate_file}" + ("" if key_file is None else f" with key_file {key_file}")
        text = f"{where} cannot be used ({_missing_part(certificate_file, key_file) or describe(error)})"
        raise ConfigError(f"{text}; give a certificate and its key, without a password, in PEM") from None


def _missing_part(certificate_file: str | Path, key_file: str | Path | None) -> str:
    """Which of certificate and key is missing or unreadable; empty if both are there."""
    holds_key = certificate_file if key_file is None else key_file
    for what, mark, path in (("certificate", b"CERTIFICATE", certificate_file), ("key", b"PRIVATE KEY", holds_key)):
        try:
            content, _ = read_regular(Path(path), MIB)
        except OSError as error:
            return f"{path}: {error.strerror}"
        if mark + b"-----" not in content:
            return f"there is no {what} in {path}"
    return ""


def _no_password() -> str:
    """OpenSSL would ask on the terminal."""
    raise ValueError("the key has a password")
