"""Sends messages that are published to a topic of this node to the nodes with matching subscriptions; each is an
ordinary destination of custody with its own copy (docs/federation.md, docs/adr/0082).

Rules of this file: destinations are chosen once, in the turn that accepts the message, and not again on the path or at
the end. If it cannot be decided here whether a message matches, it is sent: its destination matches it in any case.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import OWN_PREFIX, PUBLICATION, RELAY, TAGS
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.bands import PRIORITY_MOST
from holdfast.broker.dropping import make_room
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.entry_sections import sections_of, subject_of
from holdfast.endpoints.topic_bindings import federated_name
from holdfast.engine.effects import Effect
from holdfast.engine.outbox import Outbox
from holdfast.federation import stored
from holdfast.federation.publications import Publications
from holdfast.federation.relaying import Choice
from holdfast.peering.binding_control import BindingControl
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.layouts import Layouts
from holdfast.selectors.predicate import Predicate, compile_selector
from holdfast.selectors.sections import Sections
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.tables import Tables
from holdfast.state.turns import Turn, Turns

PREDICATES_KEPT: Final = 1_024
"""Selectors of other nodes that are kept compiled."""

COMPILED_MAX: Final = 4
"""Selectors that one message may compile; further ones are not evaluated."""

WEIGHT_MAX: Final = 256
"""Weight of the selectors that are evaluated for one message, as `Predicate.weight` counts; beyond it the message is
sent."""

LEARNS: Final = "this node started with an empty store, and learns what other nodes want of the topic; try again"

NUMBER_MOST: Final = Ulong(2**63)
"""The encoding of any publication number is at most as long as this one's."""

BRANCH_EFFORT: Final = 8
"""Effort that a further copy counts for its publisher's connection."""


class Branch(NamedTuple):
    """A chosen destination, or remote, and its queue. `is_relay`: that node routes the message again. `is_passed_on`:
    static entries may bring copies to one node by several paths, so all carry the identity of the publication."""

    destination: str
    queue: Queue
    is_relay: bool = False
    is_passed_on: bool = False


class Passed(NamedTuple):
    """The annotations of relays on a message: its publication, and the nodes that have delivered it."""

    publication: tuple[str, int]
    tags: tuple[str, ...]


def _with_relay_annotations(item: entry.Entry, passed: Passed, *, is_relay: bool) -> entry.Entry:
    """The entry with the annotations for the next nodes."""
    notes = annotate.notes_of(item)
    store, number = passed.publication
    notes |= {PUBLICATION: [store, Ulong(number)], TAGS: list(passed.tags)}
    notes.pop(RELAY, None)
    if is_relay:
        notes[RELAY] = True
    items = b"".join(encode(key) + encode(part) for key, part in notes.items())
    return item._replace(annotation_count=2 * len(notes), annotations=memoryview(items))


def _for_remote(item: entry.Entry) -> bytes:
    """The message as a new one, which is in nobody's custody."""
    flags = item.flags & (entry.DURABLE | entry.BLOB)
    return entry.repack(item._replace(flags=flags, identity=None, trace=b"", to="", earlier=None, group=None))


@dataclass(frozen=True, slots=True, eq=False)
class Published(Effect):
    """A publication was recorded in the turn: it is forgotten if the turn is undone."""

    store: str
    number: int


NOWHERE: Final[tuple[Branch, ...]] = ()


