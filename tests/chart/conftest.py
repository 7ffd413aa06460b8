"""helm, from the machine or from the test bed's cache."""

import pytest

from tests.chart.rendering import VALUE_SETS, Helm, find_helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    path = find_helm()
    if path is None:
        pytest.skip("no helm on the PATH nor in the test bed's cache ($KVARN_BED, by default ~/.cache/kvarn/bed)")
    return Helm(path)


@pytest.fixture(params=VALUE_SETS)
def values(request: pytest.FixtureRequest) -> str:
    """Name of each value set."""
    return str(request.param)
