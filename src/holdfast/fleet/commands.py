"""`holdfast fleet` for an operator: the fleet's directory, tokens, the service, certificates and configurations.

Rules of this file: answers go to standard output. A token is printed, or written to a private file, when it is made;
no other secret is printed.
"""

import argparse
import asyncio
import getpass
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from holdfast import __version__
from holdfast.client.verbs.running import Progress
from holdfast.columns import counted, table
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import bundle as bundles
from holdfast.fleet import private_files, tokens, versions
from holdfast.fleet.authority import Authority, fingerprint, read_request
from holdfast.fleet.directory import FleetDirectory, certify, create, provision_for
from holdfast.fleet.register import Register, Site, TokenRecord
from holdfast.fleet.service import Service
from holdfast.fleet.tokens import Token
from holdfast.lines import json_line, say
from holdfast.names import parse_host_port
from holdfast.node.passwords import password_in
from holdfast.units import iso8601

HOUR_S: Final = 3_600
PASSPHRASE_CHARACTERS_MIN: Final = 8
REQUEST_BYTES_MAX: Final = 64 * 1024
LEFT: Final = "the topology does not have it any more"
NAMED_MAX: Final = 3
"""Sites that are named in a line of progress."""
LOOK_S: Final = 0.5
"""Seconds between two looks of `push --wait`; sites report to the service, which is a different process."""


def init(args: argparse.Namespace) -> int:
    """`args`: dir, topology, service, passphrase_file, json."""
    service = parse_host_port("--service", args.service, port_min=1)
    passphrase = _passphrase(args.passphrase_file)
    if passphrase is not None and len(passphrase) < PASSPHRASE_CHARACTERS_MIN:
        raise ConfigError(f"the passphrase is too short; expected at least {PASSPHRASE_CHARACTERS_MIN} characters")
    found = create(Path(args.dir), Path(args.topology), service, passphrase)
    if args.json:
        say(json_line({"directory": args.dir, "fingerprint": found}))
        return 0
    say(f"fleet {args.dir} is made", f"fingerprint of its authority: {found}")
    return 0


def token(args: argparse.Namespace) -> int:
    """`args`: dir, node, hours, out, json."""
    fleet = FleetDirectory(Path(args.dir))
    secret = tokens.new_secret()
    ends_s = int(time.time() + args.hours * HOUR_S)
    with fleet.changing() as register:
        fleet.hosts_of(register, args.node)
        site = register.sites.setdefault(args.node, Site())
        site.token = TokenRecord(tokens.secret_hash(secret), ends_s)
        where = parse_host_port("the fleet's service", register.service, port_min=1)
        text = Token(args.node, where, fingerprint(fleet.authority_certificate()), secret).text()
        if args.out is not None:  # before the register: while it cannot be written, the token of before stays good
            private_files.write(Path(args.out), text.encode() + b"\n", private_files.PRIVATE)
    until = iso8601(ends_s * 1_000)
    if args.json:
        told = {"node": args.node, "ends": until} | ({"token": text} if args.out is None else {"file": args.out})
        say(json_line(told))
    elif args.out is None:
        say(text)
        say(f"holdfast fleet token: for node {args.node}, once, until {until}", file=sys.stderr)
    else:
        say(f"token for node {args.node}, once, until {until}: {args.out}")
    return 0


def serve(args: argparse.Namespace) -> int:
    """`args`: dir, listen, passphrase_file. 0 after SIGTERM or SIGINT."""
    fleet = FleetDirectory(Path(args.dir))
    service = parse_host_port("the fleet's service", fleet.register().service, port_min=1)
    where = (
        service._replace(host="0.0.0.0")
        if args.listen is None
        else parse_host_port("--listen", args.listen, port_min=0)
    )
    authority = _authority(fleet, args.passphrase_file)

    def log(text: str) -> None:
        say(f"{iso8601(time.time_ns() // 1_000_000)} {text}", file=sys.stderr, flush=True)

    async def run() -> None:
        serving = Service(fleet, authority, __version__, log)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.stop)
        await serving.run(where, lambda place: say(f"ready fleet={args.dir} service={place}", flush=True))

    asyncio.run(run())
    return 0


