"""Who goes first."""

from itertools import permutations

import pytest
from kvarn_operator.reconcile.observed import Readings, WorkerReading
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.rollout.victims import choose_victims
from kvarn_operator.scaling.observation import PodMetrics
from kvarn_operator.scaling.spec import PodName

from tests.unit.operator.rollout.rollout_builders import pod, waiting


def readings(**in_flight: tuple[int, int]) -> Readings:
    """By pod: requests in flight and cached blocks."""
    metrics = PodMetrics(0.0)
    return Readings({PodName(name): WorkerReading(metrics, *values) for name, values in in_flight.items()})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (waiting("b", PodProblem.UNSCHEDULABLE), waiting("a")),
        (waiting("b", PodProblem.CRASHING, deletion_cost=9), waiting("a")),
        (waiting("b"), waiting("a", started=True)),
        (waiting("b", started=True, deletion_cost=9), pod("a")),
        (pod("busy", deletion_cost=-1), pod("idle")),
        (pod("idle"), pod("busy")),
        (pod("busy"), pod("a")),
        (pod("new", ready_since=1.0), pod("busy")),
        (pod("new", ready_since=1.0), pod("a", ready_since=-1.0)),
        (pod("cold"), pod("warm")),
        (pod("idle", created_at=2.0), pod("calm", created_at=1.0)),
        (pod("calm"), pod("idle")),
    ],
    ids=[
        "no node", "crashing", "loading", "not ready", "deletion cost", "in flight", "unknown is busiest",
        "unknown because new", "new before silent",
        "cached blocks", "newest", "name",
    ],
)  # fmt: skip
def test_order(first: WorkerPod, second: WorkerPod) -> None:
    seen = readings(idle=(0, 0), calm=(0, 0), busy=(3, 0), cold=(1, 5), warm=(1, 90))
    for candidates in ([first, second], [second, first]):
        assert choose_victims(candidates, 1, seen) == (first,)
        assert choose_victims(candidates, 2, seen) == (first, second)


def test_the_same_candidates_in_any_order_give_the_same_victims() -> None:
    pods = [pod("a"), pod("b"), waiting("c"), pod("idle")]
    found = {choose_victims(order, 2, readings(idle=(0, 0))) for order in permutations(pods)}
    assert found == {(waiting("c"), pod("idle"))}


def test_no_more_than_there_are() -> None:
    assert choose_victims([pod("a")], 3, Readings()) == (pod("a"),)
    assert choose_victims([pod("a")], 0, Readings()) == ()
