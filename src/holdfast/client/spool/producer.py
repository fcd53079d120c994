"""The numbers of one named producer: which were given out here, and which the node says that it has stored.

Rules of this file: no loop, no link; what the node says is checked before it is believed. Source: docs/CUSTODY.md
(Producers); docs/client.md (Producers).
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.amqp.wire.extensions import LAST_NUMBER, MISSING, PRODUCER_EPOCH
from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.errors import LinkError, ProducerConflict
from holdfast.client.spool.spool import SpoolFile
from holdfast.errors import ConfigError

NUMBER_MAX: Final = 2**63 - 1
SPOOL_LAST_MAX: Final = 2**62
"""Of the number that a spool's own begin behind: it leaves more of them than a spool ever gives out."""


class ProducerNumbers:
    """Of one sender. `last_number` and `missing`: what the node had stored at the latest attach; `epoch`: how often
    anyone had attached under the name by then, 0 where the node did not say.

    With a spool the spool gives the numbers out, and keeps them over crashes.
    """

    def __init__(self, producer: str, address: str, what: str, spool: SpoolFile | None) -> None:
        """`what`: the sender, as its errors name it."""
        self.last_number = 0
        self.missing = RangeSet()
        self.epoch = 0
        self._producer = producer
        self._address = address
        self._what = what
        self._spool = spool
        self._given_out = 0
        self._has_learned = False

    @property
    def next_number(self) -> int:
        """The number that the next message gets, once `learn` was called."""
        number = None if self._spool is None else self._spool.number(self._spool.next_local)
        return number or self._given_out + 1

    def give_out(self, number: int | None) -> int:
        """The number of a new message: `number`, else the next one. Without a spool.

        Raises ConfigError before the first `learn`: which numbers are free is not known; and behind the last there is.
        """
        if not self._has_learned:
            raise ConfigError(f"{self._what}: a message came before the node answered; send after ready()")
        given = self._given_out + 1 if number is None else number
        if given > NUMBER_MAX:
            raise ConfigError(f"{self._what}: there is no number above {self._given_out}; the limit is 2**63 - 1")
        self._given_out = max(self._given_out, given)
        return given

    def is_stored(self, number: int) -> bool:
        """The node had it at the latest attach."""
        return number <= self.last_number and number not in self.missing

    def learn(self, properties: Mapping[Any, Any]) -> None:
        """Takes in the properties of the node's answer to an attach; the spool's messages have numbers after this.

        Raises ConfigError for a peer that keeps no producer names, LinkError for an answer that makes no sense,
        ProducerConflict where the node has a number that neither we nor an earlier run can have sent, StorageError.
        """
        last = self._last(properties)
        missing = numbers_missing(self._what, properties)
        self._check_last(last)
        if self._spool is not None and not self._spool.is_numbered:
            self._spool.assign_numbers(last)
        epoch = properties.get(PRODUCER_EPOCH)
        self.epoch = int(epoch) if isinstance(epoch, int) else 0
        self.last_number, self.missing, self._has_learned = last, missing, True

    def _last(self, properties: Mapping[Any, Any]) -> int:
        """The highest number that the node says it has, 0 where it has none."""
        last = properties.get(LAST_NUMBER)
        if last is None:
            raise ConfigError(
                f"producer {self._producer!r}: the peer keeps no producer names; connect to a Holdfast node"
            )
        last_max = NUMBER_MAX if self._spool is None else SPOOL_LAST_MAX
        if not isinstance(last, int) or isinstance(last, bool) or not 0 <= last <= last_max:
            text = f"invalid {LAST_NUMBER} in the node's answer; expected a number from 0 to {last_max}"
            raise LinkError(f"{self._what}: {text}", None)
        return int(last)

    def _check_last(self, last: int) -> None:
        if self._spool is None:
            if not self._has_learned:
                self._given_out = max(self._given_out, last)
            highest: int | None = self._given_out
        else:
            highest = self.next_number - 1 if self._has_learned else self._spool.numbering.may_have_sent
        if highest is not None and last > highest:
            copy = "" if self._spool is None else ", or the spool is an older copy"
            raise ProducerConflict(
                f"producer {self._producer!r} to {self._address!r}: the node has stored number {last}, and {highest} "
                f"is the last that was given out here: another sender uses the name{copy}"
            )


def numbers_missing(what: str, properties: Mapping[Any, Any]) -> RangeSet:
    """What the node says that it lacks of a producer's numbers, in its answer to the attach of `what`.

    LinkError where that is no list of pairs of whole numbers, each the first and last of a range.
    """
    told = properties.get(MISSING)
    missing = RangeSet()
    for pair in told if isinstance(told, list) else () if told is None else (told,):
        match pair:
            case [int(first), int(last)] if 1 <= first <= last and bool not in (type(first), type(last)):
                missing.add(int(first), int(last))
            case _:
                raise LinkError(f"{what}: invalid {MISSING} in the node's answer; expected a list of ranges", None)
    return missing
