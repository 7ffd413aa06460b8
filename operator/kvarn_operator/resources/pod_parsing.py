"""A worker pod from its JSON. Called through `parsing` by the cluster layer. Knows nothing of what is wanted."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.labels import (
    DELETION_COST_ANNOTATION,
    DRAIN_REASON_ANNOTATION,
    DRAINING_ANNOTATION,
    PAIRING_ANNOTATION,
    POOL_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
)
from kvarn_operator.resources.managed_fields import last_owner
from kvarn_operator.resources.pod_problems import find_problem
from kvarn_operator.resources.times import seconds_or
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import PodName, PoolName, Role

_ROLES = tuple(role.value for role in Role)


def parse_pod(resource: Mapping[str, Any]) -> WorkerPod:
    """Raises InvalidResource, for a pod that somebody gave the labels of a worker but not all of them."""
    root = Fields(values=resource)
    metadata, status = root.section("metadata"), root.section("status")
    labels, annotations = metadata.section("labels"), metadata.section("annotations")
    labels.required_text(ROLE_LABEL)
    created_at = seconds_or(metadata.values.get("creationTimestamp"), 0.0)
    terminating = metadata.has("deletionTimestamp")
    draining_since = _draining_since(metadata, created_at)
    ended = status.text("phase") in ("Succeeded", "Failed")
    ready = not ended and _is_ready(status)
    problem, message = find_problem(status, ended, ready)
    return WorkerPod(
        name=PodName(metadata.required_text("name")),
        uid=metadata.text("uid"),
        pool=PoolName(labels.required_text(POOL_LABEL)),
        role=Role(labels.word(ROLE_LABEL, "", _ROLES)),
        revision=labels.text(REVISION_LABEL),
        pairing=annotations.text(PAIRING_ANNOTATION),
        phase=_phase(terminating or draining_since is not None, ready, problem),
        ready=ready,
        terminating=terminating,
        created_at=created_at,
        address=status.text("podIP"),
        node=root.section("spec").text("nodeName"),
        draining_since=draining_since,
        drain_reason=annotations.text(DRAIN_REASON_ANNOTATION, longest=2**18),
        deletion_cost=_integer(annotations.text(DELETION_COST_ANNOTATION)),
        problem=problem,
        problem_message=message,
        ended=ended,
        gone_by=seconds_or(metadata.values.get("deletionTimestamp"), created_at) if terminating else None,
        ready_since=_ready_since(status),
        started=not ended and _is_started(status),
    )


def _phase(leaving: bool, ready: bool, problem: PodProblem) -> PodPhase:
    if leaving:
        return PodPhase.DRAINING
    if ready:
        return PodPhase.READY
    return PodPhase.UNSCHEDULABLE if problem is PodProblem.UNSCHEDULABLE else PodPhase.PENDING


def _draining_since(metadata: Fields, created_at: float) -> float | None:
    """Whatever the annotation says, the pod drains: somebody may have set it by hand to something that is no time."""
    text = metadata.section("annotations").values.get(DRAINING_ANNOTATION)
    if text is None:
        return None
    writer = last_owner(metadata, "metadata", "annotations", DRAINING_ANNOTATION)
    return seconds_or(text, created_at if writer is None else writer.at)


def _integer(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _readiness(status: Fields) -> Mapping[str, Any]:
    conditions = status.sections("conditions")
    return next((each.values for each in conditions if each.values.get("type") == "Ready"), {})


def _is_ready(status: Fields) -> bool:
    return _readiness(status).get("status") == "True"


def _ready_since(status: Fields) -> float:
    return seconds_or(_readiness(status).get("lastTransitionTime"), 0.0)


def _is_started(status: Fields) -> bool:
    """The startup probe, which asks for readiness, has succeeded in every container."""
    containers = list(status.sections("containerStatuses"))
    return bool(containers) and all(container.values.get("started") is True for container in containers)
