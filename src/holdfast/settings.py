"""What a NodeCore is told at start: frozen, validated, every field with its unit.

Rules of this file: data only; TOML and files are read in `node/config.py`. `validate` raises ConfigError with the
key, the invalid value and what is expected.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.broker.bands import QUIET_S, check_bands
from holdfast.broker.entries.address import QUEUES_PREFIX, without_alias
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted, shown
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.pacing.settings import NO_PACING, PacingConfig
from holdfast.routing.settings import DEFAULT_ROUTING, RoutingConfig
from holdfast.routing.topology import ROLES, Topology
from holdfast.units import MIB

WHEN_FULL: Final = ("block", "refuse", "drop-oldest", "dead-letter")
LINK_MODES: Final = ("move", "copy")
ORDERS: Final = ("strict", "bounded", "none")
UNKNOWN_DESTINATION: Final = ("refuse", "keep", "dead-letter")
DELIVERIES_MAX_MOST: Final = 10_000
"""Bounds what is stored of the earlier lives of a node, for each cursor."""
ORDER_WAIT_S_MAX: Final = 86_400 * 365
KEEP_S_MAX: Final = 86_400 * 3_650
HOST_BYTES_MAX: Final = 63
"""A virtual host's name in UTF-8: the store's keys hold it beside a queue's."""
HOSTS_MAX: Final = 256
ALIAS_BYTES_MAX: Final = 253
"""A name by which others find the node (RFC 1035, 2.3.4)."""
PROBE_S_MIN: Final = 0.005
"""A node that probed its neighbours more often would do little else."""

PROBE_S_BY_KIND: Final = {"tcp": 0.05, "tls": 0.05, "serial": 1.0}
"""How long an idle link of that kind goes unprobed, where nothing is configured: a LAN, and a line of 9,600 baud."""


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"invalid value {value!r} for {key}; expected one of {', '.join(choices)}")


