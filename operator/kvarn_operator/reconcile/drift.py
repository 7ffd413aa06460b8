"""Whether a live object still says what the operator wants it to say. Pure; used before every `Apply` and status write.

Only what the operator owns counts: others may add fields, labels and owners, and the API server its defaults.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kvarn_operator.resources.labels import APPLY_MANAGER


def drifted(wanted: Mapping[str, Any], live: Mapping[str, Any] | None) -> bool:
    """Missing, different, or still holding something that was applied before and is wanted no more."""
    return live is None or not _covers(live, wanted) or any(_holds_more(owned, wanted, live) for owned in _owned(live))


def status_differs(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Conditions count in any order: a server-side apply merges them by type."""
    return _with_conditions_by_type(live) != _with_conditions_by_type(wanted)


def _with_conditions_by_type(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return {**status, "conditions": {condition.get("type"): condition for condition in conditions}}


def _covers(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers_field(live, key, value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        if not isinstance(live, list | tuple) or len(live) != len(wanted):
            return False
        return all(_covers(one, other) for one, other in zip(live, wanted, strict=True))
    return bool(live == wanted)


def _covers_field(live: Mapping[str, Any], key: str, wanted: Any) -> bool:
    """An empty value and an absent one are the same."""
    if key == "ownerReferences":
        return all(any(_covers(owner, each) for owner in live.get(key) or ()) for each in wanted)
    if _is_empty(wanted) and _is_empty(live.get(key)):
        return True
    return key in live and _covers(live[key], wanted)


def _owned(live: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What APPLY_MANAGER owns outside status, as managedFields tells."""
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        if entry.get("manager") == APPLY_MANAGER and not entry.get("subresource"):
            yield entry.get("fieldsV1") or {}


def _holds_more(owned: Mapping[str, Any], wanted: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """`owned` names a value that is owned as a whole by `{}`; items of lists (`k:`, `v:`) go by the list's length."""
    for key, below in owned.items():
        name = key.removeprefix("f:")
        if name == key:
            continue
        ours, theirs = wanted.get(name), live.get(name)
        if name not in wanted and not _is_empty(theirs):
            return True
        if not below and isinstance(ours, Mapping | list | tuple) and not _is_empty(ours) and not _same(ours, theirs):
            return True
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and _holds_more(below, ours, theirs):
            return True
    return False


def _same(one: Any, other: Any) -> bool:
    return _covers(one, other) and _covers(other, one)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)
