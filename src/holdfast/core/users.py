"""What each user and each neighbour has of the node, and how much of it they may have.

Rules of this file: a peer counts for the neighbour that it speaks as, else for the user that it logged in as; all who
came without a name count together. Who asks for one thing too many is refused that one, or waits; a neighbour's control
link never is. The names are those of the configuration, so that their number is bounded.
"""

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp.types import Ulong
from holdfast.core.config import Limits, UserConfig
from holdfast.core.peer import Peer, Requesting, host_of

if TYPE_CHECKING:
    from holdfast.core.consumer import ConsumerLink
    from holdfast.core.node import NodeCore

ANONYMOUS: Final = "anonymous"
"""How those without a name are called in status."""

ROUNDING: Final = 1e-6
"""Of a request: times are floats, and who comes at its time is not sent away for a rounding error."""

LINKS_WOKEN: Final = 1_000
"""Consumers that are offered messages again in one turn when their user has settled some."""


class Use:
    """What one user or neighbour has of the node, and its bounds. `kind`: user, neighbour or anonymous."""

    __slots__ = (
        "_at", "_own", "_tokens", "_waking", "blocked_consumers", "connections", "connections_max", "crowded", "kind",
        "links", "links_max", "logins_failed", "name", "refused", "requests", "requests_delayed", "requests_per_s",
        "unsettled_bytes", "unsettled_bytes_max", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        name: str,
        limits: Limits,
        config: UserConfig | None,
        now: float,
        waking: "dict[Use, None]",
    ) -> None:
        self._own = own = config or UserConfig(name=name, password="")
        self.kind = kind
        self.name = name
        self.connections_max = own.connections_max or limits.user_connections_max
        self.links_max = own.links_max or limits.user_links_max
        self.unsettled_bytes_max = own.unsettled_bytes_max or limits.user_unsettled_bytes_max
        self.requests_per_s = own.requests_per_s or limits.user_requests_per_s
        self.connections = 0
        self.links = 0
        self.unsettled_bytes = 0
        """Of messages that its consumers have and have not settled."""
        self.crowded = False
        """Whether too much of what its consumers rejected or annotated waits (settlements.py)."""
        self.requests = 0
        """To `$management`, since the node's start."""
        self.requests_delayed = 0
        self.refused = 0
        """Connections and links that were one too many."""
        self.logins_failed = 0
        self.blocked_consumers: dict[ConsumerLink, None] = {}
        """Consumers that get nothing until some of the user's messages are settled."""
        self.waiting: dict[Requesting, None] = {}
        """Links with requests whose time has not come, the next one first."""
        self._waking = waking
        self._tokens = float(self.requests_per_s)
        self._at = now

    def bound_reached_text(self, count: int, what: str) -> str:
        """That it has `count` of `what`, connections or links, and gets no more; with the name of the bound."""
        who = "clients without a name have" if self.kind == ANONYMOUS else f"{self.kind} {self.name!r} has"
        whom = "they" if self.kind == ANONYMOUS else "it"
        key = f"{what}_max of the [[user]]" if getattr(self._own, f"{what}_max") else f"user_{what}_max"
        return f"{who} {count} {what}, the most {whom} may have ({key})"

    def count_request(self, now: float) -> bool:
        """Counts one request, if its time has come; whether it has."""
        most = float(self.requests_per_s)
        self._tokens = min(most, self._tokens + (now - self._at) * most)
        self._at = now
        if self._tokens < 1 - ROUNDING:
            return False
        self._tokens -= 1
        self.requests += 1
        return True

    @property
    def asks_at(self) -> float:
        """When the next request's time comes."""
        return self._at + max(0.0, 1 - self._tokens) / self.requests_per_s

    def given(self, size: int) -> None:
        """Messages of `size` bytes went to one of its consumers."""
        self.unsettled_bytes += size

    @property
    def is_full(self) -> bool:
        """Whether its consumers get nothing now."""
        return self.crowded or self.unsettled_bytes >= self.unsettled_bytes_max

    def settled(self, size: int) -> None:
        """Messages of `size` bytes are settled, or were taken back."""
        self.unsettled_bytes -= size
        if self.blocked_consumers and not self.is_full:
            self._waking[self] = None

    def wake(self) -> None:
        """Some of those that are blocked are offered messages again, while there is room; each that finds none is
        blocked anew, behind the others."""
        blocked = self.blocked_consumers
        for link in list(islice(blocked, 0 if self.is_full else LINKS_WOKEN)):
            del blocked[link]
            link.cursor.queue.touch()
        if not blocked or self.is_full:
            self._waking.pop(self, None)

    @property
    def is_known(self) -> bool:
        """Whether there is anything to tell of it."""
        return any((self.connections, self.requests, self.refused, self.logins_failed, self.unsettled_bytes))

    def status(self) -> dict[str, Any]:
        return {
            "user": self.name,
            "kind": self.kind,
            "connections": self.connections,
            "connections_max": self.connections_max,
            "links": self.links,
            "links_max": self.links_max,
            "unsettled_bytes": Ulong(max(0, self.unsettled_bytes)),  # a defect here must not keep `status` from others
            "unsettled_bytes_max": Ulong(self.unsettled_bytes_max),
            "requests": Ulong(self.requests),
            "requests_per_s": self.requests_per_s,
            "requests_delayed": Ulong(self.requests_delayed),
            "refused": Ulong(self.refused),
            "logins_failed": Ulong(self.logins_failed),
        }


