"""The kinds of queues.

Rules of this file: pure. A queue's kind follows from its name, when the queue is created or loaded; later only the kind
is checked, and `destination` for the node. The kind is not stored, except that of a topic, because a queue of an
earlier version may have the name of one.
"""

from enum import Enum, auto


class QueueKind(Enum):
    """The kinds of queues."""

    ORDINARY = auto()
    """A queue that clients name."""
    TRANSMISSION = auto()
    """Messages in transit to one other node (amqp-illustrations, "Message Relay")."""
    REMOTE = auto()
    """Messages for one address at a broker that is no node (docs/remotes.md)."""
    WAITING = auto()
    """Messages from other nodes that wait for an earlier one; no cursor goes through it."""
    DEAD_LETTERS = auto()
    """Messages that could not be delivered."""
    TOPIC = auto()
    """Messages for its subscriptions (broker/topic.py)."""
    DELAYED = auto()
    """Messages that are not to be delivered yet; no cursor goes through it."""
    DYNAMIC = auto()
    """A dynamic node's: in memory, it ends with its link (AMQP 1.0 §3.5.10)."""
