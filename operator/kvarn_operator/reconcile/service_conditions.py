"""What a person should know of a model as a whole: its pools' conditions taken together, and what only pairs have.

Pure; used by `service_status`.
"""

from collections.abc import Iterable, Mapping, Sequence

from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.pool_conditions import PoolPicture, pool_conditions, reconciling
from kvarn_operator.resources.conditions import Condition, ConditionType, Truth
from kvarn_operator.resources.model_service import Objective
from kvarn_operator.rollout.layouts import layout_classes
from kvarn_operator.scaling.observation import Demand
from kvarn_operator.scaling.spec import PoolName, Role

_WORST_FIRST = {
    ConditionType.MODEL_CACHED: (Truth.FALSE, Truth.UNKNOWN, Truth.TRUE),
    ConditionType.CAPACITY_AVAILABLE: (Truth.FALSE, Truth.UNKNOWN, Truth.TRUE),
    ConditionType.PROGRESSING: (Truth.TRUE, Truth.FALSE, Truth.UNKNOWN),
    ConditionType.DRAINING: (Truth.TRUE, Truth.FALSE, Truth.UNKNOWN),
    ConditionType.SCALING_ACTIVE: (Truth.FALSE, Truth.TRUE, Truth.UNKNOWN),
    ConditionType.REPLICAS_CONFLICT: (Truth.TRUE, Truth.FALSE, Truth.UNKNOWN),
}


def service_conditions(
    pictures: Sequence[PoolPicture], objective: Objective, observed: Observed, now: float
) -> tuple[Condition, ...]:
    by_pool = {picture.view.resource.name: pool_conditions(picture, now) for picture in pictures}
    paired = _paired(pictures)
    conditions = [_accepted(observed.refused_object)]
    conditions += [_together(kind, by_pool) for kind in _WORST_FIRST]
    conditions += [paired, _ready(pictures, by_pool, paired), _slo_met(objective, observed.readings.demand)]
    if len(pictures) < len(Role):
        conditions.append(Condition(ConditionType.RECONCILING, Truth.TRUE, "CreatingPools", "the pools are being made"))
        return tuple(conditions)
    return (*conditions, *reconciling(conditions))


def _accepted(refused_object: str) -> Condition:
    kind = ConditionType.ACCEPTED
    if refused_object:
        return Condition(kind, Truth.FALSE, "ObjectRefused", refused_object)
    return Condition(kind, Truth.TRUE, "Valid", "the spec can be carried out")


def _together(kind: ConditionType, by_pool: Mapping[PoolName, tuple[Condition, ...]]) -> Condition:
    """The worst pool's truth and reason, with the messages of all that share the truth."""
    found = [(pool, each) for pool, conditions in by_pool.items() for each in conditions if each.type is kind]
    for truth in _WORST_FIRST[kind]:
        if same := [(pool, each) for pool, each in found if each.truth is truth]:
            return Condition(kind, truth, _gravest(each.reason for _, each in same), _messages(same))
    return Condition(kind, Truth.UNKNOWN, "NoPools")


def _gravest(reasons: Iterable[str]) -> str:
    """Of equal truths, a pool that is at rest tells less than one that is not."""
    return min(reasons, key=lambda reason: reason in ("Settled", "NoPods"))


def _messages(found: Sequence[tuple[str, Condition]]) -> str:
    told: dict[str, list[str]] = {}
    for pool, condition in found:
        if condition.message:
            told.setdefault(condition.message, []).append(pool)
    return "; ".join(f"{', '.join(pools)}: {message}" for message, pools in told.items())


def _paired(pictures: Sequence[PoolPicture]) -> Condition:
    kind = ConditionType.PAIRED
    ready = {picture.view.role: picture.view.pods.ready for picture in pictures}
    if pictures and any(picture.view.desired == 0 for picture in pictures):
        return Condition(kind, Truth.FALSE, "ScaledToZero", "a pool is scaled to zero; in mode SLO a request wakes it")
    for role, reason in ((Role.PREFILL, "NoPrefill"), (Role.DECODE, "NoDecode")):
        if not ready.get(role):
            return Condition(kind, Truth.FALSE, reason, f"no {role.value} worker is ready")
    classes = layout_classes(pod.pairing for pods in ready.values() for pod in pods)
    sides = [{classes[pod.pairing] for pod in ready[role]} for role in Role]
    if sides[0].isdisjoint(sides[1]):
        return Condition(kind, Truth.FALSE, "PairingMismatch", "no prefill worker can hand blocks to a decode worker")
    return Condition(kind, Truth.TRUE, "ServingPair", "a prefill and a decode worker serve together")


def _ready(
    pictures: Sequence[PoolPicture], by_pool: Mapping[PoolName, tuple[Condition, ...]], paired: Condition
) -> Condition:
    kind = ConditionType.READY
    if len(pictures) < len(Role):
        return Condition(kind, Truth.FALSE, "CreatingPools", "the pools are being made")
    pools = [(pool, each) for pool, conditions in by_pool.items() for each in conditions if each.type is kind]
    if bad := [(pool, each) for pool, each in pools if each.truth is not Truth.TRUE]:
        return Condition(kind, Truth.FALSE, _gravest(each.reason for _, each in bad), _messages(bad))
    if any(each.reason == "ScaledToZero" for _, each in pools):
        return Condition(kind, Truth.TRUE, "ScaledToZero", paired.message)
    if paired.truth is not Truth.TRUE:
        return Condition(kind, Truth.FALSE, paired.reason, paired.message)
    return Condition(kind, Truth.TRUE, "Serving", _messages(pools))


def _slo_met(objective: Objective, demand: Demand | None) -> Condition:
    kind = ConditionType.SLO_MET
    if demand is None:
        return Condition(kind, Truth.UNKNOWN, "MetricsMissing", "no router tells its latencies")
    measured = (("TTFT", demand.ttft_s, objective.ttft_s), ("ITL", demand.itl_s, objective.itl_s))
    if all(value is None for _, value, _ in measured):
        return Condition(kind, Truth.UNKNOWN, "NoTraffic", "no request completed lately")
    missed = [(name, value, limit) for name, value, limit in measured if value is not None and value > limit]
    if not missed:
        return Condition(kind, Truth.TRUE, "WithinObjective", f"p{objective.percentile:g} of TTFT and ITL is within it")
    share = f"p{objective.percentile:g}"
    message = "; ".join(
        f"{name} {share} is about {value:.1g} s, objective {limit:g} s" for name, value, limit in missed
    )
    return Condition(kind, Truth.FALSE, "And".join(f"{name}Missed" for name, _, _ in missed), message)
