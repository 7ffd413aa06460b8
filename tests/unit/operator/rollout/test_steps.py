"""The stepwise planner, situation by situation. What holds in all of them is in tests/property."""

from dataclasses import replace

import pytest
from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.rollout.progress import Drain, Gate, PodGroup, PoolProgress
from kvarn_operator.rollout.steps import next_steps, would_stay
from kvarn_operator.scaling.spec import Role

from tests.unit.operator.rollout.rollout_builders import (
    IN_PLACE,
    OTHER,
    SAME,
    SURGE,
    THIRD,
    D,
    P,
    does,
    group,
    old,
    pool,
    step,
)

BOTH = Rollout(max_surge=1, max_unavailable=1)


class TestScaling:
    """Without any old pod, a step is only the difference."""

    def test_nothing_to_do(self) -> None:
        found = step(SURGE, pool(D, 2, group(serving=2)))
        assert (does(found), found.gate, found.message) == ((0, {}), Gate.NONE, "")

    def test_all_missing_pods_at_once(self) -> None:
        assert does(step(SURGE, pool(D, 9))) == (9, {})

    def test_pods_on_their_way_count(self) -> None:
        found = step(SURGE, pool(D, 5, group(serving=1, starting=2)))
        assert does(found) == (2, {})

    def test_surplus_goes(self) -> None:
        assert does(step(SURGE, pool(D, 1, group(serving=3)))) == (0, {"new": 2})

    def test_to_zero(self) -> None:
        found = step(SURGE, pool(D, 0, group(serving=2, starting=1), old(serving=1, lapsed=1)))
        assert does(found) == (0, {"new": 3, "old": 2})

    def test_a_surplus_with_two_annotations_loses_its_idle_pods_first(self) -> None:
        found = step(SURGE, pool(D, 2, group(serving=2), group(pairing=OTHER, serving=1, starting=1)))
        assert found.drain == (Drain("new", SAME, 1), Drain("new", OTHER, 1))

    def test_without_a_node_it_says_so(self) -> None:
        found = step(SURGE, pool(D, 3, group(serving=1, unschedulable=2)))
        assert (found.gate, found.blocked) == (Gate.UNSCHEDULABLE, True)
        assert found.message == "2 decode pods find no node"

    def test_draining_pods_may_make_room(self) -> None:
        found = step(SURGE, pool(D, 3, group(serving=2, unschedulable=1), draining=2))
        assert (found.gate, found.blocked) == (Gate.DRAINING, False)
        assert found.message == "1 decode pods find no node until 2 others have drained"


class TestOnePool:
    """A change of one pool's template: pods of both revisions pair with the other pool."""

    OTHER_POOL = pool(P, 2, group(serving=2))

    def of(self, rollout: Rollout, *groups: PodGroup, target: int = 3, draining: int = 0) -> tuple[int, dict[str, int]]:
        return does(step(rollout, pool(D, target, *groups, draining=draining), self.OTHER_POOL))

    def test_first_one_more(self) -> None:
        assert self.of(SURGE, old(3, SAME)) == (1, {})

    def test_then_it_waits(self) -> None:
        found = step(SURGE, pool(D, 3, old(3, SAME), group(starting=1)), self.OTHER_POOL)
        assert (does(found), found.gate) == ((0, {}), Gate.STARTING)
        assert found.message == "1 decode pods are not ready yet"

    def test_then_one_less_and_the_next_one(self) -> None:
        assert self.of(SURGE, old(3, SAME), group(serving=1)) == (1, {"old": 1})

    def test_the_end(self) -> None:
        assert self.of(SURGE, old(1, SAME), group(serving=3)) == (0, {"old": 1})

    def test_in_place_one_goes_first(self) -> None:
        assert self.of(IN_PLACE, old(3, SAME)) == (1, {"old": 1})

    def test_the_only_pod_goes_first_only_where_no_second_may_be(self) -> None:
        assert self.of(IN_PLACE, old(1, SAME), target=1) == (1, {"old": 1})
        assert self.of(BOTH, old(1, SAME), target=1) == (1, {})
        assert self.of(BOTH, old(1, SAME), group(starting=1), target=1) == (0, {})

    def test_idle_old_pods_go_at_once(self) -> None:
        assert self.of(SURGE, old(1, SAME, starting=1, unschedulable=1)) == (3, {"old": 2})

    def test_the_last_gpu(self) -> None:
        held = (old(1, SAME), group(unschedulable=1))
        assert self.of(BOTH, *held, target=1) == (0, {"old": 1})
        assert self.of(SURGE, *held, target=1) == (0, {})

    def test_the_last_gpu_is_named_when_nothing_may_go(self) -> None:
        found = step(SURGE, pool(D, 1, old(1, SAME), group(unschedulable=1)), self.OTHER_POOL)
        assert found.blocked
        assert found.message == (
            "1 decode pods find no node; the 1 old ones must serve on (replicas 1, maxUnavailable 0):"
            " a larger maxUnavailable lets them go first"
        )

    def test_a_smaller_target_on_the_way(self) -> None:
        assert self.of(SURGE, old(2, SAME), group(serving=2), target=2) == (0, {"old": 2})

    def test_a_larger_target_on_the_way(self) -> None:
        assert self.of(SURGE, old(2, SAME), group(serving=2), target=5) == (2, {})

    def test_back_in_the_middle(self) -> None:
        """The revision that was left is wanted again: its pods count, those of the other go."""
        assert self.of(SURGE, old(2, SAME), group(serving=2), target=3) == (1, {"old": 1})


