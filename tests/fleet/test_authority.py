"""What the authority of a fleet signs: names, uses and times are its own decision, of a request it takes the key."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import ConfigError
from holdfast.fleet import authority as ca
from holdfast.fleet.authority import Authority, Revoked, read_request

NOW_S = 1_796_000_000.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(*ca.new_authority(NOW_S))


def request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *, name: str = "root", ca_asked: bool = True) -> str:
    """One that asks for more than it is to have."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=ca_asked, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("hub.example")]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_a_node_has_the_name_and_uses_that_the_fleet_gives_it(authority: Authority) -> None:
    key = ca.new_key()
    made = authority.certify("ewr", ["10.0.0.1", "ewr.example"], read_request(request(key)), NOW_S)
    found = x509.load_pem_x509_certificate(made.pem.encode())
    assert found.subject.rfc4514_string() == "CN=ewr" and found.public_key() == key.public_key()
    found.verify_directly_issued_by(authority.certificate)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["10.0.0.1", "ewr.example"]
    uses = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    usage = found.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign
    assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(days=ca.NODE_DAYS) + ca.BACKDATED
    assert int(found.not_valid_after_utc.timestamp()) == made.ends_s
    other = authority.certify("ewr", [], read_request(request(key)), NOW_S)
    assert other.serial != made.serial and made.serial.bit_length() > 100, "random, and none can be guessed"


def test_the_authority_may_sign_certificates_of_nodes_and_of_nobody_that_signs(authority: Authority) -> None:
    extensions = authority.certificate.extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and constraints.value.ca and constraints.value.path_length == 0
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and usage.crl_sign and not usage.digital_signature


def test_the_service_is_no_client_of_nodes(authority: Authority) -> None:
    made = authority.certify_service(ca.new_key().public_key(), NOW_S)
    found = x509.load_pem_x509_certificate(made.pem.encode())
    uses = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_no_certificate_outlives_its_authority(authority: Authority) -> None:
    ends_s = authority.certificate.not_valid_after_utc.timestamp()
    made = authority.certify("ewr", [], read_request(request(ca.new_key())), ends_s - 86_400)
    assert made.ends_s == ends_s
    with pytest.raises(ConfigError, match="authority's certificate has ended; make a new fleet"):
        authority.certify("ewr", [], read_request(request(ca.new_key())), ends_s)


def test_a_list_names_what_is_revoked_and_holds_until_the_authority_ends(authority: Authority) -> None:
    text = authority.revocations([Revoked(77, int(NOW_S))], 3, NOW_S)
    found = x509.load_pem_x509_crl(text.encode())
    assert [entry.serial_number for entry in found] == [77]
    assert found.next_update_utc == authority.certificate.not_valid_after_utc
    assert found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 3
    assert found.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type]


def changed_request() -> str:
    """One whose signature does not fit, with another key than the one that signed."""
    good, other = (request(ca.new_key()) for _ in range(2))
    first = x509.load_pem_x509_csr(good.encode()).public_bytes(serialization.Encoding.DER)
    second = x509.load_pem_x509_csr(other.encode()).public_bytes(serialization.Encoding.DER)
    keys = [
        x509.load_der_x509_csr(form).public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        for form in (first, second)
    ]  # fmt: skip
    swapped = x509.load_der_x509_csr(first.replace(*keys))
    return swapped.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: "nonsense", "no signing request in PEM"),
        (lambda: "", "no signing request in PEM"),
        (lambda: request(ca.new_key()) + " " * ca.REQUEST_BYTES_MAX, "no signing request in PEM"),
        (changed_request, "no signing request in PEM"),
        (lambda: request(rsa.generate_private_key(65_537, 2_048)), "another kind than P-256"),
        (lambda: request(ec.generate_private_key(ec.SECP384R1())), "another kind than P-256"),
    ],
)
def test_a_request_that_is_none_is_refused_in_a_line(made: object, said: str) -> None:
    assert callable(made)
    with pytest.raises(ConfigError, match=said) as found:
        read_request(made())
    assert "\n" not in str(found.value)


def test_a_request_at_the_bound_is_read() -> None:
    text = request(ca.new_key())
    assert read_request(text + " " * (ca.REQUEST_BYTES_MAX - len(text))).key_hash
