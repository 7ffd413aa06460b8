"""What the chart renders, word for word. `UPDATE_GOLDEN=1 pytest tests/chart` writes it anew; read the diff then.

For each value set, golden/SET.yaml holds the objects on Kubernetes 1.34, and golden/SET-VERSION.txt what another
version has instead; without one, all is the same. What every object has, or copies a file, is shortened.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import CHART, HERE, VERSIONS, Body, Helm, name_of, rendered

GOLDEN = HERE / "golden"
MAIN = "1.34.0"
COMMON_LABELS = frozenset(
    [
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/version",
        "app.kubernetes.io/managed-by",
        "helm.sh/chart",
    ]
)
COPIES = {
    path.read_text(encoding="utf-8").strip(): path.name for path in (*CHART.glob("crds/*"), *CHART.glob("dash*/*"))
}


def short(node: Any, key: str = "") -> Any:
    """Without the common labels of metadata (selectors keep theirs), and with names instead of copied files."""
    if isinstance(node, dict):
        kept = {name: each for name, each in node.items() if key != "labels" or name not in COMMON_LABELS}
        return {name: short(each, name) for name, each in kept.items()}
    if isinstance(node, list):
        return [short(each) for each in node]
    return f"<{COPIES[node.strip()]}>" if isinstance(node, str) and node.strip() in COPIES else node


def text_of(bodies: Iterable[Body]) -> str:
    def order(body: Body) -> tuple[str, str, str]:
        metadata = body["metadata"]
        return body["kind"], metadata.get("namespace", ""), metadata["name"]

    documents = [short(body) for body in sorted(bodies, key=order)]
    return yaml.dump_all(documents, width=120, default_flow_style=None, sort_keys=True)


def leaves(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict | list) and node:
        for key, each in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(each, f"{path}.{key}")
    else:
        yield path, str(node)


def difference(main: Iterable[Body], other: Iterable[Body]) -> str:
    before, after = (
        {key: leaf for body in bodies for key, leaf in leaves(short(body), name_of(body))} for bodies in (main, other)
    )
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return "".join(f"{key}: {before.get(key, 'nothing')} -> {after.get(key, 'nothing')}\n" for key in changed)


def compare(path: Path, content: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(content, encoding="utf-8")
        if not content:
            path.unlink()
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    assert content == known, f"{path.name} is not what the chart renders; see the top of this file"


def test_render_is_as_recorded(helm: Helm, values: str) -> None:
    compare(GOLDEN / f"{values}.yaml", text_of(rendered(helm, values)))


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != MAIN])
def test_other_versions_differ_as_recorded(helm: Helm, values: str, version: str) -> None:
    minor = ".".join(version.split(".")[:2])
    found = difference(rendered(helm, values), rendered(helm, values, version))
    compare(GOLDEN / f"{values}-{minor}.txt", found)


def test_no_record_is_left_over(helm: Helm) -> None:
    sets = {path.stem for path in (HERE / "values").glob("*.yaml")}
    assert {path.name.partition("-")[0].removesuffix(".yaml") for path in GOLDEN.iterdir()} == sets
