"""Which virtual host a connection is in, and what is said to one that may not be there (docs/adr/0071)."""

from typing import Any

import pytest

from holdfast.amqp.login.sasl import ClientSasl
from holdfast.broker.entries.host_names import hosted, read_key, shown
from holdfast.engine import events
from holdfast.errors import ConfigError
from holdfast.peers.hosts import PREFIX
from holdfast.peers.neighbours import features
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import LinkConfig, QueueConfig, TriggerConfig
from support.one_node import done, fill
from support.resuming import Producer
from support.rig import Client, Node, Rig

HOSTS = (VhostConfig(name="acme", aliases=("acme.example.com",)), VhostConfig(name="globex"))
QUEUES = tuple(QueueConfig(name="work", vhost=host) for host in ("", "acme", "globex"))
USERS = (
    UserConfig(name="ann", password="a"),
    UserConfig(name="ann", password="b", vhost="acme"),
    UserConfig(name="bob", password="b", vhost="acme"),
    UserConfig(name="eve", password="e", vhost="acme"),
    UserConfig(name="eve", password="f", vhost="globex"),
    UserConfig(name="max", password="m", vhost="acme"),
    UserConfig(name="max", password="m", vhost="globex"),
)


def node_with(rig: Rig, **fields: Any) -> Node:
    return rig.node("hub", **{"vhosts": HOSTS, "queues": QUEUES, "create_queues": True} | fields)


def login(node: Node, user: str | None, password: str = "", hostname: str | None = None, **settings: Any) -> Client:
    plain = {} if user is None else {"mechanism": "PLAIN", "user": user, "password": password}
    client = node.rig.client(node, hostname=hostname, **plain, **settings)
    node.rig.settle()
    return client


def host_of(node: Node, client: Client) -> str:
    """The virtual host that a connection is in; "refused CONDITION" or "no login" where it is in none."""
    if client.over or not client.amqp.usable:
        error = client.closed
        return "no login" if error is None else f"refused {error.condition}"
    assert node.core is not None and client.end is not None
    (number,) = [number for number, end in node.ends.items() if end.wire is client.end.wire]
    return node.core.connections[number].host


@pytest.mark.parametrize(
    ("hostname", "expected"),
    [
        (None, ""), ("", ""), ("localhost", ""), ("127.0.0.1", ""),
        ("::1", ""), ("[::1]", ""), ("hub", ""), ("HUB", ""),
        ("bus.example.com", ""), ("10.0.0.1", ""), ("acme", "acme"), ("ACME", "acme"), ("vhost:acme", "acme"),
        ("acme.example.com", "acme"), ("vhost:globex", "globex"), ("vhost:ACME", "refused amqp:not-found"),
        ("vhost:", "refused amqp:not-found"), ("vhost:hub", "refused amqp:not-found"),
        ("other.example.com", "refused amqp:not-found"), ("acme\0work", "refused amqp:not-found"),
        ("vhost:vhost:acme", "refused amqp:not-found"), ("vhost:acme.example.com", "refused amqp:not-found"),
    ],
)  # fmt: skip
def test_the_hostname_of_an_open_names_the_host_of_who_has_no_login(hostname: str | None, expected: str) -> None:
    node = node_with(Rig(), hostnames=("bus.example.com",))
    client = login(node, None, hostname=hostname)
    assert host_of(node, client) == expected
    if expected.startswith("refused"):
        assert hostname is not None
        said = f"no virtual host {hostname.removeprefix(PREFIX)!r} at 'hub'"
        assert client.closed is not None and client.closed.description == said
        assert any(f"refused: {said}" in line for line in node.logs)


def test_a_node_without_hosts_looks_at_no_name_but_at_one_that_asks_for_a_host() -> None:
    node = node_with(Rig(), vhosts=(), queues=())
    assert host_of(node, login(node, None, hostname="whatever.example.com")) == ""
    assert host_of(node, login(node, None, hostname="vhost:acme")) == "refused amqp:not-found"


@pytest.mark.parametrize(
    ("user", "password", "hostname", "expected"),
    [
        ("ann", "a", None, ""),
        ("ann", "b", None, "acme"),  # the password tells
        ("ann", "c", None, "no login"),
        ("ann", "b", "vhost:acme", "acme"),
        ("ann", "b", "acme.example.com", "acme"),
        ("ann", "a", "vhost:acme", "no login"),
        ("ann", "a", "vhost:globex", "refused amqp:not-found"),
        ("bob", "b", None, "acme"),  # the only one of that name
        ("bob", "b", "localhost", "acme"),
        ("bob", "b", "vhost:globex", "refused amqp:not-found"),
        ("bob", "b", "unknown", "refused amqp:not-found"),
        ("eve", "e", None, "acme"),
        ("eve", "f", "localhost", "globex"),
        ("max", "m", None, "refused amqp:not-allowed"),  # two of that name and password
        ("max", "m", "globex", "globex"),
        ("eve", "e", "acme", "acme"),
        ("eve", "f", "globex", "globex"),
        ("eve", "f", "acme", "no login"),
    ],
)
def test_the_hostname_of_sasl_chooses_among_users_of_one_name(
    user: str, password: str, hostname: str | None, expected: str
) -> None:
    node = node_with(Rig(), users=USERS)
    assert host_of(node, login(node, user, password, hostname)) == expected


