"""Arguments and answers of operations of `$management`, with refusals and answers that come later (AMQP Management,
request and response).

Rules of this file: an error says what is wrong and what is accepted; status codes are those of HTTP.
"""

from typing import Any, Final, NamedTuple, Protocol

from holdfast.broker.queue import Queue
from holdfast.peers.peer import Peer
from holdfast.schema import is_whole_within
from holdfast.state.catalog import Catalog


class Answer(NamedTuple):
    """`body` is sent as amqp-value; `stored`: False if the answer does not wait for the disk; `rows`: the number of
    rows, if any."""

    status: int
    description: str
    body: Any
    stored: bool = False
    rows: int | None = None


class Waiting(Protocol):
    """A request that waits for its answer (management/requests.py); `link`: on which it came."""

    @property
    def link(self) -> object: ...
    @property
    def peer(self) -> Peer: ...
    def answer(self, answer: Answer) -> None: ...


class Later:
    """An operation that ends in a later turn: it calls `answer` then, and again if that failed."""

    def __init__(self) -> None:
        self.asked: Waiting | None = None
        """Whose it is: a failure on the way to its answer is that connection's."""

    @property
    def link(self) -> object:
        return None if self.asked is None else self.asked.link

    def answer(self, answer: Answer) -> None:
        if self.asked is not None:
            self.asked.answer(answer)


DESCRIPTION_MAX: Final = 1_000
DESCRIPTION_HEAD: Final = 600
"""Characters of an error: one line, whatever the request has. What is left out is in the middle: the reason is at the
beginning, what is expected at the end."""


class Refused(Exception):
    """An operation fails with a status other than 2xx; it becomes an Answer with that body."""

    def __init__(self, status: int, description: str, body: dict[str, Any] | None = None) -> None:
        if len(description) > DESCRIPTION_MAX:  # it names what was asked for, in the words of who asked
            description = f"{description[:DESCRIPTION_HEAD]} … {description[DESCRIPTION_HEAD + 3 - DESCRIPTION_MAX :]}"
        super().__init__(description)
        self.answer = Answer(status, description, body or {})


def text_of(arguments: dict[str, Any], key: str, default: str | None = None) -> str:
    """The argument of that name, a string."""
    value = arguments.get(key, default)
    if not isinstance(value, str):
        raise Refused(400, f"invalid value {value!r} for {key}; expected a string")
    return str(value)


def number_of(arguments: dict[str, Any], key: str, default: int | None = None) -> int:
    """The argument of that name, 0 to 2^63 - 1."""
    value = arguments.get(key, default)
    if not is_whole_within(value, 0, 2**63):
        raise Refused(400, f"invalid value {value!r} for {key}; expected 0 to 2^63 - 1")
    return int(value)


def queue_of(catalog: Catalog, host: str, name: str) -> Queue:
    """The queue of that name in that host; Refused if it does not exist."""
    queue = catalog.find(host, name)
    if queue is None:
        raise Refused(404, f"no queue {name!r}")
    return queue
