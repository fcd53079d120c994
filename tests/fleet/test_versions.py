"""Configurations of all sites: made, checked, kept, taken back."""

import tomllib
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import versions
from holdfast.fleet.directory import create
from holdfast.fleet.rendering import config_text
from holdfast.fleet.toml_text import document_text
from holdfast.fleet.versions import push, roll_back
from holdfast.names import HostPort
from support.fleets import TWO, Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def document(fleet: Fleet, version: int, number: int) -> dict[str, object]:
    return tomllib.loads((fleet.directory.version_files(version) / f"node-{number}.toml").read_text())


def test_a_push_without_changes_makes_no_version(fleet: Fleet) -> None:
    assert push(fleet.directory) == (1, [], [], [], [])
    assert versions.versions(fleet.directory) == [1]


def test_what_is_for_all_and_what_is_for_one_are_put_together(fleet: Fleet) -> None:
    (fleet.directory.sites / "common.toml").write_text(
        '[node]\nplain_without_tls = true\n[log]\nlevel = "debug"\n'
        '[[queue]]\nname = "a"\nmessages_max = 5\n[[queue]]\nname = "b"\n'
        '[[user]]\nname = "ann"\npassword_file = "ann.password"\n'
    )
    (fleet.directory.sites / "hub.toml").write_text(
        '[node]\nlisten = ["amqps://0.0.0.0:5671"]\n[log]\nformat = "json"\n[[queue]]\nname = "a"\n'
    )
    assert push(fleet.directory).changed == ["hub", "ewr"]
    hub, ewr = document(fleet, 2, 1), document(fleet, 2, 2)
    assert hub["node"] == {
        "name": "hub", "data": "store", "listen": ["amqps://0.0.0.0:5671"], "plain_without_tls": True,
    }  # fmt: skip
    assert hub["log"] == {"level": "debug", "format": "json"} and ewr["log"] == {"level": "debug"}
    assert hub["queue"] == [{"name": "b"}, {"name": "a"}]
    assert hub["user"] == [{"name": "ann", "password_file": "ann.password"}, {"name": "ewr", "certificate": "ewr"}]
    assert "user" not in document(fleet, 1, 2), "nobody dials ewr"


@pytest.mark.parametrize(
    ("address", "listen", "is_left_out"),
    [
        ("10.0.0.1:5671", ["127.0.0.1:5672"], True),
        ("10.0.0.1:5671", ["amqps://127.0.0.1:5671"], True),
        ("10.0.0.1:5671", ["amqps://localhost:5671"], True),
        ("10.0.0.1:5671", ["amqps://0.0.0.0:5672"], True),
        ("10.0.0.1:5671", ["0.0.0.0:5671"], True),
        ("10.0.0.1:5671", ["127.0.0.1:5672", "amqps://10.0.0.1:5671"], False),
        ("10.0.0.1:5671", ["amqps://0.0.0.0:5671"], False),
        ("hub.example:5671", ["amqps://192.168.0.2:5671"], False),
        ("127.0.0.1:5671", ["amqps://localhost:5671"], False),
        ("localhost:5671", ["127.0.0.1:5672"], True),
    ],
)
def test_a_site_that_listens_where_nobody_dials_it_is_a_warning(
    fleet: Fleet, address: str, listen: list[str], is_left_out: bool
) -> None:
    fleet.directory.topology_file.write_text(TWO.replace("10.0.0.1:5671", address))
    file = fleet.directory.sites / "hub.toml"
    file.write_text(f"[node]\nlisten = {listen}\n")
    for _ in range(2):  # also when nothing has changed
        warnings = push(fleet.directory).warnings
        what = f"node listen has no entry for amqps://{address}, the address that its neighbours dial"
        told = f"node 'hub' ({file}): {what}; add it, unless a router forwards to another port"
        assert warnings == ([told] if is_left_out else [])


def test_a_neighbour_that_logs_in_otherwise_is_given_no_user(fleet: Fleet) -> None:
    (fleet.directory.sites / "hub.toml").write_text(
        '[[user]]\nname = "old"\npassword_file = "p"\n[[neighbour]]\nname = "ewr"\nuser = "old"\n'
    )
    push(fleet.directory)
    assert document(fleet, 2, 1)["user"] == [{"name": "old", "password_file": "p"}]