def test_a_user_is_not_told_which_other_hosts_there_are() -> None:
    node = node_with(Rig(), users=USERS)
    told = []
    for hostname in ("vhost:globex", "globex", "vhost:nosuch", "nosuch"):
        closed = login(node, "bob", "b", hostname).closed
        assert closed is not None
        told.append((closed.condition, str(closed.description).replace(repr(hostname.removeprefix(PREFIX)), "it")))
    assert set(told) == {("amqp:not-found", "no virtual host it at 'hub' for this user; log in as one of its users")}


@pytest.mark.parametrize(
    ("password", "hostname", "expected"),
    [("a", "localhost", ""), ("b", "acme", "acme"), ("b", "hub", "acme"), ("a", "acme", "refused amqp:not-found")],
)
def test_a_client_that_says_nothing_in_sasl_is_told_apart_by_its_password(
    monkeypatch: pytest.MonkeyPatch, password: str, hostname: str, expected: str
) -> None:
    """Qpid Proton's hostname is in its open alone."""
    begin = ClientSasl.__init__
    monkeypatch.setattr(ClientSasl, "__init__", lambda self, *told: begin(self, *told[:-1], None))
    node = node_with(Rig(), users=USERS)
    assert host_of(node, login(node, "ann", password, hostname)) == expected


def test_a_user_counts_for_itself_whatever_others_are_called() -> None:
    node = node_with(Rig(), users=USERS)
    login(node, "ann", "a")
    theirs = login(node, "ann", "b", "vhost:acme")
    login(node, "eve", "wrong", "vhost:acme")
    default = login(node, "ann", "a")
    of_acme = [(row["user"], row["connections"], row["logins_failed"]) for row in _status(theirs)["users"]]
    assert of_acme == [("ann", 1, 0), ("eve", 0, 1)]
    assert [(row["user"], row["connections"]) for row in _status(default)["users"]] == [("ann", 2)]
    assert "logins" not in _status(theirs)
    (latest,) = _status(default)["logins"]["latest"]
    assert (latest["user"], latest["vhost"]) == ("eve", "acme")


def _status(client: Client) -> dict[str, Any]:
    return done(client, "STATUS", "node", "")


def test_a_user_called_as_a_neighbour_is_none() -> None:
    users = (UserConfig(name="jfk", password="n"), UserConfig(name="jfk", password="t", vhost="acme"))
    node = node_with(Rig(), users=users, neighbours=(NeighbourConfig(name="jfk"),))
    theirs = login(node, "jfk", "t", "vhost:acme", container_id="jfk", offered_capabilities=(features.CUSTODY,))
    assert host_of(node, theirs) == "acme"
    assert node.core is not None and node.core.neighbours["jfk"].peer is None


def test_a_host_has_bounds_for_connections_and_queues() -> None:
    hosts = (VhostConfig(name="acme", connections_max=2, queues_max=3), VhostConfig(name="globex"))
    node = node_with(Rig(), vhosts=hosts)
    one, two = (login(node, None, hostname="acme") for _ in range(2))
    third = login(node, None, hostname="acme")
    assert host_of(node, third) == "refused amqp:resource-limit-exceeded"
    assert third.closed is not None and "connections_max of the [[vhost]]" in third.closed.description
    assert host_of(node, login(node, None, hostname="globex")) == "globex"
    two.close_transport()
    node.rig.settle()
    assert host_of(node, login(node, None, hostname="acme")) == "acme"
    links = [one.sender(name) for name in ("b", "c", "d")]
    node.rig.settle()
    (refused,) = [item.error for item in one.detached if item.error]
    assert "virtual host 'acme' has 3 queues, the most it may have (queues_max)" in str(refused.description)
    assert one.manage("CREATE", "queue", "e")[0] == 400
    links[0].detach(closed=True)
    node.rig.settle()
    done(one, "DELETE", "queue", "b")
    done(one, "CREATE", "queue", "e")


