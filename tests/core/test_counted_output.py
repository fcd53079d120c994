"""What the driver tells of unsent output is counted, and measured with the connection (docs/adr/0030)."""

from holdfast.engine import events
from support.one_node import world


def test_unsent_bytes_are_counted_in_and_measured() -> None:
    rig, node, client = world()
    rig.settle()
    assert node.core is not None and client.end is not None
    memory, (peer,) = node.core.memory, node.core.connections.values()
    before, memory.changed = memory.passed_bytes, {}
    memory.unsent([(peer.number, 100), (peer.number + 1, 7)])
    assert peer.unsent_bytes == 100 and memory.passed_bytes == before + 100
    assert [*memory.changed] == [peer]


def test_a_connection_whose_socket_can_be_written_again_is_measured() -> None:
    rig, node, _ = world()
    rig.settle()
    assert node.core is not None
    memory, (peer,) = node.core.memory, node.core.connections.values()
    peer.unread_bytes, memory.changed = 50, {}
    node.core.handle(events.WritingResumed(connection=peer.number), rig.now)
    assert peer.unread_bytes == 0 and peer in memory.changed
