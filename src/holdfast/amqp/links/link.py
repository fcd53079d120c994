"""What both ends of a link have in common: attach, refuse, detach. AMQP 1.0 §2.6.

Rules of this file: a link exists until both sides have detached. Every method may be called at any time; on a link that
has ended it does nothing, because the user learns of the end only after the bytes that caused it. What the peer's
frames did is returned; the session makes events of it.
"""

from typing import Any

from holdfast.amqp.links import resuming
from holdfast.amqp.links.ports import SessionPort
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import RCV_SETTLE_MODE_MAX, SND_SETTLE_MODE_MAX, Attach, Detach, Error
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import LocalProtocolError

Names = tuple[str, ...] | None


class Link:
    """One end of a link. `context` is the user's; `remote_attach` is the peer's attach, whole."""

    __slots__ = (
        "attach_sent",
        "closed",
        "closed_by_peer",
        "context",
        "detach_received",
        "detach_sent",
        "error",
        "handle",
        "local_attach",
        "name",
        "over",
        "refused",
        "remote_attach",
        "session",
        "terms_bytes",
    )

    role: bool
    """Ours: False for a Sender, True for a Receiver."""

    def __init__(self, session: SessionPort, name: str) -> None:
        self.session = session
        self.name = name
        self.handle = -1
        self.context: Any = None
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        self.terms_bytes = 0
        """The memory of the peer's attach, in bytes; counted until the peer has detached."""
        self.attach_sent = False
        self.detach_sent = False
        self.detach_received = False
        self.over = False
        """LinkDetached was emitted."""
        self.closed = False
        """The detach closed the link; otherwise the link may be resumed (§2.6.4, §2.6.5)."""
        self.error: Error | None = None
        """The error of the detach, if it had one."""
        self.closed_by_peer = False
        """The peer closed the link first: it was not lost, not ended by us, and there was no fault."""
        self.refused = False
        """The peer answered our attach with a null terminus; its detach follows."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle}>"

    @property
    def attached(self) -> bool:
        """Both sides have attached, and neither has detached."""
        return (
            self.attach_sent
            and self.remote_attach is not None
            and not (self.detach_sent or self.detach_received or self.over)
        )

    @property
    def detached(self) -> bool:
        """The link has ended, for whatever reason."""
        return self.over or self.detach_received

    @property
    def resumes(self) -> bool:
        """Both sides sent an unsettled map, which may be empty: the link is resumed (§2.6.5)."""
        mine, theirs = self.local_attach, self.remote_attach
        return mine is not None and theirs is not None and None not in (mine.unsettled, theirs.unsettled)

    @property
    def resumes_only(self) -> bool:
        """A map was incomplete: no new deliveries until the link has been detached and attached anew (§2.7.3)."""
        return any(
            attach is not None and attach.incomplete_unsettled for attach in (self.local_attach, self.remote_attach)
        )

    @property
    def source(self) -> Any:
        """The source that applies: that of the sending side (§2.6.3)."""
        mine, theirs = self.local_attach, self.remote_attach
        first, second = (theirs, mine) if self.role else (mine, theirs)
        if first is not None and first.source is not None:
            return first.source
        return second.source if second is not None else None

    @property
    def target(self) -> Any:
        """The target that applies: that of the receiving side (§2.6.3)."""
        mine, theirs = self.local_attach, self.remote_attach
        first, second = (mine, theirs) if self.role else (theirs, mine)
        if first is not None and first.target is not None:
            return first.target
        return second.target if second is not None else None

    # ----------------------------------------------------------------------------------- answers to the peer

    def accept(
        self,
        *,
        source: Any = None,
        target: Any = None,
        properties: dict[Any, Any] | None = None,
        offered_capabilities: Names = None,
        desired_capabilities: Names = None,
        max_message_size: int | None = None,
        initial_delivery_count: int | None = None,
        unsettled: dict[bytes, Any] | None = None,
    ) -> None:
        """Answer the peer's attach: its own source and target echoed unless given, its settle modes as asked.

        `unsettled`: our map, where a link is resumed; what does not fit the peer's frames is left out (resuming.fit).
        LocalProtocolError if the link was ours to attach or is answered already.
        """
        if not self._answerable():
            return
        remote = self.remote_attach
        assert remote is not None
        if initial_delivery_count is None:
            initial_delivery_count = self.session.connection.settings.first_delivery_count
        self._answer(
            Attach(
                self.name,
                0,
                self.role,
                remote.snd_settle_mode,
                remote.rcv_settle_mode,
                source if source is not None else remote.source,
                target if target is not None else remote.target,
                unsettled,
                properties=properties,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                max_message_size=max_message_size,
                initial_delivery_count=None if self.role else initial_delivery_count,
            ),
        )

    def refuse(self, condition: str, description: str) -> None:
        """Answer the peer's attach with a null terminus, then detach with the error (§2.6.3)."""
        if self._answerable():
            self.refuse_with(Error(Symbol(condition), description))

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Detaches; LinkDetached follows when the peer answers. If the peer's attach was not answered yet, it is
        refused."""
        if self.over or self.detach_sent or not self.session.usable:
            return
        if not self.attach_sent:
            self.refuse_with(error)
        else:
            self._send_detach(closed, error)

    # ------------------------------------------------------------------------------------- for the session

    def _answerable(self) -> bool:
        if self.remote_attach is None or (self.attach_sent and not self.over):
            raise LocalProtocolError(f"link {self.name!r} waits for no answer of ours")
        return self.session.usable and not self.attach_sent and (not self.over or self.detach_received)

    def attach(self, attach: Attach) -> None:
        """Send our attach, on the lowest free handle; LocalProtocolError if there is none, or no frame holds it."""
        if self.handle < 0:
            self.handle = self.session.take_handle(self)
        self._complete(attach)
        self.session.write(attach)
        self._sent(attach)

    def _complete(self, attach: Attach) -> None:
        attach.handle = self.handle
        if self.role and attach.max_message_size is None:
            attach.max_message_size = self.session.connection.settings.max_message_size

    def _sent(self, attach: Attach) -> None:
        self.local_attach = attach
        self.attach_sent = True
        self._attached(attach)

    def refuse_with(self, error: Error | None) -> None:
        """Answer the peer's attach with a null terminus, then detach."""
        remote = self.remote_attach
        assert remote is not None
        # The terminus that is ours is null: that is how a client tells a refusal from a link that broke.
        attach = Attach(
            self.name,
            0,
            self.role,
            min(remote.snd_settle_mode, SND_SETTLE_MODE_MAX),  # an answer that can be read, to a mode that is none
            min(remote.rcv_settle_mode, RCV_SETTLE_MODE_MAX),
            remote.source if self.role else None,
            None if self.role else remote.target,
            initial_delivery_count=None if self.role else 0,
        )
        self._complete(attach)
        if not self.session.fits(attach):
            attach.source = attach.target = None
        self._answer(attach)
        if self.attach_sent and not self.detach_sent:
            self._send_detach(True, error)

    def _answer(self, attach: Attach) -> None:
        """Attaches. If the peer's frames are too small for its own terms, refuses the link, or at worst ends the
        session."""
        session = self.session
        self._complete(attach)
        resuming.fit(attach, session.connection.body_bytes_max)
        if session.write_if_fits(attach):
            self._sent(attach)
            if self.detach_received:
                self._send_detach(True, None)
            return
        error = Error(Symbol(conditions.FRAME_SIZE_TOO_SMALL), "the answer to the attach does not fit into a frame")
        bare = Attach(attach.name, 0, self.role, attach.snd_settle_mode, attach.rcv_settle_mode)
        bare.initial_delivery_count = attach.initial_delivery_count
        self._complete(bare)
        if session.write_if_fits(bare):
            self._sent(bare)
            self._send_detach(True, error)
        else:
            session.end(error)

    def _send_detach(self, closed: bool, error: Error | None) -> None:
        self.detach_sent = True
        self.stop()
        self.session.forget_frames_of(self)
        self.session.write(Detach(self.handle, closed, error))
        if self.detach_received:
            self.session.free_handle(self, self.handle)

    def on_detach(self, detach: Detach) -> list[Any] | None:
        """The peer's detach: answered in kind, unless it answers ours or our attach is still to come. Returns what
        `finish` does."""
        self.detach_received = True
        if self.detach_sent:
            self.session.free_handle(self, self.handle)
        else:
            self.closed_by_peer = detach.closed and detach.error is None
            if self.attach_sent:
                self._send_detach(detach.closed, None)
        return self.finish(detach.closed, detach.error)

    def fault(self, error: Error) -> list[Any] | None:
        """Detaches because of an error of the peer, and waits for its detach, for which there is no event. Returns what
        `finish` does."""
        if not self.detach_sent:
            self.detach(error=error)
        return self.finish(True, error)

    def finish(self, closed: bool, error: Error | None) -> list[Any] | None:
        """Ends the link. Returns the contexts of our deliveries without an outcome, in order, for LinkDetached; None if
        the link had ended before."""
        self.stop()
        if self.over:
            return None
        self.over = True
        self.closed = closed
        self.error = error
        self.session.forget(self)
        return self._take_unsettled()

    def stop(self) -> None:
        """Stops sending on the link, and drops the received part of an unfinished delivery."""
        raise AssertionError("a link is a Sender or a Receiver")

    def _attached(self, attach: Attach) -> None:
        raise AssertionError("a link is a Sender or a Receiver")

    def _take_unsettled(self) -> list[Any]:
        raise AssertionError("a link is a Sender or a Receiver")


def message_size_limit(attach: Attach | None) -> int | None:
    """The peer's max-message-size in bytes; 0 and null both mean no limit (§2.7.3)."""
    return None if attach is None else attach.max_message_size or None
