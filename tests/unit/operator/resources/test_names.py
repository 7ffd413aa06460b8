"""Names fit where Kubernetes wants them, are always the same, and two different things never share one."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvarn_operator.resources.names import MAX_NAME, bounded, budget_name, label_value, pod_name, pool_name
from kvarn_operator.scaling.spec import PoolName, Role

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

unhurried = settings(max_examples=60, deadline=None)

part = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?", fullmatch=True)
names = st.lists(part, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) <= 253)
alike = st.tuples(st.integers(50, 240), st.sampled_from("abc-.")).map(lambda made: "x" * made[0] + made[1] + "y")
user_names = names | alike
revisions = st.from_regex(r"[a-z0-9]{4,10}", fullmatch=True)
indexes = st.integers(0, 99_999)


@given(user_names, st.integers(12, 253))
@unhurried
def test_a_bounded_name_is_a_name_of_that_length(name: str, limit: int) -> None:
    found = bounded(name, limit)
    assert len(found) <= limit
    assert DNS_SUBDOMAIN.fullmatch(found)
    assert found == bounded(name, limit)
    assert (found == name) == (len(name) <= limit)


@given(user_names)
@unhurried
def test_every_name_is_valid_where_it_is_used(service: str) -> None:
    for role in Role:
        pool = pool_name(service, role)
        for name in (pool, budget_name(pool)):
            assert len(name) <= MAX_NAME
            assert DNS_SUBDOMAIN.fullmatch(name)
    assert LABEL_VALUE.fullmatch(label_value(service))
    assert len(label_value(service)) <= MAX_NAME


@given(user_names, revisions, indexes)
@unhurried
def test_a_pod_name_is_a_host_name_that_shows_revision_and_index(pool: str, revision: str, index: int) -> None:
    name = pod_name(PoolName(pool), revision, index)
    assert len(name) <= MAX_NAME
    assert DNS_LABEL.fullmatch(name)
    assert name.endswith(f"-{revision}-{index}")


@given(st.sets(user_names, min_size=2, max_size=6))
@unhurried
def test_different_services_never_share_a_pool(services: set[str]) -> None:
    assert len({pool_name(service, role) for service in services for role in Role}) == 2 * len(services)
    assert len({label_value(service) for service in services}) == len(services)


@given(st.sets(st.tuples(user_names, revisions, indexes), min_size=2, max_size=6))
@unhurried
def test_different_pods_never_share_a_name(pods: set[tuple[str, str, int]]) -> None:
    assert len({pod_name(PoolName(pool), revision, index) for pool, revision, index in pods}) == len(pods)


def test_ordinary_names_stay_as_they_are() -> None:
    pool = pool_name("smollm2", Role.DECODE)
    assert pool == "smollm2-decode"
    assert pod_name(pool, "7c1f9a", 3) == "smollm2-decode-7c1f9a-3"
    assert budget_name(pool) == "smollm2-decode"


def test_long_names_keep_their_start_and_never_change() -> None:
    """Pods and pools of a running cluster are found by these names: another hash would orphan them all."""
    assert bounded("a" * 100) == "a" * 52 + "-" + "zi4ale6h7n"
    assert pod_name(PoolName("qwen2.5-decode"), "7c1f9a", 0) == "qwen2-5-decode-pnja7suzxf-7c1f9a-0"


def test_a_cut_never_ends_in_a_dot_or_dash() -> None:
    assert bounded("a" * 50 + "--" + "b" * 50).startswith("a" * 50 + "-")
    assert DNS_SUBDOMAIN.fullmatch(bounded("a" * 51 + "." + "b" * 50))


def test_a_revision_with_a_dash_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        pod_name(PoolName("pool"), "a-b", 0)
