"""The keys that SCRAM stores for a password; they allow neither a login nor finding the password. RFC 5802 §3, RFC
7677.

Rules of this file: pure; salts are passed in. Deriving keys takes milliseconds on purpose: whoever lets a peer cause it
bounds how often.
"""

from functools import lru_cache
from hashlib import new, pbkdf2_hmac
from hmac import compare_digest, digest
from typing import Final, NamedTuple

from holdfast.amqp.login.saslprep import prepared

SHA_256: Final = "SCRAM-SHA-256"
SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final = {SHA_512: "sha512", SHA_256: "sha256"}
"""By mechanism, the better one first."""
ITERATIONS: Final = 10_000
"""For new keys. RFC 7677 asks for at least 4,096; more slow down an attacker who has stolen the keys, but also each
login."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 100_000
"""The maximum that a client accepts: it computes as many iterations as the server says, and is blocked meanwhile."""
SALT_BYTES: Final = 16
SALT_BYTES_MAX: Final = 128
SALTED_MAX: Final = 64
KEPT_MAX: Final = 4_096
"""How many derived keys of plain-text passwords are cached; beyond that they are derived again."""


class Keys(NamedTuple):
    """The keys of one password and one hash. `server_key` proves to a client that the server knows it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Keys(iterations={self.iterations})"


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword: the slow part."""
    return pbkdf2_hmac(HASHES[mechanism], prepared(password), salt, iterations)


@lru_cache(maxsize=SALTED_MAX)
def salted_again(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The same, cached: for a client that logs in often at servers whose salts stay the same, such as a node's
    neighbours."""
    return salted(mechanism, password, salt, iterations)


def client_key(mechanism: str, salted_password: bytes) -> bytes:
    """ClientKey: anyone who has it can log in."""
    return digest(salted_password, b"Client Key", HASHES[mechanism])


def server_key(mechanism: str, salted_password: bytes) -> bytes:
    """ServerKey."""
    return digest(salted_password, b"Server Key", HASHES[mechanism])


def hashed(mechanism: str, key: bytes) -> bytes:
    """H(key): StoredKey, of a ClientKey."""
    return new(HASHES[mechanism], key).digest()


def derive(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> Keys:
    """The keys of a password."""
    whole = salted(mechanism, password, salt, iterations)
    return Keys(salt, iterations, hashed(mechanism, client_key(mechanism, whole)), server_key(mechanism, whole))


def fits(mechanism: str, keys: Keys, password: str) -> bool:
    """Whether the keys are of that password."""
    found = derive(mechanism, password, keys.salt, keys.iterations)
    return compare_digest(found.stored_key, keys.stored_key)


class Clear(NamedTuple):
    """A password in plain text, for example from a file of the node; `salt` is for SCRAM."""

    password: str
    salt: bytes = bytes(SALT_BYTES)

    def __repr__(self) -> str:
        return "Clear()"

    def verify(self, password: str) -> bool:
        """Whether it is that password."""
        return compare_digest(self.password.encode(), password.encode())

    def keys(self, mechanism: str) -> Keys:
        """The keys for SCRAM."""
        return _derived(mechanism, self.password, self.salt)


@lru_cache(maxsize=KEPT_MAX)
def _derived(mechanism: str, password: str, salt: bytes) -> Keys:
    return derive(mechanism, password, salt)
