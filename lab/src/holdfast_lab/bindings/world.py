"""Sites and the links between them, in virtual time.

Rules of this file: a session is a pair of ordered streams; when it breaks, what is under way is lost, and each side
finds out for itself. One seed, one history. Every control message goes through the AMQP codec.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.broker.subjects import Pattern
from holdfast.federation.rows import Row
from holdfast.federation.settings import Bounds, Entry
from holdfast.federation.validation import validate
from holdfast_lab.bindings.site import CREDIT, Bind, Branch, Site

NOTICED_S: Final = (0.05, 3.0)
"""How long a side takes to find out that a session broke."""

UNNOTICED_S: Final = 15.0
"""How long an answer may still name a node whose store was replaced."""
COMMIT_S: Final = (0.001, 0.02)
RECONNECT_S: Final = 0.5
CHECKED_EACH: Final = 31
"""Events, between two checks of the invariants."""

EVENTS_MAX: Final = 400_000
"""Of one run: more is a loop."""

WAIT_S: Final = 30.0
"""For how long a bind asks to be confirmed."""


@dataclass(slots=True)
class Link:
    """`delay_s`: by the side that sends."""

    ends: tuple[str, str]
    delay_s: dict[str, float]
    is_up: bool = True
    epoch: int = 0
    broken: bool = False
    """What is sent is lost, until both sides have noticed."""
    sides: set[str] = field(default_factory=set)
    """Those that have the session up."""

    def other(self, name: str) -> str:
        return self.ends[1] if name == self.ends[0] else self.ends[0]


@dataclass(slots=True, eq=False)
class Published:
    """A message, to whom it is owed, and who got it, how often."""

    publication: tuple[str, int]
    site: str
    subject: str
    topic: str
    at: float
    due: dict[Bind, None] = field(default_factory=dict)
    got: Counter[Bind] = field(default_factory=Counter)
    lost: bool = False
    """A store that had it is gone."""


class Broken(Exception):
    """What a run must never see."""


class World:
    """`refusing`: the part of commits that the disks refuse; `commit_s`: how long one takes. `checked`: whether
    invariants are checked after each event; not while tables are corrupted."""

    def __init__(self, seed: int, *, bounds: Bounds = Bounds()) -> None:
        self.rng = Random(f"bindings {seed}")
        self.bounds = bounds
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.sites: dict[str, Site] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.initial: dict[str, dict[str, int]] = {}
        self.published: dict[tuple[str, int], Published] = {}
        self.binds: list[Bind] = []
        self.refusing = 0.0
        self.commit_s = COMMIT_S
        self.knows_topology = True
        """Whether nodes begin with the links of the topology file."""
        self.plain: set[str] = set()
        """Nodes that lack the capability."""
        self.checked = True
        self.control: Counter[tuple[str, str]] = Counter()
        """Bytes of federation's messages, by sender and receiver."""
        self.kinds: Counter[str] = Counter()
        self.copies: dict[tuple[str, int], set[tuple[str, str]]] = {}
        """By message, the links that it was sent over."""
        self.singles: Counter[tuple[str, int]] = Counter()
        """By message, how often one of its branches was sent."""
        self.tell: Callable[[str], None] = lambda text: None
        self.events = 0

    # ------------------------------------------------------------------------------------------------ building

    def build(
        self,
        links: Iterable[tuple[str, str, float]],
        entries: Mapping[str, Iterable[Entry]],
        *,
        one_way: Iterable[tuple[str, str]] = (),
    ) -> None:
        """`links`: both ends and the delay in seconds; `one_way`: pairs in the direction in which no messages go."""
        closed = set(one_way)
        outs: dict[str, dict[str, int]] = {}
        for a, b, delay_s in links:
            ends = (a, b) if a < b else (b, a)
            self.links[ends] = Link(ends, {a: delay_s, b: delay_s})
            cost = max(1, int(delay_s * 1_000_000))
            for start, end in ((a, b), (b, a)):
                outs.setdefault(start, {})
                if (start, end) not in closed:
                    outs[start][end] = cost
        self.initial = outs if self.knows_topology else {}
        for name, costs in outs.items():
            site = self.sites[name] = Site(name, costs, entries.get(name, ()), self.bounds)
            site.replace_store(0.0)
        for site in self.sites.values():
            site.start(0.0, self.initial)
        for ends in self.links:
            self._open(ends)
        for site in self.sites.values():
            self.after(site)

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        self.count += 1
        heappush(self.heap, (self.now + delay_s, self.count, act))

    def run(self, for_s: float) -> None:
        """Lets time pass."""
        end = self.now + for_s
        while True:
            name, at = self._next_tick()
            heap_at = self.heap[0][0] if self.heap else end
            if min(at, heap_at) > end:
                break
            self.events += 1
            if self.events > EVENTS_MAX:
                raise Broken(f"no rest: more than {EVENTS_MAX} events by {self.now:.1f} s")
            if at < heap_at:
                self.now = max(self.now, at)
                site = self.sites[name]
                site.core.tick(self.now)
                self.after(site)
            else:
                if not self.heap:
                    break
                self.now, _, act = heappop(self.heap)
                act()
        self.now = end

    def _next_tick(self) -> tuple[str, float]:
        best, when = "", float("inf")
        for name, site in self.sites.items():
            if site.alive:
                at = site.deadline
                if at < when:
                    best, when = name, at
        return best, when

    # ------------------------------------------------------------------------------------------------ after each event

    def after(self, site: Site) -> None:
        """What the site does of itself now: commits, and says what it may."""
        core, now = site.core, self.now
        routes = site.router.routes()
        if routes is not None:
            core.route(routes, now)
        for neighbour in sorted(site.router.up):
            for message in site.router.to_tell(neighbour):
                self._send(site, neighbour, message)
        if not site.committing:
            writes = core.records(now)
            if writes:
                site.committing = True
                life = site.life
                self.at(self.rng.uniform(*self.commit_s), lambda: self._commit_ends(site, writes, life))
        for neighbour in list(core.neighbours):
            for message in core.take(neighbour, CREDIT, now):
                wire = encode(message)
                self.control[site.name, neighbour] += len(wire)
                self.kinds[str(message["kind"])] += 1
                self._send(site, neighbour, {"kind": "federation", "wire": wire})
        for answer in core.answers():
            self._answered(site, answer)
        self._forward(site)
        site.deadline = core.next_deadline(now)
        if self.checked and self.events % CHECKED_EACH == 0:
            validate(core)

    def _commit_ends(self, site: Site, writes: list[Any], life: int) -> None:
        if not site.alive or site.life != life:
            return
        site.committing = False
        if self.rng.random() < self.refusing:
            site.core.refused(self.now)
        else:
            site.write(writes)
            self._tell_sets(site)
            site.core.committed(self.now)
        self.after(site)

    def _tell_sets(self, site: Site) -> None:
        """What a commit changes of bindings."""
        for key, new in (site.core.sets.under_way or {}).items():
            old = site.core.sets.committed(key)
            before, after = (held.rows if held is not None else frozenset() for held in (old, new))
            moved = [f"+{row.pattern}" for row in after - before] + [f"-{row.pattern}" for row in before - after]
            if moved:
                self.tell(f"bindings {site.name} of {key.origin}: {' '.join(sorted(moved))}")

    def _answered(self, site: Site, answer: Any) -> None:
        for bind in site.binds:
            if bind.token == answer.token and bind.answered_at is None:
                bind.answered_at, bind.complete = self.now, answer.complete
                bind.waiting = answer.waiting
                for name in answer.confirmed:
                    other = self.sites[name]
                    if other.stores == 1 or other.store_born + UNNOTICED_S < bind.asked_at:
                        bind.confirmed[name] = other.store
                self.tell(
                    f"confirmed {site.name} {bind.pattern.text} by {len(answer.confirmed)}, "
                    f"waiting {','.join(answer.waiting) or 'for none'}"
                )

    # ------------------------------------------------------------------------------------------------ sessions

    def _link(self, a: str, b: str) -> Link:
        return self.links[(a, b) if a < b else (b, a)]

    def _send(self, site: Site, neighbour: str, message: dict[str, Any]) -> None:
        link = self._link(site.name, neighbour)
        if site.name not in link.sides or link.broken:
            return
        epoch = link.epoch
        self.at(link.delay_s[site.name], lambda: self._deliver(link, epoch, site.name, neighbour, message))

    def _deliver(self, link: Link, epoch: int, start: str, end: str, message: dict[str, Any]) -> None:
        site = self.sites[end]
        if link.epoch != epoch or not site.alive or end not in link.sides:
            return
        kind = message["kind"]
        if kind == "federation":
            fields, _ = decode(message["wire"])
            reason = site.core.receive(start, fields, self.now)
            if reason is not None:
                if self.checked:
                    raise Broken(f"{end} ended its session with {start}: {reason}")
                self._break(link)
                return
        elif kind == "branch":
            self._take(site, start, message["branch"])
        elif kind == "taken":
            branch = message["branch"]
            if site.sent_to.get(branch.identity) == start:
                del site.sent_to[branch.identity]
                site.outbox.pop(branch.identity, None)
        else:
            site.router.receive(start, message, site.version(self.now))
        self.after(site)

    def _open(self, ends: tuple[str, str]) -> None:
        link = self.links[ends]
        alive = all(self.sites[end].alive for end in ends)
        if not link.is_up or link.sides or not alive:
            return
        link.epoch += 1
        epoch = link.epoch

        def opened() -> None:
            if link.epoch == epoch and link.is_up and not link.sides and all(self.sites[end].alive for end in ends):
                link.sides, link.broken = set(ends), False
                for end in ends:
                    self._session_up(self.sites[end], link.other(end))

        self.at(RECONNECT_S * self.rng.random(), opened)

    def _session_up(self, site: Site, neighbour: str) -> None:
        for message in site.router.session_up(neighbour, site.version(self.now)):
            self._send(site, neighbour, message)
        if not self.plain & {site.name, neighbour}:
            site.core.up(neighbour, self.now)
        self.after(site)

    def _session_down(self, link: Link, name: str) -> None:
        site = self.sites[name]
        if name not in link.sides:
            return
        link.sides.discard(name)
        if site.alive:
            neighbour = link.other(name)
            site.sent_to = {one: to for one, to in site.sent_to.items() if to != neighbour}
            site.router.session_down(neighbour, site.version(self.now))
            site.core.down(neighbour, self.now)
            self.after(site)
        self._open(link.ends)

    def cut(self, a: str, b: str) -> None:
        link = self._link(a, b)
        if not link.is_up:
            return
        link.is_up = False
        self._break(link)

    def _break(self, link: Link) -> None:
        link.epoch += 1
        link.broken = True
        epoch = link.epoch

        def noticed(end: str) -> None:
            if link.epoch == epoch:
                self._session_down(link, end)

        for end in sorted(link.sides):
            self.at(self.rng.uniform(*NOTICED_S), partial(noticed, end))

    def mend(self, a: str, b: str) -> None:
        link = self._link(a, b)
        link.is_up = True
        self._open(link.ends)

    # ------------------------------------------------------------------------------------------------ crashes

    def crash(self, name: str) -> None:
        site = self.sites[name]
        if not site.alive:
            return
        site.alive = False
        for bind in site.binds:
            if not bind.durable:
                bind.ended_at = self.now
        site.binds = [bind for bind in site.binds if bind.durable]
        for link in self.links.values():
            if name in link.ends:
                link.sides.discard(name)
                self._break(link)

    def start(self, name: str, *, new_store: bool = False, clock_ms: int = 0) -> None:
        site = self.sites[name]
        if site.alive:
            return
        site.clock_ms += clock_ms
        if new_store:
            for branch in site.replace_store(self.now):
                self.published[branch.publication].lost = True
            for bind in site.binds:
                bind.ended_at = self.now
            site.binds = []
        site.start(self.now, self.initial)
        self.after(site)
        for ends in self.links:
            if name in ends:
                self._open(ends)

    # ------------------------------------------------------------------------------------------------ clients

    def bind(self, name: str, topic: str, pattern: str, *, durable: bool = True) -> Bind | None:
        site = self.sites[name]
        if not site.alive:
            return None
        bind = Bind(name, topic, Pattern(pattern), durable, self.now)
        site.binds.append(bind)
        self.binds.append(bind)
        site.announce(topic, self.now)
        bind.token = site.core.confirm(topic, Row(bind.pattern.text), self.now, WAIT_S)
        self.tell(f"bind {name} {pattern}")
        self.after(site)
        return bind

    def unbind(self, bind: Bind) -> None:
        site = self.sites[bind.site]
        if not site.alive or bind not in site.binds:
            return
        site.binds.remove(bind)
        bind.ended_at = self.now
        site.core.cancel(bind.token)
        site.announce(bind.topic, self.now)
        self.tell(f"unbind {bind.site} {bind.pattern.text}")
        self.after(site)

    def configure(self, name: str, entries: Iterable[Entry]) -> None:
        """Other entries, from now on."""
        site = self.sites[name]
        site.entries = tuple(entries)
        if site.alive:
            site.core.configure(site.entries, self.now)
            self.after(site)

    def publish(self, name: str, topic: str, subject: str) -> Published | None:
        site = self.sites[name]
        if not site.alive:
            return None
        owed = {
            bind: None
            for bind in self.binds
            if bind.topic == topic
            and bind.ended_at is None
            and bind.confirmed.get(name) == site.store
            and bind.pattern.matches(subject)
        }
        publication = site.publish(topic, subject)
        found = self.published[publication] = Published(publication, name, subject, topic, self.now, owed)
        found.got.update(site.wanting(topic, subject))
        self.tell(f"publish {name} {subject}")
        self.after(site)
        return found

    # ------------------------------------------------------------------------------------------------ custody

    def _forward(self, site: Site) -> None:
        for identity, branch in list(site.outbox.items()):
            if identity in site.sent_to:
                continue
            path = site.router.paths.get(identity.destination)
            if path is None:
                continue
            hop = path.next_hop
            link = self._link(site.name, hop)
            if site.name not in link.sides:
                continue
            site.sent_to[identity] = hop
            self.copies.setdefault(branch.publication, set()).add((site.name, hop))
            self.singles[branch.publication] += 1
            self.tell(f"hop {site.name} {hop} {branch.subject} for {identity.destination}")
            self._send(site, hop, {"kind": "branch", "branch": branch})

    def _take(self, site: Site, start: str, branch: Branch) -> None:
        if branch.identity.destination != site.name:
            if site.outbox.setdefault(branch.identity, branch) is branch:
                # It may have come back while who was sent it has not answered: that answer then is no longer about it.
                site.sent_to.pop(branch.identity, None)
        else:
            found = self.published[branch.publication]
            for bind in site.arrive(branch):
                found.got[bind] += 1
        self._send(site, start, {"kind": "taken", "branch": branch})
