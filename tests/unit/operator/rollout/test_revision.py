"""Which changes restart workers, and which of those change who can exchange blocks with whom."""

from dataclasses import replace
from typing import Any

import pytest
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.model_service import (
    EngineOptions,
    Model,
    ModelCache,
    ModelServiceSpec,
    ModelSource,
    Objective,
    Rollout,
    SecretKey,
    SourceKind,
)
from kvarn_operator.resources.pool_template import Drain, Image, Placement, PodTemplate, Pool, Scaling
from kvarn_operator.rollout.layouts import layout_classes
from kvarn_operator.rollout.revision import pairing, pod_revision
from kvarn_operator.scaling.spec import Budget, Role

DEFAULTS = OperatorDefaults("worker:1")
PLAIN = ModelServiceSpec()
HUB = Model(source=ModelSource(SourceKind.HUB, "org/name"), revision="main")


def revision(spec: ModelServiceSpec = PLAIN, role: Role = Role.DECODE, defaults: OperatorDefaults = DEFAULTS) -> str:
    return pod_revision(spec, role, defaults)


def decode(**template: Any) -> ModelServiceSpec:
    return replace(PLAIN, decode=Pool(template=PodTemplate(**template)))


def both(**template: Any) -> ModelServiceSpec:
    return replace(decode(**template), prefill=Pool(template=PodTemplate(**template)))


def together(one: str, other: str) -> bool:
    classes = layout_classes([one, other])
    return classes[one] == classes[other]


class TestRevision:
    def test_these_may_never_change(self) -> None:
        """Or else upgrading the operator restarts every worker of every user."""
        full = replace(
            PLAIN, model=replace(HUB, secret=SecretKey("s")), engine=EngineOptions(dtype="float16", threads=2),
            decode=Pool(
                drain=Drain(60.0),
                template=PodTemplate(
                    image=Image("mine:2"), resources={"limits": {"nvidia.com/gpu": 1}}, args=(("max-waiting", "9"),),
                    placement=Placement(node_selector=(("gpu", "h200"),)),
                ),
            ),
        )  # fmt: skip
        assert [revision(), revision(full)] == ["1c54abf517", "1987249e0b"]
        assert [pairing(PLAIN, DEFAULTS), pairing(full, DEFAULTS)] == [
            "ea4399ba-61c5de43-61c5de43",
            "45d9764a-61c5de43-2db9a14e",
        ]

    @pytest.mark.parametrize(
        "spec",
        [
            replace(PLAIN, decode=Pool(replicas=5, scaling=Scaling(maximum=50))),
            replace(PLAIN, objective=Objective(ttft_s=9.0), budget=Budget(4), rollout=Rollout(max_surge=3)),
            replace(PLAIN, model=Model(served_names=("a", "b"))),
            replace(PLAIN, prefill=Pool(template=PodTemplate(image=Image("other:2")))),
            decode(startup_timeout_s=1800),
            decode(placement=Placement(affinity={})),
        ],
        ids=["replicas", "goals", "served names", "other pool", "a whole number", "an empty part"],
    )
    def test_not_restarted_by(self, spec: ModelServiceSpec) -> None:
        assert revision(spec) == revision()

    @pytest.mark.parametrize(
        "spec",
        [
            replace(PLAIN, model=HUB),
            replace(PLAIN, model=Model(cache=ModelCache(size_limit="1Gi"))),
            replace(PLAIN, engine=EngineOptions(max_sequences=8)),
            replace(PLAIN, decode=Pool(drain=Drain(60.0))),
            decode(image=Image("worker:2")),
            decode(resources={"limits": {"memory": "1Gi"}}),
            decode(labels=(("team", "a"),)),
            decode(pod_template={"spec": {"priority": 1}}),
        ],
        ids=["model", "cache", "engine", "drain", "image", "resources", "labels", "escape hatch"],
    )
    def test_restarted_by(self, spec: ModelServiceSpec) -> None:
        assert revision(spec) != revision()

    @pytest.mark.parametrize(
        ("template", "setting"),
        [
            ({"image": Image("mine:1")}, {"worker_image": "worker:2"}),
            ({"image": Image(pull_policy="Never")}, {"image_pull_policy": "Always"}),
            ({"service_account_name": "mine"}, {"worker_service_account": "runner"}),
            ({"placement": Placement(priority_class_name="high")}, {"priority_class_name": "low"}),
        ],
    )
    def test_a_setting_of_the_operator_counts_where_the_user_left_it_open(self, template: Any, setting: Any) -> None:
        changed = replace(DEFAULTS, **setting)
        assert revision(defaults=changed) != revision()
        assert revision(decode(**template), defaults=changed) == revision(decode(**template))

    @pytest.mark.parametrize("setting", [{"tls_secret": "t"}, {"image_pull_secrets": ("s",)}, {"log_json": False}])
    def test_settings_that_always_count(self, setting: Any) -> None:
        assert revision(defaults=replace(DEFAULTS, **setting)) != revision()

    def test_the_kind_of_budget_does_not_count(self) -> None:
        assert revision(defaults=replace(DEFAULTS, budget_api="policy/v1beta1")) == revision()

    def test_it_fits_into_a_name_and_a_label(self) -> None:
        assert revision().isalnum()
        assert len(revision()) == 10


