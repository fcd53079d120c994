"""A provider's network as a file (TOML; docs/mpls.md): routers, sites, hosts, links, VPNs.

Rules of this file: text to a NetworkFile and nothing more. Every mistake is one ConfigError line: the file, the table,
the key, what is wrong, what is expected. Sizes are bounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from itertools import pairwise
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.text_files import read_text, toml_of
from holdfast.units import written
from holdfast_lab.mpls.igp import ROUTERS_MAX, Timers

FILE_BYTES_MAX: Final = 1_000_000
HOSTS_MAX: Final = 3_100
LINKS_MAX: Final = 10_000
VPNS_MAX: Final = 1_000
PREFIXES_MAX: Final = 10_000
NAME_MAX: Final = 64

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Both directions alike."""

    one: str
    other: str
    bits_per_s: float
    delay_s: float
    buffer_bytes: int
    cost: float


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """A CE router. `prefixes` are routed to it."""

    name: str
    pe: str
    vpn: str
    prefixes: tuple[IPv4Network, ...]


@dataclass(frozen=True, slots=True)
class HostSpec:
    """`at`: a CE router, or a PE router, and then of a VPN itself."""

    name: str
    at: str
    vpn: str
    address: IPv4Address


@dataclass(frozen=True, slots=True)
class VpnSpec:
    name: str
    rd: str
    imports: tuple[str, ...]
    exports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """`root` and `clients`: the hosts of the traffic paper's experiment, empty where the file names none."""

    name: str
    timers: Timers
    fast_reroute: bool
    p: tuple[str, ...]
    pe: tuple[str, ...]
    sites: tuple[SiteSpec, ...]
    hosts: tuple[HostSpec, ...]
    links: tuple[LinkSpec, ...]
    vpns: tuple[VpnSpec, ...]
    root: str
    clients: tuple[str, ...]


TABLES: Final = ("shows", "routing", "p", "pe", "ce", "host", "vpn", "link", "traffic")
PACKAGED: Final = ("paper", "extranet")
"""Files of this package, known by name."""


def read_network(name: str) -> NetworkFile:
    """A packaged network by its name, or a file by its path. Raises ConfigError."""
    if name in PACKAGED:
        text = files("holdfast_lab.mpls").joinpath("networks", f"{name}.toml").read_text(encoding="utf-8")
    elif "/" in name or name.endswith(".toml"):
        text = read_text("network", name, FILE_BYTES_MAX, allow_pipe=True)
    else:
        raise ConfigError(f"invalid network {name!r}; expected a path or one of {', '.join(PACKAGED)}")
    return parse_network(name, text)


def parse_network(name: str, text: str) -> NetworkFile:
    document = toml_of(text, name)
    try:
        return _network(name, document)
    except _Wrong as wrong:
        raise ConfigError(f"{name}: {wrong}") from None


def with_clients(file: NetworkFile, count: int) -> NetworkFile:
    """The network with more clients, each where one of the file's is, in turn. All links carry as many times more.

    Raises ConfigError where there are fewer than the file has, or a site has no address left.
    """
    own = len(file.clients)
    if count < own or not own:
        raise ConfigError(f"{file.name} has {own} clients; expected as many or more, not {count}")
    scale = count / own
    hosts, names = list(file.hosts), list(file.clients)
    links = [
        replace(link, bits_per_s=link.bits_per_s * scale, buffer_bytes=round(link.buffer_bytes * scale))
        for link in file.links
    ]
    where = {host.name: host for host in file.hosts}
    of_link = {frozenset((link.one, link.other)): link for link in file.links}
    prefixes = {site.name: site.prefixes for site in file.sites}
    taken = {(host.vpn, host.address) for host in hosts}
    for number in range(own, count):
        like = where[file.clients[number % own]]
        if like.at not in prefixes:
            raise ConfigError(f"{file.name}: client {like.name!r} is a site by itself; expected one at a CE router")
        free = (
            address
            for prefix in prefixes[like.at]
            for address in prefix.hosts()
            if (like.vpn, address) not in taken
        )  # fmt: skip
        address = next(free, None)
        if address is None:
            raise ConfigError(f"{file.name}: {like.at!r} has no address for client {number + 1}; give it a prefix")
        taken.add((like.vpn, address))
        name = f"more{number + 1}"
        hosts.append(HostSpec(name, like.at, like.vpn, address))
        names.append(name)
        links.append(replace(of_link[frozenset((like.name, like.at))], one=name, other=like.at))
    return replace(file, hosts=tuple(hosts), links=tuple(links), clients=tuple(names))


class _Wrong(Exception):
    """What is wrong, without the file."""


