"""The planner's memory of a pool <-> `status.scaling`, its only home. Used by `autoscaling`.

What the law wanted is kept as runs: since when, and between which numbers. A run of one number lasts as long as the
number does, so a pool at rest writes nothing. A run of several numbers ends after `RUN_S`, so that a high is not
remembered for ever. Whatever is not understood is dropped: the planner then starts anew, which shrinks nothing. What
is dated in the future, by a clock that was set back or by another leader's, counts as of now.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from kvarn_operator.scaling.decision import Override
from kvarn_operator.scaling.memory import PoolMemory, Sample
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import PoolScaling, ScalingMode

RUN_S = 60.0
RATE_TOLERANCE = 0.2
"""A prefill rate that moved less is not worth a write."""

Memory = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Run:
    since: float
    low: int
    high: int

    @property
    def ends_after(self) -> float:
        return float("inf") if self.low == self.high else self.since + RUN_S


def restored(saved: Any, replicas: int, now: float) -> PoolMemory | None:
    """None when nothing was saved. `replicas` counts as wanted where no run is known."""
    if not isinstance(saved, Mapping) or not saved:
        return None
    runs = list(_runs(saved, now))
    wanted = tuple(_samples(runs, now)) or (Sample(now, replicas),)
    changes = tuple(Sample(min(at, now), int(value)) for at, value in _pairs(saved.get("changes")))
    busy_at = _number(saved.get("busyUntil"))
    if busy_at == now:
        busy_at = now - 1e-3  # the planner takes a time that equals `now` for load that it just saw
    return PoolMemory(
        wanted, changes, busy_at, _number(saved.get("rate")), _write(saved.get("write")), _override(saved)
    )


def to_save(memory: PoolMemory, before: Any, spec: PoolScaling, now: float) -> Memory:
    """`before` itself as long as a restart would lose nothing that counts."""
    known = before if isinstance(before, Mapping) else {}
    saved = {
        "wanted": _wanted_json(memory, list(_runs(known, now)), spec, now),
        "changes": _changes_json(memory, known, spec, now),
        "busyUntil": _busy_until(memory, _number(known.get("busyUntil")), spec, now),
        "rate": _rate(memory.rate, _number(known.get("rate"))),
        "write": None if memory.write is None else _write_json(memory.write),
        "override": None if memory.override is None else _override_json(memory.override),
    }
    return {key: value for key, value in saved.items() if value not in (None, [])}


def _wanted_json(memory: PoolMemory, runs: list[_Run], spec: PoolScaling, now: float) -> list[Memory]:
    """Nothing outside SLO mode: a pool that comes to it counts the replicas it has then as wanted."""
    if spec.mode is not ScalingMode.SLO:
        return []
    if not runs:
        runs = [_Run(sample.at, sample.value, sample.value) for sample in memory.wanted]
    elif memory.wanted:
        window_s = max(spec.behaviour.up_window_s, spec.behaviour.down_window_s)
        runs = _with(runs, memory.wanted[-1].value, window_s, now)
    return [{"since": run.since, "low": run.low, "high": run.high} for run in runs]


def _with(runs: list[_Run], value: int, window_s: float, now: float) -> list[_Run]:
    last = runs[-1] if runs else None
    if last is not None and now < last.ends_after and last.low <= value <= last.high:
        return runs
    if last is not None and now < last.since + RUN_S:
        return [*runs[:-1], _Run(last.since, min(last.low, value), max(last.high, value))]
    kept = [run for run, following in pairwise(runs) if following.since >= now - window_s]
    return [*kept, *([last] if last is not None else []), _Run(now, value, value)]


def _samples(runs: Sequence[_Run], now: float) -> Iterator[Sample]:
    """Each run's numbers as if seen at its end: the last moment at which they still counted."""
    for run, following in zip_longest(runs, runs[1:]):
        end = min(now if following is None else following.since, run.ends_after)
        yield Sample(end, run.low)
        if run.high != run.low:
            yield Sample(end, run.high)


def _changes_json(memory: PoolMemory, known: Memory, spec: PoolScaling, now: float) -> list[Memory]:
    """Those that no window needs any more go with the next change, not by a write of their own."""
    horizon = now - max(spec.behaviour.up_limit.period_s, spec.behaviour.down_limit.period_s)
    current = [(change.at, change.value) for change in memory.changes]
    before = [(at, int(value)) for at, value in _pairs(known.get("changes"))]
    same = [change for change in before if change[0] > horizon] == [c for c in current if c[0] > horizon]
    return [{"at": at, "value": value} for at, value in (before if same else current)]


def _busy_until(memory: PoolMemory, before: float | None, spec: PoolScaling, now: float) -> float | None:
    """Rounded up to a tenth of the idle time, so a busy pool is written that often and sleeps at most so late."""
    if spec.minimum > 0 or memory.busy_at is None:
        return None
    latest = now + max(spec.zero_after_s / 10, 1.0)
    if memory.busy_at < now or (before is not None and now <= before):
        return min(before, latest) if before is not None else memory.busy_at
    return latest


def _rate(rate: float | None, before: float | None) -> float | None:
    if rate is None or before is None:
        return rate
    return before if abs(rate - before) <= RATE_TOLERANCE * before else rate


def _runs(saved: Memory, now: float) -> Iterator[_Run]:
    for item in _items(saved.get("wanted")):
        since, low, high = _number(item.get("since")), _number(item.get("low")), _number(item.get("high"))
        if since is not None and low is not None and high is not None and low <= high:
            yield _Run(min(since, now), int(low), int(high))


def _pairs(saved: Any) -> Iterator[tuple[float, float]]:
    for item in _items(saved):
        at, value = _number(item.get("at")), _number(item.get("value"))
        if at is not None and value is not None:
            yield at, value


def _write_json(write: ReplicasWrite) -> Memory:
    return {"writer": write.writer, "at": write.at, "foreign": write.foreign}


def _write(saved: Any) -> ReplicasWrite | None:
    if not isinstance(saved, Mapping):
        return None
    at = _number(saved.get("at"))
    return None if at is None else ReplicasWrite(str(saved.get("writer", "")), at, bool(saved.get("foreign")))


def _override_json(override: Override) -> Memory:
    return {"replicas": override.replicas, "writer": override.writer, "until": override.until}


def _override(saved: Memory) -> Override | None:
    item = saved.get("override")
    if not isinstance(item, Mapping):
        return None
    replicas, until = _number(item.get("replicas")), _number(item.get("until"))
    if replicas is None or until is None:
        return None
    return Override(int(replicas), str(item.get("writer", "")), until)


def _items(saved: Any) -> Iterator[Memory]:
    if isinstance(saved, list | tuple):
        yield from (item for item in saved if isinstance(item, Mapping))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
