"""Pods counted into groups."""

from kvarn_operator.resources.worker_pool import PodProblem
from kvarn_operator.rollout.progress import Gate, PodGroup, PoolStep, groups_of

from tests.unit.operator.rollout.rollout_builders import OTHER, SAME, D, group, old, pod, pool, waiting


def test_each_pod_is_counted_once_by_what_it_is_good_for() -> None:
    pods = [
        pod("a"), pod("b"), waiting("c"), waiting("d", PodProblem.UNSCHEDULABLE), waiting("e", PodProblem.CRASHING),
        waiting("f", started=True), waiting("g", PodProblem.CRASHING, started=True),
        pod("h", revision="old", pairing=OTHER), pod("i", revision="old"),
    ]  # fmt: skip
    assert groups_of(pods) == (
        PodGroup("new", SAME, serving=2, starting=3, unschedulable=1, lapsed=1),
        PodGroup("old", SAME, serving=1),
        PodGroup("old", OTHER, serving=1),
    )


def test_the_wanted_revision_is_one_group_whatever_its_annotations_say() -> None:
    found = pool(D, 3, group(serving=1), group(pairing=OTHER, serving=2, starting=1), old(serving=4))
    assert found.current == PodGroup("new", SAME, serving=3, starting=1)
    assert found.old == (old(serving=4),)
    assert (found.serving, found.total) == (7, 8)


def test_only_a_pool_without_any_node_is_blocked() -> None:
    assert [gate for gate in Gate if PoolStep(D, gate=gate).blocked] == [Gate.UNSCHEDULABLE]
