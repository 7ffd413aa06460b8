"""Kvarn's CRDs, applied as an API server does: defaults, schema, rules. For tests without a cluster."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import celpy
import jsonschema
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "helm" / "kvarn" / "crds"
MODEL_SERVICE, WORKER_POOL = "modelservices", "workerpools"

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Node:
    """One place in a schema: `spec.prefill.replicas`; a list's items are `[]`."""

    path: str
    schema: Schema


@cache
def crd(plural: str) -> Schema:
    found: Schema = yaml.safe_load((FOLDER / f"{plural}.kvarn.dev.yaml").read_text(encoding="utf-8"))
    return found


def version(plural: str) -> Schema:
    found: Schema = crd(plural)["spec"]["versions"][0]
    return found


def schema(plural: str) -> Schema:
    found: Schema = version(plural)["schema"]["openAPIV3Schema"]
    return found


def nodes(root: Schema, path: str = "") -> Iterator[Node]:
    """Every place that is not the root."""
    for name, child in (root.get("properties") or {}).items():
        node = Node(f"{path}.{name}" if path else name, child)
        yield node
        yield from nodes(child, node.path)
    for name, child in (("[]", root.get("items")), ("{}", root.get("additionalProperties"))):
        if isinstance(child, Mapping):
            yield Node(path + name, child)
            yield from nodes(child, path + name)


def defaulted(root: Schema, value: Any) -> Any:
    """With the defaults that the API server would fill in."""
    if isinstance(value, Mapping):
        filled = {key: child for key, child in value.items() if child is not None}
        for name, child in (root.get("properties") or {}).items():
            if name not in filled and "default" in child:
                filled[name] = copy.deepcopy(child["default"])
            if name in filled:
                filled[name] = defaulted(child, filled[name])
        return filled
    if isinstance(value, list) and "items" in root:
        return [defaulted(root["items"], item) for item in value]
    return value


def refusals(plural: str, resource: Schema, before: Schema | None = None) -> list[str]:
    """Why an API server with CEL refuses the resource; empty when it takes it. `before`: it is an update of that."""
    root = schema(plural)
    filled = defaulted(root, resource)
    found = [error.message for error in jsonschema.Draft4Validator(root).iter_errors(filled)]
    return found or list(broken_rules(root, filled, None if before is None else defaulted(root, before)))


def broken_rules(root: Schema, value: Any, before: Any) -> Iterator[str]:
    for rule in root.get("x-kubernetes-validations") or ():
        if ("oldSelf" not in rule["rule"] or before is not None) and not holds(rule["rule"], value, before):
            yield rule["message"]
    if isinstance(value, Mapping):
        for name, child in (root.get("properties") or {}).items():
            if name in value:
                yield from broken_rules(child, value[name], (before or {}).get(name))


def holds(rule: str, value: Any, before: Any = None) -> bool:
    names = {"self": celpy.json_to_cel(value), "oldSelf": celpy.json_to_cel(before)}
    return bool(_program(rule).evaluate(names))


@cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))
