"""TLS of one connection, joined side to side without sockets; and the contexts that certificates make."""

import os
import ssl
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.engine.events import CertificateRead
from holdfast.errors import ConfigError
from holdfast.node.network import certificates, der, encryption
from holdfast.node.network.certificates import Certificates
from holdfast.node.network.encryption import Encryption, name_of
from holdfast.node.tls import TlsFiles
from support import today
from support.certificates import (
    LOOPBACK,
    Authority,
    authority,
    looked,
    needs_openssl,
    of_client,
    of_node,
    shared,
)

pytestmark = needs_openssl


def serving(**given: object) -> Certificates:
    node = of_node()
    files = {"certificate": node.certificate, "key": node.key, "authorities": node.authority, **given}
    return Certificates(TlsFiles(**files), serves=True, dials=False)  # type: ignore[arg-type]


def dialling(**given: object) -> Certificates:
    files = {"authorities": of_node().authority, **given}
    return Certificates(TlsFiles(**files), serves=False, dials=True)  # type: ignore[arg-type]


def join(server: Encryption, client: Encryption, rng: Random | None = None) -> None:
    """Passes all bytes on, until nobody has any; with an `rng`, in pieces."""
    client.start()
    while True:
        moved = False
        for mine, other in ((client, server), (server, client)):
            data = mine.take_output()
            moved |= bool(data)
            while data:
                size = len(data) if rng is None else rng.randint(1, 700)
                piece, data = data[:size], data[size:]
                said = other.receive(piece)
                heard[id(other)] = heard.get(id(other), b"") + said
        if not moved:
            return


heard: dict[int, bytes] = {}


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


@pytest.mark.parametrize("seed", range(5))
def test_bytes_come_through_whole_however_they_are_cut(seed: int) -> None:
    rng = Random(seed)
    server, client = serving().accepted(), dialling().dialled("localhost")
    early = [b"said before the handshake, ", memoryview(b"and kept")]
    client.send(early)
    server.send([b"so did the server"])
    assert client.take_output() == b""
    join(server, client, rng)
    assert client.established and server.established and client.version == "TLSv1.3"
    assert heard[id(server)] == b"said before the handshake, and kept" and heard[id(client)] == b"so did the server"
    large = rng.randbytes(300_000)
    client.send([large[:100], memoryview(large)[100:]])
    data = client.take_output()
    assert len(data) > len(large) and large[:64] not in data
    assert b"".join(server.receive(data[at : at + 4096]) for at in range(0, len(data), 4096)) == large


def test_it_says_amqp_and_the_lower_version_where_the_peer_has_no_better() -> None:
    context = ssl.create_default_context(cafile=of_node().authority)
    context.set_alpn_protocols(["h2", "amqp"])
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = Encryption(context, server=False, server_name="127.0.0.1")
    server = serving().accepted()
    join(server, client)
    assert (client.version, server.version) == ("TLSv1.2", "TLSv1.2")
    assert client._object.selected_alpn_protocol() == "amqp"
    assert client._object.cipher()[0].startswith("ECDHE-ECDSA-")  # type: ignore[index]


