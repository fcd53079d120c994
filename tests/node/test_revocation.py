"""Certificates that were revoked: which they are, by a file of lists, and that a node ends who shows one."""

import asyncio
import os
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from holdfast.engine.events import BytesReceived, Connect, ConnectionLost, Secured, SecuringFailed
from holdfast.errors import ConfigError
from holdfast.fleet import authority as ca
from holdfast.fleet.authority import Authority, Revoked, read_request
from holdfast.names import HostPort
from holdfast.node.network import revocation
from holdfast.node.network.certificates import Certificates
from holdfast.node.network.der import Issued, issued, validity
from holdfast.node.network.revocation import read_revoked
from holdfast.node.tls import TlsFiles
from holdfast.settings.neighbours import NeighbourConfig
from node.fakes import LIMIT_S, FakeCore, Running, echo, read, settings
from support.certificates import looked
from support.fleets import Fleet


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(*ca.new_authority(time.time()))


def identity(authority: Authority, directory: Path, name: str) -> tuple[Path, x509.Certificate]:
    """A file of key and certificate, good for loopback."""
    from cryptography.hazmat.primitives import hashes

    key = ca.new_key()
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    pem = asked.public_bytes(serialization.Encoding.PEM).decode()
    made = authority.certify(name, ["localhost", "127.0.0.1"], read_request(pem), time.time())
    file = directory / f"{name}.pem"
    file.write_bytes(ca.key_pem(key) + made.pem.encode())
    return file, x509.load_pem_x509_certificate(made.pem.encode())


def revocations(authority: Authority, serials: list[int]) -> str:
    return authority.revocations([Revoked(serial, int(time.time())) for serial in serials], 1, time.time())


def test_a_certificate_is_known_by_its_issuer_and_number(authority: Authority, tmp_path: Path) -> None:
    _, made = identity(authority, tmp_path, "ewr")
    found = issued(made.public_bytes(serialization.Encoding.DER))
    assert found == Issued(authority.certificate.subject.public_bytes(), made.serial_number)
    own = issued(authority.certificate.public_bytes(serialization.Encoding.DER))
    assert own.serial == authority.certificate.serial_number


def test_a_certificates_dates_are_read(authority: Authority, tmp_path: Path) -> None:
    _, made = identity(authority, tmp_path, "ewr")
    whole = made.public_bytes(serialization.Encoding.DER)
    begins, ends = (int(at.timestamp()) * 1000 for at in (made.not_valid_before_utc, made.not_valid_after_utc))
    assert validity(whole) == (begins, ends)
    for place in range(len(whole)):
        for data in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            try:
                validity(data)
            except ValueError:
                continue
    utc, general = b"\x17\x0d491231235959Z", b"\x18\x0f20500101000000Z"
    dates = b"\x30" + bytes([len(utc + general)]) + utc + general
    tbs = b"\x02\x01\x01" + b"\x30\x00" * 2 + dates
    inner = b"\x30" + bytes([len(tbs)]) + tbs
    assert validity(b"\x30" + bytes([len(inner)]) + inner) == (2_524_607_999_000, 2_524_608_000_000)


