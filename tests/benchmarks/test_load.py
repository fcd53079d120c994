"""The raw load against the bare loop: real processes, a few messages, no time asserted."""

from pathlib import Path

import _wire as wire
import pytest
from _load_run import Load, LoadFailed
from _native import publish_batch
from _peers import Bare, Holdfast, make_peers
from _tls import cipher_of, make_identity

from support.certificates import needs_openssl


def test_messages_pass_the_bare_loop(tmp_path: Path) -> None:
    peer = Bare()
    peer.start(tmp_path / "bare")
    try:
        with Load(peer, "queue", tmp_path, size=64, credit=10, connections=2) as load:
            first = load.run(600, timeout_s=60.0)
            second = load.run(40, rate=1000.0, timeout_s=60.0)
    finally:
        peer.stop()
    assert (first.messages, second.messages) == (600, 40)
    assert 0 < first.settle_seconds <= first.seconds
    header_and_data = len(wire.DURABLE_HEADER) + 8 + 64
    assert (tmp_path / "bare" / "file").stat().st_size == 640 * header_and_data


@needs_openssl
def test_messages_pass_a_node_over_tls(tmp_path: Path) -> None:
    peer = Holdfast(make_identity(tmp_path / "tls"))
    peer.start(tmp_path / "node")
    try:
        assert (cipher_of(peer.host, peer.port, peer.ca_file) or "").startswith("TLSv1.3 TLS_")
        with Load(peer, "queue", tmp_path, size=40_000, credit=50, connections=2) as load:
            assert load.run(200, timeout_s=60.0).messages == 200
    finally:
        peer.stop()


def test_a_peer_that_hangs_up_is_named(tmp_path: Path) -> None:
    peer = Bare()
    peer.start(tmp_path / "bare")
    peer.stop()
    with pytest.raises(LoadFailed, match="raw load receive"):
        Load(peer, "queue", tmp_path, size=64, credit=10)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ValueError, match="expected holdfast, rabbitmq, native or bare"):
        list(make_peers(["other"]))


def test_native_publishes_are_three_whole_frames() -> None:
    data = bytes(publish_batch("queue", 64, 2).patch(0, 5, 2))
    kinds, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        kinds.append(data[at])
        assert data[at + 7 + size] == 0xCE
        if data[at] == 3:
            assert size == 64 and int.from_bytes(data[at + 7 : at + 15], "big") in (5, 6)
        at += size + 8
    assert kinds == [1, 2, 3, 1, 2, 3]
