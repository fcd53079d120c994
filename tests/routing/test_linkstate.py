"""The table of link states: instances joined in memory, whose sessions come, go and lose what was on its way."""

from collections import deque
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire.types import Ulong
from holdfast.routing import linkstate, supers
from holdfast.routing.linkstate import ROWS_MAX, LinkStates
from holdfast.routing.paths import shortest_paths
from holdfast.routing.records import LEFT, LOST, STAMPED, SUPER, VERSION_END, VERSION_HIGH, Known, Record
from holdfast.routing.rows import Malformed, read_row, write_row
from holdfast.routing.topology import COST_MICRO_MAX
from support import today

COST = 1_000_000


class Instance:
    """One node's table with what `peering/routes.py` does around it, without times."""

    def __init__(self, net: "Net", name: str, version: int) -> None:
        self.net, self.name, self.version = net, name, version
        self.states = LinkStates(name, net.edges, supers=net.supers, records_max=100, neighbours_max=10)
        self.stamps = 0
        self.say()

    @property
    def paths(self) -> dict[str, Any]:
        return shortest_paths(self.states.edges(), self.name)

    def acting(self) -> str | None:
        known, paths = self.states.known, self.paths
        numbers = {name: self.net.supers.index(name) for name in self.net.supers}
        return supers.acting(numbers, lambda name: not known[name].gone and (name == self.name or name in paths))

    def say(self) -> None:
        links = {to: cost if to in self.states.told else None for to, cost in self.net.edges[self.name].items()}
        self.states.originate(links, version=self.version, is_super=self.name in self.net.supers)

    def turn(self) -> bool:
        """Says, stamps and tells; whether anything was told."""
        states = self.states
        links = {to: cost if to in states.told else None for to, cost in self.net.edges[self.name].items()}
        assert states.own is not None
        if states.must_reoriginate or dict(states.own.record.links) != links:
            self.say()
        acting = self.acting()
        if acting == self.name:
            for name in list(states.unstamped):
                if states.known[name].record.version:
                    self.stamps += 1
                    states.stamp(name, self.name, self.stamps)
        toward = None if acting in (None, self.name) else self.paths[acting].nodes[1]
        spoke = False
        for neighbour in list(states.told):

            def may(known: Known, neighbour: str = neighbour) -> bool:
                return bool(known.stamp or known.lost_by) or acting is None or neighbour == toward

            while True:
                rows, editions = states.to_tell(neighbour, may)
                if not rows:
                    break
                spoke = True
                self.net.send(self.name, neighbour, ("links", rows))
                states.was_told(neighbour, editions)
        return spoke


