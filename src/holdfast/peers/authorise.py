"""Who may do what: asked before a link is attached, and before a request of `$management` is carried out.

Rules of this file: an answer is a value; it changes nothing, and depends on nothing but what it is asked.
"""

from typing import Final, Protocol

SEND: Final = "send"
RECEIVE: Final = "receive"
"""What a link is for."""


class Authoriser(Protocol):
    """Decides whether a client may do something."""

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """Why not, for a person; None where it is allowed.

        `who`: the user of `host` that the connection logged in as, None without a login. `action`: SEND or RECEIVE for
        a link; of a request what it is about and the operation, "queue PURGE". `address`: the link's, or the name that
        the request gives: of a queue, of a node, for a subscription of its queue; "" where there is none.
        """


class Everyone:
    """Allows all to everyone who was let in."""

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        return None
