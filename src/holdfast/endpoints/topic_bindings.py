"""Passes the bindings of this node's topics to federation, and answers attaches that wait for a confirmation
(docs/federation.md, docs/adr/0082).

Rules of this file: what changed is passed at the end of the turn, from the subscriptions that exist then: a change that
is reverted within a turn is not passed on, and nothing is withdrawn before its replacement. The attach of a receiver
that requests a confirmation is answered with it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.connection import Link, Sender
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
from holdfast.endpoints.topic_rows import Subscription, TopicRows
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
"""Bytes that a name in a list takes besides itself, at most."""

ROWS_KEPT: Final = 4_096
"""Selectors whose rows are remembered."""


def federated_name(queue: Queue) -> str | None:
    """The name of a topic in federation; None for topics of virtual hosts and temporary ones, which are not
    federated."""
    if queue.kind is not QueueKind.TOPIC or queue.host != DEFAULT_HOST:
        return None
    return queue.name[len(TOPIC_PREFIX) :]


def asked_ms(properties: dict[Any, Any] | None) -> int | None:
    """How long the attach of a receiver waits for a confirmation; None if it requests none. Raises Refusal."""
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
        """The federation to which bindings were last passed, and its revision then."""
        self._spread: set[str] = set()
        self._known: dict[str, TopicRows | None] = {}
        """What was passed of each topic of `_spread`; None if it does not exist."""
        self._travelling: dict[str, str | None] = {}
        self._asking: deque[Asking] = deque()
        """Attaches of this turn."""
        self.waiting: dict[int, Asking] = {}
        """Attaches that wait, by the number of the confirmation."""
        self.tokens: dict[Sender, int] = {}
        """Their numbers, by link."""
        self._answers: deque[Answer] = deque()
        bindings.bound = self._all
        bindings.answered = self._answered

    # ------------------------------------------------------------------------------------------------ rows

    def row_of(self, selector: SubjectSelector | None) -> Row:
        """The binding of a subscription, as passed to federation; it may match more than the subscription."""
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

    def _all(self) -> Iterator[tuple[str, Iterable[Row]]]:
        """All bindings of each federated topic, when federation begins."""
        federation = self._bindings.federation
        for name in sorted(federation.spread()) if federation is not None else ():
            yield name, self._rows_of(name)

    def _rows_of(self, name: str) -> Set[Row]:
        """All bindings of a topic, worked out anew."""
        topic = self._catalog.find(DEFAULT_HOST, TOPIC_PREFIX + name)
        return TopicRows(topic, self.row_of).rows if isinstance(topic, Topic) else frozenset()

    def tell(self) -> None:
        """Called at the end of a turn: passes changed bindings, and requests the confirmations that attaches wait
        for."""
        rebound, self._work.rebound = self._work.rebound, {}
        federation = self._bindings.federation
        if federation is None:
            while self._asking:
                asking = self._asking.popleft()
                asking.answer(_told(asking.link))
            return
        told_to, now = self._told_to, (federation, federation.revision)
        self._told_to = None  # until all is passed: after a failure everything is
        if told_to is None or told_to[0] is not federation:
            self._known.clear()
        if told_to != now:
            self._spread = federation.spread()
            self._known = {name: known for name, known in self._known.items() if name in self._spread}
            for name in sorted(self._spread - self._known.keys()):
                self._tell_all(name)
        for queue, subscriptions in rebound.items():
            of = federated_name(queue)
            if of is not None and of in self._spread:
                self._tell_changed(of, queue, subscriptions)
        self._told_to = now
        while self._asking:  # one that fails is the only one that is not asked
            self._ask(self._asking.popleft())
        self._tell_answers()

    def _tell_all(self, name: str) -> None:
        """Passes all bindings of a topic."""
        topic = self._catalog.find(DEFAULT_HOST, TOPIC_PREFIX + name)
        known = TopicRows(topic, self.row_of) if isinstance(topic, Topic) else None
        self._bindings.bind(name, () if known is None else known.rows)
        self._known[name] = known

    def _tell_changed(self, name: str, queue: Queue, subscriptions: Iterable[Subscription]) -> None:
        """Passes what changed of a topic; everything if it is another than before."""
        known = self._known.get(name)
        if known is None or known.topic is not queue:
            self._tell_all(name)
        else:
            self._bindings.rebind(name, *known.change(subscriptions))

    def told(self) -> Iterator[tuple[str, frozenset[Row], frozenset[Row]]]:
        """For each federated topic: its name, its subscriptions' bindings, and the bindings that federation has.
        Nothing while a change is still to be passed."""
        federation = self._bindings.federation
        if federation is None or self.is_due:
            return
        for name in self._spread:
            yield name, frozenset(self._rows_of(name)), frozenset(federation.bindings.get(name, ()))

    def undo(self, undone: Undone) -> None:
        """Undoes those turns: their topics are passed again, with the bindings of that time."""
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
        """Answers an attach once its subscription is confirmed, or the time is over."""
        self._asking.append(Asking(peer, link, topic, selector, wait_ms, answer))

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
        self.tokens[asking.link] = asking.token

    def _answered(self, answer: Answer) -> None:
        """Records the confirmation; the attach is answered when the turn ends, because the caller must not fail."""
        self._answers.append(answer)

    def _tell_answers(self) -> None:
        while self._answers:
            answer = self._answers.popleft()
            asking = self._waits_no_more(answer.token)
            if asking is not None:
                asking.answer(_told(asking.link, answer.confirmed, answer.waiting))

    def _waits_no_more(self, token: int) -> Asking | None:
        asking = self.waiting.pop(token, None)
        if asking is not None:
            self.tokens.pop(asking.link, None)
        return asking

    def ended(self, link: Link) -> None:
        """The link has ended: if its attach waits for a confirmation, it is answered now."""
        token = self.tokens.get(link) if isinstance(link, Sender) else None
        asking = None if token is None else self._waits_no_more(token)
        if token is not None and asking is not None:
            self._bindings.cancel(token)
            asking.answer(_told(asking.link))

    def left(self, peer: Peer) -> None:
        """The connection has ended: its attaches wait no longer."""
        self._asking = deque(asking for asking in self._asking if asking.peer is not peer)
        for token in [token for token, asking in self.waiting.items() if asking.peer is peer]:
            self._waits_no_more(token)
            self._bindings.cancel(token)


def _told(link: Sender, confirmed: tuple[str, ...] = (), waiting: tuple[str, ...] = ()) -> Told:
    """The two lists, each as far as it fits a quarter of the peer's frame size, because an attach is one frame."""
    most = link.session.connection.body_bytes_max // 4
    return {CONFIRMED: _some(confirmed, most), WAITING: _some(waiting, most)}


def _some(names: tuple[str, ...], bytes_max: int) -> list[str]:
    """As many names as fit, and always the first: an empty list means that there are none."""
    some: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode()) + NAME_OVERHEAD
        if some and size > bytes_max:
            break
        some.append(name)
    return some