class Net:
    """`links` by pairs; a session may be up or down, and what is on its way goes with it."""

    def __init__(self, names: list[str], links: list[tuple[str, str]], supers: list[str]) -> None:
        self.supers = supers
        self.edges: dict[str, dict[str, int]] = {name: {} for name in names}
        for place, (one, two) in enumerate(links):
            self.edges[one][two] = self.edges[two][one] = COST + place
        self.links = links
        self.wires: dict[tuple[str, str], deque[Any]] = {}
        self.sent = 0
        self.nodes = {name: Instance(self, name, 1000) for name in names}

    def send(self, one: str, two: str, message: Any) -> None:
        self.sent += 1
        self.wires[one, two].append(message)

    def up(self, one: str, two: str) -> None:
        if (one, two) in self.wires:
            return
        for here, there in ((one, two), (two, one)):
            self.wires[here, there] = deque()
        for here, there in ((one, two), (two, one)):
            self.nodes[here].states.up(there)
            for rows in self.nodes[here].states.summary():
                self.send(here, there, ("known", rows))

    def down(self, one: str, two: str) -> None:
        """Both sides notice, with all that was on its way lost."""
        for here, there in ((one, two), (two, one)):
            if self.wires.pop((here, there), None) is not None:
                self.nodes[here].states.down(there)

    def restart(self, name: str, version: int) -> None:
        neighbours = list(self.nodes[name].states.told)
        for other in neighbours:
            self.down(name, other)
        self.nodes[name] = Instance(self, name, version)
        for other in neighbours:
            self.up(name, other)

    def step(self, random: Random) -> bool:
        """One node's turn, or one message's arrival; False where nothing moves."""
        busy = [pair for pair, wire in self.wires.items() if wire]
        if busy and random.random() < 0.7:
            one, two = random.choice(busy)
            kind, rows = self.wires[one, two].popleft()
            states = self.nodes[two].states
            if kind == "links":
                states.receive(one, rows)
            else:
                states.receive_summary(one, rows, first=True, last=True)
            return True
        for name in random.sample(list(self.nodes), len(self.nodes)):
            if self.nodes[name].turn():
                return True
        return bool(busy)

    def rest(self, random: Random, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.step(random):
                return
        raise AssertionError("they never come to rest")

    def parts(self) -> list[list[str]]:
        """Connected parts by sessions."""
        left, parts = dict.fromkeys(self.nodes), []
        while left:
            part = [next(iter(left))]
            for name in part:
                left.pop(name, None)
                part += [other for other in self.nodes[name].states.told if other not in part]
            parts.append(part)
        return parts

    def check(self) -> None:
        """All of one part hold equal records, and the shortest paths over what is up."""
        real = {
            one: {two: cost for two, cost in ends.items() if (one, two) in self.wires}
            for one, ends in self.edges.items()
        }
        for part in self.parts():
            assert len({self.nodes[name].states.digest for name in part}) == 1
            for name in part:
                states = self.nodes[name].states
                found = {to: path.nodes for to, path in self.nodes[name].paths.items() if to in part}
                assert found == {to: path.nodes for to, path in shortest_paths(real, name).items()}
                for known in states.known.values():
                    if known.record.name in part and set(part) & set(self.supers):
                        assert known.stamp is not None
        for node in self.nodes.values():
            digest = 0
            for known in node.states.known.values():
                digest ^= known.digest
            assert digest == node.states.digest


@st.composite
def networks(draw: st.DrawFn) -> Net:
    count = draw(st.integers(2, 9))
    names = [f"n{number}" for number in range(count)]
    pairs = {(names[draw(st.integers(0, at - 1))], names[at]) for at in range(1, count)}
    more = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=8))
    pairs |= {(names[min(pair)], names[max(pair)]) for pair in more if pair[0] != pair[1]}
    supers = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    return Net(names, sorted(pairs), supers)


@today.examples(50)
@given(networks(), st.integers(0, 2**32), st.data())
def test_at_rest_all_that_are_joined_hold_equal_records_and_shortest_paths(
    net: Net, seed: int, data: st.DataObject
) -> None:
    """Whatever links did meanwhile, and whatever was lost with them. esb-dynamic-routing §4.3."""
    random = Random(seed)
    acts = st.lists(st.tuples(st.sampled_from(("up", "down", "restart", "steps")), st.integers(0, 1000)), max_size=25)
    for link in net.links:
        net.up(*link)
    for act, amount in data.draw(acts):
        link = net.links[amount % len(net.links)]
        if act == "restart":
            name = list(net.nodes)[amount % len(net.nodes)]
            net.restart(name, random.choice((500, 1000, 2000)))  # its clock may have gone back
        elif act == "steps":
            for _ in range(amount % 40):
                net.step(random)
        else:
            getattr(net, act)(*link)
    net.rest(random)
    net.check()


@today.examples(35)
@given(networks(), st.integers(0, 2**32))
def test_a_change_costs_about_two_messages_a_link(net: Net, seed: int) -> None:
    """No storms: a cost that changed goes over each link twice at most on its way to the super node and from it, and
    twice where both ends tell each other at one moment."""
    random = Random(seed)
    for link in net.links:
        net.up(*link)
    net.rest(random)
    net.check()
    name = random.choice(list(net.nodes))
    net.sent = 0
    node = net.nodes[name]
    node.states.originate(
        {to: cost + 5 for to, cost in net.edges[name].items()}, version=1, is_super=name in net.supers
    )
    net.edges = {**net.edges, name: {to: cost + 5 for to, cost in net.edges[name].items()}}
    net.rest(random)
    assert len({node.states.digest for node in net.nodes.values()}) == 1
    towards = len(net.nodes) - 1 if net.supers else 0
    assert net.sent <= 2 * len(net.links) + towards


def row(**other: Any) -> list[Any]:
    told = {"name": "b", "version": 7, "bits": STAMPED, "store": UUID(int=1), "links": ["a", COST, "c", None]}
    return [*(told | {"by": "s", "count": 3, "lost": None} | other).values()]


