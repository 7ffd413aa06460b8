"""Stories of who decides: the planner in SLO mode, people for a while, an HPA, two at once."""

from collections.abc import Callable

from kvarn_operator.reconcile.actions import Cordon, Plan, SetReplicas, WriteStatus
from kvarn_operator.reconcile.service import reconcile
from kvarn_operator.resources.labels import SCALING_MANAGER, SEED_MANAGER
from kvarn_operator.scaling.observation import Demand

from tests.support.fake_cluster import DECODE, PREFILL, FakeCluster
from tests.unit.operator.reconcile.reconcile_stories import deeds, serving, settle, slo, spec, step

HPA = "kube-controller-manager"


def load(cluster: FakeCluster, kv_usage: float, tokens: float = 100.0, held: int = 0) -> None:
    """`kv_usage` of one pod's store, spread over the pods that there are."""
    busy = 2 if kv_usage else 0
    ready = sum(cluster.is_ready(name) for name in cluster.pods if name.startswith(DECODE))
    cluster.kv_usage, cluster.busy = kv_usage / max(1, ready), busy
    cluster.demand = Demand(cluster.now, busy + held, held, tokens)


def under_load(
    cluster: FakeCluster, kv_usage: float, rounds: int, tokens: float = 100.0, held: int = 0,
    each: Callable[[Plan], None] = lambda plan: None,
) -> None:  # fmt: skip
    for _ in range(rounds):
        load(cluster, kv_usage, tokens, held)
        each(step(cluster))


def planned(**more: object) -> FakeCluster:
    cluster = FakeCluster()
    cluster.put_service(spec(decode__scaling=slo(**more), prefill__scaling=slo()))
    under_load(cluster, 0.1, 20)
    cluster.events.clear()
    return cluster


def test_the_planner_follows_the_load_with_its_own_manager() -> None:
    cluster = planned()
    load(cluster, 2.4)
    writes = [action for action in deeds(step(cluster)) if isinstance(action, SetReplicas)]
    assert [(write.pool, write.replicas, write.manager) for write in writes] == [(DECODE, 3, SCALING_MANAGER)]
    (decision,) = cluster.pools[DECODE]["status"]["decisions"][1:]
    assert (decision["from"], decision["to"], decision["reason"]) == (1, 3, "Load")
    assert "kv_usage_sum=2.4" in decision["message"]
    (told,) = [event for event in cluster.events if event.reason == "ScaledUp"]
    assert "kv_usage_sum=2.4" in told.message


def test_scaling_up_and_down_again_with_the_load() -> None:
    cluster = planned()
    under_load(cluster, 2.4, 15)
    assert (cluster.replicas(DECODE), len(cluster.serving(DECODE))) == (3, 3)
    under_load(cluster, 0.1, 40)
    assert (cluster.replicas(DECODE), len(cluster.serving(DECODE))) == (1, 1)
    assert cluster.event_reasons().count("ScaledDown") == len(cluster.pools[DECODE]["status"]["decisions"]) - 2


def test_a_steady_load_writes_nothing() -> None:
    cluster = planned()
    under_load(cluster, 0.1, 20)
    written: list[WriteStatus] = []

    def note(plan: Plan) -> None:
        written.extend(action for action in plan.actions if isinstance(action, WriteStatus))

    under_load(cluster, 0.1, 40, each=note)
    assert written == []


def test_a_wavering_load_is_written_a_few_times_a_minute() -> None:
    cluster = planned(behaviour={"scaleDown": {"stabilizationWindowSeconds": 300}})
    under_load(cluster, 2.4, 10)
    written: list[WriteStatus] = []
    for number in range(60):
        load(cluster, 2.0 if number % 2 else 1.2)
        written += [action for action in step(cluster, 5.0).actions if isinstance(action, WriteStatus)]
    assert cluster.replicas(DECODE) == 3, "what was wanted within the window counts"
    assert len(written) <= 5 * 3
    for _ in range(80):
        load(cluster, 1.2)
        step(cluster, 5.0)
    assert cluster.replicas(DECODE) == 2


