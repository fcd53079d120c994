"""What a node keeps of a user's password: keys of SCRAM, against which every mechanism with a password is checked.

Rules of this file: pure; salts are passed in. Nothing here shows a key or a password, but `as_text`, which is for a
file that only the node's user may read.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Final

from holdfast.amqp.login import keys
from holdfast.amqp.login.keys import HASHES, ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES, SHA_256, SHA_512
from holdfast.errors import ConfigError

TEXT_CHARACTERS_MAX: Final = 1_024
"""Of `as_text`; it has about 400."""
_BYTES: Final = {SHA_256: 32, SHA_512: 64}


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """Keys of one password, for each hash. `verify` takes milliseconds of processor time on purpose: the caller bounds
    how often a peer can cause it."""

    sha256: keys.Keys
    sha512: keys.Keys

    def __repr__(self) -> str:
        return "Credential()"

    def keys(self, mechanism: str) -> keys.Keys:
        """What the server's side of that mechanism of SCRAM needs."""
        return self.sha512 if mechanism == SHA_512 else self.sha256

    def verify(self, password: str) -> bool:
        """Whether it is the password, for PLAIN."""
        return keys.fits(SHA_256, self.sha256, password)

    def as_text(self) -> str:
        """One line without blanks, which `parse` reads."""
        return ",".join(_text(mechanism, self.keys(mechanism)) for mechanism in (SHA_256, SHA_512))


def make(password: str, salt: bytes, *, iterations: int = ITERATIONS) -> Credential:
    """The credential of a password. `salt`: SALT_BYTES random bytes, used for this alone."""
    if len(salt) < SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes; expected at least {SALT_BYTES}")
    return Credential(
        keys.derive(SHA_256, password, salt, iterations), keys.derive(SHA_512, password, salt, iterations)
    )


def parse(text: str) -> Credential:
    """Reads `as_text`. ConfigError, which shows nothing of it, for any other text."""
    parts = text.split(",")
    if len(text) > TEXT_CHARACTERS_MAX or len(parts) != 2:
        raise _invalid()
    return Credential(_keys(SHA_256, parts[0]), _keys(SHA_512, parts[1]))


def _text(mechanism: str, of: keys.Keys) -> str:
    """As RFC 5803 has it, and other servers write it: MECHANISM$ITERATIONS:SALT$STORED_KEY:SERVER_KEY."""
    salt, stored, server = (b64encode(item).decode() for item in (of.salt, of.stored_key, of.server_key))
    return f"{mechanism}${of.iterations}:{salt}${stored}:{server}"


def _keys(mechanism: str, text: str) -> keys.Keys:
    try:
        name, parameters, values = text.split("$")
        count, salt_text = parameters.split(":")
        salt, stored, server = (b64decode(item, validate=True) for item in (salt_text, *values.split(":")))
    except (ValueError, NotBase64):
        raise _invalid() from None
    iterations = int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0
    size = _BYTES[mechanism]
    if name != mechanism or not 1 <= len(salt) <= keys.SALT_BYTES_MAX or (len(stored), len(server)) != (size, size):
        raise _invalid()
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        text = f"invalid credential with {count[:20]!r} iterations"
        raise ConfigError(f"{text}; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return keys.Keys(salt, iterations, stored, server)


def _invalid() -> ConfigError:
    form = "$ITERATIONS:SALT$STORED_KEY:SERVER_KEY"
    return ConfigError(f"invalid credential; expected {','.join(f'{name}{form}' for name in sorted(HASHES))}")
