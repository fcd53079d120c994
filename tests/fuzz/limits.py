"""What a fuzzed node is configured with: limits and queues, drawn, each also at its least.

Rules of this file: whatever is drawn leaves one honest client room to send and to take one message at a time.
"""

from dataclasses import asdict, fields
from random import Random
from typing import Any

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig

DRAWN: dict[str, tuple[Any, ...]] = {
    "stream_bytes": (1_000, 20_000, 1 << 20),
    "streams_max": (1, 2, 256),
    "connection_unstored_bytes_max": (1_000, 100_000, 8 << 20),
    "unstored_bytes_max": (5_000, 200_000, 32 << 20),
    "unfinished_bytes_max": (1_000, 100_000, 16 << 20),
    "parked_bytes_max": (1_000, 100_000, 32 << 20),
    "frame_bytes_max": (512, 4_096, 65_536),
    "nesting_max": (8, 32),
    "sessions_max": (1, 2, 256),
    "links_max": (2, 10, 4_096),
    "incoming_unsettled_max": (1, 10, 262_144),
    "partial_bytes_max": (4 << 20, 128 << 20),
    "terms_bytes_max": (65_536, 8 << 20),
    "attaches_per_s": (100, 1_000, 1_000_000),
    "attaches_burst": (50, 2_000, 1_000_000),
    "output_bytes_max": (65_536, 16 << 20),
    "requests_max": (1, 2, 100),
    "request_bytes_max": (1_024, 65_536),
    "queues_max": (8, 20, 20_000),
    "subscriptions_max": (1, 5, 20_000),
    "queue_subscriptions_max": (1, 5, 1_000),
    "message_bytes_max": (1_000, 100_000, 8 << 30),
    "annotation_bytes_max": (1_024, 65_536),
    "credit": (1, 2, 100, 4_000),
    "cache_bytes": (1, 4_096, 8 << 20),
    "unsettled_max": (1, 2, 50, 5_000),
    "ranges_max": (1, 2, 16, 1_024),
    "producers_max": (1, 3, 100_000),
    "hop_in_doubt_max": (1, 50, 2_000),
    "dynamic_nodes_max": (1, 5, 256),
    "dynamic_bytes_max": (1_000, 64 << 20),
    "resume_links_max": (1, 5, 10_000),
    "resume_tags_max": (1, 5, 16_384),
    "passed_max": (1, 8_192),
    "session_links_max": (2, 50, 1_024),
    "neighbour_links_max": (1, 2_000),
    "memory_bytes_max": (1 << 20, 4 << 20, 512 << 20),
    "memory_queue_bytes_max": (1, 1_000, 128 << 20),
    "connection_request_bytes_max": (65_536, 8 << 20),
    "user_requests_per_s": (1, 50, 2_000),
}
"""Values of each limit, from about the least that is accepted to the default."""


def draw_limits(random: Random) -> Limits:
    """A few of them at their least at a time: all together would let nothing in."""
    share = random.choice((0.1, 0.3, 0.7))
    chosen: dict[str, Any] = asdict(Limits())
    for key, values in DRAWN.items():
        if random.random() < share:
            chosen[key] = random.choice(values)
    chosen["idle_time_out_s"] = 600.0
    assert set(DRAWN) <= {item.name for item in fields(Limits)}
    limits = Limits(**chosen)
    limits.validate()
    return limits


def draw_queues(random: Random, names: tuple[str, ...]) -> tuple[QueueConfig, ...]:
    """The hostile clients' queues, some bounded, some in memory, some not made yet; and the honest client's."""
    found = [QueueConfig(name="honest")]
    for name in names:
        if random.random() < 0.7:
            found.append(
                QueueConfig(
                    name=name,
                    messages_max=random.choice((None, None, 1, 50)),
                    bytes_max=random.choice((None, None, 1, 10_000)),
                    when_full=random.choice(("block", "refuse")),
                    durable=random.random() < 0.8,
                )
            )
    return tuple(found)
