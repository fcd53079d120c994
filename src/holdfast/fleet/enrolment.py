"""The answers of the enrolment service: a certificate for a site with a token, a new certificate for a site that has
one, and the fleet's changes.

Rules of this file: no sockets and no clock. Everything from a site is bounded and checked. A caller without a token's
secret or a certificate's key learns nothing about any site.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cryptography import x509

from holdfast.engine.allowance import Allowance
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import tokens
from holdfast.fleet.authority import Authority, Request, read_request
from holdfast.fleet.directory import Busy, FleetDirectory, certify, provision_for
from holdfast.fleet.register import DAY_S, LAPSED_DAYS_MAX, CertificateRecord, Register, Site
from holdfast.fleet.site import AuthorityKey
from holdfast.fleet.wire import signed_part
from holdfast.lines import one_line
from holdfast.schema import is_whole_within

FAILURES_AT_ONCE: Final = 5
FAILURES_PER_S: Final = 1 / 60
"""Failed requests per second that one address may make; further ones are refused unread."""
ADDRESSES_MAX: Final = 1_000
"""The maximum number of addresses with failed requests; further ones count as one address."""
TEXT_MAX: Final = 300
RENEW_SHARE: Final = 1 / 3
"""A site is asked to renew when this share of its certificate's lifetime is left."""
_NO_HASH: Final = tokens.secret_hash("")
NO_TOKEN: Final = "the token is not good here (unknown, used or ended); ask for a new one: holdfast fleet token"
NO_SITE: Final = "the site is not known by this certificate (revoked, ended or of another fleet); ask for a token"
FAILED: Final = "the service cannot answer now; its operator finds the reason in its log"
TOO_MANY: Final = "too many requests of this address have failed; wait a minute"


class Refused(HoldfastError):
    """The request is refused; the text is for the requester."""


class Unknown(Refused):
    """As Refused, for a requester that may be guessing."""


class Answered(NamedTuple):
    """The answer, as a value for JSON, and a line for the operator's log, or an empty one. `waits`: the site asks to be
    answered when something has changed."""

    answer: dict[str, Any]
    log: str = ""
    waits: bool = False


