"""The operations of `$management` about the node: its status, its configuration, where a message is, and a node that
left (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer. An unknown node is 404.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST, node_of
from holdfast.broker.queue import Queue
from holdfast.custody.departed import Departures
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.entity_types import NODE
from holdfast.management.network.view import ASKS_MAX, NetworkView
from holdfast.management.operations import changes
from holdfast.management.operations.answers import Answer, Later, Refused, text_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
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
from holdfast.state.catalog import Catalog

KEEP: Final = "keep"
DEAD_LETTER: Final = "dead-letter"
MOVE: Final = "move"
MAIL: Final = (KEEP, DEAD_LETTER, MOVE)
"""What becomes of the mail for a node that is forgotten."""
ENDS_MAX: Final = 256
"""Queues of which mail may be ended at once."""

NODE_ATTRIBUTES: Final = (
    "node",
    "store",
    "former_store",
    "version",
    "protocol",
    "uptime_s",
    "resident_bytes",
    "room_bytes",
)


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
        catalog: Catalog,
        forwarding: Forwarding,
        departures: Departures,
    ) -> None:
        """`reload`: has the configuration read and applied; Refused where that is not possible."""
        self._report = report
        self._questions = questions
        self._routing = routing
        self._reload = reload
        self._node_drain = node_drain
        self._view = view
        self._catalog = catalog
        self._forwarding = forwarding
        self._departures = departures

    def register(self, table: Table) -> None:
        table |= {
            (NODE, "STATUS"): Operation(self.status, READS, cost=Costs.of_list),
            (NODE, "WHERE"): Operation(self.where, READS, arguments=("message_id", "limit_s")),
            (NODE, "FORGET"): Operation(self.forget, changes.node_forgotten, arguments=("mail", "to")),
            (NODE, "RELOAD"): Operation(self.reload, changes.reloaded),
            (NODE, "NETWORK"): Operation(self.network, READS, arguments=("after", "limit_s")),
            (NODE, "DRAIN"): Operation(self.drain, changes.drained),
            (NODE, "RESUME"): Operation(self.resume, changes.resumed),
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
        """Drains the node, also over restarts; answers what it still holds."""
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

    def forget(self, host: str, name: str, arguments: dict[str, Any]) -> Answer | Later:
        """Removes a node that left for good from the routing, here and at all reachable nodes; and does with the mail
        for it that waits here, in every virtual host, what `mail` says."""
        if host != DEFAULT_HOST:
            raise Refused(403, "nodes are the default host's")
        mail = text_of(arguments, "mail", KEEP)
        if mail not in MAIL:
            raise Refused(400, f"invalid value {mail!r:.80} for mail; expected one of {', '.join(MAIL)}")
        to = text_of(arguments, "to") if mail == MOVE else None
        if to is not None and (to == self._node_drain.name or to == name or not self._forwarding.knows(to)):
            raise Refused(400, f"invalid value {to!r:.80} for to; expected another node that this one knows")
        waiting = [queue for destination, queue in self._catalog.transmissions() if node_of(destination) == name]
        routing = self._routing()
        if routing is not None and name in routing.states.known:
            kept = routing.upkeep.why_kept(name)
            if kept is not None:
                raise Refused(409, f"node {name!r}: {kept}")
            routing.upkeep.forget(name, "by hand")
        elif self._forwarding.knows(name):
            raise Refused(409, f"node {name!r}: this node's configuration names it: take it out there first")
        elif not waiting and routing is None:
            raise Refused(409, "this node has no topology: it knows its neighbours alone")
        elif not waiting:
            raise Refused(404, f"no node {name!r}, and no messages for it")
        count = sum(queue.messages - queue.tombstones for queue in waiting)
        if mail == KEEP or not count:
            return Answer(200, "OK", {"node": name, "waiting": Ulong(count)})
        return self._end_mail(name, waiting, to)

    def _end_mail(self, name: str, waiting: list[Queue], to: str | None) -> Later:
        """Has all that waits for that node become dead letters, or go to another one."""
        if self._departures.asked >= ENDS_MAX:
            raise Refused(409, f"{ENDS_MAX} such requests are under way, the most there may be")
        later, left, ended = Later(), len(waiting), 0
        what = "dead_lettered" if to is None else "moved"

        def told(made: int, tombstones: int) -> None:
            nonlocal left, ended
            left, ended = left - 1, ended + made
            if not left:
                kept = sum(queue.messages - queue.tombstones for queue in waiting)
                body = {"node": name, "waiting": Ulong(kept), what: Ulong(ended)}
                later.answer(Answer(200, "OK", body, stored=True))

        self._departures.look()
        for queue in waiting:
            self._departures.begin(queue, told, with_tombstones=False, to=to)
        return later
