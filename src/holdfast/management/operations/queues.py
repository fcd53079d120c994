"""The operations of `$management` about queues (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer; a change is answered once it is on
disk. An unknown name is 404.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.access.actions import ADMINISTER, BROWSE, CREATE, DELETE
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.entries.host_names import HostedName, hosted, node_of
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.stored.origins import Origin
from holdfast.broker.topic import Topic
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.departed import Departures
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.background_jobs import ASKED_MAX, BackgroundJobs
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.topic_bindings import federated_name
from holdfast.engine.effects import Effect
from holdfast.entity_types import QUEUE
from holdfast.errors import ConfigError
from holdfast.management.operations import changes
from holdfast.management.operations.answers import Answer, Later, Refused, queue_of, text_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.rights import at_queue
from holdfast.management.status.queues import QUEUE_ATTRIBUTES, QueueStatus
from holdfast.peers.link_tables import LinkTables
from holdfast.queue_links.links import QueueLinks
from holdfast.schema import COUNT, Keys, Kind
from holdfast.settings.queues import QUEUE_KEYS, QueueConfig
from holdfast.state.catalog import OWN_QUEUES, WAITING, Catalog
from holdfast.state.queue_records import CONFIG_FIELDS, LIVE_KEYS, told_fields
from holdfast.state.turns import Turns

NOT_SKIPPED: Final = Answer(
    503, "nothing was given up: the node could not store what waits behind the gaps, see its status; ask again", {}
)

CONFIGURABLE: Final = frozenset((QueueKind.ORDINARY, QueueKind.TOPIC))
"""Kinds of queues with settings of their own; the node's configuration bounds the others."""

DELETABLE: Final = CONFIGURABLE | {QueueKind.REMOTE, QueueKind.TRANSMISSION}

