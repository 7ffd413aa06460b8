"""A ModelService, its pools and pods as the tables show them. Pure: made from what the API server sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvarn_cli.k8s.cluster import COMPONENT_LABEL, DRAIN_REASON_ANNOTATION, DRAINING_ANNOTATION, Json

WORKER, ROUTER = "worker", "router"


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    model: str
    ttft_objective_s: float
    itl_objective_s: float
    percentile: float
    conditions: tuple[Condition, ...]

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True)
class Decision:
    at: str
    before: int
    after: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    role: str
    mode: str
    desired: int
    ready: int
    draining: int
    updated: int
    conditions: tuple[Condition, ...]
    decisions: tuple[Decision, ...]
    """Newest first."""

    override: str
    """Empty when nobody overrides the planner."""


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    component: str
    role: str
    revision: str
    node: str
    state: str
    """ready, starting, draining, terminating, ended, or the reason why it waits."""

    draining_since: str
    drain_reason: str


def service_of(resource: Json) -> Service:
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    slo = spec.get("slo") or {}
    return Service(
        name=resource["metadata"]["name"],
        model=_source(spec.get("model") or {}),
        ttft_objective_s=float(slo.get("ttftMs", 2000)) / 1000,
        itl_objective_s=float(slo.get("itlMs", 100)) / 1000,
        percentile=float(slo.get("percentile", 95)),
        conditions=_conditions(status),
    )


def pool_of(resource: Json) -> Pool:
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    decisions = [_decision(item) for item in status.get("decisions") or ()]
    override = status.get("override") or {}
    return Pool(
        name=resource["metadata"]["name"],
        role=str(spec.get("role", "")),
        mode=str((spec.get("scaling") or {}).get("mode", "Manual")),
        desired=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas", 0)),
        draining=int(status.get("drainingReplicas", 0)),
        updated=int(status.get("updatedReplicas", 0)),
        conditions=_conditions(status),
        decisions=tuple(sorted(decisions, key=lambda decision: decision.at, reverse=True)),
        override=", ".join(f"{key} {value}" for key, value in override.items()),
    )


def pod_of(resource: Json) -> Pod:
    metadata, status = resource["metadata"], resource.get("status") or {}
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return Pod(
        name=metadata["name"],
        component=labels.get(COMPONENT_LABEL, WORKER),
        role=labels.get("kvarn.dev/role", ""),
        revision=labels.get("kvarn.dev/revision", ""),
        node=(resource.get("spec") or {}).get("nodeName") or "",
        state=_state(metadata, status, DRAINING_ANNOTATION in notes),
        draining_since=notes.get(DRAINING_ANNOTATION, ""),
        drain_reason=notes.get(DRAIN_REASON_ANNOTATION, ""),
    )


def seconds_between(earlier: str, later: datetime) -> float | None:
    """None when `earlier` is no RFC 3339 time."""
    try:
        return (later - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return None


def _state(metadata: Mapping[str, Any], status: Mapping[str, Any], draining: bool) -> str:
    if metadata.get("deletionTimestamp"):
        return "terminating"
    if status.get("phase") in ("Succeeded", "Failed"):
        return "ended"
    if draining:
        return "draining"
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return "ready"
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable"))
    return _waiting_reason(status.get("containerStatuses") or ()) or "starting"


def _waiting_reason(containers: Sequence[Mapping[str, Any]]) -> str:
    for container in containers:
        reason = ((container.get("state") or {}).get("waiting") or {}).get("reason", "")
        if reason and reason != "ContainerCreating":
            return str(reason)
    return ""


def _source(model: Mapping[str, Any]) -> str:
    for kind, details in (model.get("source") or {"embedded": {}}).items():
        named = " ".join(str(value) for value in (details or {}).values())
        return f"{kind} {named}".strip()
    return "embedded"


def _conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(
        Condition(item["type"], item["status"], item.get("reason", ""), item.get("message", ""))
        for item in status.get("conditions") or ()
    )


def _decision(item: Mapping[str, Any]) -> Decision:
    return Decision(
        str(item.get("time", "")),
        int(item.get("from", 0)),
        int(item.get("to", 0)),
        str(item.get("reason", "")),
        str(item.get("message", "")),
    )
