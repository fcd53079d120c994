"""Policies: examples from the paper by hand, and what holds for any root and any clients."""

from math import fsum, inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.pacing.choosing import NAMES, policy_of
from holdfast.pacing.level import ROOT_LEVEL, Level
from holdfast.pacing.policies import Backlog, Fixed, Overflow, Weights, latest_overflow_s
from holdfast.pacing.policy import (
    FLOOR_SHARE,
    HORIZON_S,
    Load,
    Policy,
    Root,
    Thresholds,
    equal_shares,
    floors,
    until_overflow_s,
)
from support import today

PAPER_ROOT = Root(rate=25.0, capacity=800.0, used=20.0)
POLICIES: list[Policy] = [Fixed(), Weights(), Backlog(), Overflow(), Level(0.0), Level(0.5), Level(1.0)]
BY_NAME = {f"{policy.name} {policy.lend:g}": policy for policy in POLICIES}
NEAR = 1e-9


def loads(shares: bool = True) -> st.SearchStrategy[Load]:
    capacities = st.floats(10, 1e4)
    return st.builds(
        lambda capacity, part, arrivals, spread, weight, share: Load(
            capacity, part * capacity, arrivals, spread, weight, share
        ),
        capacities,
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
        st.one_of(st.just(0.0), st.floats(0, 500)),
        st.floats(0, 50),
        st.integers(0, 9),
        st.floats(0.1, 10) if shares else st.just(1.0),
    )


def roots(lend: float) -> st.SearchStrategy[Root]:
    return st.builds(
        lambda rate, capacity, part: Root(rate, capacity, part * capacity, lend),
        st.floats(1, 1e3), st.floats(10, 1e5), st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
    )  # fmt: skip


LOOPS = st.floats(0.05, 30)
any_policy = pytest.mark.parametrize("policy", POLICIES, ids=BY_NAME)

# ------------------------------------------------------------------------------------------------ for any clients


@any_policy
@settings(max_examples=today.drawn(10))  # of each policy
@given(st.data(), LOOPS)
def test_rates_sum_to_at_most_the_budget_and_none_is_below_its_floor(
    policy: Policy, data: st.DataObject, loop_s: float
) -> None:
    root = data.draw(roots(policy.lend))
    clients = data.draw(st.lists(loads(), min_size=1, max_size=12))
    rates = policy.rates(root, clients, loop_s)
    assert len(rates) == len(clients)
    budget = policy.budget(root, loop_s)
    assert fsum(rates) <= budget * (1 + NEAR)
    if not policy.lend:
        assert budget == root.rate
    for rate, floor in zip(rates, floors(root.rate, clients), strict=True):
        assert rate >= floor * (1 - NEAR)
        assert rate < inf


@any_policy
@settings(max_examples=today.drawn(10))  # of each policy
@given(st.data(), LOOPS)
def test_the_order_of_clients_decides_nothing(policy: Policy, data: st.DataObject, loop_s: float) -> None:
    root = data.draw(roots(policy.lend))
    clients = data.draw(st.lists(loads(), min_size=1, max_size=8))
    order = data.draw(st.permutations(range(len(clients))))
    rates = policy.rates(root, clients, loop_s)
    others = policy.rates(root, [clients[at] for at in order], loop_s)
    assert others == pytest.approx([rates[at] for at in order], rel=1e-6, abs=1e-6 * root.rate)


@any_policy
@settings(max_examples=today.drawn(10))  # of each policy
@given(st.data(), LOOPS)
def test_clients_that_are_alike_have_like_rates(policy: Policy, data: st.DataObject, loop_s: float) -> None:
    root, client = data.draw(roots(policy.lend)), data.draw(loads(shares=False))
    rates = policy.rates(root, [client] * 5, loop_s)
    assert rates == pytest.approx([rates[0]] * 5)


