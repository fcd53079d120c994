"""Packets, and links that carry them: a rate, a delay and a finite buffer in each direction.

Rules of this file: one event for each packet and link. First in, first out: when a packet will be through is known as
it comes, so a queue is two numbers. What finds the buffer full is dropped; what is on a link that fails is lost.
"""

from typing import Final, Protocol

from holdfast_lab.mpls.clock import Clock

LABEL_BYTES: Final = 4
HOPS_MAX: Final = 64
"""A packet that went so far is in a loop; it is dropped."""


class Packet:
    """`labels`: the stack, the top one last. `trace`: what happened to it at each node, if anybody asks."""

    __slots__ = ("destination", "epoch", "hops", "labels", "payload", "size", "source", "trace")

    def __init__(self, source: str, destination: str, size: int, payload: object = None) -> None:
        self.source = source
        self.destination = destination
        self.size = size
        self.payload = payload
        self.labels: list[int] = []
        self.hops = 0
        self.epoch = 0
        self.trace: list[str] | None = None


class Taker(Protocol):
    """The end of a link."""

    name: str

    def receive(self, packet: Packet, link: "Link") -> None: ...


class Link:
    """One direction. `epoch` counts its failures: a packet of an earlier one never arrives."""

    __slots__ = (
        "_clock", "_free_at", "_s_per_byte", "buffer_bytes", "delay_s", "dropped", "epoch", "lost", "packets",
        "source", "target", "up",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, source: str, target: Taker, *, bits_per_s: float, delay_s: float, buffer_bytes: int
    ) -> None:
        self._clock = clock
        self._s_per_byte = 8 / bits_per_s
        self._free_at = 0.0
        """When all that it was given is through."""
        self.source = source
        self.target = target
        self.delay_s = delay_s
        self.buffer_bytes = buffer_bytes
        self.up = True
        self.epoch = 0
        self.packets = 0
        self.dropped = 0
        """At a full buffer."""
        self.lost = 0
        """In a failure."""

    def send(self, packet: Packet) -> None:
        if not self.up:
            self.lost += 1
            return
        now, s_per_byte = self._clock.now, self._s_per_byte
        free_at = self._free_at
        if free_at > now:
            if (free_at - now) / s_per_byte + packet.size > self.buffer_bytes:
                self.dropped += 1
                return
        else:
            free_at = now
        self._free_at = free_at = free_at + packet.size * s_per_byte
        packet.epoch = self.epoch
        self.packets += 1
        self._clock.at(free_at + self.delay_s, self._arrive, packet)

    def _arrive(self, packet: Packet) -> None:
        if packet.epoch != self.epoch:
            self.lost += 1
            return
        self.target.receive(packet, self)

    def waiting_bytes(self) -> float:
        return max(0.0, self._free_at - self._clock.now) / self._s_per_byte

    def fail(self) -> None:
        self.up = False
        self.epoch += 1
        self._free_at = self._clock.now

    def repair(self) -> None:
        self.up = True
