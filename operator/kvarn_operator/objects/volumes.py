"""A worker pod's volumes and where the worker container has them. Used by the pod's builder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvarn_operator.objects.model_source import MODEL_VOLUME, MODELS_PATH, model_volume
from kvarn_operator.resources.model_service import Model, ModelCache

TMP_PATH = "/tmp"
"""Also HOME: the root file system is read-only, and the user of the process may have no home."""

CACHE_PATH = "/cache"
TLS_PATH = "/etc/kvarn/tls"

_TMP_LIMIT = "1Gi"
_READ_BY_ALL = 0o444


@dataclass(frozen=True, slots=True)
class MountedVolume:
    volume: Mapping[str, Any]
    path: str
    read_only: bool = False

    @property
    def mount(self) -> Mapping[str, Any]:
        mount = {"name": self.volume["name"], "mountPath": self.path}
        return {**mount, "readOnly": True} if self.read_only else mount


def worker_volumes(model: Model, tls_secret: str) -> tuple[MountedVolume, ...]:
    found = [
        MountedVolume({"name": "tmp", "emptyDir": {"sizeLimit": _TMP_LIMIT}}, TMP_PATH),
        MountedVolume({"name": "cache", **_cache(model.cache)}, CACHE_PATH),
    ]
    source = model_volume(model)
    if source is not None:
        assert source["name"] == MODEL_VOLUME
        found.append(MountedVolume(source, MODELS_PATH, read_only=True))
    if tls_secret:
        secret = {"secretName": tls_secret, "defaultMode": _READ_BY_ALL}
        found.append(MountedVolume({"name": "tls", "secret": secret}, TLS_PATH, read_only=True))
    return tuple(found)


def _cache(cache: ModelCache) -> Mapping[str, Any]:
    if cache.claim_name:
        return {"persistentVolumeClaim": {"claimName": cache.claim_name}}
    return {"emptyDir": {"sizeLimit": cache.size_limit} if cache.size_limit else {}}