@any_policy
@settings(max_examples=today.drawn(10))  # of each policy
@given(st.data(), LOOPS, st.floats(0.01, 100))
def test_the_unit_decides_nothing(policy: Policy, data: st.DataObject, loop_s: float, unit: float) -> None:
    root = data.draw(roots(policy.lend))
    clients = data.draw(st.lists(loads(), min_size=1, max_size=5))
    scaled_root = Root(root.rate * unit, root.capacity * unit, root.used * unit, root.lend)
    scaled = [
        Load(one.capacity * unit, one.used * unit, one.arrivals * unit, one.spread * unit, one.weight, one.share)
        for one in clients
    ]
    times = policy.overflow_s(root, clients, loop_s), policy.overflow_s(scaled_root, scaled, loop_s)
    # At the bounds between two plans a rounding chooses.
    assume(len({time_s < loop_s for time_s in times}) == 1 and len({time_s < HORIZON_S for time_s in times}) == 1)
    rates = [rate * unit for rate in policy.rates(root, clients, loop_s)]
    others = policy.rates(scaled_root, scaled, loop_s)
    assert others == pytest.approx(rates, rel=1e-6, abs=1e-6 * root.rate * unit)


@pytest.mark.parametrize("policy", [Weights(), Backlog(), Overflow(), Level(0.0)], ids=lambda policy: policy.name)
@settings(max_examples=today.drawn(17))
@given(st.data())
def test_who_needs_more_has_no_less(policy: Policy, data: st.DataObject) -> None:
    root = data.draw(roots(0.0))
    clients = data.draw(st.lists(loads(), min_size=2, max_size=6))
    loop_s = 1.0
    more = clients[0]
    fuller = min(more.capacity, more.used + data.draw(st.floats(0, 1)) * more.free)
    needier = [more._replace(used=fuller, weight=min(9, more.weight + 1)), *clients[1:]]
    before = policy.rates(root, clients, loop_s)
    after = policy.rates(root, needier, loop_s)
    if policy.name == "weights" and not any(client.weight for client in clients):
        return  # all alike before
    sooner = [policy.overflow_s(root, these, loop_s) for these in (clients, needier)]
    if policy.name == "level":  # within one plan: another plan divides by another rule
        assume(all(time_s >= 5 for time_s in sooner) or all(time_s < loop_s for time_s in sooner))
    assert after[0] >= before[0] * (1 - 1e-6)


@any_policy
@settings(max_examples=today.drawn(10))  # of each policy
@given(st.data())
def test_no_time_to_overflow_is_beyond_the_horizon(policy: Policy, data: st.DataObject) -> None:
    root = data.draw(roots(policy.lend))
    clients = data.draw(st.lists(loads(), max_size=5))
    assert 0 <= policy.overflow_s(root, clients, 1.0) <= HORIZON_S


@any_policy
def test_without_clients_there_is_nothing_to_share(policy: Policy) -> None:
    assert policy.rates(PAPER_ROOT, [], 1.0) == []


# ------------------------------------------------------------------------------------------------ by hand


def test_weights_are_the_papers_equation() -> None:
    # §3.3, figure 6: R_i = R w_i / (w_1 + w_2 + w_3)
    clients = [Load(200, 0, 0, weight=weight) for weight in (2, 6, 9)]
    assert Weights().rates(PAPER_ROOT, clients, 1.0) == pytest.approx([25 * 2 / 17, 25 * 6 / 17, 25 * 9 / 17])


def test_weights_that_are_all_zero_are_equal_shares() -> None:
    clients = [Load(200, 0, 0)] * 3
    assert Weights().rates(PAPER_ROOT, clients, 1.0) == pytest.approx([25 / 3] * 3)


def test_a_weight_of_zero_leaves_a_hundredth_of_an_equal_share() -> None:
    clients = [Load(200, 0, 0, weight=weight) for weight in (0, 5, 5)]
    least = FLOOR_SHARE * 25 / 3
    assert Weights().rates(PAPER_ROOT, clients, 1.0) == pytest.approx([least, (25 - least) / 2, (25 - least) / 2])


def test_the_default_weights_are_the_papers() -> None:
    # §4.2: X where the utilisation is X * 10 % or more, and less than (X + 1) * 10 %
    policy = Weights()
    assert [policy.weight(used, 200) for used in (0, 19, 20, 39, 40, 60, 179, 180, 200)] == [0, 0, 1, 1, 2, 3, 8, 9, 9]


