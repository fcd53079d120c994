"""`listened`: a federated topic with listeners, whose subscriptions are not durable, and with links that lead into it.

Rules of this file: as of `federated.py`. A listener is owed nothing; but what it was told once, it is never told again,
whatever is killed and whichever commit is refused: it was stored.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.client import Delivery
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import asked, closed, full_address, key_shown, receive_each
from holdfast_lab.workloads.federated import Federated


@dataclass(kw_only=True)
class Listened(Federated):
    """As `federated`, with a listener at each of `listeners`, which has `listener_credit`. With `through`, each
    publisher sends to a queue of its node from which a link moves the messages to the topic."""

    kind: ClassVar[str] = "listened"

    listeners: list[str] = field(default_factory=list)
    listener_credit: int = 50
    through: bool = False
    name: str = "listened"
    heard: int = field(default=0, init=False)

    @property
    def published_to(self) -> str:
        return f"{self.name}-in" if self.through else self.address

    async def setup(self, bed: Bed) -> None:
        await super().setup(bed)
        for node in self.publishers if self.through else ():
            bed.history.topics.add(full_address(self.published_to, node))
            connection = await bed.connect(node, f"{self.name}-{node}-link")
            await asked(connection, "CREATE", "link", self.name, {"from": self.published_to, "to": self.address})
            await closed(connection)

    def start(self, bed: Bed) -> None:
        super().start(bed)
        for number, node in enumerate(self.listeners):
            name = f"{self.name}-{node}-listener-{number}"
            bed.spawn(self._listen(bed, name, node), name, background=True)

    async def _listen(self, bed: Bed, name: str, node: str) -> None:
        connection = await bed.connect(node, name)
        told: set[bytes] = set()

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, name)
            if key is not None:
                if key in told:
                    raise Violation(f"{name} was told {key.decode()} twice")
                told.add(key)
                self.heard += 1
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.address, credit=self.listener_credit, name=name), take)

    def metrics(self) -> dict[str, Any]:
        return {**super().metrics(), "heard": self.heard}
