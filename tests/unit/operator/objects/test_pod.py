"""The worker pod, field by field."""

from dataclasses import fields, replace
from typing import Any

import pytest
from kvarn_operator.objects.pod import build_pod
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.labels import GRPC_PORT, METRICS_PORT
from kvarn_operator.resources.model_service import Model, ModelCache, ModelSource, SourceKind
from kvarn_operator.resources.pool_template import Drain, Image, Placement, PodTemplate, Pool
from kvarn_operator.rollout.revision import pairing, pod_revision
from kvarn_operator.scaling.spec import Role

from tests.unit.operator.objects.object_builders import (
    DEFAULTS,
    mounts,
    pod,
    pool_of,
    service,
    spec,
    volumes,
    worker,
)

LONG_NAME = "a-model-with-a-name-that-is-much-longer-than-a-label-can-be-but-fine-as-a-name"


def test_who_it_is() -> None:
    said = spec()
    metadata = pod(said, Role.PREFILL, index=7)["metadata"]
    revision = pod_revision(said, Role.PREFILL, DEFAULTS)
    assert metadata == {
        "name": f"smollm2-prefill-{revision}-7",
        "namespace": "models",
        "labels": {
            "kvarn.dev/model-service": "smollm2",
            "kvarn.dev/pool": "smollm2-prefill",
            "kvarn.dev/role": "prefill",
            "kvarn.dev/revision": revision,
            "app.kubernetes.io/component": "worker",
            "app.kubernetes.io/managed-by": "kvarn-operator",
        },
        "annotations": {"kvarn.dev/pairing": pairing(said, DEFAULTS)},
        "ownerReferences": [
            {
                "apiVersion": "kvarn.dev/v1alpha1", "kind": "WorkerPool", "name": "smollm2-prefill",
                "uid": "uid-of-pool", "controller": True,
            }
        ],
    }  # fmt: skip


def test_a_long_name_fits_everywhere() -> None:
    owner = service(name=LONG_NAME)
    body = build_pod(owner, pool_of(owner), 12, DEFAULTS)
    texts = [body["metadata"]["name"], *body["metadata"]["labels"].values()]
    assert max(map(len, texts)) <= 63
    assert body["metadata"]["labels"]["kvarn.dev/model-service"].startswith("a-model-with-a-name")


def test_labels_and_annotations_of_the_user() -> None:
    template = PodTemplate(labels=(("team", "a"), ("kvarn.dev/role", "mine")), annotations=(("note", "b"),))
    metadata = pod(spec(template))["metadata"]
    assert (metadata["labels"]["team"], metadata["labels"]["kvarn.dev/role"]) == ("a", "decode")
    assert metadata["annotations"]["note"] == "b"


@pytest.mark.parametrize("role", list(Role))
def test_the_process(role: Role) -> None:
    assert worker(pod(role=role))["command"] == ["python", "-m", f"kvarn_{role.value}"]


