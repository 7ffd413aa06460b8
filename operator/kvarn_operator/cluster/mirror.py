"""The operator's own copy of the objects it follows, by the ModelService they belong to.

Three hands write here, all in the event loop: the watch, the lists that heal what the watch lost, and the operator's
own writes, so that no decision is made on a view older than the last own write. Of two versions of an object, and of
two objects of one name, the newer one stays; an object seen deleted does not come back. Read by `gathering`, the
sampler and the event recorder.
"""

import enum
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType

from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL, Kind
from kvarn_operator.resources.labels import MODEL_SERVICE_LABEL
from kvarn_operator.resources.names import bounded

Resource = Mapping[str, Any]
Uid = NewType("Uid", str)

TOMBSTONE_S = 600.0
"""Far longer than any answer or watch event can be late."""

FOR_GOOD = sys.maxsize


class ServiceKey(NamedTuple):
    namespace: str
    name: str
    """As in labels, so at most 63 characters; the ModelService's own name may be longer."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Source(enum.Enum):
    WATCH = "watch"
    LIST = "list"
    OWN_WRITE = "own write"


@dataclass(slots=True)
class _Entry:
    key: ServiceKey
    kind: Kind
    resource: Resource
    version: int
    told: int = -1
    """Newest version that the watch has delivered."""

    untold_since: float | None = None
    """When a list first showed a version that the watch had not."""


@dataclass(frozen=True, slots=True)
class _Tombstone:
    at: float
    version: int
    """Only a newer object comes back: one whose labels are ours again."""


def service_key(kind: Kind, resource: Resource) -> ServiceKey | None:
    metadata = resource["metadata"]
    if kind == MODEL_SERVICE:
        name = metadata["name"]
    elif kind == WORKER_POOL:
        name = (resource.get("spec") or {}).get("modelService")
    else:
        name = (metadata.get("labels") or {}).get(MODEL_SERVICE_LABEL)
    return ServiceKey(metadata["namespace"], bounded(name)) if name else None


class Mirror:
    def __init__(self, clock: Callable[[], float], on_change: Callable[[ServiceKey], None]) -> None:
        """`on_change` hears of each service of which something is new."""
        self._clock = clock
        self._on_change = on_change
        self._entries: dict[Uid, _Entry] = {}
        self._services: dict[ServiceKey, set[Uid]] = {}
        self._gone: dict[Uid, _Tombstone] = {}

    def put(self, kind: Kind, resource: Resource, source: Source) -> bool:
        """Take over an object, unless it is older than what is here or known to be gone. Whether it was new."""
        uid, version, key = Uid(resource["metadata"]["uid"]), version_of(resource), service_key(kind, resource)
        entry = self._entries.get(uid)
        tombstone = self._gone.get(uid)
        if key is None or (tombstone is not None and version <= tombstone.version):
            return False
        new = entry is None or version > entry.version or version < 0
        if entry is None:
            if not self._succeeds(key, kind, resource, version):
                return False
            self._gone.pop(uid, None)
            entry = self._entries[uid] = _Entry(key, kind, _slim(kind, resource), version)
            self._services.setdefault(key, set()).add(uid)
            self._on_change(key)
        elif new:
            self._renew(uid, entry, key, _slim(kind, resource), version)
        if source is Source.WATCH:
            entry.told = max(entry.told, version)
        entry.untold_since = None if entry.told >= entry.version else entry.untold_since
        return new

    def remove(self, resource_uid: str, version: int = FOR_GOOD) -> None:
        """The object is gone, or no longer ours, as of this version."""
        uid = Uid(resource_uid)
        self._gone[uid] = _Tombstone(self._clock(), version)
        if (entry := self._entries.pop(uid, None)) is not None:
            self._leave(entry.key, uid)
            self._on_change(entry.key)

    def reset(self, kind: Kind, namespace: str, items: tuple[Resource, ...], list_version: str) -> None:
        """Take over a whole list. What it lacks is gone, unless it is newer than the list."""
        now, limit = self._clock(), _number(list_version)
        listed = {Uid(item["metadata"]["uid"]) for item in items}
        for uid, entry in list(self._entries.items()):
            here = entry.kind == kind and namespace in ("", entry.key.namespace)
            if here and uid not in listed and (limit < 0 or entry.version <= limit):
                self.remove(uid, limit)
        for item in items:
            self.put(kind, item, Source.LIST)
            entry_now = self._entries.get(Uid(item["metadata"]["uid"]))
            if entry_now is not None and entry_now.told < entry_now.version and entry_now.untold_since is None:
                entry_now.untold_since = now
        self._gone = {uid: each for uid, each in self._gone.items() if each.at > now - TOMBSTONE_S}

    def untold_for_s(self, kind: Kind) -> float:
        """How long lists have shown an object of this kind that the watch has not delivered; 0: nothing is missing."""
        since = [each.untold_since for each in self._entries.values() if each.kind == kind]
        return max((self._clock() - at for at in since if at is not None), default=0.0)

    def services(self) -> tuple[ServiceKey, ...]:
        return tuple(sorted(self._services))

    def of(self, key: ServiceKey, kind: Kind) -> tuple[Resource, ...]:
        """The objects of one kind of a service, by name."""
        found = [entry.resource for entry in self._entries_of(key) if entry.kind == kind]
        return tuple(sorted(found, key=lambda resource: str(resource["metadata"]["name"])))

    def find(self, key: ServiceKey, kind: Kind, name: str) -> Resource | None:
        return next((each for each in self.of(key, kind) if each["metadata"]["name"] == name), None)

    def _entries_of(self, key: ServiceKey) -> Iterator[_Entry]:
        return (self._entries[uid] for uid in self._services.get(key, ()))

    def _succeeds(self, key: ServiceKey, kind: Kind, resource: Resource, version: int) -> bool:
        """Whether it is the newest of its name; the one before is gone then, even if nobody told of its end."""
        name = resource["metadata"]["name"]
        namesakes = [
            entry
            for entry in self._entries_of(key)
            if entry.kind == kind and entry.resource["metadata"]["name"] == name
        ]
        if 0 <= version < max((entry.version for entry in namesakes), default=0):
            return False
        for entry in namesakes:
            self.remove(entry.resource["metadata"]["uid"])
        return True

    def _renew(self, uid: Uid, entry: _Entry, key: ServiceKey, resource: Resource, version: int) -> None:
        """A changed label moves an object to another service; both hear of it."""
        if key != entry.key:
            self._leave(entry.key, uid)
            self._on_change(entry.key)
            self._services.setdefault(key, set()).add(uid)
        entry.key, entry.resource, entry.version = key, resource, version
        self._on_change(key)

    def _leave(self, key: ServiceKey, uid: Uid) -> None:
        members = self._services[key]
        members.discard(uid)
        if not members:
            del self._services[key]


def version_of(resource: Resource) -> int:
    return _number(resource["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """Resource versions of Kubernetes are comparable numbers; -1 for one that is not, which then counts as newer."""
    return int(version) if version.isdecimal() else -1


def _slim(kind: Kind, resource: Resource) -> Resource:
    """Without who wrote which field of a pod: nothing reads it, and it is half of the object."""
    if kind != POD:
        return resource
    metadata = {name: value for name, value in resource["metadata"].items() if name != "managedFields"}
    return {**resource, "metadata": metadata}
