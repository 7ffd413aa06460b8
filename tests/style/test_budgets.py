"""The size budgets of the design, measured. An exemption is a name with a reason, and must still be needed."""

import statistics
from collections.abc import Mapping

from tests.style.source_tree import Function, length, sources

MAX_FILE = 350
MEDIAN_FILE = 120
MAX_FUNCTION = 60
P90_FUNCTION = 30
MAX_CLASS = 200
MAX_PARAMETERS = 6

LONG_FILES: Mapping[str, str] = {}
LONG_FUNCTIONS: Mapping[str, str] = {}
LONG_CLASSES: Mapping[str, str] = {}
MANY_PARAMETERS: Mapping[str, str] = {
    "cli/kvarn_cli/main.py:up": "typer reads the command's options from its parameters",
    "cli/kvarn_cli/stack_plan.py:_worker": "one command line is made of exactly these parts",
    "engine/kvarn_engine/runtime/attention.py:_attention": "transformers calls it with this signature",
    "engine/kvarn_engine/runtime/backends/cpu_kernel.py:decode": "a compiled kernel takes arrays, not objects",
}


def over(sizes: Mapping[str, int], limit: int, exempt: Mapping[str, str]) -> list[str]:
    """What breaks the limit without being exempt, and exemptions that nothing needs any more."""
    broken = [f"{name} has {size}" for name, size in sizes.items() if size > limit and name not in exempt]
    idle = [f"{name} is exempt without need" for name in exempt if sizes.get(name, 0) <= limit]
    return broken + idle


def num_parameters(function: Function) -> int:
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_files() -> None:
    sizes = {source.name: source.num_lines for source in sources()}
    assert len(sizes) > 50, "the sources were not found"
    assert over(sizes, MAX_FILE, LONG_FILES) == []
    assert statistics.median(sizes.values()) <= MEDIAN_FILE


def test_functions() -> None:
    sizes = {name: length(function) for source in sources() for name, function in source.functions()}
    assert over(sizes, MAX_FUNCTION, LONG_FUNCTIONS) == []
    assert statistics.quantiles(sizes.values(), n=10)[-1] <= P90_FUNCTION


def test_classes() -> None:
    sizes = {name: length(node) for source in sources() for name, node in source.classes()}
    assert over(sizes, MAX_CLASS, LONG_CLASSES) == []


def test_parameters() -> None:
    sizes: dict[str, int] = {}
    for source in sources():
        for name, function in source.functions():
            sizes[name] = max(sizes.get(name, 0), num_parameters(function))
    assert over(sizes, MAX_PARAMETERS, MANY_PARAMETERS) == []
