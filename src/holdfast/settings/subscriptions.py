"""What is configured of the durable subscriptions of topics."""

from dataclasses import dataclass

from holdfast.broker.entries.address import TOPIC_PREFIX, split_topic
from holdfast.broker.entries.host_names import DEFAULT_HOST, shown
from holdfast.broker.stored.bounds import NO_BOUNDS, Bounds
from holdfast.errors import ConfigError
from holdfast.names import NAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    """The bounds of subscriptions (docs/configuration.md, `[[subscription]]`). `name` and `topic` may be patterns, in
    which `*` matches any characters."""

    name: str
    topic: str
    messages_max: int | None = None
    bytes_max: int | None = None
    when_full: str | None = None
    idle_s: int | None = None
    vhost: str = DEFAULT_HOST

    @property
    def bounds(self) -> Bounds:
        """As a subscription has them. ValueError."""
        keys = ("messages_max", "bytes_max", "when_full", "idle_s")
        return NO_BOUNDS.changed({key: getattr(self, key) for key in keys})

    @property
    def shown(self) -> str:
        """What it is called, for people."""
        return f"{shown(self.vhost, self.name)} of {self.topic!r}"

    def validate(self) -> None:
        """Raises ConfigError that names the entry and the key."""
        where = f"subscription {self.shown}"
        if len(self.name.encode()) > NAME_BYTES_MAX or not self.name.isprintable() or "@" in self.name:
            expected = f"expected at most {NAME_BYTES_MAX} printable bytes without '@', as audit, dashboard-* or *"
            raise ConfigError(f"invalid name {self.name[:60]!r} of a subscription; {expected}")
        if split_topic(self.topic) != (self.topic, "") or not self.topic.isprintable():
            expected = f"expected a topic or a pattern of topics, as {TOPIC_PREFIX}flights or {TOPIC_PREFIX}*"
            raise ConfigError(f"invalid value {self.topic[:60]!r} for topic of {where}; {expected}")
        try:
            bounds = self.bounds
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
        if bounds == NO_BOUNDS:
            raise ConfigError(f"{where} has no bound; add messages_max, bytes_max or idle_s, or remove it")
