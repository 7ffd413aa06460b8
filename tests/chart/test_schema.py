"""values.schema.json: a typo fails and is named, at every level; the CRD and the code agree with it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.helm import values_schema
from tests.chart.rendering import CHART, HERE, Helm, HelmError, of_kind

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

OPEN = {
    "properties.global": "a parent chart's globals reach every chart below it",
    "definitions.affinity.properties.nodeAffinity": "a Kubernetes type, checked by the API server",
    "definitions.affinity.properties.podAffinity": "a Kubernetes type, checked by the API server",
    "definitions.affinity.properties.podAntiAffinity": "a Kubernetes type, checked by the API server",
}
"""Objects outside of the CRD's own that take any key -> why."""


def test_schema_is_current() -> None:
    assert values_schema.text() == (CHART / "values.schema.json").read_text(encoding="utf-8")


def test_values_come_from_the_schema() -> None:
    """Each default is declared, so that the checks below cover all of them."""
    assert set(VALUES) | {"enabled"} == set(SCHEMA["properties"])


def test_every_object_of_the_schema_is_closed() -> None:
    found = {path for path, node in objects(SCHEMA, "") if node.get("additionalProperties", True) is True}
    assert {path for path in found if not path.startswith("definitions.modelServiceSpec")} == set(OPEN)


def test_fields_of_the_crd_that_kubernetes_keeps_are_the_only_open_ones() -> None:
    crd = yaml.safe_load(values_schema.CRD.read_text(encoding="utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    kept = {path for path, node in objects(spec, "") if node.get("x-kubernetes-preserve-unknown-fields")}
    opened = {path for path, node in objects(SCHEMA["definitions"]["modelServiceSpec"], "") if is_open(node)}
    assert opened == kept


def is_open(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties", True) is True


def objects(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from objects(each, f"{path}.{number}")
    if not isinstance(node, dict):
        return
    if node.get("type") == "object":
        yield path, node
    for key, each in node.items():
        yield from objects(each, f"{path}.{key}".lstrip("."))


def default_objects(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of every map in values.yaml that has keys."""
    if isinstance(node, dict) and node:
        yield path
        for key, each in node.items():
            yield from default_objects(each, (*path, key))


ANY_NAME = {(), ("global",), ("models",), ("monitoring", "dashboards", "labels")}
"""Maps whose keys are the user's own; the root is tried with a typo of its own."""


@pytest.mark.parametrize("path", [path for path in default_objects(VALUES, ()) if path not in ANY_NAME], ids=".".join)
def test_a_typo_fails_with_its_path(path: tuple[str, ...]) -> None:
    found = errors({"tpyo": "1"}, path)
    if path[-1] in ("requests", "limits"):
        assert found == [], "any resource of a cluster may stand here"
    else:
        assert [where for where, message in found if "tpyo" in message] == [".".join(path)]


def test_globals_of_other_charts_pass(helm: Helm) -> None:
    """As part of a larger release."""
    assert errors({"storageClass": "fast"}, ("global",)) == []
    assert helm.template("--set", "global.storageClass=fast,global.imageRegistry=mirror.example.com")
    assert [where for where, _ in errors({"imageRegistry": 1}, ("global",))] == ["global.imageRegistry"]


def test_a_typo_at_the_top_fails() -> None:
    assert len(errors({"tpyo": 1}, ())) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("router.replicas", "many"),
        ("images.router.digest", "sha256:12"),
        ("images.pullPolicy", "Sometimes"),
        ("operator.logLevel", "loud"),
        ("networkPolicy.dns.ports", []),
        ("models.smollm2.spec.engine.dtype", "int3"),
        ("models.smollm2.spec.prefill.replicas", -1),
        ("models", {"Upper": {}}),
        ("models", {"m" * 56: {}}),
        ("router.args", {"api-keys": "secret"}),
        ("router.env", {"a-b": "c"}),
        ("monitoring.interval", 15),
        ("tls.certManager.issuerRef", {"kind": "ClusterIssuer"}),
    ],
)
def test_a_wrong_value_fails_with_its_path(path: str, value: object) -> None:
    *parents, last = path.split(".")
    assert [where for where, _ in errors({last: value}, tuple(parents))] == [path]


def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every default with its path; an empty map is one."""
    for key, each in node.items():
        if isinstance(each, dict) and each:
            yield from leaves(each, (*path, key))
        else:
            yield (*path, key), each


def is_empty(value: object) -> bool:
    return value in (None, "", {}, [])


def test_a_key_without_a_value_is_an_empty_one(helm: Helm, tmp_path: Path) -> None:
    """As where somebody wrote `commonLabels:` and took out what stood below."""
    file = tmp_path / "values.yaml"
    paths = [path for path, value in leaves(VALUES) if is_empty(value) and path[0] != "models"]
    for top in sorted({path[0] for path in paths}):
        these = [path for path in paths if path[0] == top]
        merged: dict[str, Any] = {}
        for path in these:
            place = merged
            for key in path[:-1]:
                place = place.setdefault(key, {})
            place[path[-1]] = None
        file.write_text(yaml.safe_dump(merged), encoding="utf-8")
        assert helm.template("--values", str(file)) == helm.template(), top


@pytest.mark.parametrize("path", ["router.replicas", "router.ingress", "networkPolicy.dns.ports", "security"])
def test_null_takes_no_default_away_that_nothing_stands_in_for(helm: Helm, path: str) -> None:
    """An empty list of ports would be every port."""
    with pytest.raises(HelmError, match=f"{path.split('.')[-1]} is required|missing property '{path.split('.')[-1]}'"):
        helm.template("--set", f"{path}=null")


def test_null_takes_away_what_is_the_users(helm: Helm) -> None:
    """A limit of CPU, and the default model."""
    deployments = of_kind(helm.template("--set", "operator.resources.limits.cpu=null"), "Deployment")
    container = deployments["kvarn-operator"]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert not of_kind(helm.template("--set", "models.smollm2=null"), "ModelService")


def errors(values: dict[str, object], path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Path and message of what is wrong with the defaults once `values` stand at `path`."""
    whole = json.loads(json.dumps(VALUES))
    place = whole
    for key in path:
        place = place.setdefault(key, {})
    place.update(values)
    found = jsonschema.Draft7Validator(SCHEMA).iter_errors(whole)
    return [(".".join(str(key) for key in error.absolute_path), error.message) for error in found]


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("router.replcas=2", "router"),
        ("models.smollm2.spec.prefill.template.imagee=a", "models.smollm2.spec.prefill.template"),
        ("models.smollm2.router.args.max-inflght=1", "models.smollm2.router.args"),
    ],
)
def test_helm_checks_values_with_the_schema(helm: Helm, setting: str, field: str) -> None:
    key = setting.partition("=")[0].rpartition(".")[2]
    with pytest.raises(HelmError) as error:
        helm.template("--set", setting)
    # helm 3 writes paths as a.b, helm 4 as '/a/b'.
    assert re.search(rf"{field}'?: .*{key}", str(error.value).replace("/", "."))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("tls.enabled=true", "tls.enabled needs"),
        ("tls.enabled=true,tls.existingSecret=a,tls.certManager.enabled=true", "exclude each other"),
        ("operator.leaderElection.enabled=false", "needs operator.leaderElection.enabled"),
        ("operator.clusterWide=true,operator.namespaces={a}", "exclude each other"),
        ("router.httpRoute.enabled=true", "needs httpRoute.parentRefs"),
        ("router.ingress.enabled=true,models.b.create=true", r"models b and smollm2 .*ingress, every host/v1"),
        ("router.ingress.enabled=true,router.ingress.hosts={a.b},models.b.create=true", "ingress, a.b/v1"),
        (
            "router.httpRoute.enabled=true,router.httpRoute.parentRefs[0].name=g,models.b.create=true",
            "b and smollm2 are behind one address",
        ),
    ],
)
def test_values_that_contradict_each_other_fail(helm: Helm, settings: str, message: str) -> None:
    with pytest.raises(HelmError, match=message):
        helm.template("--set", settings)


