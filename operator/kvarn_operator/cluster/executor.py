"""Carries out what a reconcile asked for, in order. What the server answers goes into the mirror at once.

Leadership is asked before every call. A failure that may come from an old picture stops what acts; what only reports
(status, Events) still goes out unless the server is out of reach. A refusal stops only what depends on it: a quota must
hold neither another pool back nor the drains that will make room. Owned by the controller, for one model at a time.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.election import Leadership
from kvarn_operator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    NotFound,
    NotLeading,
    Refused,
    Unavailable,
)
from kvarn_operator.cluster.event_recorder import EventRecorder, Notice
from kvarn_operator.cluster.kinds import POD, WORKER_POOL, Kind, kind_named, kind_of
from kvarn_operator.cluster.mirror import Mirror, Resource, ServiceKey, Source, service_key
from kvarn_operator.reconcile.actions import (
    Action,
    Apply,
    Body,
    Cordon,
    CreatePod,
    DeletePod,
    EmitEvent,
    Plan,
    SetReplicas,
    Uncordon,
    WriteStatus,
)
from kvarn_operator.resources.labels import (
    APPLY_MANAGER,
    COMPONENT_LABEL,
    DRAIN_REASON_ANNOTATION,
    DRAINING_ANNOTATION,
    MODEL_SERVICE_LABEL,
    POOL_LABEL,
    SEEDED_REPLICAS_ANNOTATION,
    STATUS_MANAGER,
    WRITTEN_REPLICAS_ANNOTATION,
)
from kvarn_operator.scaling.spec import PoolName

logger = logging.getLogger("kvarn.operator.executor")

_OUR_LABELS = (MODEL_SERVICE_LABEL, POOL_LABEL, COMPONENT_LABEL)


class Meter(Protocol):
    def acted(self, action: str, succeeded: bool) -> None: ...


@dataclass(slots=True)
class _Refusals:
    """Of one model, in the last plan."""

    pods: dict[PoolName, str] = field(default_factory=dict)
    object: str = ""


class Executor:
    def __init__(self, api: Api, mirror: Mirror, recorder: EventRecorder, leadership: Leadership, meter: Meter) -> None:
        self._api = api
        self._mirror = mirror
        self._recorder = recorder
        self._leadership = leadership
        self._meter = meter
        self._refusals: dict[ServiceKey, _Refusals] = {}

    def refused(self, key: ServiceKey) -> Mapping[PoolName, str]:
        """Why pods of these pools were refused the last time."""
        return dict(self._refusals[key].pods) if key in self._refusals else {}

    def refused_object(self, key: ServiceKey) -> str:
        """Why a pool or a budget was refused the last time."""
        return self._refusals[key].object if key in self._refusals else ""

    async def carry_out(self, key: ServiceKey, plan: Plan) -> bool:
        """Whether anything became new by it, Events aside. Raises the first ClusterError.

        A write that the API server takes and that changes nothing, since an older CRD drops the field, is no reason to
        look again at once.
        """
        self._refusals.pop(key, None)  # told anew by the actions of this plan
        first: ClusterError | None = None
        wrote, stale = False, False
        for action in plan.actions:
            if stale and not isinstance(action, WriteStatus | EmitEvent):
                continue
            if isinstance(action, CreatePod) and _pool_of(action.body) in self.refused(key):
                continue
            try:
                wrote = await self._carry_out(key, action) or wrote
            except (NotLeading, Unavailable):
                raise
            except ClusterError as error:
                first = first or error
                stale = stale or not isinstance(error, Refused)
                if isinstance(error, Refused):
                    self._remember(key, action, str(error))
        if first is not None:
            raise first
        return wrote

    async def _carry_out(self, key: ServiceKey, action: Action) -> bool:
        self._leadership.check()
        name = type(action).__name__
        try:
            wrote = await self._act(key, action)
        except ClusterError:
            self._meter.acted(name, succeeded=False)
            raise
        self._meter.acted(name, succeeded=True)
        if not isinstance(action, WriteStatus | EmitEvent):
            logger.info("done", extra={"model": str(key), "action": name, "object": _target(action)})
        return wrote

    async def _act(self, key: ServiceKey, action: Action) -> bool:
        match action:
            case Apply():
                kind = kind_of(action.body)
                return self._take_over(kind, await self._api.apply(kind, action.body, APPLY_MANAGER))
            case SetReplicas():
                body = replicas_body(key.namespace, self._mirror.find(key, WORKER_POOL, action.pool), action)
                return self._take_over(WORKER_POOL, await self._api.apply(WORKER_POOL, body, action.manager))
            case CreatePod():
                return self._take_over(POD, await self._created(key, action.body))
            case Cordon():
                marks = {DRAINING_ANNOTATION: action.since, DRAIN_REASON_ANNOTATION: action.reason}
                return await self._annotate(key, action.pod, action.uid, marks)
            case Uncordon():
                no_marks = {DRAINING_ANNOTATION: None, DRAIN_REASON_ANNOTATION: None}
                return await self._annotate(key, action.pod, action.uid, no_marks)
            case DeletePod():
                await self._delete(key, action)
                return True
            case WriteStatus():
                return await self._write_status(key, action)
            case EmitEvent():
                await self._emit(key, action)
                return False

    def _take_over(self, kind: Kind, written: Resource) -> bool:
        return self._mirror.put(kind, written, Source.OWN_WRITE)

    async def _created(self, key: ServiceKey, body: Body) -> Resource:
        """A repeated creation is done already. Raises Refused when the name is somebody else's."""
        try:
            created: Resource = await self._api.create(POD, key.namespace, body, APPLY_MANAGER)
            return created
        except AlreadyExists:
            found: Resource = await self._api.get(POD, key.namespace, body["metadata"]["name"])
        if _is_the_pod(found, body):
            return found
        name = found["metadata"]["name"]
        if service_key(POD, found) == key:
            self._take_over(POD, found)  # seen, its name is taken: the next reconcile chooses another one
            raise Conflict(f"pod {name} exists and is no pod of its pool")
        raise Refused(f"pod {name} exists and is none of the operator's: delete it, or the pool lacks a pod")

    def _remember(self, key: ServiceKey, action: Action, why: str) -> None:
        """Pods of a pool whose number was refused wait too."""
        refusals = self._refusals.setdefault(key, _Refusals())
        match action:
            case CreatePod():
                refusals.pods[_pool_of(action.body)] = why
            case SetReplicas():
                refusals.pods[action.pool] = why
            case Apply():
                refusals.object = refusals.object or why

    async def _annotate(self, key: ServiceKey, pod: str, uid: str, marks: Mapping[str, str | None]) -> bool:
        body = {"metadata": {"uid": uid, "annotations": dict(marks)}}
        try:
            return self._take_over(POD, await self._api.merge(POD, key.namespace, pod, body, APPLY_MANAGER))
        except NotFound:
            self._mirror.remove(uid)
            return True

    async def _delete(self, key: ServiceKey, action: DeletePod) -> None:
        try:
            answer = await self._api.delete(POD, key.namespace, action.pod, action.uid)
        except (NotFound, Conflict):
            # The name is free or another pod's: this one is gone.
            self._mirror.remove(action.uid)
            return
        if answer.get("kind") == "Pod" and "deletionTimestamp" in answer["metadata"]:
            self._take_over(POD, answer)
        else:
            self._mirror.remove(action.uid)

    async def _write_status(self, key: ServiceKey, action: WriteStatus) -> bool:
        kind = kind_named(action.kind)
        metadata = {"namespace": key.namespace, "name": action.name}
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "status": action.status}
        try:
            return self._take_over(kind, await self._api.apply(kind, body, STATUS_MANAGER, "status"))
        except NotFound:
            return False  # deleted in the meantime: nobody is left to read it

    async def _emit(self, key: ServiceKey, action: EmitEvent) -> None:
        about = self._mirror.find(key, kind_named(action.kind), action.name)
        if about is not None:
            await self._recorder.record(about, Notice(action.reason, action.message, action.warning))


