"""A block of code that handles one message: its end decides the message's outcome.

Rules of this file: what the block settles itself stays as it is; nothing is raised here that the block did not raise.
"""

from types import TracebackType
from typing import Final, Generic, Literal, Protocol, TypeVar

from holdfast.amqp.wire import conditions
from holdfast.errors import ConfigError

OnError = Literal["retry", "reject", "release"]
ON_ERROR: Final = ("retry", "reject", "release")
REASON_MAX: Final = 400
"""Characters of an exception in the reason of a dead letter."""


class Processed(Protocol):
    """What a block needs of its delivery; a call may return something to await, which need not be awaited."""

    def accept(self) -> object: ...
    def release(self) -> object: ...
    def reject(self, condition: str | None = None, description: str | None = None) -> object: ...
    def modify(self) -> object: ...


D = TypeVar("D", bound=Processed)


def check_on_error(on_error: str) -> None:
    """Raises ConfigError for a word that is none of ON_ERROR."""
    if on_error not in ON_ERROR:
        raise ConfigError(f"invalid value {on_error!r:.40} for on_error; expected one of {', '.join(ON_ERROR)}")


def settle(delivery: Processed, error: BaseException | None, on_error: OnError) -> None:
    """Settles a delivery whose block has ended, with `error` or without one. A cancelled block, or one that Ctrl-C
    ended, has not failed: its message is released."""
    if error is None:
        delivery.accept()
    elif on_error == "release" or not isinstance(error, Exception):
        delivery.release()
    elif on_error == "reject":
        text = f"{type(error).__name__}: {error}"
        delivery.reject(conditions.INTERNAL_ERROR, text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…")
    else:
        delivery.modify()


class Processing(Generic[D]):
    """Made by `Delivery.process`, and used as `async with`."""

    def __init__(self, delivery: D, on_error: OnError) -> None:
        check_on_error(on_error)
        self._delivery = delivery
        self._on_error = on_error

    async def __aenter__(self) -> D:
        return self._delivery

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        settle(self._delivery, error, self._on_error)


class BlockingProcessing(Generic[D]):
    """Made by `BlockingDelivery.process`, and used as `with`."""

    def __init__(self, delivery: D, on_error: OnError) -> None:
        check_on_error(on_error)
        self._delivery = delivery
        self._on_error = on_error

    def __enter__(self) -> D:
        return self._delivery

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        settle(self._delivery, error, self._on_error)