def test_each_model_may_have_a_host_of_its_own(helm: Helm) -> None:
    hosts = "models.b.router.ingress.hosts={b.example},models.smollm2.router.ingress.hosts={a.example}"
    off = "models.c.router.ingress.enabled=false"
    bodies = helm.template("--set", f"router.ingress.enabled=true,{hosts},{off}")
    found = {name: body["spec"]["rules"][0]["host"] for name, body in of_kind(bodies, "Ingress").items()}
    assert found == {"b-router": "b.example", "smollm2-router": "a.example"}


@pytest.mark.parametrize(
    ("settings", "api"),
    [
        ("tls.enabled=true,tls.certManager.enabled=true", "cert-manager.io/v1"),
        ("router.httpRoute.enabled=true,router.httpRoute.parentRefs[0].name=a", "gateway.networking.k8s.io/v1"),
    ],
)
def test_what_the_cluster_cannot_do_fails_instead_of_being_left_out(helm: Helm, settings: str, api: str) -> None:
    with pytest.raises(HelmError, match=f"needs {api} in the cluster"):
        helm.template("--set", settings, apis=())


def test_the_value_sets_are_strict_too() -> None:
    """A set that set nothing would test nothing."""
    sets = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in Path(HERE / "values").glob("*")}
    assert [name for name, content in sets.items() if not content] == ["default"]
