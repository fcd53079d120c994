"""A node's own file beside its topology: what is derived, what must agree; `holdfast topology`."""

import json
from pathlib import Path

import pytest

from holdfast import cli
from holdfast.errors import ConfigError
from holdfast.node.config import load_settings
from holdfast.settings.neighbours import NeighbourConfig

TOPOLOGY = """
[[node]]
name = "hub"
address = "10.0.0.1:5672"
roles = ["client", "super"]
[[node]]
name = "ewr"
address = "10.0.0.2:5672"
[[node]]
name = "jfk"
[[node]]
name = "ord"
address = "[::1]:5672"
roles = ["root"]

[[link]]
from = "ewr"
to = "hub"
[[link]]
from = "hub"
to = "ord"
direction = "one"
[[link]]
from = "jfk"
to = "hub"
kind = "serial"
[[link]]
from = "ewr"
to = "ord"
direction = "one"
cost = 3
[[link]]
from = "ord"
to = "ewr"
direction = "one"
cost = 4
"""


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "topology.toml"
    path.write_text(TOPOLOGY)
    return path


def write(tmp_path: Path, topology: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(f"{text}\n[topology]\nfile = {json.dumps(str(topology))}\n")
    return path


def neighbours(tmp_path: Path, topology: Path, text: str) -> tuple[NeighbourConfig, ...]:
    return load_settings(write(tmp_path, topology, text)).core.neighbours


@pytest.mark.parametrize(
    ("added", "own"),
    [
        ('[[node]]\nname = "lax"\n[[link]]\nfrom = "lax"\nto = "hub"\n', ""),
        ('[[node]]\nname = "lax"\naddress = "h:1"\n[[link]]\nfrom = "hub"\nto = "lax"\n', ""),
        ('[[node]]\nname = "lax"\n[[link]]\nfrom = "hub"\nto = "lax"\n', '[[neighbour]]\nname = "lax"\n'),
    ],
)
def test_a_new_node_joins_by_the_topology_that_its_neighbours_read(
    tmp_path: Path, topology: Path, added: str, own: str
) -> None:
    """docs/routing.md, "A new node": a [[neighbour]] beside the older file would end its neighbour."""
    text = '[node]\nname = "hub"'
    with pytest.raises(ConfigError, match="has no link to 'hub' in"):
        neighbours(tmp_path, topology, f'{text}\n[[neighbour]]\nname = "lax"')
    topology.write_text(TOPOLOGY + added)
    assert "lax" in [neighbour.name for neighbour in neighbours(tmp_path, topology, f"{text}\n{own}")]


def test_neighbours_are_derived_where_an_address_is_given(tmp_path: Path, topology: Path) -> None:
    assert neighbours(tmp_path, topology, '[node]\nname = "ewr"') == (
        NeighbourConfig(name="hub", remote="10.0.0.1:5672"),
        NeighbourConfig(name="ord", remote="[::1]:5672"),  # of two links the first says who dials
    )
    assert neighbours(tmp_path, topology, '[node]\nname = "ord"') == (
        NeighbourConfig(name="hub"),
        NeighbourConfig(name="ewr"),
    )
    assert neighbours(tmp_path, topology, '[node]\nname = "hub"') == (
        NeighbourConfig(name="ewr"),
        NeighbourConfig(name="ord", remote="[::1]:5672"),
        NeighbourConfig(name="jfk"),
    )


def test_without_an_address_there_is_nobody_to_dial(tmp_path: Path, topology: Path) -> None:
    topology.write_text(topology.read_text().replace('address = "10.0.0.1:5672"\n', ""))
    assert neighbours(tmp_path, topology, '[node]\nname = "jfk"') == ()
    assert [item.name for item in neighbours(tmp_path, topology, '[node]\nname = "hub"')] == ["ord"]


def test_a_listed_neighbour_wins_and_routes_may_name_a_derived_one(tmp_path: Path, topology: Path) -> None:
    text = '[[neighbour]]\nname = "hub"\nremote = "127.0.0.1:1"\n[[route]]\ndestination = "jfk"\nvia = "ord"'
    settings = load_settings(write(tmp_path, topology, text), name="ewr")
    assert settings.core.neighbours == (
        NeighbourConfig(name="hub", remote="127.0.0.1:1"),
        NeighbourConfig(name="ord", remote="[::1]:5672"),
    )
    assert settings.core.topology is not None and len(settings.core.topology.links) == 5


@pytest.mark.parametrize(
    ("name", "given", "roles"),
    [
        ("hub", None, ("client", "super")),
        ("hub", '["super", "client"]', ("super", "client")),
        ("ewr", None, ("client",)),
        ("ewr", '["client", "root"]', ("client", "root")),
        ("ord", None, ("root",)),
    ],
)
def test_roles_are_the_topology_s_or_agree(
    tmp_path: Path, topology: Path, name: str, given: str | None, roles: tuple[str, ...]
) -> None:
    text = f'[node]\nname = "{name}"\n' + ("" if given is None else f"roles = {given}\n")
    assert load_settings(write(tmp_path, topology, text)).core.roles == roles


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[node]\nname = "lga"', "invalid value 'lga' for node name; expected the name of a [[node]] in "),
        ('[node]\nname = "hub"\nroles = ["client"]', "invalid value client for node roles; expected what "),
        ('[node]\nname = "hub"\nroles = []', "invalid value none for node roles; expected what "),
        ('[node]\nname = "ewr"\nroles = ["super"]', "node roles has super, but node 'ewr' in "),
        (
            '[node]\nname = "jfk"\n[[neighbour]]\nname = "ewr"',
            "neighbour 'ewr' has no link to 'jfk' in ",
        ),
        ('[node]\nname = "jfk"\n[[neighbour]]\nname = "jfk"', "neighbour 'jfk' has no link to 'jfk' in "),
    ],
)
def test_what_contradicts_the_topology_is_refused(tmp_path: Path, topology: Path, text: str, said: str) -> None:
    path = write(tmp_path, topology, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: {said}") and str(topology) in line and "\n" not in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "the file cannot be read (No such file or directory); give a TOML file"),
        ("[[node]", "the file is not TOML: "),
        ("[[node]]\nnumber = " + "9" * 5_000, "the file is not TOML: "),
        ("a = " + "[" * 5_000, "the file is not TOML: "),
        ("[[node]]\nnumber = 1", "node number 1 has no name; expected"),
    ],
)
def test_a_topology_file_that_is_none_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    topology = tmp_path / "topology.toml"
    if content is not None:
        topology.write_text(content)
    path = write(tmp_path, topology, '[node]\nname = "a"')
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(f"{path}: {topology}: {said}") and "\n" not in str(caught.value)


