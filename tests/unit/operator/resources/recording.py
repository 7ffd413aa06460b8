"""A resource that remembers which of its fields were asked for, and one sample of each field of a schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.crds import Node, Schema

Json = Any


class Recording(Mapping[str, Json]):
    """A mapping; `asked` collects paths as in `tests.support.crds.Node`."""

    def __init__(self, values: Mapping[str, Json], asked: set[str], path: str = "") -> None:
        self._values, self._asked, self._path = values, asked, path

    def __getitem__(self, key: str) -> Json:
        path = f"{self._path}.{key}" if self._path else key
        self._asked.add(path)
        return recording(self._values[key], self._asked, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def recording(value: Json, asked: set[str], path: str = "") -> Json:
    if isinstance(value, Mapping):
        return Recording(value, asked, path)
    if isinstance(value, list):
        return [recording(item, asked, f"{path}[]") for item in value]
    return value


SAMPLES: Mapping[str, Json] = {
    "maxBatchTokens": 1024, "kvMemoryGiB": 2.5, "percentile": 99, "id": "org/name", "url": "https://h.example/m.tar",
    "path": "a/b", "sizeLimit": "1Gi", "mode": "SLO", "mountPath": "/data", "limits": {"nvidia.com/gpu": 1},
    "requests": {"cpu": "1"}, "args": {"max-waiting": 8},
}  # fmt: skip


def sample(node: Node) -> Json:
    """A right value that is not the default."""
    name = node.path.rpartition(".")[2].removesuffix("[]")
    schema = node.schema
    if name in SAMPLES:
        return SAMPLES[name]
    if "enum" in schema:
        return next(word for word in schema["enum"] if word != schema.get("default"))
    if schema.get("type") == "integer":
        return schema.get("default", schema["minimum"]) + 1
    if schema.get("type") == "object":
        return {name: sample(Node(f"{node.path}.{name}", schema["properties"][name])) for name in required(schema)} or (
            {"app": "x"}
        )
    if schema.get("type") == "array":
        return [sample(Node(f"{node.path}[]", schema["items"]))]
    return "word"


def required(schema: Schema) -> list[str]:
    names: list[str] = schema.get("required") or []
    return names


def leaves(root: Schema, path: str = "") -> Iterator[Node]:
    """Fields without named fields of their own."""
    for name, child in (root.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        items = child.get("items") or {}
        if child.get("properties"):
            yield from leaves(child, below)
        elif items.get("properties"):
            yield from leaves(items, f"{below}[]")
        else:
            yield Node(below, child)
