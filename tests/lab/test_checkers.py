"""The judges can fail: each promise, broken by hand, is told at once."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Source,
    Target,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries import entry
from holdfast.broker.stored import records
from holdfast.engine.port import Batch
from holdfast.storage.memory import MemoryStore
from holdfast_lab.base.client_history import History, Violation, key_in, make_key
from holdfast_lab.judge.checkers import Ledger, Watch

KEY = make_key(1, 1)
ORIGIN = UUID(int=5)


def queue_row(name: str, number: int) -> dict[tuple[str, bytes], bytes]:
    return {("queues", name.encode()): records.pack_map({"id": number, "uuid": UUID(int=number)})}


def value(
    key: bytes, number: int | None = None, *, late: bool = False, ended: bool = False, expires_ms: int = 0
) -> bytes:
    identity = None if number is None else entry.Identity(ORIGIN, number)
    flags = (entry.LATE if late else 0) | (entry.TOMBSTONE if ended else 0)
    return entry.pack(flags=flags, enqueued_ms=0, expires_ms=expires_ms, bare=b"bare" + key, identity=identity)


class Bench:
    """A ledger with one node that has queues `work` (1) and `@far` (2)."""

    def __init__(self) -> None:
        self.history = History()
        self.ledger = Ledger(self.history)
        self.store = MemoryStore()
        self.commit(puts=queue_row("work", 1) | queue_row("@far", 2))

    def offer(self, *keys: bytes) -> None:
        for key in keys:
            self.history.offer(key, "work@near")

    def commit(
        self,
        *appends: tuple[int, int, bytes],
        retires: tuple[tuple[int, int], ...] = (),
        puts: dict[tuple[str, bytes], bytes] | None = None,
        pieces: Sequence[tuple[int, int, bytes]] = (),
    ) -> None:
        batch = Batch(appends=list(appends), retires=list(retires), puts=puts or {}, pieces=list(pieces))
        self.store.commit(batch)
        self.ledger.applied("near", self.store, batch)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.offer(*(make_key(1, number) for number in range(1, 9)))
    return made


def test_a_key_is_found_at_the_end() -> None:
    assert key_in(b"anything" + KEY) == KEY and key_in(b"anything") is None and key_in(b"") is None


def test_what_is_kept_of_a_place_ends_with_the_key(bench: Bench) -> None:
    """Of a large message, too, whose body lies elsewhere in the store."""
    bench.history.kept["work@near"] = {}
    small, body = value(KEY), b"large" + make_key(1, 2)
    large = entry.pack(flags=entry.BLOB, enqueued_ms=0, expires_ms=0, bare=entry.reference(7, len(body)))
    bench.commit((1, 1, small), (1, 2, large), pieces=[(7, 0, body)])
    assert bench.history.kept["work@near"] == {1: small, 2: make_key(1, 2)}


def test_the_last_copy_may_leave_only_behind_a_reader(bench: Bench) -> None:
    bench.history.accept(KEY)
    bench.commit((2, 1, value(KEY, 1)), (1, 1, value(KEY)))
    bench.commit(retires=((2, 1),))
    assert bench.ledger.hops == 1
    with pytest.raises(Violation, match="last copy is gone from work at near"):
        bench.commit(retires=((1, 1),))


def test_what_vanished_may_not_be_accepted_afterwards(bench: Bench) -> None:
    bench.commit((1, 1, value(KEY)))
    bench.commit(retires=((1, 1),))
    with pytest.raises(Violation, match="its last copy was gone"):
        bench.history.accept(KEY)


def test_what_a_reader_was_shown_may_leave(bench: Bench) -> None:
    bench.history.accept(KEY)
    bench.commit((1, 1, value(KEY)))
    bench.history.receive(KEY, "work at near", marked=False)
    bench.commit(retires=((1, 1),))
    bench.ledger.at_rest()


def test_twice_at_the_destination(bench: Bench) -> None:
    bench.commit((1, 1, value(KEY)))
    with pytest.raises(Violation, match="appended twice to work at near"):
        bench.commit((1, 2, value(KEY)))


def test_out_of_order_and_not_late(bench: Bench) -> None:
    bench.commit((1, 1, value(make_key(1, 1), 5)))
    bench.commit((1, 2, value(make_key(1, 2), 3, late=True)))
    with pytest.raises(Violation, match="number 4 of its origin, came to work at near behind number 5"):
        bench.commit((1, 3, value(make_key(1, 3), 4)))


def test_a_late_one_may_be_ahead_of_others(bench: Bench) -> None:
    """A copy of what was ended, while earlier numbers are still on their way: it is marked, and they are in order."""
    bench.commit((1, 1, value(make_key(1, 1), 5, late=True)))
    bench.commit((1, 2, value(make_key(1, 2), 1)))
    bench.commit((1, 3, value(make_key(1, 3), 3)))
    with pytest.raises(Violation, match="number 2 of its origin, came to work at near behind number 3"):
        bench.commit((1, 4, value(make_key(1, 4), 2)))


def test_only_what_ended_once_is_late_for_a_strict_queue(bench: Bench) -> None:
    bench.ledger.orders["work@near"] = "strict"
    bench.commit(puts=queue_row("@near", 3))
    bench.commit((3, 1, value(make_key(1, 1), 1, ended=True)))
    bench.commit((1, 1, value(make_key(1, 1), 1, late=True)))
    bench.commit((1, 2, value(make_key(1, 2), 2, late=True, expires_ms=5)))
    with pytest.raises(Violation, match="late, though its order is strict and it never ended"):
        bench.commit((1, 3, value(make_key(1, 3), 3, late=True)))


def test_what_ended_for_another_destination_is_not_late(bench: Bench) -> None:
    bench.ledger.orders["work@near"] = "strict"
    bench.commit((2, 1, value(make_key(1, 1), 1, ended=True)))
    with pytest.raises(Violation, match="late, though its order is strict and it never ended"):
        bench.commit((1, 1, value(make_key(1, 1), 1, late=True)))


def test_nothing_is_missed_where_an_operator_skips(bench: Bench) -> None:
    bench.ledger.orders["work@near"] = "strict"
    bench.history.nodes_that_skip.add("near")
    bench.commit((1, 1, value(make_key(1, 1), 1, late=True)))


def test_a_bound(bench: Bench) -> None:
    bench.ledger.bounds["work@near"] = 1
    bench.commit((1, 1, value(make_key(1, 1))))
    bench.history.receive(make_key(1, 1), "work at near", marked=False)
    bench.commit((1, 2, value(make_key(1, 2))), retires=((1, 1),))
    with pytest.raises(Violation, match="holds 2 messages, its bound is 1"):
        bench.commit((1, 3, value(make_key(1, 3))))


def test_nothing_rests_on_its_way_nor_is_missing(bench: Bench) -> None:
    bench.commit((2, 1, value(KEY, 1)))
    with pytest.raises(Violation, match="still lies in @far at near"):
        bench.ledger.at_rest()
    other = Bench()
    other.offer(KEY)
    other.history.accept(KEY)
    with pytest.raises(Violation, match="1 accepted messages never reached a consumer"):
        other.ledger.at_rest()


def test_a_lost_disk_excuses_what_it_alone_held(bench: Bench) -> None:
    bench.history.accept(KEY)
    bench.commit((1, 1, value(KEY)))
    bench.ledger.changed("near", MemoryStore())
    assert KEY in bench.history.excused
    bench.ledger.at_rest()


def test_a_second_showing_must_be_marked() -> None:
    history = History()
    history.receive(KEY, "work at near", marked=False)
    history.receive(KEY, "work at near", marked=True)
    with pytest.raises(Violation, match="the second time not as a redelivery"):
        history.receive(KEY, "work at near", marked=False)


# ------------------------------------------------------------------------------------------------ wires


def watch_of(bench: Bench) -> Watch:
    watch = Watch("near", lambda: bench.ledger.disk("near", bench.store))
    attach = Attach("s", 0, False, source=Source(), target=Target(address="work"), initial_delivery_count=0)
    watch.heard(frame(0, encode(attach)))
    transfer = Transfer(0, 0, b"0", 0, False)
    watch.heard(frame(0, encode(transfer) + b"\x00\x53\x75\xa0\x10bare" + KEY))
    return watch


def test_accepted_before_it_is_stored(bench: Bench) -> None:
    watch = watch_of(bench)
    answer = frame(0, encode(Disposition(True, 0, None, True, Accepted())))
    with pytest.raises(Violation, match="near accepted 001-00000001, which it has not stored"):
        watch.said(answer)
    watch = watch_of(bench)
    bench.commit((1, 1, value(KEY)))
    watch.said(answer)


@pytest.mark.parametrize("ending", [Detach(0, True), End(), Close()])
def test_a_broken_protocol_is_told(bench: Bench, ending: Detach | End | Close) -> None:
    watch = watch_of(bench)
    ending.error = Error(Symbol(conditions.DETACH_FORCED), "as it may be")
    watch.said(frame(0, encode(ending)))
    ending.error = Error(Symbol(conditions.TRANSFER_LIMIT_EXCEEDED), "without credit")
    with pytest.raises(Violation, match="what AMQP forbids"):
        watch.said(frame(0, encode(ending)))


@pytest.mark.parametrize(("trace", "told"), [(b"ab", False), (b"aba", True), (b"aa", True)])
def test_a_trace_that_goes_round_is_told(bench: Bench, trace: bytes, told: bool) -> None:
    stores = b"".join(bytes([letter]) * 16 for letter in trace)
    found = entry.pack(
        flags=0, enqueued_ms=0, bare=b"bare" + make_key(1, 1), identity=entry.Identity(ORIGIN, 1), trace=stores
    )
    if not told:
        bench.commit((2, 1, found))
        return
    with pytest.raises(Violation, match="names a store twice"):
        bench.commit((2, 1, found))
