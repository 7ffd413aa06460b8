"""WorkerPool and PodDisruptionBudget."""

from dataclasses import replace

import pytest
from kvarn_operator.objects.budget import build_budget
from kvarn_operator.objects.worker_pool import build_pool
from kvarn_operator.resources.pool_template import Drain, Image, PodTemplate, Pool, Scaling
from kvarn_operator.scaling.spec import Behaviour, RateLimit, Role, ScalingMode

from tests.unit.operator.objects.object_builders import DEFAULTS, pool_of, service, spec

LABELS = {
    "kvarn.dev/model-service": "smollm2",
    "kvarn.dev/pool": "smollm2-decode",
    "kvarn.dev/role": "decode",
    "app.kubernetes.io/managed-by": "kvarn-operator",
}


class TestWorkerPool:
    def test_who_it_is(self) -> None:
        body = build_pool(service(), Role.DECODE)
        assert (body["apiVersion"], body["kind"]) == ("kvarn.dev/v1alpha1", "WorkerPool")
        assert body["metadata"] == {
            "name": "smollm2-decode",
            "namespace": "models",
            "labels": LABELS,
            "ownerReferences": [
                {
                    "apiVersion": "kvarn.dev/v1alpha1", "kind": "ModelService", "name": "smollm2",
                    "uid": "uid-of-service", "controller": True,
                }
            ],
        }  # fmt: skip
        assert (body["spec"]["role"], body["spec"]["modelService"]) == ("decode", "smollm2")

    @pytest.mark.parametrize("role", list(Role))
    def test_replicas_are_not_its_business(self, role: Role) -> None:
        assert "replicas" not in build_pool(service(), role)["spec"]

    def test_each_role_has_its_own_pool(self) -> None:
        said = replace(spec(), prefill=Pool(drain=Drain(60.0)), decode=Pool(drain=Drain(600.0)))
        found = {role: build_pool(service(said), role)["spec"]["drain"] for role in Role}
        assert found == {Role.PREFILL: {"timeoutSeconds": 60}, Role.DECODE: {"timeoutSeconds": 600}}

    def test_scaling(self) -> None:
        behaviour = Behaviour(15.0, 120.0, RateLimit(2, 0.5, 30.0), RateLimit(3, 0.25, 90.0))
        scaling = Scaling(ScalingMode.SLO, 0, 7, behaviour, override_s=100.0, zero_after_s=200.0)
        body = build_pool(service(replace(spec(), decode=Pool(scaling=scaling))), Role.DECODE)
        assert body["spec"]["scaling"] == {
            "mode": "SLO", "min": 0, "max": 7,
            "behaviour": {
                "scaleUp": {"stabilizationWindowSeconds": 15, "pods": 2, "percent": 50, "periodSeconds": 30},
                "scaleDown": {"stabilizationWindowSeconds": 120, "pods": 3, "percent": 25, "periodSeconds": 90},
            },
            "overrideSeconds": 100, "zeroAfterSeconds": 200,
        }  # fmt: skip

    def test_a_template_says_only_what_was_said(self) -> None:
        assert build_pool(service(), Role.DECODE)["spec"]["template"] == {"startupTimeoutSeconds": 1800}
        template = PodTemplate(image=Image("mine:2"), args=(("max-waiting", "9"),), image_pull_secrets=("a",))
        assert build_pool(service(spec(template)), Role.DECODE)["spec"]["template"] == {
            "image": "mine:2", "args": {"max-waiting": "9"}, "imagePullSecrets": [{"name": "a"}],
            "startupTimeoutSeconds": 1800,
        }  # fmt: skip


class TestBudget:
    def test_one_at_a_time_and_never_blocked(self) -> None:
        owner = service()
        assert build_budget(owner, pool_of(owner), DEFAULTS) == {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {
                "name": "smollm2-decode", "namespace": "models", "labels": LABELS,
                "ownerReferences": [
                    {
                        "apiVersion": "kvarn.dev/v1alpha1", "kind": "WorkerPool", "name": "smollm2-decode",
                        "uid": "uid-of-pool", "controller": True,
                    }
                ],
            },
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": {"kvarn.dev/pool": "smollm2-decode"}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }  # fmt: skip

    def test_an_old_api_server(self) -> None:
        owner = service()
        body = build_budget(owner, pool_of(owner), replace(DEFAULTS, budget_api="policy/v1beta1"))
        assert body is not None
        assert body["apiVersion"] == "policy/v1beta1"
        assert "unhealthyPodEvictionPolicy" not in body["spec"]

    def test_none_wanted(self) -> None:
        owner = service()
        assert build_budget(owner, pool_of(owner), replace(DEFAULTS, budget_api="")) is None
