"""Writes images into one tar archive that containerd, Docker and Podman import.

It is an OCI image layout, plus the `manifest.json` by which `docker load` of any age finds the same blobs. Layers that
several images share are in it once.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import IO

from .layers import Layer

OCI = "application/vnd.oci.image."
ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Image:
    name: str
    """Complete, with host part and tag: `localhost/app:1`."""

    layers: tuple[Layer, ...]
    """Bottom first."""

    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.layers)


def write_archive(images: Sequence[Image], sink: IO[bytes], omitted: Set[str] = frozenset()) -> dict[str, str]:
    """Returns the digest of each image's manifest by the image's name.

    Layers whose digests (`sha256:...`) are in `omitted` are described but not written: the importer must have them.
    """
    layers = {layer.digest: layer for image in images for layer in image.layers}
    written = [layer for layer in layers.values() if f"sha256:{layer.digest}" not in omitted]
    with tarfile.open(fileobj=sink, mode="w|") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        for layer in written:
            with layer.path.open("rb") as content:
                member = tarfile.TarInfo(_blob(layer.digest))
                member.size = layer.size
                tar.addfile(member, content)
        entries = [_add_image(tar, image) for image in images]
        _add_json(tar, "index.json", {"schemaVersion": 2, "manifests": [entry for entry, _ in entries]})
        _add_json(tar, "manifest.json", [docker for _, docker in entries])
    return {image.name: str(entry["digest"]) for image, (entry, _) in zip(images, entries, strict=True)}


def _add_image(tar: tarfile.TarFile, image: Image) -> tuple[Json, Json]:
    """Its entry in `index.json` and the one in `manifest.json`."""
    config = _add_blob(tar, "config.v1+json", _config(image))
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": config,
        "layers": [_descriptor("layer.v1.tar", layer.digest, layer.size) for layer in image.layers],
    }
    tag = image.name.rpartition(":")[2]
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag}
    entry = {**_add_blob(tar, "manifest.v1+json", manifest), "annotations": names}
    docker = {
        "Config": _blob(str(config["digest"]).removeprefix("sha256:")),
        "RepoTags": [image.name],
        "Layers": [_blob(layer.digest) for layer in image.layers],
    }
    return entry, docker


def _config(image: Image) -> Json:
    run = {
        "Env": [f"{name}={value}" for name, value in image.env.items()],
        "Entrypoint": list(image.entrypoint),
        "WorkingDir": image.working_dir,
        "User": image.user,
        "Labels": dict(image.labels),
    }
    return {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {key: value for key, value in run.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers]},
    }


def _descriptor(kind: str, digest: str, size: int) -> Json:
    return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": size}


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _add_json(tar: tarfile.TarFile, name: str, content: object) -> None:
    _add(tar, name, json.dumps(content).encode())


def _add_blob(tar: tarfile.TarFile, kind: str, content: Json) -> Json:
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    _add(tar, _blob(digest), data)
    return _descriptor(kind, digest, len(data))
