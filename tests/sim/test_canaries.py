"""Planted defects are found: each by a seed of the swarm that ends well without it."""

import pytest

from holdfast.errors import ConfigError
from holdfast_lab.canaries import CANARIES, CanaryStale, plant
from holdfast_lab.canaries.find import catches, run
from holdfast_lab.canaries.planting import Canary, planted
from support import today

pytestmark = pytest.mark.sim

DAILY = 2


@pytest.mark.parametrize("name", today.some(list(CANARIES), DAILY))
def test_its_seed_fails_with_it_and_ends_well_without(name: str) -> None:
    """Each within two months; `make canaries` takes all."""
    canary = CANARIES[name]
    assert canary.seed, f"{canary.name}: no seed is known: {__doc__}"
    failure = catches(canary, canary.seed)
    assert failure and canary.expected in failure, f"{canary.name}, seed {canary.seed}: {failure!r}"
    assert run(canary.seed, canary.swarm).failure == "", f"{canary.name}: seed {canary.seed} fails without it"


def test_there_are_enough_and_each_says_what_is_wrong() -> None:
    assert len(CANARIES) >= 10
    assert len({canary.sentence for canary in CANARIES.values()}) == len(CANARIES)
    assert all(0 < canary.seed <= canary.within and canary.expected for canary in CANARIES.values())


@pytest.mark.parametrize("name", CANARIES)
def test_it_is_gone_behind_its_block(name: str) -> None:
    owner, attribute, function = CANARIES[name].find()
    with plant(name):
        assert vars(owner)[attribute] is not function
    assert vars(owner)[attribute] is function


@pytest.mark.parametrize(
    ("target", "signature"),
    [
        ("custody.hop.sender:CustodySender.no_such_thing", "(self)"),
        ("core.no_such_module:f", "()"),
        ("core.node:NoSuchClass.handle", "(self)"),
        ("core.node:NodeCore.handle", "(self, event)"),
        ("core.offering:PUMP_LIMIT", "()"),
    ],
)
def test_one_whose_target_changed_is_an_error(target: str, signature: str) -> None:
    stale = Canary(
        name="stale", sentence="-", target=target, signature=signature, broken=lambda original: original, expected=""
    )
    with pytest.raises(CanaryStale, match="canary 'stale'"), planted(stale):
        pass


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(ConfigError, match="hop-number-ahead"), plant("no-such-canary"):
        pass
