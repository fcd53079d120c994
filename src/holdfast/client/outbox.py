"""One sender's messages without an outcome: those in memory, in their order, and what its spool holds beyond them.

Rules of this file: no link. A message leaves by its outcome, or because the node says at an attach that it has stored
its number or tag, and in no other way; each that leaves is counted once. Hot path: `enter` → `decided`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable

from holdfast.client import payload
from holdfast.client.bodies import Body
from holdfast.client.doubt import Doubt, OnOutcome, key_of, number_of
from holdfast.client.given_back import GivenBack
from holdfast.client.outcomes import ACCEPTED, Accepted, Outcome, Rejected, Spooled, is_not_taken
from holdfast.client.producer import ProducerNumbers
from holdfast.client.spool import SpoolFile
from holdfast.client.waiting import Waiting

Promise = asyncio.Future[Outcome] | None


class Outbox:
    """`doubt`: messages in memory by key, in the order in which they were handed over. `unsent`: those of them that
    the link has yet to send, in the order in which they go; made anew when a link is attached.

    Counts: `accepted`, `rejected`, `released` (and modified). `touch` is called where there is something to send or
    to write to the spool.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        touch: Callable[[], None],
        *,
        in_doubt_max: int,
        numbers: ProducerNumbers | None,
        spool: SpoolFile | None,
    ) -> None:
        self.accepted = 0
        self.rejected = 0
        self.released = 0
        self.doubt: dict[int, Doubt] = {}
        self.unsent: deque[Doubt] = deque()
        self.given_back = GivenBack(loop, self._offer_again)
        """What the node did not take of a spool's messages; while there is any, nothing else is sent."""
        self.waiting = Waiting(loop)
        self.has_link = False
        """There is one that is attached: what is entered can be sent."""
        self.raised: Exception | None = None
        """What an `on_outcome` raised, the first of them."""
        self._touch = touch
        self._in_doubt_max = in_doubt_max
        self._numbers = numbers
        self._spool = spool
        self._next_key = 0

    @property
    def spooled(self) -> int:
        """Messages in the spool without an outcome, those in memory included; 0 without a spool."""
        return self._spool.undone if self._spool is not None else 0

    @property
    def is_full(self) -> bool:
        """No more may be in doubt."""
        return len(self.doubt) >= self._in_doubt_max

    # ------------------------------------------------------------------------------------------ messages come

    def enter(
        self,
        cut: payload.Cut,
        number: int | None,
        future: Promise,
        on_outcome: OnOutcome | None,
        body: Body | None = None,
    ) -> Doubt | None:
        """A new message; of a named producer `number` is its own number for it, else the next one is given. None where
        the node has it already.
        """
        numbers = self._numbers
        if numbers is not None:
            wants_own, number = number is not None, numbers.give_out(number)
            if wants_own and numbers.is_stored(number):
                self.accepted += 1
                if future is not None:
                    future.set_result(ACCEPTED)
                return None
        key = self._next_key
        self._next_key = key + 1
        entry = self.doubt[key] = Doubt(key, cut, number, future, on_outcome, body)
        if self.has_link:
            if not self.unsent:
                self._touch()
            self.unsent.append(entry)
        return entry

    def enter_spooled(self, spool: SpoolFile, cut: payload.Cut, future: Promise, on_outcome: OnOutcome | None) -> None:
        """A new message, written to `spool`. Beyond what may be in memory it is loaded in its turn, and is `Spooled`
        for whoever waits. Raises as `SpoolFile.append`.
        """
        is_behind = not spool.is_drained() or self.is_full
        encoded = b"".join(cut.parts(None))
        local = spool.append(encoded)
        if is_behind:
            if future is not None:
                future.set_result(Spooled(spool.number(local) or local))
            return
        spool.skip_loaded()
        entry = self._hold(local, len(encoded), cut, spool.number(local), future, on_outcome)
        if self.has_link:
            if not self.unsent:
                self._touch()
            self.unsent.append(entry)

    def _hold(
        self,
        local: int,
        size: int,
        cut: payload.Cut,
        number: int | None,
        future: Promise = None,
        on_outcome: OnOutcome | None = None,
    ) -> Doubt:
        """A message of the spool, now in memory too."""
        key = self._next_key
        self._next_key = key + 1
        entry = self.doubt[key] = Doubt(key, cut, number, future, on_outcome)
        entry.local, entry.size = local, size
        return entry

    def load(self) -> None:
        """Brings what the spool still holds into the room that memory has, once the numbers are known."""
        spool, numbers = self._spool, self._numbers
        if spool is None or numbers is None or not spool.is_numbered or spool.is_drained():
            return
        room = self._in_doubt_max - len(self.doubt)
        if room <= 0:
            return
        for local, encoded in spool.load(room):
            number = spool.number(local)
            assert number is not None, "all have numbers by now"
            if numbers.is_stored(number):
                spool.done(local, len(encoded))
                self.accepted += 1
                self._touch()
                continue
            self.unsent.append(self._hold(local, len(encoded), payload.cut_payload(encoded), number))
        if not spool.is_drained() and not self.is_full:
            self._touch()
        self.wake()

    # ------------------------------------------------------------------------------------------- the link's turns

    def stored(self) -> list[Doubt]:
        """What is in doubt and was stored by the node at this attach; the spool's messages have their numbers now."""
        numbers, spool = self._numbers, self._spool
        assert numbers is not None, "a node tells numbers to producers with a name alone"
        if spool is not None:
            for entry in self.doubt.values():
                entry.number = spool.number(entry.local)
        return [entry for entry in self.doubt.values() if entry.number is not None and numbers.is_stored(entry.number)]

    def linked(self, resumed: Collection[Doubt]) -> None:
        """A link is attached: all that is in doubt goes as new, but for what is `resumed` in another way."""
        kept = {entry.key for entry in resumed}
        unsent = [entry for key, entry in self.doubt.items() if key not in kept]
        if self._numbers is not None:
            unsent.sort(key=number_of)
        self.unsent = deque(unsent)
        self.has_link = True
        self.load()

    def unlinked(self) -> None:
        """The link is gone."""
        self.has_link = False
        self.given_back.clear()

    def send_again(self, entries: list[Doubt]) -> None:
        """What could not be resumed goes as new, in its old order, also where credit lets a few through at a time."""
        self.unsent = deque(sorted((*entries, *self.unsent), key=key_of))

    # ------------------------------------------------------------------------------------------ messages leave

    def decided(self, entries: Iterable[Doubt], outcome: Outcome) -> int:
        """The node has decided about `entries`; returns how many of them left. What it did not take of a spool's
        messages stays, and is offered again after a while, or on the next link.
        """
        doubt, spool, count = self.doubt, self._spool, 0
        if spool is not None and is_not_taken(outcome):
            back = [entry for entry in entries if entry.key in doubt]
            self.released += len(back)
            self.given_back.add(back)
            return 0
        for entry in entries:
            if doubt.pop(entry.key, None) is None:
                continue
            count += 1
            future = entry.future
            if future is not None and not future.done():
                future.set_result(outcome)
            if spool is not None:
                spool.done(entry.local, entry.size)
            if entry.on_outcome is not None and outcome is not ACCEPTED:
                try:
                    entry.on_outcome(entry.number, outcome)
                except Exception as error:  # the program's; the others are told and counted all the same
                    self.raised = self.raised or error
        if isinstance(outcome, Accepted):
            self.accepted += count
        elif isinstance(outcome, Rejected):
            self.rejected += count
        else:
            self.released += count
        if count and spool is not None:
            self._touch()
        self.wake()
        return count

    def drop(self, entry: Doubt, error: Exception) -> None:
        """What its body raised: the message was not sent, and whoever waits for it is told."""
        if self.doubt.pop(entry.key, None) is not None:
            if entry.future is not None and not entry.future.done():
                entry.future.set_exception(error)
            self.wake()

    def give_up(self, entry: Doubt) -> None:
        """Nobody waits for the message any more, and not all of it was sent."""
        if self.doubt.pop(entry.key, None) is not None:
            if entry in self.unsent:
                self.unsent.remove(entry)
            self.wake()

    def fail(self, error: Exception) -> bool:
        """The sender's end: everyone who waits is told. True where messages were in doubt."""
        doubt, self.doubt = self.doubt, {}
        self.unsent.clear()
        self.given_back.clear()
        for entry in doubt.values():
            if entry.future is not None and not entry.future.done():
                entry.future.set_exception(error)
                entry.future.exception()  # who looks at it sees it; who does not gets no noise at exit
        return bool(doubt)

    def wake(self) -> None:
        """Whoever waits for room, or for the end, looks again."""
        self.waiting.wake(self._in_doubt_max - len(self.doubt), is_empty=not self.doubt and not self.spooled)

    def _offer_again(self) -> bool:
        again, unsent = self.given_back.entries, self.unsent
        if len(self.doubt) > len(again) + len(unsent):
            return False  # what is under way may come back too, and then goes in its place
        self.unsent = deque(sorted((*again, *unsent), key=number_of))
        self._touch()
        return True
