"""docs/chart.md lists every value with its default, and nothing else; the notes of an installation can be followed."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kvarn_operator.resources.names import pool_name
from kvarn_operator.scaling.spec import Role

from tests.chart.rendering import CHART, Helm, of_kind, rendered

DOCUMENT = (CHART.parents[2] / "docs" / "chart.md").read_text(encoding="utf-8")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ROW = re.compile(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| (.+) \|$", re.MULTILINE)
WHOLE = frozenset({"operator.resources", "router.resources", "monitoring.dashboards.labels"})
"""Maps that are described as one value."""


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node and path not in WHOLE:
        for key, each in node.items():
            yield from leaves(each, f"{path}.{key}".lstrip("."))
    else:
        yield path, node


def documented() -> dict[str, Any]:
    """Path -> default, of every row about a value that has one name."""
    return {path: yaml.safe_load(default or "''") for path, default, _ in ROW.findall(DOCUMENT)}


def test_every_value_is_described_with_its_default() -> None:
    defaults = {path: value for path, value in leaves(VALUES, "") if not path.startswith("models.")}
    found = {path: value for path, value in documented().items() if not path.startswith("models.")}
    assert found == defaults


def test_every_part_of_a_model_is_described() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    parts = schema["properties"]["models"]["additionalProperties"]["properties"]
    assert {path for path in documented() if path.startswith("models.")} == {f"models.NAME.{part}" for part in parts}


@pytest.fixture(scope="module")
def chart_with_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that renders its notes as an object: helm itself shows them only when it installs into a cluster."""
    chart = tmp_path_factory.mktemp("notes") / "kvarn"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    whole = f'{{{{- define "notes" -}}}}{text}{{{{- end -}}}}text: {{{{ include "notes" . | toJson }}}}\n'
    (chart / "templates" / "notes.yaml").write_text(whole, encoding="utf-8")
    return chart


@pytest.fixture
def notes(helm: Helm, chart_with_notes: Path) -> Callable[..., str]:
    def render(*settings: str) -> str:
        flags = [f"--set={setting}" for setting in settings]
        where = ("--namespace", "serving", "--show-only", "templates/notes.yaml")
        return str(yaml.safe_load(helm.run("template", "kvarn", str(chart_with_notes), *where, *flags))["text"])

    return render


def test_notes_name_what_exists(helm: Helm, notes: Callable[..., str]) -> None:
    text = notes("router.service.port=8000")
    services = of_kind(rendered(helm, "default"), "Service")
    assert set(re.findall(r"\bservice/([\w-]+)", text)) == set(services)
    assert "port-forward service/smollm2-router 8000:8000 &" in text
    assert f"scale workerpool/{pool_name('smollm2', Role.DECODE)} --replicas=3" in text
    body = json.loads(re.findall(r"-d '(.*)'", text)[0])
    assert body["model"] == "smollm2"


def test_notes_show_where_the_key_comes_from(notes: Callable[..., str]) -> None:
    text = notes("router.apiKeys.existingSecret=keys")
    assert "get secret keys -o jsonpath='{.data.api-keys}'" in text
    assert "Authorization: Bearer" not in notes()


def test_notes_say_when_monitors_are_left_out(notes: Callable[..., str]) -> None:
    assert "no monitoring.coreos.com/v1" in notes("monitoring.podMonitor.enabled=true")
    assert "no monitoring.coreos.com/v1" not in notes()


@pytest.mark.parametrize("setting", ["models.smollm2=null", "tests.enabled=false"])
def test_notes_name_no_test_where_there_is_none(notes: Callable[..., str], setting: str) -> None:
    assert "helm test kvarn --namespace serving" in notes()
    assert "helm test" not in notes(setting)
