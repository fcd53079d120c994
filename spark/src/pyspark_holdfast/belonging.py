"""Whether a checkpoint, a subscription and a queue belong together, and what becomes of a query where not.

Rules of this file: whatever would lose or double rows ends the query, in a line that says what to do; with
`failOnDataLoss` false what was lost is told once, and the query goes on with what is left.
"""

import logging
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from pyspark_holdfast.bus import QueueMadeAnew
from pyspark_holdfast.checkpoint import Checkpoint
from pyspark_holdfast.members import Member
from pyspark_holdfast.offsets import Offset, Place, shown

if TYPE_CHECKING:
    from pyspark_holdfast.options import SourceOptions

log = logging.getLogger(__name__)


class Belonging:
    """Of one run of a query."""

    def __init__(self, options: "SourceOptions", checkpoint: Checkpoint) -> None:
        self._options = options
        self._checkpoint = checkpoint
        self._warned: set[str] = set()

    def begin(self, offset: Offset, member: Member) -> int:
        """The sequence of this queue in `offset`, or the subscription's place if it is not there. Raises ConfigError
        where checkpoint, subscription and queue do not belong together; the place of what is left, where
        `failOnDataLoss` is false.
        """
        place, own = offset.places.get(member.key), member.place
        if place is None or not self.is_of(place, member):
            return own.advanced
        where = shown(member.key)
        if place.seq < own.advanced:
            self.lost(
                f"it is at {place.seq}, {self._options.subscription!r} of {where} has advanced to {own.advanced}",
                member,
            )
            return own.advanced
        if place.seq > member.tail:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: it is at {place.seq}, {where} ends at "
                f"{member.tail}: the node's store was put back to an older state; use a new checkpoint with a new "
                "output"
            )
        return place.seq

    def lost(self, what: str, member: Member) -> None:
        """Of an older checkpoint: raises ConfigError, unless `failOnDataLoss` is false."""
        if self._options.fail_on_data_loss:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: checkpoint older than the subscription: {what}, and what lies "
                "between may be gone; give the checkpoint that advanced it"
            )
        self.warn(f"{shown(member.key)}: {what}, and what lies between may be gone")

    def is_of(self, place: Place, member: Member) -> bool:
        """Whether it is of this queue. Raises QueueMadeAnew where not, unless `failOnDataLoss` is false."""
        if place.queue == member.uuid:
            return True
        text = f"{shown(member.key)} was deleted and created again"
        if self._options.fail_on_data_loss:
            raise QueueMadeAnew(
                f"{text}: checkpoint {self._checkpoint.path} has read queue {place.queue}, and now it is "
                f"{member.uuid}; use a new checkpoint with a new output"
            )
        self.warn(text)
        return False

    def warn(self, text: str) -> None:
        """Of data that is lost, once for each text."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning(
                "subscription %r: %s; the query goes on (failOnDataLoss is false)", self._options.subscription, text
            )
