"""Two pods word for word, and all pods against the restricted security level.

`UPDATE_GOLDEN=1 pytest tests/unit/operator/objects` writes golden/*.json anew; read the diff then.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.model_service import (
    EngineOptions,
    Model,
    ModelCache,
    ModelServiceSpec,
    ModelSource,
    SecretKey,
    SourceKind,
)
from kvarn_operator.resources.pool_template import Drain, Image, Placement, PodTemplate
from kvarn_operator.scaling.spec import Role

from tests.unit.operator.objects.object_builders import pod, spec, worker
from tests.unit.operator.objects.pod_security import violations

GOLDEN = Path(__file__).parent / "golden"

FULL = spec(
    PodTemplate(
        image=Image("registry.example/worker@sha256:1234", "Always"),
        resources={"requests": {"cpu": "4"}, "limits": {"memory": "64Gi", "nvidia.com/gpu": 1}},
        placement=Placement(
            node_selector=(("gpu", "h200"),),
            tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
            affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            topology_spread_constraints=(
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
            ),
            priority_class_name="serving",
            runtime_class_name="nvidia",
            scheduler_name="gang",
        ),
        image_pull_secrets=("registry",),
        service_account_name="llama",
        env=({"name": "CUDA_VISIBLE_DEVICES", "value": "0"},),
        volumes=({"name": "scratch", "emptyDir": {"medium": "Memory"}},),
        volume_mounts=({"name": "scratch", "mountPath": "/scratch"},),
        args=(("max-waiting", "512"),),
        startup_timeout_s=900.0,
        labels=(("team", "language"),),
        annotations=(("example.com/owner", "language"),),
        pod_template={
            "metadata": {"labels": {"tier": "gold"}},
            "spec": {"dnsPolicy": "Default", "containers": [{"name": "worker", "tty": False}]},
        },
    ),
    Drain(60.0),
    model=Model(
        source=ModelSource(SourceKind.HUB, "org/llama"), revision="main", secret=SecretKey("hub-token"),
        cache=ModelCache(claim_name="models"),
    ),
    engine=EngineOptions(
        dtype="bfloat16", block_size=32, max_model_len=32768, max_batch_tokens=8192, max_sequences=256,
        kv_memory_gib=40.0, threads=4,
    ),
)  # fmt: skip
SECURE = OperatorDefaults("registry.example/kvarn-worker:1.0", image_pull_secrets=("ours",), tls_secret="certs")


def golden(name: str, body: Mapping[str, Any]) -> Any:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_least_pod() -> None:
    body = pod()
    assert body == golden("minimal.json", body)


def test_a_pod_with_everything() -> None:
    body = pod(FULL, Role.PREFILL, SECURE, index=3)
    assert body == golden("full.json", body)


def sources() -> list[ModelServiceSpec]:
    found = [FULL, replace(FULL, model=replace(FULL.model, cache=ModelCache(size_limit="9Gi")))]
    return [*found, *(spec(model=Model(source=ModelSource(kind, "somewhere"))) for kind in SourceKind)]


@pytest.mark.parametrize("said", sources(), ids=lambda said: said.model.source.kind.value)
@pytest.mark.parametrize("role", list(Role))
def test_restricted_pod_security(said: ModelServiceSpec, role: Role) -> None:
    body = pod(said, role, SECURE)
    assert violations(body) == []
    container = worker(body)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "runAsUser" not in {**body["spec"]["securityContext"], **container["securityContext"]}
    assert container["resources"]["limits"]
    assert container["resources"]["requests"]


@pytest.mark.parametrize(
    ("template", "violation"),
    [
        ({"hostNetwork": True}, "hostNetwork is set"),
        ({"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}, "volume node: hostPath"),
        ({"securityContext": {"seccompProfile": None}}, "worker: has no seccomp profile"),
        ({"containers": [{"name": "worker", "securityContext": {"runAsUser": 0}}]}, "worker: runs as root"),
        ({"containers": [{"name": "worker", "securityContext": {"capabilities": None}}]}, "worker: keeps capabilities"),
    ],
)
def test_only_the_escape_hatch_leads_out(template: Any, violation: str) -> None:
    """And the check above sees it."""
    assert violations(pod(spec(PodTemplate(pod_template={"spec": template})))) == [violation]


def test_an_api_server_of_1_20_knows_every_field() -> None:
    """The pod's own fields that came later; an image volume is there only when it was chosen."""
    later = {"os", "hostUsers", "schedulingGates", "resourceClaims", "resources"}
    for said in sources():
        body = pod(said, defaults=SECURE)
        assert later.isdisjoint(body["spec"])
        assert "resizePolicy" not in worker(body)
        assert not any("grpc" in worker(body)[probe] for probe in ("startupProbe", "readinessProbe", "livenessProbe"))
        has_image = any("image" in volume for volume in body["spec"]["volumes"])
        assert has_image is (said.model.source.kind is SourceKind.IMAGE)
