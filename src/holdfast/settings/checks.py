"""What settings have in common: a value is one of some, or above 0."""

from holdfast.errors import ConfigError


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"invalid value {value!r} for {key}; expected one of {', '.join(choices)}")


def positive(key: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"invalid value {value!r} for {key}; expected a number above 0")