def list_sites(args: argparse.Namespace) -> int:
    """`args`: dir, json."""
    fleet = FleetDirectory(Path(args.dir))
    register, now_s = fleet.register(), time.time()
    names = {node.name for node in fleet.topology_of(register).nodes}
    rows = [_row(name, site, now_s, stays=name in names) for name, site in sorted(register.sites.items())]
    if args.json:
        say(json_line({"version": register.version, "crl_number": register.crl_number, "sites": rows}))
        return 0
    heads = ("node", "certificate", "until", "version", "software", "seen", "problem")
    say(*table(heads, [[row[head] for head in heads] for row in rows]))
    say("", f"version {register.version} of the configuration holds")
    return 0


def revoke(args: argparse.Namespace) -> int:
    """`args`: dir, node, json."""
    fleet = FleetDirectory(Path(args.dir))
    now_s = int(time.time())
    with fleet.changing() as register:
        site = _site(register, args.node)
        ended = [each for each in site.certificates if not each.revoked_s and each.ends_s > now_s]
        for each in site.certificates:
            each.revoked_s = each.revoked_s or now_s
        site.token = None
        register.crl_number += 1
    serials = [each.serial for each in ended]
    if args.json:
        say(json_line({"node": args.node, "revoked": serials, "crl_number": register.crl_number}))
        return 0
    what = f"{counted(len(serials), 'certificate')} of {args.node} revoked, and its token"
    say(f"{what}; sites learn it from revocation list {register.crl_number}")
    return 0


def sign(args: argparse.Namespace) -> int:
    """`args`: dir, node, request (None: no certificate), out, passphrase_file."""
    fleet = FleetDirectory(Path(args.dir))
    asked = None
    if args.request is not None:
        data = private_files.read(Path(args.request), "the request", REQUEST_BYTES_MAX)
        asked = read_request(data.decode("latin-1"))
    authority = _authority(fleet, args.passphrase_file)
    with fleet.changing() as register:
        _site(register, args.node)
        certificate, now_s = "", time.time()
        if asked is not None:
            certificate = certify(fleet, register, authority, args.node, asked, now_s).pem
        text = provision_for(fleet, register, authority, args.node, certificate, now_s)
    private_files.write(Path(args.out), text.encode())
    say(f"provision of node {args.node}: {args.out}; install it at the site by `holdfast fleet install`")
    return 0


def push(args: argparse.Namespace) -> int:
    """`args`: dir, wait (seconds or None), json."""
    fleet = FleetDirectory(Path(args.dir))
    return _show(fleet, versions.push(fleet), args)


def rollback(args: argparse.Namespace) -> int:
    """`args`: dir, to (version or None), wait (seconds or None), json."""
    fleet = FleetDirectory(Path(args.dir))
    return _show(fleet, versions.roll_back(fleet, args.to), args)


def bundle(args: argparse.Namespace) -> int:
    """`args`: dir, out, source, passphrase_file, json."""
    fleet = FleetDirectory(Path(args.dir))
    authority = _authority(fleet, args.passphrase_file)
    progress = Progress()
    progress.show(lambda: "pip makes the wheels")
    try:
        made = bundles.make(Path(args.source), Path(args.out), authority)
    finally:
        progress.clear()
    if args.json:
        say(json_line({**made._asdict(), "file": args.out}))
        return 0
    what = f"{counted(len(made.files), 'wheel')} for Python {made.python} on {made.machine}"
    say(f"bundle {made.name}: {args.out}, {what}", "install it at a site by `holdfast fleet upgrade`")
    return 0


