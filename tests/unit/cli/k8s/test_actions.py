"""`kubectl kvarn explain`, `drain` and `logs`."""

import io
import json
from datetime import UTC, datetime

import pytest
from kvarn_cli.k8s.cluster import ClusterError
from kvarn_cli.k8s.drain import DrainOptions, run_drain
from kvarn_cli.k8s.explanation import show_explanation
from kvarn_cli.k8s.log_streams import LogOptions, show_logs
from rich.console import Console

from tests.unit.cli.k8s.fake_cluster import FakeCluster, pool, router, service, worker

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=200), out


def cluster() -> FakeCluster:
    return FakeCluster(service_list=[service()], pod_list=[worker("d-0"), worker("p-0", "prefill"), router()])


def test_explain_shows_newest_decisions_with_their_terms() -> None:
    seen = cluster()
    decisions = tuple(
        {
            "time": f"2026-12-01T12:0{minute}:00Z",
            "from": minute,
            "to": minute + 1,
            "reason": "Load",
            "message": f"kv={minute}",
        }
        for minute in range(3)
    )
    seen.pool_list = [pool("decode", decisions=decisions), pool("prefill")]
    routed = {"decisions": [{"request_id": "r1", "explain": "decode d-0: 4 of 5 blocks cached"}]}
    seen.pages["smollm2-router-1", 8080, "/debug/decisions"] = json.dumps(routed)
    screen, out = console()
    assert show_explanation(seen, "smollm2", 2, screen) == 0
    text = out.getvalue()
    assert text.index("2 -> 3 Load: kv=2") < text.index("1 -> 2 Load: kv=1")
    assert "kv=0" not in text
    assert "smollm2-prefill: no scaling decision yet (mode SLO, 2 desired)" in text
    assert "r1 decode d-0: 4 of 5 blocks cached" in text


def test_explain_says_when_a_router_cannot_be_asked() -> None:
    screen, out = console()
    show_explanation(cluster(), "", 5, screen)
    assert "smollm2-router-1: cannot be asked: no route" in out.getvalue()


def test_drain_annotates_and_waits_until_the_pod_is_gone() -> None:
    seen = cluster()
    screen, out = console()
    states = []

    def step(_: float) -> None:
        states.append(dict(seen.pod("d-0")["metadata"]["annotations"]))
        seen.pod_list = [pod for pod in seen.pod_list if pod["metadata"]["name"] != "d-0"]

    assert run_drain(seen, DrainOptions("d-0"), NOW, screen, step) == 0
    assert states == [{"kvarn.dev/draining": "2026-12-01T12:00:00+00:00", "kvarn.dev/drain-reason": "User"}]
    assert "d-0 is gone" in out.getvalue()


def test_drain_sees_that_a_pod_of_the_same_name_is_another_one() -> None:
    seen = cluster()
    screen, _ = console()

    def replaced(_: float) -> None:
        seen.pod("d-0")["metadata"]["uid"] = "another"  # type: ignore[index]

    assert run_drain(seen, DrainOptions("d-0"), NOW, screen, replaced) == 0


def test_drain_gives_up_waiting_and_says_so() -> None:
    screen, out = console()
    assert run_drain(cluster(), DrainOptions("d-0", timeout_s=2), NOW, screen, lambda _: None) == 1
    assert "the drain goes on" in out.getvalue()


def test_undo() -> None:
    seen = cluster()
    screen, _ = console()
    run_drain(seen, DrainOptions("d-0", wait=False), NOW, screen)
    run_drain(seen, DrainOptions("d-0", undo=True), NOW, screen)
    assert seen.pod("d-0")["metadata"]["annotations"] == {}


def test_a_pod_that_is_going_cannot_be_called_back() -> None:
    seen = cluster()
    seen.pod_list[0]["metadata"]["deletionTimestamp"] = "2026-12-01T12:00:00Z"
    with pytest.raises(ClusterError, match="already being deleted"):
        run_drain(seen, DrainOptions("d-0", undo=True), NOW, console()[0])


def test_only_worker_pods_are_drained() -> None:
    with pytest.raises(ClusterError, match="no worker pod"):
        run_drain(cluster(), DrainOptions("smollm2-router-1"), NOW, console()[0])


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("role", "expected"), [("", 4), ("decode", 2), ("router", 1), ("prefill", 1)])
def test_logs_of_a_role_carry_the_pods_names(follow: bool, role: str, expected: int) -> None:
    seen = cluster()
    seen.logs = {"d-0": ["old", "a", "b"], "p-0": ["c"], "smollm2-router-1": ["d"]}
    screen, out = console()
    assert show_logs(seen, LogOptions("smollm2", role, follow, tail=2), screen) == 0
    lines = out.getvalue().splitlines()
    assert len(lines) == expected
    assert role != "decode" or sorted(lines) == ["d-0 a", "d-0 b"]


def test_logs_without_pods() -> None:
    seen = cluster()
    seen.pod_list = []
    assert show_logs(seen, LogOptions("smollm2"), console()[0]) == 1