def _network(name: str, document: Table) -> NetworkFile:
    _known(document, "the file", TABLES)
    routing = document.get("routing", {})
    timers, fast_reroute = _timers(routing)
    p = tuple(_name(table, "p") for table in _tables(document, "p", ("name",), ROUTERS_MAX))
    pe = tuple(_name(table, "pe") for table in _tables(document, "pe", ("name",), ROUTERS_MAX))
    if not pe:
        raise _Wrong("no [[pe]]; expected at least one")
    if len(p) + len(pe) > ROUTERS_MAX:
        raise _Wrong(f"more than {ROUTERS_MAX} routers; expected fewer")
    vpns = tuple(
        VpnSpec(_name(table, "vpn"), _text(table, "vpn", "rd"), _texts(table, "vpn", "import"),
                _texts(table, "vpn", "export"))
        for table in _tables(document, "vpn", ("name", "rd", "import", "export"), VPNS_MAX)
    )  # fmt: skip
    of_vpns = {vpn.name for vpn in vpns}
    sites = tuple(
        SiteSpec(_name(table, "ce"), _one_of(table, "ce", "pe", pe), _one_of(table, "ce", "vpn", of_vpns),
                 _prefixes(table))
        for table in _tables(document, "ce", ("name", "pe", "vpn", "prefixes"), HOSTS_MAX)
    )  # fmt: skip
    hosts = tuple(
        _host(table, pe, {site.name: site for site in sites}, of_vpns)
        for table in _tables(document, "host", ("name", "at", "vpn", "address"), HOSTS_MAX)
    )
    _once([*p, *pe, *(site.name for site in sites), *(host.name for host in hosts)], "name")
    _once([vpn.name for vpn in vpns], "VPN")
    _once([vpn.rd for vpn in vpns], "route distinguisher")
    links = tuple(
        _link(table)
        for table in _tables(
            document, "link", ("one", "other", "bits_per_s", "delay_s", "buffer_bytes", "cost"), LINKS_MAX
        )
    )
    _check_links(links, {*p, *pe}, sites, hosts)
    _check_addresses(sites, hosts, vpns)
    root, clients = _traffic(document.get("traffic", {}), {host.name for host in hosts})
    return NetworkFile(name, timers, fast_reroute, p, pe, sites, hosts, links, vpns, root, clients)


# ------------------------------------------------------------------------------------------------ tables


def _timers(routing: Any) -> tuple[Timers, bool]:
    if not isinstance(routing, dict):
        raise _Wrong(f"invalid value {routing!r} for routing; expected a table")
    names = [one.name for one in fields(Timers)]
    _known(routing, "[routing]", [*names, "fast_reroute"])
    values = {key: _number(routing, "routing", key, 0, 3_600) for key in names if key in routing}
    fast_reroute = routing.get("fast_reroute", True)
    if not isinstance(fast_reroute, bool):
        raise _Wrong(f"invalid value {fast_reroute!r} for routing.fast_reroute; expected true or false")
    return Timers(**values), fast_reroute


def _host(table: Table, pe: Sequence[str], sites: Mapping[str, SiteSpec], vpns: set[str]) -> HostSpec:
    name = _name(table, "host")
    at = _one_of(table, "host", "at", [*pe, *sites])
    if at in sites:
        if "vpn" in table:
            raise _Wrong(f"host {name!r} is at CE router {at!r}, which has a VPN; leave out its vpn")
        vpn = sites[at].vpn
    else:
        vpn = _one_of(table, "host", "vpn", vpns)
    return HostSpec(name, at, vpn, _address(_text(table, "host", "address")))


def _link(table: Table) -> LinkSpec:
    one, other = _text(table, "link", "one"), _text(table, "link", "other")
    return LinkSpec(
        one, other,
        _number(table, "link", "bits_per_s", 1_000, 1e12),
        _number(table, "link", "delay_s", 1e-6, 10),
        int(_number({"buffer_bytes": 100_000} | dict(table), "link", "buffer_bytes", 1_500, 1e9)),
        _number({"cost": 10} | dict(table), "link", "cost", 1e-3, 1e6),
    )  # fmt: skip