def test_ports() -> None:
    assert worker(pod())["ports"] == [
        {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
        {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
    ]


def test_probes_ask_on_the_metrics_port() -> None:
    container = worker(pod(spec(PodTemplate(startup_timeout_s=901.0))))
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert asked == {
        "startup": {"path": "/ready", "port": "metrics"},
        "readiness": {"path": "/ready", "port": "metrics"},
        "liveness": {"path": "/live", "port": "metrics"},
    }


@pytest.mark.parametrize(("timeout_s", "tries"), [(1800.0, 900), (901.0, 451), (0.5, 1)])
def test_loading_may_take_its_time(timeout_s: float, tries: int) -> None:
    probe = worker(pod(spec(PodTemplate(startup_timeout_s=timeout_s))))["startupProbe"]
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (2, tries)


def test_it_may_end_its_streams_first() -> None:
    body = pod(spec(drain=Drain(timeout_s=90.5)))
    assert body["spec"]["terminationGracePeriodSeconds"] == 121
    assert "--shutdown-timeout-s=90.5" in worker(body)["args"]


def test_nothing_of_the_cluster_leaks_in() -> None:
    found = pod()["spec"]
    assert found["enableServiceLinks"] is False
    assert found["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in found


def test_each_pool_has_its_own_template() -> None:
    said = replace(spec(), prefill=Pool(template=PodTemplate(image=Image("prefill:2"))))
    assert worker(pod(said, Role.PREFILL))["image"] == "prefill:2"
    assert worker(pod(said, Role.DECODE))["image"] == "registry.example/kvarn-worker:1.0"


class TestDefaultsOfTheOperator:
    SET = OperatorDefaults(
        "default:1", image_pull_policy="Always", image_pull_secrets=("ours",), worker_service_account="runner",
        priority_class_name="low",
    )  # fmt: skip

    def found(self, template: PodTemplate) -> tuple[Any, ...]:
        body = pod(spec(template), defaults=self.SET)
        pod_spec, container = body["spec"], worker(body)
        return (
            container["image"], container["imagePullPolicy"], pod_spec["imagePullSecrets"],
            pod_spec["serviceAccountName"], pod_spec["priorityClassName"],
        )  # fmt: skip

    def test_where_the_user_says_nothing(self) -> None:
        assert self.found(PodTemplate()) == ("default:1", "Always", [{"name": "ours"}], "runner", "low")

    def test_the_user_wins_and_adds_secrets(self) -> None:
        template = PodTemplate(
            image=Image("mine:2", "Never"), image_pull_secrets=("theirs", "ours"), service_account_name="me",
            placement=Placement(priority_class_name="high"),
        )  # fmt: skip
        assert self.found(template) == ("mine:2", "Never", [{"name": "theirs"}, {"name": "ours"}], "me", "high")

    def test_no_secrets_no_field(self) -> None:
        assert "imagePullSecrets" not in pod()["spec"]
        assert "priorityClassName" not in pod()["spec"]


class TestPlacement:
    def test_soft_spread_over_nodes_and_zones(self) -> None:
        mine = {"labelSelector": {"matchLabels": {"kvarn.dev/pool": "smollm2-decode"}}}
        soft = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **mine}
        assert pod()["spec"]["topologySpreadConstraints"] == [
            {"topologyKey": "kubernetes.io/hostname", **soft},
            {"topologyKey": "topology.kubernetes.io/zone", **soft},
        ]

    def test_a_constraint_without_selector_means_the_pool(self) -> None:
        given = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        own = {**given, "labelSelector": {"matchLabels": {"team": "a"}}}
        (first, second) = pod(self.spec(topology_spread_constraints=(given, own)))["spec"]["topologySpreadConstraints"]
        assert first == {**given, "labelSelector": {"matchLabels": {"kvarn.dev/pool": "smollm2-decode"}}}
        assert second == own

    @pytest.mark.parametrize(
        ("field", "value", "key", "found"),
        [
            ("node_selector", (("gpu", "h200"),), "nodeSelector", {"gpu": "h200"}),
            ("tolerations", ({"key": "gpu"},), "tolerations", [{"key": "gpu"}]),
            ("affinity", {"podAntiAffinity": {}}, "affinity", {"podAntiAffinity": {}}),
            ("priority_class_name", "high", "priorityClassName", "high"),
            ("runtime_class_name", "nvidia", "runtimeClassName", "nvidia"),
            ("scheduler_name", "mine", "schedulerName", "mine"),
        ],
    )  # fmt: skip
    def test_fields(self, field: str, value: Any, key: str, found: Any) -> None:
        assert key not in pod()["spec"]
        assert pod(self.spec(**{field: value}))["spec"][key] == found

    def test_all_fields_are_placed(self) -> None:
        assert {field.name for field in fields(Placement)} == {
            "node_selector", "tolerations", "affinity", "topology_spread_constraints", "priority_class_name",
            "runtime_class_name", "scheduler_name",
        }  # fmt: skip

    @staticmethod
    def spec(**placement: Any) -> Any:
        return spec(PodTemplate(placement=Placement(**placement)))


class TestVolumes:
    def test_only_these_are_writable(self) -> None:
        body = pod()
        assert volumes(body) == {"tmp": {"emptyDir": {"sizeLimit": "1Gi"}}, "cache": {"emptyDir": {}}}
        assert {path: mount["name"] for path, mount in mounts(body).items()} == {"/tmp": "tmp", "/cache": "cache"}

    def test_the_cache_may_be_limited(self) -> None:
        body = pod(spec(model=Model(cache=ModelCache(size_limit="20Gi"))))
        assert volumes(body)["cache"] == {"emptyDir": {"sizeLimit": "20Gi"}}
        assert "fsGroup" not in body["spec"]["securityContext"]

    def test_a_claim_as_cache_is_made_writable(self) -> None:
        body = pod(spec(model=Model(cache=ModelCache(claim_name="models"))))
        assert volumes(body)["cache"] == {"persistentVolumeClaim": {"claimName": "models"}}
        context = body["spec"]["securityContext"]
        assert (context["fsGroup"], context["fsGroupChangePolicy"]) == (65532, "OnRootMismatch")

    @pytest.mark.parametrize(
        ("kind", "volume"),
        [
            (SourceKind.PVC, {"persistentVolumeClaim": {"claimName": "where", "readOnly": True}}),
            (SourceKind.IMAGE, {"image": {"reference": "where", "pullPolicy": "IfNotPresent"}}),
        ],
    )
    def test_a_model_that_lies_somewhere(self, kind: SourceKind, volume: Any) -> None:
        body = pod(spec(model=Model(source=ModelSource(kind, "where", "a/b"))))
        assert volumes(body)["model"] == volume
        assert mounts(body)["/models"] == {"name": "model", "mountPath": "/models", "readOnly": True}

    def test_certificates(self) -> None:
        body = pod(defaults=replace(DEFAULTS, tls_secret="certs"))
        assert volumes(body)["tls"] == {"secret": {"secretName": "certs", "defaultMode": 0o444}}
        assert mounts(body)["/etc/kvarn/tls"] == {"name": "tls", "mountPath": "/etc/kvarn/tls", "readOnly": True}

    def test_the_user_adds_and_replaces(self) -> None:
        template = PodTemplate(
            volumes=({"name": "data", "emptyDir": {}}, {"name": "cache", "hostPath": {"path": "/fast"}}),
            volume_mounts=({"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/tmp"}),
        )
        body = pod(spec(template))
        assert volumes(body)["cache"] == {"hostPath": {"path": "/fast"}}
        assert {path: mount["name"] for path, mount in mounts(body).items()} == {
            "/tmp": "data", "/cache": "cache", "/data": "data",
        }  # fmt: skip
