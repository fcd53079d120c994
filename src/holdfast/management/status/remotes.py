"""The connections to remotes in `status` (docs/management.md), and what a warning says of them.

Rules of this file: reads, never changes; names of fields are a contract (docs/management.md).
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.columns import counted
from holdfast.endpoints.addresses.remote_queues import split
from holdfast.endpoints.remotes.remote import UP, Remote
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.engine.clock import Clock
from holdfast.management.status.condition import Condition

TOLD_MAX: Final = 20
"""Links of one remote of which one answer says why they wait, and lines of one look at all of them."""


class RemoteStatus:
    """A map for each remote."""

    def __init__(self, clock: Clock, remotes: Remotes, knows: Callable[[str], bool]) -> None:
        """`knows`: whether there is a node of that name in the network."""
        self._clock = clock
        self._knows = knows
        self._remotes = remotes

    def fields(self) -> dict[str, Any]:
        """Nothing without remotes."""
        rows = [self.of(remote) for remote in self._remotes.by_name.values()]
        return {"remotes": rows} if rows else {}

    def of(self, remote: Remote) -> dict[str, Any]:
        """One remote; counts since the node's start."""
        queues = remote.sending
        return {
            "remote": remote.name,
            "address": remote.config.remote,
            "state": remote.state,
            "since_s": round(self._clock.now - remote.since, 3),
            "reason": remote.reason,
            "attempts": remote.attempts,
            "lost": remote.lost_count,
            "addresses": len(queues),
            "fetches": len(remote.fetching),
            "messages": Ulong(sum(queue.messages for queue in queues)),
            "messages_out": Ulong(sum(link.passed_total for link in queues.values())),
            "messages_in": Ulong(sum(link.passed_total for link in remote.fetching)),
            "waiting": list(islice(chain(_refused(remote), _in_turn(remote)), TOLD_MAX)),
        }

    def conditions(self) -> Iterator[Condition]:
        """What an operator can do something about."""
        for remote in self._remotes.by_name.values():
            if remote.state != UP and remote.reason:
                text = f"remote {remote.name}: no connection: {remote.reason}"
                yield Condition(f"remote {remote.name}", f"{text}; correct its remote or its login, or start it")
            if self._knows(remote.name):
                text = f"remote {remote.name}: a node of the network has this name, and gets no messages from here"
                yield Condition(f"remote {remote.name} - node", f"{text}; rename the remote or the node")
            if turns := remote.slots.turns:
                waits = "1 link waits for its turn" if len(turns) == 1 else f"{len(turns)} links wait for their turn"
                text = f"remote {remote.name}: {waits}: {_allowed(remote)}"
                yield Condition(
                    f"remote {remote.name} - turns",
                    f"{text}; allow more links or sessions there, or use fewer addresses",
                )
            for text in islice(_refused(remote), TOLD_MAX):
                told = f"remote {remote.name}: {text}"
                yield Condition(f"remote {remote.name} {text}", f"{told}; look at that address, here and there")
        left = [queue for queue in self._remotes.queues.all() if queue.messages and not self._is_known(split(queue)[1])]
        for queue in left[:TOLD_MAX]:
            what = "1 message waits" if queue.messages == 1 else f"{queue.messages} messages wait"
            text = f"{what} for {queue.name!r}, and there is no such [[remote]]"
            yield Condition(f"remote {queue.name}", f"{text}; add it again, or delete the queue")

    def _is_known(self, name: str) -> bool:
        return name in self._remotes.by_name


def _refused(remote: Remote) -> Iterator[str]:
    """Links that are not served, each with the reason."""
    return (f"{link.name}: {link.reason}" for link in remote.links if link.reason)


def _in_turn(remote: Remote) -> Iterator[str]:
    """Links that wait for another to leave its slot."""
    told = f"it waits for its turn: {_allowed(remote)}"
    return (f"{link.name}: {told}" for link in remote.slots.turns if not link.reason)


def _allowed(remote: Remote) -> str:
    slots = remote.slots
    return f"the connection allows {counted(slots.links_max, 'link')} ({slots.why})"
