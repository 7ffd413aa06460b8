"""A ModelService's JSON: every default, every field, and everything a user may get wrong."""

from typing import Any

import pytest
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.model_service import (
    EngineOptions,
    Model,
    ModelCache,
    ModelServiceSpec,
    ModelSource,
    Objective,
    Rollout,
    SecretKey,
    SourceKind,
)
from kvarn_operator.resources.parsing import parse_model_service
from kvarn_operator.resources.pool_template import Drain, Image, Placement, PodTemplate, Pool, Scaling
from kvarn_operator.scaling.spec import Behaviour, Budget, BudgetPolicy, RateLimit, ScalingMode

from tests.unit.operator.resources.bad_input import EVERYTHING, Bad
from tests.unit.operator.resources.resource_builders import nested, service, service_json, service_spec


def test_nothing_given_is_all_defaults() -> None:
    assert service_spec({}) == ModelServiceSpec()
    assert service_spec(None) == ModelServiceSpec()


def test_null_counts_as_not_given() -> None:
    assert service_spec({"model": None, "engine": {"threads": None}, "prefill": {"replicas": None}}) == (
        ModelServiceSpec()
    )


def test_identity_and_status() -> None:
    found = service({})
    assert (found.namespace, found.name, found.uid, found.generation) == ("models", "smollm2", "u-1", 3)
    assert found.status is None
    assert not found.deleting


def test_a_service_that_goes_says_so() -> None:
    resource = service_json({})
    resource["metadata"]["deletionTimestamp"] = "2026-12-01T04:00:00Z"
    resource["status"] = {"observedGeneration": 3}
    found = parse_model_service(resource)
    assert found.deleting
    assert found.status == {"observedGeneration": 3}


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"embedded": {}}, ModelSource()),
        ({}, ModelSource()),
        ({"hub": {"id": "org/name"}}, ModelSource(SourceKind.HUB, "org/name")),
        ({"pvc": {"claimName": "models"}}, ModelSource(SourceKind.PVC, "models")),
        ({"pvc": {"claimName": "models", "path": "a/b-1.5"}}, ModelSource(SourceKind.PVC, "models", "a/b-1.5")),
        ({"image": {"reference": "r/i@sha256:1", "path": "m"}}, ModelSource(SourceKind.IMAGE, "r/i@sha256:1", "m")),
        ({"url": {"url": "https://h.example/m.tar"}}, ModelSource(SourceKind.URL, "https://h.example/m.tar")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_sources(given: Any, source: ModelSource) -> None:
    assert service_spec({"model": {"source": given}}).model.source == source


def test_the_model_in_full() -> None:
    assert service_spec({
        "model": {
            "source": {"hub": {"id": "org/name"}}, "revision": "v2", "servedNames": ["a", "b"],
            "secretRef": {"name": "hub"}, "cache": {"claimName": "models"},
        }
    }).model == Model(
        ModelSource(SourceKind.HUB, "org/name"), "v2", ("a", "b"), SecretKey("hub", "token"), ModelCache("models")
    )  # fmt: skip


def test_a_size_limit_may_be_a_plain_number() -> None:
    assert service_spec(nested("model.cache.sizeLimit", 1073741824)).model.cache == ModelCache("", "1073741824")
    assert service_spec(nested("model.cache.sizeLimit", "20Gi")).model.cache == ModelCache("", "20Gi")


def test_engine_objective_budget_and_rollout_in_full() -> None:
    spec = service_spec({
        "engine": {
            "type": "simulated", "dtype": "float16", "blockSize": 32, "maxModelLen": 4096, "maxBatchTokens": 256,
            "maxSequences": 8, "kvMemoryGiB": 1.5, "threads": 2,
        },
        "slo": {"ttftMs": 500, "itlMs": 25, "percentile": 99.5},
        "budget": {"gpus": 8, "policy": "PrefillFirst"},
        "decode": {"template": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        "rollout": {"maxSurge": 0, "maxUnavailable": 2, "ratioTolerancePercent": 25},
    })  # fmt: skip
    assert spec.engine == EngineOptions("simulated", "float16", 32, 4096, 256, 8, None, 1.5, 2)
    assert spec.objective == Objective(ttft_s=0.5, itl_s=0.025, percentile=99.5)
    assert spec.budget == Budget(8, BudgetPolicy.PREFILL_FIRST)
    assert spec.rollout == Rollout(max_surge=0, max_unavailable=2, ratio_tolerance=0.25)


def test_a_pool_in_full() -> None:
    up = {"stabilizationWindowSeconds": 10, "pods": 2, "percent": 50, "periodSeconds": 20}
    down = {"stabilizationWindowSeconds": 60, "pods": 3, "percent": 10, "periodSeconds": 30}
    spec = service_spec({
        "decode": {
            "replicas": 3,
            "scaling": {
                "mode": "SLO", "min": 0, "max": 4, "behaviour": {"scaleUp": up, "scaleDown": down},
                "overrideSeconds": 30, "zeroAfterSeconds": 40,
            },
            "drain": {"timeoutSeconds": 5},
        }
    })  # fmt: skip
    behaviour = Behaviour(10.0, 60.0, RateLimit(2, 0.5, 20.0), RateLimit(3, 0.1, 30.0))
    assert spec.decode == Pool(3, Scaling(ScalingMode.SLO, 0, 4, behaviour, 30.0, 40.0), Drain(5.0), PodTemplate())
    assert spec.prefill == Pool()


def test_a_template_in_full() -> None:
    """Kubernetes' own types come out as they went in; maps are sorted, so that equal specs are equal."""
    toleration, spread, claim = {"operator": "Exists"}, {"maxSkew": 1}, {"name": "gpu"}
    variable, volume = {"name": "A", "value": "1"}, {"name": "v", "emptyDir": {}}
    mount, limits = {"name": "v", "mountPath": "/v"}, {"nvidia.com/gpu": 1, "memory": "8Gi"}
    extra = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "side"}, {"name": "worker"}]}}
    given = {
        "image": "r/worker:1", "imagePullPolicy": "Never", "resources": {"limits": limits, "claims": [claim]},
        "nodeSelector": {"b": "2", "a": "1"}, "tolerations": [toleration], "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [spread], "priorityClassName": "high", "runtimeClassName": "nvidia",
        "schedulerName": "other", "imagePullSecrets": [{"name": "s"}], "serviceAccountName": "sa", "env": [variable],
        "volumes": [volume], "volumeMounts": [mount], "args": {"max-waiting": 8, "attention": "cuda"},
        "startupTimeoutSeconds": 60, "labels": {"team": ""}, "annotations": {"x.example/y": "any thing"},
        "podTemplate": extra,
    }  # fmt: skip
    assert service_spec({"prefill": {"template": given}}).prefill.template == PodTemplate(
        Image("r/worker:1", "Never"), {"limits": limits, "claims": [claim]},
        Placement(
            (("a", "1"), ("b", "2")), (toleration,), {"nodeAffinity": {}}, (spread,), "high", "nvidia", "other"
        ),
        ("s",), "sa", (variable,), (volume,), (mount,), (("attention", "cuda"), ("max-waiting", "8")), 60.0,
        (("team", ""),), (("x.example/y", "any thing"),), extra,
    )  # fmt: skip


