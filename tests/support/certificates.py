"""Certificates made at run time by the openssl program: an authority, and what it signs. Nothing of them outlives the
test."""

import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.node.network.certificates import Certificates

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="no openssl program; .ci/packages.sh installs it")
DAYS = 30


def _openssl(*arguments: str, given: str = "") -> None:
    assert OPENSSL is not None
    done = subprocess.run([OPENSSL, *arguments], input=given, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in files of their own, and the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates into its directory."""

    directory: Path
    name: str = "a test authority"

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.pem"

    def sign(self, name: str, *, alternatives: str = "", days: int = DAYS, stem: str = "") -> Identity:
        """A certificate whose common name is `name` (empty: it has none). `alternatives`: its subjectAltName, as
        openssl writes it. `days` below 0: it has expired."""
        base = self.directory / (stem or name or "unnamed")
        key, request, made = base.with_suffix(".key"), base.with_suffix(".csr"), base.with_suffix(".pem")
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key))
        subject = f"/CN={name}" if name else "/O=without a common name"
        _openssl("req", "-new", "-key", str(key), "-out", str(request), "-subj", subject)
        extensions = base.with_suffix(".ext")
        alternative = f"subjectAltName={alternatives}\n" if alternatives else ""
        extensions.write_text(f"basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\n{alternative}")
        if days > 0:
            _openssl(
                "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey",
                str(self.directory / "ca.key"), "-CAcreateserial", "-out", str(made), "-extfile", str(extensions),
                "-days", str(days),
            )  # fmt: skip
        else:
            self._sign_expired(request, made, extensions)
        return Identity(made, key, self.certificate)

    def _sign_expired(self, request: Path, made: Path, extensions: Path) -> None:
        """`openssl x509` gives no certificate that has ended already; `openssl ca` does."""
        (self.directory / "index.txt").write_text("")
        (self.directory / "serial").write_text("4242\n")
        config = self.directory / "ca.cnf"
        config.write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={self.directory}/index.txt\nserial={self.directory}/serial\n"
            f"new_certs_dir={self.directory}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=optional\n"
        )
        _openssl(
            "ca", "-batch", "-notext", "-config", str(config), "-cert", str(self.certificate), "-keyfile",
            str(self.directory / "ca.key"), "-in", str(request), "-out", str(made), "-extfile", str(extensions),
            "-startdate", "20200101000000Z", "-enddate", "20200102000000Z",
        )  # fmt: skip


def authority(directory: Path, name: str = "a test authority") -> Authority:
    """A new authority, with its files in `directory`, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Authority(directory, name)
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(directory / "ca.key"))
    _openssl(
        "req", "-x509", "-new", "-key", str(directory / "ca.key"), "-days", str(DAYS), "-out", str(made.certificate),
        "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    return made


LOOPBACK = "DNS:localhost,IP:127.0.0.1,IP:::1"


@functools.cache
def shared() -> Authority:
    """One authority for all tests of a process."""
    return authority(Path(tempfile.mkdtemp(prefix="holdfast-tls-")))


@functools.cache
def of_node() -> Identity:
    """A node's certificate from `shared`, good for this machine's loopback addresses."""
    return shared().sign("node", alternatives=LOOPBACK)


@functools.cache
def of_client(name: str) -> Identity:
    """A client's from `shared`."""
    return shared().sign(name, stem=f"client-{name}")


def looked(certificates: Certificates) -> bool:
    """Looks at the files as the watch does; whether others are used from now on."""
    before, made = certificates.have_changed(), certificates.look()
    if made is not None:
        certificates.use(made)
    return before and not certificates.have_changed()
