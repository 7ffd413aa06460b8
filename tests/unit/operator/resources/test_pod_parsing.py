"""A worker pod's JSON: what phase it is in, and what people would have to mend."""

from typing import Any

import pytest
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.parsing import parse_pod
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import PodName, PoolName, Role

from tests.unit.operator.resources.resource_builders import CREATED_AT, condition, pod, pod_json

READY = {"conditions": [condition("PodScheduled", "True"), condition("Ready", "True")]}
SINCE, SINCE_AT = "2026-12-01T04:10:00Z", CREATED_AT + 600


def container(**fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "worker", "ready": False, "restartCount": 0, **fields}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def ended(code: int, reason: str, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def test_a_pod_that_serves() -> None:
    assert pod(status=READY) == WorkerPod(
        PodName("smollm2-decode-7c1f9a-0"), "u-3", PoolName("smollm2-decode"), Role.DECODE, "7c1f9a", "p-1",
        PodPhase.READY, ready=True, terminating=False, created_at=CREATED_AT, address="10.0.0.7", node="node-1",
    )  # fmt: skip


def test_a_pod_that_starts_is_pending() -> None:
    found = pod(status={"phase": "Pending", **container(**waiting("ContainerCreating"))})
    assert (found.phase, found.ready, found.problem) == (PodPhase.PENDING, False, PodProblem.NONE)


def test_a_pod_without_a_status_is_pending() -> None:
    resource = pod_json()
    del resource["status"], resource["spec"]
    found = parse_pod(resource)
    assert (found.phase, found.address, found.node) == (PodPhase.PENDING, "", "")


def test_when_a_deleted_pod_should_be_gone() -> None:
    assert pod(metadata={"deletionTimestamp": SINCE}).gone_by == SINCE_AT
    assert pod().gone_by is None


def test_since_when_it_is_ready() -> None:
    assert pod(status={"conditions": [condition("Ready", "True", lastTransitionTime=SINCE)]}).ready_since == SINCE_AT


def test_not_ready_is_pending_again() -> None:
    assert pod(status={"conditions": [condition("Ready", "False")]}).phase is PodPhase.PENDING


def test_nowhere_to_go() -> None:
    unscheduled = condition("PodScheduled", "False", reason="Unschedulable", message="0/2 nodes: 2 Insufficient gpu.")
    found = pod(status={"phase": "Pending", "conditions": [unscheduled]})
    assert (found.phase, found.problem) == (PodPhase.UNSCHEDULABLE, PodProblem.UNSCHEDULABLE)
    assert found.problem_message == "0/2 nodes: 2 Insufficient gpu."


def test_gated_by_a_quota_system_is_no_problem() -> None:
    gated = condition("PodScheduled", "False", reason="SchedulingGated")
    found = pod(status={"phase": "Pending", "conditions": [gated]})
    assert (found.phase, found.problem) == (PodPhase.PENDING, PodProblem.NONE)


def test_a_marked_pod_drains_and_stays_ready() -> None:
    marks = {"kvarn.dev/draining": SINCE, "kvarn.dev/drain-reason": "ScaleDown"}
    found = pod(metadata={"annotations": marks}, status=READY)
    assert (found.phase, found.ready, found.terminating) == (PodPhase.DRAINING, True, False)
    assert (found.draining_since, found.drain_reason) == (SINCE_AT, "ScaleDown")


def test_a_deleted_pod_drains_without_a_mark() -> None:
    found = pod(metadata={"deletionTimestamp": SINCE}, status=READY)
    assert (found.phase, found.ready, found.terminating, found.draining_since) == (PodPhase.DRAINING, True, True, None)


def test_a_mark_that_is_no_time_counts_from_its_writing() -> None:
    mark = {"kvarn.dev/draining": "yes"}
    wrote = {
        "manager": "kubectl-annotate", "time": SINCE,
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:kvarn.dev/draining": {}}}},
    }  # fmt: skip
    assert pod(metadata={"annotations": mark, "managedFields": [wrote]}).draining_since == SINCE_AT
    assert pod(metadata={"annotations": mark}).draining_since == CREATED_AT


@pytest.mark.parametrize(("text", "cost"), [("40", 40), ("-7", -7), ("cheap", 0), ("", 0)])
def test_deletion_cost(text: str, cost: int) -> None:
    assert pod(metadata={"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}}).deletion_cost == cost


@pytest.mark.parametrize(
    ("status", "problem", "message"),
    [
        (waiting("ImagePullBackOff", "back-off pulling"), PodProblem.IMAGE, "worker: ImagePullBackOff: back-off pul"),
        (waiting("ErrImagePull", "not found"), PodProblem.IMAGE, "worker: ErrImagePull: not found"),
        (waiting("ErrImageNeverPull"), PodProblem.IMAGE, "worker: ErrImageNeverPull"),
        (waiting("InvalidImageName"), PodProblem.IMAGE, "worker: InvalidImageName"),
        (
            waiting("CreateContainerConfigError", 'secret "hub" not found'),
            PodProblem.CONFIGURATION,
            'worker: CreateContainerConfigError: secret "hub" not found',
        ),
        (
            {
                **waiting("CrashLoopBackOff"),
                "restartCount": 4,
                "lastState": ended(1, "Error", "many lines\nno model\n"),
            },
            PodProblem.CRASHING,
            "worker: restarts: 4, last end: Error (exit code 1): no model",
        ),
        (
            {"state": {"running": {}}, "restartCount": 2, "lastState": ended(137, "OOMKilled")},
            PodProblem.CRASHING,
            "worker: restarts: 2, last end: OOMKilled (exit code 137)",
        ),
        (
            {"state": ended(2, "Error"), "restartCount": 1, "lastState": ended(1, "Error")},
            PodProblem.CRASHING,
            "worker: restarts: 1, last end: Error (exit code 2)",
        ),
        (waiting("CrashLoopBackOff"), PodProblem.CRASHING, "worker: restarts: 0"),
        ({"state": {"running": {}}, "restartCount": 0}, PodProblem.NONE, ""),
    ],
)
def test_problems_of_containers(status: Any, problem: PodProblem, message: str) -> None:
    found = pod(status=container(**status))
    assert (found.problem, found.phase) == (problem, PodPhase.PENDING)
    assert found.problem_message.startswith(message)
    assert bool(found.problem_message) == bool(message)


def test_an_init_container_may_be_the_one() -> None:
    init = {"initContainerStatuses": [{"name": "fetch", **waiting("ErrImagePull", "denied")}]}
    assert pod(status={**init, **container(**waiting("PodInitializing"))}).problem_message == (
        "fetch: ErrImagePull: denied"
    )


def test_what_was_mended_is_no_problem() -> None:
    """A pod that crashed once and serves now."""
    found = pod(status={**READY, **container(ready=True, restartCount=1, lastState=ended(1, "Error"))})
    assert (found.problem, found.phase, found.problem_message) == (PodProblem.NONE, PodPhase.READY, "")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_tells_why(phase: str) -> None:
    status = {"phase": phase, "reason": "Evicted", "message": "The node was low on memory.", **READY}
    found = pod(status=status)
    assert found.ended
    assert not found.ready
    assert (found.problem, found.problem_message) == (PodProblem.NONE, "Evicted: The node was low on memory.")
    assert found.phase is PodPhase.PENDING


def test_a_very_long_message_is_cut() -> None:
    assert len(pod(status=container(**waiting("ErrImagePull", "x" * 5000))).problem_message) < 600


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"kvarn.dev/pool": None}, "metadata.labels.kvarn.dev/pool: is required"),
        ({"kvarn.dev/role": None}, "metadata.labels.kvarn.dev/role: is required"),
        ({"kvarn.dev/role": "router"}, "metadata.labels.kvarn.dev/role: 'router' is none of prefill, decode"),
    ],
)
def test_not_a_worker(labels: Any, says: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        pod(metadata={"labels": labels})
    assert str(caught.value) == says


def test_a_pod_without_revision_is_of_none() -> None:
    assert pod(metadata={"labels": {"kvarn.dev/revision": None}}).revision == ""


@pytest.mark.parametrize(
    ("status", "started"),
    [
        (container(started=True), True),
        (container(started=False), False),
        (container(), False),
        ({"containerStatuses": [{"started": True}, {"started": False}]}, False),
        ({"phase": "Failed", **container(started=True)}, False),
        ({}, False),
    ],
)
def test_whether_it_has_served(status: Any, started: bool) -> None:
    assert pod(status=status).started is started
