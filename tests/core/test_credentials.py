"""What is kept of a password: keys as other programs make them, and a text that can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.login import keys
from holdfast.amqp.login.saslprep import prepared
from holdfast.errors import ConfigError
from holdfast.peers import credentials
from holdfast.peers.credentials import Credential

SALT = bytes(range(16))
MADE = credentials.make("pencil", SALT, iterations=4_096)


def test_a_password_fits_its_own_credential_alone() -> None:
    assert MADE.verify("pencil")
    assert not MADE.verify("Pencil") and not MADE.verify("") and not MADE.verify("pencil ")


def test_the_text_is_read_back_and_nothing_shows_the_keys() -> None:
    text = MADE.as_text()
    assert credentials.parse(text) == MADE and text.isascii() and text.isprintable() and " " not in text
    for shown in (repr(MADE), repr(MADE.sha256), str(MADE.sha512), f"{MADE}"):
        assert "pencil" not in shown and MADE.sha256.stored_key.hex() not in shown and "\\x" not in shown


@given(st.text(max_size=200))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^invalid credential"):
        credentials.parse(text)


@given(st.data())
def test_a_text_with_a_character_changed_is_refused_or_another_credential(data: st.DataObject) -> None:
    text = MADE.as_text()
    at = data.draw(st.integers(0, len(text) - 1))
    other = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        found: Credential | None = credentials.parse(other)
    except ConfigError as error:
        found = None
        assert "\n" not in str(error)
    assert other == text or found != MADE or found is None


@pytest.mark.parametrize(("iterations", "fits"), [(4_095, False), (4_096, True), (100_000, True), (100_001, False)])
def test_the_bounds_of_iterations(iterations: int, fits: bool) -> None:
    text = MADE.as_text().replace("$4096:", f"${iterations}:")
    if fits:
        assert credentials.parse(text).sha256.iterations == iterations
    else:
        with pytest.raises(ConfigError, match="iterations; expected 4096 to 100000"):
            credentials.parse(text)


def test_a_salt_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 16"):
        credentials.make("pencil", SALT[:15])


def test_keys_are_those_of_rfc_7677() -> None:
    """Its example (§3): the client's proof, from the keys of `pencil`, is the one that it has."""
    from base64 import b64decode
    from hmac import digest

    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    first = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"{first},r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    found = keys.derive(keys.SHA_256, "pencil", salt, 4_096)
    signature = digest(found.stored_key, message, "sha256")
    assert keys.hashed(keys.SHA_256, bytes(a ^ b for a, b in zip(proof, signature, strict=True))) == found.stored_key
    assert digest(found.server_key, message, "sha256") == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("typed", "same_as"),
    [
        ("I\u00adX", "IX"),  # RFC 4013 §3: the soft hyphen is mapped to nothing
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007\u00e9", "\u0007\u00e9"),  # not allowed: used as it is
        ("\u0627\u0031", "\u0627\u0031"),
        ("e\u0301", "\u00e9"),
    ],
)
def test_one_form_of_a_password(typed: str, same_as: str) -> None:
    assert prepared(typed) == same_as.encode()
