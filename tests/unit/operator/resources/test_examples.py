"""The examples of the documentation are right, and the full one leaves nothing out."""

from typing import Any

import pytest
import yaml
from kvarn_operator.resources.model_service import ModelServiceSpec
from kvarn_operator.resources.parsing import parse_model_service

from tests.style.source_tree import ROOT
from tests.support.crds import MODEL_SERVICE, nodes, refusals, schema

EXAMPLES = ROOT / "docs" / "examples"


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    found["metadata"]["namespace"] = "models"
    return found


@pytest.mark.parametrize("name", ["modelservice-minimal.yaml", "modelservice-full.yaml"])
def test_an_example_is_taken_by_both(name: str) -> None:
    assert refusals(MODEL_SERVICE, example(name)) == []
    assert parse_model_service(example(name)).name in ("smollm2", "llama")


def test_the_minimal_one_is_all_defaults() -> None:
    assert parse_model_service(example("modelservice-minimal.yaml")).spec == ModelServiceSpec()


def test_the_full_one_names_every_field() -> None:
    """In a comment where only one of several may be given."""
    text = (EXAMPLES / "modelservice-full.yaml").read_text(encoding="utf-8")
    fields = {
        node.path.rpartition(".")[2] for node in nodes(schema(MODEL_SERVICE)["properties"]["spec"])
        if "podTemplate" not in node.path and not node.path.endswith(("[]", "{}"))
    }  # fmt: skip
    assert len(fields) > 60
    assert sorted(field for field in fields if field not in text) == []
