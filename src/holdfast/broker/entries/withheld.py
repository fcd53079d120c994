"""The accounts of what a node's queues withhold from some consumers.

Rules of this file: four accounts of the node, shared by all cursors.
"""

from typing import NamedTuple

from holdfast.accounts import Account


class Withheld(NamedTuple):
    """Accounts of entries that are set aside, that consumers declared undeliverable, that were requeued, and that are
    ready in queues that sort."""

    aside: Account
    excluded: Account
    given_back: Account
    ready: Account
