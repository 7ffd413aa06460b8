"""Builds the images of router, worker and operator without a daemon, into one archive for a test node.

    build_local.py OUT.tar [--registry localhost] [--tag test] [--cache DIR] [--omit FILE] [ROLE ...]

The images hold what runs here: this interpreter, the installed packages of each role's extra, this checkout, and the
embedded model. Layers are kept in the cache by their content, so a change of the sources rebuilds one small layer.
Run it with the Python of an environment that `make` or `pip install -c constraints.txt -e ".[dev]"` made. For images
to publish, use the Dockerfiles beside this: they start from a base image that gets security updates.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagekit.archive import Image, write_archive
from imagekit.distributions import NotInstalled, read_role
from imagekit.interpreter import base_key, fill_base
from imagekit.kernels import Kernels
from imagekit.layers import Layer, LayerCache, LayerWriter
from imagekit.models import EmbeddedModel
from imagekit.project import Project
from imagekit.roles import ENTRYPOINTS, ROLES, USER, environment

ROOT = Path(__file__).parents[2]
ABOUT = "org.opencontainers.image"
BASE_ENV: Mapping[str, str] = {
    "PATH": "/opt/kvarn/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}


@dataclass(frozen=True, slots=True)
class Naming:
    registry: str
    tag: str

    def image(self, role: str) -> str:
        return f"{self.registry}/kvarn-{role}:{self.tag}"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Builds Kvarn's images without a daemon.")
    parser.add_argument("out", metavar="OUT.tar", help="the archive; - writes it to standard output")
    parser.add_argument("roles", nargs="*", metavar="ROLE", help=f"of {', '.join(ROLES)} (default: all)")
    parser.add_argument("--registry", default="localhost", help="what the names start with (default: localhost)")
    parser.add_argument("--tag", default="test")
    parser.add_argument(
        "--omit", type=Path, metavar="FILE", help="digests of layers to leave out: the importer has them"
    )
    parser.add_argument(
        "--cache", type=Path, default=_kvarn_cache() / "images", help="folder of layers (default: %(default)s)"
    )
    args = parser.parse_args()
    if unknown := set(args.roles) - set(ROLES):
        parser.error(f"no such role: {', '.join(sorted(unknown))}")
    return args


def _kvarn_cache() -> Path:
    return Path(os.environ.get("KVARN_CACHE") or Path.home() / ".cache" / "kvarn")


def build_images(roles: Sequence[str], naming: Naming, cache_folder: Path) -> list[Image]:
    cache = LayerCache(cache_folder / "layers")
    project = Project(ROOT)
    model = EmbeddedModel(_kvarn_cache() / "smollm2-135m", cache_folder / "tokenizer")
    kernels = Kernels(ROOT)
    models = {"worker": ("model", model.fill_whole), "router": ("tokenizer", model.fill_tokenizer)}
    if any(role in models for role in roles):
        model.convert()
    base = _timed(cache, "base", base_key(), fill_base)
    code = _timed(cache, "project", project.key(), project.fill)
    images = []
    for role in roles:
        packages = read_role(role, ROOT / "pyproject.toml")
        layers = [base, _timed(cache, f"packages-{role}", packages.key(), packages.fill)]
        if role in models:
            name, fill = models[role]
            layers.append(_timed(cache, name, model.key(), fill))
        if role == "worker":
            layers.append(_timed(cache, "kernels", kernels.key(), kernels.fill))
        env = {**BASE_ENV, **environment(role)}
        labels = {f"{ABOUT}.title": f"kvarn-{role}", f"{ABOUT}.version": project.version}
        images.append(Image(naming.image(role), (*layers, code), env, ENTRYPOINTS[role], USER, "/", labels))
    return images


def _timed(cache: LayerCache, name: str, key: str, fill: Callable[[LayerWriter], None]) -> Layer:
    began = time.monotonic()
    layer = cache.layer(name, key, fill)
    _say(f"layer {name:<18} {layer.size / 1e6:7.1f} MB  {time.monotonic() - began:5.1f} s")
    return layer


def _say(text: str) -> None:
    print(f"build_local: {text}", file=sys.stderr, flush=True)


def main() -> int:
    args = parse_args()
    omitted = frozenset(args.omit.read_text().split()) if args.omit else frozenset()
    try:
        images = build_images(args.roles or ROLES, Naming(args.registry, args.tag), args.cache)
    except NotInstalled as error:
        _say(str(error))
        return 1
    began = time.monotonic()
    if args.out == "-":
        digests = write_archive(images, sys.stdout.buffer, omitted)
    else:
        partial = Path(f"{args.out}.partial")
        with partial.open("wb") as sink:
            digests = write_archive(images, sink, omitted)
        partial.replace(args.out)
    for image in images:
        _say(f"image {image.name}  {image.size / 1e6:.1f} MB  {digests[image.name]}")
    _say(f"archive written in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
