"""Verbs of other distributions: each is an entry point of the group `holdfast.verbs`, named as its verb.

Rules of this file: an entry point is a function that adds the verb's parser to the subparsers, as `serving.add_node`
does, and imports nothing that takes time. Installed distributions are looked at only for a verb that is not ours.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli import fleet
from holdfast.cli.arguments import Parser, Verbs
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "holdfast.verbs"
DISTRIBUTIONS: Final = {
    "pipeline": ("pyspark-holdfast", "./spark"),
    "sim": ("holdfast-lab", "./lab"),
    "demo": ("holdfast-lab", "./lab"),
}
"""Verbs of Holdfast's other distributions, in the order that help shows: whose each is, and where its source is."""
FLEET: Final = "fleet"
"""Our verb to which the lab adds actions: its entry point adds the verb with all of them."""
FLEET_ON_THIS_MACHINE: Final = ("up", "down", "status", "cut", "heal", "stop", "start")
"""Those of the lab."""


def add_installed(verbs: "Verbs[argparse.ArgumentParser]", words: Sequence[str] | None = None) -> None:
    """Adds the verbs that installed distributions bring; with `words`, those that this command line needs.

    Exits with code 2 and one line, as for a mistake in the words, if they need a distribution that is not installed.
    Raises HoldfastError if an entry point cannot be loaded.
    """
    verb = None if words is None else next((word for word in words if not word.startswith("-")), None)
    if verb in verbs.choices or (words is not None and verb is None and "--version" in words):
        return
    from importlib.metadata import entry_points  # takes longer than the whole grammar

    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    owner = _owner(verb, words or ())
    if owner is not None and verb not in found:
        name, source = owner
        how = f"`make setup`, or by `pip install {source}` in the directory of Holdfast's source"
        Parser(prog=f"holdfast {verb}").error(f"distribution {name!r} is not installed; install it by {how}")
    ours = [FLEET, *(name for name in DISTRIBUTIONS if name in found)]
    others = sorted(found.keys() - DISTRIBUTIONS.keys() - verbs.choices.keys() - {FLEET})
    for name in [verb] if verb in found or verb == FLEET else [*ours, *others]:
        if name in found:
            _load(found[name])(verbs)
        else:
            fleet.add(verbs)


def _owner(verb: str | None, words: Sequence[str]) -> tuple[str, str] | None:
    """The distribution that a command line needs beside ours."""
    if verb == FLEET and any(word in FLEET_ON_THIS_MACHINE for word in words[words.index(FLEET) + 1 :][:1]):
        return DISTRIBUTIONS["sim"]
    return DISTRIBUTIONS.get(verb or "")


def _load(entry: "EntryPoint") -> "Callable[[Verbs[argparse.ArgumentParser]], None]":
    try:
        add: Callable[[Verbs[argparse.ArgumentParser]], None] = entry.load()
    except (ImportError, AttributeError) as error:
        owner = "a distribution" if entry.dist is None else entry.dist.name
        raise HoldfastError(f"{owner}: its verb {entry.name!r} cannot be loaded ({error})") from error
    return add
