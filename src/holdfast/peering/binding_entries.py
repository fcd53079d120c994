"""The entries by which topics go to neighbours or come from there: those of the node's file, those that requests
created, and what neighbours ask for (docs/federation.md).

Rules of this file: an entry that is created or asked for is stored with the turn that answers. It stays if that turn is
undone, as does every change by a request: the next turn stores it. What a neighbour asks for applies where nothing else
says how that topic goes to it, and only while the neighbour may receive the topic's messages.
"""

from collections.abc import Callable, Iterable, Mapping

from holdfast.errors import ConfigError
from holdfast.federation import stored
from holdfast.federation.messages import EDGES_MAX
from holdfast.federation.modes import TOPICS_MAX, Ask
from holdfast.federation.settings import Entry, check_entries
from holdfast.settings.node import NodeConfig
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns

Permits = Callable[[str, str], bool]
"""Whether the neighbour may receive the messages of the topic."""


class BindingEntries:
    """The entries of the file, of requests and of neighbours, and which of them apply."""

    def __init__(self, config: NodeConfig, store: Tables, turns: Turns, permits: Permits) -> None:
        self._config = config
        self._permits = permits
        self._turns = turns
        found = stored.entries_of(store.table(stored.ENTRIES))
        self.created = {(entry.topic, entry.neighbour): entry for entry in found if not entry.asked}
        """Entries that requests created."""
        self.asked = {(entry.topic, entry.neighbour): entry for entry in found if entry.asked}
        """Entries that neighbours ask for."""
        self._before: tuple[Entry, ...] | None = None
        """Those that applied when `moved` was last called."""

    @property
    def all(self) -> tuple[Entry, ...]:
        """All entries that apply: those of the configuration, those that requests created, then those that neighbours
        ask for."""
        own, neighbours = _own(self._config, self.created), _neighbours_of(self._config)
        taken = {(entry.topic, entry.neighbour) for entry in own if entry.goes}
        edges: dict[str, int] = {entry.topic: EDGES_MAX for entry in own}
        for entry in own:
            edges[entry.topic] -= 1
        asked = []
        for key, entry in self.asked.items():
            if key in taken or entry.neighbour not in neighbours or not self._permits(entry.neighbour, entry.topic):
                continue
            left = edges.get(entry.topic, EDGES_MAX if len(edges) < TOPICS_MAX else 0)
            if left:
                edges[entry.topic] = left - 1
                asked.append(entry)
        return (*own, *asked)

    def check(self, config: NodeConfig) -> None:
        """ConfigError if the entries of that configuration and those that requests created exceed a bound together."""
        check_entries(_own(config, self.created), config.name)

    def configure(self, config: NodeConfig) -> None:
        """Sets the entries, neighbours and remotes of the file."""
        self._config = config

    def moved(self) -> bool:
        """Whether the entries that apply have changed since the last call."""
        before, self._before = self._before, self.all
        return before != self._before

    def is_configured(self, entry: Entry) -> bool:
        """Whether the configuration file has it."""
        return entry in self._config.federation

    def add(self, entry: Entry) -> bool:
        """Adds an entry, which is stored; False if it exists. Raises ConfigError."""
        entry.validate()
        key = entry.topic, entry.neighbour
        own = _own(self._config, self.created)
        present = next((one for one in own if (one.topic, one.neighbour) == key), None)
        if present == entry:
            return False
        if present is not None:
            raise ConfigError(f"topic {entry.topic!r} goes to {entry.neighbour!r} in another way; remove that first")
        check_entries((*own, entry), self._config.name, _neighbours_of(self._config), _remotes_of(self._config))
        self.created[key] = entry
        self._put(entry)
        return True

    def remove(self, topic: str, neighbour: str) -> None:
        """Removes an entry that a request created, or, if there is none, that the neighbour asks for."""
        key = topic, neighbour
        entry = self.created.pop(key, None) or self.asked.pop(key)
        self._drop(entry)

    def ask(self, neighbour: str, asks: Iterable[Ask]) -> None:
        """These are all topics that the neighbour asks for."""
        wanted = [Entry(ask.topic, neighbour, ask.mode, ask.patterns, asked=True) for ask in asks]
        topics = {entry.topic for entry in wanted}
        for entry in [one for one in self.asked.values() if one.neighbour == neighbour and one.topic not in topics]:
            del self.asked[entry.topic, neighbour]
            self._drop(entry)
        for entry in wanted:
            if self.asked.get((entry.topic, neighbour)) != entry:
                self.asked[entry.topic, neighbour] = entry
                self._put(entry)

    def _put(self, entry: Entry) -> None:
        self._turns.gathered.batch.puts[self._place(entry)] = stored.pack_entry(entry)

    def _drop(self, entry: Entry) -> None:
        self._turns.gathered.batch.deletes.append(self._place(entry))

    def _place(self, entry: Entry) -> tuple[str, bytes]:
        """The entry's row, of which the gathered turn has nothing yet."""
        turn = self._turns.gathered
        place = stored.ENTRIES, stored.entry_key(entry.topic, entry.neighbour, asked=entry.asked)
        turn.changes += 1
        turn.batch.puts.pop(place, None)
        turn.batch.deletes[:] = [each for each in turn.batch.deletes if each != place]
        return place


def _own(config: NodeConfig, created: Mapping[tuple[str, str], Entry]) -> tuple[Entry, ...]:
    """Those of the configuration and of requests."""
    taken = {(entry.topic, entry.neighbour) for entry in config.federation}
    known = _neighbours_of(config) | _remotes_of(config)
    made = (entry for key, entry in created.items() if key not in taken and entry.neighbour in known)
    return (*config.federation, *made)


def _neighbours_of(config: NodeConfig) -> set[str]:
    return {neighbour.name for neighbour in config.neighbours}


def _remotes_of(config: NodeConfig) -> set[str]:
    return {remote.name for remote in config.remotes}
