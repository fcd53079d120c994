"""TOML and options to settings; each mistake is one line: file, key, what is wrong, what is expected."""

import socket
from pathlib import Path

import pytest

from holdfast.dialling import is_loopback
from holdfast.errors import ConfigError
from holdfast.names import HostPort, parse_host_port
from holdfast.node.config import (
    STORE_BYTES_MAX,
    STORE_BYTES_MIN,
    load_settings,
    parse_local,
)
from holdfast.node.passwords import PASSWORD_BYTES_MAX
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import DeadLettersConfig, LinkConfig, QueueConfig

WHOLE = """
[node]
name = "ewr"
data = "/var/lib/holdfast"
listen = ["127.0.0.1:5672", "[::1]:0"]
roles = ["client", "root"]
create_queues = true

[store]
bytes_max = 1_000_000_000
must_exist = true

[dead_letters]
messages_max = 70
bytes_max = 80_000
keep_s = 90

[limits]
connections_max = 50
idle_time_out_s = 30

[[neighbour]]
name = "hub"
remote = "127.0.0.1:5673"
local = "[::1]"
keepalive_s = 0.5
hold_time_s = 2
probe_s = 0.1
user = "ewr"
password_file = "PASSWORD"

[[neighbour]]
name = "jfk"
user = "jfk"

[[route]]
destination = "ord"
via = "hub"

[[link]]
name = "clean"
from = "raw"
to = "flights"
selector = "a = 1"
mode = "copy"
steps = [{ drop_repeats = { key = "tag", within_s = 5 } }]

[[queue]]
name = "flights"
bytes_max = 1_000_000
messages_max = 200
when_full = "refuse"
order = "strict"
order_wait_s = 0
durable = false

[[user]]
name = "jfk"
password_file = "PASSWORD"

[telemetry]
file = "telemetry.ndjson"
messages = true
interval_s = 5
"""

HOSTS = """
[node]
hostnames = ["bus.example.com"]

[[vhost]]
name = "acme"
aliases = ["acme.example.com"]
connections_max = 5
queues_max = 7

[[vhost]]
name = "globex"

[[queue]]
name = "flights"

[[queue]]
name = "flights"
vhost = "acme"

[[user]]
name = "ann"
password_file = "PASSWORD"

[[user]]
name = "ann"
vhost = "acme"
password_file = "PASSWORD"

[[link]]
name = "clean"
vhost = "acme"
from = "raw"
to = "flights"

[[trigger]]
name = "deep"
vhost = "acme"
queue = "flights"
command = ["true"]
messages = 5
"""


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("sesame\n")
    return path


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text.replace("PASSWORD", str(tmp_path / "password")))
    return path


