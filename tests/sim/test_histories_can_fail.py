"""A history that cannot fail shows nothing: with the very rule broken that it is about, each one fails by a promise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker import purge, queue
from holdfast.broker.entries import entry
from holdfast.broker.stored import origins as custody
from holdfast.broker.stored.gaps import GapClocks
from holdfast.core import node
from holdfast.custody import dead_lettering, expiry, forwarding, receipts, sent_back
from holdfast.custody.arrival import destination
from holdfast.custody.hop import receiver as hop_receiver
from holdfast.custody.hop import sender as hops
from holdfast.custody.names import identity, neighbour_stores
from holdfast.endpoints import producer
from holdfast.endpoints.attaching import neighbour_attach
from holdfast.management.operations import subscriptions as subscription_operations
from holdfast.peering import routes
from holdfast.routing import linkstate
from holdfast.state import own_names
from holdfast_lab.histories import HISTORIES
from support import today

pytestmark = pytest.mark.sim

Original = Any


def speaks_to_supers_alone(original: Original) -> Original:
    """While no super node is in reach nobody is told anything."""

    def tell_all(self: Any) -> None:
        if self.acting is not None:
            original(self)

    return tell_all


def refused_alone(original: Original) -> Original:
    """A number that the disk refused fails no later one."""

    def refused(self: Any, deliveries: list[int], outcome: object) -> None:
        return

    return refused


def answered_at_once(original: Original) -> Original:
    """A new link is answered with what is only being committed."""

    def custody_link(self: Any, peer: Any, link: Any, told: Any) -> None:
        original(self, peer, link, told)
        under_way = self._turns.in_flight
        for brought in () if under_way is None else under_way.arrivals:
            if isinstance(brought, hop_receiver.CustodyReceiver):
                self._parts.hop_stored[brought.key] = brought.epoch_bytes, brought.taken
        self._turns.effects.after(self._turns.gathered.then.pop())()

    return custody_link


def no_copy_known(original: Original) -> Original:
    """The destination knows no copy."""

    def decide(self: Any, number: int, order: str, **told: Any) -> custody.Verdict:
        found: custody.Verdict = original(self, number, order, **told)
        return custody.Verdict.DELIVER if found is custody.Verdict.DUPLICATE else found

    return decide


def ended_is_a_copy(original: Original) -> Original:
    """A live copy of what has ended is dropped."""

    def decide(self: Any, number: int, order: str, **told: Any) -> custody.Verdict:
        found: custody.Verdict = original(self, number, order, **told)
        return custody.Verdict.DUPLICATE if number in self.ended else found

    return decide


def waiting_anew(original: Original) -> Original:
    """A restart forgets how long a gap has been waited for."""

    def load(origin: UUID, record: Any, suffix: str, host: str) -> custody.Origin:
        kept = record.mark, record.passed, GapClocks(), record.finished, record.ended
        return custody.Origin(origin, *kept, suffix=suffix)

    return load


def empty_queue_is_done(original: Original) -> Original:
    """An origin takes all that it no longer holds for finished."""

    def receipt_for(self: Any, origin: bytes, to: str) -> int:
        if origin == self._identities.store_uuid.bytes and self._destination.catalog.transmission(to).messages <= 1:
            return int(self._ledger.identities.get(to, 1)) - 2
        return int(original(self, origin, to))

    return receipt_for


def unnumbered(original: Original) -> Original:
    """A producer's numbers are not kept."""

    def take(self: Any, delivery: Any, **told: Any) -> Any:
        producer, self.producer = self.producer, None
        try:
            return original(self, delivery, **told)
        finally:
            self.producer = producer

    return take


def last_number_alone(original: Original) -> Original:
    """All below a producer's last number counts as stored."""

    def take(self: Any, delivery: Any, **told: Any) -> Any:
        done = original(self, delivery, **told)
        if self.producer is not None and self.producer.stored.last:
            self.producer.stored.add(1, self.producer.stored.last)
        return done

    return take


def any_queue_will_do(original: Original) -> Original:
    """A checkpoint is not asked of which queue it is."""

    def held(self: Any, host: str, name: str, arguments: dict[str, Any]) -> Any:
        found = self._catalog.find(host, arguments["queue"])
        return original(self, host, name, {**arguments, "queue_uuid": str(found.uuid)})

    return held


def life_by_the_wall(original: Original) -> Original:
    """Times to live go by the wall clock."""

    def offer(core: Any, *extent: Any) -> None:
        core.clock.steady_ms = core.clock.wall_ms
        original(core, *extent)

    return offer


