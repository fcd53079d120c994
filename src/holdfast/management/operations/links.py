"""The operations of `$management` about links between queues (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer; a change is answered once it is on
disk. A link in the configuration file can only be deleted there.
"""

from typing import Any, Final

from holdfast.broker.beginnings import FIRST
from holdfast.broker.entries.host_names import hosted
from holdfast.entity_types import LINK
from holdfast.errors import ConfigError
from holdfast.management.operations.answers import Answer, Refused, text_of
from holdfast.management.operations.changes import done_to, link_created
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.rights import Rights
from holdfast.queue_links.link import QueueLink
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.queues import LinkConfig
from holdfast.steps import parsing

LINK_KEYS: Final = ("from", "to", "selector", "mode", "steps", "start")
"""What CREATE has in its body."""
LINK_ATTRIBUTES: Final = (
    *LINK_KEYS, "configured", "state", "moved_total", "dead_lettered_total", "dropped_total", "windows"
)  # fmt: skip


class LinkOperations:
    """Creates, deletes, stops and starts links."""

    def __init__(self, links: QueueLinks) -> None:
        self._links = links

    def register(self, table: Table) -> None:
        table |= {
            (LINK, "QUERY"): Operation(self.query, READS, cost=Costs.of_list),
            (LINK, "CREATE"): Operation(
                self.create, link_created, needs=Rights.of_new_link, arguments=LINK_KEYS, creates=True
            ),
            (LINK, "DELETE"): Operation(
                self.delete, done_to("link", "deleted"), needs=Rights.of_link, cost=Costs.of_producers
            ),
            (LINK, "START"): Operation(self.start, done_to("link", "started"), needs=Rights.of_link),
            (LINK, "STOP"): Operation(self.stop, done_to("link", "stopped"), needs=Rights.of_link),
        }

    def types(self) -> tuple[EntityType, ...]:
        """The rows of QUERY."""
        return (EntityType(LINK, LINK_ATTRIBUTES, self._keys, self._row),)

    def _keys(self, host: str, after: str) -> list[QueueLink]:
        return [link for link in self._links.of_host(host) if link.name > after]

    def _row(self, link: QueueLink) -> dict[str, Any]:
        return {"identity": link.name, **self._links.told(link)}

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return Answer(200, "OK", {"links": self._links.status(host), "more": False})

    def create(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        try:
            steps = parsing.as_text(arguments.get("steps") or (), f"link {name!r}")
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        config = LinkConfig(
            name=name,
            source=text_of(arguments, "from"),
            target=text_of(arguments, "to"),
            selector=text_of(arguments, "selector", ""),
            mode=text_of(arguments, "mode", "move"),
            steps=steps,
            start=arguments.get("start", FIRST),
            vhost=host,
        )
        found = self._links.by_name.get(config.key)
        if found is not None and (found.ended or found.config != config):
            text = "is being deleted; ask again" if found.ended else "is there with other settings; delete it first"
            raise Refused(409, f"link {name!r} {text}")
        if found is not None:
            return Answer(200, "OK", {**self._links.told(found), "created": False}, stored=True)
        try:
            link = self._links.create(config)
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        return Answer(201, "Created", {**self._links.told(link), "created": True}, stored=True)

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        link = self._link(host, name)
        if not link.is_created:
            raise Refused(409, f"link {name!r} is in the configuration; remove it there, or stop it")
        self._links.delete(link)
        return Answer(200, "OK", {}, stored=True)

    def start(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return self._stop(host, name, is_stopped=False)

    def stop(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return self._stop(host, name, is_stopped=True)

    def _stop(self, host: str, name: str, *, is_stopped: bool) -> Answer:
        link = self._link(host, name)
        self._links.stop(link, is_stopped=is_stopped)
        return Answer(200, "OK", self._links.told(link), stored=True)

    def _link(self, host: str, name: str) -> QueueLink:
        link = self._links.by_name.get(hosted(host, name))
        if link is None or link.ended:
            raise Refused(404, f"no link {name!r}")
        return link
