"""What one user or neighbour uses of the node, and its bounds."""

from collections.abc import Container
from itertools import islice
from typing import Any, Final, Protocol

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.work import Work
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits

ANONYMOUS: Final = "anonymous"
"""The name in `status` for all peers without a user name."""

ROUNDING: Final = 1e-6
"""Tolerance of a request's time, so that a rounding error does not delay a request that is due."""

LINKS_WOKEN: Final = 1_000
"""Consumers that are offered messages again in one turn when their user has settled some."""


class Blocked(EntryConsumer, Protocol):
    """A consumer that gets no messages until some of its user's messages are settled, and it is offered some in the
    round."""

    cursor: Cursor


class Turn:
    """A consumer of the round is offered messages."""

    __slots__ = ("end", "had_room")

    def __init__(self, end: int) -> None:
        self.end = end
        """One past the last message that its queue had when its turn began."""
        self.had_room = True
        """Whether there was room when it was asked in this turn of the loop."""


class Use:
    """What one user or neighbour uses of the node, and its bounds. `kind`: user, neighbour, remote or anonymous."""

    __slots__ = (
        "_at",
        "_own",
        "_tokens",
        "_waking",
        "blocked_consumers",
        "connections",
        "connections_max",
        "crowded",
        "host",
        "kind",
        "links",
        "links_max",
        "logins_failed",
        "name",
        "offered_now",
        "refused",
        "requests",
        "requests_delayed",
        "requests_per_s",
        "round_length",
        "unsettled_bytes",
        "unsettled_bytes_max",
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
        own = config or UserConfig(name=name, password="")
        self.kind = kind
        self.name = name
        self.host = own.vhost
        self._bound_by(own, limits)
        self.connections = 0
        self.links = 0
        self.unsettled_bytes = 0
        """Bytes of messages that its consumers hold unsettled."""
        self.crowded = False
        """Whether too many of its consumers' rejected or annotated messages wait (endpoints/settlements.py)."""
        self.requests = 0
        """Requests to `$management`, since the node's start."""
        self.requests_delayed = 0
        self.refused = 0
        """Connections and links refused at its limits."""
        self.logins_failed = 0
        self.blocked_consumers: dict[Blocked, None] = {}
        """Consumers that get nothing until some of the user's messages are settled. The one that has waited the longest
        is first."""
        self.round_length = 0
        """How many of the blocked consumers, from the first on, are in the round: those that waited when the bound was
        last met. Each of them is offered messages before any other consumer gets something."""
        self.offered_now: dict[Blocked, Turn] = {}
        """Consumers of the round that are offered messages now; they are not among the blocked ones. Each stays until
        it was handed something, or took nothing though there was room and it was asked about all that its queue had, or
        wanted nothing."""
        self._waking = waking
        self._tokens = float(self.requests_per_s)
        self._at = now

    def _bound_by(self, own: UserConfig, limits: Limits) -> None:
        self._own = own
        self.connections_max = own.connections_max or limits.user_connections_max
        self.links_max = own.links_max or limits.user_links_max
        self.unsettled_bytes_max = own.unsettled_bytes_max or limits.user_unsettled_bytes_max
        self.requests_per_s = own.requests_per_s or limits.user_requests_per_s

    def change(self, own: UserConfig, limits: Limits) -> None:
        """Sets its bounds; connections and links beyond them stay."""
        self._bound_by(own, limits)
        self.settled(0)

    def bound_reached_text(self, count: int, what: str) -> str:
        """The text that it has `count` of `what` (connections or links) and gets no more, with the name of the
        bound."""
        who = "clients without a name have" if self.kind == ANONYMOUS else f"{self.kind} {self.name!r} has"
        whom = "they" if self.kind == ANONYMOUS else "it"
        key = f"{what}_max of the [[user]]" if getattr(self._own, f"{what}_max") else f"user_{what}_max"
        return f"{who} {count} {what}, the most {whom} may have ({key})"

    def count_request(self, now: float) -> bool:
        """Counts one request; False if it has to wait."""
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
        """When the next request may be carried out."""
        return self._at + max(0.0, 1 - self._tokens) / self.requests_per_s

    def given(self, size: int) -> None:
        """One of its consumers was sent messages of `size` bytes."""
        self.unsettled_bytes += size

    @property
    def is_full(self) -> bool:
        """Whether its consumers get no messages now."""
        return self.crowded or self.unsettled_bytes >= self.unsettled_bytes_max

    def settled(self, size: int) -> None:
        """Messages of `size` bytes were settled or requeued."""
        self.unsettled_bytes -= size
        if (self.blocked_consumers or self.offered_now) and not self.is_full:
            self._waking[self] = None

    def block_if_full(self, link: Blocked) -> bool:
        """Whether the consumer gets nothing now, because there is no room, or because others have waited longer for
        what there is. Then it is among the blocked consumers, or stays offered, and is offered messages again later:
        not before `wake`, so that within a share of work it is not passed over for one entry and then given the next.
        """
        offered, is_full = self.offered_now, self.is_full
        if not is_full and (link in offered or not (offered or self.round_length or link in self.blocked_consumers)):
            return False
        if link in offered:
            offered[link].had_room = False
        else:
            self.blocked_consumers[link] = None
        if is_full:
            self.round_length = len(self.blocked_consumers)
        else:
            self._waking[self] = None
        return True

    def wake(self) -> None:
        """If there is room, offers messages again to `offered_now`; if that is empty, to the next blocked consumers, at
        most LINKS_WOKEN: first those of the round. Once the round is over, the others are offered messages again in the
        order in which they were blocked, without waiting for one another."""
        if self.is_full:
            self._waking.pop(self, None)
            return
        blocked, offered = self.blocked_consumers, self.offered_now
        in_round = bool(offered or self.round_length)
        woken = list(offered or islice(blocked, min(LINKS_WOKEN, self.round_length or LINKS_WOKEN)))
        if not offered:
            for link in woken:
                del blocked[link]
            self.round_length = max(0, self.round_length - len(woken))
        for link in woken:
            if in_round:
                turn = offered.setdefault(link, Turn(link.cursor.queue.visible))
                turn.had_room = True
            link.cursor.queue.touch()

    def offered(self, left: Container[EntryLog], work: Work[Any]) -> None:
        """The queues of the woken consumers were offered, except those that are `left` for the next turn. A consumer
        that took nothing, though there was room, is no longer in the round, so that nobody waits for it; unless it was
        not asked, or the search for what it can have goes on in the next turn, and it wants something."""
        offered = self.offered_now
        for link, turn in list(offered.items()):
            cursor = link.cursor
            if not turn.had_room or cursor.queue in left or cursor in work.unreached or cursor.returning:
                continue
            is_searched = cursor in work.cut_short and cursor.asked_up_to(link) < turn.end
            if not (is_searched and (self.is_full or link.will_want() > 0)):
                del offered[link]
        if self.is_full or not (offered or self.blocked_consumers):
            self._waking.pop(self, None)

    @property
    def waiting_consumers(self) -> "list[Blocked]":
        """All its consumers that wait for room, or for others of the round."""
        return [*self.offered_now, *self.blocked_consumers]

    def served(self, link: Blocked) -> None:
        """The consumer was handed something: it is no longer in the round."""
        self.offered_now.pop(link, None)

    def leave(self, link: Blocked) -> None:
        """The consumer's link has ended."""
        self.offered_now.pop(link, None)
        self.blocked_consumers.pop(link, None)
        self.round_length = min(self.round_length, len(self.blocked_consumers))

    @property
    def is_known(self) -> bool:
        """Whether `status` shows it."""
        return any((self.connections, self.requests, self.refused, self.logins_failed, self.unsettled_bytes))

    def status(self) -> dict[str, Any]:
        return {
            "user": self.name,
            "kind": self.kind,
            "connections": self.connections,
            "connections_max": self.connections_max,
            "links": self.links,
            "links_max": self.links_max,
            "unsettled_bytes": Ulong(max(0, self.unsettled_bytes)),  # a defect here must not break `status`
            "unsettled_bytes_max": Ulong(self.unsettled_bytes_max),
            "requests": Ulong(self.requests),
            "requests_per_s": self.requests_per_s,
            "requests_delayed": Ulong(self.requests_delayed),
            "refused": Ulong(self.refused),
            "logins_failed": Ulong(self.logins_failed),
        }
