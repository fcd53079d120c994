"""`holdfast fleet` as an operator types it: answers, and mistakes in a line."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.client.verbs.running import Progress
from holdfast.fleet import commands
from holdfast.fleet.authority import read_request
from holdfast.fleet.directory import FleetDirectory
from holdfast.fleet.register import DAY_S
from holdfast.fleet.site import SiteDirectory
from holdfast.fleet.tokens import fits, parse_token
from holdfast.lines import CLEAR_LINE
from support.fleets import TWO, Fleet


class Run:
    """`holdfast fleet …`, and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        assert cli.main(["fleet", *map(str, words)]) == code, self._capsys.readouterr().err
        said = self._capsys.readouterr()
        self.error = said.err
        if code:
            assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith(f"holdfast fleet {words[0]}: ")
        return said.out

    def json(self, *words: object) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    file = tmp_path / "topology.toml"
    file.write_text(TWO)
    return file


def test_a_fleet_is_private_and_made_once(run: Run, tmp_path: Path, topology: Path) -> None:
    place = tmp_path / "fleet"
    words = ("init", place, "--topology", topology, "--service", "fleet.example:5670")
    told = run(*words)
    assert len(told.rpartition(": ")[2].strip()) == 64
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for name in ("ca.key", "fleet.json"):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o600
    run(*words, code=2)
    assert "is not empty; give a new directory" in run.error
    run("init", tmp_path / "x", "--topology", tmp_path / "none.toml", "--service", "fleet.example:5670", code=2)
    assert "none.toml: the file cannot be read" in run.error
    run("init", tmp_path / "x", "--topology", topology, "--service", "fleet.example", code=2)
    assert "for --service; expected HOST:PORT" in run.error


def test_the_key_may_have_a_passphrase(run: Run, tmp_path: Path, topology: Path) -> None:
    passphrase, place = tmp_path / "passphrase", tmp_path / "fleet"
    passphrase.write_text("short\n")
    words = ("init", place, "--topology", topology, "--service", "f:1", "--passphrase-file", passphrase)
    run(*words, code=2)
    assert "the passphrase is too short; expected at least 8 characters" in run.error and not place.exists()
    passphrase.write_text("long enough for this\n")
    run(*words)
    assert b"ENCRYPTED" in (place / "ca.key").read_bytes()
    request, out = tmp_path / "csr", tmp_path / "provision"
    run("request", "--site", tmp_path / "ewr", "--out", request)
    sign = ("sign", "ewr", request, "--dir", place, "--out", out)
    run(*sign, code=2)
    assert "has a passphrase; give --passphrase-file FILE" in run.error
    wrong = tmp_path / "wrong"
    wrong.write_text("something else\n")
    run(*sign, "--passphrase-file", wrong, code=2)
    assert "the passphrase is wrong; give the one of `holdfast fleet init`" in run.error
    run(*sign, "--passphrase-file", passphrase)
    assert out.exists()
    plain = Fleet(tmp_path / "plain").directory.path
    run("sign", "ewr", "--dir", plain, "--out", out, "--passphrase-file", passphrase, code=2)
    assert "has no passphrase; give none" in run.error


def test_a_token_is_printed_once_and_kept_as_a_hash(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, service="fleet.example:5670")
    text = run("token", "ewr", "--dir", fleet.directory.path)
    token = parse_token(text)
    assert (token.node, str(token.service), token.fingerprint) == ("ewr", "fleet.example:5670", fleet.fingerprint)
    assert "for node ewr, once, until" in run.error and token.secret not in run.error
    kept = fleet.directory.register().sites["ewr"].token
    assert kept is not None and fits(token.secret, kept.secret_hash)
    assert token.secret not in fleet.directory.register_file.read_text()
    assert abs(kept.ends_s - fleet.now_s - DAY_S) < 60
    told = run.json("token", "ewr", "--dir", fleet.directory.path, "--hours", 2, "--out", tmp_path / "token")
    assert set(told) == {"node", "ends", "file"}
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    run("token", "jfk", "--dir", fleet.directory.path, code=1)
    assert "node 'jfk' is in no topology of this fleet" in run.error
    run("token", "ewr", "--dir", tmp_path, code=2)
    assert "is no fleet's directory; make one with `holdfast fleet init`" in run.error