class TestLapsed:
    """Old pods that served and are not ready at the moment."""

    def test_they_stay_where_the_pool_is_short_without_them(self) -> None:
        found = step(SURGE, pool(D, 2, old(lapsed=2)), pool(P, 1, old(1)))
        assert does(found) == (1, {})

    def test_they_go_when_enough_serve(self) -> None:
        found = step(SURGE, pool(D, 2, old(1, lapsed=1), group(serving=1)), pool(P, 1, group(serving=1)))
        assert does(found) == (1, {"old": 1})

    def test_they_go_when_a_new_pod_needs_the_node(self) -> None:
        found = step(SURGE, pool(D, 1, old(lapsed=1), group(unschedulable=1)), pool(P, 1, group(serving=1)))
        assert does(found) == (0, {"old": 1})

    def test_their_partners_wait_for_them(self) -> None:
        found = step(BOTH, pool(D, 1, old(1), group(serving=1)), pool(P, 2, old(lapsed=1), group(starting=1)))
        assert (does(found), found.gate) == ((0, {}), Gate.PAIRING)


class TestTwoLayouts:
    """Model, data type or both images changed: only new and new, or old and old, exchange blocks."""

    def test_both_surge(self) -> None:
        steps = next_steps([pool(P, 4, old(4)), pool(D, 2, old(2))], SURGE)
        assert [does(found) for found in steps] == [(1, {}), (1, {})]

    def test_a_pool_waits_for_the_slower_one(self) -> None:
        prefill, decode = pool(P, 2, old(2), group(serving=1)), pool(D, 2, old(2), group(starting=1))
        first, second = next_steps([prefill, decode], SURGE)
        assert (does(first), first.gate) == ((0, {}), Gate.PAIRING)
        assert (does(second), second.gate) == ((0, {}), Gate.STARTING)
        assert first.message == "2 old prefill pods stay until the other pool's new pods serve"

    def test_then_both_go_on(self) -> None:
        steps = next_steps([pool(P, 2, old(2), group(serving=1)), pool(D, 2, old(2), group(serving=1))], SURGE)
        assert [does(found) for found in steps] == [(1, {"old": 1}), (1, {"old": 1})]

    def test_the_only_decode_pod_stays_until_all_prefill_pods_are_new(self) -> None:
        decode = pool(D, 1, old(1), group(serving=1))
        assert does(step(SURGE, decode, pool(P, 4, old(2), group(serving=3)))) == (0, {})
        assert does(step(SURGE, decode, pool(P, 4, old(1), group(serving=4)))) == (0, {"old": 1})

    def test_no_side_is_left_alone(self) -> None:
        """Prefill may be short by one and keeps one old pod, so decode keeps its last old one for it."""
        prefill, decode = pool(P, 4, old(2), group(serving=2)), pool(D, 1, old(1), group(serving=1))
        first, second = next_steps([prefill, decode], BOTH)
        assert does(first) == (2, {"old": 1})
        assert does(second) == (0, {})

    def test_the_last_pair_stays_although_all_may_be_unavailable(self) -> None:
        steps = next_steps([pool(P, 1, old(1), group(serving=1)), pool(D, 1, old(1), group(starting=1))], BOTH)
        assert [does(found) for found in steps] == [(0, {}), (0, {})]

    def test_in_place_both_go_together(self) -> None:
        steps = next_steps([pool(P, 1, old(1)), pool(D, 1, old(1))], IN_PLACE)
        assert [does(found) for found in steps] == [(1, {"old": 1}), (1, {"old": 1})]

    def test_in_place_the_only_decode_pod_goes_half_way(self) -> None:
        decode = pool(D, 1, old(1))
        assert does(step(IN_PLACE, decode, pool(P, 4, old(3), group(serving=1)))) == (0, {})
        assert does(step(IN_PLACE, decode, pool(P, 4, old(2), group(serving=2)))) == (1, {"old": 1})

    def test_without_nodes_both_go_together(self) -> None:
        stuck = (old(1), group(unschedulable=1))
        steps = next_steps([pool(P, 1, *stuck), pool(D, 1, *stuck)], BOTH)
        assert [does(found) for found in steps] == [(0, {"old": 1}), (0, {"old": 1})]

    def test_without_nodes_and_leave_both_are_blocked(self) -> None:
        stuck = (old(1), group(unschedulable=1))
        steps = next_steps([pool(P, 1, *stuck), pool(D, 1, *stuck)], SURGE)
        assert [(does(found), found.blocked) for found in steps] == [((0, {}), True), ((0, {}), True)]

    def test_a_pod_that_serves_nobody_gives_its_node_away(self) -> None:
        """The other pool's old pods are gone, so this one never gets a partner; its successor would have one."""
        prefill, decode = pool(P, 1, group(serving=1)), pool(D, 1, old(1), group(unschedulable=1))
        assert does(step(SURGE, decode, prefill)) == (0, {"old": 1})
        assert does(step(SURGE, decode, pool(P, 1, old(1), group(serving=1)))) == (0, {})
        assert does(step(SURGE, replace(decode, draining=1), prefill)) == (0, {})

    def test_a_pool_at_zero_asks_for_no_partner(self) -> None:
        steps = next_steps([pool(P, 0, old(1)), pool(D, 2, old(2), group(serving=1))], SURGE)
        assert [does(found) for found in steps] == [(0, {"old": 1}), (1, {"old": 1})]

    def test_of_three_layouts_the_pair_that_serves_least_goes_first(self) -> None:
        """And before it, what has no partner."""
        prefill = pool(P, 4, old(1, "q-1-1", "r"), old(1, THIRD, "s"), old(2, OTHER, "t"), group(serving=1))
        decode = pool(D, 4, old(1, THIRD, "s"), old(3, OTHER, "t"), group(serving=1))
        first, second = next_steps([prefill, decode], SURGE)
        assert does(first) == (1, {"r": 1})
        assert does(second) == (1, {"s": 1})