def test_an_old_version_is_refused() -> None:
    context = ssl.create_default_context(cafile=of_node().authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = Encryption(context, server=False, server_name="localhost")
    server = serving(version_min="1.3").accepted()
    join(server, client)
    assert not server.established and server.failure == "TLS: unsupported protocol"
    assert client.failure == "TLS: the two sides have no version of TLS in common; compare version_min"


@pytest.mark.parametrize(
    ("name", "fits"), [("localhost", True), ("127.0.0.1", True), ("node", False), ("other", False)]
)
def test_the_server_must_have_the_name_that_was_dialled(name: str, fits: bool) -> None:
    server, client = serving().accepted(), dialling().dialled(name)
    join(server, client)
    assert client.established == fits
    if not fits:
        assert client.failure is not None and "certificate is not trusted" in client.failure
        assert "mismatch" in client.failure and server.failure is not None


def test_an_authority_that_is_not_ours_is_not_trusted(tmp_path: Path) -> None:
    other = authority(tmp_path / "other", "another authority")
    server, client = serving().accepted(), dialling(authorities=other.certificate).dialled("localhost")
    join(server, client)
    assert client.failure == "TLS: the peer's certificate is not trusted: unable to get local issuer certificate"
    assert server.failure is not None and not server.established


def test_an_expired_certificate_is_not_trusted() -> None:
    old = shared().sign("old", alternatives=LOOPBACK, days=-1)
    server, client = serving(certificate=old.certificate, key=old.key).accepted(), dialling().dialled("localhost")
    join(server, client)
    assert client.failure == "TLS: the peer's certificate is not trusted: certificate has expired"


def shown(server: Certificates, client: Certificates) -> tuple[Encryption, Encryption]:
    ours, theirs = server.accepted(), client.dialled("localhost")
    join(ours, theirs)
    theirs.receive(ours.take_output())
    return ours, theirs


def test_a_client_is_told_by_its_certificate(tmp_path: Path) -> None:
    ann = of_client("ann")
    with_one = dialling(certificate=ann.certificate, key=ann.key)
    other = authority(tmp_path / "other", "another authority").sign("ann")
    forged = dialling(certificate=other.certificate, key=other.key)
    for client_certificates, client, certificate, fits in (
        ("none", with_one, None, True),
        ("none", dialling(), None, True),
        ("optional", with_one, "ann", True),
        ("optional", dialling(), None, True),
        ("optional", forged, None, False),
        ("required", with_one, "ann", True),
        ("required", dialling(), None, False),
        ("required", forged, None, False),
    ):
        server, theirs = shown(serving(client_certificates=client_certificates), client)
        case = client_certificates, certificate, fits
        assert (server.established, server.certificate, server.failure is None) == (fits, certificate, fits), case
        if not fits:
            assert theirs.failure is not None, case


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ({"subject": ((("commonName", "ann"),),)}, "ann"),
        ({"subject": ((("organizationName", "x"),), (("commonName", "ann"),))}, "ann"),
        ({"subject": ((("commonName", "ann"),), (("commonName", "admin"),))}, None),
        ({"subject": (), "subjectAltName": (("DNS", "sensor.example"), ("IP Address", "10.0.0.1"))}, "sensor.example"),
        ({"subject": (), "subjectAltName": (("DNS", "a"), ("DNS", "b"))}, None),
        ({"subject": ((("commonName", "ann\n"),),)}, None),
        ({"subject": ((("commonName", "a" * 201),),)}, None),
        ({}, None),
        (None, None),
    ],
)
def test_whose_certificate_it_is(certificate: dict[str, object] | None, name: str | None) -> None:
    assert name_of(certificate) == name


# ------------------------------------------------------------------------------------------------------- hostile


@pytest.mark.parametrize("seed", today.some(range(40), 10))
def test_garbage_ends_its_own_connection_alone(seed: int) -> None:
    """Bytes of a client changed, cut, doubled, or none of TLS: a failure or silence, and nothing is raised."""
    rng = Random(seed)
    server, client = serving(client_certificates="optional").accepted(), dialling().dialled("localhost")
    client.start()
    for _ in range(20):
        data = bytearray(client.take_output()) if rng.random() < 0.7 else bytearray(rng.randbytes(rng.randint(0, 3000)))
        for _ in range(rng.choice((0, 0, 1, 5))):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        server.receive(bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data))
        client.receive(server.take_output())
        client.send([rng.randbytes(rng.randint(1, 50_000))])
        server.send([b"answer"])
    server.close()
    assert server.failure is None or server.failure.startswith("TLS: ")


def test_http_and_plain_amqp_are_told_as_none_of_tls() -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x03\x01\x00\x00" + bytes(20)):
        server = serving().accepted()
        server.receive(said)
        assert server.failure == "TLS: the peer does not speak TLS", said


