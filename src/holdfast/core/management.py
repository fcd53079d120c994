"""`$management`: requests about queues, subscriptions and the node, answered over AMQP (AMQP Management, request and
response; docs/management.md lists the operations).

Rules of this file: one function an operation, (core, name, arguments) -> Answer; what changes something is answered
once it is on disk. An operation that is not known is 400, a name that is not known 404.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.amqp.types import Ulong
from holdfast.broker.cursor import Cursor
from holdfast.broker.custody import Origin
from holdfast.broker.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.core.asks import CLIENT_ASKS_MAX, IDS_MAX, LIMIT_S, LIMIT_S_DEFAULT, answer_of, ids_of
from holdfast.core.catalog import DEAD_LETTERS, WAITING
from holdfast.core.chores import ASKED_MAX
from holdfast.core.config import QueueConfig
from holdfast.core.message_ids import ID_BYTES_MAX
from holdfast.core.report import QUEUES_A_PAGE, page_of_queues, queue_map, status
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.schema import COUNT, FLAG, NUMBER, TEXT, Keys, Kind, is_number, is_whole, is_whole_within

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore
    from holdfast.core.requests import Asked

MANAGEMENT: Final = "$management"
SUBSCRIPTIONS_A_PAGE: Final = 200
"""With so many in an answer to QUERY the next queue's wait for the next page."""

WAITING_LOOKED_AT: Final = 1_000
"""So many messages that consumers hold, or gave back, cost as much as a queue told, where the head is asked for; and so
many that wait for earlier ones, where gaps are skipped."""


class Answer(NamedTuple):
    """`body` goes as amqp-value; `stored` False where nothing waits for the disk."""

    status: int
    description: str
    body: dict[str, Any]
    stored: bool = False


class Later:
    """An operation whose end comes in a later turn: it calls `answer` then, again where that failed."""

    def __init__(self) -> None:
        self.asked: Asked | None = None
        """Whose it is: a failure on the way to its answer is that connection's."""

    @property
    def link(self) -> object:
        return None if self.asked is None else self.asked.link

    def answer(self, answer: Answer) -> None:
        if self.asked is not None:
            self.asked.answer(answer)


CREATES: Final = frozenset(("CREATE", "OPEN"))
"""What is to last, and would not in a store whose file is gone."""


class Refused(Exception):
    """An operation that ends in a status other than 2xx; becomes an Answer."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(description)
        self.answer = Answer(status, description, {})


NOT_SKIPPED: Final = Answer(
    503, "nothing was given up: the node could not store what waits behind the gaps, see its status; ask again", {}
)

Operation = Callable[["NodeCore", str, dict[str, Any]], "Answer | Later"]


# ------------------------------------------------------------------------------------------------ arguments


def _text(arguments: dict[str, Any], key: str, default: str | None = None) -> str:
    value = arguments.get(key, default)
    if not isinstance(value, str):
        raise Refused(400, f"{key}: found {value!r}, accepted is a string")
    return str(value)


def _number(arguments: dict[str, Any], key: str, default: int | None = None) -> int:
    value = arguments.get(key, default)
    if not is_whole_within(value, 0, 2**63):
        raise Refused(400, f"{key}: found {value!r}, accepted is 0 to 2^63 - 1")
    return int(value)


def _queue(core: "NodeCore", name: str) -> Queue:
    queue = core.catalog.queues.get(name)
    if queue is None:
        raise Refused(404, f"no queue {name!r}")
    return queue


# ------------------------------------------------------------------------------------------------ node, queues


def node_status(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    return Answer(200, "OK", status(core))


def node_where(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Later:
    """Where a message is, here or along its path (docs/where.md)."""
    ids = ids_of(arguments.get("message_id"))
    if ids is None:
        text = f"1 to {IDS_MAX} message-ids: strings or binaries of at most {ID_BYTES_MAX} bytes, ulongs, UUIDs"
        raise Refused(400, f"message_id: accepted are {text}")
    limit_s = arguments.get("limit_s", LIMIT_S_DEFAULT)
    if not is_number(limit_s) or not LIMIT_S[0] <= limit_s <= LIMIT_S[1]:
        raise Refused(400, f"limit_s: found {limit_s!r}, accepted is {LIMIT_S[0]:g} to {LIMIT_S[1]:g}")
    later = Later()
    if not core.asks.ask(ids, limit_s, lambda steps: later.answer(Answer(200, "OK", answer_of(ids, steps)))):
        raise Refused(409, f"{CLIENT_ASKS_MAX} such questions are under way, the most there may be")
    return later


def node_forget(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    """Takes a node that left for good out of the routing, here and at all nodes that can be reached."""
    if core.routing is None:
        raise Refused(409, "this node has no topology: it knows its neighbours alone")
    if name not in core.routing.states.known:
        raise Refused(404, f"no node {name!r}")
    kept = core.routing.upkeep.why_kept(name)
    if kept is not None:
        raise Refused(409, f"node {name!r}: {kept}")
    core.routing.upkeep.forget(name, "by hand")
    return Answer(200, "OK", {"node": name})


def queue_query(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queues, more = page_of_queues(core, _text(arguments, "after", ""))
    return Answer(200, "OK", {"queues": queues, "more": more})


def queue_read(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queue = _queue(core, name)
    return Answer(200, "OK", {**queue_map(core, queue), "head": Ulong(queue.head())})


_BOUND: Final = Kind(f"{COUNT.accepted}, or null for none", lambda value: value is None or COUNT.fits(value))
_QUEUE_KEYS: Final[Keys] = {
    "bytes_max": _BOUND,
    "messages_max": _BOUND,
    "when_full": TEXT,
    "order": TEXT,
    "order_wait_s": NUMBER,
    "durable": FLAG,
}


def _spelt(value: object) -> str:
    """A setting as a person reads it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"


