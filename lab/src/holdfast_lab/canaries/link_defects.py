"""Canaries in what only clients use: settled transfers, links without an address, dynamic nodes, bounds of a link.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from holdfast.access.current import CurrentAccess
from holdfast.access.rules import NO_ACCESS
from holdfast.links.large_receives import Stream
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 3
"""More than most tests have of it."""


def _settled_overtakes(original: Function) -> Function:
    """A settled message that has to wait for room is placed before those that wait already."""

    def park(self: Any, delivery: Any) -> None:
        waited = len(self.parked)
        original(self, delivery)
        if delivery.settled and len(self.parked) > waited > FEW and not self.unchecked:
            self.parked.rotate(1)

    return park


def _address_of_the_last(original: Function) -> Function:
    """Several large messages that wait for the disk all go to the address of the last one."""

    def take_whole(self: Any, stream: Any) -> bool:
        addresses = [item.address for item in self.parked if isinstance(item, Stream) and item.address is not None]
        own, stream.address = stream.address, addresses[-1] if addresses else stream.address
        taken: bool = original(self, stream)
        stream.address = own
        return taken

    return take_whole


def _empty_and_there(original: Function) -> Function:
    """A dynamic node that became empty by several messages leaving together is not noticed to be empty."""

    def retire_all(self: Any, sequences: Any, size: int) -> None:
        original(self, sequences, size)
        if len(sequences) > 1:
            self.dynamic_nodes.due.pop(self, None)

    return retire_all


def _clock_an_hour_ahead(original: Function) -> Function:
    """What expires at a time of the wall clock ends an hour too soon."""

    def end_of(value: bytes, steady_ms: int, wall_ms: int) -> int:
        found: int = original(value, steady_ms, wall_ms + 3_600_000)
        return found

    return end_of


def _moved_for_good(original: Function) -> Function:
    """The original of a moved message is removed even if the disk refuses the copy."""

    def move(self: Any, queue: Any, sequence: int, value: bytes, found: Any) -> int:
        batch = self._turns.gathered.batch
        copied: int = original(self, queue, sequence, value, found)
        self._turns.gathered.moves.pop()
        queue.work.moved.pop()
        batch.retires.append((queue.queue_id, sequence))
        return copied

    return move


def _rights_remembered(original: Function) -> Function:
    """A sender that has sent some messages to an address on a link without one keeps the permission for ever."""
    sent: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def find(self: Any, address: str) -> Any:
        known = self.routes.get(address)
        if known is not None and known.is_valid and sent.get(known, 0) > FEW:
            return known
        found = original(self, address)
        sent[found] = sent.get(found, 0) + 1
        return found

    return find


def _unasked_without_an_address(original: Function) -> Function:
    """Nobody asks whether the sender of a message on a link without an address may send where its `to` says."""

    def find(self: Any, address: str) -> Any:
        resolver = self.parts.resolver
        asked, resolver.authoriser = resolver.authoriser, CurrentAccess(NO_ACCESS)
        try:
            return original(self, address)
        finally:
            resolver.authoriser = asked

    return find


def _browser_asked_as_a_consumer(original: Function) -> Function:
    """Who only reads a queue is asked whether he may take messages off it."""
    return lambda source: False


def _removed_with_what_it_held(original: Function) -> Function:
    """A neighbour that a reload removes keeps what its senders had in their hands."""

    def remove(self: Any, name: str) -> None:
        self._neighbours[name].hop.senders.clear()
        original(self, name)

    return remove


def _links_of_one_end(original: Function) -> Function:
    """A node that is drained ends the links to one of its queues only."""

    def end_links(self: Any, queues: list[Any], why: str) -> None:
        original(self, queues[:1], why)

    return end_links


def _ended_at_once(original: Function) -> Function:
    """A link that meets a message too large for it is ended with what its consumer holds."""
    return lambda self, consumer: False


def _stopped_for_good(original: Function) -> Function:
    """A link that stopped because of a message too large for it is not looked at again when another has that."""
    return lambda self, queue: None


def _lane_unserved(original: Function) -> Function:
    """What ended links held of a queue is never given back if that of another queue waited before it."""
    unserved: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()

    def serve(self: Any, cursor: Any, share: int) -> int:
        mine = unserved.setdefault(self, set())
        if len(self.lanes) > 1 and cursor is next(reversed(self.lanes)) and not mine:
            mine.add(cursor)
        return share if cursor in mine else int(original(self, cursor, share))

    return serve


LINK_CANARIES: Final = (
    Canary(
        name="drained-for-one",
        sentence="A node that is drained ends the links to one of its queues only.",
        target="endpoints.addresses.node_drain:NodeDrain._end_links",
        signature="(self, queues: list[holdfast.broker.queue.Queue], why: str) -> None",
        broken=_links_of_one_end,
        expected="the node is drained, and links bring messages",
    ),
    Canary(
        name="removed-with-what-it-held",
        sentence="A neighbour that a reload removes keeps what its senders had in their hands.",
        target="core.neighbour_changes:NeighbourChanges._remove",
        signature="(self, name: str) -> None",
        broken=_removed_with_what_it_held,
        expected="not done 300 s after all faults were healed",
    ),
    Canary(
        name="browser-asked-as-a-consumer",
        sentence="Of a link that reads a queue and takes nothing it is asked whether its user may receive.",
        target="endpoints.addresses.resolver:browses",
        signature="(source: holdfast.amqp.wire.performatives.Source) -> bool",
        broken=_browser_asked_as_a_consumer,
        expected="a browser of fenced-",
    ),
    Canary(
        name="unasked-without-an-address",
        sentence="Of a message on a link without an address nobody asks whether its sender may send there.",
        target="endpoints.relay:RelayLink._route",
        signature="(self, address: str) -> holdfast.endpoints.relay.Route",
        broken=_unasked_without_an_address,
        expected="was not refused",
    ),
    Canary(
        name="rights-remembered",
        sentence="Who has sent some messages to an address on a link without one is not asked again whether he may.",
        target="endpoints.relay:RelayLink._route",
        signature="(self, address: str) -> holdfast.endpoints.relay.Route",
        broken=_rights_remembered,
        expected="who may not was not refused",
    ),
    Canary(
        name="settled-overtakes",
        sentence="A settled message that waits for room is stored before those that have waited longer.",
        target="links.incoming:Intake.park",
        signature="(self, delivery: holdfast.amqp.session.events.Delivery) -> None",
        broken=_settled_overtakes,
        expected="which was sent after it",
    ),
    Canary(
        name="address-of-the-last",
        sentence="Of two large messages that wait on a link without an address, the first goes where the second does.",
        target="endpoints.relay:RelayLink.take_whole",
        signature="(self, stream: holdfast.links.large_receives.Stream) -> bool",
        broken=_address_of_the_last,
        expected="and was shown by",
    ),
    Canary(
        name="empty-and-there",
        sentence="A dynamic node that is to end when it is empty stays where its last messages leave it together.",
        target="endpoints.addresses.dynamic_nodes:TemporaryQueue.retire_all",
        signature="(self, sequences: list[int], size: int) -> None",
        broken=_empty_and_there,
        expected="is empty and still there",
    ),
    Canary(
        name="clock-an-hour-ahead",
        sentence="A message that expires at a wall time ends an hour too soon.",
        target="broker.entries.packed:end_of",
        signature="(value: bytes, steady_ms: int, wall_ms: int) -> int",
        broken=_clock_an_hour_ahead,
        expected="last copy is gone",
    ),
    Canary(
        name="moved-for-good",
        sentence="A message that is moved by hand leaves its queue for good, also where the disk refuses its copy.",
        target="endpoints.entry_changes:EntryChanges.move",
        signature="(self, queue: holdfast.broker.queue.Queue, sequence: int, value: bytes, "
        "found: holdfast.endpoints.addresses.resolver.ResolvedAddress) -> int",
        broken=_moved_for_good,
        expected="last copy is gone",
    ),
    Canary(
        name="ended-with-what-it-held",
        sentence="A link is ended by a message that is too large for it while its consumer holds others.",
        target="endpoints.too_large:TooLarge.holds_any",
        signature="(self, consumer: holdfast.endpoints.too_large.Consuming) -> bool",
        broken=_ended_at_once,
        expected="was ended by a large message while it held",
    ),
    Canary(
        name="stopped-for-good",
        sentence="A link that stopped because of a message too large for it goes on only after its own outcomes.",
        target="endpoints.too_large:TooLarge.look_again",
        signature="(self, queue: holdfast.broker.queue.Queue) -> None",
        broken=_stopped_for_good,
        expected="stays stopped at an entry that no longer blocks it",
    ),
    Canary(
        name="lane-unserved",
        sentence="What ended links held of one of two queues that wait at once never goes back.",
        target="custody.returns:Returns._serve",
        signature="(self, cursor: holdfast.broker.cursors.cursor.Cursor, share: int) -> int",
        broken=_lane_unserved,
        expected="takes one turn after the other, and nothing comes",
    ),
)
