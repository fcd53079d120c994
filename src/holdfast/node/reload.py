"""The configuration read again while the node runs: by SIGHUP, or as `$management` asks (docs/operations.md).

Rules of this file: files are read in a thread, because their disk may hang; whoever asks is answered nevertheless. A
configuration with a mistake changes nothing: the driver prepares its part first, and applies it only after the core has
accepted.
"""

import logging
import threading
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Protocol

from holdfast.engine.events import CertificateRead, ConfigDecided, ConfigRead, Event
from holdfast.errors import HoldfastError
from holdfast.node import users_file
from holdfast.node.config import NodeSettings
from holdfast.node.logs import LogSettings
from holdfast.node.network.certificates import Certificates, PreparedCertificates
from holdfast.node.network.dials import Dials
from holdfast.node.process.appending import Opened
from holdfast.node.process.telemetry import AuditFile, RecordFile, TelemetryFile
from holdfast.peers.user_list import UserList

AT_START: Final = {
    "listen": "node listen",
    "listen_tls": "node listen",
    "data": "node data",
    "admin": "admin listen",
    "store_bytes_max": "store bytes_max",
    "store_must_exist": "store must_exist",
    "users_file": "node users_file",
}
"""The driver's own settings that hold from the next start on, by the keys that they come from."""

READ_S_MAX: Final = 20.0
"""What is not read by then is not used: those who asked for it are told that nothing has changed."""

_logger = logging.getLogger(__name__)

Load = Callable[[], NodeSettings]


class TakesUsers(Protocol):
    """Whoever reports the users of the file of users."""

    def use(self, users: UserList) -> None: ...


