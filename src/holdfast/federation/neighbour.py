"""A neighbour with which a session is up: both directions, and what is to be said to it next.

Rules of this file: the next message is chosen only when there is credit to send it; the order is that in which the
neighbour can use it: what we forward, what we take, resets and claims, content, answers, and a comparison last.
"""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.federation.aliases import Heard, Said
from holdfast.federation.keeping import Sets
from holdfast.federation.messages import Change, Claim, Compare, Federate, Follow, Message, PartsOf, Reset
from holdfast.federation.modes import Ask
from holdfast.federation.rows import Stamp
from holdfast.federation.serving import PartsCache, Serving
from holdfast.federation.sets import Key
from holdfast.federation.settings import Bounds
from holdfast.federation.taking import Taking

Standing = Callable[[Key], tuple[Mapping[str, Stamp], bool]]
"""Of a set: the nodes that take it through this node, with what each has stored; whether all followers are complete."""


NAMES_S: Final = 0.5
"""How long changed names may wait if nothing else of the set is to be sent."""


ROWS_A_UNIT: Final = 100
"""Looking at this many rows or sets costs as much as one small message."""


class Neighbour:
    """`modes`: topics that it forwards to us, and how."""

    def __init__(self, name: str, bounds: Bounds) -> None:
        self.name = name
        self.said = Said()
        self.heard = Heard()
        self.serving = Serving(name)
        self.taking = Taking(name, bounds.rows_max, bounds.bytes_max)
        self.modes: dict[str, str] = {}
        self.asks: tuple[Ask, ...] | None = None
        """All that it asks us to forward, if it has said so since this was last taken."""
        self.federate_due = True
        self.compare_due = False
        self.again_due = False
        """The neighbour's comparison differs from ours: the answer `again` is due."""
        self.claims: dict[Key, Claim] = {}
        self.resets: dict[Key, int] = {}
        self.tellings: dict[Key, float] = {}
        """Sets that we take from it and about which a `stored` message may be due → the seconds that it has waited."""
        self.later: dict[Key, float] = {}
        """The same if only names changed → when they are sent. They are delayed because most changes come together."""

    def effort(self, message: Message, sets: Sets, cache: PartsCache) -> int:
        """The cost of applying this message from the neighbour."""
        looked_at = 0
        if isinstance(message, Federate | Follow | Compare):
            looked_at = len(self.serving.followers) + len(self.taking.wanted)
        elif isinstance(message, Change) or (isinstance(message, PartsOf) and message.edges is not None):
            held = sets.current(message.key)
            looked_at = 0 if held is None else len(held.rows)
        elif isinstance(message, PartsOf) and message.is_question:
            held = self.serving.compared(message.key, message.new)
            looked_at = 0 if held is None or cache.has(held) else len(held.rows)
        return 1 + looked_at // ROWS_A_UNIT

    def take_asks(self) -> tuple[Ask, ...] | None:
        asks, self.asks = self.asks, None
        return asks

    def say_again(self) -> None:
        """Sends the neighbour everything again; it answers with what differs."""
        self.taking.say_again()
        self.tellings, self.later = dict.fromkeys(self.taking.wanted, NAMES_S), {}

    def refresh(self, sets: Sets) -> None:
        """Checks again what both sides have sent and what they know."""
        self.federate_due = self.compare_due = True
        self.serving.named = sum(len(one.names) for one in self.serving.followers.values())
        self.taking.refresh(sets.stored)
        self.tellings, self.later = dict.fromkeys(self.taking.told, NAMES_S), {}
        self.serving.pending = dict.fromkeys(self.serving.followers)

    def next_deadline(self) -> float | None:
        return next(iter(self.later.values()), None)

    def next(self, federate: Federate, sets: Sets, cache: PartsCache, of: Standing, now: float) -> Message | None:
        """The next message; None if there is none. `federate`: what we forward to it, and ask it for."""
        if self.federate_due:
            self.federate_due = False
            return federate
        message: Message | None = self.taking.follow(sets.stored)
        if message is None:
            message = self._upwards_and_down(sets)
        if message is None:
            message = self._content(sets, cache)
        if message is None:
            message = self._answers(sets, of, now)
        if message is None and (self.again_due or self.compare_due):
            if self.again_due:
                self.again_due = False
                return Compare(0, 0, again=True)
            self.compare_due = False
            return Compare(*self.taking.digest)
        return message

    def _upwards_and_down(self, sets: Sets) -> Message | None:
        for key, nonce in list(self.resets.items()):
            if sets.is_settled(key):  # else our own void stamp is not on disk yet
                del self.resets[key]
                if key in self.serving.followers:
                    return Reset(key, nonce)
        if self.claims:
            return self.claims.pop(next(iter(self.claims)))
        return None

    def _content(self, sets: Sets, cache: PartsCache) -> Message | None:
        replies, pending = self.serving.replies, self.serving.pending
        while replies:
            key, new, prefix = replies.popleft()
            held = self.serving.compared(key, new)
            if held is not None:
                return self.serving.reply(key, new, prefix, cache.of(key, held))
        message: Message | None = self.taking.question()
        if message is not None:
            return message
        done: list[Key] = []
        for key in pending:
            held = sets.committed(key)
            message = self.serving.next(key, held, cache)
            if message is None or self.serving.was_sent(key, held):
                done.append(key)
            if message is not None:
                break
        for key in done:
            del pending[key]
        return message

    def _answers(self, sets: Sets, of: Standing, now: float) -> Message | None:
        while self.later and next(iter(self.later.values())) <= now:
            key = next(iter(self.later))
            del self.later[key]
            self.tellings[key] = NAMES_S
        done: list[Key] = []  # all of them are never copied: there may be thousands, and a call for each message
        message: Message | None = None
        for key, waited_s in self.tellings.items():
            names, whole = of(key)
            names = {name: stamp for name, stamp in names.items() if name != self.name}
            held = sets.committed(key)
            if waited_s < NAMES_S and not self.taking.is_urgent(key, held, whole=whole):
                self.later.setdefault(key, now + NAMES_S)
            else:
                message = self.taking.stored(key, held, names, whole=whole)
                if message is not None:
                    break
            done.append(key)
        for key in done:
            del self.tellings[key]
        return message
