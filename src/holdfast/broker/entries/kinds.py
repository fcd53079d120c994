"""What queues there are beside those that clients name.

Rules of this file: pure. A queue's kind is decided once, by its name, when the queue is made or loaded: whoever asks
later what a queue is for looks at its kind, and for which node at its `destination`. No row of the store has them, but
that of a topic: a queue may have been named like one before there were any.
"""

from enum import Enum, auto


class QueueKind(Enum):
    """What a queue is for."""

    ORDINARY = auto()
    """Of clients, which name it."""
    TRANSMISSION = auto()
    """Messages on their way to one other node (amqp-illustrations, "Message Relay")."""
    WAITING = auto()
    """Messages from other nodes that wait for an earlier one; no cursor goes through it."""
    DEAD_LETTERS = auto()
    """Messages that could not be delivered."""
    TOPIC = auto()
    """Messages that are owed to its subscriptions (broker/topic.py)."""
    DELAYED = auto()
    """Messages that are not to be delivered yet; no cursor goes through it."""
    DYNAMIC = auto()
    """A dynamic node's: in memory, it ends with its link (AMQP 1.0 §3.5.10)."""