def test_a_row_is_read_as_it_was_written() -> None:
    record = Record("b", 7, (("a", COST), ("c", None)), UUID(int=1), left=True, is_super=True)
    for known in (Known(record), Known(record, ("s", 3)), Known(record, ("s", 3), "s")):
        assert read_row(write_row(known)[0], 2) == known
    assert write_row(Known(record, ("s", 3), "s"))[0][2] == LEFT | STAMPED | LOST | SUPER


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        row()[:7],
        row(name=7),
        row(name=""),
        row(name="a@b"),
        row(name="x" * 201),
        row(version=0),
        row(version=VERSION_END),
        row(version=True),
        row(bits=VERSION_END),
        row(store="b"),
        row(links=["a"]),
        row(links=["a", 0]),
        row(links=["a", COST_MICRO_MAX + 1]),
        row(links=["a", COST, "a", COST]),
        row(links=["b", COST]),
        row(links=["a", 1, "c", 1, "d", 1]),
        row(by=None),
        row(count=-1),
        row(bits=LOST),
    ],
)
def test_a_bad_row_is_dropped_and_the_rest_is_taken(bad: Any) -> None:
    told: list[str] = []
    states = LinkStates("a", {"a": {"b": COST}}, records_max=5, neighbours_max=2)
    states.malformed = lambda neighbour, text: told.append(text)
    with pytest.raises(Malformed):
        read_row(bad, 2)
    states.receive("b", [bad, row()])
    assert list(states.known) == ["a", "b"] and states.known["b"].record.version == 7
    assert len(told) == 1 and "; expected " in told[0]


def test_the_highest_values_are_taken() -> None:
    known = read_row(row(version=VERSION_END - 1, links=["a", COST_MICRO_MAX, "c", 1], name="x" * 200), 2)
    assert known.record.version == VERSION_END - 1


@pytest.mark.parametrize(("links", "taken"), [(256, True), (257, True), (258, False)])
def test_as_many_links_are_believed_as_the_file_gives_one_node(links: int, taken: bool) -> None:
    """The hub of a large star: its own word is as long as the topology file makes it, so all must take it."""
    spokes = [f"s{number:03}" for number in range(257)]
    states = LinkStates("s000", {"hub": dict.fromkeys(spokes, COST)}, records_max=5, neighbours_max=256)
    told = [item for number in range(links) for item in (f"s{number:03}", COST)]
    states.receive("hub", [row(name="hub", links=told)])
    assert (states.known["hub"].record.version > 0) is taken


def test_nodes_that_no_file_names_join_up_to_the_bound() -> None:
    """esb-dynamic-routing §4.2: a new node registers itself."""
    told: list[str] = []
    states = LinkStates("a", {"a": {"b": COST}}, records_max=3, neighbours_max=2)
    states.malformed = lambda neighbour, text: told.append(text)
    states.up("b")
    states.receive("b", [row(name="b"), row(name="x"), row(name="y")])
    assert list(states.known) == ["a", "b", "x"] and "3 nodes are known" in told[0]
    assert set(states.told["b"].editions) <= {"a", "b", "x"}


def test_messages_are_bounded_in_rows_and_bytes() -> None:
    states = LinkStates("a", {"a": {"b": COST}}, records_max=1_000, neighbours_max=2)
    states.receive("z", [row(name=f"n{number:04}") for number in range(999 - 2)])
    states.up("b")
    states.forget("b")
    sizes = []
    while (told := states.to_tell("b", lambda known: True))[0]:
        sizes.append(len(told[0]))
        states.was_told("b", told[1])
    assert sum(sizes) == 997 and max(sizes) == ROWS_MAX
    long = LinkStates("a", {}, records_max=1_000, neighbours_max=200)
    links = [item for number in range(60) for item in (f"{number:03}" + "x" * 150, 1)]
    long.receive("z", [row(name=f"n{number}", links=links) for number in range(10)])
    long.up("b")
    long.forget("b")
    assert len(long.to_tell("b", lambda known: True)[0]) == 1


