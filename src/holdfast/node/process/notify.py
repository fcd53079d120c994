"""Notifications to the service manager that started the process: that the node is ready, lives, and stops
(sd_notify(3)).

Rules of this file: nothing is read from the environment here; a manager that does not listen costs nothing.
"""

import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import MutableMapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"


class ServiceManager:
    """The socket of the manager. `address`: as NOTIFY_SOCKET has it, "" for none. `watchdog_s`: it must be notified
    within this time that the node is alive; 0: it need not."""

    def __init__(self, address: str, watchdog_s: float) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._timer: TimerHandle | None = None

    def tell(self, text: str) -> None:
        """Says it, if anybody listens."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as end:
                end.sendto(text.encode(), self._address)
        except OSError:
            pass  # the manager notices a missing notification by itself

    def watch(self, loop: AbstractEventLoop) -> None:
        """Notifies it twice within `watchdog_s`, from the node's loop, that the node is alive: a loop that hangs sends
        nothing."""
        if self._address and self._watchdog_s > 0:
            self.tell(ALIVE)
            self._timer = loop.call_later(self._watchdog_s / 2, self.watch, loop)

    def close(self) -> None:
        """Stops the periodic notifications. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def manager_of(environment: MutableMapping[str, str], pid: int) -> ServiceManager:
    """The manager of this process; it is taken out of the environment, so that no child of it speaks in its name."""
    address = environment.pop("NOTIFY_SOCKET", "")
    interval, watched = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    is_watched = interval.isascii() and interval.isdigit() and watched in ("", str(pid))
    return ServiceManager(address, int(interval) / 1e6 if is_watched else 0.0)
