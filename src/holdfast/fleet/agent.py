"""The agent of a site: asks its fleet for changes, renews its certificate, installs what it receives.

Rules of this file: it needs no port of its own, because the site asks and the answer waits. A failure is an error, and
the caller tries again; the node continues with what it has.
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
"""The wait after a failure; it doubles each time, up to RETRY_S_MAX."""
RETRY_S_MAX: Final = 300.0


class Reload(NamedTuple):
    """Notifies the node of a change: a command with its arguments, given by `option`, or nothing."""

    option: str
    words: tuple[str, ...]

    def run(self) -> None:
        """Runs the command. HoldfastError with its output if it fails."""
        if not self.words:
            return
        where = f"{self.option}: {self.words[0]!r}"
        try:
            done = subprocess.run(
                self.words, capture_output=True, text=True, errors="replace", timeout=RELOAD_S_MAX, check=False
            )
        except OSError as error:
            raise ConfigError(f"{where} cannot be run ({error.strerror}); give a command") from None
        except subprocess.TimeoutExpired:
            raise HoldfastError(f"{where} has not ended in {RELOAD_S_MAX:g} s") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise HoldfastError(f"{where} ended with {done.returncode}: {said[-1] if said else 'it said nothing'}")


def reload_by(option: str, command: str | None) -> Reload:
    """The command, split as a shell splits it; None: nothing is run. ConfigError if it is invalid."""
    try:
        words = () if command is None else tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"invalid value {command!r} for {option} ({error}); expected a command") from None
    if command is not None and not words:
        raise ConfigError(f"invalid value '' for {option}; expected a command")
    return Reload(option, words)


class Agent:
    """The agent of one site. `log` takes a line for a person."""

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
        """Asks once, and carries out the answer. HoldfastError if that fails."""
        try:
            self._reload_node()  # an agent that was ended in between has not done so
            answer = self._caller.changes(self._site, self._said(), wait=wait)
            if answer.get("renew") is True:
                self._install(self._caller.renew(self._site, self._said()))
            elif isinstance(answer.get("provision"), str):
                self._install(answer["provision"])
        except OSError as error:  # of the disk: there may be room for it later
            self._problem = f"{error.filename or self._site.path}: {error.strerror or error}"
            raise HoldfastError(self._problem) from None

    def _said(self) -> dict[str, Any]:
        """The site's report, which `holdfast fleet list` shows."""
        state = self._site.known()
        return {"version": state.version, "crl_number": state.crl_number, "problem": self._problem}

    def _install(self, text: str) -> None:
        before = self._site.known()
        try:
            provision = self._site.install(text, None, self._clock(), reloads=True)
        except HoldfastError as error:
            self._problem = str(error)
            raise
        self._tell(provision, before.version)
        self._reload_node()
        self._problem = ""

    def _reload_node(self) -> None:
        """Makes the node reload, if there is a configuration that it does not have. If it refuses that, restores the
        previous one."""
        state = self._site.known()
        if state.version == state.applied:
            return
        try:
            self._reload.run()
        except HoldfastError as error:
            self._problem = str(error)
            self._site.restore(state.applied)
            raise
        self._site.has_applied()

    def _tell(self, provision: Provision, version: int) -> None:
        if provision.certificate:
            self._log("a new certificate is installed")
        if provision.version != version:
            self._log(f"configuration {provision.version} is installed")


def retry_s(failures: int) -> float:
    """The wait after this many consecutive failures."""
    return min(RETRY_S_MAX, RETRY_S * float(1 << min(failures - 1, 10)))
