"""Applies `[[subscription]]`: the bounds of topics' durable subscriptions (docs/configuration.md, docs/adr/0096).

Rules of this file: the first entry that matches a subscription applies to it. As with queues, the file wins when its
entry for a subscription has changed; until then bounds that a request set stay.
"""

from collections.abc import Iterable

from holdfast.access.patterns import Pattern
from holdfast.broker.stored.bounds import NO_BOUNDS, Bounds
from holdfast.broker.stored.records import BindingRecord
from holdfast.broker.topic import Topic
from holdfast.settings.subscriptions import SubscriptionConfig
from holdfast.state.catalog import Catalog


class ConfiguredSubscriptions:
    """Gives subscriptions the bounds of the node's file."""

    def __init__(self, catalog: Catalog, wanted: Iterable[SubscriptionConfig]) -> None:
        self._catalog = catalog
        self._entries = _read(wanted)

    def take_up(self, wanted: Iterable[SubscriptionConfig]) -> None:
        """Sets the file's entries, and applies them to existing subscriptions."""
        self._entries = _read(wanted)
        for topic in self._catalog.topics():
            self.apply(topic)

    def apply(self, topic: Topic) -> None:
        """Gives the subscriptions of that topic the file's bounds, stored with this turn's batch."""
        for name, wants in list(topic.bindings.items()):
            bounded = self.bounded(topic, name, wants)
            if bounded != wants:
                self._catalog.rows.bind(topic, name, bounded)

    def bounded(self, topic: Topic, name: str, wants: BindingRecord) -> BindingRecord:
        """The subscription's record with the bounds that it gets."""
        told = self._told(topic, name)
        return wants if told == wants.told else wants._replace(bounds=told, told=told)

    def _told(self, topic: Topic, name: str) -> Bounds:
        found = (
            config.bounds
            for config, of_topic, of_name in self._entries
            if config.vhost == topic.host and of_topic.matches(topic.name) and of_name.matches(name)
        )
        return next(found, NO_BOUNDS)


def _read(wanted: Iterable[SubscriptionConfig]) -> list[tuple[SubscriptionConfig, Pattern, Pattern]]:
    return [(config, Pattern(config.topic), Pattern(config.name)) for config in wanted]
