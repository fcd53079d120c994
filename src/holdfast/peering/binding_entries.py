"""The entries by which topics go to neighbours or come from there: those of the node's file, those that requests
created, and what neighbours ask for (docs/federation.md).

Rules of this file: an entry that is created or asked for is stored with the turn that answers. It stays if that turn is
undone, as does every change by a request: the next turn stores it. What a neighbour asks for applies where nothing else
says how that topic goes to it, and only while the neighbour may receive the topic's messages. All entries that apply
are within the bounds of federation, whatever the file says and was stored.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from holdfast.errors import ConfigError
from holdfast.federation import stored
from holdfast.federation.modes import Ask
from holdfast.federation.settings import Entry, Tally, check_entries, check_federated_topic, fault_with_remote
from holdfast.settings.node import NodeConfig
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns

NO_NEIGHBOUR: Final = "no neighbour"
"""Of an entry: there is no neighbour or remote of that name now."""
LEFT_OUT: Final = "left out"
"""It exceeds a bound together with those of the file, or cannot be with a remote."""

Permits = Callable[[str, str], bool]
"""Whether the neighbour may receive the messages of the topic."""

Pair = tuple[str, str]
"""A topic and a neighbour."""


class Own(NamedTuple):
    """`entries`: those of a configuration, and those that requests created and that fit beside them; `left_out`: the
    others of known neighbours, each with the reason."""

    entries: tuple[Entry, ...]
    left_out: dict[Pair, str]
    tally: Tally


class BindingEntries:
    """The entries of the file, of requests and of neighbours, and which of them apply."""

    def __init__(self, config: NodeConfig, store: Tables, turns: Turns, permits: Permits) -> None:
        self._config = config
        self._permits = permits
        self._turns = turns
        found = sorted(stored.entries_of(store.table(stored.ENTRIES)), key=_pair)
        self.created = {_pair(entry): entry for entry in found if not entry.asked}
        """Entries that requests created."""
        self.asked = {_pair(entry): entry for entry in found if entry.asked}
        """Entries that neighbours ask for."""
        self._before: tuple[Entry, ...] | None = None
        """Those that applied when `moved` was last called."""
        self._forget_asked()

    @property
    def all(self) -> tuple[Entry, ...]:
        """All entries that apply: those of the configuration, those that requests created, then those that neighbours
        ask for."""
        own, _, tally = self._own(self._config)
        return (*own, *(entry for entry, fault in self._judged(own, tally) if fault is None))

    def neighbours_of(self, topic: str) -> list[str]:
        """The neighbours and remotes to which an entry that applies has the topic go, or from which it comes."""
        return sorted({entry.neighbour for entry in self.all if entry.topic == topic})

    @property
    def refused(self) -> dict[Pair, str]:
        """Entries that neighbours ask for and that do not apply, with the reason."""
        own, _, tally = self._own(self._config)
        return {_pair(entry): fault for entry, fault in self._judged(own, tally) if fault is not None}

    def _judged(self, own: tuple[Entry, ...], tally: Tally) -> Iterator[tuple[Entry, str | None]]:
        """What neighbours ask for, if no entry here does it anyway; with the reason if it does not apply."""
        taken = {_pair(entry) for entry in own if entry.goes}
        for pair, entry in self.asked.items():
            if pair in taken:
                continue
            fault = tally.fault(entry)
            if not self._permits(entry.neighbour, entry.topic):
                fault = "the neighbour's account may not receive from the topic"
            if fault is None:
                tally.add(entry)
            yield entry, fault

    @property
    def left_out(self) -> dict[Pair, str]:
        """Entries that requests created and that do not apply because of what is in the file, with the reason."""
        return self._own(self._config).left_out

    @property
    def inapplicable(self) -> list[tuple[Entry, str]]:
        """Entries that requests created and that do not apply, with their state (`no neighbour`, `left out`). An entry
        that the file replaces is not among them."""
        left_out, known = self.left_out, _known(self._config)
        alone = (entry for entry in self.created.values() if entry.neighbour not in known)
        return [(entry, NO_NEIGHBOUR) for entry in alone] + [(self.created[pair], LEFT_OUT) for pair in left_out]

    def _own(self, config: NodeConfig) -> Own:
        configured = {_pair(entry) for entry in config.federation}
        remotes, known = {remote.name for remote in config.remotes}, _known(config)
        tally = Tally(config.federation)
        entries, left_out = list(config.federation), {}
        for pair, entry in self.created.items():
            if pair in configured or entry.neighbour not in known:
                continue
            fault = fault_with_remote(entry, remotes) or tally.fault(entry)
            if fault is None:
                tally.add(entry)
                entries.append(entry)
            else:
                left_out[pair] = fault
        return Own(tuple(entries), left_out, tally)

    def check(self, config: NodeConfig) -> None:
        """ConfigError if that configuration leaves out an entry that a request created and that now applies, or whose
        neighbour it adds."""
        now = self.left_out
        for (topic, neighbour), fault in self._own(config).left_out.items():
            if (topic, neighbour) not in now:
                remove = f"remove it (holdfast federation remove {topic} {neighbour}), or change the file"
                raise ConfigError(f"{fault}, with the entry that a request created; {remove}")

    def configure(self, config: NodeConfig) -> None:
        """Sets the entries, neighbours and remotes of the file."""
        self._config = config
        self._forget_asked()

    def _forget_asked(self) -> None:
        """Removes what neighbours asked for that the file does not have any more."""
        neighbours = {neighbour.name for neighbour in self._config.neighbours}
        for pair, entry in list(self.asked.items()):
            if entry.neighbour not in neighbours:
                del self.asked[pair]
                self._drop(entry)

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
        check_federated_topic(entry.topic)
        pair, config = _pair(entry), self._config
        own = self._own(config)
        present = next((one for one in own.entries if _pair(one) == pair), None)
        if present == entry:
            return False
        neighbours, remotes = ({each.name for each in those} for those in (config.neighbours, config.remotes))
        if (fault := fault_with_remote(entry, remotes)) is not None:
            raise ConfigError(fault)
        present = present or (self.created[pair] if pair in own.left_out else None)
        if present is not None:
            what = f"topic {entry.topic!r} is federated with {entry.neighbour!r} in another way"
            advice = "change the configuration file" if present in config.federation else "remove that first"
            raise ConfigError(f"{what}, direction {present.direction} and mode {present.mode}; {advice}")
        check_entries((*own.entries, entry), config.name, neighbours, remotes)
        self.created[pair] = entry
        self._put(entry)
        return True

    def removable(self, topic: str, neighbour: str) -> Entry | None:
        """The entry that `remove` removes: one that a request created, whether it applies or not, but not one in whose
        place that of the file applies; or, if there is none, that which the neighbour asks for."""
        pair = topic, neighbour
        if pair in self.created and pair not in {_pair(entry) for entry in self._config.federation}:
            return self.created[pair]
        return self.asked.get(pair)

    def remove(self, topic: str, neighbour: str) -> None:
        """Removes the entry that is `removable`."""
        entry = self.removable(topic, neighbour)
        assert entry is not None, "somebody has looked"
        del (self.asked if entry.asked else self.created)[topic, neighbour]
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


def _known(config: NodeConfig) -> set[str]:
    """The names of neighbours and remotes."""
    return {each.name for each in config.neighbours}.union(each.name for each in config.remotes)


def _pair(entry: Entry) -> Pair:
    return entry.topic, entry.neighbour
