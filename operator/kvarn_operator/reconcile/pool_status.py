"""The status of a WorkerPool, and what is remembered there. Pure; called by `service`."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.reconcile.autoscaling import last_decided, saved_scaling
from kvarn_operator.reconcile.memory_json import to_save
from kvarn_operator.reconcile.pool_conditions import PoolPicture, pool_conditions
from kvarn_operator.reconcile.replicas_writers import writers_json
from kvarn_operator.reconcile.timestamps import rfc3339
from kvarn_operator.resources.conditions import conditions_json
from kvarn_operator.resources.labels import POOL_LABEL
from kvarn_operator.resources.names import label_value
from kvarn_operator.scaling.decision import Decision, Override

DECISIONS_KEPT = 10

Status = Mapping[str, Any]


def pool_status(picture: PoolPicture, now: float) -> Status:
    view, outcome = picture.view, picture.outcome
    pool, before = view.resource, view.resource.status or {}
    conditions = pool_conditions(picture, now)
    status = {
        "observedGeneration": pool.generation,
        "replicas": len(view.pods.active),
        "readyReplicas": len(view.pods.ready),
        "drainingReplicas": len(view.pods.leaving) + len(view.pods.stuck),
        "updatedReplicas": len(view.updated),
        "selector": f"{POOL_LABEL}={label_value(pool.name)}",
        "conditions": conditions_json(conditions, before.get("conditions") or (), pool.generation, rfc3339(now)),
        "decisions": _decisions(outcome.decision, before),
        "scaling": _scaling(picture, now),
    }
    if outcome.memory.override is not None:
        status["override"] = override_json(outcome.memory.override)
    return status


def new_decision(decision: Decision, before: Status) -> Status | None:
    """The first, and each that moved the number or found it moved by others; None for more of the same."""
    last = last_decided(before)
    if decision.target == last:
        return None
    return {
        "time": rfc3339(decision.at),
        "from": last if last is not None and decision.target == decision.current else decision.current,
        "to": decision.target,
        "reason": decision.reason.value,
        "message": decision.message,
    }


def override_json(override: Override) -> Status:
    return {"replicas": override.replicas, "writer": override.writer, "until": rfc3339(override.until)}


def _decisions(decision: Decision, before: Status) -> list[Status]:
    known = [item for item in before.get("decisions") or () if isinstance(item, Mapping)]
    added = new_decision(decision, before)
    return (known if added is None else [*known, added])[-DECISIONS_KEPT:]


def _scaling(picture: PoolPicture, now: float) -> Status:
    outcome = picture.outcome
    saved = to_save(outcome.memory, saved_scaling(picture.view.resource), outcome.spec, now)
    return {**saved, "writers": writers_json(outcome.writes)} if outcome.writes else saved
