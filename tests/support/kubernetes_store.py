"""What an API server does to objects, in memory: versions, merge patches, server-side apply, subresources, cascades.

Only as much as the operator relies on. Used by `tests.support.kubernetes_api`, which serves it over HTTP.
"""

import copy
import datetime
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any
Path = tuple[str, ...]


class Answer(Exception):
    """A refusal, as the HTTP status with the Status object's reason."""

    def __init__(self, code: int, reason: str, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


@dataclass(frozen=True)
class Served:
    group_version: str
    kind: str
    plural: str
    subresources: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        return f"/apis/{self.group_version}" if "/" in self.group_version else f"/api/{self.group_version}"


KINDS = (
    Served("v1", "Pod", "pods", ("status",)),
    Served("v1", "Event", "events"),
    Served("v1", "Namespace", "namespaces"),
    Served("kvarn.dev/v1alpha1", "ModelService", "modelservices", ("status",)),
    Served("kvarn.dev/v1alpha1", "WorkerPool", "workerpools", ("status", "scale")),
    Served("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", ("status",)),
    Served("coordination.k8s.io/v1", "Lease", "leases"),
    Served("events.k8s.io/v1", "Event", "events"),
    Served("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
)


@dataclass(frozen=True)
class Change:
    version: int
    kind: Served
    type: str
    object: Json


Key = tuple[str, str, str]
"""Group version and plural in one, namespace, name."""


@dataclass
class Store:
    objects: dict[Key, Json] = field(default_factory=dict)
    version: int = 1000
    changes: list[Change] = field(default_factory=list)
    listeners: list[Callable[[Change], None]] = field(default_factory=list)
    on_create: Callable[[Served, Json], None] | None = None
    """Sees an object before it is stored, such as to play the kubelet; may raise Answer to refuse it."""

    pods_linger: bool = False
    """A deleted pod stays Terminating until `finish`."""

    _applied: dict[tuple[Key, str, str], Json] = field(default_factory=dict)
    _uids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def get(self, kind: Served, namespace: str, name: str) -> Json:
        key = _key(kind, namespace, name)
        if key not in self.objects:
            raise Answer(404, "NotFound", f"{kind.plural} {name!r} not found")
        return self.objects[key]

    def list(self, kind: Served, namespace: str, selector: str = "") -> list[Json]:
        found = [each for key, each in self.objects.items() if key[0] == _root(kind) and namespace in ("", key[1])]
        return [each for each in found if matches(each, selector)]

    def create(self, kind: Served, namespace: str, body: Json, manager: str = "test") -> Json:
        body = copy.deepcopy(body)
        key = _key(kind, namespace, body["metadata"]["name"])
        if key in self.objects:
            raise Answer(409, "AlreadyExists", f"{kind.plural} {key[2]!r} already exists")
        metadata = body["metadata"] = {"namespace": namespace, **body["metadata"]}
        metadata |= {"uid": f"uid-{next(self._uids)}", "creationTimestamp": _now(), "generation": 1}
        if kind.plural == "workerpools":
            body.setdefault("spec", {}).setdefault("replicas", 1)
        if "status" in kind.subresources:
            body.pop("status", None)
        if self.on_create is not None:
            self.on_create(kind, body)
        self._own(body, manager, "Update", _paths(body.get("spec") or {}, ("spec",)))
        return self._store(kind, key, body, "ADDED")

    def replace(self, kind: Served, namespace: str, name: str, body: Json) -> Json:
        before = self.get(kind, namespace, name)
        if body["metadata"].get("resourceVersion") not in (None, before["metadata"]["resourceVersion"]):
            raise Answer(409, "Conflict", f"{kind.plural} {name!r} was modified")
        after = {**copy.deepcopy(body), "metadata": {**before["metadata"], **body["metadata"]}}
        return self._update(kind, before, after)

    def merge(self, kind: Served, namespace: str, name: str, patch: Json, subresource: str = "") -> Json:
        before = self.get(kind, namespace, name)
        if (patch.get("metadata") or {}).get("uid") not in (None, before["metadata"]["uid"]):
            raise Answer(409, "Conflict", "the UID in the precondition is another one")
        patch = {"status": patch.get("status")} if subresource == "status" else {**patch}
        return self._update(kind, before, merged(before, patch))

    def scale(self, kind: Served, namespace: str, name: str, replicas: int, manager: str = "kubectl") -> Json:
        before = self.get(kind, namespace, name)
        after = merged(before, {"spec": {"replicas": replicas}})
        self._own(after, manager, "Update", {("spec", "replicas")})
        return self._update(kind, before, after)

    def apply(self, kind: Served, namespace: str, body: Json, manager: str, subresource: str = "") -> Json:
        name = body["metadata"]["name"]
        key = _key(kind, namespace, name)
        part = {"status": body.get("status")} if subresource else {k: v for k, v in body.items() if k != "status"}
        if key not in self.objects:
            if subresource or "uid" in body["metadata"]:
                raise Answer(404 if subresource else 409, "NotFound" if subresource else "Conflict", name)
            created = self.create(kind, namespace, part, manager)
            self._applied[(key, manager, subresource)] = copy.deepcopy(part)
            return created
        before = self.objects[key]
        if body["metadata"].get("uid") not in (None, before["metadata"]["uid"]):
            raise Answer(409, "Conflict", "uid mismatch")
        gone = _without(self._applied.get((key, manager, subresource), {}), part)
        after = merged(_drop(copy.deepcopy(before), gone), part)
        after["metadata"] = {**after["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
        self._own(after, manager, "Apply", _paths(part.get("spec") or {}, ("spec",)))
        self._applied[(key, manager, subresource)] = copy.deepcopy(part)
        return self._update(kind, before, after)

    def delete(self, kind: Served, namespace: str, name: str, uid: str | None = None) -> Json:
        found = self.get(kind, namespace, name)
        if uid not in (None, found["metadata"]["uid"]):
            raise Answer(409, "Conflict", "the UID in the precondition is another one")
        if kind.plural == "pods" and self.pods_linger:
            if "deletionTimestamp" in found["metadata"]:
                return found
            after = merged(found, {"metadata": {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 30}})
            return self._update(kind, found, after)
        return self._remove(kind, found)

    def finish(self, kind: Served, namespace: str, name: str) -> None:
        """The last of an object that lingered."""
        self._remove(kind, self.get(kind, namespace, name))

    def _remove(self, kind: Served, found: Json) -> Json:
        metadata = found["metadata"]
        del self.objects[_key(kind, metadata["namespace"], metadata["name"])]
        gone = self._log(kind, "DELETED", copy.deepcopy(found))
        for (root, namespace, name), each in list(self.objects.items()):
            owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()}
            if metadata["uid"] in owners and (root, namespace, name) in self.objects:
                self._remove(next(one for one in KINDS if _root(one) == root), each)
        return gone

    def _update(self, kind: Served, before: Json, after: Json) -> Json:
        if _without_times(before) == _without_times(after):
            return before
        if before.get("spec") != after.get("spec"):
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        metadata = after["metadata"]
        return self._store(kind, _key(kind, metadata["namespace"], metadata["name"]), after, "MODIFIED")

    def _store(self, kind: Served, key: Key, body: Json, change: str) -> Json:
        body = {"apiVersion": kind.group_version, "kind": kind.kind, **body}
        self.objects[key] = body
        return self._log(kind, change, body)

    def _log(self, kind: Served, change: str, body: Json) -> Json:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        entry = Change(self.version, kind, change, copy.deepcopy(body))
        self.changes.append(entry)
        for listener in self.listeners:
            listener(entry)
        return body

    def _own(self, body: Json, manager: str, operation: str, paths: set[Path]) -> None:
        """managedFields: the manager has these fields now and nobody else does."""
        entries = body["metadata"].setdefault("managedFields", [])
        kept = []
        for entry in copy.deepcopy(entries):
            if (entry["manager"], entry["operation"]) == (manager, operation) and operation == "Apply":
                continue
            fields = _paths(entry["fieldsV1"], ()) - {tuple(f"f:{name}" for name in path) for path in paths}
            if fields:
                kept.append({**entry, "fieldsV1": _tree(fields)})
        fields_v1 = _tree({tuple(f"f:{name}" for name in path) for path in paths})
        mine = {"manager": manager, "operation": operation, "time": _now(), "fieldsV1": fields_v1}
        old = [entry for entry in entries if _same(entry, mine)]
        body["metadata"]["managedFields"] = [*kept, *(old[:1] or [mine])] if paths else kept


def matches(resource: Json, selector: str) -> bool:
    labels = resource["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True


def merged(base: Json, patch: Json) -> Json:
    """JSON merge patch."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    found = copy.deepcopy(base) if isinstance(base, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _paths(tree: Json, prefix: Path) -> set[Path]:
    if not isinstance(tree, Mapping) or not tree:
        return {prefix}
    return set().union(*(_paths(value, (*prefix, name)) for name, value in tree.items()))


def _tree(paths: set[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        node = root
        for name in path:
            node = node.setdefault(name, {})
    return root


def _without(before: Json, after: Json) -> set[Path]:
    """Paths that a manager applied before and does no longer."""
    return {path for path in _paths(before, ()) if path and not _has(after, path)}


def _has(tree: Json, path: Path) -> bool:
    for name in path:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def _drop(tree: Json, paths: set[Path]) -> Json:
    for *parents, last in paths:
        node = tree
        for name in parents:
            node = node.get(name) if isinstance(node, Mapping) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return tree


def _same(one: Json, other: Json) -> bool:
    return all(one[name] == other[name] for name in ("manager", "operation", "fieldsV1"))


def _without_times(resource: Json) -> Json:
    metadata = {name: value for name, value in resource["metadata"].items() if name != "resourceVersion"}
    return {**resource, "metadata": metadata}


def _key(kind: Served, namespace: str, name: str) -> Key:
    return _root(kind), namespace, name


def _root(kind: Served) -> str:
    return f"{kind.root}/{kind.plural}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
