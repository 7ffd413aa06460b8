"""Events: what is told once, when it becomes so. Found by comparing the status before with the status to be written.

Called by `service`, ahead of the write, so that a crash between the two repeats an Event rather than losing it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kvarn_operator.reconcile.actions import EmitEvent

Status = Mapping[str, Any]

_WARNINGS = frozenset({
    ("Accepted", "False", "InvalidSpec"), ("Accepted", "False", "NoModelService"),
    ("Accepted", "False", "ObjectRefused"),
    ("CapacityAvailable", "False", "Unschedulable"), ("CapacityAvailable", "False", "PodsRefused"),
    ("Ready", "False", "ImageProblem"), ("Ready", "False", "WorkerCrashing"), ("Ready", "False", "PairingMismatch"),
    ("Ready", "False", "ConfigurationProblem"),
    ("Progressing", "False", "RolloutBlocked"), ("Draining", "True", "PodsStuck"),
    ("ScalingActive", "False", "MetricsMissing"),
    ("ReplicasConflict", "True", "SeveralWriters"),
})  # fmt: skip
"""Type, status and reason of conditions that call for a person."""

_ROLLING = ("RollingOut", "RolloutBlocked")


def pool_reports(name: str, before: Status, after: Status) -> Iterator[EmitEvent]:
    yield from warnings("WorkerPool", name, before, after)
    yield from _rollout(name, before, after)
    yield from _override(name, before, after)
    yield from _scaled(name, before, after)


def warnings(kind: str, name: str, before: Status, after: Status) -> Iterator[EmitEvent]:
    """A reason that was there before is not told again, save what is wrong with another spec."""
    known = {_told(item) for item in before.get("conditions") or ()}
    for item in after["conditions"]:
        key = _key(item)
        if key in _WARNINGS and _told(item) not in known:
            yield EmitEvent(kind, name, key[2], item.get("message", ""), warning=True)


def _scaled(name: str, before: Status, after: Status) -> Iterator[EmitEvent]:
    latest = after["decisions"][-1]
    if latest in (before.get("decisions") or ()) or latest["from"] == latest["to"]:
        return
    reason = "ScaledDown" if latest["to"] < latest["from"] else "ScaledUp"
    message = f"{latest['from']} to {latest['to']} replicas, {latest['reason']}: {latest['message']}"
    yield EmitEvent("WorkerPool", name, reason, message)


def _rollout(name: str, before: Status, after: Status) -> Iterator[EmitEvent]:
    was, now = _condition(before, "Progressing"), _condition(after, "Progressing")
    message = str(now.get("message", ""))
    if now.get("reason") in _ROLLING and was.get("reason") not in _ROLLING:
        yield EmitEvent("WorkerPool", name, "RolloutBegun", message)
    if was.get("reason") in _ROLLING and now.get("reason") not in _ROLLING:
        yield EmitEvent("WorkerPool", name, "RolloutEnded", "old pods serve no more, or drain")


def _override(name: str, before: Status, after: Status) -> Iterator[EmitEvent]:
    was, now = before.get("override"), after.get("override")
    if now and now != was:
        message = f"{now['replicas']} replicas, set by {now['writer']}, hold until {now['until']}"
        yield EmitEvent("WorkerPool", name, "OverrideBegun", message)
    if was and not now:
        message = f"{was.get('replicas')} replicas, set by {was.get('writer')}, hold no more: replicas follow the load"
        yield EmitEvent("WorkerPool", name, "OverrideEnded", message)


def _condition(status: Status, kind: str) -> Status:
    return next((item for item in status.get("conditions") or () if item.get("type") == kind), {})


def _key(item: Status) -> tuple[str, str, str]:
    return str(item.get("type")), str(item.get("status")), str(item.get("reason"))


def _told(item: Status) -> tuple[object, ...]:
    return (*_key(item), item.get("message") if item.get("type") == "Accepted" else None)
