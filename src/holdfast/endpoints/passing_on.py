"""What comes to a topic from another node: whether it came before, and to whom this node passes it on by static entries
(docs/federation.md, docs/adr/0082).

Rules of this file: who published a message has chosen its destinations, and nothing is chosen anew but for what a
static entry brought. Copies are known by the publication that they tell.
"""

from holdfast.amqp.wire.extensions import PUBLICATION, RELAY, TAGS
from holdfast.broker.entries import annotate, packed
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.endpoints.spreading import Passed, Published, Spreading
from holdfast.endpoints.topic_bindings import federated_name
from holdfast.federation.publications import Seen
from holdfast.peering.binding_control import BindingControl
from holdfast.state.turns import Turns

_PUBLICATION_NAME = PUBLICATION.encode()


class PassingOn:
    """Looks at each message in custody that comes to a topic."""

    def __init__(
        self,
        work: Work[Queue],
        turns: Turns,
        bindings: BindingControl,
        spreading: Spreading,
        duplicates: Duplicates,
    ) -> None:
        self._turns = turns
        self._bindings = bindings
        self._spreading = spreading
        self._duplicates = duplicates
        self.old = 0
        """Messages of which it is not remembered any more whether they came before: they were delivered."""
        work.arrives = self._arrives

    def _arrives(self, topic: Queue, value: bytes) -> bool:
        name, federation = federated_name(topic), self._bindings.federation
        if name is None:
            return True
        count, items = packed.annotations_of(value)
        told = annotate.decoded(count, items) if _PUBLICATION_NAME in items else {}
        publication = annotate.publication_in(told.get(PUBLICATION))
        if publication is not None:
            seen = self._spreading.publications.take(*publication)
            if seen is Seen.COPY:
                self._duplicates.suppressed += 1
                return False
            self.old += seen is Seen.OLD
            self._turns.gathered.decided.append(Published(self._turns.event, *publication))
        if federation is None or not federation.spreads(name):
            return True
        is_relay = publication is not None and told.get(RELAY) is True  # else its copies would not be known as such
        if is_relay or federation.relays.has(name):
            choice = self._spreading.choose(topic, value, tags=tuple(told.get(TAGS, ())), anew=is_relay)
            passed = None if publication is None else Passed(publication, choice.tags)
            self._spreading.spread(topic, self._spreading.branches_of(choice), value, passed=passed)
        return True
