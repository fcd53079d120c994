"""Ends links that bring messages, when the node no longer takes those: an operator drains a node, or a node has left.

Rules of this file: no link ends between the commit of its messages and their answers. Its client would send them again,
perhaps to another node, although they are stored here.
"""

from dataclasses import dataclass, field

from holdfast.engine.effects import LinkEffect
from holdfast.peers.link_tables import Producing
from holdfast.state.turns import Turns


@dataclass(frozen=True, slots=True, eq=False)
class EndProducer(LinkEffect):
    """Ends a link whose messages in the turn are answered."""

    link: Producing = field(repr=False)
    reason: str
    condition: str


class ProducerEnds:
    """Links without credit that end after the answers to what they have brought."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        turns.effects.on(EndProducer, self._go_on)

    def end(self, link: Producing, reason: str, condition: str) -> None:
        """Ends the link, with that error: at once, or once no message of it waits for a commit. Until then it gets no
        credit. A link that ends already is left to that."""
        if not link.ends:
            self._end(link, reason, condition)

    def _end(self, link: Producing, reason: str, condition: str) -> None:
        turns = self._turns
        if not turns.answers_later(link):
            link.detach_with(reason, condition)
            return
        link.ends = True
        link.stop()
        effect = EndProducer(turns.event, link.peer.number, link.link.name, link, reason, condition)
        turns.gathered.then.append(effect)

    def _go_on(self, effect: EndProducer) -> None:
        if effect.link.link.attached:  # what was under way to the node with the last credit may have come
            self._end(effect.link, effect.reason, effect.condition)
