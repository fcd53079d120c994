"""Messages for subscriptions that are not durable, which get them once the turn that brought them is stored (ADR 0064).

Rules of this file: a message that its turn writes is shown to nobody before it is on disk: a refused commit brings it
once more. A large message is kept until it was handed over, although nothing on disk refers to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.broker.entries import entry
from holdfast.broker.entries.blob import Blob
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.engine.effects import Effect
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns


@dataclass(frozen=True, slots=True, eq=False)
class TellListeners(Effect):
    """A message of a topic is in the turn: subscriptions that are not durable get it once the turn is stored."""

    name: str
    topic: Topic = field(repr=False)
    value: bytes = field(repr=False)
    size: int
    blob: Blob | None = field(repr=False)


class Listening:
    """Hands messages to subscriptions that are not durable when their turn is decided."""

    def __init__(self, work: Work[Queue], turns: Turns, catalog: Catalog, blobs: Blobs) -> None:
        self._turns = turns
        self._catalog = catalog
        self._blobs = blobs
        self._kept: dict[TellListeners, Blob] = {}
        work.tells = self.tell_when_stored
        turns.effects.on_decided(TellListeners, self._decided)
        blobs.pinned_by(self._pinned)

    def tell_when_stored(self, topic: Queue, value: bytes, size: int) -> None:
        """The topic's listeners get the message if the turn is stored, in the order of these calls."""
        assert isinstance(topic, Topic)
        blob = self._blobs.pin(entry.blob_of(value).blob) if value[1] & entry.BLOB else None
        effect = TellListeners(self._turns.event, topic.name, topic, value, size, blob)
        if blob is not None:
            self._kept[effect] = blob
        topic.telling += 1
        self._turns.gathered.decided.append(effect)

    def _decided(self, effect: TellListeners, stored: bool) -> None:
        if stored and self._catalog.has(effect.topic):
            effect.topic.tell_behind(effect.value, effect.size)
        effect.topic.telling -= 1
        if (blob := self._kept.pop(effect, None)) is not None:
            self._blobs.unpin(blob)

    def _pinned(self) -> Iterable[Blob]:
        return self._kept.values()
