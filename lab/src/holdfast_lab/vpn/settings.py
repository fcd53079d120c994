"""An experiment from words: the scenario's name and what is set otherwise, KEY=VALUE.

Rules of this file: text to Experiment and nothing more; a mistake is one ConfigError line. docs/simulator.md, "The
traffic paper's scenarios", lists the keys.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.pacing.choosing import NAMES
from holdfast.pacing.policy import Thresholds
from holdfast_lab.vpn.parameters import BURST_S, Experiment, sizing

PREFIX: Final = "traffic-"
SCENARIOS: Final[Mapping[str, str]] = {
    f"{PREFIX}fixed": "The traffic paper's burst without control: client 2 overflows.",
    f"{PREFIX}weights": "The same with the paper's control, by weights: nothing overflows.",
    f"{PREFIX}backlog": "The same, rates in proportion to the queues.",
    f"{PREFIX}overflow": "The same, the first overflow as late as possible.",
    f"{PREFIX}level": "The same, the fullest queue as empty as possible.",
}
"""By name, with what each shows; each policy has one."""

assert {name.removeprefix(PREFIX) for name in SCENARIOS} == set(NAMES)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"invalid value {text!r} for {key}; expected a number") from None


def _whole(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"invalid value {text!r} for {key}; expected a whole number")
    return int(text)


def _flag(key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ConfigError(f"invalid value {text!r} for {key}; expected true or false")
    return text == "true"


def _text(key: str, text: str) -> str:
    return text


def _patterns(key: str, text: str) -> tuple[int, ...]:
    return tuple(_whole(key, part) for part in text.split(","))


def _numbers(key: str, text: str) -> tuple[float, ...]:
    return tuple(_number(key, part) for part in text.split(","))


def _thresholds(key: str, text: str) -> Thresholds:
    """`0.1:1,0.5:9`: the weight is 1 from a tenth of the queue on, and 9 from half of it on."""
    steps = []
    for part in text.split(","):
        start, colon, weight = part.partition(":")
        if not colon:
            raise ConfigError(f"invalid value {text!r} for {key}; expected UTILISATION:WEIGHT, separated by commas")
        steps.append((_number(key, start), _whole(key, weight)))
    try:
        return Thresholds(tuple(steps))
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


KEYS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "lend": ("lend", _number),
    "clients": ("clients", _whole),
    "period_s": ("period_s", _number),
    "span_s": ("span_s", _number),
    "burst": ("burst", _number),
    "burst_from_s": ("burst_s", _number),
    "burst_to_s": ("burst_s", _number),
    "bursting": ("bursting", _patterns),
    "rates": ("rates", _numbers),
    "priorities": ("priorities", _flag),
    "whole_capacity": ("whole_capacity", _flag),
    "delay_s": ("delay_s", _number),
    "loss": ("loss", _number),
    "thresholds": ("thresholds", _thresholds),
    "size": ("", _flag),
    "series_s": ("series_s", _whole),
    "network": ("network", _text),
    "fail": ("fail", _text),
    "fail_at_s": ("fail_at_s", _number),
    "repair_at_s": ("repair_at_s", _number),
    "fast_reroute": ("fast_reroute", _flag),
}
"""What may be set: the field of Experiment that it is, and how it is read. `size` searches for the size of a burst."""


def experiment(name: str, seed: int, settings: Mapping[str, str]) -> Experiment:
    """Raises ConfigError, one line, for a key that there is not or a value that it cannot have."""
    fields: dict[str, Any] = {}
    burst_s = list(BURST_S)
    searched = False
    for key, text in settings.items():
        if key not in KEYS:
            raise ConfigError(f"invalid key {key!r} to set; expected one of {', '.join(KEYS)}")
        field, read = KEYS[key]
        value = read(key, text)
        if field == "burst_s":
            burst_s[key == "burst_to_s"] = value
        elif key == "size":
            searched = value
        else:
            fields[field] = value
    found = Experiment(policy=name.removeprefix(PREFIX), seed=seed, burst_s=(burst_s[0], burst_s[1]), **fields)
    if not searched:
        return found
    for key in ("span_s", "burst_from_s", "burst_to_s"):
        if key in settings:
            raise ConfigError(f"{key} cannot be set with size=true, which chooses it; leave one of them out")
    return sizing(found, found.burst)