class TestShortage:
    """Both pools change their layout, and there are just as many nodes as pods are wanted."""

    def test_a_surge_gives_its_node_to_the_pool_that_has_too_few(self) -> None:
        steps = next_steps([pool(P, 2, old(1), group(unschedulable=2)), pool(D, 2, old(1), group(serving=2))], BOTH)
        assert [does(found) for found in steps] == [(0, {}), (0, {"new": 1})]

    def test_and_its_waiting_pod_with_it(self) -> None:
        decode = pool(D, 3, old(2), group(serving=2, unschedulable=1))
        steps = next_steps(
            [pool(P, 3, old(2), group(unschedulable=2)), decode], Rollout(max_surge=2, max_unavailable=1)
        )
        assert [does(found) for found in steps] == [(0, {}), (0, {"new": 2})]

    def test_it_does_not_surge_again_meanwhile(self) -> None:
        starving, decode = pool(P, 2, old(1), group(unschedulable=2)), pool(D, 2, old(1), group(serving=1), draining=1)
        assert [does(found) for found in next_steps([starving, decode], BOTH)] == [(0, {}), (0, {})]
        fed = pool(P, 2, old(1), group(starting=1, unschedulable=1))
        assert [does(found) for found in next_steps([fed, decode], BOTH)] == [(0, {}), (1, {})]

    @pytest.mark.parametrize("waiting", [{"starting": 1, "unschedulable": 1}, {"lapsed": 1, "unschedulable": 1}])
    def test_nobody_gives_while_something_is_on_its_way(self, waiting: dict[str, int]) -> None:
        decode = pool(D, 2, old(1), group(serving=2))
        steps = next_steps([pool(P, 2, old(1), group(**waiting)), decode], BOTH)
        assert [does(found) for found in steps] == [(0, {}), (0, {})]

    def test_nobody_gives_for_a_surge(self) -> None:
        steps = next_steps([pool(P, 2, old(2), group(unschedulable=1)), pool(D, 2, old(2), group(serving=1))], SURGE)
        assert [(does(found), found.gate) for found in steps] == [
            ((0, {}), Gate.UNSCHEDULABLE), ((0, {}), Gate.PAIRING),
        ]  # fmt: skip

    def test_a_pool_surges_where_it_is_the_one_that_holds_the_other(self) -> None:
        ahead = pool(P, 4, old(1), group(serving=2, unschedulable=1))
        assert does(next_steps([ahead, pool(D, 2, old(2))], SURGE)[1]) == (1, {})
        behind = pool(P, 4, old(3), group(unschedulable=2))
        assert does(next_steps([behind, pool(D, 2, old(2))], SURGE)[1]) == (0, {})

    def test_a_pool_that_only_grows_holds_nobody(self) -> None:
        growing = pool(P, 4, group(serving=1, unschedulable=3))
        assert does(next_steps([growing, pool(D, 2, old(1), group(serving=1))], SURGE)[1]) == (1, {})
        assert does(next_steps([growing, pool(D, 2, old(2, SAME))], SURGE)[1]) == (1, {})

    def test_a_pair_is_given_up_where_the_user_lets_a_pool_have_none(self) -> None:
        """Prefill's old pod holds the node that the first new decode pod needs."""
        prefill, decode = pool(P, 1, old(1), group(serving=1)), pool(D, 2, old(1), group(unschedulable=2))
        assert [does(found) for found in next_steps([prefill, decode], BOTH)] == [(0, {"old": 1}), (0, {})]
        assert [does(found) for found in next_steps([prefill, replace(decode, draining=1)], BOTH)] == [(0, {}), (0, {})]


