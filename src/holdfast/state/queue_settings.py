"""The settings of a queue: as its record in the store has them, which of them may change while it is in use, and what
no queue may have.

Rules of this file: pure.
"""

from typing import Any, Final

from holdfast.broker.bands import QUIET_S
from holdfast.engine.port import Settings
from holdfast.errors import ConfigError
from holdfast.settings.queues import QueueConfig

CONFIG_FIELDS: Final = (
    "bytes_max", "messages_max", "when_full", "order", "order_wait_s", "durable", "deliveries_max", "priorities",
    "room_low", "room_normal", "room_quiet_s",
)  # fmt: skip
LATER_FIELDS: Final[dict[str, Any]] = {
    "deliveries_max": None, "priorities": False, "room_low": 1.0, "room_normal": 1.0, "room_quiet_s": QUIET_S,
}  # fmt: skip
"""What records of queues of an earlier version lack."""
SELDOM: Final = ("room_low", "room_normal", "room_quiet_s")
TOLD_FIELD: Final = "told"
"""Of a queue's record: what the node's file said of the queue when somebody changed it by hand."""

LIVE_KEYS: Final = (
    "bytes_max", "messages_max", "when_full", "deliveries_max", "room_low", "room_normal", "room_quiet_s",
)  # fmt: skip
"""What may change while a queue is in use."""


def check_empty(name: str, messages: int) -> None:
    """Refuses to make a durable queue with messages one in memory, because its accepted messages would be invisible."""
    if messages:
        text = f"expected true while {messages} messages of it are stored"
        raise ConfigError(f"invalid value false for queue {name!r} durable; {text}")


def check_topic(config: QueueConfig) -> None:
    """Refuses what no topic can be."""
    if not config.durable:
        raise ConfigError(f"invalid value false for queue {config.name!r} durable; a topic is durable")
    if config.priorities:
        text = "a topic gives its subscriptions what is published in its order"
        raise ConfigError(f"invalid value true for queue {config.name!r} priorities; {text}")


def told_fields(config: Settings) -> dict[str, Any]:
    """The settings of a queue as its record has them."""
    return {key: getattr(config, key) for key in CONFIG_FIELDS}


def stored_fields(config: Settings) -> dict[str, Any]:
    """As `told_fields`, without those that are seldom set and are not."""
    fields = told_fields(config)
    return {key: value for key, value in fields.items() if key not in SELDOM or value != LATER_FIELDS[key]}
