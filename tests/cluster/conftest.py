"""Clusters for the tests of this folder, one of each kind per session, started when the first test asks.

`fake_cluster` is always a bed of our own. `real_cluster` is one too, unless KVARN_TEST_IMAGES and KUBECONFIG name
another. Where neither can be had, the tests are skipped and the reason is printed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.support.bed import fake_bed, node_bed
from tests.cluster.support.cluster import Cluster, Images, bed_cluster, given_cluster
from tests.cluster.support.machine import why_no_bed, why_no_node

HERE = Path(__file__).parent
BED_IMAGES = Images("localhost", "test", "Never")
FAKE_NODES = 4
LONGEST_TEST_S = 900
"""The first test of a session waits for the build of the bed and of the images."""

FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs a Kubernetes cluster: the bed of tests/cluster, or KUBECONFIG")
    config.addinivalue_line("markers", "node: the cluster has a node that runs pods")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They run last: the quick tests fail first, and run on a quiet machine."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if "real_cluster" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.node)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LONGEST_TEST_S))
    items.sort(key=lambda item: HERE in item.path.parents)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was measured; and plainly, that and why the cluster tests did not run."""
    for figure in terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"measured: {figure}")
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "cluster" in report.keywords]
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"cluster tests that did not run: {count}, since {reason}")


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Adds a figure to the session's last lines. Nothing is asserted about figures."""
    return pytestconfig.stash.setdefault(FIGURES, []).append


@pytest.fixture(scope="session")
def fake_cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Fake nodes with 8 GPUs each: pods turn Ready without running. Kvarn's CRDs are there."""
    if reason := why_no_bed():
        pytest.skip(reason)
    with fake_bed(FAKE_NODES) as bed:
        tell(f"bed with fake nodes: up after {bed.start_s:.0f} s")
        cluster = bed_cluster(bed, BED_IMAGES)
        cluster.apply_crds()
        yield cluster


@pytest.fixture(scope="session")
def real_cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """A node where pods run; Kvarn's images are on it, or in a registry that it reaches."""
    given = given_cluster()
    if given is not None:
        found_crds = given.has_crds()
        yield given
        if not found_crds:
            given.delete_crds()
        return
    if reason := why_no_node():
        pytest.skip(f"{reason}; or say where the nodes of KUBECONFIG find images: KVARN_TEST_IMAGES, KVARN_TEST_TAG")
    with node_bed() as bed:
        tell(f"bed with a real node: up after {bed.start_s:.0f} s")
        began = time.monotonic()
        bed.load_images(BED_IMAGES.tag)
        tell(f"images: built and loaded in {time.monotonic() - began:.0f} s")
        yield bed_cluster(bed, BED_IMAGES)


@pytest.fixture(scope="module")
def fake_namespace(fake_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    with fake_cluster.namespace(request.module.__name__.rpartition(".")[2]) as name:
        yield name


@pytest.fixture(scope="module")
def real_namespace(real_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    with real_cluster.namespace(request.module.__name__.rpartition(".")[2]) as name:
        yield name
