"""What a node's queues keep back from some of their consumers, and who counts it.

Rules of this file: four accounts of the node, shared by all cursors.
"""

from typing import NamedTuple

from holdfast.accounts import Account


class Withheld(NamedTuple):
    """What is counted: of entries set aside, of what consumers called undeliverable, of what they gave back, and of
    what is ready where queues sort."""

    aside: Account
    excluded: Account
    given_back: Account
    ready: Account