def _is_the_pod(found: Resource, wanted: Body) -> bool:
    """Of the same pool, and not one that somebody took out of it by a label."""
    uids = [{owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()} for pod in (found, wanted)]
    ours, theirs = wanted["metadata"]["labels"], found["metadata"].get("labels") or {}
    return bool(uids[0] & uids[1]) and all(theirs.get(name) == ours.get(name) for name in _OUR_LABELS)


def _pool_of(pod: Body) -> PoolName:
    return PoolName(pod["metadata"]["labels"][POOL_LABEL])


def replicas_body(namespace: str, pool: Resource | None, action: SetReplicas) -> Body:
    """The UID makes it a change of the pool that was seen, never the creation of another one."""
    annotations = {WRITTEN_REPLICAS_ANNOTATION: str(action.replicas)}
    if action.seeded is not None:
        annotations[SEEDED_REPLICAS_ANNOTATION] = str(action.seeded)
    metadata: dict[str, object] = {"namespace": namespace, "name": action.pool, "annotations": annotations}
    if pool is not None:
        metadata["uid"] = pool["metadata"]["uid"]
    return {
        "apiVersion": WORKER_POOL.api_version,
        "kind": WORKER_POOL.name,
        "metadata": metadata,
        "spec": {"replicas": action.replicas},
    }


def _target(action: Action) -> str:
    match action:
        case Apply() | CreatePod():
            return str(action.body["metadata"]["name"])
        case SetReplicas():
            return f"{action.pool}={action.replicas}"
        case Cordon() | Uncordon() | DeletePod():
            return action.pod
        case _:
            return ""
