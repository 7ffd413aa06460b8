"""How many accelerators a pod takes out of the budget. Used by the parsers and where the planner's spec is made."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.pool_template import PodTemplate


def gpus_per_pod(template: PodTemplate) -> int:
    """The most numerous extended resource: GPUs, MIG slices, or whatever a vendor calls them.

    The most numerous, not the sum, since network devices often come along with GPUs.
    """
    resources: Any = template.resources
    if not isinstance(resources, Mapping):
        return 0
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return max((_count(value) for name, value in asked.items() if _is_extended(str(name))), default=0)


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _count(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdigit() else 0