def test_a_token_that_cannot_be_written_leaves_the_one_of_before_good(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    first = parse_token(run("token", "ewr", "--dir", fleet.directory.path))
    run("token", "ewr", "--dir", fleet.directory.path, "--out", tmp_path / "none" / "token", code=1)
    assert "No such file or directory" in run.error
    kept = fleet.directory.register().sites["ewr"].token
    assert kept is not None and fits(first.secret, kept.secret_hash)
    given = tmp_path / "token"
    run("token", "ewr", "--dir", fleet.directory.path, "--out", given)
    kept = fleet.directory.register().sites["ewr"].token
    assert kept is not None and fits(parse_token(given.read_text()).secret, kept.secret_hash)


def test_the_list_says_how_it_stands_with_each_site(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    words = ("list", "--dir", fleet.directory.path)

    def states() -> dict[str, str]:
        return {row["node"]: row["certificate"] for row in run.json(*words)["sites"]}

    assert states() == {"ewr": "none", "hub": "none"}
    fleet.token("ewr")
    assert states()["ewr"] == "token given"
    fleet.enrolled("ewr")
    fleet.signed("ewr", "sync", software="0.1.0", problem="no\nroom")
    assert states()["ewr"] == "good"
    assert "version 1 of the configuration holds" in run(*words) and "no\\nroom" in run(*words)
    with fleet.directory.changing() as register:
        register.sites["ewr"].certificates[0].ends_s = 5
    assert states()["ewr"] == "ended"
    assert run.json("revoke", "ewr", "--dir", fleet.directory.path)["crl_number"] == 2
    assert states()["ewr"] == "revoked"
    run("revoke", "jfk", "--dir", fleet.directory.path, code=1)
    assert "there is no site 'jfk' in this fleet" in run.error


def test_the_list_tells_of_a_site_that_left_and_may_still_connect(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.enrolled("ewr")
    at = ("--dir", fleet.directory.path)
    fleet.directory.topology_file.write_text(TWO.partition('[[node]]\nname = "ewr"')[0])
    run("push", *at)

    def problems() -> dict[str, str]:
        return {row["node"]: row["problem"] for row in run.json("list", *at)["sites"]}

    left = "the topology does not have it any more"
    assert problems() == {"ewr": f"{left}; `holdfast fleet revoke ewr`", "hub": None}
    run("revoke", "ewr", *at)
    assert problems()["ewr"] == left


def test_versions_are_pushed_listed_and_taken_back(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    at = ("--dir", fleet.directory.path)
    assert run("push", *at) == "nothing has changed: version 1 holds\n"
    (fleet.directory.sites / "ewr.toml").write_text('[[queue]]\nname = "flights"\n')
    assert run("push", *at) == "version 2 holds; changed: ewr\n"
    fleet.directory.topology_file.write_text(TWO.partition("[[link]]")[0] + '[[node]]\nname = "jfk"\n')
    assert run("push", *at).splitlines()[1] == "new: jfk"
    fleet.directory.topology_file.write_text(TWO)
    assert run("push", *at).splitlines()[1] == "no longer in the topology: jfk"
    assert run("rollback", *at, "--to", 1).startswith("version 5 holds; changed: ewr")
    assert [row["version"] for row in run.json("versions", *at) if row["holds"]] == [5]
    assert run("versions", *at).splitlines()[-1].endswith("holds")
    (fleet.directory.sites / "hub.toml").write_text('[node]\nlisten = ["127.0.0.1:5672"]\n')
    assert run.json("push", *at)["warnings"] == [run.error.partition("warning: ")[2].strip()]
    assert run.error.startswith("holdfast fleet push: warning: node 'hub' (") and run.error.count("\n") == 1
    run("rollback", *at, "--to", 77, code=1)
    assert "kept are: 1, 2, 3, 4, 5, 6" in run.error


def test_a_push_that_waits_names_who_is_late(run: Run, tmp_path: Path) -> None:
    """A site that was never enrolled is not waited for."""
    fleet = Fleet(tmp_path)
    fleet.enrolled("ewr")
    (fleet.directory.sites / "common.toml").write_text('[[queue]]\nname = "flights"\n')
    assert cli.main(["fleet", "push", "--dir", str(fleet.directory.path), "--wait", "0.1"]) == 1
    site = fleet.site("ewr")
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    fleet.signed("ewr", "sync")
    run("push", "--dir", fleet.directory.path, "--wait", 5)


def test_a_push_that_waits_shows_for_whom_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shown(Progress):
        def __init__(self) -> None:
            super().__init__()
            self.is_shown = True

    fleet = Fleet(tmp_path)
    fleet.enrolled("ewr")
    (fleet.directory.sites / "common.toml").write_text('[[queue]]\nname = "flights"\n')
    monkeypatch.setattr(commands, "Progress", Shown)
    assert cli.main(["fleet", "push", "--dir", str(fleet.directory.path), "--wait", "0.1"]) == 1
    shown, _, complaint = capsys.readouterr().err.rpartition(CLEAR_LINE)
    assert shown == f"{CLEAR_LINE}waiting for 1 site: ewr" and "is not installed at ewr" in complaint


def test_a_directory_of_another_node_is_not_enrolled(run: Run, tmp_path: Path) -> None:
    """Before the token is used: it would be good for the key of that directory alone."""
    fleet = Fleet(tmp_path)
    fleet.enrolled("ewr")
    token = tmp_path / "hub.token"
    run("token", "hub", "--dir", fleet.directory.path, "--out", token)
    run("enrol", token, "--site", fleet.site("ewr").path, code=2)
    assert "is node 'ewr', and the token is for 'hub'" in run.error
    run("enrol", tmp_path / "none", "--site", tmp_path / "hub", code=2)
    assert "none: the token cannot be read (No such file or directory)" in run.error


def test_a_service_that_is_not_there_is_tried_for_a_while(run: Run, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, service="127.0.0.1:1")
    token = tmp_path / "ewr.token"
    run("token", "ewr", "--dir", fleet.directory.path, "--out", token)
    run("enrol", token, "--site", tmp_path / "ewr", "--retry", 0, code=1)
    assert "the fleet's service at 127.0.0.1:1 does not answer" in run.error


def test_a_request_is_asked_again_with_the_same_key(run: Run, tmp_path: Path) -> None:
    hashes = set()
    for _ in range(2):
        run("request", "--site", tmp_path / "site", "--out", tmp_path / "csr")
        hashes.add(read_request((tmp_path / "csr").read_text()).key_hash)
    assert len(hashes) == 1
    assert stat.S_IMODE((tmp_path / "site" / "next.key").stat().st_mode) == 0o600
    fleet = Fleet(tmp_path)
    (tmp_path / "csr").write_text("nonsense")
    run("sign", "ewr", tmp_path / "csr", "--dir", fleet.directory.path, "--out", tmp_path / "out", code=2)
    assert "no signing request in PEM; make it with `holdfast fleet request`" in run.error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install", "none", "--site", "."), "none: the provision cannot be read"),
        (("install", "bytes", "--site", "."), "this is no provision of a fleet"),
        (("install", "text", "--site", ".", "--fingerprint", "12:34"), "for --fingerprint; expected 64 hexadecimal"),
        (("agent", "--site", "."), "is no enrolled site's; use `holdfast fleet enrol`"),
        (("upgrade", "text", "--site", ".", "--prefix", "p"), "is no enrolled site's"),
        (("downgrade", "--prefix", "p"), "p is no directory; give the one of `holdfast fleet upgrade`"),
        (("downgrade", "--prefix", "p", "--restart", ""), "invalid value '' for --restart; expected a command"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "text").write_text("{}")
    run(*words, code=2)
    assert said in run.error


def test_nothing_of_a_fleet_is_taken_from_a_directory_that_others_may_read(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.directory.key_file.chmod(0o640)
    with pytest.raises(Exception, match=r"ca\.key: others may read the authority's key \(mode 0640\)"):
        FleetDirectory(fleet.directory.path).authority(None)
    assert SiteDirectory(tmp_path / "nowhere").state() is None