class TestPairing:
    def both_ways(self, spec: ModelServiceSpec, defaults: OperatorDefaults = DEFAULTS) -> bool:
        return together(pairing(PLAIN, DEFAULTS), pairing(spec, defaults))

    @pytest.mark.parametrize(
        "spec",
        [
            replace(PLAIN, model=HUB),
            replace(PLAIN, model=Model(revision="v2")),
            replace(PLAIN, engine=EngineOptions(dtype="float16")),
            replace(PLAIN, engine=EngineOptions(block_size=32)),
            replace(PLAIN, engine=EngineOptions(engine="simulated")),
            both(image=Image("worker:2")),
            both(args=(("attention", "cuda"),)),
            both(env=({"name": "KVARN_DEVICE", "value": "cpu"},)),
        ],
        ids=["model", "model revision", "dtype", "block size", "engine", "images", "flags", "variables"],
    )
    def test_old_and_new_do_not_pair_after(self, spec: ModelServiceSpec) -> None:
        assert not self.both_ways(spec)

    @pytest.mark.parametrize(
        "spec",
        [
            replace(PLAIN, engine=EngineOptions(max_model_len=99, max_sequences=1, threads=4, kv_memory_gib=9.0)),
            replace(PLAIN, model=Model(secret=SecretKey("s"), served_names=("a",))),
            both(resources={"limits": {"memory": "1Gi"}}, env=({"name": "OTHER", "value": "x"},)),
            decode(image=Image("worker:2")),
            decode(args=(("attention", "cuda"),)),
        ],
        ids=["limits", "secret", "resources", "one image", "one pool's flags"],
    )
    def test_old_and_new_pair_after(self, spec: ModelServiceSpec) -> None:
        assert self.both_ways(spec)

    def test_a_new_default_image_is_one_for_both_pools(self) -> None:
        assert not self.both_ways(PLAIN, OperatorDefaults("worker:2"))
        assert self.both_ways(both(image=Image("worker:1")), OperatorDefaults("worker:2"))


class TestLayoutClasses:
    def test_a_chain_of_one_sided_changes_is_one_class(self) -> None:
        found = layout_classes(["l-1-1", "l-2-1", "l-2-2", "l-9-9", "m-1-1"])
        assert found["l-1-1"] == found["l-2-1"] == found["l-2-2"]
        assert len({found["l-1-1"], found["l-9-9"], found["m-1-1"]}) == 3

    def test_what_is_no_pairing_goes_with_itself_alone(self) -> None:
        found = layout_classes(["", "odd", "l-1", "l-1-1"])
        assert len(set(found.values())) == 4
        assert found["odd"] == "odd"
