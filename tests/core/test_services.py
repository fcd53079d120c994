"""Names of services: `$service/NAME` is the address that is registered for NAME (docs/amqp.md, "Services")."""

from typing import Any

import pytest

from core.test_access import login, node
from holdfast.amqp.connection import Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source
from holdfast.endpoints.addresses import services
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Rig
from support.routing import network


def registered(address: str = "orders", **fields: Any) -> tuple[Rig, Any, Client]:
    rig, hub, client = world(**fields)
    done(client, "CREATE", "service", "billing", address=address)
    return rig, hub, client


def refused(client: Client) -> list[str]:
    """Conditions of the links that were refused since this was asked."""
    client.rig.settle()
    found = [str(item.error.condition) for item in client.detached if item.error]
    client.detached.clear()
    return found


def anonymous(client: Client) -> Sender:
    link = client.session.attach_sender("anonymous", Source(), None)
    client.rig.settle()
    return link


def post(client: Client, link: Sender, to: str, body: str) -> str:
    """ "" for accepted, else the condition."""
    link.send(Message(properties=Properties(to=to), data=[body.encode()]).encode(), context=body, settled=False)
    client.rig.settle()
    ((_, state),) = [item for item in client.outcomes if item[0] == body]
    return "" if isinstance(state, Accepted) else str(state.error.condition) if isinstance(state, Rejected) else "?"


def test_a_service_is_sent_to_and_received_from_by_its_name() -> None:
    rig, hub, client = registered()
    fill(rig, client, 3, "$service/billing")
    assert hub.bodies("orders") == ["1", "2", "3"]
    link = client.receiver("$service/billing")
    rig.settle()
    assert client.bodies() == ["1", "2", "3"]
    assert link.remote_attach is not None and link.remote_attach.source.address == "$service/billing"


def test_a_name_that_is_not_registered_is_not_found_and_makes_no_queue() -> None:
    _, hub, client = registered()
    client.sender("$service/nobody")
    client.receiver("$service/nobody")
    assert refused(client) == ["amqp:not-found"] * 2
    assert post(client, anonymous(client), "$service/nobody", "x") == "amqp:not-found"
    assert not [name for name in hub.core.catalog.queues if "service" in name]


def test_a_changed_name_holds_for_what_is_attached_and_sent_from_then_on() -> None:
    rig, hub, client = registered()
    link, relay = client.sender("$service/billing"), anonymous(client)
    rig.settle()
    assert post(client, relay, "$service/billing", "1") == ""
    assert done(client, "UPDATE", "service", "billing", address="later")["changed"] is True
    assert done(client, "UPDATE", "service", "billing", address="later")["changed"] is False
    client.send(link, "attached before")
    assert post(client, relay, "$service/billing", "2") == ""
    fill(rig, client, 1, "$service/billing", 3)
    assert hub.bodies("orders") == ["1", "attached before"] and hub.bodies("later") == ["2", "3"]
    done(client, "DELETE", "service", "billing")
    assert post(client, relay, "$service/billing", "4") == "amqp:not-found"
    assert client.manage("READ", "service", "billing")[0] == 404


def test_a_service_at_another_node_and_a_topic() -> None:
    rig = Rig()
    jfk, hub = network(rig, "jfk-hub")
    rig.run(3)
    client = rig.client(jfk)
    done(client, "CREATE", "service", "billing", address="work@hub")
    done(client, "CREATE", "service", "news", address="topic/news")
    fill(rig, client, 2, "$service/billing")
    rig.run(2)
    assert hub.bodies("work") == ["1", "2"]
    jfk.unwatched.add("$service/news")  # nothing durable wants it
    client.receiver("$service/news")
    rig.settle()
    fill(rig, client, 1, "$service/news", 7)
    assert client.bodies() == ["7"]


def test_names_last_over_a_crash_and_are_listed() -> None:
    rig, hub, client = registered()
    done(client, "CREATE", "service", "gone", address="x")
    done(client, "DELETE", "service", "gone")
    hub.crash()
    hub.start()
    client = rig.client(hub)
    assert done(client, "QUERY", "service", "")["services"] == [{"name": "billing", "address": "orders"}]
    assert done(client, "READ", "service", "billing")["address"] == "orders"
    status, answer, _ = client.manage("CREATE", "service", "billing", address="orders")
    assert (status, answer["created"]) == (200, False)
    assert client.manage("CREATE", "service", "billing", address="other")[0] == 409


