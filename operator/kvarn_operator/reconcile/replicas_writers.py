"""Who keeps writing a pool's `replicas`, and whether they fight. History lives in `status.scaling.writers`.

A hand-over from one writer to another is no fight; going back and forth is. In SLO mode a person's write is an
override (shown with its end), but a controller that writes again and again fights the planner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvarn_operator.resources.worker_pool_parsing import UNTRACKED_WRITER
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import ScalingMode

WINDOW_S = 600.0
KEPT = 6

_PEOPLE = ("kubectl", "kvarn", "k9s", "Mozilla", "dashboard")
"""How the managers of tools begin that act only when a person asks.

Who wrote through an API server that does not tell may be one too, and gets the benefit of the doubt once more.
"""


@dataclass(frozen=True, slots=True)
class Write:
    writer: str
    at: float
    """As the API server tells it; with the writer it tells one write from another."""

    seen_at: float


def remembered(saved: Any, write: ReplicasWrite | None, now: float) -> tuple[Write, ...]:
    """The last foreign writes, oldest first."""
    known = tuple(_known(saved, now))
    if write is None or not write.foreign or (known and (known[-1].writer, known[-1].at) == (write.writer, write.at)):
        return known
    return (*known, Write(write.writer, write.at, now))[-KEPT:]


def fighters(writes: tuple[Write, ...], mode: ScalingMode, now: float) -> tuple[str, ...]:
    """Names of those who fight, sorted; empty when nobody does."""
    recent = [write.writer for write in writes if now - write.seen_at <= WINDOW_S]
    turns = [name for name, before in zip(recent, [None, *recent], strict=False) if name != before]
    if len(turns) >= 3:
        return tuple(sorted(set(turns)))
    if mode is not ScalingMode.SLO:
        return ()
    controllers = [name for name in recent if not name.startswith(_PEOPLE)]
    untracked = controllers.count(UNTRACKED_WRITER)
    if len(controllers) - untracked >= 2 or untracked >= 3:
        return tuple(sorted(set(controllers)))
    return ()


def writers_json(writes: tuple[Write, ...]) -> list[Mapping[str, Any]]:
    return [{"writer": write.writer, "at": write.at, "seenAt": write.seen_at} for write in writes]


def _known(saved: Any, now: float) -> Iterator[Write]:
    for item in saved if isinstance(saved, list | tuple) else ():
        if isinstance(item, Mapping) and all(isinstance(item.get(key), int | float) for key in ("at", "seenAt")):
            yield Write(str(item.get("writer", "")), float(item["at"]), min(float(item["seenAt"]), now))
