"""Calls to several nodes at once, of which some may be away: those that answer are not kept waiting.

Rules of this file: one call at a time for each node, in a thread that nobody has to wait for. A call may be of many
requests: a node is away once it has answered none of them for a time, until its call has returned. Only
`NodeUnreachable` and time make a node away; any other error ends the query. After `end` no call has an effect: a late
one would open queues that the next run has opened by then, and fence it.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final, Generic, TypeVar

from pyspark_holdfast.bus import NodeUnreachable

log = logging.getLogger(__name__)

PATIENCE_S: Final = 5.0
"""How long a node that was there the last time may leave a request unanswered. One that is away is not waited for."""
AGAIN_S: Final = 1.0
"""How long after a call that failed a node that is away is called again."""
ENDS_S: Final = 5.0
"""How long calls that are under way are waited for at the end."""
CLOSED_AGAIN_S: Final = 0.1
"""How often nodes are closed until their calls have ended: one may have been about to connect."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Fleet(Generic[K]):
    """Nodes by key. `all_needed`: a node that cannot be reached ends the query, as it does where none can.
    `answered_at`: when a node answered the last request, in steady seconds."""

    def __init__(
        self,
        names: Mapping[K, str],
        *,
        all_needed: bool,
        patience_s: float = PATIENCE_S,
        answered_at: Callable[[K], float] = lambda key: 0.0,
    ) -> None:
        self._names = names
        self._answered_at = answered_at
        self._all_needed = all_needed or len(names) == 1
        self.patience_s = patience_s
        self._calls: dict[K, Future[Any]] = {}
        """Under way, of nodes that are away."""
        self._running: set[Future[Any]] = set()
        """All whose threads have not ended."""
        self._failed_at: dict[K, float] = {}
        self.away: dict[K, str] = {}
        """Why each node that is away is."""

    def each(self, work: Mapping[K, Callable[[], T]], *, wait_s: float = 0.0) -> dict[K, T]:
        """What these calls return, of the nodes that are there; of those that are away too if they answer within
        `wait_s`. Raises NodeUnreachable where none is there, or one is not and all are needed, and whatever else a call
        raises."""
        if self._all_needed and len(work) == 1:
            return {key: call() for key, call in work.items()}
        until = time.monotonic() + wait_s
        if wait_s:
            wait([call for key, call in self._calls.items() if key in work], wait_s)
        calls = {key: self._begun(call) for key, call in work.items() if not self._is_busy(key)}
        self._wait({key: calls[key] for key in calls if self._all_needed or wait_s or key not in self.away}, until)
        found = self._found(calls)
        if work and not found and not self._all_needed:
            found = self._any(calls)
        return found

    def end(self, closes: Sequence[Callable[[], None]]) -> None:
        """Calls `closes`, which close nodes for good, until no call is under way; ENDS_S at most, since a node that is
        cut off may not answer."""
        until = time.monotonic() + ENDS_S
        while True:
            closing = [self._begun(close) for close in closes]
            wait(closing, until - time.monotonic())
            wait(self._running.copy(), min(CLOSED_AGAIN_S, max(0.0, until - time.monotonic())))
            if not self._running or time.monotonic() >= until:
                return

    def _wait(self, calls: Mapping[K, "Future[T]"], until: float) -> None:
        """Until all have returned, but for nodes that have answered nothing for `patience_s`; to `until` at least."""
        begun = time.monotonic()
        if self._all_needed:
            wait(calls.values())
            return
        while True:
            now = time.monotonic()
            ends = {key: max(until, max(begun, self._answered_at(key)) + self.patience_s) for key in calls}
            left = [key for key, call in calls.items() if not call.done() and ends[key] > now]
            if not left:
                return
            wait([calls[key] for key in left], min(ends[key] for key in left) - now, FIRST_COMPLETED)

    def _is_busy(self, key: K) -> bool:
        """Whether a call to a node that is away is under way, or it is too early for the next."""
        call = self._calls.get(key)
        if call is not None and not call.done():
            return True
        if call is not None:
            del self._calls[key]
            self._note(key, call)
        failed = self._failed_at.get(key)
        return not self._all_needed and failed is not None and time.monotonic() - failed < AGAIN_S

    def _found(self, calls: Mapping[K, "Future[T]"]) -> dict[K, T]:
        found: dict[K, T] = {}
        for key, call in calls.items():
            if not call.done():
                self._calls[key] = call
                if key not in self.away:
                    self._is_away(key, f"it has not answered for {self.patience_s:g} s")
            elif self._note(key, call):
                found[key] = call.result()
        return found

    def _any(self, calls: Mapping[K, "Future[T]"]) -> dict[K, T]:
        """Where all are away: what the first that answers says, nothing if that is an answer to an earlier call.
        NodeUnreachable once there is none left to wait for."""
        while True:
            found: dict[K, T] = {}
            is_back = False
            for key, call in [(key, call) for key, call in self._calls.items() if call.done()]:
                del self._calls[key]
                if self._note(key, call):
                    is_back = True
                    if call is calls.get(key):
                        found[key] = call.result()
            if is_back:
                return found
            if not self._calls:
                raise NodeUnreachable("; ".join(self.away.values()))
            wait(self._calls.values(), return_when=FIRST_COMPLETED)

    def _note(self, key: K, call: "Future[Any]") -> bool:
        """Takes in how a call has ended; True where the node is there."""
        error = call.exception()
        if error is None:
            self._failed_at.pop(key, None)
            if self.away.pop(key, None) is not None:
                log.warning("node %s is there again", self._names[key])
            return True
        if self._all_needed or not isinstance(error, NodeUnreachable):
            raise error
        self._failed_at[key] = time.monotonic()
        self._is_away(key, str(error))
        return False

    def _is_away(self, key: K, reason: str) -> None:
        if key not in self.away:
            log.warning("node %s is away, and its part of the query waits: %s", self._names[key], reason)
        self.away[key] = reason

    def _begun(self, call: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        self._running.add(future)
        future.add_done_callback(self._running.discard)

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="holdfast-node", daemon=True).start()
        return future
