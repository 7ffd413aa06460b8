"""The API server and the operator refuse the same things: schema and CEL rules beside the operator's own checks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.parsing import parse_model_service

from tests.support.crds import MODEL_SERVICE, WORKER_POOL, holds, nodes, refusals, schema
from tests.unit.operator.resources.bad_input import EVERYTHING, Bad, Guard
from tests.unit.operator.resources.resource_builders import pool_json, service_json

RULES = {
    plural: [
        rule
        for root in [schema(plural)]
        for node in nodes(root)
        for rule in node.schema.get("x-kubernetes-validations") or ()
    ]
    for plural in (MODEL_SERVICE, WORKER_POOL)
}


def messages(plural: str) -> set[str]:
    return {rule["message"] for rule in RULES[plural]}


def refused_by_operator(resource: Any) -> bool:
    try:
        parse_model_service(resource)
    except InvalidResource:
        return True
    return False


@pytest.mark.parametrize("bad", EVERYTHING, ids=str)
def test_bad_input_is_refused_where_it_can_be(bad: Bad) -> None:
    found = refusals(MODEL_SERVICE, service_json(bad.spec))
    by_rule = bool(found) and set(found) <= messages(MODEL_SERVICE)
    guard = Guard.CODE if not found else Guard.RULE if by_rule else Guard.SCHEMA
    assert guard is bad.guard, found


def test_every_rule_of_a_service_refuses_something() -> None:
    by_rule = [bad for bad in EVERYTHING if bad.guard is Guard.RULE]
    said = {text for bad in by_rule for text in refusals(MODEL_SERVICE, service_json(bad.spec))}
    assert messages(MODEL_SERVICE) - said == set()


def test_a_rule_that_cannot_hold_is_seen() -> None:
    """Of the check itself: rules are evaluated, not only parsed."""
    assert not holds("self.a > 1", {"a": 1})
    assert holds("self.a > 1", {"a": 2})


small = st.integers(0, 6)
scalings = st.fixed_dictionaries(
    {}, optional={"mode": st.sampled_from(["Manual", "External", "SLO"]), "min": small, "max": small}
)
pools = st.fixed_dictionaries({}, optional={"replicas": small, "scaling": scalings})
engines = st.fixed_dictionaries(
    {},
    optional={
        "maxBatchTokens": st.sampled_from([1, 63, 64, 512, 4096]),
        "maxSequences": st.sampled_from([1, 64, 65, 512, 513]),
        "numBlocks": st.integers(0, 2),
        "kvMemoryGiB": st.sampled_from([0, 0.5, 1]),
    },
)
sources = st.fixed_dictionaries(
    {}, optional={"embedded": st.just({}), "hub": st.just({"id": "a/b"}), "pvc": st.just({"claimName": "c"})}
)
rollouts = st.fixed_dictionaries({}, optional={"maxSurge": small, "maxUnavailable": small})
specs = st.fixed_dictionaries(
    {},
    optional={
        "prefill": pools, "decode": pools, "engine": engines, "rollout": rollouts,
        "model": st.fixed_dictionaries({}, optional={"source": sources}),
    },
)  # fmt: skip


@given(specs)
@settings(max_examples=40, deadline=None)
def test_both_agree_on_whatever_a_user_writes(spec: Any) -> None:
    resource = service_json(spec)
    assert bool(refusals(MODEL_SERVICE, resource)) == refused_by_operator(resource)


SLO = {"mode": "SLO", "max": 4}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"role": "prefill"}, "role and modelService never change"),
        ({}, {"modelService": "other"}, "role and modelService never change"),
        ({"scaling": SLO}, {"replicas": 5, "scaling": SLO}, "replicas is above scaling.max"),
    ],
)
def test_changes_of_a_pool_that_are_refused(before: Any, after: Any, says: str) -> None:
    assert [text[: len(says)] for text in refusals(WORKER_POOL, pool_json(after), pool_json(before))] == [says]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"replicas": 20}, id="in Manual mode kubectl scale knows no bounds but the schema's"),
        pytest.param({"scaling": SLO}, {"replicas": 4, "scaling": SLO}, id="an override within bounds"),
        pytest.param({"scaling": SLO}, {"replicas": 0, "scaling": SLO}, id="below min: the planner corrects it"),
        pytest.param(
            {"replicas": 8, "scaling": {"mode": "SLO", "max": 8}}, {"replicas": 8, "scaling": SLO},
            id="max is lowered below what there is",
        ),
        pytest.param(
            {"replicas": 8, "scaling": {"mode": "Manual"}}, {"replicas": 8, "scaling": SLO},
            id="from Manual with many pods to SLO",
        ),
    ],
)  # fmt: skip
def test_changes_of_a_pool_that_must_be_possible(before: Any, after: Any) -> None:
    assert refusals(WORKER_POOL, pool_json(after), pool_json(before)) == []


def test_a_kubectl_scale_beyond_all_bounds_is_refused_by_any_server() -> None:
    assert refusals(WORKER_POOL, pool_json({"replicas": 1001}), pool_json()) == [
        "1001 is greater than the maximum of 1000"
    ]


def test_a_pool_needs_its_role_and_its_service() -> None:
    resource = pool_json()
    resource["spec"] = {}
    assert refusals(WORKER_POOL, resource) == [
        "'role' is a required property",
        "'modelService' is a required property",
    ]
