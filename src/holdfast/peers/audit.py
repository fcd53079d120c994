"""The audit log of a node: logins, failed logins, refusals, and changes by `$management` and by files
(docs/security.md). Rules of this file: a record has the user, the address, the action and the outcome; never a
password, and no name that is not a user's, because it may be a password. Records are bounded by source and kind, so
that many refusals of one user hide neither those of others nor changes; the next record counts those left out.
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
"""Too many logins of that name from that address have failed: this one was not checked."""

RECORDS_PER_S: Final = 2.0
RECORDS_BURST: Final = 100.0
"""Records of one kind about one user, or about one address without a user: the rate a second, and the burst."""

CHANGES_PER_S: Final = 2_000.0
CHANGES_BURST: Final = 10_000.0
"""The same for changes: more than the default of `user_requests_per_s` allows."""

ADDRESSES_MAX: Final = 1_000
"""Addresses without a user that are counted separately; further ones count as one, until one of the former was quiet
for a minute. Users and neighbours are always counted separately, because their names are configured."""

TEXT_CHARACTERS_MAX: Final = 500
"""Characters of each text, which a peer may have chosen."""


class Audit:
    """Writes records if an audit log is configured."""

    def __init__(self, outbox: Outbox, clock: Clock, *, is_wanted: bool) -> None:
        self._outbox = outbox
        self.is_wanted = is_wanted
        self._few = Allowances(clock, per_s=RECORDS_PER_S, burst=RECORDS_BURST)
        self._many = Allowances(clock, per_s=CHANGES_PER_S, burst=CHANGES_BURST)
        self.addresses = Strangers(clock, ADDRESSES_MAX, forgotten=self._forget)
        self.left_out: Counter[str] = Counter()

    def login(self, peer: Peer, *, outcome: str, mechanism: str | None = None, user: str | None = None) -> None:
        """Records a login, successful (OK) or refused. `user`: of a refused login, if it is a user's name."""
        peer.login_told = True
        if self.is_wanted:
            name = user if outcome != OK else peer.who
            self._record(LOGIN, peer, {"outcome": outcome, "user": name, "mechanism": mechanism})

    def failed(self, peer: Peer, error: Error) -> None:
        """Records a connection that ended by an error: the only record of a login with a mechanism that was not
        offered, or without its data."""
        is_login = peer.amqp.remote_open is None and error.condition == conditions.UNAUTHORIZED_ACCESS
        if is_login and not (peer.login_told or peer.dialled):
            mechanism = peer.amqp.login_mechanism
            self.login(peer, outcome=REFUSED, mechanism=mechanism if mechanism in MECHANISMS else None)

    def refused(self, peer: Peer, action: str, address: str) -> None:
        """Records that the peer may not do that there."""
        if self.is_wanted:
            self._record(REFUSAL, peer, {"outcome": REFUSED, "action": action, "address": address})

    def not_published(self, neighbour: str, account: str | None, action: str, address: str, host: str) -> None:
        """Records that a message from the neighbour became a dead letter, because its account may not send there."""
        if self.is_wanted:
            told = {"outcome": REFUSED, "user": account, "vhost": host or None, "neighbour": neighbour}
            self._put(REFUSAL, f"neighbour /{neighbour}", told | {"action": action, "address": address})

    def changed(self, peer: Peer, text: str) -> None:
        """Records a change by a request of the peer, which is on disk."""
        if self.is_wanted:
            self._record(CHANGE, peer, {"outcome": OK, "change": text})

    def configured(self, text: str) -> None:
        """Records a change that came with a file, by nobody who is connected."""
        if self.is_wanted:
            self._put(CHANGE, "files", {"outcome": OK, "change": text})

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
        """The user or address for which a record counts."""
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
