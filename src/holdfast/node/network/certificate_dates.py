"""How long the node's own certificate is valid: its file is read at start and every LOOK_S; the core is told only when
the dates differ.

Rules of this file: only the dates are read; whether the file can be used is decided where it is used. While the node
runs, the file is read in a thread.
"""

import asyncio
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.engine.events import CertificateRead
from holdfast.node.network.der import FILE_BYTES_MAX, validity
from holdfast.node.watching import Watch
from holdfast.regular_files import read_regular

LOOK_S: Final = 5.0
"""How often the file is read."""

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


class CertificateDates:
    """Tells the dates of the first certificate in the file that `file` returns. Created and called on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        file: Callable[[], Path | None],
        tell: Callable[[CertificateRead], None],
    ) -> None:
        self._file = file
        self._tell = tell
        self._told: CertificateRead | None = None
        self._watch = Watch(loop, "holdfast-own-certificate", LOOK_S, self._look, self._found)

    def start(self) -> None:
        """Reads it at once, and watches it."""
        if (found := self._look()) is not None:
            self._found(found)
        self._watch.start()

    def close(self) -> None:
        """Idempotent."""
        self._watch.close()

    def _look(self) -> CertificateRead | None:
        """In any thread: the dates, if they are others than were told."""
        file = self._file()
        found = CertificateRead() if file is None else _read(file)
        return None if found == (self._told or CertificateRead()) else found

    def _found(self, found: CertificateRead) -> None:
        self._told = found
        self._tell(found)


def _read(file: Path) -> CertificateRead:
    """Nothing where it has no certificate: then nothing is known."""
    try:
        first = _PEM.search(read_regular(file, FILE_BYTES_MAX)[0])
        begins_ms, ends_ms = validity(binascii.a2b_base64(first[1] if first else b""))
    except (OSError, ValueError):  # binascii.Error is a ValueError
        return CertificateRead()
    return CertificateRead(begins_ms=begins_ms, ends_ms=ends_ms)
