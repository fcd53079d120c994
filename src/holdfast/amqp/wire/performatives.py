"""The composite types: performatives, SASL frames, termini, outcomes, sections. AMQP 1.0 §2.7, §2.8, §3.2 to §3.5,
§4.5, §5.3.3.

Rules of this file: one slotted dataclass for each composite, its fields in the specification's order under the
specification's names; the decorator above it names descriptor and the AMQP type of each field (`!` mandatory).
A field's default is the specification's, None where it has none. How they are written and read: composites.py.
"""

from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.wire.composites import UINT_MAX, composite
from holdfast.amqp.wire.types import Symbol

SND_SETTLE_MODE_MAX: Final = 2  # §2.8.2
RCV_SETTLE_MODE_MAX: Final = 1  # §2.8.3

Fields = dict[Any, Any]
"""A map whose keys are symbols; a plain str as key is sent as a symbol."""
Names = tuple[str, ...]


# ---------------------------------------------------------------------------------- definitions, §2.8, §3.4


@composite(0x1D, "amqp:error:list", "symbol!", "string", "fields")
@dataclass(slots=True)
class Error:
    """§2.8.14."""

    condition: str
    description: str | None = None
    info: Fields | None = None

    @property
    def text(self) -> str:
        """For people: the condition, and the description where there is one."""
        return f"{self.condition}: {self.description}" if self.description else str(self.condition)


@composite(0x23, "amqp:received:list", "uint!", "ulong!")
@dataclass(slots=True)
class Received:
    """§3.4.1: not terminal."""

    section_number: int
    section_offset: int


@composite(0x24, "amqp:accepted:list")
@dataclass(slots=True)
class Accepted:
    """§3.4.2."""


@composite(0x25, "amqp:rejected:list", "error")
@dataclass(slots=True)
class Rejected:
    """§3.4.3."""

    error: Error | None = None


@composite(0x26, "amqp:released:list")
@dataclass(slots=True)
class Released:
    """§3.4.4: the delivery-count stays as it is."""


@composite(0x27, "amqp:modified:list", "boolean", "boolean", "fields")
@dataclass(slots=True)
class Modified:
    """§3.4.5."""

    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Fields | None = None


@composite(0x31, "amqp:declare:list", "any")
@dataclass(slots=True)
class Declare:
    """§4.5.2."""

    global_id: object = None


@composite(0x32, "amqp:discharge:list", "binary!", "boolean")
@dataclass(slots=True)
class Discharge:
    """§4.5.3."""

    txn_id: bytes
    fail: bool | None = None


@composite(0x33, "amqp:declared:list", "binary!")
@dataclass(slots=True)
class Declared:
    """§4.5.5."""

    txn_id: bytes


@composite(0x34, "amqp:transactional-state:list", "binary!", "state")
@dataclass(slots=True)
class TransactionalState:
    """§4.5.8."""

    txn_id: bytes
    outcome: object = None


# ------------------------------------------------------------------------------------------- termini, §3.5


@composite(
    0x28, "amqp:source:list", "any", "uint", "symbol", "uint", "boolean", "fields", "symbol", "map",
    "state", "symbols", "symbols",
)  # fmt: skip
@dataclass(slots=True)
class Source:
    """§3.5.3."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = Symbol("session-end")
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: str | None = None
    filter: Fields | None = None
    default_outcome: Any = None
    outcomes: Names | None = None
    capabilities: Names | None = None


@composite(0x29, "amqp:target:list", "any", "uint", "symbol", "uint", "boolean", "fields", "symbols")
@dataclass(slots=True)
class Target:
    """§3.5.4."""

    address: Any = None
    durable: int = 0
    expiry_policy: str = Symbol("session-end")
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: Names | None = None


@composite(0x30, "amqp:coordinator:list", "symbols")
@dataclass(slots=True)
class Coordinator:
    """§4.5.1: the target of a link that controls transactions."""

    capabilities: Names | None = None


# ------------------------------------------------------------------------------------- performatives, §2.7


@composite(
    0x10, "amqp:open:list", "string!", "string", "uint", "ushort", "uint", "symbols", "symbols", "symbols",
    "symbols", "fields",
)  # fmt: skip
@dataclass(slots=True)
class Open:
    """§2.7.1."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: Names | None = None
    incoming_locales: Names | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Fields | None = None


