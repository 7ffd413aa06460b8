"""What users name as they like never breaks what the chart needs: labels, variables, releases, models."""

import json
from collections.abc import Iterator

import pytest

from tests.chart.rendering import Body, Helm, HelmError, StrictLoader, name_of, of_kind, workloads

OWN = {
    "app.kubernetes.io/name": "kvarn",
    "app.kubernetes.io/instance": "kvarn",
    "app.kubernetes.io/component": "router",
    "app.kubernetes.io/part-of": "kvarn",
    "app.kubernetes.io/version": "0.1.0",
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": "kvarn-0.1.0",
    "kvarn.dev/model-service": "smollm2",
}
"""Labels of a router's objects that the chart sets itself."""

SELECTING = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "kvarn.dev/model-service",
)
"""Those by which selectors and policies find its pods."""


def test_a_key_that_stands_twice_is_found() -> None:
    with pytest.raises(HelmError, match="twice in one map: a"):
        StrictLoader("{a: 1, b: 2, a: 3}").get_single_data()


@pytest.mark.parametrize("value", ["commonLabels", "router.podLabels"])
def test_no_label_of_a_user_replaces_one_of_the_chart(helm: Helm, value: str) -> None:
    """Company-wide label sets often hold these keys; selectors and policies need the chart's values."""
    labels = dict.fromkeys(OWN, "platform") | {"example.com/team": "serving", "example.com/on": "true"}
    bodies = helm.template("--set-json", f"{value}={json.dumps(labels)}")
    deployment = of_kind(bodies, "Deployment")["smollm2-router"]
    pod = deployment["spec"]["template"]["metadata"]["labels"]
    assert {key: pod[key] for key in SELECTING} == {key: OWN[key] for key in SELECTING}
    assert (pod["example.com/team"], pod["example.com/on"]) == ("serving", "true")
    assert deployment["spec"]["selector"]["matchLabels"].items() <= pod.items()
    assert OWN.items() <= deployment["metadata"]["labels"].items()


def test_labels_of_monitors_and_dashboards_stay_beside_the_charts(helm: Helm) -> None:
    labels = json.dumps({"app.kubernetes.io/name": "prometheus", "team": "observability"})
    switches = "monitoring.podMonitor.enabled=true,monitoring.dashboards.enabled=true,commonLabels.team=serving"
    settings = ("--set-json", f"monitoring.labels={labels}", "--set-json", f"monitoring.dashboards.labels={labels}")
    bodies = helm.template(*settings, "--set", switches)
    found = [body for body in bodies if body["kind"] == "PodMonitor" or "-dashboard-" in body["metadata"]["name"]]
    assert len(found) == 4
    for body in found:
        assert body["metadata"]["labels"]["app.kubernetes.io/name"] == "kvarn", name_of(body)
        assert body["metadata"]["labels"]["team"] == "observability", "the nearer word counts"


@pytest.mark.parametrize("served", ["Qwen: the small one", "qwen #3", 'qwen "q" \\ {{3}}', "kvarn-é"])
def test_a_served_name_arrives_as_it_was_written(helm: Helm, served: str) -> None:
    """Clients may have used it for years. In YAML `: ` begins a map and ` #` a comment."""
    source = {"hub": {"id": "org/name"}}
    model = {"source": source, "servedNames": [served], "revision": "refs/pr/1 #2"}
    bodies = helm.template("--set-json", f"models.smollm2.spec.model={json.dumps(model)}")
    found = {component: args for component, args in arguments(bodies) if component != "operator"}
    assert f"--served-model-name={served}" in found["router"]
    assert "--model-revision=refs/pr/1 #2" in found["router"]
    assert f"--model={served}" in found["test"]


def arguments(bodies: list[Body]) -> Iterator[tuple[str, list[str]]]:
    """Component and arguments of everything that runs."""
    for _, pod in workloads(tuple(bodies)):
        yield pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["spec"]["containers"][0]["args"]


def test_releases_share_no_cluster_wide_name(helm: Helm) -> None:
    """Neither of one name in two namespaces, nor where namespace and release only read alike, nor very long ones."""
    names: list[str] = []
    for namespace, release in [
        ("team", "kvarn"),
        ("other", "kvarn"),
        ("team-a", "kvarn"),
        ("team", "a-kvarn"),
        ("n" * 62 + "a", "r" * 53),
        ("n" * 62 + "b", "r" * 53),
    ]:
        bodies = helm.template("--set", "operator.clusterWide=true", release=release, namespace=namespace)
        names += [each for kind in ("ClusterRole", "ClusterRoleBinding") for each in of_kind(bodies, kind)]
    assert len(names) == 24
    assert sorted({name for name in names if names.count(name) != 2}) == [], "a role and its binding, no other"
    assert max(map(len, names)) <= 63


def test_releases_of_one_namespace_share_nothing_but_what_only_one_may_have(helm: Helm) -> None:
    """The lease, so that helm refuses a second operator, and the models that both list."""
    first, second = (
        {(body["kind"], body["metadata"]["name"]) for body in helm.template(*settings, release=release)}
        for release, settings in (
            ("kvarn", ()),
            ("two", ("--set", "models.smollm2=null,models.other.create=true")),
        )
    )
    assert first & second == {("Lease", "kvarn-operator")}


def test_a_variable_of_a_user_replaces_one_of_the_chart(helm: Helm) -> None:
    """Two of one name are refused by server-side apply, which helm 4 uses."""
    own = {"HOME": "/home", "HF_HOME": "/cache/shared", "HF_TOKEN": {"valueFrom": {"fieldRef": {"fieldPath": "a"}}}}
    model = {"source": {"hub": {"id": "org/name"}}, "secretRef": {"name": "hub"}}
    bodies = helm.template(
        *("--set-json", f"models.smollm2.spec.model={json.dumps(model)}"),
        *("--set-json", f"router.env={json.dumps(own)}"),
        *("--set", "operator.env.HOME=/home,router.apiKeys.existingSecret=keys"),
    )
    found = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"]["containers"][0]["env"]
        for _, pod in workloads(tuple(bodies))
    }
    for entries in found.values():
        names = [entry["name"] for entry in entries]
        assert len(set(names)) == len(names)
    router = {entry["name"]: entry.get("value") or entry["valueFrom"] for entry in found["router"]}
    keys = {"secretKeyRef": {"name": "keys", "key": "api-keys"}}
    given = {"HOME": "/home", "HF_HOME": "/cache/shared", "HF_TOKEN": {"fieldRef": {"fieldPath": "a"}}}
    assert router == {**given, "KVARN_API_KEYS": keys, "KVARN_CACHE": "/cache"}
    assert found["operator"] == [{"name": "HOME", "value": "/home"}]


@pytest.mark.parametrize("setting", ["models.smollm2=null", "models=null"])
def test_an_operator_alone_can_be_installed(helm: Helm, setting: str) -> None:
    """For teams that apply ModelServices by themselves."""
    bodies = helm.template("--set", setting)
    assert of_kind(bodies, "Deployment").keys() == {"kvarn-operator"}
    assert [name_of(body) for body in bodies if "smollm2" in name_of(body)] == []