def refusal(tmp_path: Path, text: str) -> str:
    """What the user reads, without the file's name, which it must begin with."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


def test_every_key_arrives(tmp_path: Path, password: Path) -> None:
    given = load_settings(write(tmp_path, WHOLE))
    assert given.listen == (HostPort("127.0.0.1", 5672), HostPort("::1", 0))
    assert given.data == Path("/var/lib/holdfast")
    assert given.store_bytes_max == 1_000_000_000 and given.store_must_exist
    assert given.telemetry_file == Path("telemetry.ndjson")
    core = given.core
    steps = '[{"drop_repeats": {"key": "tag", "within_s": 5}}]'
    made = LinkConfig(name="clean", source="raw", target="flights", selector="a = 1", mode="copy", steps=steps)
    assert core.links == (made,)
    assert (core.name, core.roles, core.create_queues) == ("ewr", ("client", "root"), True)
    assert core.dead_letters == DeadLettersConfig(messages_max=70, bytes_max=80_000, keep_s=90)
    assert core.limits == Limits(connections_max=50, idle_time_out_s=30)
    assert (core.telemetry_messages, core.telemetry_interval_s) == (True, 5)
    assert core.forwarding == (("ord", "hub"),)
    assert core.neighbours == (
        NeighbourConfig(
            name="hub",
            remote="127.0.0.1:5673",
            local="[::1]:0",
            keepalive_s=0.5,
            hold_time_s=2,
            probe_s=0.1,
            user="ewr",
            password="sesame",
        ),
        NeighbourConfig(name="jfk", user="jfk"),
    )
    assert core.queues == (
        QueueConfig(
            name="flights",
            bytes_max=1_000_000,
            messages_max=200,
            when_full="refuse",
            order="strict",
            order_wait_s=0,
            durable=False,
        ),
    )
    assert [(user.name, user.password) for user in core.users] == [("jfk", "sesame")]
    assert "sesame" not in repr(given)


def test_no_file_means_loopback_and_any_queue() -> None:
    given = load_settings(None)
    assert given.core.name == socket.gethostname()
    assert given.data == Path(f"./{given.core.name}.holdfast")
    assert given.listen == (HostPort("127.0.0.1", 5672),)
    assert given.core.create_queues
    assert given.telemetry_file is None
    assert given.core.dead_letters == DeadLettersConfig()
    assert given.store_bytes_max == STORE_BYTES_MAX and not given.store_must_exist


def test_dead_letters_of_a_small_store_take_a_sixteenth_of_it(tmp_path: Path) -> None:
    given = load_settings(write(tmp_path, "[store]\nbytes_max = 16_000_000\n"))
    assert given.on_disk(given.store_bytes_max).core.dead_letters == DeadLettersConfig(bytes_max=1_000_000)


def test_an_empty_file_makes_no_queues(tmp_path: Path) -> None:
    assert not load_settings(write(tmp_path, "")).core.create_queues


def test_options_go_before_the_file(tmp_path: Path, password: Path) -> None:
    given = load_settings(write(tmp_path, WHOLE), name="lga", listen=["127.0.0.1:0"], data=tmp_path / "elsewhere")
    assert given.core.name == "lga"
    assert given.listen == (HostPort("127.0.0.1", 0),)
    assert given.data == tmp_path / "elsewhere"


def test_the_name_alone_moves_the_default_data() -> None:
    assert load_settings(None, name="a/b").data == Path("./a_b.holdfast")


def test_the_hosts_that_may_cross_to_a_neighbour_arrive(tmp_path: Path) -> None:
    vhosts = '[[vhost]]\nname = "acme"\n[[vhost]]\nname = "globex"\n'
    text = vhosts + '[[neighbour]]\nname = "jfk"\nhosts = ["acme", "globex"]\n[[neighbour]]\nname = "lhr"\n'
    neighbours = load_settings(write(tmp_path, text)).core.neighbours
    assert [neighbour.hosts for neighbour in neighbours] == [("acme", "globex"), ()]
    for hosts, expected in (
        ('["acme", "nobody"]', "invalid value 'nobody' for neighbour 'jfk' hosts; expected names of [[vhost]]"),
        ('"acme"', "invalid value 'acme' for neighbour 'jfk' hosts; expected a list of texts in quotes"),
        ("[1]", "invalid value [1] for neighbour 'jfk' hosts; expected a list of texts in quotes"),
    ):
        with pytest.raises(ConfigError) as raised:
            load_settings(write(tmp_path, f'{vhosts}[[neighbour]]\nname = "jfk"\nhosts = {hosts}\n'))
        assert expected in str(raised.value) and "\n" not in str(raised.value)


def test_virtual_hosts_arrive(tmp_path: Path, password: Path) -> None:
    core = load_settings(write(tmp_path, HOSTS)).core
    assert core.vhosts == (
        VhostConfig(name="acme", aliases=("acme.example.com",), connections_max=5, queues_max=7),
        VhostConfig(name="globex"),
    )
    assert core.hostnames == ("bus.example.com",)
    assert [queue.key for queue in core.queues] == ["flights", "acme\0flights"]
    assert [user.key for user in core.users] == ["ann", "acme\0ann"]
    assert [link.key for link in core.links] == ["acme\0clean"]
    assert [trigger.vhost for trigger in core.triggers] == ["acme"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[vhost]]\naliases = ['a']\n", "vhost number 1 has no name; expected text in quotes, not empty"),
        ("[[vhost]]\nname = 'a'\nhost = 'b'\n", "unknown key 'host' in vhost 'a'; expected one of name, aliases"),
        (
            "[[queue]]\nname = 'q'\nvhost = 'a'\n",
            "invalid value 'a' for queue 'q' vhost; expected the name of a [[vhost]]",
        ),
        (
            "[[vhost]]\nname = 'a'\n[[user]]\nname = 'u'\nvhost = 'a'\npassword_file = 'PASSWORD'\n"
            "[[neighbour]]\nname = 'n'\nuser = 'u'\n",
            "invalid value 'u' for neighbour 'n' user; expected, without a remote, the name of a [[user]] (there",
        ),
    ],
)
def test_a_host_that_cannot_be_is_refused(tmp_path: Path, password: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_users_open_other_addresses(tmp_path: Path, password: Path) -> None:
    text = '[node]\nlisten = ["0.0.0.0:0"]\n[[user]]\nname = "u"\npassword_file = "PASSWORD"\n'
    assert load_settings(write(tmp_path, text)).listen == (HostPort("0.0.0.0", 0),)


MISTAKES = [
    # unknown keys
    ("[nodes]\n", "unknown key 'nodes'; expected one of [node], [store]"),
    ("verbose = true\n", "unknown key 'verbose'; expected one of [node]"),
    ("[topologies]\nfile = 't.toml'\n", "unknown key 'topologies'; expected one of"),
    ("[topology]\nname = 't.toml'\n", "unknown key 'name' in topology; expected file"),
    ("[topology]\nfile = 1\n", "invalid value 1 for topology file; expected text"),
    ("[node]\nnmae = 'ewr'\n", "unknown key 'nmae' in node; expected one of name, data, listen, roles"),
    (
        "[dead_letters]\nkeep_s = 0.5\n",
        "invalid value 0.5 for dead_letters keep_s; expected a number of seconds from 1 to",
    ),
    ("[store]\nsize = 1\n", "unknown key 'size' in store; expected one of bytes_max, must_exist"),
    ("[telemetry]\npath = 'x'\n", "unknown key 'path' in telemetry; expected one of file, messages, interval_s"),
    ("[limits]\nconnections = 1\n", "unknown key 'connections' in limits; expected one of connections_max"),
    ("[[queue]]\nname = 'q'\ndepth = 3\n", "unknown key 'depth' in queue 'q'; expected one of name, bytes_max"),
    (
        "[[route]]\ndestination = 'x'\nvia = 'n'\n",
        "invalid value 'n' for route 'x' via; expected the name of a [[neighbour]]",
    ),
    ("[[link]]\nname = 'l'\nfrom = 'a'\n", "link 'l' has no to; expected text in quotes"),
    ("[[link]]\nname = 'l'\nto = 'a'\n", "link 'l' has no from; expected text in quotes"),
    (
        "[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\nmode = 'x'\n",
        "invalid value 'x' for link 'l' mode; expected one of move, copy",
    ),
    (
        "[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\ncolour = []\n",
        "unknown key 'colour' in link 'l'; expected one of name, from, to, selector, mode, steps",
    ),
    (
        "[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\nsteps = [3]\n",
        "invalid value [3] for link 'l' steps; expected a list of tables",
    ),
    (
        "[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\nsteps = [{ drop_repeats = { key = 't', within = 5 } }]\n",
        "unknown key 'within' in link 'l' step 1 drop_repeats; expected one of key, within_s; did you mean within_s?",
    ),
    (
        "[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\nsteps = [{ lookup = { key = 't', value = 'v', file = 'no' } }]\n",
        "link 'l' step 1 lookup file 'no' cannot be read (No such file or directory); give a readable file",
    ),
    ("[[trigger]]\nname = 't'\nqueue = 'q'\n", "trigger 't' has no command; expected"),
    ("[[trigger]]\nname = 't'\ncommand = ['x']\n", "trigger 't' has no queue; expected text in quotes"),
    (
        "[[trigger]]\nname = 't'\nqueue = 'q'\ncommand = ['x']\n",
        "trigger 't' has neither messages nor age_s; give one, or both",
    ),
    (
        "[[trigger]]\nname = 't'\nqueue = 'q'\nmessages = 1\ncommand = []\n",
        "invalid value for trigger 't' command; expected a program and its arguments, as a list",
    ),
    (
        "[[trigger]]\nname = 't'\nqueue = 'q'\nmessages = 1\ncommand = 'x y'\n",
        "invalid value 'x y' for trigger 't' command; expected a list of texts in quotes",
    ),
    ("[[route]]\ndestination = 'x'\n", "route 'x' has no via; expected the name of a [[neighbour]]"),
    ("[[route]]\nvia = 'x'\n", "route number 1 has no destination; expected text in quotes"),
    ("[[route]]\ndestination = 'x'\nby = 'n'\n", "unknown key 'by' in route 'x'; expected one of destination, via"),
    (
        "[[neighbour]]\nname = 'n'\nprobe_s = 4\n",
        "invalid value 4 for neighbour 'n' probe_s; expected a number of seconds from 0.005 to hold_time_s (3)",
    ),
    (
        "[[neighbour]]\nname = 'n'\nprobe_s = 0.004\n",
        "invalid value 0.004 for neighbour 'n' probe_s; expected a number",
    ),
    ("[[neighbour]]\nname = 'n'\nsource = '127.0.0.1'\n", "neighbour 'n' has local without remote; add remote"),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\nlocal = '::1'\nsource = '::1'\n",
        "neighbour 'n' has both local and source, which mean the same; keep local",
    ),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\nlocal = 'a b'\n",
        "invalid value 'a b' for neighbour 'n' local; expected HOST, HOST:PORT, [IPV6] or [IPV6]:PORT",
    ),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\nsource = 'h:65536'\n",
        "invalid value 'h:65536' for neighbour 'n' source",
    ),
    ("[[neighbour]]\nname = 'n'\nhost = 'h'\n", "unknown key 'host' in neighbour 'n'; expected one of name, remote"),
    (
        "[[user]]\nname = 'u'\npassword = 'p'\n",
        "unknown key 'password' in user 'u'; expected one of name, password_",
    ),
    # wrong types
    ("node = 3\n", "invalid value 3 for node; expected a table, [node]"),
    ("[queue]\nname = 'q'\n", "invalid value { name = 'q' } for queue; expected a list of tables, [[queue]]"),
    ("queue = ['q']\n", "invalid value ['q'] for queue; expected a list of tables, [[queue]]"),
    ("[node]\nname = 5\n", "invalid value 5 for node name; expected text in quotes, not empty"),
    ("[node]\nname = ''\n", "invalid value '' for node name; expected text in quotes, not empty"),
    ("[node]\nlisten = '127.0.0.1:0'\n", "invalid value '127.0.0.1:0' for node listen; expected a list of texts"),
    ("[node]\nroles = ['client', 3]\n", "invalid value ['client', 3] for node roles; expected a list of texts"),
    ("[node]\ncreate_queues = 1\n", "invalid value 1 for node create_queues; expected true or false"),
    ("[store]\nbytes_max = '1 GB'\n", "invalid value '1 GB' for store bytes_max; expected a whole number above 0"),
    ("[store]\nbytes_max = 1e9\n", "invalid value 1000000000.0 for store bytes_max; expected a whole number above 0"),
    ("[limits]\nqueues_max = true\n", "invalid value true for limits queues_max; expected a whole number above 0"),
    ("[limits]\nqueues_max = 0\n", "invalid value 0 for limits queues_max; expected a whole number above 0"),
    (
        "[limits]\nidle_time_out_s = nan\n",
        "invalid value nan for limits idle_time_out_s; expected a number of seconds",
    ),
    (
        "[telemetry]\ninterval_s = 0\n",
        "invalid value 0 for telemetry interval_s; expected a number of seconds above 0",
    ),
    ("[telemetry]\ninterval_s = inf\n", "invalid value inf for telemetry interval_s; expected a number of seconds"),
    ("[[queue]]\nname = 'q'\ndurable = 'no'\n", "invalid value 'no' for queue 'q' durable; expected true or false"),
    ("[[queue]]\nname = 'q'\nmessages_max = -1\n", "invalid value -1 for queue 'q' messages_max; expected a whole"),
    ("[[queue]]\nname = 7\n", "invalid value 7 for queue number 1 name; expected text in quotes"),
    # missing
    ("[[queue]]\nname = 'a'\n[[queue]]\n", "queue number 2 has no name; expected text in quotes"),
    ("[[user]]\nname = 'u'\n", "user 'u' has no password_file and no certificate; expected"),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\nuser = 'u'\n",
        "neighbour 'n' has no password_file; give user and password_file together",
    ),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\npassword_file = 'PASSWORD'\n",
        "neighbour 'n' has no user; give user and password_file together",
    ),
    ("[node]\nlisten = []\n", "invalid value [] for node listen; expected at least one HOST:PORT"),
    # duplicates
    ("[[queue]]\nname = 'q'\n[[queue]]\nname = 'q'\n", "queue 'q' is listed twice; list it once"),
    ("[[neighbour]]\nname = 'n'\n[[neighbour]]\nname = 'n'\n", "neighbour 'n' is listed twice"),
    (
        "[[user]]\nname = 'u'\npassword_file = 'PASSWORD'\n" * 2,
        "user 'u' is listed twice; list it once",
    ),
    ("[node]\nlisten = ['127.0.0.1:5672', '127.0.0.1:5672']\n", "node listen has 127.0.0.1:5672 twice"),
    # references
    ("[node]\nname = 'n'\n[[neighbour]]\nname = 'n'\n", "neighbour 'n' has the node's own name"),
    (
        "[[neighbour]]\nname = 'n'\nuser = 'who'\n",
        "invalid value 'who' for neighbour 'n' user; expected, without a remote, the name of a [[user]]",
    ),
    (
        "[[neighbour]]\nname = 'n'\npassword_file = 'PASSWORD'\n",
        "neighbour 'n' has password_file without remote; give a [[user]]",
    ),
    # values
    ("[node]\nname = 'a@b'\n", "invalid name 'a@b'; expected"),
    ("[[queue]]\nname = '$q'\n", "invalid name '$q'; expected"),
    ("[node]\nroles = ['boss']\n", "invalid value 'boss' for node roles; expected one of client, root, super"),
    (
        "[[queue]]\nname = 'q'\nwhen_full = 'explode'\n",
        "invalid value 'explode' for queue 'q' when_full; expected one of block",
    ),
    ("[[queue]]\nname = 'q'\norder = 'any'\n", "invalid value 'any' for queue 'q' order; expected one of strict"),
    ("[[queue]]\nname = 'q'\norder_wait_s = -1\n", "invalid value -1 for queue 'q' order_wait_s; expected a number"),
    (
        "[[neighbour]]\nname = 'n'\nkeepalive_s = 5\nhold_time_s = 2\n",
        "invalid value 2 for neighbour 'n' hold_time_s; expected at least keepalive_s (5)",
    ),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'hub'\n",
        "invalid value 'hub' for neighbour 'n' remote; expected HOST:PORT",
    ),
    ("[[neighbour]]\nname = 'n'\nremote = 'hub:0'\n", "invalid port 0 for neighbour 'n' remote; expected 1 to"),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'a..b:1'\n",
        "invalid value 'a..b:1' for neighbour 'n' remote, a host with an empty label; expected HOST:PORT",
    ),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'h:1'\nsource = 'ü..x'\n",
        "invalid value 'ü..x' for neighbour 'n' source; expected",
    ),
    (
        f"[node]\nlisten = ['{'x' * 64}.example:5672']\n",
        f"invalid value '{'x' * 64}.example:5672' for node listen, a host with a label above 63 characters; expected",
    ),
    (f"[node]\nlisten = [0x{'f' * 4_000}]\n", "invalid value [...] for node listen"),
    ("[node]\nlisten = ['127.0.0.1']\n", "invalid value '127.0.0.1' for node listen; expected HOST:PORT"),
    ("[node]\nlisten = ['127.0.0.1:65536']\n", "invalid port 65536 for node listen; expected 0 to 65535"),
    ("[node]\nlisten = ['0.0.0.0:5672']\n", "node listen has 0.0.0.0:5672 without a [[user]]; add a user"),
    ("[node]\nlisten = ['example.org:1']\n", "node listen has example.org:1 without a [[user]]; add a user"),
    (
        f"[store]\nbytes_max = {STORE_BYTES_MIN - 1}\n",
        f"invalid value {STORE_BYTES_MIN - 1} for store bytes_max; expected",
    ),
    # files
    (
        "[[user]]\nname = 'u'\npassword_file = '/nowhere/pw'\n",
        "user 'u' password_file '/nowhere/pw' cannot be read",
    ),
    (
        "[[user]]\nname = 'u'\npassword_file = '/'\n",
        "user 'u' password_file '/' cannot be read (Is a directory)",
    ),
    # syntax
    ("[node]\nname = ewr\n", "the file is not TOML: Invalid value (at line 2, column 8)"),
    ("[node\n", "the file is not TOML: "),
    ("[node]\nname = 'a'\nname = 'b'\n", "line 3: name is there already; write it once"),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES, ids=[expected[:40] for _, expected in MISTAKES])
def test_each_mistake_is_one_clear_line(tmp_path: Path, password: Path, text: str, expected: str) -> None:
    line = refusal(tmp_path, text)
    assert line.startswith(expected)
    assert "sesame" not in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: the file cannot be read \(No such file or directory\)"):
        load_settings(tmp_path / "none.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b"[node]\nname = '\xff'\n")
    with pytest.raises(ConfigError, match="line 2 of the file is not in UTF-8; write the file in UTF-8"):
        load_settings(path)


def test_a_wrong_option_names_no_file() -> None:
    with pytest.raises(ConfigError, match=r"^invalid value 'here' for node listen; expected HOST:PORT"):
        load_settings(None, listen=["here"])


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        (b"p", "p"),
        (b"p\r\nrest\n", "p"),
        (b" spaces count ", " spaces count "),
        ("pässwörd\n".encode(), "pässwörd"),
        (b"x" * PASSWORD_BYTES_MAX + b"\n", "x" * PASSWORD_BYTES_MAX),
        (b"x" * (PASSWORD_BYTES_MAX + 1), None),
        (b"", None),
        (b"\nsecond", None),
        (b"a\0b", None),
        (b"\xff", None),
    ],
)
def test_password_files(tmp_path: Path, content: bytes, accepted: str | None) -> None:
    (tmp_path / "password").write_bytes(content)
    text = "[[user]]\nname = 'u'\npassword_file = 'PASSWORD'\n"
    if accepted is None:
        assert "user 'u' password_file" in refusal(tmp_path, text)
    else:
        assert load_settings(write(tmp_path, text)).core.users[0].password == accepted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:1", HostPort("localhost", 1)),
        ("[::1]:65535", HostPort("::1", 65535)),
        ("hub.example:05672", HostPort("hub.example", 5672)),
        ("::1:5672", None),
        (":5672", None),
        ("[]:5672", None),
        ("h:", None),
        ("h:-1", None),
        ("h:٣", None),
        ("a b:1", None),
        ("h\n:1", None),
        ("", None),
    ],
)
def test_host_and_port(text: str, expected: HostPort | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError):
            parse_host_port("k", text, port_min=1)
    else:
        assert parse_host_port("k", text, port_min=1) == expected
        assert parse_host_port("k", str(expected), port_min=1) == expected


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "128.0.0.1", "localhost", "", "1", "::ffff:10.0.0.1"]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1", ("10.0.0.1", 0)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("eth.example:77", ("eth.example", 77)),
        ("fe80::1%eth0", ("fe80::1%eth0", 0)),
        ("[::1]", ("::1", 0)),
        ("[::1]:65535", ("::1", 65_535)),
    ],
)
def test_local_is_a_host_with_or_without_a_port(text: str, found: tuple[str, int]) -> None:
    assert tuple(parse_local("local", text)) == found


def test_of_many_keys_the_nearest_are_told(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[limits]\nconections_max = 1\n")
    with pytest.raises(
        ConfigError, match=r"expected one of connections_max, .* more; did you mean connections_max\?$"
    ) as caught:
        load_settings(path)
    assert len(str(caught.value)) < 500
    path.write_text("[nodes]\n")
    with pytest.raises(ConfigError, match=r"expected one of \[node\], .*; did you mean \[node\]\?$"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[node]\nparked_bytes_max = 5\n", r": unknown key 'parked_bytes_max' in node; .*; it is a key of \[limits\]$"),
        ("[limits]\nmessages_max = 5\n", r": unknown key 'messages_max' in limits; .*; it is a key of .*\[\[queue\]\]"),
        ("parked_bytes_max = 5\n", r": unknown key 'parked_bytes_max'; .*; it is a key of \[limits\]$"),
    ],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_settings(path)
    assert "did you mean" not in str(caught.value)
