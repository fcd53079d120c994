"""The entries by which a node forwards topics: those of its file, and those that requests made (docs/federation.md).

Rules of this file: entries of requests go with the turn that answers the request, and stay although their turn is
undone, as all that requests changed: the next turn stores them.
"""

from holdfast.errors import ConfigError
from holdfast.federation import stored
from holdfast.federation.settings import Entry, check_entries
from holdfast.settings.node import NodeConfig
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns


class BindingEntries:
    """Which of them hold."""

    def __init__(self, config: NodeConfig, store: Tables, turns: Turns) -> None:
        self._config = config
        self._turns = turns
        self.created = stored.entries_of(store.table(stored.ENTRIES))
        """Entries that requests made, by topic and neighbour."""

    @property
    def all(self) -> tuple[Entry, ...]:
        """All that hold: of the configuration, then those that requests made."""
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
        """The file has other entries, or other neighbours, from now on. Whether other entries hold."""
        before = self.all
        self._config = config
        return self.all != before

    def is_configured(self, entry: Entry) -> bool:
        """Whether the configuration file has it."""
        return entry in self._config.federation

    def add(self, entry: Entry) -> bool:
        """An entry that holds from now on, over restarts too. False where it is there. Raises ConfigError."""
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
        """That entry, which a request made, does not hold any more."""
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
