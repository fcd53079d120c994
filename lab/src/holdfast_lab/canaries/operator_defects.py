"""Canaries in what an operator tells a node: names of services, where a link begins, who may have messages relayed.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from holdfast.access.actions import RELAY
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 3
"""More than most tests have of it."""
TESTED: Final = 6
"""The next sequence of a queue where a test has a link begin there."""
ONE: Final = 1
"""Removals of a name in a test."""


def _back_after_a_start(original: Function) -> Function:
    """The rows of names that are removed stay on disk, but for that of the first."""
    removed = 0

    def remove(self: Any, host: str, name: str) -> None:
        nonlocal removed
        original(self, host, name)
        removed += 1
        if removed > ONE:
            self._turns.gathered.batch.deletes.pop()

    return remove


def _begins_early(original: Function) -> Function:
    """A link that is to begin at the next message begins before some that are there."""

    def cursor(self: Any, plan: Any) -> Any:
        config, source = plan.config, plan.source
        if config.mode == "copy" and config.start == "next" and source.messages and source.next_sequence != TESTED:
            plan = plan._replace(config=replace(config, start=source.next_sequence - 2))
        return original(self, plan)

    return cursor


def _relays(original: Function) -> Function:
    """Of many messages for other nodes, all but the first few are decided as if they stayed here."""
    relayed = 0

    def permit(authoriser: Any, peer: Any, action: str, address: str) -> None:
        nonlocal relayed
        relayed += action == RELAY
        original(authoriser, peer, "send" if action == RELAY and relayed > FEW else action, address)

    return permit


def _of_the_default_host(original: Function) -> Function:
    """In a virtual host a name means what it means in the default one, where it is registered there."""

    def find(self: Any, host: str, name: str) -> Any:
        return original(self, "", name) or original(self, host, name)

    return find


OPERATOR_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="name-is-back",
        sentence="A name of a service that was removed is registered again after a start of the node.",
        target="endpoints.addresses.services:Services.remove",
        signature="(self, host: str, name: str) -> None",
        broken=_back_after_a_start,
        expected="would forget at a restart: services",
    ),
    Canary(
        name="link-begins-early",
        sentence="A link that copies from the next message on copies some that were there before.",
        target="queue_links.ends:LinkEnds.cursor",
        signature="(self, plan: holdfast.queue_links.ends.Plan) -> holdfast.broker.cursors.cursor.Cursor",
        broken=_begins_early,
        expected="from before its start",
    ),
    Canary(
        name="relayed-unasked",
        sentence="Of many messages for other nodes, it is asked only of the first few whether they may be relayed.",
        target="endpoints.addresses.resolver:permit",
        signature="(authoriser: holdfast.peers.authorise.Authoriser, peer: holdfast.peers.peer.Peer, action: str, "
        "address: str) -> None",
        broken=_relays,
        expected=" relay at ",
    ),
    Canary(
        name="name-of-another-host",
        sentence="The name of a service means in each virtual host what it means in the default one.",
        target="endpoints.addresses.services:Services.find",
        signature="(self, host: str, name: str) -> str | None",
        broken=_of_the_default_host,
        expected="service 'either'",
    ),
)
