"""Names that a node and its clients use beyond the standard. AMQP 1.0 §2.6.13, §3.2; docs/amqp.md.

Rules of this file: only constants that both ends need; names between neighbours are in the modules that use them
(custody/hop/sender.py, custody/transfers/carried.py, peering/sessions.py).
"""

from typing import Final

from holdfast.amqp.wire.types import Symbol

PRODUCER: Final = Symbol("holdfast:producer")
"""Attach property of a producer that has a name; the answer has PRODUCER_EPOCH, LAST_NUMBER and MISSING."""
PRODUCER_EPOCH: Final = Symbol("holdfast:producer-epoch")
LAST_NUMBER: Final = Symbol("holdfast:last-number")
MISSING: Final = Symbol("holdfast:missing")

TAG_OFFSET: Final = Symbol("holdfast:tag-offset")
"""A property of a sender's attach, a uint: the tag of each new delivery is its delivery-id plus this (mod 2^32), in 4
bytes, and no tag is used twice on links of this name.

A node that has settled a delivery does not learn whether the settlement reached the sender. With this property the node
may still answer for the tag; without it, a tag that is used again would be mistaken for the earlier delivery. the tag
all the same; without it a tag used again would be taken for the delivery before.
"""

TRY_LATER: Final = Symbol("holdfast:try-later")
"""In the info of a rejection's error: true if the node has no room now and may take the same message later. A client
that does not know it treats the rejection as final, which is safe."""

START_SEQUENCE: Final = Symbol("holdfast:start-sequence:ulong")
END_SEQUENCE: Final = Symbol("holdfast:end-sequence:ulong")
SUBSCRIPTION: Final = Symbol("holdfast:subscription:list")
"""Filters of a source."""
SELECTOR: Final = Symbol("apache.org:selector-filter:string")
SELECTOR_CODE: Final = 0x0000468C00000004
"""A filter that other brokers know too: a JMS selector, by its symbol or its code (registered by Apache Qpid)."""
TOPIC_BINDING: Final = Symbol("apache.org:legacy-amqp-topic-binding:string")
TOPIC_BINDING_CODE: Final = 0x0000468C00000001
"""A filter: a pattern of subjects."""
DIRECT_BINDING: Final = Symbol("apache.org:legacy-amqp-direct-binding:string")
DIRECT_BINDING_CODE: Final = 0x0000468C00000000
"""A filter: a subject."""
NO_LOCAL: Final = Symbol("apache.org:no-local-filter:list")
NO_LOCAL_CODE: Final = 0x0000468C00000003
"""A filter, whatever its value: nothing that the reader's own connection publishes."""
SUBJECT: Final = Symbol("x-opt-holdfast-subject")
"""The subject that a target's address gave to a message without one; stands beside the bare message."""

TELLS_PATH: Final = Symbol("holdfast:path")
"""Capability of a reader's link: each message comes with its identity and the nodes it passed (docs/amqp.md, "Paths").
"""

CONFIRM: Final = Symbol("holdfast:confirm")
"""Property of the attach of a topic's receiver (ulong): for how many milliseconds the answer may wait until the other
nodes know what it wants (docs/federation.md)."""
CONFIRMED: Final = Symbol("holdfast:confirmed")
WAITING: Final = Symbol("holdfast:waiting")
"""Properties of that answer: the nodes that send what they accept from then on, and the nodes that were waited for."""

OWN_PREFIX: Final = "x-opt-holdfast-"
"""The prefix of annotations that only nodes may set."""
NUMBER: Final = Symbol("x-opt-holdfast-number")
ORIGIN: Final = Symbol("x-opt-holdfast-origin")
PATH: Final = Symbol("x-opt-holdfast-path")
LATE: Final = Symbol("x-opt-holdfast-late")
LINKS: Final = Symbol("x-opt-holdfast-links")
"""Which links between queues a message has passed: their ids, of 8 bytes each. Nodes carry it to each other."""

PUBLISHER: Final = Symbol("x-opt-holdfast-publisher")
"""Of a message of a topic: digests of the connection and of the container that published it."""

RELAY: Final = Symbol("x-opt-holdfast-relay")
PUBLICATION: Final = Symbol("x-opt-holdfast-publication")
TAGS: Final = Symbol("x-opt-holdfast-tags")
"""Annotations of a message that goes to a neighbour by a static entry of federation: that the neighbour chooses the
destinations again (true); the message's first identity, a list of node and number; and the nodes that have delivered
it."""

DELIVERY_TIME: Final = Symbol("x-opt-delivery-time")
DELIVERY_DELAY: Final = Symbol("x-opt-delivery-delay")
"""Message annotations: when a message is to be delivered at the earliest, in milliseconds since 1970, or after how many
(AMQP JMS mapping; ActiveMQ Artemis)."""
DUE: Final = Symbol("x-opt-holdfast-due")
"""The same time on the monotonic clock of the node that delays the message."""
DELAYED_DELIVERY: Final = Symbol("DELAYED_DELIVERY")
"""Capability of a connection: such messages are delayed (AMQP JMS mapping)."""
SHARED_SUBSCRIPTIONS: Final = Symbol("SHARED-SUBS")
"""Capability of a connection: subscriptions of topics that several links read (AMQP JMS mapping)."""
TOPIC_PREFIX_KEY: Final = Symbol("topic-prefix")
"""A property of the open: the prefix that a JMS client puts before a topic's name."""
ANONYMOUS_RELAY: Final = Symbol("ANONYMOUS-RELAY")
"""The capability of a node that takes links without an address (Anonymous Terminus for Message Routing §2.1)."""
