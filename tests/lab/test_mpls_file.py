"""A provider's network as a file: what is wrong in it is one line, whatever it is."""

from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast_lab.mpls.network_file import parse_network, read_network
from support import today

SMALL = """
[traffic]
root = "r"
clients = ["c"]
[[p]]
name = "p1"
[[pe]]
name = "pe1"
[[pe]]
name = "pe2"
[[vpn]]
name = "one"
rd = "65000:1"
import = ["65000:1"]
export = ["65000:1"]
[[ce]]
name = "ce1"
pe = "pe1"
vpn = "one"
prefixes = ["10.0.1.0/24"]
[[host]]
name = "c"
at = "ce1"
address = "10.0.1.1"
[[host]]
name = "r"
at = "pe2"
vpn = "one"
address = "10.0.4.1"
[[link]]
one = "pe1"
other = "p1"
bits_per_s = 1e8
delay_s = 0.002
[[link]]
one = "p1"
other = "pe2"
bits_per_s = 1e8
delay_s = 0.002
[[link]]
one = "ce1"
other = "pe1"
bits_per_s = 1e7
delay_s = 0.001
[[link]]
one = "c"
other = "ce1"
bits_per_s = 1e7
delay_s = 0.001
[[link]]
one = "r"
other = "pe2"
bits_per_s = 1e7
delay_s = 0.001
"""


def said(text: str) -> str:
    with pytest.raises(ConfigError) as found:
        parse_network("mine.toml", text)
    return str(found.value)


def test_a_file_is_read_with_its_defaults() -> None:
    file = parse_network("mine.toml", SMALL)
    assert (file.p, file.pe, file.root, file.clients) == (("p1",), ("pe1", "pe2"), "r", ("c",))
    assert {link.cost for link in file.links} == {10} and {link.buffer_bytes for link in file.links} == {100_000}
    assert file.fast_reroute and file.timers.spf_delay_s == 5


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    assert read_network(str(path)).clients == ("c",)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("[traffic]", "[traffic", "the file is not TOML"),
        ("[[p]]", "[[q]]", "unknown key 'q' in the file; expected one of shows, routing, p, pe"),
        ('name = "p1"', 'name = "p1"\ncolour = 1', "unknown key 'colour' in [[p]]; expected one of name"),
        ('name = "p1"', "name = 5", "invalid value 5 for p.name; expected text"),
        ('name = "p1"', 'name = "p-1"', "invalid value 'p-1' for p.name; expected letters, digits, '_' and '.'"),
        ('name = "p1"', 'name = "pe1"', "two with the name 'pe1'; expected each once"),
        ('pe = "pe1"', 'pe = "p1"', "invalid value 'p1' for ce.pe; expected one of pe1, pe2"),
        ('at = "ce1"', 'at = "ce9"', "invalid value 'ce9' for host.at; expected one of ce1, pe1, pe2"),
        ('at = "ce1"', 'at = "ce1"\nvpn = "one"', "host 'c' is at CE router 'ce1', which has a VPN; leave out its vpn"),
        ('at = "pe2"\nvpn = "one"', 'at = "pe2"', "invalid value None for host.vpn; expected text"),
        ('address = "10.0.1.1"', 'address = "10.0.1.256"', "host.address: "),
        ('address = "10.0.1.1"', 'address = "10.0.2.1"', "host 'c' has 10.0.2.1, outside the prefixes of 'ce1'"),
        ('"10.0.1.0/24"', '"10.0.1.9/24"', "ce.prefixes: 10.0.1.9/24 has host bits set; expected for example"),
        ('["10.0.1.0/24"]', "[]", "invalid value [] for ce.prefixes; expected at least one"),
        ('address = "10.0.4.1"', 'address = "10.0.1.4"', "VPN 'one' reaches 'ce1' and 'r', whose addresses overlap"),
        ("bits_per_s = 1e8", "bits_per_s = 0", "invalid value 0 for link.bits_per_s; expected 1000 to 1000000000000"),
        ("bits_per_s = 1e8", "bits_per_s = nan", "invalid value nan for link.bits_per_s"),
        ("delay_s = 0.002", "delay_s = true", "invalid value True for link.delay_s"),
        ("delay_s = 0.002", "delay_s = 0.002\nbuffer_bytes = 10", "invalid value 10 for link.buffer_bytes"),
        ('other = "p1"', 'other = "pe1"', "link from 'pe1' to itself; expected two nodes"),
        ('other = "p1"', 'other = "r"', "link between 'pe1' and 'r'; expected routers of the provider"),
        ('one = "p1"\nother = "pe2"', 'one = "p1"\nother = "pe1"', "two links between 'p1' and 'pe1'; expected one"),
        ('one = "r"\nother = "pe2"', 'one = "pe1"\nother = "pe2"', "no [[link]] between 'pe2' and 'r'; add it"),
        ('root = "r"', 'root = "x"', "invalid value 'x' for traffic.root; expected one of c, r"),
        ('clients = ["c"]', 'clients = ["r"]', "invalid value 'r' for traffic.clients; expected hosts other than"),
        ('clients = ["c"]', 'clients = ["c", "c"]', "two with the client 'c'; expected each once"),
        ("[traffic]", "[routing]\nspf_delay_s = -1\n[traffic]", "invalid value -1 for routing.spf_delay_s"),
        ("[traffic]", "[routing]\nospf = 1\n[traffic]", "unknown key 'ospf' in [routing]; expected one of detect_s"),
        ("[traffic]", '[routing]\nfast_reroute = "no"\n[traffic]', "for routing.fast_reroute; expected true or false"),
        ('import = ["65000:1"]', 'import = "65000:1"', "for vpn.import; expected a list of text"),
    ],
)
def test_a_mistake_is_one_line(before: str, after: str, text: str) -> None:
    assert before in SMALL
    found = said(SMALL.replace(before, after, 1))
    assert found.startswith("mine.toml: ") and text in found and "\n" not in found


