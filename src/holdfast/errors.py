"""The families of errors (docs/ARCHITECTURE.md, "Errors").

An ordinary outcome (rejected, expired, refused) is a value, never an exception. Each of these is shown to people as one
line: what is wrong, where, and what to do or what is expected.
"""


class HoldfastError(Exception):
    """The base of all errors that Holdfast raises on purpose."""


class LocalProtocolError(HoldfastError):
    """The program used the protocol wrongly: a defect of the caller, never of the peer."""


class RemoteProtocolError(HoldfastError):
    """The peer broke the protocol. `condition` is the AMQP error condition (§2.8.15 to 2.8.18) to answer with."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        """What is wrong, without the condition."""


class StorageError(HoldfastError):
    """The store, or a spool, failed. After a failed write or sync a node stops."""


class StorageFull(StorageError):
    """Nothing of the batch was written, because there is no space; its retirements may be committed alone."""


class BrokenInvariant(HoldfastError):
    """The state of the node in memory or in its store contradicts itself: the node stops before it can store the
    damage."""


class ConfigError(HoldfastError):
    """A mistake in a file, an option or an argument. The text says what is wrong and what is expected."""


class Stopped(HoldfastError):
    """A signal ended a command, and what it left is to be said. `code`: its exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def missing_package(name: str | None, install: str) -> ConfigError:
    """For a package that a part of Holdfast needs, and that is not installed. `install` is what pip is given."""
    how = f"`make setup`, or by `pip install {install}` in the directory of Holdfast's source"
    return ConfigError(f"package {name!r} is not installed; install it by {how}")
