"""Applies a changed configuration while the node runs, and reports what changed and what waits for a restart
(docs/operations.md, docs/adr/0087-reload.md).

Rules of this file: a configuration is checked as a whole before any of it is applied; after a mistake nothing has
changed. Each part applies its own settings.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from holdfast.access.current import CurrentAccess
from holdfast.core.neighbour_changes import NeighbourChanges
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.engine import events
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.errors import ConfigError
from holdfast.management.operations.answers import Answer, Later, Refused
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.doors import Doors
from holdfast.peers.audit import Audit
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.changes import bounded, compare
from holdfast.settings.node import NodeConfig
from holdfast.state.configured_queues import ConfiguredQueues
from holdfast.state.configured_subscriptions import ConfiguredSubscriptions

ASKED_MAX: Final = 16
"""Requests that wait for one reading of the configuration."""


class Reloading:
    """Requests the configuration from the driver, and applies it. `config`: the settings in force."""

    def __init__(
        self,
        config: NodeConfig,
        outbox: Outbox,
        log: Log,
        *,
        access: CurrentAccess | None,
        publish_by: Callable[[NodeConfig], None],
        queues: ConfiguredQueues,
        subscriptions: ConfiguredSubscriptions,
        queue_links: QueueLinks,
        neighbours: NeighbourChanges,
        remotes: Callable[[], Remotes],
        bindings: BindingControl,
        doors: Callable[[], Doors],
        routed: Callable[[], Iterable[str]],
        is_stopping: Callable[[], bool],
        audit: Audit,
    ) -> None:
        """`access`: None if an authoriser decides that does not use the configuration's rules. `publish_by`: sets the
        accounts by which neighbours' messages are published. `routed`: the neighbours that routing uses."""
        self.config = config
        self._outbox = outbox
        self._log = log
        self._access = access
        self._publish_by = publish_by
        self._queues = queues
        self._subscriptions = subscriptions
        self._queue_links = queue_links
        self._neighbours = neighbours
        self._remotes = remotes
        self._bindings = bindings
        self._routed = routed
        self._doors = doors
        self._is_stopping = is_stopping
        self._audit = audit
        self._asked: list[Later] = []
        """The requests that the next reading answers."""
        self._told_open = False
        self._tell_rights()

    def ask(self) -> Later:
        """Requests a reload. Refused if too many wait, or while the node stops."""
        if self._is_stopping():
            raise Refused(409, "the node is stopping")
        if len(self._asked) >= ASKED_MAX:
            raise Refused(409, f"{ASKED_MAX} requests wait for the configuration to be read, the most there may be")
        later = Later()
        self._asked.append(later)
        if len(self._asked) == 1:
            self._outbox.put(events.ReadConfig())
        return later

    def read(self, event: events.ConfigRead) -> None:
        """Handles the configuration that the driver has read."""
        if event.problem:
            self._refuse(event.problem)
            return
        try:
            changed, restart = self._take_up(event)
        except ConfigError as error:
            self._refuse(str(error))
            return
        except Exception:
            self._answer(Answer(500, "a failure of the node, see its log", {}))
            raise
        self._log.write("INFO", f"reload: {'; '.join(changed) or 'nothing has changed'}")
        if changed and not self._asked:  # a request is recorded with who has made it
            self._audit.configured(f"configuration reloaded: {'; '.join(changed)}")
        if restart:
            self._log.write("WARNING", f"reload: from the next start on: {'; '.join(restart)}")
        self._answer(Answer(200, "OK", {"changed": list(changed), "restart": list(restart)}, stored=True))

    def _tell_rights(self) -> None:
        """Logs it when users may do everything: rights do not come with logins."""
        is_open = self._access is not None and self.config.has_users and not self.config.access.rules
        if is_open and not self._told_open:
            self._log.write("INFO", "every user may do everything, as there is no [[access]] (docs/security.md)")
        self._told_open = is_open

    def _refuse(self, problem: str) -> None:
        self._outbox.put(events.ConfigDecided(accepted=False, config=self.config))
        self._log.write("ERROR", f"reload: nothing has changed: {problem}")
        self._answer(Answer(409, problem, {}))

    def _answer(self, answer: Answer) -> None:
        asked, self._asked = self._asked, []
        for later in asked:
            later.answer(answer)

    def _take_up(self, event: events.ConfigRead) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns what changed and what waits for a restart. Raises ConfigError, and then nothing has changed."""
        changes = compare(self.config, event.config, routed=frozenset(self._routed()))
        config = changes.config
        try:
            config.validate()
        except ConfigError as error:  # what waits for a restart is needed by what does not
            if changes.restart:
                raise ConfigError(f"{error}; a restart takes up all of it") from None
            raise
        created = self._queues.create(config.queues)
        remotes = self._remotes()
        try:
            remotes.queues.configure(config.remotes)  # links may lead there
            self._queue_links.check(config.links)
        except ConfigError:
            self._queues.take_back(created)
            remotes.queues.configure(self.config.remotes)
            raise
        queues, waits = self._queues.take_up(config.queues)
        before, self.config = self.config, replace(config, queues=queues)
        self._outbox.put(events.ConfigDecided(accepted=True, config=self.config))
        self._carry_out(before, self.config)
        changed = bounded((*event.changed, *changes.changed))
        return changed, bounded((*event.restart, *changes.restart, *waits))

    def _carry_out(self, before: NodeConfig, config: NodeConfig) -> None:
        differs = _nobody if self._access is None else self._access.change(config.access)
        self._publish_by(config)
        ways = ("neighbours", "forwarding", "topology", "roles")
        if any(getattr(before, field) != getattr(config, field) for field in ways):
            self._neighbours.take_up(config)
        if before.remotes != config.remotes:
            self._remotes().configure(config.remotes)
        doors = ("users", "access", "neighbours", "topology")
        if any(getattr(before, field) != getattr(config, field) for field in doors):
            self._doors().configure(config, differs)
        if before.subscriptions != config.subscriptions:
            self._subscriptions.take_up(config.subscriptions)
        self._queue_links.take_up(config.links)
        self._bindings.configure(config)
        self._tell_rights()


def _nobody(user: str | None, host: str) -> bool:
    return False