def test_containers_of_other_hosts_are_others() -> None:
    node = node_with(Rig())
    sole = {"container_id": "c", "desired_capabilities": ("sole-connection-for-container",)}
    first, second = login(node, None, hostname="acme", **sole), login(node, None, hostname="globex", **sole)
    third = login(node, None, hostname="acme", **sole)
    assert [host_of(node, each) for each in (first, second, third)] == ["acme", "globex", "refused amqp:invalid-field"]


@pytest.mark.parametrize("address", ["work@jfk", "work@hub@jfk", "topic/news@jfk", "@jfk"])
def test_messages_of_a_host_do_not_leave_the_node(address: str) -> None:
    node = node_with(Rig(), neighbours=(NeighbourConfig(name="jfk"),), unknown_destination="keep")
    client = login(node, None, hostname="acme")
    client.sender(address)
    node.rig.settle()
    (error,) = [item.error for item in client.detached if item.error]
    assert str(error.condition) in ("amqp:not-allowed", "amqp:invalid-field")
    if address.count("@") == 1 and not address.startswith("@"):
        why = "do not leave this node, since no [[neighbour]] lists it in hosts"
        text = f"{address}: messages of virtual host 'acme' {why}; send to a queue of this node"
        assert error.description == text
    assert node.core is not None and not node.core.catalog.transit
    status, _, text = client.manage("CREATE", "link", "l", **{"from": "work", "to": "work@jfk"})
    assert status == 400 and "messages of virtual host 'acme' do not leave this node" in text
    fill(node.rig, client, 1)
    entries = done(client, "QUERY", "entry", "work")
    status, _, text = client.manage(
        "MOVE", "entry", "work", queue_uuid=entries["queue_uuid"], sequence=1, delivery_count=0, to="work@jfk"
    )
    assert status == 409 and "do not leave this node" in text


def test_what_is_stored_keeps_its_host_over_a_restart_and_without_a_configuration() -> None:
    rig = Rig()
    node = node_with(rig)
    for host in ("", "acme", "globex"):
        fill(rig, login(node, None, hostname=host), 1 + len(host))
    keys = sorted(key.decode() for key, _ in node.store.table("queues"))
    assert keys == ["acme\0work", "globex\0work", "work"]
    node.crash()
    node.start()
    assert [len(node.bodies(hosted(host, "work"))) for host in ("", "acme", "globex")] == [1, 5, 7]
    node.crash()
    node.config = NodeConfig(name="hub", queues=QUEUES[:1], vhosts=HOSTS[1:])
    node.start()
    assert node.bodies(hosted("acme", "work")) == ["1", "2", "3", "4", "5"]
    assert host_of(node, login(node, None, hostname="acme")) == "refused amqp:not-found"
    rows = _status(login(node, None))["vhosts"]
    assert [(row["name"], row["configured"], row["queues"], row["messages"]) for row in rows] == [
        ("globex", True, 1, 7),
        ("acme", False, 1, 5),
    ]


def test_the_default_host_is_told_of_others_in_numbers_alone() -> None:
    rig = Rig()
    node = node_with(rig)
    fill(rig, login(node, None, hostname="acme"), 3, "secret")
    told = repr(_status(login(node, None)))
    assert "secret" not in told and "'acme'" in told
    assert "vhosts" not in _status(login(node, None, hostname="acme"))


def test_a_trigger_is_of_its_host() -> None:
    rig = Rig()
    trigger = TriggerConfig(name="deep", queue="work", vhost="acme", command=("true",), messages=2)
    node = node_with(rig, triggers=(trigger,))
    theirs = login(node, None, hostname="acme")
    fill(rig, login(node, None), 5)
    fill(rig, login(node, None, hostname="globex"), 5)
    rig.run(3)
    assert not node.commands
    fill(rig, theirs, 2)
    rig.run(3)
    (command,) = node.commands
    assert command.environment["HOLDFAST_VHOST"] == "acme" and command.environment["HOLDFAST_MESSAGES"] == "2"
    assert any("in queue 'work' of virtual host 'acme'" in line for line in node.logs)
    node.handle(events.CommandEnded(trigger="deep", problem=None))
    assert [row["name"] for row in _status(theirs)["triggers"]] == ["deep"]
    assert _status(login(node, None))["triggers"] == []


def test_what_an_operator_changes_is_logged_with_its_host() -> None:
    node = node_with(Rig(), users=USERS)
    done(login(node, "bob", "b"), "PURGE", "queue", "work")
    (line,) = [line for line in node.logs if "purged" in line]
    assert "in virtual host 'acme': queue 'work' purged" in line and "by user 'bob' of virtual host 'acme'" in line


