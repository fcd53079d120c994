"""TLS for the raw load and its peers: a certificate made for the run by openssl, and a socket that speaks it.

Rules of this file: the load's socket is read and written as a plain one is, without waiting where MSG_DONTWAIT says so.
"""

import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAME = "localhost"


class TlsMissing(Exception):
    """There is no openssl program; the text says what would bring it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate that signs itself, so that it is its own authority, and its key; PEM."""

    certificate: Path
    key: Path


NO_IDENTITY = Identity(Path(), Path())
"""In the place of one, where only names are checked."""


def make_identity(directory: Path) -> Identity:
    """A new one: ECDSA with P-256, for this machine's loopback. Raises TlsMissing."""
    if shutil.which("openssl") is None:
        raise TlsMissing("openssl is not installed: apt-get install openssl")
    directory.mkdir(parents=True, exist_ok=True)
    made = Identity(directory / "peer.pem", directory / "peer.key")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1",
            "-keyout", str(made.key), "-out", str(made.certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return made


class TlsSocket:
    """A connected socket with TLS on it; the handshake is over."""

    def __init__(self, plain: socket.socket, ca_file: str) -> None:
        context = ssl.create_default_context(cafile=ca_file)
        context.set_alpn_protocols(["amqp"])
        self._socket = context.wrap_socket(plain, server_hostname=NAME)

    @property
    def cipher(self) -> str:
        """Version and cipher, for the report."""
        found = self._socket.cipher()
        return "" if found is None else f"{found[1]} {found[0]}"

    @property
    def pending(self) -> bool:
        """Whether bytes are decrypted and not read yet, which a poll does not see."""
        return self._socket.pending() > 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def setblocking(self, blocking: bool) -> None:
        self._socket.setblocking(blocking)

    def recv(self, most: int) -> bytes:
        return self._socket.recv(most)

    def recv_into(self, view: memoryview, most: int = 0, flags: int = 0) -> int:
        """As a plain socket, but as many records as fit: what TLS holds decrypted, select() does not see."""
        self._socket.setblocking(not flags & socket.MSG_DONTWAIT)
        done = 0
        while done < len(view):
            try:
                count = self._socket.recv_into(view[done:])
            except ssl.SSLWantReadError:
                break
            done += count
            if count == 0 or not flags & socket.MSG_DONTWAIT:
                return done
        if not done:
            raise BlockingIOError
        return done

    def send(self, data: memoryview, flags: int = 0) -> int:
        """Bytes written; what is refused must be offered again as it is, as the load does."""
        self._socket.setblocking(not flags & socket.MSG_DONTWAIT)
        try:
            return self._socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def sendall(self, data: bytes | memoryview) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()


def cipher_of(host: str, port: int, ca_file: str | None) -> str | None:
    """Version and cipher that a peer and the load agree on; None without TLS."""
    if ca_file is None:
        return None
    one = TlsSocket(socket.create_connection((host, port), timeout=10.0), ca_file)
    try:
        return one.cipher
    finally:
        one.close()
