"""Rules that every rendered object of every value set keeps: security, secrets, rights, names, selectors, networks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.chart.rendering import HERE, VERSIONS, Body, Helm, containers, name_of, of_kind, rendered, workloads

SELECTOR_KEYS = frozenset(
    [
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
        "kvarn.dev/model-service",
        "kvarn.dev/role",
    ]
)
"""What may select pods. A version or a chart would make an upgrade impossible."""

SECRET_WORDS = re.compile(r"(key|token|password|secret)", re.IGNORECASE)
HARMLESS_ARGS = re.compile(r"^--(tls-key-file|tls-secret|image-pull-secrets)=[\w./,-]+$")
"""Arguments that name a file or a Secret; none holds one."""

READS_API = ("operator", "router", "crds")
"""Components whose pods talk to the API server, and so get a token."""


@pytest.fixture(params=["1.20.2", "1.34.0"])
def bodies(request: pytest.FixtureRequest, helm: Helm, values: str) -> tuple[Body, ...]:
    assert request.param in VERSIONS
    return rendered(helm, values, request.param)


def component(pod: Body) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def test_pods_are_restricted(bodies: tuple[Body, ...]) -> None:
    """The Pod Security Standard `restricted`, and a root file system that cannot be written."""
    found = dict(workloads(bodies))
    assert len(found) >= 2
    for name, pod in found.items():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
        assert not pod["spec"].keys() & {"hostNetwork", "hostPID", "hostIPC"}, name
        assert all("hostPath" not in volume for volume in pod["spec"]["volumes"]), name


def test_any_user_id_works(helm: Helm) -> None:
    """OpenShift gives each namespace its own; a fixed one would be refused. HOME is where such a user may write."""
    for name, pod in workloads(rendered(helm, "default")):
        assert not pod["spec"]["securityContext"].keys() & {"runAsUser", "runAsGroup", "fsGroup"}, name
        for container in containers(pod):
            assert {"name": "HOME", "value": "/tmp"} in container["env"], name
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], name


def test_user_ids_can_be_given(helm: Helm) -> None:
    for name, pod in workloads(rendered(helm, "everything")):
        security = pod["spec"]["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (1000, 1000, 1000), name


def test_requests_and_limits_stand_everywhere(bodies: tuple[Body, ...]) -> None:
    for name, pod in workloads(bodies):
        for container in containers(pod):
            assert container["resources"].keys() == {"requests", "limits"}, name
            assert all({"cpu", "memory"} == amounts.keys() for amounts in container["resources"].values()), name


def test_default_fits_on_a_node_with_two_cores(helm: Helm) -> None:
    """With the worker pods that the operator makes; what is left is for the cluster itself."""
    bodies = rendered(helm, "default")
    replicas = {name: body["spec"]["replicas"] for name, body in of_kind(bodies, "Deployment").items()}
    pods = [(replicas[name], body["spec"]["template"]) for name, body in of_kind(bodies, "Deployment").items()]
    spec = of_kind(bodies, "ModelService")["smollm2"]["spec"]
    requests = [(count, container["resources"]["requests"]) for count, pod in pods for container in containers(pod)]
    requests += [(1, spec[role]["template"]["resources"]["requests"]) for role in ("prefill", "decode")]
    assert sum(count * milli(each["cpu"]) for count, each in requests) <= 1000
    assert sum(count * mebi(each["memory"]) for count, each in requests) <= 2560


def milli(quantity: str) -> int:
    return int(quantity.removesuffix("m")) if quantity.endswith("m") else 1000 * int(quantity)


def mebi(quantity: str) -> int:
    return 1024 * int(quantity.removesuffix("Gi")) if quantity.endswith("Gi") else int(quantity.removesuffix("Mi"))


def test_no_secret_in_arguments_or_plain_variables(bodies: tuple[Body, ...]) -> None:
    for name, pod in workloads(bodies):
        for container in containers(pod):
            args = [argument for argument in container["args"] if SECRET_WORDS.search(argument)]
            assert [argument for argument in args if not HARMLESS_ARGS.match(argument)] == [], name
            plain = [entry["name"] for entry in container["env"] if "value" in entry]
            assert [variable for variable in plain if SECRET_WORDS.search(variable)] == [], name


def test_the_chart_makes_no_secret(bodies: tuple[Body, ...]) -> None:
    assert of_kind(bodies, "Secret") == {}


def test_images_have_a_fixed_version(bodies: tuple[Body, ...]) -> None:
    for name, pod in workloads(bodies):
        for container in containers(pod):
            assert re.search(r"(:[\w.-]+|@sha256:[0-9a-f]{64})$", container["image"]), name
            assert not container["image"].endswith(":latest"), name


def test_service_links_are_off(bodies: tuple[Body, ...]) -> None:
    """A Service called kvarn-something would become KVARN_ variables, which a strict process refuses."""
    assert [name for name, pod in workloads(bodies) if pod["spec"]["enableServiceLinks"] is not False] == []


def test_tokens_only_where_needed(bodies: tuple[Body, ...]) -> None:
    for name, pod in workloads(bodies):
        assert pod["spec"]["automountServiceAccountToken"] is (component(pod) in READS_API), name
    accounts = of_kind(bodies, "ServiceAccount")
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())


def test_pull_secrets_and_registry_reach_every_pod(helm: Helm) -> None:
    bodies = rendered(helm, "everything")
    for name, pod in workloads(bodies):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "mirror"}, {"name": "second"}], name
        assert all(container["image"].startswith("mirror.example.com/") for container in containers(pod)), name
    (operator,) = containers(of_kind(bodies, "Deployment")["mill-operator"]["spec"]["template"])
    assert "--image-pull-secrets=mirror,second" in operator["args"]
    assert f"--worker-image=mirror.example.com/kvarn-worker@sha256:{'2' * 64}" in operator["args"]
    assert operator["image"] == f"mirror.example.com/kvarn-operator@sha256:{'1' * 64}"


def test_selectors_never_name_a_version(bodies: tuple[Body, ...]) -> None:
    found = [(name_of(body), selector) for body in bodies for selector in selectors(body.get("spec", {}))]
    assert len(found) >= 3
    assert [(name, selector) for name, selector in found if not selector.keys() <= SELECTOR_KEYS] == []


def test_an_upgrade_changes_nothing_that_cannot_be_changed(helm: Helm) -> None:
    """A Deployment's selector and a binding's role, whatever values and chart version come later."""
    later = (
        "commonLabels.team=b,images.tag=v9,global.imageRegistry=mirror,router.replicas=4,router.podLabels.x=y",
        "operator.podLabels.x=y,operator.replicas=1,tls.enabled=true,tls.existingSecret=c,router.autoscaling.enabled=true",
        "operator.namespaces={team-a},operator.serviceAccount.name=other,models.smollm2.spec.model.servedNames={b}",
    )
    before = fixed(rendered(helm, "default"))
    assert len(before) == 2 + 4
    for settings in later:
        after = fixed(tuple(helm.template("--set", settings)))
        assert {key: after[key] for key in before} == before


def fixed(bodies: tuple[Body, ...]) -> dict[tuple[str, str], Any]:
    """What the API server never lets anybody change, by the object's name and namespace."""
    found = {}
    for body in bodies:
        key = (name_of(body), body["metadata"].get("namespace", ""))
        if body["kind"] == "Deployment":
            found[key] = body["spec"]["selector"]
        if body["kind"].endswith("RoleBinding"):
            found[key] = body["roleRef"]
    return found