def _positive(key: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"invalid value {value!r} for {key}; expected a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """One durable queue (docs/configuration.md, `[[queue]]`).

    `bytes_max` counts bodies and message sections as they came, in bytes; `messages_max` entries. At either bound
    `block` withholds credit and `refuse` rejects. `order` and `order_wait_s` (seconds) hold for what arrives from
    other nodes. `durable` False keeps entries in memory, and takes nothing from other nodes. A message whose delivery
    has failed `deliveries_max` times becomes a dead letter. With `priorities` consumers are handed the highest first.
    `room_low` and `room_normal`: the part of the bounds that clients' messages of priority 0 to 3, and of 4, may fill;
    all of it once nothing of a higher priority has come for `room_quiet_s` seconds (broker/bands.py).
    """

    name: str
    bytes_max: int | None = None
    messages_max: int | None = None
    when_full: str = "block"
    order: str = "bounded"
    order_wait_s: float = 30.0
    durable: bool = True
    deliveries_max: int | None = None
    priorities: bool = False
    room_low: float = 1.0
    room_normal: float = 1.0
    room_quiet_s: float = QUIET_S
    vhost: str = DEFAULT_HOST

    @property
    def key(self) -> HostedName:
        """The queue's name among those of all hosts."""
        return hosted(self.vhost, self.name)

    def validate(self) -> None:
        """Raises ConfigError that names the queue and the key."""
        check_name(self.name)
        where = f"queue {self.name!r}"
        if without_alias(self.name) != self.name:
            text = f"expected one that begins neither with {QUEUES_PREFIX} nor as a URL"
            raise ConfigError(f"invalid name of {where}; {text}")
        _one_of(f"{where} when_full", self.when_full, WHEN_FULL)
        _one_of(f"{where} order", self.order, ORDERS)
        _positive(f"{where} bytes_max", self.bytes_max)
        _positive(f"{where} messages_max", self.messages_max)
        check_bands(where, self.room_low, self.room_normal, self.room_quiet_s)
        if min(self.room_low, self.room_normal) < 1 and self.bytes_max is None and self.messages_max is None:
            raise ConfigError(f"{where} has room_low or room_normal without a bound; add bytes_max or messages_max")
        if min(self.room_low, self.room_normal) < 1 and self.when_full == "drop-oldest":
            text = "expected block, refuse or dead-letter beside room_low or room_normal"
            raise ConfigError(f"invalid value 'drop-oldest' for {where} when_full; {text}")
        if self.deliveries_max is not None and not 1 <= self.deliveries_max <= DELIVERIES_MAX_MOST:
            text = f"invalid value {self.deliveries_max!r} for {where} deliveries_max; expected a whole number"
            raise ConfigError(f"{text} from 1 to {DELIVERIES_MAX_MOST:,}")
        if not 0 <= self.order_wait_s <= ORDER_WAIT_S_MAX:
            text = f"invalid value {self.order_wait_s!r} for {where} order_wait_s; expected a number of seconds"
            raise ConfigError(f"{text} from 0 to {ORDER_WAIT_S_MAX} (a year)")


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostConfig:
    """A virtual host (docs/virtual-hosts.md, `[[vhost]]`): queues, users and links of its own. `aliases`: what clients
    may call it beside `name`, as the hostname of their connection. The bounds are those of all its users together."""

    name: str
    aliases: tuple[str, ...] = ()
    connections_max: int | None = None
    queues_max: int | None = None

    def validate(self) -> None:
        """Raises ConfigError that names the host and the key."""
        check_name(self.name)
        where = f"vhost {self.name!r}"
        if len(self.name.encode()) > HOST_BYTES_MAX:
            raise ConfigError(f"invalid name of {where}; expected at most {HOST_BYTES_MAX} bytes")
        for alias in self.aliases:
            check_hostname(f"{where} aliases", alias)
        _positive(f"{where} connections_max", self.connections_max)
        _positive(f"{where} queues_max", self.queues_max)


def check_hostname(key: str, text: str) -> None:
    """ConfigError where no client can give that as the hostname of its connection."""
    if not text or not text.isprintable() or " " in text or len(text.encode()) > ALIAS_BYTES_MAX:
        expected = f"expected names of 1 to {ALIAS_BYTES_MAX} printable bytes without spaces"
        raise ConfigError(f"invalid value {text[:60]!r} for {key}; {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """A link between queues (docs/links.md, `[[link]]`): from the queue `source` of this node to `target`, an address
    as a client's; `selector` "" for all messages; `steps` as JSON (steps/parsing.py), "" for none."""

    name: str
    source: str
    target: str
    selector: str = ""
    mode: str = "move"
    steps: str = ""
    vhost: str = DEFAULT_HOST

    @property
    def key(self) -> HostedName:
        """The link's name among those of all hosts."""
        return hosted(self.vhost, self.name)

    def validate(self) -> None:
        """Raises ConfigError that names the link and the key."""
        check_name(self.name)
        _one_of(f"link {self.name!r} mode", self.mode, LINK_MODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerConfig:
    """A command that is run when `queue` has `messages` or more, or when its oldest message is `age_s` old or older
    (docs/triggers.md, `[[trigger]]`). It is ended after `timeout_s`, and not run again within `rest_s` of its end."""

    name: str
    queue: str
    command: tuple[str, ...]
    messages: int | None = None
    age_s: float | None = None
    rest_s: float = 60.0
    timeout_s: float = 3_600.0
    vhost: str = DEFAULT_HOST
    """Whose queue it is."""

    def validate(self) -> None:
        """Raises ConfigError that names the trigger and the key."""
        check_name(self.name)
        where = f"trigger {self.name!r}"
        check_name(self.queue)
        if not self.command or not all(self.command) or any("\0" in item for item in self.command):
            raise ConfigError(f"invalid value for {where} command; expected a program and its arguments, as a list")
        if self.messages is None and self.age_s is None:
            raise ConfigError(f"{where} has neither messages nor age_s; give one, or both")
        _positive(f"{where} messages", self.messages)
        for key, value in (("age_s", self.age_s), ("rest_s", self.rest_s), ("timeout_s", self.timeout_s)):
            _positive(f"{where} {key}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourConfig:
    """A node that we keep a session with. `remote` HOST:PORT where we dial; None where the other side does.

    `source` HOST or HOST:PORT: the local address that a dial goes out from, the update source of traffic-control §3.2.
    `keepalive_s` is how often the link is measured and our marks are told, `probe_s` how soon an idle one is probed
    (None: by the kind of link that a topology says it is; where none does, `keepalive_s`), `hold_time_s` how
    long silence may last (traffic-control §3.2: the session is managed as BGP's; the smaller of both sides' holds).
    """

    name: str
    remote: str | None = None
    source: str | None = None
    keepalive_s: float = 1.0
    hold_time_s: float = 3.0
    probe_s: float | None = None
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"NeighbourConfig(name={self.name!r}, remote={self.remote!r})"

    def probe_every_s(self, kind: str | None) -> float:
        """After so much silence an idle link is probed; `kind`: what a topology says that it is."""
        if self.probe_s is not None:
            return self.probe_s
        return min(PROBE_S_BY_KIND.get(kind or "", self.keepalive_s), self.keepalive_s)

    def validate(self) -> None:
        """Raises ConfigError that names the neighbour and the key."""
        check_name(self.name)
        where = f"neighbour {self.name!r}"
        if self.probe_s is not None and not PROBE_S_MIN <= self.probe_s <= self.hold_time_s:
            raise ConfigError(
                f"invalid value {self.probe_s} for {where} probe_s; expected a number of seconds from {PROBE_S_MIN:g} "
                f"to hold_time_s ({self.hold_time_s:g})"
            )
        if self.source is not None and self.remote is None:
            raise ConfigError(f"{where} has source without remote; add remote, or remove source")
        _positive(f"{where} keepalive_s", self.keepalive_s)
        _positive(f"{where} hold_time_s", self.hold_time_s)
        if self.hold_time_s < self.keepalive_s:
            raise ConfigError(
                f"invalid value {self.hold_time_s} for {where} hold_time_s; expected at least keepalive_s "
                f"({self.keepalive_s})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersConfig:
    """Bounds of `$dead-letters`: at each the oldest are dropped. `keep_s`: seconds by the wall clock."""

    messages_max: int = 100_000
    bytes_max: int = 1024 * MIB
    keep_s: float = 30 * 86_400

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        _positive("dead_letters messages_max", self.messages_max)
        _positive("dead_letters bytes_max", self.bytes_max)
        if not 1 <= self.keep_s <= KEEP_S_MAX:
            text = f"invalid value {self.keep_s!r} for dead_letters keep_s; expected a number of seconds"
            raise ConfigError(f"{text} from 1 to {KEEP_S_MAX} (ten years)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """Who may log in by SASL PLAIN. The bounds are those of all its connections together; None: as `[limits]` says."""

    name: str
    password: str
    connections_max: int | None = None
    links_max: int | None = None
    unsettled_bytes_max: int | None = None
    requests_per_s: int | None = None
    vhost: str = DEFAULT_HOST

    @property
    def key(self) -> HostedName:
        """The user's name among those of all hosts."""
        return hosted(self.vhost, self.name)

    def __repr__(self) -> str:
        return f"UserConfig(name={self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a node; each is reached with one clear line, never with growth without end."""

    connections_max: int = 2_000
    address_connections_max: int = 1_500
    """Connections from one remote address."""
    reserved_connections_max: int = 64
    """Connections past those two bounds that may still open, for neighbours; who is none is refused then. For one more
    the oldest of them that has not opened goes."""
    handshakes_max: int = 500
    """Connections that have not opened yet; for one more the oldest of them goes."""
    handshake_time_out_s: float = 10.0
    """What a peer has for header, login and open, and for its close once we closed."""
    stream_bytes: int = MIB
    """A delivery that grows past so many bytes is written as it comes, and never whole in memory."""
    streams_max: int = 256
    """Deliveries beyond `stream_bytes` that may be on their way in or wait for room at once, the last quarter of them
    from connections that have none; one more from a client is read and rejected, from a neighbour released."""
    connection_unstored_bytes_max: int = 8 * MIB
    """Bytes read from one connection that no commit has stored yet; beyond it is not read from for a while."""
    unstored_bytes_max: int = 32 * MIB
    """The same of all connections together."""
    neighbours_unstored_bytes_max: int = 32 * MIB
    """Beyond that, of neighbours' alone: their control traffic is read while clients are not."""
    unfinished_bytes_max: int = 16 * MIB
    """Bytes held of deliveries that have not come whole; beyond, each is written as it comes, however small."""
    parked_bytes_max: int = 32 * MIB
    """Bytes held of deliveries that wait for room in their queue, the first of them however large; beyond, one more is
    released, or rejected where the disk is full."""
    idle_time_out_s: float = 60.0
    peer_idle_time_out_min_s: float = 0.1
    """The shortest idle-time-out of a peer's that is kept: half of it is how often it wants an empty frame."""
    frame_bytes_max: int = 65_536
    nesting_max: int = 32
    """Lists in lists, maps, arrays and descriptors, of what frames say; messages are passed on unread."""
    sessions_max: int = 256
    """Sessions per connection."""
    links_max: int = 4_096
    """Links per connection."""
    session_links_max: int = 1_024
    """Links of one session, as its begin says (AMQP's handle-max, which is one less)."""
    incoming_unsettled_max: int = 262_144
    """Deliveries of one session that wait for our outcome."""
    partial_bytes_max: int = 128 * MIB
    """Bytes held per connection of deliveries of which the last frame is still to come."""
    terms_bytes_max: int = 8 * MIB
    """Memory per connection that a peer's open and attaches hold."""
    attaches_per_s: int = 1_000
    """Work per connection, counted in attaches (amqp/effort.py); what is more waits."""
    attaches_burst: int = 2_000
    """The same that may come at once."""
    output_bytes_max: int = 16 * MIB
    """Bytes per connection of answers that were not read."""
    name_bytes_max: int = 16_384
    """A container-id, a hostname, a link's name."""
    requests_max: int = 100
    """Requests to `$management` that one link may have under way."""
    request_bytes_max: int = 65_536
    log_lines_per_minute: int = 60
    """Lines of one cause, for each neighbour, user and address; those left out are counted in the next one."""
    queues_max: int = 20_000
    subscriptions_max: int = 20_000
    queue_subscriptions_max: int = 1_000
    message_bytes_max: int = 8 * 1024 * MIB
    annotation_bytes_max: int = 65_536
    """A message's annotations, which the node reads and keeps."""
    login_failures_max: int = 10
    """Failed logins from one address for one name that are answered at once; the next are looked at one by one."""
    login_retry_s: float = 1.0
    """Seconds between these; as often one failure is forgiven."""
    user_connections_max: int = 1_000
    """Connections per user or neighbour; those without a name count as one user."""
    user_links_max: int = 65_536
    """Links per user or neighbour."""
    user_unsettled_bytes_max: int = 16 * 1024 * MIB
    """Bytes per user or neighbour of messages that its consumers hold unsettled; beyond, they get no more."""
    user_requests_per_s: int = 2_000
    """Requests to `$management` per user or neighbour; what is more waits."""
    memory_bytes_max: int = 512 * MIB
    """Memory that may be held for all peers together: what each other limit bounds, for one purpose or connection."""
    memory_queue_bytes_max: int = 128 * MIB
    """What the messages of all queues that are not durable may take in memory."""
    connection_request_bytes_max: int = 8 * MIB
    """What requests of one connection to `$management` may hold until they are answered."""
    credit: int = 4_000
    """Deliveries that a producer's link may have under way."""
    cache_bytes: int = 8 * MIB
    """Bodies held in memory for consumers that keep up, all queues together."""
    unsettled_max: int = 5_000
    """Entries that one consumer link may hold unsettled."""
    excluded_max: int = 5_000
    """Entries of its queue that one consumer link may have called undeliverable there; one more ends the link."""
    too_large_links_max: int = 5
    """Consumer links that an entry larger than they take ends, before it becomes a dead letter."""
    commit_stall_s: float = 5.0
    """After so long without an answer to a commit the disk counts as stalled: nothing is taken until it answers."""
    ranges_max: int = 1_024
    """Gaps kept for each origin or producer; at the bound what would make one more goes back, or is rejected."""
    producers_max: int = 100_000
    """Producer names kept; at the bound the one that was longest idle is forgotten."""
    origins_max: int = 100_000
    """Stores whose messages came here in custody; at the bound those of one more go back."""
    group_messages_max: int = 1_000
    """Messages of one transaction for one other node that are shown there together; more are shown one by one."""
    group_wait_s: float = 86_400.0
    """Seconds that such messages wait for one of them that does not come; then they are shown without it."""
    delayed_max: int = 100_000
    """Messages that are not to be delivered yet; at the bound one more is rejected."""
    neighbour_links_max: int = 2_000
    """Custody links to one neighbour, one for each destination behind it; further destinations take turns. Of
    `links_max` the neighbour's own need as many."""
    hop_in_doubt_max: int = 2_000
    """Transfers on one custody link that await their answer."""
    dynamic_nodes_max: int = 256
    """Dynamic nodes whose links one connection holds."""
    dynamic_bytes_max: int = 64 * MIB
    """What the messages of all dynamic nodes together may take in memory; at the bound they are refused."""
    resume_links_max: int = 10_000
    """Links whose unsettled state is kept, attached or not; past it a link cannot be resumed."""
    resume_tags_max: int = 16_384
    """Stored delivery-tags remembered of one producer's link: more than may be in doubt with a `credit` of 4,000."""
    transactions_max: int = 64
    """Transactions that one connection may have open at once."""
    transaction_operations_max: int = 10_000
    """Messages that one transaction may send and take, together."""
    transaction_bytes_max: int = 8 * MIB
    """Of the messages that one transaction sends or rejects; large ones are on disk, and do not count."""
    transaction_s: float = 300.0
    """Seconds after which a transaction that was not discharged is rolled back."""
    transactions_bytes_max: int = 64 * MIB
    """What all open transactions may hold in memory together."""
    passed_max: int = 8_192
    """Messages handed on to neighbours that are remembered, for `holdfast where`; about half a KiB each."""
    where_entries_max: int = 100_000
    """Entries that one question after a message looks at."""
    resume_s_max: float = 300.0
    """Seconds that a link which was not closed may wait to be resumed, whatever its terminus asks for."""

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        for key, (low, high) in _LIMITS_WITHIN.items():
            value = getattr(self, key)
            if not low <= value <= high:
                raise ConfigError(f"invalid value {value!r} for limits {key}; expected {low:g} to {high:g}")
        needed = min(self.message_bytes_max, 2 * self.stream_bytes)
        if self.partial_bytes_max < needed:
            raise ConfigError(
                f"invalid value {self.partial_bytes_max} for limits partial_bytes_max; expected at least {needed}, "
                "what one message may have in memory"
            )


_LIMITS_WITHIN: Final[dict[str, tuple[float, float]]] = {
    "handshake_time_out_s": (0.1, 3_600),
    "idle_time_out_s": (0.1, 86_400),
    "commit_stall_s": (0.1, 3_600),
    "peer_idle_time_out_min_s": (0.002, 60),
    "frame_bytes_max": (512, 65_536),
    "nesting_max": (8, 32),
    "sessions_max": (1, 65_536),
    "links_max": (1, 2**24),
    "session_links_max": (1, 2**24),
    "incoming_unsettled_max": (1, 2**30),
    "terms_bytes_max": (65_536, 2**40),
    "attaches_per_s": (1, 1_000_000),
    "attaches_burst": (50, 1_000_000),
    "output_bytes_max": (65_536, 2**40),
    "name_bytes_max": (256, 65_536),
    "requests_max": (1, 10_000),
    "request_bytes_max": (1_024, MIB),
    "annotation_bytes_max": (1_024, 16 * MIB),
    "queue_subscriptions_max": (1, 20_000),
    "ranges_max": (1, 16_384),
    "resume_tags_max": (1, 100_000),
    "memory_bytes_max": (MIB, 2**50),
    "login_retry_s": (0.01, 60),
    "connection_request_bytes_max": (65_536, 2**40),
    "transactions_max": (1, 65_536),
    "transaction_operations_max": (1, 1_000_000),
    "transaction_bytes_max": (1_024, 2**40),
    "transaction_s": (0.1, 86_400),
    "group_messages_max": (1, 10_000),
    "group_wait_s": (1, 30 * 86_400),
    "transactions_bytes_max": (65_536, 2**40),
}
"""What Limits accept beyond "above 0": clients fail below; AMQP, the node's forms or a row of the store end above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A node. `create_queues`: any address that a client names becomes a durable queue. `telemetry`: whether
    anybody reads the periodic records.

    `forwarding`: (destination, neighbour that its messages go to next); a neighbour needs none to be reached itself.
    With a `topology` (docs/topology.md) the routes are computed, but for those that `forwarding` gives; `roles` and
    `neighbours` agree with it.
    `unknown_destination`: what becomes of clients' messages for a node of which nothing is known
    (endpoints/addresses/resolver.py).
    `own_addresses`: HOST and HOST:PORT that mean this node behind an address's `@`.
    `hostnames`: what else clients call the node where it has `vhosts`, as the hostname of their connection.
    """

    name: str
    roles: tuple[str, ...] = ("client",)
    neighbours: tuple[NeighbourConfig, ...] = ()
    forwarding: tuple[tuple[str, str], ...] = ()
    queues: tuple[QueueConfig, ...] = ()
    links: tuple[LinkConfig, ...] = ()
    triggers: tuple[TriggerConfig, ...] = ()
    users: tuple[UserConfig, ...] = ()
    vhosts: tuple[VhostConfig, ...] = ()
    hostnames: tuple[str, ...] = ()
    create_queues: bool = False
    unknown_destination: str = "refuse"
    own_addresses: tuple[str, ...] = ()
    telemetry: bool = True
    telemetry_messages: bool = False
    telemetry_interval_s: float = 1.0
    dead_letters: DeadLettersConfig = DeadLettersConfig()
    limits: Limits = Limits()
    topology: Topology | None = None
    routing: RoutingConfig = DEFAULT_ROUTING
    pacing: PacingConfig = NO_PACING

    def validate(self) -> None:
        """Raises ConfigError at the first key that is wrong."""
        check_name(self.name)
        self.dead_letters.validate()
        self.limits.validate()
        self.routing.validate()
        for role in self.roles:
            _one_of("node roles", role, ROLES)
        _one_of("node unknown_destination", self.unknown_destination, UNKNOWN_DESTINATION)
        _positive("telemetry interval_s", self.telemetry_interval_s)
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
        self.pacing.validate(self.name, {*neighbours, *dict(self.forwarding)} if self.topology is None else None)
        check_bands("pacing", self.pacing.room_low, self.pacing.room_normal, self.pacing.room_quiet_s)
        for queue in self.queues:
            queue.validate()
        for link in self.links:
            link.validate()
        for trigger in self.triggers:
            trigger.validate()

    def transmission(self, node: str) -> QueueConfig:
        """The settings of the queue of what waits for that node."""
        pacing, name = self.pacing, f"@{node}"
        if pacing.when_full is None or node not in pacing.roots:
            return QueueConfig(name=name)
        return QueueConfig(
            name=name, bytes_max=pacing.capacity_bytes, when_full=pacing.when_full, room_low=pacing.room_low,
            room_normal=pacing.room_normal, room_quiet_s=pacing.room_quiet_s,
        )  # fmt: skip

    def _validate_hosts(self) -> None:
        """Each virtual host can be told from the others, and whatever names one names one that is there."""
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
            ("queue", self.queues), ("link", self.links), ("user", self.users), ("trigger", self.triggers)
        ):  # fmt: skip
            for each in all_items:
                if each.vhost and each.vhost not in names:
                    expected = f"expected the name of a [[vhost]] ({', '.join(names) or 'there is none'})"
                    raise ConfigError(f"invalid value {each.vhost!r} for {what} {each.name!r} vhost; {expected}")