def test_a_mount_may_use_a_volume_of_the_pod_template_or_of_the_operator() -> None:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": "/other", "subPath": "x"}]
    volumes = {"spec": {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}}
    template = service_spec({"decode": {"template": {"volumeMounts": mounts, "podTemplate": volumes}}}).decode.template
    assert template.volume_mounts == tuple(mounts)


def test_the_cache_may_be_a_folder_of_the_node() -> None:
    volume = {"name": "cache", "hostPath": {"path": "/var/lib/models"}}
    assert service_spec({"decode": {"template": {"volumes": [volume]}}}).decode.template.volumes == (volume,)


def test_a_budget_that_just_holds_the_minimum_is_enough() -> None:
    gpu = {"scaling": {"min": 2}, "template": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}
    assert service_spec({"budget": {"gpus": 8}, "prefill": gpu, "decode": gpu}).budget == Budget(8)


@pytest.mark.parametrize("bad", EVERYTHING, ids=str)
def test_what_is_wrong_is_told_with_its_place(bad: Bad) -> None:
    with pytest.raises(InvalidResource) as caught:
        service(bad.spec)
    assert caught.value.field == bad.field
    assert bad.says in str(caught.value)
    assert str(caught.value).startswith(f"{bad.field}: ")


@pytest.mark.parametrize("field", ["namespace", "name"])
def test_without_a_name_nothing_is_right(field: str) -> None:
    resource = service_json({})
    del resource["metadata"][field]
    with pytest.raises(InvalidResource, match=f"metadata.{field}: is required"):
        parse_model_service(resource)


def test_what_a_newer_operator_would_know_is_left_alone() -> None:
    """A newer CRD fills in defaults that an older operator has not heard of: after a rollback, say."""
    assert service_spec({"newThing": {"on": True}, "engine": {"newer": 1}}) == ModelServiceSpec()