@pytest.mark.parametrize("durable", [0, 2])
def test_a_link_is_resumed_in_its_host_alone(durable: int) -> None:
    """Container, link and tags are the same: what one host's producer has in doubt, the other's knows nothing of."""
    rig = Rig()
    node = node_with(rig)
    theirs, ours = Producer(rig, node, hostname="acme", durable=durable), Producer(rig, node, durable=durable)
    node.hold_commits = True
    theirs.send("a")
    rig.settle(anew=False)
    theirs.lose()
    ours.lose()
    node.hold_commits = False
    rig.settle()
    if durable:
        node.crash()
        node.start()
    tags = dict(theirs.doubt)
    assert tags and not ours.doubt
    ours.doubt |= tags
    assert not ours.come_back(), "another host's link was resumed"
    assert theirs.come_back() is not None and theirs.told.keys() == tags.keys()
    assert node.bodies(hosted("acme", "work")) == ["a"] and node.bodies("work") == []


def test_what_is_of_the_network_is_the_default_hosts() -> None:
    client = login(node_with(Rig()), None, hostname="acme")
    assert client.manage("FORGET", "node", "work")[0] == 403


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"vhosts": (VhostConfig(name="a@b"),)}, "invalid name 'a@b'"),
        (
            {"vhosts": HOSTS, "neighbours": (NeighbourConfig(name="jfk", hosts=("acme", "nobody")),)},
            "invalid value 'nobody' for neighbour 'jfk' hosts; expected names of [[vhost]] (acme, globex)",
        ),
        (
            {"neighbours": (NeighbourConfig(name="jfk", hosts=("",)),)},
            "invalid value '' for neighbour 'jfk' hosts; expected names of [[vhost]] (there is none)",
        ),
        (
            {"vhosts": HOSTS, "neighbours": (NeighbourConfig(name="jfk", hosts=("acme", "acme")),)},
            "neighbour 'jfk' hosts lists a virtual host twice; list it once",
        ),
        ({"vhosts": (VhostConfig(name="a" * 64),)}, "expected at most 63 bytes"),
        ({"vhosts": (VhostConfig(name="a", aliases=("x y",)),)}, "invalid value 'x y' for vhost 'a' aliases"),
        ({"vhosts": (VhostConfig(name="a", connections_max=0),)}, "invalid value 0 for vhost 'a' connections_max"),
        ({"vhosts": (VhostConfig(name="a", queues_max=0),)}, "invalid value 0 for vhost 'a' queues_max"),
        ({"vhosts": (VhostConfig(name="hub"),)}, "'hub' of vhost 'hub' is a name of the node itself"),
        ({"vhosts": (VhostConfig(name="a", aliases=("LocalHost",)),)}, "is a name of the node itself"),
        ({"vhosts": (VhostConfig(name="a"),), "hostnames": ("A",)}, "is a name of the node itself"),
        ({"hostnames": ("",)}, "invalid value '' for node hostnames"),
        ({"vhosts": (VhostConfig(name="a"), VhostConfig(name="a"))}, "vhost 'a' is listed twice"),
        ({"vhosts": (VhostConfig(name="a"), VhostConfig(name="b", aliases=("A",)))}, "is a name of vhost 'a'"),
        ({"vhosts": tuple(VhostConfig(name=f"v{n}") for n in range(257))}, "there are 257 [[vhost]]; the limit is 256"),
        ({"queues": (QueueConfig(name="q", vhost="b"),)}, "invalid value 'b' for queue 'q' vhost; expected the name"),
        ({"users": (UserConfig(name="u", password="p", vhost="b"),)}, "invalid value 'b' for user 'u' vhost"),
        ({"links": (LinkConfig(name="l", source="q", target="p", vhost="b"),)}, "invalid value 'b' for link 'l' vhost"),
        (
            {"triggers": (TriggerConfig(name="t", queue="q", command=("c",), messages=1, vhost="b"),)},
            "invalid value 'b' for trigger 't' vhost; expected the name of a [[vhost]] (there is none)",
        ),
        (
            {"vhosts": HOSTS, "queues": (QueueConfig(name="q", vhost="acme"),) * 2},
            "queue 'q' of virtual host 'acme' is listed twice",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig(name="hub", **fields).validate()
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_as_many_hosts_as_there_may_be_are_accepted() -> None:
    NodeConfig(name="hub", vhosts=tuple(VhostConfig(name=f"v{n}") for n in range(256))).validate()
    VhostConfig(name="a" * 63, aliases=("b" * 253,)).validate()


def test_a_name_with_a_nul_is_nothings_in_any_host() -> None:
    assert hosted("", "acme\0work") != hosted("acme", "work") and hosted("acme", "work") == "acme\0work"
    assert read_key(hosted("acme", "work")) == ("acme", "work") and read_key(hosted("", "work")) == ("", "work")
    assert (shown("", "work"), shown("acme", "work")) == ("'work'", "'work' of virtual host 'acme'")
