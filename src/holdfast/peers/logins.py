"""Failed logins: how often a password may be tried, from one address for one name.

Rules of this file: the first `login_failures_max` failures are answered at once, and one failure is forgotten every
`login_retry_s`. After that, one try from that address for that name is checked every `login_retry_s`, also with the
right password, so that the delay reveals nothing. A try that would wait longer than WAIT_S is refused unchecked, with
an outcome (sys-temp) that says so, and an honest client tries again. Other addresses, and other names from the same
address, are not affected, so nobody can lock out a user. All unknown names count as one name. Source:
docs/adr/0031-failed-logins.md.
"""

from collections.abc import Container
from itertools import islice
from typing import Any, Final

from holdfast.amqp.login.exchanges import LoginNotChecked
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted, read_key
from holdfast.engine.clock import Clock
from holdfast.peers.users import Users
from holdfast.settings.limits import Limits
from holdfast.units import iso8601

WAIT_S: Final = 5.0
"""How long a login may wait to be looked at: less than `handshake_time_out_s` leaves a peer."""

REMEMBERED_MAX: Final = 10_000
"""Pairs of address and name whose failures are remembered; at the bound the one longest without a failure goes."""

LISTED_MAX: Final = 20
"""Pairs of address and name in one `status`: those that failed last."""


class Tries:
    """The tries of one address for one name. `left`: tries that need not wait; below 0 if some wait already."""

    __slots__ = ("at", "failed", "last_ms", "left", "since_ms")

    def __init__(self, left: float, now: float, wall_ms: int) -> None:
        self.left = left
        self.at = now
        self.failed = 0
        self.since_ms = self.last_ms = wall_ms
        """When the first failed, and the last, by the wall clock."""


class Logins:
    """Slows down failed logins, by address and name."""

    def __init__(self, limits: Limits, clock: Clock, users: Users) -> None:
        self.clock = clock
        self._limits = limits
        self._users = users
        self.tries: dict[tuple[str, HostedName], Tries] = {}
        self.failed = 0
        self.delayed = 0
        self.refused = 0
        """Refused unread, because too many wait."""

    def look_at(self, host: str, name: HostedName) -> float | None:
        """When a login from `host` for `name` may be checked, on the scale of the core's `now`; None: never."""
        now = self.clock.now
        tries = self.tries.get((host, name))
        if tries is None:
            return now
        limits = self._limits
        tries.left = min(float(limits.login_failures_max), tries.left + (now - tries.at) / limits.login_retry_s)
        tries.at = now
        wait_s = max(0.0, 1 - tries.left) * limits.login_retry_s
        if wait_s > WAIT_S:
            self.refused += 1
            return None
        tries.left -= 1
        if wait_s > 0:
            self.delayed += 1
        return now + wait_s

    def has_entered(self, host: str, name: HostedName) -> None:
        """The password was right: the try does not count."""
        tries = self.tries.get((host, name))
        if tries is not None:
            tries.left += 1

    def has_failed(self, host: str, name: HostedName) -> None:
        """The password was wrong, or there is no such user."""
        self.failed += 1
        most = float(self._limits.login_failures_max)
        wall_ms = self.clock.wall_ms
        tries = self.tries.pop((host, name), None) or Tries(most - 1, self.clock.now, wall_ms)
        tries.failed += 1
        tries.last_ms = wall_ms
        self.tries[host, name] = tries  # the one that failed last is last
        if len(self.tries) > REMEMBERED_MAX:
            del self.tries[next(iter(self.tries))]
        use = self._users.by_name.get(name)
        if use is not None:
            use.logins_failed += 1

    def status(self) -> dict[str, Any]:
        """The rows of `status`; an unknown name is not shown, because it may be a password."""
        latest = [
            {
                "address": host,
                "user": read_key(name)[1] or None,
                **({"vhost": found} if (found := read_key(name)[0]) else {}),
                "failed": Ulong(tries.failed),
                "since": iso8601(tries.since_ms),
                "last": iso8601(tries.last_ms),
            }
            for (host, name), tries in islice(reversed(self.tries.items()), LISTED_MAX)
        ]
        counts = {"failed": Ulong(self.failed), "delayed": Ulong(self.delayed), "refused": Ulong(self.refused)}
        return {**counts, "latest": latest}


class Login:
    """The login of one connection."""

    def __init__(self, logins: Logins, host: str, users: Container[HostedName]) -> None:
        """`host`: the address of the client. `users`: those that have a password."""
        self._logins = logins
        self._host = host
        self._users = users
        self._at: float | None = None
        self._refused = False

    def waits_until(self, user: HostedName | None) -> float | None:
        """When it must be checked again, because it has to wait; None if it is checked now."""
        logins = self._logins
        if self._at is None:
            at = logins.look_at(self._host, self._name_of(user))
            self._refused = at is None
            self._at = logins.clock.now if at is None else at
        return self._at if self._at > logins.clock.now else None

    def answered(self, user: HostedName | None, entered: bool) -> bool:
        """Whether the login succeeds; a failure counts. Raises LoginNotChecked if it was not checked."""
        if self._refused:
            raise LoginNotChecked
        if entered:
            self._logins.has_entered(self._host, self._name_of(user))
        else:
            self._logins.has_failed(self._host, self._name_of(user))
        return entered

    def _name_of(self, user: HostedName | None) -> HostedName:
        return user if user is not None and user in self._users else hosted(DEFAULT_HOST, "")
