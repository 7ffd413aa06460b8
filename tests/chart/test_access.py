"""docs/examples/tenant-access.yaml: with it, the admin of one namespace may install all of the chart that he needs."""

from typing import Any

import yaml

from tests.chart.rendering import CHART, Body, Helm, of_kind, rendered

FILE = CHART.parents[2] / "docs" / "examples" / "tenant-access.yaml"
EVERY_ADMIN_HOLDS = frozenset({("", "pods"), ("policy", "poddisruptionbudgets")})
"""Of what the chart's Roles grant, by Kubernetes' own role `admin`: all verbs."""

CLUSTER_KINDS = frozenset({"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"})


def rights(role: Body) -> set[tuple[str, str, str]]:
    """Group, resource and verb."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def given() -> dict[str, Any]:
    return {role["metadata"]["name"]: role for role in yaml.safe_load_all(FILE.read_text(encoding="utf-8"))}


def test_who_installs_into_one_namespace_holds_what_the_chart_grants(helm: Helm) -> None:
    """The API server lets nobody grant what he does not hold."""
    settings = "crds.upgrade=false,operator.clusterWide=false"
    bodies = helm.template("--set", settings)
    assert [body["kind"] for body in bodies if body["kind"] in CLUSTER_KINDS] == []
    roles = of_kind(bodies, "Role")
    assert roles.keys() == {"kvarn-operator", "kvarn-operator-lease", "smollm2-router"}
    granted = set().union(*(rights(role) for role in roles.values()))
    rest = {right for right in granted if right[:2] not in EVERY_ADMIN_HOLDS}
    assert rest - rights(given()["kvarn-edit"]) == set()


def test_objects_of_the_chart_may_be_made_and_removed(helm: Helm) -> None:
    """Those of kinds that Kubernetes' own roles do not cover."""
    ours = {
        (body["apiVersion"].partition("/")[0], f"{body['kind'].lower()}s")
        for body in rendered(helm, "default")
        if body["apiVersion"].startswith(("kvarn.dev/", "coordination.k8s.io/"))
    }
    assert ours == {("kvarn.dev", "modelservices"), ("coordination.k8s.io", "leases")}
    wanted = {(*resource, verb) for resource in ours for verb in ("get", "create", "patch", "delete")}
    assert wanted <= rights(given()["kvarn-edit"])


def test_roles_join_those_of_kubernetes() -> None:
    joined = {name: set(role["metadata"]["labels"]) for name, role in given().items()}
    assert joined == {
        "kvarn-edit": {"rbac.authorization.k8s.io/aggregate-to-edit"},
        "kvarn-view": {"rbac.authorization.k8s.io/aggregate-to-view"},
    }
    assert {verb for _, _, verb in rights(given()["kvarn-view"])} == {"get", "list", "watch"}
