"""As whom a neighbour's messages are published at this node (amqp-illustrations, "Message Relay").

Rules of this file: pure.
"""

from collections.abc import Iterable

from holdfast.settings import NeighbourConfig


def account_of(neighbour: NeighbourConfig) -> str:
    """The user that it logs in as here; of a neighbour that this node dials, which does not, its own name."""
    return neighbour.name if neighbour.remote is not None else neighbour.user or neighbour.name


def accounts_of(neighbours: Iterable[NeighbourConfig]) -> dict[str, str]:
    """The same of all, by neighbour."""
    return {neighbour.name: account_of(neighbour) for neighbour in neighbours}
