"""A session: links by handle, deliveries by id, two windows of transfer frames. AMQP 1.0 §2.5.

Rules of this file: ids are 32-bit serial numbers. What a peer does wrong here raises SessionFault (the session
ends) or LinkFault (the link detaches); `on_*` methods take the peer's performatives, the rest is the user's or
the links'. A session that is over does nothing, as links do.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import codec, conditions, fast, wide
from holdfast.amqp.effort import FLOW, MISS, STEPS_FOR_ONE
from holdfast.amqp.events import ConnEvent, CreditChanged, LinkAttached, Outcomes, ReceiverSettled, SessionEnded
from holdfast.amqp.faults import LinkFault, SessionFault
from holdfast.amqp.frames import bounded, frame_with_payload
from holdfast.amqp.link import Link
from holdfast.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Transfer,
)
from holdfast.amqp.receiver import Receiver
from holdfast.amqp.resuming import fit
from holdfast.amqp.sender import Pending, Sender
from holdfast.amqp.types import Symbol
from holdfast.amqp.weight import weight
from holdfast.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection

_SERIAL: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000
OUTGOING_WINDOW: Final = 2**31 - 1
"""We announce no limit of our own to what we send (§2.5.6)."""

TRANSACTION_ID: Final = Symbol("txn-id")
"""A property of a flow: what is sent for its credit is acquired in a transaction (§4.4.3)."""

Names = tuple[str, ...] | None


class Session:
    """One session; `context` is the user's. `channel` is ours, `remote_channel` the peer's (None until its begin)."""

    def __init__(self, connection: "Connection", channel: int, incoming_window: int | None = None) -> None:
        settings = connection.settings
        self.connection = connection
        self.channel = channel
        self.remote_channel: int | None = None
        self.context: Any = None
        self.end_sent = False
        self.over = False
        """SessionEnded was emitted."""
        self.handle_max_out = 0xFFFFFFFF
        self.links: dict[int, Link] = {}
        """Our handle → link, until both sides have detached."""
        self.remote_links: dict[int, Receiver | Sender] = {}
        """The peer's handle → link, until the peer has detached."""
        self._names: dict[tuple[str, bool], Receiver | Sender] = {}
        self._live: dict[Link, None] = {}
        self.next_outgoing_id = self.next_delivery_id = settings.first_transfer_id
        self.window_out = 0
        """Transfer frames that the peer takes now (remote-incoming-window)."""
        self.next_incoming_id: int | None = None
        self._window = settings.incoming_window if incoming_window is None else incoming_window
        self.window_in = self._window
        self._window_low = self._window // 2
        self._held = False
        self.run_link: Receiver | None = None
        """The link whose transfers came last, where those like them can be taken at once (runs.py)."""
        self.unsettled_out: dict[int, Sender] = {}
        self.unsettled_max = settings.unsettled_max
        self.unsettled_in: dict[int, Receiver] = {}
        self.backlog: deque[Pending | Sender] = deque()
        """Deliveries that wait for the peer's window, and senders whose drain is answered after them."""
        self.backlog_bytes = 0
        """Payload of these."""
        self._blocked = False

    def __repr__(self) -> str:
        return f"<Session channel {self.channel}>"

    @property
    def usable(self) -> bool:
        """Links may be attached and may speak."""
        return not (self.end_sent or self.over) and self.connection.usable

    # ----------------------------------------------------------------------------------------- for the user

    def attach_sender(
        self,
        name: str,
        source: Source,
        target: Any,
        *,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: dict[Any, Any] | None = None,
        offered_capabilities: Names = None,
        desired_capabilities: Names = None,
        initial_delivery_count: int | None = None,
        max_message_size: int | None = None,
        unsettled: dict[bytes, Any] | None = None,
    ) -> Sender:
        """Attach a link on which we send; LinkAttached comes with the peer's answer.

        `unsettled`: to resume an earlier link of this name; what does not fit a frame is left out (resuming.fit).
        """
        sender, first = Sender(self, name), self.connection.settings.first_delivery_count
        self._attach(
            sender,
            Attach(
                name, 0, False, snd_settle_mode, rcv_settle_mode, source, target, unsettled, properties=properties,
                offered_capabilities=offered_capabilities, desired_capabilities=desired_capabilities,
                initial_delivery_count=first if initial_delivery_count is None else initial_delivery_count,
                max_message_size=max_message_size,
            ),
        )  # fmt: skip
        return sender

    def attach_receiver(
        self,
        name: str,
        source: Source,
        target: Any,
        *,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: dict[Any, Any] | None = None,
        offered_capabilities: Names = None,
        desired_capabilities: Names = None,
        max_message_size: int | None = None,
        unsettled: dict[bytes, Any] | None = None,
    ) -> Receiver:
        """Attach a link on which we receive; credit may be granted at once. `unsettled`: as for a sender."""
        receiver = Receiver(self, name)
        self._attach(
            receiver,
            Attach(
                name, 0, True, snd_settle_mode, rcv_settle_mode, source, target, unsettled, properties=properties,
                offered_capabilities=offered_capabilities, desired_capabilities=desired_capabilities,
                max_message_size=max_message_size,
            ),
        )  # fmt: skip
        return receiver

    def tag_offset(self, next_tag: int) -> int:
        """For Sender.use_tags of a link attached now: its tags count from `next_tag` at the lowest.

        Deliveries that wait for the window may yet move up, so the lowest delivery-id that one can get counts.
        """
        return (next_tag - self.next_delivery_id + len(self.backlog)) & _SERIAL

    def end(self, error: Error | None = None) -> None:
        """End the session; LinkDetached for each link and SessionEnded come when the peer answers."""
        if self.usable:
            self.end_sent = True
            self.stop_links()
            self.connection.write(self.channel, End(error))

    def hold_window(self, held: bool) -> None:
        """While `held`, the peer may send what is left of our window and no more: it stands still, and nothing else
        of the connection does. Let go, the window is open again.
        """
        self._held = held
        if not held and self.window_in <= self._window_low and self.usable:
            self._open_window()

    # ---------------------------------------------------------------------------------------- for its links

    def take_handle(self, link: Link) -> int:
        """The lowest handle of ours that is free; LocalProtocolError if there is none."""
        handle = 0
        while handle in self.links:
            handle += 1
        if handle > self.handle_max_out:
            raise LocalProtocolError(f"the peer takes {self.handle_max_out + 1} links in a session, all are in use")
        self.links[handle] = link
        return handle

    def free_handle(self, link: object, handle: int) -> None:
        """Both sides have detached."""
        if self.links.get(handle) is link:
            del self.links[handle]

    def forget(self, link: Link) -> None:
        """The link is over; its name is free."""
        if link in self._live:
            del self._live[link]
            self.connection.links -= 1
        key = (link.name, link.role)
        if self._names.get(key) is link and (link.remote_attach is not None):
            del self._names[key]

    def write(self, performative: Any) -> None:
        """Send a performative on this session's channel, if it still may speak."""
        if self.usable:
            self.connection.write(self.channel, performative)

    def fits(self, performative: Any) -> bool:
        """Whether one frame of the peer's holds it."""
        return len(codec.encode(performative)) <= self.connection.body_bytes_max

    def write_flow(self, handle: int, delivery_count: int | None, credit: int, drain: bool) -> None:
        """A link's flow."""
        if not self.usable:
            return
        incoming, outgoing = self.next_incoming_id, self.next_outgoing_id
        if incoming is None or delivery_count is None:
            self.write(
                Flow(incoming, self.window_in, outgoing, OUTGOING_WINDOW, handle, delivery_count, credit, drain=drain)
            )
        else:
            self.connection.output.append(
                fast.flow_frame(
                    self.channel, incoming, self.window_in, outgoing, OUTGOING_WINDOW, handle, delivery_count, credit,
                    drain,
                )
            )  # fmt: skip

    def write_disposition(self, role: bool, first: int, last: int, settled: bool, state: Any) -> None:
        """Tell the peer the state of first..last."""
        if not self.usable:
            return
        made = fast.disposition_frame(self.channel, role, first, last, settled, state)
        if made is not None:
            self.connection.output.append(made)
        else:
            self.write(Disposition(role, first, last, settled, state))

    def ids_between(self, first: int, last: int, known: dict[int, Any]) -> Iterable[int]:
        """The ids first..last (serial, inclusive), or those of them in `known` where these are fewer."""
        span = ((last - first) & _SERIAL) + 1
        if span <= 2 * len(known) + 1:
            if first <= last:
                return range(first, last + 1)
            return [(first + step) & _SERIAL for step in range(span)]
        return [number for number in known if (number - first) & _SERIAL < span]

    def send_later(self, pending: Pending) -> None:
        """Send as many frames of the delivery as the window lets through, keep the rest."""
        self.backlog.append(pending)
        self.backlog_bytes += len(pending.payload)
        if self.usable:
            self._send_backlog()

    def forget_frames_of(self, link: Link) -> None:
        """Drop what waits for the window on `link`; deliveries that follow move up, so that no id is left out."""
        kept = [
            item for item in self.backlog
            if item is not link and not (isinstance(item, Pending) and item.sender is link)
        ]  # fmt: skip
        if len(kept) == len(self.backlog):
            return
        waiting = [item for item in self.backlog if isinstance(item, Pending) and not item.started]
        number = (self.next_delivery_id - len(waiting)) & _SERIAL
        self.backlog = deque(kept)
        self.backlog_bytes = sum([len(item.payload) for item in kept if isinstance(item, Pending)])
        moved = []
        for item in waiting:
            if item.sender is link:
                self.unsettled_out.pop(item.delivery_id, None)
            else:
                moved.append((item, item.delivery_id, number))
                number = (number + 1) & _SERIAL
        # The link's own contexts keep their order under keys that no delivery can have.
        if isinstance(link, Sender):
            for item in waiting:
                if item.sender is link and item.delivery_id in link.unsettled:
                    link.unsettled[-1 - item.delivery_id] = link.unsettled.pop(item.delivery_id)
        for item, old, new in moved:
            item.delivery_id = new
            item.sender.renumber(old, new)
        self.next_delivery_id = number

    # ------------------------------------------------------------------------------------ the peer's frames

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """The peer's begin."""
        self.remote_channel = remote_channel
        self.next_incoming_id = begin.next_outgoing_id
        self.window_out = begin.incoming_window
        self.handle_max_out = begin.handle_max

    def on_attach(self, attach: Attach, events: list[ConnEvent]) -> None:
        """A link of the peer's, or its answer to ours."""
        handle = attach.handle
        connection = self.connection
        if handle > connection.settings.handle_max:
            raise RemoteProtocolError(
                conditions.FRAMING_ERROR, f"handle {handle}, the highest here is {connection.settings.handle_max}"
            )
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
            known._fault(Error(Symbol(conditions.STOLEN), "attached again under this name"), events)
        link: Receiver | Sender = Receiver(self, attach.name) if role else Sender(self, attach.name)
        link.terms_bytes = held
        self.remote_links[handle] = link
        link.on_attach(attach)
        if len(self.links) > self.handle_max_out:
            raise SessionFault(self, conditions.RESOURCE_LIMIT_EXCEEDED, "the peer takes no more links of ours")
        link.handle = self.take_handle(link)
        if connection.links >= connection.settings.links_max:
            link.over = True
            link._refuse(Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), f"{connection.links} links are attached"))
            return
        self._names[key] = link
        self._live[link] = None
        connection.links += 1
        events.append(LinkAttached(link, True))

    def _on_answer(self, link: Receiver | Sender, attach: Attach, events: list[ConnEvent]) -> None:
        link.on_attach(attach)
        if link.over:
            self.forget(link)
        elif not link.detach_sent:
            events.append(LinkAttached(link, False))

    def on_flow(self, parsed: fast.ParsedFlow, events: list[ConnEvent]) -> None:
        """Windows, then the link's credit, then an echo."""
        incoming, window, _, _, handle, delivery_count, credit, _, drain, echo, properties = parsed
        held_up = self._blocked or self.window_out == 0
        if self.next_incoming_id is not None:
            start = self.connection.settings.first_transfer_id if incoming is None else incoming
            ahead = (self.next_outgoing_id - start) & _SERIAL
            if ahead >= _HALF:
                raise SessionFault(
                    self, conditions.INVALID_FIELD, f"next-incoming-id {start} is ahead of what was sent"
                )
            self.window_out = max(0, window - ahead)
            if self.backlog:
                self._send_backlog()
        if handle is not None:
            link = self.remote_links.get(handle)
            if link is None:
                raise SessionFault(self, conditions.UNATTACHED_HANDLE, f"flow for handle {handle}")
            if properties is not None and TRANSACTION_ID in properties and not link.detach_sent:
                raise LinkFault(
                    link, conditions.NOT_IMPLEMENTED, "a flow with txn-id: transactions are not offered here"
                )
            if not link.over:
                link.on_flow(delivery_count, credit, drain, echo, events)
        elif echo:
            self._write_session_flow()
        self.connection.spend((2 * FLOW if echo else FLOW) + (FLOW * self._wake_senders(events) if held_up else 0))

    def _wake_senders(self, events: list[ConnEvent]) -> int:
        """Tell the senders that the window held up that it is open again; how many there were to look at."""
        if self.window_out == 0 or self.backlog:
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
            raise SessionFault(self, conditions.WINDOW_VIOLATION, f"the window is {self._window} transfers")
        self.window_in = window
        self.next_incoming_id = (self.next_incoming_id + 1) & _SERIAL  # type: ignore[operator]  # set by the begin
        link = self.remote_links.get(parsed[0])
        if type(link) is not Receiver:
            if link is None:
                raise SessionFault(self, conditions.UNATTACHED_HANDLE, f"transfer for handle {parsed[0]}")
            raise SessionFault(self, conditions.NOT_ALLOWED, "a transfer came against the link's direction")
        if window <= self._window_low and not self._held:
            self._open_window()
        link.on_transfer(parsed, buf, end, events)

    def took(self, count: int) -> None:
        """That many transfer frames came, within the window."""
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
            raise SessionFault(self, conditions.INVALID_FIELD, f"a disposition of {first} to {last}")
        known = self.unsettled_out if role else self.unsettled_in
        before = len(known)
        again = b""
        if before > wide.OPEN_MAX and self.connection.is_counted and (settled or isinstance(state, _TERMINAL)):
            first, last, again = wide.cut(self, parsed, last, known)
        if role:
            self._on_outcomes(first, last, settled, state, events)
        elif settled:
            self._on_settled(first, last, events)
        taken = before - len(known)
        if first != last or not taken:
            looked_at = min(((last - first) & _SERIAL) + 1, 2 * before + 1)
            self.connection.spend((0 if taken else MISS) + (looked_at - taken) // STEPS_FOR_ONE, again)

    def _on_outcomes(self, first: int, last: int, settled: bool, state: Any, events: list[ConnEvent]) -> None:
        """What the peer made of deliveries of ours: an event for each run of one link's."""
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
            raise SessionFault(self, conditions.UNATTACHED_HANDLE, f"detach of handle {detach.handle}")
        self.connection.keep(-link.terms_bytes)
        link._on_detach(detach, events)

    def on_end(self, end: End, events: list[ConnEvent]) -> None:
        """The peer's end, answered unless it answers ours."""
        if not self.end_sent:
            self.end_sent = True
            if self.connection.usable:
                self.connection.write(self.channel, End())
        self.finish(end.error, events)

    def fault(self, error: Error, events: list[ConnEvent]) -> None:
        """End the session because of what the peer did; what still comes on its channel is dropped."""
        self.end(error)
        self.finish(error, events)

    def finish(self, error: Error | None, events: list[ConnEvent]) -> None:
        """Tell the user that every link and the session are over."""
        if self.over:
            return
        self.backlog.clear()
        self.backlog_bytes = 0
        self.unsettled_out.clear()
        self.unsettled_in.clear()
        for link in list(self._live):
            link._finish(False, error, events)
        self.over = True
        for receiver_or_sender in self.remote_links.values():
            self.connection.keep(-receiver_or_sender.terms_bytes)
        self.remote_links.clear()
        self.links.clear()
        self._names.clear()
        self.run_link = None
        events.append(SessionEnded(self, error))

    # -------------------------------------------------------------------------------------------- inside

    def _attach(self, link: Sender | Receiver, attach: Attach) -> None:
        if not self.usable:
            raise LocalProtocolError(f"{self!r} is over")
        key = (link.name, link.role)
        if key in self._names:
            raise LocalProtocolError(f"a link named {link.name!r} is attached in this session")
        fit(attach, self.connection.body_bytes_max)
        try:
            link._attach(attach)
        except LocalProtocolError:
            self.free_handle(link, link.handle)
            raise
        self._names[key] = link
        self._live[link] = None
        self.connection.links += 1

    def stop_links(self) -> None:
        """No link of this session sends any more."""
        for link in self._live:
            link._stop()
        self.backlog.clear()
        self.backlog_bytes = 0

    def _open_window(self) -> None:
        self.window_in = self._window
        self._write_session_flow()

    def _write_session_flow(self) -> None:
        self.write(Flow(self.next_incoming_id, self.window_in, self.next_outgoing_id, OUTGOING_WINDOW))

    def _send_backlog(self) -> None:
        backlog = self.backlog
        while backlog:
            item = backlog[0]
            if isinstance(item, Sender):
                backlog.popleft()
                item.answered_later = False
                item.flow(drain=True)
            elif self.window_out <= 0:
                self._blocked = True
                return
            elif self._send_frame(item):
                backlog.popleft()
                self.backlog_bytes -= len(item.payload)

    def _send_frame(self, pending: Pending) -> bool:
        """One frame of the delivery; True if it was the last."""
        size_max = self.connection.frame_size_out - 8
        handle = pending.sender.handle
        if pending.started:
            transfer = Transfer(handle)
        else:
            number = pending.delivery_id
            transfer = Transfer(
                handle, number, pending.sender.tag_of(number), pending.message_format, pending.settled,
                state=pending.state, resume=pending.resume, aborted=pending.aborted,
            )  # fmt: skip
        left = len(pending.payload) - pending.at
        body = bounded(transfer, size_max)
        if len(body) + left > size_max:
            transfer.more = True
            body = bounded(transfer, size_max - 1)
            left = size_max - len(body)
            if left <= 0:
                raise LocalProtocolError("the delivery's tag does not fit into a frame of the peer's")
        part = pending.payload[pending.at : pending.at + left]
        pending.at += left
        pending.started = True
        self.window_out -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & _SERIAL
        self.connection.output.append(frame_with_payload(self.channel, body, part))
        return not transfer.more


_TERMINAL: Final = (Accepted, Rejected, Released, Modified)


def _outcomes(sender: Sender, contexts: list[Any], state: Any, settled: bool, start: int, end: int) -> Outcomes:
    if settled and (state is None or isinstance(state, Received)):
        state = sender.default_outcome
    return Outcomes(sender, contexts, state, settled, start, end)
