"""Tokens: what is copied with a mistake is told at once, and of a secret only a hash is kept."""

import pytest

from holdfast.errors import ConfigError
from holdfast.fleet import tokens
from holdfast.fleet.tokens import Token, parse_token
from holdfast.names import HostPort

TOKEN = Token("flug/ü", HostPort("fleet.example", 5670), "ab" * 32, tokens.new_secret())


def test_a_token_comes_back_as_it_was() -> None:
    text = TOKEN.text()
    assert parse_token(f" {text}\n") == TOKEN
    assert text.isascii() and " " not in text


@pytest.mark.parametrize("place", range(0, 120, 7))
def test_a_mistake_in_any_place_is_told(place: int) -> None:
    text = TOKEN.text()
    other = "A" if text[place] != "A" else "B"
    with pytest.raises(ConfigError, match="not one of `holdfast fleet token`, or not all of it; copy it again"):
        parse_token(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    "text", ["", "hf1.", "hf1.AAAA", "hf2.AAAA", "hf1." + "A" * 2_000, "hf1.Äß", TOKEN.text()[:-4]]
)
def test_what_is_no_token_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="copy it again"):
        parse_token(text)


def test_a_secret_is_known_by_its_hash_alone() -> None:
    secret, other = tokens.new_secret(), tokens.new_secret()
    kept = tokens.secret_hash(secret)
    assert secret not in kept and len(secret) >= 26
    assert tokens.fits(secret, kept) and not tokens.fits(other, kept) and not tokens.fits("", kept)
    assert not tokens.fits("\ud800", kept)
