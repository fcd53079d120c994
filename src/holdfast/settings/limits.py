"""The bounds of a node (docs/configuration.md, `[limits]`)."""

from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.units import MIB, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a node. At each a peer that asks for more is refused with one clear line."""

    connections_max: int = 2_000
    """Client connections at the same time. Neighbours can always connect."""
    address_connections_max: int = 1_500
    """Connections from one remote address."""
    reserved_connections_max: int = 64
    """Connections beyond these two limits that may still identify themselves as a neighbour; any other is refused. A
    further one replaces the oldest that has not opened."""
    handshakes_max: int = 500
    """Connections that have not finished login and open. A further one replaces the oldest."""
    handshake_time_out_s: float = 10.0
    """For header, login and open, and for the answer to a close. Then the connection is dropped."""
    stream_bytes: int = MIB
    """A larger delivery is written in pieces as it arrives, and is never whole in memory."""
    streams_max: int = 256
    """Deliveries larger than `stream_bytes` that arrive or wait for room at the same time; the last quarter is for
    connections that have none. A further one from a client is rejected, one from a neighbour released. One of a
    transaction counts until it has arrived."""
    connection_unstored_bytes_max: int = 8 * MIB
    """Bytes that were read from one connection and not committed yet. At this limit the node stops reading from it
    until a commit is done."""
    unstored_bytes_max: int = 32 * MIB
    """The same for all connections together."""
    neighbours_unstored_bytes_max: int = 32 * MIB
    """Further bytes of the same kind, for neighbours only: their control traffic is read while clients are not."""
    unfinished_bytes_max: int = 16 * MIB
    """Bytes in memory of deliveries that have not arrived completely. Beyond this, they are written to disk as they
    arrive, however small."""
    parked_bytes_max: int = 32 * MIB
    """Bytes in memory of deliveries that wait for room in a full queue; one may wait whatever its size. A further one
    is released, or rejected if the disk is full."""
    idle_time_out_s: float = 60.0
    peer_idle_time_out_min_s: float = 0.1
    """The shortest idle-time-out that a client may ask for. The node sends it an empty frame after half of that
    time."""
    frame_bytes_max: int = 65_536
    nesting_max: int = 32
    """How deep lists, maps, arrays and descriptors may be nested in performatives. Messages are not decoded."""
    sessions_max: int = 256
    """AMQP sessions of one connection."""
    links_max: int = 4_096
    """Links of one connection."""
    session_links_max: int = 1_024
    """Links of one session, sent as handle-max (which is one less)."""
    incoming_unsettled_max: int = 262_144
    """Deliveries in one session that the node has not settled yet."""
    partial_bytes_max: int = 128 * MIB
    """Bytes in memory of one connection's deliveries that have not arrived completely."""
    terms_bytes_max: int = 8 * MIB
    """Bytes of memory, about, for one connection's open and for its attaches until their links are detached."""
    attaches_per_s: int = 1_000
    """Work that one connection may ask for in each second, counted in attaches (amqp/effort.py). If it asks for more,
    the node stops reading from it for a while."""
    attaches_burst: int = 2_000
    """Attaches that may arrive at once."""
    output_bytes_max: int = 16 * MIB
    """Bytes of answers that one connection has not read."""
    name_bytes_max: int = 16_384
    """Bytes of a container-id, a hostname or a link name."""
    requests_max: int = 100
    """Requests to `$management` that one link may have under way."""
    request_bytes_max: int = 65_536
    log_lines_per_minute: int = 60
    """Log lines with the same cause; lines about different neighbours, users or addresses count separately. The next
    line says how many were left out."""
    queues_max: int = 20_000
    subscriptions_max: int = 20_000
    queue_subscriptions_max: int = 1_000
    message_bytes_max: int = 8 * 1024 * MIB
    annotation_bytes_max: int = 65_536
    """Bytes of a message's annotations, which the node reads and keeps."""
    login_failures_max: int = 10
    """Failed logins from one address with one name that are answered at once. Further tries wait."""
    login_retry_s: float = 1.0
    """Seconds between two such tries, and the time after which one failure is forgotten."""
    user_connections_max: int = 1_000
    """Connections of one user or neighbour; those without a user name count as one user."""
    user_links_max: int = 65_536
    """Links of one user or neighbour."""
    user_unsettled_bytes_max: int = 16 * 1024 * MIB
    """Bytes of messages that one user's consumers hold unsettled. At this limit they get no messages until some are
    settled."""
    user_requests_per_s: int = 2_000
    """Requests to `$management` of one user or neighbour in each second, and as many at once. Further ones wait."""
    memory_bytes_max: int = 512 * MIB
    """Bytes of memory for all peers together, whatever the other limits allow."""
    memory_queue_bytes_max: int = 128 * MIB
    """Bytes of memory for the messages of all queues with `durable = false`."""
    connection_request_bytes_max: int = 8 * MIB
    """Bytes of one connection's unanswered requests to `$management`."""
    credit: int = 4_000
    """Deliveries that a producer's link may have under way."""
    cache_bytes: int = 8 * MIB
    """Bytes of message bodies that all queues together keep in memory for consumers that keep up."""
    unsettled_max: int = 5_000
    """Entries that one consumer link may hold unsettled."""
    excluded_max: int = 5_000
    """Entries of its queue that one consumer link may have declared undeliverable there. A further one ends the
    link."""
    too_large_links_max: int = 5
    """Consumer links that an entry larger than they accept may end, before it becomes a dead letter."""
    commit_stall_s: float = 5.0
    """Seconds without an answer to a commit after which the disk counts as stalled. The node accepts nothing until it
    answers."""
    ranges_max: int = 1_024
    """Gaps that are kept for each origin or producer. A message that would make a further one is given back, or
    rejected."""
    producers_max: int = 100_000
    """Producer names that the node remembers. A further one replaces the name that was idle the longest."""
    origins_max: int = 100_000
    """Origins whose messages the node has received in custody. Messages of a further one are given back."""
    group_messages_max: int = 1_000
    """Messages of one transaction for one other node that are shown there together; more are shown one by one."""
    group_wait_s: float = 86_400.0
    """Seconds that such messages wait at their destination for one of them that does not come; then they are shown
    without it."""
    delayed_max: int = 100_000
    """Messages that are not to be delivered yet. A further one is rejected."""
    neighbour_links_max: int = 2_000
    """Custody links to one neighbour, one for each destination behind it; further destinations take turns. At most half
    of `links_max`."""
    hop_in_doubt_max: int = 2_000
    """Transfers on one custody link that await their answer."""
    dynamic_nodes_max: int = 256
    """Dynamic nodes whose links one connection holds."""
    dynamic_bytes_max: int = 64 * MIB
    """Bytes of memory for the messages of all dynamic nodes. At this limit their messages are refused."""
    resume_links_max: int = 10_000
    """Links whose unsettled state the node keeps, attached or not. A further link cannot be resumed."""
    resume_tags_max: int = 16_384
    """Stored delivery-tags of one producer's link that are remembered: more than may be in doubt with a `credit` of
    4,000."""
    transactions_max: int = 64
    """Transactions that one connection may have open."""
    transaction_operations_max: int = 10_000
    """Messages that one transaction may send and settle together."""
    transaction_bytes_max: int = 8 * MIB
    """Bytes of the messages that one transaction sends, rejects or annotates; those above `stream_bytes` are on disk
    and do not count."""
    transaction_s: float = 300.0
    """Seconds after which an open transaction is rolled back."""
    transactions_bytes_max: int = 64 * MIB
    """Bytes of memory for all open transactions together."""
    passed_max: int = 8_192
    """Forwarded messages that the node remembers for `holdfast where`, about 600 bytes each."""
    where_entries_max: int = 100_000
    """Queue entries that one `holdfast where` looks at."""
    resume_s_max: float = 300.0
    """Seconds for which the node keeps a link that was not closed, so that it can be resumed. It limits what the link
    asks for."""

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        for key, (low, high) in LIMITS_WITHIN.items():
            value = getattr(self, key)
            if not low <= value <= high:
                raise ConfigError(
                    f"invalid value {value!r} for limits {key}; expected {written(low)} to {written(high)}"
                )
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
"""The ranges of limits that have one, besides "above 0": below the first number clients fail; above the second AMQP,
the node's formats or a row of the store have no place."""

DEFAULT_LIMITS: Final = Limits()
