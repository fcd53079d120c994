"""What `holdfast receive` does whatever becomes of the messages: connects, takes as many as it was told, sums up.

Rules of this file: the connection ends politely also after Ctrl-C: what was accepted is told, what was not taken goes
back at once.
"""

import argparse
import json
import sys
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from holdfast.client.connection import Connection
from holdfast.client.receiver import Receiver
from holdfast.client.verbs.running import complain, connect_as, place_of
from holdfast.errors import ConfigError, HoldfastError

R = TypeVar("R", bound=Receiver)


class Receiving(ABC, Generic[R]):
    """One `holdfast receive`; `run` gives its exit code, 1 if `--count` was not reached."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._received = 0
        self._started = time.monotonic()

    async def run(self) -> int:
        place = place_of(self._args)
        receiver: R | None = None
        code = 0
        self._started = time.monotonic()
        try:
            connection = await connect_as(self._args, place)
            try:
                receiver = await self._receiver(connection)
                await self._take_all(receiver)
            finally:
                await connection.close()
        except ConfigError:
            raise
        except HoldfastError as error:
            complain(self._args, error)
            code = 1
        finally:
            self._summary(receiver)
        if self._args.count is not None and self._received < self._args.count:
            code = 1
        return code

    @abstractmethod
    async def _receiver(self, connection: Connection) -> R:
        """Of the kind that it needs, by the arguments."""

    @abstractmethod
    async def _take_all(self, receiver: R) -> None:
        """Takes messages, and counts them in `_received`, until there are none."""

    def _summary(self, receiver: R | None) -> None:
        told = {
            "received": self._received,
            "duplicates_suppressed": 0 if receiver is None else receiver.duplicates_suppressed,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        print(json.dumps(told), file=sys.stderr)
