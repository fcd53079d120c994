"""The permission check, which is made before a link is attached, for each message of a link without an address, and
before a request of `$management` is carried out (docs/security.md).

Rules of this file: the answer is a value; it changes nothing, and depends only on the arguments.
"""

from typing import Protocol


class Authoriser(Protocol):
    """Decides whether a client may do something."""

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """The reason for a refusal, for a person; None if the action is allowed. `who`: the user of `host` as which the
        connection logged in, None without a login. `action`: one of ACTIONS (access/actions.py). `address`: in the
        node's own form; "" for a dynamic node that is to be created, NODE for actions on the node or on all its queues.
        """
