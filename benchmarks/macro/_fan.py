"""One sender and many receivers, each of which wants some of the messages: what selecting.py and topics.py load with.

Rules of this file: the sender is one process, all receivers another (_load.py). Each receiver says by its stride and
first number which messages it must be given, and fails where it is given another (ReceivingWire.check).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from _connection import BUFFER_BYTES
from _load_run import ATTACH_S_MAX, LoadProcess
from _peers import Peer

BUFFER_BYTES_LEAST = 1 << 17
"""Of a receiver: two frames of the largest size, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """What one receiver asks for, and which messages it must be given: every `stride`th from `first_number` on, or,
    where it shares them with others, any that ascend."""

    address: str
    selector: str | None = None
    subscribes: bool = False
    durable: bool = True
    stride: int = 1
    first_number: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FanResult:
    published: int
    delivered: int
    seconds: float
    """From the first write until every message is settled and every delivery has come."""
    load_cpu_s: float
    read_bytes: int
    """What the peer sent to the load: its socket writes."""


class Fan:
    """A sender to `target` of messages of `kinds` (_connection.Side), and the takers. A context manager."""

    def __init__(
        self,
        peer: Peer,
        target: str,
        takers: Sequence[Taker],
        directory: Path,
        *,
        size: int,
        credit: int,
        kinds: int,
        words: str = "",
        takers_at: Peer | None = None,
    ) -> None:
        """`takers_at`: another broker of the same kind, to which the messages come."""
        at, far = (
            {
                "host": one.host, "port": one.port, "user": one.user, "password": one.password, "size": size,
                "credit": credit,
            }
            for one in (peer, takers_at or peer)
        )  # fmt: skip
        buffer_bytes = max(BUFFER_BYTES_LEAST, BUFFER_BYTES // len(takers))
        receiving = [
            {
                **far, "address": taker.address, "selector": taker.selector, "subscribes": taker.subscribes,
                "durable": taker.durable, "stride": taker.stride, "first_number": taker.first_number,
                "shared": taker.shared, "buffer_bytes": buffer_bytes,
            }
            for taker in takers
        ]  # fmt: skip
        sending = [{**at, "address": target, "kinds": kinds, "words": words}]
        self.processes: dict[str, LoadProcess] = {}
        try:
            for role, sides in (("receive", receiving), ("send", sending)):
                told: dict[str, object] = {"protocol": peer.protocol, "sides": sides}
                errors = directory / f"load-{peer.name}-{role}"
                self.processes[role] = LoadProcess("_load.py", role, told, errors)
                self.processes[role].answer(ATTACH_S_MAX)
        except BaseException:
            self.finish()
            raise

    def run(self, published: int, delivered: int, *, timeout_s: float = 600.0) -> FanResult:
        """Send `published` messages, of which the takers must be given `delivered` together."""
        for role, messages in (("receive", delivered), ("send", published)):
            self.processes[role].order({"messages": messages, "rate": None})
        every = [process.answer(timeout_s) for process in self.processes.values()]
        return FanResult(
            published=published,
            delivered=delivered,
            seconds=max(one["last"] for one in every) - min(one["first"] for one in every),
            load_cpu_s=sum(one["cpu_s"] for one in every),
            read_bytes=int(sum(one["read_bytes"] for one in every)),
        )

    def finish(self) -> None:
        for process in reversed(self.processes.values()):
            process.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
