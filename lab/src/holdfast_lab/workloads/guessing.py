"""`guessing`: strangers who guess the passwords of neighbours, at a node whose neighbours log in.

Rules of this file: each guess is wrong, so nobody comes in; of those from one address for one name no more are answered
in one life of the node than its limits allow, whatever the guesser does while he waits: a node that starts again has
forgotten who failed. Whether neighbours come in is for others to say.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Final

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import SaslInit, SaslOutcome
from holdfast.amqp.wire.types import Symbol
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import RETRY_S, spawn_each

WAIT_S: Final = 6.0
"""How long a guesser waits for an answer: a node that does not refuse a guess at once answers within 5 s."""
GOES_SHARE: Final = 0.3
"""Of the guesses, those after which he goes at once."""
SLACK: Final = 1.1
"""Clocks of nodes do not go alike."""
FAILED: Final = encode(SaslOutcome(1))
NOT_CHECKED: Final = encode(SaslOutcome(4))
ENTERED: Final = encode(SaslOutcome(0))


class _Guess(asyncio.Protocol):
    """One connection; `heard` all that the node said."""

    def __init__(self) -> None:
        self.heard = b""
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.heard += data
        if any(told in self.heard for told in (FAILED, NOT_CHECKED, ENTERED)):
            self.over.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.over.set()


@dataclass(kw_only=True)
class Guessing:
    """`clients` at `node`, each from an address of his own, guess the passwords of `users`, `tries` times each within
    `seconds`, `pause_s` apart. `failures_max` and `retry_s`: the node's limits."""

    kind: ClassVar[str] = "guessing"

    node: str
    users: list[str] = field(default_factory=list)
    clients: int = 1
    tries: int = 60
    seconds: float = 10.0
    pause_s: float = 0.05
    failures_max: int = 10
    retry_s: float = 1.0
    name: str = "guessing"
    outcomes: Counter[str] = field(default_factory=Counter, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.clients, f"{self.name}-{self.node}", self._guess)

    async def _guess(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        began = since = bed.now()
        failed: Counter[str] = Counter()
        life = bed.history.lives[self.node]
        for number in range(self.tries if self.users else 0):
            if bed.now() >= began + self.seconds:
                break
            user = random.choice(self.users)
            goes = random.random() < GOES_SHARE
            told = await self._one(bed, f"{name}:{number}", user, f"guess {number}", goes=goes)
            self.outcomes[told] += 1
            if told == "entered":
                raise Violation(f"a wrong password of {user!r} let {name} in at {self.node}")
            if life != bed.history.lives[self.node]:
                life, since = bed.history.lives[self.node], bed.now()
                failed.clear()
            failed[user] += told == "failed"
            most = self.failures_max + (bed.now() - since) * SLACK / self.retry_s + 1
            if failed[user] > most:
                text = f"{failed[user]} guesses of {name} for {user!r} at {self.node} were answered"
                raise Violation(f"{text} in {bed.now() - since:.3f} s; at most {most:.0f} should be")
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))

    async def _one(self, bed: Bed, name: str, user: str, password: str, *, goes: bool) -> str:
        guess = _Guess()
        try:
            transport = await bed.dial(self.node, name, lambda: guess)
        except OSError:
            await asyncio.sleep(RETRY_S)
            return "unheard"
        said = SaslInit(Symbol("PLAIN"), f"\0{user}\0{password}".encode(), None)
        transport.write(SASL_HEADER + frame(0, encode(said), SASL_FRAME))
        try:
            async with asyncio.timeout(self.pause_s if goes else WAIT_S):
                await guess.over.wait()
        except TimeoutError:
            pass
        finally:
            transport.abort()
        answers = {FAILED: "failed", NOT_CHECKED: "not checked", ENTERED: "entered"}
        return next((told for spelt, told in answers.items() if spelt in guess.heard), "unheard")

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {told: float(count) for told, count in sorted(self.outcomes.items())}
