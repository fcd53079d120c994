"""The entries by which a node forwards topics: those of its file, and those that requests created (docs/federation.md).

Rules of this file: a created entry is stored with the turn that answers its request. It stays if that turn is undone,
as does every change by a request: the next turn stores it.
"""

from holdfast.errors import ConfigError
from holdfast.federation import stored
from holdfast.federation.settings import Entry, check_entries
from holdfast.settings.node import NodeConfig
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns


class BindingEntries:
    """The entries of the file and of requests, and which of them apply."""

    def __init__(self, config: NodeConfig, store: Tables, turns: Turns) -> None:
        self._config = config
        self._turns = turns
        self.created = stored.entries_of(store.table(stored.ENTRIES))
        """Entries that requests created, by topic and neighbour."""

    @property
    def all(self) -> tuple[Entry, ...]:
        """All entries that apply: those of the configuration, then those that requests created."""
        configured = self._config.federation
        taken = {(entry.topic, entry.neighbour) for entry in configured}
        made = (
            entry
            for key, entry in self.created.items()
            if key not in taken and entry.neighbour in self._neighbours_named
        )
        return (*configured, *made)

    @property
    def _neighbours_named(self) -> set[str]:
        return {neighbour.name for neighbour in self._config.neighbours}

    def configure(self, config: NodeConfig) -> bool:
        """Sets the entries and neighbours of the file; returns whether the entries that apply have changed."""
        before = self.all
        self._config = config
        return self.all != before

    def is_configured(self, entry: Entry) -> bool:
        """Whether the configuration file has it."""
        return entry in self._config.federation

    def add(self, entry: Entry) -> bool:
        """Adds an entry, which is stored; False if it exists. Raises ConfigError."""
        entry.validate()
        key = entry.topic, entry.neighbour
        present = next((one for one in self.all if (one.topic, one.neighbour) == key), None)
        if present == entry:
            return False
        if present is not None:
            raise ConfigError(f"topic {entry.topic!r} goes to {entry.neighbour!r} in another way; remove that first")
        check_entries((*self.all, entry), self._config.name, self._neighbours_named)
        self._change(key, entry)
        return True

    def remove(self, topic: str, neighbour: str) -> None:
        """Removes an entry that a request created."""
        self._change((topic, neighbour), None)

    def _change(self, key: tuple[str, str], entry: Entry | None) -> None:
        turn = self._turns.gathered
        place = stored.ENTRIES, stored.entry_key(*key)
        turn.changes += 1
        turn.batch.puts.pop(place, None)
        turn.batch.deletes[:] = [each for each in turn.batch.deletes if each != place]
        if entry is None:
            turn.batch.deletes.append(place)
            self.created.pop(key, None)
        else:
            turn.batch.puts[place] = stored.pack_entry(entry)
            self.created[key] = entry
