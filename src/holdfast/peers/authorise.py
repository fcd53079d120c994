"""Who may do what: asked before a link is attached, and before a request of `$management` is carried out.

Rules of this file: the answer is a value; it changes nothing, and depends only on the arguments.
"""

from typing import Final, Protocol

SEND: Final = "send"
RECEIVE: Final = "receive"
"""What a link is for."""


class Authoriser(Protocol):
    """Decides whether a client may do something."""

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """Why not, for a person; None if it is allowed. `who`: the user of `host` as which the connection logged in,
        None without a login. `action`: SEND or RECEIVE for a link; for a request its type and operation, "queue PURGE".
        `address`: that of the link, or the name in the request: of a queue, a node, or the queue of a subscription; ""
        if there is none.
        """


class Everyone:
    """Allows everything to everyone who may log in."""

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        return None
