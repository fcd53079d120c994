"""What a program asks of a node beside messages: its queues, links and subscriptions (docs/management.md).

Rules of this file: one method for each request, with its arguments by name; what comes in pages is asked for to its
end. Answers are the node's answers, as maps.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, Protocol

from holdfast.amqp.wire.types import Ulong
from holdfast.client.errors import ManagementError
from holdfast.client.listing import Listed, hidden
from holdfast.entity_types import (
    ATTACHMENT,
    CONNECTION,
    LINK,
    MANAGEMENT,
    NODE,
    QUEUE,
    SERVICE,
    SESSION,
    SUBSCRIPTION,
)

CLOSABLE: Final = (CONNECTION, SESSION, ATTACHMENT)
"""By how many slashes an identity of theirs has."""

WhenFull = Literal["block", "refuse", "drop-oldest", "dead-letter"]
AtBound = Literal["drop-oldest", "dead-letter", "end"]
Order = Literal["bounded", "strict", "none"]


MANAGE_LIMIT_S: Final = 60.0
"""How long an answer may take."""
ANSWER_S: Final = 5.0
"""For the answer of a node that has searched for as long as it may."""


class Unchanged(Enum):
    """The default of arguments of which None says something: there is no bound."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Bound = int | None | Unchanged


class Asks(Protocol):
    """What this needs of a connection."""

    async def manage(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        limit_s: float = MANAGE_LIMIT_S,
    ) -> dict[str, Any]:
        """Sends a request to `$management`."""


