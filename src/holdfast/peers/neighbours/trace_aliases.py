"""Aliases: small numbers for the stores in a trace, announced once for each custody link (CUSTODY, "Trace";
esb-dynamic-routing §4.4: the field holds node numbers alone, so that it does not take up many bytes).

Rules of this file: pure. An alias means one store until its link ends, as a handle means one link. It is announced
before it is used or in the same transfer, never changes, and ends with the link. Both ends count the aliases of a
connection; a sender that would exceed a bound writes the trace in full. Input is hostile until checked.
"""

from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.errors import RemoteProtocolError

LINK_ALIASES_MAX: Final = 250
"""Numbers of one link, from 0; each takes a byte in a trace."""

CONNECTION_ALIASES_MAX: Final = 4_096
"""Numbers of all custody links of one connection, each way."""

TRACES_MAX: Final = 256
"""Traces remembered for each link; at the bound all are forgotten."""

TOLD_BYTES: Final = 17
"""Bytes of an announced alias: the number, then the store's UUID."""


class Count:
    """How many aliases the links of a connection have, in one direction."""

    __slots__ = ("forgotten", "held")

    def __init__(self) -> None:
        self.held = 0
        self.forgotten = 0
        """How often a link returned its numbers: only then may a trace that the bound refused get aliases."""


class Given:
    """The sending end of one link: aliases that it announced."""

    __slots__ = ("_count", "_forgotten", "_numbers", "_refused", "known")

    def __init__(self, count: Count) -> None:
        self._count = count
        self._numbers: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        """Traces for which there were not enough numbers. This stays so until another link of the connection returns
        its numbers."""
        self._forgotten = count.forgotten
        self.known: dict[bytes, bytes] = {}
        """Traces by announced aliases, one byte for each store; looked up for each message."""

    def tell(self, trace: bytes) -> tuple[bytes, bytes] | None:
        """(the trace by aliases, the aliases to be announced with it); None if the bounds allow none. Call `told`
        afterwards."""
        numbers, refused, count = self._numbers, self._refused, self._count
        if self._forgotten != count.forgotten:
            self._forgotten = count.forgotten
            refused.clear()
        if trace in refused:
            return None
        stores = stores_of(trace)
        new = list(dict.fromkeys([store for store in stores if store not in numbers]))
        if len(numbers) + len(new) > LINK_ALIASES_MAX or count.held + len(new) > CONNECTION_ALIASES_MAX:
            if len(refused) >= TRACES_MAX:
                refused.clear()
            refused.add(trace)
            return None
        given = {store: number for number, store in enumerate(new, len(numbers))}
        path = bytes([given[store] if store in given else numbers[store] for store in stores])
        return path, b"".join(bytes((number,)) + store for store, number in given.items())

    def told(self, trace: bytes, path: bytes, aliases: bytes) -> None:
        """The transfer with the result of `tell` was written."""
        for at in range(0, len(aliases), TOLD_BYTES):
            self._numbers[aliases[at + 1 : at + TOLD_BYTES]] = aliases[at]
            self._count.held += 1
        if len(self.known) >= TRACES_MAX:
            self.known.clear()
        self.known[trace] = path

    def forget(self) -> None:
        """The link is gone."""
        self._count.held -= len(self._numbers)
        self._count.forgotten += 1
        self._numbers.clear()
        self._refused.clear()
        self.known.clear()


class Taken:
    """The receiving end of one link: aliases that were announced."""

    __slots__ = ("_count", "_stores", "known")

    def __init__(self, count: Count) -> None:
        self._count = count
        self._stores: dict[int, bytes] = {}
        self.known: dict[bytes, bytes] = {}
        """By path, what `trace` made of it."""

    def hear(self, aliases: bytes) -> None:
        """Reads the aliases that a transfer announces; the same may come again, as when a transfer is read twice."""
        if len(aliases) % TOLD_BYTES:
            raise _wrong(f"{len(aliases)} bytes of aliases", f"{TOLD_BYTES} for each")
        for at in range(0, len(aliases), TOLD_BYTES):
            number, store = aliases[at], aliases[at + 1 : at + TOLD_BYTES]
            known = self._stores.get(number)
            if known == store:
                continue
            if known is not None:
                raise _wrong(f"alias {number}", "a new one; on this link it stands for another store")
            if number >= LINK_ALIASES_MAX:
                raise _wrong(f"alias {number}", f"at most {LINK_ALIASES_MAX - 1}")
            if self._count.held >= CONNECTION_ALIASES_MAX:
                raise _wrong("number of aliases", f"at most {CONNECTION_ALIASES_MAX} on one connection")
            self._stores[number] = store
            self._count.held += 1

    def trace(self, path: bytes) -> bytes:
        """The stores of a trace by aliases, 16 bytes each."""
        trace = self.known.get(path)
        if trace is None:
            stores = self._stores
            for number in path:
                if number not in stores:
                    raise _wrong(f"alias {number}", "one that was sent on this link")
            trace = b"".join([stores[number] for number in path])
            if len(self.known) >= TRACES_MAX:
                self.known.clear()
            self.known[path] = trace
        return trace

    def forget(self) -> None:
        """The link is gone."""
        self._count.held -= len(self._stores)
        self._stores.clear()
        self.known.clear()


def stores_of(trace: bytes) -> list[bytes]:
    return [trace[at : at + 16] for at in range(0, len(trace), 16)]


def _wrong(what: str, expected: str) -> RemoteProtocolError:
    text = f"invalid {what} in a transfer in custody; expected {expected}"
    return RemoteProtocolError(conditions.INVALID_FIELD, text)
