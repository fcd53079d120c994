"""Canaries in what is exchanged with brokers that are no nodes.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 5
"""A test has no more in doubt."""


def _few_in_doubt(original: Function) -> Function:
    """Of many messages that a remote has not answered when its connection ends, all but a few leave as accepted."""

    def gone(self: Any, unsettled: list[Any]) -> None:
        self.cursor.finish(sorted(self.in_hands(unsettled))[FEW:])
        original(self, unsettled)

    return gone


def _named_as_a_remote(original: Function) -> Function:
    """A queue with just the name of a remote is one for the remote after a restart."""

    def own_queue(self: Any, name: str) -> Any:
        is_remote = any(item.name == name for item in self.remotes)
        return original(self, f"@{name}" if is_remote else name)

    return own_queue


def _forgotten(original: Function) -> Function:
    """What a remote has refused is asked for again at once."""

    def refused(self: Any, now: float) -> None:
        return

    return refused


def _no_turn(original: Function) -> Function:
    """A link that is refused because of the number of links is tried again by itself, whatever others do."""

    def refused(self: Any, link: object, others: int, now: float) -> bool:
        return False

    return refused


REMOTE_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="remote-answered-for-many",
        sentence="Of many messages that a broker has not answered when its connection ends, some count as accepted.",
        target="endpoints.remotes.sending:RemoteSender.gone",
        signature="(self, unsettled: list[typing.Any]) -> None",
        broken=_few_in_doubt,
        expected="its last copy is gone",
    ),
    Canary(
        name="queue-named-as-a-remote",
        sentence="A restart makes an ordinary queue that has the name of a remote a transmission queue.",
        target="settings.node:NodeConfig.own_queue",
        signature="(self, name: str) -> holdfast.settings.queues.QueueConfig | None",
        broken=_named_as_a_remote,
        expected="would forget at a restart",
    ),
    Canary(
        name="refusals-of-a-remote-forgotten",
        sentence="A broker that ends the connection for a session or a link too many is asked for it again at once.",
        target="endpoints.remotes.refused:RefusalBackOff.refused",
        signature="(self, now: float) -> None",
        broken=_forgotten,
        expected="accepted messages not shown",
    ),
    Canary(
        name="refused-links-get-no-turn",
        sentence="A link that a broker refuses beyond its bound waits for ever while idle ones keep their slots.",
        target="endpoints.remotes.refused:RefusedLinks.refused",
        signature="(self, link: object, others: int, now: float) -> bool",
        broken=_no_turn,
        expected="accepted messages not shown",
    ),
)
