"""What a site installs, and what it refuses."""

import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast.errors import ConfigError
from holdfast.fleet.authority import NODE_DAYS
from holdfast.fleet.directory import provision_for
from holdfast.fleet.register import DAY_S
from holdfast.fleet.site import SiteDirectory
from holdfast.fleet.versions import push
from holdfast.node import users_file
from holdfast.peers.user_list import UserList
from support.fleets import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def contents(site: SiteDirectory) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in site.path.iterdir()}


def test_what_was_changed_on_its_way_is_refused(fleet: Fleet) -> None:
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    site = fleet.site("ewr")
    before = contents(site)
    for old, new in (("127.0.0.1:5672", "127.0.0.1:5673"), ("ewr", "hub"), ('version\\": 1', 'version\\": 2')):
        assert old in provision
        with pytest.raises(ConfigError, match="was not signed by this site's fleet, or was changed on its way"):
            site.install(provision.replace(old, new, 1), fleet.fingerprint, fleet.now_s)
    for text in ("", "{}", "[]", "7", provision[:-9], '{"provision": "{}", "signature": ""}'):
        with pytest.raises(ConfigError, match="no provision of a fleet"):
            site.install(text, fleet.fingerprint, fleet.now_s)
    assert contents(site) == before


def test_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    site = fleet.site("ewr")
    with pytest.raises(ConfigError, match="knows no fleet yet; give --fingerprint"):
        site.install(provision, None, fleet.now_s)
    with pytest.raises(ConfigError, match="somebody else answers, or the token is of another fleet"):
        site.install(provision, "00" * 32, fleet.now_s)
    site.install(provision, fleet.fingerprint, fleet.now_s)
    other = Fleet(tmp_path / "other")
    foreign = other.enrol("ewr", other.token("ewr"))["provision"]
    with pytest.raises(ConfigError, match="somebody else answers"):
        site.install(foreign, other.fingerprint, fleet.now_s)


def test_a_pipe_in_the_place_of_a_configuration_holds_nobody_up(fleet: Fleet) -> None:
    """The directory may belong to another user than the agent's."""
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    site = fleet.site("ewr")
    site.install(provision, fleet.fingerprint, fleet.now_s)
    site.config_file.unlink()
    os.mkfifo(site.config_file)
    with pytest.raises(ConfigError, match=r"config\.toml: the configuration cannot be read \(no regular file\)"):
        site.install(provision, None, fleet.now_s)


