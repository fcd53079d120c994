"""Passwords of which only keys are kept, checked against what PLAIN brings: that takes milliseconds, so it is bounded.

Rules of this file: what fitted once is known again by a hash under a secret of the process, at once; all else is
checked CHECKS_PER_S times a second for all connections together, and waits for its turn. Of these one address has
FAILURES_PER_S that do not fit, so that who guesses does not keep others waiting. Nothing of a password is kept.
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
"""Of passwords that have not fitted yet: so many a second, and at once. A tenth of a processor or more."""

FAILURES_PER_S: Final = 1.0
FAILURES_BURST: Final = 10.0
"""Of those checks in vain that one address causes; past so many its next ones wait, and nobody else's."""

ADDRESSES_MAX: Final = 10_000
"""Addresses whose checks are counted; at the bound the one that was checked longest ago is forgotten."""


class Checks:
    """The checks that a node may make now, and the secret under which it knows passwords again. `address`: whose login
    is looked at now."""

    def __init__(self, clock: Clock) -> None:
        self.secret = b""
        self.address = ""
        self._clock = clock
        self._allowance = Allowance(clock.now, per_s=CHECKS_PER_S, burst=CHECKS_BURST)
        self._by_address: dict[str, Allowance] = {}

    def take(self) -> Allowance:
        """One check is made now; who finds that the password fits gives it back to what this returns. Raises
        LoginWaits."""
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
    """A user's, with what is known of the password that fitted."""

    __slots__ = ("_checks", "_fitted", "credential")

    def __init__(self, credential: Credential, checks: Checks) -> None:
        self.credential = credential
        self._checks = checks
        self._fitted: bytes | None = None

    def verify(self, password: str) -> bool:
        """Whether it is that password. Raises LoginWaits where it has to be found out, and that not now."""
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
        """Those of SCRAM, which cost nothing."""
        return self.credential.keys(mechanism)
