"""The status of the hub and of the network during a run.

Rules of this file: asks and reads, changes nothing; one connection for all questions (docs/management.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from holdfast.client import Connection, connect

ASK_LIMIT_S: Final = 10.0
UP: Final = "up"


@dataclass(frozen=True, slots=True)
class View:
    """One answer. `taken`: messages that the queue ever took, `messages` those in it, `readers` its subscriptions;
    `whole`: all nodes of the network are up and known to each other as this node sees it.
    """

    taken: int = 0
    messages: int = 0
    readers: tuple[str, ...] = ()
    acting_super: str | None = None
    whole: bool = False

    @classmethod
    def of(cls, status: Mapping[str, Any], queue: str) -> "View":
        """From the answer of `STATUS`."""
        routing = status["routing"]
        whole = routing["synchronised"] and all(node["state"] == UP for node in routing["nodes"])
        found = next((item for item in status["queues"] if item["name"] == queue), None)
        if found is None:
            return cls(acting_super=routing["acting_super"], whole=whole)
        return cls(
            taken=int(found["next_sequence"]) - 1,
            messages=int(found["messages"]),
            readers=tuple(found["subscriptions"]),
            acting_super=routing["acting_super"],
            whole=whole,
        )


class HubWatch:
    """`async with HubWatch(address, queue) as watch`, then `look`. Raises what `holdfast.client` raises."""

    def __init__(self, address: str, queue: str) -> None:
        self.address = address
        self.queue = queue
        self._connection: Connection | None = None

    async def __aenter__(self) -> "HubWatch":
        self._connection = await connect(f"amqp://{self.address}", retry_s=ASK_LIMIT_S)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.abort()

    async def look(self) -> View:
        """How it is now."""
        assert self._connection is not None
        return View.of(await self._connection.manage("STATUS", "holdfast:node", limit_s=ASK_LIMIT_S), self.queue)
