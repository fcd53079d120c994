"""Conditions that an operator can act on: each is a line in `status` and a WARNING in the log.

Rules of this file: it mostly reads. It changes three things: Destination forgets full queues that have room again,
Departures finds unknown nodes for which messages are kept, and Incidents forgets large messages that are no longer
tried. A condition is logged when it was there in two checks in a row, and again after AGAIN_S if it has not ended. A
line says what is wrong and what to do about it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from holdfast.broker.entries.address import is_within_topic
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.stored.origins import Origin
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.departed import Departures
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.store_names import StoreNames
from holdfast.engine.clock import Clock
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.federation.messages import FOLLOWED_MAX
from holdfast.federation.settings import Bounds
from holdfast.links.disk import ADVICE, Disk
from holdfast.links.large_receives import LargeReceives
from holdfast.management.status.condition import Condition
from holdfast.management.status.descriptors import Descriptors
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.route_status import RoutesNow
from holdfast.peering.sessions import Neighbour
from holdfast.state.catalog import Catalog
from holdfast.units import iso8601

SETS: Final = Bounds()

LOOK_S: Final = 10.0
AGAIN_S: Final = 3_600.0
CONDITIONS_MAX: Final = 100
"""Lines of one look."""
ORIGINS_MAX: Final = 20
"""Origins with missing numbers that one look says something of."""
GAPS_MAX: Final = 3
"""Gaps of one origin that a line names."""
REFUSALS_MAX: Final = 5
"""Destinations for which one neighbour takes nothing, of which one look says something."""

LEFT_OUT_MAX: Final = 20
"""Entries of federation that do not apply."""
WITHIN_MAX: Final = 20
"""Queues, from before such names were refused, whose name is an address of topics."""
KEPT_MAX: Final = 20
"""Destinations in virtual hosts that the next hop does not take, of which one look says something."""

AWAY_S: Final = 60.0
"""How long a neighbour that dials this node may be away before that is a warning: it may be started anew."""
AWAY_MAX: Final = 20
"""Neighbours that are away of which one look says something each; the others are counted."""

BLOCKED_S: Final = 60.0
BLOCKED_MAX: Final = 5
"""How long a neighbour takes nothing of an origin before that is a warning; so many origins of one are named."""

FULL_S: Final = 10.0
"""How long a queue has no room for what other nodes sent before that is a warning: slow consumers have time."""

SESSION: Final = "session"
TURNS: Final = "turns"
DESCRIPTORS: Final = "descriptors"
LEFT: Final = "left"


class Warnings:
    """Checks such conditions every LOOK_S, and logs those that last. One of the node's `Timed` parts."""

    def __init__(
        self,
        node: str,
        clock: Clock,
        log: Log,
        *,
        catalog: Catalog,
        disk: Disk,
        descriptors: Descriptors,
        incidents: Incidents,
        neighbours: Mapping[str, Neighbour],
        routing: RoutesNow,
        stores: StoreNames,
        destination: Destination,
        forwarding: Forwarding,
        departures: Departures,
        bindings: BindingControl,
        large_receives: LargeReceives,
        sources: tuple[Callable[[], Iterator[Condition]], ...],
        has_topology: bool,
    ) -> None:
        """`sources`: parts that report conditions of their own, which come before those of neighbours. `has_topology`:
        whether a file says which links there are."""
        self._has_topology = has_topology
        self._node = node
        self._clock = clock
        self._log = log
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._disk = disk
        self._descriptors = descriptors
        self._incidents = incidents
        self._neighbours = neighbours
        self._routing = routing
        self._stores = stores
        self._destination = destination
        self._forwarding = forwarding
        self._departures = departures
        self._bindings = bindings
        self._large_receives = large_receives
        self._sources = sources
        ordinary = (queue for queue in catalog.queues.values() if queue.kind is QueueKind.ORDINARY)
        self._within = [queue for queue in ordinary if is_within_topic(queue.name)]
        """Queues whose name is an address of topics: the store may have some, and no further one is created."""
        self._look_at = clock.now + LOOK_S
        self._since: dict[str, float] = {}
        self._logged_at: dict[str, float] = {}

    def next_deadline(self) -> float | None:
        return self._look_at

    def tick(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self._destination.full.forget_some()
        self._departures.find()
        found = {condition.key: condition for condition in self.all()}
        self._since = {key: self._since.get(key, now) for key in found}
        for key in [key for key in self._logged_at if key not in found]:
            del self._logged_at[key]
            kind, _, name = key.partition(" ")
            if kind == SESSION and name in self._neighbours and self._neighbours[name].established:
                self._log.write("INFO", f"neighbour {name}: its session is up again", about=name)
        for key, condition in found.items():
            if condition.logged_by_source:
                continue
            logged_at = self._logged_at.get(key)
            due = self._since[key] < now if logged_at is None else now >= logged_at + AGAIN_S
            if due:
                self._logged_at[key] = now
                self._log.write("WARNING", condition.text, about=" ".join(key.split(" ")[:2]))

    def all(self) -> list[Condition]:
        """All there are, up to CONDITIONS_MAX."""
        return list(islice(self._found(), CONDITIONS_MAX))

    def _found(self) -> Iterator[Condition]:
        if self._disk.gone is not None:
            yield Condition("gone", f"the store's file is gone: {self._disk.gone}. {ADVICE}")
        elif self._disk.full:
            yield Condition("disk", f"the disk is full: new messages wait or are refused; {self._disk.bounded_by()}")
        short = self._descriptors.condition()
        if short is not None:
            yield Condition(DESCRIPTORS, short, logged_by_source=True)
        for conditions in self._sources:
            yield from conditions()
        yield from self._of_neighbours()
        for name, text in self._incidents.strangers():
            yield Condition(f"stranger - {name}", text)
        for neighbour in self._neighbours.values():
            yield from islice(self._blocked(neighbour), BLOCKED_MAX)
        for name, destination, size in self._incidents.without_room():
            what = f"a message of {size} bytes or more for {destination!r}"
            text = f"{what} waits there for room, and so do all messages behind it"
            advice = f"consume messages, give the store more space ({self._disk.bounded_by()}), or raise streams_max"
            yield Condition(f"room {name} {destination}", f"neighbour {name}: {text}: {advice}")
        if self._incidents.large_was_refused:
            text = f"large messages are refused: {self._large_receives.under_way} are on their way in or wait for room"
            yield Condition("large", f"{text}: consume what waits at full queues, or raise streams_max")
        for (topic, name), fault in islice(self._bindings.made.left_out.items(), LEFT_OUT_MAX):
            text = f"federation {topic}@{name}, which a request created, does not apply: {fault}"
            yield Condition(f"federation {topic}@{name}", f"{text}; remove it, or change the configuration")
        for (topic, name), fault in islice(self._bindings.made.refused.items(), LEFT_OUT_MAX):
            text = f"federation {topic}@{name}, for which the neighbour asks, does not apply: {fault}"
            yield Condition(f"federation {topic}@{name} asked", f"{text}; permit it, or remove it at {name}")
        left_out = self._bindings.left_out
        if left_out:
            text = f"{left_out} sets of bindings of federated topics, one for each node and topic, are not taken"
            most = f"{SETS.origins_max:,} of a topic and {FOLLOWED_MAX:,} of a neighbour are the most"
            yield Condition("bindings", f"{text}: {most}; messages do not go to the other nodes; federate fewer topics")
        for queue in islice(filter(self._catalog.has, self._within), WITHIN_MAX):
            text = f"{_shown(queue.host, f'queue {queue.name!r}')}: its name is an address of topics"
            yield Condition(f"within {queue.queue_id}", f"{text}; move its messages to another queue, and delete it")
        yield from self._full()
        for name, text in islice(self._forwarding.kept_here(), KEPT_MAX):
            yield Condition(f"kept {name}", text)
        for name, text in self._departures.waiting():
            yield Condition(f"{LEFT} {name}", text, logged_by_source=True)
        waiting = (origin for origin in self._ledger.all_origins() if origin.waiting)
        for origin in islice(waiting, ORIGINS_MAX):
            yield from self._missing(origin)

    def _of_neighbours(self) -> Iterator[Condition]:
        routing = self._routing() if self._has_topology else None
        away = 0
        for name, neighbour in self._neighbours.items():
            if not neighbour.established and neighbour.config.remote is not None:
                reason = neighbour.reason or "it has not answered yet"
                yield Condition(
                    f"{SESSION} {name}", f"neighbour {name} ({neighbour.config.remote}): no session: {reason}"
                )
            elif not neighbour.established and self._clock.now >= neighbour.away_since + AWAY_S:
                away += 1
                if away <= AWAY_MAX:
                    yield Condition(f"{SESSION} {name}", self._away(neighbour))
            contested_at = self._incidents.contested_at(name)
            if contested_at is not None:
                text = f"two nodes with different stores use this name, last at {self._time_of(contested_at)}"
                yield Condition(f"name {name}", f"neighbour {name}: {text}: stop one, or give it a name of its own")
            shared = self._incidents.why_shared(name)
            if shared is not None:
                advice = "stop the copy, or give it a store of its own (`holdfast store restore`)"
                yield Condition(f"store {name}", f"neighbour {name}: {shared}; {advice}")
            if neighbour.hop.links.ready:
                yield Condition(f"{TURNS} {name}", neighbour.hop.links.describe(), logged_by_source=True)
            for destination, text in islice(neighbour.hop.links.refusals(), REFUSALS_MAX):
                yield Condition(f"refused {name} {destination}", text)
            if routing is None or not neighbour.established:
                continue
            if name not in routing.costs:
                text = "its session is up, but this node's topology file has no link to it: no routes go over it"
                yield Condition(f"link {name}", f"neighbour {name}: {text}")
            elif routing.states.has_no_link(name, self._node):
                what = "its topology file has no link to this node: no messages come back over it"
                text = f"{what}; give both nodes the same file"
                yield Condition(f"link {name}", f"neighbour {name}: {text}")
        if away > AWAY_MAX:
            yield Condition("away", f"{away - AWAY_MAX} more neighbours that dial this node are away: see sessions")

    def _time_of(self, at: float) -> str:
        """That moment of the clock, for a person."""
        return iso8601(self._clock.wall_ms - int((self._clock.now - at) * 1000))

    def _away(self, neighbour: Neighbour) -> str:
        """The line about a neighbour that dials this node: the problem can only be solved there, or on the link."""
        if neighbour.established_count:
            what = f"away since {self._time_of(neighbour.away_since)} ({neighbour.ended})"
        else:
            what = "it has not connected since this node started"
            what += f" ({neighbour.reason})" if neighbour.reason else ""
        advice = f"check whether it runs, and what its log and status say about {self._node!r}"
        return f"neighbour {neighbour.name}: {what}; it should connect to this node: {advice}"

    def _blocked(self, neighbour: Neighbour) -> Iterator[Condition]:
        """Messages for which a neighbour has had no room for a while."""
        for destination, sender in neighbour.hop.senders.items():
            for origin, blocked in sender.blocked.items():
                if self._clock.now < blocked.since + BLOCKED_S:
                    continue
                who = self._stores.name_of(origin)
                what = f"it has no place for number {blocked.lowest} of {who} for {destination!r}"
                text = f"{what}, nor for later ones: look in its log and status for full queues or a full disk"
                yield Condition(
                    f"blocked {neighbour.name} {destination} {origin}", f"neighbour {neighbour.name}: {text}"
                )

    def _full(self) -> Iterator[Condition]:
        """Queues of this node that have been full for a while, while other nodes wait for room."""
        destination = self._destination
        for key, full in destination.full.by_key.items():
            if self._clock.now < full.since + FULL_S or not destination.full.is_full(key):
                continue
            neighbours, messages = destination.full.waiting_for_room(key)
            origins = destination.blocked_by(key)
            queue = self._catalog.queues[key]
            name = _shown(queue.host, f"queue {queue.name}")
            behind = "wait for room, or behind others that do"
            waits = [f"{messages} messages from {' and '.join(neighbours)} {behind}"] if neighbours else []
            waits += [f"{origins} origins have messages in $waiting for it"] if origins else []
            if waits:
                advice = "take messages out of it, or raise its messages_max or bytes_max"
                text = f"full ({queue.messages} messages, {queue.bytes_held} bytes): {', '.join(waits)}; {advice}"
                yield Condition(f"full {queue.queue_id}", f"{name}: {text}")

    def _missing(self, origin: Origin) -> Iterator[Condition]:
        """Strict queues that wait for missing numbers."""
        strict = sorted({item.queue for item in origin.waiting.values() if item.order == "strict"})
        if not strict:
            return
        gaps = origin.gaps()
        if not gaps:  # they wait for room
            return
        spelt = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in gaps[:GAPS_MAX])
        more = f" and {len(gaps) - GAPS_MAX} more gaps" if len(gaps) > GAPS_MAX else ""
        who = self._name_of(origin)
        waiting = len(origin.waiting)
        text = "1 message waits for numbers" if waiting == 1 else f"{waiting} messages wait for numbers"
        text += f" {spelt}{more} of {who}"
        if origin.host:
            advice = f"`holdfast queue skip QUEUE --vhost {origin.host}` gives them up"
            yield Condition(f"host {origin.host} {origin.origin}", f"{_shown(origin.host, '')}: {text}; {advice}")
            return
        for queue in strict[:GAPS_MAX]:
            advice = f"`holdfast queue skip {queue}` gives them up"
            yield Condition(f"queue {queue} {origin.origin}", f"queue {queue}: {text}; {advice}")

    def _name_of(self, origin: Origin) -> str:
        store, routing = origin.origin, self._routing()
        names = (name for name, known in self._ledger.neighbour_stores.items() if known == store)
        name = next(names, None if routing is None else routing.name_of_store(store))
        return f"origin {store}" if name is None else f"{name} ({store})"


def _shown(host: str, what: str) -> str:
    """What a line is about; of another virtual host than the default one no name."""
    return f"virtual host {host!r}" if host else what
