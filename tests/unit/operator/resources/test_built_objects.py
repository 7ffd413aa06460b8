"""Parsers and builders are counterparts: a built pool reads as it was meant, and parsers guard what builders use."""

import dataclasses
from typing import Any

import pytest
import yaml
from kvarn_operator.objects.pod import build_pod
from kvarn_operator.objects.worker_pool import build_pool
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.parsing import parse_model_service, parse_pod, parse_worker_pool
from kvarn_operator.resources.pod_contract import (
    ENGINE_FLAGS,
    GUARDED_PATHS,
    OWN_FLAGS,
    OWN_VOLUMES,
    POD_NAME_VARIABLE,
    WORKER_CONTAINER,
)
from kvarn_operator.resources.pool_parsing import parse_pool
from kvarn_operator.scaling.spec import Role

from tests.style.source_tree import ROOT
from tests.support.crds import WORKER_POOL, defaulted, refusals, schema
from tests.unit.operator.resources.resource_builders import merged, service

DEFAULTS = OperatorDefaults("r/worker:1", tls_secret="tls")
CLAIM = {"model": {"source": {"pvc": {"claimName": "models"}}}}
HUB = {"model": {"source": {"hub": {"id": "a/b"}}, "revision": "r", "secretRef": {"name": "s"}}}
ENGINE = {
    "engine": {
        "maxModelLen": 1, "maxBatchTokens": 64, "maxSequences": 1, "numBlocks": 1, "threads": 1, "dtype": "float32",
    }
}  # fmt: skip


def full_example() -> ModelService:
    resource = yaml.safe_load((ROOT / "docs" / "examples" / "modelservice-full.yaml").read_text(encoding="utf-8"))
    return parse_model_service(merged(resource, {"metadata": {"namespace": "models", "uid": "u-1"}}))


def worker_of(spec: Any, role: Role) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod's spec and its worker container."""
    found = service(spec)
    built = build_pod(found, parse_worker_pool(build_pool(found, role)), 0, DEFAULTS)["spec"]
    (container,) = built["containers"]
    return built, container


@pytest.mark.parametrize("role", Role)
def test_a_built_pool_is_taken_and_says_what_the_service_says(role: Role) -> None:
    found = full_example()
    body = build_pool(found, role)
    wanted = found.spec.prefill if role is Role.PREFILL else found.spec.decode
    assert refusals(WORKER_POOL, body) == []
    for resource in (body, defaulted(schema(WORKER_POOL), body)):
        pool = parse_worker_pool(resource)
        assert (pool.role, pool.model_service) == (role, "llama")
        assert parse_pool(Fields("spec", resource["spec"])) == dataclasses.replace(wanted, replicas=1)


@pytest.mark.parametrize("spec", [{}, merged(CLAIM, ENGINE), HUB], ids=["embedded", "claim", "hub"])
@pytest.mark.parametrize("role", Role)
def test_what_a_pod_is_made_of_is_guarded(spec: Any, role: Role) -> None:
    pod, worker = worker_of(spec, role)
    flags = {argument.removeprefix("--").partition("=")[0] for argument in worker["args"]}
    paths = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert worker["name"] == WORKER_CONTAINER
    assert POD_NAME_VARIABLE in {variable["name"] for variable in worker["env"]}
    assert flags <= OWN_FLAGS | ENGINE_FLAGS
    assert {volume["name"] for volume in pod["volumes"]} <= OWN_VOLUMES
    assert paths <= GUARDED_PATHS | {"/tmp", "/cache"}


def test_nothing_is_guarded_in_vain() -> None:
    workers = [worker_of(spec, Role.DECODE)[1] for spec in (merged(CLAIM, ENGINE), HUB, {"engine": {"kvMemoryGiB": 1}})]
    flags = {argument.removeprefix("--").partition("=")[0] for worker in workers for argument in worker["args"]}
    paths = {mount["mountPath"] for worker in workers for mount in worker["volumeMounts"]}
    assert flags >= OWN_FLAGS
    assert flags >= ENGINE_FLAGS
    assert paths >= GUARDED_PATHS


def test_a_built_pod_is_read_as_a_worker() -> None:
    found = full_example()
    pool = parse_worker_pool(build_pool(found, Role.DECODE))
    pod = parse_pod(build_pod(found, pool, 3, DEFAULTS))
    assert (pod.pool, pod.role) == ("llama-decode", Role.DECODE)
    assert pod.name == f"llama-decode-{pod.revision}-3"
    assert pod.pairing != ""
