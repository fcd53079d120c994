"""Fleets for tests: a directory with an authority and a topology of two nodes, sites beside it, and answers without
sockets."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from holdfast.fleet import tokens
from holdfast.fleet.authority import Authority
from holdfast.fleet.directory import FleetDirectory, create
from holdfast.fleet.enrolment import Enrolment
from holdfast.fleet.register import DAY_S, Site, TokenRecord
from holdfast.fleet.site import SiteDirectory
from holdfast.fleet.versions import push
from holdfast.fleet.wire import line, signed_part
from holdfast.names import HostPort

TWO = """
[[node]]
name = "hub"
address = "amqps://10.0.0.1:5671"

[[node]]
name = "ewr"

[[link]]
from = "ewr"
to = "hub"
kind = "tls"
"""
NONCE = "a nonce"


class Fleet:
    """A fleet, whose configuration was pushed, and its service without sockets. `now_s` is its clock."""

    def __init__(self, directory: Path, topology: str = TWO, service: str = "127.0.0.1:5670") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.place = directory
        file = directory / "given.toml"
        file.write_text(topology, encoding="utf-8")
        host, _, port = service.rpartition(":")
        self.fingerprint = create(directory / "fleet", file, HostPort(host, int(port)), None)
        self.directory = FleetDirectory(directory / "fleet")
        push(self.directory)
        self.enrolment = Enrolment(self.directory, self.authority, "0.1.0")
        self.now_s = time.time()

    @property
    def authority(self) -> Authority:
        return self.directory.authority(None)

    def site(self, node: str) -> SiteDirectory:
        return SiteDirectory(self.place / "sites" / node)

    def token(self, node: str, *, days: float = 1) -> str:
        """The secret of a new token."""
        secret = tokens.new_secret()
        with self.directory.changing() as register:
            ends_s = int(self.now_s + days * DAY_S)
            register.sites.setdefault(node, Site()).token = TokenRecord(tokens.secret_hash(secret), ends_s)
        return secret

    def ask(self, request: dict[str, Any], *, address: str = "10.0.0.9", nonce: str = NONCE) -> dict[str, Any]:
        answer = self.enrolment.answer(line(request), nonce, address, self.now_s, self.now_s).answer
        assert json.loads(line(answer)) == answer
        return answer

    def enrol(self, node: str, secret: str, *, address: str = "10.0.0.9") -> dict[str, Any]:
        request = self.site(node).request()
        return self.ask({"do": "enrol", "node": node, "secret": secret, "request": request}, address=address)

    def enrolled(self, node: str) -> SiteDirectory:
        """A site that has its certificate."""
        answer = self.enrol(node, self.token(node))
        site = self.site(node)
        site.install(answer["provision"], self.fingerprint, self.now_s)
        return site

    def signed(self, node: str, do: str, *, nonce: str = NONCE, **said: Any) -> dict[str, Any]:
        """The answer to a request that the site signs. `nonce`: what it signs."""
        site = self.site(node)
        state = site.known()
        body = json.dumps({"version": state.version, "crl_number": state.crl_number, **said})
        signature = base64.b64encode(site.sign(signed_part(nonce, do, body))).decode()
        serial = f"{site.certificate().serial_number:x}"
        return self.ask({"do": do, "serial": serial, "body": body, "signature": signature})