def test_a_provision_of_another_node_is_refused(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    of_hub = fleet.enrol("hub", fleet.token("hub"))["provision"]
    with pytest.raises(ConfigError, match="is for node 'hub', and this site is 'ewr'"):
        site.install(of_hub, None, fleet.now_s)


def test_an_older_provision_is_refused(fleet: Fleet) -> None:
    """Else who has kept one could take back a revocation."""
    first = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    site = fleet.site("ewr")
    site.install(first, fleet.fingerprint, fleet.now_s)
    with fleet.directory.changing() as register:
        register.crl_number += 1
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    with pytest.raises(ConfigError, match="older than what the site has"):
        site.install(first, None, fleet.now_s)


def test_a_node_that_has_left_the_topology_can_still_be_told_of_revocations(fleet: Fleet) -> None:
    """By a file; its configuration stays as it is."""
    site = fleet.enrolled("ewr")
    before = site.config_file.read_bytes()
    fleet.directory.topology_file.write_text('[[node]]\nname = "hub"\n')
    push(fleet.directory)
    with fleet.directory.changing() as register:
        register.crl_number += 1
        text = provision_for(fleet.directory, register, fleet.authority, "ewr", "", fleet.now_s)
    assert not site.install(text, None, fleet.now_s).config
    assert site.known().crl_number == 2 and site.config_file.read_bytes() == before


def test_a_certificate_for_another_key_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    other = SiteDirectory(tmp_path / "elsewhere")
    other.request()
    with pytest.raises(ConfigError, match="is for another key than this site's; send the fleet a new request"):
        other.install(provision, fleet.fingerprint, fleet.now_s)


@pytest.mark.parametrize("days", [-2, NODE_DAYS + 1])
def test_a_clock_that_is_wrong_is_said_to_be(fleet: Fleet, days: int) -> None:
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    with pytest.raises(ConfigError, match=r"this machine's clock says \d{4}-.*; set the clock") as found:
        fleet.site("ewr").install(provision, fleet.fingerprint, fleet.now_s + days * DAY_S)
    assert "\n" not in str(found.value)


def test_a_clock_that_is_hours_off_installs(fleet: Fleet) -> None:
    provision = fleet.enrol("ewr", fleet.token("ewr"))["provision"]
    fleet.site("ewr").install(provision, fleet.fingerprint, fleet.now_s - 20 * 3_600)


def test_a_configuration_that_this_site_cannot_use_keeps_the_one_of_before(fleet: Fleet) -> None:
    """A password's file that is missing here. The revocation list, and a certificate, are in place all the same."""
    site = fleet.enrolled("ewr")
    before = site.config_file.read_bytes()
    (fleet.directory.sites / "ewr.toml").write_text('[[user]]\nname = "ann"\npassword_file = "ann.password"\n')
    push(fleet.directory)
    with fleet.directory.changing() as register:
        register.crl_number += 1
    provision = fleet.signed("ewr", "sync")["provision"]
    with pytest.raises(ConfigError, match=r"configuration 2 cannot be used here: user 'ann'.*ann\.password"):
        site.install(provision, None, fleet.now_s)
    state = site.known()
    assert (state.version, state.crl_number) == (1, 2) and site.config_file.read_bytes() == before
    (site.path / "ann.password").write_text("secret\n")
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    assert site.known().version == 2
    site.restore(1)
    assert site.known().version == 1 and site.config_file.read_bytes() == before


def test_a_first_configuration_whose_users_are_missing_is_refused_and_comes_with_the_next_answer(fleet: Fleet) -> None:
    (fleet.directory.sites / "ewr.toml").write_text('[node]\nusers_file = "users.json"\n')
    push(fleet.directory)
    with pytest.raises(ConfigError, match=r"configuration 2 cannot be used here: users_file .* cannot be read"):
        fleet.enrolled("ewr")
    site = fleet.site("ewr")
    assert not site.config_file.exists()
    users_file.write(site.path / "users.json", UserList(()))
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    assert site.known().version == 2 and site.config_file.exists()


def test_the_topology_of_before_stays_as_long_as_its_configuration_may_come_back(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    names = []
    for kind in ("tcp", "serial"):
        text = fleet.directory.topology_file.read_text().replace('"tls"', f'"{kind}"').replace('"tcp"', f'"{kind}"')
        fleet.directory.topology_file.write_text(text)
        push(fleet.directory)
        site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
        names.append({file.name for file in site.path.glob("topology-*.toml")})
    assert [len(each) for each in names] == [2, 2] and len(names[0] & names[1]) == 1


def test_a_key_that_others_may_read_is_refused(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    site.identity_file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"node\.pem: others may read .* \(mode 0644\); make it private: chmod 600"):
        site.sign(b"")


def test_a_site_that_is_not_enrolled_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no enrolled site's; use `holdfast fleet enrol`"):
        SiteDirectory(tmp_path).known()
    (tmp_path / "site.json").write_text("{")
    with pytest.raises(ConfigError, match=r"site\.json is damaged"):
        SiteDirectory(tmp_path).known()


def rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)


def test_a_key_of_another_kind_is_one_line(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    site.identity_file.write_bytes(rsa_key() + site.identity_file.read_bytes())
    with pytest.raises(ConfigError, match=r"node\.pem has a key of another kind than P-256; enrol the site again"):
        site.sign(b"")
    fleet.directory.key_file.write_bytes(rsa_key())
    with pytest.raises(ConfigError, match=r"ca\.key: it is a key of another kind than P-256; give the one of"):
        fleet.directory.authority(None)


@pytest.mark.parametrize(
    "change", [{"version": "1"}, {"crl_number": None}, {"node": 5}, {"version": -1}, {"fingerprint": []}]
)
def test_a_state_that_is_damaged_is_one_line(fleet: Fleet, change: dict[str, object]) -> None:
    site = fleet.enrolled("ewr")
    site.state_file.write_text(json.dumps(json.loads(site.state_file.read_text()) | change))
    with pytest.raises(
        ConfigError, match=r"site\.json is damaged; remove the directory's files and enrol the site again"
    ):
        site.known()


def test_a_state_of_a_later_version_is_read(fleet: Fleet) -> None:
    """After a downgrade."""
    site = fleet.enrolled("ewr")
    before = site.known()
    site.state_file.write_text(json.dumps(json.loads(site.state_file.read_text()) | {"later": 1}))
    assert site.known() == before