def test_other_thresholds_may_be_given() -> None:
    policy = Weights(Thresholds(((0.0, 1), (0.5, 100))))
    assert [policy.weight(used, 10) for used in (0, 4.9, 5, 10)] == [1, 1, 100, 100]


@pytest.mark.parametrize(
    "steps", [((0.5, 1), (0.4, 2)), ((0.5, 1), (0.5, 2)), ((-0.1, 1),), ((1.1, 1),), ((0.5, 1_001),), ((0.5, -1),)]
)
def test_thresholds_that_mean_nothing_are_refused(steps: tuple[tuple[float, int], ...]) -> None:
    with pytest.raises(ValueError, match="invalid"):
        Thresholds(steps)


def test_more_thresholds_than_may_be_are_refused() -> None:
    steps = tuple((at / 1_000, 1) for at in range(Thresholds.STEPS_MAX + 1))
    Thresholds(steps[:-1])
    with pytest.raises(ValueError, match="expected at most 100"):
        Thresholds(steps)


def test_overflow_fills_all_that_would_fill_at_the_same_time() -> None:
    clients = [Load(200, 100, 20.0), Load(200, 50, 20.0), Load(200, 0, 0.0)]
    rates = Overflow().rates(PAPER_ROOT, clients, 1.0)
    times = [one.free / (one.arrivals - rate) for one, rate in zip(clients[:2], rates[:2], strict=True)]
    assert times[0] == pytest.approx(times[1])
    assert times[0] == pytest.approx(Overflow().overflow_s(PAPER_ROOT, clients, 1.0))
    assert fsum(rates) == pytest.approx(25.0)


def test_level_brings_queues_to_one_utilisation() -> None:
    clients = [Load(200, 150, 5.0), Load(200, 20, 5.0), Load(400, 100, 10.0)]
    loop_s = 1.0
    rates = Level(0.0).rates(PAPER_ROOT, clients, loop_s)
    assert fsum(rates) == pytest.approx(25.0)
    after = [(one.used + 5 * (one.arrivals - rate)) / one.capacity for one, rate in zip(clients, rates, strict=True)]
    assert after[0] == pytest.approx(max(after))
    assert rates[1] == pytest.approx(FLOOR_SHARE * 25 / 3)  # far below the level: it can wait


def test_level_lends_what_nobody_needs_to_all_alike() -> None:
    clients = [Load(200, 0, 1.0), Load(200, 0, 2.0), Load(200, 0, 3.0)]
    rates = Level(0.0).rates(PAPER_ROOT, clients, 1.0)
    assert [rate - 19 / 3 for rate in rates] == pytest.approx([1.0, 2.0, 3.0])


def test_level_spares_who_offers_less_than_its_share_where_space_is_used_up() -> None:
    clients = [Load(200, 200, 30.0), Load(200, 100, 4.0), Load(200, 200, 15.0)]
    rates = Level(0.0).rates(Root(25, 800, 20, 0.0), clients, 1.0)
    assert rates == pytest.approx([25 / 2 - FLOOR_SHARE * 25 / 6, FLOOR_SHARE * 25 / 3, 25 / 2 - FLOOR_SHARE * 25 / 6])
    clients[1] = Load(200, 190, 4.0)  # at 95 %: what it is offered must leave
    assert Level(0.0).rates(Root(25, 800, 20, 0.0), clients, 1.0) == pytest.approx([10.5, 4.0, 10.5])


def test_level_uses_the_roots_space_where_it_is_lent() -> None:
    clients = [Load(200, 100, 60.0), Load(200, 0, 4.0), Load(200, 0, 5.0)]
    assert fsum(Level(0.0).rates(PAPER_ROOT, clients, 1.0)) == pytest.approx(25.0)
    assert fsum(Level(1.0).rates(PAPER_ROOT._replace(lend=1.0), clients, 1.0)) > 40
    full = Root(25, 800, 800, 1.0)
    assert fsum(Level(1.0).rates(full, clients, 1.0)) == pytest.approx(25.0)


