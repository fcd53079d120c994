"""Versions of Holdfast side by side on a site's machine: an upgrade installs a new one and switches to it, and switches
back if the node does not start with it.

Rules of this file: nothing is installed from a network. A version that runs is never changed: `current` is a symbolic
link, which is replaced atomically; what is complete is not installed again; and nothing is removed before a restart, as
the node may run any of the versions until then.
"""

import os
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast import durable
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import bundle as bundles
from holdfast.fleet.agent import Reload
from holdfast.fleet.provision import Verifier

INSTALL_S_MAX: Final = 600.0
COMPLETE: Final = ".complete"
"""A file in an environment whose installation has ended well."""


class Versions:
    """The versions in `prefix`, each in its own environment; `current` is a link to the one that the node runs,
    `previous` to the one that it ran before."""

    def __init__(self, prefix: Path, report_step: Callable[[str], None] = lambda text: None) -> None:
        """`report_step` is called with a line before each step that may take long."""
        self.prefix = prefix
        self.current = prefix / "current"
        self._previous = prefix / "previous"
        self._report_step = report_step

    def name(self) -> str | None:
        """The name of the current version."""
        return os.readlink(self.current) if self.current.is_symlink() else None

    def upgrade(self, file: Path, verifier: Verifier, restart: Reload) -> str:
        """Installs the bundle, switches to it and restarts the node; returns its name. HoldfastError if that fails; the
        node then runs the previous version."""
        self.prefix.mkdir(parents=True, exist_ok=True)
        with durable.changing(self.prefix):
            before = self.name()
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=self.prefix) as wheels:
                name = bundles.unpack(file, Path(wheels), verifier).name
                if name == before:
                    raise ConfigError(f"{name} is the current version; nothing has changed")
                if not self._is_complete(name):
                    self._install(name, Path(wheels))
            self._switch(name, before, restart)
            if before is not None:
                _link(self._previous, before)
            if restart.words:
                self._remove_all_but(name, before)
            return name

    def back(self, restart: Reload) -> str:
        """Switches to the previous version; returns its name."""
        if not self.prefix.is_dir():
            raise ConfigError(f"{self.prefix} is no directory; give the one of `holdfast fleet upgrade`")
        with durable.changing(self.prefix):
            before, target = self.name(), os.readlink(self._previous) if self._previous.is_symlink() else None
            if before is None or target is None or not (self.prefix / target).is_dir():
                raise HoldfastError(f"there is no version before the current one in {self.prefix}; use a bundle")
            self._switch(target, before, restart)
            _link(self._previous, before)
            return target

    def _is_complete(self, name: str) -> bool:
        """Whether the version is installed: its name is of the content of its wheels."""
        place = self.prefix / name
        is_previous = self._previous.is_symlink() and os.readlink(self._previous) == name  # perhaps without the mark
        return place.is_dir() and (is_previous or (place / COMPLETE).exists())

    def _install(self, name: str, wheels: Path) -> None:
        """Makes an environment with only these wheels. It is made at its final path, because its scripts contain the
        path."""
        self._report_step(f"pip installs {name}")
        place = self.prefix / name
        shutil.rmtree(place, ignore_errors=True)  # of an upgrade that was ended
        try:
            venv.create(place, with_pip=False, symlinks=True)
            # Without what the environment variables of this process name: pip would take it for installed.
            python = [str(place / "bin" / "python"), "-E", "-s"]
            (installer,) = wheels.glob("pip-*.whl")
            pip = [*python, str(installer / "pip"), "--disable-pip-version-check", "install", "--quiet", "--no-index"]
            _run([*pip, "--find-links", str(wheels), "holdfast[fleet]"], "the wheels cannot be installed")
            _run([*python, str(place / "bin" / "holdfast"), "--version"], "the new version does not run")
            (place / COMPLETE).touch()
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _switch(self, name: str, before: str | None, restart: Reload) -> None:
        _link(self.current, name)
        if restart.words:
            self._report_step(f"{name} is current; {restart.words[0]} restarts the node")
        try:
            restart.run()
        except HoldfastError as error:
            if before is None:
                raise HoldfastError(f"{error}; {self.current} is {name}: there is no version to go back to") from None
            _link(self.current, before)
            try:
                restart.run()
            except HoldfastError as again:
                raise HoldfastError(f"{error}; back at {before}, which does not start either: {again}") from None
            raise HoldfastError(f"{error}; the node runs with {before} again") from None

    def _remove_all_but(self, *kept: str | None) -> None:
        for place in self.prefix.iterdir():
            if place.is_dir() and not place.is_symlink() and place.name not in kept and (place / "pyvenv.cfg").exists():
                shutil.rmtree(place)


def _link(link: Path, target: str) -> None:
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=INSTALL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HoldfastError(f"{failure} ({error})") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise HoldfastError(f"{failure}: {said[-1] if said else 'no reason was given'}")