class Administration(Listed):
    """Requests to the node that a connection is to; made by `Connection.admin`.

    Each raises ManagementError with the node's status code: 403 if this user may not do that, 404 if there is nothing
    of that name, 409 if it is in use or has other settings; and ConnectionFailed. Those that delete or close something
    raise RequestInDoubt where the connection breaks before the answer (docs/client.md, "Administration").
    """

    HIDDEN = hidden("pages", "entities")

    def __init__(self, connection: Asks) -> None:
        self._connection = connection

    async def status(self) -> dict[str, Any]:
        """The node's status with all queues (docs/management.md, "The answer to STATUS")."""
        answer = await self._connection.manage("STATUS", NODE)
        if answer.pop("queues_more", False):
            answer["queues"] += await self.queues(after=answer["queues"][-1]["name"])
        return answer

    async def queues(self, *, after: str = "") -> list[dict[str, Any]]:
        """All queues by name, or those that come after that name, with their settings and what they hold."""
        return await self.pages("queue", "name", {"after": after} if after else {})

    async def queue(self, name: str) -> dict[str, Any]:
        """One queue, with `head`, the lowest sequence in it."""
        return await self._connection.manage("READ", QUEUE, name)

    async def create_queue(
        self,
        name: str,
        *,
        bytes_max: int | None = None,
        messages_max: int | None = None,
        when_full: WhenFull | None = None,
        order: Order | None = None,
        order_wait_s: float | None = None,
        durable: bool = True,
        deliveries_max: int | None = None,
        priorities: bool = False,
    ) -> bool:
        """Makes a queue; True if it is new, False if it was there with these settings (docs/configuration.md). What is
        not given has its default in a new queue, and any value in one that is there."""
        given: dict[str, Any] = {
            "bytes_max": bytes_max,
            "messages_max": messages_max,
            "when_full": when_full,
            "order": order,
            "order_wait_s": order_wait_s,
            "durable": None if durable else False,
            "deliveries_max": deliveries_max,
            "priorities": True if priorities else None,
        }
        arguments = {key: value for key, value in given.items() if value is not None}
        return bool((await self._connection.manage("CREATE", QUEUE, name, arguments)).get("created", True))

    async def change_queue(
        self,
        name: str,
        *,
        bytes_max: Bound = UNCHANGED,
        messages_max: Bound = UNCHANGED,
        deliveries_max: Bound = UNCHANGED,
        when_full: WhenFull | Unchanged = UNCHANGED,
    ) -> dict[str, Any]:
        """Changes a queue while it is used; None is no bound. Returns it, with `changed`."""
        given = {
            "bytes_max": bytes_max,
            "messages_max": messages_max,
            "deliveries_max": deliveries_max,
            "when_full": when_full,
        }
        arguments = {key: value for key, value in given.items() if value is not UNCHANGED}
        return await self._connection.manage("UPDATE", QUEUE, name, arguments)

    async def delete_queue(self, name: str) -> int:
        """Deletes a queue that is not in use; how many messages went with it."""
        return int((await self._connection.manage("DELETE", QUEUE, name)).get("purged", 0))

    async def purge_queue(self, name: str) -> int:
        """Deletes the messages that no consumer holds; how many these were."""
        return int((await self._connection.manage("PURGE", QUEUE, name))["purged"])

    async def subscriptions(self, queue: str | None = None) -> list[dict[str, Any]]:
        """The durable subscriptions of that queue, or of all, with the names of their queues."""
        return await self.pages("subscription", "queue", {} if queue is None else {"queue": queue})

    async def change_subscription(
        self,
        queue: str,
        name: str,
        *,
        messages_max: Bound = UNCHANGED,
        bytes_max: Bound = UNCHANGED,
        when_full: AtBound | Unchanged = UNCHANGED,
        idle_s: Bound = UNCHANGED,
    ) -> dict[str, Any]:
        """Changes the bounds of a topic's durable subscription (docs/topics.md); None is no bound. Returns it, with
        `changed`."""
        given = {"messages_max": messages_max, "bytes_max": bytes_max, "when_full": when_full, "idle_s": idle_s}
        arguments = {key: value for key, value in given.items() if value is not UNCHANGED}
        return await self._connection.manage("UPDATE", SUBSCRIPTION, name, {"queue": queue, **arguments})

    async def delete_subscription(self, queue: str, name: str) -> None:
        """Deletes a durable subscription."""
        await self._connection.manage("DELETE", SUBSCRIPTION, name, {"queue": queue})

    async def links(self) -> list[dict[str, Any]]:
        """The links between queues."""
        return await self.pages("link", "name", {})

    async def create_link(
        self,
        name: str,
        source: str,
        target: str,
        *,
        selector: str = "",
        mode: Literal["move", "copy"] = "move",
        steps: Iterable[Mapping[str, Any]] = (),
        start: str | int = "first",
    ) -> bool:
        """Makes a link from a queue to a queue, topic or `queue@node` (docs/links.md); True if it is new. One that
        copies begins at `start`: first, next or a sequence."""
        arguments: dict[str, Any] = {"from": source, "to": target, "selector": selector, "mode": mode}
        if start != "first":  # an older node does not know it
            arguments["start"] = start if isinstance(start, str) else Ulong(start)
        if given := [dict(step) for step in steps]:
            arguments["steps"] = given
        return bool((await self._connection.manage("CREATE", LINK, name, arguments)).get("created", True))

    async def delete_link(self, name: str) -> None:
        """Deletes a link between queues."""
        await self._connection.manage("DELETE", LINK, name)

    async def stop_link(self, name: str) -> None:
        """Stops the link, also over restarts."""
        await self._connection.manage("STOP", LINK, name)

    async def start_link(self, name: str) -> None:
        """The link takes messages again."""
        await self._connection.manage("START", LINK, name)

    async def services(self) -> list[dict[str, Any]]:
        """The names of services, with their addresses (docs/amqp.md, "Services")."""
        return await self.pages("service", "name", {})

    async def service(self, name: str) -> str:
        """The address that a name of a service means."""
        return str((await self._connection.manage("READ", SERVICE, name))["address"])

    async def register_service(self, name: str, address: str, *, replace: bool = False) -> dict[str, Any]:
        """Gives an address a name; `replace` the address of a name that is there. The node's answer."""
        try:
            return await self._connection.manage("CREATE", SERVICE, name, {"address": address})
        except ManagementError as error:
            if not replace or error.code != 409:
                raise
        return await self._connection.manage("UPDATE", SERVICE, name, {"address": address})

    async def remove_service(self, name: str) -> None:
        """Removes the name."""
        await self._connection.manage("DELETE", SERVICE, name)

    async def connections(self) -> list[dict[str, Any]]:
        """The connections of the node's clients and neighbours (docs/management.md), this one too."""
        return await self.entities(CONNECTION)

    async def sessions(self) -> list[dict[str, Any]]:
        """Their sessions, with the `connection` of each."""
        return await self.entities(SESSION)

    async def attachments(self) -> list[dict[str, Any]]:
        """The links that they have attached, with `connection`, `session` and `address`. For links between queues see
        `links`."""
        return await self.entities(ATTACHMENT)

    async def close_connection(self, identity: str) -> None:
        """Closes a connection by its `identity`, a number; by NUMBER/CHANNEL a session of it alone, and by
        NUMBER/CHANNEL/HANDLE a link. Clients of Holdfast connect, or attach, again."""
        await self._connection.manage("CLOSE", CLOSABLE[min(2, identity.count("/"))], identity)

    async def reload(self) -> dict[str, Any]:
        """The node takes up its configuration anew (docs/operations.md); what changed, and what needs a restart."""
        return await self._connection.manage("RELOAD", NODE)

    async def network(self, *, limit_s: float = 5.0) -> list[dict[str, Any]]:
        """A row for each node of the network (docs/management.md, "The answer to NETWORK"); nodes that do not answer
        within `limit_s` have none of their own, or an old one."""
        rows: list[dict[str, Any]] = []
        while True:
            arguments = {"limit_s": limit_s, **({"after": str(rows[-1]["node"])} if rows else {})}
            answer = await self._connection.manage("NETWORK", NODE, None, arguments, limit_s=limit_s + ANSWER_S)
            rows += answer["nodes"]
            if not answer["more"]:
                return rows

    async def drain(self) -> dict[str, Any]:
        """Drains the node, also over restarts: it accepts no new messages; `changed`, and in `drain` what it holds."""
        return await self._connection.manage("DRAIN", NODE)

    async def resume(self) -> dict[str, Any]:
        """The node takes new messages again; `changed`."""
        return await self._connection.manage("RESUME", NODE)

    async def where(self, message_id: Any, *, limit_s: float = 5.0) -> dict[str, Any]:
        """Where that message is, here or further along its path (docs/where.md)."""
        arguments = {"message_id": message_id, "limit_s": limit_s}
        return await self._connection.manage("WHERE", NODE, None, arguments, limit_s=limit_s + ANSWER_S)

    async def entities(self, kind: str) -> list[dict[str, Any]]:
        """All entities of that type, with all their attributes."""
        found: list[dict[str, Any]] = []
        while True:
            arguments = {"entityType": kind, **({"after": found[-1]["identity"]} if found else {})}
            answer = await self._connection.manage("QUERY", MANAGEMENT, None, arguments)
            rows = [dict(zip(answer["attributeNames"], row, strict=True)) for row in answer["results"]]
            found += rows
            if not rows:
                return found

    async def pages(self, what: str, after: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """All rows of `what`: the rows of the first page by `arguments`, of the next by `after` of the last row, or by
        the offset that the node gives for it."""
        found: list[dict[str, Any]] = []
        while True:
            answer = await self._connection.manage("QUERY", f"holdfast:{what}", None, arguments)
            rows = answer.get(f"{what}s") or []
            found += rows
            if answer.get("more") and "offset" in answer:
                arguments = {"offset": answer["offset"]}
                continue
            if not rows or not answer.get("more"):
                return found
            arguments = {"after": str(rows[-1][after])}
