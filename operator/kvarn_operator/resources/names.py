"""Names of what the operator makes, within 63 characters whatever the user chose. Used by builders and reconcile.

A name that fits is kept as it is. One that does not is cut and ends in a hash of the whole, so equal in gives equal
out, and different names stay different (to 50 bits).
"""

import base64
import hashlib

from kvarn_operator.scaling.spec import PodName, PoolName, Role

MAX_NAME = 63
"""Of a label value and of a DNS label, such as a pod's host name."""

_HASH_LENGTH = 10


def bounded(name: str, limit: int = MAX_NAME) -> str:
    """`name` is a Kubernetes name (up to 253 characters); the result is one too, and a label value."""
    assert limit > _HASH_LENGTH + 1, f"{limit} characters leave nothing of the name"
    return name if len(name) <= limit else _hashed(name, name, limit)


def label_value(name: str) -> str:
    """A Kubernetes name as the value of a label: what MODEL_SERVICE_LABEL and POOL_LABEL carry and are selected by."""
    return bounded(name)


def pool_name(service: str, role: Role) -> PoolName:
    return PoolName(bounded(f"{service}-{role.value}"))


def pod_name(pool: PoolName, revision: str, index: int) -> PodName:
    """Also the pod's host name, so without dots. Revision and index always stay readable."""
    assert revision.isalnum(), f"revision {revision!r} would make names ambiguous"
    suffix = f"-{revision}-{index}"
    limit = MAX_NAME - len(suffix)
    if "." in pool:
        return PodName(_hashed(pool, pool.replace(".", "-"), limit) + suffix)
    return PodName(bounded(pool, limit) + suffix)


def budget_name(pool: PoolName) -> str:
    """Of the pool's PodDisruptionBudget."""
    return bounded(pool)


def _hashed(whole: str, shown: str, limit: int) -> str:
    digest = base64.b32encode(hashlib.blake2b(whole.encode(), digest_size=10).digest()).decode().lower()
    return f"{shown[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{digest[:_HASH_LENGTH]}"
