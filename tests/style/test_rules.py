"""Rules that linters do not know: names, errors, tasks, state, unfinished work."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping

import pytest

from tests.style.source_tree import PACKAGES, ROOT, Source, sources

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|(?i:\bplaceholder\b)")
BROAD = frozenset({"Exception", "BaseException"})

BROAD_EXCEPT: Mapping[str, str] = {
    "engine/kvarn_engine/serving/loop.py": "the step thread's edge: whoever waits must hear of any defect",
    "engine/kvarn_engine/serving/worker_process.py": "the process edge: a broken model makes libraries raise anything",
    "engine/kvarn_engine/serving/stepper.py": "a runner may raise anything; the requests in flight hear EngineFailure",
    "operator/kvarn_operator/cluster/watch_thread.py": "the watch thread's edge: whatever ends it, a new one begins",
    "operator/kvarn_operator/cluster/work_queue.py": "a defect in one model's reconcile must not stop the others",
    "router/kvarn_router/api/edge.py": "the process edge of the API: what leaves it would be a broken connection",
}
"""File -> why it may catch everything."""

BARE_RAISE_ONLY = "a handler that only cleans up and raises again is not broad"


@pytest.fixture(scope="module")
def all_sources() -> list[Source]:
    return sources()


def test_no_init_file_directly_under_a_top_level_folder() -> None:
    folders = {package.partition("/")[0] for package in PACKAGES}
    assert [folder for folder in sorted(folders) if (ROOT / folder / "__init__.py").exists()] == []


def test_no_module_shadows_the_standard_library(all_sources: list[Source]) -> None:
    names = {source.name: source.path.stem for source in all_sources if not source.path.stem.startswith("__")}
    assert [name for name, stem in names.items() if stem in sys.stdlib_module_names] == []


def test_every_module_says_what_it_is(all_sources: list[Source]) -> None:
    assert [source.name for source in all_sources if not ast.get_docstring(source.tree)] == []


def test_nothing_is_left_unfinished(all_sources: list[Source]) -> None:
    found = [
        f"{source.name}:{number}"
        for source in all_sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_no_broad_except(all_sources: list[Source]) -> None:
    found = {source.name for source in all_sources if any(_broad_handlers(source.tree))}
    assert found - set(BROAD_EXCEPT) == set(), BARE_RAISE_ONLY
    assert set(BROAD_EXCEPT) - found == set(), "exempt without need"


def _broad_handlers(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
            yield node


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(each) for each in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_every_task_has_a_name(all_sources: list[Source]) -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in all_sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("create_task", "ensure_future")
        and not any(keyword.arg == "name" for keyword in node.keywords)
    ]
    assert found == []


def test_no_state_at_module_level(all_sources: list[Source]) -> None:
    """Tables in capitals are constants; a lower-case container, or `global`, is state."""
    found = [f"{source.name}:{number}" for source in all_sources for number in _module_state(source.tree)]
    assert found == []


def _module_state(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        mutable = isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
        if mutable and any(name != name.upper() and name != "__all__" for name in names):
            yield node.lineno


def test_no_work_on_import(all_sources: list[Source]) -> None:
    found = [
        f"{source.name}:{node.lineno}"
        for source in all_sources
        for node in source.tree.body
        if isinstance(node, ast.For | ast.While | ast.With)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await))
    ]
    assert found == []


def test_no_untyped_dicts_between_modules(all_sources: list[Source]) -> None:
    found = [
        name
        for source in all_sources
        for name, function in source.functions()
        if not function.name.startswith("_")
        for annotation in (*(argument.annotation for argument in function.args.args), function.returns)
        if annotation is not None and "dict[str, Any]" in ast.unparse(annotation).replace('"', "")
    ]
    assert found == []
