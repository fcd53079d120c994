"""What the enrolment service answers, without sockets and with a clock of the test's own."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.fleet import enrolment, private_files
from holdfast.fleet.authority import NODE_DAYS
from holdfast.fleet.enrolment import FAILED
from holdfast.fleet.register import CERTIFICATES_MAX, DAY_S, LAPSED_DAYS_MAX
from holdfast.fleet.versions import push
from holdfast.fleet.wire import line
from holdfast.node.network.revocation import read_revoked
from support.fleets import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def revoke(fleet: Fleet, node: str) -> None:
    with fleet.directory.changing() as register:
        for each in register.sites[node].certificates:
            each.revoked_s = int(fleet.now_s)
        register.crl_number += 1


def test_a_site_gets_its_certificate_and_configuration(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    assert site.certificate().subject.rfc4514_string() == "CN=ewr"
    assert site.identity_file.stat().st_mode & 0o777 == private_files.PRIVATE
    assert site.known().version == 1 and "hub" not in site.config_file.read_text()
    hub = fleet.enrolled("hub")
    assert 'certificate = "ewr"' in hub.config_file.read_text(), "who dials it logs in by its certificate"


def test_a_token_is_for_one_key_and_the_same_key_may_ask_again(fleet: Fleet) -> None:
    """An answer may be lost on a bad link: the site asks again and gets the same certificate."""
    secret = fleet.token("ewr")
    first = fleet.enrol("ewr", secret)
    again = fleet.enrol("ewr", secret)
    site = fleet.site("ewr")
    site.install(first["provision"], fleet.fingerprint, fleet.now_s)
    serial = site.certificate().serial_number
    (site.path / "next.key").write_bytes(site.identity_file.read_bytes())
    (site.path / "next.key").chmod(0o600)
    site.install(again["provision"], None, fleet.now_s)
    assert site.certificate().serial_number == serial
    (site.path / "next.key").unlink(missing_ok=True)
    assert "used already, for another key" in fleet.enrol("ewr", secret)["refused"]
    assert len(fleet.directory.register().sites["ewr"].certificates) == 1


def test_a_token_ends(fleet: Fleet) -> None:
    secret = fleet.token("ewr", days=1)
    fleet.now_s += DAY_S + 1
    assert "the token has ended; ask for a new one" in fleet.enrol("ewr", secret)["refused"]


def test_a_new_token_takes_the_place_of_the_one_before(fleet: Fleet) -> None:
    first = fleet.token("ewr")
    second = fleet.token("ewr")
    assert fleet.enrol("ewr", first)["refused"] == enrolment.NO_TOKEN
    assert "provision" in fleet.enrol("ewr", second)


def test_a_token_of_one_node_is_none_of_another(fleet: Fleet) -> None:
    secret = fleet.token("ewr")
    assert fleet.enrol("hub", secret)["refused"] == enrolment.NO_TOKEN


def test_who_guesses_learns_nothing_and_is_slowed_down(fleet: Fleet) -> None:
    secret = fleet.token("ewr")
    wrong = [fleet.enrol(node, "guess", address="10.6.6.6")["refused"] for node in ("ewr", "hub")]
    request = {"do": "enrol", "node": "nobody", "secret": "guess", "request": ""}
    wrong += [fleet.ask(request, address="10.6.6.6")["refused"] for _ in range(enrolment.FAILURES_AT_ONCE - 2)]
    assert set(wrong) == {enrolment.NO_TOKEN}, "a node that there is not is told the same"
    assert fleet.enrol("ewr", secret, address="10.6.6.6")["refused"] == enrolment.TOO_MANY
    assert "provision" in fleet.enrol("ewr", secret, address="10.0.0.9"), "another address is not slowed down"
    fleet.now_s += 1 / enrolment.FAILURES_PER_S + 1
    assert "provision" in fleet.enrol("ewr", secret, address="10.6.6.6")


def test_addresses_that_ask_in_vain_are_bounded(fleet: Fleet) -> None:
    request = {"do": "enrol", "node": "nobody", "secret": "guess", "request": ""}
    for number in range(enrolment.ADDRESSES_MAX + 20):
        fleet.ask(request, address=f"10.1.{number >> 8}.{number & 255}")
    assert len(fleet.enrolment._failures) <= enrolment.ADDRESSES_MAX + 1
    assert fleet.ask(request, address="10.2.0.1")["refused"] == enrolment.TOO_MANY, "those beyond count as one"
    fleet.now_s += 2 * enrolment.FAILURES_AT_ONCE / enrolment.FAILURES_PER_S
    assert fleet.ask(request, address="10.2.0.1")["refused"] == enrolment.NO_TOKEN
    assert len(fleet.enrolment._failures) < 10
    for _ in range(enrolment.FAILURES_AT_ONCE - 1):
        fleet.ask(request, address="10.2.0.1")
    assert fleet.ask(request, address="10.2.0.1")["refused"] == enrolment.TOO_MANY
    assert fleet.ask(request, address="10.2.0.2")["refused"] == enrolment.NO_TOKEN, "each counts for itself again"


def test_a_certificate_is_renewed_by_the_key_of_the_one_before(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    before = site.certificate()
    assert "renew" in fleet.signed("ewr", "sync") and not fleet.signed("ewr", "sync")["renew"]
    fleet.now_s += NODE_DAYS * DAY_S * 0.7
    assert fleet.signed("ewr", "sync")["renew"], "a third of its time is left"
    answer = fleet.signed("ewr", "renew", request=site.request())
    again = fleet.signed("ewr", "renew", request=site.request())
    site.install(answer["provision"], None, fleet.now_s)
    after = site.certificate()
    assert after.serial_number != before.serial_number and after.public_key() != before.public_key()
    assert after.subject == before.subject and not (site.path / "next.key").exists()
    assert not fleet.signed("ewr", "sync")["renew"]
    assert "provision" in again and len(fleet.directory.register().sites["ewr"].certificates) == 2


def test_a_certificate_that_ended_while_the_site_was_away_is_renewed_for_a_while(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    fleet.now_s += (NODE_DAYS + LAPSED_DAYS_MAX) * DAY_S - 60
    assert fleet.signed("ewr", "sync")["renew"]
    provision = fleet.signed("ewr", "renew", request=site.request())["provision"]
    late = fleet.enrolled("hub")
    site.install(provision, None, fleet.now_s)
    assert not fleet.signed("ewr", "sync")["renew"]
    fleet.now_s += (NODE_DAYS + LAPSED_DAYS_MAX) * DAY_S + 60
    refused = fleet.signed("hub", "renew", request=late.request())["refused"]
    assert "ended more than 30 days ago; ask for a token" in refused


def test_a_revoked_certificate_gets_nothing_until_there_is_a_new_token(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    revoke(fleet, "ewr")
    assert fleet.signed("ewr", "sync")["refused"] == enrolment.NO_SITE
    assert fleet.signed("ewr", "renew", request=site.request())["refused"] == enrolment.NO_SITE
    answer = fleet.enrol("ewr", fleet.token("ewr"))
    site.install(answer["provision"], None, fleet.now_s)
    assert "refused" not in fleet.signed("ewr", "sync")


def test_a_request_is_good_on_its_connection_alone(fleet: Fleet) -> None:
    """What was recorded on another connection, or for another purpose, is not signed for this one."""
    fleet.enrolled("ewr")
    assert fleet.signed("ewr", "sync", nonce="of another connection")["refused"] == enrolment.NO_SITE


def test_the_others_are_told_of_a_revocation(fleet: Fleet) -> None:
    hub, ewr = fleet.enrolled("hub"), fleet.enrolled("ewr")
    assert "provision" not in fleet.signed("hub", "sync")
    serial = ewr.certificate().serial_number
    revoke(fleet, "ewr")
    hub.install(fleet.signed("hub", "sync")["provision"], None, fleet.now_s)
    assert [each.serial for each in read_revoked(hub.revocations_file)] == [serial]


def test_a_site_hears_of_a_configuration_once(fleet: Fleet) -> None:
    site = fleet.enrolled("ewr")
    (fleet.directory.sites / "ewr.toml").write_text('[[queue]]\nname = "flights"\n')
    assert push(fleet.directory).changed == ["ewr"]
    site.install(fleet.signed("ewr", "sync")["provision"], None, fleet.now_s)
    assert "flights" in site.config_file.read_text()
    assert "provision" not in fleet.signed("ewr", "sync", problem="a\nb" * 500)
    known = fleet.directory.register().sites["ewr"]
    assert known.version == 2 and known.seen_s == int(fleet.now_s)
    assert len(known.problem) == enrolment.TEXT_MAX and "\n" not in known.problem


def test_an_address_that_changes_brings_a_new_certificate(fleet: Fleet) -> None:
    site = fleet.enrolled("hub")
    text = fleet.directory.topology_file.read_text().replace("10.0.0.1", "10.0.0.2")
    fleet.directory.topology_file.write_text(text)
    push(fleet.directory)
    assert fleet.signed("hub", "sync")["renew"]
    site.install(fleet.signed("hub", "renew", request=site.request())["provision"], None, fleet.now_s)
    assert not fleet.signed("hub", "sync")["renew"]


def test_a_node_that_has_left_the_topology_gets_nothing_new(fleet: Fleet) -> None:
    fleet.enrolled("ewr")
    fleet.directory.topology_file.write_text('[[node]]\nname = "hub"\n')
    assert push(fleet.directory).left == ["ewr"]
    assert fleet.signed("ewr", "sync")["renew"] is False
    assert "is in no topology of this fleet" in fleet.enrol("ewr", fleet.token("ewr"))["refused"]


def test_certificates_of_a_site_are_bounded(fleet: Fleet) -> None:
    """A site that asks and asks is one line for the operator, and ends nothing of the others."""
    site = fleet.enrolled("ewr")
    for _ in range(CERTIFICATES_MAX - 1):
        (site.path / "next.key").unlink(missing_ok=True)
        assert "provision" in fleet.signed("ewr", "renew", request=site.request())
    (site.path / "next.key").unlink()
    refused = fleet.signed("ewr", "renew", request=site.request())["refused"]
    assert f"has {CERTIFICATES_MAX} certificates that have not ended" in refused
    assert "provision" in fleet.enrol("hub", fleet.token("hub"))
    fleet.now_s += (NODE_DAYS + LAPSED_DAYS_MAX) * DAY_S - 60
    assert "provision" in fleet.signed("ewr", "renew", request=site.request())


@pytest.mark.parametrize(
    "said",
    [b"\n", b"[]\n", b"{}\n", b"\xff\n", b"[" * 60_000 + b"\n", b'{"do": 7}\n', b'{"do": "enrol"}\n',
     b'{"do": "enrol", "node": 1, "secret": [], "request": {}}\n', b'{"do": "sync"}\n',
     b'{"do": "sync", "serial": "1", "body": "{}", "signature": "\\ud800"}\n',
     b'{"do": "renew", "serial": "1", "body": "7", "signature": "%%%"}\n'],
)  # fmt: skip
def test_a_hostile_request_is_refused_in_a_line(fleet: Fleet, said: bytes) -> None:
    before = fleet.directory.register_file.read_bytes()
    answered = fleet.enrolment.answer(said, "nonce", "10.0.0.9", fleet.now_s, fleet.now_s)
    assert set(answered.answer) == {"refused", "time_s", "software"} and answered.log
    assert "\n" not in answered.answer["refused"]
    assert fleet.directory.register_file.read_bytes() == before


NAMES = ("do", "node", "secret", "request", "serial", "body", "signature", "version", "wait", "other")
SAID = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["enrol", "renew", "sync", "authority", "ewr", "hub", "{}", '{"wait": true}', "AAAA"]),
    lambda deeper: st.lists(deeper, max_size=4) | st.dictionaries(st.sampled_from(NAMES), deeper, max_size=6),
    max_leaves=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    made.enrolled("ewr")
    made.token("hub")
    return made


@given(request=st.dictionaries(st.sampled_from(NAMES), SAID, max_size=7), number=st.integers(0, 5_000))
def test_whatever_a_stranger_asks_is_answered_and_changes_nothing(
    standing: Fleet, request: dict[str, Any], number: int
) -> None:
    serial = standing.directory.register().sites["ewr"].certificates[0].serial
    said = json.dumps(request).replace('"other"', f'"{serial}"').encode() + b"\n"
    before = json.loads(standing.directory.register_file.read_bytes())
    answer = standing.enrolment.answer(said, "nonce", f"10.0.{number >> 8}.{number & 255}", standing.now_s, 0.0).answer
    assert set(answer) - {"time_s", "software"} in ({"refused"}, {"authority"})
    assert json.loads(standing.directory.register_file.read_bytes()) == before


def test_a_damaged_register_is_told(fleet: Fleet) -> None:
    fleet.directory.register_file.write_text('{"v": 1, "sites": {"ewr": 7}}')
    with pytest.raises(ConfigError, match=r"fleet\.json: it is damaged; put back a copy"):
        fleet.directory.register()
    fleet.directory.register_file.write_text('{"v": 2}')
    with pytest.raises(ConfigError, match="it has form 2, and this version of Holdfast reads form 1; upgrade"):
        fleet.directory.register()
    fleet.directory.register_file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"others may read the register of sites \(mode 0644\); make it private"):
        fleet.directory.register()


def test_a_stranger_is_not_told_what_is_wrong_with_the_fleet_s_files(fleet: Fleet) -> None:
    fleet.directory.register_file.write_text("{")
    request = {"do": "enrol", "node": "ewr", "secret": "x"}
    answered = fleet.enrolment.answer(line(request), "", "10.0.0.9", fleet.now_s, fleet.now_s)
    assert answered.answer["refused"] == FAILED
    assert "fleet.json: it is damaged" in answered.log and answered.log.endswith("(from 10.0.0.9)")


def test_a_full_disk_of_the_fleet_is_told_to_its_operator(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, request = fleet.token("ewr"), fleet.site("ewr").request()

    def full(path: Path, *rest: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(private_files, "write", full)
    asked = line({"do": "enrol", "node": "ewr", "secret": secret, "request": request})
    answered = fleet.enrolment.answer(asked, "", "10.0.0.9", fleet.now_s, fleet.now_s)
    assert answered.answer["refused"] == FAILED and "fleet.json: No space left on device" in answered.log