def test_a_handshake_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hello that says it is as long as one may be, and comes byte by byte."""
    monkeypatch.setattr(encryption, "HANDSHAKE_BYTES_MAX", 4_000)
    server = serving().accepted()
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(16_000)
    for at in range(4_000):
        server.receive(hello[at : at + 1])
        assert server.failure is None
    server.receive(hello[4_000:4_001])
    assert server.failure == "TLS: more than 4000 bytes of handshake"
    assert server.receive(hello[4_001:]) == b""


def test_answers_that_nobody_reads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "ANSWERS_BYTES_MAX", 1_000)
    server, client = serving().accepted(), dialling().dialled("localhost")
    join(server, client)
    for _ in range(50):
        server.answered(100, 100)  # all that was written before was read
    assert server.failure is None
    for _ in range(9):
        server.answered(100, 5_000)
    assert server.failure is None
    server.answered(100, 5_000)
    server.answered(100, 5_000)
    assert server.failure == "TLS: the peer asks and does not read the answers"


def test_the_end_is_said_and_heard() -> None:
    server, client = serving().accepted(), dialling().dialled("localhost")
    join(server, client)
    server.send([b"last"])
    server.close()
    assert client.receive(server.take_output()) == b"last" and client.ended and client.failure is None


# ------------------------------------------------------------------------------------------------------- the files


def copied(identity_of: Authority, directory: Path, name: str) -> TlsFiles:
    made = identity_of.sign(name, alternatives=LOOPBACK, stem=f"{name}-{directory.name}")
    certificate, key = directory / "node.pem", directory / "node.key"
    key.write_bytes(made.key.read_bytes())
    certificate.write_bytes(made.certificate.read_bytes())
    return TlsFiles(certificate=certificate, key=key)


def served_name(server: Certificates) -> str:
    ours, theirs = server.accepted(), dialling().dialled("localhost")
    join(ours, theirs)
    assert theirs.certificate is not None, theirs.failure
    return theirs.certificate


def test_changed_files_are_used_by_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    files = copied(shared(), tmp_path, "first")
    server = Certificates(files, serves=True, dials=False)
    before = server.accepted()
    assert served_name(server) == "first" and not looked(server)
    assert files.key is not None
    files.key.write_text("half of a k")
    assert not looked(server) and not looked(server)
    assert served_name(server) == "first"
    complaints = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(complaints) == 1 and "the previous certificates are used" in complaints[0]
    copied(shared(), tmp_path, "second")
    assert looked(server) and served_name(server) == "second"
    theirs = dialling().dialled("localhost")
    join(before, theirs)
    assert theirs.certificate == "first", "a connection keeps what it began with"
    assert not looked(server)


def test_a_certificate_that_is_taken_up_and_has_expired_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = copied(shared(), tmp_path, "first")
    server = Certificates(files, serves=True, dials=False)
    old = authority(tmp_path / "old", "another authority").sign("old", days=-1)
    assert files.certificate is not None and files.key is not None
    files.certificate.write_bytes(old.certificate.read_bytes())
    files.key.write_bytes(old.key.read_bytes())
    assert looked(server)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == (
        "tls certificate_file: this node's certificate has expired: others refuse connections over TLS; "
        "it is valid until 2020-01-02T00:00:00.000Z"
    )


def test_files_that_are_written_again_as_they_were_are_no_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files = copied(shared(), tmp_path, "first")
    server = Certificates(files, serves=True, dials=False)
    for _, path in files.named:
        path.write_bytes(path.read_bytes())
    assert not server.have_changed()
    made = server.look()
    assert made is not None
    server.use(made)
    assert server.look() is None and not caplog.records


class Told:
    """What `Certificates` tells."""

    def __init__(self, used: Certificates) -> None:
        self.events: list[CertificateRead] = []
        used.tell = self.events.append
        used._tell("")  # as `watch` does

    @property
    def last(self) -> CertificateRead:
        return self.events[-1]

    @property
    def year(self) -> int:
        assert self.last.ends_ms is not None
        return time.gmtime(self.last.ends_ms / 1_000).tm_year


@pytest.mark.parametrize("dials", [False, True])
def test_what_is_told_of_a_certificate_is_of_the_one_that_is_used(tmp_path: Path, dials: bool) -> None:
    """A new one without its key is not used, and the one of before ends nevertheless."""
    expired = shared().sign("node", alternatives=LOOPBACK, days=-1, stem=f"expired-{tmp_path.name}")
    good = copied(shared(), tmp_path, "good")
    assert good.certificate is not None and good.key is not None
    given = [(path, path.read_bytes()) for path in (good.certificate, good.key)]
    good.certificate.write_bytes(expired.certificate.read_bytes())
    good.key.write_bytes(expired.key.read_bytes())
    used = Certificates(good, serves=not dials, dials=dials)
    told = Told(used)
    assert told.year == 2020 and told.last.begins_ms < (told.last.ends_ms or 0) and not told.last.problem
    good.certificate.write_bytes(given[0][1])
    looked(used)
    assert told.year == 2020 and "is not the key of certificate_file" in told.last.problem
    good.certificate.write_text("torn")
    looked(used)
    assert told.year == 2020 and "certificate_file" in told.last.problem
    good.certificate.unlink()
    looked(used)
    looked(used)
    assert told.year == 2020 and "No such file" in told.last.problem and len(told.events) == 4
    for path, data in given:
        path.write_bytes(data)
    looked(used)
    assert told.year > 2020 and not told.last.problem and len(told.events) == 5


def test_files_that_are_back_as_they_were_are_no_problem(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    place.mkdir()
    used = Certificates(copied(shared(), place, "first"), serves=True, dials=False)
    told = Told(used)
    place.rename(tmp_path / "away")
    looked(used)
    assert "No such file" in told.last.problem
    (tmp_path / "away").rename(place)
    looked(used)
    assert told.last == told.events[0] and not told.last.problem
    assert used.look() is None
    place.rename(tmp_path / "away")
    looked(used)
    assert "No such file" in told.last.problem, "told once more"


def test_files_that_are_given_in_place_of_others_stay_though_a_look_at_these_ends_later(tmp_path: Path) -> None:
    """As a reload gives them while the thread reads."""
    files = copied(shared(), tmp_path, "first")
    server = Certificates(files, serves=True, dials=False)
    copied(shared(), tmp_path, "second")
    made = server.look()
    assert made is not None
    other = tmp_path / "other"
    other.mkdir()
    server.prepare(copied(shared(), other, "third"), dials=False).use()
    server.use(made)
    assert served_name(server) == "third"


def test_who_is_connected_is_looked_at_again_once_a_reload_gives_other_files(tmp_path: Path) -> None:
    """They may be revoked by these."""
    files = copied(shared(), tmp_path, "first")
    server = Certificates(files, serves=True, dials=False)
    looks: list[str] = []
    server.changed = lambda: looks.append("again")
    prepared = server.prepare(files, dials=False)
    assert looks == []
    prepared.use()
    assert looks == ["again"]


def test_a_file_that_has_become_too_large_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = copied(shared(), tmp_path, "first")
    assert files.key is not None
    server = Certificates(files, serves=True, dials=False)
    monkeypatch.setattr(certificates, "FILE_BYTES_MAX", 10)
    assert not server.have_changed()
    files.key.write_text("more than ten")
    assert server.have_changed()


def test_a_certificate_whose_dates_cannot_be_read_is_used_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(certificate: bytes) -> tuple[int, int]:
        raise ValueError("no date")

    monkeypatch.setattr(certificates, "validity", unreadable)
    server = Certificates(copied(shared(), tmp_path, "first"), serves=True, dials=False)
    assert server.own == CertificateRead() and served_name(server) == "first"


def test_a_problem_that_a_reload_has_ended_is_told_again(tmp_path: Path) -> None:
    files = copied(shared(), tmp_path, "first")
    assert files.certificate is not None
    server = Certificates(files, serves=True, dials=False)
    told = Told(server)
    whole = files.certificate.read_bytes()
    for _ in range(2):
        files.certificate.write_text("torn")
        looked(server)
        assert "certificate_file" in told.last.problem
        files.certificate.write_bytes(whole)
        server.prepare(files, dials=False).use()
        assert not told.last.problem


def test_files_that_cannot_be_used_are_not_read_again_while_they_look_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long list of revoked certificates takes seconds; but a disk may have failed once."""
    reads: list[TlsFiles] = []
    content_of = certificates._content_of

    def counted(files: TlsFiles) -> Any:
        reads.append(files)
        return content_of(files)

    monkeypatch.setattr(certificates, "_content_of", counted)
    files = copied(shared(), tmp_path, "first")
    assert files.key is not None
    used = Certificates(files, serves=True, dials=False)
    told = Told(used)

    def look() -> None:
        if (made := used.look()) is not None:
            used.use(made)

    good = files.key.read_bytes()
    files.key.write_bytes(b"half of it")
    reads.clear()
    for _ in range(5):
        look()
    assert len(reads) == 1 and told.last.problem
    with monkeypatch.context() as later:
        later.setattr(certificates, "AGAIN_S", 0.0)
        look()
    look()
    assert len(reads) == 2
    files.key.write_bytes(good)
    look()
    assert len(reads) == 3 and not told.last.problem
    files.key.write_bytes(b"half of it")
    look()
    assert len(reads) == 4 and told.last.problem


