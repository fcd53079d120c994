"""The audit log of a node: who logged in or failed to, what was refused to whom, and what was changed by `$management`
(docs/security.md).

Rules of this file: a record says who, from where, what, and how it ended; nothing of a password, and no name of a user
that is not known, because it may be a password. Records are bounded by source and kind, so that refusals to one hide
neither another's nor changes; what is left out is counted in the next record.
"""

from collections import Counter
from typing import Any, Final

from holdfast.amqp.login.mechanisms import MECHANISMS
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.engine.outbox import Outbox
from holdfast.engine.strangers import Strangers
from holdfast.peers.limits.allowances import Allowances
from holdfast.peers.peer import Peer, host_of
from holdfast.peers.use import ANONYMOUS

LOGIN: Final = "login"
REFUSAL: Final = "refusal"
CHANGE: Final = "change"

OK: Final = "ok"
REFUSED: Final = "refused"
NOT_CHECKED: Final = "not checked"
"""Too many logins of that name from that address have failed: this one was not looked at."""

RECORDS_PER_S: Final = 2.0
RECORDS_BURST: Final = 100.0
"""Records of one kind about one user, or about one address without a user: so many a second, and at once."""

CHANGES_PER_S: Final = 2_000.0
CHANGES_BURST: Final = 10_000.0
"""The same for changes: more than a user may ask for (`user_requests_per_s`) with its default."""

ADDRESSES_MAX: Final = 1_000
"""Addresses without a user that are counted apart; all further ones count as one, until one of them was quiet for a
minute. Users and neighbours are counted apart in any case: their names are configured."""

TEXT_CHARACTERS_MAX: Final = 500
"""Of each text, which a peer may have chosen."""


class Audit:
    """Writes records, if anybody reads them."""

    def __init__(self, outbox: Outbox, clock: Clock, *, is_wanted: bool) -> None:
        self._outbox = outbox
        self.is_wanted = is_wanted
        self._few = Allowances(clock, per_s=RECORDS_PER_S, burst=RECORDS_BURST)
        self._many = Allowances(clock, per_s=CHANGES_PER_S, burst=CHANGES_BURST)
        self.addresses = Strangers(clock, ADDRESSES_MAX, forgotten=self._forget)
        self.left_out: Counter[str] = Counter()

    def login(self, peer: Peer, *, outcome: str, mechanism: str | None = None, user: str | None = None) -> None:
        """Somebody came in (OK), or was sent away. `user`: of who was sent away, if the name is known."""
        peer.login_told = True
        if self.is_wanted:
            name = user if outcome != OK else peer.who
            self._record(LOGIN, peer, {"outcome": outcome, "user": name, "mechanism": mechanism})

    def failed(self, peer: Peer, error: Error) -> None:
        """The connection ended by an error. Of a login by a mechanism that is not offered, or without what it takes,
        nobody else tells."""
        is_login = peer.amqp.remote_open is None and error.condition == conditions.UNAUTHORIZED_ACCESS
        if is_login and not (peer.login_told or peer.dialled):
            mechanism = peer.amqp.login_mechanism
            self.login(peer, outcome=REFUSED, mechanism=mechanism if mechanism in MECHANISMS else None)

    def refused(self, peer: Peer, action: str, address: str) -> None:
        """The peer may not do that there."""
        if self.is_wanted:
            self._record(REFUSAL, peer, {"outcome": REFUSED, "action": action, "address": address})

    def not_published(self, neighbour: str, account: str | None, action: str, address: str, host: str) -> None:
        """A message that the neighbour brought became a dead letter, because its account may not send there."""
        if self.is_wanted:
            told = {"outcome": REFUSED, "user": account, "vhost": host or None, "neighbour": neighbour}
            self._put(REFUSAL, f"neighbour /{neighbour}", told | {"action": action, "address": address})

    def changed(self, peer: Peer, text: str) -> None:
        """A request of the peer changed something, which is on disk."""
        if self.is_wanted:
            self._record(CHANGE, peer, {"outcome": OK, "change": text})

    def _record(self, kind: str, peer: Peer, fields: dict[str, Any]) -> None:
        user = peer.who
        opened = peer.amqp.remote_open
        whom = {
            "user": user,
            "vhost": peer.host or None,
            "neighbour": None if peer.neighbour is None else peer.neighbour.name,
            "from": peer.address,
            "connection": peer.number,
            "container": None if opened is None else str(opened.container_id),
        }
        self._put(kind, self._source(peer), whom | fields)

    def _source(self, peer: Peer) -> str:
        """For whom a record counts."""
        use = peer.use
        if use is not None and use.kind != ANONYMOUS:
            return f"{use.kind} {use.host}/{use.name}"
        address = host_of(peer.address)
        return f"address {address}" if self.addresses.has_place(address) else "other addresses"

    def _forget(self, address: str) -> None:
        for kind in (LOGIN, REFUSAL, CHANGE):
            place = f"{kind} address {address}"
            (self._many if kind == CHANGE else self._few).forget(place)
            self.left_out.pop(place, None)

    def _put(self, kind: str, source: str, fields: dict[str, Any]) -> None:
        place = f"{kind} {source}"
        if not (self._many if kind == CHANGE else self._few).count(place):
            self.left_out[place] += 1
            return
        left_out = self.left_out.pop(place, 0)
        told = {key: value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value for key, value in fields.items()}
        whole = {"kind": kind, **told, **({"left_out": left_out} if left_out else {})}
        self._outbox.put(events.Audit(fields={key: value for key, value in whole.items() if value is not None}))
