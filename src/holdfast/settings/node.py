"""The settings of a NodeCore at start: frozen, validated, every field with its unit.

Rules of this package: data only; TOML and files are read in `node/config.py`. `validate` raises ConfigError with the
key, the invalid value and what is expected.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.access.rules import NO_ACCESS, AccessConfig
from holdfast.broker.bands import check_bands
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, host_of, hosted, node_of, shown
from holdfast.errors import ConfigError
from holdfast.federation.settings import Entry, check_entries, check_federated_topic
from holdfast.names import check_name
from holdfast.pacing.settings import NO_PACING, PacingConfig
from holdfast.routing.settings import DEFAULT_ROUTING, RoutingConfig
from holdfast.routing.topology import ROLES, Topology
from holdfast.settings.checks import one_of, positive
from holdfast.settings.hosts import HOSTS_MAX, UserConfig, VhostConfig, check_hostname
from holdfast.settings.limits import DEFAULT_LIMITS, Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import DEFAULT_DEAD_LETTERS, DeadLettersConfig, LinkConfig, QueueConfig, TriggerConfig
from holdfast.settings.remotes import RemoteConfig, check_remotes
from holdfast.settings.subscriptions import SubscriptionConfig

UNKNOWN_DESTINATION: Final = ("refuse", "keep", "dead-letter")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node. `create_queues`: any address that a client names becomes a durable queue. `telemetry`: whether
    anybody reads the periodic records.

    `audit`: whether there is an audit log. `forwarding`: (destination, neighbour that its messages go to next); a
    neighbour needs none to be reached itself. With a `topology` (docs/topology.md) the routes are computed, but for
    those that `forwarding` gives; `roles` and `neighbours` agree with it. `unknown_destination`: what becomes of
    clients' messages for a node of which nothing is known (endpoints/addresses/resolver.py). `own_addresses`: HOST and
    HOST:PORT that mean this node behind an address's `@`. `has_users_file`: there are users in a file, which the driver
    reads and reports. `plain_without_tls`: a password may come as it is from another machine, without TLS. `hostnames`:
    what else clients call the node where it has `vhosts`, as the hostname of their connection. `federation`: the topics
    that go to neighbours (docs/federation.md), or to `remotes`, brokers that are no nodes (docs/remotes.md).
    """

    name: str
    roles: tuple[str, ...] = ("client",)
    neighbours: tuple[NeighbourConfig, ...] = ()
    remotes: tuple[RemoteConfig, ...] = ()
    forwarding: tuple[tuple[str, str], ...] = ()
    queues: tuple[QueueConfig, ...] = ()
    subscriptions: tuple[SubscriptionConfig, ...] = ()
    links: tuple[LinkConfig, ...] = ()
    triggers: tuple[TriggerConfig, ...] = ()
    users: tuple[UserConfig, ...] = ()
    vhosts: tuple[VhostConfig, ...] = ()
    hostnames: tuple[str, ...] = ()
    has_users_file: bool = False
    plain_without_tls: bool = True
    create_queues: bool = False
    unknown_destination: str = "refuse"
    own_addresses: tuple[str, ...] = ()
    telemetry: bool = True
    telemetry_messages: bool = False
    telemetry_interval_s: float = 1.0
    audit: bool = False
    dead_letters: DeadLettersConfig = DEFAULT_DEAD_LETTERS
    limits: Limits = DEFAULT_LIMITS
    topology: Topology | None = None
    routing: RoutingConfig = DEFAULT_ROUTING
    pacing: PacingConfig = NO_PACING
    federation: tuple[Entry, ...] = ()
    access: AccessConfig = NO_ACCESS

    @property
    def has_users(self) -> bool:
        """Whether only users may log in."""
        return bool(self.users) or self.has_users_file

    def kind_of_link(self, neighbour: str) -> str | None:
        """What the topology says of the link to that neighbour; None without one."""
        return None if self.topology is None else self.topology.kind_between(self.name, neighbour)

    def validate(self) -> None:
        """Raises ConfigError at the first key that is wrong."""
        check_name(self.name)
        self.dead_letters.validate()
        self.limits.validate()
        self.routing.validate()
        for role in self.roles:
            one_of("node roles", role, ROLES)
        one_of("node unknown_destination", self.unknown_destination, UNKNOWN_DESTINATION)
        positive("telemetry interval_s", self.telemetry_interval_s)
        for what, names in (
            ("neighbour", [neighbour.name for neighbour in self.neighbours]),
            ("vhost", [host.name for host in self.vhosts]),
            ("trigger", [trigger.name for trigger in self.triggers]),
            ("route", [destination for destination, _ in self.forwarding]),
        ):
            seen = set()
            for name in names:
                if name in seen:
                    raise ConfigError(f"{what} {name!r} is listed twice; list it once")
                seen.add(name)
        self._validate_hosts()
        self._validate_certificates()
        users = {user.name for user in self.users if user.vhost == DEFAULT_HOST}
        for neighbour in self.neighbours:
            neighbour.validate()
            if neighbour.password is not None and neighbour.user in users:
                raise ConfigError(
                    f"neighbour {neighbour.name!r} has user {neighbour.user!r}, which is also a [[user]] of this node "
                    "and could speak as that neighbour; give the neighbour a user of its own"
                )
            if neighbour.name == self.name:
                raise ConfigError(f"neighbour {neighbour.name!r} has the node's own name; give another node's name")
        neighbours = [neighbour.name for neighbour in self.neighbours]
        for destination, via in self.forwarding:
            check_name(destination)
            if destination == self.name:
                raise ConfigError(f"route {destination!r} leads to the node itself; give the name of another node")
            if via not in neighbours:
                expected = f"the name of a [[neighbour]] ({', '.join(neighbours) or 'there is none'})"
                raise ConfigError(f"invalid value {via!r} for route {destination!r} via; expected {expected}")
        for host in self.pacing.hosts:
            if host not in {item.name for item in self.vhosts}:
                raise ConfigError(f"invalid value {host!r} in pacing hosts; expected the name of a [[vhost]]")
        self.pacing.validate(self.name, {*neighbours, *dict(self.forwarding)} if self.topology is None else None)
        check_bands("pacing", self.pacing.room_low, self.pacing.room_normal, self.pacing.room_quiet_s)
        self._validate_remotes()
        for entry in self.federation:
            check_federated_topic(entry.topic)
        check_entries(self.federation, self.name, set(neighbours), {remote.name for remote in self.remotes})
        for queue in self.queues:
            queue.validate()
        for number, subscription in enumerate(self.subscriptions):
            subscription.validate()
            if subscription.shown in (other.shown for other in self.subscriptions[:number]):
                raise ConfigError(f"subscription {subscription.shown} is listed twice; list it once")
        for link in self.links:
            link.validate()
        for trigger in self.triggers:
            trigger.validate()
        self._validate_access()

    def transmission(self, destination: str) -> QueueConfig:
        """The settings of the queue of what waits for that destination."""
        pacing, name, host = self.pacing, f"@{destination}", host_of(destination)
        is_paced = node_of(destination) in pacing.roots and (not host or host in pacing.hosts)
        if pacing.when_full is None or not is_paced:
            return QueueConfig(name=name, vhost=host)
        return QueueConfig(
            name=name, vhost=host, bytes_max=pacing.capacity_bytes, when_full=pacing.when_full,
            room_low=pacing.room_low, room_normal=pacing.room_normal, room_quiet_s=pacing.room_quiet_s,
        )  # fmt: skip

    def own_queue(self, name: str) -> QueueConfig | None:
        """The settings of the transmission queue @DESTINATION, or the queue ADDRESS@REMOTE, of that name; None for
        another queue."""
        if name.startswith("@"):
            return self.transmission(name[1:])
        address, at, remote = name.rpartition("@")
        return next((item.queue(address) for item in self.remotes if at and item.name == remote), None)

    def may_leave(self, host: str) -> bool:
        """Whether messages of that virtual host may cross to any neighbour."""
        return not host or any(host in neighbour.hosts for neighbour in self.neighbours)

    @property
    def dialled(self) -> tuple[NeighbourConfig | RemoteConfig, ...]:
        """What this node may dial."""
        return (*self.neighbours, *self.remotes)

    def _validate_remotes(self) -> None:
        """A remote has a name of its own: ADDRESS@NAME is either at it or at a node."""
        taken = {} if self.topology is None else {node.name: "a node of the topology" for node in self.topology.nodes}
        taken |= {destination: "the destination of a [[route]]" for destination, _ in self.forwarding}
        taken |= {neighbour.name: "a [[neighbour]]" for neighbour in self.neighbours}
        check_remotes(self.remotes, taken | {self.name: "the node itself"})

    def _validate_certificates(self) -> None:
        """A certificate is one user's, whom several virtual hosts may have."""
        whose: dict[str, str] = {}
        for user in self.users:
            if user.certificate is not None and whose.setdefault(user.certificate, user.name) != user.name:
                first = whose[user.certificate]
                text = f"users {first!r} and {user.name!r} have the certificate {user.certificate!r}"
                raise ConfigError(f"{text}; give it to one of them")

    def _validate_access(self) -> None:
        """Rules name users that may log in, and accounts by which neighbours' messages are published."""
        rules = self.access.rules
        if rules and not self.has_users:
            raise ConfigError(f"access {rules[0].name!r} is there without a [[user]]; add users, or remove the rules")
        known = {user.key for user in self.users}
        for neighbour in self.neighbours:
            crossing = [hosted(host, neighbour.account) for host in neighbour.hosts]
            for key in crossing:
                if rules and key in known:
                    text = f"user {neighbour.account!r} of a virtual host in hosts of neighbour {neighbour.name!r}"
                    raise ConfigError(f"{text} has the name of the neighbour's account; give it another name")
        accounts = {hosted(host, item.account) for item in self.neighbours for host in (DEFAULT_HOST, *item.hosts)}
        accounts |= {hosted(DEFAULT_HOST, item.name) for item in self.remotes}
        logins = {hosted(DEFAULT_HOST, item.user) for item in self.neighbours if item.user}
        users = None if self.has_users_file else known | accounts | logins
        self.access.validate([host.name for host in self.vhosts], users)

    def _validate_hosts(self) -> None:
        """Virtual hosts have distinct names, and every reference to one names an existing one."""
        if len(self.vhosts) > HOSTS_MAX:
            raise ConfigError(f"there are {len(self.vhosts)} [[vhost]]; the limit is {HOSTS_MAX}")
        for text in self.hostnames:
            check_hostname("node hostnames", text)
        taken = {name.casefold(): "the node itself" for name in (self.name, "localhost", *self.hostnames)}
        for host in self.vhosts:
            host.validate()
            for text in (host.name, *host.aliases):
                whose = taken.setdefault(text.casefold(), f"vhost {host.name!r}")
                if whose != f"vhost {host.name!r}":
                    raise ConfigError(f"{text!r} of vhost {host.name!r} is a name of {whose}; give another one")
        names = [host.name for host in self.vhosts]
        listed: set[tuple[str, HostedName]] = set()
        for what, items in (("queue", self.queues), ("link", self.links), ("user", self.users)):
            for item in items:
                if (what, item.key) in listed:
                    raise ConfigError(f"{what} {shown(item.vhost, item.name)} is listed twice; list it once")
                listed.add((what, item.key))
        for what, all_items in (
            ("queue", self.queues), ("link", self.links), ("user", self.users), ("trigger", self.triggers),
            ("subscription", self.subscriptions),
        ):  # fmt: skip
            for each in all_items:
                if each.vhost and each.vhost not in names:
                    expected = f"expected the name of a [[vhost]] ({', '.join(names) or 'there is none'})"
                    raise ConfigError(f"invalid value {each.vhost!r} for {what} {each.name!r} vhost; {expected}")
        for neighbour in self.neighbours:
            for name in neighbour.hosts:
                if name not in names:
                    expected = f"expected names of [[vhost]] ({', '.join(names) or 'there is none'})"
                    raise ConfigError(f"invalid value {name!r} for neighbour {neighbour.name!r} hosts; {expected}")
            if len(set(neighbour.hosts)) < len(neighbour.hosts):
                raise ConfigError(f"neighbour {neighbour.name!r} hosts lists a virtual host twice; list it once")