class Spreading:
    """Chooses the nodes that get a message, and fills their transmission queues."""

    def __init__(
        self,
        config: NodeConfig,
        catalog: Catalog,
        store: Tables,
        forwarding: Forwarding,
        remote_queues: RemoteQueues,
        identities: Identities,
        dead_lettering: DeadLettering,
        outbox: Outbox,
        bindings: BindingControl,
        turns: Turns,
    ) -> None:
        self._turns = turns
        turns.effects.on_decided(Published, self._published)
        self.publications = Publications(store.table(stored.TABLE))
        """Publications that arrived from relays."""
        self._config = config
        self._catalog = catalog
        self._store = store
        self._forwarding = forwarding
        self._remote_queues = remote_queues
        self._identities = identities
        self._dead_lettering = dead_lettering
        self._outbox = outbox
        self._bindings = bindings
        self._predicates: dict[str, Predicate | None] = {}
        self._layouts = Layouts()

    # ------------------------------------------------------------------------------------------------ choosing

    def is_spread(self, queue: Queue) -> bool:
        """Whether messages of the queue may have to go to other nodes."""
        federation = self._bindings.federation
        if federation is None:
            return False
        name = federated_name(queue)
        return name is not None and federation.spreads(name)

    def learns(self, queue: Queue) -> bool:
        """Whether the destinations of the queue's messages are not known yet: they wait for a moment
        (`BindingControl`)."""
        name = federated_name(queue)
        return name is not None and self._bindings.learns(name)

    def branches(self, queue: Queue, value: bytes) -> tuple[Branch, ...]:
        """The other destinations of a message that is published to the queue. Changes nothing."""
        return self.branches_of(self.choose(queue, value), queue) if self.is_spread(queue) else NOWHERE

    def branches_of(self, choice: Choice, topic: Queue) -> tuple[Branch, ...]:
        """The queues for the chosen nodes and remotes; a node that routes it again also delivers it."""
        found = []
        for node in (*choice.relays, *(node for node in choice.branches if node not in choice.relays)):
            if self._remote_queues.knows(node):
                found.append(Branch(node, self._remote_queues.of_topic(node, topic.name)))
                continue
            transmission = self._catalog.transmission(node)
            self._forwarding.steer(node)
            found.append(Branch(node, transmission, node in choice.relays, choice.is_passed_on))
        return tuple(found)

    def of_remotes(self) -> list[Queue]:
        """The queues for remotes."""
        return self._remote_queues.all()

    def choose(self, queue: Queue, value: bytes, *, tags: tuple[str, ...] = (), anew: bool = True) -> Choice:
        """As `Federation.choose`, for an entry."""
        sections = sections_of(value, self._store, self._layouts)
        subject = subject_of(sections)
        if subject is None and not value[1] & entry.BLOB:
            subject = ""  # as its subscriptions here see it
        name = federated_name(queue)
        assert name is not None
        asks = _Asked(self._compiled, sections, is_cut=value[1] & entry.BLOB > 0)
        return self._bindings.choose(name, subject, asks, tags=tags, anew=anew)

    def _compiled(self, text: str, *, compiles: bool) -> tuple[Predicate | None, bool]:
        """The compiled selector, None if it is not evaluated here; and whether it was compiled now."""
        found = self._predicates.pop(text, None)
        known = found is not None
        if found is None:
            if not compiles or OWN_PREFIX in text:  # nodes on the way may add such annotations
                return None, False
            try:
                found = compile_selector(text, is_canonical=True)
            except SelectorError:
                return None, True
        self._predicates[text] = found  # the latest is the last
        if len(self._predicates) > PREDICATES_KEPT:
            del self._predicates[next(iter(self._predicates))]
        return found, not known

    # ------------------------------------------------------------------------------------------------ room

    def sizes(self, branches: Collection[Branch], value: bytes, passed: Passed | None = None) -> dict[Branch, int]:
        """Bytes that each branch's queue counts for its copy, including the annotations that nodes add. Branches
        without a bound are left out. For a message that is published here it is the maximum, because its number is not
        assigned yet."""
        bounded = [branch for branch in branches if branch.queue.bounded]
        if not bounded:
            return {}
        size = packed.size_of(value)
        names = [branch.destination for branch in branches if branch.is_passed_on]
        if passed is None and names:
            longest = max(names, key=lambda name: len(name.encode()))
            passed = Passed((f"{self._identities.store_uuid} {longest}", NUMBER_MOST), (self._config.name,))
        if passed is None:
            return dict.fromkeys(bounded, size)
        plain = entry.unpack(value)
        told = [_with_relay_annotations(plain, passed, is_relay=is_relay).size for is_relay in (False, True)]
        return {branch: size if branch.queue.kind is QueueKind.REMOTE else told[branch.is_relay] for branch in bounded}

    def lacks_room(self, branch: Branch, size: int, count: int = 1, *, priority: int = PRIORITY_MOST) -> bool:
        """Whether the branch's queue has no room for `count` more copies of `size` bytes together and that priority,
        and does not drop or dead-letter the excess."""
        queue = branch.queue
        if queue.config.when_full not in ("block", "refuse"):
            return False
        return not (queue.fits(size, priority) if count == 1 else queue.fits_all(count, size, priority))

    def full(self, sizes: Mapping[Branch, int], *, priority: int = PRIORITY_MOST) -> Branch | None:
        """The first branch that lacks room for one copy of its size."""
        for branch, size in sizes.items():
            if self.lacks_room(branch, size, priority=priority):
                return branch
        return None

    # ------------------------------------------------------------------------------------------------ spreading

    def before_commit(self, turn: Turn) -> None:
        """Adds the publications that arrived in the turn."""
        for key, value in self.publications.records():
            if value is None:
                turn.batch.deletes.append((stored.TABLE, key))
            else:
                turn.batch.puts[stored.TABLE, key] = value

    def _published(self, effect: Published, stored: bool) -> None:
        if stored:
            self.publications.stored()
        else:
            self.publications.forget(effect.store, effect.number)

    def spread(
        self,
        topic: Queue,
        branches: Collection[Branch],
        value: bytes,
        group: Callable[[str], entry.Group | None] = lambda node: None,
        *,
        passed: Passed | None = None,
        passes_on: bool = False,
    ) -> None:
        """Adds a copy of the message for each of these nodes to the turn. `group`: in a transaction, its place among
        the messages for that node. `passed`: of a message from a relay. `passes_on`: it was accepted elsewhere, so a
        copy that a full queue refuses becomes a dead letter; for a publisher's message the room was checked before."""
        plain = relayed = None
        checked = ("block",) if passes_on else ("block", "refuse")
        sizes = {}
        if any(branch.queue.config.when_full not in checked for branch in branches):
            sizes = self.sizes(branches, value, passed)
        for branch in branches:
            node, queue, is_relay, is_passed_on = branch
            if plain is None:
                plain = entry.unpack(value)
                if passed is None:
                    plain = annotate.without_relayed(plain)
            fits = queue.config.when_full in checked or branch not in sizes or queue.fits(sizes[branch])
            if not fits and not (queue.config.when_full == "drop-oldest" and make_room(queue, sizes[branch])):
                text = f"queue {queue.name!r} is full"
                self._dead_lettering.dead_letter(topic.host, value, text, f"{topic.name}@{node}")
                continue
            if queue.kind is QueueKind.REMOTE:
                copied = _for_remote(plain)
            else:
                identity = self._identities.next(node)
                if is_passed_on and passed is None:
                    passed = Passed((f"{identity.origin} {node}", identity.number), (self._config.name,))
                    self.publications.take(*passed.publication)
                    self._turns.gathered.decided.append(Published(self._turns.event, *passed.publication))
                if passed is not None and relayed is None:
                    relayed = [_with_relay_annotations(plain, passed, is_relay=which) for which in (False, True)]
                item = plain if relayed is None else relayed[is_relay]
                copied = entry.repack(
                    item._replace(identity=identity, trace=b"", to=topic.name, earlier=None, group=group(node))
                )
            sequence = queue.append(copied, packed.size_of(copied))
            if self._config.telemetry_messages:
                record_message(self._outbox, "stored", queue, sequence, copied)


class _Asked:
    """Evaluates selectors for one message, as far as that is cheap."""

    __slots__ = ("_compile", "_compiles", "_is_cut", "_sections", "_weight")

    def __init__(
        self, compile_: Callable[..., tuple[Predicate | None, bool]], sections: Sections, *, is_cut: bool
    ) -> None:
        self._compile = compile_
        self._sections = sections
        self._is_cut = is_cut
        self._compiles = COMPILED_MAX
        self._weight = 0

    def __call__(self, text: str) -> bool | None:
        if self._weight >= WEIGHT_MAX:
            return None
        predicate, compiled = self._compile(text, compiles=self._compiles > 0)
        self._compiles -= compiled
        if predicate is None:
            return None
        self._weight += predicate.weight
        found = predicate.value(self._sections)
        return found is True or (None if found is None and self._is_cut else False)
