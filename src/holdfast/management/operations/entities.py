"""The operations that AMQP Management requires of every node: entities of each type, their attributes and operations
(working draft 16, §3.3: QUERY, GET-TYPES, GET-ATTRIBUTES, GET-OPERATIONS, GET-MGMT-NODES).

Rules of this file: a row is a map of attributes by name; an answer has ROWS_MAX rows at most, in the order of their
identities. Reads, and changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.entity_types import MANAGEMENT
from holdfast.management.operations.answers import Answer, Refused, number_of, text_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.rights import Rights

ROWS_MAX: Final = 200
"""Rows of one answer. The next are asked for behind the last one's identity, or from an offset, which shifts as they
come and go."""
ATTRIBUTES_MAX: Final = 100
"""Names that a request may give."""
ATTRIBUTES: Final = ("name", "identity", "type")
"""Of every entity."""


@dataclass(frozen=True, slots=True)
class EntityType:
    """`keys`: (host, after) -> the keys of all entities in that virtual host in order, cheap, from the first behind
    that identity on; Refused if that is none. `row`: the attributes of one."""

    name: str
    attributes: tuple[str, ...]
    keys: Callable[[str, str], list[Any]]
    row: Callable[[Any], dict[str, Any]]


class EntityOperations:
    """Operations of the management node itself. `types`: what it manages."""

    def __init__(self, types: tuple[EntityType, ...]) -> None:
        self.types = {each.name: each for each in types}
        self._table: Table = {}

    def register(self, table: Table) -> None:
        def free(carry_out: Callable[[str, str, dict[str, Any]], Answer]) -> Operation:
            return Operation(carry_out, READS, needs=Rights.of_everybody, cost=Costs.of_operations)

        table |= {
            (MANAGEMENT, "QUERY"): Operation(self.query, READS, cost=Costs.of_entities),
            (MANAGEMENT, "GET-TYPES"): free(self.get_types),
            (MANAGEMENT, "GET-ATTRIBUTES"): free(self.get_attributes),
            (MANAGEMENT, "GET-OPERATIONS"): free(self.get_operations),
            (MANAGEMENT, "GET-MGMT-NODES"): free(lambda host, name, arguments: Answer(200, "OK", [])),
        }
        self._table = table

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Rows of one type or of all, each with the requested attributes, null if it does not have one."""
        wanted = arguments.get("attributeNames", [])
        if (
            not isinstance(wanted, list)
            or len(wanted) > ATTRIBUTES_MAX
            or not all(isinstance(item, str) for item in wanted)
        ):
            raise Refused(400, f"invalid attributeNames; expected a list of at most {ATTRIBUTES_MAX} strings")
        types = self._types(arguments)
        after = text_of(arguments, "after", "")
        if after and len(types) > 1:
            raise Refused(400, "invalid request: `after` goes with an entityType")
        offset, count = number_of(arguments, "offset", 0), min(ROWS_MAX, number_of(arguments, "count", ROWS_MAX))
        names = list(dict.fromkeys(map(str, wanted)))
        if not names:
            names = list(dict.fromkeys([*ATTRIBUTES, *(key for each in types for key in each.attributes)]))
        asked = [(each, key) for each in types for key in each.keys(host, after)][offset : offset + count]
        rows = [{"type": each.name, **each.row(key)} for each, key in asked]
        found = [[row.get(key) for key in names] for row in rows]
        return Answer(200, "OK", {"attributeNames": names, "results": found}, rows=len(found))

    def get_types(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return Answer(200, "OK", {each.name: [] for each in self._types(arguments)})

    def get_attributes(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return Answer(200, "OK", {each.name: [*ATTRIBUTES, *each.attributes] for each in self._types(arguments)})

    def get_operations(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """By type: each operation, and the keys of its request's body."""
        wanted = arguments.get("entityType") or ""
        found: dict[str, dict[str, list[str]]] = {each.name: {} for each in self.types.values()}
        for (kind, operation), record in self._table.items():
            if kind != MANAGEMENT:
                found.setdefault(kind, {})[operation] = list(record.arguments)
        if not isinstance(wanted, str) or wanted not in ("", *found):
            raise Refused(404, f"invalid value {wanted!r:.80} for entityType; expected one of {', '.join(found)}")
        return Answer(200, "OK", {wanted: found[wanted]} if wanted else found)

    def _types(self, arguments: dict[str, Any]) -> list[EntityType]:
        """The types of a request: that of its entityType, or all."""
        wanted = arguments.get("entityType")
        if wanted in (None, ""):
            return list(self.types.values())
        if not isinstance(wanted, str) or wanted not in self.types:
            text = f"invalid value {wanted!r:.80} for entityType; expected one of {', '.join(self.types)}"
            raise Refused(404 if isinstance(wanted, str) else 400, text)
        return [self.types[wanted]]