def test_our_own_word_goes_past_what_others_say_of_us() -> None:
    """A clock that went back, an older life, a verdict: said anew, and believed again."""
    states = LinkStates("a", {"a": {"b": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=100)
    states.receive("b", [row(name="a", version=5_000, links=[])])
    assert states.must_reoriginate
    states.originate({"b": COST}, version=100)
    assert states.own is not None and states.own.record.version == 5_001 and not states.must_reoriginate
    states.receive("b", [row(name="a", version=4_999, links=[])])
    assert not states.must_reoriginate
    verdict, _ = write_row(Known(states.own.record, ("s", 1), "s"))
    states.receive("b", [verdict])
    assert states.must_reoriginate
    states.originate({"b": COST}, version=100)
    assert states.own.record.version == 5_002 and not states.own.gone


def test_a_verdict_ends_with_the_nodes_next_word() -> None:
    states = LinkStates("s", {"s": {"b": COST}, "b": {"s": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=1)
    states.receive("b", [row(links=["s", COST])])
    assert states.edges()["s"] == {"b": COST}
    assert states.lose("b", "s") and not states.lose("b", "s")
    assert states.edges() == {"s": {}}
    states.receive("b", [row(links=["s", COST])])
    assert states.edges() == {"s": {}}
    states.receive("b", [row(links=["s", COST], version=8)])
    assert states.edges()["s"] == {"b": COST}


def test_either_end_of_a_link_may_say_that_it_is_down() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=1)
    assert states.edges() == {"a": {"b": COST}, "b": {"a": COST}}
    states.receive("b", [row(links=["a", None])])
    assert states.edges() == {"a": {}, "b": {}}
    states.receive("b", [row(version=8, links=[])])  # a link of one direction says nothing of the other
    assert states.edges() == {"a": {"b": COST}, "b": {}}


def test_an_older_word_that_crosses_ours_does_not_have_ours_told_again() -> None:
    """What was told is on its way: the neighbour's word left before it came."""
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}, "c": {}}, records_max=9, neighbours_max=9)
    states.up("b")
    states.receive("c", [write_row(Known(Record("c", 7, ())))[0]])
    rows, editions = states.to_tell("b", lambda known: True)
    states.was_told("b", editions)
    assert [row[0] for row in rows] == ["c"]
    states.receive("b", [write_row(Known(Record("c", 5, ())))[0]])
    assert states.to_tell("b", lambda known: True) == ([], {})
    states.receive("b", [write_row(Known(Record("c", 8, ())))[0]])
    assert states.known["c"].record.version == 8 and states.to_tell("b", lambda known: True) == ([], {})


def test_a_word_that_changes_no_link_is_no_change_of_the_graph() -> None:
    """As nodes register, each says what the file said already: nothing is to be computed for it."""
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=9, neighbours_max=9)
    states.changed = False
    words = states.words
    states.receive("b", [write_row(Known(Record("b", 7, (("a", COST),), UUID(int=5))))[0]])
    assert not states.changed and states.words == words + 1
    states.receive("b", [write_row(Known(Record("b", 8, (("a", None),), UUID(int=5))))[0]])
    assert states.changed and states.words == words + 2


def test_a_record_that_is_forgotten_is_stamped_no_more() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=9, neighbours_max=9)
    states.receive("b", [write_row(Known(Record("b", 7, (("a", COST),))))[0]])
    assert list(states.unstamped) == ["b"]
    states.drop("b")
    assert not states.unstamped and "b" not in states.known


def test_a_neighbour_is_told_the_first_word_after_a_reset_though_it_had_a_higher_version() -> None:
    states = LinkStates("b", {"a": {"b": COST}, "b": {"a": COST, "c": COST}}, records_max=9, neighbours_max=9)
    states.up("c")
    states.receive("a", [write_row(Known(Record("a", VERSION_HIGH, (("b", COST),))))[0]])
    states.was_told("c", states.to_tell("c", lambda known: True)[1])
    assert states.void("a")
    states.receive("a", [write_row(Known(Record("a", 2, (("b", COST),))))[0]])
    rows, _ = states.to_tell("c", lambda known: True)
    assert [row[:2] for row in rows] == [["a", 2]]


def summary_of_own(states: LinkStates, version: int, fingerprint: int = 5, bits: int = 0) -> None:
    states.receive_summary("b", [["a", version, fingerprint, bits]], first=True, last=True)


