"""The two ends of a link between queues, and what it takes: found, made on demand, or refused.

Rules of this file: every refusal is a ConfigError that names the link, the key, what is wrong and what is expected;
what can be refused is, before a queue is made.
"""

from typing import Final

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

EXPECTED_HERE: Final = "expected another queue or topic of the same host"


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

    def selector(self, config: LinkConfig, where: str) -> EntrySelector | None:
        """What it takes; None for everything."""
        if not config.selector:
            return None
        try:
            predicate = compile_selector(config.selector)
        except SelectorError as error:
            raise ConfigError(f"invalid selector of {where}: {error}") from error
        return entry_selector(Filters(selector=predicate), self._reader, self._decoded)

    def source(self, config: LinkConfig, where: str) -> Queue:
        """The queue that it takes from, made if the node makes queues on demand."""
        is_topic = split_topic(config.source) is not None and self._catalog.find(config.vhost, config.source) is None
        source = None if is_topic else self._local(config.vhost, config.source)
        if source is None or source.kind is not QueueKind.ORDINARY:
            raise ConfigError(f"invalid value {config.source!r} for {where} from; expected a queue of this node")
        return source

    def address(self, config: LinkConfig, where: str, *, is_stored: bool) -> Address:
        """The address of its target. ConfigError if no link can lead there.

        `is_stored`: a request created the link before this start. If messages of its host may not leave this node any
        more, the link waits: with an error the node could not start, and so nobody could delete the link.
        """
        try:
            address = parse(
                config.target, own_name=self._config.name, own_addresses=self._config.own_addresses, host=config.vhost
            )
        except ConfigError as error:
            raise ConfigError(f"invalid value {config.target!r} for {where} to: {error}") from error
        if self._remotes.knows(address.node):
            return address
        if address.node is not None and not is_stored and not self._forwarding.may_leave(config.vhost):
            text = f"messages of virtual host {config.vhost!r} do not leave this node"
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {text}; {EXPECTED_HERE}")
        expected = self._expected(config.vhost)
        if address.node is not None and (split_topic(address.queue) or ("", ""))[1]:
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {expected}, without a subject")
        if address.node is None and address.queue == config.source:
            raise ConfigError(f"invalid value {config.target!r} for {where} to; {expected}")
        return address

    def _expected(self, host: str) -> str:
        may_leave = self._forwarding.may_leave(host)
        return "expected another queue or topic of this node, or QUEUE@NODE" if may_leave else EXPECTED_HERE

    def target(
        self, config: LinkConfig, where: str, source: Queue, address: Address
    ) -> tuple[str | None, str, Queue | None]:
        """The destination in custody and the queue there that the link leads to; or None, "" and the queue here."""
        if self._remotes.knows(address.node):
            return None, "", self._remotes.queue(address.node, address.queue, config.vhost)
        if address.node is not None:
            return destination_of(config.vhost, address.node), address.queue, None
        expected = self._expected(config.vhost)
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

    def own_cursor(self, config: LinkConfig, where: str, source: Queue) -> Cursor:
        """The cursor of a link that copies; made where there is none."""
        name = f"{LINK_PREFIX}{config.name}"
        found = source.named.get(name)
        if found is not None:
            return found
        full = self._catalog.subscriptions_full(source)
        if full is not None:
            raise ConfigError(f"{where} cannot be made; {full}")
        place = beginning(config.start, source.head(), source.next_sequence)
        assert place is not None, config.start
        return source.add_cursor(name, "copy", place)
