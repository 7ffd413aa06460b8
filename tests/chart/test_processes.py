"""What the chart starts is what the code understands: flags, variables, probes, rights, the CRDs' hook."""

import json
from typing import Any

import pytest
from kvarn_engine.process.settings import load_settings
from kvarn_operator.objects.model_source import MODEL_VOLUME, model_environment, model_flags, model_volume
from kvarn_operator.resources import labels
from kvarn_operator.resources.parsing import parse_model_service
from kvarn_operator.settings import OperatorSettings
from kvarn_router.settings import RouterSettings
from kvarn_router.smoke import Settings as SmokeSettings

from tests.chart.rendering import CHART, HERE, Body, Helm, containers, of_kind, rendered, workloads

ROOTS: dict[str, type[Any]] = {
    "kvarn_router": RouterSettings,
    "kvarn_operator": OperatorSettings,
    "kvarn_router.smoke": SmokeSettings,
}
"""Module that a container runs -> its settings."""


def commands(bodies: tuple[Body, ...]) -> list[tuple[str, list[str], dict[str, str]]]:
    """Module, arguments and variables of every container. A variable from a Secret holds two keys."""
    return [
        (
            container["command"][2],
            container["args"],
            {entry["name"]: entry.get("value", "first,second") for entry in container["env"]},
        )
        for _, pod in workloads(bodies)
        for container in containers(pod)
    ]


def test_every_process_accepts_its_settings(helm: Helm, values: str) -> None:
    found = [each for each in commands(rendered(helm, values)) if each[0] in ROOTS]
    assert {module for module, _, _ in found} >= {"kvarn_router", "kvarn_operator"}
    for module, arguments, variables in found:
        load_settings(ROOTS[module], arguments, variables)


def only(bodies: tuple[Body, ...], module: str) -> Any:
    """Settings of the one container that runs a module."""
    ((_, arguments, variables),) = [each for each in commands(bodies) if each[0] == module]
    return load_settings(ROOTS[module], arguments, variables)


def test_router_hears_of_its_model_and_its_workers(helm: Helm) -> None:
    settings = only(rendered(helm, "gpu_slo"), "kvarn_router")
    assert settings.tokenizer.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert settings.tokenizer.model_revision == "main"
    assert settings.api.served_model_name == ("llama-3.1-8b", "llama")
    assert settings.api.api_keys == ("first", "second")
    assert settings.api.max_inflight == 2_000_000
    assert settings.workers.ready_without_prefill is True
    assert settings.routing.stream_idle_timeout_s == 2.5
    selector = f"{labels.MODEL_SERVICE_LABEL}=llama,{labels.COMPONENT_LABEL}=worker"
    assert settings.discovery.workers_selector == selector


@pytest.mark.parametrize(("least", "ready"), [(0, True), (1, False)])
def test_router_takes_requests_for_pools_that_scale_to_zero(helm: Helm, least: int, ready: bool) -> None:
    """Else its Service would lead nowhere, and nothing would ever wake them. They need time to load."""
    bodies = helm.template("--set", f"models.smollm2.spec.decode.scaling.min={least}")
    settings = only(tuple(bodies), "kvarn_router")
    assert settings.workers.ready_without_workers is ready
    assert settings.routing.hold_s == (120 if ready else 30)


