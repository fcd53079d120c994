"""A session: links by handle, deliveries by id, two windows of transfer frames. AMQP 1.0 §2.5.

Rules of this file: the methods for users and links, and everything that is sent; session_endpoint.py handles the peer's
frames. Ids are 32-bit serial numbers. A session that has ended does nothing, like a link.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from holdfast.amqp.links.counters import OutgoingCounters
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.pending import Pending
from holdfast.amqp.links.ports import ConnectionPort
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.resuming import fit
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.wire import encoding, fast
from holdfast.amqp.wire.frames import bounded, frame, frame_with_payload
from holdfast.amqp.wire.performatives import Attach, Disposition, End, Error, Flow, Source, Transfer
from holdfast.errors import LocalProtocolError

_SERIAL: Final = 0xFFFFFFFF
OUTGOING_WINDOW: Final = 2**31 - 1
"""We announce no limit of our own to what we send (§2.5.6)."""

Names = tuple[str, ...] | None


class SessionMaker(ConnectionPort, Protocol):
    """The part of the connection that a session shows to its user."""

    def begin(self, *, incoming_window: int | None = None) -> "Session":
        """Begins another session of the connection."""


class Session:
    """One session; `context` is the user's. `channel` is ours, `remote_channel` the peer's (None until its begin)."""

    def __init__(self, connection: SessionMaker, channel: int, incoming_window: int | None = None) -> None:
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
        self.outgoing = OutgoingCounters(settings.first_transfer_id)
        """Counters of what we send, which the senders update too."""
        self.next_incoming_id: int | None = None
        self._window = settings.incoming_window if incoming_window is None else incoming_window
        self.window_in = self._window
        self._window_low = self._window // 2
        self._held = False
        self.run_link: Receiver | None = None
        """The link of the last transfers, if similar ones can be read together (runs.py)."""
        self.unsettled_out: dict[int, Sender] = {}
        self.unsettled_max = settings.unsettled_max
        self.unsettled_in: dict[int, Receiver] = {}
        self.backlog: deque[Pending | Sender] = deque()
        """Deliveries that wait for the peer's window, and senders whose drain is answered after them."""
        self.backlog_bytes = 0
        """Payload bytes of the backlog."""
        self._blocked = False

    def __repr__(self) -> str:
        return f"<Session channel {self.channel}>"

    @property
    def usable(self) -> bool:
        """Links may be attached and may send frames."""
        return not (self.end_sent or self.over) and self.connection.usable

    @property
    def window_out(self) -> int:
        """Transfer frames that the peer accepts now (remote-incoming-window)."""
        return self.outgoing.window

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
        return (next_tag - self.outgoing.next_delivery_id + len(self.backlog)) & _SERIAL

    def end(self, error: Error | None = None) -> None:
        """End the session; LinkDetached for each link and SessionEnded come when the peer answers."""
        if self.usable:
            self.end_sent = True
            self.stop_links()
            self.connection.write(self.channel, End(error))

    def hold_window(self, held: bool) -> None:
        """While `held`, the peer may only use what is left of our window: this session stops, and the rest of the
        connection continues. Otherwise the window is opened again.
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
        """Both sides have detached `link`: its handle is free."""
        if self.links.get(handle) is link:
            del self.links[handle]

    def forget(self, link: Link) -> None:
        """The link is over; its name is free."""
        if link in self._live:
            del self._live[link]
            self.connection.count_links(-1)
        key = (link.name, link.role)
        if self._names.get(key) is link and (link.remote_attach is not None):
            del self._names[key]

    def write(self, performative: Any) -> None:
        """Send a performative on this session's channel, unless the session has ended."""
        if self.usable:
            self.connection.write(self.channel, performative)

    def fits(self, performative: Any) -> bool:
        """Whether it fits into one frame that the peer accepts."""
        return len(encoding.encode(performative)) <= self.connection.body_bytes_max

    def write_if_fits(self, performative: Any) -> bool:
        """Sends it as `write` does, and returns True, if it fits into one frame that the peer accepts."""
        body = encoding.encode(performative)
        if len(body) > self.connection.body_bytes_max:
            return False
        if self.usable:
            self.connection.output.append(frame(self.channel, body))
        return True

    def write_flow(self, handle: int, delivery_count: int | None, credit: int, drain: bool) -> None:
        """A link's flow."""
        if not self.usable:
            return
        incoming, outgoing = self.next_incoming_id, self.outgoing.next_outgoing_id
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
        """Send the peer the state of first..last."""
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
        """Send as many frames of the delivery as the window allows, and keep the rest."""
        self.backlog.append(pending)
        self.backlog_bytes += len(pending.payload)
        if self.usable:
            self._send_backlog()

    def write_transfer(self, body: bytes, payload: bytes) -> None:
        """One transfer frame, within the peer's window."""
        outgoing = self.outgoing
        outgoing.window -= 1
        outgoing.next_outgoing_id = (outgoing.next_outgoing_id + 1) & _SERIAL
        self.connection.output.append(frame_with_payload(self.channel, body, payload))

    def answer_drain_later(self, sender: Sender) -> None:
        """Makes `sender` answer its drain after the deliveries that wait for the window."""
        self.backlog.append(sender)

    def forget_frames_of(self, link: Link) -> None:
        """Drops the deliveries of `link` that wait for the window. Later deliveries get lower ids, so that no id is
        skipped."""
        if not isinstance(link, Sender):
            return
        kept = [
            item for item in self.backlog
            if item is not link and not (isinstance(item, Pending) and item.sender is link)
        ]  # fmt: skip
        if len(kept) == len(self.backlog):
            return
        waiting = [item for item in self.backlog if isinstance(item, Pending) and not item.started]
        number = (self.outgoing.next_delivery_id - len(waiting)) & _SERIAL
        self.backlog.clear()
        self.backlog.extend(kept)
        self.backlog_bytes = sum([len(item.payload) for item in kept if isinstance(item, Pending)])
        moved = []
        for item in waiting:
            if item.sender is link:
                link.unnumber(item.delivery_id)
            else:
                moved.append((item, item.delivery_id, number))
                number = (number + 1) & _SERIAL
        for item, old, new in moved:
            item.delivery_id = new
            item.sender.renumber(old, new)
        self.outgoing.next_delivery_id = number

    # -------------------------------------------------------------------------------------------- inside

    def _attach(self, link: Sender | Receiver, attach: Attach) -> None:
        if not self.usable:
            raise LocalProtocolError(f"{self!r} is over")
        key = (link.name, link.role)
        if key in self._names:
            raise LocalProtocolError(f"a link named {link.name!r} is attached in this session")
        fit(attach, self.connection.body_bytes_max)
        try:
            link.attach(attach)
        except LocalProtocolError:
            self.free_handle(link, link.handle)
            raise
        self._add(link)

    def _add(self, link: Sender | Receiver) -> None:
        """Registers the link under its name."""
        self._names[link.name, link.role] = link
        self._live[link] = None
        self.connection.count_links(1)

    def stop_links(self) -> None:
        """Stops sending on all links of this session."""
        for link in self._live:
            link.stop()
        self.backlog.clear()
        self.backlog_bytes = 0

    def _open_window(self) -> None:
        self.window_in = self._window
        self._write_session_flow()

    def _write_session_flow(self) -> None:
        self.write(Flow(self.next_incoming_id, self.window_in, self.outgoing.next_outgoing_id, OUTGOING_WINDOW))

    def _send_backlog(self) -> None:
        backlog = self.backlog
        while backlog:
            item = backlog[0]
            if isinstance(item, Sender):
                backlog.popleft()
                item.answer_drain()
            elif self.outgoing.window <= 0:
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
        self.write_transfer(body, part)
        return not transfer.more
