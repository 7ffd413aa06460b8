"""A cluster in memory for the reconcile: keeps JSON, applies actions as an API server does, and lets pods live.

No threads, no real time: `advance` moves the clock. Pods find a node while there is room, become ready after a while,
lose their work while they drain, and take a while to go. What is seen goes through the operator's own parsers.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvarn_operator.cluster.gathering import ServiceObjects, gather
from kvarn_operator.reconcile.actions import (
    Action,
    Apply,
    Cordon,
    CreatePod,
    DeletePod,
    EmitEvent,
    Plan,
    SetReplicas,
    Uncordon,
    WriteStatus,
)
from kvarn_operator.reconcile.observed import Observed, OperatorDefaults, Readings, WorkerReading
from kvarn_operator.reconcile.timestamps import rfc3339
from kvarn_operator.resources.labels import (
    APPLY_MANAGER,
    DRAIN_REASON_ANNOTATION,
    DRAINING_ANNOTATION,
    PAIRING_ANNOTATION,
    POOL_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    SEEDED_REPLICAS_ANNOTATION,
    WRITTEN_REPLICAS_ANNOTATION,
)
from kvarn_operator.rollout.layouts import layout_classes
from kvarn_operator.scaling.observation import Demand, PodMetrics

from tests.support.crds import WORKER_POOL, defaulted, schema

Json = Any
NAMESPACE, NAME = "models", "smollm2"
PREFILL, DECODE = f"{NAME}-prefill", f"{NAME}-decode"
BAD_IMAGE = "registry.test/worker:bad"


class Refusal(Exception):
    """The API server says no."""


@dataclass
class Pace:
    """How long things take; called anew for each pod."""

    start_s: Callable[[], float] = lambda: 6.0
    drain_s: Callable[[], float] = lambda: 4.0
    """From the cordon until nothing is in flight."""

    end_s: Callable[[], float] = lambda: 2.0


@dataclass
class Life:
    """What the API server does not know of a pod."""

    in_flight: int = 0
    ready_at: float | None = None
    idle_at: float | None = None
    gone_at: float | None = None


@dataclass
class FakeCluster:
    room: int = 1000
    """Pods that find a node."""

    pace: Pace = field(default_factory=Pace)
    defaults: OperatorDefaults = field(default_factory=lambda: OperatorDefaults(worker_image="registry.test/worker:1"))
    demand: Demand | None = None
    busy: int = 2
    """Requests in flight on each ready pod."""

    kv_usage: float = 0.1
    now: float = 1.8e9
    service: Json = None
    pools: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    budgets: dict[str, Json] = field(default_factory=dict)
    events: list[EmitEvent] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    mute: set[str] = field(default_factory=set)
    """Pods whose metrics cannot be read."""

    created: int = 0
    quota: int | None = None
    """Pods that may exist at all, those that end included."""

    refusal: str = "exceeded quota"

    # -- what users and others do

    def put_service(self, spec: Mapping[str, Json]) -> None:
        if self.service is None:
            metadata = {"namespace": NAMESPACE, "name": NAME, "uid": "uid-service", "generation": 0}
            self.service = {"apiVersion": "kvarn.dev/v1alpha1", "kind": "ModelService", "metadata": metadata}
        self.service["spec"] = copy.deepcopy(dict(spec))
        self.service["metadata"]["generation"] += 1

    def scale(self, pool: str, replicas: int, writer: str = "kubectl-scale") -> None:
        self._set_replicas(self.pools[pool], replicas, writer)

    def drain(self, pod: str) -> None:
        self._mark(pod, rfc3339(self.now), "User")

    def kill(self, pod: str) -> None:
        """Its process is gone for good, as after an eviction."""
        self.pods[pod]["status"] = {"phase": "Failed", "reason": "Evicted"}

    def lapse(self, pod: str) -> None:
        """For the moment it fails its readiness probe."""
        self.pods[pod]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    # -- what the operator sees and does

    def observe(self) -> Observed:
        """For use before anything else happens: it shares the objects."""
        objects = ServiceObjects(
            NAMESPACE, NAME, (self.service,) if self.service else (), tuple(self.pools.values()),
            tuple(self.pods.values()), tuple(self.budgets.values()), self.refused,
        )  # fmt: skip
        return gather(objects, self.readings(), self.defaults)

    def readings(self) -> Readings:
        readings = {}
        for name, life in self.lives.items():
            if self.pods[name]["status"].get("podIP") and name not in self.mute:
                metrics = PodMetrics(self.now, 1000.0, self.kv_usage, running=life.in_flight)
                readings[name] = WorkerReading(metrics, life.in_flight, cached_blocks=3)
        return Readings(readings, self.demand)

    def carry_out(self, plan: Plan, stop_after: int | None = None) -> int:
        """How many actions were carried out: all, or those before the crash."""
        self.begin()
        actions = plan.actions[:stop_after]
        for action in actions:
            self.act(action)
        return len(actions)

    def begin(self) -> None:
        """What a quota refused is told anew by the creations of each plan."""
        if self.quota is not None:
            self.refused = {}

    def act(self, action: Action) -> None:
        match action:
            case Apply():
                self._apply(action.body)
            case SetReplicas():
                self._set_replicas(self.pools[action.pool], action.replicas, action.manager)
                notes = self.pools[action.pool]["metadata"].setdefault("annotations", {})
                notes[WRITTEN_REPLICAS_ANNOTATION] = str(action.replicas)
                if action.seeded is not None:
                    notes[SEEDED_REPLICAS_ANNOTATION] = str(action.seeded)
            case CreatePod():
                self._create(action.body)
            case Cordon():
                self._mark(action.pod, action.since, action.reason)
            case Uncordon():
                for key in (DRAINING_ANNOTATION, DRAIN_REASON_ANNOTATION):
                    self.pods[action.pod]["metadata"]["annotations"].pop(key)
                self.lives[action.pod].idle_at = None
            case DeletePod():
                self.delete(action.pod)
            case WriteStatus():
                target = self.service if action.kind == "ModelService" else self.pools[action.name]
                target["status"] = copy.deepcopy(dict(action.status))
            case EmitEvent():
                self.events.append(action)

    # -- what happens by itself

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for name in sorted(self.pods):
            self._live(name, self.pods[name], self.lives[name])

    def is_still(self) -> bool:
        """Whether nothing more happens by itself."""
        for name, life in self.lives.items():
            starts = life.ready_at is not None and self.now < life.ready_at
            if starts or life.gone_at is not None or self.is_cordoned(name):
                return False
        return True

    def delete(self, pod: str) -> None:
        if (found := self.pods.get(pod)) is not None and not self.is_terminating(pod):
            found["metadata"]["deletionTimestamp"] = rfc3339(self.now)
            self.lives[pod].gone_at = self.now + self.pace.end_s()

    def is_ready(self, pod: str) -> bool:
        conditions = self.pods[pod].get("status", {}).get("conditions") or ()
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def is_terminating(self, pod: str) -> bool:
        """Or gone."""
        return pod not in self.pods or "deletionTimestamp" in self.pods[pod]["metadata"]

    def is_cordoned(self, pod: str) -> bool:
        return DRAINING_ANNOTATION in self.pods[pod]["metadata"]["annotations"]

    def active(self, pool: str) -> list[str]:
        """Neither on their way out nor ended."""
        return [
            name
            for name, pod in sorted(self.pods.items())
            if pod["metadata"]["labels"][POOL_LABEL] == pool and not self.is_terminating(name)
            and not self.is_cordoned(name) and pod["status"]["phase"] != "Failed"
        ]  # fmt: skip

    def serving(self, pool: str) -> list[str]:
        return [name for name in self.active(pool) if self.is_ready(name)]

    def revisions(self, pool: str) -> set[str]:
        return {self.pods[name]["metadata"]["labels"][REVISION_LABEL] for name in self.active(pool)}

    def serves_a_pair(self) -> bool:
        sides = [{self._pairing(name) for name in self.serving(pool)} for pool in (PREFILL, DECODE)]
        classes = layout_classes(sides[0] | sides[1])
        return not {classes[each] for each in sides[0]}.isdisjoint(classes[each] for each in sides[1])

    def replicas(self, pool: str) -> int:
        found: int = self.pools[pool]["spec"]["replicas"]
        return found

    def condition(self, kind: str, pool: str = "") -> tuple[str, str]:
        """Status and reason, of the ModelService or a pool."""
        return self.told(kind, pool)["status"], self.told(kind, pool)["reason"]

    def told(self, kind: str, pool: str = "") -> Json:
        status = (self.pools[pool] if pool else self.service)["status"]
        return next(item for item in status["conditions"] if item["type"] == kind)

    def event_reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    # -- inside

    def _pairing(self, pod: str) -> str:
        found: str = self.pods[pod]["metadata"]["annotations"][PAIRING_ANNOTATION]
        return found

    def _apply(self, body: Json) -> None:
        body = copy.deepcopy(dict(body))
        known = self.pools if body["kind"] == "WorkerPool" else self.budgets
        name = body["metadata"]["name"]
        before = known.get(name)
        body["metadata"]["uid"] = f"uid-{name}" if before is None else before["metadata"]["uid"]
        owned = {"metadata": {f"f:{key}": _tree(value) for key, value in body["metadata"].items() if key == "labels"}}
        entry = {"manager": APPLY_MANAGER, "operation": "Apply", "time": rfc3339(self.now)}
        entry["fieldsV1"] = {"f:metadata": owned["metadata"], "f:spec": _tree(body["spec"])}
        if before is not None:
            others = [each for each in before["metadata"]["managedFields"] if each["manager"] != APPLY_MANAGER]
            body["metadata"] = {**before["metadata"], **body["metadata"], "managedFields": [*others, entry]}
            kept = {key: before["spec"][key] for key in ("replicas",) if key in before["spec"]}
            body["spec"] = {**body["spec"], **kept}
            body |= {"status": before["status"]} if "status" in before else {}
        else:
            body["metadata"] |= {"managedFields": [entry], "generation": 0}
        body["metadata"]["generation"] += 1
        known[name] = defaulted(schema(WORKER_POOL), body) if body["kind"] == "WorkerPool" else body

    def _set_replicas(self, pool: Json, replicas: int, manager: str) -> None:
        pool["spec"]["replicas"] = replicas
        pool["metadata"]["generation"] += 1
        entries = pool["metadata"]["managedFields"]
        for entry in entries:
            entry["fieldsV1"].get("f:spec", {}).pop("f:replicas", None)
        entries[:] = [entry for entry in entries if entry["manager"] != manager]
        fields = {"f:spec": {"f:replicas": {}}}
        entries.append({"manager": manager, "operation": "Update", "time": rfc3339(self.now), "fieldsV1": fields})

    def _create(self, body: Json) -> None:
        pool, name = body["metadata"]["labels"][POOL_LABEL], body["metadata"]["name"]
        if pool in self.refused and self.quota is None:
            raise Refusal(self.refused[pool])
        if name in self.pods:
            return
        if self.quota is not None and len(self.pods) >= self.quota:
            self.refused[pool] = f"{self.refusal}: pods={self.quota}"
            return
        self.created += 1
        pod = copy.deepcopy(dict(body))
        pod["metadata"] |= {"uid": f"uid-pod-{self.created}", "creationTimestamp": rfc3339(self.now)}
        pod["status"] = {"phase": "Pending"}
        self.pods[name], self.lives[name] = pod, Life()

    def _mark(self, pod: str, since: str, reason: str) -> None:
        if pod not in self.pods:
            return
        self.pods[pod]["metadata"]["annotations"] |= {DRAINING_ANNOTATION: since, DRAIN_REASON_ANNOTATION: reason}
        self.lives[pod].idle_at = self.now + self.pace.drain_s()

    def _live(self, name: str, pod: Json, life: Life) -> None:
        if life.gone_at is not None and self.now >= life.gone_at:
            del self.pods[name], self.lives[name]
            return
        if pod["status"]["phase"] == "Failed":
            return
        if "nodeName" not in pod["spec"] and not self.is_terminating(name):
            self._schedule(pod, life)
        if life.ready_at is not None and self.now >= life.ready_at and "nodeName" in pod["spec"]:
            self._start(pod)
        draining = self.is_cordoned(name) or self.is_terminating(name)
        idle = life.idle_at is not None and self.now >= life.idle_at
        life.in_flight = 0 if not self.is_ready(name) or idle or (draining and not life.in_flight) else self.busy

    def _schedule(self, pod: Json, life: Life) -> None:
        if sum("nodeName" in each["spec"] for each in self.pods.values()) >= self.room:
            lack = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            pod["status"]["conditions"] = [
                {**lack, "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."}
            ]
            return
        pod["spec"]["nodeName"] = "node-1"
        pod["status"].pop("conditions", None)
        life.ready_at = self.now + self.pace.start_s()

    def _start(self, pod: Json) -> None:
        container = pod["spec"]["containers"][0]
        if container["image"] == BAD_IMAGE:
            waiting = {"reason": "ImagePullBackOff", "message": "not found"}
            pod["status"]["containerStatuses"] = [{"name": container["name"], "state": {"waiting": waiting}}]
            return
        role = pod["metadata"]["labels"][ROLE_LABEL]
        ready = {"type": "Ready", "status": "True"}
        started = [{"name": container["name"], "started": True, "ready": True}]
        pod["status"] = {
            "phase": "Running", "podIP": f"10.0.0.{len(role)}", "conditions": [ready], "containerStatuses": started,
        }  # fmt: skip


def _tree(value: Json) -> Json:
    """As `fieldsV1` has it, lists as a whole."""
    return {f"f:{key}": _tree(item) for key, item in value.items()} if isinstance(value, Mapping) else {}
