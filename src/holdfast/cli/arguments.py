"""What the verbs have in common: how mistakes are reported, types of values, options of clients.

Rules of this file: it only uses argparse; each type says what is wrong and what is expected. It knows no verb.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn
from uuid import UUID

from holdfast.lines import one_line

DEFAULT_URL: Final = "amqp://127.0.0.1:5672"

NEAR: Final = 0.8
"""How similar an option in the wrong place has to be to one that is known there."""
ALIKE: Final = 0.7
"""How similar an unknown option has to be to one that is suggested: every verb has many short ones."""
NONE: Final = "none"
"""As an option: no limit."""
SHOWN_MAX: Final = 1e16
"""A maximum above this is named only to a user who exceeded it."""

Verbs = argparse._SubParsersAction  # the type that add_subparsers returns has no public name


class Parser(argparse.ArgumentParser):
    """A mistake is one line that names the verb and suggests what may have been meant, except hidden options. A verb
    with actions that is given none shows its help on standard error, with exit code 2.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_parsing = False

    def _print_message(self, message: str, file: Any = None) -> None:
        """OSError where standard output takes no help, which argparse keeps to itself. Standard error may be gone: not
        every argparse of 3.11 expects that."""
        if file is not sys.stdout:
            with suppress(OSError):
                super()._print_message(message, file)
            return
        try:
            file.write(message)
        except OSError as error:
            error.filename = "standard output"
            raise

    def error(self, message: str) -> NoReturn:
        message = re.sub(r": ignored explicit argument (.*)$", r" takes no value; remove \1", message)
        self.exit(2, one_line(f"{self.prog}: {message.removeprefix('argument ')}") + "\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if self._subparsers is not None and not given:  # a verb without an action is a question, not a mistake
            self.print_help(sys.stderr)
            self.exit(2)
        if self._subparsers is not None and given[0].startswith("--") and given[0] != "--":
            self._check_first(given[0].partition("=")[0])
        if self._is_parsing:  # a step of the intermixed way
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            if self._subparsers is None:  # options may stand before an argument that may be left out too
                parsed, extra = self.parse_known_intermixed_args(args, namespace)
            else:
                parsed, extra = super().parse_known_args(args, namespace)
        finally:
            self._is_parsing = False
        if extra:
            self._refuse(extra)
        return parsed, extra

    def _check_first(self, option: str) -> None:
        """An option before a verb or an action: argparse would say that the verb is missing."""
        if option not in self._option_string_actions:
            text = f"unknown option {option}; options of a command stand behind it"
            self.error(text + _meant(option, self._option_string_actions, NEAR))

    def _refuse(self, extra: Sequence[str]) -> NoReturn:
        option = next((text.partition("=")[0] for text in extra if text.startswith("-")), None)
        if option is None:
            self.error(f"unexpected argument {extra[0]!r}; remove it")
        known = [
            name
            for action in self._actions
            for name in action.option_strings
            if action.help is not argparse.SUPPRESS and name.startswith("--")
        ]
        self.error(f"unknown option {option}; expected one that --help lists{_meant(option, known, ALIKE)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            names = [str(choice.dest) for choice in action._choices_actions]
        where = argparse._get_action_name(action)
        meant = _meant(str(value), [*names, "--help"] if self._subparsers is not None else names)
        text = f"expected one of {', '.join(names)}{meant}"
        raise argparse.ArgumentError(None, f"invalid value {value!r} for {where}; {text}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse has it, with the option named where the complaint about its value does not."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            complaint = f"invalid value {arg_string!r}"
            if not error.message.startswith(complaint):
                raise
            text = f"{complaint} for {error.argument_name}{error.message.removeprefix(complaint)}"
            raise argparse.ArgumentError(None, text) from None


def _meant(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    import difflib  # a node never needs it

    names = {name.removeprefix("--"): name for name in known}  # two short options are not alike for their dashes
    near = difflib.get_close_matches(given.removeprefix("--"), names, n=1, cutoff=cutoff)
    return f"; did you mean {names[near[0]]}?" if near else ""


def number_of(low: float, high: float, what: str, kind: type = int, *, above: bool = False) -> Callable[[str], float]:
    """An argparse type: a number within [low, high], in the unit that `what` names; `above`: not `low` itself."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high or (above and value == low):
            from holdfast.units import written  # a command without a mistake does not load it

            within = f"{written(low)} to {written(high)}"
            if high > SHOWN_MAX:  # a number that nobody has in mind, unless it is passed
                within = f"at most {high}" if value is not None and value > high else f"at least {written(low)}"
            if above:
                within = f"above {written(low)} and up to {written(high)}"
            raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected {what}, {within}")
        return float(value) if kind is float else int(value)

    return parse


def or_none(kind: Callable[[str], float]) -> Callable[[str], float | str]:
    """An argparse type: as that, or `none` for no limit."""

    def read(text: str) -> float | str:
        if text == NONE:
            return NONE
        try:
            return kind(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or {NONE}") from None

    return read


WHOLE_MAX: Final = (1 << 63) - 1
"""As in a node's file (holdfast/schema.py)."""
COUNT: Final = number_of(1, WHOLE_MAX, "a whole number")
SEQUENCE: Final = number_of(1, (1 << 64) - 1, "a sequence")
BYTES: Final = number_of(1, WHOLE_MAX, "a number of bytes")
SEED: Final = number_of(0, WHOLE_MAX, "a seed")
SECONDS: Final = number_of(0, 1e9, "seconds", float)
POSITIVE_S: Final = number_of(0, 1e9, "seconds", float, above=True)
YEAR_S: Final = number_of(0, 86_400 * 365, "seconds", float)
QUIET_S: Final = number_of(0, 86_400 * 365, "seconds", float, above=True)
PART: Final = number_of(0, 1, "a part of the limits", float, above=True)
RATE: Final = number_of(0, 1e9, "messages a second", float, above=True)
TTL_S: Final = number_of(0, 4_294_967, "seconds", float, above=True)
"""AMQP counts milliseconds in 32 bits (§3.2.1)."""
SIZE: Final = number_of(0, 64 * 1024 * 1024, "a number of bytes")


PATHS: Final = frozenset(
    {
        "bundle", "ca_file", "certificate_file", "checkpoint", "config", "data", "dir", "file", "files", "folder",
        "journal", "key_file", "out", "passphrase_file", "password_file", "prefix", "request", "scenario", "serial",
        "site", "source", "to", "token", "topology",
    }
)  # fmt: skip
"""Arguments that name files, of which the system takes any bytes. All others are text."""


def not_utf8(args: argparse.Namespace) -> str | None:
    """The error for text that cannot be encoded in UTF-8; None if it can."""
    for name, value in vars(args).items():
        for text in value if isinstance(value, list) else [value]:
            for part in text if isinstance(text, tuple) else [text]:
                if isinstance(part, str) and name not in PATHS and not _is_utf8(part):
                    return f"invalid value {part!r} for {name.replace('_', '-')}; expected text in UTF-8"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def some(what: str) -> Callable[[str], str]:
    """An argparse type: text, not empty."""

    def parse(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(f"invalid value ''; expected {what}")
        return text

    return parse


some_text: Final = some("a name")
some_path: Final = some("a path")
"""The path of a file or directory: an empty one would be the current directory."""


def uuid_text(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected a UUID") from None


def key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected KEY=VALUE")
    return key, value


def host_and_port(text: str) -> str:
    host, colon, port = text.removeprefix("amqps://").rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected HOST:PORT, port 0 to 65535")
    return text


def add_verb(verbs: "Verbs[argparse.ArgumentParser]", name: str, does: str, example: str) -> argparse.ArgumentParser:
    return verbs.add_parser(
        name,
        help=does,
        description=does[0].upper() + does[1:] + ".",
        epilog="example:\n" + "\n".join(f"  {line}" for line in example.splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_client_options(parser: argparse.ArgumentParser, *, retry_s: float) -> None:
    parser.add_argument(
        "--url",
        default=DEFAULT_URL,
        metavar="URL",
        help="the node, amqp://user:password@host:port or amqps://… (default %(default)s); a user without a password "
        "makes the command ask for it",
    )
    parser.add_argument(
        "--vhost",
        metavar="NAME",
        help="the virtual host at the node, as /NAME behind the URL's port (default the user's)",
    )
    parser.add_argument(
        "--password-file", type=some_path, metavar="FILE", help="read the password from the first line of this file"
    )
    parser.add_argument(
        "--ca-file",
        type=some_path,
        metavar="FILE",
        help="for amqps: the authorities that may have signed the node's certificate, PEM",
    )
    parser.add_argument(
        "--certificate-file",
        type=some_path,
        metavar="FILE",
        help="for amqps: a certificate to show the node, PEM; without a user in the URL it is the login",
    )
    parser.add_argument(
        "--key-file", type=some_path, metavar="FILE", help="the certificate's key, PEM (default in the same file)"
    )
    parser.add_argument(
        "--server-name", metavar="NAME", help="for amqps: the name in the node's certificate (default the URL's host)"
    )
    parser.add_argument(
        "--sasl",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "EXTERNAL", "ANONYMOUS"),
        metavar="MECHANISM",
        help="log in by this mechanism alone (default: PLAIN over TLS and on this machine, otherwise SCRAM, which does "
        "not send the password; EXTERNAL with a certificate and no user)",
    )
    parser.add_argument(
        "--retry",
        type=SECONDS,
        default=retry_s,
        metavar="S",
        help="give up after S seconds without a working connection; 0 tries once (default %(default)g)",
    )


def add_json_option(parser: argparse.ArgumentParser, what: str = "the answer as JSON") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def message_arguments(parser: argparse.ArgumentParser) -> None:
    """The options for every message that `send` or `feed` makes of a line."""
    parser.add_argument("--subject", metavar="S", help="the subject of every message")
    parser.add_argument("--subject-from", metavar="COLUMN", help="take the subject from this column or JSON key")
    parser.add_argument(
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        metavar="K=V",
        help="an application property of every message; may be repeated",
    )
    parser.add_argument("--ttl", type=TTL_S, metavar="S", help="time to live: messages expire after S seconds")
    parser.add_argument(
        "--priority",
        type=number_of(0, 255, "a priority"),
        metavar="P",
        help="the priority of every message, 0 to 255 (default 4)",
    )
