"""Liveness: silence per part, and the two probes over real HTTP."""

import socket

import httpx
from kvarn_operator.cluster.health import Health, serve_health
from kvarn_operator.cluster.progress import Progress, Stall


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


def test_a_part_that_ended_in_order_is_not_missed() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.mark("queue", 1.0)
    progress.forget("queue")
    progress.forget("queue")
    clock.now = 100.0
    assert progress.stalls() == ()


def test_the_probes_answer_from_a_thread_of_their_own() -> None:
    """This test holds the only other thread, as a hung event loop would."""
    clock = Clock()
    health = Health(progress := Progress(clock))
    served = serve_health(health, "127.0.0.1", free_port())
    try:
        url = f"http://127.0.0.1:{served.port}"
        with httpx.Client(trust_env=False, timeout=10) as client:
            assert client.get(f"{url}/live").status_code == 200
            ready = client.get(f"{url}/ready")
            assert (ready.status_code, ready.json()) == (503, {"waits_for": "the first view of the cluster"})
            health.waits_for = ""
            assert client.get(f"{url}/ready").status_code == 200
            progress.mark("loop", 30.0)
            clock.now = 45.0
            live = client.get(f"{url}/live")
            assert live.status_code == 503
            assert live.json() == {"stalled": [{"part": "loop", "silent_s": 45.0, "limit_s": 30.0}]}
            assert client.get(f"{url}/metrics").status_code == 404
    finally:
        served.close()


def test_port_0_turns_the_probes_off() -> None:
    endpoint = serve_health(Health(Progress(Clock())), "127.0.0.1", 0)
    assert endpoint.server is None
    endpoint.close()
