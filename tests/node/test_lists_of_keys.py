"""Lists of keys that have to agree: of the node's file, of the settings that its tables become, and of a reload."""

from dataclasses import fields
from typing import Any

import pytest

from holdfast.cli import federation as federation_verb
from holdfast.cli import messages as message_verbs
from holdfast.cli import queues as queue_verbs
from holdfast.federation import modes
from holdfast.names import DEAD_LETTERS
from holdfast.node.config_schema import LISTS
from holdfast.settings import changes
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import ORDERS, QUEUE_KEYS, WHEN_FULL, LinkConfig, QueueConfig, TriggerConfig
from holdfast.settings.remotes import RemoteConfig
from holdfast.settings.subscriptions import SubscriptionConfig
from holdfast.state.queue_records import LATER_FIELDS, LIVE_KEYS, SELDOM

SPELT = {"source": "from", "target": "to", "password": "password_file"}
"""Fields that are called something else in the file."""


def names(config: type[Any]) -> set[str]:
    return {SPELT.get(field.name, field.name) for field in fields(config)}


def test_each_field_of_a_node_is_applied_by_a_reload_or_waits_for_a_restart() -> None:
    assert names(NodeConfig) == changes.LIVE | set(changes.CORE_AT_START) | {"limits"}
    assert set(changes.CORE_AT_START) >= changes.OF_TOPOLOGY


def test_the_settings_of_a_queue_are_the_same_everywhere() -> None:
    assert set(QUEUE_KEYS) == names(QueueConfig) - {"name", "vhost"}
    defaults = QueueConfig(name="x")
    assert {key: getattr(defaults, key) for key in LATER_FIELDS} == LATER_FIELDS
    assert set(LIVE_KEYS) | set(LATER_FIELDS) <= set(QUEUE_KEYS) and set(SELDOM) <= set(LATER_FIELDS)


@pytest.mark.parametrize(
    ("table", "config"),
    [
        ("queue", QueueConfig), ("link", LinkConfig), ("trigger", TriggerConfig), ("user", UserConfig),
        ("vhost", VhostConfig), ("neighbour", NeighbourConfig), ("remote", RemoteConfig),
        ("subscription", SubscriptionConfig),
    ],
)  # fmt: skip
def test_a_table_has_a_key_for_each_field(table: str, config: type[Any]) -> None:
    assert set(LISTS[table]) - {"source"} == names(config) - {"tls"}  # `remote` and `local` say so


def test_options_of_commands_have_the_values_that_a_node_accepts() -> None:
    """The grammar of the command line loads none of a node."""
    assert (queue_verbs.WHEN_FULL, queue_verbs.ORDERS) == (WHEN_FULL, ORDERS)
    assert message_verbs.DEAD_LETTERS == DEAD_LETTERS
    assert (federation_verb.MODES, federation_verb.DIRECTIONS) == (modes.MODES, modes.DIRECTIONS)
