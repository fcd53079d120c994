"""Requests to a node for programs without an event loop: those of `Administration`, each of which waits.

Rules of this file: nothing is decided here. A method of Administration awaits answers of `manage` and nothing else, so
it runs to its end where they are there at once.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar

from holdfast.client.administration import (
    MANAGE_LIMIT_S,
    UNCHANGED,
    Administration,
    AtBound,
    Bound,
    Order,
    Unchanged,
    WhenFull,
)
from holdfast.client.listing import Listed

T = TypeVar("T")


class _Answers:
    """`manage` as Administration awaits it, which blocks."""

    def __init__(self, manage: Callable[..., dict[str, Any]]) -> None:
        self._manage = manage

    async def manage(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        limit_s: float = MANAGE_LIMIT_S,
    ) -> dict[str, Any]:
        return self._manage(operation, type, name, arguments, limit_s=limit_s)


def _done(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, which waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise AssertionError("a request waited for something else than its answer")


class BlockingAdministration(Listed):
    """Requests to the node that a connection is to; names, arguments and errors as of `Administration`."""

    def __init__(self, manage: Callable[..., dict[str, Any]]) -> None:
        self._admin = Administration(_Answers(manage))

    def status(self) -> dict[str, Any]:
        """As `Administration.status`."""
        return _done(self._admin.status())

    def queues(self, *, after: str = "") -> list[dict[str, Any]]:
        """As `Administration.queues`."""
        return _done(self._admin.queues(after=after))

    def queue(self, name: str) -> dict[str, Any]:
        """As `Administration.queue`."""
        return _done(self._admin.queue(name))

    def create_queue(
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
        """As `Administration.create_queue`."""
        return _done(
            self._admin.create_queue(
                name,
                bytes_max=bytes_max,
                messages_max=messages_max,
                when_full=when_full,
                order=order,
                order_wait_s=order_wait_s,
                durable=durable,
                deliveries_max=deliveries_max,
                priorities=priorities,
            )
        )

    def change_queue(
        self,
        name: str,
        *,
        bytes_max: Bound = UNCHANGED,
        messages_max: Bound = UNCHANGED,
        deliveries_max: Bound = UNCHANGED,
        when_full: WhenFull | Unchanged = UNCHANGED,
    ) -> dict[str, Any]:
        """As `Administration.change_queue`."""
        return _done(
            self._admin.change_queue(
                name,
                bytes_max=bytes_max,
                messages_max=messages_max,
                deliveries_max=deliveries_max,
                when_full=when_full,
            )
        )

    def delete_queue(self, name: str) -> int:
        """As `Administration.delete_queue`."""
        return _done(self._admin.delete_queue(name))

    def purge_queue(self, name: str) -> int:
        """As `Administration.purge_queue`."""
        return _done(self._admin.purge_queue(name))

    def subscriptions(self, queue: str | None = None) -> list[dict[str, Any]]:
        """As `Administration.subscriptions`."""
        return _done(self._admin.subscriptions(queue))

    def change_subscription(
        self,
        queue: str,
        name: str,
        *,
        messages_max: Bound = UNCHANGED,
        bytes_max: Bound = UNCHANGED,
        when_full: AtBound | Unchanged = UNCHANGED,
        idle_s: Bound = UNCHANGED,
    ) -> dict[str, Any]:
        """As `Administration.change_subscription`."""
        return _done(
            self._admin.change_subscription(
                queue, name, messages_max=messages_max, bytes_max=bytes_max, when_full=when_full, idle_s=idle_s
            )
        )

    def delete_subscription(self, queue: str, name: str) -> None:
        """As `Administration.delete_subscription`."""
        _done(self._admin.delete_subscription(queue, name))

    def links(self) -> list[dict[str, Any]]:
        """As `Administration.links`."""
        return _done(self._admin.links())

    def create_link(
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
        """As `Administration.create_link`."""
        made = self._admin.create_link(name, source, target, selector=selector, mode=mode, steps=steps, start=start)
        return _done(made)

    def delete_link(self, name: str) -> None:
        """As `Administration.delete_link`."""
        _done(self._admin.delete_link(name))

    def stop_link(self, name: str) -> None:
        """As `Administration.stop_link`."""
        _done(self._admin.stop_link(name))

    def start_link(self, name: str) -> None:
        """As `Administration.start_link`."""
        _done(self._admin.start_link(name))

    def services(self) -> list[dict[str, Any]]:
        """As `Administration.services`."""
        return _done(self._admin.services())

    def service(self, name: str) -> str:
        """As `Administration.service`."""
        return _done(self._admin.service(name))

    def register_service(self, name: str, address: str, *, replace: bool = False) -> dict[str, Any]:
        """As `Administration.register_service`."""
        return _done(self._admin.register_service(name, address, replace=replace))

    def remove_service(self, name: str) -> None:
        """As `Administration.remove_service`."""
        _done(self._admin.remove_service(name))

    def connections(self) -> list[dict[str, Any]]:
        """As `Administration.connections`."""
        return _done(self._admin.connections())

    def sessions(self) -> list[dict[str, Any]]:
        """As `Administration.sessions`."""
        return _done(self._admin.sessions())

    def attachments(self) -> list[dict[str, Any]]:
        """As `Administration.attachments`."""
        return _done(self._admin.attachments())

    def close_connection(self, identity: str) -> None:
        """As `Administration.close_connection`."""
        _done(self._admin.close_connection(identity))

    def reload(self) -> dict[str, Any]:
        """As `Administration.reload`."""
        return _done(self._admin.reload())

    def network(self, *, limit_s: float = 5.0) -> list[dict[str, Any]]:
        """As `Administration.network`."""
        return _done(self._admin.network(limit_s=limit_s))

    def drain(self) -> dict[str, Any]:
        """As `Administration.drain`."""
        return _done(self._admin.drain())

    def resume(self) -> dict[str, Any]:
        """As `Administration.resume`."""
        return _done(self._admin.resume())

    def where(self, message_id: Any, *, limit_s: float = 5.0) -> dict[str, Any]:
        """As `Administration.where`."""
        return _done(self._admin.where(message_id, limit_s=limit_s))
