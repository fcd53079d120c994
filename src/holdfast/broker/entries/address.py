"""Addresses: `queue`, `queue@node`, and what begins with `$` (amqp-illustrations, "Global Addressing").

Rules of this file: pure. The part after the last `@` names a node; an empty one, `localhost`, the node's own name and
its listening addresses mean this node. `without_alias` comes first: it removes what clients of other brokers put around
a name.
"""

import re
from collections.abc import Container
from typing import Final, NamedTuple
from urllib.parse import unquote

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.errors import ConfigError
from holdfast.names import check_name

TOPIC_PREFIX: Final = "topic/"
QUEUES_PREFIX: Final = "/queues/"
URL_SCHEMES: Final = ("amqp://", "amqps://")

_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Address(NamedTuple):
    """`queue` at `node`; `node` is None for here. `host`: the virtual host in which it was written."""

    queue: str
    node: str | None
    host: str = DEFAULT_HOST

    def __str__(self) -> str:
        return self.queue if self.node is None else f"{self.queue}@{self.node}"


def parse(text: str, *, own_name: str, own_addresses: Container[str] = (), host: str = DEFAULT_HOST) -> Address:
    """Parses `text` as an address in that host, at the node `own_name`; ConfigError if a part is not a name.
    `own_addresses`: what else names this node, HOST or HOST:PORT of its listeners ("Message Relay").
    """
    queue, at, node = text.rpartition("@")
    if not at:
        queue, node = node, ""
    elif not queue:
        raise ConfigError(f"invalid address {text[:60]!r}; expected QUEUE@NODE, with a queue before the '@'")
    check_name(queue)
    if node in ("", "localhost", own_name) or node in own_addresses:
        return Address(queue, None, host)
    return Address(queue, check_name(node), host)


def split_topic(name: str) -> tuple[str, str] | None:
    """The topic that `topic/NAME/REST` names, as `topic/NAME`, and REST, which may be missing; None where a name is no
    topic's."""
    if not name.startswith(TOPIC_PREFIX):
        return None
    topic, _, rest = name[len(TOPIC_PREFIX) :].partition("/")
    return (TOPIC_PREFIX + topic, rest) if topic else None


def is_within_topic(name: str) -> bool:
    """Whether `name` belongs to topics and names none: `topic/NAME/REST`, say."""
    return name.startswith(TOPIC_PREFIX) and split_topic(name) != (name, "")


def without_alias(text: str) -> str:
    """NAME for `/queues/NAME` and for `amqps://HOST/NAME`, percent-decoded (CLIENTS 39); any other text as it is.

    The host is ignored: it is the name by which the client found this node. ConfigError if the rest is not
    percent-encoded UTF-8, or if a URL names no address.
    """
    if text.startswith(QUEUES_PREFIX):
        name = text[len(QUEUES_PREFIX) :]
    elif text.lower().startswith(URL_SCHEMES):
        name = text.partition("://")[2].partition("/")[2]
        if not name:
            raise ConfigError(f"invalid address {text[:60]!r}; expected amqp://HOST/NAME, with a name after the host")
    else:
        return text
    try:
        if _BAD_ESCAPE.search(name) is None:
            return unquote(name, errors="strict")
    except UnicodeDecodeError:
        pass
    raise ConfigError(f"invalid address {text[:60]!r}; expected a name in percent-encoded UTF-8 after the prefix")
