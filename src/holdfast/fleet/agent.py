"""The agent of a site: asks its fleet for changes, renews its certificate, installs what comes.

Rules of this file: it needs no port of its own, because the site asks and the answer waits. A failure is an error, and
whoever calls tries again; the node goes on with what it has.
"""

import shlex
import subprocess
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet.caller import Caller
from holdfast.fleet.provision import Provision
from holdfast.fleet.site import SiteDirectory

RELOAD_S_MAX: Final = 60.0
RETRY_S: Final = 5.0
"""After a failure; doubled each time, up to RETRY_S_MAX."""
RETRY_S_MAX: Final = 300.0


class Reload(NamedTuple):
    """How the node is told that something has changed: a command with its arguments, as `option` gives it, or
    nothing."""

    option: str
    words: tuple[str, ...]

    def run(self) -> None:
        """HoldfastError with what the command said where it failed."""
        if not self.words:
            return
        where = f"{self.option}: {self.words[0]!r}"
        try:
            done = subprocess.run(self.words, capture_output=True, text=True, timeout=RELOAD_S_MAX, check=False)
        except OSError as error:
            raise ConfigError(f"{where} cannot be run ({error.strerror}); give a command") from None
        except subprocess.TimeoutExpired:
            raise HoldfastError(f"{where} has not ended in {RELOAD_S_MAX:g} s") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise HoldfastError(f"{where} ended with {done.returncode}: {said[-1] if said else 'it said nothing'}")


def reload_by(option: str, command: str | None) -> Reload:
    """That command, split as a shell does; None: nothing is run. ConfigError where it is none."""
    try:
        words = () if command is None else tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"invalid value {command!r} for {option} ({error}); expected a command") from None
    if command is not None and not words:
        raise ConfigError(f"invalid value '' for {option}; expected a command")
    return Reload(option, words)


class Agent:
    """Of one site. `log` takes a line for a person."""

    def __init__(
        self,
        site: SiteDirectory,
        caller: Caller,
        reload: Reload,
        clock: Callable[[], float],
        log: Callable[[str], None],
    ) -> None:
        self._site = site
        self._caller = caller
        self._reload = reload
        self._clock = clock
        self._log = log
        self._problem = ""

    def step(self, *, wait: bool) -> None:
        """Asks once, and does what is to be done. HoldfastError where that fails."""
        answer = self._caller.changes(self._site, self._said(), wait=wait)
        if answer.get("renew") is True:
            self._install(self._caller.renew(self._site, self._said()))
        elif isinstance(answer.get("provision"), str):
            self._install(answer["provision"])

    def _said(self) -> dict[str, Any]:
        """What the fleet's list shows of the site."""
        state = self._site.known()
        return {"version": state.version, "crl_number": state.crl_number, "problem": self._problem}

    def _install(self, text: str) -> None:
        before = self._site.known()
        try:
            provision = self._site.install(text, None, self._clock())
            self._tell(provision, before.version)
            if provision.version != before.version:
                self._reload_node(before.version)
            self._problem = ""
        except HoldfastError as error:
            self._problem = str(error)
            raise
        except OSError as error:  # of the disk: there may be room for it later
            self._problem = f"{error.filename or self._site.path}: {error.strerror or error}"
            raise HoldfastError(self._problem) from None

    def _reload_node(self, version: int) -> None:
        """If the node refuses the new configuration, that of before is in its place again."""
        try:
            self._reload.run()
        except HoldfastError:
            self._site.restore(version)
            raise

    def _tell(self, provision: Provision, version: int) -> None:
        if provision.certificate:
            self._log("a new certificate is installed")
        if provision.version != version:
            self._log(f"configuration {provision.version} is installed")


def retry_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(RETRY_S_MAX, RETRY_S * float(1 << min(failures - 1, 10)))
