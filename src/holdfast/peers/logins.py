"""Failed logins: how often a password may be tried, from one address for one name.

Rules of this file: the first `login_failures_max` failures are answered at once, and one failure is forgotten every
`login_retry_s`. After that, one try from that address for that name is checked every `login_retry_s`, also with the
right password, so that the delay reveals nothing. A try that would wait longer than WAIT_S is refused unchecked, with
an outcome (sys-temp) that says so, and an honest client tries again. Other addresses, and other names from the same
address, are not affected, so nobody can lock out a user. An unknown name counts like a user's, so that the number of
tries left does not reveal which it is; the name itself is not kept. A try counts from the moment at which it is
requested until the password was right: a client that disconnects while it waits has used it. Source:
docs/adr/0031-failed-logins.md.
"""

from itertools import islice
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import HostedName, read_key
from holdfast.engine.clock import Clock
from holdfast.peers.users import Users
from holdfast.settings.limits import Limits
from holdfast.units import iso8601

WAIT_S: Final = 5.0
"""How long a login may wait for its check: less than `handshake_time_out_s`."""

REMEMBERED_MAX: Final = 10_000
"""Pairs of address and name whose failures are remembered; at the bound the one longest without a failure goes."""

LISTED_MAX: Final = 20
"""Pairs of address and name in one `status`: those that failed last."""

Whose = str | bytes
"""The subject of a login: a user's name in any virtual host, or the hash of an unknown name."""


class Tries:
    """The tries of one address for one name. `left`: tries that need not wait; below 0 if some wait already. `user`:
    whose login failed last; None for an unknown name."""

    __slots__ = ("at", "failed", "last_ms", "left", "since_ms", "user")

    def __init__(self, left: float, now: float, wall_ms: int) -> None:
        self.left = left
        self.at = now
        self.failed = 0
        self.user: HostedName | None = None
        self.since_ms = self.last_ms = wall_ms
        """When the first failed, and the last, by the wall clock."""


class Logins:
    """Slows down failed logins, by address and name."""

    def __init__(self, limits: Limits, clock: Clock, users: Users) -> None:
        self.clock = clock
        self._limits = limits
        self._users = users
        self.tries: dict[tuple[str, Whose], Tries] = {}
        self.failed = 0
        self.delayed = 0
        self.refused = 0
        """Logins refused without a check, because too many wait."""

    def look_at(self, address: str, whose: Whose) -> float | None:
        """When a login from `address` for that name may be checked, on the scale of the core's `now`; None: never. It
        counts as a try."""
        now = self.clock.now
        limits = self._limits
        most = float(limits.login_failures_max)
        tries = self.tries.get((address, whose))
        if tries is None:
            tries = self._keep(address, whose, Tries(most, now, self.clock.wall_ms))
        tries.left = min(most, tries.left + (now - tries.at) / limits.login_retry_s)
        tries.at = now
        wait_s = max(0.0, 1 - tries.left) * limits.login_retry_s
        if wait_s > WAIT_S:
            self.refused += 1
            return None
        tries.left -= 1
        if wait_s > 0:
            self.delayed += 1
        return now + wait_s

    def _keep(self, address: str, whose: Whose, tries: Tries) -> Tries:
        """Records the tries; the most recent are forgotten last."""
        self.tries.pop((address, whose), None)
        self.tries[address, whose] = tries
        if len(self.tries) > REMEMBERED_MAX:
            del self.tries[next(iter(self.tries))]
        return tries

    def has_entered(self, address: str, whose: Whose) -> None:
        """The password was right: the try does not count."""
        tries = self.tries.get((address, whose))
        if tries is None:
            return
        tries.left += 1
        if not tries.failed and tries.left >= self._limits.login_failures_max:
            del self.tries[address, whose]

    def has_failed(self, address: str, whose: Whose, user: HostedName | None) -> None:
        """The password was wrong, or there is no such user."""
        self.failed += 1
        wall_ms = self.clock.wall_ms
        tries = self.tries.get((address, whose))
        if tries is None:  # so many others tried meanwhile that it was forgotten
            tries = Tries(self._limits.login_failures_max - 1.0, self.clock.now, wall_ms)
        if not tries.failed:
            tries.since_ms = wall_ms
        tries.failed += 1
        tries.last_ms = wall_ms
        tries.user = user
        self._keep(address, whose, tries)
        use = None if user is None else self._users.by_name.get(user)
        if use is not None:
            use.logins_failed += 1

    def status(self) -> dict[str, Any]:
        """The rows of `status`; an unknown name is not shown, because it may be a password: all of one address are one
        row."""
        found: dict[tuple[str, HostedName | None], list[Tries]] = {}
        for (address, _), tries in reversed(self.tries.items()):
            if tries.failed:
                found.setdefault((address, tries.user), []).append(tries)
        latest = [
            {
                "address": address,
                "user": read_key(user or "")[1] or None,
                **({"vhost": host} if (host := read_key(user or "")[0]) else {}),
                "failed": Ulong(sum(tries.failed for tries in those)),
                "since": iso8601(min(tries.since_ms for tries in those)),
                "last": iso8601(max(tries.last_ms for tries in those)),
            }
            for (address, user), those in islice(found.items(), LISTED_MAX)
        ]
        counts = {"failed": Ulong(self.failed), "delayed": Ulong(self.delayed), "refused": Ulong(self.refused)}
        return {**counts, "latest": latest}


class Login:
    """The login of one connection. `is_refused`: it is not checked, because too many before it have failed."""

    def __init__(self, logins: Logins, address: str) -> None:
        """`address`: that of the client."""
        self._logins = logins
        self._address = address
        self._at: float | None = None
        self.is_refused = False

    def waits_until(self, whose: Whose) -> float | None:
        """When it must be checked again, because it has to wait; None if it is checked now."""
        logins = self._logins
        if self._at is None:
            at = logins.look_at(self._address, whose)
            self.is_refused = at is None
            self._at = logins.clock.now if at is None else at
        return self._at if self._at > logins.clock.now else None

    def answered(self, whose: Whose, user: HostedName | None, *, entered: bool) -> None:
        """It was checked; a failure counts. `user`: None for an unknown name."""
        if entered:
            self._logins.has_entered(self._address, whose)
        else:
            self._logins.has_failed(self._address, whose, user)
