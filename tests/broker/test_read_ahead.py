"""What cursors read ahead is bounded, and who is idle makes room (broker/entries/read_ahead.py)."""

from holdfast.accounts import Account
from holdfast.broker.entries.read_ahead import IDLE_PUMPS, LOW_BYTES, READ_BYTES, ReadAhead


class Reads:
    """A cursor that has read so many bytes ahead."""

    def __init__(self) -> None:
        self.prefetched: list[tuple[int, bytes]] = [(1, b"x")]
        self.read_ahead_bytes = self.read_bytes = 0


def test_without_room_nothing_is_read_ahead_until_one_that_is_idle_has_made_some() -> None:
    ahead = ReadAhead(Account("read ahead", READ_BYTES + LOW_BYTES))
    assert ahead.has_room()
    cursor, other = Reads(), Reads()
    ahead.keep(cursor, READ_BYTES)
    assert ahead.has_room(), "as much as is low is enough"
    ahead.keep(other, 1)
    answers = [ahead.has_room() for _ in range(2 * IDLE_PUMPS + 4)]
    assert answers[: IDLE_PUMPS // 2] == [False] * (IDLE_PUMPS // 2)
    assert not cursor.prefetched and cursor.read_ahead_bytes == 0
    assert answers[-1]
