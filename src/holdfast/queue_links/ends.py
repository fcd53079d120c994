"""The two ends of a link between queues, and what it takes: found, made on demand, or refused.

Rules of this file: every refusal is a ConfigError that names the link, the key, what is wrong and what is expected;
what can be refused is, before a queue is made. Once `plan` and `check_room` have accepted a link, it can be made.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from holdfast.broker.beginnings import beginning
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.entries.address import Address, parse, split_topic
from holdfast.broker.entries.host_names import destination_of
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.attaching.filters import Decoded, Filters, entry_selector
from holdfast.errors import ConfigError
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.predicate import compile_selector
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import LinkConfig
from holdfast.state.catalog import Catalog, TooManyQueues
from holdfast.state.tables import Tables
from holdfast.steps import parsing
from holdfast.steps.step import Step

EXPECTED_HERE: Final = "expected another queue or topic of the same host"

MayLeave = Callable[[str], bool]
"""Whether messages of that virtual host may cross to any neighbour."""


class Plan(NamedTuple):
    """A link that can be made, where there is room for its subscription. `node` and `to`: the destination in custody
    and the queue there that it leads to, or None and ""; `target`: the queue here."""

    config: LinkConfig
    selector: EntrySelector | None
    steps: tuple[Step, ...]
    source: Queue
    node: str | None
    to: str
    target: Queue | None


class LinkEnds:
    """Finds the ends of links. `where` names the link in a refusal, in all of its methods."""

    def __init__(
        self, config: NodeConfig, catalog: Catalog, forwarding: Forwarding, remotes: RemoteQueues, store: Tables
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._forwarding = forwarding
        self._remotes = remotes
        self._reader = store
        self._decoded = Decoded()

    def plan(self, config: LinkConfig, *, is_stored: bool = False, may_leave: MayLeave | None = None) -> Plan:
        """How to make the link; its queues are made if the node makes queues on demand.

        `is_stored`: a request created the link before this start. If messages of its host may not leave this node any
        more, the link waits: with an error the node could not start, and so nobody could delete the link. `may_leave`:
        as it is going to be; None: as it is.
        """
        config.validate()
        where = f"link {config.name!r}"
        selector = self._selector(config, where)
        steps = parsing.steps_of(config.steps, where)
        may_leave = may_leave or self._forwarding.may_leave
        expected = EXPECTED_HERE
        if may_leave(config.vhost):
            expected = "expected another queue or topic of this node, or QUEUE@NODE"
        elif is_stored:
            may_leave = _always
        # What can be refused is, before a queue is made on demand.
        address = self._address(config, where, expected, may_leave)
        source = self._source(config, where)
        node, to, target = self._target(config, where, source, address, expected)
        return Plan(config, selector, steps, source, node, to, target)

    def check_room(self, plan: Plan, beside: Iterable[Plan] = ()) -> None:
        """ConfigError if there is no room for the link's subscription when the links `beside` have been made, too."""
        if plan.config.mode != "copy" or _cursor_name(plan.config) in plan.source.named:
            return
        more = [each.source for each in beside if each.config.mode == "copy"]
        full = self._catalog.subscriptions_full(plan.source, more)
        if full is not None:
            raise ConfigError(f"link {plan.config.name!r} cannot be made; {full}")

    def _selector(self, config: LinkConfig, where: str) -> EntrySelector | None:
        """What it takes; None for everything."""
        if not config.selector:
            return None
        try:
            predicate = compile_selector(config.selector)
        except SelectorError as error:
            raise ConfigError(f"invalid selector of {where}: {error}") from error
        return entry_selector(Filters(selector=predicate), self._reader, self._decoded)

    def _source(self, config: LinkConfig, where: str) -> Queue:
        """The queue that it takes from, made if the node makes queues on demand."""
        is_topic = split_topic(config.source) is not None and self._catalog.find(config.vhost, config.source) is None
        source = None if is_topic else self._local(config.vhost, config.source)
        if source is None or source.kind is not QueueKind.ORDINARY:
            raise ConfigError(f"invalid value {config.source!r} for {where} from; expected a queue of this node")
        return source

    def _address(self, config: LinkConfig, where: str, expected: str, may_leave: MayLeave) -> Address:
        """The address of its target. ConfigError if no link can lead there."""
        try:
            address = parse(
                config.target, own_name=self._config.name, own_addresses=self._config.own_addresses, host=config.vhost
            )
        except ConfigError as error:
            raise ConfigError(f"invalid value {config.target!r} for {where} to: {error}") from error
        if self._remotes.knows(address.node):
            return address
        if address.node is not None and not may_leave(config.vhost):
            text = f"messages of virtual host {config.vhost!r} do not leave this node"
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {text}; {EXPECTED_HERE}")
        if address.node is not None and (split_topic(address.queue) or ("", ""))[1]:
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {expected}, without a subject")
        if address.node is None and address.queue == config.source:
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {expected}")
        return address

    def _target(
        self, config: LinkConfig, where: str, source: Queue, address: Address, expected: str
    ) -> tuple[str | None, str, Queue | None]:
        """As the last three of a Plan."""
        if self._remotes.knows(address.node):
            return None, "", self._remotes.queue(address.node, address.queue, config.vhost)
        if address.node is not None:
            return destination_of(config.vhost, address.node), address.queue, None
        target = self._local(address.host, address.queue)
        if target is None or target is source or target.name != address.queue:
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {expected}")
        if source.config.durable and not target.config.durable:
            text = f"queue {target.name!r} is in memory, and {source.name!r} is durable"
            raise ConfigError(f"invalid value {config.target!r} for {where} to: {text}; expected a durable queue")
        return None, "", target

    def _local(self, host: str, name: str) -> Queue | None:
        try:
            return None if name.startswith("$") else self._catalog.local(host, name)
        except TooManyQueues:
            raise
        except ConfigError:
            return None

    def cursor(self, plan: Plan) -> Cursor:
        """The cursor that the link reads by: the source's shared one if it moves, its own if it copies, which is made
        where there is none."""
        config, source = plan.config, plan.source
        if config.mode == "move":
            return source.shared
        name = _cursor_name(config)
        found = source.named.get(name)
        if found is not None:
            return found
        place = beginning(config.start, source.head(), source.next_sequence)
        assert place is not None, config.start
        return source.add_cursor(name, "copy", place)


def _cursor_name(config: LinkConfig) -> str:
    return f"{LINK_PREFIX}{config.name}"


def _always(host: str) -> bool:
    return True
