"""The records of queues: the rows of table `queues`.

Rules of this file: a record of an earlier version is read with defaults for what it lacks, and a setting that is seldom
given is not written where it has its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from holdfast.broker.bands import QUIET_S
from holdfast.broker.entries.host_names import read_key
from holdfast.broker.stored import records
from holdfast.engine.port import Settings
from holdfast.settings.queues import QUEUE_KEYS, QueueConfig

CONFIG_FIELDS: Final = tuple(QUEUE_KEYS)
LATER_FIELDS: Final[dict[str, Any]] = {
    "deliveries_max": None, "priorities": False, "room_low": 1.0, "room_normal": 1.0, "room_quiet_s": QUIET_S,
}  # fmt: skip
"""What records of an earlier version lack."""
LIVE_KEYS: Final = (
    "bytes_max", "messages_max", "when_full", "deliveries_max", "room_low", "room_normal", "room_quiet_s",
)  # fmt: skip
"""What may change while a queue is in use."""
SELDOM: Final = ("room_low", "room_normal", "room_quiet_s")
TOPIC_FIELD: Final = "topic"
TOLD_FIELD: Final = "told"
"""The file's settings of the queue when a request changed it."""
TIMED_FIELD: Final = "timed"
"""The queue was written by a version that stores where its entries with a time to live are; with TIMED_IN_CUSTODY, by
one that does so for transmission queues and `$waiting` too."""
TIMED_IN_CUSTODY: Final = 2


def told_fields(config: Settings) -> dict[str, Any]:
    """The settings of a queue as its record has them."""
    return {key: getattr(config, key) for key in CONFIG_FIELDS}


def stored_fields(config: Settings) -> dict[str, Any]:
    """As `told_fields`, without those that are seldom set and are not."""
    fields = told_fields(config)
    return {key: value for key, value in fields.items() if key not in SELDOM or value != LATER_FIELDS[key]}


@dataclass(frozen=True)
class QueueRecord:
    """A queue as its record has it. `told`: the file's settings at the time of the last change by a request; `timed`:
    see TIMED_FIELD."""

    queue_id: int
    uuid: UUID
    config: QueueConfig
    is_topic: bool
    told: Mapping[str, Any]
    timed: int

    def settings(self, told: QueueConfig) -> QueueConfig:
        """The settings at a start with the file's settings `told`: those, unless a request changed the queue since and
        the file is unchanged."""
        unchanged = told != self.config and LATER_FIELDS | dict(self.told) == told_fields(told)
        return self.config if unchanged else told


def unpack(key: bytes, data: bytes) -> QueueRecord:
    """Reads a row of table `queues`."""
    host, name = read_key(key.decode())
    fields = records.unpack_map(data)
    settings = LATER_FIELDS | {key: fields[key] for key in CONFIG_FIELDS if key in fields}
    return QueueRecord(
        queue_id=int(fields["id"]),
        uuid=fields["uuid"],
        config=QueueConfig(name=name, vhost=host, **settings),
        is_topic=bool(fields.get(TOPIC_FIELD)),
        told=fields.get(TOLD_FIELD, {}),
        timed=int(fields.get(TIMED_FIELD, 0)),
    )


def pack(queue_id: int, uuid: UUID, config: Settings, told: Settings | None, *, is_topic: bool) -> bytes:
    """The data of a queue's row. `told`: the settings of the node's file."""
    fields = stored_fields(config)
    if told is not None and told != config:
        fields[TOLD_FIELD] = stored_fields(told)
    if is_topic:
        fields[TOPIC_FIELD] = True
    return records.pack_map({"id": queue_id, "uuid": uuid, TIMED_FIELD: TIMED_IN_CUSTODY, **fields})
