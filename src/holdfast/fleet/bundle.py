"""A bundle: a version of Holdfast with all its dependencies, for sites without internet, signed by the fleet's
authority.

Rules of this file: a bundle is a tar file of wheels and a manifest, which has the hash of each and is what is signed. A
bundle is verified completely before any part of it is used.
"""

import base64
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet.authority import Authority
from holdfast.fleet.provision import Verifier
from holdfast.units import MIB

WHEELS_MAX: Final = 200
WHEEL_BYTES_MAX: Final = 512 * MIB
MANIFEST_BYTES_MAX: Final = MIB
COLLECT_S_MAX: Final = 1_800.0
_MANIFEST: Final = "manifest.json"
_WHEELS: Final = "wheels/"
_CONTEXT: Final = b"holdfast fleet bundle 1\n"
_NONE: Final = "this is no bundle of a fleet; make it with `holdfast fleet bundle`"


class Bundle(NamedTuple):
    """The manifest of a bundle. `name`: the version of Holdfast, with a suffix that distinguishes two builds of it."""

    name: str
    python: str
    machine: str
    files: Mapping[str, str]


def this_machine() -> tuple[str, str]:
    """The properties that wheels may depend on: Python's version, and the machine with its libraries."""
    libc = "glibc" if platform.libc_ver()[0] == "glibc" else "other"
    return (
        f"{sys.version_info.major}.{sys.version_info.minor}",
        f"{platform.system()}-{platform.machine()}-{libc}".lower(),
    )


def collect(source: Path, wheels: Path) -> None:
    """Runs pip to put wheels into `wheels`: of Holdfast's source, of its dependencies, and of pip, which installs
    them."""
    if not (source / "pyproject.toml").exists():
        raise ConfigError(f"{source} is no source of Holdfast; give the directory of its pyproject.toml")
    constraints = source / "constraints.txt"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--quiet",
        "--wheel-dir",
        str(wheels),
    ]
    command += ["-c", str(constraints)] if constraints.exists() else []
    try:
        done = subprocess.run(
            [*command, "pip", f"{source.resolve()}[fleet]"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COLLECT_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HoldfastError(f"pip has not ended in {COLLECT_S_MAX:g} s; look at the connection to its index") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise HoldfastError(f"pip cannot make the wheels: {said[-1] if said else 'it said nothing'}")


def pack(wheels: Path, out: Path, authority: Authority) -> Bundle:
    """Writes the bundle of the wheels in that directory. ConfigError if Holdfast is not among them."""
    files = {path.name: _hash_of(path) for path in sorted(wheels.glob("*.whl"))}
    own = next((name for name in files if name.startswith("holdfast-")), None)
    if own is None or sum(name.startswith("pip-") for name in files) != 1:
        raise ConfigError(
            f"there is no wheel of holdfast, or of pip, in {wheels}; give the directory of Holdfast's source"
        )
    python, machine = this_machine()
    name = f"{own.split('-')[1]}-{hashlib.sha256(json.dumps(files).encode()).hexdigest()[:8]}"
    bundle = Bundle(name, python, machine, files)
    body = json.dumps(bundle._asdict())
    signature = base64.b64encode(authority.sign(_CONTEXT + body.encode())).decode()
    manifest = json.dumps({"bundle": body, "signature": signature}).encode()
    new = out.with_name(f".{out.name}.new")
    try:
        with tarfile.open(new, "w") as tar:
            entry = tarfile.TarInfo(_MANIFEST)
            entry.size = len(manifest)
            tar.addfile(entry, io.BytesIO(manifest))
            for file in files:
                tar.add(wheels / file, _WHEELS + file, recursive=False)
        new.replace(out)
    finally:
        new.unlink(missing_ok=True)
    return bundle


def make(source: Path, out: Path, authority: Authority) -> Bundle:
    with tempfile.TemporaryDirectory(prefix="holdfast-bundle-") as place:
        collect(source, Path(place))
        return pack(Path(place), out, authority)


def unpack(file: Path, into: Path, verifier: Verifier) -> Bundle:
    """Puts the wheels into the directory `into`, and returns the manifest. ConfigError if the fleet has not signed the
    bundle, or if it is for a different kind of machine."""
    try:
        with tarfile.open(file, "r:") as tar:
            bundle = _manifest(tar, verifier)
            _check_machine(bundle)
            for name, digest in bundle.files.items():
                _extract(tar, name, digest, into)
    except (tarfile.TarError, EOFError):
        raise ConfigError(f"{file}: {_NONE}") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    return bundle


def _manifest(tar: tarfile.TarFile, verifier: Verifier) -> Bundle:
    entry = tar.next()
    if entry is None or entry.name != _MANIFEST or not entry.isfile() or entry.size > MANIFEST_BYTES_MAX:
        raise ConfigError(_NONE)
    try:
        whole = json.loads(_stream(tar, entry).read())
        body, signature = whole["bundle"].encode(), base64.b64decode(whole["signature"], validate=True)
        is_signed = verifier.verified(signature, _CONTEXT + body)
        given: dict[str, Any] = json.loads(body) if is_signed else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(_NONE) from None
    if not is_signed:
        raise ConfigError("the bundle was not signed by this site's fleet, or was changed on its way; get it again")
    return _bundle(given)


def _bundle(given: dict[str, Any]) -> Bundle:
    """A later version may have added fields; those that this one needs must be there."""
    name, python, machine, files = (given.get(key) for key in Bundle._fields)
    if not (isinstance(name, str) and isinstance(python, str) and isinstance(machine, str) and isinstance(files, dict)):
        raise ConfigError("another version of Holdfast made the bundle; make one with the version before")
    is_plain = all("/" not in file and file.endswith(".whl") and isinstance(files[file], str) for file in files)
    if "/" in name or name.startswith(".") or len(files) > WHEELS_MAX or not is_plain:
        raise ConfigError(_NONE)
    return Bundle(name, python, machine, files)


def _check_machine(bundle: Bundle) -> None:
    python, machine = this_machine()
    if (bundle.python, bundle.machine) != (python, machine):
        theirs, ours = f"Python {bundle.python} on {bundle.machine}", f"Python {python} on {machine}"
        raise ConfigError(f"the bundle is for {theirs}, and this is {ours}; make one on such a machine")


def _extract(tar: tarfile.TarFile, name: str, digest: str, into: Path) -> None:
    try:
        entry = tar.getmember(_WHEELS + name)
    except KeyError:
        raise ConfigError(f"{name} is missing in it; get it again") from None
    if not entry.isfile() or entry.size > WHEEL_BYTES_MAX:
        raise ConfigError(f"{name} is no file of at most {WHEEL_BYTES_MAX} bytes; get it again")
    target = into / name
    with _stream(tar, entry) as stream, target.open("xb") as copy:
        while part := stream.read(MIB):
            copy.write(part)
    if _hash_of(target) != digest:
        raise ConfigError(f"{name} was changed on its way; get it again")


def _stream(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(entry)
    assert stream is not None
    return stream


def _hash_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