def test_router_mounts_what_it_reads(helm: Helm) -> None:
    deployments = of_kind(rendered(helm, "everything"), "Deployment")
    (container,) = containers(deployments["claimed-router"]["spec"]["template"])
    assert "--model=/models/qwen" in container["args"]
    mounts = {mount["name"]: (mount["mountPath"], mount.get("readOnly")) for mount in container["volumeMounts"]}
    assert mounts == {"tmp": ("/tmp", None), "model": ("/models", True), "tls": ("/etc/kvarn/tls", True)}
    volumes = {
        volume["name"]: volume for volume in deployments["claimed-router"]["spec"]["template"]["spec"]["volumes"]
    }
    assert volumes["model"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert volumes["tls"]["secret"] == {"secretName": "certificates"}


SOURCES: list[dict[str, Any]] = [
    {"hub": {"id": "org/name"}},
    {"pvc": {"claimName": "models", "path": "qwen/8b"}},
    {"image": {"reference": "registry.example.com/qwen@sha256:1"}},
    {"url": {"url": "https://models.example.com/qwen.tar?sig=a%20b"}},
    {},
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: next(iter(source), "embedded"))
def test_router_and_workers_get_a_model_from_the_same_place(helm: Helm, source: dict[str, Any]) -> None:
    """The chart builds the one, the operator the others."""
    of_a_hub = {"secretRef": {"name": "hub", "key": "token"}, "revision": "v1"}
    model = {"source": source, **(of_a_hub if "hub" in source else {})}
    bodies = helm.template("--set-json", f"models.smollm2.spec.model={json.dumps(model)}")
    resource = {"metadata": {"name": "smollm2", "namespace": "serving", "uid": "1"}, "spec": {"model": model}}
    wanted = parse_model_service(resource).spec.model
    spec = of_kind(bodies, "Deployment")["smollm2-router"]["spec"]["template"]["spec"]
    flags = {f"--{flag}={value}" for flag, value in model_flags(wanted).items()}
    assert {flag for flag in spec["containers"][0]["args"] if flag.startswith("--model")} == flags
    tokens = [entry for entry in spec["containers"][0]["env"] if entry["name"] == "HF_TOKEN"]
    assert tokens == list(model_environment(wanted))
    volumes = [volume for volume in spec["volumes"] if volume["name"] == MODEL_VOLUME]
    assert volumes == [volume for volume in [model_volume(wanted)] if volume is not None]


def test_operator_hears_of_everything_that_workers_need(helm: Helm) -> None:
    settings = only(rendered(helm, "everything"), "kvarn_operator")
    assert settings.scope.namespaces == ("serving", "team-a", "team-b")
    assert settings.workloads.tls_secret == "certificates"
    assert settings.workloads.worker_service_account == "kvarn-worker"
    assert settings.workloads.priority_class_name == "serving"
    assert settings.workloads.worker_log_json is False
    assert settings.election.lease_namespace == "serving"
    assert settings.loops.concurrency == 16


def test_ports_are_the_ones_that_operator_and_routers_agree_on(helm: Helm) -> None:
    (container,) = containers(of_kind(rendered(helm, "default"), "Deployment")["smollm2-router"]["spec"]["template"])
    assert container["ports"] == [
        {"name": labels.ROUTER_PORT_NAME, "containerPort": labels.ROUTER_PORT, "protocol": "TCP"}
    ]
    assert f"--port={labels.ROUTER_PORT}" in container["args"]


def test_router_ends_after_its_answers(helm: Helm) -> None:
    spec = of_kind(rendered(helm, "default"), "Deployment")["smollm2-router"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "--shutdown-timeout-s=300" in container["args"]
    assert "--shutdown-delay-s=5" in container["args"]
    assert spec["terminationGracePeriodSeconds"] > 5 + 300


RULES = {
    ("kvarn.dev", "modelservices"): {"list", "watch"},
    ("kvarn.dev", "workerpools"): {"list", "watch", "create", "patch"},
    ("kvarn.dev", "modelservices/status"): {"patch"},
    ("kvarn.dev", "workerpools/status"): {"patch"},
    ("", "pods"): {"get", "list", "watch", "create", "patch", "delete"},
    ("policy", "poddisruptionbudgets"): {"list", "watch", "create", "patch"},
    ("events.k8s.io", "events"): {"create", "patch"},
}


def rights(role: Body) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_operator_has_the_same_rights_in_one_namespace_and_in_all(helm: Helm) -> None:
    assert rights(of_kind(rendered(helm, "default"), "Role")["kvarn-operator"]) == RULES
    assert rights(of_kind(rendered(helm, "cluster_wide"), "ClusterRole")["serving.kvarn-operator"]) == RULES


def test_router_reads_pods_and_nothing_else(helm: Helm) -> None:
    assert rights(of_kind(rendered(helm, "default"), "Role")["smollm2-router"]) == {
        ("", "pods"): {"get", "list", "watch"}
    }


def test_no_role_reads_secrets_or_has_wildcards(helm: Helm, values: str) -> None:
    bodies = rendered(helm, values)
    for role in (*of_kind(bodies, "Role").values(), *of_kind(bodies, "ClusterRole").values()):
        for (group, resource), verbs in rights(role).items():
            assert "*" not in (group, resource, *verbs), role["metadata"]["name"]
            assert resource not in ("secrets", "pods/exec"), role["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ("default", {"serving.kvarn-crds"}),
        ("tenant", set()),
        ("cluster_wide", {"serving.kvarn-operator"}),
        ("everything", {"serving.mill-crds"}),
    ],
)
def test_cluster_roles(helm: Helm, values: str, names: set[str]) -> None:
    """A namespaced installation has the hook's alone, and with crds.upgrade: false none."""
    bodies = rendered(helm, values)
    assert set(of_kind(bodies, "ClusterRole")) == set(of_kind(bodies, "ClusterRoleBinding")) == names


def test_every_watched_namespace_gets_a_role(helm: Helm) -> None:
    placed = {
        (body["kind"], body["metadata"]["namespace"])
        for body in rendered(helm, "everything")
        if body["metadata"]["name"] == "mill-operator" and body["kind"].startswith("Role")
    }
    assert placed == {(kind, name) for kind in ("Role", "RoleBinding") for name in ("serving", "team-a", "team-b")}


def test_the_hook_carries_the_crds_of_the_chart(helm: Helm) -> None:
    bodies = rendered(helm, "default")
    files = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "crds").glob("*.yaml")}
    assert of_kind(bodies, "ConfigMap")["kvarn-crds"]["data"] == files
    made = [body for body in bodies if body["metadata"]["name"].endswith("kvarn-crds")]
    annotated = {body["kind"]: body["metadata"]["annotations"] for body in made}
    needed = {"ServiceAccount", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    assert annotated.keys() == needed | {"Job"}
    for annotations in annotated.values():
        assert annotations["helm.sh/hook"] == "pre-upgrade"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    weights = {kind: int(each["helm.sh/hook-weight"]) for kind, each in annotated.items()}
    assert all(weights[kind] < weights["Job"] for kind in weights if kind != "Job")
    assert of_kind(bodies, "Job")["kvarn-crds"]["spec"]["ttlSecondsAfterFinished"] == 3600


def test_rights_of_the_hook_are_for_our_crds(helm: Helm) -> None:
    names = {path.stem for path in (CHART / "crds").glob("*.yaml")}
    first, second = of_kind(rendered(helm, "default"), "ClusterRole")["serving.kvarn-crds"]["rules"]
    assert set(first["resourceNames"]) == names
    assert second["verbs"] == ["create"]


def test_helm_test_asks_each_router(helm: Helm) -> None:
    bodies = rendered(helm, "everything")
    tests = {
        body["metadata"]["name"]: body
        for body in bodies
        if body["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"
    }
    assert tests.keys() == {"smollm2-test", "claimed-test", "packed-test"}
    (container,) = containers(tests["packed-test"])
    assert "--url=http://packed-router:8000" in container["args"]
    assert [entry["name"] for entry in container["env"] if "valueFrom" in entry] == ["KVARN_API_KEYS"]


def test_lint_finds_nothing(helm: Helm, values: str) -> None:
    helm.run("lint", "--strict", "--quiet", str(CHART), "--values", str(HERE / "values" / f"{values}.yaml"))


def test_two_operators_never_act_at_once(helm: Helm) -> None:
    """Not during an upgrade either: a lease keeps them apart, or the old one ends first."""
    with_lease = of_kind(rendered(helm, "default"), "Deployment")["kvarn-operator"]["spec"]
    without = of_kind(rendered(helm, "tenant"), "Deployment")["kvarn-operator"]["spec"]
    assert "strategy" not in with_lease
    assert (without["replicas"], without["strategy"]) == (1, {"type": "Recreate"})
