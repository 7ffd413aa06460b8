"""What runs in the image of each role: program, user and environment. The Dockerfiles say the same."""

from collections.abc import Mapping

ROLES = ("router", "worker", "operator")

USER = "65532"
"""Numeric, so that a kubelet can see that it is not root."""

ENTRYPOINTS: Mapping[str, tuple[str, ...]] = {
    "router": ("python", "-m", "kvarn_router"),
    "operator": ("python", "-m", "kvarn_operator"),
    "worker": ("python", "-m", "kvarn_decode"),
}

ENV: Mapping[str, str] = {
    "HOME": "/tmp",  # any user id may run this, on a root file system that cannot be written
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
KERNELS = "opt/kvarn/kernels"
WORKER_ENV: Mapping[str, str] = {"NUMBA_CACHE_DIR": f"/{KERNELS}"}


def environment(role: str) -> Mapping[str, str]:
    return {**ENV, **WORKER_ENV} if role == "worker" else ENV