@pytest.mark.parametrize("drop", [True, False])
def test_a_refused_commit_forgets_no_name(drop: bool) -> None:
    rig, hub, client = registered("here")
    hub.refuse = 1
    link = client.sender("filled")
    rig.settle()
    client.send(link, "x")
    client.manage(
        "DELETE" if drop else "CREATE", "service", "billing" if drop else "other", **({} if drop else {"address": "b"})
    )
    rig.run(2)
    hub.crash()
    hub.start()
    names = {row["name"] for row in done(rig.client(hub), "QUERY", "service", "")["services"]}
    assert names == (set() if drop else {"billing", "other"})


@pytest.mark.parametrize(
    "address",
    ["$service/other", "$dead-letters", "$dead-letters@hub", "$management", "", "@hub", "a\0b", "x" * 300, 5, None],
)  # fmt: skip
def test_no_other_address_can_be_registered(address: object) -> None:
    _, _, client = world()
    assert client.manage("CREATE", "service", "billing", address=address)[0] == 400
    assert client.manage("READ", "service", "billing")[0] == 404


@pytest.mark.parametrize("name", ["", "a@b", "$x", "x" * 300, "a\0b"])
def test_no_other_name_can_be_registered(name: str) -> None:
    _, _, client = world()
    assert client.manage("CREATE", "service", name, address="work")[0] == 400


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "SERVICES_MAX", 201)
    _, _, client = world(limits=Limits(user_requests_per_s=10_000))
    for number in range(201):
        done(client, "CREATE", "service", f"s{number}", address="work")
    status, _, text = client.manage("CREATE", "service", "one-more", address="work")
    assert status == 409 and "the limit is 201" in text
    assert client.manage("UPDATE", "service", "s7", address="other")[0] == 200
    first = done(client, "QUERY", "service", "")
    assert first["more"] is True and len(first["services"]) == 200
    rest = done(client, "QUERY", "service", "", after=first["services"][-1]["name"])
    assert rest["more"] is False and len(rest["services"]) == 1
    done(client, "DELETE", "service", "s9")
    done(client, "CREATE", "service", "one-more", address="work")


def test_who_may_not_use_an_address_does_not_learn_its_name() -> None:
    hub = node(queues=(QueueConfig(name="in"), QueueConfig(name="secret")))
    root = login(hub, "root")
    done(root, "CREATE", "service", "mine", address="in")
    done(root, "CREATE", "service", "hidden", address="secret")
    ann = login(hub, "ann")
    rig, relay = hub.rig, anonymous(ann)
    fill(rig, ann, 1, "$service/mine")
    assert hub.bodies("in") == ["1"]
    told = {name: ann.manage("READ", "service", name)[::2] for name in ("hidden", "nobody")}
    assert told["hidden"] == told["nobody"] and told["hidden"][0] == 403
    for name in ("hidden", "nobody"):
        ann.sender(f"$service/{name}")
        assert refused(ann) == ["amqp:unauthorized-access"]
        assert post(ann, relay, f"$service/{name}", name) == "amqp:unauthorized-access"
    assert ann.manage("READ", "service", "mine")[0] == 200
    assert ann.manage("UPDATE", "service", "mine", address="ann.x")[0] == 403


def test_a_name_is_one_of_its_virtual_host() -> None:
    rig, hub, _ = world(QueueConfig(name="orders", vhost="acme"), vhosts=(VhostConfig(name="acme"),))
    held = hub.core.services
    held.register("acme", "billing", "orders")
    assert held.find("acme", "billing") == "orders" and held.find("", "billing") is None
    held.register("", "billing", "elsewhere")
    assert (held.find("acme", "billing"), held.find("", "billing")) == ("orders", "elsewhere")
    assert held.names("acme") == held.names("") == ["billing"]
    rig.run(1)
