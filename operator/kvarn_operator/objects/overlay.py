"""The escape hatch: a user's `podTemplate` merged over a built pod, with what the operator relies on put back.

Called by the pod's builder. Maps merge by key, lists of named things by name, volume mounts by path; anything else is
replaced, and null takes a field away. The parsers refuse most of what is put back, and tell the user so.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kvarn_operator.resources.labels import DELETION_COST_ANNOTATION, GROUP
from kvarn_operator.resources.pod_contract import WORKER_CONTAINER

Tree = dict[str, Any]

_OWN_IN_SPEC = ("enableServiceLinks", "restartPolicy", "terminationGracePeriodSeconds")
_OWN_IN_WORKER = ("command", "args", "image")


def overlaid(built: Mapping[str, Any], template: Any) -> Tree:
    """`built` is not changed. Without a template it is the result."""
    if not isinstance(template, Mapping):
        return dict(built)
    metadata = template.get("metadata") or {}
    wanted = {
        "metadata": {key: _foreign(metadata.get(key) or {}) for key in ("labels", "annotations")},
        "spec": template.get("spec") or {},
    }
    merged: Tree = _merged(built, wanted)
    _put_back(merged["spec"], built["spec"])
    for key in ("labels", "annotations"):
        merged["metadata"][key].update(built["metadata"][key])
    return merged


def _foreign(entries: Mapping[str, Any]) -> Tree:
    """Neither ours nor what tells a drain from a scale-down."""
    reserved = (f"{GROUP}/", DELETION_COST_ANNOTATION)
    return {key: value for key, value in entries.items() if not key.startswith(reserved)}


def _put_back(spec: Tree, built: Mapping[str, Any]) -> None:
    """The process, its ports and how it ends. Variables of services would be taken for unknown settings."""
    spec.update({key: built[key] for key in _OWN_IN_SPEC})
    (ours,) = built["containers"]
    containers = spec.get("containers") or []
    worker = next((each for each in containers if _name(each) == WORKER_CONTAINER), None)
    if worker is None:
        spec["containers"] = [ours, *containers]
        return
    worker.update({key: ours[key] for key in _OWN_IN_WORKER})
    taken = {port["name"] for port in ours["ports"]}
    worker["ports"] = [*ours["ports"], *(port for port in worker.get("ports") or () if _name(port) not in taken)]
    pod_name = ours["env"][0]
    worker["env"] = [pod_name, *(each for each in worker.get("env") or () if _name(each) != pod_name["name"])]


def _merged(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        merged = {key: _merged(ours.get(key), value) for key, value in theirs.items() if value is not None}
        return {**{key: value for key, value in ours.items() if key not in theirs}, **merged}
    if isinstance(ours, list) and isinstance(theirs, list):
        for key in (_mount_path, _name):
            if theirs and all(key(each) for each in (*ours, *theirs)):
                return _by_key(ours, theirs, key)
    if isinstance(theirs, Mapping):
        return {key: _merged(None, value) for key, value in theirs.items() if value is not None}
    return theirs


def _by_key(ours: list[Any], theirs: list[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Our order, then what is new."""
    by_key = {key(each): each for each in ours}
    for each in theirs:
        by_key[key(each)] = _merged(by_key.get(key(each)), each)
    return list(by_key.values())


def _name(item: Any) -> Any:
    return item.get("name") if isinstance(item, Mapping) else None


def _mount_path(item: Any) -> Any:
    return item.get("mountPath") if isinstance(item, Mapping) else None
