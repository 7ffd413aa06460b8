"""The CRDs and the parsers know the same fields with the same defaults, and the CRDs are as API servers want them."""

import copy
import re
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.labels import GROUP, VERSION
from kvarn_operator.resources.parsing import parse_model_service, parse_worker_pool
from kvarn_operator.resources.pool_parsing import parse_pool
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.scaling.spec import Role

from tests.support.crds import (
    FOLDER,
    MODEL_SERVICE,
    WORKER_POOL,
    Node,
    broken_rules,
    crd,
    defaulted,
    nodes,
    refusals,
    schema,
    version,
)
from tests.unit.operator.resources.recording import leaves, recording, required, sample
from tests.unit.operator.resources.resource_builders import merged, nested, pool_json, service_json

BOTH = [MODEL_SERVICE, WORKER_POOL]


def parse_whole_pool(resource: Mapping[str, Any]) -> tuple[Pool, Role, str]:
    """As the parts of a ModelService are read, since a pool repeats them."""
    pool = parse_worker_pool(resource)
    return parse_pool(Fields("spec", resource["spec"])), pool.role, pool.model_service


PARSERS = {MODEL_SERVICE: parse_model_service, WORKER_POOL: parse_whole_pool}
BASES = {MODEL_SERVICE: service_json({}), WORKER_POOL: pool_json()}

CLAIMED_BY_THE_OPERATOR_ITSELF = {"spec.role", "spec.modelService"}
"""Required, so that they have a value in every sample."""

SAYS_THE_DEFAULT = {"spec.model.source.embedded"}

HUB = {"model": {"source": {"hub": {"id": "a/b"}}}}
GPU = {"decode": {"template": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}}
BESIDE = {"spec.model.revision": HUB, "spec.model.secretRef": HUB, "spec.budget": GPU}


