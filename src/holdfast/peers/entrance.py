"""Who may log in: the mechanisms that a connection is offered, and the check of what it shows.

Rules of this file: nothing of a password is told or logged. A stranger learns nothing of which users there are: of a
name that is none, SCRAM has keys as well, and a failure is a failure. Without a [[user]], anyone on loopback may log
in; a neighbour's user still needs its password.
"""

from base64 import b64encode
from collections.abc import Callable
from hmac import digest
from itertools import compress
from typing import Final

from holdfast.amqp.login.exchanges import Authenticate, Known, LoginWaits, Proof
from holdfast.amqp.login.keys import ITERATIONS, SALT_BYTES, Clear, Keys
from holdfast.amqp.login.mechanisms import ANONYMOUS, EXTERNAL, MECHANISMS, PLAIN, SCRAM
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.engine.events import ConnectionOpened
from holdfast.peers.hosts import VirtualHosts
from holdfast.peers.logins import Login, Logins
from holdfast.peers.peer import Peer, host_of
from holdfast.settings.node import NodeConfig

NONCE_BYTES: Final = 18
"""Of random bytes in a nonce, which is told."""


class Entrance:
    """Checks the logins of a node's connections. `known`: what is kept of passwords, by user."""

    def __init__(self, config: NodeConfig, logins: Logins, hosts: VirtualHosts) -> None:
        self._config = config
        self._logins = logins
        self._hosts = hosts
        self._secret = b""
        """Of this process; nobody else knows it."""
        users = {user.key: user.password for user in config.users if user.password is not None}
        neighbours = {
            hosted(DEFAULT_HOST, item.user): item.password for item in config.neighbours if item.user and item.password
        }
        self._passwords = neighbours | users
        self.known: dict[HostedName, Known] = {name: Clear(password) for name, password in self._passwords.items()}
        self._certified: dict[str, dict[HostedName, str]] = {}
        """By certificate: the users whose it is, and their names."""
        for user in config.users:
            if user.certificate is not None:
                self._certified.setdefault(user.certificate, {})[user.key] = user.name

    @property
    def needs_user(self) -> bool:
        """Whether there are users, so that nobody comes in without being one."""
        return bool(self._config.users)

    def mechanisms(self, event: ConnectionOpened) -> tuple[str, ...]:
        """Those that a connection is offered, by which somebody may come in; but for what is seen at its login
        (mechanisms.py)."""
        named = self.needs_user or not event.loopback  # nobody comes in without a name
        exposed = not (event.loopback or event.encrypted)
        without = {ANONYMOUS} if named else set()
        if exposed and not self._config.plain_without_tls:
            without.add(PLAIN)
        if not self.known:
            without.update((*SCRAM, PLAIN) if self.needs_user else SCRAM)
        return tuple(name for name in MECHANISMS if name not in without)

    def nonce(self, event: ConnectionOpened) -> str:
        """Random text of that connection, for the logins that need some; "" where the driver gave none."""
        if not event.nonce:
            return ""
        if not self._secret:
            self._salt(digest(event.nonce, b"secret", "sha256"))
        return b64encode(digest(event.nonce, b"nonce", "sha256")[:NONCE_BYTES]).decode()

    def _salt(self, secret: bytes) -> None:
        """From now on there is a secret: the passwords that are kept as they are get salts."""
        self._secret = secret
        for name, password in self._passwords.items():
            if isinstance(self.known.get(name), Clear):
                self.known[name] = Clear(password, self._derived("salt", repr(name))[:SALT_BYTES])

    def _derived(self, what: str, name: str) -> bytes:
        return digest(self._secret, f"{what}\0{name}".encode(), "sha512")

    def user_of(self, certificate: str | None) -> str | None:
        """The user whose certificate it is; None if it is nobody's."""
        found = self._certified.get(certificate or "")
        return None if not found else next(iter(found.values()))

    def keys(self, peer: Callable[[], Peer]) -> Callable[[str, str], Keys]:
        """(mechanism, user) → the keys of that user of that peer's host. Of a name that is no user's, keys that look
        the same and are always the same."""

        def keys(mechanism: str, user: str) -> Keys:
            hosts = self._hosts.of_login(user, peer().amqp.login_hostname, self.known)
            if hosts:
                return self.known[hosted(hosts[0], user)].keys(mechanism)
            salt = self._derived("salt", repr(hosted(DEFAULT_HOST, user)))[:SALT_BYTES]
            stored = self._derived(mechanism, user)
            size = len(stored) if mechanism == SCRAM[0] else len(stored) // 2
            return Keys(salt, ITERATIONS, stored[:size], stored[-size:])

        return keys

    def authenticator(self, event: ConnectionOpened, peer: Callable[[], Peer]) -> Authenticate:
        """Checks the logins of one connection."""
        login = Login(self._logins, host_of(event.peer), self.known)

        def authenticate(mechanism: str, user: str | None, proof: Proof | None) -> bool:
            here = peer()
            hostname = here.amqp.login_hostname
            if mechanism == EXTERNAL and user is not None:
                certified = self._certified.get(here.certificate or "", {})
                here.login_hosts = tuple(self._hosts.of_login(user, hostname, certified))
                return bool(here.login_hosts)
            hosts = [] if user is None else self._hosts.of_login(user, hostname, self.known)
            if not hosts and not self.needs_user and event.loopback and mechanism in (ANONYMOUS, PLAIN):
                named = self._hosts.named(hostname)
                here.login_hosts = (named,) if named else ()
                return True
            if proof is None:
                return False
            names = [hosted(host, user or "") for host in hosts]
            name = names[0] if names else None
            waits_until = login.waits_until(name)
            if waits_until is not None:
                raise LoginWaits(waits_until)
            fits = [proof(self.known[each]) for each in names]  # of users of one name the password tells which
            here.login_hosts = tuple(compress(hosts, fits))
            return login.answered(name, any(fits))

        return authenticate