def _show(fleet: FleetDirectory, pushed: versions.Pushed, args: argparse.Namespace) -> int:
    for text in pushed.warnings:
        say(f"holdfast fleet {args.action}: warning: {text}", file=sys.stderr)
    late = [] if args.wait is None else _await_sites(fleet, args.wait)
    if args.json:
        say(json_line({**pushed._asdict(), "late": late}))
    elif not pushed.changed and not pushed.left:
        say(f"nothing has changed: version {pushed.version} holds")
    else:
        say(f"version {pushed.version} holds; changed: {', '.join(pushed.changed) or 'none'}")
        for what, names in (("new", pushed.joined), ("no longer in the topology", pushed.left)):
            if names:
                say(f"{what}: {', '.join(names)}")
    if late:
        text = f"version {pushed.version} is not installed at {', '.join(late)}"
        raise HoldfastError(f"{text}; `holdfast fleet list` says when each was seen, and what its problem is")
    return 0


def _await_sites(fleet: FleetDirectory, within_s: float) -> list[str]:
    """Waits for the sites. Returns the enrolled sites that have not reported the current version in time."""
    end, progress = time.monotonic() + within_s, Progress()
    while True:
        register = fleet.register()
        names = {node.name for node in fleet.topology_of(register).nodes}
        enrolled = {name: site for name, site in register.sites.items() if name in names and site.latest() is not None}
        late = sorted(name for name, site in enrolled.items() if site.version != register.version)
        if not late or time.monotonic() >= end:
            progress.clear()
            return late
        text = f"waiting for {counted(len(late), 'site')}: {', '.join(late[:NAMED_MAX])}"
        progress.show(lambda text=text: text)  # type: ignore[misc]
        time.sleep(LOOK_S)


def _row(name: str, site: Site, now_s: float, *, stays: bool) -> dict[str, Any]:
    """`stays`: the topology has the node."""
    latest = site.latest()
    problem = site.problem
    if not stays:
        problem = LEFT if latest is None or latest.ends_s <= now_s else f"{LEFT}; `holdfast fleet revoke {name}`"
    if latest is None:
        token_waits = site.token is not None and site.token.ends_s > now_s
        state = "revoked" if site.certificates else "token given" if token_waits else "none"
    else:
        state = "good" if latest.ends_s > now_s else "ended"
    return {
        "node": name,
        "certificate": state,
        "until": None if latest is None else iso8601(latest.ends_s * 1_000),
        "version": site.version if site.seen_s else None,
        "software": site.software or None,
        "seen": iso8601(site.seen_s * 1_000) if site.seen_s else None,
        "problem": problem or None,
    }


def _site(register: Register, node: str) -> Site:
    site = register.sites.get(node)
    if site is None:
        raise HoldfastError(f"there is no site {node!r} in this fleet; `holdfast fleet list` shows which there are")
    return site


def _authority(fleet: FleetDirectory, passphrase_file: str | None) -> Authority:
    passphrase = _passphrase(passphrase_file)
    if passphrase is None and fleet.has_passphrase() and sys.stdin.isatty():
        passphrase = getpass.getpass("passphrase of the authority's key: ").encode()
    return fleet.authority(passphrase)


def _passphrase(file: str | None) -> bytes | None:
    return None if file is None else password_in("--passphrase-file", file).encode()


def show_versions(args: argparse.Namespace) -> int:
    """`args`: dir, json."""
    fleet = FleetDirectory(Path(args.dir))
    register = fleet.register()
    rows = [_version_row(fleet, register, number) for number in versions.versions(fleet)]
    if args.json:
        say(json_line(rows))
        return 0
    cells: Iterable[list[object]] = ([row["version"], row["made"], "holds" if row["holds"] else None] for row in rows)
    say(*table(("version", "made", ""), cells))
    return 0


def _version_row(fleet: FleetDirectory, register: Register, number: int) -> dict[str, Any]:
    made_ms = fleet.version_files(number).stat().st_mtime_ns // 1_000_000
    return {"version": number, "made": iso8601(made_ms), "holds": number == register.version}
