"""Messages for a topic from other nodes: whether one is a duplicate, and to which nodes static entries pass it on
(docs/federation.md, docs/adr/0082).

Rules of this file: the node at which a message was published has chosen its destinations; only messages that a static
entry sent are routed again. Copies are recognised by their publication. A message that finds no room to be passed on is
not accepted yet. In a circle of static entries nodes may wait for each other, so if nothing moves, one message exceeds
a bound.
"""

from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.extensions import PUBLICATION, RELAY, TAGS
from holdfast.broker.entries import annotate, packed
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.endpoints.spreading import Branch, Passed, Published, Spreading
from holdfast.endpoints.topic_bindings import federated_name
from holdfast.engine.clock import Clock
from holdfast.federation.publications import Seen
from holdfast.peering.binding_control import BindingControl
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

STUCK_S: Final = 30.0
"""How long nothing may have left a full transmission queue, while its neighbour is connected, before one more message
is put into it."""

ADDED_BYTES: Final = 1_024
"""Upper bound of the annotations that forwarding adds to a copy: the name of this node, or all annotations of a
relay."""

_PUBLICATION_NAME: Final = PUBLICATION.encode()


class _RelayAnnotations(NamedTuple):
    """The annotations of relays on a message. `publication`: its identity; None if it has none."""

    publication: tuple[str, int] | None
    is_relay: bool
    tags: tuple[str, ...]


class PassingOn:
    """Checks each message in custody that arrives for a topic."""

    def __init__(
        self,
        work: Work[Queue],
        clock: Clock,
        turns: Turns,
        catalog: Catalog,
        bindings: BindingControl,
        spreading: Spreading,
        duplicates: Duplicates,
    ) -> None:
        self._clock = clock
        self._turns = turns
        self._catalog = catalog
        self._bindings = bindings
        self._spreading = spreading
        self._duplicates = duplicates
        self.old = 0
        """Messages too old for the memory of duplicates: they were delivered."""
        self.waiting: dict[Queue, tuple[float, int]] = {}
        """Full transmission queues for which messages wait: since when no entry has left, and how many had left by
        then."""
        self._stuck: dict[Queue, None] = {}
        """Queues that accept one message beyond their bound."""
        work.arrives = self._arrives
        work.onward = self

    def _arrives(self, topic: Queue, value: bytes) -> bool:
        name = federated_name(topic)
        if name is None:
            return True
        told = _relay_annotations(value)
        if told.publication is not None:
            seen = self._spreading.publications.take(*told.publication)
            if seen is Seen.COPY:
                self._duplicates.suppressed += 1
                return False
            self.old += seen is Seen.OLD
            self._turns.gathered.decided.append(Published(self._turns.event, *told.publication))
        if not self._passes_on(name, told):
            return True
        branches, passed = self._choose(topic, value, told)
        for branch in branches:
            self.waiting.pop(branch.queue, None)
            self._stuck.pop(branch.queue, None)
        self._spreading.spread(topic, branches, value, passed=passed, passes_on=True)
        return True

    def _choose(self, topic: Queue, value: bytes, told: _RelayAnnotations) -> tuple[tuple[Branch, ...], Passed | None]:
        """Where it goes from here, and the annotations of relays that it has there."""
        choice = self._spreading.choose(topic, value, tags=told.tags, anew=told.is_relay)
        passed = None if told.publication is None else Passed(told.publication, choice.tags)
        return self._spreading.branches_of(choice, topic), passed

    def _passes_on(self, name: str, told: _RelayAnnotations) -> bool:
        federation = self._bindings.federation
        if federation is None or not federation.spreads(name):
            return False
        return told.is_relay or federation.relays.has(name)

    def learns(self, topic: Queue, value: bytes) -> bool:
        """Whether a message in custody for that topic must be passed on, and it is not known yet to which nodes
        (`BindingControl.learns`)."""
        name = federated_name(topic)
        if name is None or not self._bindings.learns(name):
            return False
        told = _relay_annotations(value)
        is_copy = told.publication is not None and self._spreading.publications.has(*told.publication)
        return self._passes_on(name, told) and not is_copy

    # ------------------------------------------------------------------------------------------------ room

    def no_room(self, topic: Queue, value: bytes, count: int) -> tuple[Queue, int] | None:
        """The first transmission queue without room by which `count` messages in custody must be passed on from that
        topic, and the size of a copy there; None if all have room."""
        name, federation = federated_name(topic), self._bindings.federation
        if name is None or federation is None or not (_PUBLICATION_NAME in value or federation.relays.has(name)):
            return None
        most = packed.size_of(value) + ADDED_BYTES
        queues = (*self._catalog.transit.values(), *self._spreading.of_remotes())
        told = _relay_annotations(value) if any(_may_be_full(queue, most, count) for queue in queues) else None
        if told is None or not self._passes_on(name, told):
            return None
        if told.publication is not None and self._spreading.publications.has(*told.publication):
            return None
        branches, passed = self._choose(topic, value, told)
        for branch, size in self._spreading.sizes(branches, value, passed).items():
            if _is_full(branch.queue, size, count) and not self.is_stuck(branch.queue):
                return branch.queue, size
        return None

    def is_stuck(self, queue: Queue) -> bool:
        """Whether nothing has left that full transmission queue for STUCK_S although its neighbour is connected: then
        it accepts one more."""
        if queue in self._stuck:
            return True
        _, left = self.waiting.get(queue, (0.0, -1))
        if left != queue.out_total:
            self.waiting[queue] = self._clock.now, queue.out_total
        return False

    def next_deadline(self) -> float | None:
        return min((since + STUCK_S for since, _ in self.waiting.values()), default=None)

    def tick(self, now: float) -> None:
        """Checks the queues from which nothing has left for that long; the next request for one starts its time
        again."""
        for queue in [queue for queue, (since, _) in self.waiting.items() if now >= since + STUCK_S]:
            _, left = self.waiting.pop(queue)
            if self._catalog.has(queue):
                if left == queue.out_total and self._bindings.is_up(self._bindings.via(queue.name[1:])):
                    self._stuck[queue] = None
                queue.touch()  # whoever waits looks again
        for queue in [queue for queue in self._stuck if not self._catalog.has(queue)]:
            del self._stuck[queue]


def _may_be_full(queue: Queue, most: int, count: int) -> bool:
    """Cheap test: False if `_is_full` is False for every message up to that size."""
    return queue.config.when_full == "block" and not queue.fits_all(count, count * most)


def _is_full(queue: Queue, size: int, count: int) -> bool:
    """Whether messages must wait for room in it: all that arrive at once, if it can ever hold them."""
    if queue.config.when_full != "block":
        return False
    if count > 1 and queue.can_hold(count, count * size):
        return not queue.fits_all(count, count * size)
    return not queue.fits(size)


def _relay_annotations(value: bytes) -> _RelayAnnotations:
    count, items = packed.annotations_of(value)
    told: dict[Any, Any] = annotate.decoded(count, items) if _PUBLICATION_NAME in items else {}
    publication = annotate.publication_in(told.get(PUBLICATION))
    # without one its copies would not be known as such
    is_relay = publication is not None and told.get(RELAY) is True
    return _RelayAnnotations(publication, is_relay, tuple(told.get(TAGS, ())))
