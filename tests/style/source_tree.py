"""The source files of all packages, parsed, for the style tests. Generated wire code is left out."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "proto/kvarn_proto",
    "engine/kvarn_engine",
    "prefill_worker/kvarn_prefill",
    "decode_worker/kvarn_decode",
    "router/kvarn_router",
    "operator/kvarn_operator",
    "cli/kvarn_cli",
    "bench/kvarn_bench",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def num_lines(self) -> int:
        return len(self.text.splitlines())

    def functions(self) -> Iterator[tuple[str, Function]]:
        """`file:function` and node, methods and nested functions included."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield f"{self.name}:{node.name}", node

    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                yield f"{self.name}:{node.name}", node


def sources() -> list[Source]:
    """Every file that has content."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [Source(path) for path in paths if "_pb2" not in path.name and path.read_text().strip()]


def length(node: Function | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
