"""What a node's queues keep back from some of their consumers, and who counts it.

Rules of this file: three accounts of the node, shared by all cursors.
"""

from typing import NamedTuple

from holdfast.accounts import Account


class Withheld(NamedTuple):
    """What is counted: of entries set aside, of what consumers called undeliverable, of what they gave back."""

    aside: Account
    excluded: Account
    given_back: Account
