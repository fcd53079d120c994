"""The verbs of one node: node, reload, store.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb, host_and_port, some_path


def add_node(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "node",
        "runs a node in the foreground",
        "holdfast node --name ewr --listen 127.0.0.1:5672 --data ./ewr.holdfast\nholdfast node ewr.toml",
    )
    parser.add_argument(
        "config",
        nargs="?",
        type=some_path,
        metavar="CONFIG.toml",
        help="configuration, TOML (options win over it); without one any address that a client names becomes a "
        "durable queue",
    )
    parser.add_argument("--name", metavar="N", help="the node's name (default: the host's)")
    parser.add_argument(
        "--listen",
        type=host_and_port,
        metavar="HOST:PORT",
        help="the address to listen on (default 127.0.0.1:5672), amqps://HOST:PORT for TLS; port 0 chooses a free port",
    )
    parser.add_argument(
        "--data", type=some_path, metavar="DIR", help="the directory of the store (default ./NAME.holdfast)"
    )
    parser.set_defaults(run=_run_node)


def add_reload(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "reload",
        "has a node read its configuration again; prints what changed, and what waits for a restart",
        "holdfast reload --url amqp://127.0.0.1:5672",
    )
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_reload)


def add_store(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "store",
        "checks, compacts, backs up and restores a node's store",
        "holdfast store backup /var/lib/holdfast /backup/monday\nholdfast store check /backup/monday",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "check",
        "reads everything in a stopped node's store, or in a backup, and prints what is wrong",
        "holdfast store check /var/lib/holdfast --json",
    )
    parser.add_argument("data", type=some_path, metavar="DIR", help="the store's directory")
    _store_options(parser)
    parser = add_verb(
        actions,
        "compact",
        "rewrites a stopped node's store without its free space",
        "holdfast store compact /var/lib/holdfast",
    )
    parser.add_argument("data", type=some_path, metavar="DIR", help="the store's directory")
    _store_options(parser)
    parser = add_verb(
        actions,
        "backup",
        "copies a store as it is at this moment, also while the node runs",
        "holdfast store backup /var/lib/holdfast /backup/monday",
    )
    parser.add_argument("data", type=some_path, metavar="DIR", help="the store's directory")
    parser.add_argument(
        "to", type=some_path, metavar="TO", help="the directory of the backup, which must not exist yet"
    )
    _store_options(parser)
    parser = add_verb(
        actions,
        "restore",
        "creates a new store, with a new UUID, from a backup",
        "holdfast store restore /backup/monday /var/lib/holdfast",
    )
    parser.add_argument("source", type=some_path, metavar="FROM", help="a backup, or a stopped node's store")
    parser.add_argument(
        "data", type=some_path, metavar="DIR", help="the directory of the new store, which must not hold one yet"
    )
    _store_options(parser)


def _store_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)
    parser.set_defaults(run=_run_store)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_node(args: argparse.Namespace) -> int:
    from holdfast.node.command import run_node

    return run_node(args)


def _run_reload(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.reload import reload

    return reload(args)


def _run_store(args: argparse.Namespace) -> int:
    from holdfast.storage.commands import store

    return store(args)
