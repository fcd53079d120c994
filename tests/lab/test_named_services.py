"""Names of services under change, and links that copy from a place on: what their workloads find."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.endpoints.addresses.services import Services
from holdfast.queue_links.links import QueueLinks
from holdfast.settings.queues import QueueConfig
from holdfast_lab.canaries import plant
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute

ENDS = tuple(Fault(kind="crash", at=at / 2, node="fra", seconds=0.1) for at in range(2, 16))
NAMES = {"kind": "services", "node": "fra", "addresses": ["one", "other", "third@ber"], "messages": 80, "changes": 15}
SENDS = {"kind": "publish", "node": "fra", "address": "copied@fra", "messages": 80, "rate": 15.0, "name": "copied-in"}
COPIES = {"kind": "copied", "node": "fra", "queue": "copied", "name": "copied-to"}


def run(*workloads: dict[str, Any], seed: int = 1, faults: tuple[Fault, ...] = ()) -> Any:
    plan = Plan(name="names", topology=line("ber fra"), workloads=workloads, faults=faults, safety_s=9.0)
    return execute(plan, seed)


def test_a_message_goes_where_its_name_means() -> None:
    results = [run(NAMES, seed=seed, faults=ENDS) for seed in (1, 2)]
    assert [result.failure for result in results] == ["", ""]
    found = {name.partition(".")[2] for result in results for name in result.metrics}
    assert found >= {"CREATE", "UPDATE", "DELETE", "a message allowed", "a message refused", "a link allowed"}


def test_a_node_that_is_drained_refuses_before_it_looks_at_a_name() -> None:
    drains = tuple(Fault(kind="drain", at=at, node="fra", seconds=1.0) for at in (1.0, 3.0, 5.0))
    result = run(NAMES, faults=drains)
    assert result.failure == ""
    assert result.metrics["faults"]["drain"] == 3


def test_a_name_means_another_thing_in_another_virtual_host() -> None:
    queues = tuple(QueueConfig(name=name, vhost=host) for name in ("one", "other") for host in ("", "acme"))
    topology = replace(line("ber fra"), queues={"fra": queues})
    told = {**NAMES, "addresses": ["one", "other"], "messages": 40, "called": "either"}
    both = ({**told, "name": "default-either"}, {**told, "name": "acme-either", "vhost": "acme"})
    plan = Plan(name="names", topology=topology, workloads=both, faults=ENDS, safety_s=9.0)
    assert execute(plan, 1).failure == ""
    with plant("name-of-another-host"):
        assert "service 'either'" in execute(plan, 1).failure


def test_what_is_copied_is_what_comes_behind_the_start() -> None:
    results = [run(SENDS, COPIES, seed=seed, faults=ENDS) for seed in (1, 2)]
    assert [result.failure for result in results] == ["", ""]
    assert all(result.metrics["copied-2.links"] == 3 for result in results)
    assert sum(result.metrics["copied-2.stopped"] for result in results) > 0


@pytest.mark.parametrize("what", ["stays", "row", "of before"])
def test_a_name_that_means_something_else_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "row":
        with plant("name-is-back"):
            failures = [run(NAMES, seed=seed, faults=ENDS).failure for seed in (1, 2, 3)]
    else:
        register = Services.register

        def wrong(self: Services, host: str, name: str, address: str) -> None:
            if what == "of before" and self.find(host, name) is not None:
                return
            register(self, host, name, "one")

        monkeypatch.setattr(Services, "register", wrong)
        failures = [run(NAMES, seed=seed).failure for seed in (1, 2)]
    told = ("which meant", "was told to mean", "at a restart: services")
    assert any(text in failure for text in told for failure in failures), failures


@pytest.mark.parametrize("what", ["start", "stop"])
def test_a_link_that_copies_too_much_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "stop":
        stop = QueueLinks.stop
        monkeypatch.setattr(QueueLinks, "stop", lambda self, link, *, is_stopped: stop(self, link, is_stopped=False))
        failures = [run(SENDS, COPIES, seed=seed).failure for seed in (1, 2)]
        assert any("has copied" in failure or "is running" in failure for failure in failures), failures
        return
    with plant("link-begins-early"):
        failures = [run(SENDS, COPIES, seed=seed).failure for seed in (1, 2, 3, 4)]
    assert any("from before its start" in failure for failure in failures), failures
