"""The kubelet's questions to a worker, all by HTTP on its metrics port. Used by the worker container's builder."""

import math
from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.labels import METRICS_PORT_NAME

_STARTUP_PERIOD_S = 2
_READY_PERIOD_S = 5
_LIVE_PERIOD_S = 10
_TIMEOUT_S = 5
"""A worker that computes on all cores answers late; that is no reason to take it out."""


def worker_probes(startup_timeout_s: float) -> dict[str, Mapping[str, Any]]:
    """Loading may take `startup_timeout_s`; liveness counts only after that, so it never ends a slow start."""
    tries = max(1, math.ceil(startup_timeout_s / _STARTUP_PERIOD_S))
    return {
        "startupProbe": _probe("/ready", _STARTUP_PERIOD_S, tries),
        "readinessProbe": _probe("/ready", _READY_PERIOD_S, 3),
        "livenessProbe": _probe("/live", _LIVE_PERIOD_S, 6),
    }


def _probe(path: str, period_s: int, failures: int) -> Mapping[str, Any]:
    return {
        "httpGet": {"path": path, "port": METRICS_PORT_NAME},
        "periodSeconds": period_s,
        "timeoutSeconds": _TIMEOUT_S,
        "failureThreshold": failures,
    }
