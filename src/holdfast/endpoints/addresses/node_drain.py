"""A drained node accepts no new messages, and delivers those that it has (docs/operations.md, "Draining a node"). Rules
of this file: only new messages of clients are refused. Messages that were accepted anywhere are delivered as usual, so
messages in custody for this node are still accepted. The state is a row of table `node`, so it survives restarts.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import node_of
from holdfast.broker.queue import Queue
from holdfast.broker.stored.records import DRAIN, pack_map, unpack_map
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.dynamic_nodes import PREFIX
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.names import DEAD_LETTERS
from holdfast.peers.link_tables import LinkTables
from holdfast.state.catalog import Catalog
from holdfast.state.producer_ends import ProducerEnds
from holdfast.state.turns import Turns
from holdfast.units import iso8601

CONDITION: Final = conditions.DETACH_FORCED
"""An operator intervened. Holdfast's clients try again after it, for `retry_s`."""


class NodeDrain:
    """Whether this node is drained, and what it still holds."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        links: LinkTables,
        producer_ends: ProducerEnds,
        forwarding: Forwarding,
        log: Log,
        rows: Iterable[tuple[bytes, bytes]],
        *,
        changed: Callable[[], None],
    ) -> None:
        """`rows`: of table `node`. `changed`: called when the drain begins or ends."""
        self.name = name
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._links = links
        self._producer_ends = producer_ends
        self._forwarding = forwarding
        self._log = log
        self._changed = changed
        row = dict(rows).get(DRAIN)
        self.since_ms: int | None = None if row is None else int(unpack_map(row)["since"])
        """Wall time at which the drain began; None: the node accepts new messages."""
        if row is not None:
            log.write("WARNING", f"{self._why()}; `holdfast resume` ends that")

    @property
    def active(self) -> bool:
        return self.since_ms is not None

    def begin(self) -> bool:
        """Begins the drain: new messages are refused, and links that send them end; False if it had begun already."""
        if self.active:
            return False
        self.since_ms = self._clock.wall_ms
        batch, place = self._turns.gathered.batch, ("node", DRAIN)
        batch.deletes[:] = [each for each in batch.deletes if each != place]
        batch.puts[place] = pack_map({"since": Ulong(self.since_ms)})
        self._log.write("WARNING", f"{self._why()}; `holdfast resume` ends that")
        self._end_links(list(self._links.producers), self._why())
        self._changed()
        return True

    def end(self) -> bool:
        """Ends the drain; False if the node was not drained."""
        if not self.active:
            return False
        self.since_ms = None
        batch, place = self._turns.gathered.batch, ("node", DRAIN)
        batch.puts.pop(place, None)
        batch.deletes.append(place)
        self._log.write("INFO", "the node takes new messages again")
        self._changed()
        return True

    def others_drained(self, names: Set[str]) -> None:
        """Other nodes were drained: links of clients that send to them end."""
        for destination, queue in self._catalog.transmissions():
            if node_of(destination) in names:
                self._end_links([queue], _why_other(node_of(destination)))

    def admit(self, queue: Queue, destination: str | None) -> None:
        """Refusal for a client's new message for that queue, or that other node; not for a dynamic node's queue, which
        receives the replies of consumers."""
        if queue.name.startswith(PREFIX):
            return
        if self.active:
            raise Refusal(CONDITION, self._why())
        node = None if destination is None else node_of(destination)
        if node is not None and self._forwarding.is_drained(node):
            raise Refusal(CONDITION, _why_other(node))

    def held(self) -> dict[str, int]:
        """How many messages the node still holds: in its own queues, for other nodes, and as dead letters."""
        own = transit = dead = 0
        for queue in self._catalog.queues.values():
            waiting = queue.messages - queue.tombstones
            if queue.name == DEAD_LETTERS:
                dead += waiting
            elif queue.destination:
                transit += waiting
            elif not queue.name.startswith(PREFIX):
                own += waiting
        return {"messages": own, "in_transmission": transit, "dead_letters": dead}

    def status(self) -> dict[str, Any] | None:
        """Since when it is drained, and what is left; None if it is not drained."""
        if self.since_ms is None:
            return None
        left = {name: Ulong(count) for name, count in self.held().items()}
        return {"since": iso8601(self.since_ms), **left}

    def _end_links(self, queues: list[Queue], why: str) -> None:
        for link in self._bringing(queues):
            self._producer_ends.end(link, why, CONDITION)

    def _bringing(self, queues: list[Queue]) -> Iterator[Any]:
        for queue in queues:
            if not queue.name.startswith(PREFIX):
                yield from list(self._links.producers_of(queue))

    def _why(self) -> str:
        return f"node {self.name!r} is being drained: it takes no new messages; send to another node"


def _why_other(node: str) -> str:
    return f"node {node!r} is being drained: it takes no new messages"