def identity_kept(original: Original) -> Original:
    """What begins anew at an internal link goes under somebody else's identity."""

    def following(self: Any, to: str) -> entry.Identity:
        found: entry.Identity = original(self, to)
        return found if to == "hub" else found._replace(origin=UUID(int=7))

    return following


def purges_the_ends(original: Original) -> Original:
    """A purge takes tombstones too."""

    def at_rest(of: Any, first: int, end: int, **most: int) -> Any:
        found = of.read(first, **most)
        return [item for item in found if item[0] < end], found[-1][0] + 1 if found else end

    return at_rest


def mints_alone(original: Original) -> Original:
    """With the new UUID nothing is stored of what is to be numbered anew."""
    return lambda *_: {}


def named_after_nobody(original: Original) -> Original:
    """The end of a message does not say whose it is."""

    def make_tombstone(item: entry.Entry, wall_ms: int) -> bytes:
        assert item.identity is not None
        return original(replace(item, identity=item.identity._replace(number=2**40 + item.identity.number)), wall_ms)

    return make_tombstone


def returns(value: object) -> Callable[[Original], object]:
    return lambda original: lambda *args, **kwargs: value


BROKEN: list[tuple[str, object, str, Callable[[Original], object]]] = [
    ("batch-hole", hop_receiver.CustodyReceiver, "refused", refused_alone),
    ("commit-in-flight", neighbour_attach.NeighbourAttach, "receive_custody", answered_at_once),
    ("sender-restart", custody.Origin, "decide", no_copy_known),
    ("late-old-connection", custody.Origin, "decide", no_copy_known),
    ("low-water", receipts.Receipts, "receipt_for", empty_queue_is_done),
    ("bounded-restarts", custody.Origin, "load", waiting_anew),
    ("late-after-tombstone", custody.Origin, "decide", ended_is_a_copy),
    ("expired-in-custody", expiry, "make_tombstone", named_after_nobody),
    ("expired-in-custody", destination.Destination, "expire", returns(False)),
    ("strict-full", hops.CustodySender, "_block", returns(None)),
    ("full-neighbours", forwarding.Forwarding, "_may_share", returns(False)),
    ("stale-return", sent_back.SentBack, "holds", returns(False)),
    ("own-origin", identity.Identities, "next", identity_kept),
    ("restored-backup", identity.Identities, "check_or_renew", returns(True)),
    ("copied-store", identity, "begin_anew", returns(None)),
    ("killed-as-someone-new", identity.Identities, "_renewals", mints_alone),
    ("renamed-at-rest", own_names.OwnNames, "suffix", returns("")),
    ("renamed-in-doubt", own_names.OwnNames, "suffix", returns("")),
    ("two-names-at-once", own_names, "change", returns(None)),
    ("copied-there-and-back", own_names.OwnNames, "suffix", returns("")),
    ("purged-twice", purge, "at_rest", purges_the_ends),
    ("departed-node", dead_lettering.DeadLettering, "_tombstone", returns(None)),
    ("replaced-disk-receiver", destination.Destination, "_adopt", returns(None)),
    ("replaced-disk-sender", neighbour_stores.NeighbourStores, "heard", returns(None)),
    ("clock-jump", node, "offer", life_by_the_wall),
    ("one-cursor", queue.Queue, "taken_by", lambda original: property(lambda self: None)),
    ("recreated-queue", subscription_operations.SubscriptionOperations, "_held", any_queue_will_do),
    ("producer-crash", producer.ProducerLink, "take", unnumbered),
    ("refused-then-retried", producer.ProducerLink, "take", last_number_alone),
    ("dead-letter-back", dead_lettering.DeadLettering, "dead_letter", returns(None)),
    ("cut-in-the-ring", routes.Routes, "link_down", returns(None)),
    ("late-news", linkstate.LinkStates, "stamp", returns(None)),
    ("super-lost", routes.Routes, "_tell_all", speaks_to_supers_alone),
    ("split-and-heal", linkstate.LinkStates, "receive_summary", returns(None)),
]
SOME = today.some(BROKEN, 9)
"""Each within four days."""


@pytest.mark.parametrize(("name", "owner", "attribute", "broken"), SOME, ids=[f"{item[0]}-{item[2]}" for item in SOME])
def test_it_fails(
    name: str,
    owner: object,
    attribute: str,
    broken: Callable[[Original], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, attribute, broken(getattr(owner, attribute)))
    failures = (HISTORIES[name].run(seed).failure for seed in range(1, 9))
    failure = next((found for found in failures if found), "")
    assert failure.startswith("Violation"), f"it fails by a promise, not {failure!r}"
