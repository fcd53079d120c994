"""ControlHandlers what a node and its peers say, and asserts that it stores before it settles.

Rules of this file: bytes as they cross a wire; an accepted disposition whose bare message was never committed there
ends the test (docs/ARCHITECTURE.md, "How a core is driven").
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp.message.message import split
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import Accepted, Attach, Coordinator, Disposition, Transfer
from holdfast.amqp.wire.types import Symbol
from holdfast.custody.hop.sender import DESTINATION
from holdfast.peers.neighbours.shared_bodies import BODY_OF, KEPT_AS, NAMES_BEGIN

if TYPE_CHECKING:
    from support.rig import Node


ATTACH: Final = 0x12
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
TO_A_TOPIC: Final = b"\xa3\x11x-opt-holdfast-to\xa1\rtopic/flights"
"""Of a message in custody that is for a topic: stored at its end for whom it is owed."""


class Tap:
    """Cuts one direction of a connection into AMQP frames; protocol headers and SASL are passed over, and performatives
    by their code, unless it is one of `codes`: whoever the bytes are for decodes them anyway."""

    def __init__(self, *codes: int) -> None:
        self._data = bytearray()
        self._codes = codes

    def feed(self, data: bytes) -> Iterable[tuple[int, Any, bytes]]:
        """(channel, performative, payload) of each frame that is whole now."""
        self._data += data
        whole, at = self._data, 0
        while len(whole) - at >= 8:
            if whole[at : at + 4] == b"AMQP":
                at += 8
                continue
            size = int.from_bytes(whole[at : at + 4], "big")
            if len(whole) - at < size:
                break
            if (
                whole[at + 5] == 0
                and size > 8
                and (whole[at + 8] or whole[at + 9] != 0x53 or whole[at + 10] in self._codes)
            ):
                frame = bytes(whole[at : at + size])
                performative, used = decode_composite(frame[8:])
                yield int.from_bytes(frame[6:8], "big"), performative, frame[8 + used :]
            at += size
        del whole[:at]


class Watch:
    """Holds one connection of a node to "store, then settle"."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.heard, self.said = Tap(ATTACH, TRANSFER), Tap(DISPOSITION)
        self.targets: dict[tuple[int, int], str] = {}
        self.ends_here: set[tuple[int, int]] = set()
        """Links in custody for this node."""
        self.waiting: dict[tuple[int, int], bytes] = {}
        self.parts: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.bodies: dict[int, bytes] = {}
        """Bare messages that transfers name, by number."""

    def hear(self, data: bytes) -> None:
        for channel, performative, payload in self.heard.feed(data):
            if isinstance(performative, Attach) and not performative.role:
                address = getattr(performative.target, "address", None)
                if isinstance(performative.target, Coordinator):
                    address = "$coordinator"  # what comes there is no message
                self.targets[channel, performative.handle] = str(address)
                if (performative.properties or {}).get(DESTINATION) == self.node.name:
                    self.ends_here.add((channel, performative.handle))
            elif isinstance(performative, Transfer):
                place = channel, performative.handle
                number, before = self.parts.pop(place, (performative.delivery_id, b""))
                if performative.more:
                    self.parts[place] = number, before + payload
                    continue
                payload = self._whole(before + payload)
                if place in self.ends_here and TO_A_TOPIC in payload:
                    pass
                elif self.targets[place] not in self.node.unwatched and not self.targets[place].startswith(
                    ("$temporary/", "topic/")  # in memory; stored only for whom it is owed
                ):
                    self.waiting[channel, number] = payload

    def _whole(self, payload: bytes) -> bytes:
        if NAMES_BEGIN not in payload:
            return payload
        sections = split(payload)
        told = sections.delivery_annotations or {}
        if KEPT_AS in told:
            self.bodies[told[KEPT_AS]] = payload[sections.bare :]
        return payload[: sections.bare] + self.bodies.get(told[BODY_OF], b"") if BODY_OF in told else payload

    def say(self, data: bytes) -> None:
        for channel, performative, _ in self.said.feed(data):
            if not isinstance(performative, Disposition) or not performative.role:
                continue
            last = performative.first if performative.last is None else performative.last
            for number in range(performative.first, last + 1):
                payload = self.waiting.pop((channel, number), None)
                if payload is not None and isinstance(performative.state, Accepted):
                    sections = split(payload)
                    told = sections.delivery_annotations or {}
                    assert (
                        Symbol("x-opt-holdfast-tombstone") in told or payload[sections.bare :] in self.node.ever_stored
                    ), f"{self.node.name} accepted what it has not stored: {payload[:200]!r}"
