"""What the subscriptions of this node's topics want, told to federation; and who asked for a confirmation of it
(docs/federation.md, docs/adr/0082).

Rules of this file: a topic is told as a whole, from the subscriptions that there are when the turn ends: what changes
to and fro within a turn is told to nobody, and nothing is withdrawn before what takes its place. The attach of a
receiver that asks for a confirmation is answered with it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import CONFIRM, CONFIRMED, WAITING
from holdfast.broker.cursors.entry_consumer import SubjectSelector
from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.subjects import ANY
from holdfast.broker.topic import Topic
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.stored_answers import Told
from holdfast.federation.confirming import Answer
from holdfast.federation.federation import Federation
from holdfast.federation.predicates import travelling
from holdfast.federation.rows import Row
from holdfast.peering.binding_control import BindingControl
from holdfast.peers.peer import Peer
from holdfast.schema import is_whole_within
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Undone

CONFIRM_MS_MAX: Final = 600_000
"""How long an attach may wait for a confirmation."""

NAME_OVERHEAD: Final = 5
"""Bytes that a name in a list takes beside itself, at most."""

ROWS_KEPT: Final = 4_096
"""Selectors of which it is remembered how they travel."""


def federated_name(queue: Queue) -> str | None:
    """The name by which federation knows a topic: those of virtual hosts, and temporary ones, it does not know."""
    if queue.kind is not QueueKind.TOPIC or queue.host != DEFAULT_HOST:
        return None
    return queue.name[len(TOPIC_PREFIX) :]


def asked_ms(properties: dict[Any, Any] | None) -> int | None:
    """For how long the attach of a receiver waits for a confirmation; None where it asks for none. Refusal."""
    asked = (properties or {}).get(CONFIRM)
    if asked is None:
        return None
    if not is_whole_within(asked, 0, CONFIRM_MS_MAX + 1):
        text = f"invalid value {str(asked)[:60]!r} for {CONFIRM}; expected milliseconds, 0 to {CONFIRM_MS_MAX}"
        raise Refusal(conditions.INVALID_FIELD, text)
    return int(asked)


@dataclass(eq=False, slots=True)
class Asking:
    """An attach that is answered with a confirmation."""

    peer: Peer
    link: Sender
    topic: Topic
    selector: SubjectSelector | None
    wait_ms: int
    answer: Callable[[Told], None]
    token: int | None = None


class TopicBindings:
    """The topics of a node, as federation sees them."""

    def __init__(self, catalog: Catalog, work: Work[Queue], bindings: BindingControl) -> None:
        self._catalog = catalog
        self._work = work
        self._bindings = bindings
        self._told_to: tuple[Federation, int] | None = None
        """What was told everything, and which of its topics it was."""
        self._spread: set[str] = set()
        self._travelling: dict[str, str | None] = {}
        self._asking: list[Asking] = []
        """They came in this turn."""
        self.waiting: dict[int, Asking] = {}
        """By the number of the confirmation."""
        self._answers: deque[Answer] = deque()
        bindings.bound = self._all
        bindings.answered = self._answered

    # ------------------------------------------------------------------------------------------------ rows

    def row_of(self, selector: SubjectSelector | None) -> Row:
        """What a subscription wants, as it is told: at least that."""
        if selector is None:
            return Row(ANY)
        condition = selector.condition
        if condition and condition not in self._travelling:
            if len(self._travelling) >= ROWS_KEPT:
                self._travelling.clear()
            self._travelling[condition] = travelling(condition)
        return Row(
            ANY if selector.pattern is None else selector.pattern.text,
            self._travelling[condition] if condition else None,
        )

    def _rows(self, topic: Topic) -> set[Row]:
        return {self.row_of(selector) for selector in topic.wanted()}

    def _all(self) -> Iterator[tuple[str, Iterable[Row]]]:
        """All that is wanted, of each topic that is spread: federation begins."""
        federation = self._bindings.federation
        for name in sorted(federation.spread()) if federation is not None else ():
            yield name, self._rows_of(name)

    def _rows_of(self, name: str) -> set[Row]:
        topic = self._catalog.find(DEFAULT_HOST, TOPIC_PREFIX + name)
        return self._rows(topic) if isinstance(topic, Topic) else set()

    def tell(self) -> None:
        """The end of a turn: what is another than before is told, and who asks for a confirmation waits for it."""
        rebound, self._work.rebound = self._work.rebound, {}
        federation = self._bindings.federation
        if federation is None:
            for asking in self._take_asking():
                asking.answer(_told(asking.link))
            return
        told_to, self._told_to = self._told_to, (federation, federation.revision)
        changed = dict.fromkeys(name for name in map(federated_name, rebound) if name is not None)
        if told_to is None or told_to[0] is not federation:
            self._spread = federation.spread()
            changed = dict.fromkeys(sorted(self._spread))
        elif told_to[1] != federation.revision:
            before, self._spread = self._spread, federation.spread()
            changed |= dict.fromkeys(sorted(self._spread - before))
        for name in changed:
            if name in self._spread:
                self._bindings.bind(name, self._rows_of(name))
        for asking in self._take_asking():
            self._ask(asking)
        self._tell_answers()

    def told(self) -> Iterator[tuple[str, frozenset[Row], frozenset[Row]]]:
        """Of each topic that is told: its name, what its subscriptions want, and what federation was told of it.
        Nothing while something is still to be told."""
        federation = self._bindings.federation
        if federation is None or self.is_due:
            return
        for name in self._spread:
            yield name, frozenset(self._rows_of(name)), federation.bindings.get(name, frozenset())

    def undo(self, undone: Undone) -> None:
        """What was told in those turns is told again, as it is then."""
        self._told_to = None

    # ------------------------------------------------------------------------------------------------ confirmation

    def confirm(
        self,
        peer: Peer,
        link: Sender,
        topic: Topic,
        selector: SubjectSelector | None,
        wait_ms: int,
        answer: Callable[[Told], None],
    ) -> None:
        """Answers an attach once the subscription that it made is confirmed, or the time is over."""
        self._asking.append(Asking(peer, link, topic, selector, wait_ms, answer))

    def _take_asking(self) -> list[Asking]:
        asking, self._asking = self._asking, []
        return asking

    @property
    def is_due(self) -> bool:
        """Whether `tell` has something to do."""
        federation = self._bindings.federation
        if self._asking or self._answers or self._work.rebound:
            return True
        return federation is not None and self._told_to != (federation, federation.revision)

    def _ask(self, asking: Asking) -> None:
        name = federated_name(asking.topic)
        if asking.link.detached or name is None or name not in self._spread:
            asking.answer(_told(asking.link))
            return
        asking.token = self._bindings.confirm(name, self.row_of(asking.selector), asking.wait_ms / 1000)
        if asking.token is None:
            asking.answer(_told(asking.link))
            return
        self.waiting[asking.token] = asking

    def _answered(self, answer: Answer) -> None:
        """It is told when the turn ends: who calls this may not fail."""
        self._answers.append(answer)

    def _tell_answers(self) -> None:
        while self._answers:
            answer = self._answers.popleft()
            asking = self.waiting.pop(answer.token, None)
            if asking is not None:
                asking.answer(_told(asking.link, answer.confirmed, answer.waiting))

    def left(self, peer: Peer) -> None:
        """The connection is gone: nobody waits there."""
        self._asking = [asking for asking in self._asking if asking.peer is not peer]
        for token in [token for token, asking in self.waiting.items() if asking.peer is peer]:
            del self.waiting[token]
            self._bindings.cancel(token)


def _told(link: Sender, confirmed: tuple[str, ...] = (), waiting: tuple[str, ...] = ()) -> Told:
    """The two lists, each as far as it fits a quarter of a frame that the peer takes: an attach is one frame."""
    most = link.session.connection.body_bytes_max // 4
    return {CONFIRMED: _some(confirmed, most), WAITING: _some(waiting, most)}


def _some(names: tuple[str, ...], bytes_max: int) -> list[str]:
    """As many as fit, the first in any case: an empty list means that there are none."""
    some: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode()) + NAME_OVERHEAD
        if some and size > bytes_max:
            break
        some.append(name)
    return some
