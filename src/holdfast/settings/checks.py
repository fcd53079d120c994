"""What settings have in common: a value is one of some, or above 0, or the name in a certificate."""

from holdfast.errors import ConfigError
from holdfast.names import host_problem


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"invalid value {value!r} for {key}; expected one of {', '.join(choices)}")


def positive(key: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigError(f"invalid value {value!r} for {key}; expected a number above 0")


def server_name_with(where: str, name: str | None, *, tls: bool) -> None:
    """Of what is dialled: whose certificate it must have, with TLS alone."""
    if name is not None and not tls:
        raise ConfigError(f"{where} has server_name without TLS; begin its remote with amqps://, or remove it")
    if name is not None and (problem := host_problem(name)):
        text = f"invalid value {name[:80]!r} for {where} server_name, with {problem}"
        raise ConfigError(f"{text}; expected the name in its certificate")
