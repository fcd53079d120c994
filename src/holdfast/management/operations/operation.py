"""The record of an operation of `$management`: what carries it out, what it changes, who may ask for it, what it costs.

Rules of this file: each group of operations registers the records of its own in one table, which is all that there is
to know of them. An operation says what it changes, or that it only reads: there is no default.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple, Protocol

from holdfast.management.operations.answers import Answer, Later
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.rights import Right, Rights


class Done(NamedTuple):
    """A request that was carried out: what its log line may say of it. `given`: which of its arguments it had; `queue`:
    that of a subscription."""

    name: str
    given: tuple[str, ...]
    queue: str
    answer: Answer


READS: Final = None
"""As `changes`: the operation changes nothing that an operator would ask about later."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`carry_out`: (host, name, arguments) -> its answer; Refused where it is refused. What it is about is in that
    virtual host. `changes`: the log line of what a request changed, None if nothing; READS for an operation that only
    reads. `needs`: the permissions; `cost`: rows of queues that it looks at. `arguments`: what the request has in its
    body. `creates`: something that is to last, and would not in a store whose file is gone. `in_memory`: what it is
    about has no stored state, so it is answered while the disk does not answer."""

    carry_out: Callable[[str, str, dict[str, Any]], Answer | Later]
    changes: Callable[[Done], str | None] | None
    _: KW_ONLY
    needs: Callable[[Rights, str, str, Mapping[str, Any]], Iterator[Right]] = Rights.of_administrator
    cost: Callable[[Costs, str, str, Mapping[str, Any]], int] = Costs.least
    arguments: tuple[str, ...] = ()
    creates: bool = False
    in_memory: bool = False


Table = dict[tuple[str, str], Operation]
"""By what it is about ("holdfast:queue") and its name ("READ")."""


class Operations(Protocol):
    """A group of operations about one kind of thing."""

    def register(self, table: Table) -> None:
        """Adds the group's operations to the table."""
