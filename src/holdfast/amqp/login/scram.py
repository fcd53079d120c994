"""SCRAM, both roles: the client shows that it knows the password, and so does the server; nobody else learns it.
RFC 5802, RFC 7677; without channel binding, which the standard library offers for no TLS 1.3.

Rules of this file: nonces are passed in. A message of the peer is bounded before it is read, and an extension that is
mandatory ends the login. The client computes as often as the server says, up to ITERATIONS_MAX.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from hmac import compare_digest, digest
from typing import Final

from holdfast.amqp.login import keys
from holdfast.amqp.login.exchanges import Credentials, Known, Side, Unproven
from holdfast.amqp.login.keys import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, SALT_BYTES_MAX

MESSAGE_BYTES_MAX: Final = 2_048
NONCE_CHARACTERS_MAX: Final = 256
_NO_BINDING: Final = ("n", "y")
"""The client does not support channel binding, or thinks that the server does not. Both are acceptable."""


class Malformed(ValueError):
    """A message is not one of SCRAM."""


class ServerScram:
    """The server's side of one login."""

    def __init__(self, mechanism: str, side: Side) -> None:
        self.user: str | None = None
        self.evidence: bytes | None = None
        self._mechanism = mechanism
        self._side = side
        self._first = ""
        """Both sides' first messages, once the client's last message is expected; empty until then."""
        self._header = ""
        self._nonce = ""
        self._keys: keys.Keys | None = None

    def respond(self, response: bytes | None) -> bytes | bool:
        if response is None and not self._first:
            return b""
        try:
            text = _text(response or b"")
            return self._end(text) if self._first else self._begin(text)
        except Malformed:
            return False

    def _begin(self, text: str) -> bytes:
        flag, _, rest = text.partition(",")
        authorisation, _, bare = rest.partition(",")
        if flag not in _NO_BINDING or not bare:
            raise Malformed
        fields = _fields(bare, "nr")
        user, nonce = _name(fields["n"]), fields["r"]
        if not user or not _is_nonce(nonce) or authorisation not in ("", f"a={fields['n']}"):
            raise Malformed
        assert self._side.keys is not None and self._side.nonce
        self.user = user
        found = self._keys = self._side.keys(self._mechanism, user)
        self._header = f"{flag},{authorisation},"
        self._nonce = nonce + self._side.nonce
        answer = f"r={self._nonce},s={_b64(found.salt)},i={found.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def _end(self, text: str) -> bool:
        without_proof, comma, last = text.rpartition(",p=")
        fields = _fields(without_proof, "cr")
        header = _unb64(fields["c"])
        if not comma or header != self._header.encode() or fields["r"] != self._nonce:
            raise Malformed
        proof = _unb64(last)
        message = f"{self._first},{without_proof}".encode()
        offered = self._keys
        assert offered is not None

        def shown(known: Known) -> bool:
            return known.keys(self._mechanism) == offered and _fits(self._mechanism, offered, message, proof)

        if not self._side.authenticate(self._mechanism, self.user, shown):
            return False
        signature = digest(offered.server_key, message, HASHES[self._mechanism])
        self.evidence = f"v={_b64(signature)}".encode()
        return True


def _fits(mechanism: str, of: keys.Keys, message: bytes, proof: bytes) -> bool:
    signature = digest(of.stored_key, message, HASHES[mechanism])
    if len(proof) != len(signature):
        return False
    client_key = _xor(proof, signature)
    return compare_digest(keys.hashed(mechanism, client_key), of.stored_key)


class ClientScram:
    """The client's side of one login."""

    def __init__(self, mechanism: str, given: Credentials) -> None:
        self._mechanism = mechanism
        self._password = given.password or ""
        self._nonce = given.nonce
        user = (given.user or "").replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={user},r={given.nonce}"
        self._evidence: bytes | None = None
        """What the server must send at the end."""
        self._is_proven = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        try:
            if self._evidence is None:
                return self._answer(_text(challenge))
        except Malformed:
            raise Unproven("the challenge is not one of SCRAM") from None
        if self._is_proven:
            return None
        self._check(challenge)  # some servers say it before the outcome
        return b""

    def entered(self, evidence: bytes | None) -> None:
        if not self._is_proven:
            self._check(evidence)

    def _check(self, evidence: bytes | None) -> None:
        if self._evidence is None or evidence is None or not compare_digest(self._evidence, evidence):
            raise Unproven("the peer did not prove that it knows the password; do not trust it")
        self._is_proven = True

    def _answer(self, text: str) -> bytes:
        fields = _fields(text, "rsi")
        nonce, salt, count = fields["r"], _unb64(fields["s"]), fields["i"]
        if not (nonce.startswith(self._nonce) and len(nonce) > len(self._nonce) and _is_nonce(nonce)):
            raise Malformed
        if not (count.isascii() and count.isdigit() and len(count) < 10 and 0 < len(salt) <= SALT_BYTES_MAX):
            raise Malformed
        iterations = int(count)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            text = f"the peer asks for {iterations} iterations of {self._mechanism}"
            raise Unproven(f"{text}; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        without_proof = f"c={_b64(b'n,,')},r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        name = HASHES[self._mechanism]
        salted = keys.salted_again(self._mechanism, self._password, salt, iterations)
        client_key = keys.client_key(self._mechanism, salted)
        proof = _xor(client_key, digest(keys.hashed(self._mechanism, client_key), message, name))
        signature = digest(keys.server_key(self._mechanism, salted), message, name)
        self._evidence = f"v={_b64(signature)}".encode()
        return f"{without_proof},p={_b64(proof)}".encode()


# ------------------------------------------------------------------------------------------------------ messages


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX:
        raise Malformed
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed from None


def _fields(text: str, names: str) -> dict[str, str]:
    """The attributes that a message begins with, in that order; what follows is of extensions, and ignored."""
    parts = text.split(",")
    if len(parts) < len(names):
        raise Malformed
    found = {}
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            raise Malformed  # among others `m=`, an extension that must be understood
        found[name] = part[2:]
    return found


def _is_nonce(text: str) -> bool:
    """Printable ASCII without a comma, of a bounded length."""
    return 0 < len(text) <= NONCE_CHARACTERS_MAX and all("!" <= char <= "~" for char in text)


def _name(text: str) -> str:
    """A user, with comma and equals sign as they are (RFC 5802 §5.1)."""
    name = text.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name or "\0" in text:
        raise Malformed
    return name.replace("\0", "=")


def _b64(data: bytes) -> str:
    return b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (ValueError, NotBase64):
        raise Malformed from None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