def queue_create(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    for key, value in arguments.items():
        if key not in _QUEUE_KEYS:
            raise Refused(400, f"{key}: accepted is one of {', '.join(_QUEUE_KEYS)}")
        if not _QUEUE_KEYS[key].fits(value):
            raise Refused(400, f"{key}: found {value!r}, accepted is {_QUEUE_KEYS[key].accepted}")
    try:
        config = QueueConfig(name=check_name(name), **arguments)
        config.validate()
        queue = core.catalog.queues.get(name)
        if queue is None:
            queue = core.catalog.create(config)
            return Answer(201, "Created", {**queue_map(core, queue), "created": True}, stored=True)
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
    return Answer(200, "OK", {**queue_map(core, queue), "created": False}, stored=True)


def queue_delete(core: "NodeCore", name: str, arguments: dict[str, Any]) -> "Answer | Later":
    queue = _queue(core, name)
    if queue.in_transit:
        return _delete_for_departed(core, queue, arguments)
    if queue.kind is not QueueKind.ORDINARY:
        raise Refused(409, f"queue {name!r} belongs to the node")
    core.resume.release(queue)
    if queue.shared.takers or queue.shared.shown or core.links.producers_of(queue) or core.links.readers_of(queue):
        raise Refused(409, f"queue {name!r} has links")
    if queue.named:
        raise Refused(409, f"queue {name!r} has subscriptions: {', '.join(sorted(queue.named))}")
    purged = queue.messages
    core.delete_queue(queue)
    return Answer(200, "OK", {"purged": Ulong(purged)}, stored=True)


def _check_asked(core: "NodeCore", name: str) -> None:
    if core.chores.full:
        raise Refused(409, f"queue {name!r}: {ASKED_MAX} requests wait for purges already, the most there may be")


def _delete_for_departed(core: "NodeCore", queue: Queue, arguments: dict[str, Any]) -> Later:
    """The messages become dead letters; tombstones stay, with the queue, unless they are given up too (ADR 0024)."""
    node = queue.name[1:]
    with_tombstones = arguments.get("tombstones", False)
    if not isinstance(with_tombstones, bool):
        raise Refused(400, f"tombstones: found {with_tombstones!r}, accepted is true or false")
    if core.forwarding.knows(node):
        text = f"node {node!r} is in the configuration or the topology: a queue is deleted once its node has left both"
        raise Refused(409, f"queue {queue.name!r}: {text}")
    _check_asked(core, queue.name)
    later = Later()

    def ended(dead_letters: int, tombstones: int) -> None:
        if core.forwarding.knows(node):
            text = f"node {node!r} came back: {dead_letters} messages became dead letters, the others go to it"
            later.answer(Answer(409, f"queue {queue.name!r}: {text}", {}, stored=True))
            return
        body = {"dead_lettered": Ulong(dead_letters), "tombstones": Ulong(tombstones)}
        later.answer(Answer(200, "OK", body, stored=True))

    core.departures.look()
    core.departures.begin(queue, ended, with_tombstones=with_tombstones)
    return later


def queue_purge(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Later:
    queue = _queue(core, name)
    if queue.kind is QueueKind.WAITING:
        raise Refused(409, f"queue {name!r} belongs to the node: SKIP closes the gaps that its messages wait for")
    if queue.named:
        raise Refused(409, f"queue {name!r} has subscriptions: {', '.join(sorted(queue.named))}")
    _check_asked(core, name)
    later = Later()

    def ended(gone: int) -> None:
        held = min(len(queue.shared.shown), queue.messages - queue.tombstones)
        later.answer(Answer(200, "OK", {"purged": Ulong(gone), "held": Ulong(max(0, held))}, stored=True))

    core.chores.purge(queue, ended)
    return later


def _waits_for(origin: Origin, name: str) -> bool:
    return any(waiting.queue == name for waiting in origin.waiting.values())


def queue_skip(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer | Later:
    """Closes the gaps that keep messages waiting; those of one origin, or all. Refused where the turn is undone."""
    wanted = None if arguments.get("origin") is None else str(arguments["origin"])
    lost = []
    origins = [origin for origin in core.catalog.all_origins() if not name or _waits_for(origin, name)]
    if name and not origins and name not in core.catalog.queues:  # one that is not there may be waited for
        raise Refused(404, f"no queue {name!r}")
    for origin in origins:
        if wanted is not None and str(origin.origin) != wanted:
            continue
        for first, last in core.destination.skip(origin, "skipped by hand"):
            lost.append({"origin": str(origin.origin), "first": Ulong(first), "last": Ulong(last)})
    if not lost:
        return Answer(200, "OK", {"lost": lost}, stored=True)
    later = Later()
    done = Answer(200, "OK", {"lost": lost})
    core.turns.gathered.decided.append(lambda stored: later.answer(done if stored else NOT_SKIPPED))
    return later


# ------------------------------------------------------------------------------------------------ subscriptions


def _subscription(core: "NodeCore", name: str, arguments: dict[str, Any]) -> tuple[Queue, Cursor]:
    queue = _queue(core, _text(arguments, "queue"))
    cursor = queue.named.get(name)
    if cursor is None:
        raise Refused(404, f"no subscription {name!r} on queue {queue.name!r}")
    return queue, cursor


def _subscription_map(queue: Queue, cursor: Cursor) -> dict[str, Any]:
    return {
        "name": cursor.name,
        "queue": queue.name,
        "queue_uuid": str(queue.uuid),
        "mode": cursor.mode,
        "advanced": Ulong(cursor.floor),
        "head": Ulong(max(cursor.floor, queue.head())),
        "tail": Ulong(queue.visible),
        "lease_epoch": Ulong(cursor.lease_epoch),
    }


def subscription_open(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queue_name = _text(arguments, "queue")
    if queue_name.startswith(("@", "$")) and queue_name != DEAD_LETTERS:
        raise Refused(409, f"queue {queue_name!r} belongs to the node")
    try:
        check_name(name)
        queue = core.catalog.local(queue_name)
    except ConfigError as error:
        raise Refused(400, str(error)) from error
    if queue is None:
        raise Refused(404, f"no queue {queue_name!r}")
    mode = _text(arguments, "mode", "take")
    if mode not in ("take", "copy"):
        raise Refused(400, f"mode: found {mode!r}, accepted is take or copy")
    cursor = queue.named.get(name)
    status = 200
    if cursor is None:
        full = core.catalog.subscriptions_full(queue)
        if full is not None:
            raise Refused(409, full)
        if mode == "take":
            if queue.taken_by is not None:
                raise Refused(409, f"queue {queue.name!r} is taken by subscription {queue.taken_by!r}")
            core.resume.release(queue)
            if queue.shared.takers or queue.shared.shown:
                raise Refused(409, f"queue {queue.name!r} has consumers: a taking subscription reads alone")
        start = arguments.get("start", "first")
        if start == "first":
            place = queue.head()
        elif start == "next":
            place = queue.next_sequence
        elif is_whole(start):
            place = min(max(int(start), queue.head()), queue.next_sequence)
        else:
            raise Refused(400, f"start: found {start!r}, accepted is first, next or a sequence")
        cursor = queue.add_cursor(name, mode, place)
        status = 201
    elif cursor.mode != mode:
        raise Refused(409, f"subscription {name!r} is there as {cursor.mode}")
    cursor.lease_epoch += 1
    queue.dirty(cursor)
    return Answer(status, "OK", _subscription_map(queue, cursor), stored=True)


def subscription_read(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queue, cursor = _subscription(core, name, arguments)
    return Answer(200, "OK", _subscription_map(queue, cursor))


def _held(core: "NodeCore", name: str, arguments: dict[str, Any]) -> tuple[Queue, Cursor]:
    """The subscription, if the caller still holds its lease and speaks of this very queue."""
    queue, cursor = _subscription(core, name, arguments)
    if _text(arguments, "queue_uuid") != str(queue.uuid):
        raise Refused(412, f"queue {queue.name!r} was made anew: it is {queue.uuid} now")
    if _number(arguments, "lease_epoch") != cursor.lease_epoch:
        raise Refused(409, f"subscription {name!r} has a newer holder: lease epoch {cursor.lease_epoch}")
    return queue, cursor


def subscription_peek(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    """The end of a range within both limits; moves nothing."""
    queue, _ = _held(core, name, arguments)
    start = _number(arguments, "start")
    messages_max = _number(arguments, "messages_max", 2**62)
    bytes_max = _number(arguments, "bytes_max", 2**62)
    end = queue.visible
    if end - start > messages_max or queue.bytes_held > bytes_max:
        end = min(end, start + messages_max)
        if queue.messages and queue.bytes_held > bytes_max:
            average = max(1, queue.bytes_held // queue.messages)
            end = min(end, start + max(1, bytes_max // average))
    return Answer(200, "OK", {"end": Ulong(max(start, end))})


def subscription_advance(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queue, cursor = _held(core, name, arguments)
    sequence = _number(arguments, "sequence")
    if sequence > queue.visible:
        raise Refused(400, f"sequence: found {sequence}, accepted is at most {queue.visible}")
    core.resume.release(queue, cursor)
    if cursor.shown or cursor.takers:
        raise Refused(409, f"subscription {name!r} is read over a link, which settles what it read")
    cursor.advance(sequence)
    return Answer(200, "OK", {"advanced": Ulong(cursor.floor)}, stored=True)


def subscription_delete(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    queue, cursor = _subscription(core, name, arguments)
    if cursor.takers:
        raise Refused(409, f"subscription {name!r} has a link")
    core.resume.release(queue, cursor)
    queue.remove_cursor(name)
    return Answer(200, "OK", {}, stored=True)


def subscription_query(core: "NodeCore", name: str, arguments: dict[str, Any]) -> Answer:
    """Those of one queue; or of all, by the queues' names from the first behind `after` on, a bounded number."""
    queues = core.catalog.queues
    wanted = arguments.get("queue")
    if wanted is not None:
        _queue(core, _text(arguments, "queue"))
    after = _text(arguments, "after", "")
    names = sorted(key for key, queue in queues.items() if queue.named and key > after) if wanted is None else [wanted]
    found: list[dict[str, Any]] = []
    more = False
    for key in names:
        queue = queues.get(str(key))
        if queue is None:
            continue
        if more := len(found) >= SUBSCRIPTIONS_A_PAGE:
            break
        found += [_subscription_map(queue, cursor) for _, cursor in sorted(queue.named.items())]
    return Answer(200, "OK", {"subscriptions": found, "more": more})


OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("holdfast:node", "STATUS"): node_status,
    ("holdfast:node", "WHERE"): node_where,
    ("holdfast:node", "FORGET"): node_forget,
    ("holdfast:queue", "QUERY"): queue_query,
    ("holdfast:queue", "READ"): queue_read,
    ("holdfast:queue", "CREATE"): queue_create,
    ("holdfast:queue", "DELETE"): queue_delete,
    ("holdfast:queue", "PURGE"): queue_purge,
    ("holdfast:queue", "SKIP"): queue_skip,
    ("holdfast:subscription", "OPEN"): subscription_open,
    ("holdfast:subscription", "READ"): subscription_read,
    ("holdfast:subscription", "PEEK"): subscription_peek,
    ("holdfast:subscription", "ADVANCE"): subscription_advance,
    ("holdfast:subscription", "DELETE"): subscription_delete,
    ("holdfast:subscription", "QUERY"): subscription_query,
}


def cost_of(core: "NodeCore", kind: str, operation: str, name: str, arguments: dict[str, Any]) -> int:
    """What a request costs at most, in queues told."""
    catalog = core.catalog
    if operation in ("STATUS", "QUERY"):
        return QUEUES_A_PAGE + (len(catalog.queues) + len(catalog.origins)) // 10
    if operation == "SKIP":
        held = catalog.queues.get(WAITING)
        return 1 + len(catalog.origins) + (0 if held is None else held.messages // WAITING_LOOKED_AT)
    if operation == "DELETE":
        return 1 + len(catalog.producers) // 100
    if operation not in ("READ", "OPEN"):
        return 1
    queue = catalog.queues.get(name if kind == "holdfast:queue" else str(arguments.get("queue")))
    cursor = None if queue is None else queue.shared
    waiting = 0 if cursor is None else len(cursor.shown) + len(cursor.returned) + len(cursor.exclusions.aside)
    counted = len(catalog.queues) // 100 if operation == "OPEN" else 0  # all their subscriptions
    return 1 + waiting // WAITING_LOOKED_AT + counted