class Failures:
    """Recent failed requests by address."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Allowance, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, address: str, now: float) -> Allowance | None:
        """The remaining allowance of the address; None for an address without failed requests."""
        if len(self._known) >= ADDRESSES_MAX or "" in self._known:
            quiet_s = FAILURES_AT_ONCE / FAILURES_PER_S
            self._known = {each: known for each, known in self._known.items() if now - known[1] < quiet_s}
        known = self._known.get(address) or self._known.get("")
        return None if known is None else known[0]

    def add(self, address: str, now: float) -> None:
        """Adds an address that `of` does not know, after its first failed request."""
        counted = address if len(self._known) < ADDRESSES_MAX else ""
        allowance = Allowance(now, per_s=FAILURES_PER_S, burst=FAILURES_AT_ONCE)
        allowance.count(now)
        self._known[counted] = allowance, now


class Enrolment:
    """Answers the requests of sites. `software` is the version of Holdfast that runs."""

    def __init__(self, fleet: FleetDirectory, authority: Authority, software: str) -> None:
        self._fleet = fleet
        self._authority = authority
        self._software = software
        self._failures = Failures()

    def answer(self, line: bytes, nonce: str, address: str, now_s: float, now: float) -> Answered:
        """The answer to one request; Busy while another command changes the fleet. `nonce`: the nonce of this
        connection; `address`: the peer's, without a port; `now_s` since 1970, `now` monotonic."""
        told = {"time_s": int(now_s), "software": self._software}
        failures = self._failures.of(address, now)
        if failures is not None and not failures.count(now):
            return Answered({**told, "refused": TOO_MANY})
        counts = False
        try:
            done = self._answer(line, nonce, now_s)
        except Refused as error:
            counts = isinstance(error, Unknown)
            done = Answered({"refused": str(error)}, f"refused a request: {error}")
        except Busy:
            if failures is not None:
                failures.give_back()
            raise
        except HoldfastError as error:  # of the fleet's own files: whoever asks is not told their names
            done = Answered({"refused": FAILED}, f"cannot answer a request: {error}")
        except OSError as error:
            where = error.filename or self._fleet.path
            done = Answered({"refused": FAILED}, f"cannot answer a request: {where}: {error.strerror or error}")
        if counts and failures is None:
            self._failures.add(address, now)
        elif not counts and failures is not None:
            failures.give_back()
        return done._replace(answer={**told, **done.answer}, log=f"{done.log} (from {address})" if done.log else "")

    # --------------------------------------------------------------------------------------------- requests

    def _answer(self, line: bytes, nonce: str, now_s: float) -> Answered:
        request = _parsed(line)
        match request.get("do"):
            case "authority":
                return Answered({"authority": self._authority.pem})
            case "enrol":
                return self._enrol(request, now_s)
            case "renew" | "sync":
                return self._known(request, nonce, now_s)
        raise Refused("the request is none that this service knows; upgrade the site, or the service")

    def _enrol(self, request: Mapping[str, Any], now_s: float) -> Answered:
        node, secret = _text(request, "node"), _text(request, "secret")
        with self._fleet.changing(waits=False) as register:
            site = register.sites.get(node)
            token = None if site is None else site.token
            fits = tokens.fits(secret, _NO_HASH if token is None else token.secret_hash)
            if site is None or token is None or not fits:
                raise Unknown(NO_TOKEN)
            if token.ends_s <= now_s:
                raise Refused("the token has ended; ask for a new one: holdfast fleet token")
            asked = _asked(request)
            if token.key_hash and token.key_hash != asked.key_hash:
                raise Refused("the token was used already, for another key; ask for a new one: holdfast fleet token")
            record = self._certified(register, node, asked, now_s)
            token.key_hash = asked.key_hash
            provision = provision_for(self._fleet, register, self._authority, node, record.pem, now_s)
        return Answered({"provision": provision}, f"enrolled {node}, certificate {record.serial}")

    def _certified(self, register: Register, node: str, asked: Request, now_s: float) -> CertificateRecord:
        try:
            return certify(self._fleet, register, self._authority, node, asked, now_s)
        except ConfigError:
            raise
        except HoldfastError as error:  # about this site alone
            raise Refused(str(error)) from None

    def _known(self, request: Mapping[str, Any], nonce: str, now_s: float) -> Answered:
        """Answers a request that a site has signed with the key of its certificate."""
        body = _text(request, "body")
        with self._fleet.changing(waits=False) as register:
            node, site, shown = self._signed(register, request, body, nonce)
            asked = _parsed(body.encode())
            if shown.ends_s + LAPSED_DAYS_MAX * DAY_S <= now_s:
                raise Refused(
                    f"the certificate ended more than {LAPSED_DAYS_MAX} days ago; ask for a token: holdfast fleet token"
                )
            self._heard(site, asked, now_s)
            if request["do"] == "renew":
                record = self._certified(register, node, _asked(asked), now_s)
                provision = provision_for(self._fleet, register, self._authority, node, record.pem, now_s)
                return Answered({"provision": provision}, f"renewed {node}, certificate {record.serial}")
            changed = self._changed(register, site, node, shown, asked, now_s)
            waits = asked.get("wait") is True and changed == {"renew": False}
            return Answered(changed, waits=waits)

    def _signed(
        self, register: Register, request: Mapping[str, Any], body: str, nonce: str
    ) -> tuple[str, Site, CertificateRecord]:
        """The site that signed the request, and its certificate."""
        serial = _text(request, "serial")
        found = (
            (node, site, each)
            for node, site in register.sites.items()
            for each in site.certificates
            if each.serial == serial
        )
        node, site, shown = next(found, ("", Site(), None))
        try:
            signature = base64.b64decode(_text(request, "signature"), validate=True)
        except (ValueError, binascii.Error):
            signature = b""
        if shown is None or shown.revoked_s:
            raise Unknown(NO_SITE)
        key = AuthorityKey(x509.load_pem_x509_certificate(shown.pem.encode()))
        if not key.verified(signature, signed_part(nonce, request["do"], body)):
            raise Unknown(NO_SITE)
        return node, site, shown

    def _heard(self, site: Site, asked: Mapping[str, Any], now_s: float) -> None:
        site.seen_s = int(now_s)
        for name in ("version", "crl_number"):
            if is_whole_within(asked.get(name), 0, 1 << 53):
                setattr(site, name, asked[name])
        for name in ("software", "problem"):
            if isinstance(asked.get(name), str):
                setattr(site, name, one_line(asked[name])[:TEXT_MAX])

    def _changed(
        self,
        register: Register,
        site: Site,
        node: str,
        shown: CertificateRecord,
        asked: Mapping[str, Any],
        now_s: float,
    ) -> dict[str, Any]:
        """The changes that the site does not have yet."""
        left_s, whole_s = shown.ends_s - now_s, shown.ends_s - shown.made_s
        in_force = self._fleet.topology_of(register).node(node)
        hosts = shown.hosts if in_force is None else self._fleet.hosts_of(register, node)
        renew = in_force is not None and (left_s < whole_s * RENEW_SHARE or shown.hosts != hosts)
        is_current = (site.version, site.crl_number) == (register.version, register.crl_number)
        if is_current or in_force is None:
            return {"renew": renew}
        return {"renew": renew, "provision": provision_for(self._fleet, register, self._authority, node, "", now_s)}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise Refused("the request is no JSON object; use `holdfast fleet`")
    return request


def _asked(request: Mapping[str, Any]) -> Request:
    try:
        return read_request(_text(request, "request"))
    except ConfigError as error:
        raise Refused(str(error)) from None


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not _is_utf8(value):
        raise Refused(f"the request has no {name}; use `holdfast fleet`")
    return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