def test_outside_slo_mode_replicas_are_never_written() -> None:
    for mode in ("Manual", "External"):
        cluster = serving(decode__scaling={"mode": mode})
        cluster.scale(DECODE, 2, HPA)
        managers: list[str] = []

        def note(plan: Plan, managers: list[str] = managers) -> None:
            managers.extend(action.manager for action in plan.actions if isinstance(action, SetReplicas))

        under_load(cluster, 5.0, 20, each=note)
        assert (managers, len(cluster.serving(DECODE))) == ([], 2)
        assert cluster.condition("ScalingActive", DECODE) == ("Unknown", mode)


def test_a_kubectl_scale_in_slo_mode_holds_for_a_while_and_is_shown() -> None:
    cluster = planned(overrideSeconds=60)
    cluster.scale(DECODE, 4)
    under_load(cluster, 0.1, 1)
    assert cluster.pools[DECODE]["status"]["override"] == {
        "replicas": 4, "writer": "kubectl-scale", "until": "2027-01-15T08:01:40Z",
    }  # fmt: skip
    assert cluster.condition("ScalingActive", DECODE) == ("True", "Override")
    latest = cluster.pools[DECODE]["status"]["decisions"][-1]
    assert (latest["from"], latest["to"], latest["reason"]) == (1, 4, "Override")
    assert cluster.condition("ReplicasConflict", DECODE) == ("False", "NoConflict")
    under_load(cluster, 0.1, 25)
    assert len(cluster.serving(DECODE)) == 4
    under_load(cluster, 0.1, 30)
    assert (cluster.replicas(DECODE), len(cluster.serving(DECODE))) == (1, 1)
    assert "override" not in cluster.pools[DECODE]["status"]
    reasons = cluster.event_reasons()
    assert (reasons.count("OverrideBegun"), reasons.count("OverrideEnded")) == (1, 1)


def test_an_override_survives_a_restart_of_the_operator() -> None:
    """The status is the only memory there is."""
    cluster = planned(overrideSeconds=600)
    cluster.scale(DECODE, 3)
    under_load(cluster, 0.1, 2)
    cluster.advance(300)
    under_load(cluster, 0.1, 2)
    assert cluster.replicas(DECODE) == 3


def test_an_hpa_that_keeps_writing_in_slo_mode_is_named() -> None:
    cluster = planned()
    cluster.scale(DECODE, 2, HPA)
    under_load(cluster, 0.1, 5)
    assert cluster.condition("ReplicasConflict", DECODE) == ("False", "NoConflict")
    cluster.scale(DECODE, 3, HPA)
    under_load(cluster, 0.1, 5)
    assert cluster.condition("ReplicasConflict") == ("True", "SeveralWriters")
    assert HPA in cluster.told("ReplicasConflict")["message"]
    assert cluster.event_reasons().count("SeveralWriters") == 2, "once for the pool, once for the model"
    cluster.advance(700)
    under_load(cluster, 0.1, 2)
    assert cluster.condition("ReplicasConflict") == ("False", "NoConflict")


def test_two_writers_in_turn_are_named_a_hand_over_is_not() -> None:
    cluster = serving(decode__scaling={"mode": "External"})
    for replicas, writer in ((2, "kubectl-scale"), (3, HPA)):
        cluster.scale(DECODE, replicas, writer)
        step(cluster)
    assert cluster.condition("ReplicasConflict", DECODE) == ("False", "NoConflict")
    cluster.scale(DECODE, 2, "kubectl-scale")
    step(cluster)
    assert cluster.condition("ReplicasConflict", DECODE) == ("True", "SeveralWriters")
    assert "kube-controller-manager and kubectl-scale" in cluster.told("ReplicasConflict", DECODE)["message"]


def test_silent_metrics_hold_the_pool_and_are_told() -> None:
    cluster = planned()
    under_load(cluster, 2.4, 10)
    cluster.demand = None
    step(cluster)
    assert cluster.condition("ScalingActive", DECODE) == ("Unknown", "MetricsLate")
    for _ in range(30):
        step(cluster)
    assert cluster.replicas(DECODE) == 3
    assert cluster.condition("ScalingActive", DECODE) == ("False", "MetricsMissing")
    assert "routers" in cluster.told("ScalingActive", DECODE)["message"]
    assert cluster.event_reasons().count("MetricsMissing") == 3, "once for each pool, once for the model"


