"""The credit of a hop whose messages found no place to wait, and how it grows again."""

from holdfast.custody.hop_credit import HOPS_MAX, STEADY, HopCredits

FULL = 500


def test_it_is_what_could_wait_and_one_at_least() -> None:
    hops = HopCredits(FULL)
    assert hops.credit(b"a", FULL) == FULL
    for waiting, credit in ((3, 3), (0, 1)):
        hops.overflowed(b"a", waiting)
        assert hops.credit(b"a", FULL) == credit
        assert (hops.credit(b"b", FULL), hops.credit(b"a", 0)) == (FULL, 0)


def test_it_doubles_while_the_queue_keeps_up_until_it_is_full() -> None:
    hops = HopCredits(FULL)
    hops.overflowed(b"a", 3)
    seen = []
    for _ in range(8 * STEADY):
        hops.took(b"a")
        seen.append(hops.credit(b"a", FULL))
    assert [seen[0], *seen[STEADY - 2 :: STEADY]] == [3, 3, 6, 12, 24, 48, 96, 192, 384]
    assert seen[-1] == FULL and not hops._reduced, "768 are more than the full credit"


def test_a_number_that_waits_begins_the_count_anew() -> None:
    hops = HopCredits(FULL)
    hops.overflowed(b"a", 1)
    for _ in range(3):
        for _ in range(STEADY - 1):
            hops.took(b"a")
        hops.waited(b"a")
    assert hops.credit(b"a", FULL) == 1
    hops.took(b"b")
    hops.waited(b"b")
    assert hops.credit(b"b", FULL) == FULL


def test_little_room_does_not_make_it_full() -> None:
    hops = HopCredits(FULL)
    hops.overflowed(b"a", 20)
    assert (hops.credit(b"a", 16), hops.credit(b"a", FULL)) == (16, 20)


def test_one_that_overflows_again_is_the_newest_of_them() -> None:
    hops = HopCredits(FULL)
    for number in (*range(HOPS_MAX), 1, HOPS_MAX, HOPS_MAX + 1):
        hops.overflowed(b"%d" % number, 1)
    assert [hops.credit(b"%d" % number, FULL) for number in (0, 1, 2, 3)] == [FULL, 1, FULL, 1]


def test_so_many_hops_are_remembered() -> None:
    hops = HopCredits(FULL)
    for number in range(HOPS_MAX + 1):
        hops.overflowed(b"%d" % number, 1)
    assert [hops.credit(b"%d" % number, FULL) for number in (0, 1, HOPS_MAX)] == [FULL, 1, 1]
