"""Liveness: silence per part, and what the two probes say of it."""

from kvarn_operator.cluster.health import Health
from kvarn_operator.cluster.progress import Progress, Stall


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_part_that_is_silent_for_too_long_is_stalled() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.mark("loop", 30.0)
    progress.mark("queue", 300.0)
    clock.now = 30.0
    assert progress.stalls() == ()
    clock.now = 31.0
    assert progress.stalls() == (Stall("loop", 31.0, 30.0),)
    progress.mark("loop", 30.0)
    assert progress.stalls() == ()
    assert progress.ages_s() == {"loop": 0.0, "queue": 31.0}


def test_progress_may_lie_in_the_past() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.mark("watch pods", 300.0, lag_s=299.0)
    assert progress.stalls() == ()
    progress.mark("watch pods", 300.0, lag_s=301.0)
    assert [stall.part for stall in progress.stalls()] == ["watch pods"]


def test_the_probes_say_why_not() -> None:
    clock = Clock()
    health = Health(progress := Progress(clock))
    assert health.live() == ""
    assert health.ready() == "waits: the first view of the cluster"
    health.waits_for = ""
    assert health.ready() == ""
    progress.mark("loop", 30.0)
    progress.mark("queue", 30.0)
    clock.now = 45.0
    assert health.live() == "loop is silent for 45 s, queue is silent for 45 s"
