"""The verb `fleet`: certificates and configurations of a network's sites.

Rules of this file: as those of the package. The lab adds what it does with a topology on one machine.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.cli.arguments import (
    COUNT,
    POSITIVE_S,
    YEAR_S,
    Verbs,
    add_json_option,
    add_verb,
    number_of,
    some_path,
    some_text,
)
from holdfast.errors import missing_package

HOURS: Final = number_of(0.01, 24 * 366, "hours", float)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> "Verbs[argparse.ArgumentParser]":
    """Adds the verb; returns its actions, to which others may be added."""
    group = add_verb(
        verbs,
        "fleet",
        "gives the sites of a topology their certificates and configurations, or runs a topology on this machine",
        "holdfast fleet init ./fleet --topology topology.toml --service fleet.example:5670\n"
        "holdfast fleet push --dir ./fleet\n"
        "holdfast fleet token ewr --dir ./fleet --out ewr.token",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_fleet(actions)
    _add_configuration(actions)
    _add_site(actions)
    _add_software(actions)
    return actions


def _add_fleet(actions: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        actions,
        "init",
        "makes a fleet: an authority for certificates, and a directory for all that it knows of its sites",
        "holdfast fleet init ./fleet --topology topology.toml --service fleet.example:5670",
    )
    parser.add_argument(
        "dir",
        type=some_path,
        metavar="DIR",
        help="the fleet's directory, new or empty; keep it private, and copies of it",
    )
    parser.add_argument(
        "--topology",
        required=True,
        type=some_path,
        metavar="FILE",
        help="the topology, TOML; addresses begin with amqps://",
    )
    parser.add_argument(
        "--service", required=True, metavar="HOST:PORT", help="where sites will reach `holdfast fleet serve`"
    )
    _passphrase_option(parser, "the first line of this file encrypts the authority's key")
    add_json_option(parser)
    parser.set_defaults(run=_operators("init"))

    parser = add_verb(
        actions,
        "token",
        "makes a token by which a site gets its certificate, once",
        "holdfast fleet token ewr --dir ./fleet --hours 72 --out ewr.token",
    )
    _node_argument(parser)
    _dir_option(parser)
    parser.add_argument(
        "--hours", type=HOURS, default=24.0, metavar="H", help="how long it may be used (default %(default)g)"
    )
    parser.add_argument(
        "--out", type=some_path, metavar="FILE", help="write it to this file, for its owner alone (default: print it)"
    )
    add_json_option(parser)
    parser.set_defaults(run=_operators("token"))

    parser = add_verb(
        actions,
        "serve",
        "runs the enrolment service, which sites ask for certificates and configurations",
        "holdfast fleet serve --dir ./fleet --listen 0.0.0.0:5670",
    )
    _dir_option(parser)
    parser.add_argument("--listen", metavar="HOST:PORT", help="default: all addresses, and the port of --service")
    _passphrase_option(parser)
    parser.set_defaults(run=_operators("serve"))

    parser = add_verb(
        actions,
        "list",
        "lists the sites: certificate, configuration, when each was seen",
        "holdfast fleet list --dir ./fleet",
    )
    _dir_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("list_sites"))

    parser = add_verb(
        actions,
        "revoke",
        "revokes a site's certificates and its token; the other nodes end its connections",
        "holdfast fleet revoke ewr --dir ./fleet",
    )
    _node_argument(parser)
    _dir_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("revoke"))

    parser = add_verb(
        actions,
        "sign",
        "makes the file that a site without a way to the service installs",
        "holdfast fleet sign ewr ewr.csr --dir ./fleet --out ewr.provision",
    )
    _node_argument(parser)
    parser.add_argument(
        "request",
        nargs="?",
        type=some_path,
        metavar="REQUEST",
        help="the file of `request` at the site (default: no new certificate)",
    )
    _dir_option(parser)
    parser.add_argument("--out", required=True, type=some_path, metavar="FILE", help="the file for the site")
    _passphrase_option(parser)
    parser.set_defaults(run=_operators("sign"))


def _add_configuration(actions: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        actions,
        "push",
        "makes the sites' configurations from the topology and the files in sites/, checks them, and hands them out",
        "holdfast fleet push --dir ./fleet --wait 60",
    )
    _dir_option(parser)
    _wait_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("push"))

    parser = add_verb(
        actions,
        "rollback",
        "hands out an earlier version of the configurations",
        "holdfast fleet rollback --dir ./fleet --to 3",
    )
    _dir_option(parser)
    parser.add_argument("--to", type=COUNT, metavar="VERSION", help="the version (default: the one before)")
    _wait_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("rollback"))

    parser = add_verb(
        actions, "versions", "lists the versions of the configurations", "holdfast fleet versions --dir ./fleet"
    )
    _dir_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("show_versions"))


def _add_software(actions: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        actions,
        "bundle",
        "makes a file with this version of Holdfast and all that it needs, for sites without internet",
        "holdfast fleet bundle holdfast.bundle --source ./holdfast --dir ./fleet",
    )
    parser.add_argument(
        "out", type=some_path, metavar="FILE", help="the file; it is for machines and a Python like these"
    )
    _dir_option(parser)
    parser.add_argument(
        "--source", required=True, type=some_path, metavar="DIR", help="the directory of Holdfast's source"
    )
    _passphrase_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_operators("bundle"))

    parser = add_verb(
        actions,
        "upgrade",
        "at a site: installs a bundle beside the version that runs, switches to it, and goes back if that fails",
        "holdfast fleet upgrade holdfast.bundle --site /var/lib/holdfast --prefix /opt/holdfast",
    )
    parser.add_argument("bundle", type=some_path, metavar="FILE", help="the file of `bundle`")
    _site_option(parser)
    _prefix_options(parser)
    parser.set_defaults(run=_sites("upgrade"))

    parser = add_verb(
        actions,
        "downgrade",
        "at a site: switches to the version before the last upgrade",
        "holdfast fleet downgrade --prefix /opt/holdfast --restart 'systemctl restart holdfast'",
    )
    _prefix_options(parser)
    parser.set_defaults(run=_sites("downgrade"))


def _prefix_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix",
        required=True,
        type=some_path,
        metavar="DIR",
        help="where the versions are; the node runs DIR/current/bin/holdfast",
    )
    parser.add_argument(
        "--restart", metavar="COMMAND",
        help="run this after the switch; if it fails, switch back. No shell reads it (default: nothing)",
    )  # fmt: skip


def _add_site(actions: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        actions,
        "enrol",
        "at a site: gets its certificate and configuration by a token",
        "holdfast fleet enrol ewr.token --site /var/lib/holdfast",
    )
    parser.add_argument("token", type=some_path, metavar="FILE", help="the file with the token; - reads standard input")
    _site_option(parser)
    parser.add_argument(
        "--retry", type=YEAR_S, default=60.0, metavar="S",
        help="how long to try while the service does not answer (default %(default)g); asking again costs nothing",
    )  # fmt: skip
    parser.set_defaults(run=_sites("enrol"))

    parser = add_verb(
        actions,
        "agent",
        "at a site: takes up what its fleet changes, and renews the certificate in time",
        "holdfast fleet agent --site /var/lib/holdfast --reload 'holdfast reload --retry 30'",
    )
    _site_option(parser)
    parser.add_argument("--once", action="store_true", help="ask once, and end")
    parser.add_argument(
        "--reload",
        metavar="COMMAND",
        help="run this when the configuration has changed; it must fail if the node refuses that. No shell reads it "
        "(default: nothing)",
    )
    parser.set_defaults(run=_sites("agent"))

    parser = add_verb(
        actions,
        "request",
        "at a site without a way to the service: makes its key, and a file to be signed",
        "holdfast fleet request --site /var/lib/holdfast --out ewr.csr",
    )
    _site_option(parser)
    parser.add_argument(
        "--out", required=True, type=some_path, metavar="FILE", help="the file for `sign`; it has no secret"
    )
    parser.set_defaults(run=_sites("request"))

    parser = add_verb(
        actions,
        "install",
        "at a site without a way to the service: installs what `sign` has made",
        "holdfast fleet install ewr.provision --site /var/lib/holdfast",
    )
    parser.add_argument("file", type=some_path, metavar="FILE", help="the file of `sign`")
    _site_option(parser)
    parser.add_argument(
        "--fingerprint", metavar="DIGITS", help="of the fleet's authority, as `init` printed it; needed the first time"
    )
    parser.set_defaults(run=_sites("install"))


def _node_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", type=some_text, metavar="NODE", help="the node's name")


def _dir_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", default=".", type=some_path, metavar="DIR", help="the fleet's directory (default: this one)"
    )


def _site_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site", default=".", type=some_path, metavar="DIR", help="the site's directory (default: this one)"
    )


def _passphrase_option(
    parser: argparse.ArgumentParser, does: str = "of the authority's key, in the first line"
) -> None:
    parser.add_argument("--passphrase-file", type=some_path, metavar="FILE", help=does)


def _wait_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=POSITIVE_S, metavar="S", help="wait up to S seconds until all sites have it; exit 1 if not"
    )


# ----------------------------------------------------------------------------------- run, lazily imported


def _operators(name: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        with _cryptography():
            from holdfast.fleet import commands

        command: Callable[[argparse.Namespace], int] = getattr(commands, name)
        return command(args)

    return run


def _sites(name: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        with _cryptography():
            from holdfast.fleet import site_commands

        command: Callable[[argparse.Namespace], int] = getattr(site_commands, name)
        return command(args)

    return run


@contextmanager
def _cryptography() -> Iterator[None]:
    """What is imported needs it; ConfigError where it is not installed."""
    try:
        yield
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        raise missing_package("cryptography", "'.[fleet]'") from None
