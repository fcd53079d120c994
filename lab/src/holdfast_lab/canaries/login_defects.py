"""Defects of logins with a challenge (amqp/login/scram.py, amqp/handshake.py).

Rules of this file: as those of the package.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _no_header(original: Function) -> Function:
    """Where all else had to wait for the end of a login, AMQP's header does not come before it."""

    def on_sasl_frame(self: Any, body: bytes) -> Any:
        waited = self.waits_for_login
        progress = original(self, body)
        if waited and not self.waits_for_login:
            progress = progress._replace(output=progress.output[: -len(AMQP_HEADER)])
        return progress

    return on_sasl_frame


def _free_guesses(original: Function) -> Function:
    """A login that has failed gives its try back, as one that has succeeded does."""

    def has_failed(self: Any, address: str, whose: Any, user: Any) -> None:
        original(self, address, whose, user)
        self.tries[address, whose].left += 1

    return has_failed


LOGIN_CANARIES: Final = (
    Canary(
        name="guesses-for-nothing",
        sentence="A failed login uses up none of the tries of its address and name.",
        target="peers.logins:Logins.has_failed",
        signature="(self, address: str, whose: str | bytes, user: "
        "Optional[holdfast.broker.entries.host_names.HostedName]) -> None",
        broken=_free_guesses,
        expected="were answered",
    ),
    Canary(
        name="no-header-after-login",
        sentence="A client sends no protocol header after a login by challenge and response.",
        target="amqp.handshake:Handshake.on_sasl_frame",
        signature="(self, body: bytes) -> holdfast.amqp.handshake.Progress",
        broken=_no_header,
        expected="after all faults were healed",
    ),
)
