"""The raw load against the bare loop: real processes, a few messages, no time asserted."""

import socket
from pathlib import Path

import _wire as wire
import pytest
from _load_run import Load, LoadFailed
from _native import publish_batch
from _peers import Bare, Holdfast, make_peers
from _stomp import SendBatch, _Stomp
from _tls import cipher_of, make_identity

from support.certificates import needs_openssl


class Reader(_Stomp):
    """What a connection reads of that socket."""

    def __init__(self, here: socket.socket) -> None:
        self.socket = here
        self.buffer = bytearray(1 << 12)
        self.view = memoryview(self.buffer)
        self.filled = self.read_bytes = 0
        self.answers: list[bytes] = []
        self.counts: list[int] = []
        self.last = b""

    def on_messages(self, count: int, last_at: int, last_body_at: int) -> None:
        self.counts.append(count)
        self.last = bytes(self.buffer[last_at:last_body_at])


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


def test_a_stomp_batch_is_a_transaction_of_whole_frames() -> None:
    data = bytes(SendBatch(64, 4, kinds=3, words="t-1").patch(5, 4))
    begin, commit = b"BEGIN\ntransaction:t\n\n\0", b"COMMIT\ntransaction:t\nreceipt:4\n\n\0"
    assert data.startswith(begin) and data.endswith(commit)
    sends = data[len(begin) : -len(commit)]
    size = len(sends) // 4
    for index in range(4):
        one = sends[index * size : (index + 1) * size]
        head, _, rest = one.partition(b"\n\n")
        assert head.startswith(b"SEND\ndestination:/topic/t-1.kind.%03d\n" % ((5 + index) % 3))
        assert b"\ncontent-length:64" in head and rest[64:] == b"\0"
        assert int.from_bytes(rest[:8], "big") == 5 + index


def test_messages_and_receipts_are_read_however_they_are_cut() -> None:
    message = b"MESSAGE\nmessage-id:m-%d\ncontent-length:9\n\n" + b"\0\n" * 4 + b"x\0\n"
    data = b"".join(b"RECEIPT\nreceipt-id:%d\n\n\0\n" % (10 + number) + message % number for number in range(3))
    for step in (1, 7, len(data)):
        here, there = socket.socketpair()
        with here, there:
            reader = Reader(here)
            for at in range(0, len(data), step):
                there.sendall(data[at : at + step])
                reader.take()
            assert reader.answers == [b"RECEIPT\nreceipt-id:%d" % number for number in (10, 11, 12)]
            assert sum(reader.counts) == 3 and reader.filled == 0
            assert reader.last.endswith(b"\nmessage-id:m-2\ncontent-length:9\n\n")
