"""What each user and each neighbour uses of the node, and their bounds.

Rules of this file: a peer counts for the neighbour that it is, or else for the user as which it logged in; all peers
without a name count together. Whatever exceeds a bound is refused, or waits, except a neighbour's control link. The
names are those of the configuration, so their number is bounded.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted, read_key, shown
from holdfast.broker.entries.work import Work
from holdfast.engine.clock import Clock
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer, Requesting, host_of
from holdfast.peers.use import ANONYMOUS, Use
from holdfast.settings.hosts import UserConfig
from holdfast.settings.node import NodeConfig

COUNTED: Final = ("refused", "requests", "requests_delayed")
"""Counters of a user that have a total."""


class Users:
    """Counts connections, links and requests for each user and neighbour, and refuses or delays those beyond a
    bound."""

    def __init__(
        self, config: NodeConfig, clock: Clock, memory: Memory, links: LinkTables, connections: Connections
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._links = links
        self._connections = connections
        now = clock.now
        self.waking: dict[Use, None] = {}
        """Users with room and blocked consumers."""
        self._limits = config.limits
        self._configured = {user.key for user in config.users}
        limits, waking = config.limits, self.waking
        self.anonymous = Use(ANONYMOUS, ANONYMOUS, limits, None, now, waking)
        self.by_name = {user.key: Use("user", user.name, limits, user, now, waking) for user in config.users}
        self.neighbours: dict[str, Use] = {}
        """Of neighbours and remotes."""
        self._gone: Counter[str] = Counter()
        """What users and neighbours that were removed had counted."""
        self.reach(config)
        self.waiting: dict[Requesting, Use] = {}
        """Links with requests whose user's time has not come."""
        self.granted: dict[Requesting, None] = {}
        """Links that have waited, and of which one request is carried out next."""
        self.uses: dict[Use, dict[Requesting, None]] = {}
        """By user with waiting requests: the links whose requests are not due yet, the next one first."""
        self._unsettled: list[Callable[[], Iterable[tuple[Use | None, int]]]] = []
        links.wait_in("requests of users", lambda: self.waiting)
        links.wait_in("requests granted", lambda: self.granted)
        links.serve_in("blocked consumers", lambda: [link for use in self.all() for link in use.waiting_consumers])

    def know(self, names: Iterable[HostedName]) -> None:
        """Sets the users of the file of users; a removed one is counted as long as it has connections."""
        wanted = dict.fromkeys(names)
        for key, use in list(self.by_name.items()):
            if key not in self._configured and key not in wanted and not use.connections and not use.unsettled_bytes:
                del self.by_name[key]
                self._forget_use(use)
        for key in wanted:
            if key not in self.by_name:
                host, name = read_key(key)
                self._add(UserConfig(name=name, password="", vhost=host))  # with the bounds of all

    def configure(self, users: Sequence[UserConfig], stored: Iterable[HostedName]) -> None:
        """Sets the users of the node's own file; those of the file of users are `stored`."""
        self._configured = {user.key for user in users}
        for user in users:
            use = self.by_name.get(user.key)
            if use is None:
                self._add(user)
            else:
                use.change(user, self._limits)
        self.know(stored)

    def _add(self, user: UserConfig) -> None:
        self.by_name[user.key] = Use("user", user.name, self._limits, user, self._clock.now, self.waking)

    def reach(self, config: NodeConfig) -> None:
        """Sets the neighbours and remotes. One that is neither any more, or the other of the two, has no connection."""
        kinds = dict.fromkeys([item.name for item in config.neighbours], "neighbour")
        kinds |= dict.fromkeys([item.name for item in config.remotes], "remote")
        for name, use in list(self.neighbours.items()):
            if kinds.get(name) != use.kind:
                del self.neighbours[name]
                self._forget_use(use)
        for name, kind in kinds.items():
            if name not in self.neighbours:
                self.neighbours[name] = Use(kind, name, self._limits, None, self._clock.now, self.waking)

    def _forget_use(self, use: Use) -> None:
        self.waking.pop(use, None)
        for key in COUNTED:
            self._gone[key] += getattr(use, key)

    def all(self) -> list[Use]:
        """The use of each user, each neighbour and each remote."""
        return [self.anonymous, *self.by_name.values(), *self.neighbours.values()]

    # ------------------------------------------------------------------------------------------------ connections

    def enter(self, peer: Peer) -> str | None:
        """Counts an open connection for its user or neighbour. If that one has too many, returns the reason, with which
        the caller closes the connection."""
        reason = self.too_many_connections(peer)
        if reason is not None:
            self.count_refused(peer)
            return reason
        peer.use = use = self._of(peer)
        use.connections += 1
        return None

    def too_many_connections(self, peer: Peer) -> str | None:
        """Why the connection is one too many for its user or neighbour; None if it is not."""
        use = self._of(peer)
        most = use.connections_max
        return None if use.connections < most else use.bound_reached_text(most, "connections")

    def count_refused(self, peer: Peer) -> None:
        """Counts a refused connection."""
        self._of(peer).refused += 1

    def _of(self, peer: Peer) -> Use:
        """The user or neighbour for which an open connection counts."""
        known = peer.neighbour or peer.remote
        if known is not None:
            return self.neighbours.get(known.name, self.anonymous)
        name = hosted(peer.host, peer.amqp.authenticated_user or "")
        return self.by_name.get(name, self.anonymous)

    def who(self, peer: Peer) -> str:
        """The user of the connection, or its address if it has none."""
        use = peer.use
        is_user = use is not None and use.kind == "user"
        return (
            f"user {shown(use.host, use.name)}" if use is not None and is_user else f"address {host_of(peer.address)}"
        )

    def left(self, peer: Peer) -> None:
        """The connection has ended."""
        if peer.use is not None:
            peer.use.connections -= 1
            peer.use.links -= peer.counted_links
            peer.use, peer.counted_links = None, 0

    # ------------------------------------------------------------------------------------------------ links

    def count_links(self, peer: Peer) -> None:
        """Updates the count of its user's links."""
        if peer.use is not None:
            peer.use.links += peer.amqp.links - peer.counted_links
            peer.counted_links = peer.amqp.links

    def too_many_links(self, peer: Peer) -> str | None:
        """Why the link that was just attached is one too many; None if it is not."""
        self.count_links(peer)
        use = peer.use
        if use is None or use.links <= use.links_max:
            return None
        self._memory.measure_changed()  # links of its other connections may have ended since
        if use.links <= use.links_max:
            return None
        use.refused += 1
        return use.bound_reached_text(use.links_max, "links")

    def wake(self) -> None:
        """Called once a turn: wakes consumers whose user has room again, a bounded number for each user."""
        for use in list(self.waking):
            use.wake()

    def offered(self, left: Container[EntryLog], work: Work[Any]) -> None:
        """Called after `wake`, when queues were offered, except those that are `left` for the next turn."""
        for use in list(self.waking):
            use.offered(left, work)

    # ------------------------------------------------------------------------------------------------ requests

    def admit_request(self, link: Requesting) -> bool:
        """Counts a request of that link; False if it has to wait because of its user's rate."""
        use = link.peer.use
        if link in self.granted:
            del self.granted[link]
            return True
        if use is None or (use not in self.uses and use.count_request(self._clock.now)):
            return True
        use.requests_delayed += 1
        self.waiting[link] = use
        self.uses.setdefault(use, {})[link] = None
        return False

    def next_deadline(self) -> float | None:
        """When one of the waiting requests may be carried out."""
        return min((use.asks_at for use in self.uses), default=None)

    def tick(self, now: float) -> None:
        """Carries out waiting requests whose time has come, in order."""
        for use, waiting in list(self.uses.items()):
            while waiting and use.count_request(now):
                link = next(iter(waiting))
                self.forget(link)
                self.granted[link] = None
                self._links.requests[link] = None

    def forget(self, link: Requesting) -> None:
        """The link no longer waits."""
        self.granted.pop(link, None)
        use = self.waiting.pop(link, None)
        if use is not None:
            del self.uses[use][link]
            if not self.uses[use]:
                del self.uses[use]

    # ------------------------------------------------------------------------------------------------ counted anew

    def unsettled_in(self, count: Callable[[], Iterable[tuple[Use | None, int]]]) -> None:
        """Registers a holder of unsettled messages; `count` returns the users and bytes."""
        self._unsettled.append(count)

    def unsettled(self) -> Counter[Use | None]:
        """By user: bytes of messages that its consumers hold unsettled."""
        found: Counter[Use | None] = Counter()
        for count in self._unsettled:
            for use, size in count():
                found[use] += size
        return found

    def recover(self) -> None:
        """Counts again what each user has, from its connections and consumers."""
        unsettled = self.unsettled()
        for use in self.all():
            mine = [peer for peer in self._connections.values() if peer.use is use]
            use.connections, use.links = len(mine), sum(peer.counted_links for peer in mine)
            use.unsettled_bytes = unsettled[use]
            use.settled(0)  # there may be room again

    # ------------------------------------------------------------------------------------------------ reports

    def totals(self) -> dict[str, int]:
        """What is counted of all users and neighbours of all hosts since the start, those that were removed included:
        none of it ever falls."""
        uses = self.all()
        return {key: self._gone[key] + sum(getattr(use, key) for use in uses) for key in COUNTED}

    def status(self, host: str) -> list[dict[str, Any]]:
        """The rows of `status` in that host: users that are connected, were refused something, or have suspended
        consumers."""
        uses = self.all() if host == DEFAULT_HOST else self.by_name.values()
        return [use.status() for use in uses if use.is_known and use.host == host]
