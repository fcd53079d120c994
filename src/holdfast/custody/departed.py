"""Nodes that left configuration and topology: new messages for them, and messages that are queued for them (ADR 0024).

Rules of this file: queued messages stay until an operator makes dead letters of them, a bounded share each turn; a
tombstone closes each number that was given, unless the operator gives those up too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import destination_of, host_of, node_of
from holdfast.broker.purge import at_rest
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import MOVED_BYTES, MOVED_COUNT, DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.engine.log import Log
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.producer_ends import ProducerEnds
from holdfast.state.turns import Turns

ORPHANS_TOLD_MAX: Final = 20
"""Unknown nodes with queued messages that are logged; further ones are not."""


@dataclass(slots=True)
class Departure:
    """A transmission queue whose messages become dead letters, or go to another node. `to`: the node to which they go
    instead, as new messages; None: they become dead letters. `place`: where the pass continues; `end`: where it ends;
    `moved`: whether it has found any. `before`: the tombstones that existed. `told` are called with how many messages
    became dead letters, and how many tombstones are left.
    """

    end: int
    before: int
    with_tombstones: bool
    to: str | None = None
    place: int = 0
    moved: bool = False
    waiting_for_space: bool = False
    """Whether the store has no room for the dead letters."""
    is_known: bool = False
    """Whether the node is known again: it ends once what leaves has left."""
    told: list[Callable[[int, int], None]] = field(default_factory=list)

    def answer(self, made: int, left: int) -> None:
        while self.told:
            self.told[0](made, left)
            del self.told[0]


class Hop(Protocol):
    """A neighbour, as the next hop of messages."""

    def close(self, destination: str) -> None:
        """The queue for that destination was deleted: sends nothing more, and drops transfers in doubt."""


class Departures:
    """Finds nodes that left, and makes dead letters of what is queued for them when an operator asks."""

    def __init__(
        self,
        config: NodeConfig,
        catalog: Catalog,
        turns: Turns,
        log: Log,
        links: LinkTables,
        producer_ends: ProducerEnds,
        identities: Identities,
        dead_lettering: DeadLettering,
        forwarding: Forwarding,
        hops: Mapping[str, Hop],
        *,
        offer_again: Callable[[Queue], None],
        delete: Callable[[Queue], None],
        forget_hops: Callable[[str], None],
    ) -> None:
        """`offer_again`: ends one of the reasons why that queue offers nothing. `delete`: deletes a queue that no link
        holds. `forget_hops`: forgets the progress of hops to and from a node that left."""
        self._config = config
        self._catalog = catalog
        self._turns = turns
        self._log = log
        self._links = links
        self._producer_ends = producer_ends
        self._identities = identities
        self._dead_lettering = dead_lettering
        self._forwarding = forwarding
        self._hops = hops
        self._offer_again = offer_again
        self._delete = delete
        self._forget_hops = forget_hops
        self.orphans: dict[str, None] = {}
        """Unknown nodes with queued messages that were logged."""
        self.under_way: dict[Queue, Departure] = {}
        self._look_due = False

    # ------------------------------------------------------------------------------------------------ new mail

    def look_soon(self) -> None:
        """Called when nodes may have left: `look` follows once in this turn, however many they are."""
        self._look_due = True

    def look(self) -> None:
        """Ends links for nodes that are now unknown, so that `unknown_destination` decides about new messages for
        them."""
        self._look_due = False
        self._cancel_of_known()
        unknown = self.find()
        if not unknown or self._config.unknown_destination == "keep":
            return
        for name, queue in unknown.items():
            for link in list(self._links.producers_of(queue)):
                text = f"{self._config.name!r} has no route to {node_of(name)!r}"
                self._producer_ends.end(link, text, conditions.NOT_FOUND)
        for receiver in list(self._links.custody_receivers.values()):
            if receiver.destination in unknown:
                text = f"{self._config.name!r} has no route to {node_of(receiver.destination)!r}"
                receiver.dismiss(Error(Symbol(conditions.NOT_FOUND), text))

    def find(self) -> dict[str, Queue]:
        """Finds the transmission queues for unknown nodes, and logs each new one that has messages. Such messages may
        arrive long after a node left, so this is called now and then."""
        knows = self._forwarding.knows
        unknown = {name: queue for name, queue in self._catalog.transmissions() if not knows(name)}
        self.orphans = {name: None for name in self.orphans if name in unknown}
        for name, queue in unknown.items():
            count = queue.messages - queue.tombstones
            if count and name not in self.orphans:
                self.orphans[name] = None
                if len(self.orphans) <= ORPHANS_TOLD_MAX:
                    self._log.write("WARNING", _advice(name, count))
        return unknown

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Unknown nodes with queued messages, at most ORPHANS_TOLD_MAX, and what to do about it."""
        transit = self._catalog.transit
        for name in islice(self.orphans, ORPHANS_TOLD_MAX):
            queue = transit.get(name)
            if queue is not None and queue.messages > queue.tombstones:
                yield name, _advice(name, queue.messages - queue.tombstones)

    # ------------------------------------------------------------------------------------------------ what is queued

    @property
    def pending(self) -> bool:
        """Whether `step` is to be called in this turn."""
        return self._look_due or bool(self.under_way)

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here; without room for dead letters it waits for some."""
        return self._look_due or not all(departure.waiting_for_space for departure in self.under_way.values())

    @property
    def asked(self) -> int:
        """Requests that wait for an end."""
        return sum(len(departure.told) for departure in self.under_way.values())

    def begin(
        self, queue: Queue, told: Callable[[int, int], None], *, with_tombstones: bool, to: str | None = None
    ) -> None:
        """Makes dead letters of messages that are queued for a node that left, or sends them `to` another node. If that
        is already in progress, it continues as it began. The queue is deleted once it is empty, or has only tombstones
        left that `with_tombstones` gives up. Later messages stay; if the node is known again before the end, the rest
        goes to it.
        """
        departure = self.under_way.get(queue) or Departure(queue.next_sequence, queue.tombstones, with_tombstones, to)
        if queue not in self.under_way:
            queue.shared.forget_read_ahead()  # else what leaves now is offered from there afterwards
            queue.stopped = True  # from here on nothing is called that could fail
            self.under_way[queue] = departure
        departure.end = queue.next_sequence
        departure.moved |= queue.visible < departure.end  # what is on its way to the disk is met in one more pass
        departure.with_tombstones |= with_tombstones
        departure.told.append(told)

    def step(self) -> None:
        """This turn's share."""
        if self._look_due:
            self.look()
        self._cancel_of_known()
        for queue, departure in list(self.under_way.items()):
            if departure.is_known:
                continue  # it ends once what leaves has left
            if departure.place < departure.end:
                self._some(queue, departure)
            elif self._turns.in_flight is not None or self._turns.gathered.moves:
                continue  # what a full disk refuses will be back
            elif departure.moved:  # one more pass
                departure.place, departure.moved = 0, False
            else:
                self._over(queue, departure)

    def _cancel_of_known(self) -> None:
        """A node that is known again gets the messages that are still queued for it; dead letters stay dead letters.
        Nothing is offered before what leaves has left, as its place ahead of the cursor does not say so."""
        for queue, departure in list(self.under_way.items()):
            departure.is_known = self._forwarding.knows(queue.destination)
            if departure.is_known and not self._leaves(queue):
                departure.answer(self._made(queue, departure), queue.tombstones)
                self._end(queue)

    def _leaves(self, queue: Queue) -> bool:
        """Whether messages of the queue leave with the commit under way or with the next one."""
        in_flight, gathered = self._turns.in_flight, self._turns.gathered
        turns = (gathered,) if in_flight is None else (gathered, in_flight)
        return any(moved is queue for turn in turns for moved, _, _ in turn.moves)

    def _some(self, queue: Queue, departure: Departure) -> None:
        if self._dead_lettering.has_moved_its_share():
            return
        name = node_of(queue.destination)
        reason = f"{name!r} left: it is in neither the configuration nor the topology of {self._config.name!r}"
        found, place = at_rest(queue, departure.place, departure.end, count_max=MOVED_COUNT, bytes_max=MOVED_BYTES)
        for sequence, value in found:
            departure.waiting_for_space = not self._dead_lettering.has_room_for_dead_letter(len(value))
            if departure.waiting_for_space or self._dead_lettering.has_moved_its_share():
                departure.place = sequence
                return
            target = None if departure.to is None else self._target(queue, departure.to)
            if target is not None and not target.fits(packed.size_of(value)):
                departure.place, departure.waiting_for_space = sequence, True
                return
            queue.shared.forget(sequence)
            if target is None:
                self._dead_lettering.dead_letter_on_its_way(
                    queue, sequence, value, reason, f"{entry.unpack(value).to}@{name}"
                )
            else:
                identity = self._identities.next(target.destination)
                self._dead_lettering.send_elsewhere(queue, sequence, value, target, identity)
            departure.moved = True
        departure.place = place

    def _target(self, queue: Queue, node: str) -> Queue:
        """The transmission queue of the same virtual host for that node."""
        destination = destination_of(queue.host, node)
        target = self._catalog.transmission(destination)
        self._forwarding.steer(destination)
        return target

    def _made(self, queue: Queue, departure: Departure) -> int:
        """Counts the messages that became dead letters."""
        return max(0, queue.tombstones - departure.before)

    def _end(self, queue: Queue) -> None:
        """Ends the pass; the rest of the queue may be offered again."""
        del self.under_way[queue]
        self._offer_again(queue)

    def _over(self, queue: Queue, departure: Departure) -> None:
        made, left = self._made(queue, departure), queue.tombstones
        if queue.messages <= (queue.tombstones if departure.with_tombstones else 0):
            left = 0
            if self._catalog.has(queue):  # else it went already, and telling so failed
                self._forget(queue)
        departure.answer(made, left)
        self._end(queue)

    def _forget(self, queue: Queue) -> None:
        name = queue.destination
        for link in list(self._links.producers_of(queue)):  # where new mail is kept, they find a new queue
            link.detach_with(f"queue {queue.name!r} was deleted by an operator", conditions.RESOURCE_DELETED)
        for hop in self._hops.values():
            hop.close(name)
        for receiver in self._links.custody_receivers.values():
            if receiver.onward is queue:
                receiver.onward = None
        self._forwarding.sent_back.forget(name)
        self._identities.forget(name)
        self._forget_hops(name)
        self._delete(queue)


def _advice(name: str, count: int) -> str:
    host = host_of(name)
    where, option = (f" of virtual host {host!r}", f" --vhost {host}") if host else ("", "")
    left = f"1 message{where} waits for node" if count == 1 else f"{count} messages{where} wait for node"
    left += f" {node_of(name)!r}, in neither the configuration nor the topology"
    return f"{left}: `holdfast queue delete @{name}{option}` makes them dead letters"