@composite(
    0x11, "amqp:begin:list", "ushort", "uint!", "uint!", "uint!", "uint", "symbols", "symbols", "fields"
)  # fmt: skip
@dataclass(slots=True)
class Begin:
    """§2.7.2."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Fields | None = None


@composite(
    0x12, "amqp:attach:list", "string!", "uint!", "boolean!", "ubyte", "ubyte", "terminus", "terminus",
    "unsettled", "boolean", "uint", "ulong", "symbols", "symbols", "fields",
)  # fmt: skip
@dataclass(slots=True)
class Attach:
    """§2.7.3. `role`: False is sender, True is receiver."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Any = None
    target: Any = None
    unsettled: dict[bytes, Any] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Names | None = None
    desired_capabilities: Names | None = None
    properties: Fields | None = None


@composite(
    0x13, "amqp:flow:list", "uint", "uint!", "uint!", "uint!", "uint", "uint", "uint", "uint", "boolean",
    "boolean", "fields",
)  # fmt: skip
@dataclass(slots=True)
class Flow:
    """§2.7.4."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Fields | None = None


@composite(
    0x14, "amqp:transfer:list", "uint!", "uint", "binary", "uint", "boolean", "boolean", "ubyte", "state",
    "boolean", "boolean", "boolean",
)  # fmt: skip
@dataclass(slots=True)
class Transfer:
    """§2.7.5."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@composite(0x15, "amqp:disposition:list", "boolean!", "uint!", "uint", "boolean", "state", "boolean")
@dataclass(slots=True)
class Disposition:
    """§2.7.6. `role`: of the side that sends it, as in Attach."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@composite(0x16, "amqp:detach:list", "uint!", "boolean", "error")
@dataclass(slots=True)
class Detach:
    """§2.7.7."""

    handle: int
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list", "error")
@dataclass(slots=True)
class End:
    """§2.7.8."""

    error: Error | None = None


@composite(0x18, "amqp:close:list", "error")
@dataclass(slots=True)
class Close:
    """§2.7.9."""

    error: Error | None = None


# --------------------------------------------------------------------------------------------- SASL, §5.3.3


@composite(0x40, "amqp:sasl-mechanisms:list", "symbols!")
@dataclass(slots=True)
class SaslMechanisms:
    """§5.3.3.1."""

    sasl_server_mechanisms: Names


@composite(0x41, "amqp:sasl-init:list", "symbol!", "binary", "string")
@dataclass(slots=True)
class SaslInit:
    """§5.3.3.2."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list", "binary!")
@dataclass(slots=True)
class SaslChallenge:
    """§5.3.3.3."""

    challenge: bytes


@composite(0x43, "amqp:sasl-response:list", "binary!")
@dataclass(slots=True)
class SaslResponse:
    """§5.3.3.4."""

    response: bytes


@composite(0x44, "amqp:sasl-outcome:list", "ubyte!", "binary")
@dataclass(slots=True)
class SaslOutcome:
    """§5.3.3.5. `code`: 0 means success, 1 failure, 2 to 4 an error of the server's system."""

    code: int
    additional_data: bytes | None = None


# ------------------------------------------------------------------------------------- message sections, §3.2


@composite(0x70, "amqp:header:list", "boolean", "ubyte", "uint", "boolean", "uint")
@dataclass(slots=True)
class Header:
    """The header section. AMQP 1.0 §3.2.1. `ttl` is in milliseconds."""

    durable: bool = False
    priority: int = 4
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@composite(
    0x73, "amqp:properties:list", "id", "binary", "any", "string", "any", "id", "symbol", "symbol",
    "timestamp", "timestamp", "string", "uint", "string",
)  # fmt: skip
@dataclass(slots=True)
class Properties:
    """The properties section. AMQP 1.0 §3.2.4. Times are in milliseconds since the epoch."""

    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
