"""The operations of `$management` about federation: which topics are forwarded to neighbours, or from them
(docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer; a change is answered once it is on
disk. An entry is named TOPIC@NEIGHBOUR. One in the configuration file can only be removed there.
"""

from typing import Any, Final

from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.broker.subjects import check_subject
from holdfast.entity_types import FEDERATION
from holdfast.errors import ConfigError
from holdfast.federation.modes import DYNAMIC, PATTERNS_MAX, TO
from holdfast.federation.settings import Entry, check_federated_topic
from holdfast.management.operations.answers import Answer, Refused, text_of
from holdfast.management.operations.changes import done_to, federation_added
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.peering import binding_status
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.route_status import RoutesNow
from holdfast.state.catalog import Catalog

FEDERATION_ATTRIBUTES: Final = (
    "topic", "neighbour", "direction", "mode", "patterns", "state", "configured", "asked", "origins", "rows",
)  # fmt: skip
_KEYS: Final = ("mode", "patterns", "direction")


class FederationOperations:
    """Adds, removes and lists entries, and shows where messages of a subject go."""

    def __init__(self, catalog: Catalog, control: BindingControl, routing: RoutesNow) -> None:
        self._catalog = catalog
        self._control = control
        self._routing = routing

    def register(self, table: Table) -> None:
        table |= {
            (FEDERATION, "QUERY"): Operation(self.query, READS, cost=Costs.of_list),
            (FEDERATION, "CREATE"): Operation(self.create, federation_added, arguments=_KEYS, creates=True),
            (FEDERATION, "DELETE"): Operation(self.delete, done_to("federation", "removed"), cost=Costs.of_producers),
            (FEDERATION, "TREE"): Operation(self.tree, READS, arguments=("subject",)),
        }

    def types(self) -> tuple[EntityType, ...]:
        """The rows of QUERY."""
        return (EntityType(FEDERATION, FEDERATION_ATTRIBUTES, self._keys, self._row),)

    def _keys(self, host: str, after: str) -> list[tuple[Entry, str | None]]:
        entries = binding_status.listed(self._control) if host == DEFAULT_HOST else ()
        return sorted((each for each in entries if _named(each[0]) > after), key=lambda each: _named(each[0]))

    def _row(self, each: tuple[Entry, str | None]) -> dict[str, Any]:
        name = _named(each[0])
        return {"name": name, "identity": name, **binding_status.row(self._control, *each)}

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        _check_host(host)
        return Answer(200, "OK", {"federation": binding_status.rows(self._control), "more": False})

    def create(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        _check_host(host)
        topic, neighbour = _split(name)
        patterns = arguments.get("patterns") or []
        if not isinstance(patterns, list) or len(patterns) > PATTERNS_MAX or not all(map(_is_text, patterns)):
            raise Refused(400, f"invalid value for patterns; expected a list of at most {PATTERNS_MAX} strings")
        mode, direction = text_of(arguments, "mode", DYNAMIC), text_of(arguments, "direction", TO)
        entry = Entry(topic, neighbour, mode, tuple(map(str, patterns)), direction)
        try:
            is_new = self._control.add(entry)
        except ConfigError as error:
            raise Refused(409 if self._find(topic, neighbour) else 400, str(error)) from error
        return Answer(201 if is_new else 200, "Created" if is_new else "OK", {"created": is_new}, stored=True)

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        _check_host(host)
        topic, neighbour = _split(name)
        entry = self._control.made.removable(topic, neighbour)
        if entry is None:
            if self._find(topic, neighbour) is None:
                raise Refused(404, f"there is no federation of {topic!r} with {neighbour!r}")
            raise Refused(409, f"federation {name!r} is in the configuration; remove it there")
        self._control.remove(topic, neighbour)
        return Answer(200, "OK", {"asked": entry.asked}, stored=True)

    def _find(self, topic: str, neighbour: str) -> Entry | None:
        """The entry of that name; of two, not the one that the neighbour asks for."""
        return next((one for one in self._control.entries if (one.topic, one.neighbour) == (topic, neighbour)), None)

    def tree(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Where a message of that topic and subject goes that is published here."""
        _check_host(host)
        subject = text_of(arguments, "subject", "")
        try:
            check_federated_topic(name)
            if "subject" in arguments:
                check_subject(subject)
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        if self._catalog.find(host, TOPIC_PREFIX + name) is None and not self._control.made.neighbours_of(name):
            raise Refused(404, f"no topic {name!r}")
        found = binding_status.tree(self._control, self._routing(), name, subject)
        return Answer(200, "OK", {"topic": name, "subject": subject, "tree": found})


def _named(entry: Entry) -> str:
    return f"{entry.topic}@{entry.neighbour}"


def _split(name: str) -> tuple[str, str]:
    topic, _, neighbour = name.partition("@")
    if not topic or not neighbour:
        raise Refused(400, f"invalid name {name[:60]!r}; expected TOPIC@NEIGHBOUR")
    return topic, neighbour


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check_host(host: str) -> None:
    if host != DEFAULT_HOST:
        raise Refused(403, "topics of virtual hosts are not federated; this is the default host's")
