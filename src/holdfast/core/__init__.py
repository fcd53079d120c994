"""One node's logic: what every driver drives. `NodeCore.handle(event, now) -> commands`."""

from holdfast.core.node import NodeCore
from holdfast.settings import Limits, NeighbourConfig, NodeConfig, QueueConfig, UserConfig

__all__ = ["Limits", "NeighbourConfig", "NodeConfig", "NodeCore", "QueueConfig", "UserConfig"]
