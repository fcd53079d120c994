"""The operations of `$management` about names of services (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer; a change is answered once it is on
disk.
"""

from typing import Any, Final

from holdfast.endpoints.addresses.services import SERVICE_PREFIX, Services, TooManyServices
from holdfast.entity_types import SERVICE
from holdfast.errors import ConfigError
from holdfast.management.operations.answers import Answer, Refused, text_of
from holdfast.management.operations.changes import done_to, service_registered
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.rights import Rights

SERVICE_ATTRIBUTES: Final = ("address",)
PAGE: Final = 200


class ServiceOperations:
    """Registers, finds, changes and removes names of services."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def register(self, table: Table) -> None:
        table |= {
            (SERVICE, "QUERY"): Operation(self.query, READS, cost=Costs.of_list, arguments=("after",)),
            (SERVICE, "READ"): Operation(self.read, READS, needs=Rights.of_service),
            (SERVICE, "CREATE"): Operation(self.create, service_registered, arguments=("address",), creates=True),
            (SERVICE, "UPDATE"): Operation(self.update, service_registered, arguments=("address",)),
            (SERVICE, "DELETE"): Operation(self.delete, done_to("service", "removed"), cost=Costs.of_producers),
        }

    def types(self) -> tuple[EntityType, ...]:
        """The rows of QUERY."""
        return (EntityType(SERVICE, SERVICE_ATTRIBUTES, self._keys, self._row),)

    def _keys(self, host: str, after: str) -> list[tuple[str, str]]:
        return [(host, name) for name in self._services.names(host) if name > after]

    def _row(self, key: tuple[str, str]) -> dict[str, Any]:
        host, name = key
        return {"name": name, "identity": name, "address": self._services.find(host, name)}

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        keys = self._keys(host, text_of(arguments, "after", ""))
        found = [{"name": name, "address": self._services.find(host, name)} for _, name in keys[:PAGE]]
        return Answer(200, "OK", {"services": found, "more": len(keys) > PAGE})

    def read(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        return Answer(200, "OK", {"name": name, "address": self._address(host, name)})

    def create(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        address, found = text_of(arguments, "address"), self._services.find(host, name)
        if found is not None and found != address:
            raise Refused(409, f"service {name!r} is registered for {found!r}; change it or remove it first")
        if found is None:
            self._register(host, name, address)
        is_new = found is None
        told = {"name": name, "address": address, "created": is_new}
        return Answer(201 if is_new else 200, "Created" if is_new else "OK", told, stored=True)

    def update(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        address, found = text_of(arguments, "address"), self._address(host, name)
        if found != address:
            self._register(host, name, address)
        return Answer(200, "OK", {"name": name, "address": address, "changed": found != address}, stored=True)

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        self._address(host, name)
        self._services.remove(host, name)
        return Answer(200, "OK", {}, stored=True)

    def _register(self, host: str, name: str, address: str) -> None:
        try:
            self._services.register(host, name, address)
        except TooManyServices as error:
            raise Refused(409, str(error)) from error
        except ConfigError as error:
            raise Refused(400, str(error)) from error

    def _address(self, host: str, name: str) -> str:
        found = self._services.find(host, name)
        if found is None:
            raise Refused(404, f"no service {name!r}; {SERVICE_PREFIX}NAME is the address of one that is registered")
        return found
