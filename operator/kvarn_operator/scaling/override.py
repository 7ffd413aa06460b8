"""A foreign write to `replicas` in SLO mode: obeyed for a while, visible, never fought. Called by the planner."""

from dataclasses import replace

from kvarn_operator.scaling.decision import Override
from kvarn_operator.scaling.memory import PoolMemory
from kvarn_operator.scaling.observation import PoolObservation
from kvarn_operator.scaling.spec import PoolScaling


def with_foreign_write(spec: PoolScaling, pool: PoolObservation, memory: PoolMemory | None, now: float) -> PoolMemory:
    """A new foreign write starts an override or renews it. What was there before the planner came is no override.

    Writes are dated in whole seconds: one of the same second is told by its number.
    """
    if memory is None:
        return PoolMemory(write=pool.write)
    override = memory.override
    if override is not None and now >= override.until:
        override = None
    elif override is not None:  # what is left is never more than the whole, wherever the clock was
        override = replace(override, until=min(override.until, now + spec.override_s))
    new = pool.write != memory.write or (override is not None and override.replicas != pool.replicas)
    if pool.write is not None and pool.write.foreign and new:
        override = Override(pool.replicas, pool.write.writer, now + spec.override_s)
    return replace(memory, write=pool.write or memory.write, override=override)
