"""TLS of one connection, between the bytes of its socket and those of its peer.

Rules of this file: no socket and no loop; a peer that breaks TLS, or asks for more than a bound, ends its own
connection (`failure`). Session tickets of TLS 1.3 and renegotiation are off (certificates.py). Source: RFC 8446,
RFC 5246.
"""

import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.node.network.der import Issued, issued
from holdfast.tls_alerts import explain

HANDSHAKE_BYTES_MAX: Final = 128 * 1024
"""What a peer may say before the handshake is over: its certificates."""
ANSWERS_BYTES_MAX: Final = 64 * 1024
"""Of answers to what a peer says within TLS (new keys), which it does not read."""
READ_BYTES: Final = 256 * 1024
NAME_CHARACTERS_MAX: Final = 200

NOT_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"))
"""What OpenSSL makes of bytes that are none of TLS."""
_CLOSED: Final = "the peer has closed it"


class Encryption:
    """One side's. After each call `take_output` has what is to be written to the socket.

    `established`: the handshake is over, and so is the peer's name checked where it has to be. `failure`: why nothing
    more can be read or written; `ended`: the peer has said that it sends no more.
    """

    __slots__ = (
        "_answers_bytes", "_handshake_bytes", "_incoming", "_is_revoked", "_object", "_outgoing", "_shown", "_waiting",
        "certificate", "ended", "established", "failure", "version",
    )  # fmt: skip

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server: bool,
        server_name: str | None = None,
        is_revoked: Callable[[Issued], bool] = lambda certificate: False,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server, server_hostname=server_name)
        self._waiting: list[bytes | memoryview] = []
        """Written before the handshake was over."""
        self._is_revoked = is_revoked
        self._shown: Issued | None = None
        """The peer's certificate."""
        self._handshake_bytes = 0
        self._answers_bytes = 0
        self.established = False
        self.failure: str | None = None
        self.ended = False
        self.certificate: str | None = None
        """The name in the peer's certificate, once it is established; None where it gave none."""
        self.version = ""

    def start(self) -> None:
        """A client's first flight; a server has nothing to say yet."""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """What the peer said, of these bytes of the socket."""
        if self.failure is not None or self.ended:
            return b""
        self._incoming.write(data)
        if not self.established:
            self._handshake_bytes += len(data)
            self._shake_hands()
            if not self.established:
                if self._handshake_bytes > HANDSHAKE_BYTES_MAX and self.failure is None:
                    self.failure = f"TLS: more than {HANDSHAKE_BYTES_MAX} bytes of handshake"
                return b""
        return self._read()

    def send(self, chunks: Iterable[bytes | memoryview]) -> None:
        """Encrypts the chunks; what is sent before the handshake is over waits for its end."""
        if not self.established:
            self._waiting.extend(chunks)
            return
        try:
            self._object.write(b"".join(chunks))
        except ssl.SSLError as error:
            self._fail(error)

    def close(self) -> None:
        """Says that nothing more comes."""
        if self.established and self.failure is None:
            try:
                self._object.unwrap()
            except ssl.SSLError:
                pass  # that of the peer is still to come, and not waited for

    def take_output(self) -> bytes:
        """The bytes for the socket; empty if there are none."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def answered(self, size: int, unsent_bytes: int) -> None:
        """So many bytes were answered to what the peer said; `unsent_bytes`: what it has not read of all output."""
        self._answers_bytes = size if unsent_bytes <= size else self._answers_bytes + size
        if self._answers_bytes > ANSWERS_BYTES_MAX and self.failure is None:
            self.failure = "TLS: the peer asks and does not read the answers"

    def check_revoked(self) -> None:
        """Ends it if the peer's certificate is revoked now."""
        if self._shown is not None and self.failure is None and self._is_revoked(self._shown):
            self.failure = f"TLS: the peer's certificate is revoked (serial number {self._shown.serial:x})"

    def _shake_hands(self) -> None:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        shown = self._object.getpeercert(binary_form=True)
        if shown is not None:
            self._shown = issued(shown)  # OpenSSL has read it: it is a certificate
            self.check_revoked()
            if self.failure is not None:
                return
        self.established = True
        self.version = self._object.version() or ""
        self.certificate = name_of(self._object.getpeercert())
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.send(waiting)

    def _read(self) -> bytes:
        parts = []
        try:
            while part := self._object.read(READ_BYTES):
                parts.append(part)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fail(self, error: ssl.SSLError) -> None:
        if self.failure is None:
            self.failure = describe(error)


def describe(error: ssl.SSLError) -> str:
    """In a few words, without OpenSSL's own for where in its source it was."""
    distrust = getattr(error, "verify_message", None)
    if distrust:
        return f"TLS: the peer's certificate is not trusted: {distrust}"
    reason = str(error.reason or _CLOSED)
    if reason in NOT_TLS:
        return "TLS: the peer does not speak TLS"
    return f"TLS: {explain(reason)}"


def name_of(certificate: dict[str, Any] | None) -> str | None:
    """Whose certificate it is: the common name of its subject, if there is just one; without one, its only DNS name."""
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if not names:
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    if len(names) != 1 or not names[0].isprintable() or not 0 < len(names[0]) <= NAME_CHARACTERS_MAX:
        return None
    return str(names[0])
