"""Conditions of both kinds, as the API convention has them. Used by the reconcile's status builders."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class ConditionType(enum.Enum):
    ACCEPTED = "Accepted"
    MODEL_CACHED = "ModelCached"
    CAPACITY_AVAILABLE = "CapacityAvailable"
    PAIRED = "Paired"
    READY = "Ready"
    PROGRESSING = "Progressing"
    DRAINING = "Draining"
    SLO_MET = "SLOMet"
    SCALING_ACTIVE = "ScalingActive"
    REPLICAS_CONFLICT = "ReplicasConflict"
    RECONCILING = "Reconciling"
    """kstatus: present and True only while work is under way."""

    STALLED = "Stalled"
    """kstatus: present and True only when nothing will happen without the user."""


class Truth(enum.Enum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    type: ConditionType
    truth: Truth
    reason: str
    """CamelCase."""

    message: str = ""


def conditions_json(
    conditions: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Mapping[str, Any]]:
    """As `status.conditions`. `now` is RFC 3339; a transition time changes only with the truth."""
    known = {item.get("type"): item for item in before}
    return [_as_json(condition, known.get(condition.type.value), generation, now) for condition in conditions]


def _as_json(condition: Condition, before: Mapping[str, Any] | None, generation: int, now: str) -> Mapping[str, Any]:
    same = before is not None and before.get("status") == condition.truth.value
    return {
        "type": condition.type.value,
        "status": condition.truth.value,
        "reason": condition.reason,
        # Kubernetes 1.20 takes an applied empty string for null, and then refuses the whole status.
        "message": condition.message or condition.reason,
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if same and before is not None else now,
    }