def test_to_zero_when_idle_and_back_for_a_held_request() -> None:
    cluster = planned(minimum=0, zeroAfterSeconds=60)
    under_load(cluster, 0.0, 60, tokens=0)
    assert cluster.active(DECODE) == []
    assert cluster.condition("Ready") == ("True", "ScaledToZero")
    assert cluster.condition("Paired") == ("False", "ScaledToZero")
    under_load(cluster, 0.0, 1, held=1)
    assert cluster.replicas(DECODE) == 1
    under_load(cluster, 0.1, 10)
    assert cluster.condition("Ready") == ("True", "Serving")


def test_a_busy_pool_that_may_sleep_is_not_written_at_each_tick() -> None:
    cluster = planned(minimum=0, zeroAfterSeconds=600)
    written: list[WriteStatus] = []
    for _ in range(60):
        load(cluster, 0.1)
        written += [action for action in step(cluster, 5.0).actions if isinstance(action, WriteStatus)]
    assert len(written) <= 6, "a tenth of the idle time apart"


def test_load_that_left_while_pods_wait_for_a_node() -> None:
    cluster = FakeCluster(room=3)
    cluster.put_service(spec(decode__scaling=slo(), prefill__scaling=slo()))
    under_load(cluster, 0.1, 10)
    under_load(cluster, 3.0, 10)
    assert cluster.condition("CapacityAvailable", DECODE) == ("False", "Unschedulable")
    assert cluster.replicas(DECODE) > 2
    under_load(cluster, 0.1, 30)
    assert (cluster.replicas(DECODE), len(cluster.pods)) == (1, 2)
    assert cluster.condition("CapacityAvailable") == ("True", "Scheduled")


def test_the_budget_is_shared_with_a_pool_that_people_scale() -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    cluster = FakeCluster()
    cluster.put_service(
        spec(
            prefill=2, budget={"gpus": 8}, prefill__template=gpu, decode__template=gpu,
            decode__scaling=slo(maximum=10),
        )
    )  # fmt: skip
    under_load(cluster, 0.1, 10)
    under_load(cluster, 3.0, 10)
    assert cluster.replicas(DECODE) == 2, "8 GPUs, of which 4 are the other pool's"
    assert cluster.condition("ScalingActive", DECODE) == ("True", "BudgetLimited")
    cluster.scale(PREFILL, 1)
    under_load(cluster, 3.0, 10)
    assert cluster.replicas(DECODE) == 3


def test_a_seed_that_changes_in_slo_mode_is_no_override() -> None:
    cluster = planned()
    cluster.put_service(spec(decode=3, decode__scaling=slo(), prefill__scaling=slo()))
    load(cluster, 0.1)
    plan = step(cluster)
    assert next((a.replicas, a.manager) for a in deeds(plan) if isinstance(a, SetReplicas)) == (3, SEED_MANAGER)
    under_load(cluster, 0.1, 30)
    assert cluster.replicas(DECODE) == 1
    assert "override" not in cluster.pools[DECODE]["status"]


def test_scaling_down_cordons_in_the_same_plan() -> None:
    cluster = planned()
    under_load(cluster, 2.4, 10)
    load(cluster, 0.1)
    assert [type(action) for action in deeds(step(cluster))] == [SetReplicas, Cordon, Cordon]


def test_a_plan_in_slo_mode_asks_to_be_called_again() -> None:
    cluster = planned()
    under_load(cluster, 0.1, 20)
    load(cluster, 0.1)
    plan = reconcile(cluster.observe(), cluster.now)
    assert (plan.actions, plan.requeue_s) == ((), 5.0)


def test_objectives_missed_and_met() -> None:
    cluster = serving()
    assert cluster.condition("SLOMet") == ("Unknown", "MetricsMissing")
    for ttft, itl, told in (
        (None, None, ("Unknown", "NoTraffic")),
        (1.0, 0.05, ("True", "WithinObjective")),
        (3.3, 0.05, ("False", "TTFTMissed")),
        (3.4, 0.05, ("False", "TTFTMissed")),
        (3.4, 0.2, ("False", "TTFTMissedAndITLMissed")),
    ):
        cluster.demand = Demand(cluster.now, 1, 0, 1.0, ttft_s=ttft, itl_s=itl)
        step(cluster)
        assert cluster.condition("SLOMet") == told
    assert "TTFT p95 is about 3 s, objective 2 s" in cluster.told("SLOMet")["message"]
    settle(cluster)
