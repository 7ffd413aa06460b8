"""Regenerate the chart's values.schema.json: `make schema`; with `--check`, as in `make lint`, only say if it is stale.

Made from values.schema.yaml beside this file, the ModelService CRD (for `models.NAME.spec`), the settings of router and
operator (for `args`) and the chart's defaults (for what null may not take away), so that a fault in any of them fails
before anything reaches the cluster.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from kvarn_engine.process.settings_fields import Leaf, leaves
from kvarn_operator.settings import OperatorSettings
from kvarn_router.settings import RouterSettings

HERE = Path(__file__).parent
CHART = HERE / "kvarn"
TARGET = CHART / "values.schema.json"
DEFAULTS = CHART / "values.yaml"
CRD = CHART / "crds" / "modelservices.kvarn.dev.yaml"

ROUTER_OWNED = frozenset(
    [
        "host",
        "port",
        "model",
        "model_revision",
        "served_model_name",
        "workers",
        "workers_file",
        "workers_file_poll_s",
        "workers_selector",
        "workers_namespace",
        "workers_port_name",
        "api_keys",
        "shutdown_delay_s",
        "shutdown_timeout_s",
        "log_level",
        "log_json",
        "tls_cert_file",
        "tls_key_file",
        "tls_ca_file",
        "tls_server_name",
        "metrics_port",
    ]
)
"""Settings that the chart gives itself, or that belong into other values: the API keys never into arguments."""

OPERATOR_OWNED = frozenset(
    [
        "namespaces",
        "cluster_wide",
        "worker_image",
        "image_pull_policy",
        "image_pull_secrets",
        "tls_secret",
        "worker_service_account",
        "priority_class_name",
        "leader_elect",
        "lease_name",
        "lease_namespace",
        "host",
        "health_port",
        "metrics_port",
        "resync_s",
        "sample_s",
        "log_level",
        "log_json",
    ]
)

UNUSED = frozenset({"default", "description", "format"})
"""Of the CRD: what does not decide whether a value is right."""

REMOVABLE = frozenset({"models", "resources", "labels"})
"""Maps of the user's own keys, which mean something without the defaults too."""

Schema = dict[str, Any]
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", tuple: "string"}


def build() -> Schema:
    schema: Schema = yaml.safe_load((HERE / "values.schema.yaml").read_text(encoding="utf-8"))
    schema["definitions"] |= {
        "modelServiceSpec": model_service_spec(),
        "operatorArgs": _arguments(leaves(OperatorSettings), OPERATOR_OWNED),
        "routerArgs": _arguments(leaves(RouterSettings), ROUTER_OWNED),
    }
    closed: Schema = _closed(schema)
    return closed | {"allOf": [_needed(yaml.safe_load(DEFAULTS.read_text(encoding="utf-8")))]}


def model_service_spec() -> Schema:
    """`spec` of the newest version of the CRD, in the words of JSON Schema."""
    definition = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    schema: Schema = _translated(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return schema


def _translated(node: Any) -> Any:
    if isinstance(node, list):
        return [_translated(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in UNUSED and not key.startswith("x-kubernetes-")}
    if kept.get("exclusiveMinimum") is True:
        kept["exclusiveMinimum"] = kept.pop("minimum")
    if "properties" in kept:
        # Not translated as a whole: a property may be called `description` or `format`.
        kept["properties"] = {name: _translated(each) for name, each in node["properties"].items()}
    if "properties" in kept and node.get("x-kubernetes-preserve-unknown-fields"):
        kept["additionalProperties"] = True
    if kept.get("type") == "object" and not kept.keys() & {"properties", "additionalProperties"}:
        kept |= {} if node.get("x-kubernetes-preserve-unknown-fields") else {"properties": {}}
    return {key: value if key == "properties" else _translated(value) for key, value in kept.items()}


def _closed(node: Any) -> Any:
    """Every object that lists its properties takes no others, unless it says so."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    inner = {key: _closed(value) for key, value in node.items()}
    if inner.get("type") == "object" and "properties" in inner:
        inner.setdefault("additionalProperties", False)
    return inner


def _needed(defaults: dict[str, Any]) -> Schema:
    """helm takes away what is null before it looks here. A default that is not empty has nothing to stand in for it."""
    filled = {key: value for key, value in defaults.items() if key not in REMOVABLE and value not in (None, "", {}, [])}
    inner = {key: _needed(value) for key, value in filled.items() if isinstance(value, dict)}
    inner = {key: value for key, value in inner.items() if value}
    return ({"required": list(filled)} if filled else {}) | ({"properties": inner} if inner else {})


def _arguments(known: Iterable[Leaf], owned: frozenset[str]) -> Schema:
    known = list(known)
    assert owned <= {leaf.name for leaf in known}, f"no longer settings: {owned - {leaf.name for leaf in known}}"
    free = sorted((leaf for leaf in known if leaf.name not in owned), key=lambda leaf: leaf.name)
    properties = {leaf.flag[2:]: {"type": _TYPES[leaf.base]} for leaf in free}
    return {"type": "object", "properties": properties}


def text() -> str:
    return json.dumps(build(), indent=1) + "\n"


def main() -> int:
    fresh = text()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(fresh, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == fresh:
        return 0
    print("stale: deploy/helm/kvarn/values.schema.json; run `make schema`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
