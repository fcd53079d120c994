"""What the driver says of a connection's TLS, in the core: bounds, rows and lines in the log."""

from core.test_entities import rows
from holdfast.engine import events
from holdfast.settings.limits import Limits
from support.one_node import world
from support.raw import HELLO, Raw
from support.rig import Rig


def test_a_connection_says_how_it_is_encrypted_and_by_whom() -> None:
    rig, node, client = world()
    peer = Raw(rig, node, encrypted=True)
    node.handle(events.Secured(connection=peer.number, version="TLSv1.3", certificate="ann"))
    peer.say(HELLO)
    found = {row["identity"]: (row["tls"], row["certificate"]) for row in rows(client, "connection")}
    assert found.pop(str(peer.number)) == ("TLSv1.3", "ann")
    assert list(found.values()) == [(None, None)]


def test_a_handshake_of_tls_counts_among_those_that_have_not_opened() -> None:
    """Before its TLS is there, a connection has its place among `handshakes_max`, and its time."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(handshakes_max=2, handshake_time_out_s=3.0))
    peers = [Raw(rig, node, encrypted=True) for _ in range(3)]
    assert [peer.alive for peer in peers] == [False, True, True]
    rig.run(2.9)
    assert peers[1].alive
    rig.run(0.2)
    assert not peers[1].alive and not peers[2].alive


def test_a_peer_that_breaks_tls_is_a_line_in_the_log_and_no_more() -> None:
    rig = Rig()
    node = rig.node("hub", limits=Limits(log_lines_per_minute=3))
    for _ in range(10):
        peer = Raw(rig, node, encrypted=True)
        node.handle(events.SecuringFailed(connection=peer.number, reason="TLS: unsupported protocol"))
        assert peer.alive, "its end comes as an event of its own"
        peer.end.wire.cut()
    lines = [text for text in node.logs if "TLS: unsupported protocol" in text]
    assert 0 < len(lines) <= 3, "each address has its share of the log"
    node.handle(events.SecuringFailed(connection=999, reason="of one that is gone"))
    node.handle(events.Secured(connection=999, version="TLSv1.3", certificate=None))
