"""`$management`: finds the operation of a request, checks the permission, carries it out, and words what it changed
(AMQP Management, request and response; docs/management.md lists the operations).

Rules of this file: each group of operations adds its own to one table (operation.py), and no operation is named here
but the list of queues, which each user sees a part of. An unknown operation is 501, one that its sender may not use is
403.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.access.actions import ADMINISTER, BROWSE, NODE, RECEIVE
from holdfast.amqp.wire.types import Ulong
from holdfast.entity_types import LINK, MANAGEMENT, QUEUE, SUBSCRIPTION
from holdfast.links.disk import Disk
from holdfast.management.operations.answers import Answer, Later, Refused, number_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.operation import Done, Operation, Operations, Table
from holdfast.management.operations.rights import Rights
from holdfast.management.status.queues import QueueStatus
from holdfast.names import NAME_BYTES_MAX
from holdfast.peers.authorise import Authoriser

NO_LINK: Final = "no permission to do that with a link; ask the administrator of this node"
"""One text whether the link does not exist or the user may not change it."""


class Management:
    """All operations; `operations`: by kind and name."""

    def __init__(
        self,
        disk: Disk,
        authoriser: Authoriser,
        rights: Rights,
        costs: Costs,
        queues: QueueStatus,
        *groups: Operations,
    ) -> None:
        self._disk = disk
        self._authoriser = authoriser
        self._rights = rights
        self._costs = costs
        self._queues = queues
        self.operations: Table = {}
        for group in groups:
            group.register(self.operations)
        costs.operations = len(self.operations)

    def carry_out(
        self, who: str | None, host: str, kind: str, operation: str, name: str, arguments: dict[str, Any]
    ) -> Answer | Later:
        """Carries out a request of that user, None without a login, in that virtual host; a refusal is an answer."""
        try:
            found = self.operations.get((kind, operation))
            if found is None:
                known = ", ".join(f"{operation} of {kind}" for kind, operation in self.operations)
                raise Refused(501, f"invalid operation {operation!r} of {kind!r}; expected one of {known}")
            if (kind, operation) == (QUEUE, "QUERY") and who is not None and not self._may(who, ADMINISTER, NODE, host):
                _check_keys(found, arguments)
                return self._readable(who, host, arguments)
            for action, address in found.needs(self._rights, host, name, arguments):
                forbidden = self._authoriser.authorise(who, action, address, host=host)
                if forbidden is not None:
                    raise Refused(403, NO_LINK if kind == LINK and operation != "CREATE" else forbidden)
            if kind != MANAGEMENT:  # other programs' requests to the node itself may have properties of their own
                _check_keys(found, arguments)
            if found.creates and self._disk.gone is not None:
                raise Refused(503, f"the store's file is gone: {self._disk.gone}")
            return found.carry_out(host, name, arguments)
        except Refused as refused:
            return refused.answer

    def _may(self, who: str, action: str, address: str, host: str) -> bool:
        return self._authoriser.authorise(who, action, address, host=host) is None

    def _readable(self, who: str, host: str, arguments: dict[str, Any]) -> Answer:
        """The queues that a user without `administer` may read: who may receive could read all by a copying
        subscription."""

        def may(name: str) -> bool:
            return self._may(who, BROWSE, name, host) or self._may(who, RECEIVE, name, host)

        offset = number_of(arguments, "offset", 0)
        queues, following = self._queues.page_of(host, offset, may)
        more = {} if following is None else {"offset": Ulong(following)}
        return Answer(200, "OK", {"queues": queues, "more": following is not None, **more})

    def cost_of(self, host: str, kind: str, operation: str, name: str, arguments: dict[str, Any]) -> int:
        """The cost of a request at most, in rows of queues."""
        found = self.operations.get((kind, operation))
        return 1 if found is None else found.cost(self._costs, host, name, arguments)

    def is_in_memory(self, kind: str, operation: str) -> bool:
        """Whether what the operation is about has no stored state."""
        found = self.operations.get((kind, operation))
        return found is not None and found.in_memory

    def log_line(
        self, kind: str, operation: str, name: str, arguments: Mapping[str, Any]
    ) -> Callable[[Answer], str | None]:
        """Words what a request changed, once it is answered; None if nothing. It keeps bounded names of the request
        alone: what was decoded may be much larger than its bytes."""
        found = self.operations.get((kind, operation))
        if found is None:
            return _nothing
        given = tuple([key for key in found.arguments if key in arguments])
        queue = str(arguments.get("queue"))[:NAME_BYTES_MAX] if kind == SUBSCRIPTION else ""
        return partial(_change, found, name[:NAME_BYTES_MAX], given, queue)


def _check_keys(operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that the operation does not have: without them it would be another request."""
    for key in arguments:
        if key not in operation.arguments:
            accepted = ", ".join(operation.arguments)
            expected = f"expected one of {accepted}" if accepted else "this request has no arguments"
            raise Refused(400, f"unknown key {key!r}; {expected}")


def _nothing(answer: Answer) -> str | None:
    return None


def _change(operation: Operation, name: str, given: tuple[str, ...], queue: str, answer: Answer) -> str | None:
    if not 200 <= answer.status < 300:
        return answer.description if answer.stored else None  # done in part
    return None if operation.changes is None else operation.changes(Done(name, given, queue, answer))
