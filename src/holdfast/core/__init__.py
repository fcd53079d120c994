"""One node's logic: what every driver drives. `NodeCore.handle(event, now) -> commands`."""

from holdfast.core.node import NodeCore
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig

__all__ = ["Limits", "NeighbourConfig", "NodeConfig", "NodeCore", "QueueConfig", "UserConfig"]
