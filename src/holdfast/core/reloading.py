"""Applies a changed configuration while the node runs, and reports what changed and what waits for a restart
(docs/operations.md, docs/adr/0087-reload.md).

Rules of this file: a configuration is checked as a whole before any of it is applied; after a mistake nothing has
changed. Each part applies its own settings, and raises nothing while it does; a part that fails nevertheless is tried
again, and whoever asks is told so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from holdfast.access.current import CurrentAccess
from holdfast.core.neighbour_changes import NeighbourChanges
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.engine import events
from holdfast.engine.effects import Effect
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.errors import ConfigError
from holdfast.links.containment import Containment
from holdfast.management.operations.answers import Answer, Later, Refused
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.doors import Doors
from holdfast.peers.audit import Audit
from holdfast.peers.peer import Peer
from holdfast.peers.users import Users
from holdfast.queue_links.ends import Plan
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.changes import bounded, compare
from holdfast.settings.node import NodeConfig
from holdfast.state.configured_queues import ConfiguredQueues
from holdfast.state.configured_subscriptions import ConfiguredSubscriptions
from holdfast.state.turns import Turns

ASKED_MAX: Final = 16
"""Requests that wait for one reading of the configuration."""
FAILURE: Final = "a failure of the node, see its log"
TRIED_AGAIN: Final = f"{FAILURE}; it is tried again"


class Checked(NamedTuple):
    """A configuration that can be taken up: what holds then, what is told of it, and the links that begin."""

    config: NodeConfig
    changed: tuple[str, ...]
    restart: tuple[str, ...]
    links: list[Plan]


@dataclass(frozen=True, slots=True, eq=False)
class LogOutAskers(Effect):
    """Users whose login or rights the reload changed that they had asked for have their answer, and are logged out."""

    leaving: list[tuple[Peer, str]] = field(repr=False)


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
        users: Users,
        containment: Containment,
        turns: Turns,
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
        self._users = users
        self._containment = containment
        self._turns = turns
        turns.effects.on(LogOutAskers, self._log_out)
        self._leaving: list[tuple[Peer, str]] = []
        """Who is logged out once the request is answered, and why."""
        self._asked: list[Later] = []
        """The requests that the next reading answers."""
        self._late: dict[str, bool] = {}
        """The parts that have not taken up their settings yet, and whether that was logged."""
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
        try:
            if event.problem:
                raise ConfigError(event.problem)
            checked = self._checked(event.config)
        except ConfigError as error:
            self._refuse(409, str(error))
            return
        except Exception:
            self._refuse(500, FAILURE)
            raise
        self._take_up(event, checked)

    def _tell_rights(self) -> None:
        """Logs it when users may do everything: rights do not come with logins."""
        is_open = self._access is not None and self.config.has_users and not self.config.access.rules
        if is_open and not self._told_open:
            self._log.write("INFO", "every user may do everything, as there is no [[access]] (docs/security.md)")
        self._told_open = is_open

    def _refuse(self, status: int, problem: str) -> None:
        self._outbox.put(events.ConfigDecided(accepted=False, config=self.config))
        told = f"nothing has changed: {problem}"
        self._log.write("ERROR", f"reload: {told}")
        self._answer(Answer(status, told, {}))

    def _answer(self, answer: Answer) -> None:
        asked, self._asked = self._asked, []
        for later in asked:
            later.answer(answer)

    def _checked(self, wanted: NodeConfig) -> Checked:
        """What is to be taken up; its queues exist. Raises ConfigError, and then nothing has changed."""
        changes = compare(self.config, wanted, routed=frozenset(self._routed()), queues=self._queues.present)
        config, remotes = changes.config, self._remotes().queues
        try:
            config.validate()
        except ConfigError as error:  # what waits for a restart is needed by what does not
            if changes.restart:
                raise ConfigError(f"{error}; a restart takes up all of it") from None
            raise
        self._bindings.made.check(config)
        with self._queues.creating(config.queues):
            try:
                remotes.configure(config.remotes)  # links may lead there
                links = self._queue_links.check(config.links, config.may_leave)
            finally:
                remotes.configure(self.config.remotes)
            plan = self._queues.plan(config.queues)
        changed, restart = (*changes.changed, *plan.changed), (*changes.restart, *plan.restart)
        return Checked(replace(config, queues=plan.queues), changed, restart, links)

    def _take_up(self, event: events.ConfigRead, checked: Checked) -> None:
        """Applies what was checked, and reports it."""
        before, self.config = self.config, checked.config
        self._outbox.put(events.ConfigDecided(accepted=True, config=self.config))
        self._carry_out(before, self.config, checked.links)
        self._tell_rights()
        changed = bounded((*event.changed, *checked.changed))
        restart = bounded((*event.restart, *checked.restart))
        self._log.write("INFO", f"reload: {'; '.join(changed) or 'nothing has changed'}")
        if changed and (self._late or not self._asked):  # a request that succeeds is recorded with who has made it
            self._audit.configured(f"configuration reloaded: {'; '.join(changed)}")
        if restart:
            self._log.write("WARNING", f"reload: from the next start on: {'; '.join(restart)}")
        answer = Answer(200, "OK", {"changed": list(changed), "restart": list(restart)}, stored=True)
        if self._late:
            self._late = dict.fromkeys(self._late, True)
            late = f"the new configuration is in force, except for: {', '.join(self._late)}; {TRIED_AGAIN}"
            self._log.write("ERROR", f"reload: {late}")
            answer = answer._replace(status=500, description=late)
        self._answer(answer)
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            self._turns.gathered.then.append(LogOutAskers(self._turns.event, leaving))

    def _log_out(self, effect: LogOutAskers) -> None:
        for peer, why in effect.leaving:
            if not peer.amqp.closed:
                self._doors().log_out(peer, why)

    def _carry_out(self, before: NodeConfig, config: NodeConfig, links: list[Plan]) -> None:
        """Has each part take up its settings, if they have changed, or if it has not taken up the last ones yet."""

        def part(name: str, work: Callable[[], object], *keys: str) -> None:
            differ = any(getattr(before, key) != getattr(config, key) for key in keys)
            if differ or not keys or name in self._late:
                self._apply(name, work)

        planned = [links]  # good for this event alone: their queues may be deleted before they are tried again

        def begin_links() -> None:
            plans = planned.pop() if planned else self._queue_links.check(config.links, config.may_leave)
            self._queue_links.take_up(config.links, plans)

        part("queues", lambda: self._queues.take_up(config.queues))
        part("neighbours", lambda: self._neighbours.take_up(config), "neighbours", "forwarding", "topology", "roles")
        part("remotes", lambda: self._remotes().configure(config.remotes), "remotes")
        part("bounds of neighbours", lambda: self._users.reach(config), "neighbours", "remotes")
        part("users and rights", lambda: self._admit(config), "users", "access", "neighbours", "topology")
        part("subscriptions", lambda: self._subscriptions.take_up(config.subscriptions), "subscriptions")
        part("links", begin_links)
        part("federation", lambda: self._bindings.configure(config))

    def _admit(self, config: NodeConfig) -> None:
        differs = _nobody if self._access is None else self._access.change(config.access)
        self._publish_by(config)
        asking = {asked.peer for later in self._asked if (asked := later.asked) is not None}
        self._leaving = self._doors().configure(config, differs, asking)

    def _apply(self, name: str, work: Callable[[], object]) -> None:
        """Has a part take up the settings in force. What fails is tried again, until the next reload."""
        config = self.config
        self._late[name] = False

        def step() -> None:
            if self.config is config:
                work()
                if self._late.pop(name):
                    self._log.write("INFO", f"reload: {name}: in force now")

        self._containment.finish(step, decides=True)


def _nobody(user: str | None, host: str) -> bool:
    return False