class Users:
    """Counts connections, links and requests for each user and neighbour, and refuses or delays those past a bound."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        config, now = core.config, core.clock.now
        self.waking: dict[Use, None] = {}
        """Those with room again, and blocked consumers."""
        limits, waking = config.limits, self.waking
        self.anonymous = Use(ANONYMOUS, ANONYMOUS, limits, None, now, waking)
        self.by_name = {user.name: Use("user", user.name, limits, user, now, waking) for user in config.users}
        self.neighbours = {
            neighbour.name: Use("neighbour", neighbour.name, limits, None, now, waking)
            for neighbour in config.neighbours
        }
        self.waiting: dict[Requesting, Use] = {}
        """Links with requests whose user's time has not come."""
        self.granted: dict[Requesting, None] = {}
        """Links that have waited, and of which one request is carried out next."""
        self.uses: dict[Use, None] = {}
        """Those that links wait for."""
        core.links.wait_in("requests of users", lambda: self.waiting)
        core.links.wait_in("requests granted", lambda: self.granted)
        core.links.serve_in("blocked consumers", lambda: [link for use in self.all() for link in use.blocked_consumers])

    def all(self) -> list[Use]:
        """What each user and each neighbour has."""
        return [self.anonymous, *self.by_name.values(), *self.neighbours.values()]

    # ------------------------------------------------------------------------------------------------ connections

    def enter(self, peer: Peer) -> None:
        """The connection is open, and whose it is is known. One too many of a neighbour is closed, with the reason."""
        reason = self.too_many_connections(peer)
        if reason is not None:
            self.count_refused(peer)
            self.core.refusals.refuse(peer, reason)
            return
        peer.use = use = self._of(peer)
        use.connections += 1

    def too_many_connections(self, peer: Peer) -> str | None:
        """Why the connection is one too many for whom it counts; None where it is not."""
        use = self._of(peer)
        most = use.connections_max
        return None if use.connections < most else use.bound_reached_text(most, "connections")

    def count_refused(self, peer: Peer) -> None:
        """The connection is one too many."""
        self._of(peer).refused += 1

    def _of(self, peer: Peer) -> Use:
        """For whom an open connection counts."""
        if peer.neighbour is not None:
            return self.neighbours.get(peer.neighbour.config.name, self.anonymous)
        return self.by_name.get(peer.amqp.authenticated_user or "", self.anonymous)

    def who(self, peer: Peer) -> str:
        """The user by whom it came, or the address of one without a name; for people, too."""
        use = peer.use
        return f"user {use.name!r}" if use is not None and use.kind == "user" else f"address {host_of(peer.address)}"

    def left(self, peer: Peer) -> None:
        """The connection is gone."""
        if peer.use is not None:
            peer.use.connections -= 1
            peer.use.links -= peer.counted_links
            peer.use, peer.counted_links = None, 0

    # ------------------------------------------------------------------------------------------------ links

    def count_links(self, peer: Peer) -> None:
        """Brings the count of its user's links up to date."""
        if peer.use is not None:
            peer.use.links += peer.amqp.links - peer.counted_links
            peer.counted_links = peer.amqp.links

    def too_many_links(self, peer: Peer) -> str | None:
        """Why the link that was just attached is one too many; None where it is not."""
        self.count_links(peer)
        use = peer.use
        if use is None or use.links <= use.links_max:
            return None
        self.core.memory.measure_changed()  # links of its other connections may have ended since
        if use.links <= use.links_max:
            return None
        use.refused += 1
        return use.bound_reached_text(use.links_max, "links")

    def wake(self) -> None:
        """Once a turn: consumers whose user has room again, a bounded number of each."""
        for use in list(self.waking):
            use.wake()

    # ------------------------------------------------------------------------------------------------ requests

    def admit_request(self, link: Requesting) -> bool:
        """Counts a request of that link, or has it wait for its user's time. Whether it is carried out now."""
        use = link.peer.use
        if link in self.granted:
            del self.granted[link]
            return True
        if use is None or (not use.waiting and use.count_request(self.core.clock.now)):
            return True
        use.requests_delayed += 1
        self.waiting[link] = use
        use.waiting[link] = self.uses[use] = None
        return False

    def next_deadline(self) -> float | None:
        """When one of the requests that wait is carried out."""
        return min((use.asks_at for use in self.uses), default=None)

    def tick(self, now: float) -> None:
        """Those whose time has come ask, in the order in which they wait; the others are not looked at."""
        for use in list(self.uses):
            while use.waiting and use.count_request(now):
                link = next(iter(use.waiting))
                self.forget(link)
                self.granted[link] = None
                self.core.links.requests[link] = None
            if not use.waiting:
                self.uses.pop(use, None)

    def forget(self, link: Requesting) -> None:
        """It waits no more."""
        self.granted.pop(link, None)
        use = self.waiting.pop(link, None)
        if use is not None:
            use.waiting.pop(link, None)
            if not use.waiting:
                self.uses.pop(use, None)

    # ------------------------------------------------------------------------------------------------ reports

    def status(self) -> list[dict[str, Any]]:
        """As `status` tells it: of who is here, was refused something, or left consumers that are kept for it."""
        everyone = [self.anonymous, *self.by_name.values(), *self.neighbours.values()]
        return [use.status() for use in everyone if use.is_known]
