"""Labels and annotations by which the operator knows its pods, so that users may not give them."""

from kvarn_operator.resources.labels import COMPONENT_LABEL, DELETION_COST_ANNOTATION, GROUP, MANAGED_BY_LABEL

_OWN = frozenset({COMPONENT_LABEL, MANAGED_BY_LABEL, DELETION_COST_ANNOTATION})


def is_reserved_key(key: str) -> bool:
    return key.startswith(f"{GROUP}/") or key in _OWN