def spec_schema(plural: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema(plural)["properties"]["spec"]
    return found


def resource_with(plural: str, node: Node) -> dict[str, Any]:
    """That field, what must be beside it, and nothing else."""
    changes = with_required(schema(plural), nested(node.path, sample(node)))
    return merged(base_of(plural, node), changes)


def base_of(plural: str, node: Node) -> dict[str, Any]:
    """With what the field needs elsewhere to be allowed at all."""
    needed = next((beside for path, beside in BESIDE.items() if node.path.startswith(path)), {})
    return merged(BASES[plural], {"spec": needed})


def with_required(at: Mapping[str, Any], value: Any, path: str = "") -> Any:
    if isinstance(value, list):
        return [with_required(at["items"], item, f"{path}[]") for item in value]
    if not isinstance(value, Mapping) or "properties" not in at:
        return value
    children = {name: with_required(at["properties"][name], child, name) for name, child in value.items()}
    needed = [*required(at), *(["volumes"] if "volumeMounts" in value else [])]
    missing = {name: sample(Node(name, at["properties"][name])) for name in needed if name not in children}
    return {**missing, **children}


ALL_LEAVES = [
    pytest.param(plural, node, id=f"{plural}: {node.path}")
    for plural in BOTH
    for node in leaves({"properties": {"spec": spec_schema(plural)}})
    if node.path not in CLAIMED_BY_THE_OPERATOR_ITSELF
]


@pytest.mark.parametrize(("plural", "node"), ALL_LEAVES)
def test_no_field_is_ignored(plural: str, node: Node) -> None:
    """The API server takes the field, and the operator sees another resource than without it."""
    resource = resource_with(plural, node)
    assert refusals(plural, resource) == []
    same = spec_of(plural, resource) == spec_of(plural, base_of(plural, node))
    assert same == (node.path in SAYS_THE_DEFAULT)


def spec_of(plural: str, resource: Mapping[str, Any]) -> Any:
    parsed = PARSERS[plural](resource)
    return parsed.spec if plural == MODEL_SERVICE else parsed  # type: ignore[attr-defined]


@pytest.mark.parametrize("plural", BOTH)
def test_no_field_is_read_that_the_api_server_would_drop(plural: str) -> None:
    """What passes through has no named fields, so its own are not looked at here."""
    asked: set[str] = set()
    for parameter in ALL_LEAVES:
        found, node = parameter.values
        if found == plural:
            resource = resource_with(plural, node)
            PARSERS[plural](recording(resource, asked))
    declared = {node.path.replace("{}", "") for node in nodes(schema(plural))}
    read = {path for path in asked if path.startswith("spec.") and not passes_through(path)}
    assert len(read) > 40
    assert sorted(read - declared) == []


def passes_through(path: str) -> bool:
    """Below one of these come Kubernetes' own fields, or keys of the user's."""
    return (
        re.search(r"\.(podTemplate\.spec|affinity|nodeSelector|limits|requests|args|labels|annotations)\..", path)
        is not None
    )


@pytest.mark.parametrize("plural", BOTH)
def test_both_have_the_same_defaults(plural: str) -> None:
    bare = copy.deepcopy(BASES[plural])
    filled = defaulted(schema(plural), bare)
    assert filled["spec"] != bare["spec"]
    assert spec_of(plural, filled) == spec_of(plural, bare)


def test_a_pool_is_the_same_in_both() -> None:
    service = spec_schema(MODEL_SERVICE)["properties"]
    pool = {
        name: child for name, child in spec_schema(WORKER_POOL)["properties"].items()
        if name not in ("role", "modelService")
    }  # fmt: skip
    assert service["prefill"]["properties"] == pool
    assert service["decode"] == service["prefill"]


@pytest.mark.parametrize("plural", BOTH)
def test_every_field_is_described(plural: str) -> None:
    undescribed = [
        node.path for node in nodes(schema(plural))
        if not node.path.endswith(("[]", "{}")) and node.path != "metadata" and not node.schema.get("description")
    ]  # fmt: skip
    assert undescribed == []


@pytest.mark.parametrize("plural", BOTH)
def test_the_schema_is_structural(plural: str) -> None:
    """What an API server asks of a schema before it takes it, as far as it can be got wrong by hand."""
    for node in nodes(schema(plural)):
        typed = "type" in node.schema or node.schema.get("x-kubernetes-int-or-string") is True
        assert typed, f"{node.path} has no type"
        assert not ("properties" in node.schema and "additionalProperties" in node.schema), node.path
        assert node.schema.get("default") != "", f"{node.path}: API server 1.20 takes an empty default for null"
        for key in node.schema.get("x-kubernetes-list-map-keys") or ():
            assert key in required(node.schema["items"]), f"{node.path}: a key of a list must be required"


@pytest.mark.parametrize("plural", BOTH)
def test_rules_have_a_bounded_cost(plural: str) -> None:
    """API servers estimate what a rule may cost at worst, and refuse the CRD when a map that it walks has no bound."""
    walks = [node for node in nodes(schema(plural)) if any(".all(" in rule["rule"] for rule in rules(node))]
    assert len(walks) >= 3
    assert [node.path for node in walks if "maxProperties" not in node.schema] == []


def rules(node: Node) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = node.schema.get("x-kubernetes-validations") or []
    return found


@pytest.mark.parametrize("plural", BOTH)
def test_defaults_stand_for_themselves(plural: str) -> None:
    """API servers hold each default against schema and rules without filling in the defaults inside it."""
    defaults = [node for node in nodes(schema(plural)) if "default" in node.schema]
    assert len(defaults) > 20
    for node in defaults:
        default = node.schema["default"]
        jsonschema.Draft4Validator(node.schema).validate(default)
        assert list(broken_rules(node.schema, default, default)) == [], node.path


@pytest.mark.parametrize("plural", BOTH)
def test_messages_of_rules_are_one_line(plural: str) -> None:
    for node in nodes(schema(plural)):
        assert all(rule["message"].strip() and "\n" not in rule["message"] for rule in rules(node)), node.path


@pytest.mark.parametrize("plural", BOTH)
def test_names_and_version(plural: str) -> None:
    spec = crd(plural)["spec"]
    assert crd(plural)["metadata"]["name"] == f"{plural}.{GROUP}"
    assert (spec["group"], spec["scope"], spec["names"]["plural"]) == (GROUP, "Namespaced", plural)
    assert [(each["name"], each["served"], each["storage"]) for each in spec["versions"]] == [(VERSION, True, True)]
    assert spec["names"]["shortNames"] == [{"modelservices": "ms", "workerpools": "wp"}[plural]]
    assert spec["names"]["categories"] == ["kvarn"]


@pytest.mark.parametrize("plural", BOTH)
def test_printer_columns_show_what_there_is(plural: str) -> None:
    declared = {node.path for node in nodes(schema(plural))}
    for column in version(plural)["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", "[]", column["jsonPath"]).removeprefix(".")
        assert path in declared or path == "metadata.creationTimestamp", column


def test_scale_points_at_what_there_is() -> None:
    assert version(WORKER_POOL)["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert spec_schema(WORKER_POOL)["properties"]["replicas"]["default"] == 1
    assert schema(WORKER_POOL)["properties"]["status"]["properties"]["selector"]["type"] == "string"


def test_files_stay_small() -> None:
    """kubectl keeps a copy of what it applied in an annotation of at most 256 KiB."""
    assert {path.name for path in FOLDER.iterdir()} == {f"{plural}.{GROUP}.yaml" for plural in BOTH}
    for path in FOLDER.iterdir():
        assert path.stat().st_size < 64 * 1024
