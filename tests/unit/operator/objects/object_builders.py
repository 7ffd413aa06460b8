"""A ModelService and its pool as the builders take them, and the parts of what they make."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvarn_operator.objects.pod import build_pod
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.model_service import ModelService, ModelServiceSpec
from kvarn_operator.resources.names import pool_name
from kvarn_operator.resources.pool_template import Drain, PodTemplate, Pool
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.scaling.spec import Role

DEFAULTS = OperatorDefaults("registry.example/kvarn-worker:1.0")


def spec(template: PodTemplate | None = None, drain: Drain | None = None, **changes: Any) -> ModelServiceSpec:
    """Both pools alike."""
    pool = Pool(template=template or PodTemplate(), drain=drain or Drain())
    return replace(ModelServiceSpec(prefill=pool, decode=pool), **changes)


def service(said: ModelServiceSpec | None = None, name: str = "smollm2") -> ModelService:
    return ModelService("models", name, "uid-of-service", 1, said or spec())


def pool_of(owner: ModelService, role: Role = Role.DECODE) -> WorkerPool:
    return WorkerPool(owner.namespace, pool_name(owner.name, role), "uid-of-pool", 1, role, owner.name, 1)


def pod(
    said: ModelServiceSpec | None = None,
    role: Role = Role.DECODE,
    defaults: OperatorDefaults = DEFAULTS,
    index: int = 0,
) -> Mapping[str, Any]:
    owner = service(said)
    return build_pod(owner, pool_of(owner, role), index, defaults)


def worker(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(each for each in body["spec"]["containers"] if each["name"] == "worker")


def flags(body: Mapping[str, Any]) -> dict[str, str]:
    """The last of two equal flags, as the process reads them."""
    return dict(
        argument.removeprefix("--").split("=", 1) if "=" in argument else (argument, "")
        for argument in worker(body)["args"]
    )


def environment(body: Mapping[str, Any]) -> dict[str, Any]:
    """Value, or where it comes from."""
    variables = worker(body)["env"]
    found = {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}
    assert len(found) == len(variables), "a name is given twice"
    return found


def volumes(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        each["name"]: {key: value for key, value in each.items() if key != "name"} for each in body["spec"]["volumes"]
    }


def mounts(body: Mapping[str, Any]) -> dict[str, Any]:
    """By path."""
    return {each["mountPath"]: each for each in worker(body)["volumeMounts"]}