def test_the_file_of_a_topology_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[topology]\n")
    with pytest.raises(ConfigError, match="topology has no file; expected text in quotes"):
        load_settings(path)


# ---------------------------------------------------------------------------------------- holdfast topology


def test_check_says_what_is_there(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "check", str(topology)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{topology}: 4 nodes, 5 links, super nodes hub\n" and not captured.err
    assert cli.main(["topology", "check", str(topology), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"nodes": 4, "links": 5, "super_nodes": ["hub"], "warnings": []}


def test_check_warns_and_still_is_done(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topology.write_text('[[node]]\nname = "a"\n[[node]]\nname = "b"\n')
    assert cli.main(["topology", "check", str(topology)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{topology}: 2 nodes, 0 links, no super node\n"
    warned = captured.err.splitlines()
    said = f"holdfast topology check: {topology}: warning: "
    assert len(warned) == 3 and all(line.startswith(said) for line in warned)
    assert cli.main(["topology", "check", str(topology), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 3


def test_routes_prints_the_table(topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "routes", str(topology), "--from", "jfk", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"destination": "ewr", "next_hop": "hub", "cost": 73.193031, "path": ["jfk", "hub", "ewr"]},
        {"destination": "hub", "next_hop": "hub", "cost": 72.111111, "path": ["jfk", "hub"]},
        {"destination": "ord", "next_hop": "hub", "cost": 73.193031, "path": ["jfk", "hub", "ord"]},
    ]
    assert cli.main(["topology", "routes", str(topology), "--from", "ord"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "destination  next_hop  cost       path",
        "ewr          ewr       4          ord ewr",
        "hub          ewr       5.08192    ord ewr hub",
        "jfk          ewr       77.193031  ord ewr hub jfk",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "FILE.none"], "FILE.none: the file cannot be read (No such file or directory)"),
        (["routes", "FILE.none", "--from", "a"], "FILE.none: the file cannot be read"),
        (
            ["routes", "FILE", "--from", "lga"],
            "invalid value 'lga' for --from; expected the name of a [[node]] in FILE",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    topology: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("FILE", str(topology)) for word in arguments]
    assert cli.main(["topology", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"holdfast topology {arguments[0]}: " + said.replace("FILE", str(topology)))
    assert len(captured.err.splitlines()) == 1 and not captured.out
