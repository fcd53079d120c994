"""The operations of `$management` about the node: its status, its configuration, where a message is, and a node that
left (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer. An unknown node is 404.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.management.network.view import ASKS_MAX, NetworkView
from holdfast.management.operations.answers import NODE, Answer, Later, Refused, Table, text_of
from holdfast.management.operations.entities import EntityType
from holdfast.management.status.status import NodeStatus
from holdfast.management.where.message_ids import ID_BYTES_MAX
from holdfast.management.where.questions import (
    CLIENT_ASKS_MAX,
    IDS_MAX,
    LIMIT_S,
    LIMIT_S_DEFAULT,
    WhereQuestions,
    answer_of,
    ids_of,
)
from holdfast.management.where.search import Step
from holdfast.peering.route_status import RoutesNow
from holdfast.schema import is_number

NODE_ATTRIBUTES: Final = ("node", "store", "former_store", "uptime_s", "resident_bytes", "room_bytes")


class NodeOperations:
    """Status, searches, and nodes that left."""

    def __init__(
        self,
        report: NodeStatus,
        questions: WhereQuestions,
        routing: RoutesNow,
        reload: Callable[[], Later],
        node_drain: NodeDrain,
        view: NetworkView,
    ) -> None:
        """`reload`: has the configuration read and taken up; Refused where that is not possible."""
        self._report = report
        self._questions = questions
        self._routing = routing
        self._reload = reload
        self._node_drain = node_drain
        self._view = view

    def register(self, table: Table) -> None:
        table |= {
            (NODE, "STATUS"): self.status,
            (NODE, "WHERE"): self.where,
            (NODE, "FORGET"): self.forget,
            (NODE, "RELOAD"): self.reload,
            (NODE, "NETWORK"): self.network,
            (NODE, "DRAIN"): self.drain,
            (NODE, "RESUME"): self.resume,
        }

    def types(self) -> tuple[EntityType, ...]:
        """The row of QUERY."""
        return (EntityType(NODE, NODE_ATTRIBUTES, lambda host, after: [host] if not after else [], self._row),)

    def _row(self, key: str) -> dict[str, Any]:
        return self._report.summary(key)

    def status(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return Answer(200, "OK", self._report.status(host))

    def where(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        """Where a message is, here or along its path (docs/where.md)."""
        ids = ids_of(arguments.get("message_id"))
        if ids is None:
            text = f"1 to {IDS_MAX} message-ids: strings or binaries of at most {ID_BYTES_MAX} bytes, ulongs, UUIDs"
            raise Refused(400, f"invalid value for message_id; expected {text}")
        limit_s = arguments.get("limit_s", LIMIT_S_DEFAULT)
        if not is_number(limit_s) or not LIMIT_S[0] <= limit_s <= LIMIT_S[1]:
            raise Refused(400, f"invalid value {limit_s!r} for limit_s; expected {LIMIT_S[0]:g} to {LIMIT_S[1]:g}")
        later = Later()

        def told(steps: list[Step]) -> None:
            later.answer(Answer(200, "OK", answer_of(ids, steps)))

        if not self._questions.ask(host, ids, limit_s, told):
            raise Refused(409, f"{CLIENT_ASKS_MAX} such questions are under way, the most there may be")
        return later

    def reload(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        """Takes up the node's configuration, as SIGHUP does; answers what changed, and what waits for a restart."""
        if host != DEFAULT_HOST:
            raise Refused(403, "the configuration is the default host's")
        return self._reload()

    def network(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        """A row for each node of the network, a page of them."""
        if host != DEFAULT_HOST:
            raise Refused(403, "the network is the default host's")
        after, limit_s = text_of(arguments, "after", ""), arguments.get("limit_s", LIMIT_S_DEFAULT)
        if not is_number(limit_s) or not LIMIT_S[0] <= limit_s <= LIMIT_S[1]:
            raise Refused(400, f"invalid value {limit_s!r} for limit_s; expected {LIMIT_S[0]:g} to {LIMIT_S[1]:g}")
        later = Later()

        def told(rows: list[dict[str, Any]], more: bool) -> None:
            later.answer(Answer(200, "OK", {"nodes": rows, "more": more}))

        if not self._view.ask(after, limit_s, told):
            raise Refused(409, f"{ASKS_MAX} such questions are under way, the most there may be")
        return later

    def drain(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """The node takes no new messages any more, over restarts too; answers what it still holds."""
        if host != DEFAULT_HOST:
            raise Refused(403, "the node is the default host's to drain")
        return self._drained(self._node_drain.begin())

    def resume(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """The node takes new messages again."""
        if host != DEFAULT_HOST:
            raise Refused(403, "the node is the default host's to drain")
        return self._drained(self._node_drain.end())

    def _drained(self, changed: bool) -> Answer:
        told = {"node": self._node_drain.name, "changed": changed, "drain": self._node_drain.status()}
        return Answer(200, "OK", told, stored=True)

    def forget(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Removes a node that left for good from the routing, here and at all reachable nodes."""
        routing = self._routing()
        if host != DEFAULT_HOST:
            raise Refused(403, "nodes are the default host's")
        if routing is None:
            raise Refused(409, "this node has no topology: it knows its neighbours alone")
        if name not in routing.states.known:
            raise Refused(404, f"no node {name!r}")
        kept = routing.upkeep.why_kept(name)
        if kept is not None:
            raise Refused(409, f"node {name!r}: {kept}")
        routing.upkeep.forget(name, "by hand")
        return Answer(200, "OK", {"node": name})
