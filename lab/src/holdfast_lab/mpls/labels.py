"""A router's labels: what it does with a packet by the label on top, and what it pushes to reach another router.

Rules of this file: tables and actions. Labels are the router's own, given out once, from 16 on (RFC 3032 §2.1). The
label for a router is advertised to all neighbours, so that a new next hop needs no new label (liberal retention, RFC
5036 §2.6.2.2). Where fast reroute is on, an action has a backup, used from the moment when the next hop is noticed to
be gone (RFC 4090 §3.2, one bypass for all that goes the same way).
"""

from typing import Final

from holdfast_lab.mpls.links import LABEL_BYTES, Link, Packet

FIRST_LABEL: Final = 16
LABELS_MAX: Final = 100_000


class Swap:
    """Instead of the label on top `out`, or nothing where that is None; then `more` on top of it, and out by `link`."""

    __slots__ = ("backup", "link", "more", "neighbour", "out", "use_backup")

    def __init__(self, neighbour: str, link: Link, out: int | None, more: tuple[int, ...] = ()) -> None:
        self.neighbour = neighbour
        self.link = link
        self.out = out
        self.more = more
        self.backup: Swap | None = None
        self.use_backup = False

    def apply(self, packet: Packet, name: str, top: int | None) -> None:
        """`top`: the label that was on top, already off; None at the router where the path begins."""
        if self.use_backup and self.backup is not None:
            if packet.trace is not None:
                packet.trace.append(f"{name}: goes around {self.neighbour}")
            self.backup.apply(packet, name, top)
            return
        labels = packet.labels
        if self.out is not None:
            labels.append(self.out)
        labels.extend(self.more)
        packet.size += LABEL_BYTES * ((self.out is not None) - (top is not None) + len(self.more))
        if packet.trace is not None:
            self._note(packet.trace, name, top)
        self.link.send(packet)

    def _note(self, trace: list[str], name: str, top: int | None) -> None:
        if top is None:
            trace.append(f"{name}: push {self.out}")
        elif self.out is None:
            trace.append(f"{name}: pop {top}")
        else:
            trace.append(f"{name}: swap {top} to {self.out}")
        for label in self.more:
            trace.append(f"{name}: push {label}")


class LabelTable:
    """`swaps` by label on top; `ends`: labels whose path ends here; `vpns`: labels of VRFs, by name."""

    def __init__(self) -> None:
        self._next = FIRST_LABEL
        self.swaps: dict[int, Swap] = {}
        self.ends: set[int] = set()
        self.vpns: dict[int, str] = {}
        self.bindings: dict[str, int] = {}
        """The label by which neighbours reach the router of this name."""
        self.pushes: dict[str, Swap] = {}
        """How a path to the router of this name begins here."""

    def new(self) -> int:
        label = self._next
        assert label < LABELS_MAX, "labels are kept for each path and used again"
        self._next += 1
        return label

    def all_swaps(self) -> list[Swap]:
        return [*self.swaps.values(), *self.pushes.values()]
