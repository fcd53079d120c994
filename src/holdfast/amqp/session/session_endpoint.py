"""The peer's half of a session: the effect of its frames, and the events for the user. AMQP 1.0 §2.5.

Rules of this file: an error of the peer raises SessionFault (the session ends) or LinkFault (the link is detached),
which the connection passes to `fault` or `fault_link`. A link returns the effect of a frame; the event is created here.
"""

from typing import Any, Final

from holdfast.amqp.effort import FLOW, MISS, STEPS_FOR_ONE
from holdfast.amqp.links.faults import LinkFault, SessionFault
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.session import wide
from holdfast.amqp.session.events import (
    ConnEvent,
    CreditChanged,
    Drained,
    LinkAttached,
    LinkDetached,
    Outcomes,
    ReceiverSettled,
    SessionEnded,
)
from holdfast.amqp.session.session import Session
from holdfast.amqp.session.transfers import on_transfer
from holdfast.amqp.weight import weight
from holdfast.amqp.wire import conditions, fast
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    End,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import RemoteProtocolError

_SERIAL: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000

TRANSACTION_ID: Final = Symbol("txn-id")
"""A property of a flow: deliveries for its credit are acquired in this transaction (§4.4.3)."""


class SessionEndpoint(Session):
    """A session as its connection drives it; users see a Session."""

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """The peer's begin."""
        self.remote_channel = remote_channel
        self.next_incoming_id = begin.next_outgoing_id
        self.outgoing.window = begin.incoming_window
        self.handle_max_out = begin.handle_max

    def on_attach(self, attach: Attach, events: list[ConnEvent]) -> None:
        """The peer attaches a link, or answers our attach."""
        handle = attach.handle
        connection = self.connection
        if handle > connection.settings.handle_max:
            text = f"invalid value {handle} for handle; expected 0 to {connection.settings.handle_max}"
            raise RemoteProtocolError(conditions.FRAMING_ERROR, text)
        if handle in self.remote_links:
            raise SessionFault(self, conditions.HANDLE_IN_USE, f"handle {handle} is attached already")
        connection.check_name("a link's name", attach.name)
        held = weight(attach)
        connection.keep(held)
        role = not attach.role
        key = (attach.name, role)
        known = self._names.get(key)
        if known is not None and known.remote_attach is None:
            known.terms_bytes = held
            self.remote_links[handle] = known
            self._on_answer(known, attach, events)
            return
        if known is not None:
            self.fault_link(known, Error(Symbol(conditions.STOLEN), "attached again under this name"), events)
        link: Receiver | Sender = Receiver(self, attach.name) if role else Sender(self, attach.name)
        link.terms_bytes = held
        self.remote_links[handle] = link
        link.on_attach(attach)
        if len(self.links) > self.handle_max_out:
            raise SessionFault(self, conditions.RESOURCE_LIMIT_EXCEEDED, "the peer takes no more links of ours")
        link.handle = self.take_handle(link)
        if connection.links >= connection.settings.links_max:
            link.over = True
            text = f"the connection has {connection.links} links, the most that it may have (links_max)"
            link.refuse_with(Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text))
            return
        self._add(link)
        events.append(LinkAttached(link, True))

    def _on_answer(self, link: Receiver | Sender, attach: Attach, events: list[ConnEvent]) -> None:
        link.on_attach(attach)
        if link.over:
            self.forget(link)
        elif not link.detach_sent:
            events.append(LinkAttached(link, False))

    def on_flow(self, parsed: fast.ParsedFlow, events: list[ConnEvent]) -> None:
        """Windows, then the link's credit, then an echo."""
        incoming, window, _, _, handle, _, _, _, _, echo, _ = parsed
        outgoing = self.outgoing
        held_up = self._blocked or outgoing.window == 0
        if self.next_incoming_id is not None:
            start = self.connection.settings.first_transfer_id if incoming is None else incoming
            ahead = (outgoing.next_outgoing_id - start) & _SERIAL
            if ahead >= _HALF:
                text = f"invalid value {start} for next-incoming-id; expected at most what was sent"
                raise SessionFault(self, conditions.INVALID_FIELD, text)
            outgoing.window = max(0, window - ahead)
            if self.backlog:
                self._send_backlog()
        try:
            if handle is not None:
                self._on_link_flow(handle, parsed, events)
            elif echo:
                self._write_session_flow()
        finally:  # a fault of one link does not keep the others waiting
            self.connection.spend((2 * FLOW if echo else FLOW) + (FLOW * self._wake_senders(events) if held_up else 0))

    def _on_link_flow(self, handle: int, parsed: fast.ParsedFlow, events: list[ConnEvent]) -> None:
        """The part of a flow that is for one link. Raises SessionFault or LinkFault."""
        _, _, _, _, _, delivery_count, credit, _, drain, echo, properties = parsed
        link = self.remote_links.get(handle)
        if link is None:
            raise SessionFault(self, conditions.UNATTACHED_HANDLE, f"handle {handle} of a flow is not attached")
        if properties is not None and TRANSACTION_ID in properties and not link.detach_sent:
            text = "messages cannot be acquired in a transaction; send flow without txn-id"
            raise LinkFault(link, conditions.NOT_IMPLEMENTED, text)
        if not link.over and link.on_flow(delivery_count, credit, drain, echo):
            events.append(Drained(link) if isinstance(link, Receiver) else CreditChanged(link))

    def _wake_senders(self, events: list[ConnEvent]) -> int:
        """Notifies the senders that waited for the window that it is open again; returns how many senders there
        were."""
        if self.outgoing.window == 0 or self.backlog:
            self._blocked = True
            return 0
        self._blocked = False
        events.extend(
            CreditChanged(link)
            for link in self._live
            if isinstance(link, Sender) and (link.credit > 0 or link.resume_credit > 0 or link.outgoing is not None)
        )
        return len(self._live)

    def on_transfer(self, parsed: fast.ParsedTransfer, buf: bytes, end: int, events: list[ConnEvent]) -> None:
        """A transfer whose payload ends at `end`."""
        window = self.window_in - 1
        if window < 0:
            text = f"a transfer exceeds the session's window of {self._window}"
            raise SessionFault(self, conditions.WINDOW_VIOLATION, text)
        self.window_in = window
        self.next_incoming_id = (self.next_incoming_id + 1) & _SERIAL  # type: ignore[operator]  # set by the begin
        link = self.remote_links.get(parsed[0])
        if type(link) is not Receiver:
            if link is None:
                text = f"handle {parsed[0]} of a transfer is not attached"
                raise SessionFault(self, conditions.UNATTACHED_HANDLE, text)
            raise SessionFault(self, conditions.NOT_ALLOWED, "a transfer came against the link's direction")
        if window <= self._window_low and not self._held:
            self._open_window()
        on_transfer(link, parsed, buf, end, events)

    @property
    def frames_at_once(self) -> int:
        """Transfer frames after which the window is opened again, or closed if it is held."""
        return self.window_in if self._held else self.window_in - self._window_low

    def took(self, count: int) -> None:
        """Counts transfer frames that arrived, at most `frames_at_once`."""
        self.next_incoming_id = (self.next_incoming_id + count) & _SERIAL  # type: ignore[operator]  # set by the begin
        self.window_in -= count
        if self.window_in <= self._window_low and not self._held:
            self._open_window()

    def on_disposition(self, parsed: fast.ParsedDisposition, events: list[ConnEvent]) -> None:
        """A disposition: of our deliveries if the peer speaks as receiver, else of its own."""
        role, first, last, settled, state = parsed
        if last is None:
            last = first
        elif (last - first) & _SERIAL >= _HALF:
            text = f"invalid disposition of {first} to {last}; expected the lower delivery-id first"
            raise SessionFault(self, conditions.INVALID_FIELD, text)
        known = self.unsettled_out if role else self.unsettled_in
        before = len(known)
        again = b""
        if before > wide.OPEN_MAX and self.connection.is_counted and (settled or isinstance(state, _TERMINAL)):
            assert self.remote_channel is not None, "the peer speaks on it"
            frame_bytes_max = self.connection.settings.max_frame_size
            first, last, again = wide.cut(parsed, last, known, self.remote_channel, frame_bytes_max)
        if role:
            self._on_outcomes(first, last, settled, state, events)
        elif settled:
            self._on_settled(first, last, events)
        taken = before - len(known)
        if first != last or not taken:
            looked_at = min(((last - first) & _SERIAL) + 1, 2 * before + 1)
            self.connection.spend((0 if taken else MISS) + (looked_at - taken) // STEPS_FOR_ONE, again)

    def _on_outcomes(self, first: int, last: int, settled: bool, state: Any, events: list[ConnEvent]) -> None:
        """The peer's outcomes of our deliveries: an event for each run of one link."""
        terminal = isinstance(state, _TERMINAL)
        if not settled and (state is None or isinstance(state, Received)):
            return
        owners = self.unsettled_out
        over = settled or terminal
        # A state of a transaction is not the end of the delivery, which stays until it is settled.
        take = owners.pop if over else owners.get
        if over and first <= last and (sender := owners.get(first)) is not None:
            contexts = sender.take_run(first, last)
            if contexts:
                events.append(_outcomes(sender, contexts, state, settled, first, last))
                return
        current: Sender | None = None
        contexts = []
        start = end = first
        for number in self.ids_between(first, last, owners):
            sender = take(number, None)
            if sender is None:
                continue
            if sender is not current:
                if current is not None:
                    events.append(_outcomes(current, contexts, state, settled, start, end))
                current, contexts, start = sender, [], number
            contexts.append(sender.unsettled.pop(number) if over else sender.unsettled[number])
            end = number
        if current is not None:
            events.append(_outcomes(current, contexts, state, settled, start, end))

    def _on_settled(self, first: int, last: int, events: list[ConnEvent]) -> None:
        owners = self.unsettled_in
        current: Receiver | None = None
        start = end = first
        for number in self.ids_between(first, last, owners):
            receiver = owners.pop(number, None)
            if receiver is None:
                continue
            if receiver is not current:
                if current is not None:
                    events.append(ReceiverSettled(current, start, end))
                current, start = receiver, number
            end = number
        if current is not None:
            events.append(ReceiverSettled(current, start, end))

    def on_detach(self, detach: Detach, events: list[ConnEvent]) -> None:
        """The peer's detach; its handle is free at once."""
        link = self.remote_links.pop(detach.handle, None)
        self.run_link = None
        if link is None:
            text = f"handle {detach.handle} of a detach is not attached"
            raise SessionFault(self, conditions.UNATTACHED_HANDLE, text)
        self.connection.keep(-link.terms_bytes)
        self._tell_detached(link, link.on_detach(detach), events)

    def on_end(self, end: End, events: list[ConnEvent]) -> None:
        """The peer's end, answered unless it answers ours."""
        if not self.end_sent:
            self.end_sent = True
            if self.connection.usable:
                self.connection.write(self.channel, End())
        self.finish(end.error, events)

    def fault_link(self, link: Link, error: Error, events: list[ConnEvent]) -> None:
        """Detaches a link because of an error of the peer."""
        self._tell_detached(link, link.fault(error), events)

    def _tell_detached(self, link: Link, unsettled: list[Any] | None, events: list[ConnEvent]) -> None:
        """Creates LinkDetached from the result of `Link.finish`; None: the user knows of the end."""
        if unsettled is not None:
            events.append(LinkDetached(link, link.closed, link.error, unsettled))

    def fault(self, error: Error, events: list[ConnEvent]) -> None:
        """Ends the session because of an error of the peer; later frames on its channel are dropped."""
        self.end(error)
        self.finish(error, events)

    def finish(self, error: Error | None, events: list[ConnEvent]) -> None:
        """Reports to the user that every link and the session have ended."""
        if self.over:
            return
        self.backlog.clear()
        self.backlog_bytes = 0
        self.unsettled_out.clear()
        self.unsettled_in.clear()
        for link in list(self._live):
            self._tell_detached(link, link.finish(False, error), events)
        self.over = True
        for receiver_or_sender in self.remote_links.values():
            self.connection.keep(-receiver_or_sender.terms_bytes)
        self.remote_links.clear()
        self.links.clear()
        self._names.clear()
        self.run_link = None
        events.append(SessionEnded(self, error))


_TERMINAL: Final = (Accepted, Rejected, Released, Modified)


def _outcomes(sender: Sender, contexts: list[Any], state: Any, settled: bool, start: int, end: int) -> Outcomes:
    if settled and (state is None or isinstance(state, Received)):
        state = sender.default_outcome
    return Outcomes(sender, contexts, state, settled, start, end)