def test_a_neighbours_newer_word_of_ours_is_contradicted_as_soon_as_its_summary_tells_of_it() -> None:
    """The word itself need not come: it is passed on to all only once a super node has stamped it."""
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.up("b")
    summary_of_own(states, 5_000)
    assert not states.must_reoriginate  # what is said first goes past it
    states.originate({"b": COST}, version=100)
    assert states.own is not None and states.own.record.version == 5_001
    edition = states.own.edition
    for told in ((5_000, 5, 0), (5_001, edition.fingerprint - 1, 0), (*edition[:2], STAMPED | LOST), edition):
        summary_of_own(states, *told)
        assert not states.must_reoriginate
    for told in ((5_002, 5), (5_002, edition.fingerprint), (5_001, edition.fingerprint + 1)):
        states.must_reoriginate = False
        summary_of_own(states, *told)
        assert states.must_reoriginate
    states.originate({"b": COST}, version=100)
    assert states.own.record.version == 5_003 and not states.must_reoriginate
    assert [row[:2] for row in states.to_tell("b", lambda known: True)[0]] == [["a", 5_003]]
    summary_of_own(states, 5_002)
    assert not states.must_reoriginate  # it had left before
    states.originate({"b": COST}, version=100, left=True)
    summary_of_own(states, 9_000)
    assert not states.must_reoriginate


def test_a_summary_with_our_own_word_is_not_answered_with_it() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=100)
    states.up("b")
    assert states.own is not None
    summary_of_own(states, *states.own.edition)
    assert states.to_tell("b", lambda known: True) == ([], {})


def test_an_ordinary_version_of_ours_counts_while_our_versions_begin_anew() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.up("b")
    summary_of_own(states, VERSION_END - 1)
    states.originate({"b": COST}, version=100)
    assert states.resets
    summary_of_own(states, 5_000)
    assert states.must_reoriginate and states.floor == 5_000 and not states.stale


def test_what_a_summary_in_parts_had_of_us_before_a_reset_is_forgotten_by_its_end() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=100)
    states.up("b")
    states.receive_summary("b", [], first=True, last=True)
    states.receive_summary("b", [["a", VERSION_END - 1, 5, 0]], first=True, last=False)
    states.originate({"b": COST}, version=100)
    assert states.resets
    states.receive_summary("b", [], first=False, last=True)
    assert [row[:2] for row in states.to_tell("b", lambda known: True)[0]] == [["a", 100]]


def test_a_summary_with_the_highest_version_of_ours_has_it_reset_once() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, records_max=5, neighbours_max=5)
    states.originate({"b": COST}, version=100)
    states.up("b")
    summary_of_own(states, VERSION_END - 1)
    assert states.must_reoriginate
    states.originate({"b": COST}, version=100)
    assert states.own is not None and states.own.record.version == 100 and states.resets and not states.stale
    summary_of_own(states, VERSION_END - 1)
    assert not states.must_reoriginate and list(states.stale) == [("b", "a")]  # it is told of the reset again
    assert [row[:2] for row in states.to_tell("b", lambda known: True)[0]] == [["a", 100]]


def test_what_was_sent_since_a_session_began_is_not_sent_again_for_an_older_summary() -> None:
    """Their summary was sent before our record came."""
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, supers=(), records_max=10, neighbours_max=10)
    states.up("b")
    states.originate({"b": COST}, version=7)
    rows, editions = states.to_tell("b", lambda known: True)
    assert [row[0] for row in rows] == ["a"]
    states.was_told("b", editions)
    states.receive_summary("b", [["a", Ulong(3), Ulong(0), Ulong(0)]], first=True, last=True)
    assert states.to_tell("b", lambda known: True) == ([], {})


def test_only_who_has_told_of_its_links_has_none_to_a_node() -> None:
    states = LinkStates("a", {"a": {"b": COST}, "b": {"a": COST}}, supers=(), records_max=10, neighbours_max=10)
    states.originate({"b": COST}, version=7)
    assert states.has_no_link("a", "c") and not states.has_no_link("a", "b")
    assert not states.has_no_link("b", "c"), "it is known by the topology file alone"
    assert not states.has_no_link("x", "a"), "nothing is known of it"


@pytest.mark.parametrize("bound", ["SUMMARY_ROWS_MAX", "BYTES_MAX"])
def test_a_summary_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    states = LinkStates("a", {}, supers=(), records_max=10, neighbours_max=10)
    for name in "abcde":
        states.known[name] = Known(Record(name, 1, ()))
    assert [len(rows) for rows in states.summary()] == [5]
    monkeypatch.setattr(linkstate, bound, 2 if bound == "SUMMARY_ROWS_MAX" else 1)
    parts = states.summary()
    assert [len(rows) for rows in parts] == ([2, 2, 1] if bound == "SUMMARY_ROWS_MAX" else [1] * 5)
    assert [row[0] for rows in parts for row in rows] == [*"abcde"]
