"""What a receiver asks of the node: whose messages, from where, how many ahead, and what of it the node applies.

Rules of this file: pure; terms that contradict each other are a ConfigError. Source: AMQP 1.0 §3.5.3.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.wire.extensions import (
    CONFIRM,
    CONFIRMED,
    END_SEQUENCE,
    SELECTOR,
    START_SEQUENCE,
    SUBSCRIPTION,
    WAITING,
)
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.client.resume import timeout_s
from holdfast.errors import ConfigError

CONFIRM_S_MAX: Final = 600
"""How long a node lets an attach wait for a confirmation."""


class Lease(NamedTuple):
    """Under which lease a range of a taken subscription is read: the node refuses a reader that was fenced.

    `subscription` is its name; `queue_uuid` (as text) and `lease_epoch` are what the request OPEN answered.
    """

    subscription: str
    queue_uuid: str
    lease_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a receiver is asked for; `Connection.receiver` says what each means. ConfigError out of range."""

    credit: int
    count_max: int | None
    browse: bool
    subscription: str | None
    start_sequence: int | None
    end_sequence: int | None
    lease: Lease | None
    name: str
    resume_s: float = 0.0
    selector: str | None = None
    confirm_s: float | None = None
    message_bytes_max: int | None = None

    def __post_init__(self) -> None:
        if not self.resume_s >= 0:
            raise ConfigError(f"invalid value {self.resume_s} for resume_s; expected at least 0")
        if self.confirm_s is not None and not 0 <= self.confirm_s <= CONFIRM_S_MAX:
            raise ConfigError(f"invalid value {self.confirm_s} for confirm_s; expected 0 to {CONFIRM_S_MAX}")
        if self.message_bytes_max is not None and self.message_bytes_max < 1:
            raise ConfigError(f"invalid value {self.message_bytes_max} for message_bytes_max; expected at least 1")
        if self.confirm_s is not None and self.copy:
            raise ConfigError("confirm_s excludes browse and a range; remove them")
        if self.credit < 1:
            raise ConfigError(f"invalid value {self.credit} for credit; expected at least 1")
        if self.subscription is not None and self.copy:
            raise ConfigError(f"subscription {self.subscription!r} excludes browse and a range; remove them")

    @property
    def copy(self) -> bool:
        """The receiver looks only: nothing is taken from the queue."""
        return self.browse or self.start_sequence is not None or self.end_sequence is not None

    @property
    def link_name(self) -> str:
        """A subscription is found again by it."""
        return self.subscription or self.name

    @property
    def properties(self) -> dict[Any, Any] | None:
        """Of the attach."""
        return None if self.confirm_s is None else {CONFIRM: Ulong(round(self.confirm_s * 1000))}

    def source(self, address: str, next_sequence: int | None) -> Source:
        """Of the attach; `next_sequence`: where to begin now, None for wherever the node has its cursor."""
        filters: dict[Symbol, Described] = {}
        if next_sequence is not None:
            filters[START_SEQUENCE] = Described(START_SEQUENCE, Ulong(next_sequence))
        if self.end_sequence is not None:
            filters[END_SEQUENCE] = Described(END_SEQUENCE, Ulong(self.end_sequence))
        if self.lease is not None:
            name, queue_uuid, epoch = self.lease
            filters[SUBSCRIPTION] = Described(SUBSCRIPTION, [name, queue_uuid, Ulong(epoch)])
        if self.selector is not None:
            filters[SELECTOR] = Described(SELECTOR, self.selector)
        durable = self.subscription is not None
        return Source(
            address=address,
            durable=2 if durable else 0,
            expiry_policy=Symbol("never" if durable else "session-end"),
            timeout=timeout_s(self.resume_s),
            distribution_mode=Symbol("copy") if self.copy else None,
            filter=filters or None,
        )


class Confirmation(NamedTuple):
    """Nodes that have confirmed a topic's receiver, and those that have not in time."""

    confirmed: tuple[str, ...]
    waiting: tuple[str, ...]


def confirmation_of(link: EngineLink) -> Confirmation | None:
    """What the node's answer says; None where it confirms nothing."""
    told = (link.remote_attach.properties or {}) if link.remote_attach is not None else {}
    found = []
    for names in (told.get(CONFIRMED), told.get(WAITING)):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return None
        found.append(tuple(map(str, names)))
    return Confirmation(*found)


def left_out(link: EngineLink) -> str | None:
    """What of our source the peer's answer says is not in force: a filter, or that messages are copied."""
    asked = link.local_attach.source if link.local_attach is not None else None
    told = link.remote_attach.source if link.remote_attach is not None else None
    if not isinstance(asked, Source) or not isinstance(told, Source):
        return None
    if asked.distribution_mode is not None and told.distribution_mode not in (None, asked.distribution_mode):
        return f"distribution-mode {asked.distribution_mode}"
    applied = {str(value.descriptor) for value in (told.filter or {}).values() if isinstance(value, Described)}
    missing = [str(value.descriptor) for value in (asked.filter or {}).values() if str(value.descriptor) not in applied]
    return f"filter {missing[0]}" if missing else None
