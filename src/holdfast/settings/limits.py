"""The bounds of a node (docs/configuration.md, `[limits]`)."""

from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.units import MIB


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
        for key, (low, high) in LIMITS_WITHIN.items():
            value = getattr(self, key)
            if not low <= value <= high:
                raise ConfigError(f"invalid value {value!r} for limits {key}; expected {low:g} to {high:g}")
        needed = min(self.message_bytes_max, 2 * self.stream_bytes)
        if self.partial_bytes_max < needed:
            raise ConfigError(
                f"invalid value {self.partial_bytes_max} for limits partial_bytes_max; expected at least {needed}, "
                "what one message may have in memory"
            )


LIMITS_WITHIN: Final[dict[str, tuple[float, float]]] = {
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
    "queue_subscriptions_max": (1, 50_000),
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

DEFAULT_LIMITS: Final = Limits()