def test_a_file_that_has_another_mode_is_looked_at(tmp_path: Path) -> None:
    """And one that the node may no longer read: it could not start again."""
    files = copied(shared(), tmp_path, "first")
    assert files.key is not None
    used = Certificates(files, serves=True, dials=False)
    files.key.chmod(0o400)
    assert used.look() is not None


def test_a_certificate_that_is_shown_to_nobody_does_not_matter(tmp_path: Path) -> None:
    files = copied(shared(), tmp_path, "first")
    used = Certificates(files, serves=False, dials=True)
    told = Told(used)
    assert told.last.ends_ms is not None
    used.prepare(files, dials=False).use()
    assert told.last == CertificateRead()


def test_an_authority_that_is_withdrawn_is_trusted_no_more(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(shared().certificate.read_bytes())
    ann = of_client("ann")
    client = dialling(certificate=ann.certificate, key=ann.key)
    server = serving(authorities=trusted, client_certificates="required")
    assert shown(server, client)[0].certificate == "ann"
    other = authority(tmp_path / "other", "another authority")
    trusted.write_bytes(other.certificate.read_bytes())
    assert looked(server)
    assert shown(server, client)[0].failure is not None


def test_sessions_that_openssl_keeps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of TLS 1.2 without tickets makes the server keep a session for each connection."""
    monkeypatch.setattr(certificates, "SESSIONS_MAX", 5)
    context = ssl.create_default_context(cafile=of_node().authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    server = serving()
    for _ in range(20):
        client = Encryption(context, server=False, server_name="localhost")
        join(server.accepted(), client)
        assert client.established and not looked(server), "the same files are used"
        context_of_now = server._used.server
        assert context_of_now is not None and context_of_now.session_stats()["number"] <= 5


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ("no certificate", "tls certificate_file {0}/none.pem cannot be used (No such file or directory)"),
        ("no key", "tls key_file {0}/none.key cannot be used (No such file or directory)"),
        ("another's key", "tls key_file {0}/other.key is not the key of certificate_file"),
        ("not PEM", "cannot be used"),
        ("a key with a password", "cannot be used"),
        ("no authorities", "tls ca_file {0}/none.pem cannot be used (No such file or directory)"),
        ("authorities that are none", "tls ca_file {0}/junk.pem cannot be used (no certificate or crl found)"),
        ("a large key", "tls key_file {0}/large cannot be used (it has more than 4194304 bytes); expected a smaller"),
        ("a pipe as key", "tls key_file {0}/pipe cannot be used (no regular file)"),
        ("a pipe of authorities", "tls ca_file {0}/pipe cannot be used (no regular file)"),
        ("a pipe of what is revoked", "tls crl_file {0}/pipe cannot be used (no regular file)"),
    ],
)
def test_files_that_cannot_be_used_are_told_in_one_line(broken: str, complaint: str, tmp_path: Path) -> None:
    import subprocess

    node, none, junk = of_node(), tmp_path / "none.pem", tmp_path / "junk.pem"
    junk.write_text("this is not PEM\n")
    (tmp_path / "other.key").write_bytes(of_client("ann").key.read_bytes())
    locked, large, pipe = tmp_path / "locked.key", tmp_path / "large", tmp_path / "pipe"
    with large.open("wb") as stream:
        stream.truncate(der.FILE_BYTES_MAX + 1)  # it takes no room on the disk
    os.mkfifo(pipe)
    subprocess.run(["openssl", "ec", "-in", node.key, "-aes128", "-passout", "pass:secret", "-out", locked],
                   check=True, capture_output=True)  # fmt: skip
    given: dict[str, object] = {
        "no certificate": {"certificate": none},
        "no key": {"key": tmp_path / "none.key"},
        "another's key": {"key": tmp_path / "other.key"},
        "not PEM": {"certificate": junk},
        "a key with a password": {"key": locked},
        "no authorities": {"authorities": none, "client_certificates": "optional"},
        "a large key": {"key": large},
        "a pipe as key": {"key": pipe},
        "a pipe of authorities": {"authorities": pipe, "client_certificates": "optional"},
        "a pipe of what is revoked": {"revoked": pipe},
        "authorities that are none": {"authorities": junk, "client_certificates": "optional"},
    }[broken]  # type: ignore[assignment]
    with pytest.raises(ConfigError) as raised:
        serving(**given)
    text = str(raised.value)
    assert complaint.format(tmp_path) in text and "\n" not in text and "_ssl.c" not in text
    assert "; expected" in text or "; give" in text
