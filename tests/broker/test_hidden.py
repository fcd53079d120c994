"""What a queue hides until its entries are off the disk is not read, and takes no place of what is behind it."""

from support.one_node import fill, world


def test_hidden_entries_take_no_place_of_a_read() -> None:
    rig, node, client = world()
    fill(rig, client, 5)
    queue = node.queue("work")
    queue.hidden.update((1, 2, 4))
    for first, count, found in ((1, 2, [3]), (1, 5, [3, 5]), (4, 1, [5]), (2, 1, [3])):
        assert [at for at, _ in queue.read(first, count_max=count, bytes_max=10**6)] == found
    queue.hidden.update((3, 5))
    assert queue.read(1, count_max=2, bytes_max=10**6) == []