_BOUND: Final = Kind(
    f"{COUNT.expected}, or null for none", lambda value: value is None or COUNT.fits(value), is_unbounded=True
)
_KINDS: Final[Keys] = {key: _BOUND if kind is COUNT else kind for key, kind in QUEUE_KEYS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class AnswerSkip(Effect):
    """Answers a request to close gaps; `queue`: the queue, empty for all; `ranges`: how many were given up."""

    queue: str
    ranges: int
    later: Later = field(repr=False)
    done: Answer = field(repr=False)


def _answer_skip(effect: AnswerSkip, stored: bool) -> None:
    effect.later.answer(effect.done if stored else NOT_SKIPPED)


def _waits_for(origin: Origin, name: str) -> bool:
    return any(waiting.queue == name for waiting in origin.waiting.values())


def _spelt(value: object) -> str:
    """A setting as a person reads it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"


def _check_settings(arguments: dict[str, Any]) -> None:
    for key, value in arguments.items():
        if not _KINDS[key].fits(value):
            raise Refused(400, f"invalid value {value!r} for {key}; expected {_KINDS[key].wanted(value)}")


class QueueOperations:
    """Creates, changes, empties and deletes queues, and closes gaps that their messages wait for."""

    def __init__(
        self,
        catalog: Catalog,
        links: LinkTables,
        turns: Turns,
        status: QueueStatus,
        *,
        resume: Resumption,
        jobs: BackgroundJobs,
        departures: Departures,
        forwarding: Forwarding,
        destination: Destination,
        queue_links: QueueLinks,
        remote_queues: RemoteQueues,
        federated_with: Callable[[str], list[str]],
        delete: Callable[[Queue], None],
    ) -> None:
        """`federated_with`: the neighbours with which the topic of that name is federated. `delete`: deletes a queue
        that no link holds, with all that is kept of it."""
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._links = links
        self._turns = turns
        turns.effects.on_decided(AnswerSkip, _answer_skip)
        self._status = status
        self._resume = resume
        self._jobs = jobs
        self._departures = departures
        self._forwarding = forwarding
        self._destination = destination
        self._queue_links = queue_links
        self._remote_queues = remote_queues
        self._federated_with = federated_with
        self._delete_queue = delete

    def register(self, table: Table) -> None:
        table |= {
            (QUEUE, "QUERY"): Operation(self.query, READS, cost=Costs.of_list, arguments=("after", "offset")),
            (QUEUE, "READ"): Operation(self.read, READS, needs=at_queue(BROWSE), cost=Costs.of_head),
            (QUEUE, "CREATE"): Operation(
                self.create, changes.queue_created, needs=at_queue(CREATE), arguments=CONFIG_FIELDS, creates=True
            ),
            (QUEUE, "UPDATE"): Operation(
                self.update, changes.queue_changed, needs=at_queue(ADMINISTER), arguments=LIVE_KEYS
            ),
            (QUEUE, "DELETE"): Operation(
                self.delete, changes.queue_deleted, needs=at_queue(DELETE), cost=Costs.of_producers,
                arguments=("tombstones",),
            ),
            (QUEUE, "PURGE"): Operation(self.purge, changes.queue_purged, needs=at_queue(DELETE)),
            (QUEUE, "SKIP"): Operation(
                self.skip, changes.gaps_skipped, needs=at_queue(ADMINISTER), cost=Costs.of_gaps, arguments=("origin",)
            ),
        }  # fmt: skip

    def types(self) -> tuple[EntityType, ...]:
        """The rows of QUERY; the names of queues are their identities."""
        catalog = self._catalog

        def keys(host: str, after: str) -> list[HostedName]:
            names = sorted(queue.name for queue in catalog.of_host(host) if queue.name > after)
            return [hosted(host, name) for name in names]

        def row(key: HostedName) -> dict[str, Any]:
            queue = catalog.queues[key]
            return self._status.of(queue) | {"identity": queue.name}

        return (EntityType(QUEUE, QUEUE_ATTRIBUTES, keys, row),)

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queues, more = self._status.page(host, text_of(arguments, "after", ""))
        return Answer(200, "OK", {"queues": queues, "more": more})

    def read(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue = queue_of(self._catalog, host, name)
        return Answer(200, "OK", {**self._status.of(queue), "head": Ulong(queue.head())})

    def create(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        _check_settings(arguments)
        try:
            config = QueueConfig(name=name, vhost=host, **arguments)
            config.validate()
            queue = self._catalog.find(host, name)
            if queue is None:
                queue = self._catalog.create(config)
                return Answer(201, "Created", {**self._status.of(queue), "created": True}, stored=True)
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        found = {key: getattr(queue.config, key) for key in arguments}
        differ = [
            f"{key} {_spelt(found[key])}, asked for {_spelt(value)}"
            for key, value in arguments.items()
            if found[key] != value
        ]
        if differ:
            raise Refused(409, f"queue {name!r} is there with other settings: {'; '.join(differ)}")
        return Answer(200, "OK", {**self._status.of(queue), "created": False}, stored=True)

    def update(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Changes bounds, and what happens at them. A queue that holds more than its new bound keeps its messages, and
        accepts none until it holds less."""
        _check_settings(arguments)
        queue = self._of_kinds(host, name, CONFIGURABLE)
        if queue is None:
            raise Refused(409, f"queue {name!r} belongs to the node, whose configuration bounds it")
        config = QueueConfig(name=name, vhost=host, **told_fields(queue.config) | arguments)
        try:
            config.check_values(f"queue {name!r}")
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        changed = config != queue.config
        if changed:
            self._catalog.change(queue, config)
            for link in self._links.producers_of(queue):  # waiting messages may enter, or are refused
                link.refill()
        return Answer(200, "OK", {**self._status.of(queue), "changed": changed}, stored=True)

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer | Later:
        queue = self._of_kinds(host, name, DELETABLE)
        if queue is None:
            raise Refused(409, f"queue {name!r} belongs to the node")
        if queue.in_transit:
            return self._delete_for_departed(queue, arguments)
        if isinstance(queue, Topic) and queue.listeners:
            raise Refused(409, f"topic {name!r} has subscriptions that are not durable: {len(queue.listeners)}")
        naming = self._queue_links.naming(queue)
        if naming:
            raise Refused(409, f"queue {name!r} is named by links: {', '.join(sorted(naming))}; delete them first")
        topic = federated_name(queue)
        if topic is not None and (neighbours := self._federated_with(topic)):
            raise Refused(409, f"topic {name!r} is federated with: {', '.join(neighbours)}; remove that first")
        self._resume.release(queue)
        used = self._links.producers_of(queue) or self._links.readers_of(queue)
        if queue.kind is QueueKind.REMOTE and not used:
            self._remote_queues.released(queue)
        if used or queue.shared.consumers or queue.shared.acquired:
            if queue.kind is QueueKind.REMOTE:
                self._remote_queues.made(queue)  # messages go there again
            raise Refused(409, f"queue {name!r} has links")
        if queue.named:
            raise Refused(409, f"queue {name!r} has {_readers(queue)}")
        purged = queue.messages
        self._delete_queue(queue)
        return Answer(200, "OK", {"purged": Ulong(purged)}, stored=True)

    def _of_kinds(self, host: str, name: str, kinds: Set[QueueKind]) -> Queue | None:
        """The queue; None if it is of another kind, or one of the node's own, which may be made later. Refused if there
        is none."""
        queue = None if name in OWN_QUEUES else queue_of(self._catalog, host, name)
        return None if queue is None or queue.kind not in kinds else queue

    def _check_asked(self, name: str) -> None:
        if self._jobs.full:
            raise Refused(409, f"queue {name!r}: {ASKED_MAX} requests wait for purges already, the most there may be")

    def _delete_for_departed(self, queue: Queue, arguments: dict[str, Any]) -> Later:
        """The messages become dead letters; tombstones stay, with the queue, unless they are given up too (ADR
        0024)."""
        node = node_of(queue.destination)
        with_tombstones = arguments.get("tombstones", False)
        if not isinstance(with_tombstones, bool):
            raise Refused(400, f"invalid value {with_tombstones!r} for tombstones; expected true or false")
        if self._forwarding.knows(node):
            text = (
                f"node {node!r} is in the configuration or the topology: a queue is deleted once its node has left both"
            )
            raise Refused(409, f"queue {queue.name!r}: {text}")
        self._check_asked(queue.name)
        later = Later()

        def ended(dead_letters: int, tombstones: int) -> None:
            if self._forwarding.knows(node):
                text = f"node {node!r} came back: {dead_letters} messages became dead letters, the others go to it"
                later.answer(Answer(409, f"queue {queue.name!r}: {text}", {}, stored=True))
                return
            body = {"dead_lettered": Ulong(dead_letters), "tombstones": Ulong(tombstones)}
            later.answer(Answer(200, "OK", body, stored=True))

        self._departures.look()
        self._departures.begin(queue, ended, with_tombstones=with_tombstones)
        return later

    def purge(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        if name == WAITING:
            text = "`holdfast queue skip QUEUE` gives up the numbers that its messages wait for"
            raise Refused(409, f"queue {name!r} belongs to the node: {text}")
        queue = queue_of(self._catalog, host, name)
        if queue.named:
            raise Refused(409, f"queue {name!r} has {_readers(queue)}")
        self._check_asked(name)
        later = Later()

        def ended(gone: int) -> None:
            held = min(len(queue.shared.acquired), queue.messages - queue.tombstones)
            later.answer(Answer(200, "OK", {"purged": Ulong(gone), "held": Ulong(max(0, held))}, stored=True))

        self._jobs.purge(queue, ended)
        return later

    def skip(self, host: str, name: str, arguments: dict[str, Any]) -> Answer | Later:
        """Closes the gaps that keep messages waiting; those of one origin, or all. Refused where the turn is undone."""
        wanted = None if arguments.get("origin") is None else str(arguments["origin"])
        lost = []
        here = [origin for origin in self._ledger.all_origins() if origin.host == host]
        origins = [origin for origin in here if not name or _waits_for(origin, name)]
        if name and not origins and self._catalog.find(host, name) is None:  # messages may wait for a missing queue
            raise Refused(404, f"no queue {name!r}")
        for origin in origins:
            if wanted is not None and str(origin.origin) != wanted:
                continue
            for first, last in self._destination.skip(origin, "skipped by hand"):
                lost.append({"origin": str(origin.origin), "first": Ulong(first), "last": Ulong(last)})
        if not lost:
            return Answer(200, "OK", {"lost": lost}, stored=True)
        later = Later()
        done = Answer(200, "OK", {"lost": lost})
        self._turns.gathered.decided.append(AnswerSkip(self._turns.event, name, len(lost), later, done))
        return later


def _readers(queue: Queue) -> str:
    """What has a cursor of its own in the queue, for a person."""
    names = sorted(name for name in queue.named if not name.startswith(LINK_PREFIX))
    links = sorted(name.removeprefix(LINK_PREFIX) for name in queue.named if name.startswith(LINK_PREFIX))
    told = [
        f"{what}: {', '.join(found)}" for what, found in (("subscriptions", names), ("links that copy", links)) if found
    ]
    return "; ".join(told)
