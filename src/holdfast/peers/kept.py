"""Checks a password from PLAIN against stored keys; this takes milliseconds, so it is bounded.

Rules of this file: a correct password is recognised again at once by a hash under a secret of the process; all others
are checked at most CHECKS_PER_S times a second for all connections together, and wait for their turn. One address may
cause FAILURES_PER_S failed checks, so that a guesser does not delay others. Nothing of a password is kept.
"""

from hmac import compare_digest, digest
from typing import Final

from holdfast.amqp.login.exchanges import LoginWaits
from holdfast.amqp.login.keys import Keys
from holdfast.engine.allowance import Allowance
from holdfast.engine.clock import Clock
from holdfast.peers.credentials import Credential

CHECKS_PER_S: Final = 10.0
CHECKS_BURST: Final = 20.0
"""Checks of passwords that are not known yet: the rate a second, and the burst. A tenth of a processor or more."""

FAILURES_PER_S: Final = 1.0
FAILURES_BURST: Final = 10.0
"""The same for failed checks from one address; beyond that its next ones wait, and other addresses are not affected."""

ADDRESSES_MAX: Final = 10_000
"""Addresses whose checks are counted; at the bound the one that was checked longest ago is forgotten."""


class Checks:
    """The checks that a node may make, and the secret under which it recognises passwords. `address`: of the login that
    is being checked."""

    def __init__(self, clock: Clock) -> None:
        self.secret = b""
        self.address = ""
        self._clock = clock
        self._allowance = Allowance(clock.now, per_s=CHECKS_PER_S, burst=CHECKS_BURST)
        self._by_address: dict[str, Allowance] = {}

    def take(self) -> Allowance:
        """Takes one check; the caller returns it to the result if the password was correct. Raises LoginWaits."""
        now, known = self._clock.now, self._by_address
        mine = known.pop(self.address, None) or Allowance(now, per_s=FAILURES_PER_S, burst=FAILURES_BURST)
        known[self.address] = mine
        if len(known) > ADDRESSES_MAX:
            del known[next(iter(known))]
        if not mine.count(now):
            raise LoginWaits(mine.free_at(now))
        if not self._allowance.count(now):
            mine.give_back()
            raise LoginWaits(self._allowance.free_at(now))
        return mine


class Kept:
    """A user's credential, with the hash of the correct password once it is known."""

    __slots__ = ("_checks", "_fitted", "credential")

    def __init__(self, credential: Credential, checks: Checks) -> None:
        self.credential = credential
        self._checks = checks
        self._fitted: bytes | None = None

    def verify(self, password: str) -> bool:
        """Whether it is that password. Raises LoginWaits if a check is needed and not possible now."""
        secret = self._checks.secret
        told = digest(secret, password.encode("utf-8", "surrogatepass"), "sha256") if secret else None
        if told is not None and self._fitted is not None and compare_digest(told, self._fitted):
            return True
        mine = self._checks.take()
        if not self.credential.verify(password):
            return False
        mine.give_back()
        self._fitted = told
        return True

    def keys(self, mechanism: str) -> Keys:
        """The keys of SCRAM, which need no such check."""
        return self.credential.keys(mechanism)
