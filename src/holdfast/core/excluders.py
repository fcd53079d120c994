"""Who ends where consumers have called too much undeliverable on their links (AMQP 1.0 §3.4.5).

Rules of this file: of the connections that said so of the most, links end, those with the most first; a bounded number
in one turn. A link's own bound, `excluded_max`, is kept where it says so (consumer.py). docs/adr/0030.
"""

from typing import TYPE_CHECKING, Final

from holdfast.amqp.conditions import RESOURCE_LIMIT_EXCEEDED
from holdfast.core.consumer import ConsumerLink

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

ENDED_A_TURN: Final = 100
"""Links that end in one turn."""


def end_some(core: "NodeCore") -> None:
    """Until an eighth of the bound is free, so that the next exclusion does not look through all links again."""
    account = core.memory.withheld.excluded
    enough = account.held_max - account.held_max // 8
    left = ENDED_A_TURN
    held = {
        peer: [link for link in peer.egress if isinstance(link, ConsumerLink) and link.excluded]
        for peer in core.connections.values()
    }
    counts = {peer: sum(len(link.excluded) for link in links) for peer, links in held.items() if links}
    for peer in sorted(counts, key=counts.__getitem__, reverse=True):
        text = f"its connection called {counts[peer]} messages undeliverable, the most of all, and no more can be kept"
        for link in sorted(held[peer], key=lambda link: len(link.excluded), reverse=True):
            if left <= 0 or account.held <= enough:
                return
            left -= 1
            link.detach_with(text, RESOURCE_LIMIT_EXCEEDED)
