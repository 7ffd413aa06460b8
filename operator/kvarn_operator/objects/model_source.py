"""Where a worker finds its model: flags, environment and volume. Used by the worker container's and pod's builders."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.model_service import Model, SourceKind

EMBEDDED_PATH = "/opt/kvarn/models/smollm2-135m"
"""Inside the worker image, already converted."""

MODELS_PATH = "/models"
MODEL_VOLUME = "model"


def model_flags(model: Model) -> dict[str, str]:
    source = model.source
    if source.kind is SourceKind.EMBEDDED:
        return {"model": EMBEDDED_PATH}
    if source.kind in (SourceKind.PVC, SourceKind.IMAGE):
        return {"model": "/".join(part for part in (MODELS_PATH, source.path.strip("/")) if part)}
    pinned = source.kind is SourceKind.HUB and model.revision
    return {"model": source.reference, "model-revision": model.revision} if pinned else {"model": source.reference}


def model_environment(model: Model) -> tuple[Mapping[str, Any], ...]:
    """The hub's token, which only the kubelet reads."""
    if model.source.kind is not SourceKind.HUB or model.secret is None:
        return ()
    reference = {"name": model.secret.name, "key": model.secret.key}
    return ({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}},)


def model_volume(model: Model) -> Mapping[str, Any] | None:
    source = model.source
    if source.kind is SourceKind.PVC:
        claim = {"claimName": source.reference, "readOnly": True}
        return {"name": MODEL_VOLUME, "persistentVolumeClaim": claim}
    if source.kind is SourceKind.IMAGE:
        return {"name": MODEL_VOLUME, "image": {"reference": source.reference, "pullPolicy": "IfNotPresent"}}
    return None
