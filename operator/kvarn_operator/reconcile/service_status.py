"""The status of a ModelService, in the words that its printer columns show. Pure; called by `service`."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.pool_conditions import PoolPicture
from kvarn_operator.reconcile.service_conditions import service_conditions
from kvarn_operator.reconcile.timestamps import rfc3339
from kvarn_operator.resources.conditions import Condition, ConditionType, Truth, conditions_json
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.model_service import Model, ModelService

Status = Mapping[str, Any]


def service_status(service: ModelService, pictures: Sequence[PoolPicture], observed: Observed, now: float) -> Status:
    before = service.status or {}
    conditions = service_conditions(pictures, service.spec.objective, observed, now)
    return {
        "observedGeneration": service.generation,
        "conditions": conditions_json(conditions, before.get("conditions") or (), service.generation, rfc3339(now)),
        "model": model_text(service.spec.model),
        "pools": {picture.view.role.value: _pool(picture) for picture in pictures},
    }


def refused_status(resource: Mapping[str, Any], error: InvalidResource, now: float) -> Status:
    """What was said before stays, for what serves goes on serving; only that nothing new happens is new."""
    generation = int(resource["metadata"].get("generation", 0))
    before = dict(resource.get("status") or {})
    return {**before, "observedGeneration": generation, "conditions": stalled(before, generation, str(error), now)}


def stalled(
    before: Mapping[str, Any], generation: int, message: str, now: float, reason: str = "InvalidSpec"
) -> list[Mapping[str, Any]]:
    refused = (
        Condition(ConditionType.ACCEPTED, Truth.FALSE, reason, message),
        Condition(ConditionType.STALLED, Truth.TRUE, reason, message),
    )
    known = list(before.get("conditions") or ())
    settled = {each.type.value for each in refused} | {ConditionType.RECONCILING.value}
    kept = [item for item in known if item.get("type") not in settled]
    return [*conditions_json(refused, known, generation, rfc3339(now)), *kept]


def model_text(model: Model) -> str:
    source = model.source
    parts = (source.kind.value, source.reference, source.path, f"@{model.revision}" if model.revision else "")
    return " ".join(part for part in parts if part)


def _pool(picture: PoolPicture) -> Status:
    view = picture.view
    return {
        "name": view.resource.name,
        "summary": f"{len(view.pods.ready)}/{view.desired}",
        "replicas": view.desired,
        "ready": len(view.pods.ready),
        "draining": len(view.pods.leaving) + len(view.pods.stuck),
        "updated": len(view.updated),
    }
