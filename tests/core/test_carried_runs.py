"""Runs in custody: what is written and read at once is what is written and read one by one."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.entries import entry, packed
from holdfast.custody.transfers import carried, carried_runs
from holdfast.custody.transfers.carried_runs import ArrivedRun
from holdfast.peers.neighbours.trace_aliases import Count, Given, Taken
from support.today import examples

OURS = UUID(int=77).bytes
BODIES = [b"\x00\x53\x75\xa0\x02hi", b"\x00\x53\x77\x40", b"\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(4_096)]
numbers = st.sampled_from([1, 2, 3, 255, 2**63 - 1])
entries = st.builds(
    lambda durable, origin, number, trace, to, bare, more: entry.pack(
        flags=entry.DURABLE * durable,
        enqueued_ms=number % 7,
        bare=bare,
        identity=entry.Identity(UUID(int=origin), number),
        trace=b"".join(UUID(int=store).bytes for store in trace),
        to=to,
        **more,
    ),
    st.booleans(), st.sampled_from([1, 2]), numbers, st.sampled_from([(), (5,), (5, 6)]), st.sampled_from(["a", "bb"]),
    st.sampled_from(BODIES),
    st.sampled_from([{}, {}, {}, {"priority": 9}, {"expires_ms": 10**15}, {"expires_at_ms": 7}, {"message_format": 3}]),
)  # fmt: skip


def groups(values: list[bytes]) -> list[list[bytes]]:
    """As a sender takes them: each as many as are alike."""
    found, at = [], 0
    while at < len(values):
        count = carried_runs.alike(values, at)
        assert count >= 1
        found.append(values[at : at + count])
        at += count
    return found


def same_but_for_number(value: bytes) -> tuple[object, ...]:
    item = entry.unpack(value)
    assert item.identity is not None
    return item._replace(identity=item.identity._replace(number=0), enqueued_ms=0, bare=memoryview(b""))


@examples(200)
@given(st.lists(entries, min_size=1, max_size=8), st.integers(1, 2**60), st.integers(0, 3), st.booleans())
def test_a_run_is_written_as_its_messages_are(values: list[bytes], number: int, receipt: int, by_alias: bool) -> None:
    for group in groups(values):
        assert len({same_but_for_number(value) for value in group}) == 1
        if not packed.is_plain(group[0]):
            continue
        trace = bytes(range(group[0][3] + 1)) if by_alias else carried.passed_by(group[0]) + OURS
        heads, bare_at = carried_runs.heads_of(group, number, trace=trace, receipt=receipt, short=by_alias)
        for at, (head, value) in enumerate(zip(heads, group, strict=True)):
            _, parts = carried.parts_of(value, number + at, trace=trace, receipt=receipt, steady_ms=0, short=by_alias)
            assert head + value[bare_at:] == b"".join(parts)


def payloads_of(values: list[bytes], hop_numbers: list[int], given: Given | None) -> list[bytes]:
    """What a sender writes, one by one."""
    found = []
    for value, number in zip(values, hop_numbers, strict=True):
        trace = carried.passed_by(value) + OURS
        path, told = (given.known.get(trace), None) if given is not None else (None, None)
        if given is not None and path is None and (told := given.tell(trace)) is not None:
            path = told[0]
            given.told(trace, *told)
        _, parts = carried.parts_of(
            value, number, trace=path or trace, receipt=2, steady_ms=0, short=path is not None,
            aliases=told[1] if told is not None else b"",
        )  # fmt: skip
        found.append(b"".join(parts))
    return found


@examples(200)
@given(st.lists(entries, min_size=1, max_size=8), st.lists(st.sampled_from([1, 1, 1, 1, 0, 2]), min_size=8, max_size=8),
       st.booleans(), st.booleans())  # fmt: skip
def test_a_run_is_read_as_its_messages_are(
    values: list[bytes], steps: list[int], by_alias: bool, begins_with_known: bool
) -> None:
    if begins_with_known:
        values = [values[0], *values]
    hop_numbers = [9]
    for step in steps[: len(values) - 1]:
        hop_numbers.append(hop_numbers[-1] + step)
    payloads = payloads_of(values, hop_numbers, Given(Count()) if by_alias else None)
    aliases = Taken(Count())
    if begins_with_known:
        carried.read(payloads.pop(0), aliases)
        del hop_numbers[0]
    run = carried_runs.read_run(payloads, hop_numbers[0], aliases)
    if run is None:
        return
    count = len(run.sequences)
    assert 2 <= count <= len(payloads)
    found = carried_runs.entries_of(run, payloads, enqueued_ms=5, message_format=0)
    for at, payload in enumerate(payloads[:count]):
        one = carried.read(payload, aliases)
        assert one.number == hop_numbers[0] + at
        assert found[at] == carried.entry_of(one, enqueued_ms=5, steady_ms=9, message_format=0, trace=one.trace)
        assert (run.origin, run.trace, run.receipt) == (one.identity.origin, one.trace, one.receipt)
        assert one.size == len(payload) - run.bare_at


def plain(number: int, **other: object) -> bytes:
    told = {"identity": entry.Identity(UUID(int=1), number), "to": "q", "flags": entry.DURABLE} | other
    return entry.pack(enqueued_ms=1, bare=BODIES[0], trace=UUID(int=5).bytes, **told)  # type: ignore[arg-type]


def run_of(values: list[bytes], hop_numbers: list[int], **changed: int) -> ArrivedRun | None:
    return carried_runs.read_run(
        payloads_of(values, hop_numbers, None), changed.get("number", hop_numbers[0]), Taken(Count())
    )


def test_a_run_ends_where_anything_but_number_and_body_differs() -> None:
    alike = [plain(number) for number in (4, 7, 5)]
    run = run_of(alike, [1, 2, 3])
    assert run is not None and len(run.sequences) == 3
    others = {
        "origin": plain(9, identity=entry.Identity(UUID(int=2), 9)),
        "to": plain(9, to="p"),
        "durable": plain(9, flags=0),
        "priority": plain(9, priority=7),
        "tombstone": plain(9, flags=entry.DURABLE | entry.TOMBSTONE),
        "number 0": plain(0),
        "a number too high": plain(2**63),
    }
    for name, other in others.items():
        for values in ([*alike[:2], other, alike[2]], [*alike[:2], other]):
            run = run_of(values, list(range(1, len(values) + 1)))
            assert run is not None and len(run.sequences) == 2, name
        assert run_of([other, other], [1, 2]) is None or name in ("origin", "to", "durable"), name
    assert run_of(alike, [1, 2, 4]) is not None
    assert run_of(alike, [1, 1, 2]) is None and run_of(alike, [1, 3, 4]) is None  # less than two
    assert run_of(alike, [2, 3, 4], number=1) is None


def test_what_tells_aliases_or_uses_unknown_ones_is_no_run() -> None:
    given = Given(Count())
    payloads = payloads_of([plain(number) for number in (1, 2, 3, 4)], [1, 2, 3, 4], given)
    aliases = Taken(Count())
    assert carried_runs.read_run(payloads, 1, aliases) is None
    assert carried_runs.read_run(payloads[1:], 2, aliases) is None
    carried.read(payloads[0], aliases)
    run = carried_runs.read_run(payloads[1:], 2, aliases)
    assert run is not None and run.trace == carried.read(payloads[1], aliases).trace


def test_cut_and_foreign_payloads_are_no_run() -> None:
    whole = payloads_of([plain(1), plain(2)], [1, 2], None)
    for size in range(len(whole[0]) - len(BODIES[0]) + 3):
        assert carried_runs.read_run([whole[0][:size]] * 2, 1, Taken(Count())) is None
        assert carried_runs.read_run([whole[0], whole[1][:size]], 1, Taken(Count())) is None
    assert carried_runs.read_run([b"\x00\x53\x77\x40"] * 2, 1, Taken(Count())) is None


def test_what_differs_only_in_number_and_body_is_one_run_however_far_it_has_come() -> None:
    for hops in range(5):
        trace = b"".join(UUID(int=store).bytes for store in range(9, 9 + hops))
        values = [
            entry.pack(
                flags=entry.DURABLE, enqueued_ms=number, bare=bytes([number]) * 40,
                identity=entry.Identity(UUID(int=1), number), trace=trace, to="a",
            )
            for number in range(1, 6)
        ]  # fmt: skip
        assert carried_runs.alike(values, 0) == 5
        assert carried_runs.alike(values, 3) == 2
