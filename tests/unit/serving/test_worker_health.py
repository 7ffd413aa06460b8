"""What the probes of a worker say in each phase of its life."""

from types import SimpleNamespace
from typing import cast

import pytest
from kvarn_engine.serving.protocol import Engine
from kvarn_engine.serving.worker_health import WorkerHealth
from kvarn_engine.serving.worker_requests import RequestGate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeEngine(SimpleNamespace):
    is_defective = False
    busy = 0.0

    def busy_s(self) -> float:
        return self.busy


@pytest.fixture
def clock() -> Clock:
    return Clock()


def serving(clock: Clock, engine: FakeEngine, gate: RequestGate, stall_timeout_s: float = 60.0) -> WorkerHealth:
    health = WorkerHealth(stall_timeout_s, clock)
    health.serve(cast(Engine, engine), gate)
    return health


def answers(health: WorkerHealth) -> tuple[str, str]:
    return health.ready(), health.live()


def test_loading_is_alive_for_as_long_as_it_takes(clock: Clock) -> None:
    health = WorkerHealth(60.0, clock)
    clock.now += 3600
    assert answers(health) == ("loading", "")


def test_serving_then_draining_then_stopping(clock: Clock) -> None:
    gate = RequestGate()
    health = serving(clock, FakeEngine(), gate)
    assert answers(health) == ("", "")
    gate.close()
    assert answers(health) == ("draining", "")
    health.stop()
    assert answers(health) == ("stopping", "")


def test_a_defective_engine_is_neither_ready_nor_alive(clock: Clock) -> None:
    assert answers(serving(clock, FakeEngine(is_defective=True), RequestGate())) == ("defective", "defective")


def test_a_step_without_end_is_a_stall(clock: Clock) -> None:
    engine = FakeEngine(busy=60.0)
    health = serving(clock, engine, RequestGate())
    assert answers(health) == ("", "")
    engine.busy = 60.1
    assert answers(health) == ("stalled", "stalled")
    assert answers(serving(clock, engine, RequestGate(), stall_timeout_s=0.0)) == ("", "")


def test_a_silent_event_loop_is_a_stall(clock: Clock) -> None:
    health = serving(clock, FakeEngine(), RequestGate())
    clock.now += 60.1
    assert answers(health) == ("stalled", "stalled")
    health.beat()
    assert answers(health) == ("", "")