class TestRatio:
    STRICT = Rollout(max_surge=0, max_unavailable=3, ratio_tolerance=0.1)

    def of(self, prefill: PoolProgress, decode: PoolProgress, rollout: Rollout) -> list[tuple[int, dict[str, int]]]:
        return [does(found) for found in next_steps([prefill, decode], rollout)]

    def test_two_pools_may_shrink_together(self) -> None:
        assert self.of(pool(P, 4, old(4, SAME)), pool(D, 4, old(4, SAME)), self.STRICT) == [(3, {"old": 3})] * 2

    def test_alone_a_pool_goes_one_by_one(self) -> None:
        found = self.of(pool(P, 4, old(4, SAME)), pool(D, 4, group(serving=4)), self.STRICT)
        assert found == [(1, {"old": 1}), (0, {})]

    def test_the_one_that_is_behind_waits(self) -> None:
        prefill, decode = pool(P, 4, group(serving=4)), pool(D, 4, old(3, SAME), group(starting=1))
        assert self.of(prefill, decode, self.STRICT) == [(0, {}), (0, {})]

    def test_within_the_tolerance_all_go(self) -> None:
        rollout = replace(self.STRICT, ratio_tolerance=0.75)
        assert self.of(pool(P, 4, old(4, SAME)), pool(D, 4, group(serving=4)), rollout)[0] == (3, {"old": 3})

    @pytest.mark.parametrize(("tolerance", "surge"), [(0.0, 1), (0.25, 1), (0.5, 2), (1.0, 4), (9.0, 5)])
    def test_a_surge_is_no_larger_than_the_tolerance(self, tolerance: float, surge: int) -> None:
        rollout = Rollout(max_surge=5, max_unavailable=0, ratio_tolerance=tolerance)
        assert step(rollout, pool(P, 4, old(4, SAME)), pool(D, 4, group(serving=4))).create == min(4, surge)


class TestComingBack:
    """Whether a draining pod would be left alone if it served again."""

    def test_when_nothing_else_serves(self) -> None:
        broken = pool(D, 1, group(starting=1), draining=1)
        assert would_stay([pool(P, 1, group(serving=1)), broken], SURGE, D, old(pairing=SAME))

    def test_not_when_it_made_room(self) -> None:
        swapped = pool(D, 1, group(starting=1), draining=1)
        assert not would_stay([pool(P, 1, group(serving=1)), swapped], IN_PLACE, D, old(pairing=SAME))

    def test_not_when_it_served_nobody(self) -> None:
        pools = [pool(P, 1, group(serving=1)), pool(D, 1, group(unschedulable=1), draining=1)]
        assert not would_stay(pools, SURGE, D, old())

    @pytest.mark.parametrize("role", [P, D])
    def test_beside_others_of_its_kind(self, role: Role) -> None:
        mine, other = pool(role, 2, old(1, SAME), draining=1), pool(D if role is P else P, 1, group(serving=1))
        assert would_stay([other, mine], SURGE, role, old(pairing=SAME))

    def test_idle_ones_of_its_kind_say_nothing(self) -> None:
        mine = pool(D, 2, old(0, SAME, starting=1), draining=1)
        assert would_stay([pool(P, 1, group(serving=1)), mine], SURGE, D, old(pairing=SAME))
