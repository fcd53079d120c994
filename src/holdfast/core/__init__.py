"""One node's logic: what every driver drives. `NodeCore.handle(event, now) -> commands`."""

from holdfast.core.config import Limits, NeighbourConfig, NodeConfig, QueueConfig, UserConfig
from holdfast.core.node import NodeCore

__all__ = ["Limits", "NeighbourConfig", "NodeConfig", "NodeCore", "QueueConfig", "UserConfig"]