@pytest.mark.parametrize(("year", "meant"), [("49", 2049), ("50", 1950), ("99", 1999), ("00", 2000)])
def test_years_of_two_digits_are_those_from_1950_on(year: str, meant: int) -> None:
    begins, ends = f"{year}0101000000Z".encode(), b"20991231235959Z"
    dates = bytes([0x17, len(begins)]) + begins + bytes([0x18, len(ends)]) + ends
    tbs = b"\x02\x01\x01" + b"\x30\x00" * 2 + bytes([0x30, len(dates)]) + dates
    inner = bytes([0x30, len(tbs)]) + tbs
    first, _ = validity(bytes([0x30, len(inner)]) + inner)
    assert first == int(datetime(meant, 1, 1, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_certificate_has_two_dates(count: int) -> None:
    dates = b"\x17\x0d260101000000Z" * count
    tbs = b"\x02\x01\x01" + b"\x30\x00" * 2 + bytes([0x30, len(dates)]) + dates
    inner = bytes([0x30, len(tbs)]) + tbs
    with pytest.raises(ValueError, match="no certificate"):
        validity(bytes([0x30, len(inner)]) + inner)


def test_lists_of_several_authorities_are_read_from_one_file(authority: Authority, tmp_path: Path) -> None:
    other = Authority(*ca.new_authority(time.time()))
    file = tmp_path / "crl.pem"
    serials = [1, 127, 128, 1 << 150, *range(300, 700)]
    file.write_text(revocations(authority, serials) + "a remark\n" + revocations(other, [7]) + revocations(other, []))
    names = [each.certificate.subject.public_bytes() for each in (authority, other)]
    assert read_revoked(file) == {*(Issued(names[0], serial) for serial in serials), Issued(names[1], 7)}


def test_a_file_that_is_damaged_anywhere_is_refused_in_a_line_or_read(authority: Authority, tmp_path: Path) -> None:
    """Cut at each byte, and with each byte changed: nothing but ConfigError comes of it."""
    whole = x509.load_pem_x509_crl(revocations(authority, [5, 6]).encode()).public_bytes(serialization.Encoding.DER)
    file = tmp_path / "crl.pem"
    refused = 0
    for place in range(len(whole)):
        for data in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            pem = ssl.DER_cert_to_PEM_cert(data).replace("CERTIFICATE", "X509 CRL")
            file.write_text(pem)
            try:
                read_revoked(file)
            except ConfigError as error:
                refused += 1
                assert str(error).startswith(f"tls crl_file {file} cannot be used") and "\n" not in str(error)
    assert refused > len(whole), "each that is cut, and some of the others"


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN X509 CRL-----\nA\n-----END X509 CRL-----\n"])
def test_what_is_no_list_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    file.write_text(text)
    with pytest.raises(ConfigError, match="expected certificate revocation lists in PEM"):
        read_revoked(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_revoked(tmp_path / "none.pem")


def test_a_file_is_bounded(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "crl.pem"
    file.write_text(revocations(authority, [5]))
    monkeypatch.setattr(revocation, "FILE_BYTES_MAX", file.stat().st_size)
    assert len(read_revoked(file)) == 1
    monkeypatch.setattr(revocation, "FILE_BYTES_MAX", file.stat().st_size - 1)
    with pytest.raises(ConfigError, match="it has more than"):
        read_revoked(file)


def test_authorities_that_are_in_the_same_file_are_seen_to_change(authority: Authority, tmp_path: Path) -> None:
    other = Authority(*ca.new_authority(time.time()))
    file = tmp_path / "both.pem"
    file.write_text(authority.pem + revocations(authority, [5]))
    certificates = Certificates(TlsFiles(authorities=file, revoked=file), serves=False, dials=True)
    file.write_text(authority.pem + other.pem + revocations(authority, [5]))
    assert certificates.have_changed()


class Node:
    """A runtime with TLS by `authority`, which has a list of what is revoked."""

    def __init__(self, authority: Authority, directory: Path) -> None:
        self.authority = authority
        self.directory = directory
        self.revocations = directory / "crl.pem"
        self.revoke([])
        (directory / "ca.pem").write_text(authority.pem)
        file, _ = identity(authority, directory, "hub")
        files = TlsFiles(
            certificate=file, authorities=directory / "ca.pem", revoked=self.revocations,
            client_certificates="required",
        )  # fmt: skip
        self.settings = replace(settings(directory), listen=(), listen_tls=(HostPort("127.0.0.1", 0),), tls=files)

    def revoke(self, serials: list[int]) -> None:
        new = self.directory / "crl.new"
        new.write_text(revocations(self.authority, serials))
        os.replace(new, self.revocations)

    async def connect(self, running: Running, file: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        context.load_cert_chain(file)
        return await asyncio.open_connection("127.0.0.1", running.port, ssl=context, server_hostname="localhost")


async def test_who_is_revoked_is_ended_and_does_not_come_in_again(authority: Authority, tmp_path: Path) -> None:
    """Without a restart; whoever is not revoked stays."""
    node = Node(authority, tmp_path)
    bad, made = identity(authority, tmp_path, "stolen")
    good, _ = identity(authority, tmp_path, "ewr")
    core = FakeCore(echo)
    async with Running(core, node.settings) as running:
        reader, writer = await node.connect(running, bad)
        other_reader, other_writer = await node.connect(running, good)
        for to, back in ((writer, reader), (other_writer, other_reader)):
            to.write(b"hello")
            assert await read(back, 5) == b"hello"
        certificates = running.runtime._certificates
        assert certificates is not None and not looked(certificates)
        node.revoke([])
        assert not looked(certificates), "a list that is only dated anew"
        node.revoke([made.serial_number])
        assert looked(certificates)
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        lost = await core.until(ConnectionLost)
        assert lost.reason == f"TLS: the peer's certificate is revoked (serial number {made.serial_number:x})"
        other_writer.write(b"still here")
        assert await read(other_reader, 10) == b"still here"
        heard = len(core.of(BytesReceived))
        _, again = await node.connect(running, bad)
        again.write(b"let me in")
        failed = await core.until(SecuringFailed, 2)
        assert "is revoked" in failed.reason
        await core.until(ConnectionLost, 2)
        assert len(core.of(BytesReceived)) == heard and len(core.of(Secured)) == 2
        for each in (writer, other_writer, again):
            each.close()


async def test_a_list_that_cannot_be_read_changes_nothing(authority: Authority, tmp_path: Path) -> None:
    node = Node(authority, tmp_path)
    bad, made = identity(authority, tmp_path, "stolen")
    node.revoke([made.serial_number])
    core = FakeCore(echo)
    async with Running(core, node.settings) as running:
        certificates = running.runtime._certificates
        assert certificates is not None
        node.revocations.write_text("half a li")
        assert not looked(certificates)
        _, writer = await node.connect(running, bad)
        await core.until(SecuringFailed)
        writer.close()


def test_a_fleet_gives_its_sites_lists_that_nodes_read(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    site = fleet.enrolled("ewr")
    assert read_revoked(site.revocations_file) == frozenset()


async def test_a_neighbour_that_is_dialled_may_be_revoked_too(authority: Authority, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    there, here = Node(authority, tmp_path / "a"), Node(authority, tmp_path / "b")
    serial = x509.load_pem_x509_certificate((tmp_path / "a" / "hub.pem").read_bytes()).serial_number
    core = FakeCore(echo)
    async with Running(core, there.settings) as hub:
        neighbours = (NeighbourConfig(name="hub", remote=f"127.0.0.1:{hub.port}", tls=True),)
        given = replace(here.settings, core=replace(here.settings.core, neighbours=neighbours))
        ours = FakeCore()
        async with Running(ours, given) as running:
            running.runtime._execute(Connect(neighbour="hub"))
            await ours.until(Secured)
            here.revoke([serial])
            certificates = running.runtime._certificates
            assert certificates is not None and looked(certificates)
            assert "is revoked" in (await ours.until(ConnectionLost)).reason
            running.runtime._execute(Connect(neighbour="hub"))
            assert "is revoked" in (await ours.until(ConnectionLost, 2)).reason
            assert len(ours.of(Secured)) == 1