def test_a_node_that_nobody_dials_yet_lets_nobody_else_in(fleet: Fleet) -> None:
    """The first node of a network. Without any user it would not start with an address of its own."""
    fleet.directory.topology_file.write_text(TWO.partition("[[link]]")[0])
    push(fleet.directory)
    assert document(fleet, 2, 1)["user"] == [{"name": "hub", "certificate": "hub"}]
    assert "user" not in document(fleet, 2, 2), "ewr listens on its own machine alone"
    (fleet.directory.sites / "hub.toml").write_text('[node]\nusers_file = "users.json"\n')
    push(fleet.directory)
    assert "user" not in document(fleet, 3, 1)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ewr", "[node", r"ewr\.toml: the file is not TOML"),
        ("ewr", "[nodes]\n", r"ewr\.toml: .*nodes"),
        ("ewr", '[node]\nname = "jfk"\n', r"ewr\.toml: node name is the fleet's to write; remove it"),
        ("ewr", '[tls]\nca_file = "x"\n', r"ewr\.toml: tls ca_file is the fleet's to write; remove it"),
        ("common", '[topology]\nfile = "x"\n', r"common\.toml: topology file is the fleet's to write; remove it"),
        ("ewr", '[node]\nlisten = ["0.0.0.0:1"]\n', r"node 'ewr' \(.*ewr\.toml\): node listen has .* without a"),
        ("common", '[[queue]]\nname = "a"\norder = "x"\n', r"node 'hub' \(.*common\.toml\): invalid value 'x'"),
        ("ewr", '[[neighbour]]\nname = "jfk"\n', r"'jfk' has no link to 'ewr'"),
        ("jfk", "", r"jfk\.toml is for no node of .*topology\.toml; remove it, or correct its name"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_changes_nothing(fleet: Fleet, name: str, text: str, said: str) -> None:
    (fleet.directory.sites / f"{name}.toml").write_text(text)
    with pytest.raises(ConfigError, match=said) as found:
        push(fleet.directory)
    assert "\n" not in str(found.value) and "/holdfast-fleet-" not in str(found.value)
    assert versions.versions(fleet.directory) == [1] and fleet.directory.register().version == 1


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ("[[node]]\n", "name"),
        (TWO.replace('to = "hub"', 'to = "jfk"'), "expected the name of a"),
        (TWO.replace("amqps://", ""), r"node 'hub' has address 10.0.0.1:5671 without TLS; write amqps://10.0.0.1:5671"),
        (TWO.replace('"ewr"', f'"{"x" * 65}"'), "has a name that no certificate can have; expected at most 64 bytes"),
        (TWO.replace('"ewr"', f'"{"ü" * 33}"'), "has a name that no certificate can have; expected at most 64 bytes"),
        (TWO.replace('"ewr"', '"holdfast-fleet"'), "has the name of the fleet's service; give it another"),
    ],
)
def test_a_topology_that_is_refused_is_refused_by_init_and_push(
    fleet: Fleet, tmp_path: Path, topology: str, said: str
) -> None:
    fleet.directory.topology_file.write_text(topology)
    with pytest.raises(ConfigError, match=said):
        push(fleet.directory)
    with pytest.raises(ConfigError, match=said):
        create(tmp_path / "new", fleet.directory.topology_file, HostPort("h", 1), None)
    assert not (tmp_path / "new").exists() and versions.versions(fleet.directory) == [1]


def test_going_back_makes_a_new_version_of_the_old_content(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    before = document(fleet, 1, 2)
    (fleet.directory.sites / "ewr.toml").write_text('[[queue]]\nname = "wrong"\n')
    push(fleet.directory)
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    assert roll_back(fleet.directory, None) == (3, ["ewr"], [], [], [])
    assert document(fleet, 3, 2) == before
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    assert site.known().version == 3 and "wrong" not in site.config_file.read_text()
    assert roll_back(fleet.directory, 2) == (4, ["ewr"], [], [], [])
    for version in (0, 9):
        with pytest.raises(HoldfastError, match=f"no version {version} .*; kept are: 1, 2, 3, 4$"):
            roll_back(fleet.directory, version)


def test_a_node_joins_and_leaves(fleet: Fleet) -> None:
    fleet.directory.topology_file.write_text(
        TWO + '[[node]]\nname = "jfk"\n[[link]]\nfrom = "jfk"\nto = "hub"\nkind = "tls"\n'
    )
    pushed = push(fleet.directory)
    assert (pushed.joined, pushed.left) == (["jfk"], []) and set(pushed.changed) == {"hub", "ewr", "jfk"}
    assert "provision" in fleet.enrol("jfk", fleet.token("jfk"))
    fleet.directory.topology_file.write_text(TWO)
    assert push(fleet.directory).left == ["jfk"]


@pytest.mark.parametrize("name", ["x" * 64, "ü" * 32, "d/🛰", 'quote " and \\ back', "common"])
def test_any_name_that_a_certificate_can_have_is_one_of_a_site(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path, TWO.replace('"ewr"', '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'))
    secret = fleet.token(name)
    request = fleet.site("any").request()
    answer = fleet.ask({"do": "enrol", "node": name, "secret": secret, "request": request})
    site = fleet.site("any")
    assert site.install(answer["provision"], fleet.fingerprint, fleet.now_s).node == name
    assert tomllib.loads(site.config_file.read_text())["node"]["name"] == name


@pytest.mark.parametrize("name", ["a\\nb", "a\nb", "a\x00b", "a\u2028b", "é", "a'b"])
def test_the_head_of_a_configuration_is_one_line_whatever_the_name_has(name: str) -> None:
    text = config_text({"node": {"name": name}}, name, 7)
    assert tomllib.loads(text) == {"node": {"name": name}}
    assert text.splitlines()[0].startswith("# Node ") and text.splitlines()[0].endswith("takes its place.")
    assert text.splitlines()[1:3] == ["", "[node]"]


def test_old_versions_are_removed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 2)
    for number in range(3):
        (fleet.directory.sites / "ewr.toml").write_text(f'[[queue]]\nname = "q{number}"\n')
        push(fleet.directory)
    assert versions.versions(fleet.directory) == [3, 4]


def test_toml_is_read_as_it_was_written() -> None:
    text = 'quote " back \\ tab \t line \n bell \x07 del \x7f ü 🛰'
    deep = {"name": "x", "deep": {"k.1": [1, 2.5, "y"], "empty": {}}, "rows": [{"a": 1}, {"b": []}]}
    given = {"a b": {"text": text, "no": False, "number": -7, "part": 1.5e300}, "list": [deep, {"name": ""}]}
    assert tomllib.loads(document_text(given)) == given
