"""Transfers, dispositions and flows by the codec: the fallback of fast.py, and the reference for it. AMQP 1.0 §2.7.4 to
§2.7.6.

Rules of this file: it accepts every legal encoding, and raises RemoteProtocolError for anything else.
"""

from holdfast.amqp.wire import conditions, fast, forms
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import Disposition, Flow, Transfer
from holdfast.errors import RemoteProtocolError


def plain_transfer(buf: bytes, at: int, end: int, nesting_max: int = forms.DEPTH_MAX) -> fast.ParsedTransfer:
    """What fast.parse_transfer gives, by the codec."""
    body = buf[at:end]
    transfer, size = decode_composite(body, 0, nesting_max)
    if not isinstance(transfer, Transfer):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "expected a transfer")
    return (
        transfer.handle, transfer.delivery_id, transfer.delivery_tag, transfer.message_format, transfer.settled,
        transfer.more, transfer.rcv_settle_mode, transfer.state, transfer.resume, transfer.aborted, at + size,
    )  # fmt: skip


def plain_disposition(body: bytes, nesting_max: int = forms.DEPTH_MAX) -> fast.ParsedDisposition:
    """What fast.parse_disposition gives, by the codec."""
    disposition, _ = decode_composite(body, 0, nesting_max)
    if not isinstance(disposition, Disposition):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "expected a disposition")
    return (
        disposition.role, disposition.first, disposition.last, disposition.settled, disposition.state,
    )  # fmt: skip


def plain_flow(body: bytes, nesting_max: int = forms.DEPTH_MAX) -> fast.ParsedFlow:
    """What fast.parse_flow gives, by the codec."""
    flow, _ = decode_composite(body, 0, nesting_max)
    if not isinstance(flow, Flow):
        raise RemoteProtocolError(conditions.DECODE_ERROR, "expected a flow")
    return (
        flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id, flow.outgoing_window, flow.handle,
        flow.delivery_count, flow.link_credit, flow.available, flow.drain, flow.echo, flow.properties,
    )  # fmt: skip