class LogTarget(Protocol):
    """Where the log goes."""

    def reopen(self, settings: LogSettings) -> Opened | None: ...
    def use(self, settings: LogSettings, opened: Opened | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration that was read and prepared. `use` takes it up and `drop` gives it up: one of the two is called,
    once."""

    settings: NodeSettings
    users: UserList | None
    reopened: tuple[tuple[RecordFile, Opened], ...]
    log: Opened | None
    certificates: PreparedCertificates
    have_changed: bool
    """The certificates' files."""

    def drop(self) -> None:
        for _, file in self.reopened:
            file.close()
        if self.log is not None:
            self.log.close()

    def use(self) -> None:
        for file, opened in self.reopened:
            file.use(opened)
        self.certificates.use()


class Reloader:
    """Reads the configuration by `load`, once at a time. Created and called on the loop's thread; `feed` hands an event
    to the core."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        load: Load,
        settings: NodeSettings,
        feed: Callable[[Event], None],
        *,
        files: tuple[TelemetryFile | None, AuditFile | None],
        certificates: Certificates | None,
        check_revoked: Callable[[], None],
        dials: Dials,
        watch_network: Callable[[], None],
        users: TakesUsers | None,
        log: "LogTarget | None",
    ) -> None:
        self._loop = loop
        self._load = load
        self.settings = settings
        """The settings in force."""
        self._feed = feed
        self._telemetry, self._audit = files
        self.certificates = certificates
        self._check_revoked = check_revoked
        self._dials = dials
        self._watch_network = watch_network
        self._users = users
        self._log = log
        self._reading: TimerHandle | None = None
        """A reading is under way, and this is when it takes too long."""
        self._is_late = False
        """It has taken too long."""
        self._again = False
        self._over = False
        self._prepared: Prepared | None = None

    def begin(self) -> None:
        """Reads it, and once more after a reading that is under way; refuses while one takes too long."""
        if self._is_late:
            self._refuse()
        elif self._reading is not None:
            self._again = True
        else:
            self._again = False
            self._reading = self._loop.call_later(READ_S_MAX, self._late)
            threading.Thread(target=self._read, name="holdfast-reload", daemon=True).start()

    def close(self) -> None:
        """Drops every configuration that is read from now on."""
        self._over = True
        if self._reading is not None:
            self._reading.cancel()

    def _late(self) -> None:
        self._is_late, self._again = True, False
        self._refuse()

    def _refuse(self) -> None:
        text = f"its files have not been read in {READ_S_MAX:g} s: does a disk hang? Reload again after that"
        self._feed(ConfigRead(config=None, problem=text))

    def decided(self, decided: ConfigDecided) -> None:
        """The core has decided about the configuration that was read last."""
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        if not decided.accepted:
            prepared.drop()
            return
        prepared.use()
        self._dials.configure(decided.config.dialled, self.certificates)
        if self._dials.wanted:
            self._watch_network()
        self.settings = self._kept(replace(prepared.settings, core=decided.config))
        if self._log is not None:
            self._log.use(self.settings.log, prepared.log)
        if self._users is not None and prepared.users is not None:
            self._users.use(prepared.users)

    # ------------------------------------------------------------------------------------------ in the thread

    def _read(self) -> None:
        found: Prepared | str
        try:
            found = self._prepare(self._load())
        except HoldfastError as error:
            found = str(error)
        except OSError as error:
            found = f"{error.filename}: {error.strerror}"
        except Exception as error:
            _logger.exception("reload")
            found = f"the configuration cannot be read ({error!r})"
        try:
            self._loop.call_soon_threadsafe(self._was_read, found)
        except RuntimeError:  # the node has ended meanwhile
            pass

    def _prepare(self, read: NodeSettings) -> Prepared:
        settings = self._bounded(read)
        is_same = settings.users_file is not None and settings.users_file == self.settings.users_file
        users = users_file.read(settings.users_file) if settings.users_file is not None and is_same else None
        have_changed = self.certificates is not None and self.certificates.have_changed()
        certificates = self._prepare_certificates(settings)
        reopened: list[tuple[RecordFile, Opened]] = []
        try:
            for file, path in ((self._telemetry, settings.telemetry_file), (self._audit, settings.audit_file)):
                if file is not None and path is not None:
                    reopened.append((file, file.reopen(path)))
            log = None if self._log is None else self._log.reopen(settings.log)
        except BaseException:
            for _, opened in reopened:
                opened.close()
            raise
        return Prepared(settings, users, tuple(reopened), log, certificates, have_changed)

    def _prepare_certificates(self, new: NodeSettings) -> PreparedCertificates:
        """Prepares TLS to use the new files, for the present listeners, and for the present and the
        new neighbours and remotes: the core may keep some of them until a restart."""
        dials = any(item.tls for item in (*new.core.dialled, *self.settings.core.dialled))
        known = self.certificates
        if known is not None:
            return known.prepare(new.tls, dials=dials)
        made = Certificates(new.tls, serves=False, dials=True) if dials else None

        def use() -> None:
            self.certificates = made
            if made is not None:
                made.changed, made.tell = self._check_revoked, self._feed
                made.watch(self._loop)

        return PreparedCertificates(use, CertificateRead() if made is None else made.own)

    def _bounded(self, new: NodeSettings) -> NodeSettings:
        """A bound that depends on the store's size keeps its present value until the next start."""
        if new.dead_letters_bounded or self.settings.dead_letters_bounded:
            return new
        letters = replace(new.core.dead_letters, bytes_max=self.settings.core.dead_letters.bytes_max)
        return replace(new, core=replace(new.core, dead_letters=letters))

    # ---------------------------------------------------------------------------------------------- on the loop

    def _was_read(self, found: Prepared | str) -> None:
        if self._reading is not None:
            self._reading.cancel()
        is_late, self._reading, self._is_late = self._is_late, None, False
        if self._over or is_late:
            if isinstance(found, Prepared):
                found.drop()
            if is_late and not self._over:
                _logger.info("reload: its files have been read, too late to be used; reload again")
            return
        if isinstance(found, str):
            self._feed(ConfigRead(config=None, problem=found))
        else:
            if self._prepared is not None:  # the core has failed to decide
                self._prepared.drop()
            self._prepared = found
            changed, restart = self._differences(found)
            self._feed(ConfigRead(config=found.settings.core, changed=changed, restart=restart))
        if self._again:
            self.begin()

    def _differences(self, found: Prepared) -> tuple[tuple[str, ...], tuple[str, ...]]:
        old, new = self.settings, found.settings
        here, there = (asdict(each.log) for each in (old, new))
        changed = [f"log {key}" for key, value in here.items() if there[key] != value]
        files = ("telemetry", old.telemetry_file, new.telemetry_file), ("audit", old.audit_file, new.audit_file)
        for what, before, after in files:
            if before is not None and after is not None and before != after:
                changed.append(f"{what} file")
        if old.tls != new.tls:
            changed.append("tls")
        elif found.have_changed:
            changed.append("tls certificates")
        if (old.tls != new.tls or found.have_changed) and (fault := found.certificates.fault()):
            changed.append(fault)
        restart = [key for field, key in AT_START.items() if getattr(old, field) != getattr(new, field)]
        return tuple(changed), tuple(dict.fromkeys(restart))

    def _kept(self, new: NodeSettings) -> NodeSettings:
        """The settings in force after a reload."""
        old = self.settings
        kept = {field: getattr(old, field) for field in AT_START}
        if self._telemetry is None or new.telemetry_file is None:
            kept["telemetry_file"] = old.telemetry_file
        if self._audit is None or new.audit_file is None:
            kept["audit_file"] = old.audit_file
        return replace(new, **kept)
