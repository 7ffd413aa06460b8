"""Who fights over a pool's replicas: going back and forth does, a hand-over and a person do not."""

import pytest
from kvarn_operator.reconcile.replicas_writers import KEPT, WINDOW_S, Write, fighters, remembered, writers_json
from kvarn_operator.resources.worker_pool_parsing import UNTRACKED_WRITER
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import ScalingMode

HPA, KEDA, KUBECTL = "kube-controller-manager", "keda", "kubectl-scale"


def writes(*names: str, at: float = 0.0) -> tuple[Write, ...]:
    return tuple(Write(name, number, at) for number, name in enumerate(names))


@pytest.mark.parametrize(
    ("names", "outside", "in_slo_mode"),
    [
        ((), (), ()),
        ((HPA,), (), ()),
        ((HPA, HPA, HPA), (), (HPA,)),
        ((KUBECTL, KUBECTL, KUBECTL), (), ()),
        ((KUBECTL, HPA), (), ()),
        ((KUBECTL, KUBECTL, HPA), (), ()),
        ((HPA, KUBECTL, HPA), (HPA, KUBECTL), (HPA, KUBECTL)),
        ((HPA, KEDA), (), (KEDA, HPA)),
        ((UNTRACKED_WRITER,) * 2, (), ()),
        ((UNTRACKED_WRITER,) * 3, (), (UNTRACKED_WRITER,)),
    ],
)
def test_who_fights(names: tuple[str, ...], outside: tuple[str, ...], in_slo_mode: tuple[str, ...]) -> None:
    for mode in (ScalingMode.MANUAL, ScalingMode.EXTERNAL):
        assert fighters(writes(*names), mode, WINDOW_S) == outside
    assert fighters(writes(*names), ScalingMode.SLO, WINDOW_S) == in_slo_mode


def test_a_fight_is_over_when_nobody_has_written_for_a_while() -> None:
    assert fighters(writes(HPA, KUBECTL, HPA), ScalingMode.EXTERNAL, WINDOW_S + 1) == ()


def test_a_fight_that_a_clock_put_into_the_future_ends_too() -> None:
    saved = writers_json(writes(HPA, KUBECTL, HPA, at=86_400.0))
    seen = remembered(saved, None, 0.0)
    assert fighters(seen, ScalingMode.EXTERNAL, 0.0) == (HPA, KUBECTL)
    assert fighters(remembered(writers_json(seen), None, WINDOW_S + 1), ScalingMode.EXTERNAL, WINDOW_S + 1) == ()


def test_a_write_is_remembered_once_and_the_oldest_are_forgotten() -> None:
    saved: object = None
    for number in range(2 * KEPT):
        write = ReplicasWrite(KUBECTL, float(number // 2), foreign=True)
        saved = writers_json(remembered(saved, write, now=100.0 + number))
    assert [item["at"] for item in saved] == [0, 1, 2, 3, 4, 5]  # type: ignore[attr-defined]
    assert saved[0]["seenAt"] == 100.0  # type: ignore[index]
    more = remembered(saved, ReplicasWrite(HPA, 9.0, foreign=True), 200.0)
    assert [write.at for write in more] == [1, 2, 3, 4, 5, 9]


def test_own_writes_are_none_of_them() -> None:
    assert remembered(None, ReplicasWrite("kvarn-operator-scaling", 1.0, foreign=False), 2.0) == ()


def test_garbage_is_forgotten() -> None:
    assert remembered([7, {"writer": "x"}, {"writer": "x", "at": 1, "seenAt": "y"}], None, 1.0) == ()
    assert remembered("text", None, 1.0) == ()