def test_the_time_to_overflow_is_that_of_the_first_queue() -> None:
    clients = [Load(200, 100, 30.0), Load(200, 190, 10.0)]
    assert until_overflow_s(PAPER_ROOT, clients, [10.0, 5.0]) == pytest.approx(2.0)
    assert until_overflow_s(PAPER_ROOT, clients, [30.0, 15.0]) == pytest.approx(780 / 20)
    assert until_overflow_s(PAPER_ROOT, clients, [30.0, 10.0]) == pytest.approx(780 / 15)


def test_the_latest_overflow_is_where_all_rates_are_used() -> None:
    clients = [Load(200, 0, 30.0), Load(200, 0, 4.0)]
    time_s = latest_overflow_s(25.0, 0.0, clients, [30.0, 4.0], [0.1, 0.1])
    assert time_s == pytest.approx((200 - 0) / (30 - 24.9))  # the other may wait at its floor
    assert latest_overflow_s(25.0, 0.0, [Load(200, 200, 30.0)], [30.0], [0.1]) == 0.0
    assert latest_overflow_s(25.0, 0.0, [Load(200, 200, 5.0)], [5.0], [0.1]) == HORIZON_S


def test_shares_divide_what_is_divided_equally() -> None:
    assert equal_shares(30.0, [Load(1, 0, 0, share=1.0), Load(1, 0, 0, share=2.0)]) == pytest.approx([10.0, 20.0])


def test_policies_are_chosen_by_name() -> None:
    assert [policy_of(name).name for name in NAMES] == list(NAMES)
    assert policy_of("level", lend=0.5).lend == 0.5
    assert [name for name in NAMES if policy_of(name).triggered] == ["level"]


@pytest.mark.parametrize(
    ("name", "lend", "text"),
    [
        ("fair", 0.0, "invalid policy 'fair'; expected one of fixed, weights, backlog, overflow, level"),
        ("level", 1.5, "invalid value 1.5 for lend; expected 0 to 1"),
        ("weights", 0.5, "invalid value 0.5 for lend; expected 0, since 'weights' does not lend the root's space"),
    ],
)
def test_what_cannot_be_chosen_is_one_line(name: str, lend: float, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{text}$"):
        policy_of(name, lend=lend)


def test_level_itself_lends_at_most_all() -> None:
    with pytest.raises(ValueError, match="invalid value 2 for lend; expected 0 to 1"):
        Level(2)


def test_a_plan_takes_as_long_as_three_loops_where_those_are_longer() -> None:
    """Faster, queues would swing."""
    level, root = Level(0.0), Root(rate=2_000.0, capacity=100_000.0, used=0.0)
    clients = [Load(50_000.0, 20_000.0, 1_200.0, 0.0, 1, 1.0), Load(50_000.0, 15_000.0, 1_200.0, 0.0, 1, 1.0)]
    least = floors(root.rate, clients)
    assert 15.0 < level.overflow_s(root, clients, 5.0) < HORIZON_S
    for loop_s, plan_s in ((0.1, 5.0), (5.0, 15.0)):
        planned = level._levelled(root, clients, least, plan_s)
        assert level.rates(root, clients, loop_s) == pytest.approx(planned)
    assert planned != pytest.approx(level.rates(root, clients, 0.1))


def test_what_nobody_needs_is_lent_up_to_what_the_root_has_room_for() -> None:
    root = Root(rate=1_000.0, capacity=100_000.0, used=20_000.0)
    clients = [Load(50_000.0, 0.0, 10.0, 0.0, 1, 1.0) for _ in range(3)]
    lent = ROOT_LEVEL * root.capacity - root.used
    assert lent > 0
    assert fsum(Level(1.0).rates(root, clients, 2.0)) == pytest.approx(root.rate + lent / 2.0)
    assert fsum(Level(0.0).rates(root, clients, 2.0)) == pytest.approx(root.rate)
    assert fsum(Level(1.0).rates(root._replace(used=95_000.0), clients, 2.0)) == pytest.approx(root.rate)
