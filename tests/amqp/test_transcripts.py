"""Golden transcripts: what known clients send, byte for byte, and what we answer.

The numbers in the titles are habits of clients that brokers get wrong. A transcript is lines of hexadecimal: `>`
the client speaks, `<` we answer (nothing, if it is empty), `!` seconds pass, `#` says what the next line holds; a
line that begins with blanks goes on with the one before. The user behind the server is always the same (`Habits`),
so the bytes are all there is. Each is also run with its bytes cut one by one.

Those of whole clients are conversations with a node (node_player.py); a number behind the mark is the connection's.
"""

import pytest

from amqp.client_transcripts import CLIENT_TRANSCRIPTS
from amqp.joined import NOW
from amqp.node_player import Player
from amqp.transcripts import TRANSCRIPTS
from holdfast.amqp.connection import (
    Connection,
    ConnEvent,
    CreditChanged,
    Delivery,
    LinkAttached,
    Outcomes,
    Receiver,
    Sender,
    Settings,
)
from holdfast.amqp.wire.performatives import Accepted


class Habits:
    """Accepts every link but those named `nowhere`, grants 10, accepts every delivery, sends three messages a link."""

    def __init__(self, side: Connection) -> None:
        self.side = side
        self.sent: dict[Sender, int] = {}

    def act(self, events: list[ConnEvent]) -> None:
        for event in events:
            if isinstance(event, LinkAttached) and event.remote_initiated:
                self.attach(event)
            elif isinstance(event, CreditChanged):
                self.send(event.link)
            elif isinstance(event, Delivery) and not event.settled:
                event.link.settle(event.delivery_id, event.delivery_id, Accepted())
            elif isinstance(event, Outcomes) and not event.settled:
                event.link.settle(event.first, event.last, event.state)

    def attach(self, event: LinkAttached) -> None:
        if event.link.name == "nowhere":
            event.link.refuse("amqp:not-found", "no such queue")
            return
        event.link.accept()
        if isinstance(event.link, Receiver) and event.link.attached:
            event.link.grant(10)

    def send(self, link: Sender) -> None:
        while link.sendable and self.sent.get(link, 0) < 3:
            self.sent[link] = self.sent.get(link, 0) + 1
            link.send(b"\x00\x53\x75\xa0\x01m", context=self.sent[link])
        if link.drain and self.sent.get(link, 0) == 3:
            link.drained()


def play(text: str, *, cut: int, habits: type[Habits] = Habits) -> list[tuple[str, str]]:
    """(expected, got) for each turn of ours, as hexadecimal."""
    side = Connection(Settings(container_id="s"), server=True, now=NOW)
    user = habits(side)
    now = NOW
    turns = []
    for line in text.replace("\n  ", "").strip().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == ">":
            data = bytes.fromhex(rest)
            step = cut or len(data)
            for at in range(0, len(data), step):
                user.act(side.receive(data[at : at + step], now))
        elif mark == "!":
            now += float(rest)
            user.act(side.tick(now))
        elif mark == "<":
            turns.append((rest, b"".join(side.take_output(now)).hex()))
    turns.append(("", b"".join(side.take_output(now)).hex()))
    return turns


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("title", TRANSCRIPTS)
def test_transcript(title: str, cut: int) -> None:
    for expected, got in play(TRANSCRIPTS[title], cut=cut):
        assert got == expected


def play_client(text: str, *, cut: int) -> list[tuple[str, str]]:
    """(expected, got) for each turn of the node's, as hexadecimal."""
    node = Player()
    turns = []
    opened = []
    for line in text.replace("\n  ", "").strip().splitlines():
        mark, _, rest = line.partition(" ")
        if mark[0] == "#":
            continue
        connection = int(mark[1:] or "0")
        if connection not in opened:
            opened.append(connection)
            node.open(connection)
        if mark[0] == ">":
            node.hear(connection, bytes.fromhex(rest), cut=cut)
        elif mark[0] == "!":
            node.wait(float(rest))
        else:
            turns.append((rest, node.take(connection).hex()))
    turns += [("", node.take(connection).hex()) for connection in opened]
    return turns


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("title", CLIENT_TRANSCRIPTS)
def test_client_transcript(title: str, cut: int) -> None:
    for expected, got in play_client(CLIENT_TRANSCRIPTS[title], cut=cut):
        assert got == expected
