"""Enrolment tokens: an operator gives a site a token once, so that the site can ask for its certificate. Rules of this
file: pure, except for the random secret. The fleet stores only the secret's hash, and compares in constant time.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from typing import Final, NamedTuple

from holdfast.errors import ConfigError
from holdfast.names import HostPort, check_name, parse_host_port

SECRET_BYTES: Final = 20
"""160 bits cannot be guessed, so a plain hash is enough, without a salt and without many rounds."""
TOKEN_CHARACTERS_MAX: Final = 2_000
PREFIX: Final = "hf1."


class Token(NamedTuple):
    """The node that the site may become, once; the service's address; the authority's fingerprint."""

    node: str
    service: HostPort
    fingerprint: str
    secret: str

    def text(self) -> str:
        """The text form, for a message or a file: letters, digits, `-`, `_` and one dot."""
        fields = [self.node, str(self.service), self.fingerprint, self.secret]
        packed = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        check = hashlib.sha256(packed).digest()[:3]
        return PREFIX + base64.urlsafe_b64encode(check + packed).decode().rstrip("=")


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def secret_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def fits(secret: str, kept_hash: str) -> bool:
    """Whether the secret has this hash; takes the same time in either case."""
    return hmac.compare_digest(secret_hash(secret), kept_hash)


def parse_token(text: str) -> Token:
    """Reads a token. ConfigError if it is not a token, or was copied with a mistake."""
    wrong = ConfigError("the token is not one of `holdfast fleet token`, or not all of it; copy it again")
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > TOKEN_CHARACTERS_MAX:
        raise wrong
    body = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        check, packed = data[:3], data[3:]
        if check != hashlib.sha256(packed).digest()[:3]:
            raise wrong
        fields = json.loads(packed)
    except (ValueError, binascii.Error, RecursionError):
        raise wrong from None
    if not isinstance(fields, list) or len(fields) != 4 or not all(isinstance(field, str) for field in fields):
        raise wrong
    node, service, fingerprint, secret = fields
    return Token(check_name(node), parse_host_port("the token's service", service, port_min=1), fingerprint, secret)
