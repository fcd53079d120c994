"""Logins: the mechanisms that a connection is offered, and the check of its login.

Rules of this file: nothing of a password is sent or logged. A client without a login cannot find out which users exist:
SCRAM has keys for an unknown name as well, and all failures look alike. Without a [[user]], anyone on loopback may log
in; a neighbour's user still needs its password.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable
from hmac import digest
from itertools import compress
from typing import Final

from holdfast.amqp.login.exchanges import Authenticate, LoginNotChecked, LoginWaits, Proof
from holdfast.amqp.login.keys import ITERATIONS, Keys
from holdfast.amqp.login.mechanisms import ANONYMOUS, EXTERNAL, MECHANISMS, PLAIN, SCRAM
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.engine.events import ConnectionOpened
from holdfast.peers.accounts import Accounts
from holdfast.peers.audit import NOT_CHECKED, REFUSED, Audit
from holdfast.peers.hosts import VirtualHosts
from holdfast.peers.logins import Login, Logins
from holdfast.peers.peer import Peer, host_of
from holdfast.settings.hosts import UserConfig
from holdfast.settings.node import NodeConfig

NONCE_BYTES: Final = 18
"""Random bytes in a nonce, which is sent to the peer."""

UNKNOWN_BYTES: Final = 16
"""Bytes of the hash of an unknown name, which may be a password, among the failed logins."""


class Entrance:
    """Checks the logins of a node's connections."""

    def __init__(
        self, config: NodeConfig, accounts: Accounts, logins: Logins, hosts: VirtualHosts, audit: Audit
    ) -> None:
        self._config = config
        self._accounts = accounts
        self._logins = logins
        self._hosts = hosts
        self._audit = audit
        self._certified: dict[str, dict[HostedName, str]] = {}
        """By certificate name: the users with that certificate, and their names."""
        self.configure(config.users)

    def configure(self, users: Iterable[UserConfig]) -> None:
        """Sets the users with certificates."""
        self._certified.clear()
        for user in users:
            if user.certificate is not None:
                self._certified.setdefault(user.certificate, {})[user.key] = user.name

    def mechanisms(self, event: ConnectionOpened) -> tuple[str, ...]:
        """The mechanisms with which a user can log in over that connection; amqp/login/mechanisms.py removes those that
        its login shows to be impossible."""
        accounts = self._accounts
        named = accounts.has_users or not event.loopback  # nobody comes in without a name
        exposed = not (event.loopback or event.encrypted)
        without = {ANONYMOUS} if named else set()
        if exposed and not self._config.plain_without_tls:
            without.add(PLAIN)
        if not accounts.known and not accounts.has_file:
            without.update((*SCRAM, PLAIN) if accounts.has_users else SCRAM)
        return tuple(name for name in MECHANISMS if name not in without)

    def nonce(self, event: ConnectionOpened) -> str:
        """Random text of that connection, for mechanisms that need some; "" if the driver gave none."""
        if not event.nonce:
            return ""
        if not self._accounts.checks.secret:
            self._accounts.hide(digest(event.nonce, b"secret", "sha256"))
        return b64encode(digest(event.nonce, b"nonce", "sha256")[:NONCE_BYTES]).decode()

    def user_of(self, certificate: str | None) -> str | None:
        """The user of that certificate; None if there is none."""
        found = self._certified.get(certificate or "")
        return None if not found else next(iter(found.values()))

    def keys(self, peer: Callable[[], Peer]) -> Callable[[str, str], Keys]:
        """(mechanism, user) → the keys of that user of that peer's host. For an unknown name, keys of the same form
        that are always the same."""

        accounts = self._accounts

        def keys(mechanism: str, user: str) -> Keys:
            known = accounts.known  # as it is now: the file of users may have changed
            hosts = self._hosts.of_login(user, peer().amqp.login_hostname, known)
            if hosts:
                return known[hosted(hosts[0], user)].keys(mechanism)
            stored = accounts.derived(f"{mechanism} {user}")
            size = len(stored) if mechanism == SCRAM[0] else len(stored) // 2
            return Keys(accounts.salt(hosted(DEFAULT_HOST, user)), ITERATIONS, stored[:size], stored[-size:])

        return keys

    def authenticator(self, event: ConnectionOpened, peer: Callable[[], Peer]) -> Authenticate:
        """Checks the logins of one connection."""
        accounts, audit = self._accounts, self._audit
        address = host_of(event.peer)
        login = Login(self._logins, address)

        def authenticate(mechanism: str, user: str | None, proof: Proof | None) -> bool:
            here = peer()
            hostname = here.amqp.login_hostname
            if mechanism == EXTERNAL and user is not None:
                certified = self._certified.get(here.certificate or "", {})
                here.login_hosts = tuple(self._hosts.of_login(user, hostname, certified))
                if not here.login_hosts:
                    audit.login(here, outcome=REFUSED, mechanism=mechanism)
                return bool(here.login_hosts)
            known = accounts.known  # as it is now: the file of users may have changed
            hosts = [] if user is None else self._hosts.of_login(user, hostname, known)
            anyone = not accounts.has_users and event.loopback and mechanism in (ANONYMOUS, PLAIN)
            if not hosts and anyone:
                named = self._hosts.named(hostname)
                here.login_hosts = (named,) if named else ()
                return True
            if proof is None:
                audit.login(here, outcome=REFUSED, mechanism=mechanism)
                return False
            names = [hosted(host, user or "") for host in hosts]
            known_user = user if names else None  # another one may be a password
            whose = user if names and user else accounts.derived(f"login {user!r}")[:UNKNOWN_BYTES]
            waits_until = login.waits_until(whose)
            if waits_until is not None:
                raise LoginWaits(waits_until)
            if login.is_refused:
                audit.login(here, outcome=NOT_CHECKED, mechanism=mechanism, user=known_user)
                raise LoginNotChecked
            accounts.checks.address = address
            fits = [proof(known[each]) for each in names]  # of users of one name the password tells which
            if not any(fits) and accounts.nobody is not None and not any(map(accounts.looks_stored, names)):
                proof(accounts.nobody)  # how long it takes does not tell who is known
            here.login_hosts = tuple(compress(hosts, fits))
            entered = any(fits)
            login.answered(whose, names[0] if names else None, entered=entered)
            if not entered:
                audit.login(here, outcome=REFUSED, mechanism=mechanism, user=known_user)
            return entered

        return authenticate
