"""Canaries in the client library, which the simulated programs use.

Rules of this file: each defect is wrong in a rare state alone, as those are that survive review; it calls the function
that it replaces, so that the rest of the client goes on unchanged.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _refused_sender_forgets(original: Function) -> Function:
    """A sender whose link is refused for now forgets what the node may have stored of the last one."""

    def detached(self: Any) -> None:
        refused = self.link.refused
        original(self)
        if refused and self._resume is not None:
            self._resume.forget()

    return detached


CLIENT_CANARIES: Final = (
    Canary(
        name="refused-sender-forgets",
        sentence="A sender whose link is refused for now forgets what is in doubt, and sends it as new.",
        target="client.send.transmission:Transmission.detached",
        signature="(self) -> None",
        broken=_refused_sender_forgets,
        expected="appended twice",
    ),
)
