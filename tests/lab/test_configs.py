"""The nodes' files are TOML, and what `holdfast node` takes."""

import tomllib
from pathlib import Path

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.real.configs import Neighbour, NodeFile


def test_a_node_file_says_what_was_asked(tmp_path: Path) -> None:
    file = NodeFile(
        name="jfk",
        role="client",
        data=tmp_path / 'a "quoted" place',
        neighbours=[Neighbour(name="hub", remote="127.0.0.1:1", hold_time_s=2.0), Neighbour(name="ewr")],
        queues=["flights"],
    )
    document = tomllib.loads(file.write(tmp_path).read_text())
    assert document["node"] == {
        "name": "jfk",
        "data": str(tmp_path / 'a "quoted" place'),
        "listen": ["127.0.0.1:0"],
        "roles": ["client"],
    }
    assert document["neighbour"] == [
        {"name": "hub", "remote": "127.0.0.1:1", "keepalive_s": 0.5, "hold_time_s": 2.0},
        {"name": "ewr", "keepalive_s": 0.5, "hold_time_s": 1.5},
    ]
    assert document["queue"] == [{"name": "flights"}]


def test_what_is_not_asked_is_not_said(tmp_path: Path) -> None:
    text = NodeFile(name="hub", role="root", data=tmp_path).text()
    assert set(tomllib.loads(text)) == {"node"}


def test_queues_routes_and_limits_with_all_that_is_not_as_it_comes(tmp_path: Path) -> None:
    file = NodeFile(
        name="hub",
        role="root",
        data=tmp_path,
        queues=["flights", QueueConfig(name="slow", messages_max=20, order="strict", durable=True)],
        routes=[("lhr", "jfk")],
        create_queues=True,
        limits=Limits(credit=10, idle_time_out_s=5.0),
    )
    document = tomllib.loads(file.text())
    assert document["queue"] == [{"name": "flights"}, {"name": "slow", "messages_max": 20, "order": "strict"}]
    assert document["route"] == [{"destination": "lhr", "via": "jfk"}]
    assert document["limits"] == {"credit": 10, "idle_time_out_s": 5.0}
    assert document["node"]["create_queues"] is True


def test_the_virtual_hosts_of_its_queues_are_there(tmp_path: Path) -> None:
    queues = [QueueConfig(name="q"), QueueConfig(name="q", vhost="acme"), QueueConfig(name="p", vhost="acme")]
    document = tomllib.loads(NodeFile(name="hub", role="root", data=tmp_path, queues=queues).text())
    assert document["vhost"] == [{"name": "acme"}] and document["node"]["hostnames"] == ["harness"]
    assert document["queue"] == [{"name": "q"}, {"name": "q", "vhost": "acme"}, {"name": "p", "vhost": "acme"}]


def test_the_virtual_hosts_that_cross_are_there(tmp_path: Path) -> None:
    neighbours = [Neighbour(name="jfk", hosts=("acme", "globex")), Neighbour(name="lhr")]
    queues = [QueueConfig(name="q", vhost="acme")]
    file = NodeFile(name="hub", role="root", data=tmp_path, neighbours=neighbours, queues=queues)
    document = tomllib.loads(file.text())
    assert [each.get("hosts") for each in document["neighbour"]] == [["acme", "globex"], None]
    assert document["vhost"] == [{"name": "acme"}, {"name": "globex"}]
