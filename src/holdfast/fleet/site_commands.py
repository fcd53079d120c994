"""`holdfast fleet` at a site: enrolment by a token or by files, and the agent.

Rules of this file: a token comes from a file or standard input, never as an argument, which others on the machine could
read. Warnings and the agent's lines go to standard error.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from holdfast.client.verbs.running import Progress
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import private_files
from holdfast.fleet.agent import Agent, reload_by, retry_s
from holdfast.fleet.caller import Caller, Unreachable
from holdfast.fleet.provision import PROVISION_BYTES_MAX, Provision
from holdfast.fleet.site import SiteDirectory
from holdfast.fleet.tokens import TOKEN_CHARACTERS_MAX, Token, parse_token
from holdfast.fleet.upgrade import Versions
from holdfast.lines import say
from holdfast.names import HostPort, parse_host_port
from holdfast.units import iso8601, written

FINGERPRINT_DIGITS: Final = 64
RETRY_S: Final = 1.0
"""Seconds between two attempts to enrol."""


def enrol(args: argparse.Namespace) -> int:
    """`args`: site, token (a file, or -), retry (seconds)."""
    token = _token(args.token)
    site = SiteDirectory(Path(args.site))
    state = site.state()
    if state is not None and (state.node, state.fingerprint) != (token.node, token.fingerprint):
        # Before the token is used for the key of this directory.
        text = f"{args.site} is node {state.node!r}, and the token is for {token.node!r}, or of another fleet"
        raise ConfigError(f"{text}; give the site's own directory")
    caller = _caller(token.service, args)
    ends_at, is_told = time.monotonic() + args.retry, False
    while True:
        try:
            text = caller.enrol(site, token)
            break
        except Unreachable as error:
            if time.monotonic() >= ends_at:
                raise
            if not is_told:
                say(f"holdfast fleet enrol: {error}; trying for {written(args.retry)} s", file=sys.stderr)
                is_told = True
            time.sleep(min(RETRY_S, max(0.0, ends_at - time.monotonic())))
    _installed(site.install(text, token.fingerprint, time.time()), args.site)
    return 0


def request(args: argparse.Namespace) -> int:
    """`args`: site, out."""
    text = SiteDirectory(Path(args.site)).request()
    private_files.write(Path(args.out), text.encode())
    say(f"request: {args.out}; have it signed by `holdfast fleet sign`")
    return 0


def install(args: argparse.Namespace) -> int:
    """`args`: site, file, fingerprint."""
    fingerprint = None if args.fingerprint is None else _fingerprint(args.fingerprint)
    data = private_files.read(Path(args.file), "the provision", PROVISION_BYTES_MAX)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{args.file}: this is no provision of a fleet; make it with `holdfast fleet sign`") from None
    _installed(SiteDirectory(Path(args.site)).install(text, fingerprint, time.time()), args.site)
    return 0


def agent(args: argparse.Namespace) -> int:
    """`args`: site, once, reload. Returns only with --once."""
    site = SiteDirectory(Path(args.site))
    service = site.known().service
    caller = _caller(parse_host_port("the fleet's service", service, port_min=1), args)
    working = Agent(site, caller, reload_by("--reload", args.reload), time.time, _log)
    if args.once:
        working.step(wait=False)
        working.step(wait=False)  # a renewal or a configuration may have come: the fleet is told
        return 0
    say(f"ready site={args.site} service={service}", flush=True)
    failures, told = 0, ""
    while True:
        try:
            working.step(wait=True)
            failures, told = 0, ""
        except HoldfastError as error:
            failures += 1
            if str(error) != told:
                told = str(error)
                _log(told)
            time.sleep(retry_s(failures))


def upgrade(args: argparse.Namespace) -> int:
    """`args`: site, bundle, prefix, restart."""
    progress = Progress()
    installed = Versions(Path(args.prefix), lambda text: progress.show(lambda: text))
    key, restart = SiteDirectory(Path(args.site)).fleets_key(), reload_by("--restart", args.restart)
    try:
        name = installed.upgrade(Path(args.bundle), key, restart)
    finally:
        progress.clear()
    say(f"{installed.current} is {name}")
    return 0


def downgrade(args: argparse.Namespace) -> int:
    """`args`: prefix, restart."""
    installed = Versions(Path(args.prefix))
    name = installed.back(reload_by("--restart", args.restart))
    say(f"{installed.current} is {name}")
    return 0


def _caller(where: HostPort, args: argparse.Namespace) -> Caller:
    return Caller(where, time.time, lambda text: say(f"holdfast fleet {args.action}: warning: {text}", file=sys.stderr))


def _log(text: str) -> None:
    say(f"{iso8601(time.time_ns() // 1_000_000)} {text}", file=sys.stderr, flush=True)


def _token(file: str) -> Token:
    if file == "-":
        return parse_token(sys.stdin.readline(TOKEN_CHARACTERS_MAX + 2))
    data = private_files.read(Path(file), "the token", TOKEN_CHARACTERS_MAX + 2)
    return parse_token(data.decode("latin-1"))


def _fingerprint(text: str) -> str:
    digits = text.replace(":", "").lower()
    if len(digits) != FINGERPRINT_DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise ConfigError(f"invalid value {text!r} for --fingerprint; expected {FINGERPRINT_DIGITS} hexadecimal digits")
    return digits


def _installed(provision: Provision, site: str) -> None:
    parts = ["certificate"] if provision.certificate else []
    parts += [f"revocation list {provision.crl_number}"]
    parts += [f"configuration {provision.version}" if provision.config else "no configuration yet"]
    say(f"node {provision.node}: {', '.join(parts)}")
    if provision.config:
        say(f"start it: cd {site} && holdfast node config.toml")
