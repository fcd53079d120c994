"""Reports of the system that its network changed: carriers, addresses, routes (rtnetlink(7)).

Rules of this file: Linux only; on other systems, or without permission, there are no reports and no error. The contents
of a report are not read: it is only a hint to dial and probe now.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.05
"""Changes come in bursts: the first one is reported at once, the rest together after this."""
READS_MAX: Final = 64
"""Messages taken off the socket at once; what is left comes with the loop's next look."""
READ_BYTES: Final = 65_536

_LINK, _IPV4_ADDRESS, _IPV4_ROUTE, _IPV6_ADDRESS, _IPV6_ROUTE = 0x1, 0x10, 0x40, 0x100, 0x400
GROUPS: Final = _LINK | _IPV4_ADDRESS | _IPV4_ROUTE | _IPV6_ADDRESS | _IPV6_ROUTE
"""RTMGRP_LINK and so on (linux/rtnetlink.h)."""


def _subscribed() -> socket.socket | None:
    family, protocol = getattr(socket, "AF_NETLINK", None), getattr(socket, "NETLINK_ROUTE", 0)
    if family is None:
        return None
    try:
        own = socket.socket(family, socket.SOCK_RAW, protocol)
    except OSError:
        return None
    try:
        own.setblocking(False)
        own.bind((0, GROUPS))
    except OSError:
        own.close()
        return None
    return own


class NetworkWatch:
    """Calls `changed` in the loop after a change, at most once each `interval_s`; `close` ends it."""

    def __init__(
        self, changed: Callable[[], None], *, interval_s: float = INTERVAL_S, own: socket.socket | None = None
    ) -> None:
        """`own`: a socket to use instead of the system's, for tests; closed here."""
        self._changed = changed
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._own = _subscribed() if own is None else own
        self._quiet: asyncio.TimerHandle | None = None
        self._again = False
        if self._own is not None:
            self._loop.add_reader(self._own, self._read)

    def _read(self) -> None:
        assert self._own is not None
        for _ in range(READS_MAX):
            try:
                self._own.recv(READ_BYTES)
            except OSError:  # there are no more, or (ENOBUFS) more than the kernel keeps: something changed
                break
        if self._quiet is not None:
            self._again = True
            return
        self._tell()

    def _tell(self) -> None:
        self._again = False
        self._quiet = self._loop.call_later(self._interval_s, self._quiet_over)
        self._changed()

    def _quiet_over(self) -> None:
        self._quiet = None
        if self._again:
            self._tell()

    def close(self) -> None:
        """Idempotent."""
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        own, self._own = self._own, None
        if own is not None:
            with contextlib.suppress(OSError, ValueError):
                self._loop.remove_reader(own)
            own.close()
