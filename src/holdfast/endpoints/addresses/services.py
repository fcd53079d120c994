"""Names of services: `$service/NAME` is the address that was registered for the name (docs/amqp.md, "Services").

Rules of this file: a name is one row of table `node`; such a row is stored with a later turn if its own is undone. A
registered address is a queue, a topic or `QUEUE@NODE`, never the name of another service.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.broker.entries.address import parse
from holdfast.broker.entries.host_names import HostedName, hosted, read_key
from holdfast.broker.stored import records
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.settings.node import NodeConfig
from holdfast.state.turns import Turns

SERVICE_PREFIX: Final = "$service/"
SERVICES_MAX: Final = 1_000
"""Names of services in each virtual host."""


class TooManyServices(ConfigError):
    """A virtual host has reached the maximum number of services."""


class Services:
    """`registered`: the address of each name, as it was given."""

    def __init__(self, config: NodeConfig, turns: Turns, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """`rows`: those of table `node`."""
        self._config = config
        self._turns = turns
        self.registered: dict[HostedName, str] = {
            hosted(*read_key(key[len(records.SERVICE) :].decode())): value.decode()
            for key, value in rows
            if key.startswith(records.SERVICE)
        }

    def find(self, host: str, name: str) -> str | None:
        return self.registered.get(hosted(host, name))

    def names(self, host: str) -> list[str]:
        """The names of that virtual host, in order."""
        return sorted(name for where, name in map(read_key, self.registered) if where == host)

    def register(self, host: str, name: str, address: str) -> None:
        """Registers the name for that address, for later attaches and messages. ConfigError if the address is not
        allowed."""
        check_name(name)
        if address.startswith("$"):
            text = f"invalid address {address[:60]!r} of service {name!r}"
            raise ConfigError(f"{text}; expected a queue, a topic or QUEUE@NODE")
        parse(address, own_name=self._config.name, own_addresses=self._config.own_addresses, host=host)
        key = hosted(host, name)
        if key not in self.registered and len(self.names(host)) >= SERVICES_MAX:
            raise TooManyServices(f"too many services; the limit is {SERVICES_MAX}")
        self.registered[key] = address
        place = "node", records.service_key(key)
        batch = self._turns.gathered.batch
        batch.deletes[:] = [each for each in batch.deletes if each != place]
        batch.puts[place] = address.encode()

    def remove(self, host: str, name: str) -> None:
        """Removes the name, which must be registered."""
        key = hosted(host, name)
        del self.registered[key]
        place = "node", records.service_key(key)
        batch = self._turns.gathered.batch
        batch.puts.pop(place, None)
        batch.deletes.append(place)
