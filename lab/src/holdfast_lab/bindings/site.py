"""A simulated node: federation's code, its routing, and as much of custody as messages of topics need.

Rules of this file: a crash leaves `disk`, `outbox`, `seen` and what belongs to durable subscriptions. Federation
is told of a commit when the disk has it. One commit is under way at a time.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.broker.subjects import Pattern
from holdfast.federation.federation import Federation
from holdfast.federation.keeping import Put
from holdfast.federation.publications import Publications, Seen
from holdfast.federation.relaying import tagged
from holdfast.federation.rows import Row
from holdfast.federation.settings import Bounds, Entry
from holdfast_lab.bindings.routing import Router

CREDIT: Final = 200


class Identity(NamedTuple):
    """Of a branch: the store that chose it, where it goes, and which number."""

    store: str
    destination: str
    number: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A message on its way to one destination. `publication`: the publisher's store and number."""

    identity: Identity
    publication: tuple[str, int]
    topic: str
    subject: str
    is_relay: bool
    tags: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Bind:
    """A subscription, and what was said of it. `confirmed`: each node with the store that it had."""

    site: str
    topic: str
    pattern: Pattern
    durable: bool
    asked_at: float
    token: int = 0
    answered_at: float | None = None
    ended_at: float | None = None
    complete: bool = False
    waiting: tuple[str, ...] = ()
    confirmed: dict[str, str] = field(default_factory=dict)


class Site:
    """`store`: which store it is; another one after a disk was replaced."""

    def __init__(self, name: str, links: dict[str, int], entries: Iterable[Entry], bounds: Bounds) -> None:
        self.name = name
        self.links = links
        self.entries = tuple(entries)
        self.bounds = bounds
        self.alive = False
        self.clock_ms = 0
        """How far its clock is off."""
        self.store = ""
        self.store_born = 0.0
        self.stores = 0
        self.disk: dict[tuple[str, ...], list[Any]] = {}
        self.binds: list[Bind] = []
        self.outbox: dict[Identity, Branch] = {}
        self.seen: set[Identity] = set()
        self.numbers: Counter[str] = Counter()
        self.published = 0
        self.publications = Publications()
        self.suppressed = 0
        self.unwanted = 0
        self.core: Federation = None  # type: ignore[assignment]  # until it is started
        self.router: Router = None  # type: ignore[assignment]
        self.committing = False
        self.sent_to: dict[Identity, str] = {}
        """Branches that a neighbour was sent, and has not answered."""
        self.life = 0
        self.deadline = 0.0

    # ------------------------------------------------------------------------------------------------ life

    def replace_store(self, now: float) -> list[Branch]:
        """All that it had is gone: the branches that were lost."""
        self.stores += 1
        self.store, self.store_born = f"{self.name}-{self.stores}", now
        lost = list(self.outbox.values())
        self.disk, self.outbox, self.seen, self.numbers = {}, {}, set(), Counter()
        self.publications = Publications()
        self.published = 0
        return lost

    def start(self, now: float, initial: dict[str, dict[str, int]]) -> None:
        self.life += 1
        self.alive, self.committing = True, False
        self.sent_to.clear()
        self.router = Router(self.name, self.links, initial)
        self.router.originate(self.version(now))
        self.core = Federation(self.name, self.version(now), now, bounds=self.bounds, rows=self.disk)
        self.core.configure(self.entries, now)
        for topic in sorted({bind.topic for bind in self.binds}):
            self.announce(topic, now)

    def version(self, now: float) -> int:
        return 1_000_000 + int(now * 1_000) + self.clock_ms

    def announce(self, topic: str, now: float) -> None:
        rows = [Row(bind.pattern.text) for bind in self.binds if bind.topic == topic]
        self.core.bind(topic, rows, now)

    def write(self, writes: Iterable[Any]) -> None:
        for one in writes:
            if isinstance(one, Put):
                self.disk[one.key] = one.value
            else:
                self.disk.pop(one.key, None)

    # ------------------------------------------------------------------------------------------------ messages

    def wanting(self, topic: str, subject: str) -> list[Bind]:
        return [bind for bind in self.binds if bind.topic == topic and bind.pattern.matches(subject)]

    def publish(self, topic: str, subject: str) -> tuple[str, int]:
        """Accepts a message and chooses its destinations, which is one."""
        self.published += 1
        publication = self.store, self.published
        self.publications.take(*publication)
        self._send_on(topic, subject, publication, (), anew=True)
        return publication

    def arrive(self, branch: Branch) -> list[Bind]:
        """A branch that ends here. The subscriptions that get the message; nothing of a copy."""
        if branch.identity in self.seen:
            self.suppressed += 1
            return []
        self.seen.add(branch.identity)
        if self.publications.take(*branch.publication) is Seen.COPY:
            self.suppressed += 1
            return []
        self._send_on(branch.topic, branch.subject, branch.publication, branch.tags, anew=branch.is_relay)
        found = self.wanting(branch.topic, branch.subject)
        self.unwanted += not found
        return found

    def _send_on(
        self, topic: str, subject: str, publication: tuple[str, int], tags: tuple[str, ...], *, anew: bool
    ) -> None:
        choice = self.core.choose(topic, subject, tags=tags, anew=anew)
        for destination, is_relay in (
            *((name, False) for name in choice.branches),
            *((r, True) for r in choice.relays),
        ):
            self.numbers[destination] += 1
            identity = Identity(self.store, destination, self.numbers[destination])
            self.outbox[identity] = Branch(identity, publication, topic, subject, is_relay, tagged(tags, self.name))
