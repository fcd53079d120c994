"""Bundles, and versions beside each other: what is installed is what the fleet has signed, and a node that does not
start with a version runs with the one before again."""

import base64
import ensurepip
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import bundle as bundles
from holdfast.fleet.agent import reload_by
from holdfast.fleet.bundle import pack, unpack
from holdfast.fleet.site import AuthorityKey
from holdfast.fleet.upgrade import Versions
from support.fleets import Fleet

PIPS = [
    *Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"),
    *Path("/usr/share/python-wheels").glob("pip-*.whl"),
]
NOTHING = reload_by("--restart", None)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def key(fleet: Fleet) -> AuthorityKey:
    return AuthorityKey(fleet.authority.certificate)


def wheel(directory: Path, version: str, *, code: str = "") -> None:
    """A distribution `holdfast` with a command that prints its version, and nothing else."""
    directory.mkdir(exist_ok=True)
    shutil.copy(PIPS[0], directory)
    info = f"holdfast-{version}.dist-info"
    files = {
        "holdfast_made.py": f"def main():\n    print('holdfast {version}')\n    {code or 'pass'}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: holdfast\nVersion: {version}\nProvides-Extra: fleet\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nholdfast = holdfast_made:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(directory / f"holdfast-{version}-py3-none-any.whl", "w") as made:
        for name, text in files.items():
            made.writestr(name, text)


def bundle(fleet: Fleet, directory: Path, version: str, *, code: str = "") -> Path:
    wheel(directory / version, version, code=code)
    out = directory / f"{version}.bundle"
    pack(directory / version, out, fleet.authority)
    return out


def runs(versions: Versions) -> str:
    done = subprocess.run([versions.current / "bin" / "holdfast"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_version_is_installed_beside_the_one_before_and_taken_back(
    fleet: Fleet, key: AuthorityKey, tmp_path: Path
) -> None:
    versions = Versions(tmp_path / "prefix")
    first = versions.upgrade(bundle(fleet, tmp_path, "1.0"), key, NOTHING)
    assert first.startswith("1.0-") and runs(versions) == "holdfast 1.0"
    with pytest.raises(ConfigError, match="is the current version; nothing has changed"):
        versions.upgrade(tmp_path / "1.0.bundle", key, NOTHING)
    with pytest.raises(HoldfastError, match="there is no version before the current one"):
        versions.back(NOTHING)

    # A restart that fails with the new version, as of a node that does not start.
    restart = reload_by(
        "--restart", f"sh -c 'readlink {versions.current} | grep -q ^1 || {{ echo no start >&2; exit 1; }}'"
    )
    second = bundle(fleet, tmp_path, "2.0")
    with pytest.raises(HoldfastError, match=rf"ended with 1: no start; the node runs with {first} again"):
        versions.upgrade(second, key, restart)
    assert runs(versions) == "holdfast 1.0"

    name = versions.upgrade(second, key, NOTHING)
    assert runs(versions) == "holdfast 2.0" and versions.name() == name
    assert versions.back(NOTHING) == first and runs(versions) == "holdfast 1.0"
    assert versions.back(NOTHING) == name and runs(versions) == "holdfast 2.0"

    with pytest.raises(HoldfastError, match=r"the new version does not run: .*broken"):
        versions.upgrade(bundle(fleet, tmp_path, "3.0", code="raise SystemExit('broken')"), key, NOTHING)
    assert runs(versions) == "holdfast 2.0"
    versions.upgrade(bundle(fleet, tmp_path, "4.0"), key, reload_by("--restart", "true"))
    assert {place.name.partition("-")[0] for place in versions.prefix.iterdir()} == {
        "4.0",
        "2.0",
        "current",
        "previous",
    }


def test_an_upgrade_says_what_it_does_and_what_is_current(fleet: Fleet, key: AuthorityKey, tmp_path: Path) -> None:
    told: list[str] = []
    versions = Versions(tmp_path / "prefix", told.append)
    file = bundle(fleet, tmp_path, "1.0")
    with pytest.raises(HoldfastError) as failed:
        versions.upgrade(file, key, reload_by("--restart", "false"))
    name = versions.name()
    assert name is not None and name.startswith("1.0-")
    assert str(failed.value).endswith(f"; {versions.current} is {name}: there is no version to go back to")
    assert told == [f"pip installs {name}", f"{name} is current; false restarts the node"]


def test_what_the_node_may_still_run_stays(
    fleet: Fleet, key: AuthorityKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a restart nobody knows which version that is."""
    versions = Versions(tmp_path / "prefix")
    names = [
        versions.upgrade(bundle(fleet, tmp_path, version), key, reload_by("--restart", restart))
        for version, restart in (("1.0", "true"), ("2.0", None), ("3.0", None))
    ]
    assert all((versions.prefix / name).is_dir() for name in names)

    def fails(*given: object) -> None:
        raise AssertionError("what is there is installed again")

    second = names[1]
    assert versions.back(NOTHING) == second
    with monkeypatch.context() as patch:
        patch.setattr(Versions, "_install", fails)
        assert versions.upgrade(tmp_path / "3.0.bundle", key, NOTHING) == names[2] and runs(versions) == "holdfast 3.0"
        (versions.prefix / second / ".complete").unlink()  # as an earlier version has left it
        assert versions.upgrade(tmp_path / "2.0.bundle", key, reload_by("--restart", "true")) == second
    assert runs(versions) == "holdfast 2.0"
    assert {place.name for place in versions.prefix.iterdir()} == {*names[1:], "current", "previous"}


def test_an_installation_that_was_ended_is_made_again(fleet: Fleet, key: AuthorityKey, tmp_path: Path) -> None:
    versions = Versions(tmp_path / "prefix")
    versions.upgrade(bundle(fleet, tmp_path, "1.0"), key, NOTHING)
    file = bundle(fleet, tmp_path, "2.0")
    name = versions.upgrade(file, key, NOTHING)
    versions.back(NOTHING)
    (versions.prefix / "previous").unlink()
    shutil.rmtree(versions.prefix / name / "bin")
    (versions.prefix / name / ".complete").unlink()
    assert versions.upgrade(file, key, NOTHING) == name and runs(versions) == "holdfast 2.0"


def test_what_pythonpath_names_is_not_taken_for_installed(
    fleet: Fleet, key: AuthorityKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    wheel(elsewhere, "1.0")
    with zipfile.ZipFile(elsewhere / "holdfast-1.0-py3-none-any.whl") as made:
        made.extractall(elsewhere)
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    versions = Versions(tmp_path / "prefix")
    versions.upgrade(bundle(fleet, tmp_path, "1.0"), key, NOTHING)
    monkeypatch.delenv("PYTHONPATH")
    assert runs(versions) == "holdfast 1.0"


def rewritten(file: Path, change: dict[str, bytes]) -> Path:
    """The bundle with other content of these files; empty: left out."""
    out = file.with_suffix(".other")
    with tarfile.open(file) as old, tarfile.open(out, "w") as new:
        for entry in old:
            stream = old.extractfile(entry)
            assert stream is not None
            data = change.get(entry.name, stream.read())
            if data:
                entry.size = len(data)
                new.addfile(entry, io.BytesIO(data))
    return out


def test_what_was_changed_on_its_way_is_not_installed(fleet: Fleet, key: AuthorityKey, tmp_path: Path) -> None:
    file = bundle(fleet, tmp_path, "1.0")
    name = "holdfast-1.0-py3-none-any.whl"
    with tarfile.open(file) as tar:
        stream = tar.extractfile("manifest.json")
        assert stream is not None
        manifest = stream.read()
    for number, (change, said) in enumerate(
        (
            ({f"wheels/{name}": b"another"}, f"{name} was changed on its way"),
            ({f"wheels/{name}": b""}, f"{name} is missing in it"),
            (
                {"manifest.json": manifest.replace(b"1.0", b"1.1")},
                "was not signed by this site's fleet, or was changed",
            ),
            ({"manifest.json": b"{}"}, "no bundle of a fleet"),
            ({"manifest.json": b""}, "no bundle of a fleet"),
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        with pytest.raises(ConfigError, match=said) as found:
            unpack(rewritten(file, change), place, key)
        assert "\n" not in str(found.value)
    (tmp_path / "text").write_text("no tar")
    with pytest.raises(ConfigError, match="no bundle of a fleet"):
        unpack(tmp_path / "text", tmp_path, key)
    versions = Versions(tmp_path / "prefix")
    with pytest.raises(ConfigError, match="was changed on its way"):
        versions.upgrade(rewritten(file, {f"wheels/{name}": b"another"}), key, NOTHING)
    assert list(versions.prefix.iterdir()) == []


def test_a_bundle_of_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    other = Fleet(tmp_path / "other")
    with pytest.raises(ConfigError, match="was not signed by this site's fleet"):
        unpack(bundle(fleet, tmp_path, "1.0"), tmp_path, AuthorityKey(other.authority.certificate))


def test_a_bundle_for_another_machine_is_refused(
    fleet: Fleet, key: AuthorityKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bundle(fleet, tmp_path, "1.0")
    monkeypatch.setattr(bundles, "this_machine", lambda: ("3.99", "plan9-vax-other"))
    with pytest.raises(ConfigError, match=r"the bundle is for Python 3\.\d+ on .*, and this is Python 3\.99 on plan9"):
        unpack(file, tmp_path, key)


def test_names_that_lead_elsewhere_are_refused(fleet: Fleet, key: AuthorityKey, tmp_path: Path) -> None:
    """Also if the fleet has signed them."""
    file = bundle(fleet, tmp_path, "1.0")
    body = json.dumps(bundles.Bundle("1", *bundles.this_machine(), {"../../evil.whl": "00"})._asdict())
    signature = base64.b64encode(fleet.authority.sign(b"holdfast fleet bundle 1\n" + body.encode())).decode()
    manifest = json.dumps({"bundle": body, "signature": signature}).encode()
    with pytest.raises(ConfigError, match="no bundle of a fleet"):
        unpack(rewritten(file, {"manifest.json": manifest}), tmp_path, key)


def test_a_bundle_needs_holdfast_s_source(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no source of Holdfast"):
        bundles.make(tmp_path, tmp_path / "out", fleet.authority)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="there is no wheel of holdfast, or of pip, in"):
        pack(tmp_path / "empty", tmp_path / "out", fleet.authority)
    assert not (tmp_path / "out").exists()


def manifest(fleet: Fleet, file: Path, **change: object) -> Path:
    """The bundle, with a manifest that the fleet has signed."""
    with tarfile.open(file) as tar:
        stream = tar.extractfile("manifest.json")
        assert stream is not None
        given = json.loads(json.loads(stream.read())["bundle"]) | change
    body = json.dumps({key: value for key, value in given.items() if value is not None})
    signature = base64.b64encode(fleet.authority.sign(b"holdfast fleet bundle 1\n" + body.encode())).decode()
    return rewritten(file, {"manifest.json": json.dumps({"bundle": body, "signature": signature}).encode()})


def test_a_bundle_of_a_later_version_is_read_or_refused_in_a_line(
    fleet: Fleet, key: AuthorityKey, tmp_path: Path
) -> None:
    file = bundle(fleet, tmp_path, "1.0")
    place = tmp_path / "wheels"
    place.mkdir()
    assert unpack(manifest(fleet, file, later="x"), place, key).name.startswith("1.0-")
    for change in ({"files": None}, {"files": ["a.whl"]}, {"name": 7}, {"files": {"a.whl": 7}}, {"name": "../../x"}):
        with pytest.raises(ConfigError, match=r"no bundle of a fleet|another version of Holdfast"):
            unpack(manifest(fleet, file, **change), place, key)
