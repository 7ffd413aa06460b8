"""The metrics that the processes register, read from their sources: series as Prometheus stores them, and labels."""

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.chart.rendering import CHART

CODE = CHART.parents[2]
_SERIES = {
    "Counter": ("_total",),
    "Gauge": ("",),
    "GaugeMetricFamily": ("",),
    "Histogram": ("_bucket", "_sum", "_count"),
}
"""Class -> what its name gets."""


class Registered(NamedTuple):
    series: frozenset[str]
    names: frozenset[str]
    """As people write them: a histogram without its suffixes."""

    labels: frozenset[str]


@cache
def metrics() -> Registered:
    """Of all processes together."""
    calls = list(_calls())
    series = {f"{name}{suffix}" for kind, name, _ in calls for suffix in _SERIES[kind]}
    names = {f"{name}_total" if kind == "Counter" else name for kind, name, _ in calls}
    labels = {label for _, _, labels in calls for label in labels}
    return Registered(frozenset(series), frozenset(names), frozenset(labels))


def _calls() -> Iterator[tuple[str, str, list[str]]]:
    """Class, name and labels of each metric. Labels are the one list or tuple of plain words among the arguments."""
    for path in sorted(CODE.glob("*/kvarn_*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SERIES):
                continue
            match node.args:
                case [ast.Constant(value=str(name)), *_] if name.startswith("kvarn_"):
                    given = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
                    lists = [each.elts for each in given if isinstance(each, ast.List | ast.Tuple)]
                    words = [each.value for elements in lists for each in elements if isinstance(each, ast.Constant)]
                    yield node.func.id, name, [word for word in words if isinstance(word, str)]
