"""What a worker container may use when the user does not say. Used by the worker container's builder.

Of the embedded model the need is known. Of others the limit only keeps one pod from taking a whole node down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvarn_operator.resources.model_service import EngineOptions, Model, SourceKind

_AMOUNTS = ("requests", "limits")
_DEFAULT_KV_GIB = 1.0
"""The worker's own default; also taken when the KV store is given in blocks."""


@dataclass(frozen=True, slots=True)
class Memory:
    requested_gib: float
    limit_gib: float


_SIMULATED = Memory(0.25, 1.0)
_EMBEDDED = Memory(1.0, 3.0)
_OTHER = Memory(4.0, 32.0)


def container_resources(given: Any, model: Model, engine: EngineOptions) -> Mapping[str, Any]:
    """What the user gives is taken as it is: a limit made up beside a GPU would only kill the worker. Only numbers
    become text, as which server-side apply insists on having them."""
    if given:
        amounts = {key: {name: str(value) for name, value in given[key].items()} for key in _AMOUNTS if given.get(key)}
        return {**given, **amounts}
    simulated = engine.engine == "simulated"
    kv_gib = 0.0 if simulated else engine.kv_memory_gib or _DEFAULT_KV_GIB
    memory = _SIMULATED if simulated else _EMBEDDED if model.source.kind is SourceKind.EMBEDDED else _OTHER
    threads = engine.threads or 1
    return {
        "requests": {
            "cpu": "100m" if simulated else f"{500 * threads}m",
            "memory": _mebi(memory.requested_gib + kv_gib),
        },
        "limits": {"cpu": str(threads + 1), "memory": _mebi(memory.limit_gib + kv_gib)},
    }


def _mebi(gib: float) -> str:
    return f"{round(gib * 1024)}Mi"