def _traffic(table: Any, hosts: set[str]) -> tuple[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise _Wrong(f"invalid value {table!r} for traffic; expected a table")
    if not table:
        return "", ()
    _known(table, "[traffic]", ("root", "clients"))
    root = _one_of(table, "traffic", "root", hosts)
    clients = _texts(table, "traffic", "clients")
    for client in clients:
        if client not in hosts or client == root:
            raise _Wrong(f"invalid value {client!r} for traffic.clients; expected hosts other than the root")
    _once(clients, "client")
    return root, clients


def _check_links(
    links: Sequence[LinkSpec], core: set[str], sites: Sequence[SiteSpec], hosts: Sequence[HostSpec]
) -> None:
    """Each router of the provider may have many; a site or a host has the one to where it is."""
    wanted = {frozenset((site.name, site.pe)) for site in sites} | {frozenset((host.name, host.at)) for host in hosts}
    found: set[frozenset[str]] = set()
    for link in links:
        ends = frozenset((link.one, link.other))
        if len(ends) < 2:
            raise _Wrong(f"link from {link.one!r} to itself; expected two nodes")
        if ends in found:
            raise _Wrong(f"two links between {link.one!r} and {link.other!r}; expected one")
        if not ends <= core and ends not in wanted:
            what = "routers of the provider, or a CE router or host and where it is"
            raise _Wrong(f"link between {link.one!r} and {link.other!r}; expected {what}")
        found.add(ends)
    for missing in wanted - found:
        one, other = sorted(missing)
        raise _Wrong(f"no [[link]] between {one!r} and {other!r}; add it")


def _check_addresses(sites: Sequence[SiteSpec], hosts: Sequence[HostSpec], vpns: Sequence[VpnSpec]) -> None:
    """No two sites that the same VPN reaches overlap; a host at a CE router is within its prefixes."""
    where = {site.name: site for site in sites}
    announced: list[tuple[str, str, IPv4Network]] = [
        (site.name, site.vpn, prefix) for site in sites for prefix in site.prefixes
    ]
    for host in hosts:
        if host.at not in where:
            announced.append((host.name, host.vpn, IPv4Network(f"{host.address}/32")))
        elif not any(host.address in prefix for prefix in where[host.at].prefixes):
            raise _Wrong(f"host {host.name!r} has {host.address}, outside the prefixes of {host.at!r}")
    if len(announced) > PREFIXES_MAX:
        raise _Wrong(f"more than {PREFIXES_MAX} prefixes; expected fewer")
    addresses = [(host.at, str(host.address)) for host in hosts if host.at in where]
    _once([f"{at} {address}" for at, address in addresses], "address")
    exports = {vpn.name: set(vpn.exports) for vpn in vpns}
    for vpn in vpns:
        reached = sorted(
            (int(prefix.network_address), int(prefix.broadcast_address), name)
            for name, of, prefix in announced
            if of == vpn.name or exports[of] & set(vpn.imports)
        )
        for (_, end, one), (start, _, other) in pairwise(reached):
            if start <= end:
                raise _Wrong(f"VPN {vpn.name!r} reaches {one!r} and {other!r}, whose addresses overlap; renumber one")


# ------------------------------------------------------------------------------------------------ values


def _known(table: Table, where: str, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise _Wrong(f"unknown key {str(key)[:NAME_MAX]!r} in {where}; expected one of {', '.join(known)}")


def _tables(document: Table, key: str, known: Sequence[str], most: int) -> list[Table]:
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise _Wrong(f"invalid value for {key}; expected tables, [[{key}]]")
    if len(found) > most:
        raise _Wrong(f"{len(found)} tables [[{key}]]; expected at most {most}")
    for table in found:
        _known(table, f"[[{key}]]", known)
    return found


def _text(table: Table, where: str, key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value or len(value) > NAME_MAX or not value.isprintable():
        shown = repr(value)[:NAME_MAX]
        raise _Wrong(f"invalid value {shown} for {where}.{key}; expected text of at most {NAME_MAX} characters")
    return value


def _name(table: Table, where: str) -> str:
    name = _text(table, where, "name")
    if not name.replace("_", "").replace(".", "").isalnum():
        raise _Wrong(f"invalid value {name!r} for {where}.name; expected letters, digits, '_' and '.'")
    return name


def _texts(table: Table, where: str, key: str) -> tuple[str, ...]:
    values = table.get(key)
    if not isinstance(values, list) or len(values) > HOSTS_MAX:
        raise _Wrong(f"invalid value {repr(values)[:NAME_MAX]} for {where}.{key}; expected a list of text")
    return tuple(_text({key: value}, where, key) for value in values)


def _one_of(table: Table, where: str, key: str, known: Sequence[str] | set[str]) -> str:
    value = _text(table, where, key)
    if value not in known:
        some = ", ".join(sorted(known)[:20]) or "none that there is"
        raise _Wrong(f"invalid value {value!r} for {where}.{key}; expected one of {some}")
    return value


def _number(table: Table, where: str, key: str, low: float, high: float) -> float:
    value = table.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise _Wrong(f"invalid value {value!r:.60} for {where}.{key}; expected {written(low)} to {written(high)}")
    return float(value)


def _prefixes(table: Table) -> tuple[IPv4Network, ...]:
    texts = _texts(table, "ce", "prefixes")
    if not texts:
        raise _Wrong("invalid value [] for ce.prefixes; expected at least one")
    try:
        return tuple(IPv4Network(text) for text in texts)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise _Wrong(f"ce.prefixes: {error}; expected for example 10.1.0.0/24") from None


def _address(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except AddressValueError as error:
        raise _Wrong(f"host.address: {error}; expected for example 10.1.0.1") from None


def _once(values: Sequence[str], what: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise _Wrong(f"two with the {what} {value!r}; expected each once")
        seen.add(value)
