"""The settings of a connection. AMQP 1.0 §2.7.1.

Rules of this file: settings are frozen, and units are last in names; every bound on memory that a peer can cause is
here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.amqp.effort import TURN
from holdfast.amqp.login.keys import Keys
from holdfast.amqp.login.mechanisms import MECHANISMS
from holdfast.amqp.wire.forms import DEPTH_MAX
from holdfast.amqp.wire.performatives import Error, Open
from holdfast.errors import ConfigError
from holdfast.units import MIB

WINDOW_MAX: Final = 2**31 - 1

FIRST_TRANSFER_ID: Final = 0
FIRST_DELIVERY_COUNT: Final = 0

PARTIALS_BYTES_MAX: Final = 16 * MIB
"""The default bound of Partials."""


class Partials:
    """Bytes held of deliveries whose last frame is still to come: of one connection, or of all that share it.

    Above `held_max` links with `stream_bytes` hand on what they have at once; no other delivery is bounded by it.
    """

    __slots__ = ("held", "held_max")

    def __init__(self, held_max: int) -> None:
        self.held = 0
        self.held_max = held_max


def no_objection(theirs: Open, ours: Open) -> None:
    """Accepts every open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One side of a connection.

    `max_frame_size`: bytes that we take in one frame, and the most that we send in one. 65536 or less: one
    widespread client cuts by the announced size, but its own codec ends there.
    `idle_time_out_s`: silence after which we give the peer up; half of it is announced (§2.4.5). None: never.
    `incoming_window`: transfer frames that a session takes ahead; topped up by itself at half.
    `max_message_size`: bytes of one delivery; a link whose delivery grows larger is detached.
    `handshake_time_out_s`: from the first byte's chance until the peer's open, and from our close to the peer's.
    `unsettled_max`: incoming deliveries of one session that wait for our outcome.
    `partial_bytes_max`: payload of the connection's deliveries of which the last frame is still to come.
    `terms_bytes_max`: memory that the peer's open and attaches may hold, until it has detached (weight.py).
    `name_bytes_max`: of a link's name, a container-id, a hostname.
    `nesting_max`: lists in lists, maps, arrays and descriptors, of what a frame says; no more than codec.DEPTH_MAX.
    `peer_idle_time_out_min_s`: the shortest idle-time-out of a peer's that is kept (§2.4.5).
    `effort_per_s`, `effort_burst`: work that the peer may make for us beyond its messages (effort.py). 0: unbounded.
    Client: `mechanism` None (no SASL layer), or a name of MECHANISMS, with the `user` and `password` that it takes; or
    several, of which the first that the peer offers is used, after a round trip more.
    Server: `mechanisms` offered, names of MECHANISMS; `sasl_required` False takes a plain AMQP header too, as
    ANONYMOUS. `nonce`: random text of this connection, either side's, and `keys`, (mechanism, user) → those of that
    user: what SCRAM needs. `first_transfer_id`: next-outgoing-id and first delivery-id of our sessions;
    `first_delivery_count`: what our senders count from where their attach says nothing else (any number is legal for
    either).
    `runs`: consecutive plain deliveries of one link may come as one Deliveries event.
    `answer_open`: a server's last word on its own open: given the peer's and ours, which it may change; an error
    that it returns refuses the connection, by a close right behind our open.
    `peer_frame_size`: the max-frame-size that the peer had when it was last spoken to, for what is said before its
    open (an unsettled map may be large); None: as large as ours.
    """

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65536
    channel_max: int = 255
    handle_max: int = 1023
    idle_time_out_s: float | None = None
    handshake_time_out_s: float | None = 30.0
    incoming_window: int = 8192
    max_message_size: int = 64 * MIB
    sessions_max: int = 256
    links_max: int = 4096
    unsettled_max: int = 262_144
    partial_bytes_max: int = 128 * MIB
    terms_bytes_max: int = 8 * MIB
    name_bytes_max: int = 1024
    nesting_max: int = DEPTH_MAX
    peer_idle_time_out_min_s: float = 0.01
    effort_per_s: int = 0
    effort_burst: int = 0
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: dict[str, Any] | None = None
    mechanism: str | tuple[str, ...] | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sasl_required: bool = False
    mechanisms: tuple[str, ...] = tuple(MECHANISMS)
    nonce: str = field(default="", repr=False)
    keys: Callable[[str, str], Keys] | None = field(default=None, repr=False)
    first_transfer_id: int = field(default_factory=lambda: FIRST_TRANSFER_ID)
    first_delivery_count: int = field(default_factory=lambda: FIRST_DELIVERY_COUNT)
    runs: bool = False
    answer_open: Callable[[Open, Open], Error | None] = no_objection
    peer_frame_size: int | None = None

    def validate(self) -> None:
        """Raise ConfigError for a value out of its range."""
        for name, low, high in (
            ("max_frame_size", 512, 2**32 - 1),
            ("channel_max", 0, 65535),
            ("handle_max", 0, 2**32 - 1),
            ("incoming_window", 2, WINDOW_MAX),
            ("max_message_size", 1, 2**63),
            ("sessions_max", 1, 65536),
            ("links_max", 1, 2**32),
            ("unsettled_max", 1, 2**31),
            ("partial_bytes_max", 1, 2**63),
            ("terms_bytes_max", 4096, 2**63),
            ("name_bytes_max", 1, 65_536),
            ("nesting_max", 1, DEPTH_MAX),
            ("peer_idle_time_out_min_s", 0.002, 4_000_000),
            ("effort_per_s", 0, 2**31),
            ("effort_burst", TURN if self.effort_per_s else 0, 2**31),
            ("first_transfer_id", 0, 2**32 - 1),
            ("first_delivery_count", 0, 2**32 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"invalid value {value} for {name}; expected {low} to {high}")
        for name in self.wanted:
            mechanism = MECHANISMS.get(name)
            if mechanism is None:
                raise ConfigError(f"invalid value {name!r} for mechanism; expected {' or '.join(MECHANISMS)}")
            if not mechanism.at_once and not self.nonce:
                raise ConfigError(f"mechanism {mechanism.name} needs a nonce")
            if (mechanism.has_user and not self.user) or (mechanism.has_password and self.password is None):
                raise ConfigError(f"mechanism {mechanism.name} needs a user and a password")
        for name in ("idle_time_out_s", "handshake_time_out_s"):
            seconds = getattr(self, name)
            if seconds is not None and not 0.002 <= seconds <= 4_000_000:
                raise ConfigError(f"invalid value {seconds} for {name}; expected 0.002 to 4000000, or none")

    @property
    def wanted(self) -> tuple[str, ...]:
        """The client's mechanisms, the first one before the others."""
        given = self.mechanism
        return () if given is None else (given,) if isinstance(given, str) else given

    @property
    def early_frame_size(self) -> int:
        """The largest frame that we send before the peer's open."""
        return min(self.max_frame_size, self.peer_frame_size or self.max_frame_size)

    def open(self) -> Open:
        """Our open."""
        return Open(
            self.container_id,
            self.hostname,
            self.max_frame_size,
            self.channel_max,
            None if self.idle_time_out_s is None else max(1, int(self.idle_time_out_s * 500)),
            offered_capabilities=self.offered_capabilities or None,
            desired_capabilities=self.desired_capabilities or None,
            properties=self.properties,
        )
