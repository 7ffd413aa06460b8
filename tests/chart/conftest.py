"""helm: the machine's own, or the test bed's, which is built when there is neither and it can be."""

from pathlib import Path

import pytest

from tests.chart.rendering import VALUE_SETS, Helm, build_bed, find_helm
from tests.cluster.support.machine import why_no_bed

HERE = Path(__file__).parent
LONGEST_TEST_S = 900
"""The first test may wait for the build of the bed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly that and why tests of the chart did not run."""
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if report.nodeid.startswith("tests/chart/")
    ]
    for reason in sorted({str(report.longrepr[2]) for report in skipped}):
        terminalreporter.write_line(f"chart tests did not run: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session")
def helm() -> Helm:
    if find_helm() is None:
        if reason := why_no_bed():
            pytest.skip(f"no helm on the PATH, and {reason}")
        build_bed()
    path = find_helm()
    assert path is not None, "the bed holds no helm"
    return Helm(path)


@pytest.fixture(params=VALUE_SETS)
def values(request: pytest.FixtureRequest) -> str:
    """Name of each value set."""
    return str(request.param)
