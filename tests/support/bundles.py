"""Bundles of Holdfast as this checkout has it, under any version, with what it needs as that is installed here.

Rules of this file: no network. A wheel is a zip file with three files of metadata (PEP 427).
"""

import importlib.metadata
import shutil
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement

from holdfast.fleet.authority import Authority
from holdfast.fleet.bundle import pack
from support.documents import ROOT

NOT_PACKED = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


def make(directory: Path, version: str, pip: Path, authority: Authority) -> Path:
    """A signed bundle. `pip`: its wheel."""
    wheels = directory / f"wheels-{version}"
    wheels.mkdir()
    shutil.copy(pip, wheels)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for each in needs:
        _installed(wheels, Requirement(each).name)
    _own(wheels, version, needs)
    out = directory / f"{version}.bundle"
    pack(wheels, out, authority)
    shutil.rmtree(wheels)
    return out


def _own(wheels: Path, version: str, needs: list[str]) -> None:
    """Without what the extra `fleet` needs: 16 MB that a node does not load."""
    source = ROOT / "src"
    files = {str(file.relative_to(source)): file.read_bytes() for file in sorted((source / "holdfast").rglob("*.py"))}
    given = files["holdfast/__init__.py"].decode()
    own = given.partition("__version__")[0] + f'__version__ = "{version}"\n'
    files["holdfast/__init__.py"] = own.encode()
    asked = "".join(f"Requires-Dist: {each}\n" for each in needs)
    info = f"holdfast-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: holdfast\nVersion: {version}\nProvides-Extra: fleet\n{asked}".encode()
    )
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nholdfast = holdfast.__main__:main\n"
    _write(wheels / f"holdfast-{version}-py3-none-any.whl", info, files)


def _installed(wheels: Path, name: str) -> None:
    """The wheel of a distribution of this environment, made of its files."""
    found = importlib.metadata.distribution(name)
    tag = "py3-none-any"
    files = {}
    for each in found.files or []:
        place = Path(str(each))
        if ".." not in place.parts and "__pycache__" not in place.parts and place.name not in NOT_PACKED:
            files[str(each)] = Path(str(found.locate_file(each))).read_bytes()
        if place.name == "WHEEL":
            tags = found.read_text("WHEEL") or ""
            tag = next(line.partition(": ")[2] for line in tags.splitlines() if line.startswith("Tag: "))
    info = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    _write(wheels / f"{info.removesuffix('.dist-info')}-{tag}.whl", info, files)


def _write(wheel: Path, info: str, files: Mapping[str, bytes]) -> None:
    record = f"{info}/RECORD"
    with zipfile.ZipFile(wheel, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
        made.writestr(record, "".join(f"{name},,\n" for name in (*files, record)))
