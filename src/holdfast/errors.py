"""The families of errors (docs/ARCHITECTURE.md, "Errors").

An ordinary outcome (rejected, expired, refused) is a value, never an exception. What a person sees of any of
these is one line: what was found, where, what is accepted.
"""


class HoldfastError(Exception):
    """Base of everything that Holdfast raises on purpose."""


class LocalProtocolError(HoldfastError):
    """We used the protocol wrongly: a defect of the caller, never of the peer."""


class RemoteProtocolError(HoldfastError):
    """The peer broke the protocol; `condition` is the AMQP error condition that it is told (§2.8.15 to 2.8.18)."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class StorageError(HoldfastError):
    """The store could not do what was asked; after a failed write or sync the node stops rather than guess."""


class StorageFull(StorageError):
    """Nothing of the batch was written, for want of space; its retirements may be run again alone."""


class BrokenInvariant(HoldfastError):
    """What the node holds in memory or in its store contradicts itself: it ends before it can store the damage."""


class ConfigError(HoldfastError):
    """A mistake of the user's: file, key or address, what was found, what is accepted. Exit code 2."""


def missing_package(name: str | None) -> ConfigError:
    """For a package of other people's that an optional part of Holdfast needs, and that is not installed."""
    how = "`make setup`, or by `pip install '.[demo]'` in the directory of Holdfast's source"
    return ConfigError(f"package {name!r}: not found; install it by {how}")
