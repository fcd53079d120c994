"""Scenario files: what they may say, each mistake in one line, and the same plan from the same file and seed."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast_lab.judge.oracle import parts
from holdfast_lab.plan import scenario_file
from holdfast_lab.plan.faults import KINDS, Fault
from holdfast_lab.plan.networks import LinkShape
from holdfast_lab.plan.plan import from_json
from holdfast_lab.plan.shapes import SHAPES
from holdfast_lab.runs.swarm import draw_plan
from holdfast_lab.workloads import KINDS as WORKLOADS
from support import today

ROOT = Path(__file__).parent.parent.parent
MANUAL = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")

GOOD = """
shows = "Two nodes."

[topology]
nodes = ["a", "b"]
hold_time_s = 2.0

[[link]]
one = "a"
other = "b"
rate = 1000
delay_s = 0.5
back = { delay_s = 0.1 }

[[queue]]
node = "b"
name = "q"
messages_max = 5

[[workload]]
kind = "publish"
node = "a"
address = "q@b"
messages = 3

[[workload]]
kind = "consume"
node = "b"
queue = "q"
"""


def test_what_a_file_says_is_what_the_plan_holds() -> None:
    plan = scenario_file.parse(
        GOOD
        + """
[limits]
credit = 7
[clocks]
a = 0.01
[run]
safety_s = 9
liveness_s = 50
[[fault]]
kind = "crash"
node = "b"
at = 5
seconds = 1
[[fault]]
kind = "cut"
link = ["a", "b"]
at = 1.0
every_s = 3.5
times = 3
""",
        "two",
    )
    assert plan.name == "two" and plan.topology.nodes == ("a", "b") and plan.topology.hold_time_s == 2.0
    (link,) = plan.topology.links
    assert link.there == LinkShape(rate=1000, delay_s=0.5) and link.back == LinkShape(rate=1000, delay_s=0.1)
    assert plan.topology.queues["b"][0].messages_max == 5 and plan.topology.limits.credit == 7
    assert plan.drifts == {"a": 0.01} and (plan.safety_s, plan.liveness_s) == (9, 50)
    assert plan.workloads[0] == {"kind": "publish", "node": "a", "address": "q@b", "messages": 3}
    assert plan.faults == (
        Fault(kind="cut", at=1.0, link=("a", "b")),
        Fault(kind="cut", at=4.5, link=("a", "b")),
        Fault(kind="crash", at=5, node="b", seconds=1),
        Fault(kind="cut", at=8.0, link=("a", "b")),
    )


FAULT = '[[fault]]\nkind = "crash"\nnode = "b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("= 3", "f.toml: the file is not TOML: "),
        ("x = 1", "f.toml: unknown key 'x' in the file; expected one of shows, topology, "),
        ("", "f.toml: the file has no topology; add it"),
        ('[topology]\nnodes = ["a"]', "f.toml: the file has no workload; add it"),
        (GOOD.replace('["a", "b"]', "[]"), "invalid value [] for [topology] nodes; expected a list of names"),
        (
            GOOD.replace('["a", "b"]', '["a", "a"]'),
            "invalid [topology] nodes, 2 of them; expected up to 300, each once",
        ),
        (
            GOOD.replace("hold_time_s = 2.0", "hold_time_s = 0.2"),
            "invalid value 0.2 for [topology] hold_time_s; expected at least keep",
        ),
        (
            GOOD.replace("hold_time_s = 2.0", "hold = 2.0"),
            "unknown key 'hold' in [topology]; expected one of nodes, keep",
        ),
        (GOOD.replace('other = "b"', 'other = "c"'), "invalid value 'c' for [[link]] 1 other; expected a node (a, b)"),
        (GOOD.replace('other = "b"', 'other = "a"'), "[[link]] 1 has 'a' at both ends"),
        (GOOD.replace('other = "b"', ""), "[[link]] 1 has no other; add it"),
        (GOOD.replace("rate = 1000", "rate = 0"), "invalid value 0 for [[link]] 1 rate; expected bytes a second, 1 to"),
        (
            GOOD.replace("delay_s = 0.5", "delay_s = -1"),
            "invalid value -1 for [[link]] 1 delay_s; expected seconds, 0 to 3600",
        ),
        (
            GOOD.replace("delay_s = 0.5", "delay_s = true"),
            "invalid value True for [[link]] 1 delay_s; expected seconds",
        ),
        (
            GOOD.replace("delay_s = 0.5", "loss = 1.0"),
            "invalid value 1.0 for [[link]] 1 loss; expected a share of packets, 0 to 0.9",
        ),
        (GOOD.replace("delay_s = 0.1", "x = 0.1"), "unknown key 'x' in [[link]] 1 back; expected one of rate, delay_s"),
        (GOOD + '[[link]]\none = "a"\nother = "b"\n', "[[link]] 2 is a-b a second time; remove it"),
        (GOOD.replace('name = "q"', ""), "[[queue]] 1 has no name; add it"),
        (
            GOOD.replace("messages_max = 5", "messages_max = 0"),
            "invalid value 0 for queue 'q' messages_max; expected a number above 0",
        ),
        (
            GOOD.replace("messages_max = 5", 'order = "x"'),
            "invalid value 'x' for queue 'q' order; expected one of strict, bounded, none",
        ),
        (
            GOOD.replace("messages_max = 5", "durable = 1"),
            "invalid value 1 for [[queue]] 1 durable; expected true or false",
        ),
        (GOOD + '[[route]]\nnode = "a"\ndestination = "b"\n', "[[route]] 1 has no via; add it"),
        (
            GOOD + '[[route]]\nnode = "a"\ndestination = "b"\nvia = "a"\n',
            "invalid value 'a' for route 'b' via; expected the name of",
        ),
        (GOOD.replace('"publish"', '"shout"'), "invalid value 'shout' for [[workload]] 1 kind; expected one of "),
        (
            GOOD.replace("messages = 3", 'messages = "3"'),
            "invalid value '3' for [[workload]] 1 messages; expected a whole",
        ),
        (
            GOOD.replace("messages = 3", "message = 3"),
            "unknown key 'message' in [[workload]] 1; expected one of kind, ",
        ),
        (
            GOOD.replace('address = "q@b"', 'address = "q@z"'),
            "invalid value 'z' for [[workload]] 1 address; expected a node",
        ),
        (GOOD.replace('address = "q@b"', ""), "[[workload]] 1 has no address; add it"),
        (
            GOOD.replace('queue = "q"', 'queue = "q"\nnode = 3').replace('node = "b"\nqueue', "queue"),
            "invalid value 3 for",
        ),
        (
            GOOD + '[[fault]]\nkind = "flood"\n',
            "invalid value 'flood' for [[fault]] 1 kind; expected one of crash, power",
        ),
        (GOOD + '[[fault]]\nkind = "crash"\n', "[[fault]] 1: crash needs a node"),
        (GOOD + FAULT.replace('"b"', '"z"'), "invalid value 'z' for [[fault]] 1 node; expected a node (a, b)"),
        (GOOD + FAULT + "at = 31\n", "invalid value 31 for [[fault]] 1 at; expected 0 to safety_s (30)"),
        (GOOD + FAULT + "at = 'x'\n", "invalid value 'x' for [[fault]] 1 at; expected a number"),
        (GOOD + FAULT + "seconds = -1\n", "invalid value -1 for [[fault]] 1 seconds; expected seconds, 0 to 86400"),
        (GOOD + FAULT + "amount = 2\n", "invalid value 2 for [[fault]] 1 amount; expected none for crash"),
        (
            GOOD + FAULT + 'link = ["a", "b"]\n',
            "invalid value ['a', 'b'] for [[fault]] 1 link; expected a node for crash",
        ),
        (GOOD + FAULT + "times = 3\n", "[[fault]] 1 has 'times' alone; give every_s and times together"),
        (
            GOOD + FAULT + "every_s = 20\ntimes = 3\n",
            "invalid value 40 for [[fault]] 1 at; expected 0 to safety_s (30)",
        ),
        (GOOD + FAULT + "wher = 3\n", "unknown key 'wher' in [[fault]] 1; expected one of "),
        (
            GOOD + '[[fault]]\nkind = "cut"\nlink = ["a"]\n',
            "invalid value ['a'] for [[fault]] 1 link; expected two names",
        ),
        (
            GOOD + '[[fault]]\nkind = "cut"\nlink = ["a", "z"]\n',
            "invalid value 'a-z' for [[fault]] 1 link; expected a link (a-b)",
        ),
        (GOOD + '[[fault]]\nkind = "cut"\nlink = ["a", "b"]\nseconds = 1\n', "expected none for cut, which is over"),
        (
            GOOD + FAULT.replace("crash", "slow-disk"),
            "invalid value None for [[fault]] 1 amount; expected a factor, 1 to",
        ),
        (GOOD + FAULT + 'lie = "marks"\n', "invalid value 'marks' for [[fault]] 1 lie; expected none for crash"),
        (GOOD + '[draw]\nkinds = ["flood"]\n', "invalid value 'flood' for [draw] kinds; expected any of crash, power"),
        (
            GOOD + '[draw]\nkinds = ["cut", "remove-link"]\n',
            "invalid value 'remove-link' for [draw] kinds; expected any of",
        ),
        (GOOD + "[draw]\nfaults_max = 3\n", "[draw] has no kinds; add it"),
        (GOOD + "[run]\nsafety_s = -1\n", "invalid value -1 for [run] safety_s; expected seconds, 0 to 86400"),
        (GOOD + "[run]\nlive_s = 1\n", "unknown key 'live_s' in [run]; expected one of safety_s, liveness_s, turn_s"),
        (GOOD + "[clocks]\nz = 0.1\n", "unknown key 'z' in [clocks]; expected one of a, b"),
        (GOOD + "[limits]\ncredit = 'x'\n", "invalid value 'x' for [limits] credit; expected a whole number"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_file.parse(text, "f.toml")
    line = str(caught.value)
    assert line.startswith("f.toml: ") and said in line and "\n" not in line


@given(st.sampled_from(GOOD.splitlines()), st.text(max_size=12))
def test_no_text_breaks_the_reader(line: str, other: str) -> None:
    try:
        scenario_file.parse(GOOD.replace(line, other, 1), "f.toml")
    except ConfigError as error:
        assert str(error).startswith("f.toml: ")


def test_the_scenarios_that_come_along() -> None:
    found = dict(scenario_file.names())
    assert len(found) >= 12
    for name, sentence in found.items():
        assert re.fullmatch(r"[a-z0-9-]+", name) and sentence.endswith(".") and len(sentence) < 160
        plan = scenario_file.load(name, 5)
        assert plan.name == name and from_json(plan.to_json()) == plan == scenario_file.load(name, 5)


def drawn_network(**told: object) -> str:
    _, _, rest = GOOD.partition("[[queue]]")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items())
    rest = rest.replace('"a"', '"n000"').replace('"b"', '"n001"').replace("q@b", "q@n001")
    return f"[topology]\nrouting = true\n[network]\n{lines}\n[[queue]]{rest}"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [4, 9, 40])
def test_a_network_is_drawn_from_the_seed(shape: str, nodes: int) -> None:
    """All in one piece, no two nodes joined twice, the first two always."""
    text = drawn_network(nodes=nodes, shape=shape, delay_s=0.25)
    topology = scenario_file.parse(text, "drawn", 1).topology
    pairs = [(link.one, link.other) for link in topology.links]
    assert len(topology.nodes) == nodes and topology.links[0].there == LinkShape(delay_s=0.25)
    assert len(set(pairs)) == len(pairs) and all(one < other for one, other in pairs) and ("n000", "n001") in pairs
    assert len(parts(topology.nodes, pairs)) == 1
    assert topology == scenario_file.parse(text, "drawn", 1).topology
    assert shape == "grid" or nodes < 9 or topology != scenario_file.parse(text, "drawn", 2).topology


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"nodes": 3, "shape": "ring"}, "invalid value 3 for [network] nodes; expected a number of nodes, 4 to 300"),
        (
            {"nodes": 301, "shape": "ring"},
            "invalid value 301 for [network] nodes; expected a number of nodes, 4 to 300",
        ),
        ({"nodes": 9, "shape": "star"}, "invalid value 'star' for [network] shape; expected one of ring, grid"),
        ({"nodes": 9}, "[network] has no shape; add it"),
    ],
)
def test_a_network_that_cannot_be_drawn(told: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        scenario_file.parse(drawn_network(**told), "drawn")


def test_a_network_is_drawn_or_written() -> None:
    drawn = '[network]\nnodes = 9\nshape = "ring"\n'
    with pytest.raises(ConfigError, match=re.escape("[topology] nodes and [network] exclude each other")):
        scenario_file.parse(GOOD + drawn, "both")
    link = '[[link]]\none = "n000"\nother = "n001"\n'
    with pytest.raises(ConfigError, match=re.escape("[[link]] and [network] exclude each other")):
        scenario_file.parse(drawn_network(nodes=9, shape="ring") + link, "both")


def test_only_draw_looks_at_the_seed() -> None:
    assert scenario_file.load("drawn-faults", 1) != scenario_file.load("drawn-faults", 2)
    assert scenario_file.load("line-cut", 1) == scenario_file.load("line-cut", 2)


def test_names_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert scenario_file.load(str(path)).topology.nodes == ("a", "b")
    for name, said in (
        ("no-such", "invalid scenario 'no-such'; expected a path or one of "),
        (str(tmp_path / "none.toml"), "none.toml cannot be read (No such file"),
        (f"{tmp_path}/", "Is a directory"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            scenario_file.load(name)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"is not in UTF-8"):
        scenario_file.load(str(path))


def test_a_plan_file_is_exact(tmp_path: Path) -> None:
    plan = scenario_file.load("ring-re-route")
    path = tmp_path / "plan.json"
    path.write_text(scenario_file.plan_file_text(plan, 9))
    assert scenario_file.read_plan_file(path) == scenario_file.PlanFile(plan, 9)
    path.write_text(plan.to_json())
    assert scenario_file.read_plan_file(path) == scenario_file.PlanFile(plan, None)
    path.write_text(json.dumps({"seed": 9, "depth": "frames", "plan": json.loads(plan.to_json())}))  # as once written
    assert scenario_file.read_plan_file(path) == scenario_file.PlanFile(plan, 9)


@pytest.mark.parametrize("seed", [6, *today.some(range(7, 400), 8)])  # 6 sends to a remote
def test_a_plan_that_the_swarm_draws_is_read_back(seed: int, tmp_path: Path) -> None:
    plan = draw_plan(seed)
    path = tmp_path / "plan.json"
    path.write_text(scenario_file.plan_file_text(plan, seed))
    assert scenario_file.read_plan_file(path) == scenario_file.PlanFile(plan, seed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "invalid list; expected a plan"),
        ("{}", "invalid plan"),
        ('{"seed": "x", "plan": {}}', "invalid value 'x' for seed"),
    ],
)
def test_a_file_that_is_no_plan(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        scenario_file.read_plan_file(path)


def test_a_plan_whose_fault_strikes_nothing_is_refused(tmp_path: Path) -> None:
    plan = scenario_file.load("line-cut").shrunk(faults=(Fault(kind="crash", at=1.0, node="nowhere"),))
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    with pytest.raises(ConfigError, match=r"invalid value 'nowhere' for fault 1 node"):
        scenario_file.read_plan_file(path)


def test_the_manuals_example_is_a_scenario() -> None:
    example, _ = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)  # the other shows `network` alone
    plan = scenario_file.parse(example, "manual", 3)
    assert {fault.at for fault in plan.faults if fault.kind == "crash"} == {5.0, 25.0, 45.0}
    told = set(scenario_file._TOP) - {"shows", "network"}  # the last stands for others of them
    assert set(re.findall(r"^\[+(\w+)\]+", example, re.MULTILINE)) == told


def test_the_manual_names_every_kind_and_key() -> None:
    keys = {key for kind in WORKLOADS.values() for key in scenario_file._checks_of(kind)[0]}
    for tables in (
        scenario_file._TOP,
        scenario_file._TOPOLOGY,
        scenario_file._LINK,
        scenario_file._RUN,
        scenario_file._DRAW,
        scenario_file._REPEAT,
    ):
        keys |= set(tables)
    for word in (*KINDS, *WORKLOADS, *sorted(keys), "destination", "via", "lie", "amount"):
        assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", MANUAL), f"docs/simulator.md does not name {word}"
