"""The CRDs as files: nothing that an API server with strict checks would refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART

CRDS = sorted((CHART / "crds").glob("*.yaml"))
_WORDS = """
additionalProperties allOf anyOf default description enum exclusiveMaximum exclusiveMinimum format items maxItems
maxLength maxProperties maximum minItems minLength minProperties minimum multipleOf not nullable oneOf pattern
properties required title type uniqueItems x-kubernetes-embedded-resource x-kubernetes-int-or-string
x-kubernetes-list-map-keys x-kubernetes-list-type x-kubernetes-map-type x-kubernetes-preserve-unknown-fields
x-kubernetes-validations
"""
KEYWORDS = frozenset(_WORDS.split())
"""Of apiextensions.k8s.io/v1 JSONSchemaProps, as far as structural schemas may use them."""


def schemas(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema."""
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from schemas(each, f"{path}.{name}")
    for key in ("items", "additionalProperties", "not"):
        if isinstance(node.get(key), dict):
            yield from schemas(node[key], f"{path}.{key}")
    for key in ("allOf", "anyOf", "oneOf"):
        for each in node.get(key, ()):
            yield from schemas(each, f"{path}.{key}")


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_only_keywords_that_kubernetes_knows(path: Path) -> None:
    """A comma in an unquoted `{description: Why, how}` makes a second key, which the server drops or refuses."""
    (version,) = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]
    found = list(schemas(version["schema"]["openAPIV3Schema"], ""))
    assert len(found) > 50
    assert [(where, sorted(node.keys() - KEYWORDS)) for where, node in found if node.keys() - KEYWORDS] == []


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_file_is_named_after_its_definition(path: Path) -> None:
    """The hook's rights are for these names."""
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"]["name"] == path.stem
