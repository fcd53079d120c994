"""`departed`: an operator who ends the mail for a node that its neighbour does not know any more.

Rules of this file: the transmission queue of a node that is known is not deleted. Of one that has left each message
becomes a dead letter, and its tombstone stays, so that the node need not wait for it once it is known again.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.client import ManagementError
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked


@dataclass(kw_only=True)
class Departed:
    """At `node`, about every `pause_s`: deletes the transmission queue for `gone`."""

    kind: ClassVar[str] = "departed"

    node: str
    gone: str
    pause_s: float = 0.5
    name: str = "departed"
    answers: Counter[int] = field(default_factory=Counter, init=False)
    """By the code of the answer."""

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        name = f"{self.name}-{self.node}"
        bed.spawn(self._operate(bed, name), name, background=True)

    async def _operate(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        connection = await bed.connect(self.node, name)
        while True:
            await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
            try:
                await asked(connection, "DELETE", "queue", f"@{self.gone}")
                self.answers[200] += 1
            except ManagementError as error:
                if error.code not in (404, 409):  # nothing waits, or it is known
                    raise
                self.answers[error.code] += 1

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {str(code): count for code, count in sorted(self.answers.items())}
