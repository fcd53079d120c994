"""The node's certificates: reads them at start, and again when their files change, and makes each connection's TLS.

Rules of this file: a connection keeps what it began with; files that cannot be used change nothing, and are logged
once. What is told of them is of what is used, and not of what the files have. While the node runs, files are looked at
and read in threads.
"""

import asyncio
import binascii
import logging
import os
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.certificate_validity import fault_of
from holdfast.engine.events import CertificateRead
from holdfast.errors import ConfigError
from holdfast.node.config import NodeSettings
from holdfast.node.network.der import FILE_BYTES_MAX, Issued, validity
from holdfast.node.network.encryption import Encryption
from holdfast.node.network.revocation import read_revoked
from holdfast.node.tls import TlsFiles
from holdfast.node.watching import Watch
from holdfast.regular_files import check_regular, read_regular

LOOK_S: Final = 5.0
"""How often the files are looked at."""
AGAIN_S: Final = 600.0
"""How long files that cannot be used are not read again while they look the same: a long list takes seconds. A disk
that has failed once is tried again after that."""
SESSIONS_MAX: Final = 1_000
"""Sessions of TLS 1.2 that OpenSSL keeps for a context; past so many a new context takes its place at the next look."""
ALPN: Final = ["amqp"]
"""What both sides say that they speak (RFC 7301)."""
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those with forward secrecy and authenticated encryption; TLS 1.3 has no others."""

_PEM: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END ")

_log = logging.getLogger(__name__)
_State = tuple[tuple[int, ...] | None, ...]
"""Of each file what differs if it is written, or if it may be read by others than before."""
_Content = tuple[tuple[bytes | None, ...], frozenset[Issued]]
"""A hash of each file except crl_file, and the certificates that crl_file revokes: rewriting a list with a new date is
no change."""


class Made(NamedTuple):
    """The contexts that files of that state make, None for a side that is not needed. `content`: equal if the files
    were only written again. `own`: of the certificate that they show."""

    files: TlsFiles
    state: _State
    content: _Content
    server: ssl.SSLContext | None
    client: ssl.SSLContext | None
    own: CertificateRead

    @property
    def revoked(self) -> frozenset[Issued]:
        return self.content[1]


class PreparedCertificates(NamedTuple):
    """Files that can be used: `use` has new connections use them. `own`: of the certificate that they show."""

    use: Callable[[], None]
    own: CertificateRead

    def fault(self) -> str:
        """Why others refuse that certificate now, for a person; empty if its dates are no reason."""
        return _fault_now(self.own)


class Problem(NamedTuple):
    """Why those files cannot be used; empty if they can be used again, and are as when they were read last."""

    files: TlsFiles
    text: str


class Certificates:
    """The contexts made of `files`. Raises ConfigError if they cannot be read. `serves`, `dials`: which it is used for;
    a node without a certificate cannot serve."""

    def __init__(self, files: TlsFiles, *, serves: bool, dials: bool) -> None:
        self._serves = serves
        self._used = _made(files, serves=serves, dials=dials)
        """What new connections use."""
        self._watch: Watch[Made | Problem] | None = None
        self._problem = ""
        """Why the files could not be used at the last look."""
        self._failed: tuple[TlsFiles, _State] | None = None
        """The files that could not be used, as they were then."""
        self._failed_at = 0.0
        self._told = CertificateRead()
        self.tell: Callable[[CertificateRead], None] = lambda told: None
        """Called when there is another certificate to tell of, or another problem with the files."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the content of what is used differs from before: who was trusted may be revoked."""

    def accepted(self) -> Encryption:
        """TLS of a connection that came to us."""
        context = self._used.server
        assert context is not None
        return Encryption(context, server=True, is_revoked=self._is_revoked)

    def dialled(self, server_name: str) -> Encryption:
        """TLS of a connection to a neighbour, whose certificate must have that name."""
        context = self._used.client
        assert context is not None
        return Encryption(context, server=False, server_name=server_name, is_revoked=self._is_revoked)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tells of the certificate that is used, and begins to watch the files."""
        self._tell("")
        self._watch = Watch(loop, "holdfast-certificates", LOOK_S, self.look, self.use)
        self._watch.start()

    def close(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            self._watch.close()

    def look(self) -> Made | Problem | None:
        """Returns for `use` what the files make, if they have changed or if a new context is due; a Problem, if they
        cannot be used for another reason than at the last look, or can be used again, unchanged; None if there is
        nothing new. It may be called in any thread."""
        used, before = self._used, self._problem
        state = _state_of(used.files)
        if state == used.state and not _is_full(used.server):
            self._problem, self._failed = "", None
            return Problem(used.files, "") if before else None
        if self._failed == (used.files, state) and time.monotonic() < self._failed_at + AGAIN_S:
            return None
        try:
            made = _made(used.files, serves=used.server is not None, dials=used.client is not None)
        except ConfigError as error:  # perhaps half of them are written: they are read again until they fit
            self._problem = str(error)
            self._failed, self._failed_at = (used.files, state), time.monotonic()
            if self._problem == before:
                return None
            _log.error("%s; the previous certificates are used until the files are corrected", error)
            return Problem(used.files, self._problem)
        self._problem, self._failed = "", None
        return made

    def use(self, made: Made | Problem) -> None:
        """Uses for new connections what `look` has returned, and reports the certificate. A Problem is reported, and
        nothing is used of its files. Ignored if other files were configured since the look."""
        used = self._used
        if made.files is not used.files:
            return
        if isinstance(made, Problem):
            self._tell(made.text)
            return
        self._used = made
        self._tell("")
        if made.content != used.content:
            _log.info("TLS: the certificates have changed; new connections use them")
            if fault := _fault_now(made.own):
                _log.warning("%s", fault)
            self.changed()

    def have_changed(self) -> bool:
        """Whether the content of the files differs from what is used. It may be called in any thread."""
        used = self._used
        if _state_of(used.files) == used.state:
            return False
        try:
            return _content_of(used.files) != used.content
        except ConfigError:
            return True

    @property
    def own(self) -> CertificateRead:
        """Of the certificate that is shown."""
        return self._used.own

    def prepare(self, files: TlsFiles, *, dials: bool) -> PreparedCertificates:
        """Reads those files, which may be others than before. Raises ConfigError if they cannot be used. It may be
        called in any thread."""
        if self._serves and files.certificate is None:
            raise ConfigError("node listen has amqps:// without [tls] certificate_file; give one")
        made = _made(files, serves=self._serves, dials=dials)

        def use() -> None:
            self._used, self._problem, self._failed = made, "", None
            self._tell("")
            self.changed()

        return PreparedCertificates(use, made.own)

    def _tell(self, problem: str) -> None:
        told = replace(self._used.own, problem=problem)
        if told != self._told:
            self._told = told
            self.tell(told)

    def _is_revoked(self, certificate: Issued) -> bool:
        return certificate in self._used.revoked


def certificates_of(settings: NodeSettings) -> Certificates | None:
    """Those that a node needs; None for one that speaks TLS nowhere. Raises ConfigError if they cannot be used."""
    serves = bool(settings.listen_tls)
    dials = any(item.tls for item in settings.core.dialled)
    return Certificates(settings.tls, serves=serves, dials=dials) if serves or dials else None


def _made(files: TlsFiles, *, serves: bool, dials: bool) -> Made:
    """What the files make for the sides that are needed. ConfigError."""
    state, content = _state_of(files), _content_of(files)  # first: what changes meanwhile is seen at the next look
    server, client = _server_context(files) if serves else None, _client_context(files) if dials else None
    own = _own(files.certificate) if files.certificate is not None and (serves or dials) else CertificateRead()
    return Made(files, state, content, server, client, own)


def _own(file: Path) -> CertificateRead:
    """Of the first certificate in the file, which OpenSSL shows. Nothing is known where we cannot read its dates."""
    try:
        first = _PEM.search(read_regular(file, FILE_BYTES_MAX)[0])
        begins_ms, ends_ms = validity(binascii.a2b_base64(first[1] if first else b""))
    except (OSError, ValueError):  # binascii.Error is a ValueError
        return CertificateRead()
    return CertificateRead(begins_ms=begins_ms, ends_ms=ends_ms)


def _fault_now(own: CertificateRead) -> str:
    return fault_of(own.begins_ms, own.ends_ms, time.time_ns() // 1_000_000)


def _is_full(context: ssl.SSLContext | None) -> bool:
    return context is not None and context.session_stats()["number"] > SESSIONS_MAX


def _state_of(files: TlsFiles) -> _State:
    return tuple(_stamp(path) for _, path in files.named)


def _content_of(files: TlsFiles) -> _Content:
    """ConfigError."""
    hashes = tuple(_hash(key, path) for key, path in files.named if key != "crl_file")
    return hashes, frozenset() if files.revoked is None else read_revoked(files.revoked)


def _hash(key: str, path: Path) -> bytes | None:
    """None for a file that cannot be read, which is told where it is needed. ConfigError for one that is too large."""
    try:
        data, _ = read_regular(path, FILE_BYTES_MAX)
    except OSError:
        return None
    if len(data) > FILE_BYTES_MAX:
        raise _unusable(key, path, ValueError(f"it has more than {FILE_BYTES_MAX} bytes"), "a smaller file")
    return blake2b(data).digest()


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # a name with a null character is no file's
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _server_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set(context, files)
    context.num_tickets = 0  # a peer that reconnects shows its certificate again
    if files.client_certificates != "none":
        context.verify_mode = ssl.CERT_REQUIRED if files.client_certificates == "required" else ssl.CERT_OPTIONAL
        _trust(context, files)
    _identify(context, files)
    return context


def _client_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set(context, files)
    _trust(context, files)
    if files.certificate is not None:
        _identify(context, files)
    return context


def _set(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if files.version_min == "1.3" else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(ALPN)


def _trust(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.authorities is None:
        context.load_default_certs()
        return
    try:
        check_regular(files.authorities)  # OpenSSL would wait for the writer of a pipe
        context.load_verify_locations(files.authorities)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("ca_file", files.authorities, error, "a file of certificates in PEM") from None


def _identify(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.certificate is not None
    for key, path in (("certificate_file", files.certificate), ("key_file", files.key)):
        try:
            if path is not None:
                check_regular(path)
        except OSError as error:
            raise _unusable(key, path, error, "a readable file in PEM") from None
    try:
        # OpenSSL would ask for the password of a key on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            where = f"tls key_file {files.key or files.certificate}"
            text = f"{where} is not the key of certificate_file {files.certificate}; give the two that belong together"
            raise ConfigError(text) from None
        expected = "a certificate in PEM, and its key without a password"
        raise _unusable("certificate_file", files.certificate, error, expected) from None
    except (OSError, ValueError) as error:
        raise _unusable("key_file", files.key or files.certificate, error, "a key without a password") from None


def _no_password() -> str:
    raise ValueError("it has a password")


def _unusable(key: str, path: Path | None, error: Exception, expected: str) -> ConfigError:
    reason = str(getattr(error, "strerror", None) or error)
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or "not PEM").lower().replace("_", " ")
    return ConfigError(f"tls {key} {path} cannot be used ({reason}); expected {expected}")
