"""The types of entities that a node manages, as requests to `$management` name them (docs/management.md).

Rules of this file: names alone, for nodes and clients alike.
"""

from typing import Final

MANAGEMENT: Final = "org.amqp.management"
"""The type of the management node itself, whose name is `self`."""
NODE: Final = "holdfast:node"
QUEUE: Final = "holdfast:queue"
ENTRY: Final = "holdfast:entry"
SUBSCRIPTION: Final = "holdfast:subscription"
LINK: Final = "holdfast:link"
SERVICE: Final = "holdfast:service"
FEDERATION: Final = "holdfast:federation"
CONNECTION: Final = "holdfast:connection"
SESSION: Final = "holdfast:session"
ATTACHMENT: Final = "holdfast:attachment"
TRANSACTION: Final = "holdfast:transaction"
