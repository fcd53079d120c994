"""The authority of a fleet: its key, and what it signs: certificates of nodes and of the service, revocation lists, and
what sites are given.

Rules of this file: no files and no clock; of a request it uses only the public key, so the requester has no influence
on names, uses or times. Source: RFC 5280.
"""

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import ConfigError

AUTHORITY_DAYS: Final = 3_650
NODE_DAYS: Final = 90
SERVICE_DAYS: Final = 30
"""The lifetime of the service's certificate. The service makes a new one at each start, and daily."""
BACKDATED: Final = timedelta(days=1)
"""A certificate is valid from this long before it was made, because sites' clocks may be wrong."""
SERVICE_NAME: Final = "holdfast-fleet"
"""The name in the certificate of the enrolment service. No node may have it."""
REQUEST_BYTES_MAX: Final = 8 * 1024
NAME_BYTES_MAX: Final = 64
"""The maximum size of a common name in UTF-8 (RFC 5280, appendix A.1: ub-common-name)."""


class Certificate(NamedTuple):
    """A certificate that was signed: in PEM; its serial number; its expiry, in seconds since 1970; the `key_hash` of
    its key."""

    pem: str
    serial: int
    ends_s: int
    key_hash: str


class Revoked(NamedTuple):
    serial: int
    at_s: int


class Request(NamedTuple):
    """A verified signing request: it is signed by the key that it is for."""

    public_key: ec.EllipticCurvePublicKey
    key_hash: str


def read_request(pem: str) -> Request:
    """Reads a signing request. ConfigError if this authority does not sign such a request."""
    try:
        if len(pem) > REQUEST_BYTES_MAX:
            raise ValueError
        request = x509.load_pem_x509_csr(pem.encode())
        key = request.public_key()
        if not request.is_signature_valid:
            raise ValueError
    except (ValueError, InvalidSignature):
        raise ConfigError("the request is no signing request in PEM; make it with `holdfast fleet request`") from None
    except Exception as error:  # an algorithm that the library does not know
        raise ConfigError(
            f"the request cannot be read ({type(error).__name__}); make it with `holdfast fleet request`"
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError("the request has a key of another kind than P-256; make it with `holdfast fleet request`")
    return Request(key, key_hash(key))


def key_hash(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the public key in DER, in hexadecimal digits."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, form))
    return digest.finalize().hex()


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    encryption = (
        serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def read_key(pem: bytes, passphrase: bytes | None) -> ec.EllipticCurvePrivateKey:
    """ValueError where it is none, TypeError where it has a passphrase and none is given, or has none;
    UnsupportedAlgorithm for one of another kind."""
    key = serialization.load_pem_private_key(pem, passphrase)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UnsupportedAlgorithm("no P-256")
    return key


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def fingerprint(authority: x509.Certificate) -> str:
    """SHA-256 of an authority's certificate, in hexadecimal digits, by which sites recognise it."""
    return authority.fingerprint(hashes.SHA256()).hex()


def new_authority(now_s: float) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key, and its self-signed certificate. Each authority has a unique name, because revocation lists name it."""
    key = new_key()
    name = f"holdfast fleet {key_hash(key.public_key())[:16]}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = _time(now_s)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - BACKDATED)
        .not_valid_after(made + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


class Authority:
    """Signs with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @property
    def pem(self) -> str:
        return pem_of(self.certificate)

    def certify(
        self, node: str, hosts: Iterable[str], request: Request, now_s: float, days: int = NODE_DAYS
    ) -> Certificate:
        """A node's certificate: for both sides of TLS, with the node's name as common name, and with the hosts at which
        other nodes connect to it."""
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._certify(node, hosts, request.public_key, uses, now_s, days)

    def certify_service(self, key: ec.EllipticCurvePublicKey, now_s: float) -> Certificate:
        """The certificate of the enrolment service."""
        return self._certify(SERVICE_NAME, [SERVICE_NAME], key, [ExtendedKeyUsageOID.SERVER_AUTH], now_s, SERVICE_DAYS)

    def revocations(self, revoked: Iterable[Revoked], number: int, now_s: float) -> str:
        """The revocation list, in PEM. It is valid until the authority expires, so that a site that gets no newer list
        for months can continue with the one it has."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(_time(now_s) - BACKDATED)
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(self._identifier(), critical=False)
        )
        for serial, at_s in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_time(at_s)).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, data: bytes) -> bytes:
        """A signature that proves to a site that a text came from its fleet."""
        return self._key.sign(data, ec.ECDSA(hashes.SHA256()))

    def _certify(
        self,
        name: str,
        hosts: Iterable[str],
        key: ec.EllipticCurvePublicKey,
        uses: list[x509.ObjectIdentifier],
        now_s: float,
        days: int,
    ) -> Certificate:
        made = _time(now_s)
        ends = min(made + timedelta(days=days), self.certificate.not_valid_after_utc)
        if ends <= made:
            raise ConfigError("the authority's certificate has ended; make a new fleet with `holdfast fleet init`")
        serial = x509.random_serial_number()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self.certificate.subject)
            .public_key(key)
            .serial_number(serial)
            .not_valid_before(made - BACKDATED)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._identifier(), critical=False)
        )
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        return Certificate(pem, serial, int(ends.timestamp()), key_hash(key))

    def _identifier(self) -> x509.AuthorityKeyIdentifier:
        own = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), timezone.utc)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host if host.isascii() else host.encode("idna").decode())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
