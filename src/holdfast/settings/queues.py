"""What is configured of queues, of links and triggers on them, and of dead letters."""

from dataclasses import dataclass
from typing import Final

from holdfast.broker.bands import QUIET_S, check_bands
from holdfast.broker.beginnings import FIRST, check_start
from holdfast.broker.entries.address import QUEUES_PREFIX, TOPIC_PREFIX, is_within_topic, without_alias
from holdfast.broker.entries.host_names import DEFAULT_HOST, InHost
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.schema import COUNT, FLAG, NUMBER, SECONDS, TEXT, Keys
from holdfast.settings.checks import one_of, positive
from holdfast.units import MIB

WHEN_FULL: Final = ("block", "refuse", "drop-oldest", "dead-letter")
LINK_MODES: Final = ("move", "copy")
ORDERS: Final = ("strict", "bounded", "none")
DELIVERIES_MAX_MOST: Final = 10_000
"""Bounds what is stored of the earlier lives of a node, for each cursor."""
ORDER_WAIT_S_MAX: Final = 86_400 * 365
KEEP_S_MAX: Final = 86_400 * 3_650

QUEUE_KEYS: Final[Keys] = {
    "bytes_max": COUNT,
    "messages_max": COUNT,
    "when_full": TEXT,
    "order": TEXT,
    "order_wait_s": NUMBER,
    "durable": FLAG,
    "deliveries_max": COUNT,
    "priorities": FLAG,
    "room_low": NUMBER,
    "room_normal": NUMBER,
    "room_quiet_s": SECONDS,
}
"""The settings of a queue, and of what kind each is: in the node's file, in requests and in its record."""


def check_queue_name(name: str) -> str:
    """`name`, if a new queue may have it; otherwise ConfigError that says what is expected."""
    check_name(name)
    if without_alias(name) != name:
        text = f"expected one that begins neither with {QUEUES_PREFIX} nor as a URL"
    elif is_within_topic(name):
        text = (
            f"expected {TOPIC_PREFIX}NAME for a topic, without a further '/'; what follows in an address is a subject"
        )
    else:
        return name
    raise ConfigError(f"invalid name of queue {name!r}; {text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig(InHost):
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

    def validate(self) -> None:
        """Raises ConfigError that names the queue and the key."""
        self.check_values(f"queue {check_queue_name(self.name)!r}")

    def check_values(self, where: str) -> None:
        """Checks all but the name. `where`: what has these settings, in a refusal."""
        one_of(f"{where} when_full", self.when_full, WHEN_FULL)
        one_of(f"{where} order", self.order, ORDERS)
        positive(f"{where} bytes_max", self.bytes_max)
        positive(f"{where} messages_max", self.messages_max)
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
class LinkConfig(InHost):
    """A link between queues (docs/links.md, `[[link]]`): from the queue `source` of this node to `target`, an address
    as a client's; `selector` "" for all messages; `steps` as JSON (steps/parsing.py), "" for none; `start`: where a
    link that copies begins (broker/beginnings.py)."""

    name: str
    source: str
    target: str
    selector: str = ""
    mode: str = "move"
    steps: str = ""
    start: str | int = FIRST
    vhost: str = DEFAULT_HOST

    def validate(self) -> None:
        """Raises ConfigError that names the link and the key."""
        check_name(self.name)
        one_of(f"link {self.name!r} mode", self.mode, LINK_MODES)
        check_start(f"link {self.name!r} start", self.start)
        if self.mode != "copy" and self.start != FIRST:
            raise ConfigError(
                f"link {self.name!r} cannot have start = {self.start!r}; only a link that copies has a place of its own"
            )


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
        positive(f"{where} messages", self.messages)
        for key, value in (("age_s", self.age_s), ("rest_s", self.rest_s), ("timeout_s", self.timeout_s)):
            positive(f"{where} {key}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersConfig:
    """Bounds of `$dead-letters`: at each the oldest are dropped. `keep_s`: seconds by the wall clock."""

    messages_max: int = 100_000
    bytes_max: int = 1024 * MIB
    keep_s: float = 30 * 86_400

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        positive("dead_letters messages_max", self.messages_max)
        positive("dead_letters bytes_max", self.bytes_max)
        if not 1 <= self.keep_s <= KEEP_S_MAX:
            text = f"invalid value {self.keep_s!r} for dead_letters keep_s; expected a number of seconds"
            raise ConfigError(f"{text} from 1 to {KEEP_S_MAX} (ten years)")


DEFAULT_DEAD_LETTERS: Final = DeadLettersConfig()
