"""The sending end of a hop: one AMQP link for each (neighbour, destination) (CUSTODY, "The hop").

Rules of this file: the map number -> entry is in memory only. traffic-control §3.2: the copy stays until the neighbour
has stored its own (receiver.py).
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.connection import Sender, Session
from holdfast.amqp.wire.performatives import Accepted, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors.cursor import PUMP_BYTES
from holdfast.broker.cursors.entry_consumer import UNLIMITED
from holdfast.broker.entries import entry, packed
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering, make_tombstone
from holdfast.custody.forwarding import PASSED_BYTES, Forwarding
from holdfast.custody.hop.blocked import ASIDE_MAX, Blocked, aside_of
from holdfast.custody.hop.links import HopLinks, TakesTurns, name_and_source
from holdfast.custody.hop.oversized import Oversized
from holdfast.custody.hop.state import HopState
from holdfast.custody.names.identity import Identities
from holdfast.custody.sent_back import HELD_MAX
from holdfast.custody.transfers import carried, carried_runs
from holdfast.custody.transfers.carried_form import tail_of
from holdfast.engine.back_off import back_off_s
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.large_sends import LargeSend, LargeSends
from holdfast.links.outgoing import too_large
from holdfast.pacing.pacer import Pacer
from holdfast.peers.connections import Connections
from holdfast.peers.neighbours.features import ALIASES, BODIES
from holdfast.peers.neighbours.shared_bodies import BODY_BYTES_MIN, NOT_KEPT, NOTHING, GivenBodies
from holdfast.peers.neighbours.trace_aliases import Given
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog

BESIDE_BYTES: Final = 4_096  # more than custody ever says beside a message: names, a whole trace, the header

CUSTODY_ADDRESS: Final = "$holdfast/custody"
EPOCH: Final = Symbol("holdfast:epoch")
CONTINUES: Final = Symbol("holdfast:continues")
DESTINATION: Final = Symbol("holdfast:destination")
LAST_STORED: Final = Symbol("holdfast:last-stored")

RUN_LEAST: Final = 3
"""Similar entries up to which each is sent singly; more are sent as a run."""
NO_FORMAT: Final = bytes(4)

RETRY_S: Final = (1.0, 30.0)
"""Seconds that a sender waits after a number was refused, and, increasing up to the second value, after the link itself
was refused."""


@dataclass(frozen=True, slots=True)
class HopParts:
    """What all senders of a node use. `new_uuid` draws epochs. `pacers`: by root whose rates this node follows."""

    config: NodeConfig
    clock: Clock
    outbox: Outbox
    log: Log
    connections: Connections
    catalog: Catalog
    identities: Identities
    dead_lettering: DeadLettering
    forwarding: Forwarding
    large_sends: LargeSends
    new_uuid: Callable[[], UUID]
    pacers: Mapping[str, Pacer] = field(default_factory=dict)


class CustodySender(TakesTurns):
    """The sender to the neighbour of `hop` for `destination`; a consumer on the transmission queue's cursor. It
    outlives its links: it keeps transfers in doubt until the next answer says how far the neighbour has stored. Only
    the next hop's sender takes entries (`active`). The sender of a former next hop returns all entries, which are sent
    again by the new route; a late answer to it still retires its entries, wherever they are by then.

    If a number was refused, the other queued messages of its origin are put aside, so that other origins pass, and the
    lowest number of that origin is tried alone, at growing intervals: it is the missing one, if that is here at all.
    Once it is accepted the next ones follow.
    """

    def __init__(self, parts: HopParts, hop: HopState, places: HopLinks, destination: str, queue: Queue) -> None:
        super().__init__()
        self._parts = parts
        self.clock = parts.clock
        self.hop = hop
        self.places = places
        self.destination = destination
        self.queue = queue
        self.excluded: set[int] = set()
        self.bytes_max = UNLIMITED
        """Unlimited: a message that is too large for the neighbour is taken too, and becomes a dead letter."""
        self.peer: Peer | None = None
        self.link: Sender | None = None
        self.epoch: UUID | None = None
        self.open = False
        self.number = 0
        self.in_doubt: dict[int, int] = {}
        """Number -> sequence under `epoch`, in ascending order."""
        self.retry_at: float | None = None
        self.refusals = 0
        self.sure_bytes = 0
        """The largest entry that fits the neighbour's max-message-size, whatever custody annotations it needs."""
        self.active = False
        self.blocked: dict[UUID, Blocked] = {}
        self.oversized = Oversized(parts.dead_lettering, parts.clock)
        self.large: LargeSend | None = None
        self.given: Given | None = None
        """The link's aliases, if the neighbour accepts aliases."""
        self.bodies: GivenBodies | None = None
        """The bare messages that its connection shares, if the neighbour keeps bare messages."""
        self.cursor = queue.shared
        self.cursor.attach(self)

    # ------------------------------------------------------------------------------------------------ route

    def go(self, peer: Peer | None) -> None:
        """Starts: its neighbour is the next hop for the destination. `peer`: the connection, if the session is up."""
        if not self.active:
            self.active = True
            self.queue.touch()
        if self.link is None and peer is not None and peer.amqp.usable and self.hop.takes(self.destination):
            self.places.ask(self)

    def stop(self) -> None:
        """Stops: another neighbour is the next hop. Transfers in doubt are remembered, because they may still be
        answered."""
        if not self.active:
            return
        self.active = False
        self.retry_at = None
        self.blocked.clear()
        self.oversized.clear()
        if self.large is not None and not self.large.stopped:  # the other way has it from its beginning
            self.in_doubt.pop(self.large.context, None)
            self.number -= 1
            self.large.stop()
            if not self.in_doubt:
                self.hop.unanswered.pop(self, None)
        self.requeue([sequence for sequence, acquired in self.cursor.acquired.items() if acquired.consumer is self])

    def requeue(self, sequences: list[int]) -> None:
        """Requeues those of `sequences` that this sender still holds."""
        self.cursor.requeue([sequence for sequence in sequences if self._has(sequence)], failed=False)

    def _has(self, sequence: int) -> bool:
        acquired = self.cursor.acquired.get(sequence)
        return acquired is not None and acquired.consumer is self

    def in_hands(self, sequence: int) -> bytes | None:
        """The entry, if this sender holds it."""
        return self.queue.value(sequence) if self._has(sequence) else None

    def beside(self) -> "Iterator[CustodySender]":
        """The senders to the same destination by other neighbours."""
        return (other for other in self.cursor.consumers if isinstance(other, CustodySender) and other is not self)

    @property
    def may_be_answered(self) -> bool:
        """Whether transfers in doubt may still be answered: the link on which they were sent exists."""
        return self.link is not None

    # ------------------------------------------------------------------------------------------------ link

    def attach(self, peer: Peer, session: Session) -> None:
        """Begins a new epoch on that connection, continuing the last one if it is still in memory."""
        assert self.link is None
        self.peer = peer
        self.retry_at = None
        epoch = self._parts.new_uuid()
        self.continued = self.epoch
        properties = {EPOCH: epoch, CONTINUES: self.continued, DESTINATION: self.destination}
        name, address = name_and_source(self.destination, epoch)
        self.link = session.attach_sender(
            name,
            Source(address=address),
            Target(address=CUSTODY_ADDRESS),
            snd_settle_mode=0,
            properties=properties,
        )
        self.link.context = self
        peer.egress[self] = None
        self.epoch = epoch
        self.given = Given(peer.aliases_given) if ALIASES in peer.features else None
        self.bodies = peer.bodies_given if BODIES in peer.features else None
        peer.touch()

    def attached(self) -> None:
        """The neighbour answered: retires what it has stored, and sends the rest again under the new epoch."""
        link = self.link
        assert link is not None and self.peer is not None
        limit = link.message_bytes_max
        if limit is not None and limit <= BESIDE_BYTES:  # not even a tombstone would surely pass
            text = f"its custody link allows messages of {limit} bytes; expected more than {BESIDE_BYTES}"
            self._parts.connections.drop(self.peer, text)
            return
        answer = link.remote_attach
        properties = (answer.properties or {}) if answer is not None else {}
        last = properties.get(LAST_STORED)
        known = last if isinstance(last, int) else 0
        stored = [sequence for number, sequence in self.in_doubt.items() if number <= known]
        again = [sequence for number, sequence in self.in_doubt.items() if number > known]
        self.in_doubt.clear()
        self.cursor.finish_wherever(stored)
        self._unblock(stored)
        for blocked in self.blocked.values():
            blocked.probe = None
        self.requeue([*again, *self.oversized.clear()])
        self.sure_bytes = limit - BESIDE_BYTES if limit is not None else sys.maxsize
        self.number = 0
        self.refusals = 0
        self.open = True
        self.queue.touch()

    def lost(self) -> None:
        """The link has ended; transfers in doubt are kept until the next answer, and may expire meanwhile
        (custody/expiry.py)."""
        if self.large is not None:
            self.large.close()
            self.large = None
        if self.given is not None:
            self.given.forget()
            self.given = None
        if self.bodies is not None:
            self.bodies.forget()
            self.bodies = None
        self.open = False
        self.queue.look_again(list(self.cursor.acquired))
        self.hop.unanswered.pop(self, None)
        self.yields_at = self.link = self.peer = None

    def recover(self) -> None:
        """After a contained failure: requeues entries that it holds by the cursor's account and not by its own."""
        held = self._parts.forwarding.returned.get(self.destination)
        aside = [sequence for blocked in self.blocked.values() for sequence in blocked.aside]
        known = {*self.in_doubt.values(), *aside, *self.oversized.sequences, *(() if held is None else held.sequences)}
        self.requeue([sequence for sequence in self.cursor.acquired if sequence not in known])

    # ------------------------------------------------------------------------------------------------ consumer

    def wants(self) -> int:
        link = self.link
        if link is None:
            self.places.note_work(self)
            return 0
        assert self.peer is not None  # as long as it has a link
        if not self.open or self.large or not self.peer.writable or not link.sendable:
            return 0  # also while an aborted large delivery has not ended
        forwarding = self._parts.forwarding
        if not self.active or (forwarding.returned and forwarding.sent_back.held(self.destination) >= HELD_MAX):
            return 0
        if len(self.oversized.sequences) + aside_of(self.blocked) >= ASIDE_MAX:
            return 0
        return min(link.credit, self._parts.config.limits.hop_in_doubt_max - len(self.in_doubt))

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        return len(value)

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        forwarding = self._parts.forwarding
        if forwarding.returned and forwarding.sent_back.holds(self.destination, sequence):
            return  # kept in our hands, unsent, until a table changes; what is behind it goes on
        if self.blocked:
            origin, number = packed.identity_of(value)
            blocked = self.blocked.get(origin)
            if blocked is not None:
                blocked.aside[sequence] = number
                if number < blocked.lowest:
                    blocked.due = self.clock.now
                    self.hop.stir()
                return
        self._send(sequence, value)

    @property
    def run_bytes_max(self) -> int:
        return self.sure_bytes

    def count_held(self, size: int) -> None:
        """`hop_in_doubt_max` bounds what it holds."""

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        if self._parts.forwarding.returned or self.blocked:
            return 0
        taken = 0
        while taken < len(values):
            end = taken + carried_runs.alike(values, taken)
            may_run = end - taken > RUN_LEAST and self._sharing(values[taken]) is None
            while taken < end:
                value = values[taken]
                if len(value) > self.sure_bytes or value[1] & entry.BLOB:
                    return taken
                self._send(sequences[taken], value)
                taken += 1
                if may_run:  # the first went alone: it tells aliases where there are new ones
                    taken += self._send_run(sequences[taken:end], values[taken:end])
                    may_run = False
        return taken

    def _send_run(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        """Sends a run of similar entries; returns how many, 0 if each must be examined singly."""
        link, peer, shared, first = self.link, self.peer, self._parts, values[0]
        assert link is not None and peer is not None
        if not packed.is_plain(first) or first[20:24] != NO_FORMAT or shared.config.telemetry_messages:
            return 0
        if max(map(len, values)) > self.sure_bytes:
            return 0
        ours = shared.identities.store_uuid.bytes
        origin = packed.origin_of(first)
        trace = carried.passed_by(first) + ours
        path = self.given.known.get(trace) if self.given is not None else None
        forwarding = shared.forwarding
        number = self.number + 1
        heads, bare_at = carried_runs.heads_of(
            values, number, trace=path or trace, receipt=forwarding.receipts.receipt_for(origin, self.destination),
            short=path is not None,
        )  # fmt: skip
        numbers = range(number, number + len(values))
        if origin == ours:  # those that do not go now go one by one at once
            shared.identities.remember_sent(self.destination, max(map(packed.number_of, values)))
        sent = link.send_run(heads, [tail_of(value, bare_at) for value in values], numbers, settled=False)
        if not sent:
            return 0
        self.number += sent
        self.in_doubt.update(zip(numbers[:sent], sequences, strict=False))
        self.hop.unanswered.setdefault(self, self.clock.now)
        passed = PASSED_BYTES + 16 * first[3]
        destination, neighbour, wall_ms = self.destination, self.hop.name, self.clock.wall_ms
        forwarding.passed.extend([(value[:passed], destination, neighbour, wall_ms) for value in values[:sent]])
        peer.touch()
        return sent

    def _sharing(self, value: bytes) -> GivenBodies | None:
        """The bodies of the connection if the entry's bare message may be shared with other destinations; else None."""
        most = self._parts.config.limits.stream_bytes - BESIDE_BYTES  # what comes in parts over there is not kept
        if self.bodies is None or not BODY_BYTES_MIN <= len(value) <= min(most, self.sure_bytes):
            return None
        return self.bodies if packed.is_for_topic(value) and not value[1] & entry.BLOB else None

    def _send(self, sequence: int, value: bytes) -> None:
        link, peer, shared, queue = self.link, self.peer, self._parts, self.queue
        assert link is not None and peer is not None
        said = value
        if queue.expired(value):  # its end goes in its place, lest all behind it wait
            said = make_tombstone(entry.unpack(value), self.clock.wall_ms)
            queue.expired_total += 1
        ours = shared.identities.store_uuid.bytes
        origin = packed.origin_of(value)
        number = self.number = self.number + 1
        large = said is value and value[1] & entry.BLOB
        trace = written = carried.passed_by(said) + ours
        given, aliases, told = self.given, b"", None
        path = given.known.get(trace) if given is not None else None
        if path is None and given is not None and not large:  # a large one may be given up, and what it tells with it
            told = given.tell(trace)
            if told is not None:
                path, aliases = told
        if path is not None:
            written = path
        bodies = self._sharing(value) if said is value else None
        message_format, parts = carried.parts_of(
            said,
            number,
            trace=written,
            receipt=shared.forwarding.receipts.receipt_for(origin, self.destination),
            steady_ms=self.clock.steady_ms,
            short=path is not None,
            aliases=aliases,
            bodies=bodies,
            keeps=len(self.places.holding) > 1,
        )
        if (large or len(value) > self.sure_bytes) and too_large(link, parts, said):
            self.number -= 1
            self.oversized.add(self, sequence, value)
            return
        if origin == ours:
            shared.identities.remember_sent(self.destination, packed.number_of(value))
        self.in_doubt[number] = sequence
        self.hop.unanswered.setdefault(self, self.clock.now)
        if large:
            self.large = LargeSend(
                shared.large_sends, peer, link, value, parts,
                context=number, settled=False, message_format=message_format, ended=self._large_ended,
            )  # fmt: skip
        else:
            link.send(parts, context=number, message_format=message_format)
            if bodies is not None:
                self.hop.messages_shared += parts[-1] is NOTHING
                if link.session.backlog:
                    bodies.held_back()
            if told is not None and given is not None:
                given.told(trace, *told)
        if said is value:
            head = value[: PASSED_BYTES + 16 * value[3]]
            shared.forwarding.passed.append((head, self.destination, self.hop.name, self.clock.wall_ms))
        peer.touch()
        if shared.config.telemetry_messages:
            record_message(shared.outbox, "sent", self.queue, sequence, value, destination=self.destination)

    def _large_ended(self) -> None:
        self.large = None
        self.queue.touch()

    # ------------------------------------------------------------------------------------------------ aside

    def _block(self, sequence: int | None) -> None:
        """The message at `sequence` was refused: its origin waits."""
        value = self.queue.value(sequence) if sequence is not None else None
        if value is None or not self.active:
            return
        identity = packed.identity_of(value)
        blocked = self.blocked.get(identity.origin)
        if blocked is None:  # its first try is with the next epoch
            self.blocked[identity.origin] = Blocked(self.clock.now, identity.number, self.clock.now)
            self.schedule()
            return
        blocked.attempts += 1
        blocked.due = self.clock.now + back_off_s(RETRY_S, blocked.attempts)
        blocked.lowest = min(blocked.lowest, identity.number)
        blocked.probe = None
        blocked.window = 1

    def _unblock(self, stored: list[int]) -> None:
        """The tried message was accepted: messages of its origin that were put aside are sent, in the order of their
        numbers. If the queue has them in that order, it hands them out itself. Otherwise the next ones are tried from
        here, because the queue would begin with one that has no place, and each such try would cost an epoch.
        """
        if not self.blocked:
            return
        taken = frozenset(stored)
        for origin, blocked in list(self.blocked.items()):
            if blocked.probe not in taken:
                continue
            blocked.probe = None
            numbers = [number for _, number in sorted(blocked.aside.items())]
            if all(number < after for number, after in pairwise(numbers)):
                del self.blocked[origin]
                self.requeue(list(blocked.aside))
            else:
                blocked.due = self.clock.now
                self.hop.stir()
                blocked.attempts = 0
                blocked.window *= 2

    def _may_send(self) -> bool:
        return bool(not self.large and self.link and self.link.sendable and self.peer and self.peer.writable)

    def _passes(self, origin: UUID) -> bool:
        """Whether a message of that origin may leave now (paced_sender.py)."""
        return True

    def _try_blocked(self, now: float) -> None:
        """Sends the lowest numbers of each blocked origin that is due, at first one, at most PUMP_BYTES in a turn."""
        left = PUMP_BYTES
        for origin, blocked in list(self.blocked.items()):
            if left <= 0:
                return  # the others are due in the next turn
            if blocked.probe is not None or (now < blocked.due and not blocked.no_place):
                continue
            blocked.no_place = len(self.in_doubt) >= self._parts.config.limits.hop_in_doubt_max
            if blocked.no_place or not self._may_send() or not self._passes(origin):
                blocked.due = now + RETRY_S[0]
                continue
            tried = 0
            for sequence in sorted(blocked.aside, key=blocked.aside.__getitem__):
                number = blocked.aside.pop(sequence)
                value = self.in_hands(sequence)
                if value is not None:
                    blocked.lowest = min(blocked.lowest, number)
                    left -= len(value)
                    self._send(sequence, value)
                    if self.in_doubt.get(self.number) == sequence:  # else it is oversized
                        blocked.probe = sequence
                        tried += 1
                    if (
                        left <= 0
                        or tried >= blocked.window
                        or (tried and not (self.wants() > 0 and self._passes(origin)))
                    ):
                        break
            if blocked.probe is None and not blocked.aside:
                if self.queue.messages > len(self.in_doubt):  # what may be of it has not been taken up yet
                    blocked.due = now + RETRY_S[0]
                else:
                    del self.blocked[origin]

    @property
    def timed(self) -> bool:
        """Whether it has a deadline of its own."""
        return self.retry_at is not None or bool(self.blocked or self.oversized.sequences)

    def schedule(self) -> None:
        """Registers that `tick` is wanted at a time of its own."""
        self.hop.timed[self] = None
        self.hop.stir()

    def next_deadline(self) -> float | None:
        """When `tick` is wanted, while the session is up."""
        if self.retry_at is not None or not self.open:
            return self.retry_at
        moments = [blocked.due for blocked in self.blocked.values() if blocked.probe is None]
        return min([*moments, self.oversized.due] if self.oversized.sequences else moments, default=None)

    # ------------------------------------------------------------------------------------------------ events

    def credited(self) -> None:
        self.queue.touch()

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        """Retires accepted numbers; a refused number ends the epoch, and it and all later ones are sent again."""
        if isinstance(state, Accepted):
            stored = [self.in_doubt.pop(number) for number in contexts if number in self.in_doubt]
            if self.in_doubt:
                self.hop.unanswered[self] = self.clock.now
            else:
                self.hop.unanswered.pop(self, None)
            self.hop.messages_out += len(stored)
            self.cursor.finish_wherever(stored)
            self._unblock(stored)
            if self.open and any(blocked.no_place for blocked in self.blocked.values()):
                self._try_blocked(self.clock.now)  # before others take the places
            self.queue.touch()
            if self.yields_at is not None and not self.in_doubt:
                self.give_up_link()
        elif state is not None and self.link is not None and not self.link.detached:
            if self.open:
                self._block(self.in_doubt.get(min(contexts)))
            self.open = False
            self.link.detach(closed=True)
            assert self.peer is not None
            self.peer.touch()
        if not settled and self.link is not None and not self.link.detached:
            self.link.settle(first, last, state)

    def gone(self, unsettled: list[Any]) -> None:
        link, peer, yielded = self.link, self.peer, self.yields_at is not None
        self.lost()
        if peer is not None and link is not None and link.error is not None and link.error.condition == NOT_KEPT:
            peer.bodies_given.stop()
            peer.log("INFO", f"whole messages are sent on this connection from now on: {link.error.text}")
        refused = link is not None and link.refused
        self.places.gone(self, link.error if link is not None and refused else None)
        if self.active and peer is not None and self.hop.peer is peer and not peer.amqp.closed:
            if yielded and not refused:
                self.places.ask(self)
                return
            first, longest = RETRY_S
            self.retry_at = self.clock.now + min(longest, first * 2.0**self.refusals)
            self.schedule()
            if refused:
                self.refusals = min(self.refusals + 1, 10)

    def tick(self, now: float) -> None:
        if self.retry_at is not None and now >= self.retry_at and self.hop.established:
            self.retry_at = None
            self.go(self.hop.peer)
        elif self.open:
            self.oversized.step(self, now)
            self._try_blocked(now)


def may_expire(consumer: object) -> bool:
    """Whether entries held by that consumer may expire: those of a sender, once the session in which they were sent is
    lost."""
    return isinstance(consumer, CustodySender) and not consumer.open
