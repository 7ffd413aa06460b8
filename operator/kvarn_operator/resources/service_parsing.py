"""A ModelService from its JSON. Called through `parsing` by the cluster layer; repeats what the CRD's rules say."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.accelerators import gpus_per_pod
from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.model_parsing import (
    parse_budget,
    parse_engine,
    parse_model,
    parse_objective,
    parse_rollout,
)
from kvarn_operator.resources.model_service import ModelService, ModelServiceSpec
from kvarn_operator.resources.pool_parsing import parse_pool
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.scaling.spec import Budget, ScalingMode


def parse_model_service(resource: Mapping[str, Any]) -> ModelService:
    """Raises InvalidResource."""
    root = Fields(values=resource)
    metadata = root.section("metadata")
    return ModelService(
        namespace=metadata.required_text("namespace"),
        name=metadata.required_text("name"),
        uid=metadata.text("uid"),
        generation=metadata.integer("generation", 0, 0, 2**63),
        spec=parse_spec(root.section("spec")),
        status=root.json("status"),
        deleting=metadata.has("deletionTimestamp"),
    )


def parse_spec(fields: Fields) -> ModelServiceSpec:
    spec = ModelServiceSpec(
        model=parse_model(fields.section("model")),
        engine=parse_engine(fields.section("engine")),
        objective=parse_objective(fields.section("slo")),
        budget=parse_budget(fields.section("budget")) if fields.has("budget") else None,
        rollout=parse_rollout(fields.section("rollout")),
        prefill=_pool(fields.section("prefill")),
        decode=_pool(fields.section("decode")),
    )
    if spec.budget is not None:
        _check_budget(fields, spec, spec.budget)
    return spec


def _pool(fields: Fields) -> Pool:
    pool = parse_pool(fields)
    if pool.scaling.mode is ScalingMode.SLO and pool.replicas > pool.scaling.maximum:
        raise fields.error("replicas", f"({pool.replicas}) is above scaling.max ({pool.scaling.maximum})")
    return pool


def _check_budget(fields: Fields, spec: ModelServiceSpec, budget: Budget) -> None:
    """One that could never bind is a mistake that costs money."""
    if not any(gpus_per_pod(pool.template) for pool in (spec.prefill, spec.decode)):
        raise fields.error("budget.gpus", "limits nothing: no pool asks for GPUs in template.resources")
    least = sum(pool.scaling.minimum * gpus_per_pod(pool.template) for pool in (spec.prefill, spec.decode))
    if least > budget.gpus:
        raise fields.error("budget.gpus", f"is {budget.gpus}, but the pools' minimum needs {least}")
