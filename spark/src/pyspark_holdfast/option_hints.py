"""What is said of an option that is none: of those that other connectors have, or earlier versions, what to give.

Rules of this file: pure; names in lower case, since Spark does not tell case apart.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.errors import ConfigError

SOURCE_HINTS: Final = {
    "leaseSeconds": "it was removed, since it had no effect: a query that starts fences the one before it at once",
    "path": "load() takes none; give the queue as option 'address'",
    "kafka.bootstrap.servers": "it is Kafka's; give 'url'",
    "subscribePattern": "there are no regular expressions; give 'address', in which * is any text",
    "assign": "a queue has no partitions; give 'address'",
    "groupIdPrefix": "give 'subscription', the name of this query's place",
    "kafka.group.id": "give 'subscription', the name of this query's place",
    "minPartitions": "give 'rowsPerPartition', what one task reads",
    "includeHeaders": "rows always have them, in application_properties; leave it out",
    "checkpointLocation": "it is the writer's; give the source the same path as 'checkpoint'",
}
SINK_HINTS: Final = {
    "path": "start() and save() take none; give the queue as option 'address'",
    "kafka.bootstrap.servers": "it is Kafka's; give 'url'",
    "topic": "give 'address', or a column of that name",
    "checkpoint": "it is the source's; give 'checkpointLocation'",
    "subscription": "it is the source's; leave it out",
}


def check_known(given: Iterable[str], names: Iterable[str], hints: Mapping[str, str]) -> None:
    """Raises ConfigError at the first of `given`, in lower case, that is none of `names`."""
    names = tuple(names)
    known = {name.lower() for name in names}
    told = {name.lower(): (name, hint) for name, hint in hints.items()}
    for key in given:
        if key in told:
            name, hint = told[key]
            raise ConfigError(f"option {name!r}: {hint}")
        if key not in known:
            raise ConfigError(f"unknown option {key!r}; expected one of {', '.join(names)}")
