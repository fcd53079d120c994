"""Whether to use a name creates a queue (`create_queues`).

Rules of this file: pure; the answer is always what `Catalog.local` would do.
"""

from holdfast.broker.entries.address import split_topic
from holdfast.state.catalog import Catalog


def makes(catalog: Catalog, host: str, name: str) -> bool:
    """Whether messages for that name in that virtual host would create a queue or topic of this node."""
    if not catalog.config.create_queues or name.startswith("$") or catalog.find(host, name) is not None:
        return False
    topic = split_topic(name)
    return topic is None or catalog.find(host, topic[0]) is None