def selectors(spec: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    selector = spec.get("selector") or spec.get("podSelector")
    if selector:
        yield selector.get("matchLabels", selector)


def test_names_fit(helm: Helm) -> None:
    """The longest release and model names that helm and the schema let in."""
    release, model = "r" * 53, "m" * 55
    everything = str(HERE / "values" / "everything.yaml")
    host = f"models.{model}.router.ingress.hosts={{m.b}},models.{model}.router.httpRoute.hostnames={{m.b}}"
    settings = f"fullnameOverride=,{host}"
    bodies = helm.template("--values", everything, "--set", settings, release=release)
    assert [name_of(body) for body in bodies if len(body["metadata"]["name"]) > 63] == []
    keys = [(name_of(body), body["metadata"].get("namespace")) for body in bodies]
    assert len(set(keys)) == len(keys), "two objects share a name"
    labels = {value for body in bodies for value in body["metadata"]["labels"].values()}
    assert [value for value in labels if len(value) > 63] == []
    assert "m" * 55 + "-router" in of_kind(bodies, "Service")


def test_budgets_need_more_than_one_replica(bodies: tuple[Body, ...]) -> None:
    """A budget over one pod blocks every drain of its node."""
    deployments = of_kind(bodies, "Deployment")
    scalers = of_kind(bodies, "HorizontalPodAutoscaler")
    least = {
        name: scalers[name]["spec"]["minReplicas"] if name in scalers else body["spec"]["replicas"]
        for name, body in deployments.items()
    }
    budgets = of_kind(bodies, "PodDisruptionBudget")
    assert budgets.keys() == {name for name, count in least.items() if count > 1}
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in budgets.values())


def test_a_router_that_is_not_ready_never_holds_a_node(helm: Helm) -> None:
    """All routers of a model are unready while its workers are away, and a budget counts those as disrupted."""
    for version, policy in (("1.20.2", None), ("1.30.0", "AlwaysAllow"), ("1.37.0", "AlwaysAllow")):
        budgets = of_kind(rendered(helm, "everything", version), "PodDisruptionBudget")
        assert budgets.keys() == {"claimed-router", "packed-router", "mill-operator"}
        assert {budget["spec"].get("unhealthyPodEvictionPolicy") for budget in budgets.values()} == {policy}


def test_helm_never_fights_an_autoscaler(bodies: tuple[Body, ...]) -> None:
    scaled = of_kind(bodies, "HorizontalPodAutoscaler")
    for name, body in of_kind(bodies, "Deployment").items():
        assert ("replicas" in body["spec"]) is (name not in scaled), name


def test_names_that_look_like_something_else_stay_names(helm: Helm) -> None:
    """YAML takes 123 for a number and `on` for true."""
    words = "tls.existingSecret=789,workers.priorityClassName=1,models.on.router.apiKeys.existingSecret=7"
    bodies = helm.template("--set", "tls.enabled=true", "--set-string", words, release="123")
    names = [body["metadata"]["name"] for body in bodies]
    values = [value for body in bodies for value in body["metadata"]["labels"].values()]
    assert "on" in names
    assert [name for name in (*names, *values) if not isinstance(name, str)] == []
    spec = of_kind(bodies, "Deployment")["on-router"]["spec"]["template"]["spec"]
    assert [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume] == ["789"]
    references = [entry["valueFrom"]["secretKeyRef"] for entry in spec["containers"][0]["env"] if "valueFrom" in entry]
    assert references == [{"name": "7", "key": "api-keys"}]


def test_a_new_chart_version_alone_restarts_nothing(helm: Helm, values: str) -> None:
    for name, pod in workloads(rendered(helm, values)):
        if not name.startswith("Pod/"):
            assert not pod["metadata"]["labels"].keys() & {"helm.sh/chart", "app.kubernetes.io/version"}, name