def test_two_vpns_need_two_distinguishers() -> None:
    other = '[[vpn]]\nname = "two"\nrd = "65000:1"\nimport = []\nexport = []\n'
    assert "two with the route distinguisher '65000:1'" in said(SMALL + other)


def test_addresses_overlap_only_where_a_vpn_reaches_both() -> None:
    other = '[[vpn]]\nname = "two"\nrd = "65000:2"\nimport = [{}]\nexport = []\n'
    host = '[[host]]\nname = "d"\nat = "pe2"\nvpn = "two"\naddress = "10.0.1.1"\n'
    link = '[[link]]\none = "d"\nother = "pe2"\nbits_per_s = 1e7\ndelay_s = 0.001\n'
    parse_network("mine.toml", SMALL + other.format("") + host + link)
    overlapping = said(SMALL + other.format('"65000:1"') + host + link)
    assert "VPN 'two' reaches 'ce1' and 'd', whose addresses overlap" in overlapping


def test_sizes_are_bounded() -> None:
    many = "".join(f'[[p]]\nname = "q{number}"\n' for number in range(201))
    assert "202 tables [[p]]; expected at most 200" in said(SMALL + many)
    assert "the file is not TOML: nested too deep" in said("x = " + "[" * 100_000)


PAPER = files("holdfast_lab.mpls").joinpath("networks", "paper.toml").read_text(encoding="utf-8").splitlines()


@settings(max_examples=today.drawn(50), deadline=None)
@given(st.data())
def test_whatever_is_changed_it_is_read_or_is_one_line(data: st.DataObject) -> None:
    lines = list(PAPER)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[place].partition(" = ")
        value = data.draw(
            st.sampled_from(['""', "[]", "{}", "-1", "1e999", "true", '"p1"', '"pe1"', '"one"', "[[1]]", '"\\u0000"'])
        )
        lines[place] = f"{key}{equals}{value}" if equals else data.draw(st.sampled_from(["", "[[pe]]", "[x]", "]"]))
    try:
        parse_network("mine.toml", "\n".join(lines))
    except ConfigError as error:
        assert "\n" not in str(error)
